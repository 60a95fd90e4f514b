"""When a request may be sent again, and after how long: Retry-After, and a back-off with full jitter."""

from __future__ import annotations

import email.utils
import math
from collections.abc import Callable, Mapping

BASE = 0.5
CAP = 8.0
PATIENCE = 30.0


def retry_after(headers: Mapping[str, str], now: Callable[[], float]) -> float | None:
    """Seconds that a server asks for (RFC 9110, section 10.2.3: seconds or an HTTP date); None if it does not say.

    A date is compared with the server's own Date where it gives one: a board's clock may not be set yet.
    """
    text = headers.get("retry-after", "").strip()
    if not text:
        return None
    try:
        seconds = float(text)
    except ValueError:
        until = _date(text)
        if until is None:
            return None
        seconds = until - (_date(headers.get("date", "")) or now())
    return max(0.0, seconds) if math.isfinite(seconds) else None


def _date(text: str) -> float | None:
    try:
        return email.utils.parsedate_to_datetime(text).timestamp()
    except (ValueError, OverflowError):
        return None


def pause(attempt: int, asked: float | None, chance: float) -> float | None:
    """Seconds to wait after attempt number `attempt` (from 0) failed; None if the server asks for more than we wait.

    `chance` is a random number from 0 to 1. Full jitter: many boards that lost one server do not return as one.
    """
    if asked is not None and asked > PATIENCE:
        return None
    spread = chance * min(CAP, BASE * 2.0 ** min(attempt, 16))
    return spread if asked is None else asked + min(spread, 1.0)
