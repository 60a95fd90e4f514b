"""Status, devices and emergency stop of a fleet, and what is known without one."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.broker import Mosquitto
from tests.cli.people import PROGRAM, Person, clean, patched, run
from tests.cli.test_live import Puppet
from tests.process import Daemon
from zeroclawd.signing import RELEASE, Keypair, Verifier, release_fields

pytestmark = pytest.mark.broker

ALICE = Keypair.generate()


@pytest.fixture
def puppet(broker: Mosquitto) -> Iterator[Puppet]:
    made = Puppet(broker.port)
    yield made
    made.end()


@pytest.fixture
def person(tmp_path: Path, broker: Mosquitto) -> Person:
    return Person(tmp_path, broker.port, ALICE)


def status(puppet: Puppet, node: str, **more: Any) -> None:
    said = {
        "v": 1, "version": "0.1.0", "boot_id": f"boot-{node}", "started": 1_700_000_000.0, "state": "ok", "reasons": [],
        "emergency_stop": False, "devices": {"lamp": "ok"}, "mqtt": {"open_questions": 2}, **more,
    }  # fmt: skip
    puppet.say(f"{node}/status", said, retain=True)
    puppet.say(f"{node}/availability", b"online", retain=True)


def test_a_fleet_at_a_glance(puppet: Puppet, person: Person) -> None:
    status(puppet, "n1")
    assert person.run("status").returncode == 0
    status(puppet, "n2", state="degraded", reasons=["board: pump"], emergency_stop=True)
    puppet.say("n3/availability", b"offline", retain=True)
    puppet.say("n4/status", b"\xff no JSON", retain=True)
    done = person.run("status")
    assert done.returncode == 1
    assert [line.split() for line in done.stdout.splitlines()] == [
        ["node", "state", "stop", "questions", "version", "since", "why"],
        ["n1", "ok", "-", "2", "0.1.0", "2023-11-14", "22:13:20+00:00", "-"],
        ["n2", "degraded", "engaged", "2", "0.1.0", "2023-11-14", "22:13:20+00:00", "board:", "pump"],
        ["n3", "offline", "-", "-", "-", "-", "-"],
        ["n4", "unknown", "-", "-", "-", "-", "-"],
    ]  # fmt: skip
    assert person.run("status", "--node", "n1").returncode == 0
    assert person.run("status", "--node", "n2").returncode == 1
    missing = person.run("status", "--node", "n9")
    assert missing.returncode == 1
    assert "zeroclaw/n9" in missing.stderr
    assert [one["node"] for one in person.json("status")] == ["n1", "n2", "n3", "n4"]


def test_devices_show_what_they_measured_and_what_to_doubt(puppet: Puppet, person: Person) -> None:
    status(puppet, "n1", devices={"lamp": "ok", "air": "no answer on the bus"})
    puppet.say(
        "n1/device/air/state",
        {
            "device": "air",
            "values": {"temperature": 21.4, "open": False},
            "units": {"temperature": "°C"},
            "time": "2023-11-14T22:13:20.000Z",
            "warnings": ["stale"],
            "simulated": True,
        },
        retain=True,
    )
    rows = person.run("devices").stdout.splitlines()
    assert rows[1].split("  ")[0] == "n1"
    assert "temperature 21.4 °C, open no" in rows[1]
    assert "2023-11-14 22:13:20+00:00  stale, simulated" in rows[1]
    assert "no answer on the bus" in rows[1]
    assert rows[2].split() == ["n1", "lamp", "ok", "-", "-", "-"]
    air, lamp = person.json("devices")
    assert (air["fault"], air["state"]["values"]["temperature"]) == ("no answer on the bus", 21.4)
    assert (lamp["fault"], lamp["state"]) == ("", {})
    nothing = person.run("devices", "--node", "n9")
    assert nothing.returncode == 1
    assert nothing.stdout == ""


def test_a_config_lists_its_devices_and_asks_nobody(daemon: Daemon) -> None:
    done = run("devices", "--config", str(daemon.config))
    assert done.returncode == 0
    pump, lamp = done.stdout.splitlines()[1:]
    assert pump.split()[:3] == ["pump", "relay", "high"]
    assert "pin 17" in pump
    assert "600" in pump or "10 min" in pump or "10m" in pump
    assert lamp.split()[0] == "lamp"
    listed = [json.loads(line) for line in run("devices", "--json", "--config", str(daemon.config)).stdout.splitlines()]
    assert [one["device"] for one in listed] == ["pump", "lamp"]
    daemon.write('[devices.pump]\nkind = "relay"\npin = 99\n')
    wrong = run("devices", "--config", str(daemon.config))
    assert wrong.returncode == 2
    assert "config.toml:3: devices.pump.pin" in wrong.stderr


def test_tools_can_be_asked_of_a_config(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text('[risk_profiles.default]\nexcluded_tools = ["shell"]\n')
    found = {
        one["name"]: one["admitted"]
        for one in map(json.loads, run("tools", "--json", "--config", str(config)).stdout.splitlines())
    }
    assert found["shell"] is False
    assert found["time"] is True
    assert "admitted" in run("tools", "--config", str(config)).stdout.splitlines()[0]
    japanese = run("tools", "--lang", "ja").stdout
    assert japanese != run("tools").stdout


# Emergency stop


def test_a_release_is_signed_for_the_run_that_is_stopped(puppet: Puppet, person: Person) -> None:
    status(puppet, "n1", emergency_stop=True)
    heard = listen(puppet, "n1/estop")
    releasing = person.start("estop", "release")
    said = heard()
    assert Verifier(ALICE.public).verify(said["sig"], RELEASE, release_fields("n1", said))
    assert (said["boot_id"], said["operator"]) == ("boot-n1", "alice")
    puppet.say("n1/reply", {"id": said["id"], "stage": "final", "text": "released"})
    out, _ = releasing.communicate(timeout=60)
    assert releasing.returncode == 0
    assert out == "n1: released; nothing was switched on\n"
    refused = person.start("estop", "release")
    puppet.say("n1/reply", {"id": heard()["id"], "stage": "error", "text": "this operator\x1b[0m may not"})
    _, err = refused.communicate(timeout=60)
    assert refused.returncode == 1
    assert "the release was refused: this operator\\u001b[0m may not" in err


def listen(puppet: Puppet, topic: str) -> Callable[[], dict[str, Any]]:
    """The next document on a topic."""
    import queue

    heard: queue.Queue[dict[str, Any]] = queue.Queue()
    puppet._client.on_message = lambda _client, _data, message: heard.put(json.loads(message.payload))
    puppet._client.subscribe(f"zeroclaw/{topic}", 1)
    return lambda: heard.get(timeout=60)


def test_every_node_is_stopped_and_the_silent_ones_are_named(puppet: Puppet, person: Person) -> None:
    for node in ("n1", "n2"):
        status(puppet, node)
    heard = listen(puppet, "+/estop")
    hasty = patched("zeroclawd.cli.estop", "_SECONDS", 3)
    stopping = person.start("estop", "engage", "--all", "--reason", "smoke", program=hasty)
    assert [heard()["reason"] for _ in range(2)] == ["smoke", "smoke"]
    status(puppet, "n1", emergency_stop=True)
    out, err = stopping.communicate(timeout=60)
    assert stopping.returncode == 1
    assert out == "n1: stopped; outputs are in their safe states and stay there\n"
    assert "not confirmed within 3 s by: n2" in err
    assert person.run("estop", "engage", "--all", "--node", "n1").returncode == 2


def test_an_operator_whom_the_node_does_not_know_cannot_release(tmp_path: Path, daemon: Daemon) -> None:
    daemon.start()
    person = Person(tmp_path, daemon.port, Keypair.generate())
    assert person.run("estop", "engage").returncode == 0
    refused = person.run("estop", "release")
    assert refused.returncode == 1
    assert "the release was refused" in refused.stderr
    assert person.run("status").returncode == 1


# Completion


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("zeroclawd rec", "receipts"),
        ("zeroclawd receipts ver", "verify"),
        ("zeroclawd approvals approve --al", "--always"),
    ],
)
def test_what_is_typed_is_completed(typed: str, offered: str) -> None:
    words = typed.split()
    environ = {"_ZEROCLAWD_COMPLETE": "bash_complete", "COMP_WORDS": typed, "COMP_CWORD": str(len(words) - 1)}
    done = subprocess.run(PROGRAM, env=clean(environ), capture_output=True, text=True, timeout=60, check=False)
    assert f"plain,{offered}" in done.stdout.splitlines()
