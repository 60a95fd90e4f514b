"""The seam: what a board asks of the hardware, played by the simulation and by the Raspberry Pi.

Everything here blocks and is called off the event loop. Levels are electrical (`True` is high); which level means "on"
is the business of the kinds. Whatever goes wrong is a HardwareError.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from typing import Protocol

from zeroclawd.errors import ZeroclawdError
from zeroclawd.frozen import dataclass
from zeroclawd.tool import Value


class HardwareError(ZeroclawdError):
    """A chip, line, bus or port did not do what was asked.

    `transient` errors are those that a second read may not meet (a missed acknowledge on a bus). `lost` says that this
    process cannot use the hardware any more, so that only a restart helps.
    """

    def __init__(self, text: str, *, hint: str = "", transient: bool = False, lost: bool = False) -> None:
        super().__init__(text, hint=hint)
        self.transient = transient
        self.lost = lost


class Pull(enum.StrEnum):
    """The resistor that holds an input which nothing drives."""

    UP = "up"
    DOWN = "down"
    NONE = "none"


class OutputLine(Protocol):
    """A line that is driven high or low and stays claimed."""

    def set(self, high: bool) -> None:
        """Drive the line."""
        ...

    def get(self) -> bool:
        """The level that the line has, which need not be the one that was set."""
        ...


class PwmLine(Protocol):
    """A line that is high for a fraction of each period."""

    def set(self, duty: float) -> None:
        """Set the fraction, 0 (always low) to 1 (always high)."""
        ...

    def get(self) -> float:
        """The fraction in effect, to a thousandth."""
        ...


class InputLine(Protocol):
    """A line that something outside drives."""

    def get(self) -> bool:
        """The level right now."""
        ...


class I2cBus(Protocol):
    """Chips with registers on one I2C bus. Addresses have seven bits, registers eight."""

    def read(self, address: int, register: int, length: int) -> bytes:
        """Read `length` bytes (1 to 32, the most that SMBus moves at once) from `register` on."""
        ...

    def write(self, address: int, register: int, data: bytes) -> None:
        """Write 1 to 32 bytes from `register` on."""
        ...


class OneWire(Protocol):
    """Sensors under the kernel's 1-wire master."""

    def sensors(self) -> list[str]:
        """The ids of the sensors that answer, such as `28-0316a2795bff`."""
        ...

    def read(self, sensor: str) -> str:
        """The kernel's text of a fresh measurement (`w1_slave`); it may be empty."""
        ...


class SerialPort(Protocol):
    """An open serial port."""

    def read(self, seconds: float) -> bytes:
        """What has come in, at least one byte; empty after `seconds` without any."""
        ...

    def write(self, data: bytes) -> None:
        """Send bytes; refused if another adapter has taken the port's place since it was opened."""
        ...

    def discard(self) -> None:
        """Forget what has come in and was not read."""
        ...

    def close(self) -> None:
        """Give the port back."""
        ...


@dataclass(frozen=True, slots=True)
class PortSettings:
    """Which serial port, and how to open it.

    Either `path` (best a stable one below /dev/serial/by-id) or `usb`, the adapter's `vendor:product` or
    `vendor:product:serial` in hexadecimal. `dtr` and `rts` are set before the port opens; None leaves them to the
    system, which raises DTR and thereby resets many microcontrollers.
    """

    path: str = ""
    usb: str = ""
    baud: int = 9600
    dtr: bool | None = None
    rts: bool | None = None

    @property
    def name(self) -> str:
        """The port in words."""
        return self.path or f"USB {self.usb}"


class Hardware(Protocol):
    """What a board is made of. A line is claimed once and kept until `close`, which changes no level."""

    kind: str
    simulated: bool

    def output(self, pin: int, *, high: bool) -> OutputLine:
        """Claim a line as an output whose very first level is `high`."""
        ...

    def pwm(self, pin: int, *, duty: float, frequency: float) -> PwmLine:
        """Claim a line for pulse-width modulation; the first level is that of `duty`. `frequency` is in Hz."""
        ...

    def input(self, pin: int, *, pull: Pull, changed: Callable[[bool], None]) -> InputLine:
        """Claim a line as an input; `changed` is called from any thread with each new level."""
        ...

    def i2c(self, bus: int) -> I2cBus:
        """The I2C bus of this number."""
        ...

    def one_wire(self) -> OneWire:
        """The 1-wire master."""
        ...

    def serial(self, settings: PortSettings) -> SerialPort:
        """Open a serial port."""
        ...

    def about(self) -> Mapping[str, Value]:
        """The board in a few facts, as far as they can be had."""
        ...

    def close(self) -> None:
        """Release every line as it stands, and close buses and ports."""
        ...


def check_length(length: int) -> None:
    """Refuse a transfer that SMBus would cut (kplindegaard/smbus2#35)."""
    if not 1 <= length <= 32:
        raise HardwareError(f"one transfer moves 1 to 32 bytes, not {length}")
