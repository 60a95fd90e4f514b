"""Checks a ledger: finds rows that were edited, dropped, inserted or moved and, by checkpoints, a tail that was cut."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import field
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from zeroclawd.errors import StoreError
from zeroclawd.frozen import dataclass
from zeroclawd.store import checkpoints, opening
from zeroclawd.store.checkpoints import Checkpoint
from zeroclawd.store.rows import COLUMNS, NO_HASH, Row, mistyped, row_hash, walk

_MAX_PROBLEMS = 1_000
_SQLITE = b"SQLite format 3\0"


class Problem(NamedTuple):
    """What is wrong, and at which row."""

    seq: int
    what: str


class Head(NamedTuple):
    """The newest row's number and hash."""

    seq: int
    hash: str


@dataclass(frozen=True, slots=True)
class Verification:
    """The answer. `warnings` are what an auditor will ask about though the chain is whole; `keys` signed the checkpoints.

    Problems beyond the first thousand are only counted, in `more`.
    """

    rows: int
    first: int
    head: Head
    problems: tuple[Problem, ...]
    warnings: tuple[Problem, ...]
    keys: tuple[str, ...]
    more: int = 0

    @property
    def ok(self) -> bool:
        """True if nothing is wrong."""
        return not self.problems


def verify(
    path: Path,
    *,
    checkpoint: Path | None = None,
    node: str = "",
    public_key: str = "",
    segments: Sequence[Path] = (),
) -> Verification:
    """Check a database, in use or a copy, or an exported file, row by row in bounded memory; nothing is written.

    `checkpoint` is a file of published checkpoints, one a line, each of which must be found in the chain; of a fleet's,
    only those of `node`. `public_key` is the node's, by which every checkpoint must be signed (without it, each by the key
    that it names). `segments` are exported files, in order, that hold the rows before `path`. StoreError if a file cannot
    be read at all.
    """
    kept = checkpoints.load(checkpoint, node) if checkpoint else []
    answer = _verify_once(path, kept, public_key, segments)
    if not answer.ok and opening.in_use(path):
        # Somebody may have opened the file between our look and theirs: what is wrong must be wrong again.
        answer = _verify_once(path, kept, public_key, segments)
    return answer


def _verify_once(path: Path, kept: list[Checkpoint], public_key: str, segments: Sequence[Path]) -> Verification:
    check = _Check(kept, public_key)
    sources = [*segments, path]
    check.partial = _is_export(sources[0])
    check.through(chain.from_iterable(_source(source, check) for source in sources))
    return check.answer()


def _is_export(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            start = file.read(len(_SQLITE))
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror or error}") from None
    return start != _SQLITE and start[:1] == b"{"


def _source(path: Path, check: _Check) -> Iterator[Row]:
    if _is_export(path):
        yield from _lines(path, check)
        return
    try:
        with closing(opening.connect_to_read(path)) as connection:
            connection.execute("BEGIN")
            yield from walk(connection)
    except sqlite3.Error as error:
        check.problem(check.seq, f"the file cannot be read beyond this row: {error}")


def _lines(path: Path, check: _Check) -> Iterator[Row]:
    """The rows of an exported file, whose last line must name the last row."""
    head: Any = None
    with path.open("r", encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file, 1):
            if head is not None:
                check.problem(check.seq, f"{path.name}:{number}: there is more after the head line")
            document = _parse(line)
            if isinstance(document, dict) and "head" in document:
                head = document["head"]
            elif isinstance(document, dict) and set(document) == set(COLUMNS):
                yield Row(**document)
            else:
                check.problem(check.seq, f"{path.name}:{number}: not a row")
    if not isinstance(head, dict):
        check.problem(check.seq, f"{path.name}: the head line is missing: the file was cut short")
    elif (head.get("last"), head.get("hash")) != (check.seq, check.hash):
        check.problem(check.seq, f"{path.name}: the head line does not name the last row")


def _parse(line: str) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        return None


@dataclass(slots=True)
class _Check:
    """The walk along the chain: what was last seen, and what still waits for an answer."""

    kept: list[Checkpoint]
    public_key: str
    partial: bool = False
    rows: int = 0
    first: int = 0
    seq: int = 0
    hash: str = NO_HASH
    problems: list[Problem] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)
    more: int = 0
    keys: dict[str, None] = field(default_factory=dict)
    _before: Head | None = None
    _cut_known: bool = True
    _open: dict[tuple[str, str], list[int]] = field(default_factory=dict)
    _wanted: dict[int, list[Checkpoint]] = field(default_factory=dict)

    def problem(self, seq: int, what: str) -> None:
        """Note what is wrong; beyond a bound, count only."""
        if len(self.problems) < _MAX_PROBLEMS:
            self.problems.append(Problem(seq, what))
        else:
            self.more += 1

    def warn(self, seq: int, what: str) -> None:
        """Note what is not wrong and yet wants a look."""
        if len(self.warnings) < _MAX_PROBLEMS:
            self.warnings.append(Problem(seq, what))

    def through(self, found: Iterable[Row]) -> None:
        """Check all rows in order."""
        for point in self.kept:
            if self._signed(point, point.seq, "the kept checkpoint"):
                self._wanted.setdefault(point.seq, []).append(point)
        for row in found:
            self._take(row)
        self._end()

    def answer(self) -> Verification:
        """What was found."""
        problems, warnings = tuple(self.problems), tuple(self.warnings)
        return Verification(
            self.rows, self.first, Head(self.seq, self.hash), problems, warnings, tuple(self.keys), self.more
        )

    def _take(self, row: Row) -> None:
        wrong = mistyped(row)
        if wrong:
            self.problem(self.seq + 1, f"{wrong} has another type than was written: the row was edited")
            if wrong == "seq":
                return
        if self.rows == 0:
            self._begin(row)
        else:
            self._follow(row)
        if not wrong:
            if row_hash(row) != row.hash:
                self.problem(row.seq, "the row's content is not what was hashed: it was edited")
            self._kinds(row)
        self._compare(row)
        self.rows, self.seq, self.hash = self.rows + 1, row.seq, row.hash

    def _begin(self, row: Row) -> None:
        self.first = row.seq
        self._before = Head(row.seq - 1, row.prev_hash)
        if row.seq == 1 and row.prev_hash == NO_HASH:
            return
        if row.seq <= 1:
            self.problem(row.seq, "the first row does not begin a chain")
        elif self.partial:
            self.warn(row.seq, f"the file begins at row {row.seq}; what came before is not checked")
        else:
            self._cut_known = False

    def _follow(self, row: Row) -> None:
        if row.seq <= self.seq:
            self.problem(row.seq, f"row {row.seq} comes after row {self.seq}: rows were moved")
        elif row.seq > self.seq + 1:
            missing = (
                f"row {row.seq - 1} is" if row.seq == self.seq + 2 else f"rows {self.seq + 1} to {row.seq - 1} are"
            )
            self.problem(row.seq, f"{missing} missing")
        elif row.prev_hash != self.hash:
            self.problem(row.seq, f"does not follow row {self.seq}: a row was changed, inserted, dropped or moved here")

    def _compare(self, row: Row) -> None:
        for point in self._wanted.pop(row.seq, ()):
            if point.hash != row.hash:
                self.problem(row.seq, "is not the row that the kept checkpoint signed: the chain was rewritten")

    def _kinds(self, row: Row) -> None:
        look: dict[str, Callable[[Row], None]] = {
            "intent": self._intent,
            "outcome": self._outcome,
            "checkpoint": self._checkpoint,
        }
        if row.kind in look:
            look[row.kind](row)

    def _intent(self, row: Row) -> None:
        self._open.setdefault((row.turn_id, row.call_id), []).append(row.seq)

    def _outcome(self, row: Row) -> None:
        waiting = self._open.get((row.turn_id, row.call_id))
        if waiting:
            waiting.pop(0)
            if not waiting:
                del self._open[row.turn_id, row.call_id]

    def _checkpoint(self, row: Row) -> None:
        """A checkpoint row states the row before it, signed, or that earlier rows were exported and removed."""
        document = _parse(row.note)
        if isinstance(document, dict) and isinstance(document.get("cut"), dict):
            cut = document["cut"]
            if self._before == Head(cut.get("last", 0), cut.get("hash", "")):
                self._cut_known = True
            return
        try:
            point = checkpoints.parse(document if isinstance(document, dict) else {})
        except ValueError as error:
            self.problem(row.seq, f"is no checkpoint: {error}")
            return
        if self._signed(point, row.seq, "the checkpoint in this row") and (point.seq, point.hash) != (
            row.seq - 1,
            row.prev_hash,
        ):
            self.problem(
                row.seq, "the checkpoint in this row signed another row than the one before: rows were rewritten"
            )

    def _signed(self, point: Checkpoint, seq: int, which: str) -> bool:
        if not point.genuine(self.public_key):
            self.problem(seq, f"{which} is not signed by the {'given' if self.public_key else 'named'} key")
            return False
        if point.key not in self.keys and self.keys:
            self.warn(seq, f"{which} is signed by another key than the ones before")
        self.keys[point.key] = None
        return True

    def _end(self) -> None:
        if self.rows == 0:
            self.warn(0, "there is no row")
        if not self._cut_known:
            self.problem(self.first, f"rows 1 to {self.first - 1} are missing, and no row says that they were exported")
        for seq, points in sorted(self._wanted.items()):
            for point in points:
                self._missing(seq, point)
        for seq in sorted(seq for waiting in self._open.values() for seq in waiting):
            self.warn(seq, "this intent has no outcome")

    def _missing(self, seq: int, point: Checkpoint) -> None:
        if seq > self.seq:
            self.problem(
                seq, f"a checkpoint signed row {seq}, but the ledger ends at row {self.seq}: its tail was cut off"
            )
        elif self._before and self._before.seq == seq:
            if self._before.hash != point.hash:
                self.problem(seq, "the first row does not follow the row that the checkpoint signed")
        elif seq < self.first:
            self.warn(seq, "the checkpoint is older than the first row here; check it against the exported segments")
