"""Counts what was refused and records it, while a flood of it stays off the disk and out of the log."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable

from zeroclawd.errors import StoreError
from zeroclawd.interfaces import Clock, Ledger
from zeroclawd.messages import Entry
from zeroclawd.redact import plain

BURST = 60.0
PER_SECOND = 0.5


class Refusals:
    """Every refusal is counted; rows and log lines stop after a burst and come back at one in two seconds."""

    def __init__(
        self, channel: str, ledger: Ledger, clock: Clock, log: logging.Logger, on_change: Callable[[], None]
    ) -> None:
        self.counts: Counter[str] = Counter()
        self._channel = channel
        self._ledger = ledger
        self._clock = clock
        self._log = log
        self._on_change = on_change
        self._budget = BURST
        self._filled_at = clock.monotonic()

    def count(self, reason: str) -> None:
        """Count without a row, for what says nothing new."""
        self.counts[reason] += 1
        self._on_change()

    async def note(self, reason: str, text: str, entry: Entry) -> None:
        """Count, log and record one refusal; `text` is made of our own words, never of what was refused."""
        self.count(reason)
        if not self._affordable():
            self.counts["not_recorded"] += 1
            return
        self._log.warning("mqtt_refused channel=%s reason=%s text=%s", self._channel, reason, plain(text))
        try:
            await self._ledger.append(entry, sync=False)
        except StoreError as error:
            self._log.error("ledger_failed channel=%s error=%s", self._channel, error.text)

    def _affordable(self) -> bool:
        now = self._clock.monotonic()
        self._budget = min(BURST, self._budget + (now - self._filled_at) * PER_SECOND)
        self._filled_at = now
        if self._budget < 1:
            return False
        self._budget -= 1
        return True
