"""Questions live: a scripted node at a real broker, and an operator in a terminal or a pipe."""

from __future__ import annotations

import json
import queue
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import paho.mqtt.client as mqtt
import pytest

from tests.broker import Mosquitto
from tests.cli.people import Person, Terminal, patched
from zeroclawd.signing import DECISION, Keypair, Verifier, decision_fields

pytestmark = pytest.mark.broker

ALICE = Keypair.generate()


class Puppet:
    """Plays nodes: says what the test tells it to say, and keeps what operators decide."""

    def __init__(self, port: int) -> None:
        self.decisions: queue.Queue[tuple[str, dict[str, Any]]] = queue.Queue()
        self._client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, protocol=mqtt.MQTTv5)
        self._up = threading.Event()
        self._client.on_connect = lambda client, *_: client.subscribe("zeroclaw/+/approval/decision", 1)
        self._client.on_subscribe = lambda *_: self._up.set()
        self._client.on_disconnect = lambda *_: self._up.clear()
        self._client.on_message = lambda _client, _data, message: self.decisions.put(
            (message.topic.split("/")[1], json.loads(message.payload))
        )
        self._client.reconnect_delay_set(1, 1)
        self._client.connect("127.0.0.1", port)
        self._client.loop_start()

    def say(self, topic: str, document: Any, *, retain: bool = False) -> None:
        assert self._up.wait(30)
        payload = document if isinstance(document, bytes) else json.dumps(document).encode()
        self._client.publish(f"zeroclaw/{topic}", payload, 1, retain).wait_for_publish(30)

    def ask(self, request_id: str, node: str = "n1", *, left: int = 60, **more: Any) -> dict[str, Any]:
        said = {
            "v": 1, "request_id": request_id, "nonce": f"nonce-{request_id}", "node": node, "agent": "a", "turn_id": "t",
            "tool": "device_write", "device": "pump", "risk": "high", "arguments": {"device": "pump", "value": True},
            "arguments_digest": "d1", "summary": f"Question {request_id}", "requested_by": "mqtt:home:unverified",
            "expires_in": left, "quorum": {"need": 1, "have": 0}, **more,
        }  # fmt: skip
        self.say(f"{node}/approval/request/{request_id}", said, retain=True)
        return said

    def clear(self, request_id: str, node: str = "n1") -> None:
        self.say(f"{node}/approval/request/{request_id}", b"", retain=True)

    def accept(self, request_id: str, verdict: str, node: str = "n1", end: str = "approved") -> None:
        about = {"v": 1, "request_id": request_id}
        quorum = {"need": 1, "have": 1}
        self.clear(request_id, node)
        self.say(
            f"{node}/approval/outcome",
            {
                **about,
                "event": "answer",
                "result": "accepted",
                "verdict": verdict,
                "operator": "alice",
                "quorum": quorum,
            },
        )
        self.say(f"{node}/approval/outcome", {**about, "event": "ended", "outcome": end, "by": "alice"})

    def refuse(self, request_id: str, reason: str, node: str = "n1", operator: str = "alice") -> None:
        said = {
            "v": 1,
            "request_id": request_id,
            "event": "answer",
            "result": "refused",
            "reason": reason,
            "text": reason,
        }
        self.say(f"{node}/approval/outcome", {**said, "operator": operator})

    def decision(self) -> tuple[str, dict[str, Any]]:
        """The next decision, of which alice's signature must be good."""
        node, said = self.decisions.get(timeout=60)
        assert Verifier(ALICE.public).verify(said["sig"], DECISION, decision_fields(said))
        return node, said

    def decided(self, screen: Terminal, key: str) -> tuple[str, dict[str, Any]]:
        """The decision that comes of this key, pressed until it is taken: one that comes too soon is not."""
        for _ in range(60):
            screen.press(key)
            screen.read(0.4)
            if not self.decisions.empty():
                return self.decision()
        raise AssertionError(screen.shown)

    def nothing(self) -> bool:
        return self.decisions.empty()

    def end(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()


@pytest.fixture
def puppet(broker: Mosquitto) -> Iterator[Puppet]:
    made = Puppet(broker.port)
    yield made
    made.end()


@pytest.fixture
def person(tmp_path: Path, broker: Mosquitto) -> Person:
    return Person(tmp_path, broker.port, ALICE)


@pytest.fixture
def watching(person: Person) -> Iterator[Callable[..., Terminal]]:
    started = []

    def watch(*more: str) -> Terminal:
        terminal = Terminal(("approvals", "watch", *more), person.environ)
        started.append(terminal)
        terminal.until("q quit" if not more else "watching")
        return terminal

    yield watch
    for terminal in started:
        terminal.leave()
        assert terminal.end() == 0


Watching = Callable[..., Terminal]


def test_one_key_answers_the_question_that_is_in_sight(puppet: Puppet, watching: Watching) -> None:
    screen = watching()
    puppet.ask("q-1", "greenhouse")
    screen.until("greenhouse: Question q-1")
    node, said = puppet.decided(screen, "a")
    assert (node, said["request_id"], said["verdict"], said["operator"]) == ("greenhouse", "q-1", "approve", "alice")
    assert (said["nonce"], said["arguments_digest"]) == ("nonce-q-1", "d1")
    puppet.accept("q-1", "approve", "greenhouse")
    screen.until("approve: accepted (alice)")
    screen.until("ended: approved (alice)")
    assert puppet.nothing()


def test_questions_come_one_after_the_other_and_can_be_skipped(puppet: Puppet, watching: Watching) -> None:
    screen = watching()
    for name in ("q-1", "q-2", "q-3"):
        puppet.ask(name)
    screen.until("(+2)")
    screen.answer("s", "q-2 ")
    screen.answer("d", "q-3 ")
    assert puppet.decision()[1]["request_id"] == "q-2"
    puppet.accept("q-2", "deny", end="denied")
    screen.answer("s", "skipped, any key shows them again: 2")
    screen.answer("x", "q-1 ")
    assert puppet.decided(screen, "a")[1]["request_id"] == "q-1"
    puppet.accept("q-1", "approve")
    screen.until("ended: approved")


def test_a_replacement_is_typed_and_can_be_taken_back(puppet: Puppet, watching: Watching) -> None:
    screen = watching()
    puppet.ask("q-1")
    screen.until("Question q-1")
    screen.answer("r", "Esc goes back")
    screen.press("a bad idea")
    screen.until("a bad idea")
    screen.answer("\x1b", "a approve")
    assert puppet.nothing()
    screen.answer("r", "Esc goes back")
    screen.press("der Tank ist lerr\x7f\x7f\x7feer\r")
    said = puppet.decision()[1]
    assert (said["verdict"], said["replacement"]) == ("replace", "der Tank ist leer")
    puppet.accept("q-1", "replace", end="replaced")
    screen.until("ended: replaced")


def test_a_question_that_is_put_anew_in_other_words_is_another_one(puppet: Puppet, watching: Watching) -> None:
    screen = watching()
    puppet.ask("q-1")
    screen.until("Question q-1")
    screen.answer("r", "Esc goes back")
    screen.press("half a sent")
    screen.until("half a sent")
    puppet.ask("q-1", arguments={"device": "furnace", "value": True}, arguments_digest="d2")
    screen.until('{"device": "furnace", "value": true}')
    screen.press("ence\r")
    screen.drain(1)
    assert puppet.nothing()
    puppet.ask("q-1", arguments={"device": "furnace", "value": True}, arguments_digest="d2", left=50)
    assert puppet.decided(screen, "d")[1]["arguments_digest"] == "d2"
    puppet.accept("q-1", "deny", end="denied")
    screen.until("ended: denied")
    assert screen.shown.count('{"device": "furnace", "value": true}') == 1


def test_a_key_that_comes_too_soon_is_not_taken_for_an_answer(puppet: Puppet, person: Person) -> None:
    patient = patched("zeroclawd.cli.approvals.watch", "TOO_SOON", 3600)
    screen = Terminal(("approvals", "watch"), person.environ, program=patient)
    screen.until("q quit")
    puppet.ask("q-1")
    screen.until("Question q-1")
    for key in "adrs":
        screen.press(key)
        screen.drain(0.3)
    assert puppet.nothing()
    assert "Esc goes back" not in screen.shown
    assert "skipped" not in screen.shown
    screen.leave()
    assert screen.end() == 0


def test_what_is_typed_ahead_or_pasted_answers_nothing(puppet: Puppet, watching: Watching) -> None:
    screen = watching()
    screen.press("a")
    puppet.ask("q-1")
    screen.until("Question q-1")
    time.sleep(1)
    screen.press("aaaa\rapprove it all\r")
    screen.press("\x1b[A")
    time.sleep(0.5)
    assert puppet.nothing()
    assert puppet.decided(screen, "d")[1]["verdict"] == "deny"
    puppet.accept("q-1", "deny", end="denied")
    screen.until("ended: denied")


def test_a_refused_answer_leaves_the_question_before_the_operator(puppet: Puppet, watching: Watching) -> None:
    screen = watching()
    puppet.ask("q-1")
    screen.until("Question q-1")
    puppet.decided(screen, "a")
    puppet.refuse("q-1", "not_entitled")
    screen.until("refused (alice): not_entitled")
    screen.until("try: another operator")
    puppet.decided(screen, "a")
    puppet.refuse("q-1", "expired")
    screen.until("try: send the command again")
    screen.press("a")
    time.sleep(0.5)
    assert puppet.nothing()


def test_what_others_decide_takes_the_question_away(puppet: Puppet, watching: Watching) -> None:
    screen = watching()
    puppet.ask("q-1")
    screen.until("Question q-1")
    screen.answer("r", "Esc goes back")
    screen.press("half a sent")
    screen.until("half a sent")
    puppet.clear("q-1")
    puppet.say("n1/approval/outcome", {"request_id": "q-1", "event": "ended", "outcome": "timed_out", "by": "runtime"})
    screen.until("ended: timed_out (runtime)")
    screen.press("ence\r")
    puppet.ask("q-2")
    screen.until("Question q-2")
    assert puppet.nothing()
    screen.answer("s", "skipped")


def test_a_hostile_node_cannot_draw_on_the_operators_screen(puppet: Puppet, watching: Watching) -> None:
    screen = watching()
    puppet.ask("q-1", summary="Read \x1b[2J\x1b[Hthe clock\r\u202e", arguments={"command": "rm -rf /\x1b[8m\n"})
    screen.until("Read \\u001b[2J\\u001b[Hthe clock\\u000d\\u202e")
    screen.until('{"command": "rm -rf /\\u001b[8m\\n"}')
    puppet.say("n1/approval/request/q-9", {"request_id": "q-2"}, retain=True)
    puppet.say("n1/approval/request/q-8", b"\xff\xfe", retain=True)
    puppet.ask("q-7", summary="of another", node="n1")
    puppet.say("n2/approval/request/q-6", puppet.ask("q-6", "n3"), retain=True)  # n2 shows a question of n3 as its own
    screen.until("n3: Question q-6")
    assert "n2: " not in screen.shown
    assert "\x1b[2J" not in screen.shown


def test_the_watch_goes_on_when_the_broker_was_away(puppet: Puppet, broker: Mosquitto, watching: Watching) -> None:
    screen = watching()
    broker.stop()
    screen.until("no connection: ")
    broker.start()
    screen.until("connected again: ")
    puppet.ask("q-1")
    screen.until("Question q-1")
    assert puppet.decided(screen, "a")[1]["request_id"] == "q-1"
    puppet.accept("q-1", "approve")
    screen.until("ended: approved")


def test_an_answer_while_the_broker_is_away_is_not_lost_in_silence(
    puppet: Puppet, broker: Mosquitto, watching: Watching
) -> None:
    screen = watching()
    puppet.ask("q-1")
    screen.until("Question q-1")
    broker.stop()
    screen.until("no connection: ")
    screen.answer("a", "not connected")
    broker.start()
    screen.until("connected again: ")
    assert puppet.nothing()
    assert puppet.decided(screen, "d")[1]["verdict"] == "deny"
    puppet.accept("q-1", "deny", end="denied")


def test_ctrl_c_ends_it_and_leaves_the_terminal_as_it_was(person: Person) -> None:
    import termios

    screen = Terminal(("approvals", "watch"), person.environ)
    before = termios.tcgetattr(screen.fd)[3]
    screen.until("q quit")
    screen.press("\x03")
    screen.rest()
    assert termios.tcgetattr(screen.fd)[3] & (termios.ECHO | termios.ICANON) == before & (termios.ECHO | termios.ICANON)
    assert screen.end() == 0
    assert "Traceback" not in screen.shown


def test_without_a_key_it_only_shows_and_says_why(puppet: Puppet, person: Person) -> None:
    person.client.write_text(
        'broker = "mqtt://127.0.0.1:{}"\n'.format(person.client.read_text().split(":")[2].split('"')[0])
    )
    screen = Terminal(("approvals", "watch"), person.environ)
    screen.until("give --operator NAME and --key FILE")
    puppet.ask("q-1")
    screen.until("Question q-1")
    screen.press("a")
    time.sleep(1)
    assert puppet.nothing()
    screen.press("\x03")
    screen.rest()
    assert screen.end() == 0


# In a pipe


def test_in_a_pipe_everything_is_a_line(puppet: Puppet, person: Person) -> None:
    puppet.ask("q-1", "n2", quorum={"need": 2, "have": 0})
    watching = person.start("approvals", "watch")
    assert watching.stdout is not None
    line = watching.stdout.readline()
    assert line.split("  ")[1:8] == [
        "n2", "asked", "q-1", "Question q-1", "risk=high", "device=pump", "tool=device_write",
    ]  # fmt: skip
    assert line.endswith('arguments={"device":"pump","value":true}\n')
    assert "approvals=0/2" in line
    puppet.accept("q-1", "approve", "n2")
    assert watching.stdout.readline().endswith("  n2  q-1  approve: accepted (alice)\n")
    assert watching.stdout.readline().endswith("  n2  q-1  ended: approved (alice)\n")
    watching.send_signal(signal.SIGINT)
    _, err = watching.communicate(timeout=60)
    assert watching.returncode == 0
    assert "Traceback" not in err


def test_json_lines_hold_the_documents_and_the_connection(puppet: Puppet, person: Person, broker: Mosquitto) -> None:
    said = puppet.ask("q-1")
    watching = person.start("approvals", "watch", "--json")
    assert watching.stdout is not None
    assert json.loads(watching.stdout.readline()) == said
    puppet.refuse("q-1", "bad_signature", operator="mallory")
    assert json.loads(watching.stdout.readline())["reason"] == "bad_signature"
    broker.stop()
    lost = json.loads(watching.stdout.readline())
    assert (lost["event"], lost["state"]) == ("connection", "down")
    broker.start()
    assert json.loads(watching.stdout.readline())["state"] == "ok"
    watching.stdout.close()
    puppet.ask("q-2")
    assert watching.wait(60) == 1
    assert watching.stderr is not None
    with watching.stderr as said_beside:
        assert "Traceback" not in said_beside.read()


def test_one_node_may_be_watched_alone(puppet: Puppet, person: Person) -> None:
    puppet.ask("q-1", "n1")
    puppet.ask("q-2", "n2")
    assert [one["node"] for one in person.json("approvals", "list")] == ["n1", "n2"]
    assert [one["node"] for one in person.json("approvals", "list", "--node", "n2")] == ["n2"]


# One answer


def test_a_grant_says_for_how_long_and_for_what(puppet: Puppet, person: Person) -> None:
    puppet.ask("q-1")
    answering = person.start("approvals", "approve", "q-", "--always", "--for", "2h", "--match", "device")
    said = puppet.decision()[1]
    assert (said["verdict"], said["grant"]) == ("always", {"match": "device", "ttl": 7200})
    puppet.accept("q-1", "always")
    out, err = answering.communicate(timeout=60)
    assert answering.returncode == 0
    assert "always: accepted (alice)" in out
    assert "n1: Question q-1" in err


def test_a_refusal_says_why_and_what_to_try(puppet: Puppet, person: Person) -> None:
    puppet.ask("q-1")
    answering = person.start("approvals", "deny", "q-1", LANG="ja_JP.UTF-8")
    puppet.decision()
    puppet.refuse("q-1", "unknown_request", operator="mallory")  # of somebody else's answer
    puppet.refuse("q-1", "own_command")
    out, err = answering.communicate(timeout=60)
    assert answering.returncode == 1
    assert "拒否されました (alice): own_command" in out
    assert "対処" in err
    as_json = person.start("approvals", "deny", "q-1", "--json")
    puppet.decision()
    puppet.refuse("q-1", "own_command")
    assert json.loads(as_json.communicate(timeout=60)[0])["reason"] == "own_command"


def test_an_unknown_and_an_ambiguous_id(puppet: Puppet, person: Person) -> None:
    puppet.ask("q-1")
    puppet.ask("q-2", "n2")
    assert person.run("approvals", "approve", "x").returncode == 1
    ambiguous = person.run("approvals", "approve", "q")
    assert ambiguous.returncode == 2
    assert "n1 q-1, n2 q-2" in ambiguous.stderr
    assert puppet.nothing()


def test_a_node_that_says_nothing_is_said(puppet: Puppet, person: Person) -> None:
    puppet.ask("q-1")
    hasty = patched("zeroclawd.cli.approvals", "ANSWER_SECONDS", 1)
    answering = person.run("approvals", "replace", "q-1", "not now", program=hasty)
    assert answering.returncode == 1
    assert "n1 did not say within 1 s what became of the answer" in answering.stderr
    assert puppet.decision()[1]["replacement"] == "not now"
