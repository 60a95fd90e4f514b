"""A relay, or anything else that one pin switches: a pump, a valve, a fan."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zeroclawd.board.driver import Options, OutputDriver, Sample, as_switch, check_pin
from zeroclawd.board.hardware import Hardware, OutputLine
from zeroclawd.tool import Value

if TYPE_CHECKING:
    from zeroclawd.board.sim import SimHardware


class RelayOptions(Options, frozen=True):
    """`pin` is the BCM number; `active_low` relays are on while their pin is low."""

    pin: int
    active_low: bool = False


class Relay(OutputDriver):
    """On or off. The line is claimed in its safe state, and every reading asks the line itself."""

    Options = RelayOptions
    takes = "true or false (also on/off, 1/0)"
    pulses = True

    def __init__(self, options: RelayOptions, safe: Value | None) -> None:
        self._pin = check_pin(options.pin)
        self._active_low = options.active_low
        self._line: OutputLine | None = None
        self._rest = False if safe is None else as_switch(safe)
        self.safe = self._rest
        self.resource = "GPIO"
        self.units = {"on": ""}

    def claims(self) -> frozenset[str]:
        """Its pin."""
        return frozenset({f"pin {self._pin}"})

    def open(self, hardware: Hardware) -> None:
        """Claim the line at the level of the safe state."""
        if self._line is None:
            self._line = hardware.output(self._pin, high=self._level(self._rest))

    def read(self) -> Sample:
        """The level of the line and what it means."""
        assert self._line is not None
        high = self._line.get()
        polarity = ", active low" if self._active_low else ""
        return Sample({"on": high != self._active_low}, f"line {self._pin} reads {'high' if high else 'low'}{polarity}")

    def accept(self, value: Value) -> Value:
        """True or false."""
        return as_switch(value)

    def active(self, value: Value) -> bool:
        """On."""
        return bool(value)

    def write(self, value: Value) -> None:
        """Switch."""
        assert self._line is not None
        self._line.set(self._level(value))

    def agrees(self, value: Value, sample: Sample) -> bool:
        """The line has the level that was driven."""
        return sample.values["on"] == value

    def simulate(self, sim: SimHardware) -> None:
        """A line needs nothing."""

    def _level(self, on: Value) -> bool:
        return bool(on) != self._active_low


KIND = Relay
