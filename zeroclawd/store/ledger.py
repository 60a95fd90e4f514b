"""The ledger: the durable, chained record of what was asked, decided and done; see docs/ledger.md."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import logging
import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from contextlib import closing
from dataclasses import field
from pathlib import Path

from zeroclawd.config import LedgerConfig
from zeroclawd.errors import StoreError, StoreFull
from zeroclawd.frozen import dataclass
from zeroclawd.interfaces import Clock
from zeroclawd.messages import Entry, Outcome
from zeroclawd.signing import Keypair
from zeroclawd.store import faults, opening, rows
from zeroclawd.store.checkpoints import Checkpoint
from zeroclawd.store.database import Database
from zeroclawd.store.rows import Row, Segment

log = logging.getLogger(__name__)

KINDS = frozenset(
    {"boot", "stop", "config", "command", "decision", "grant", "intent", "outcome"}
    | {"estop", "safety", "clock", "checkpoint"}
)
_ENDS = frozenset({"boot", "stop", "outcome", "estop", "safety"})
STEP = 2_000_000
"""How far, in microseconds, the wall clock may move against the monotonic one before a row says so."""
FIELD_CHARS = 65_536
_SEGMENT_ROWS = 10_000
_FIELDS = tuple(field.name for field in dataclasses.fields(Entry))


@dataclass(frozen=True, slots=True)
class Unfinished:
    """An intent of an earlier boot that has no outcome: whether it happened is unknown."""

    seq: int
    turn_id: str
    call_id: str
    agent: str
    channel: str
    principal: str
    tool: str
    device: str


@dataclass(frozen=True, slots=True)
class _Moment:
    """When a row was asked for, in whole microseconds."""

    wall: int
    monotonic: int
    synced: int


async def _nobody(_checkpoint: Checkpoint) -> None:
    """Publishes nothing, until the daemon says who does."""


@dataclass(slots=True)
class ChainedLedger:
    """Plays the role `interfaces.Ledger`. `publish` is awaited with every new checkpoint and must not raise."""

    database: Database
    clock: Clock
    boot_id: str
    node: str
    limits: LedgerConfig
    key: Callable[[], Keypair]
    folder: Path
    notes: tuple[str, ...] = ()
    publish: Callable[[Checkpoint], Awaitable[None]] = _nobody
    _opened_at: int = 0
    _boot: Entry | None = None
    _uncovered: int = 0
    _stirred: asyncio.Event = field(default_factory=asyncio.Event)

    @classmethod
    def of(
        cls,
        database: Database,
        clock: Clock,
        boot_id: str,
        node: str,
        limits: LedgerConfig,
        key: Callable[[], Keypair],
        notes: tuple[str, ...] = (),
    ) -> ChainedLedger:
        """The ledger in this database; exports go to `limits.export_dir` or to the folder `ledger` beside the file.

        `notes` are what the `boot` row shall say besides.
        """
        folder = Path(limits.export_dir) if limits.export_dir else database.path.with_name("ledger")
        ledger = cls(database, clock, boot_id, node, limits, key, folder, notes)
        with closing(opening.connect_to_read(database.path, live=True)) as connection:
            head = rows.last(connection)
        ledger._opened_at = head.seq if head else 0
        return ledger

    # Writing

    async def append(self, *entries: Entry, sync: bool = True) -> int:
        """Add rows in order and return the last one's seq; with `sync` they are on disk when this returns.

        Without, they survive a crash of the daemon, and reach the disk within `database.LINGER` seconds. StoreFull,
        StoreError; on a full disk there is still room for synced rows that end something.
        """
        urgent = sync and all(entry.kind in _ENDS for entry in entries)
        return await self.database.write(self.job(*entries), sync=sync, urgent=urgent)

    def job(self, *entries: Entry) -> Callable[[sqlite3.Connection], int]:
        """The rows as a job, for a commit that also writes something else; the time is taken now."""
        for entry in entries:
            if entry.kind not in KINDS:
                raise ValueError(f"{entry.kind!r} is not a kind of ledger row")
        moment = self._now()

        def write(connection: sqlite3.Connection) -> int:
            return self._write(connection, entries, moment)

        self._stir(sum(entry.kind != "checkpoint" for entry in entries))
        return write

    async def boot(self, note: str = "") -> list[Unfinished]:
        """Write the `boot` row and an `unknown` outcome for each intent that an earlier boot left open; return those.

        On a full disk the rows are written before the first row that finds room, and the list is returned all the same.
        """
        left = await self.database.read(self._left_open)
        before = await self.database.read(_how_it_ended)
        notes = [note, f"node={self.node}", f"after={before}", *self.notes]
        self._boot = Entry("boot", note="; ".join(part for part in notes if part))
        try:
            await self.append()
        except StoreFull as error:
            log.error("boot_not_recorded reason=%s", error)
        return [_unfinished(row) for row in left]

    async def stop(self, note: str = "") -> Checkpoint | None:
        """Write the `stop` row and publish a checkpoint of it: the last thing that is recorded."""
        await self.append(Entry("stop", note=note))
        return await self.checkpoint()

    async def checkpoint(self) -> Checkpoint | None:
        """Sign the head, record the signature in a row and publish it; None if the head is signed already."""
        moment = self._now()
        self._uncovered = 0
        point = await self.database.write(lambda connection: self._sign(connection, moment), urgent=True)
        if point is not None:
            await self.publish(point)
        return point

    async def keep(self) -> None:
        """Write due checkpoints and cut off what is too old or too much, until cancelled; asleep while nothing is appended.

        Checkpoints come every `checkpoint_every` rows, and `checkpoint_interval` after the first row that no checkpoint
        covers: after activity there is one last checkpoint, and then silence.
        """
        while True:
            await self._due()
            try:
                await self.checkpoint()
                await self.trim()
            except StoreError as error:
                log.error("ledger_not_kept reason=%s", error)

    async def trim(self) -> list[Segment]:
        """Export and then remove the rows beyond the bounds of age and size; returns what was cut off."""
        segments = []
        while last := await self.database.read(self._excess):
            segment = await asyncio.to_thread(self._export, last)
            surplus = await asyncio.to_thread(self._surplus, segment)
            await self._remove(segment, surplus)
            segments.append(segment)
        return segments

    async def _remove(self, segment: Segment, surplus: Sequence[Path]) -> None:
        moment = self._now()
        await self.database.write(lambda connection: self._cut(connection, segment, surplus, moment))
        for path in surplus:
            path.unlink(missing_ok=True)
        log.info("ledger_cut first=%d last=%d file=%s", segment.first, segment.last, segment.file)

    # When

    def _now(self) -> _Moment:
        clock = self.clock
        return _Moment(round(clock.wall() * 1e6), round(clock.monotonic() * 1e6), int(clock.synced()))

    def _stir(self, count: int) -> None:
        before, self._uncovered = self._uncovered, self._uncovered + count
        if count and (before == 0 or self._uncovered >= self.limits.checkpoint_every):
            self._stirred.set()

    async def _due(self) -> None:
        await self._stirred.wait()
        try:
            async with asyncio.timeout(float(self.limits.checkpoint_interval)):
                while self._uncovered < self.limits.checkpoint_every:
                    self._stirred.clear()
                    await self._stirred.wait()
        except TimeoutError:
            pass  # the first uncovered row has waited long enough
        self._stirred.clear()

    # In the writer thread

    def _write(self, connection: sqlite3.Connection, entries: Sequence[Entry], moment: _Moment) -> int:
        head = rows.last(connection)
        if head is None or head.seq == self._opened_at:
            head = self._write_boot(connection, head, moment)
        else:
            head = self._write_step(connection, head, moment)
        for entry in entries:
            head = self._add(connection, head, entry, moment)
        return head.seq if head else 0

    def _write_boot(self, connection: sqlite3.Connection, head: Row | None, moment: _Moment) -> Row | None:
        """The first rows of a boot: that it began, and what it found open."""
        if self._boot is None:
            return head
        left = self._left_open(connection)
        head = self._add(connection, head, self._boot, moment)
        for row in left:
            head = self._add(connection, head, _unknown(row), moment)
        connection.execute("DELETE FROM open_intents WHERE seq <= ?", (self._opened_at,))
        return head

    def _write_step(self, connection: sqlite3.Connection, head: Row, moment: _Moment) -> Row:
        """A `clock` row if the wall clock was moved since the last row, or has been set for the first time."""
        moved = (moment.wall - moment.monotonic) - (head.wall_time - head.monotonic)
        if abs(moved) <= STEP and moment.synced == head.wall_synced:
            return head
        was, now = ("synced" if flag else "not synced" for flag in (head.wall_synced, moment.synced))
        note = f"moved by {moved / 1e6:+.3f} s; was {was}, is {now}"
        return self._add(connection, head, Entry("clock", note=note), moment)

    def _add(self, connection: sqlite3.Connection, head: Row | None, entry: Entry, moment: _Moment) -> Row:
        seq, prev = (head.seq + 1, head.hash) if head else (1, rows.NO_HASH)
        texts = [_storable(getattr(entry, name)) for name in _FIELDS]
        row = Row(seq, prev, "", _storable(self.boot_id), moment.wall, moment.synced, moment.monotonic, *texts)
        row = dataclasses.replace(row, hash=rows.row_hash(row))
        rows.insert(connection, row)
        if row.kind == "intent":
            connection.execute("INSERT INTO open_intents VALUES (?, ?, ?)", (seq, row.turn_id, row.call_id))
        elif row.kind == "outcome":
            connection.execute(_CLOSE_INTENT, (row.turn_id, row.call_id))
        return row

    def _sign(self, connection: sqlite3.Connection, moment: _Moment) -> Checkpoint | None:
        self._write(connection, (), moment)
        head = rows.last(connection)
        if head is None or head.kind == "checkpoint":
            return None
        point = Checkpoint.sign(self.key(), self.node, head.seq, head.hash, head.boot_id, moment.wall)
        self._add(connection, head, Entry("checkpoint", note=point.text()), moment)
        return point

    def _cut(self, connection: sqlite3.Connection, segment: Segment, surplus: Sequence[Path], moment: _Moment) -> None:
        """Remove rows that lie in an exported file; a row in the chain holds the hash that the rest goes on from."""
        row = rows.get(connection, segment.last)
        if row is None or row.hash != segment.hash:
            raise StoreError(f"{segment.file} does not hold the rows that are to be removed")
        cut = {"first": segment.first, "last": segment.last, "hash": segment.hash, "file": segment.file.name}
        note = {"cut": cut, "removed_files": [path.name for path in surplus]}
        self._write(connection, [Entry("checkpoint", note=json.dumps(note, separators=(",", ":")))], moment)
        where = (segment.last, segment.first, segment.hash, str(segment.file))
        connection.execute("INSERT INTO segments VALUES (?, ?, ?, ?)", where)
        connection.execute("DELETE FROM ledger WHERE seq <= ?", (segment.last,))

    # Over the reading connection

    def _left_open(self, connection: sqlite3.Connection) -> list[Row]:
        """The intents of earlier boots that have no outcome."""
        found = connection.execute("SELECT seq FROM open_intents WHERE seq <= ? ORDER BY seq", (self._opened_at,))
        return [row for (seq,) in found.fetchall() if (row := rows.get(connection, seq))]

    def _excess(self, connection: sqlite3.Connection) -> int:
        """The last row that is to go now, or 0: never the head, nor an intent that waits for its outcome."""
        first, head = connection.execute("SELECT min(seq), max(seq) FROM ledger").fetchone()
        if first is None:
            return 0
        last = max(self._too_much(connection, first, head), self._too_old(connection, head))
        waiting = connection.execute("SELECT min(seq) FROM open_intents").fetchone()[0] or head
        last = min(last, first + _SEGMENT_ROWS - 1, head - 1, waiting - 1)
        return last if last >= first else 0

    def _too_much(self, connection: sqlite3.Connection, first: int, head: int) -> int:
        used, bound = _used_by_ledger(connection), int(self.limits.max_size)
        if used <= bound:
            return 0
        # Down to nine tenths, so that not every checkpoint cuts a little.
        return first + int((head - first + 1) * (used - 0.9 * bound) / used)

    def _too_old(self, connection: sqlite3.Connection, head: int) -> int:
        """By rows whose time is known alone: a board that booted without a clock must not lose what it wrote then."""
        moment = self._now()
        if not moment.synced:
            return 0
        since = moment.wall - int(self.limits.max_age * 1e6)
        young = connection.execute(_FIRST_SINCE, (since,)).fetchone()
        return int(connection.execute(_LAST_BEFORE, (young[0] if young else head + 1,)).fetchone()[0] or 0)

    # Files

    def _export(self, last: int) -> Segment:
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with closing(opening.connect_to_read(self.database.path, live=True)) as connection:
                first, head = next(rows.walk(connection)), rows.get(connection, last)
                name = f"ledger-{first.seq:012d}-{last:012d}-{head.hash[:8] if head else ''}.jsonl"
                segment = rows.write_segment(rows.walk(connection, 0, last), self.folder / name)
        except (OSError, sqlite3.Error) as error:
            raise faults.translate(error) from error
        if segment is None:
            raise StoreError(f"there are no rows up to {last}")
        return segment

    def _surplus(self, segment: Segment) -> list[Path]:
        """Exported files that no longer fit beside the database; a folder that the operator named is left alone."""
        if self.limits.export_dir:
            return []
        files = sorted(self.folder.glob("ledger-*.jsonl"), key=lambda path: (path.stat().st_mtime, path.name))
        room = int(self.limits.max_size) - segment.file.stat().st_size
        kept: list[Path] = []
        for path in reversed([path for path in files if path != segment.file]):
            room -= path.stat().st_size
            if room >= 0:
                kept.append(path)
        return [path for path in files if path not in kept and path != segment.file]


_CLOSE_INTENT = """
    DELETE FROM open_intents
    WHERE seq = (SELECT min(seq) FROM open_intents WHERE turn_id = ? AND call_id = ?)
"""
_FIRST_SINCE = "SELECT seq FROM ledger WHERE wall_synced = 1 AND wall_time >= ? ORDER BY seq LIMIT 1"
_LAST_BEFORE = "SELECT max(seq) FROM ledger WHERE wall_synced = 1 AND seq < ?"
_OTHERS = """
    SELECT (SELECT coalesce(sum(size), 0) FROM outbox)
         + (SELECT coalesce(sum(length(messages)), 0) FROM sessions)
         + (SELECT coalesce(sum(length(reply)), 0) FROM inbox)
"""


def _used_by_ledger(connection: sqlite3.Connection) -> int:
    """Bytes of the file that are in use, less what the other tables hold."""
    size, pages, free = (
        connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_size", "page_count", "freelist_count")
    )
    return int(size * (pages - free) - connection.execute(_OTHERS).fetchone()[0])


def _how_it_ended(connection: sqlite3.Connection) -> str:
    found = connection.execute(
        "SELECT kind FROM ledger WHERE kind != 'checkpoint' ORDER BY seq DESC LIMIT 1"
    ).fetchone()
    if found is None:
        return "first start"
    return "clean stop" if found[0] == "stop" else "power cut or crash"


def _unknown(row: Row) -> Entry:
    """The outcome of an intent that nobody can tell the end of."""
    same = ("turn_id", "call_id", "agent", "channel", "principal", "tool", "device", "risk", "arguments_digest")
    note = f"row {row.seq} of boot {row.boot_id} has no outcome"
    return Entry("outcome", outcome=Outcome.UNKNOWN.value, note=note, **{name: getattr(row, name) for name in same})


def _unfinished(row: Row) -> Unfinished:
    return Unfinished(row.seq, row.turn_id, row.call_id, row.agent, row.channel, row.principal, row.tool, row.device)


def _storable(text: str) -> str:
    """Text that UTF-8 and a bounded row can hold: a lone surrogate is written out, what is too long is cut and says so."""
    if len(text) > FIELD_CHARS:
        text = f"{text[:FIELD_CHARS]}… (+{len(text) - FIELD_CHARS} characters)"
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode("utf-8")
