"""One register of any I2C chip: a number with a scale, an offset and a unit, and writable if the config says so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from zeroclawd.board.driver import (
    Options,
    OutputDriver,
    Sample,
    as_number,
    bus_claims,
    check_address,
    check_bus,
    check_range,
)
from zeroclawd.board.hardware import Hardware, I2cBus
from zeroclawd.errors import ConfigError
from zeroclawd.tool import Value

if TYPE_CHECKING:
    from zeroclawd.board.sim import SimHardware


class RegisterOptions(Options, frozen=True):
    """Where the register is and what it means: value = raw · `scale` + `offset`, in `unit`.

    `width` is in bits. A reading outside `range` says so; a `writable` register takes nothing else, and without a range
    it cannot be writable.
    """

    address: int
    register: int
    bus: int = 1
    width: Literal[8, 16, 24, 32] = 8
    signed: bool = False
    byte_order: Literal["big", "little"] = "big"
    scale: float = 1.0
    offset: float = 0.0
    unit: str = ""
    range: list[float] | None = None
    writable: bool = False


class Register(OutputDriver):
    """A number, read and where allowed written as one I2C block."""

    Options = RegisterOptions

    def __init__(self, options: RegisterOptions, safe: Value | None) -> None:
        check_bus(options.bus)
        check_address(options.address)
        if not 0 <= options.register <= 0xFF:
            raise ConfigError(f"a register is 0 to 0xff, not {options.register}", key="register")
        if not options.scale:
            raise ConfigError("cannot be 0", key="scale")
        self._options = options
        self._range = check_range(options.range)
        self._bus: I2cBus | None = None
        self.resource = f"I2C bus {options.bus}"
        self.units = {"value": options.unit}
        self.takes = self._words()
        self.safe = None if safe is None else self.accept(safe)

    def claims(self) -> frozenset[str]:
        """Several devices may read one register, but only one writes it; and the bus has pins."""
        place = f"register 0x{self._options.register:02x} of {self._where()}"
        return bus_claims(self._options.bus) | (frozenset({place}) if self.takes else frozenset())

    def open(self, hardware: Hardware) -> None:
        """Find the bus and see that the chip answers."""
        self._bus = hardware.i2c(self._options.bus)
        self._raw()

    def read(self) -> Sample:
        """The register's number in its unit."""
        raw = self._raw()
        value = round(raw * self._options.scale + self._options.offset, 9)
        doubts: tuple[str, ...] = ()
        if self._range is not None and not self._range[0] <= value <= self._range[1]:
            doubts = (f"implausible: outside {self._range[0]:g} to {self._range[1]:g} {self._options.unit}".rstrip(),)
        return Sample(
            {"value": value}, f"register 0x{self._options.register:02x} of {self._where()} reads {raw}", doubts
        )

    def accept(self, value: Value) -> Value:
        """A number within the range that also fits the register."""
        if self._range is None or not self._options.writable:
            raise ValueError("cannot be written")
        number = as_number(value, *self._range, self._options.unit)
        self._encode(number)
        return number

    def active(self, value: Value) -> bool:
        """Not in the safe state."""
        return value != self.safe

    def write(self, value: Value) -> None:
        """Write the register once."""
        assert self._bus is not None
        self._bus.write(self._options.address, self._options.register, self._encode(float(value)))

    def agrees(self, value: Value, sample: Sample) -> bool:
        """The register holds the same number, to half a step."""
        return abs(float(sample.values["value"]) - float(value)) <= abs(self._options.scale) * 0.500001

    def simulate(self, sim: SimHardware) -> None:
        """The middle of the range, or 0, in a chip whose registers are as wide as this one."""
        middle = sum(self._range) / 2 if self._range else self._options.offset
        chip = sim.chip(self._options.bus, self._options.address, self._options.width // 8)
        chip.write(self._options.register, self._encode(middle))

    def _raw(self) -> int:
        assert self._bus is not None
        data = self._bus.read(self._options.address, self._options.register, self._options.width // 8)
        return int.from_bytes(data, self._options.byte_order, signed=self._options.signed)

    def _encode(self, value: float) -> bytes:
        raw = round((value - self._options.offset) / self._options.scale)
        try:
            return raw.to_bytes(self._options.width // 8, self._options.byte_order, signed=self._options.signed)
        except OverflowError:
            raise ValueError(f"{value:g} does not fit a register of {self._options.width} bits") from None

    def _words(self) -> str:
        if not self._options.writable:
            return ""
        if self._range is None:
            raise ConfigError("a writable register needs the range of what may be written", key="range")
        for end in self._range:
            try:
                self._encode(end)
            except ValueError as error:
                raise ConfigError(str(error), key="range") from None
        return f"a number, {self._range[0]:g} to {self._range[1]:g} {self._options.unit}".rstrip()

    def _where(self) -> str:
        return f"0x{self._options.address:02x} on I2C bus {self._options.bus}"


KIND = Register
