"""Conversation histories by session, as the turn left them: it bounds the length of each, this bounds their number."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass

from zeroclawd.errors import StoreError
from zeroclawd.messages import Message
from zeroclawd.store import plain
from zeroclawd.store.database import Database

log = logging.getLogger(__name__)

MAX_SESSIONS = 256
MAX_SIZE = 16_000_000


@dataclass(slots=True)
class DurableSessions:
    """Plays the role `interfaces.Sessions`. Beyond the bounds the session that was saved longest ago goes."""

    database: Database
    max_sessions: int = MAX_SESSIONS
    max_size: int = MAX_SIZE

    async def load(self, session: str) -> list[Message]:
        """The history as it was stored, oldest first; empty if there is none, or if it can no longer be read (logged)."""
        query = "SELECT messages FROM sessions WHERE session = ?"
        found = await self.database.read(lambda connection: connection.execute(query, (session,)).fetchone())
        try:
            return plain.from_json(found[0], list[Message]) if found else []
        except ValueError as error:
            log.error("history_unreadable session=%s reason=%s", session, error)
            return []

    async def save(self, session: str, messages: Sequence[Message]) -> None:
        """Replace the stored history. It is committed when this returns and reaches the disk with the next sync.

        StoreError if this history alone is larger than all may be.
        """
        raw = plain.to_json(list(messages))
        if len(raw) > self.max_size:
            raise StoreError(f"the history of {session!r} has {len(raw)} bytes, more than all may have together")

        def job(connection: sqlite3.Connection) -> None:
            connection.execute("DELETE FROM sessions WHERE session = ?", (session,))
            connection.execute("INSERT INTO sessions (session, messages) VALUES (?, ?)", (session, raw))
            connection.execute(_FORGET_OLDEST, (self.max_sessions, self.max_size))

        await self.database.write(job, sync=False)


_FORGET_OLDEST = """
    DELETE FROM sessions WHERE n IN (
        SELECT n FROM (
            SELECT n, row_number() OVER newest AS place, sum(length(messages)) OVER newest AS total
            FROM sessions WINDOW newest AS (ORDER BY n DESC)
        ) WHERE place > ? OR total > ?
    )
"""
