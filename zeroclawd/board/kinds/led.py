"""A lamp that can be dimmed: an LED or anything else under pulse-width modulation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zeroclawd.board.driver import Options, OutputDriver, Sample, as_number, as_switch, check_pin
from zeroclawd.board.hardware import Hardware, PwmLine
from zeroclawd.errors import ConfigError
from zeroclawd.tool import Value

if TYPE_CHECKING:
    from zeroclawd.board.sim import SimHardware

# Tenths of a percent are what the adapter keeps of a duty.
_TOLERANCE = 0.001


class LedOptions(Options, frozen=True):
    """`pin` is the BCM number; `frequency` of the pulses is in Hz; `active_low` lamps shine while their pin is low."""

    pin: int
    active_low: bool = False
    frequency: float = 100.0


class Led(OutputDriver):
    """On or off, or a brightness from 0 to 1."""

    Options = LedOptions
    takes = "true or false (also on/off), or a brightness from 0 to 1"
    pulses = True

    def __init__(self, options: LedOptions, safe: Value | None) -> None:
        if not 1 <= options.frequency <= 10_000:
            raise ConfigError(f"is 1 to 10000 Hz, not {options.frequency:g}", key="frequency")
        self._pin = check_pin(options.pin)
        self._frequency = options.frequency
        self._active_low = options.active_low
        self._line: PwmLine | None = None
        self._rest = 0.0 if safe is None else self.accept(safe)
        self.safe = self._rest
        self.resource = "GPIO"
        self.units = {"on": "", "brightness": ""}

    def claims(self) -> frozenset[str]:
        """Its pin."""
        return frozenset({f"pin {self._pin}"})

    def open(self, hardware: Hardware) -> None:
        """Claim the line at the level of the safe state."""
        if self._line is None:
            self._line = hardware.pwm(self._pin, duty=self._duty(self._rest), frequency=self._frequency)

    def read(self) -> Sample:
        """The brightness that is in effect."""
        assert self._line is not None
        duty = self._line.get()
        brightness = round(1 - duty if self._active_low else duty, 3)
        how = f"line {self._pin} is high {duty:.0%} of the time{', active low' if self._active_low else ''}"
        return Sample({"on": brightness > 0, "brightness": brightness}, how)

    def accept(self, value: Value) -> Value:
        """A brightness; on is 1 and off is 0."""
        try:
            return float(as_switch(value))
        except ValueError:
            return as_number(value, 0, 1)

    def active(self, value: Value) -> bool:
        """Shining, however little."""
        return float(value) > 0

    def write(self, value: Value) -> None:
        """Set the brightness."""
        assert self._line is not None
        self._line.set(self._duty(value))

    def word(self, value: Value) -> str:
        """Off, or the brightness."""
        return f"{float(value):.0%}" if value else "off"

    def agrees(self, value: Value, sample: Sample) -> bool:
        """The duty is the one that was set."""
        return abs(float(sample.values["brightness"]) - float(value)) < _TOLERANCE

    def simulate(self, sim: SimHardware) -> None:
        """A line needs nothing."""

    def _duty(self, brightness: Value) -> float:
        return 1 - float(brightness) if self._active_low else float(brightness)


KIND = Led
