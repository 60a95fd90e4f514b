"""`zeroclawd operator`: an operator's key, made once and kept by its owner."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

from zeroclawd.cli import output

if TYPE_CHECKING:
    from zeroclawd.signing import Keypair

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


@click.group("operator")
def command() -> None:
    """Keys of operators: the private half stays with its owner, the device knows the public one."""


@command.command("keygen")
@click.argument("name")
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="The key file.  [default: NAME.key]")
@click.option(
    "--may-approve", type=click.Choice(["low", "medium", "high"]), default="high", show_default=True,
    help="The highest risk, for the lines that are printed.",
)  # fmt: skip
@output.options
def keygen(name: str, out: Path | None, may_approve: str, as_json: bool) -> int:
    """Make an Ed25519 key for NAME, and print the lines for the config of each device.

    The key file is written for its owner alone, and an existing one is never replaced.
    """
    from zeroclawd.signing import Keypair

    if not _NAME.fullmatch(name):
        raise click.UsageError(f"{name!r} is not a name (letters, digits, '-' and '_')")
    path = out or Path(f"{name}.key")
    pair = Keypair.generate()
    public = pair.public
    _write(path, pair)
    if as_json:
        output.as_json({"operator": name, "public_key": public, "key_file": str(path)})
        return 0
    words = output.words()
    output.echo(f"{words('keygen-wrote')} {path}", err=True)
    output.echo(f"{words('keygen-config')}\n", err=True)
    output.echo(f'[operators.{name}]\npublic_key = "{public}"\nmay_approve = "{may_approve}"')
    output.echo(f'\n{words("keygen-client")}\n\noperator = "{name}"\noperator_key = "{path.absolute()}"', err=True)
    return 0


def _write(path: Path, pair: Keypair) -> None:
    from zeroclawd.signing import b64

    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise click.UsageError(
            f"{path} is there already, and a key that is replaced is lost; name another file with --out"
        ) from None
    except OSError as error:
        raise click.UsageError(f"{path} cannot be written: {error.strerror}") from None
    with os.fdopen(handle, "w", encoding="ascii") as file:
        file.write(f"{b64(pair.seed)}\n")
        file.flush()
        os.fsync(file.fileno())
