"""`zeroclawd init`: writes a commented starter config that runs as it is."""

from __future__ import annotations

import os
import platform
import re
from pathlib import Path

import click

_STARTER = Path(__file__).parent / "starter"
_NAMED_DEVICES = ('auto_approve = ["lamp"]', 'always_ask = ["pump"]')


@click.command("init")
@click.argument("out", type=click.Path(path_type=Path), default=Path("zeroclawd.toml"))
@click.option("--board", type=click.Choice(["sim", "pi"]), default="sim", show_default=True, help="What it runs on.")
@click.option("--node", default="", help="The board's name on the broker.  [default: the host's name]")
@click.option(
    "--state-dir", default="", help="Where its state lives.  [default: a folder beside the file, or /var/lib]"
)
@click.option("--force", is_flag=True, help="Replace a file that is there.")
def command(out: Path, board: str, node: str, state_dir: str, force: bool) -> int:
    """Write a starter config to OUT (default zeroclawd.toml)."""
    if out.exists() and not force:
        raise click.UsageError(f"{out} is there already; --force replaces it, or name another file")
    name = node or re.sub(r"[^A-Za-z0-9_-]", "-", platform.node())[:48] or "board"
    text = starter(board, name, state_dir or _state_beside(out, board))
    try:
        out.write_text(text, "utf-8")
    except OSError as error:
        raise click.UsageError(f"{out} cannot be written: {error.strerror}") from None
    click.echo(f"wrote {out}")
    click.echo(f"  next: zeroclawd check --config {out}")
    click.echo(f"  then: zeroclawd run --config {out}")
    return 0


def starter(board: str, node: str, state_dir: str) -> str:
    """The text of the starter config for `sim` or `pi`."""
    head = (_STARTER / "head.toml").read_text("utf-8")
    text = head + (_STARTER / f"{board}.toml").read_text("utf-8")
    if board == "pi":
        for line in _NAMED_DEVICES:  # on a Pi no device is configured yet, and a name of nothing is an error
            text = text.replace(line, f"# {line}")
    return text.replace("@NODE@", node).replace("@STATE@", state_dir)


def _state_beside(out: Path, board: str) -> str:
    system = board == "pi" and os.access("/var/lib", os.W_OK)
    return "/var/lib/zeroclawd" if system else str(out.absolute().parent / "zeroclawd-state")
