"""Waiting on the monotonic clock, as a seam so that tests need not wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from zeroclawd.interfaces import Clock


class Timer(Protocol):
    """Something that will happen unless it is cancelled."""

    def cancel(self) -> None:
        """Let it not happen."""
        ...


class Timers(Protocol):
    """Makes things happen at a time of the monotonic clock (seconds)."""

    def call_at(self, when: float, call: Callable[[], None]) -> Timer:
        """Call on the event loop once the clock has reached `when`."""
        ...


class LoopTimers:
    """The event loop's own timers, set by a Clock."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def call_at(self, when: float, call: Callable[[], None]) -> Timer:
        """Call on the event loop once the clock has reached `when`."""
        return asyncio.get_running_loop().call_later(max(0.0, when - self._clock.monotonic()), call)


async def wait_until(timers: Timers, when: float, ended: asyncio.Event) -> None:
    """Return at `when` or as soon as `ended` is set."""
    timer = timers.call_at(when, ended.set)
    try:
        await ended.wait()
    finally:
        timer.cancel()
