"""What a kind of device is made of: its own config keys, a driver that blocks, and words about what it takes."""

from __future__ import annotations

import abc
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import msgspec

from zeroclawd.board.hardware import Hardware
from zeroclawd.config import Seconds, duration
from zeroclawd.errors import ConfigError
from zeroclawd.frozen import dataclass
from zeroclawd.tool import Value

if TYPE_CHECKING:
    from zeroclawd.board.sim import SimHardware

Changed = Callable[[bool], None]

# Pins of the 40-pin header by their BCM numbers; 0 and 1 belong to the EEPROM of add-on boards.
HEADER_PINS = range(2, 28)


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A kind's own keys of `[devices.<name>]`."""


Some = TypeVar("Some", bound=Options)


@dataclass(frozen=True, slots=True)
class Sample:
    """One measurement: values by name, how they were got, and what to doubt about them."""

    values: Mapping[str, Value]
    how: str
    warnings: tuple[str, ...] = ()


class Driver(abc.ABC):
    """A device as its kind knows it.

    It is built from its options without touching anything: a value that makes no sense is a ConfigError whose key is the
    option's. `open`, `read` and `close` block and raise HardwareError; they run in the worker of `resource`.
    """

    Options: ClassVar[type[Options]]
    resource: str
    units: Mapping[str, str]
    patience: float = 0.0

    @abc.abstractmethod
    def __init__(self, options: Any, safe: Value | None) -> None:
        """`options` are the kind's own, `safe` is the configured safe state; ValueError if the device does not take it."""

    @abc.abstractmethod
    def claims(self) -> frozenset[str]:
        """What no second device may have, in words, such as `pin 17`."""

    @abc.abstractmethod
    def open(self, hardware: Hardware) -> None:
        """Claim or find the hardware; a line is claimed in its safe state. May be called again after a failure."""

    @abc.abstractmethod
    def read(self) -> Sample:
        """Measure."""

    def close(self) -> None:  # noqa: B027 - most kinds hold nothing that is not the hardware's
        """Let go of what the driver itself has opened, without changing any level."""

    @abc.abstractmethod
    def simulate(self, sim: SimHardware) -> None:
        """Put something realistic into a simulated board."""


class InputDriver(Driver):
    """A device that tells of its changes by itself."""

    debounce: float = 0.0

    @abc.abstractmethod
    def listen(self, changed: Changed) -> None:
        """Before `open`: whom to tell of each new level, from any thread."""

    @abc.abstractmethod
    def sample(self, level: bool) -> Sample:
        """What a level of the line means."""


class OutputDriver(Driver):
    """A device that takes values. `safe` is the value that is driven when nobody is in charge, None if there is none."""

    takes: str
    safe: Value | None
    pulses: bool = False

    @abc.abstractmethod
    def accept(self, value: Value) -> Value:
        """The value in its proper type; ValueError says what is taken instead."""

    @abc.abstractmethod
    def active(self, value: Value) -> bool:
        """Whether the device works at this value, so that limits and interlocks matter."""

    @abc.abstractmethod
    def write(self, value: Value) -> None:
        """Drive an accepted value, once."""

    @abc.abstractmethod
    def agrees(self, value: Value, sample: Sample) -> bool:
        """Whether the hardware shows what was written."""

    def word(self, value: Value) -> str:
        """A value as people say it."""
        return say(value)

    def reads_back(self) -> bool:
        """Whether a reading says anything about what was written."""
        return True


def say(value: Value) -> str:
    """A value as people write it."""
    match value:
        case bool():
            return "on" if value else "off"
        case float():
            return f"{value:g}"
    return str(value)


def read_options(kind: type[Some], given: Mapping[str, Any]) -> Some:
    """The options of a kind from a config table; ConfigError with the option as its key."""
    known = [field.name for field in msgspec.structs.fields(kind)]
    for key in given:
        if key not in known:
            import difflib

            near = difflib.get_close_matches(key, known, n=1, cutoff=0.6)
            guess = f"; did you mean '{near[0]}'?" if near else f"; known here: {', '.join(sorted(known))}"
            raise ConfigError(f"unknown key{guess}", key=key)
    try:
        return msgspec.convert(dict(given), kind, dec_hook=_decode)
    except msgspec.ValidationError as error:
        reason, _, path = str(error).partition(" - at `")
        key = path.rstrip("`").removeprefix("$").lstrip(".")
        if "missing required field" in reason:
            key = reason.rsplit("`", 2)[-2]
            raise ConfigError("is needed and missing", key=key) from error
        raise ConfigError(reason.replace("`", "'"), key=key) from error


def _decode(kind: type, value: Any) -> Any:
    if kind is Seconds:
        return Seconds(duration(value))
    raise NotImplementedError(kind)


def check_pin(pin: int, key: str = "pin") -> int:
    """A pin of the header by its BCM number; ConfigError says why another cannot be used."""
    if pin in (0, 1):
        raise ConfigError("BCM 0 and 1 are reserved for the identification EEPROM of add-on boards", key=key)
    if pin not in HEADER_PINS:
        raise ConfigError(
            f"pins are BCM numbers from {HEADER_PINS[0]} to {HEADER_PINS[-1]}, not {pin}", key=key, hint="see `pinout`"
        )
    return pin


def check_bus(bus: int) -> int:
    """The number of an I2C bus."""
    if bus < 0:
        raise ConfigError(f"a bus is numbered from 0, not {bus}", key="bus")
    return bus


def check_address(address: int) -> int:
    """A seven-bit I2C address that is not reserved (UM10204, section 3.1.12)."""
    if not 0x08 <= address <= 0x77:
        raise ConfigError(f"I2C addresses are 0x08 to 0x77, not 0x{address:02x}", key="address")
    return address


def bus_claims(bus: int) -> frozenset[str]:
    """The pins that a bus takes from the header: bus 1 is BCM 2 and 3."""
    return frozenset({"pin 2 (I2C bus 1)", "pin 3 (I2C bus 1)"}) if bus == 1 else frozenset()


_WORDS = {"on": True, "true": True, "1": True, "off": False, "false": False, "0": False}


def as_switch(value: Value) -> bool:
    """On or off from true/false, on/off or 1/0; ValueError otherwise."""
    if isinstance(value, str) and value.strip().lower() in _WORDS:
        return _WORDS[value.strip().lower()]
    if not isinstance(value, str) and value in (0, 1):
        return bool(value)
    raise ValueError(f"takes true or false (also on/off, 1/0), not {value!r}")


def as_number(value: Value, low: float, high: float, unit: str = "") -> float:
    """A finite number within a range; ValueError says the range."""
    span = f"{low:g} to {high:g} {unit}".rstrip()
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except ValueError:
        number = math.nan
    if math.isnan(number):
        raise ValueError(f"takes a number, {span}, not {value!r}")
    if not low <= number <= high:
        raise ValueError(f"takes {span}, and {value} is outside")
    return number


def check_range(span: list[float] | None, key: str = "range") -> tuple[float, float] | None:
    """A `[low, high]` of the config as a pair."""
    if span is None:
        return None
    if len(span) != 2 or not span[0] < span[1]:
        raise ConfigError("is [low, high] with low below high", key=key)
    return span[0], span[1]
