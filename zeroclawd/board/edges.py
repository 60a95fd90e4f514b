"""Turns the edges of an input into readings: the first one counts at once, bounces are judged when they are over."""

from __future__ import annotations

import asyncio
import contextlib

from zeroclawd.board.control import Control
from zeroclawd.board.device import Device
from zeroclawd.board.driver import InputDriver
from zeroclawd.board.timers import Timer, Timers
from zeroclawd.errors import DeviceError
from zeroclawd.interfaces import Clock


class Edges:
    """Listens to one input. An interlock must not wait for a contact to stop bouncing, so nothing is held back."""

    def __init__(self, device: Device, driver: InputDriver, control: Control, clock: Clock, timers: Timers) -> None:
        self._device = device
        self._driver = driver
        self._control = control
        self._clock = clock
        self._timers = timers
        self._loop = asyncio.get_running_loop()
        self._bouncing: Timer | None = None
        driver.listen(self._edge)

    def _edge(self, level: bool) -> None:
        """Called by the hardware, from any thread."""
        wall, monotonic = self._clock.wall(), self._clock.monotonic()
        with contextlib.suppress(RuntimeError):  # the event loop has ended before the hardware was closed
            self._loop.call_soon_threadsafe(self._take, level, wall, monotonic)

    def _take(self, level: bool, wall: float, monotonic: float) -> None:
        if self._bouncing is not None or self._control.closing:
            return
        if self._driver.debounce:
            self._bouncing = self._timers.call_at(monotonic + self._driver.debounce, self._settled)
        reading = self._device.reading(self._driver.sample(level), wall, monotonic)
        self._control.noticed(self._device, reading)

    def _settled(self) -> None:
        self._bouncing = None
        if not self._control.closing:
            self._control.tasks.start(self._look(), f"look at {self._device.name}")

    async def _look(self) -> None:
        with contextlib.suppress(DeviceError):
            await self._control.read(self._device)
