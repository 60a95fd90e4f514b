"""What the tests of the store share: a clock that is set by hand, a store that closes itself, and an attacker's tools."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from pathlib import Path

from zeroclawd.config import LedgerConfig
from zeroclawd.messages import Entry
from zeroclawd.store import rows
from zeroclawd.store.rows import Row
from zeroclawd.store.store import Store


@dataclass
class HandClock:
    """Stands still until a test moves it."""

    wall_time: float = 1_700_000_000.0
    monotonic_time: float = 100.0
    is_synced: bool = True

    def wall(self) -> float:
        return self.wall_time

    def monotonic(self) -> float:
        return self.monotonic_time

    def synced(self) -> bool:
        return self.is_synced

    def advance(self, seconds: float) -> None:
        """Time goes by."""
        self.wall_time += seconds
        self.monotonic_time += seconds

    def step(self, seconds: float) -> None:
        """Somebody sets the wall clock."""
        self.wall_time += seconds

    def reboot(self) -> None:
        """The monotonic clock starts again."""
        self.monotonic_time = 5.0


@contextlib.asynccontextmanager
async def opened(
    folder: Path, clock: HandClock | None = None, boot_id: str = "boot-1", limits: LedgerConfig | None = None
) -> AsyncIterator[Store]:
    """A store that is closed at the end of the block."""
    store = Store.open(folder, clock or HandClock(), boot_id, "node-1", limits, linger=0.05)
    try:
        yield store
    finally:
        assert await store.close(30)


def file_of(folder: Path) -> Path:
    return folder / "zeroclawd.db"


def all_rows(folder: Path) -> list[Row]:
    return rows.rows(file_of(folder))


def kinds(folder: Path) -> list[str]:
    return [row.kind for row in all_rows(folder)]


def tamper(path: Path, statements: Iterable[tuple[str, tuple[object, ...]]]) -> None:
    """Change the file as somebody would who has it in his hands: the triggers that hold the daemon back are no obstacle."""
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        for trigger in ("ledger_is_never_changed", "ledger_is_exported_first"):
            connection.execute(f"DROP TRIGGER IF EXISTS {trigger}")
        for statement, values in statements:
            connection.execute(statement, values)
    finally:
        connection.close()


def intent(call: str = "c1", turn: str = "t1", **fields: str) -> Entry:
    return Entry("intent", turn_id=turn, call_id=call, **fields)


def outcome(call: str = "c1", turn: str = "t1", how: str = "ok", **fields: str) -> Entry:
    return Entry("outcome", turn_id=turn, call_id=call, outcome=how, **fields)
