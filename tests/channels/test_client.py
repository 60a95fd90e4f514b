"""What people's tools do: send and wait, watch all nodes, answer, stop; and one sentence when the broker says no."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.broker import Mosquitto
from tests.channels.node import ALICE, NODE, OPERATORS, Node, ask, mqtt, node, question
from zeroclawd.channels.mqtt.client import Client, Seen, Signature, questions, replies, states
from zeroclawd.config import MqttConfig
from zeroclawd.errors import ChannelError
from zeroclawd.messages import Trust, Verdict

pytestmark = pytest.mark.broker

BY_ALICE = Signature("alice", ALICE)


@pytest.fixture
async def running(tmp_path: Path, broker: Mosquitto) -> AsyncIterator[Node]:
    async with node(tmp_path / "state", mqtt(broker.port), operators=OPERATORS) as started:
        yield started


def here(broker: Mosquitto) -> MqttConfig:
    return MqttConfig(host="127.0.0.1", port=broker.port)


async def seen(client: Client, rest: str) -> Seen:
    async with asyncio.timeout(30):
        async for message in client.watch():
            if message.rest.startswith(rest) and message.payload:
                return message
    raise AssertionError("the watch ended")


async def test_send_shows_every_stage_up_to_the_last(running: Node, broker: Mosquitto) -> None:
    async with Client(here(broker), listen=replies(NODE)) as client:
        stages = []
        async with asyncio.timeout(30):
            async for reply in client.send(
                NODE, "light on", by=BY_ALICE, session="shift", ttl=60, tools=["device_write"]
            ):
                stages.append(reply["stage"])
                if reply["stage"] == "accepted":
                    await running.host.until(lambda: running.host.taken)
                    await running.final(running.host.taken[0])
    assert stages == ["accepted", "final"]
    (inbound,) = running.host.taken
    assert (inbound.ingress.principal, inbound.ingress.trust) == ("operator:alice", Trust.TRUSTED)
    assert inbound.tools == ("device_write",)


async def test_a_device_is_set_with_a_signature(running: Node, broker: Mosquitto) -> None:
    async with Client(here(broker), listen=replies(NODE)) as client:
        async with asyncio.timeout(30):
            async for reply in client.set(NODE, "pump", True, by=BY_ALICE):
                if reply["stage"] == "accepted":
                    await running.host.until(lambda: running.host.taken)
                    await running.final(running.host.taken[0])
    (inbound,) = running.host.taken
    assert inbound.calls[0].arguments == {"device": "pump", "value": True}
    assert inbound.ingress.principal == "operator:alice"


@pytest.mark.parametrize("verdict", [Verdict.APPROVE, Verdict.DENY])
async def test_a_question_is_watched_and_answered(running: Node, broker: Mosquitto, verdict: Verdict) -> None:
    waiting = ask(running, question())
    async with Client(here(broker), listen=questions()) as client:
        request = (await seen(client, "approval/request/")).document
        async with asyncio.timeout(30):
            said = await client.answer(request, verdict, BY_ALICE)
        assert (said["result"], said["operator"]) == ("accepted", "alice")
    assert (await waiting).allowed is (verdict is Verdict.APPROVE)


async def test_replace_and_always(running: Node, broker: Mosquitto) -> None:
    async with Client(here(broker), listen=questions()) as client, asyncio.timeout(30):
        first = ask(running, question("r1"))
        request = (await seen(client, "approval/request/r1")).document
        await client.answer(request, Verdict.REPLACE, BY_ALICE, replacement="leave it off")
        assert (await first).replacement == "leave it off"
        second = ask(running, question("r2"))
        request = (await seen(client, "approval/request/r2")).document
        await client.answer(request, Verdict.ALWAYS, BY_ALICE, grant={"match": "exact", "ttl": 60})
        assert (await second).verdict is Verdict.ALWAYS


async def test_a_refused_answer_is_told(running: Node, broker: Mosquitto) -> None:
    waiting = ask(running, question())
    async with Client(here(broker), listen=questions()) as client, asyncio.timeout(30):
        request = (await seen(client, "approval/request/")).document
        said = await client.answer(request, Verdict.APPROVE, Signature("eve", ALICE))
        assert (said["result"], said["reason"]) == ("refused", "unknown_operator")
        await client.answer(request, Verdict.DENY, BY_ALICE)
    await waiting


async def test_the_emergency_stop_from_a_tool(running: Node, broker: Mosquitto) -> None:
    async with Client(here(broker), listen=states()) as client:
        status = await seen(client, "status")
        assert status.node == NODE
        assert status.document["version"] == "test"
        assert (await seen(client, "availability")).payload == b"online"
        await client.engage(NODE, "smoke")
        await running.host.until(lambda: running.host.engaged)
        await client.release(NODE, "boot-1", BY_ALICE)
        await running.host.until(lambda: not running.host.engaged)


async def test_a_cancel_from_a_tool(running: Node, broker: Mosquitto) -> None:
    async with Client(here(broker)) as client:
        command_id = await client.post(NODE, "a long job")
        await running.host.until(lambda: running.host.taken)
        await client.cancel(NODE, command_id)
        await running.host.until(lambda: running.host.cancelled == [command_id])


async def test_no_broker_is_one_sentence(broker: Mosquitto) -> None:
    broker.stop()
    with pytest.raises(ChannelError, match="nothing listens"):
        async with Client(here(broker)):
            pass


async def test_it_listens_again_after_a_restart_of_the_broker(tmp_path: Path, running: Node, broker: Mosquitto) -> None:
    async with Client(here(broker), listen=questions()) as client:
        broker.restart()
        waiting = ask(running, question())
        request = (await seen(client, "approval/request/")).document
        await client.decide(request, Verdict.APPROVE, BY_ALICE)
        assert (await waiting).allowed
