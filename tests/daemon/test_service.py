"""The daemon as a process: started, asked, reloaded, killed, and started again, with a real broker beside it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.broker import Mosquitto, mosquitto
from tests.process import CONFIG, Daemon
from zeroclawd.channels.mqtt.client import Client, Signature, questions, replies, states
from zeroclawd.config import MqttConfig
from zeroclawd.messages import Verdict
from zeroclawd.store.verify import verify

pytestmark = pytest.mark.broker


@contextlib.asynccontextmanager
async def person(daemon: Daemon) -> AsyncIterator[Client]:
    listen = (*replies("n1"), *questions("n1"), *states("n1"))
    async with asyncio.timeout(60), Client(MqttConfig(host="127.0.0.1", port=daemon.port), listen=listen) as client:
        yield client


async def until(client: Client, rest: str, holds: Any = lambda seen: True) -> Any:
    async for seen in client.watch():
        if seen.rest.startswith(rest) and holds(seen):
            return seen
    raise AssertionError


async def soon(holds: Callable[[], bool]) -> None:
    """Look from outside until something is true; what is looked at cannot tell us."""
    for _ in range(3_000):
        if holds():
            return
        await asyncio.sleep(0.01)
    raise AssertionError


async def online(client: Client) -> None:
    await until(client, "availability", lambda seen: seen.payload == b"online")


async def ask(
    client: Client, text: str, verdict: Verdict | None = None, by: Signature | None = None
) -> Mapping[str, Any]:
    async def answer() -> None:
        seen = await until(client, "approval/request/", lambda seen: bool(seen.document))
        assert verdict is not None
        await client.decide(seen.document, verdict, by)

    final: Mapping[str, Any] = {}
    async with asyncio.TaskGroup() as group:
        seat = group.create_task(answer()) if verdict else None
        async for reply in client.send("n1", text):
            final = reply
        if seat:
            seat.cancel()
    return final


async def test_the_main_job(daemon: Daemon) -> None:
    daemon.start()
    alice = Signature("alice", daemon.alice)
    async with person(daemon) as client:
        await online(client)
        final = await ask(client, "turn on the pump", Verdict.APPROVE, alice)
    assert final["stage"] == "final"
    assert [result["outcome"] for result in final["results"]] == ["ok"]
    assert final["receipts"][0]["receipt"].startswith("zc-receipt-")
    assert daemon.end() == 0
    found = verify(daemon.state / "zeroclawd.db")
    assert found.ok, found.problems
    story = [(row.kind, row.decision, row.decided_by, row.outcome) for row in daemon.rows(device="pump")]
    assert ("decision", "approve", "alice", "") in story
    assert ("outcome", "allowed:operator", "alice", "ok") in story
    kinds = [row.kind for row in daemon.rows()]
    assert kinds.index("command") < kinds.index("intent") < kinds.index("outcome") < kinds.index("stop")


async def test_states_are_told_from_the_start(daemon: Daemon) -> None:
    """After a crash a retained state may say "on"; the first thing that is said is what the hardware shows now."""
    daemon.start()
    async with person(daemon) as client:
        await online(client)
        await ask(client, "turn on the lamp")
        daemon.end(signal.SIGKILL)
        daemon.start()
        await until(client, "device/lamp/state", lambda seen: seen.document.get("values") == {"on": False})


async def test_a_clean_stop_is_quick_says_so_and_leaves_the_node_offline(daemon: Daemon) -> None:
    daemon.start()
    async with person(daemon) as client:
        await online(client)
        began = time.monotonic()
        assert daemon.end() == 0
        assert time.monotonic() - began < 10
        await until(client, "availability", lambda seen: seen.payload == b"offline")
    assert daemon.rows()[-1].kind in ("stop", "checkpoint")


async def test_a_kill_while_an_operator_is_asked_denies_and_answers_after_the_restart(daemon: Daemon) -> None:
    daemon.start()
    async with person(daemon) as client:
        await online(client)
        sent = asyncio.create_task(ask(client, "turn on the pump"))
        asked = await until(client, "approval/request/", lambda seen: bool(seen.document))
        daemon.end(signal.SIGKILL)
        daemon.start()
        final = await sent
        assert final["stage"] == "error"
        await client.decide(asked.document, Verdict.APPROVE, Signature("alice", daemon.alice))
        said = await until(client, "approval/outcome", lambda seen: seen.document.get("event") == "answer")
        assert said.document["result"] == "refused"
    assert not [row for row in daemon.rows(device="pump") if row.kind == "intent"]


async def test_an_effect_that_was_cut_off_is_unknown_after_the_restart_and_not_repeated(daemon: Daemon) -> None:
    daemon.start()
    alice = Signature("alice", daemon.alice)
    async with person(daemon) as client:
        await online(client)

        async def kill() -> None:
            await soon(lambda: bool(daemon.rows(device="pump", kind="intent")))
            daemon.end(signal.SIGKILL)

        async with asyncio.TaskGroup() as group:
            group.create_task(kill())
            sent = group.create_task(ask(client, "turn on the pump for 30 seconds", Verdict.APPROVE, alice))
            await soon(lambda: daemon.process is None)
            daemon.start()
            final = await sent
    assert final["stage"] == "error"
    outcomes = [row.outcome for row in daemon.rows(device="pump") if row.kind == "outcome"]
    assert outcomes == ["unknown"]
    assert len([row for row in daemon.rows(device="pump") if row.kind == "intent"]) == 1
    assert verify(daemon.state / "zeroclawd.db").ok


def test_a_broken_config_never_starts(daemon: Daemon) -> None:
    daemon.write(CONFIG.replace("[devices.lamp]", "[devises.lamp]"))
    done = subprocess.run(
        [sys.executable, "-m", "zeroclawd", "run", "--config", str(daemon.config)],
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    line = CONFIG[: CONFIG.index("[devices.lamp]")].count("\n") + 1
    assert f"config.toml:{line}: devises: unknown key; did you mean 'devices'?" in done.stderr.decode()


async def test_a_reload_takes_over_policy_and_refuses_a_broken_config(daemon: Daemon) -> None:
    daemon.start()
    async with person(daemon) as client:
        await online(client)
        daemon.write(CONFIG.replace('auto_approve = ["lamp"]', "excluded_tools = ["))
        daemon.process.send_signal(signal.SIGHUP)  # type: ignore[union-attr]
        status = await until(client, "status", lambda seen: "reload refused" in str(seen.document.get("reasons")))
        assert "config.toml:" in str(status.document["reasons"])
        assert [result["outcome"] for result in (await ask(client, "turn on the lamp"))["results"]] == ["ok"]
        daemon.write(CONFIG.replace('auto_approve = ["lamp"]', 'level = "read_only"'))
        daemon.process.send_signal(signal.SIGHUP)  # type: ignore[union-attr]
        await until(client, "status", lambda seen: not seen.document.get("reasons"))
        assert [result["outcome"] for result in (await ask(client, "turn off the lamp"))["results"]] == ["blocked"]


async def test_what_needs_a_restart_is_said(daemon: Daemon) -> None:
    daemon.start()
    async with person(daemon) as client:
        await online(client)
        daemon.write(CONFIG + '\n[devices.fan]\nkind = "relay"\npin = 5\n')
        daemon.process.send_signal(signal.SIGHUP)  # type: ignore[union-attr]
        await until(client, "status", lambda seen: "devices" in str(seen.document.get("reasons")))


def test_a_missing_secret_stops_the_start_with_its_line(daemon: Daemon) -> None:
    daemon.write(CONFIG.replace('node = "n1"', 'node = "n1"\nusername = "n1"\npassword_file = "/nowhere/secret"'))
    done = subprocess.run(
        [sys.executable, "-m", "zeroclawd", "run", "--config", str(daemon.config)],
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    line = CONFIG[: CONFIG.index('node = "n1"')].count("\n") + 3
    assert (
        f"config.toml:{line}: channels.mqtt.home.password_file: /nowhere/secret cannot be read" in done.stderr.decode()
    )


def test_a_broker_that_refuses_the_password_is_said_once_and_the_daemon_lives(tmp_path: Path) -> None:
    passwords = tmp_path / "passwords"
    subprocess.run(["mosquitto_passwd", "-b", "-c", str(passwords), "n1", "right"], check=True, timeout=30)
    secret = tmp_path / "secret"
    secret.write_text("wrong")
    secret.chmod(0o600)
    with mosquitto(tmp_path / "broker", f"allow_anonymous false\npassword_file {passwords}\n") as broker:
        daemon = Daemon(tmp_path, broker.port)
        daemon.write(CONFIG.replace('node = "n1"', f'node = "n1"\nusername = "n1"\npassword_file = "{secret}"'))
        daemon.start()
        assert daemon.process is not None
        daemon.until_logged("mqtt_link")
        assert daemon.process.poll() is None
        assert daemon.end() == 0
        daemon.notify.close()
    lines = [line for line in daemon.log.splitlines() if "mqtt_link" in line and "state=down" in line]
    assert "login" in lines[0] or "password" in lines[0]
    assert "wrong" not in daemon.log


async def test_an_unknown_device_and_a_value_out_of_range_come_back_as_errors(daemon: Daemon) -> None:
    daemon.start()
    async with person(daemon) as client:
        await online(client)
        for device, value in (("boiler", True), ("lamp", 17)):
            final: Mapping[str, Any] = {}
            async for reply in client.set("n1", device, value):
                final = reply
            assert device in final["text"]
            assert "ok" not in [result["outcome"] for result in final.get("results", ())]
        assert [result["outcome"] for result in (await ask(client, "turn on the lamp"))["results"]] == ["ok"]


async def test_garbage_is_refused_and_the_next_command_works(daemon: Daemon) -> None:
    import paho.mqtt.publish as publish

    daemon.start()
    async with person(daemon) as client:
        await online(client)
        for payload in (
            b"[]",
            b'{"id":"r1","text":"tem',
            b"\xff" * 70_000,
            b"x" * 1_000_000,
            b"",
            b'{"id": 3, "text": []}',
        ):
            await asyncio.to_thread(publish.single, "zeroclaw/n1/command", payload, 1, False, "127.0.0.1", daemon.port)
        await asyncio.to_thread(
            publish.single,
            "zeroclaw/n1/command",
            b'{"id":"old","text":"turn on the lamp"}',
            1,
            True,
            "127.0.0.1",
            daemon.port,
        )
        assert [result["outcome"] for result in (await ask(client, "turn off the lamp"))["results"]] == ["ok"]
        status = await until(client, "status", lambda seen: bool(seen.document.get("mqtt", {}).get("refused")))
        assert sum(status.document["mqtt"]["refused"].values()) >= 4
    assert not [row for row in daemon.rows(device="lamp", kind="intent") if "true" in row.arguments]


def test_two_daemons_do_not_share_a_state(daemon: Daemon) -> None:
    daemon.start()
    done = subprocess.run(
        [sys.executable, "-m", "zeroclawd", "run", "--config", str(daemon.config)],
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert b"Traceback" not in done.stderr
    assert daemon.end() == 0


def test_without_a_broker_it_is_ready_and_says_what_is_missing(daemon: Daemon, broker: Mosquitto) -> None:
    broker.stop()
    daemon.start()
    daemon.until_logged("mqtt_link")
    assert daemon.end() == 0
    assert "nothing listens" in daemon.log or "refused" in daemon.log


async def test_the_watchdog_is_fed_and_starves_with_a_hung_loop(daemon: Daemon) -> None:
    daemon.start(WATCHDOG_USEC="200000")
    assert daemon.until("WATCHDOG=1")
    assert daemon.process is not None
    daemon.process.send_signal(signal.SIGSTOP)
    daemon.notify.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while True:
            daemon.notify.recv(4096)
    await asyncio.sleep(0.5)
    with pytest.raises(BlockingIOError):
        daemon.notify.recv(4096)
    daemon.process.send_signal(signal.SIGCONT)


MUST_NOT = ("gpiozero", "smbus2", "serial", "lgpio", "httpx2", "hassil", "yaml", "nacl", "rich", "fluent", "click",
            "email", "http.client", "pydantic", "cffi", "zoneinfo", "zeroclawd.providers.openai", "zeroclawd.cli.main",
            "zeroclawd.store.verify", "zeroclawd.board.pi")  # fmt: skip


def test_what_is_not_used_is_not_loaded_at_ready(daemon: Daemon) -> None:
    script = (
        "import json, sys\n"
        "from zeroclawd.daemon import service\n"
        "def ready(self):\n"
        "    print(json.dumps(sorted(sys.modules)))\n"
        "    self.end('test')\n"
        "service.Service._say_ready = ready\n"
        f"sys.argv = ['zeroclawd', 'run', '--config', {str(daemon.config)!r}]\n"
        "from zeroclawd.__main__ import main\n"
        "main()\n"
    )
    for _ in range(2):  # the first start renders the texts and keeps them, the second is what a board does every day
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, timeout=60, check=True)
    loaded = set(json.loads(done.stdout))
    assert not loaded & set(MUST_NOT)


def test_safe_state_works_with_a_broken_config(daemon: Daemon) -> None:
    daemon.start()
    daemon.end(signal.SIGKILL)
    daemon.config.write_text("x = [", "utf-8")
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "zeroclawd",
            "safe-state",
            "--config",
            str(daemon.config),
            "--state-dir",
            str(daemon.state),
        ],
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "last-good.toml" in done.stdout.decode()
    assert "simulated" in done.stdout.decode()


def test_the_database_is_nobody_elses_business(daemon: Daemon) -> None:
    daemon.start()
    daemon.end()
    assert (daemon.state / "zeroclawd.db").stat().st_mode & 0o077 == 0
    assert (daemon.state / "device.key").stat().st_mode & 0o077 == 0
    with contextlib.closing(sqlite3.connect(daemon.state / "zeroclawd.db")) as opened:
        assert opened.execute("PRAGMA integrity_check").fetchone() == ("ok",)
