"""Questions and answers over a real broker: who may decide, what is refused, and that a refusal decides nothing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.broker import Mosquitto
from tests.channels import fake
from tests.channels.node import (
    ALICE,
    BOB,
    MALLORY,
    OPERATORS,
    MovableClock,
    Node,
    Person,
    ask,
    decision,
    mqtt,
    node,
    person,
    question,
)
from zeroclawd.config import OperatorConfig, RiskProfile
from zeroclawd.interfaces import CancelToken, Parcel
from zeroclawd.messages import Source, Verdict
from zeroclawd.tool import Risk

pytestmark = pytest.mark.broker


@pytest.fixture
async def running(tmp_path: Path, broker: Mosquitto) -> AsyncIterator[Node]:
    async with node(tmp_path / "state", mqtt(broker.port), operators=OPERATORS) as started:
        yield started


@pytest.fixture
async def operator(broker: Mosquitto) -> AsyncIterator[Person]:
    async with person(broker.port) as somebody:
        yield somebody


async def decide(operator: Person, document: dict[str, Any] | bytes, **more: Any) -> None:
    await operator.say("approval/decision", document, **more)


async def cleared(operator: Person, request_id: str) -> None:
    await operator.until(lambda: [d for d in operator.on(f"approval/request/{request_id}") if not d.payload])


def decisions(running: Node) -> list[tuple[str, str]]:
    return [(row.decision, row.decided_by) for row in running.ledger("decision")]


async def test_an_approval_from_question_to_ledger(running: Node, operator: Person) -> None:
    asked = question()
    waiting = ask(running, asked)
    request = await operator.request("r1")
    assert request["arguments"] == {"device": "pump", "value": True}
    assert request["quorum"] == {"need": 1, "have": 0}
    assert request["verdicts"] == ["approve", "deny", "always", "replace"]
    assert 0 < request["expires_in"] <= 60
    assert (request["node"], request["risk"], request["device"]) == ("n1", "high", "pump")
    assert operator.on("approval/request/r1")[0].retain
    assert 0 < (operator.on("approval/request/r1")[0].expiry or 0) <= 60
    await decide(operator, decision(request, "approve"))
    answer = await waiting
    assert (answer.allowed, answer.source, answer.by, answer.verdict) == (
        True,
        Source.OPERATOR,
        "alice",
        Verdict.APPROVE,
    )
    await operator.outcome(event="answer", result="accepted", operator="alice")
    await operator.outcome(event="ended", outcome="approved", by="alice")
    await cleared(operator, "r1")
    assert decisions(running) == [("asked", ""), ("approve", "alice")]
    row = running.ledger("decision")[-1]
    assert (row.approval_id, row.arguments_digest, row.device, row.turn_id) == ("r1", "digest-r1", "pump", "t1")


async def test_a_late_listener_sees_the_open_question_and_not_the_ended_one(
    running: Node, operator: Person, broker: Mosquitto
) -> None:
    first, second = ask(running, question("r1")), ask(running, question("r2"))
    await decide(operator, decision(await operator.request("r1"), "deny"))
    await first
    await cleared(operator, "r1")
    await operator.request("r2")
    async with person(broker.port) as late:
        await late.request("r2")
        assert late.on("approval/request/r1") == []
    await decide(operator, decision(await operator.request("r2"), "approve"))
    assert (await second).allowed


async def test_a_deny_ends_it(running: Node, operator: Person) -> None:
    waiting = ask(running, question(need=2))
    await decide(operator, decision(await operator.request("r1"), "deny"))
    answer = await waiting
    assert (answer.allowed, answer.source, answer.verdict, answer.by) == (False, Source.OPERATOR, Verdict.DENY, "alice")
    await operator.outcome(event="ended", outcome="denied")


async def test_a_replacement_becomes_the_result_and_nothing_runs(running: Node, operator: Person) -> None:
    waiting = ask(running, question())
    request = await operator.request("r1")
    await decide(operator, decision(request, "replace", replacement="leave\x1b[2J it\noff"))
    answer = await waiting
    assert (answer.allowed, answer.verdict, answer.replacement) == (False, Verdict.REPLACE, "leave[2J it\noff")


async def test_always_is_a_grant_with_an_end(running: Node, operator: Person) -> None:
    waiting = ask(running, question())
    request = await operator.request("r1")
    await decide(operator, decision(request, "always", grant={"match": "device", "ttl": 3600}))
    answer = await waiting
    assert (answer.allowed, answer.verdict) == (True, Verdict.ALWAYS)
    (grant,) = await running.store.questions.grants()
    assert (grant.principal, grant.tool, grant.device, grant.match, grant.granted_by) == (
        "mqtt:home:unverified",
        "device_write",
        "pump",
        "device",
        "alice",
    )
    assert running.clock.wall() + 3500 < grant.expires_at < running.clock.wall() + 3601
    assert running.ledger("grant")[0].approval_id == "r1"


async def test_two_people_are_two_people(running: Node, operator: Person) -> None:
    waiting = ask(running, question(need=2))
    request = await operator.request("r1")
    assert "always" not in request["verdicts"]
    await decide(operator, decision(request, "approve"))
    await operator.until(
        lambda: [r for r in operator.documents("approval/request/r1") if r["quorum"] == {"need": 2, "have": 1}]
    )
    await decide(operator, decision(request, "approve"))
    await operator.outcome(result="refused", reason="repeated", question="open")
    await decide(operator, decision(request, "always", BOB, "bob", grant={"match": "exact", "ttl": 60}))
    await operator.outcome(result="refused", reason="grant_refused", question="open")
    assert not waiting.done()
    await decide(operator, decision(request, "approve", BOB, "bob"))
    answer = await waiting
    assert (answer.allowed, answer.by) == (True, "alice, bob")
    assert [pair for pair in decisions(running) if pair[0] == "approve"] == [("approve", "alice"), ("approve", "bob")]


# Every refusal leaves the question open


def _forged(request: dict[str, Any]) -> dict[str, Any]:
    return {**decision(request, "approve", MALLORY), "operator": "alice"}


REFUSED: dict[str, Any] = {
    "unknown_request": lambda r: decision({**r, "request_id": "r9"}, "approve"),
    "wrong_nonce": lambda r: decision({**r, "nonce": "n"}, "approve"),
    "wrong_digest": lambda r: decision({**r, "arguments_digest": "d"}, "approve"),
    "wrong_node": lambda r: decision(r, "approve", node="n2"),
    "unsigned": lambda r: decision(r, "approve", None),
    "unknown_operator": lambda r: decision(r, "approve", ALICE, "eve"),
    "bad_signature": _forged,
    "not_entitled": lambda r: decision(r, "approve", MALLORY, "junior"),
    "own_command": lambda r: decision(r, "approve", BOB, "bob"),
    "version": lambda r: decision(r, "approve") | {"v": 2},
    "not_json": lambda r: b'{"request_id":"r1","verd',
    "not_utf8": lambda r: b"\xff\xfe",
    "oversize": lambda r: b"x" * 70_000,
    "no_id": lambda r: {"verdict": "approve"},
}


@pytest.mark.parametrize("reason", REFUSED)
async def test_a_refused_answer_leaves_the_question_open(running: Node, operator: Person, reason: str) -> None:
    waiting = ask(running, question(requested_by="operator:bob"))
    request = await operator.request("r1")
    await decide(operator, REFUSED[reason](request))
    told = await operator.outcome(event="answer", result="refused", reason=reason)
    assert told["question"] == ("open" if told["request_id"] == "r1" else "unknown")
    assert running.counts[reason] == 1
    row = await running.row(lambda row: row.kind == "decision" and row.decision == "refused")
    assert row.note.startswith(reason)
    assert not waiting.done()
    await decide(operator, decision(request, "approve"))
    assert (await waiting).allowed


@pytest.mark.parametrize("verdict", ["approveX", 1, None])
async def test_an_unknown_word_decides_nothing(running: Node, operator: Person, verdict: Any) -> None:
    waiting = ask(running, question())
    request = await operator.request("r1")
    await decide(operator, decision(request, "approve") | {"verdict": verdict})
    await operator.outcome(result="refused", reason="malformed", request_id="r1", question="open")
    await decide(operator, decision(request, "deny"))
    assert not (await waiting).allowed


async def test_what_was_signed_cannot_be_changed(running: Node, operator: Person) -> None:
    waiting = ask(running, question())
    request = await operator.request("r1")
    signed = decision(request, "deny")
    await decide(operator, signed | {"verdict": "approve"})
    await operator.outcome(reason="bad_signature")
    signed = decision(request, "replace", replacement="stay off")
    await decide(operator, signed | {"replacement": "go on"})
    await operator.until(lambda: running.counts["bad_signature"] == 2)
    signed = decision(request, "always", grant={"match": "exact", "ttl": 60})
    await decide(operator, signed | {"grant": {"match": "device", "ttl": 86_400}})
    await operator.until(lambda: running.counts["bad_signature"] == 3)
    assert not waiting.done()
    await decide(operator, decision(request, "deny"))
    await waiting


async def test_a_retained_decision_counts_for_nothing(running: Node, operator: Person) -> None:
    waiting = ask(running, question())
    request = await operator.request("r1")
    await decide(operator, decision(request, "approve"), retain=True)
    await operator.outcome(reason="retained")
    assert not waiting.done()
    await decide(operator, decision(request, "deny"))
    await waiting


async def test_a_replayed_answer_is_too_late_for_its_question_and_wrong_for_another(
    running: Node, operator: Person
) -> None:
    first = ask(running, question("r1"))
    signed = decision(await operator.request("r1"), "approve")
    await decide(operator, signed)
    assert (await first).allowed
    await decide(operator, signed)
    told = await operator.outcome(result="refused", reason="decided")
    assert told["question"] == "approved"
    second = ask(running, question("r2"))
    request = await operator.request("r2")
    await decide(operator, signed | {"request_id": "r2"})
    await operator.outcome(result="refused", reason="wrong_nonce", question="open")
    await decide(operator, signed | {"request_id": "r2", "nonce": request["nonce"], "arguments_digest": "digest-r2"})
    await operator.outcome(result="refused", reason="bad_signature", question="open")
    assert not second.done()
    await decide(operator, decision(request, "deny"))
    await second


# Who may


async def test_the_sender_of_a_command_may_decide_where_that_is_configured(
    tmp_path: Path, broker: Mosquitto, operator: Person
) -> None:
    risk = RiskProfile(sender_may_approve=True)
    async with node(tmp_path, mqtt(broker.port), operators=OPERATORS, risk=risk) as started:
        waiting = ask(started, question(requested_by="operator:bob"))
        await decide(operator, decision(await operator.request("r1"), "approve", BOB, "bob"))
        assert (await waiting).allowed


async def test_responsibility_follows_devices_and_groups(tmp_path: Path, broker: Mosquitto, operator: Person) -> None:
    operators = {
        "alice": OperatorConfig(public_key=ALICE.public, may_approve="high", groups=["water"]),
        "bob": OperatorConfig(public_key=BOB.public, may_approve="high", devices=["heater"]),
    }
    async with node(tmp_path, mqtt(broker.port), operators=operators, groups={"pump": ("water",)}) as started:
        waiting = ask(started, question())
        request = await operator.request("r1")
        await decide(operator, decision(request, "deny", BOB, "bob"))
        await operator.outcome(reason="not_entitled", question="open")
        await decide(operator, decision(request, "approve"))
        assert (await waiting).by == "alice"


async def test_an_hmac_key_signs_too(tmp_path: Path, broker: Mosquitto, operator: Person) -> None:
    from zeroclawd.signing import DECISION, HmacKey, decision_fields

    secret = tmp_path / "key"
    secret.write_text("a shared secret\n")
    secret.chmod(0o600)
    operators = {"carol": OperatorConfig(hmac_key_file=str(secret), may_approve="high")}
    async with node(tmp_path / "state", mqtt(broker.port), operators=operators) as started:
        waiting = ask(started, question())
        document = decision(await operator.request("r1"), "approve", None, "carol")
        forged = HmacKey(b"another").sign(DECISION, decision_fields(document))
        await decide(operator, {**document, "sig": forged})
        await operator.outcome(reason="bad_signature", question="open")
        signature = HmacKey(b"a shared secret").sign(DECISION, decision_fields(document))
        await decide(operator, {**document, "sig": signature})
        assert (await waiting).by == "carol"


async def test_unsigned_answers_lift_no_more_than_they_may(tmp_path: Path, broker: Mosquitto, operator: Person) -> None:
    async with node(tmp_path, mqtt(broker.port, allow_unsigned="medium"), operators=OPERATORS) as started:
        high = ask(started, question("r1"))
        await decide(operator, decision(await operator.request("r1"), "approve", None))
        await operator.outcome(reason="unsigned", request_id="r1", question="open")
        medium = ask(started, question("r2", risk=Risk.MEDIUM, need=2))
        request = await operator.request("r2")
        await decide(operator, decision(request, "approve", None, "panel"))
        await operator.outcome(result="accepted", operator="unsigned:panel")
        await decide(operator, decision(request, "approve", None, "phone"))
        await operator.outcome(reason="repeated", request_id="r2", question="open")
        grant = {"match": "exact", "ttl": 60}
        await decide(operator, decision(request, "always", None, "phone", grant=grant))
        await operator.until(lambda: started.counts["repeated"] + started.counts["unsigned"] == 3)
        assert not medium.done()
        await decide(operator, decision(request, "approve"))
        assert (await medium).by == "unsigned:panel, alice"
        await decide(operator, decision(await operator.request("r1"), "deny"))
        await high


# Time


async def test_silence_is_a_denial_and_a_late_answer_is_told_so(running: Node, operator: Person) -> None:
    waiting = ask(running, question(lifetime=0.3))
    request = await operator.request("r1")
    answer = await waiting
    assert (answer.allowed, answer.source, answer.by) == (False, Source.TIMED_OUT, "runtime")
    await operator.outcome(event="ended", outcome="timed_out")
    await cleared(operator, "r1")
    await decide(operator, decision(request, "approve"))
    told = await operator.outcome(result="refused", reason="expired")
    assert told["question"] == "timed_out"
    assert ("timed_out", "runtime") in decisions(running)
    assert ("approve", "alice") not in decisions(running)


async def test_an_answer_after_the_deadline_is_late_even_if_the_timer_has_not_run(
    running: Node, operator: Person
) -> None:
    waiting = ask(running, question())
    request = await operator.request("r1")
    running.clock.monotonic_shift += 61  # the board slept; timers of the event loop did not go on
    await decide(operator, decision(request, "approve"))
    await operator.outcome(result="refused", reason="expired")
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_a_step_of_the_wall_clock_neither_ends_nor_extends_a_question(tmp_path: Path, broker: Mosquitto) -> None:
    clock = MovableClock()
    async with (
        node(tmp_path, mqtt(broker.port), operators=OPERATORS, clock=clock) as started,
        person(broker.port) as operator,
    ):
        waiting = ask(started, question())
        request = await operator.request("r1")
        clock.wall_shift += 180 * 86_400
        await decide(operator, decision({**request, "request_id": "r9"}, "approve"))
        await operator.outcome(reason="unknown_request")
        assert not waiting.done()
        clock.wall_shift -= 181 * 86_400
        await decide(operator, decision(request, "approve"))
        assert (await waiting).allowed


# Withdrawal


async def test_a_cancel_withdraws_the_question(running: Node, operator: Person) -> None:
    cancel = CancelToken()
    waiting = ask(running, question(), cancel)
    request = await operator.request("r1")
    cancel.cancel("the sender thought again")
    answer = await waiting
    assert (answer.allowed, answer.source, answer.reason) == (False, Source.CANCELLED, "the sender thought again")
    await cleared(operator, "r1")
    await decide(operator, decision(request, "approve"))
    await operator.outcome(reason="decided", question="cancelled")


async def test_a_turn_that_is_torn_down_takes_its_question_along(running: Node, operator: Person) -> None:
    waiting = ask(running, question())
    await operator.request("r1")
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await operator.outcome(event="ended", outcome="cancelled")
    await cleared(operator, "r1")


async def test_a_restart_ends_what_was_open(tmp_path: Path, broker: Mosquitto, operator: Person) -> None:
    async with node(tmp_path, mqtt(broker.port), operators=OPERATORS, clean=False) as first:
        waiting = ask(first, question())
        request = await operator.request("r1")
        # What a power cut leaves: the question is in the store, and nobody ended it.
        row = await first.store.questions.question("r1")
        assert row is not None
        await first.store.questions.opened("mqtt.home", question("r2"))
        waiting.cancel()
    async with node(tmp_path, mqtt(broker.port), boot_id="boot-2", operators=OPERATORS) as second:
        await operator.outcome(event="ended", request_id="r2", outcome="restarted", by="runtime")
        await operator.until(lambda: [d for d in operator.on("approval/request/r2") if not d.payload])
        await decide(operator, decision({**request, "request_id": "r2", "nonce": "nonce-r2"}, "approve"))
        await operator.outcome(reason="decided", request_id="r2", question="restarted")
        row = await second.row(lambda row: row.decision == "restarted")
        assert (row.approval_id, row.decided_by) == ("r2", "runtime")
        assert await second.store.questions.leftovers("mqtt.home") == []


# The broker comes and goes


async def test_nobody_can_be_reached_without_a_broker(tmp_path: Path, broker: Mosquitto) -> None:
    broker.stop()
    async with node(tmp_path, mqtt(broker.port), operators=OPERATORS, wait=False) as started:
        started.channel._approver._patience = 0.2
        answer = await ask(started, question())
        assert (answer.allowed, answer.source) == (False, Source.UNREACHABLE)
        assert ("unreachable", "runtime") in decisions(started)


async def test_a_question_outlives_an_outage_of_a_broker_that_forgets(
    running: Node, operator: Person, broker: Mosquitto
) -> None:
    waiting = ask(running, question())
    request = await operator.request("r1")
    broker.stop()
    await running.until_healthy("down")
    operator.heard.clear()
    broker.start()
    await running.until_healthy()
    again = await operator.request("r1")
    assert again["nonce"] == request["nonce"]
    assert again["expires_in"] < request["expires_in"]
    await decide(operator, decision(again, "approve"))
    assert (await waiting).allowed


async def test_a_question_that_expires_during_an_outage_is_cleared_afterwards(
    tmp_path: Path, operator: Person, broker: Mosquitto
) -> None:
    async with fake.gate(broker.port) as gate, node(tmp_path, mqtt(gate.port), operators=OPERATORS) as remote:
        waiting = ask(remote, question(lifetime=1.0))
        await operator.request("r1")
        await gate.shut()
        assert (await waiting).source is Source.TIMED_OUT
        operator.heard.clear()
        await gate.open()
        await cleared(operator, "r1")
        await operator.outcome(event="ended", outcome="timed_out")


async def test_an_answer_given_during_an_outage_of_the_node_counts_when_it_is_back_in_time(
    tmp_path: Path, operator: Person, broker: Mosquitto
) -> None:
    async with fake.gate(broker.port) as gate, node(tmp_path, mqtt(gate.port), operators=OPERATORS) as remote:
        waiting = ask(remote, question())
        request = await operator.request("r1")
        await gate.shut()
        await decide(operator, decision(request, "approve"))
        assert not waiting.done()
        await gate.open()
        assert (await waiting).allowed


# Many at once, and a store that fails


async def test_many_questions_at_once(running: Node, operator: Person) -> None:
    waiting = [ask(running, question(f"r{number}")) for number in range(50)]
    for number in reversed(range(50)):
        request = await operator.request(f"r{number}")
        await decide(operator, decision(request, "approve" if number % 2 else "deny"))
    answers = await asyncio.gather(*waiting)
    assert [answer.allowed for answer in answers] == [bool(number % 2) for number in range(50)]
    assert running.channel.report()["open_questions"] == 0


async def test_what_cannot_be_recorded_is_not_allowed(
    running: Node, operator: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    from zeroclawd.errors import StoreFull
    from zeroclawd.store.questions import DurableQuestions

    async def full(*_: Any) -> None:
        raise StoreFull("the disk is full")

    waiting = ask(running, question("r1"))
    request = await operator.request("r1")
    monkeypatch.setattr(DurableQuestions, "closed", full)
    await decide(operator, decision(request, "approve"))
    answer = await waiting
    assert (answer.allowed, answer.source) == (False, Source.FAILED)
    await operator.outcome(event="ended", outcome="failed")
    monkeypatch.setattr(DurableQuestions, "opened", full)
    answer = await ask(running, question("r2"))
    assert (answer.allowed, answer.source) == (False, Source.FAILED)


async def test_a_decision_from_the_nodes_own_connection_is_never_heard(running: Node, operator: Person) -> None:
    waiting = ask(running, question())
    request = await operator.request("r1")
    payload = json.dumps(decision(request, "approve")).encode()
    await running.channel._link.publish(Parcel(running.channel.topics.decision, payload))
    await operator.until(lambda: operator.on("approval/decision"))
    await decide(operator, decision({**request, "request_id": "r9"}, "approve"))
    await operator.outcome(reason="unknown_request")
    assert not waiting.done()
    await decide(operator, decision(request, "deny"))
    await waiting


async def test_the_same_over_3_1_1(tmp_path: Path, broker: Mosquitto, operator: Person) -> None:
    async with node(tmp_path, mqtt(broker.port, protocol="3.1.1"), operators=OPERATORS) as started:
        waiting = ask(started, question())
        request = await operator.request("r1")
        await decide(operator, decision(request, "approve", MALLORY, "alice"))
        await operator.outcome(reason="bad_signature", question="open")
        await decide(operator, decision(request, "approve"))
        assert (await waiting).allowed
        await cleared(operator, "r1")
