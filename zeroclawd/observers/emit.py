"""Emit: scrubs and bounds an event, then tells each observer; a slow or broken one loses its place, never the turn."""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from zeroclawd.events import TurnEvent
from zeroclawd.interfaces import Observer
from zeroclawd.redact import Redactor

log = logging.getLogger(__name__)

FIELD_LIMIT = 4_000
SLOW_SECONDS = 0.1
STRIKES = 3


class Emitter:
    """The one way out for events. An observer that raises or takes over 0.1 s three times is dropped."""

    def __init__(
        self,
        redactor: Redactor,
        observers: Sequence[Observer],
        *,
        limit: int = FIELD_LIMIT,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._redactor = redactor
        self._strikes: dict[Observer, int] = dict.fromkeys(observers, 0)
        self._limit = limit
        self._clock = clock

    def __call__(self, event: TurnEvent) -> None:
        """Tell everybody; never raises."""
        if not self._strikes:
            return
        clean = self.clean(event)
        for observer in list(self._strikes):
            self._tell(observer, clean)

    def clean(self, event: TurnEvent) -> TurnEvent:
        """The event as it may be seen."""
        changed = {field.name: self._field(getattr(event, field.name)) for field in dataclasses.fields(event)}
        return dataclasses.replace(event, **changed)

    def _field(self, value: Any) -> Any:
        match value:
            case str():
                return self._redactor.text(value, self._limit)
            case Mapping():
                return self._redactor.data(value, self._limit)
        return value

    def _tell(self, observer: Observer, event: TurnEvent) -> None:
        started = self._clock()
        why = "slow"
        try:
            observer(event)
        except Exception as error:  # an observer's fault is its own
            why = f"{type(error).__name__}: {error}"
        else:
            if self._clock() - started <= SLOW_SECONDS:
                return
        self._strikes[observer] += 1
        if self._strikes[observer] >= STRIKES:
            del self._strikes[observer]
            log.warning("observer_dropped observer=%s why=%s", getattr(observer, "__name__", observer), why)
