"""The rows of the ledger: what one holds, how its hash is made, and how rows are read, found and exported."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from zeroclawd import signing
from zeroclawd.frozen import dataclass
from zeroclawd.store import faults, opening

NO_HASH = "0" * 64
_MICRO = 1_000_000
_CHUNK = 500


@dataclass(frozen=True, slots=True)
class Row:
    """One row as it is stored; times are whole microseconds, `wall_synced` is 0 or 1. See docs/ledger.md."""

    seq: int
    prev_hash: str
    hash: str
    boot_id: str
    wall_time: int
    wall_synced: int
    monotonic: int
    kind: str
    turn_id: str = ""
    call_id: str = ""
    agent: str = ""
    channel: str = ""
    principal: str = ""
    tool: str = ""
    device: str = ""
    risk: str = ""
    arguments: str = ""
    arguments_digest: str = ""
    decision: str = ""
    decided_by: str = ""
    approval_id: str = ""
    outcome: str = ""
    result_digest: str = ""
    shown_digest: str = ""
    receipt: str = ""
    note: str = ""

    @property
    def time(self) -> float:
        """The wall time in Unix seconds; to be doubted where `wall_synced` is 0."""
        return self.wall_time / _MICRO

    def document(self) -> dict[str, Any]:
        """All fields by name, in order."""
        return dataclasses.asdict(self)


COLUMNS = tuple(field.name for field in dataclasses.fields(Row))
NUMBERS = frozenset({"seq", "wall_time", "wall_synced", "monotonic"})
_HASHED = ("prev_hash", "seq", *COLUMNS[3:])
_SELECT = f"SELECT {', '.join(COLUMNS)} FROM ledger"  # noqa: S608
_INSERT = f"INSERT INTO ledger ({', '.join(COLUMNS)}) VALUES ({', '.join('?' * len(COLUMNS))})"  # noqa: S608


def row_hash(row: Row) -> str:
    """The hash that the row must carry: hex SHA-256 over the label and every field but the hash, length-prefixed.

    Fields in order: prev_hash, seq, then boot_id to note as in the table; numbers in decimal, text as UTF-8
    (`signing.encode`). docs/ledger.md has a worked example.
    """
    return hashlib.sha256(signing.encode(signing.ROW, [str(getattr(row, name)) for name in _HASHED])).hexdigest()


def mistyped(row: Row) -> str:
    """The first field whose type is not the column's, or empty: SQLite stores any type in any column."""
    for name in COLUMNS:
        if type(getattr(row, name)) is not (int if name in NUMBERS else str):
            return name
    return ""


def insert(connection: sqlite3.Connection, row: Row) -> None:
    """Write a row that follows the last one."""
    connection.execute(_INSERT, [getattr(row, name) for name in COLUMNS])


def last(connection: sqlite3.Connection) -> Row | None:
    """The newest row."""
    found = connection.execute(f"{_SELECT} ORDER BY seq DESC LIMIT 1").fetchone()
    return Row(*found) if found else None


def get(connection: sqlite3.Connection, seq: int) -> Row | None:
    """One row by its number."""
    found = connection.execute(f"{_SELECT} WHERE seq = ?", (seq,)).fetchone()
    return Row(*found) if found else None


def walk(connection: sqlite3.Connection, first: int = 0, last: int = 2**63 - 1) -> Iterator[Row]:
    """Rows from `first` to `last` in order, one at a time."""
    cursor = connection.execute(f"{_SELECT} WHERE seq BETWEEN ? AND ? ORDER BY seq", (first, last))
    cursor.arraysize = _CHUNK
    for found in cursor:
        yield Row(*found)


# Questions that people ask


def rows(
    path: Path,
    *,
    since: float | None = None,
    until: float | None = None,
    device: str = "",
    tool: str = "",
    outcome: str = "",
    kind: str = "",
    turn: str = "",
    principal: str = "",
    limit: int | None = None,
    after_seq: int | None = None,
) -> list[Row]:
    """The rows that match, in order, from a file that may be in use; `since` and `until` are Unix seconds.

    With `limit` the newest ones, or with `after_seq` the first ones after that number. StoreError.
    """
    equal = {"device": device, "tool": tool, "outcome": outcome, "kind": kind, "turn_id": turn, "principal": principal}
    terms: list[tuple[str, str | int]] = [(f"{name} = ?", value) for name, value in equal.items() if value]
    if since is not None:
        terms.append(("wall_time >= ?", round(since * _MICRO)))
    if until is not None:
        terms.append(("wall_time < ?", round(until * _MICRO)))
    if after_seq is not None:
        terms.append(("seq > ?", after_seq))
    newest = limit is not None and after_seq is None
    where = f" WHERE {' AND '.join(term for term, _ in terms)}" if terms else ""
    query = f"{_SELECT}{where} ORDER BY seq {'DESC' if newest else 'ASC'} LIMIT ?"
    values = [*(value for _, value in terms), -1 if limit is None else limit]
    found = _ask(path, query, values)
    return found[::-1] if newest else found


def show(path: Path, seq: int) -> Row | None:
    """One row, or None."""
    return next(iter(_ask(path, f"{_SELECT} WHERE seq = ?", [seq])), None)


def find_receipt(path: Path, token: str) -> Row | None:
    """The row of the call for which this receipt was issued, or None: then it is not ours, or its row was exported."""
    return next(iter(_ask(path, f"{_SELECT} WHERE receipt = ? AND receipt != '' LIMIT 1", [token])), None)


def _ask(path: Path, query: str, values: list[str | int]) -> list[Row]:
    try:
        with closing(opening.connect_to_read(path)) as connection:
            return [Row(*found) for found in connection.execute(query, values)]
    except sqlite3.Error as error:
        raise faults.translate(error) from error


# Export


@dataclass(frozen=True, slots=True)
class Segment:
    """An exported run of rows: the first and last number, and the hash of the last, which the chain goes on from."""

    first: int
    last: int
    hash: str
    file: Path


def export(path: Path, out: Path, *, from_seq: int = 0, to_seq: int = 2**63 - 1) -> Segment | None:
    """Write rows as JSON lines and close with a line that holds the chain head; None, and no file, if there are no rows.

    The file is whole and on the disk, or it isn't there. StoreError, StoreFull.
    """
    try:
        with closing(opening.connect_to_read(path)) as connection:
            return write_segment(walk(connection, from_seq, to_seq), out)
    except (sqlite3.Error, OSError) as error:
        raise faults.translate(error) from error


def write_segment(found: Iterable[Row], out: Path) -> Segment | None:
    """Write rows to a file (0600) under another name, sync it, and give it its name."""
    fresh = out.with_name(out.name + ".new")
    fresh.unlink(missing_ok=True)
    try:
        segment = _write_lines(found, fresh, out)
        if segment is not None:
            fresh.rename(out)
            opening.sync_folder(out.parent)
        return segment
    finally:
        fresh.unlink(missing_ok=True)


def _write_lines(found: Iterable[Row], fresh: Path, out: Path) -> Segment | None:
    first: Row | None = None
    head: Row | None = None
    with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as lines:
        for row in found:
            first = first or row
            head = row
            lines.write(json.dumps(row.document(), ensure_ascii=False, separators=(",", ":"), default=repr) + "\n")
        if first is None or head is None:
            return None
        lines.write(json.dumps(head_line(first, head)) + "\n")
        lines.flush()
        os.fsync(lines.fileno())
    return Segment(first.seq, head.seq, head.hash, out)


def head_line(first: Row, head: Row) -> dict[str, Any]:
    """The last line of an export: which rows the file holds, what they follow, and the hash that the chain goes on from."""
    span = {"v": 1, "first": first.seq, "last": head.seq, "prev_hash": first.prev_hash, "hash": head.hash}
    return {"head": span}
