"""A contact that is open or closed: a float switch, a door, a limit switch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zeroclawd.board.driver import Changed, InputDriver, Options, Sample, check_pin
from zeroclawd.board.hardware import Hardware, InputLine, Pull
from zeroclawd.config import Seconds
from zeroclawd.errors import ConfigError
from zeroclawd.tool import Value

if TYPE_CHECKING:
    from zeroclawd.board.sim import SimHardware


class ContactOptions(Options, frozen=True):
    """`pin` is the BCM number, `pull` the resistor that holds the open line.

    `active_low` says that closed is low; it goes without saying where `pull` is up (closed to ground) or down. What
    changes within `debounce` after a first change is judged at its end.
    """

    pin: int
    pull: Pull = Pull.UP
    active_low: bool | None = None
    debounce: Seconds = Seconds(0.02)


class Contact(InputDriver):
    """Open or closed, told by itself when it changes."""

    Options = ContactOptions
    word = "closed"

    def __init__(self, options: ContactOptions, safe: Value | None) -> None:
        del safe
        if options.active_low is None and options.pull is Pull.NONE:
            raise ConfigError("without a pull resistor, say whether closed is low", key="active_low")
        self._pin = check_pin(options.pin)
        self._pull = options.pull
        self._active_low = options.pull is Pull.UP if options.active_low is None else options.active_low
        self._line: InputLine | None = None
        self._changed: Changed = lambda _level: None
        self.debounce = float(options.debounce)
        self.resource = "GPIO"
        self.units = {self.word: ""}

    def claims(self) -> frozenset[str]:
        """Its pin."""
        return frozenset({f"pin {self._pin}"})

    def listen(self, changed: Changed) -> None:
        """Whom to tell of each new level."""
        self._changed = changed

    def open(self, hardware: Hardware) -> None:
        """Claim the line and listen to it."""
        if self._line is None:
            self._line = hardware.input(self._pin, pull=self._pull, changed=self._changed)

    def read(self) -> Sample:
        """The level of the line and what it means."""
        assert self._line is not None
        return self.sample(self._line.get())

    def sample(self, level: bool) -> Sample:
        """What a level means."""
        polarity = ", active low" if self._active_low else ""
        how = f"line {self._pin} reads {'high' if level else 'low'}{polarity}"
        return Sample({self.word: level != self._active_low}, how)

    def simulate(self, sim: SimHardware) -> None:
        """Open, as the pull resistor has it; without one the outside holds the line open."""
        if self._pull is Pull.NONE:
            sim.set_input(self._pin, self._active_low)


KIND = Contact
