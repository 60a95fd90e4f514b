"""The rules that hold whatever anybody decided: limits of one output, and the emergency stop.

All times are seconds of the monotonic clock and come in as arguments. No rule ever stands between a device and its safe
state: they are asked only before a device becomes or stays active.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

from zeroclawd.board.interlock import Lookup, Rule, Undecided
from zeroclawd.errors import EmergencyStopped
from zeroclawd.frozen import dataclass
from zeroclawd.interfaces import BoardHost

STOP_KEY = "board.estop"


@dataclass(frozen=True, slots=True)
class Limits:
    """What the config allows one output; None is no limit."""

    max_on: float | None = None
    min_off: float | None = None
    min_interval: float | None = None
    interlocks: tuple[Rule, ...] = ()

    @property
    def timed(self) -> bool:
        """True if a limit needs to know when the device was last switched."""
        return any(limit is not None for limit in (self.max_on, self.min_off, self.min_interval))

    def words(self) -> tuple[str, ...]:
        """The limits as people read them."""
        timed = (
            ("on for at most", self.max_on),
            ("off for at least", self.min_off),
            ("at least between two changes:", self.min_interval),
        )
        said = [f"{text} {span(limit)}" for text, limit in timed if limit is not None]
        return (*said, *(f"only while {rule.text}" for rule in self.interlocks))


@dataclass(frozen=True, slots=True)
class Switched:
    """Whether an output is active, since when, and when it was last set."""

    active: bool
    since: float
    changed: float

    @classmethod
    def just_off(cls, now: float) -> Switched:
        """Inactive from this moment on, which is what counts when nothing else is known."""
        return cls(False, now, now)

    def set(self, active: bool, now: float) -> Switched:
        """After a write; staying as it is does not begin a new span, and staying inactive is no change."""
        if active == self.active:
            return Switched(active, self.since, now if active else self.changed)
        return Switched(active, now, now)

    def encode(self, boot: str) -> str:
        """As text for a memory that outlives the process."""
        return json.dumps({"boot": boot, "active": self.active, "since": self.since, "changed": self.changed})


def recollect(text: str | None, boot: str, now: float) -> Switched:
    """What an earlier process of the same kernel boot knew; anything else counts as just switched off.

    A memory of another boot is of another monotonic clock. One that cannot be read, or lies in the future, says nothing.
    """
    try:
        kept: Any = json.loads(text or "")
        known = Switched(kept["active"] is True, float(kept["since"]), float(kept["changed"]))
    except (ValueError, TypeError, KeyError):
        return Switched.just_off(now)
    if not boot or kept.get("boot") != boot or not known.since <= known.changed <= now:
        return Switched.just_off(now)
    return known


@dataclass(frozen=True, slots=True)
class Refusal:
    """A rule that says no: its name and the reason in words."""

    limit: str
    text: str


def min_off(limits: Limits, switched: Switched, now: float) -> Refusal | None:
    """Once off, a device stays off for a while (compressors, pumps)."""
    if limits.min_off is None or switched.active or now - switched.since >= limits.min_off:
        return None
    left = limits.min_off - (now - switched.since)
    return Refusal("min_off", f"stays off for at least {span(limits.min_off)}; {span(left)} are left")


def min_interval(limits: Limits, switched: Switched, now: float) -> Refusal | None:
    """Two changes are some time apart."""
    if limits.min_interval is None or now - switched.changed >= limits.min_interval:
        return None
    left = limits.min_interval - (now - switched.changed)
    return Refusal("min_interval", f"changes at most every {span(limits.min_interval)}; {span(left)} are left")


def max_on(limits: Limits, switched: Switched, now: float) -> Refusal | None:
    """A device that has used up its time is about to be cut and does not get more."""
    if limits.max_on is None or not switched.active or now - switched.since < limits.max_on:
        return None
    return Refusal("max_on", f"was on for {span(limits.max_on)}, which is the longest")


RULES: tuple[Callable[[Limits, Switched, float], Refusal | None], ...] = (min_off, min_interval, max_on)


def refusal(limits: Limits, switched: Switched, now: float) -> Refusal | None:
    """The first timed rule that says no to becoming or staying active."""
    return next((no for rule in RULES if (no := rule(limits, switched, now))), None)


def longest_pulse(limits: Limits, seconds: float) -> Refusal | None:
    """A pulse is no longer than the device may be on."""
    if limits.max_on is None or seconds <= limits.max_on:
        return None
    return Refusal("max_on", f"may be on for at most {span(limits.max_on)}, so not for {span(seconds)}")


def interlocked(limits: Limits, lookup: Lookup) -> Refusal | None:
    """The first interlock that does not hold; one that cannot be decided does not hold."""
    for rule in limits.interlocks:
        try:
            if not rule.holds(lookup):
                return Refusal("interlock", f"works only while {rule.text}, and that is not so")
        except Undecided as unknown:
            return Refusal("interlock", f"works only while {rule.text}, and {unknown.what}")
    return None


def span(seconds: float) -> str:
    """A span of time in words, such as `90 s`, `10 min` or `0.25 s`."""
    for unit, length in (("h", 3600), ("min", 60)):
        if seconds >= length and seconds % length == 0:
            return f"{seconds // length:g} {unit}"
    return f"{seconds:.3g} s" if seconds < 100 else f"{seconds:.0f} s"


@dataclass(frozen=True, slots=True)
class StopState:
    """Whether the emergency stop is engaged, by whom and why."""

    engaged: bool
    by: str = ""
    reason: str = ""


class EmergencyStop:
    """The latch. It is set at once in memory and kept on disk; a latch that cannot be read counts as engaged."""

    def __init__(self, host: BoardHost) -> None:
        self._host = host
        self._disk = asyncio.Lock()
        self._latched = 0
        self.state = StopState(True, "board", "the board has not started")

    async def load(self) -> None:
        """Take up the latch where the last process left it."""
        try:
            self.state = _read_stop(await self._host.recall(STOP_KEY))
        except Exception as error:
            self.state = StopState(True, "board", f"the latch of the emergency stop cannot be read: {error}")

    def latch(self, by: str, reason: str) -> None:
        """Engage, effective with this line; the first reason stays."""
        self._latched += 1
        if not self.state.engaged:
            self.state = StopState(True, by, reason)

    async def keep(self) -> None:
        """Put the state on disk."""
        async with self._disk:
            await self._write(self.state)

    async def release(self, by: str) -> None:
        """Open the latch, on disk first: if that fails, or if somebody engages it meanwhile, it stays engaged."""
        async with self._disk:
            before = self._latched
            await self._write(StopState(False, by))
            if self._latched == before:
                self.state = StopState(False, by)
            else:
                await self._write(self.state)

    async def _write(self, state: StopState) -> None:
        text = json.dumps({"engaged": state.engaged, "by": state.by, "reason": state.reason})
        await self._host.remember(STOP_KEY, text)

    def check(self, device: str) -> None:
        """Raise EmergencyStopped while the stop is engaged."""
        state = self.state
        if state.engaged:
            raise EmergencyStopped(device, f"the emergency stop is engaged (by {state.by}: {state.reason})")


def _read_stop(text: str | None) -> StopState:
    if text is None:
        return StopState(False)
    kept: Any = json.loads(text)
    if kept["engaged"] is False:
        return StopState(False, str(kept.get("by", "")))
    return StopState(True, str(kept.get("by", "")), str(kept.get("reason", "")))
