"""One device: its driver, the worker that runs the driver's blocking calls, and what is known of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

from zeroclawd.board.driver import OutputDriver, Sample, say
from zeroclawd.board.hardware import Hardware, HardwareError
from zeroclawd.board.plan import Planned
from zeroclawd.board.safety import Limits, Switched, span
from zeroclawd.board.timers import Timer
from zeroclawd.board.worker import Worker
from zeroclawd.errors import DeviceFailed, ReadbackFailed, ValueRefused
from zeroclawd.interfaces import Clock, Reading
from zeroclawd.tool import Value

Result = TypeVar("Result")
Guard = Callable[[], None]

# A missed acknowledge is gone at the next try or stays (dotnet/iot#832).
_READS = 3
_PAUSE_SECONDS = 0.02


class Device:
    """Reads with a deadline and a bounded number of retries. `fault` says why it does not work, empty if it does."""

    def __init__(self, planned: Planned, worker: Worker, clock: Clock, timeout: float) -> None:
        self.planned = planned
        self.name = planned.name
        self.driver = planned.driver
        self.worker = worker
        self.fault = ""
        self.last: Reading | None = None
        self.recovery: asyncio.Task[None] | None = None
        self._clock = clock
        self._seconds = timeout + planned.driver.patience
        self._hardware: Hardware | None = None
        self._opened = False

    def attach(self, hardware: Hardware) -> None:
        """Say what the device is wired to."""
        self._hardware = hardware

    async def open(self) -> None:
        """Claim what the device needs; does nothing if it has it."""
        await self._run(self._open)

    async def read(self) -> Reading:
        """A fresh reading; DeviceFailed if there is none."""
        return await self._run(self._read)

    async def close(self) -> None:
        """Let go of what the driver has opened."""
        await self._run(self.driver.close)

    def reading(self, sample: Sample, wall: float, monotonic: float) -> Reading:
        """A sample with its device, units and time."""
        units = {name: self.driver.units.get(name, "") for name in sample.values}
        simulated = self._hardware is not None and self._hardware.simulated
        return Reading(self.name, sample.values, units, wall, monotonic, sample.how, sample.warnings, simulated)

    async def _run(self, call: Callable[[], Result]) -> Result:
        try:
            return await self.worker.run(call, self._seconds)
        except HardwareError as error:
            raise DeviceFailed(self.name, error.text, hint=error.hint) from error

    def _open(self) -> None:
        if self._hardware is None:
            raise HardwareError("the board has not started")
        if not self._opened:
            self.driver.open(self._hardware)
            self._opened = True

    def _read(self) -> Reading:
        for left in reversed(range(_READS)):
            wall, monotonic = self._clock.wall(), self._clock.monotonic()
            try:
                self._open()
                return self.reading(self.driver.read(), wall, monotonic)
            except HardwareError as error:
                if not error.transient or not left:
                    raise
                time.sleep(_PAUSE_SECONDS)
        raise AssertionError("unreachable")


class Output(Device):
    """A device that takes values.

    `lock` is held from the check of a write to its end. A write notes `vetoes` when it begins; if the number is another one
    right before the hardware would be touched, the write must not go through, and `veto` says why. `doubt` is true while
    the hardware may be in another state than the one last asked for.
    """

    def __init__(self, planned: Planned, driver: OutputDriver, worker: Worker, clock: Clock, timeout: float) -> None:
        super().__init__(planned, worker, clock, timeout)
        self.output = driver
        self.limits: Limits = planned.limits
        self.sources = frozenset(name.device for rule in planned.limits.interlocks for name in rule.names)
        self.lock = asyncio.Lock()
        self.switched = Switched.just_off(clock.monotonic())
        self.remembered = ""
        self.vetoes = 0
        self.veto = ""
        self.doubt = False
        self.cutting = False
        self.asking = False
        self.timer: Timer | None = None
        self.pulse: asyncio.Event | None = None
        self.rests: set[asyncio.Task[Reading]] = set()

    def accept(self, value: Value) -> Value:
        """The value in its proper type; ValueRefused says what the device takes."""
        try:
            return self.output.accept(value)
        except ValueError as error:
            raise ValueRefused(self.name, str(error)) from None

    def forbid(self, why: str) -> None:
        """Veto every write that is on its way, and end a pulse."""
        self.vetoes += 1
        self.veto = why
        if self.pulse is not None:
            self.pulse.set()

    async def write(self, value: Value, guard: Guard) -> Reading:
        """Write once, if `guard` raises nothing right before; then read back. ReadbackFailed if that disagrees."""
        return await self._run(lambda: self._write(value, guard))

    async def rested(self) -> None:
        """Return when no way to the safe state is under way."""
        while self.rests:
            await asyncio.wait(self.rests)

    def _write(self, value: Value, guard: Guard) -> Reading:
        self._open()
        guard()
        self.output.write(value)
        if not self.output.reads_back():
            sample = Sample({"sent": value}, f"sent on {self.driver.resource}, which does not show what is set")
            return self.reading(sample, self._clock.wall(), self._clock.monotonic())
        try:
            reading = self._read()
        except HardwareError as error:
            raise ReadbackFailed(
                self.name, f"{self.output.word(value)} was written, but {error.text}", hint=error.hint
            ) from error
        if not self.output.agrees(value, Sample(reading.values, reading.how)):
            shown = values_in_words(reading)
            raise ReadbackFailed(
                self.name, f"{self.output.word(value)} was written, but it shows {shown} ({reading.how})"
            )
        return reading


def values_in_words(reading: Reading) -> str:
    """The values of a reading with their names and units."""
    said = (f"{name} {say(value)} {reading.units.get(name, '')}".rstrip() for name, value in reading.values.items())
    return ", ".join(said)


def in_words(reading: Reading, now: float) -> str:
    """An old reading, marked as such."""
    return f"the last reading is stale, {span(now - reading.taken_mono)} old: {values_in_words(reading)}"
