"""Runs programs and pipelines without a shell, keeps what they say within bounds, and leaves none of them behind."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from zeroclawd_tools._command import Sink

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

_PIPE_SECONDS = 0.25
_TERM_SECONDS = 1.0

# What a service manager hands to the daemon alone (systemd.exec(5), sd_notify(3), sd_listen_fds(3))
_PRIVATE = frozenset(
    {
        "CREDENTIALS_DIRECTORY",
        "NOTIFY_SOCKET",
        "WATCHDOG_PID",
        "WATCHDOG_USEC",
        "LISTEN_FDS",
        "LISTEN_FDNAMES",
        "LISTEN_PID",
        "INVOCATION_ID",
        "JOURNAL_STREAM",
    }
)


def environment(workspace: Path, names: Sequence[str], inherited: Mapping[str, str] = os.environ) -> dict[str, str]:
    """All that a child sees: a fixed search path, the locale, the zone, and the variables that the operator named.

    git is told to trust only repositories of the usual layout inside the workspace, to start no helper, editor or pager,
    and to take no settings from the workspace as if it were a home (git(1), git-config(1)).
    """
    kept = ("LANG", "LC_ALL", "TZ", "TMPDIR", *names)
    given = {name: inherited[name] for name in kept if name in inherited and name not in _PRIVATE}
    return {
        "LANG": "C.UTF-8",
        "TERM": "dumb",
        "GIT_CEILING_DIRECTORIES": str(Path(os.path.realpath(workspace)).parent),
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_CONFIG_COUNT": "2",
        "GIT_CONFIG_KEY_0": "core.fsmonitor",
        "GIT_CONFIG_VALUE_0": "false",
        "GIT_CONFIG_KEY_1": "safe.bareRepository",
        "GIT_CONFIG_VALUE_1": "explicit",
        "GIT_EDITOR": "true",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_PAGER": "cat",
        "GIT_TERMINAL_PROMPT": "0",
        **given,
        "PATH": PATH,
        "HOME": str(workspace),
    }


@dataclass(frozen=True, slots=True)
class Program:
    """One program to run: its words, the variables set for it alone, and where its two outputs go."""

    words: tuple[str, ...]
    variables: tuple[tuple[str, str], ...] = ()
    out: Sink = "out"
    err: Sink = "err"


@dataclass(slots=True)
class Said:
    """What came out of one stream: the first and the last half of `most` bytes."""

    most: int
    head: bytearray = field(default_factory=bytearray)
    tail: bytearray = field(default_factory=bytearray)
    dropped: int = 0

    def add(self, data: bytes) -> None:
        """Keep more; what lies between the two halves is counted and dropped."""
        half = self.most // 2
        room = half - len(self.head)
        if room > 0:
            self.head += data[:room]
            data = data[room:]
        self.tail += data
        excess = len(self.tail) - half
        if excess > 0:
            self.dropped += excess
            del self.tail[:excess]

    def text(self) -> str:
        """The output as text, cut between characters, with a note of what is missing."""
        if not self.dropped:
            return (self.head + self.tail).decode("utf-8", "replace")
        head, tail = _whole_end(bytes(self.head)), _whole_start(bytes(self.tail))
        missing = self.dropped + len(self.head) - len(head) + len(self.tail) - len(tail)
        return f"{head.decode('utf-8', 'replace')}\n[{missing} bytes left out]\n{tail.decode('utf-8', 'replace')}"


def _whole_start(raw: bytes) -> bytes:
    """Without the rest of a character at the beginning (RFC 3629: continuation bytes are 10xxxxxx, at most three)."""
    cut = next((place for place, byte in enumerate(raw[:4]) if byte & 0xC0 != 0x80), 0)
    return raw[cut:]


def _whole_end(raw: bytes) -> bytes:
    """Without a character at the end that has lost its rest."""
    for back in range(1, min(4, len(raw)) + 1):
        byte = raw[-back]
        if byte & 0xC0 == 0x80:
            continue
        length = 2 if byte >= 0xC0 else 1
        length += (byte >= 0xE0) + (byte >= 0xF0)
        return raw[:-back] if length > back else raw
    return raw


@dataclass(slots=True)
class Run:
    """One call's programs: where they run, with what environment, and what they have said so far."""

    workspace: Path
    environment: Mapping[str, str]
    out: Said
    err: Said
    left_running: bool = False

    async def pipeline(self, programs: Sequence[Program]) -> int:
        """Run programs side by side, each reading what the one before it writes; the status of the last (128+n: signal n).

        Whatever ends this coroutine, all processes of the pipeline have ended with it: first SIGTERM, then SIGKILL to
        their groups. What a program left in the background is ended too, after 250 ms for what it still has to say.
        """
        children = _Children()
        async with _listening(self.out) as out, _listening(self.err) as err:
            try:
                await self._start(programs, children, out.write, err.write)
                out.no_more_writers()
                err.no_more_writers()
                await children.exited()
                self.left_running |= not await _both_ended(out, err)
                return children.status
            finally:
                await children.end()

    async def _start(self, programs: Sequence[Program], children: _Children, out: int, err: int) -> None:
        before = -1
        for place, program in enumerate(programs):
            read, write = (-1, -1) if place == len(programs) - 1 else os.pipe()
            sinks: dict[Sink, int] = {
                "out": write if write >= 0 else out,
                "err": err,
                "null": asyncio.subprocess.DEVNULL,
            }
            try:
                await self._start_one(program, children, before, sinks)
            except BaseException:
                _close(read)
                raise
            finally:
                _close(before)
                _close(write)
            before = read

    async def _start_one(self, program: Program, children: _Children, before: int, sinks: Mapping[Sink, int]) -> None:
        name = program.words[0]
        import shutil  # brings two compression libraries

        binary = name if "/" in name else shutil.which(name, path=PATH)
        if binary is None:
            self.err.add(f"{name}: command not found\n".encode("utf-8", "replace"))
            children.not_started(127)
            return
        try:
            child = await asyncio.create_subprocess_exec(
                binary,
                *program.words[1:],
                stdin=before if before >= 0 else asyncio.subprocess.DEVNULL,
                stdout=sinks[program.out],
                stderr=sinks[program.err],
                cwd=self.workspace,
                env={**self.environment, **dict(program.variables)},
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            self.err.add(f"{name}: {getattr(error, 'strerror', None) or error}\n".encode("utf-8", "replace"))
            children.not_started(126)
        else:
            children.started(child)


class _Children:
    """The processes of one pipeline; each leads a session and so a process group of its own."""

    def __init__(self) -> None:
        self._running: list[asyncio.subprocess.Process] = []
        self.status = 0

    def started(self, child: asyncio.subprocess.Process) -> None:
        self._running.append(child)
        self.status = -1

    def not_started(self, status: int) -> None:
        self.status = status

    async def exited(self) -> None:
        """Wait for all of them; the status is that of the last program."""
        for child in self._running:
            code = await child.wait()
            last = code if code >= 0 else 128 - code
        if self.status < 0:
            self.status = last

    async def end(self) -> None:
        """Leave nothing behind: those that still run get a second to end in order."""
        try:
            if any(child.returncode is None for child in self._running):
                self._signal(signal.SIGTERM)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_TERM_SECONDS):
                        for child in self._running:
                            await child.wait()
        finally:
            self._signal(signal.SIGKILL)
        for child in self._running:
            await child.wait()

    def _signal(self, number: signal.Signals) -> None:
        for child in self._running:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(child.pid, number)


# Pipes


class _Listener(asyncio.Protocol):
    """The reading end of a pipe; `ended` is set when nobody can write to it any more."""

    def __init__(self, said: Said, write: int) -> None:
        self._said = said
        self.write = write
        self.ended = asyncio.Event()

    def data_received(self, data: bytes) -> None:
        self._said.add(data)

    def connection_lost(self, _exc: Exception | None) -> None:
        self.ended.set()

    def no_more_writers(self) -> None:
        """Close our own writing end."""
        _close(self.write)
        self.write = -1


@contextlib.asynccontextmanager
async def _listening(said: Said) -> AsyncIterator[_Listener]:
    read, write = os.pipe()
    listener = _Listener(said, write)
    transport, _protocol = await asyncio.get_running_loop().connect_read_pipe(
        lambda: listener, os.fdopen(read, "rb", 0)
    )
    try:
        yield listener
    finally:
        listener.no_more_writers()
        transport.close()


async def _both_ended(out: _Listener, err: _Listener) -> bool:
    """True once both pipes have no writer left; a grandchild may hold one for 250 ms."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_PIPE_SECONDS):
            await out.ended.wait()
            await err.ended.wait()
            return True
    return False


def _close(descriptor: int) -> None:
    if descriptor >= 0:
        os.close(descriptor)


def signal_name(status: int) -> str:
    """The name of the signal in a status of 128+n; empty if there is none."""
    names: Iterator[str] = (known.name for known in signal.Signals if known.value == status - 128)
    return next(names, "")
