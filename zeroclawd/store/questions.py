"""Questions that wait for an operator, so that a restart can say what became of them, and the grants that answers gave."""

from __future__ import annotations

import logging
import sqlite3
from dataclasses import astuple, dataclass, field

from zeroclawd.interfaces import Clock
from zeroclawd.messages import Entry, Grant, Question
from zeroclawd.store import plain
from zeroclawd.store.database import Database
from zeroclawd.store.ledger import ChainedLedger

log = logging.getLogger(__name__)


@dataclass(slots=True)
class DurableQuestions:
    """Plays the role `interfaces.Questions`. All of it is on disk, with its ledger rows, when a method returns."""

    database: Database
    ledger: ChainedLedger
    clock: Clock
    opened_at: int = 0
    _deadlines: dict[str, float] = field(default_factory=dict)

    async def opened(self, channel: str, question: Question, *entries: Entry) -> None:
        """Keep an open question. StoreFull, StoreError."""
        rows = self.ledger.job(*entries)
        values = (question.request_id, channel, plain.to_json(question))

        def job(connection: sqlite3.Connection) -> None:
            connection.execute("INSERT INTO questions (request_id, channel, question) VALUES (?, ?, ?)", values)
            rows(connection)

        await self.database.write(job)

    async def closed(self, request_id: str, outcome: str, *entries: Entry) -> None:
        """The question is over; `outcome` says how in the log, the rows say it in the ledger."""
        rows = self.ledger.job(*entries)

        def job(connection: sqlite3.Connection) -> None:
            connection.execute("DELETE FROM questions WHERE request_id = ?", (request_id,))
            rows(connection)

        await self.database.write(job, urgent=True)
        log.info("question_closed request=%s outcome=%s", request_id, outcome)

    async def leftovers(self, channel: str) -> list[str]:
        """Request ids that an earlier boot left open, oldest first."""
        query = "SELECT request_id FROM questions WHERE channel = ? AND n <= ? ORDER BY n"
        found = await self.database.read(
            lambda connection: connection.execute(query, (channel, self.opened_at)).fetchall()
        )
        return [request_id for (request_id,) in found]

    async def question(self, request_id: str) -> Question | None:
        """An open question as it was asked, or None; a restart writes its row from it."""
        query = "SELECT question FROM questions WHERE request_id = ?"
        found = await self.database.read(lambda connection: connection.execute(query, (request_id,)).fetchone())
        try:
            return plain.from_json(found[0], Question) if found else None
        except ValueError as error:
            log.error("question_unreadable request=%s reason=%s", request_id, error)
            return None

    async def grant(self, grant: Grant, *entries: Entry) -> None:
        """Keep a grant; one of the same id is replaced, and what has expired is dropped."""
        rows = self.ledger.job(*entries)
        wall, synced = self.clock.wall(), self.clock.synced()

        def job(connection: sqlite3.Connection) -> None:
            if synced:
                connection.execute("DELETE FROM grants WHERE expires_at <= ?", (wall,))
            connection.execute("INSERT OR REPLACE INTO grants VALUES (?, ?, ?, ?, ?, ?, ?, ?)", astuple(grant))
            rows(connection)

        self._deadlines[grant.id] = self.clock.monotonic() + grant.expires_at - wall
        await self.database.write(job)

    async def grants(self) -> list[Grant]:
        """The grants that hold now.

        One of this boot ends by the monotonic clock, so that a step of the wall clock neither ends nor extends it. One of
        an earlier boot needs a synced wall clock: without, it does not hold.
        """
        query = "SELECT id, principal, tool, match, digest, device, granted_by, expires_at FROM grants ORDER BY rowid"
        found = await self.database.read(lambda connection: connection.execute(query).fetchall())
        return [grant for grant in (Grant(*row) for row in found) if self._holds(grant)]

    def _holds(self, grant: Grant) -> bool:
        deadline = self._deadlines.get(grant.id)
        if deadline is not None:
            return self.clock.monotonic() < deadline
        return self.clock.synced() and self.clock.wall() < grant.expires_at
