"""`zeroclawd receipts`: what was asked, decided and done, and whether the record is whole."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from zeroclawd.cli import output
from zeroclawd.errors import StoreError

if TYPE_CHECKING:
    from zeroclawd.store.rows import Row

_FILE = "zeroclawd.db"
_FOLLOW_SECONDS = 0.5


@click.group("receipts")
def command() -> None:
    """Read and check the ledger. Nothing here changes it; it may be in use."""


def _ledger(function: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        click.option("--file", type=click.Path(path_type=Path), default=None, help="The database or a copy of it."),
        click.option("--state-dir", type=click.Path(path_type=Path), default=None, help="The daemon's state folder."),
        click.option("--config", type=click.Path(path_type=Path), default=None, help="Take the folder from a config."),
    ):
        function = option(function)
    return function


def _path(file: Path | None, state_dir: Path | None, config: Path | None) -> Path:
    if file is None and state_dir is None and config is not None:
        from zeroclawd.config import load

        state_dir = load(config).config.state_dir
    found = file or (state_dir or _default_dir()) / _FILE
    if not found.is_file():
        raise StoreError(f"there is no ledger at {found}", hint="name it with --state-dir, --config or --file")
    return found


def _default_dir() -> Path:
    client = os.environ.get("ZEROCLAWD_CLIENT", "")
    beside = Path(client).parent / "state" if client else None
    return beside if beside is not None and beside.is_dir() else Path("/var/lib/zeroclawd")


_HEADS = ("row", "time", "kind", "who", "call", "decided", "outcome", "note")


def _cells(row: Row) -> tuple[str, ...]:
    call = f"{row.tool} {row.device}".strip() or row.device
    decided = f"{row.decision} {row.decided_by}".strip()
    unsynced = "" if row.wall_synced else " ?"
    return (
        str(row.seq), output.moment(row.time) + unsynced, row.kind, row.principal, call, decided, row.outcome,
        row.note[:80],
    )  # fmt: skip


@command.command("list")
@click.option("--since", default="", help="From when: 2h, 3d, or an ISO time.")
@click.option("--until", default="", help="Up to when.")
@click.option("--device", default="", help="Only this device.")
@click.option("--tool", default="", help="Only this tool.")
@click.option("--outcome", default="", help="Only this outcome: ok, denied, unknown, ...")
@click.option("--kind", default="", help="Only this kind of row: command, decision, intent, outcome, safety, ...")
@click.option("--turn", default="", help="Only this turn.")
@click.option("--limit", default=50, show_default=True, help="At most so many, the newest.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per row.")
@_ledger
def list_(
    since: str, until: str, limit: int, as_json: bool, file: Path | None, state_dir: Path | None,
    config: Path | None, **only: str,
) -> int:  # fmt: skip
    """List rows: who opened the valve last night, who said yes, and did it really happen?

    A time with a question mark was taken before the clock was set.
    """
    from zeroclawd.store.rows import rows

    found = rows(
        _path(file, state_dir, config),
        since=output.when(since) if since else None,
        until=output.when(until) if until else None,
        limit=limit,
        **only,  # type: ignore[arg-type]
    )
    _print(found, as_json)
    return 0


def _print(found: list[Row], as_json: bool) -> None:
    if as_json:
        for row in found:
            output.as_json(row.document())
    else:
        output.table(_HEADS, [_cells(row) for row in found], none="no row matches")


@command.command("show")
@click.argument("seq", type=int)
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
@_ledger
def show(seq: int, as_json: bool, file: Path | None, state_dir: Path | None, config: Path | None) -> int:
    """Show row SEQ whole."""
    from zeroclawd.store import rows

    found = rows.show(_path(file, state_dir, config), seq)
    if found is None:
        raise StoreError(f"there is no row {seq}")
    if as_json:
        output.as_json(found.document())
    else:
        for name, value in found.document().items():
            click.echo(f"{name:17} {value}")
    return 0


@command.command("verify")
@click.option("--checkpoint", type=click.Path(path_type=Path), default=None, help="Published checkpoints, one a line.")
@click.option("--public-key", default="", help="The node's key, by which checkpoints must be signed.")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
@_ledger
def verify_(
    checkpoint: Path | None, public_key: str, as_json: bool, file: Path | None, state_dir: Path | None,
    config: Path | None,
) -> int:  # fmt: skip
    """Check every row against the chain: exit 0 if it is whole, 1 if not, naming the first bad row."""
    from zeroclawd.store.verify import verify

    found = verify(_path(file, state_dir, config), checkpoint=checkpoint, public_key=public_key)
    if as_json:
        problems = [{"row": problem.seq, "what": problem.what} for problem in found.problems]
        output.as_json({"ok": found.ok, "rows": found.rows, "head": found.head.hash, "problems": problems})
        return 0 if found.ok else 1
    for problem in found.problems[:20]:
        click.echo(f"{click.style(f'row {problem.seq}', fg='red')}: {problem.what}")
    for warning in found.warnings[:20]:
        click.echo(f"{click.style(f'row {warning.seq}', fg='yellow')}: {warning.what}")
    verdict = click.style("whole", fg="green") if found.ok else click.style("NOT whole", fg="red", bold=True)
    click.echo(f"{found.rows} rows from {found.first} to {found.head.seq}: the chain is {verdict}")
    click.echo(f"head {found.head.hash}")
    if found.ok and checkpoint is None:
        click.echo("a cut tail shows only against checkpoints that somebody else kept: --checkpoint FILE")
    return 0 if found.ok else 1


@command.command("export")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="The file to write (JSON lines).")
@click.option("--from", "from_seq", default=0, help="The first row.")
@_ledger
def export_(out: Path, from_seq: int, file: Path | None, state_dir: Path | None, config: Path | None) -> int:
    """Write rows as JSON lines with the head of their chain; `verify --file` reads them."""
    from zeroclawd.store.rows import export

    segment = export(_path(file, state_dir, config), out, from_seq=from_seq)
    if segment is None:
        raise StoreError("there is no row to export")
    click.echo(f"wrote rows {segment.first} to {segment.last} to {out}")
    return 0


@command.command("check")
@click.argument("token")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
@_ledger
def check(token: str, as_json: bool, file: Path | None, state_dir: Path | None, config: Path | None) -> int:
    """Say whether the receipt TOKEN is of this ledger, and for which call: exit 1 if it is not."""
    from zeroclawd.store.rows import find_receipt

    found = find_receipt(_path(file, state_dir, config), token.strip())
    if found is None:
        output.as_json({"ours": False}) if as_json else click.echo("not of this ledger")
        return 1
    if as_json:
        output.as_json({"ours": True, **found.document()})
    else:
        click.echo(f"issued for row {found.seq}:")
        output.table(_HEADS, [_cells(found)])
    return 0


@command.command("follow")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per row.")
@_ledger
def follow(as_json: bool, file: Path | None, state_dir: Path | None, config: Path | None) -> int:
    """Show rows as they are written, until Ctrl-C."""
    from zeroclawd.store.rows import rows

    path = _path(file, state_dir, config)
    last = 0
    fresh = rows(path, limit=10)
    while True:
        for row in fresh:
            output.as_json(row.document()) if as_json else click.echo("  ".join(cell for cell in _cells(row) if cell))
            last = row.seq
        time.sleep(_FOLLOW_SECONDS)
        fresh = rows(path, after_seq=last)
