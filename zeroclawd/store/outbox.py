"""Messages that wait for the broker's acknowledgement: replies on disk, states, of which only the newest counts, in memory.

A state is published anew after every start, so keeping it on disk would wear the card for nothing. On a full disk a reply
is kept in memory too: whoever asked still hears that it could not be recorded.
"""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Iterator
from dataclasses import field, replace

from zeroclawd.errors import StoreFull
from zeroclawd.frozen import dataclass
from zeroclawd.interfaces import Clock, Parcel
from zeroclawd.store import plain
from zeroclawd.store.database import Database


@dataclass(frozen=True, slots=True)
class OutboxBounds:
    """How much may wait: parcels, bytes (topic, payload and properties) and seconds."""

    count: int = 10_000
    size: int = 16_000_000
    age: float = 7 * 86_400.0


@dataclass(frozen=True, slots=True)
class _Held:
    """A parcel in memory with its size, and when it was put (monotonic seconds)."""

    parcel: Parcel
    size: int
    put_at: float


@dataclass(slots=True)
class DurableOutbox:
    """Plays the role `interfaces.Outbox` for one channel; ids grow in the order of `put`.

    When full, the oldest state goes first, then the oldest reply: `dropped` counts them since the start, `expired` those
    that waited beyond their own expiry or the age bound.
    """

    database: Database
    clock: Clock
    channel: str
    bounds: OutboxBounds
    ids: Iterator[int]
    opened_at: int = 0
    dropped: int = 0
    expired: int = 0
    _on_disk: tuple[int, int] | None = None
    _held: dict[int, _Held] = field(default_factory=dict)
    _deadlines: dict[int, float] = field(default_factory=dict)

    async def put(self, parcel: Parcel) -> Parcel:
        """Keep the parcel and return it with its id; a reply is on disk when this returns, unless the disk is full."""
        parcel = replace(parcel, id=next(self.ids))
        packed = plain.to_packed(dict(parcel.properties))
        size = len(parcel.topic.encode("utf-8", "replace")) + len(parcel.payload) + len(packed)
        if parcel.expires_at:
            self._deadlines[parcel.id] = self.clock.monotonic() + parcel.expires_at - self.clock.wall()
        if size > self.bounds.size:
            self._forget(parcel.id)
            self.dropped += 1
        elif parcel.replace:
            await self._count()
            self._hold(parcel, size)
        else:
            await self._store(parcel, packed, size)
        return parcel

    async def waiting(self, limit: int) -> list[Parcel]:
        """The oldest parcels, at most `limit`, in order; what has expired is dropped."""
        late = await self.database.read(self._late)
        if late:
            await self._delete(late)
            self.expired += len(late)
        self._drop_late()
        stored = await self.database.read(lambda connection: _load(connection, self.channel, limit))
        return sorted([*stored, *(held.parcel for held in self._held.values())], key=lambda parcel: parcel.id)[:limit]

    async def done(self, parcel_id: int) -> None:
        """The broker has acknowledged it. After a power cut within a second it may be published once more (QoS 1)."""
        if self._held.pop(parcel_id, None) is None:
            await self._delete([parcel_id])
        self._forget(parcel_id)

    async def size(self) -> int:
        """How many parcels wait."""
        return await self._count() + len(self._held)

    async def _count(self) -> int:
        """How many are stored; counted once, and after that with each change."""
        if self._on_disk is None:
            found = await self.database.read(lambda connection: _stored(connection, self.channel))
            self._on_disk = self._on_disk or found
        return self._on_disk[0]

    # States, in memory

    def _hold(self, parcel: Parcel, size: int) -> None:
        if parcel.replace:
            for number, held in list(self._held.items()):
                if held.parcel.replace and held.parcel.topic == parcel.topic:
                    del self._held[number]
                    self._forget(number)
        self._held[parcel.id] = _Held(parcel, size, self.clock.monotonic())
        self._bound_held()

    def _bound_held(self) -> None:
        """Drop the oldest states, then the oldest of what else is in memory, until all fits beside what is stored."""
        count, size = self._on_disk or (0, 0)
        order = sorted(self._held, key=lambda number: (not self._held[number].parcel.replace, number))
        for number in order:
            total = size + sum(held.size for held in self._held.values())
            if count + len(self._held) <= self.bounds.count and total <= self.bounds.size:
                return
            del self._held[number]
            self._forget(number)
            self.dropped += 1

    def _drop_late(self) -> None:
        now = self.clock.monotonic()
        for number, held in list(self._held.items()):
            if now > min(self._deadlines.get(number, now), held.put_at + self.bounds.age):
                del self._held[number]
                self._forget(number)
                self.expired += 1

    def _forget(self, number: int) -> None:
        self._deadlines.pop(number, None)

    # Replies, on disk

    async def _store(self, parcel: Parcel, packed: bytes, size: int) -> None:
        put_at = (self.clock.wall(), int(self.clock.synced()))
        row = (
            parcel.id,
            self.channel,
            parcel.topic,
            parcel.payload,
            parcel.qos,
            int(parcel.retain),
            parcel.expires_at,
            packed,
            size,
            *put_at,
        )

        def job(connection: sqlite3.Connection) -> tuple[tuple[int, int], list[int]]:
            connection.execute(_PUT, row)
            gone = self._overflow(connection)
            return _stored(connection, self.channel), gone

        try:
            self._on_disk, gone = await self.database.write(job)
        except StoreFull:
            self._hold(parcel, size)
            return
        self.dropped += len(gone)
        for number in gone:
            self._forget(number)
        self._bound_held()

    def _overflow(self, connection: sqlite3.Connection) -> list[int]:
        """Delete the oldest replies beyond the bounds, which states have to leave room for first."""
        count, size = _stored(connection, self.channel)
        gone = []
        for number, one in connection.execute(_OLDEST, (self.channel,)):
            if count <= self.bounds.count and size <= self.bounds.size:
                break
            gone.append(number)
            count, size = count - 1, size - one
        connection.executemany("DELETE FROM outbox WHERE id = ?", [(number,) for number in gone])
        return gone

    async def _delete(self, numbers: list[int]) -> None:
        def job(connection: sqlite3.Connection) -> tuple[int, int]:
            connection.executemany("DELETE FROM outbox WHERE id = ?", [(number,) for number in numbers])
            return _stored(connection, self.channel)

        self._on_disk = await self.database.write(job, sync=False, urgent=True)
        for number in numbers:
            self._forget(number)

    def _late(self, connection: sqlite3.Connection) -> list[int]:
        """What has waited too long; across a boot only the wall clock can tell, and only where it was and is synced."""
        now, wall, synced = self.clock.monotonic(), self.clock.wall(), self.clock.synced()
        late = [number for number, deadline in self._deadlines.items() if now > deadline and number not in self._held]
        if synced:
            values = (self.channel, wall - self.bounds.age, self.opened_at, wall)
            late += [number for (number,) in connection.execute(_LATE, values)]
        return late


def _stored(connection: sqlite3.Connection, channel: str) -> tuple[int, int]:
    query = "SELECT count(*), coalesce(sum(size), 0) FROM outbox WHERE channel = ?"
    count, size = connection.execute(query, (channel,)).fetchone()
    return count, size


def _load(connection: sqlite3.Connection, channel: str, limit: int) -> list[Parcel]:
    return [
        Parcel(topic, payload, qos, bool(retain), False, expires_at, plain.from_packed(packed), number)
        for number, topic, payload, qos, retain, expires_at, packed in connection.execute(_WAITING, (channel, limit))
    ]


def numbers(connection: sqlite3.Connection) -> Iterator[int]:
    """Ids for new parcels of all channels: beyond every one that is stored."""
    return itertools.count(1 + connection.execute("SELECT coalesce(max(id), 0) FROM outbox").fetchone()[0])


_PUT = """
    INSERT INTO outbox (id, channel, topic, payload, qos, retain, expires_at, properties, size, put_at, synced)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
_WAITING = """
    SELECT id, topic, payload, qos, retain, expires_at, properties FROM outbox WHERE channel = ? ORDER BY id LIMIT ?
"""
_OLDEST = "SELECT id, size FROM outbox WHERE channel = ? ORDER BY id"
_LATE = """
    SELECT id FROM outbox
    WHERE channel = ? AND synced AND (put_at < ? OR (id <= ? AND expires_at > 0 AND expires_at < ?))
"""
