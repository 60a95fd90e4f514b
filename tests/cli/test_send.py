"""`send`: at most one effect, an honest exit code, an answer to Ctrl-C, and little to load where nobody waits."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.broker import Mosquitto, mosquitto
from tests.channels import fake
from tests.channels.certificates import authority
from tests.cli.people import Person, clean, run, start
from tests.cli.test_live import Puppet
from tests.process import Daemon
from zeroclawd.channels.mqtt import once
from zeroclawd.cli.connection import Where
from zeroclawd.cli.send import exit_code
from zeroclawd.errors import ChannelError, KeyFileError
from zeroclawd.signing import COMMAND, Keypair, Verifier, command_fields

pytestmark = pytest.mark.broker


@pytest.mark.parametrize(
    ("stage", "outcomes", "code"),
    [
        ("final", [], 0),
        ("final", ["ok"], 0),
        ("final", ["ok", "duplicate"], 0),
        ("final", ["error", "ok"], 0),
        ("final", ["ok", "error"], 1),
        ("final", ["denied", "ok"], 1),
        ("final", ["blocked"], 1),
        ("final", ["replaced"], 1),
        ("final", ["unknown", "ok"], 1),
        ("error", ["ok"], 1),
        ("error", [], 1),
        ("", [], 1),
    ],
)
def test_the_exit_code_says_whether_it_was_done(stage: str, outcomes: list[str], code: int) -> None:
    assert exit_code({"stage": stage, "results": [{"outcome": outcome} for outcome in outcomes]}) == code


# A scripted node


class Listener:
    """Hears what is sent to nodes; `answer` says stages for the last command."""

    def __init__(self, port: int) -> None:
        self.puppet = Puppet(port)
        self.heard: list[tuple[str, dict[str, Any]]] = []
        self._news = threading.Event()
        self.puppet._client.on_message = self._hear
        for topic in ("+/command", "+/cancel", "group/+/command"):
            self.puppet._client.subscribe(f"zeroclaw/{topic}", 1)

    def _hear(self, _client: Any, _data: Any, message: Any) -> None:
        self.heard.append((message.topic.removeprefix("zeroclaw/"), json.loads(message.payload)))
        self._news.set()

    def next(self) -> tuple[str, dict[str, Any]]:
        while not self.heard:
            assert self._news.wait(60)
            self._news.clear()
        return self.heard.pop(0)

    def reply(self, command_id: str, stage: str, text: str = "", **more: Any) -> None:
        self.puppet.say("n1/reply", {"v": 1, "id": command_id, "stage": stage, "text": text, **more})


@pytest.fixture
def node(broker: Mosquitto) -> Iterator[Listener]:
    made = Listener(broker.port)
    yield made
    made.puppet.end()


@pytest.fixture
def alice() -> Keypair:
    return Keypair.generate()


@pytest.fixture
def person(tmp_path: Path, broker: Mosquitto, alice: Keypair) -> Person:
    return Person(tmp_path, broker.port, alice)


def test_every_stage_is_shown_and_only_the_reply_is_output(node: Listener, person: Person) -> None:
    sending = person.start("send", "water the beds")
    _, said = node.next()
    node.reply("somebody-else", "final", "not ours")
    node.reply(said["id"], "accepted")
    node.reply(said["id"], "progress", "Set pump to on", flags=["asks_operator"])
    node.reply(said["id"], "progress", "still\x1b[2J pumping")
    node.reply(
        said["id"],
        "final",
        "The beds are wet.\nAll\x1b]0;x\x07 of them.",
        results=[
            {"tool": "device_read", "outcome": "ok", "device": "bed", "decided_by": "policy"},
            {"tool": "device_write", "outcome": "denied", "device": "pump", "decided_by": "bob"},
        ],
        receipts=[{"tool": "device_read", "receipt": "zc-receipt-1-x"}],
        flags=["capped"],
    )
    out, err = sending.communicate(timeout=60)
    assert sending.returncode == 1
    assert out == "The beds are wet.\nAll\\u001b]0;x\\u0007 of them.\n  device_read: zc-receipt-1-x\n"
    assert err == (
        "accepted\nwaiting for an operator: Set pump to on\n… still\\u001b[2J pumping\n"
        "  device_write pump: denied (bob)\n  capped\n"
    )


def test_what_is_sent_is_what_was_said(node: Listener, person: Person, alice: Keypair) -> None:
    done = person.run(
        "send", "--no-wait", "--json", "--session", "shift", "--tools", "device_read, time", "--sign", "Gieß die Beete!"
    )
    assert done.returncode == 0
    topic, said = node.next()
    assert topic == "n1/command"
    assert json.loads(done.stdout) == {"id": said["id"], "node": "n1"}
    assert (said["text"], said["session"], said["tools"]) == ("Gieß die Beete!", "shift", ["device_read", "time"])
    assert said["sender"] == "alice"
    assert Verifier(alice.public).verify(said["sig"], COMMAND, command_fields("n1", said))


def test_the_same_id_is_sent_again_when_asked_for(node: Listener, person: Person) -> None:
    assert person.run("send", "--no-wait", "--id", "once-1", "on").stdout == "once-1\n"
    assert node.next()[1]["id"] == "once-1"


def test_standard_input_is_sent_as_it_is(node: Listener, person: Person) -> None:
    assert person.run("send", "--no-wait", "-", stdin="two\nlines\n").returncode == 0
    assert node.next()[1]["text"] == "two\nlines\n"
    assert person.run("send", "--no-wait", "-", stdin=" \n").returncode == 2


def test_a_whole_fleet_is_spoken_to_without_waiting(node: Listener, person: Person) -> None:
    assert person.run("send", "--no-wait", "--node", "all", "lights off").returncode == 0
    assert node.next()[0] == "all/command"
    assert person.run("send", "--no-wait", "--node", "group/north", "lights off").returncode == 0
    assert node.next()[0] == "group/north/command"
    waiting = person.run("send", "--node", "all", "lights off")
    assert waiting.returncode == 2
    assert "--no-wait" in waiting.stderr
    for wild in ("+", "#", "n1/#"):
        assert person.run("send", "--no-wait", "--node", wild, "x").returncode == 2
    assert not node.heard


def test_no_reply_in_time_says_how_to_ask_again(node: Listener, person: Person) -> None:
    done = person.run("send", "--timeout", "1s", "hello")
    assert done.returncode == 1
    assert f"--id {node.next()[1]['id']}" in done.stderr
    assert done.stdout == ""


def test_a_node_that_is_offline_is_said_before_one_waits(node: Listener, person: Person) -> None:
    node.puppet.say("n1/availability", b"offline", retain=True)
    done = person.run("send", "--timeout", "1s", "hello")
    assert "the node is offline" in done.stderr
    node.puppet.say("n1/availability", b"online", retain=True)
    assert "offline" not in person.run("send", "--timeout", "1s", "hello").stderr


def test_ctrl_c_cancels_waits_a_moment_and_ends_with_130(node: Listener, person: Person) -> None:
    sending = person.start("send", "hello")
    _, said = node.next()
    sending.send_signal(signal.SIGINT)
    assert node.next() == ("n1/cancel", {"v": 1, "id": said["id"]})
    node.reply(said["id"], "error", "Cancelled. What was done before: nothing")
    out, err = sending.communicate(timeout=60)
    assert sending.returncode == 130
    assert "cancelled" in err
    assert "What was done before: nothing" in out
    silent = person.start("send", "hello")
    _, said = node.next()
    silent.send_signal(signal.SIGINT)
    _, err = silent.communicate(timeout=60)
    assert silent.returncode == 130
    assert said["id"] in err


def test_a_reader_that_has_gone_is_no_traceback(node: Listener, person: Person) -> None:
    sending = person.start("send", "--json", "hello")
    assert sending.stdout is not None
    assert sending.stderr is not None
    sending.stdout.close()
    _, said = node.next()
    node.reply(said["id"], "accepted")
    node.reply(said["id"], "final", "done")
    assert sending.wait(60) == 1
    with sending.stderr as beside:
        assert "Traceback" not in beside.read()


# The real daemon


def test_a_second_delivery_gives_the_first_reply_and_no_second_effect(tmp_path: Path, daemon: Daemon) -> None:
    daemon.start()
    person = Person(tmp_path, daemon.port, daemon.alice)
    first = person.run("send", "--id", "lamp-1", "turn on the lamp")
    again = person.run("send", "--id", "lamp-1", "turn on the lamp")
    assert (first.returncode, again.returncode) == (0, 0)
    token = re.compile(r"zc-receipt-\S+")
    assert token.findall(first.stdout) == token.findall(again.stdout) != []
    assert len(daemon.rows(device="lamp", kind="intent")) == 1
    other = person.run("send", "--id", "lamp-1", "turn off the lamp")
    assert other.returncode == 1
    assert "another command had this id" in other.stdout


def test_a_session_remembers(tmp_path: Path, daemon: Daemon) -> None:
    daemon.start()
    person = Person(tmp_path, daemon.port, daemon.alice)
    signed = person.run("send", "--sign", "--session", "shift", "turn on the lamp")
    assert signed.returncode == 0
    assert daemon.rows(device="lamp", kind="intent")[-1].principal == "operator:alice"


# Brokers that do not let one in


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Mosquitto]:
    passwords = tmp_path / "passwords"
    subprocess.run(["mosquitto_passwd", "-b", "-c", str(passwords), "anna", "right"], check=True, timeout=30)
    with mosquitto(tmp_path / "guarded", f"allow_anonymous false\npassword_file {passwords}\n") as broker:
        yield broker


@pytest.mark.parametrize("how", [("--no-wait",), ()])
def test_a_wrong_password_is_one_sentence_and_is_not_shown(
    tmp_path: Path, guarded: Mosquitto, how: tuple[str, ...]
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("wr0ng-secret")
    secret.chmod(0o600)
    words = (
        "send",
        *how,
        "--broker",
        f"mqtt://127.0.0.1:{guarded.port}",
        "--node",
        "n1",
        "--username",
        "anna",
        "hello",
    )
    done = run(*words, "--password-file", str(secret))
    assert done.returncode == 1
    assert "refuses the login of user anna" in done.stderr
    assert "wr0ng-secret" not in done.stderr + done.stdout
    secret.write_text("right")
    assert run(*words, "--password-file", str(secret), "--timeout", "1s").returncode == (0 if how else 1)
    secret.chmod(0o644)
    readable = run(*words, "--password-file", str(secret))
    assert "chmod 600" in readable.stderr
    assert readable.returncode != 0


@pytest.mark.parametrize("how", [("--no-wait",), ()])
def test_nobody_there_and_no_such_name(how: tuple[str, ...]) -> None:
    nobody = run("send", *how, "--broker", "mqtt://127.0.0.1:1", "--node", "n1", "hello")
    assert nobody.returncode == 1
    assert "nothing listens at 127.0.0.1:1" in nobody.stderr
    nowhere = run("send", *how, "--broker", "mqtt://no-such-host.invalid", "--node", "n1", "hello")
    assert nowhere.returncode == 1
    assert "no-such-host.invalid cannot be resolved" in nowhere.stderr


# One message over its own connection


class _Deaf:
    """What a broker says to each CONNECT, by the version that it asks for; None closes the connection."""

    def __init__(self, **answers: bytes | None) -> None:
        self.answers = answers
        self.published: list[bytes] = []

    async def __call__(self, kind: int, rest: bytes, writer: asyncio.StreamWriter) -> None:
        if kind == fake.CONNECT:
            said = self.answers[f"v{fake.version(rest)}"]
            if said is None:
                writer.close()
                return
            writer.write(said)
        elif kind == fake.PUBLISH & 0xF0:
            self.published.append(rest)
            topic = 2 + int.from_bytes(rest[:2], "big")
            writer.write(b"\x40\x02" + rest[topic : topic + 2])
        await writer.drain()


def target(port: int, **more: Any) -> Where:
    return Where("127.0.0.1", port, **more)


@pytest.mark.parametrize("v5", [b"\x20\x03\x00\x84\x00", b"\x20\x02\x00\x01", None])
async def test_a_broker_that_does_not_speak_5_is_asked_in_3_1_1(v5: bytes | None) -> None:
    answers = _Deaf(v5=v5, v4=b"\x20\x02\x00\x00")
    async with fake.broker(answers) as port:
        await asyncio.to_thread(once.publish, target(port), "zeroclaw/n1/command", b"hello")
    assert [packet[-5:] for packet in answers.published] == [b"hello"]


async def test_a_broker_that_answers_nothing_says_so() -> None:
    async with fake.broker(_Deaf(v5=None, v4=None)) as port:
        with pytest.raises(ChannelError, match="is it an MQTT broker"):
            await asyncio.to_thread(once.publish, target(port), "t", b"x")


async def test_a_message_that_is_not_acknowledged_is_not_taken_for_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(once, "ACKNOWLEDGE_SECONDS", 0.2)

    async def silent(kind: int, _rest: bytes, writer: asyncio.StreamWriter) -> None:
        if kind == fake.CONNECT:
            writer.write(b"\x20\x03\x00\x00\x00")
            await writer.drain()

    async with fake.broker(silent) as port:
        with pytest.raises(ChannelError, match="did not acknowledge"):
            await asyncio.to_thread(once.publish, target(port), "t", b"x")


def test_tls_is_checked_for_a_single_message_too(tmp_path: Path) -> None:
    home, elsewhere = authority(tmp_path / "home"), authority(tmp_path / "elsewhere")
    certificate, key = home.issue("broker", "server")
    lines = f"allow_anonymous true\ncafile {home.ca}\ncertfile {certificate}\nkeyfile {key}\n"
    with mosquitto(tmp_path / "broker", lines) as broker:
        once.publish(target(broker.port, tls=True, ca_file=str(home.ca)), "t", b"x")
        with pytest.raises(ChannelError, match="the certificate of"):
            once.publish(target(broker.port, tls=True, ca_file=str(elsewhere.ca)), "t", b"x")
        with pytest.raises(KeyFileError, match="ca_file"):
            once.publish(target(broker.port, tls=True, ca_file="/nonexistent"), "t", b"x")
        with pytest.raises(ChannelError):
            once.publish(target(broker.port), "t", b"x")


# What is loaded

NOT_FOR_A_MESSAGE = (
    "asyncio", "msgspec", "rich", "fluent", "babel", "nacl", "sqlite3", "pathlib", "dataclasses", "difflib", "tomllib",
    "zeroclawd.config", "zeroclawd.messages", "zeroclawd.channels.mqtt.link", "zeroclawd.channels.mqtt.client",
    "importlib.metadata",
)  # fmt: skip


def test_a_message_without_waiting_loads_no_event_loop(broker: Mosquitto) -> None:
    words = ["zeroclawd", "send", "--no-wait", "--broker", f"mqtt://127.0.0.1:{broker.port}", "--node", "n1", "hello"]
    script = (
        f"import sys; sys.argv = {words!r}\n"
        "from zeroclawd.__main__ import main\n"
        "code = main()\n"
        "print(*sys.modules, file=sys.stderr)\n"
        "raise SystemExit(code)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], env=clean({}), capture_output=True, text=True, timeout=60, check=True
    )
    assert not set(done.stderr.split()) & set(NOT_FOR_A_MESSAGE)


def test_help_loads_no_command() -> None:
    script = (
        "import sys; sys.argv = ['zeroclawd', '--help']\n"
        "from zeroclawd.__main__ import main\n"
        "main()\n"
        "print(*(name for name in sys.modules if name.startswith('zeroclawd.')), file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], env=clean({}), capture_output=True, text=True, timeout=60, check=True
    )
    assert set(done.stderr.split()) == {"zeroclawd.__main__", "zeroclawd.cli", "zeroclawd.cli.main", "zeroclawd.errors"}


def test_a_pipe_is_told_nothing_in_colour(node: Listener, person: Person) -> None:
    sending = start("send", "hello", ZEROCLAWD_CLIENT=str(person.client))
    _, said = node.next()
    node.reply(said["id"], "error", "no")
    out, err = sending.communicate(timeout=60)
    assert "\x1b" not in out + err
