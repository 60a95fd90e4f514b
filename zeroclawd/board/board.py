"""The board as the rest of the house sees it: devices by name, the emergency stop, start and stop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from pathlib import Path

from zeroclawd.board.control import Control
from zeroclawd.board.device import Device, Output
from zeroclawd.board.driver import InputDriver
from zeroclawd.board.edges import Edges
from zeroclawd.board.hardware import Hardware, HardwareError, InputLine, Pull
from zeroclawd.board.opening import drive_safe_states, open_hardware
from zeroclawd.board.plan import Planned, describe, limits_in_words, plan_devices
from zeroclawd.board.timers import LoopTimers, Timers
from zeroclawd.board.worker import Worker
from zeroclawd.config import Config
from zeroclawd.errors import DeviceError, EmergencyStopped, StoreError, UnknownDevice, ValueRefused
from zeroclawd.interfaces import BoardHost, Clock, DeviceInfo, Reading
from zeroclawd.tool import Risk, Value

__all__ = ["DeviceBoard", "drive_safe_states", "open_hardware"]

log = logging.getLogger(__name__)

_GPIO = "GPIO"
_STOP = "emergency stop"


class DeviceBoard:
    """Implements the role Board. The constructor checks the config and touches nothing; ConfigError says what is wrong.

    `hardware` is what the devices are wired to, None before `start` unless it was handed in. `boot_id` is the kernel's
    (random(4)); limits that must hold across restarts are measured within one boot.
    """

    def __init__(
        self,
        config: Config,
        host: BoardHost,
        clock: Clock,
        hardware: Hardware | None = None,
        *,
        timers: Timers | None = None,
        boot_id: str | None = None,
    ) -> None:
        self.hardware = hardware
        self._config = config
        self._host = host
        self._clock = clock
        self._timers = timers or LoopTimers(clock)
        self._planned = plan_devices(config)
        self._workers = {resource: Worker(resource) for resource in self._resources()}
        self._devices = {planned.name: self._device(planned) for planned in self._planned}
        self._control = Control(
            self._devices, host, clock, self._timers, _kernel_boot_id() if boot_id is None else boot_id
        )
        self._stop_line: InputLine | None = None

    # Before and after the work

    @staticmethod
    def plan(config: Config) -> list[str]:
        """What a board of this config would be, one line for each device, without touching hardware. ConfigError."""
        return list(describe(config, plan_devices(config)))

    def describe_plan(self) -> list[str]:
        """The same for this board."""
        return list(describe(self._config, self._planned))

    async def start(self) -> None:
        """Open every device, outputs in their safe state; one that fails is degraded by name and tried again later.

        HardwareError if there is no hardware of the configured kind at all.
        """
        control = self._control
        await control.stop.load()
        left_on = await control.load()
        if self.hardware is None:
            self.hardware = await self._workers[_GPIO].run(lambda: open_hardware(self._config), self._timeout)
        for device in self._devices.values():
            device.attach(self.hardware)
            if isinstance(device.driver, InputDriver):
                Edges(device, device.driver, control, self._clock, self._timers)
        await asyncio.gather(self._open_stop_input(), *(self._open(device) for device in self._devices.values()))
        for name in left_on:
            text = "was on when the daemon last ended, without going to its safe state; it was taken there at start"
            await self._host.record("safety", name, text)

    async def stop(self, reason: str) -> None:
        """Bring every safe state, on purpose and recorded, and let go of the hardware; within a bounded time."""
        control = self._control
        was_on = [output.name for output in self._outputs() if output.switched.active]
        control.closing = True
        for device in self._devices.values():
            if device.recovery is not None:
                device.recovery.cancel()
        missed = await control.rest_all(f"the board is being closed: {reason}")
        if was_on or missed:
            await self._record_stop(reason, was_on, missed)
        await control.tasks.end(1.0)
        await self._close()

    async def wait_lost(self) -> None:
        """Return when the hardware has gone for good for this process (its GPIO chip disappeared): it must restart."""
        await self._control.lost.wait()

    async def _open(self, device: Device) -> None:
        try:
            match device:
                case Output(output=driver) if driver.safe is not None:
                    await self._control.rest(device, "the board is starting")
                case Device(driver=InputDriver()):
                    await self._control.read(device)
                case _:
                    await device.open()
        except DeviceError as error:
            self._control.failed(device, error)

    async def _record_stop(self, reason: str, was_on: list[str], missed: Mapping[str, str]) -> None:
        parts = [f"taken to the safe state: {', '.join(was_on)}"] if was_on else []
        parts += [f"not in its safe state: {text}" for text in missed.values()]
        try:
            await self._host.record("safety", "", f"the board is being closed ({reason}); {'; '.join(parts)}")
        except StoreError as error:
            log.error("board_stop_not_recorded error=%s", error)

    async def _close(self) -> None:
        closing = [device.close() for device in self._devices.values() if not device.worker.hung]
        await asyncio.gather(*closing, return_exceptions=True)
        if self.hardware is not None:
            with contextlib.suppress(HardwareError):
                await self._workers[_GPIO].run(self.hardware.close, self._timeout)
        for worker in self._workers.values():
            worker.close()

    # The role Board

    def devices(self) -> tuple[DeviceInfo, ...]:
        """All configured devices in the order of the config."""
        return tuple(_info(device) for device in self._devices.values())

    def device(self, name: str) -> DeviceInfo:
        """One device; UnknownDevice names the nearest ones."""
        return _info(self._find(name))

    async def read(self, name: str) -> Reading:
        """Take a fresh reading."""
        return await self._control.read(self._find(name))

    async def write(self, name: str, value: Value) -> Reading:
        """Set an output, read it back and return what is there now."""
        return await self._control.write(self._output(name), value)

    async def pulse(self, name: str, seconds: float) -> Reading:
        """Switch an output on, hold it for `seconds`, switch it off; returns the reading after."""
        return await self._control.pulse(self._output(name), seconds)

    def about(self) -> Mapping[str, Value]:
        """The board itself: model, kind, temperature, uptime and the like."""
        facts: dict[str, Value] = {"kind": self._config.board.kind if self.hardware is None else self.hardware.kind}
        if self.hardware is not None:
            facts |= {**self.hardware.about(), "simulated": self.hardware.simulated}
        faulty = [device.name for device in self._devices.values() if device.fault]
        return {**facts, "emergency_stop": self.stopped, "degraded": ", ".join(faulty)}

    # The emergency stop

    @property
    def stopped(self) -> bool:
        """True while the emergency stop is engaged."""
        return self._control.stop.state.engaged

    @property
    def stop_reason(self) -> str:
        """Who engaged the emergency stop and why; empty while it is not engaged."""
        state = self._control.stop.state
        return f"{state.by}: {state.reason}" if state.engaged else ""

    async def engage(self, by: str, reason: str) -> None:
        """Engage the emergency stop: no effect starts from here on; returns when safe states and latch are done."""
        self._control.stop.latch(by, reason)
        await self._control.tasks.unbroken(self._engage(by, reason), _STOP)

    async def release(self, by: str) -> None:
        """Release it; the caller has verified who asks. EmergencyStopped while its input is engaged or unreadable."""
        await self._check_stop_input()
        await self._control.stop.release(by)
        await self._host.record("estop", "", f"released by {by}")
        log.warning("emergency_stop_released by=%s", by)

    async def _engage(self, by: str, reason: str) -> None:
        log.warning("emergency_stop_engaged by=%s reason=%r", by, reason)
        missed = await self._control.rest_all(f"the emergency stop is engaged (by {by}: {reason})")
        note = "".join(f"; not in its safe state: {text}" for text in missed.values())
        try:
            await self._control.stop.keep()
        finally:
            await self._host.record("estop", "", f"engaged by {by}: {reason}{note}")

    async def _open_stop_input(self) -> None:
        if self._config.board.estop_pin is None:
            return
        try:
            engaged = await self._read_stop_input()
        except HardwareError as error:
            await self.engage("board", f"its input cannot be read: {error.text}")
            return
        if engaged:
            await self.engage(f"input on pin {self._config.board.estop_pin}", "engaged at start")

    async def _read_stop_input(self) -> bool:
        pin, hardware = self._config.board.estop_pin, self.hardware
        assert pin is not None
        assert hardware is not None
        loop = asyncio.get_running_loop()

        def look() -> bool:
            if self._stop_line is None:
                # Pulled up, so that a broken wire of a normally closed switch to ground engages the stop.
                self._stop_line = hardware.input(pin, pull=Pull.UP, changed=lambda level: self._stop_edge(level, loop))
            return self._means_stop(self._stop_line.get())

        return await self._workers[_GPIO].run(look, self._timeout)

    def _stop_edge(self, level: bool, loop: asyncio.AbstractEventLoop) -> None:
        """Called by the hardware, from any thread: the latch is set right here, the rest follows on the event loop."""
        if not self._means_stop(level) or self.stopped:
            return
        by, reason = f"input on pin {self._config.board.estop_pin}", "engaged"
        self._control.stop.latch(by, reason)
        with contextlib.suppress(RuntimeError):  # the event loop has ended before the hardware was closed
            loop.call_soon_threadsafe(lambda: self._control.tasks.start(self._engage(by, reason), _STOP))

    def _means_stop(self, level: bool) -> bool:
        return level != self._config.board.estop_active_low

    async def _check_stop_input(self) -> None:
        if self._config.board.estop_pin is None:
            return
        try:
            engaged = await self._read_stop_input()
        except HardwareError as error:
            raise EmergencyStopped(_STOP, f"its input cannot be read: {error.text}") from error
        if engaged:
            raise EmergencyStopped(_STOP, f"its input on pin {self._config.board.estop_pin} is still engaged")

    # Devices

    @property
    def _timeout(self) -> float:
        return float(self._config.board.timeout)

    def _resources(self) -> list[str]:
        return list(dict.fromkeys([_GPIO, *(planned.driver.resource for planned in self._planned)]))

    def _device(self, planned: Planned) -> Device:
        worker = self._workers[planned.driver.resource]
        if planned.output is not None:
            return Output(planned, planned.output, worker, self._clock, self._timeout)
        return Device(planned, worker, self._clock, self._timeout)

    def _outputs(self) -> list[Output]:
        return [device for device in self._devices.values() if isinstance(device, Output)]

    def _find(self, name: str) -> Device:
        if name in self._devices:
            return self._devices[name]
        import difflib

        near = difflib.get_close_matches(name, self._devices, n=3)
        guess = f"did you mean {' or '.join(near)}?" if near else f"devices are: {', '.join(self._devices) or 'none'}"
        raise UnknownDevice(name, f"there is no such device; {guess}")

    def _output(self, name: str) -> Output:
        device = self._find(name)
        if isinstance(device, Output):
            return device
        raise ValueRefused(name, f"a {device.planned.config.kind} can be read, not written")


def _info(device: Device) -> DeviceInfo:
    planned, config = device.planned, device.planned.config
    can = {"read"}
    if planned.output is not None:
        can |= {"write", "pulse"} if planned.output.pulses else {"write"}
    default = Risk.LOW if planned.output is None else Risk.MEDIUM
    return DeviceInfo(
        name=device.name,
        kind=config.kind,
        can=frozenset(can),
        risk=Risk.parse(config.risk) if config.risk else default,
        writes=planned.output.takes if planned.output is not None else "",
        units=planned.driver.units,
        limits=limits_in_words(planned),
        quorum=config.quorum,
        idempotent=config.idempotent,
        fault=device.fault,
        description=config.description,
    )


def _kernel_boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:
        return ""
