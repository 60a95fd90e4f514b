"""The system's clocks, and whether anything has set the wall clock yet."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

_SYNCED_FLAG = Path("/run/systemd/timesync/synchronized")
_STA_UNSYNC = 0x0040  # adjtimex(2), struct timex, status
_TIME_ERROR = 5


class SystemClock:
    """Wall and monotonic time; the monotonic clock counts from the kernel's boot and goes on while it sleeps.

    Asking the kernel whether it is synced takes a library that a waiting daemon does not need: `asks` lets it, from the
    first command on. Until then only systemd-timesyncd's word counts, and a time without it is marked as unsynced.
    """

    def __init__(self, *, asks: bool = True) -> None:
        self.asks = asks

    def wall(self) -> float:
        """Unix seconds."""
        return time.time()

    def monotonic(self) -> float:
        """Seconds since the kernel booted (CLOCK_BOOTTIME, clock_gettime(2))."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    def synced(self) -> bool:
        """True once the clock has been set, by systemd-timesyncd or by anybody who tells the kernel (adjtimex(2))."""
        return _SYNCED_FLAG.exists() or (self.asks and _kernel_says_synced())


@functools.cache
def _adjtimex() -> Callable[[Any], int] | None:
    try:
        import ctypes

        call: Callable[[Any], int] = ctypes.CDLL(None, use_errno=True).adjtimex
    except (ImportError, OSError, AttributeError):
        return None
    return call


def _kernel_says_synced() -> bool:
    call = _adjtimex()
    if call is None:
        return False
    import ctypes

    room = ctypes.create_string_buffer(256)
    state = call(room)
    # struct timex begins with an int, padded to a long, and four longs; then comes the int `status`.
    status = ctypes.c_int.from_buffer(room, ctypes.sizeof(ctypes.c_long) * 5).value
    return 0 <= state < _TIME_ERROR and not status & _STA_UNSYNC


def kernel_boot_id() -> str:
    """The kernel's own boot id (random(4)), or the process start where there is none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip().replace("-", "")
    except OSError:
        return f"{os.getpid()}-{int(time.time())}"
