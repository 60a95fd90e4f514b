"""`zeroclawd operator`: an operator's key, made once and kept by its owner."""

from __future__ import annotations

import os
from pathlib import Path

import click


@click.group("operator")
def command() -> None:
    """Keys of operators: the private half stays with its owner, the device knows the public one."""


@command.command("keygen")
@click.argument("name")
@click.option("--out", type=click.Path(path_type=Path), default=None, help="The key file.  [default: NAME.key]")
@click.option("--may-approve", type=click.Choice(["low", "medium", "high"]), default="high", show_default=True)
def keygen(name: str, out: Path | None, may_approve: str) -> int:
    """Make an Ed25519 key for NAME, and print the lines for the config of each device."""
    import re

    from zeroclawd.signing import Keypair, b64

    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}", name):
        raise click.UsageError(f"{name!r} is not a name (letters, digits, '-' and '_')")
    path = out or Path(f"{name}.key")
    pair = Keypair.generate()
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise click.UsageError(f"{path} is there already; a key that is overwritten is lost") from None
    except OSError as error:
        raise click.UsageError(f"{path} cannot be written: {error.strerror}") from None
    with os.fdopen(handle, "w", encoding="ascii") as file:
        file.write(b64(pair.seed) + "\n")
    click.echo(f"wrote {path}: keep it where only {name} can read it", err=True)
    click.echo("for the config of each device:\n", err=True)
    click.echo(f'[operators.{name}]\npublic_key = "{pair.public}"\nmay_approve = "{may_approve}"')
    return 0
