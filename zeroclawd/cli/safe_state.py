"""`zeroclawd safe-state`: what the unit runs after the daemon has ended, however it ended."""

from __future__ import annotations

import os
from pathlib import Path

import click


@click.command("safe-state")
@click.option(
    "--config",
    "file",
    type=click.Path(path_type=Path),
    default=Path("/etc/zeroclawd/config.toml"),
    show_default=True,
    help="The config file; if it is broken, the last one that started is used.",
)
@click.option(
    "--state-dir",
    type=click.Path(path_type=Path),
    default=lambda: Path(os.environ.get("STATE_DIRECTORY", "/var/lib/zeroclawd").split(":")[0]),
    help="Where the daemon keeps its state.  [default: $STATE_DIRECTORY or /var/lib/zeroclawd]",
)
def command(file: Path, state_dir: Path) -> int:
    """Drive every output to its safe state and exit."""
    from zeroclawd.daemon.service import safe_states

    lines, used = safe_states(file, state_dir)
    for line in lines:
        click.echo(line)
    click.echo(f"safe states driven by {used}")
    return 0
