"""`zeroclawd receipts`: what was asked, decided and done, and whether the record is whole."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from zeroclawd.cli import connection, output
from zeroclawd.errors import StoreError

if TYPE_CHECKING:
    from zeroclawd.store.rows import Row
    from zeroclawd.store.verify import Verification

Command = TypeVar("Command", bound=Callable[..., Any])

_DEFAULT = "/var/lib/zeroclawd"
_LOOK_SECONDS = 0.5
_SHOWN_PROBLEMS = 20


@click.group("receipts")
def command() -> None:
    """Read and check the ledger. Nothing here changes it; the daemon may be running."""


# Which file

_FOLDER = click.Path(path_type=Path, file_okay=False)
_FILE = click.Path(path_type=Path, dir_okay=False)
_PLACES = (
    click.option("--state-dir", type=_FOLDER, help=f"Where the daemon keeps its state.  [default: {_DEFAULT}]"),
    click.option("--config", type=_FILE, help="Take that folder from a daemon's config."),
    click.option("--file", type=_FILE, help="The database, a copy of it, or (verify) an exported file."),
)


def _ledger(function: Command) -> Command:
    """The options that name the database; `_path` makes a path of them."""
    for option in reversed(_PLACES):
        function = option(function)
    return output.options(function)


def _path(state_dir: Path | None, config: Path | None, file: Path | None) -> Path:
    from zeroclawd.store.opening import FILE

    found = file or (state_dir or _state_dir(config)) / FILE
    try:
        there = found.is_file()
    except PermissionError:
        raise StoreError(
            f"{found} may not be read by you", hint="run as the daemon's user: sudo -u zeroclawd"
        ) from None
    if not there:
        raise StoreError(
            f"there is no ledger at {found}",
            hint="name it with --state-dir, with --config of the daemon, or with --file",
        )
    return found


def _state_dir(config: Path | None) -> Path:
    if config is None:
        return Path(connection.client_state_dir() or _DEFAULT)
    from zeroclawd.config import load

    return load(config).config.state_dir


# Listing

_STAMP = len("2026-01-31 22:00:00")
_HEADS = ("row", "time", "kind", "device", "call", "asked by", "decided", "outcome", "note")


@command.command("list")
@click.option("--since", default="", help="From when on: 2h or 3d ago, 2026-01-31, 2026-01-31T22:00.")
@click.option("--until", default="", help="Up to when, written in the same way.")
@click.option("--device", default="", help="Only this device.")
@click.option("--tool", default="", help="Only this tool.")
@click.option("--outcome", default="", help="Only this outcome: ok, denied, unknown, ...")
@click.option("--kind", default="", help="Only this kind of row: command, decision, intent, outcome, safety, ...")
@click.option("--turn", default="", help="Only this turn.")
@click.option("--limit", default=50, show_default=True, help="At most so many, the newest.")
@_ledger
def list_(
    since: str, until: str, limit: int, as_json: bool, state_dir: Path | None, config: Path | None, file: Path | None,
    **only: str,
) -> int:  # fmt: skip
    """List rows: who opened the valve last night, who said yes, and did it really happen?

    `receipts list --since 12h --device valve` answers that. A time with a question mark is a guess: it was taken before the
    clock was set.
    """
    from zeroclawd.store.rows import rows

    found = rows(
        _path(state_dir, config, file),
        since=output.since(since, "--since") if since else None,
        until=output.since(until, "--until") if until else None,
        limit=limit,
        **only,  # type: ignore[arg-type]
    )
    if as_json:
        for row in found:
            output.as_json(row.document())
    else:
        _table(found, none=output.words()("receipts-none"))
    return 0


def _table(found: Iterable[Row], none: str = "") -> None:
    """Rows as a table; the offset of the local time stands in the head as long as it is the same for all."""
    rows = [list(_cells(row)) for row in found]
    offsets = {row[1][_STAMP:].removesuffix(" ?") for row in rows}
    heads = list(_HEADS)
    if len(offsets) == 1:
        heads[1] = f"time {offsets.pop()}"
        for row in rows:
            row[1] = row[1][:_STAMP] + (" ?" if row[1].endswith("?") else "")
    output.table(heads, rows, none=none, whole=3)


def _cells(row: Row) -> tuple[str, ...]:
    return (
        str(row.seq),
        output.moment(row.time) + ("" if row.wall_synced else " ?"),
        row.kind,
        row.device or "-",
        f"{row.tool} {_short(_arguments(row))}".strip() or "-",
        row.principal or "-",
        " ".join(part for part in (row.decision, row.decided_by) if part) or "-",
        row.outcome or "-",
        _short(row.note) or "-",
    )


def _arguments(row: Row) -> str:
    """What a call was given, as `value=true`; its device has a column of its own."""
    try:
        given = json.loads(row.arguments)
    except ValueError:
        given = None
    if not row.tool or not isinstance(given, dict):
        return row.arguments
    return " ".join(
        f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in given.items() if name != "device"
    )


def _short(text: str, limit: int = 72) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


# One row


@command.command("show")
@click.argument("seq", type=int)
@_ledger
def show(seq: int, as_json: bool, **place: Path | None) -> int:
    """Show row SEQ whole, and the other rows of the same call."""
    from zeroclawd.store import rows

    path = _path(**place)
    found = rows.show(path, seq)
    if found is None:
        raise StoreError(f"there is no row {seq}", hint="`zeroclawd receipts list` shows the newest ones")
    if as_json:
        output.as_json(found.document())
        return 0
    _whole(found)
    same = [row for row in rows.rows(path, turn=found.turn_id) if found.turn_id and row.call_id == found.call_id]
    if len(same) > 1:
        output.echo(f"\n{output.words()('receipts-same-call')}")
        _table(same)
    return 0


def _whole(row: Row) -> None:
    for name, value in row.document().items():
        if value != "":
            said = output.moment(row.time) if name == "wall_time" else str(value)
            output.echo(f"{name:17} {output.visible(said)}")


@command.command("check")
@click.argument("token")
@_ledger
def check(token: str, as_json: bool, **place: Path | None) -> int:
    """Say whether the receipt TOKEN is of this ledger, and for which call: exit 1 if it is not."""
    from zeroclawd.store.rows import find_receipt

    found = find_receipt(_path(**place), token.strip())
    words = output.words()
    if as_json:
        output.as_json({"ours": found is not None, **(found.document() if found else {})})
    elif found is None:
        output.echo(output.colour(words("receipts-not-ours"), output.BAD))
        output.echo(f"  {words('receipts-not-ours-try')}", err=True)
    else:
        output.echo(output.colour(words("receipts-ours"), output.GOOD))
        _table([found])
    return 0 if found else 1


# The whole record


@command.command("verify")
@click.option("--checkpoint", type=_FILE, help="A file of published checkpoints, one a line, kept somewhere else.")
@click.option("--node", default="", help="Of a fleet's checkpoints, only those of this node.")
@click.option("--public-key", default="", help="The node's key, by which every checkpoint must be signed.")
@_ledger
def verify_(
    checkpoint: Path | None, node: str, public_key: str, as_json: bool, **place: Path | None
) -> int:  # fmt: skip
    """Check every row against the chain: exit 0 if it is whole, 1 if not, and the bad rows are named."""
    from zeroclawd.store.verify import verify

    found = verify(_path(**place), checkpoint=checkpoint, node=node, public_key=public_key)
    if as_json:
        output.as_json(_verification(found))
    else:
        _say(found, witnessed=checkpoint is not None)
    return 0 if found.ok else 1


def _verification(found: Verification) -> dict[str, Any]:
    return {
        "ok": found.ok,
        "rows": found.rows,
        "first": found.first,
        "last": found.head.seq,
        "head": found.head.hash,
        "problems": [{"row": problem.seq, "what": problem.what} for problem in found.problems],
        "warnings": [{"row": warning.seq, "what": warning.what} for warning in found.warnings],
        "more": found.more,
        "keys": list(found.keys),
    }


def _say(found: Verification, *, witnessed: bool) -> None:
    words = output.words()
    for problem in found.problems[:_SHOWN_PROBLEMS]:
        output.echo(f"{output.colour(f'row {problem.seq}', output.BAD, bold=True)}: {output.visible(problem.what)}")
    hidden = max(0, len(found.problems) - _SHOWN_PROBLEMS) + found.more
    if hidden:
        output.echo(f"{words('verify-more')} {hidden}")
    for warning in found.warnings[:_SHOWN_PROBLEMS]:
        output.echo(f"{output.colour(f'row {warning.seq}', output.DOUBT)}: {output.visible(warning.what)}")
    verdict = output.colour(words("verify-whole"), output.GOOD) if found.ok else output.colour(
        words("verify-not-whole"), output.BAD, bold=True
    )  # fmt: skip
    output.echo(f"{words('verify-rows')} {found.first}-{found.head.seq} ({found.rows}): {verdict}")
    output.echo(f"{words('verify-head')} {found.head.hash}")
    if found.ok and not witnessed:
        output.echo(f"  {words('verify-no-witness')}", err=True)


@command.command("export")
@click.option("--out", type=_FILE, help="The file to write.  [default: standard output]")
@click.option("--from", "from_seq", default=0, help="The first row.")
@click.option("--to", "to_seq", default=2**63 - 1, show_default="the last", help="The last row.")
@_ledger
def export_(out: Path | None, from_seq: int, to_seq: int, as_json: bool, **place: Path | None) -> int:
    """Write rows as JSON lines with the head of their chain; `receipts verify --file` checks such a file."""
    from zeroclawd.store.rows import export

    path = _path(**place)
    if out is None:
        return _to_stdout(path, from_seq, to_seq)
    segment = export(path, out, from_seq=from_seq, to_seq=to_seq)
    if segment is None:
        raise StoreError("there is no row to export")
    document = {"first": segment.first, "last": segment.last, "hash": segment.hash, "file": str(segment.file)}
    output.as_json(document) if as_json else output.echo(
        f"{output.words()('receipts-exported')} {segment.first}-{segment.last}: {segment.file}"
    )
    return 0


def _to_stdout(path: Path, from_seq: int, to_seq: int) -> int:
    from contextlib import closing

    from zeroclawd.store import opening, rows

    first: Row | None = None
    with closing(opening.connect_to_read(path)) as connected:
        for row in rows.walk(connected, from_seq, to_seq):
            first, last = first or row, row
            output.as_json(row.document())
    if first is None:
        raise StoreError("there is no row to export")
    output.as_json(rows.head_line(first, last))
    return 0


# Following


@command.command("follow")
@click.option("--device", default="", help="Only this device.")
@click.option("--kind", default="", help="Only this kind of row.")
@_ledger
def follow(device: str, kind: str, as_json: bool, **place: Path | None) -> int:
    """Show rows as they are written, until Ctrl-C."""
    path = _path(**place)
    try:
        for row in _written(path, device=device, kind=kind):
            output.as_json(row.document()) if as_json else output.echo(_line(row))
    except KeyboardInterrupt:
        return 0
    return 0


def _written(path: Path, **only: str) -> Iterable[Row]:
    """The last rows, and then every new one: SQLite tells nobody of a commit, so the file's times are looked at."""
    from zeroclawd.store.rows import rows

    found, last, seen = rows(path, limit=10, **only), 0, (0, 0)  # type: ignore[arg-type]
    while True:
        yield from found
        last = found[-1].seq if found else last
        while (now := _stamp(path)) == seen:
            time.sleep(_LOOK_SECONDS)
        seen = now
        found = rows(path, after_seq=last, **only)  # type: ignore[arg-type]


def _stamp(path: Path) -> tuple[int, int]:
    """When the database and its write-ahead log were last written to."""
    times = []
    for part in (path, path.with_name(f"{path.name}-wal")):
        try:
            times.append(part.stat().st_mtime_ns)
        except FileNotFoundError:
            times.append(0)
    return times[0], times[1]


def _line(row: Row) -> str:
    return "  ".join(output.visible(cell) for cell in _cells(row) if cell != "-")
