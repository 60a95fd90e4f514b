"""The road of a command over a real broker and the real store: once, answered, and never from a stale or forged message."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from tests.broker import Mosquitto
from tests.channels.node import (
    ALICE,
    MALLORY,
    OPERATORS,
    MovableClock,
    Node,
    Person,
    command,
    mqtt,
    node,
    person,
    signed_command,
)
from zeroclawd.channels.mqtt.envelope import rfc3339, set_text
from zeroclawd.config import Bytes
from zeroclawd.interfaces import Parcel
from zeroclawd.messages import Outcome, RawCall, Stage, ToolCall, ToolResult, Trust

pytestmark = pytest.mark.broker


@pytest.fixture
async def running(tmp_path: Path, broker: Mosquitto) -> AsyncIterator[Node]:
    async with node(tmp_path / "state", mqtt(broker.port), operators=OPERATORS) as started:
        yield started


@pytest.fixture
async def caller(broker: Mosquitto) -> AsyncIterator[Person]:
    async with person(broker.port) as somebody:
        yield somebody


# The road


async def test_a_command_is_accepted_becomes_a_turn_and_is_answered(running: Node, caller: Person) -> None:
    await caller.say("command", command("c-1", "light on", session="kitchen", sender="phone"))
    await caller.reply("c-1", "accepted")
    await running.host.until(lambda: running.host.taken)
    (inbound,) = running.host.taken
    assert (inbound.id, inbound.text, inbound.session, inbound.tools) == ("c-1", "light on", "kitchen", None)
    assert inbound.ingress.channel == "mqtt.home"
    assert (inbound.ingress.principal, inbound.ingress.sender) == ("mqtt:home:unverified", "phone")
    assert inbound.ingress.trust is Trust.UNTRUSTED
    assert not inbound.ingress.interactive
    result = ToolResult(ToolCall("k1", "device_write", {}, ""), Outcome.OK, "on")
    await running.final(inbound, "The light is on.", turn_id="t-1", results=(result,), flags=("capped",))
    final = await caller.reply("c-1")
    assert (final["v"], final["text"], final["turn_id"], final["flags"]) == (1, "The light is on.", "t-1", ["capped"])
    assert final["results"][0]["tool"] == "device_write"
    assert final["results"][0]["outcome"] == "ok"
    assert [r["stage"] for r in caller.replies("c-1")] == ["accepted", "final"]
    assert not any(delivery.retain for delivery in caller.on("reply"))
    row = running.ledger("command")[-1]
    assert (row.decision, row.principal, row.arguments) == ("accepted", "mqtt:home:unverified", "light on")


async def test_without_a_session_each_command_stands_alone(running: Node, caller: Person) -> None:
    await caller.say("command", command("c-1"))
    await running.host.until(lambda: running.host.taken)
    assert running.host.taken[0].session == "c-1"


async def test_a_second_delivery_gets_the_first_answer_and_no_second_turn(running: Node, caller: Person) -> None:
    await caller.say("command", command("c-1"))
    await running.host.until(lambda: running.host.taken)
    await caller.say("command", command("c-1"))
    await caller.until(lambda: any(r.get("duplicate") for r in caller.replies("c-1")))
    await running.final(running.host.taken[0], "done once")
    await caller.reply("c-1")
    await caller.say("command", command("c-1"))
    await caller.until(lambda: len([r for r in caller.replies("c-1") if r["text"] == "done once"]) == 2)
    assert len(running.host.taken) == 1
    await running.row(lambda row: row.kind == "command" and row.decision == "duplicate")
    assert [row.decision for row in running.ledger("command")].count("accepted") == 1


async def test_an_id_with_another_text_is_refused(running: Node, caller: Person) -> None:
    await caller.say("command", command("c-1", "light on"))
    await caller.reply("c-1", "accepted")
    await caller.say("command", command("c-1", "open the valve"))
    await caller.refusal("id_reused", "c-1")
    assert len(running.host.taken) == 1


async def test_an_id_is_remembered_over_a_restart(tmp_path: Path, broker: Mosquitto, caller: Person) -> None:
    async with node(tmp_path, mqtt(broker.port)) as first:
        await caller.say("command", command("c-1"))
        await first.host.until(lambda: first.host.taken)
        await first.final(first.host.taken[0], "done once")
        await caller.reply("c-1")
    async with node(tmp_path, mqtt(broker.port), boot_id="boot-2") as second:
        await caller.say("command", command("c-1"))
        await caller.until(lambda: len([r for r in caller.replies("c-1") if r["text"] == "done once"]) == 2)
        assert second.host.taken == []


async def test_what_a_power_cut_stopped_is_answered_at_the_next_start_and_not_run(
    tmp_path: Path, broker: Mosquitto, caller: Person
) -> None:
    config = mqtt(broker.port, reply_prefixes=["apps"])
    async with node(tmp_path, config, clean=False) as first:
        await caller.say("command", command("c-1", reply_to="apps/phone"))
        await first.host.until(lambda: first.host.taken)
    async with node(tmp_path, config, boot_id="boot-2") as second:
        heard = await caller.until(lambda: [d for d in caller.heard if b"interrupted" in d.payload])
        assert heard[0].topic == "apps/phone"
        await caller.say("command", command("c-1", reply_to="apps/phone"))
        await caller.until(lambda: len([d for d in caller.heard if b"interrupted" in d.payload]) >= 2)
        assert second.host.taken == []


async def test_commands_that_came_while_the_node_was_away_arrive_in_order(
    tmp_path: Path, broker: Mosquitto, caller: Person
) -> None:
    async with node(tmp_path, mqtt(broker.port)):
        pass
    for number in range(100):
        await caller.say("command", command(f"c-{number}"))
    async with node(tmp_path, mqtt(broker.port), boot_id="boot-2") as second:
        await second.host.until(lambda: len(second.host.taken) == 100)
        assert [inbound.id for inbound in second.host.taken] == [f"c-{number}" for number in range(100)]


async def test_per_run_tools_ride_along(running: Node, caller: Person) -> None:
    await caller.say("command", command("c-1", tools=["device_read"]))
    await caller.say("command", command("c-2", tools=[]))
    await running.host.until(lambda: len(running.host.taken) == 2)
    assert [inbound.tools for inbound in running.host.taken] == [("device_read",), ()]


async def test_a_full_queue_says_busy(running: Node, caller: Person) -> None:
    running.host.full = True
    await caller.say("command", command("c-1"))
    await caller.refusal("busy", "c-1")
    assert running.counts["busy"] == 1


async def test_an_empty_message_is_nothing(running: Node, caller: Person) -> None:
    await caller.say("command", b"")
    await caller.say("command", command("c-1"))
    await caller.reply("c-1", "accepted")
    assert dict(running.counts) == {}


# Refusals, each followed by a good command that works


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"[]", "malformed"),
        (b'{"id":"r1","text":"tem', "not_json"),
        (b'{"id":"r2","text":"a\xc3\x28\x00\x17stat/x{"', "not_utf8"),
        (b"\xff" * 70_000, "oversize"),
        (b'{"id":"big","text":"' + b"x" * 1_000_000 + b'"}', "oversize"),
        (b"light on", "not_json"),
    ],
)
async def test_garbage_is_refused_and_the_next_command_is_heard(
    running: Node, caller: Person, payload: bytes, reason: str
) -> None:
    await caller.say("command", payload)
    told = await caller.refusal(reason)
    assert len(told["text"]) < 300
    await caller.say("command", command("good"))
    await caller.reply("good", "accepted")
    assert dict(running.counts) == {reason: 1}
    row = await running.row(lambda row: row.kind == "command" and row.decision == "refused")
    assert row.note.startswith(f"{reason}:")


async def test_a_bug_in_the_host_deafens_nobody(running: Node, caller: Person) -> None:
    running.host.fault = True
    await caller.say("command", command("c-1"))
    await caller.reply("c-1", "accepted")
    running.host.fault = False
    await caller.say("command", command("c-2"))
    await running.host.until(lambda: running.host.taken)
    assert running.counts["failed"] == 1


async def test_a_retained_command_is_never_run_however_often_the_node_starts(
    tmp_path: Path, broker: Mosquitto, caller: Person
) -> None:
    await caller.say("command", command("c-1"), retain=True)
    for number in range(3):
        async with node(tmp_path, mqtt(broker.port), boot_id=f"boot-{number}") as started:
            await caller.say("command", command(f"good-{number}"))
            await caller.reply(f"good-{number}", "accepted")
            assert [inbound.id for inbound in started.host.taken] == [f"good-{number}"]
            assert started.counts["retained"] == 1
    assert caller.replies("c-1") == []


async def test_a_command_published_as_retained_while_the_node_listens_is_refused_too(
    running: Node, caller: Person
) -> None:
    await caller.say("command", command("c-1"), retain=True)
    await caller.say("command", command("good"))
    await caller.reply("good", "accepted")
    assert [inbound.id for inbound in running.host.taken] == ["good"]


@pytest.mark.parametrize(("age", "more"), [(301, {}), (61, {"ttl": 60}), (301, {"ttl": 86_400}), (-301, {})])
async def test_an_old_command_and_one_from_the_future_are_stale(
    running: Node, caller: Person, age: float, more: dict[str, float]
) -> None:
    await caller.say("command", command("c-1", ts=rfc3339(time.time() - age), **more))
    await caller.refusal("stale", "c-1")
    assert running.host.taken == []


async def test_an_unset_clock_judges_no_age(tmp_path: Path, broker: Mosquitto, caller: Person) -> None:
    clock = MovableClock()
    clock.is_synced = False
    clock.wall_shift = -1e9
    async with node(tmp_path, mqtt(broker.port), clock=clock) as started:
        await caller.say("command", command("c-1", ts=rfc3339(time.time())))
        await started.host.until(lambda: started.host.taken)


async def test_only_listed_senders(tmp_path: Path, broker: Mosquitto, caller: Person) -> None:
    async with node(tmp_path, mqtt(broker.port, senders=["phone"])) as started:
        await caller.say("command", command("c-1", sender="stranger"))
        await caller.refusal("unknown_sender", "c-1")
        await caller.say("command", command("c-2"))
        await caller.refusal("unknown_sender", "c-2")
        await caller.say("device/lamp/set", b"on")
        await caller.refusal("unknown_sender")
        await caller.say("command", command("c-3", sender="phone"))
        await started.host.until(lambda: started.host.taken)
        assert started.counts["unknown_sender"] == 3


async def test_a_signed_command_counts_as_its_operator(running: Node, caller: Person) -> None:
    document = signed_command(ALICE, "alice", command("c-1", ts=rfc3339(time.time()), session="shift"))
    await caller.say("command", document)
    await running.host.until(lambda: running.host.taken)
    ingress = running.host.taken[0].ingress
    assert (ingress.principal, ingress.trust) == ("operator:alice", Trust.TRUSTED)
    assert running.host.taken[0].session != "shift"  # what an unverified sender may join is not an operator's session


async def test_forged_commands(running: Node, caller: Person) -> None:
    fresh = rfc3339(time.time())
    good = signed_command(ALICE, "alice", command("c-1", ts=fresh))
    forged = [
        {**good, "id": "c-2"},
        {**good, "id": "c-3", "text": "open the valve"},
        {**good, "tools": []},
        signed_command(MALLORY, "alice", command("c-4", ts=fresh)),
        signed_command(ALICE, "nobody", command("c-5", ts=fresh)),
        signed_command(ALICE, "alice", command("c-6", ts=fresh), node="n2"),
        {**good, "sig": "no signature"},
    ]
    for document in forged:
        await caller.say("command", document)
        await caller.refusal("bad_signature", document["id"])
    await caller.say("command", signed_command(ALICE, "alice", command("c-7")))
    await caller.refusal("no_time", "c-7")
    assert running.host.taken == []


async def test_where_signatures_are_required_nothing_goes_without(
    tmp_path: Path, broker: Mosquitto, caller: Person
) -> None:
    config = mqtt(broker.port, require_signature=True, plain_text=True)
    async with node(tmp_path, config, operators=OPERATORS) as started:
        await caller.say("command", command("c-1", sender="alice"))
        await caller.refusal("unsigned", "c-1")
        await caller.say("command", b"light on")
        await caller.say("device/lamp/set", b"on")
        await started.host.until(lambda: started.counts["unsigned"] == 3)
        await caller.say("command", signed_command(ALICE, "alice", command("c-2", ts=rfc3339(time.time()))))
        await started.host.until(lambda: started.host.taken)
        assert len(started.host.taken) == 1


async def test_a_flood_of_garbage_is_counted_but_not_all_written(running: Node, caller: Person) -> None:
    await asyncio.gather(*(caller.say("command", b"garbage") for _ in range(150)))
    await caller.say("command", command("good"))
    await caller.reply("good", "accepted")
    assert running.counts["not_json"] == 150
    assert 60 <= len([row for row in running.ledger("command") if row.decision == "refused"]) < 100


# Where replies go


async def test_a_response_topic_below_a_configured_prefix_with_its_correlation_data(
    tmp_path: Path, broker: Mosquitto, caller: Person
) -> None:
    def properties(topic: str) -> Properties:
        made = Properties(PacketTypes.PUBLISH)
        made.ResponseTopic, made.CorrelationData = topic, b"\x01\xff"
        return made

    async with node(tmp_path, mqtt(broker.port, reply_prefixes=["apps/phone"])) as started:
        for topic, text in (("apps/phone/7", "one"), ("zeroclaw/n2/command", "two")):
            caller.link._connection.publish(  # type: ignore[union-attr]
                "zeroclaw/n1/command", f'{{"id":"{text}","text":"{text}"}}', qos=1, properties=properties(topic)
            )
        await started.host.until(lambda: len(started.host.taken) == 2)
        heard = await caller.until(lambda: [d for d in caller.heard if d.topic == "apps/phone/7"])
        assert heard[0].correlation == b"\x01\xff"
        assert (await caller.reply("two", "accepted"))["id"] == "two"
        assert not [d for d in caller.heard if d.topic == "zeroclaw/n2/command"]
        await started.final(started.host.taken[0])
        finals = await caller.until(
            lambda: [d for d in caller.heard if d.topic == "apps/phone/7" and b"final" in d.payload]
        )
        assert finals[0].correlation == b"\x01\xff"


async def test_correlation_data_is_the_id_where_the_envelope_has_none(running: Node, caller: Person) -> None:
    await caller.say("command", {"text": "light on"}, properties={"correlation": b"req-7".hex()})
    await running.host.until(lambda: running.host.taken)
    assert running.host.taken[0].id == "req-7"


async def test_fleet_commands_reach_each_member_and_a_signature_is_for_its_audience(
    tmp_path: Path, broker: Mosquitto, caller: Person
) -> None:
    async with node(tmp_path, mqtt(broker.port, fleet=True, groups=["hall"]), operators=OPERATORS) as started:
        fresh = rfc3339(time.time())
        everybody = signed_command(ALICE, "alice", command("c-1", ts=fresh), node="all")

        async def tell(topic: str, document: dict[str, object]) -> None:
            await caller.link.publish(Parcel(topic, json.dumps(document).encode()))

        await tell("zeroclaw/all/command", everybody)
        await started.host.until(lambda: started.host.taken)
        assert started.host.taken[0].ingress.principal == "operator:alice"
        await tell("zeroclaw/group/hall/command", {**everybody, "id": "c-2"})
        await caller.refusal("bad_signature", "c-2")
        await tell("zeroclaw/group/hall/command", command("c-3"))
        await started.host.until(lambda: len(started.host.taken) == 2)


# Plain text


async def test_plain_text_is_a_command_where_it_is_configured(
    tmp_path: Path, broker: Mosquitto, caller: Person
) -> None:
    async with node(tmp_path, mqtt(broker.port, plain_text=True)) as started:
        await caller.say("command", "灯りをつけて")
        await caller.say("command", "灯りをつけて")
        await started.host.until(lambda: len(started.host.taken) == 2)
        assert started.host.taken[0].text == "灯りをつけて"
        assert started.host.taken[0].id != started.host.taken[1].id


# Devices


async def test_a_value_for_a_device_is_a_call_without_a_model(running: Node, caller: Person) -> None:
    await caller.say("device/pump/set", {"id": "c-1", "value": True})
    await running.host.until(lambda: running.host.taken)
    (inbound,) = running.host.taken
    (call,) = inbound.calls
    assert isinstance(call, RawCall)
    assert (call.name, call.arguments) == ("device_write", {"device": "pump", "value": True})
    assert running.ledger("command")[-1].device == "pump"
    await caller.say("device/pump/set", {"id": "c-1", "value": False})
    await caller.refusal("id_reused", "c-1")


async def test_a_bare_value_is_for_devices_that_may_hear_it_twice(running: Node, caller: Person) -> None:
    await caller.say("device/pump/set", b"on")
    await caller.refusal("no_id")
    await caller.say("device/lamp/set", b"on")
    await running.host.until(lambda: running.host.taken)
    assert [inbound.calls[0].arguments for inbound in running.host.taken] == [{"device": "lamp", "value": True}]


async def test_a_device_value_is_refused_retained_unknown_and_while_stopped(running: Node, caller: Person) -> None:
    await caller.say("device/lamp/set", b"on", retain=True)
    await caller.say("device/ghost/set", b"on")
    await caller.refusal("unknown_device")
    running.host.engaged = True
    await caller.say("device/lamp/set", {"id": "c-1", "value": True})
    await caller.refusal("estop", "c-1")
    await caller.say("command", command("c-2", "how warm is it?"))
    await caller.reply("c-2", "accepted")
    assert [inbound.id for inbound in running.host.taken] == ["c-2"]
    assert running.counts["retained"] == 1


async def test_a_signed_device_value_binds_device_and_value(running: Node, caller: Person) -> None:
    document = command("c-1", set_text("pump", True), ts=rfc3339(time.time()))
    signed = {**signed_command(ALICE, "alice", document), "value": True}
    del signed["text"]
    await caller.say("device/pump/set", {**signed, "value": False})
    await caller.refusal("bad_signature", "c-1")
    await caller.say("device/lamp/set", signed)
    await running.row(lambda row: running.counts["bad_signature"] == 2)
    await caller.say("device/pump/set", signed)
    await running.host.until(lambda: running.host.taken)
    assert running.host.taken[0].ingress.principal == "operator:alice"


# Cancels


async def test_a_cancel_reaches_its_command_past_everything_else(running: Node, caller: Person) -> None:
    await caller.say("command", command("c-1"))
    await caller.reply("c-1", "accepted")
    await caller.say("cancel", {"id": "c-1"})
    await running.host.until(lambda: running.host.cancelled)
    assert running.host.cancelled == ["c-1"]
    await caller.say("cancel", {"id": "c-9"})
    await caller.refusal("unknown_id", "c-9")
    await caller.say("cancel", b"c-1")
    await caller.refusal("not_json")


async def test_oversize_follows_the_config(tmp_path: Path, broker: Mosquitto, caller: Person) -> None:
    async with node(tmp_path, mqtt(broker.port, max_payload=Bytes(200))) as started:
        await caller.say("command", command("c-1", "x" * 200))
        await caller.refusal("oversize")
        await caller.say("command", command("c-2", "x" * 100))
        await started.host.until(lambda: started.host.taken)


async def test_a_reply_too_large_for_anybody_is_cut_and_sent(running: Node, caller: Person) -> None:
    await caller.say("command", command("c-1"))
    await running.host.until(lambda: running.host.taken)
    await running.final(running.host.taken[0], "x" * 1_000_000)
    final = await caller.reply("c-1")
    assert len(final["text"]) < 200_000
    assert final["stage"] == Stage.FINAL
