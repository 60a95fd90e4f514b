"""The command line as people use it: real processes, a real daemon and broker, in a pipe and in a terminal."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.broker import Mosquitto
from tests.cli.people import Person, Terminal, clean
from tests.process import Daemon

pytestmark = pytest.mark.broker


@pytest.fixture
def person(tmp_path: Path, daemon: Daemon) -> Iterator[Person]:
    daemon.start()
    made = Person(tmp_path, daemon.port, daemon.alice)
    for _ in range(50):
        if made.run("status").returncode == 0:
            break
    yield made
    if daemon.process is not None:
        daemon.end()


def test_send_shows_the_reply_and_its_receipt(person: Person) -> None:
    done = person.run("send", "turn on the lamp")
    assert done.returncode == 0
    assert done.stdout.startswith("lamp is now on.\n  device_write: zc-receipt-")
    assert "accepted" in done.stderr
    lines = [json.loads(line) for line in person.run("send", "--json", "turn off the lamp").stdout.splitlines()]
    assert [line["stage"] for line in lines] == ["accepted", "final"]
    assert person.run("send", "-", stdin="turn on the lamp\n").returncode == 0
    assert re.fullmatch(r"[0-9a-f]{16}\n", person.run("send", "--no-wait", "turn on the lamp").stdout)


def test_an_approval_from_another_terminal(person: Person) -> None:
    sending = person.start("send", "turn on the pump")
    question = person.question()
    done = person.run("approvals", "approve", question["request_id"][:6])
    assert done.returncode == 0
    assert "approve: accepted" in done.stdout
    assert '"value": true' in done.stderr  # the whole call is shown to whoever decides
    out, err = sending.communicate(timeout=60)
    assert sending.returncode == 0
    assert "pump is now on." in out
    assert "waiting for an operator: Set pump to on" in err
    again = person.run("approvals", "approve", question["request_id"])
    assert again.returncode == 1
    assert "try: `zeroclawd approvals list`" in again.stderr


@pytest.mark.parametrize(("words", "said"), [(("deny",), "an operator said no"), (("replace",), "the tank is empty")])
def test_a_no_and_a_replacement(person: Person, words: tuple[str, ...], said: str) -> None:
    sending = person.start("send", "turn on the pump")
    request_id = person.question()["request_id"]
    more = ("the tank is empty",) if words == ("replace",) else ()
    assert person.run("approvals", *words, request_id, *more).returncode == 0
    out, _ = sending.communicate(timeout=60)
    assert sending.returncode == 1
    assert said in out


def test_a_wrong_key_is_refused_and_the_question_stays(person: Person, tmp_path: Path) -> None:
    assert person.run("operator", "keygen", "mallory", "--out", str(tmp_path / "m.key")).returncode == 0
    sending = person.start("send", "turn on the pump")
    request_id = person.question()["request_id"]
    forged = person.run("approvals", "approve", request_id, "--key", str(tmp_path / "m.key"))
    assert forged.returncode == 1
    assert "refused" in forged.stdout
    assert person.run("approvals", "deny", request_id).returncode == 0
    sending.communicate(timeout=60)


def test_ctrl_c_cancels_the_command(person: Person) -> None:
    sending = person.start("send", "turn on the pump")
    request_id = person.question()["request_id"]
    sending.send_signal(signal.SIGINT)
    _, err = sending.communicate(timeout=60)
    assert sending.returncode == 130
    assert "cancelled" in err
    assert "Traceback" not in err
    for _ in range(20):
        if "no question is open" in person.run("approvals", "list").stderr:
            break
    assert person.run("approvals", "approve", request_id).returncode == 1


def test_the_ledger_answers_who_and_whether(person: Person, daemon: Daemon) -> None:
    token = re.search(r"zc-receipt-\S+", person.run("send", "turn on the lamp").stdout)
    assert token
    state = ("--state-dir", str(daemon.state))
    listed = person.run("receipts", "list", "--device", "lamp", "--outcome", "ok", *state)
    assert "device_write value=true" in listed.stdout
    assert person.run("receipts", "check", token[0], *state).returncode == 0
    assert person.run("receipts", "check", "zc-receipt-1-" + "A" * 43, *state).returncode == 1
    assert person.run("receipts", "show", "1", *state).stdout.startswith("seq")
    assert person.run("receipts", "show", "99999", *state).returncode == 1
    assert "the chain is whole" in person.run("receipts", "verify", *state).stdout
    export = daemon.folder / "ledger.jsonl"
    assert person.run("receipts", "export", "--out", str(export), *state).returncode == 0
    assert person.run("receipts", "verify", "--file", str(export)).returncode == 0
    export.write_text(export.read_text().replace('"lamp"', '"lamb"', 1))
    broken = person.run("receipts", "verify", "--file", str(export))
    assert broken.returncode == 1
    assert "NOT whole" in broken.stdout
    rows = [
        json.loads(line)
        for line in person.run("receipts", "list", "--json", "--since", "1h", *state).stdout.splitlines()
    ]
    assert {"boot", "command", "intent", "outcome"} <= {row["kind"] for row in rows}


def test_the_emergency_stop(person: Person) -> None:
    assert person.run("estop", "engage", "--reason", "test").returncode == 0
    assert person.run("send", "turn on the lamp").returncode == 1
    status = person.run("status")
    assert status.returncode == 1
    assert "the emergency stop is engaged" in status.stdout
    assert person.run("estop", "release").returncode == 0
    assert person.run("send", "turn on the lamp").returncode == 0


def test_status_and_devices(person: Person) -> None:
    person.run("send", "turn on the lamp")
    (status,) = [json.loads(line) for line in person.run("status", "--json").stdout.splitlines()]
    assert (status["node"], status["availability"], status["state"]) == ("n1", "online", "ok")
    devices = {row["device"]: row for row in map(json.loads, person.run("devices", "--json").stdout.splitlines())}
    assert devices["lamp"]["state"]["values"] == {"on": True}
    assert "lamp" in person.run("devices").stdout


def test_watch_answers_with_one_key_also_after_the_broker_was_away(person: Person, broker: Mosquitto) -> None:
    watching = Terminal(("approvals", "watch"), person.environ)
    watching.until("a approve, d deny")
    first = person.start("send", "turn on the pump")
    watching.until("Set pump to on")
    watching.answer("d", "deny: accepted")
    assert "an operator said no" in first.communicate(timeout=60)[0]
    broker.restart()
    for _ in range(50):
        if person.run("status").returncode == 0:
            break
    watching.until("connected again")
    watching.shown = ""
    second = person.start("send", "turn on the pump")
    watching.until("Set pump to on")
    watching.answer("a", "approve: accepted")
    assert "pump is now on" in second.communicate(timeout=60)[0]
    watching.press("q")
    assert watching.end() == 0


def test_watch_in_a_pipe_prints_lines(person: Person) -> None:
    watching = person.start("approvals", "watch", "--json")
    sending = person.start("send", "turn on the pump")
    assert watching.stdout is not None
    question = json.loads(watching.stdout.readline())
    assert question["tool"] == "device_write"
    person.run("approvals", "deny", question["request_id"])
    sending.communicate(timeout=60)
    watching.send_signal(signal.SIGINT)
    _, err = watching.communicate(timeout=60)
    assert "Traceback" not in err


def test_a_reader_that_goes_away_is_no_drama(person: Person, daemon: Daemon) -> None:
    for _ in range(3):
        person.run("send", "turn on the lamp")
    done = subprocess.run(
        f"{sys.executable} -m zeroclawd receipts list --json --state-dir {daemon.state} | head -1",
        shell=True, env=clean(person.environ), capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert json.loads(done.stdout)["seq"]
    assert "Traceback" not in done.stderr
