"""People at the command line: the real program as a process, in a pipe or in a terminal of its own."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from zeroclawd.signing import Keypair, b64

PROGRAM = (sys.executable, "-m", "zeroclawd")


def patched(module: str, name: str, value: float) -> tuple[str, ...]:
    """The program with another constant, for a test that would otherwise wait for it."""
    script = f"import sys, {module} as m; m.{name} = {value}; from zeroclawd.__main__ import main; sys.exit(main())"
    return sys.executable, "-c", script


def clean(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment without what a person at this machine may have set, and with a home of nobody."""
    personal = ("ZEROCLAWD_CLIENT", "NO_COLOR", "LC_ALL", "COLUMNS", "LINES")
    kept = {key: value for key, value in os.environ.items() if key not in personal}
    return {**kept, "HOME": "/nonexistent", "LANG": "C.UTF-8", "TZ": "UTC", **environ}


def run(
    *words: str, cwd: Path | None = None, stdin: str = "", program: Sequence[str] = PROGRAM, **environ: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*program, *words], cwd=cwd, env=clean(environ), input=stdin, capture_output=True, text=True, timeout=90,
        check=False,
    )  # fmt: skip


def start(*words: str, program: Sequence[str] = PROGRAM, **environ: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*program, *words], env=clean(environ), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def write_key(folder: Path, name: str, pair: Keypair) -> Path:
    key = folder / f"{name}.key"
    key.write_text(b64(pair.seed))
    key.chmod(0o600)
    return key


class Person:
    """Somebody with a client file and alice's key."""

    def __init__(self, folder: Path, port: int, alice: Keypair, node: str = "n1") -> None:
        self.folder = folder
        self.key = write_key(folder, "alice", alice)
        self.client = folder / "client.toml"
        self.client.write_text(
            f'broker = "mqtt://127.0.0.1:{port}"\nnode = "{node}"\noperator = "alice"\noperator_key = "alice.key"\n'
        )
        self.environ = {"ZEROCLAWD_CLIENT": str(self.client), "NO_COLOR": "1"}

    def run(
        self, *words: str, stdin: str = "", program: Sequence[str] = PROGRAM, **environ: str
    ) -> subprocess.CompletedProcess[str]:
        return run(*words, stdin=stdin, program=program, **{**self.environ, **environ})

    def start(self, *words: str, program: Sequence[str] = PROGRAM, **environ: str) -> subprocess.Popen[str]:
        return start(*words, program=program, **{**self.environ, **environ})

    def json(self, *words: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.run(*words, "--json").stdout.splitlines()]

    def question(self) -> dict[str, Any]:
        """The one open question, as soon as there is one."""
        for _ in range(30):
            if found := self.json("approvals", "list"):
                return found[0]
        raise AssertionError("no question came")


class Terminal:
    """A command in a terminal of its own; what it shows is in `shown`."""

    def __init__(
        self,
        words: Sequence[str],
        environ: Mapping[str, str],
        columns: int = 120,
        program: Sequence[str] = PROGRAM,
    ) -> None:
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execvpe(sys.executable, [*program, *words], clean(environ))
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        self.shown = ""

    def read(self, seconds: float) -> bool:
        """Take what comes within this time; False if nothing did."""
        if not select.select([self.fd], [], [], seconds)[0]:
            return False
        try:
            self.shown += os.read(self.fd, 65536).decode("utf-8", "replace")
        except OSError:  # the command has ended
            return False
        return True

    def until(self, text: str) -> None:
        deadline = time.monotonic() + 60
        while text not in self.shown:
            assert time.monotonic() < deadline, self.shown
            self.read(1)

    def press(self, keys: str) -> None:
        os.write(self.fd, keys.encode())

    def answer(self, key: str, shown: str) -> None:
        """Press until it shows: a key that comes at once after a question is not taken for its answer."""
        before = len(self.shown)
        for _ in range(60):
            self.press(key)
            self.read(0.4)
            if shown in self.shown[before:]:
                return
        raise AssertionError(self.shown[before:])

    def leave(self) -> None:
        """Get out of a line that is being typed, and out of the command."""
        deadline = time.monotonic() + 60
        keys = iter("\x1bq" * 60)
        while not self._ended():
            assert time.monotonic() < deadline, self.shown
            self.press(next(keys))
            self.drain(0.3)

    def drain(self, seconds: float) -> None:
        """Take all that comes within this time."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0 and not self._ended():
            self.read(min(left, 0.05))

    def _ended(self) -> bool:
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def rest(self) -> str:
        """All that is shown up to the end."""
        deadline = time.monotonic() + 60
        while self.read(2) and time.monotonic() < deadline:
            pass
        return self.shown

    def end(self) -> int:
        try:
            return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        finally:
            os.close(self.fd)
