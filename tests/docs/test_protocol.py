"""docs/protocol.md says what goes over the wire: every document is read, signed or made by the code itself."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
from typing import Any

import pytest

from tests.broker import Mosquitto
from tests.docs.pages import ROOT, blocks, page, paragraph, prose, section, table, words
from tests.process import CONFIG, Daemon
from zeroclawd import signing
from zeroclawd.channels.mqtt import envelope
from zeroclawd.channels.mqtt.client import Client, Seen
from zeroclawd.channels.mqtt.envelope import Packet
from zeroclawd.channels.mqtt.topics import Topics
from zeroclawd.config import MqttConfig
from zeroclawd.messages import Source, Verdict

PAGE = "docs/protocol.md"
NODE = "greenhouse-1"
SEED = bytes(range(32))
LIMIT = 65_536


def documents(mark: str) -> list[dict[str, Any]]:
    """The JSON objects of the blocks with this mark; an empty line stands between two of one block."""
    return [json.loads(text) for block in blocks(PAGE, "json", mark) for text in block.text.split("\n\n")]


def test_every_topic_of_the_code_is_in_the_table_and_no_other():
    topics = Topics("zeroclaw", NODE)
    made = [getattr(topics, name) for name, kind in vars(Topics).items() if isinstance(kind, property)]
    own = {topic.removeprefix(f"{topics.root}/") for topic in made if isinstance(topic, str)} - {topics.root}
    with_names = {"device/<name>/set", "device/<name>/state", "approval/request/<request_id>", "event/<kind>"}
    assert {words(row[0])[0] for row in table(section(PAGE, "Topics"))} == own | with_names


def test_fleet_topics_are_as_written():
    said = words(section(PAGE, "Topics"))
    fleet = Topics("<base>", NODE, ("north",), fleet=True).subscriptions[-2:]
    assert set(fleet) == {"<base>/all/command", "<base>/group/north/command"} <= set(said)


def test_the_command_is_read_and_its_fields_are_all_explained():
    (document,) = documents("command")
    command = envelope.command(json.dumps(document).encode(), Packet(), limit=LIMIT, plain_text=False)
    assert (command.id, command.text, command.session, command.ttl) == ("c-1", "turn on the pump", "kitchen", 60)
    assert set(document) - {"v"} == {words(row[0])[0] for row in table(section(PAGE, "A command"))}


def test_the_value_for_a_device_is_read():
    (document,) = documents("set")
    wanted = envelope.device_set(json.dumps(document).encode(), Packet(), "pump", limit=LIMIT)
    assert (wanted.value, wanted.command.id) == (True, "s-1")
    assert wanted.command.text == "set pump true"
    assert "`set pump true`" in section(PAGE, "Signatures")


def test_the_release_is_read():
    (document,) = documents("release")
    assert isinstance(envelope.estop(json.dumps(document).encode(), limit=LIMIT), envelope.Release)
    for word in ("engage", "stop", "on"):
        assert isinstance(envelope.estop(word.encode(), limit=LIMIT), envelope.Engage)


# Signatures


def test_the_worked_example_is_signed_byte_by_byte():
    (document,) = documents("decision")
    answer = envelope.answer(json.dumps(document).encode(), limit=LIMIT)
    fields = signing.decision_fields(dict(answer.fields))
    shown = bytes.fromhex(re.sub(r"\s", "", blocks(PAGE, "hex")[0].text))
    assert shown == signing.encode("zeroclawd-decision-v1", fields)
    text = section(PAGE, "A worked example")
    assert f"these {len(shown)} bytes" in text
    pair = signing.Keypair(SEED)
    assert pair.sign("zeroclawd-decision-v1", fields) == document["sig"]
    assert f"`{pair.public}`" in text
    shared = signing.HmacKey(b"correct horse battery staple")
    assert f"`{shared.sign('zeroclawd-decision-v1', fields)}`" in text


def test_openssl_accepts_the_signature_of_the_worked_example(tmp_path):
    """By a program that knows nothing of us: RFC 8410's header and the key, the bytes of the page, the signature."""
    (document,) = documents("decision")
    key = tmp_path / "key.der"
    key.write_bytes(bytes.fromhex("302a300506032b6570032100") + signing.unb64(signing.Keypair(SEED).public))
    (tmp_path / "bytes").write_bytes(bytes.fromhex(re.sub(r"\s", "", blocks(PAGE, "hex")[0].text)))
    (tmp_path / "sig").write_bytes(signing.unb64(document["sig"]))
    verify = "openssl pkeyutl -verify -rawin -pubin -keyform DER -inkey key.der -in bytes -sigfile sig"
    done = subprocess.run(verify.split(), cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


SIGNED = {
    "decision": (
        signing.DECISION,
        lambda document: signing.decision_fields(document),
        ["request_id", "nonce", "verdict", "arguments_digest", "operator", "ts"],
    ),
    "command": (
        signing.COMMAND,
        lambda document: signing.command_fields("addressee", document),
        ["addressee", "id", "text", "session", "sender", "ts", "ttl", "reply_to"],
    ),
    "release": (
        signing.RELEASE,
        lambda document: signing.release_fields("node", document),
        ["node", "action", "operator", "ts", "boot_id"],
    ),
}


@pytest.mark.parametrize("what", SIGNED)
def test_the_fields_of_each_signature_stand_in_their_order(what):
    label, fields, plain = SIGNED[what]
    row = next(row for row in table(section(PAGE, "Signatures")) if row[0] == what)
    assert words(row[1]) == [label]
    said = [part.strip().strip("`") for part in row[2].split(",")]
    named = {name: name for name in plain} | {"replacement": "replacement", "tools": ["first tool", "second tool"]}
    named["grant"] = {"match": "grant.match", "ttl": "grant.ttl"}  # type: ignore[assignment]
    signed = fields(named)
    assert signed[: len(plain)] == said[: len(plain)] == plain
    rest = {
        "decision": ["set", "replacement", "set", "grant.match", "grant.ttl"],
        "command": ["set", "first tool", "second tool"],
        "release": [],
    }
    assert signed[len(plain) :] == rest[what]
    assert len(said) == len(plain) + (2 if what == "command" else len(rest[what]))


# Refusals


def test_every_reason_of_the_code_is_in_the_table_and_no_other():
    code = "".join(path.read_text("utf-8") for path in (ROOT / "zeroclawd/channels/mqtt").glob("*.py"))
    raised = set(re.findall(r"RefusedMessage\(\s*\"(\w+)\"", code)) | set(re.findall(r"_no\(\w+, \"(\w+)\"", code))
    raised |= set(re.findall(r"refuse\(\"(\w+)\"", code))
    counted = set(re.findall(r"(?:count|note)\(\"(\w+)\"", code))
    said = {reason for row in table(section(PAGE, "Refusals")) for reason in words(row[0])}
    assert len(raised) > 20
    assert said == raised | counted


def test_the_verdicts_and_outcomes_are_all_there():
    assert [words(row[0])[0] for row in table(section(PAGE, "A decision"))] == [
        Verdict.APPROVE, Verdict.DENY, Verdict.REPLACE, Verdict.ALWAYS,
    ]  # fmt: skip
    undecided = set(Source) - {Source.POLICY, Source.GRANT, Source.OPERATOR, Source.UNAVAILABLE}
    outcomes = set(words(paragraph(PAGE, "`outcome` is")))
    assert outcomes >= undecided | {"approved", "denied", "replaced"}


# Over a broker


class Ear:
    """Hears all that a node says and keeps the last document of each topic."""

    def __init__(self, client: Client) -> None:
        self._heard = client.watch()
        self.documents: dict[str, list[dict[str, Any]]] = {}

    async def until(self, topic: str, **wanted: Any) -> dict[str, Any]:
        """The first document of this topic that holds all that is wanted."""
        async with asyncio.timeout(60):
            async for seen in self._heard:
                self._keep(seen)
                found = dict(seen.document)
                if seen.rest.startswith(topic) and wanted.items() <= found.items():
                    return found
        raise AssertionError(topic)

    async def until_online(self) -> None:
        async with asyncio.timeout(60):
            async for seen in self._heard:
                self._keep(seen)
                if (seen.rest, seen.payload) == ("availability", b"online"):
                    return

    def _keep(self, seen: Seen) -> None:
        self.documents.setdefault(seen.rest.partition("/")[0], []).append(dict(seen.document))


def keys(document: dict[str, Any]) -> dict[str, Any]:
    """The shape of a document: names, and those inside of objects and of the first object of a list."""
    inner = {name: value[0] if isinstance(value, list) and value else value for name, value in document.items()}
    return {
        name: keys(value) if isinstance(value, dict) and name != "arguments" else "" for name, value in inner.items()
    }


@pytest.mark.broker
async def test_the_page_is_what_a_node_says_and_its_shell_line_approves(daemon: Daemon, broker: Mosquitto):
    channel = f'node = "{NODE}"\nallow_unsigned = "medium"'
    daemon.write(CONFIG.replace('node = "n1"', channel).replace('risk = "high"', 'risk = "medium"'))
    daemon.start()
    broker_at = MqttConfig(host="127.0.0.1", port=broker.port)
    (wanted,) = documents("set")
    async with Client(broker_at, listen=("+/#",)) as person:
        ear = Ear(person)
        await ear.until_online()
        await person.publish(NODE, "device/pump/set", {**wanted, "ts": None})
        question = await ear.until("approval/request/")
        await person.decide({**question, "nonce": "x"}, Verdict.APPROVE, None)
        refused = await ear.until("approval/outcome", event="answer")
        line = blocks(PAGE, "sh")[0].text
        environ = {**os.environ, "BROKER": "127.0.0.1", "PORT": str(broker.port)}
        await asyncio.to_thread(subprocess.run, ["/bin/sh", "-c", line], env=environ, check=True, timeout=60)
        accepted = await ear.until("approval/outcome", event="answer")
        ended = await ear.until("approval/outcome", event="ended")
        final = await ear.until("reply", stage="final")
        status = ear.documents["status"][-1]
        while not status["mqtt"]["refused"]:
            status = await ear.until("status")
    assert keys(documents("question")[0]) == keys(question)
    assert list(question)[-1] == "verdicts"
    assert [keys(one) for one in documents("outcome")] == [keys(accepted), keys(refused), keys(ended)]
    assert keys(documents("reply")[0]) == keys(final)
    assert (status["mqtt"]["refused"], status["boot_id"]) == ({"wrong_nonce": 1}, question["boot_id"])


# Home Assistant


def test_the_automations_send_a_command_that_is_taken_and_listen_where_questions_are():
    import yaml

    send, show = yaml.safe_load(blocks(PAGE, "yaml")[0].text)
    data = send["actions"][0]["data"]
    payload = data["payload"].replace("{{ now().timestamp() }}", "1769860800.123456")
    command = envelope.command(payload.encode(), Packet(), limit=LIMIT, plain_text=False)
    assert (command.id, command.ts) == ("ha-1769860800.123456", 1769860800.123456)
    assert data["topic"] == Topics("zeroclaw", NODE).command
    assert show["triggers"][0]["topic"] == Topics("zeroclaw", NODE).request("+").replace(NODE, "+")
    fields = set(re.findall(r"payload_json\.(\w+)", str(show)))
    assert fields <= set(documents("question")[0])


def test_the_page_names_the_bounds_that_the_code_keeps():
    from zeroclawd.channels.mqtt import approval, refusals
    from zeroclawd.store import inbox

    text = prose(page(PAGE))
    assert (inbox.MAX_IDS, inbox.MAX_AGE, inbox.KEPT_REPLIES) == (20_000, 30 * 86_400, 500)
    assert "last 20,000 ids are kept, for up to 30 days, and the last 500 replies" in text
    assert (approval.CONNECT_PATIENCE, refusals.BURST, refusals.PER_SECOND) == (5, 60, 0.5)
    assert "no connection for five seconds" in text
    assert "after a burst of 60, one in two seconds" in text
    assert float(MqttConfig().max_age) == 300
    assert float(MqttConfig().session_expiry) == 86_400
