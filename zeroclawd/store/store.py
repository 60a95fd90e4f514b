"""The store as the daemon has it: everything that must survive a power cut, over one file, opened and closed together."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Self

from zeroclawd.config import LedgerConfig
from zeroclawd.frozen import dataclass
from zeroclawd.interfaces import Clock, Health
from zeroclawd.store import keys, opening, outbox
from zeroclawd.store.database import LINGER, Database
from zeroclawd.store.inbox import DurableInbox
from zeroclawd.store.keys import DeviceKey
from zeroclawd.store.ledger import ChainedLedger
from zeroclawd.store.memory import DurableMemory
from zeroclawd.store.outbox import DurableOutbox, OutboxBounds
from zeroclawd.store.questions import DurableQuestions
from zeroclawd.store.sessions import DurableSessions


@dataclass(frozen=True, slots=True)
class Store:
    """All that is durable: `ledger.boot` comes first, `ledger.keep` is a task of the daemon, `ledger.stop` comes last."""

    database: Database
    keys: DeviceKey
    clock: Clock
    ledger: ChainedLedger
    inbox: DurableInbox
    questions: DurableQuestions
    sessions: DurableSessions
    memory: DurableMemory
    parcel_ids: Iterator[int]
    last_parcel: int

    @classmethod
    def open(
        cls,
        state_dir: Path,
        clock: Clock,
        boot_id: str,
        node: str,
        limits: LedgerConfig | None = None,
        *,
        linger: float = LINGER,
    ) -> Self:
        """Open or create everything in `state_dir` (blocking; before the loop is busy).

        KeyFileError if the device key is damaged; StoreFull or StoreError if the file cannot be written, is of a newer
        version, or belongs to another running daemon. An empty or damaged file is set aside and a new one begun: the log
        and the `boot` row say so.
        """
        database = Database.open(state_dir, clock.wall(), linger=linger)
        try:
            return cls._furnish(database, state_dir, clock, boot_id, node, limits or LedgerConfig())
        except BaseException:
            database.shut()
            raise

    @classmethod
    def _furnish(
        cls, database: Database, state_dir: Path, clock: Clock, boot_id: str, node: str, limits: LedgerConfig
    ) -> Self:
        key = keys.load_or_create(state_dir)
        notes = (*database.notes, *(("new device key",) if key.created else ()))
        ledger = ChainedLedger.of(database, clock, boot_id, node, limits, lambda: key.node, notes)
        with closing(opening.connect_to_read(database.path, live=True)) as connection:
            inbox_at, questions_at = _newest(connection, "inbox"), _newest(connection, "questions")
            parcels = outbox.numbers(connection)
        return cls(
            database,
            key,
            clock,
            ledger,
            DurableInbox(database, ledger, clock, opened_at=inbox_at),
            DurableQuestions(database, ledger, clock, opened_at=questions_at),
            DurableSessions(database),
            DurableMemory(database),
            parcels,
            next(parcels),
        )

    @property
    def device_key(self) -> bytes:
        """The 32 bytes that digests and receipts derive from."""
        return self.keys.raw

    def outbox(self, channel: str, bounds: OutboxBounds | None = None) -> DurableOutbox:
        """The outbox of one channel alias; ask once and keep it."""
        ids, opened_at = self.parcel_ids, self.last_parcel
        return DurableOutbox(self.database, self.clock, channel, bounds or OutboxBounds(), ids, opened_at)

    def on_change(self, callback: Callable[[], None]) -> None:
        """Call back on the loop whenever `health` has changed."""
        self.database.on_change = callback

    def health(self) -> Health:
        """Whether things can be recorded; while they cannot, effects are refused and reads go on."""
        fault = self.database.fault
        return Health("store", "degraded", fault) if fault else Health("store", "ok")

    async def close(self, timeout: float = 10.0) -> bool:
        """Finish what is queued and let go of the file; False if the disk did not answer within `timeout` seconds."""
        return await self.database.close(timeout)


def _newest(connection: sqlite3.Connection, table: str) -> int:
    return int(connection.execute(f"SELECT coalesce(max(n), 0) FROM {table}").fetchone()[0])  # noqa: S608
