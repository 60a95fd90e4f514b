"""Drives outputs under their rules: every way to a device's level goes through this file.

There are two ways. `write` and `pulse` ask the rules and the emergency stop, hold locks while they do, and can be vetoed
until the moment the hardware is touched. `rest` brings the safe state: it asks nothing, waits for no lock, and beats a
write that is still on its way.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import AsyncIterator, Mapping
from functools import partial

from zeroclawd.board.device import Device, Output, in_words
from zeroclawd.board.hardware import HardwareError
from zeroclawd.board.plan import tells_by_itself
from zeroclawd.board.safety import (
    EmergencyStop,
    Refusal,
    Switched,
    interlocked,
    longest_pulse,
    recollect,
    refusal,
    span,
)
from zeroclawd.board.tasks import Tasks
from zeroclawd.board.timers import Timers, wait_until
from zeroclawd.errors import DeviceError, EmergencyStopped, LimitRefused, StoreError, ValueRefused
from zeroclawd.interfaces import BoardHost, Clock, Reading
from zeroclawd.tool import Value

log = logging.getLogger(__name__)

LONGEST_PULSE = 3600.0
_FRESH_SECONDS = 10.0
_FIRST_RETRY, _LAST_RETRY = 1.0, 60.0


class Control:
    """The devices of a board, with everything that may happen to them. `lost` is set when only a restart helps."""

    def __init__(
        self,
        devices: Mapping[str, Device],
        host: BoardHost,
        clock: Clock,
        timers: Timers,
        boot_id: str,
    ) -> None:
        self.stop = EmergencyStop(host)
        self.tasks = Tasks()
        self.lost = asyncio.Event()
        self.closing = False
        self._devices = devices
        self._outputs = [device for device in devices.values() if isinstance(device, Output)]
        self._host = host
        self._clock = clock
        self._timers = timers
        self._boot_id = boot_id

    # Reading

    async def read(self, device: Device) -> Reading:
        """A fresh reading of one device; the error that there is none tells the last one, and how old it is."""
        try:
            reading = await device.read()
        except DeviceError as error:
            self.failed(device, error)
            if device.last is not None:
                error.output = in_words(device.last, self._clock.monotonic())
            raise
        self.noticed(device, reading)
        return reading

    def noticed(self, device: Device, reading: Reading) -> None:
        """Take up a reading: tell of a new state, and judge every output whose interlocks name this device."""
        last = device.last
        if last is not None and reading.taken_mono < last.taken_mono:
            return
        device.last = reading
        if not (isinstance(device, Output) and device.doubt):
            device.fault = ""
        if last is None or last.values != reading.values:
            self._host.changed(reading)
        self._judge_by(device)

    def failed(self, device: Device, error: DeviceError) -> None:
        """Degrade a device by name; it is tried again later, and what depends on it is judged."""
        if not device.fault:
            log.warning("device_degraded device=%s fault=%r hint=%r", device.name, error.text, error.hint)
        device.fault = error.text.removeprefix(f"{device.name}: ")
        if isinstance(error.__cause__, HardwareError) and error.__cause__.lost:
            self.lost.set()
        if device.recovery is None and not self.closing:
            device.recovery = self.tasks.start(self._recover(device), f"recover {device.name}")
        self._judge_by(device)

    async def _recover(self, device: Device) -> None:
        """Try a degraded device again, less and less often, until it works."""
        delay = _FIRST_RETRY
        try:
            while device.fault:
                await wait_until(self._timers, self._clock.monotonic() + delay, asyncio.Event())
                delay = min(2 * delay, _LAST_RETRY)
                with contextlib.suppress(DeviceError):
                    await self._try(device)
        finally:
            device.recovery = None
        log.info("device_works_again device=%s", device.name)

    async def _try(self, device: Device) -> None:
        if isinstance(device, Output) and device.doubt and device.output.safe is not None:
            await self.rest(device, "its state was in doubt")
        elif device.fault:
            await self.read(device)

    # Writing

    async def write(self, output: Output, value: Value) -> Reading:
        """Set an output; LimitRefused or EmergencyStopped if it may not be set now."""
        wanted = output.accept(value)
        self.stop.check(output.name)
        self._check_open(output)
        if wanted == output.output.safe or not output.output.active(wanted):
            return await self._drive(output, wanted, "was switched off meanwhile", obeys_stop=True)
        ticket = output.vetoes
        async with self._held(output):
            if output.pulse is not None:
                raise LimitRefused(output.name, "pulse", "a pulse is running; switch it off to end the pulse")
            return await self._switch(output, wanted, ticket)

    async def pulse(self, output: Output, seconds: float) -> Reading:
        """On, wait, off; off in every case. The time counts from when the output is on."""
        self._check_pulse(output, seconds)
        ticket, ended = output.vetoes, asyncio.Event()
        try:
            async with self._held(output):
                self._begin_pulse(output, ended)
                await self._switch(output, output.output.accept(True), ticket)
            await wait_until(self._timers, self._clock.monotonic() + seconds, ended)
        except BaseException:
            if output.pulse is ended:
                output.pulse = None
                await self._break_off(output)
            raise
        output.pulse = None
        cut_short = output.veto if output.vetoes != ticket else ""
        reading = await self.rest(output, "the pulse is over")
        if cut_short:
            raise LimitRefused(output.name, "cut", f"the pulse was cut short: {cut_short}")
        return reading

    def _begin_pulse(self, output: Output, ended: asyncio.Event) -> None:
        if output.pulse is not None or output.switched.active:
            raise LimitRefused(output.name, "pulse", "is on already; switch it off first")
        output.pulse = ended

    async def _break_off(self, output: Output) -> None:
        """After a pulse that was cancelled or failed; a device that does not follow is degraded and tried again."""
        if output.switched.active:
            with contextlib.suppress(DeviceError):
                await self.rest(output, "the pulse was broken off")

    def _check_pulse(self, output: Output, seconds: float) -> None:
        if not output.output.pulses:
            raise ValueRefused(output.name, "cannot be pulsed")
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not math.isfinite(seconds):
            raise ValueRefused(output.name, f"a pulse lasts a number of seconds, not {seconds!r}")
        if not 0 < seconds <= LONGEST_PULSE:
            raise ValueRefused(output.name, f"a pulse lasts more than 0 s and at most {span(LONGEST_PULSE)}")
        self._refuse(output, longest_pulse(output.limits, seconds))
        self.stop.check(output.name)
        self._check_open(output)

    def _check_open(self, output: Output) -> None:
        if self.closing:
            raise LimitRefused(output.name, "closing", "the board is being closed")

    @contextlib.asynccontextmanager
    async def _held(self, output: Output) -> AsyncIterator[None]:
        """Hold the output and every output that its interlocks name, so that none of them changes between check and effect.

        Two outputs that exclude each other are thereby never both let on. The order of names rules out a deadlock.
        """
        async with contextlib.AsyncExitStack() as held:
            for other in sorted(self._outputs, key=lambda other: other.name):
                if other is output or other.name in output.sources:
                    await held.enter_async_context(other.lock)
            yield

    async def _switch(self, output: Output, value: Value, ticket: int) -> Reading:
        """Ask every rule, book, and set. Nothing awaits between the last answer and the booking."""
        await output.rested()
        self._guard(output, ticket)
        self._refuse(output, refusal(output.limits, output.switched, self._clock.monotonic()))
        for name in sorted(output.sources):
            with contextlib.suppress(DeviceError):
                await self.read(self._devices[name])
        self._refuse(output, interlocked(output.limits, self._known))
        before = self._book(output, True)
        return await self.tasks.unbroken(self._set(output, value, before, ticket), f"set {output.name}")

    async def _set(self, output: Output, value: Value, before: Switched, ticket: int) -> Reading:
        """The effect. It was booked, so that a crash in the middle finds it; what fails goes to the safe state."""
        booked = output.switched
        try:
            await self._remember(output)
            reading = await output.write(value, partial(self._guard, output, ticket))
        except (EmergencyStopped, LimitRefused, StoreError):
            if output.switched is booked:
                self._unbook(output, before)
            raise
        except DeviceError as error:
            output.doubt = True
            self.failed(output, error)
            if output.output.safe is not None:
                with contextlib.suppress(DeviceError):
                    await self.rest(output, error.text)
            raise
        output.doubt = False
        self.noticed(output, reading)
        if output.vetoes != ticket:
            raise LimitRefused(output.name, "cut", f"was switched off again at once: {output.veto}")
        return reading

    def _guard(self, output: Output, ticket: int) -> None:
        """Asked before the rules, and again in the worker right before the hardware is touched."""
        self.stop.check(output.name)
        self._check_open(output)
        if output.vetoes != ticket:
            raise LimitRefused(output.name, "veto", output.veto)

    @staticmethod
    def _refuse(output: Output, no: Refusal | None) -> None:
        if no is not None:
            raise LimitRefused(output.name, no.limit, no.text)

    # The safe state

    async def rest(self, output: Output, why: str) -> Reading:
        """Bring the safe state, whatever else is going on; DeviceError if the hardware does not follow."""
        safe = output.output.safe
        assert safe is not None
        return await self._drive(output, safe, why, obeys_stop=False)

    async def rest_all(self, why: str) -> dict[str, str]:
        """Bring every safe state at once; what did not follow, by name."""
        safe = [output for output in self._outputs if output.output.safe is not None]
        ends = await asyncio.gather(*(self.rest(output, why) for output in safe), return_exceptions=True)
        return {output.name: str(end) for output, end in zip(safe, ends, strict=True) if isinstance(end, Exception)}

    async def _drive(self, output: Output, value: Value, why: str, *, obeys_stop: bool) -> Reading:
        output.forbid(why)
        task = self.tasks.own(self._driven(output, value, obeys_stop), f"rest {output.name}")
        output.rests.add(task)
        task.add_done_callback(output.rests.discard)
        return await self.tasks.finished(task)

    async def _driven(self, output: Output, value: Value, obeys_stop: bool) -> Reading:
        guard = partial(self.stop.check, output.name) if obeys_stop else lambda: None
        try:
            reading = await output.write(value, guard)
        except EmergencyStopped:
            raise
        except DeviceError as error:
            output.doubt = True
            self.failed(output, error)
            raise
        output.doubt = False
        self._book(output, output.output.active(value))
        self.noticed(output, reading)
        await self._remember_if_possible(output)
        return reading

    def _cut(self, output: Output, no: Refusal) -> None:
        """Take a device that breaks a rule to its safe state, and write down that it was done."""
        if not output.cutting:
            output.cutting = True
            output.forbid(no.text)
            self.tasks.start(self._cutting(output, no), f"cut {output.name}")

    async def _cutting(self, output: Output, no: Refusal) -> None:
        safe = output.output.word(output.output.safe) if output.output.safe is not None else ""
        try:
            await self.rest(output, no.text)
            note = f"taken to {safe} by {no.limit}: {no.text}"
        except DeviceError as error:
            note = f"should go to {safe} by {no.limit} ({no.text}), but {error.text}"
        finally:
            output.cutting = False
        log.warning("device_cut device=%s limit=%s note=%r", output.name, no.limit, note)
        await self._host.record("safety", output.name, note)

    # Interlocks while a device is on

    def _judge_by(self, source: Device) -> None:
        for output in self._outputs:
            if source.name in output.sources:
                self._judge(output)

    def _judge(self, output: Output) -> None:
        """Cut an active output whose interlocks no longer hold; sensors that were not asked lately are asked first."""
        if not output.switched.active or output.cutting:
            return
        no = interlocked(output.limits, self._known)
        if no is not None:
            self._cut(output, no)
        elif not output.asking and any(self._stale(self._devices[name]) for name in output.sources):
            output.asking = True
            self.tasks.start(self._ask(output), f"ask for {output.name}")

    async def _ask(self, output: Output) -> None:
        """Read what an interlock needs and nobody read lately; each reading judges the output again."""
        try:
            for name in sorted(output.sources):
                if self._stale(self._devices[name]):
                    with contextlib.suppress(DeviceError):
                        await self.read(self._devices[name])
        finally:
            output.asking = False

    def _stale(self, device: Device) -> bool:
        if tells_by_itself(device.planned):
            return False
        return device.last is None or self._clock.monotonic() - device.last.taken_mono > _FRESH_SECONDS

    def _known(self, name: str, value: str) -> Value | None:
        """What an interlock may rely on: nothing of a device that has a fault or doubts its own reading."""
        device = self._devices[name]
        if device.fault or device.last is None or device.last.warnings:
            return None
        return device.last.values.get(value)

    # Booking: since when an output is on

    async def load(self) -> list[str]:
        """Take up what an earlier process of this boot knew; the names of outputs that it left on."""
        left_on = []
        for output in self._outputs:
            if not output.limits.timed:
                continue
            try:
                output.remembered = await self._host.recall(_key(output)) or ""
            except StoreError as error:
                log.error("switching_not_recalled device=%s error=%s", output.name, error)
            output.switched = recollect(output.remembered, self._boot_id, self._clock.monotonic())
            if output.switched.active:
                left_on.append(output.name)
        return left_on

    def _book(self, output: Output, active: bool) -> Switched:
        before = output.switched
        output.switched = before.set(active, self._clock.monotonic())
        self._arm(output)
        return before

    def _unbook(self, output: Output, before: Switched) -> None:
        output.switched = before
        self._arm(output)

    def _arm(self, output: Output) -> None:
        """Let the timer of `max_on` run exactly while the output is on."""
        if output.timer is not None and not output.switched.active:
            output.timer.cancel()
            output.timer = None
        elif output.timer is None and output.switched.active and output.limits.max_on is not None:
            when = output.switched.since + output.limits.max_on
            output.timer = self._timers.call_at(when, partial(self._expired, output))

    def _expired(self, output: Output) -> None:
        output.timer = None
        if output.pulse is not None:
            # A pulse is never longer than max_on, so it ends now or has ended, and goes to the safe state by itself.
            output.pulse.set()
        elif no := refusal(output.limits, output.switched, self._clock.monotonic()):
            self._cut(output, no)
        else:
            self._arm(output)

    async def _remember(self, output: Output) -> None:
        text = output.switched.encode(self._boot_id)
        if output.limits.timed and text != output.remembered:
            await self._host.remember(_key(output), text)
            output.remembered = text

    async def _remember_if_possible(self, output: Output) -> None:
        """After an output went off: nothing is worse if this is lost, since what is not known counts as just off."""
        try:
            await self._remember(output)
        except StoreError as error:
            log.error("switching_not_remembered device=%s error=%s", output.name, error)


def _key(output: Output) -> str:
    return f"board.switched.{output.name}"
