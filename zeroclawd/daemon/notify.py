"""Speaks to the service manager: READY, STATUS, STOPPING and the watchdog (sd_notify(3))."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import Callable, Mapping

log = logging.getLogger(__name__)


class Notifier:
    """Sends datagrams to NOTIFY_SOCKET; without a service manager it says nothing."""

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        self._address = environ.get("NOTIFY_SOCKET", "")
        self.interval = watchdog_interval(environ)
        self._status = ""

    def send(self, *lines: str) -> None:
        """Send assignments such as `READY=1` in one datagram; a manager that does not listen is no error."""
        if not self._address:
            return
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        with (
            contextlib.suppress(OSError),
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock,
        ):
            sock.connect(address)
            sock.sendall("\n".join(lines).encode())

    def status(self, text: str) -> None:
        """The line that `systemctl status` shows; sent when it changes."""
        if text != self._status:
            self._status = text
            self.send(f"STATUS={text}")

    async def feed(self, stuck: Callable[[], str]) -> None:
        """Feed the watchdog from the event loop while `stuck` names nobody; a slow model call is no stop."""
        if self.interval is None:
            return
        while True:
            if reason := stuck():
                log.error("watchdog_not_fed reason=%s", reason)
            else:
                self.send("WATCHDOG=1")
            await asyncio.sleep(self.interval)


def watchdog_interval(environ: Mapping[str, str], pid: int | None = None) -> float | None:
    """Seconds between two pings: half of WATCHDOG_USEC; None if there is no watchdog for this process."""
    raw, owner = environ.get("WATCHDOG_USEC", ""), environ.get("WATCHDOG_PID", "")
    if not (raw.isascii() and raw.isdigit()) or int(raw) == 0:
        return None
    if owner and owner != str(os.getpid() if pid is None else pid):
        return None
    return int(raw) / 2_000_000
