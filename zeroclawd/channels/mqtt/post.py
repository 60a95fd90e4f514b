"""What goes out: replies by way of the disk and in order, states from memory and only the newest of each."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable

from zeroclawd.channels.mqtt.link import WINDOW, Link, PublishRefused
from zeroclawd.errors import ChannelError, StoreError
from zeroclawd.interfaces import Outbox, Parcel

PASSING_BOUND = 256


class Post:
    """Sends whenever the link is up; nobody who hands something in waits for the broker.

    States need no disk: the board and the daemon tell them anew after a restart, and a stale one would be wrong.
    """

    def __init__(
        self, link: Link, outbox: Outbox, log: logging.Logger, on_change: Callable[[], None] = lambda: None
    ) -> None:
        self._link = link
        self._outbox = outbox
        self._log = log
        self._on_change = on_change
        self._wake = asyncio.Event()
        self._passing: deque[Parcel] = deque(maxlen=PASSING_BOUND)
        self._states: dict[str, bytes] = {}
        self._unsent: dict[str, None] = {}
        self._spooled = True
        self.refused = 0

    async def keep(self, parcel: Parcel) -> None:
        """Send what must not be lost: it is on disk when this returns. If the disk fails it is sent from memory."""
        try:
            await self._outbox.put(parcel)
            self._spooled = True
        except StoreError as error:
            self._log.error("outbox_failed channel=%s error=%s", self._link.name, error.text)
            self._passing.append(parcel)
        self._wake.set()

    def passing(self, parcel: Parcel) -> None:
        """Send what is worth nothing tomorrow, in order and before what is kept; the oldest make room."""
        self._passing.append(parcel)
        self._wake.set()

    def state(self, topic: str, payload: bytes) -> None:
        """Send a retained state; a newer one of the same topic takes its place."""
        self._states[topic] = payload
        self._unsent[topic] = None
        self._wake.set()

    def link_is_up(self) -> None:
        """A broker may have lost what it had retained: every state is sent again, and the spool is looked through."""
        self._unsent = dict.fromkeys(self._states)
        self._spooled = True
        self._wake.set()

    async def run(self) -> None:
        """Send until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            if self._link.up:
                await self._round()

    async def flush(self, seconds: float) -> None:
        """Send what is there, within a bounded time; for the end, when `run` is over."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                self._wake.set()
                while self._link.up and self._wake.is_set():
                    self._wake.clear()
                    await self._round()

    async def _round(self) -> None:
        """One window of each kind, so that a long spool holds up neither states nor fresh replies."""
        try:
            while self._passing:
                await self._send_passing(self._passing.popleft())
            await self._each(self._send_state(topic) for topic in list(self._unsent)[:WINDOW])
            if self._spooled:
                await self._send_spooled()
        except ChannelError:
            return  # the link says what is wrong, and wakes us when it is up again
        except StoreError as error:
            self._log.error("outbox_failed channel=%s error=%s", self._link.name, error.text)
            return
        if self._unsent or self._spooled:
            self._wake.set()

    async def _send_passing(self, parcel: Parcel) -> None:
        try:
            await self._publish(parcel)
        except (ChannelError, asyncio.CancelledError):
            self._passing.appendleft(parcel)
            raise

    async def _send_state(self, topic: str) -> None:
        self._unsent.pop(topic, None)
        try:
            await self._publish(Parcel(topic, self._states[topic], retain=True, replace=True))
        except (ChannelError, asyncio.CancelledError):
            self._unsent[topic] = None
            raise

    async def _send_spooled(self) -> None:
        self._spooled = False  # what is put from here on sets it again
        try:
            parcels = await self._outbox.waiting(WINDOW)
            await self._each(self._send_kept(parcel) for parcel in parcels)
        except BaseException:
            self._spooled = True
            raise
        self._spooled = self._spooled or bool(parcels)

    async def _send_kept(self, parcel: Parcel) -> None:
        await self._publish(parcel)
        await self._outbox.done(parcel.id)

    async def _publish(self, parcel: Parcel) -> None:
        """Publish; a message that the broker refuses for good is counted and not sent again."""
        try:
            await self._link.publish(parcel)
        except PublishRefused as error:
            self.refused += 1
            self._on_change()
            self._log.warning("mqtt_not_taken channel=%s topic=%s why=%s", self._link.name, parcel.topic, error.text)

    async def _each(self, sends: Iterable[Awaitable[None]]) -> None:
        """Start all in order, wait for all, then raise the first failure."""
        failures: list[ChannelError | StoreError] = []

        async def one(send: Awaitable[None]) -> None:
            try:
                await send
            except (ChannelError, StoreError) as error:
                failures.append(error)

        async with asyncio.TaskGroup() as group:
            for send in sends:
                group.create_task(one(send), name=f"{self._link.name} send")
        if failures:
            raise failures[0]
