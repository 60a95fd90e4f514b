"""`zeroclawd run`: the daemon in the foreground, as the unit starts it."""

from __future__ import annotations

from pathlib import Path

import click


@click.command("run")
@click.option(
    "--config",
    "file",
    type=click.Path(path_type=Path),
    default=Path("/etc/zeroclawd/config.toml"),
    show_default=True,
    help="The config file.",
)
def command(file: Path) -> int:
    """Run the daemon until SIGTERM or Ctrl-C; SIGHUP reads the config again."""
    from zeroclawd.daemon.service import run

    return run(file)
