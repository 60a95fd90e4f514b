"""A few values that must survive a power cut, by key: latches, counters, the emergency stop."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

from zeroclawd.store.database import Database


@dataclass(slots=True)
class DurableMemory:
    """What a board remembers (`interfaces.BoardHost`)."""

    database: Database

    async def remember(self, key: str, value: str) -> None:
        """Keep a value; on disk when this returns. A value that is there already is not written again. StoreFull."""

        def job(connection: sqlite3.Connection) -> None:
            connection.execute(_REMEMBER, (key, value))

        await self.database.write(job, urgent=True)

    async def recall(self, key: str) -> str | None:
        """The kept value, or None."""
        query = "SELECT value FROM memory WHERE key = ?"
        found = await self.database.read(lambda connection: connection.execute(query, (key,)).fetchone())
        return found[0] if found else None


_REMEMBER = """
    INSERT INTO memory (key, value) VALUES (?, ?)
    ON CONFLICT (key) DO UPDATE SET value = excluded.value WHERE value != excluded.value
"""
