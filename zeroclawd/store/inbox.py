"""Command ids that were taken: a second delivery finds the first one's reply and runs nothing."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

from zeroclawd.interfaces import Claimed, Clock
from zeroclawd.messages import Entry
from zeroclawd.store.database import Database
from zeroclawd.store.ledger import ChainedLedger

MAX_IDS = 20_000
MAX_AGE = 30 * 86_400.0
KEPT_REPLIES = 500


@dataclass(slots=True)
class DurableInbox:
    """Plays the role `interfaces.Inbox`: bounded by count and by age, never by a restart.

    Beyond `max_ids` the oldest ids go, but none whose command this boot has not finished. Ids that were taken while the
    wall clock was not synced have no known age and go by count alone. The newest `kept_replies` replies are kept.
    """

    database: Database
    ledger: ChainedLedger
    clock: Clock
    max_ids: int = MAX_IDS
    max_age: float = MAX_AGE
    kept_replies: int = KEPT_REPLIES
    opened_at: int = 0

    async def claim(
        self, channel: str, command_id: str, fingerprint: str, *entries: Entry, routing: bytes | None = None
    ) -> Claimed:
        """Take the id, with its ledger rows in the same commit; on disk when this returns. StoreFull, StoreError.

        Only a new id writes the rows. Otherwise the state is `final`, `accepted` (still at work, or cut off by a
        restart), or `reused` where the same id came with another `fingerprint`. `routing` comes back from `unfinished`.
        """
        rows = self.ledger.job(*entries)
        now, synced = self.clock.wall(), self.clock.synced()

        def take(connection: sqlite3.Connection) -> Claimed:
            known = connection.execute(_KNOWN, (channel, command_id)).fetchone()
            if known is not None:
                return _seen(fingerprint, *known)
            connection.execute(_TAKE, (channel, command_id, fingerprint, routing, int(now), int(synced)))
            rows(connection)
            self._bound(connection, now, synced)
            return Claimed(new=True)

        return await self.database.write(take)

    async def finish(self, channel: str, command_id: str, reply: bytes) -> None:
        """Keep the final reply for later deliveries of the same id; on disk when this returns."""

        def keep(connection: sqlite3.Connection) -> None:
            connection.execute(_FINISH, (reply, channel, command_id))
            connection.execute(_FORGET_REPLIES, (self.kept_replies,))

        await self.database.write(keep)

    async def unfinished(self, channel: str) -> list[tuple[str, bytes | None]]:
        """Ids that an earlier boot took and never answered, oldest first, each with its routing."""
        query = "SELECT command_id, routing FROM inbox WHERE channel = ? AND NOT finished AND n <= ? ORDER BY n"
        return await self.database.read(
            lambda connection: connection.execute(query, (channel, self.opened_at)).fetchall()
        )

    def _bound(self, connection: sqlite3.Connection, now: float, synced: bool) -> None:
        newest = connection.execute("SELECT max(n) FROM inbox").fetchone()[0]
        # An unfinished command of this boot stays twice as long: only one that is never finished gets that old.
        connection.execute(_FORGET_OLDEST, (newest - self.max_ids, self.opened_at, newest - 2 * self.max_ids))
        if synced:
            connection.execute(_FORGET_AGED, (int(now - self.max_age), self.opened_at))


def _seen(fingerprint: str, taken: str, finished: int, reply: bytes | None) -> Claimed:
    if taken != fingerprint:
        return Claimed(new=False, state="reused")
    return Claimed(new=False, state="final" if finished else "accepted", reply=reply)


_KNOWN = "SELECT fingerprint, finished, reply FROM inbox WHERE channel = ? AND command_id = ?"
_TAKE = """
    INSERT INTO inbox (channel, command_id, fingerprint, routing, taken_at, synced) VALUES (?, ?, ?, ?, ?, ?)
"""
_FINISH = "UPDATE inbox SET finished = 1, reply = ?, routing = NULL WHERE channel = ? AND command_id = ?"
_FORGET_REPLIES = """
    UPDATE inbox SET reply = NULL
    WHERE n <= (SELECT max(n) FROM inbox) - ? AND reply IS NOT NULL
"""
_FORGET_OLDEST = "DELETE FROM inbox WHERE n <= ? AND (finished OR n <= ? OR n <= ?)"
# A few of the oldest at a time: each claim adds one.
_FORGET_AGED = """
    DELETE FROM inbox WHERE n IN (SELECT n FROM inbox WHERE synced ORDER BY n LIMIT 8)
    AND taken_at < ? AND (finished OR n <= ?)
"""
