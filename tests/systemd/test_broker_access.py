"""The example broker config, on a real mosquitto: nobody can say or hear more than is theirs."""

from __future__ import annotations

import queue
import ssl
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.reasoncodes import ReasonCode

from benchmarks.broker import make_certificates
from tests.broker import Mosquitto, free_port, mosquitto
from zeroclawd import assets
from zeroclawd.channels.mqtt.topics import Topics

pytestmark = pytest.mark.broker

SHIPPED = assets.folder("systemd") / "mosquitto"
LOGINS = ("greenhouse", "barn", "alice", "homeassistant", "witness")
NOT_AUTHORIZED = ReasonCode(PacketTypes.PUBACK, "Not authorized")
NODE = Topics("zeroclaw", "greenhouse", groups=("pumps",), fleet=True)
PATIENCE = 20


class Login:
    """One client of the broker, over TLS, that waits for what it asks for."""

    def __init__(self, name: str, port: int, authority: Path, password: str = "") -> None:
        self.heard: queue.Queue[MQTTMessage] = queue.Queue()
        self.refused: ReasonCode | None = None
        self._answered = threading.Event()
        self._codes: dict[int, ReasonCode] = {}
        self._settled = threading.Condition()
        self._client = Client(CallbackAPIVersion.VERSION2, f"test-{name}", protocol=MQTTProtocolVersion.MQTTv5)
        self._client.tls_set_context(ssl.create_default_context(cafile=str(authority)))
        if name:
            self._client.username_pw_set(name, password or f"secret of {name}")
        self._client.on_connect = self._connected
        self._client.on_publish = self._settle
        self._client.on_subscribe = lambda _c, _u, mid, codes, _p: self._settle(_c, _u, mid, codes[0], _p)
        self._client.on_message = lambda _c, _u, message: self.heard.put(message)
        self._client.connect("127.0.0.1", port)
        self._client.loop_start()
        assert self._answered.wait(PATIENCE)

    def _connected(self, _client: Client, _data: Any, _flags: Any, code: ReasonCode, _properties: Any) -> None:
        self.refused = code if code.is_failure else None
        self._answered.set()

    def _settle(self, _client: Client, _data: Any, mid: int, code: ReasonCode, _properties: Any) -> None:
        with self._settled:
            self._codes[mid] = code
            self._settled.notify_all()

    def _wait(self, mid: int) -> ReasonCode:
        with self._settled:
            assert self._settled.wait_for(lambda: mid in self._codes, PATIENCE)
            return self._codes.pop(mid)

    def publish(self, topic: str, payload: str = "x") -> bool:
        """True if the broker took it."""
        return self._wait(self._client.publish(topic, payload, qos=1).mid) != NOT_AUTHORIZED

    def subscribe(self, pattern: str) -> None:
        self._wait(self._client.subscribe(pattern, qos=1)[1] or 0)

    def hears_until(self, topic: str) -> list[str]:
        """The topics that arrive, up to and with the given one."""
        heard = [""]
        while heard[-1] != topic:
            heard.append(self.heard.get(timeout=PATIENCE).topic)
        return heard[1:]

    def close(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("broker")


@pytest.fixture(scope="module")
def port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def broker(folder: Path, port: int) -> Iterator[Mosquitto]:
    files = make_certificates(folder / "tls")
    passwords = folder / "zeroclawd.passwd"
    passwords.write_text("".join(f"{name}:secret of {name}\n" for name in LOGINS), "utf-8")
    subprocess.run(["mosquitto_passwd", "-U", str(passwords)], check=True)
    text = (SHIPPED / "zeroclawd.conf").read_text("utf-8")
    for shipped, here in (
        ("listener 8883", f"listener {port} 127.0.0.1"),
        ("/etc/mosquitto/ca_certificates/zeroclawd-ca.crt", str(files.authority)),
        ("/etc/mosquitto/certs/broker.crt", str(files.certificate)),
        ("/etc/mosquitto/certs/broker.key", str(files.key)),
        ("/etc/mosquitto/zeroclawd.passwd", str(passwords)),
        ("/etc/mosquitto/zeroclawd.acl", str(SHIPPED / "zeroclawd.acl")),
    ):
        assert text.count(shipped) == 1, f"the example no longer says {shipped}"
        text = text.replace(shipped, here)
    with mosquitto(folder, text) as running:
        yield running


@pytest.fixture
def login(broker: Mosquitto, folder: Path, port: int) -> Iterator[Any]:
    clients: list[Login] = []

    def enter(name: str, password: str = "") -> Login:
        clients.append(Login(name, port, folder / "tls" / "authority.pem", password))
        return clients[-1]

    yield enter
    for client in clients:
        client.close()


SAYS = (
    NODE.availability,
    NODE.status,
    NODE.reply,
    NODE.state("pump"),
    NODE.request("r1"),
    NODE.outcome,
    NODE.event("turn_started"),
    NODE.checkpoint,
    "zeroclaw/greenhouse/approval/current",
    "zeroclaw/greenhouse/approval/open",
    "zeroclaw/greenhouse/approval/event",
)

HEARS = (
    NODE.command,
    NODE.cancel,
    NODE.set("pump"),
    NODE.decision,
    NODE.estop,
    "zeroclaw/all/command",
    "zeroclaw/group/pumps/command",
)


def test_a_node_says_all_that_is_its_own(login: Any) -> None:
    node = login("greenhouse")
    assert [topic for topic in SAYS if not node.publish(topic)] == []


def test_a_node_cannot_answer_its_own_question_nor_command_itself_or_the_fleet(login: Any) -> None:
    alice, node = login("alice"), login("greenhouse")
    alice.subscribe("zeroclaw/#")
    assert [topic for topic in HEARS if node.publish(topic)] == []
    assert node.publish(NODE.reply, "the end")
    assert alice.hears_until(NODE.reply) == [NODE.reply]


def test_a_node_cannot_speak_for_another(login: Any) -> None:
    node = login("greenhouse")
    others = [topic.replace("/greenhouse/", "/barn/") for topic in (*SAYS, *HEARS[:5])]
    assert [topic for topic in others if node.publish(topic)] == []


def test_a_node_hears_what_is_meant_for_it_and_nothing_else(login: Any) -> None:
    node, alice, barn = login("greenhouse"), login("alice"), login("barn")
    for pattern in ("#", *NODE.subscriptions):
        node.subscribe(pattern)
    for topic in HEARS[:5]:
        assert alice.publish(topic.replace("/greenhouse/", "/barn/"))
    assert barn.publish("zeroclaw/barn/status")
    assert barn.publish("zeroclaw/barn/approval/request/r1")
    for topic in HEARS:
        assert alice.publish(topic)
    assert set(node.hears_until(HEARS[-1])) == set(HEARS)


def test_the_subscriptions_of_the_channel_are_all_served(login: Any) -> None:
    node, alice = login("greenhouse"), login("alice")
    for pattern in NODE.subscriptions:
        node.subscribe(pattern)
        topic = pattern.replace("+", "pump")
        assert alice.publish(topic)
        assert node.hears_until(topic) == [topic]


def test_an_operator_answers_commands_and_stops_but_does_not_speak_as_a_node(login: Any) -> None:
    alice = login("alice")
    assert [topic for topic in HEARS if not alice.publish(topic)] == []
    assert [topic for topic in SAYS if alice.publish(topic)] == []


def test_home_automation_commands_and_stops_but_answers_no_question(login: Any) -> None:
    home = login("homeassistant")
    allowed = (NODE.command, NODE.cancel, NODE.set("pump"), NODE.estop)
    assert [topic for topic in allowed if not home.publish(topic)] == []
    assert not home.publish(NODE.decision)
    assert not home.publish("zeroclaw/group/pumps/command")


def test_home_automation_sees_states_but_not_the_arguments_of_questions(login: Any) -> None:
    node, home = login("greenhouse"), login("homeassistant")
    home.subscribe("#")
    for topic in (NODE.request("r1"), NODE.checkpoint, NODE.state("pump"), NODE.status):
        assert node.publish(topic)
    assert home.hears_until(NODE.status) == [NODE.state("pump"), NODE.status]


def test_a_witness_only_listens_to_checkpoints(login: Any) -> None:
    node, witness = login("greenhouse"), login("witness")
    witness.subscribe("#")
    for topic in (NODE.reply, NODE.request("r1"), NODE.checkpoint):
        assert node.publish(topic)
    assert witness.hears_until(NODE.checkpoint) == [NODE.checkpoint]
    assert [topic for topic in (*SAYS, *HEARS) if witness.publish(topic)] == []


@pytest.mark.parametrize(("name", "password"), [("", ""), ("greenhouse", "wrong"), ("nobody", "anything")])
def test_nobody_enters_without_a_login(login: Any, name: str, password: str) -> None:
    assert login(name, password).refused is not None
