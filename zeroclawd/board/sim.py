"""Simulated hardware: wires, chips, sensors and serial peers that a test or a demo handles from the outside."""

from __future__ import annotations

import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import field

from zeroclawd.board.hardware import HardwareError, PortSettings, Pull, check_length
from zeroclawd.frozen import dataclass
from zeroclawd.tool import Value

Changed = Callable[[bool], None]


@dataclass(frozen=True, slots=True)
class Driven:
    """One level that the board drove on one of its lines: 0 low, 1 high, between them the duty of PWM."""

    pin: int
    level: float


@dataclass(slots=True)
class SimChip:
    """The registers of one chip, `width` bytes each; a read or write goes on into the following registers."""

    width: int = 1
    memory: bytearray = field(default_factory=bytearray)

    def __post_init__(self) -> None:
        self.memory = self.memory or bytearray(256 * self.width)

    def read(self, register: int, length: int) -> bytes:
        """Read bytes from a register on, round the end."""
        start = register * self.width
        return bytes(self.memory[(start + offset) % len(self.memory)] for offset in range(length))

    def write(self, register: int, data: bytes) -> None:
        """Put bytes into a register and the following ones."""
        start = register * self.width
        for offset, byte in enumerate(data):
            self.memory[(start + offset) % len(self.memory)] = byte


class Faults:
    """Makes what goes through it fail or hang; every bus and sensor has one."""

    def __init__(self) -> None:
        self._next: deque[HardwareError] = deque()
        self._free = threading.Event()
        self._free.set()

    def fail(self, error: HardwareError, times: int = 1) -> None:
        """Let the next `times` transfers fail."""
        self._next.extend([error] * times)

    def hang(self) -> None:
        """Let transfers not come back before `free`."""
        self._free.clear()

    def free(self) -> None:
        """End a hang."""
        self._free.set()

    def meet(self) -> None:
        """Go through: wait while it hangs, fail if it is to fail."""
        self._free.wait()
        if self._next:
            raise self._next.popleft()


class SimI2cBus:
    """A bus with chips on it."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.faults = Faults()
        self.chips: dict[int, SimChip] = {}
        self.transfers = 0

    def read(self, address: int, register: int, length: int) -> bytes:
        """Read registers of the chip at `address`."""
        check_length(length)
        return self._chip(address).read(register, length)

    def write(self, address: int, register: int, data: bytes) -> None:
        """Write registers of the chip at `address`."""
        check_length(len(data))
        self._chip(address).write(register, data)

    def _chip(self, address: int) -> SimChip:
        self.transfers += 1
        self.faults.meet()
        chip = self.chips.get(address)
        if chip is None:
            raise HardwareError(f"nothing answers at 0x{address:02x} on I2C bus {self.number}", transient=True)
        return chip


class SimOneWire:
    """1-wire sensors, each a text as the kernel would give it."""

    def __init__(self) -> None:
        self.faults = Faults()
        self.texts: dict[str, deque[str]] = {}

    def set(self, sensor: str, *texts: str) -> None:
        """Let the sensor show these texts one after the other, and the last one from then on."""
        self.texts[sensor] = deque(texts)

    def sensors(self) -> list[str]:
        """The ids of the sensors."""
        return sorted(self.texts)

    def read(self, sensor: str) -> str:
        """The next text of the sensor."""
        self.faults.meet()
        texts = self.texts.get(sensor)
        if not texts:
            raise HardwareError(f"no 1-wire sensor {sensor}", transient=True)
        return texts.popleft() if len(texts) > 1 else texts[0]


class SimPeer:
    """What is at the other end of a serial port: it answers lines, speaks by itself, and can be pulled out."""

    def __init__(self) -> None:
        self.answer: Callable[[bytes], bytes] = lambda _line: b""
        self.heard: list[bytes] = []
        self.opened = 0
        self._waiting = bytearray()
        self._plugged = True
        self._change = threading.Condition()

    def say(self, data: bytes) -> None:
        """Send bytes to the board."""
        with self._change:
            self._waiting += data
            self._change.notify_all()

    def unplug(self) -> None:
        """Pull the adapter out: an open port fails and cannot be opened again before `plug`."""
        with self._change:
            self._plugged = False
            self._waiting.clear()
            self._change.notify_all()

    def plug(self) -> None:
        """Put the adapter back."""
        with self._change:
            self._plugged = True

    def connect(self, name: str) -> None:
        """The board opens the port."""
        with self._change:
            self._check(name)
            self.opened += 1

    def take(self, name: str, seconds: float) -> bytes:
        """What was said and not taken yet."""
        with self._change:
            self._change.wait_for(lambda: self._waiting or not self._plugged, seconds)
            self._check(name)
            data = bytes(self._waiting)
            self._waiting.clear()
            return data

    def hear(self, name: str, data: bytes) -> None:
        """The board sends bytes; the answer is said at once."""
        with self._change:
            self._check(name)
            self.heard.append(data)
            self._waiting += self.answer(data)
            self._change.notify_all()

    def _check(self, name: str) -> None:
        if not self._plugged:
            raise HardwareError(f"serial port {name} is gone", hint="plug the adapter in again")


@dataclass(frozen=True, slots=True)
class SimSerialPort:
    """The board's end of a serial line."""

    name: str
    peer: SimPeer

    def read(self, seconds: float) -> bytes:
        """What has come in."""
        return self.peer.take(self.name, seconds)

    def write(self, data: bytes) -> None:
        """Send bytes to the peer."""
        self.peer.hear(self.name, data)

    def discard(self) -> None:
        """Forget what has come in."""
        self.peer.take(self.name, 0)

    def close(self) -> None:
        """Give the port back."""


@dataclass(frozen=True, slots=True)
class _Output:
    board: SimHardware
    pin: int

    def set(self, high: bool) -> None:
        self.board.drive(self.pin, float(high))

    def get(self) -> bool:
        return self.board.level(self.pin)


@dataclass(frozen=True, slots=True)
class _Pwm:
    board: SimHardware
    pin: int

    def set(self, duty: float) -> None:
        self.board.drive(self.pin, duty)

    def get(self) -> float:
        return self.board.duty(self.pin)


@dataclass(frozen=True, slots=True)
class _Input:
    board: SimHardware
    pin: int

    def get(self) -> bool:
        return self.board.level(self.pin)


class SimHardware:
    """A board that is not there. Its methods may be called from any thread.

    `log` holds every level that the board drove, from the claim of a line onward.
    """

    kind = "sim"
    simulated = True

    def __init__(self) -> None:
        self.log: list[Driven] = []
        self.onewire = SimOneWire()
        self._busses: dict[int, SimI2cBus] = {}
        self._peers: dict[str, SimPeer] = {}
        self._lock = threading.RLock()
        self._driven: dict[int, float] = {}
        self._outside: dict[int, bool] = {}
        self._stuck: dict[int, bool] = {}
        self._pulls: dict[int, Pull] = {}
        self._wires: dict[int, set[int]] = defaultdict(set)
        self._listeners: dict[int, Changed] = {}
        self._missing: dict[int, HardwareError] = {}

    # What a test or a demo does from the outside

    def tie(self, one: int, other: int) -> None:
        """Connect two pins by a wire."""
        with self._changes():
            self._wires[one].add(other)
            self._wires[other].add(one)

    def set_input(self, pin: int, high: bool | None) -> None:
        """Drive a pin from outside, or let go of it (None)."""
        with self._changes():
            self._outside.pop(pin, None)
            if high is not None:
                self._outside[pin] = high

    def stick(self, pin: int, high: bool | None) -> None:
        """Let a line show this level whatever is driven, as with a welded relay; None frees it."""
        with self._changes():
            self._stuck.pop(pin, None)
            if high is not None:
                self._stuck[pin] = high

    def occupy(self, pin: int, error: HardwareError | None = None) -> None:
        """Let a claim of this pin fail, as if another process held it."""
        self._missing[pin] = error or HardwareError(f"line {pin} is in use by another process")

    def vacate(self, pin: int) -> None:
        """Let the pin be claimed again."""
        self._missing.pop(pin, None)

    def bus(self, number: int) -> SimI2cBus:
        """An I2C bus, to put chips on or to make it fail."""
        return self._busses.setdefault(number, SimI2cBus(number))

    def chip(self, bus: int, address: int, width: int = 1) -> SimChip:
        """The chip at an address; it is put there if there is none yet."""
        return self.bus(bus).chips.setdefault(address, SimChip(width))

    def peer(self, port: str) -> SimPeer:
        """What is connected to a serial port, by the port's name in the config."""
        return self._peers.setdefault(port, SimPeer())

    def driven(self, pin: int) -> list[float]:
        """Every level that was driven on one pin, from its claim on."""
        return [entry.level for entry in self.log if entry.pin == pin]

    def level(self, pin: int) -> bool:
        """The level of a pin: what holds it stuck, drives it, or pulls it."""
        return self.duty(pin) >= 0.5

    def duty(self, pin: int) -> float:
        """The level of a pin as a fraction."""
        with self._lock:
            if pin in self._stuck:
                return float(self._stuck[pin])
            net = self._net(pin)
            for levels in (self._driven, self._outside):
                for member in net:
                    if member in levels:
                        return float(levels[member])
            return float(any(self._pulls.get(member) is Pull.UP for member in net))

    # What the board does

    def output(self, pin: int, *, high: bool) -> _Output:
        """Claim an output."""
        self._claim(pin)
        self.drive(pin, float(high))
        return _Output(self, pin)

    def pwm(self, pin: int, *, duty: float, frequency: float) -> _Pwm:
        """Claim an output for PWM."""
        self._claim(pin)
        self.drive(pin, duty)
        return _Pwm(self, pin)

    def input(self, pin: int, *, pull: Pull, changed: Changed) -> _Input:
        """Claim an input."""
        self._claim(pin)
        with self._changes():
            self._pulls[pin] = pull
        self._listeners[pin] = changed
        return _Input(self, pin)

    def i2c(self, bus: int) -> SimI2cBus:
        """The bus of this number."""
        return self.bus(bus)

    def one_wire(self) -> SimOneWire:
        """The 1-wire master."""
        return self.onewire

    def serial(self, settings: PortSettings) -> SimSerialPort:
        """Open the port to its peer."""
        name = settings.path or settings.usb
        peer = self.peer(name)
        peer.connect(name)
        return SimSerialPort(name, peer)

    def about(self) -> Mapping[str, Value]:
        """The board in a few facts."""
        return {"model": "simulated board"}

    def close(self) -> None:
        """Stop telling of changes; the levels stay."""
        self._listeners.clear()

    def drive(self, pin: int, level: float) -> None:
        """Set the level of a claimed output."""
        with self._changes():
            self.log.append(Driven(pin, level))
            self._driven[pin] = level

    def _claim(self, pin: int) -> None:
        if pin in self._missing:
            raise self._missing[pin]

    def _net(self, pin: int) -> list[int]:
        """The pins that wires connect with this one, itself first."""
        net = [pin]
        for member in net:
            net.extend(other for other in sorted(self._wires.get(member, ())) if other not in net)
        return net

    @contextmanager
    def _changes(self) -> Iterator[None]:
        """Tell the inputs whose level differs afterwards; outside the lock, for they may call back."""
        with self._lock:
            before = {pin: self.level(pin) for pin in self._listeners}
            yield
            after = {pin: self.level(pin) for pin in before}
        for pin, level in after.items():
            if level != before[pin] and pin in self._listeners:
                self._listeners[pin](level)
