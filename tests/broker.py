"""A real mosquitto for tests: on a free port of the loopback interface, stopped and started at will."""

from __future__ import annotations

import contextlib
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

PROGRAM = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin") or ""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Mosquitto:
    """`more` are further lines of its config; a test that stops it may start it again on the same port."""

    def __init__(self, folder: Path, more: str = "allow_anonymous true\n") -> None:
        self.port = free_port()
        self.folder = folder
        self.process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)
        self.config = folder / "mosquitto.conf"
        self.config.write_text(f"user root\nlistener {self.port} 127.0.0.1\nlog_type all\n{more}", "utf-8")

    def start(self) -> None:
        assert PROGRAM, "mosquitto is not installed: sudo apt-get install mosquitto"
        log = (self.folder / "mosquitto.log").open("ab")
        self.process = subprocess.Popen([PROGRAM, "-c", str(self.config)], stdout=log, stderr=log)
        log.close()
        deadline = time.monotonic() + 20
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
                return
            assert self.process.poll() is None, (self.folder / "mosquitto.log").read_text()
            assert time.monotonic() < deadline, "mosquitto does not listen"
            time.sleep(0.02)

    def stop(self, number: int = signal.SIGTERM) -> None:
        if self.process is not None:
            self.process.send_signal(number)
            self.process.wait(20)
            self.process = None

    def restart(self) -> None:
        self.stop()
        self.start()


@contextlib.contextmanager
def mosquitto(folder: Path, more: str = "allow_anonymous true\n") -> Iterator[Mosquitto]:
    broker = Mosquitto(folder, more)
    broker.start()
    try:
        yield broker
    finally:
        broker.stop()
