"""The daemon as a process, for tests that look at it from outside."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from zeroclawd.signing import Keypair
from zeroclawd.store.rows import rows

CONFIG = """\
[agent]
name = "test"
state_dir = "{state}"

[risk_profiles.default]
always_ask = ["pump"]
auto_approve = ["lamp"]

[channels.mqtt.home]
host = "127.0.0.1"
port = {port}
node = "n1"

[operators.alice]
public_key = "{alice}"
may_approve = "high"

[board]
kind = "sim"

[devices.pump]
kind = "relay"
pin = 17
risk = "high"
max_on = "10m"

[devices.lamp]
kind = "relay"
pin = 22
"""


class Daemon:
    def __init__(self, folder: Path, port: int) -> None:
        self.folder = folder
        self.alice = Keypair.generate()
        self.config = folder / "config.toml"
        self.state = folder / "state"
        self.port = port
        self.write(CONFIG)
        self.process: subprocess.Popen[bytes] | None = None
        self.notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.notify.bind(str(folder / "notify"))
        self.notify.settimeout(30)

    def write(self, text: str) -> None:
        self.config.write_text(text.format(state=self.state, port=self.port, alice=self.alice.public), "utf-8")

    def start(self, **environ: str) -> None:
        log = (self.folder / "daemon.log").open("ab")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "zeroclawd", "run", "--config", str(self.config)],
            env={**os.environ, "NOTIFY_SOCKET": str(self.folder / "notify"), **environ},
            stdout=log,
            stderr=log,
        )
        log.close()
        self.until("READY=1")

    def until(self, wanted: str) -> str:
        """The next datagram that says this."""
        while True:
            said = self.notify.recv(4096).decode()
            if wanted in said:
                return said

    def end(self, number: int = signal.SIGTERM) -> int:
        assert self.process is not None
        self.process.send_signal(number)
        code = self.process.wait(30)
        self.process = None
        return code

    def until_logged(self, text: str) -> None:
        for _ in range(1_500):
            if text in self.log:
                return
            time.sleep(0.02)
        raise AssertionError(self.log)

    @property
    def log(self) -> str:
        return (self.folder / "daemon.log").read_text("utf-8")

    def rows(self, **where: Any) -> list[Any]:
        return rows(self.state / "zeroclawd.db", **where)
