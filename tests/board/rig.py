"""A board with a clock and timers that a test moves by hand, over the simulation and over the real adapter's parts."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from zeroclawd.board.board import DeviceBoard, open_hardware
from zeroclawd.board.hardware import Hardware, HardwareError
from zeroclawd.board.pi import PiHardware
from zeroclawd.board.plan import plan_devices
from zeroclawd.board.sim import SimHardware
from zeroclawd.config import Config, parse
from zeroclawd.errors import StoreError
from zeroclawd.interfaces import Reading


class HandClock:
    """Stands still unless it is moved."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now
        self.wall_now = 1_700_000_000.0

    def wall(self) -> float:
        return self.wall_now

    def monotonic(self) -> float:
        return self.now

    def synced(self) -> bool:
        return True


@dataclass(order=True)
class _Due:
    when: float
    number: int
    call: Callable[[], None] = field(compare=False)
    cancelled: bool = field(default=False, compare=False)

    def cancel(self) -> None:
        self.cancelled = True


class HandTimers:
    """Timers that fire when `pass_time` moves the clock to them."""

    def __init__(self, clock: HandClock) -> None:
        self._clock = clock
        self._waiting: list[_Due] = []
        self._numbers = itertools.count()

    def call_at(self, when: float, call: Callable[[], None]) -> _Due:
        due = _Due(when, next(self._numbers), call)
        heapq.heappush(self._waiting, due)
        return due

    def pending(self) -> int:
        return sum(not due.cancelled for due in self._waiting)

    async def pass_time(self, seconds: float) -> None:
        until = self._clock.now + seconds
        await asyncio.sleep(0.002)  # whoever is about to set a timer sets it at the time before
        while self._waiting and self._waiting[0].when <= until:
            due = heapq.heappop(self._waiting)
            self._clock.now = max(self._clock.now, due.when)
            if not due.cancelled:
                due.call()
                await asyncio.sleep(0.002)
        self._clock.now = until
        await asyncio.sleep(0)


class Memory:
    """A BoardHost whose memory and rows outlive the board, as a disk would."""

    def __init__(self) -> None:
        self.kept: dict[str, str] = {}
        self.rows: list[tuple[str, str, str]] = []
        self.readings: list[Reading] = []
        self.writes = 0
        self.full = False
        self.before_remember: Callable[[], Any] = lambda: None

    async def remember(self, key: str, value: str) -> None:
        self.before_remember()
        await asyncio.sleep(0)
        if self.full:
            raise StoreError("the disk is full")
        self.writes += 1
        self.kept[key] = value

    async def recall(self, key: str) -> str | None:
        return self.kept.get(key)

    async def record(self, kind: str, device: str, note: str) -> None:
        await asyncio.sleep(0)
        if self.full:
            raise StoreError("the disk is full")
        self.rows.append((kind, device, note))

    def changed(self, reading: Reading) -> None:
        self.readings.append(reading)

    def states(self, device: str, value: str) -> list[Any]:
        return [reading.values[value] for reading in self.readings if reading.device == device]


class Smbus:
    """What smbus2's SMBus does with the chips of a simulated bus: errno 121 where nobody answers."""

    def __init__(self, sim: SimHardware, number: int) -> None:
        self._bus = sim.bus(number)
        self.written: list[tuple[int, int, list[int]]] = []

    def read_i2c_block_data(self, address: int, register: int, length: int) -> list[int]:
        try:
            return list(self._bus.read(address, register, length))
        except HardwareError:
            raise OSError(121, "Remote I/O error") from None

    def write_i2c_block_data(self, address: int, register: int, data: list[int]) -> None:
        try:
            self._bus.write(address, register, bytes(data))
        except HardwareError:
            raise OSError(121, "Remote I/O error") from None

    def close(self) -> None:
        pass


class Rig:
    """A board and what is around it; `sim` holds chips and wires, also behind the real adapter."""

    kind = "sim"

    def __init__(self, text: str, memory: Memory | None = None, boot_id: str = "boot-1", start: float = 1000.0) -> None:
        self.config: Config = parse(text).config
        self.clock = HandClock(start)
        self.timers = HandTimers(self.clock)
        self.memory = memory or Memory()
        self.sim = SimHardware()
        for device in plan_devices(self.config):
            device.driver.simulate(self.sim)
        self.hardware: Hardware = self.wire()
        self.board = self.new_board(boot_id)

    def wire(self) -> Hardware:
        return self.sim

    def new_board(self, boot_id: str = "boot-1") -> DeviceBoard:
        return DeviceBoard(self.config, self.memory, self.clock, self.hardware, timers=self.timers, boot_id=boot_id)

    async def __aenter__(self) -> Rig:
        await self.board.start()
        return self

    async def __aexit__(self, *_exception: object) -> None:
        for bus in (0, 1):
            self.sim.bus(bus).faults.free()
        await self.board.stop("the test is over")

    def outside(self, pin: int, high: bool) -> None:
        self.sim.set_input(pin, high)

    def level(self, pin: int) -> float:
        return self.sim.duty(pin)

    async def pass_time(self, seconds: float) -> None:
        await self.timers.pass_time(seconds)

    async def until(self, condition: Callable[[], Any], seconds: float = 10.0) -> None:
        """Wait for something that threads and the loop will bring about."""
        for _ in range(int(seconds * 1000)):
            if condition():
                return
            await asyncio.sleep(0.001)
        raise AssertionError("it did not come about")


class PiRig(Rig):
    """The real adapter over gpiozero's mock pins, a bus of smbus2's shape, pyserial's loop:// and a folder for 1-wire."""

    kind = "pi"

    def __init__(self, text: str, folder: Path, **more: Any) -> None:
        self.folder = folder
        super().__init__(text.replace("/dev/ttyEcho", "loop://"), **more)

    def wire(self) -> Hardware:
        from gpiozero.pins.mock import MockFactory, MockPWMPin

        self.factory = MockFactory(pin_class=MockPWMPin)
        self.busses: dict[int, Smbus] = {}
        for sensor in self.sim.onewire.sensors():
            self.set_sensor(sensor, self.sim.onewire.texts[sensor][0])
        return PiHardware(factory=self.factory, open_bus=self.open_bus, one_wire_folder=str(self.folder))

    def open_bus(self, number: int) -> Smbus:
        return self.busses.setdefault(number, Smbus(self.sim, number))

    def set_sensor(self, sensor: str, text: str) -> None:
        (self.folder / sensor).mkdir(exist_ok=True)
        (self.folder / sensor / "w1_slave").write_text(text)

    def outside(self, pin: int, high: bool) -> None:
        line = self.factory.pin(pin)
        line.drive_high() if high else line.drive_low()

    def level(self, pin: int) -> float:
        return float(self.factory.pin(pin).state)


def simulated(text: str) -> SimHardware:
    """The simulated hardware of a config."""
    hardware = open_hardware(parse(text).config)
    assert isinstance(hardware, SimHardware)
    return hardware


class Gate:
    """Holds threads up at a place until it is opened."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.opened = threading.Event()

    def __call__(self) -> None:
        self.reached.set()
        assert self.opened.wait(10)
