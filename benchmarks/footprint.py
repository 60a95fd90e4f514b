"""Measures what zeroclawd costs a board at rest: CPU to start, memory, wake-ups, disk writes, installed size.

Everything is a ratio to a base that is measured in the same run with the same interpreter, so that the budgets hold on any
machine: `python3 -c pass` for the short commands, and for the daemon an interpreter that has imported what any such program
needs and waits. The daemon runs with a simulated board, a ledger and a real broker over TLS, and with the environment of
the unit, which the base does not have. Run from the checkout:

    python -m benchmarks.footprint [--runs 10] [--idle 30] [--json]

The exit code is 1 if a budget is broken.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import shutil
import signal
import socket
import ssl
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.broker import TlsBroker, tls_broker

PYTHON = sys.executable
ZEROCLAWD = str(Path(sys.executable).with_name("zeroclawd"))
BASE_IMPORTS = "import asyncio, ssl, sqlite3, logging, json, tomllib"
START_SECONDS = 60.0
SETTLE_SECONDS = 2.0
MILLION = 1_000_000

# The loop that `auto` takes on a board with less than 1 GB, where memory is short; uvloop costs 1.7 MB more.
CONFIG = """\
[agent]
state_dir = "{state}"

[runtime_profiles.default]
loop = "asyncio"

[board]
kind = "sim"

[devices.pump]
kind = "relay"
pin = 17
safe_state = "off"
max_on = "10m"

[devices.tank_level]
kind = "contact"
pin = 27

[operators.alice]
# The first test vector of RFC 8032, section 7.1.
public_key = "11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo="

[channels.mqtt.main]
host = "127.0.0.1"
port = {port}
node = "{node}"

[channels.mqtt.main.tls]
ca_file = "{authority}"
"""


@dataclass(frozen=True, slots=True)
class Row:
    """One measured thing: `value` is what the budget limits, a ratio to `base` if there is one."""

    what: str
    measured: float
    unit: str
    base: float | None
    value: float
    budget: float

    @property
    def ok(self) -> bool:
        return self.value <= self.budget


# What a process costs


def cpu_of(command: Sequence[str], environ: Mapping[str, str]) -> float:
    """Seconds of CPU that a command takes from its start to its end, by itself and its children (wait4(2))."""
    nothing = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
    _, status, usage = os.wait4(os.posix_spawn(command[0], list(command), dict(environ), file_actions=nothing), 0)
    if status:
        raise SystemExit(f"{' '.join(command)} ended with {os.waitstatus_to_exitcode(status)}")
    return usage.ru_utime + usage.ru_stime


def cpu_so_far(pid: int) -> float:
    """Seconds of CPU of all threads of a living process, ended ones too (clock_getcpuclockid(3), Linux's numbering)."""
    return time.clock_gettime(~pid << 3 | 2)


def memory_of(pid: int) -> int:
    """Bytes of memory as on a board, where the daemon is the only Python: Rss of smaps_rollup (proc(5)).

    There Pss is nearly the same. Here each further Python, this benchmark too, would take a part of the interpreter's pages
    off both sides, and the ratio would depend on who else runs.
    """
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text("ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Rss:"))


def switches(pid: int) -> int:
    """How often the threads of a process were switched to and away, of their own will or not."""
    total = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        for line in (task / "status").read_text("ascii", "replace").splitlines():
            name, _, value = line.partition(":")
            total += int(value) if name in ("voluntary_ctxt_switches", "nonvoluntary_ctxt_switches") else 0
    return total


def written(pid: int) -> int:
    """Bytes that a process has caused to be written to disks (proc(5), io)."""
    lines = Path(f"/proc/{pid}/io").read_text("ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("write_bytes:"))


def changes(folder: Path) -> dict[str, tuple[int, int]]:
    """When each file was last changed, and its size."""
    stats = {str(path): path.stat() for path in folder.rglob("*")}
    return {name: (stat.st_mtime_ns, stat.st_size) for name, stat in stats.items()}


# The base: an interpreter that has imported what any such program needs, and waits


@dataclass(frozen=True, slots=True)
class Held:
    """CPU in seconds from the start until it waits, memory in bytes while it does."""

    cpu: float
    memory: int


def hold_base(environ: Mapping[str, str]) -> Held:
    """Start the base, measure it while it waits, and let it end."""
    code = f"{BASE_IMPORTS}; import sys; print(flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [PYTHON, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=dict(environ)
    ) as process:
        assert process.stdout
        process.stdout.readline()
        cpu = cpu_so_far(process.pid)
        time.sleep(0.2)
        return Held(cpu, memory_of(process.pid))


# The daemon


@dataclass(frozen=True, slots=True)
class Life:
    """One life of the daemon: times in seconds, memory in bytes, writes in bytes and in files, wake-ups per second."""

    cpu: float
    wall: float
    memory: int
    memory_idle: int
    wakeups: float
    written: int
    changed: int


class Arrivals:
    """Listens on the broker for nodes that say they are online."""

    def __init__(self, broker: TlsBroker) -> None:
        from paho.mqtt.client import Client, MQTTMessage
        from paho.mqtt.enums import CallbackAPIVersion

        self._online: defaultdict[str, threading.Event] = defaultdict(threading.Event)
        self._client = Client(CallbackAPIVersion.VERSION2, "benchmark-arrivals")
        self._client.tls_set_context(ssl.create_default_context(cafile=str(broker.authority)))

        def heard(_client: Client, _data: Any, message: MQTTMessage) -> None:
            if message.payload == b"online":
                self._online[message.topic.split("/")[1]].set()

        self._client.on_connect = lambda client, *_: client.subscribe("zeroclaw/+/availability", 1)
        self._client.on_message = heard
        self._client.connect("127.0.0.1", broker.port)
        self._client.loop_start()

    def forget(self, node: str) -> None:
        """From now on, wait for the node's next arrival."""
        self._online[node].clear()

    def wait(self, node: str) -> None:
        """Until the node has said that it is online."""
        if not self._online[node].wait(START_SECONDS):
            raise SystemExit(f"{node} did not come online within {START_SECONDS:.0f} s")

    def close(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()


@contextmanager
def notify_socket(folder: Path) -> Iterator[socket.socket]:
    """The service manager's end of sd_notify(3)."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        address = folder / "notify"
        address.unlink(missing_ok=True)
        listener.bind(str(address))
        listener.settimeout(START_SECONDS)
        yield listener


def wait_for_ready(listener: socket.socket, log: Path) -> None:
    """Until the daemon says READY=1."""
    try:
        while b"READY=1" not in listener.recv(4096).split(b"\n"):
            pass
    except TimeoutError:
        raise SystemExit(f"no READY within {START_SECONDS:.0f} s:\n{log.read_text('utf-8')}") from None


def live(folder: Path, broker: TlsBroker, arrivals: Arrivals, environ: Mapping[str, str], idle: float) -> Life:
    """Start the daemon of a folder, measure it until it has been idle for a while, and stop it.

    A folder that has been used gives an ordinary start: the ledger is there, and the texts have been rendered.
    """
    folder.mkdir(exist_ok=True)
    node, log, config = folder.name, folder / "log", folder / "config.toml"
    config.write_text(CONFIG.format(state=folder / "state", node=node, port=broker.port, authority=broker.authority))
    arrivals.forget(node)
    with notify_socket(folder) as listener, log.open("wb") as output:
        # As the unit has it.
        more = {
            "NOTIFY_SOCKET": str(folder / "notify"),
            "WATCHDOG_USEC": "30000000",
            "MALLOC_ARENA_MAX": "1",
            "PYTHONNODEBUGRANGES": "1",
        }
        started = time.monotonic()
        command = [ZEROCLAWD, "run", "--config", str(config)]
        process = subprocess.Popen(command, env={**environ, **more}, stdout=output, stderr=output)
        try:
            wait_for_ready(listener, log)
            cpu, wall = cpu_so_far(process.pid), time.monotonic() - started
            arrivals.wait(node)
            return _rest(process.pid, folder / "state", cpu, wall, idle)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(START_SECONDS)


def _rest(pid: int, state: Path, cpu: float, wall: float, idle: float) -> Life:
    memory = memory_of(pid)
    time.sleep(SETTLE_SECONDS)
    before = switches(pid), written(pid), changes(state)
    time.sleep(idle)
    after = switches(pid), written(pid), changes(state)
    changed = sum(before[2].get(name) != entry for name, entry in after[2].items())
    return Life(cpu, wall, memory, memory_of(pid), (after[0] - before[0]) / idle, after[1] - before[1], changed)


# What is installed


def core_distributions() -> dict[str, int]:
    """The distributions that zeroclawd needs without extras, itself included, and the bytes of each without bytecode."""
    from packaging.requirements import Requirement

    sizes: dict[str, int] = {}
    waiting = ["zeroclawd"]
    while waiting:
        found = importlib.metadata.distribution(waiting.pop())
        if found.name not in sizes:
            sizes[found.name] = _size(found)
            needed = [Requirement(text) for text in found.requires or ()]
            waiting += [one.name for one in needed if one.marker is None or one.marker.evaluate({"extra": ""})]
    return sizes


def _size(found: importlib.metadata.Distribution) -> int:
    from zeroclawd import assets

    paths = [Path(str(path.locate())) for path in found.files or ()]
    if found.name == "zeroclawd":
        code = Path(assets.__file__).parent
        paths = [path for name in ("tools", "locales", "systemd") for path in assets.folder(name).rglob("*")]
        paths += code.rglob("*")
    return sum(path.stat().st_size for path in set(paths) if path.is_file() and path.suffix != ".pyc")


# Everything together


@dataclass(slots=True)
class Samples:
    """What each run gave."""

    nothing: list[float]
    version: list[float]
    send: list[float]
    base: list[Held]
    lives: list[Life]


def measure(runs: int, idle: float) -> Samples:
    """Measure everything in turn, so that what else the machine does falls on all alike; a first run is thrown away."""
    environ = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "COVERAGE"))}
    samples = Samples([], [], [], [], [])
    with tempfile.TemporaryDirectory(prefix="zeroclawd-footprint-") as name, tls_broker(Path(name)) as broker:
        arrivals = Arrivals(broker)
        try:
            for number in range(runs + 1):
                once = _measure_once(Path(name) / "bench", broker, arrivals, environ, idle if number else 0.1)
                if number:
                    _add(samples, once)
        finally:
            arrivals.close()
    return samples


def _measure_once(
    folder: Path, broker: TlsBroker, arrivals: Arrivals, environ: Mapping[str, str], idle: float
) -> tuple[float, float, float, Held, Life]:
    where = ["--broker", f"mqtt://127.0.0.1:{broker.plain_port}", "--node", "nobody"]
    return (
        cpu_of([PYTHON, "-c", "pass"], environ),
        cpu_of([ZEROCLAWD, "--version"], environ),
        cpu_of([ZEROCLAWD, "send", "--no-wait", *where, "hello"], environ),
        hold_base(environ),
        live(folder, broker, arrivals, environ, idle),
    )


def _add(samples: Samples, once: tuple[float, float, float, Held, Life]) -> None:
    samples.nothing.append(once[0])
    samples.version.append(once[1])
    samples.send.append(once[2])
    samples.base.append(once[3])
    samples.lives.append(once[4])


def judge(samples: Samples) -> list[Row]:
    """The rows of the table: medians, and their ratios to the medians of the base."""
    nothing = statistics.median(samples.nothing) * 1000
    lives, sizes = samples.lives, core_distributions()
    base_cpu = statistics.median(held.cpu for held in samples.base) * 1000
    return [
        _ratio("CPU of `zeroclawd --version`", statistics.median(samples.version) * 1000, "ms", nothing, 6),
        _ratio("CPU of `send`, not waiting, without TLS", statistics.median(samples.send) * 1000, "ms", nothing, 6),
        _ratio("CPU from exec to READY", statistics.median(life.cpu for life in lives) * 1000, "ms", base_cpu, 3),
        *_memory(samples),
        _plain("wake-ups per second, idle", statistics.median(life.wakeups for life in lives), "", 1),
        _plain("bytes written, idle", statistics.median(life.written for life in lives), "B", 0),
        _plain("state files changed, idle", statistics.median(life.changed for life in lives), "", 0),
        _plain("distributions installed", len(sizes), "", 25),
        _plain("size installed", sum(sizes.values()) / MILLION, "MB", 80),
    ]


def _memory(samples: Samples) -> list[Row]:
    base = statistics.median(held.memory for held in samples.base) / MILLION
    ready = statistics.median(life.memory for life in samples.lives) / MILLION
    idle = statistics.median(life.memory_idle for life in samples.lives) / MILLION
    return [
        _ratio("memory at READY (RSS)", ready, "MB", base, 1.6),
        _ratio("memory after the idle time (RSS)", idle, "MB", base, 1.6),
    ]


def _ratio(what: str, measured: float, unit: str, base: float, budget: float) -> Row:
    return Row(what, measured, unit, base, measured / base, budget)


def _plain(what: str, measured: float, unit: str, budget: float) -> Row:
    return Row(what, measured, unit, None, measured, budget)


def report(samples: Samples, rows: Sequence[Row], idle: float, as_json: bool) -> str:
    """The table for people, or one JSON object."""
    runs, wall = len(samples.lives), statistics.median(life.wall for life in samples.lives)
    if as_json:
        facts = {"python": platform.python_version(), "runs": runs, "idle_seconds": idle, "wall_to_ready": wall}
        table = [asdict(row) | {"ok": row.ok} for row in rows]
        return json.dumps({**facts, "ok": all(row.ok for row in rows), "rows": table})
    about = f"Python {platform.python_version()}, medians of {runs} runs, {idle:g} s idle"
    head = f"{'':40}{'measured':>12}{'base':>10}{'ratio':>8}{'budget':>8}"
    return "\n".join([f"{about}; {wall * 1000:.0f} ms from exec to READY", "", head, *map(_line, rows)])


def _line(row: Row) -> str:
    measured = f"{row.measured:.4g} {row.unit}".strip()
    base = f"{row.base:.4g} {row.unit}" if row.base is not None else ""
    ratio = f"{row.value:.2f}" if row.base is not None else ""
    return f"{row.what:40}{measured:>12}{base:>10}{ratio:>8}{row.budget:>8g}  {'ok' if row.ok else 'OVER'}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and return 1 if a budget is broken."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.footprint", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--runs", type=int, default=10, help="how many runs the medians are of (default 10)")
    parser.add_argument("--idle", type=float, default=30, help="seconds that each daemon is left idle (default 30)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    chosen = parser.parse_args(arguments)
    if not shutil.which(ZEROCLAWD):
        parser.error(f"{ZEROCLAWD} is not there: pip install -e .")
    samples = measure(chosen.runs, chosen.idle)
    rows = judge(samples)
    print(report(samples, rows, chosen.idle, chosen.json))
    return 0 if all(row.ok for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
