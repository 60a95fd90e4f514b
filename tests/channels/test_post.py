"""What goes out: nothing that matters is lost in an outage, states are only the newest, and an idle node writes nothing."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.broker import Mosquitto, mosquitto
from tests.channels import fake
from tests.channels.fake import Gate
from tests.channels.node import OPERATORS, Node, Person, command, mqtt, node, person
from zeroclawd.channels.mqtt.post import PASSING_BOUND
from zeroclawd.errors import StoreFull
from zeroclawd.events import CallEnded, CallStarted, Chunk, TurnStarted
from zeroclawd.interfaces import Parcel, Reading
from zeroclawd.messages import Inbound, Ingress, Outbound, Stage
from zeroclawd.store.outbox import DurableOutbox

pytestmark = pytest.mark.broker

SOMEBODY = Ingress("mqtt.home", "mqtt:home:unverified")


@pytest.fixture
async def running(tmp_path: Path, broker: Mosquitto) -> AsyncIterator[Node]:
    async with node(tmp_path / "state", mqtt(broker.port), operators=OPERATORS) as started:
        yield started


@pytest.fixture
async def caller(broker: Mosquitto) -> AsyncIterator[Person]:
    async with person(broker.port) as somebody:
        yield somebody


def reading(value: float, device: str = "probe") -> Reading:
    return Reading(device, {"temperature": value}, {"temperature": "°C"}, time.time(), time.monotonic(), "bus")


@pytest.fixture
async def gate(broker: Mosquitto) -> AsyncIterator[Gate]:
    async with fake.gate(broker.port) as made:
        yield made


@pytest.fixture
async def remote(tmp_path: Path, gate: Gate) -> AsyncIterator[Node]:
    """A node whose way to the broker can be shut."""
    async with node(tmp_path / "state", mqtt(gate.port), operators=OPERATORS) as started:
        yield started


async def away(node: Node, gate: Gate) -> None:
    await gate.shut()
    await node.until_healthy("down")


# Replies


async def test_replies_of_an_outage_arrive_in_order_and_leave_the_spool(
    remote: Node, caller: Person, gate: Gate
) -> None:
    await away(remote, gate)
    for number in range(50):
        await remote.final(Inbound(f"c-{number}", "x", "s", SOMEBODY), f"answer {number}")
    assert await remote.outbox.size() == 50
    await gate.open()
    await caller.until(lambda: len(caller.documents("reply")) >= 50)
    texts = [document["text"] for document in caller.documents("reply")]
    assert list(dict.fromkeys(texts)) == [f"answer {number}" for number in range(50)]
    async with asyncio.timeout(30):
        while await remote.outbox.size():  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def test_a_reply_survives_a_power_cut_in_an_outage(
    tmp_path: Path, broker: Mosquitto, gate: Gate, caller: Person
) -> None:
    async with node(tmp_path, mqtt(gate.port), clean=False) as first:
        await caller.say("command", command("c-1"))
        await first.host.until(lambda: first.host.taken)
        await away(first, gate)
        await first.final(first.host.taken[0], "done in the dark")
    async with node(tmp_path, mqtt(broker.port), boot_id="boot-2"):
        assert (await caller.reply("c-1"))["text"] == "done in the dark"


async def test_what_is_worth_nothing_tomorrow_is_bounded_and_not_written(remote: Node, gate: Gate) -> None:
    await away(remote, gate)
    for number in range(5 * PASSING_BOUND):
        await remote.channel.deliver(Outbound(f"c-{number}", Stage.PROGRESS, "still at it", SOMEBODY))
    assert await remote.outbox.size() == 0
    assert len(remote.channel._post._passing) == PASSING_BOUND


async def test_a_full_disk_does_not_silence_the_node(
    running: Node, caller: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def full(*_: object) -> Parcel:
        raise StoreFull("the disk is full")

    monkeypatch.setattr(DurableOutbox, "put", full)
    await running.final(Inbound("c-1", "x", "s", SOMEBODY), "told anyway")
    assert (await caller.reply("c-1"))["text"] == "told anyway"


async def test_a_message_that_the_broker_refuses_does_not_block_the_others(tmp_path: Path) -> None:
    rules = tmp_path / "acl"
    rules.write_text("topic readwrite zeroclaw/n1/#\ntopic read #\n")
    with mosquitto(tmp_path / "broker", f"allow_anonymous true\nacl_file {rules}\n") as broker:
        config = mqtt(broker.port, reply_prefixes=["forbidden"])
        async with node(tmp_path / "state", config) as started, person(broker.port) as caller:
            await caller.say("command", command("c-1", reply_to="forbidden/here"))
            await started.host.until(lambda: started.host.taken)
            await started.final(started.host.taken[0])
            await caller.say("command", command("c-2"))
            await started.host.until(lambda: len(started.host.taken) == 2)
            await started.final(started.host.taken[1])
            await caller.reply("c-2")
            assert started.channel.report()["not_taken"] >= 1


# States


async def test_a_state_is_retained_with_value_unit_and_time(running: Node, caller: Person, broker: Mosquitto) -> None:
    running.channel.changed(reading(21.5))
    await caller.until(lambda: caller.documents("device/probe/state"))
    async with person(broker.port) as late:
        (document,) = await late.until(lambda: late.documents("device/probe/state"))
        assert (document["value"], document["unit"], document["how"]) == (21.5, "°C", "bus")
        assert document["time"].endswith("Z")
        assert late.on("device/probe/state")[0].retain


async def test_a_device_with_several_values_lists_them(running: Node, caller: Person) -> None:
    both = Reading(
        "air", {"temperature": 21.5, "humidity": 40}, {"temperature": "°C", "humidity": "%"}, 0.0, 0.0, "bus"
    )
    running.channel.changed(both)
    (document,) = await caller.until(lambda: caller.documents("device/air/state"))
    assert document["values"] == {"temperature": 21.5, "humidity": 40}
    assert "value" not in document


async def test_only_the_newest_state_comes_out_of_an_outage(remote: Node, caller: Person, gate: Gate) -> None:
    await away(remote, gate)
    caller.heard.clear()
    for number in range(100_000):
        remote.channel.changed(reading(number))
    assert await remote.outbox.size() == 0
    await gate.open()
    await caller.until(lambda: caller.documents("device/probe/state"))
    assert [document["value"] for document in caller.documents("device/probe/state")] == [99_999]


async def test_states_are_said_again_to_a_broker_that_forgot_them(
    running: Node, caller: Person, broker: Mosquitto
) -> None:
    running.channel.changed(reading(21.5))
    await caller.until(lambda: caller.documents("device/probe/state"))
    broker.restart()
    async with person(broker.port) as late:
        (document,) = await late.until(lambda: late.documents("device/probe/state"))
        assert document["value"] == 21.5


# Status, events, checkpoints


async def test_the_status_follows_what_happens(running: Node, caller: Person) -> None:
    first = (await caller.until(lambda: caller.documents("status")))[-1]
    assert (first["version"], first["emergency_stop"], first["mqtt"]["state"]) == ("test", False, "ok")
    assert caller.on("status")[0].retain
    running.host.engaged = True
    running.channel.refresh()
    await caller.until(lambda: [d for d in caller.documents("status") if d["emergency_stop"]])
    await caller.say("command", b"garbage")
    await caller.until(lambda: [d for d in caller.documents("status") if d["mqtt"]["refused"] == {"not_json": 1}])


async def test_a_status_that_did_not_change_is_not_published(running: Node, caller: Person) -> None:
    await caller.until(lambda: caller.documents("status"))
    await caller.say("command", command("c-0"))
    await caller.reply("c-0", "accepted")
    count = len(caller.documents("status"))
    for _ in range(20):
        running.channel.refresh()
    await caller.say("command", command("c-1"))
    await caller.reply("c-1", "accepted")
    assert len(caller.documents("status")) == count


async def test_events_go_out_only_where_they_are_wanted(tmp_path: Path, broker: Mosquitto, caller: Person) -> None:
    turn = {"turn_id": "t1", "agent": "agent", "channel": "mqtt.home"}
    async with node(tmp_path / "one", mqtt(broker.port, events=True)) as started:
        started.channel.observe(TurnStarted(**turn, command_id="c-1", principal="p", session="s"))
        started.channel.observe(Chunk(**turn, text="token by token"))
        started.channel.observe(CallStarted(**turn, call_id="k1", tool="device_read", arguments={"device": "lamp"}))
        (document,) = await caller.until(lambda: caller.documents("event/call_started"))
        assert (document["tool"], document["arguments"], document["v"]) == ("device_read", {"device": "lamp"}, 1)
        assert caller.documents("event/turn_started")
        assert not caller.documents("event/chunk")
    async with node(tmp_path / "two", mqtt(broker.port)) as quiet:
        quiet.channel.observe(CallEnded(**turn, call_id="k1", tool="device_read", outcome="ok", seconds=0.1))
        await caller.say("command", command("c-2"))
        await caller.reply("c-2", "accepted")
        assert not caller.documents("event/call_ended")


async def test_a_checkpoint_outlasts_an_outage(remote: Node, caller: Person, gate: Gate) -> None:
    await away(remote, gate)
    await remote.channel.checkpoint(b'{"seq":7}')
    await gate.open()
    (document,) = await caller.until(lambda: caller.documents("checkpoint"))
    assert document == {"seq": 7}


async def test_an_idle_node_writes_nothing(running: Node, caller: Person) -> None:
    await caller.until(lambda: caller.documents("status"))
    await asyncio.sleep(1.5)
    files = sorted(running.folder.glob("zeroclawd.db*"))
    before = [(path.stat().st_mtime_ns, path.stat().st_size) for path in files]
    await asyncio.sleep(1.5)
    assert [(path.stat().st_mtime_ns, path.stat().st_size) for path in files] == before


async def test_the_last_words_are_sent_before_goodbye(tmp_path: Path, broker: Mosquitto, caller: Person) -> None:
    async with node(tmp_path / "state", mqtt(broker.port)) as started:
        await caller.say("command", command("c-1"))
        await started.host.until(lambda: started.host.taken)
        await started.final(started.host.taken[0], "just in time")
        started.task.cancel()
    assert (await caller.reply("c-1"))["text"] == "just in time"
    availability = await caller.until(lambda: [d for d in caller.on("availability") if d.payload == b"offline"])
    order = [json.loads(d.payload).get("text") if d.payload[:1] == b"{" else "offline" for d in caller.heard]
    assert order.index("just in time") < caller.heard.index(availability[0])
