"""Dispatch: order, overlap, cancellation, and the row on disk before the effect."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.turn.stage import YES, FakeApprover, Stage, calls
from zeroclawd.config import RiskProfile, RuntimeProfile
from zeroclawd.events import CallEnded, CallStarted, QuestionEnded
from zeroclawd.messages import Role
from zeroclawd.turn.context import resolve
from zeroclawd.turn.loop import run_turn

FULL = RiskProfile(level="full")


async def until(condition: Any) -> None:
    for _ in range(1_000):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("it never happened")


async def begin(stage: Stage) -> tuple[Any, asyncio.Task[Any]]:
    state = stage.state()
    return state, asyncio.create_task(run_turn(resolve(stage.context, state.inbound), state))


async def test_calls_of_one_reply_overlap_and_answer_in_their_order() -> None:
    stage = Stage([calls(*(("wait", {"slot": name}) for name in "abc")), "ok"])
    _, task = await begin(stage)
    await until(lambda: stage.running == 3)
    stage.hold.set()
    end = await task
    assert [result.text for result in end.results] == ["waited a", "waited b", "waited c"]
    answers = [message for message in stage.history if message.role is Role.TOOL]
    assert [message.call_id for message in answers] == ["c0", "c1", "c2"]
    assert ["waited a" in answers[0].text, "waited b" in answers[1].text, "waited c" in answers[2].text] == [True] * 3


async def test_no_more_than_the_bound_run_at_once() -> None:
    runtime = RuntimeProfile(max_parallel=2)
    stage = Stage([calls(*(("wait", {"slot": name}) for name in "abcde")), "ok"], runtime=runtime)
    _, task = await begin(stage)
    await until(lambda: stage.running == 2)
    stage.hold.set()
    await task
    assert stage.most == 2


@pytest.mark.parametrize("changing", [True, False])
async def test_calls_that_change_the_same_resource_never_overlap(changing: bool) -> None:
    wanted = [("wait", {"slot": "a", "changing": changing}), ("wait", {"slot": "a", "changing": changing})]
    stage = Stage([calls(*wanted), "ok"], profile=FULL)
    _, task = await begin(stage)
    await until(lambda: stage.running == (1 if changing else 2))
    stage.hold.set()
    await task
    assert stage.most == (1 if changing else 2)


async def test_a_reply_with_a_question_runs_one_call_after_the_other() -> None:
    profile = RiskProfile(always_ask=["pump"])
    wanted = [("wait", {"slot": "a"}), ("set_device", {"device": "pump", "value": True}), ("wait", {"slot": "b"})]
    stage = Stage([calls(*wanted), "ok"], profile=profile, approver=FakeApprover(YES))
    stage.hold.set()
    await stage.run()
    assert stage.most == 1
    assert stage.log == ["wait a", "set pump True", "wait b"]


async def test_without_the_knob_calls_run_one_after_the_other() -> None:
    runtime = RuntimeProfile(parallel_tools=False)
    stage = Stage([calls(("wait", {"slot": "a"}), ("wait", {"slot": "b"})), "ok"], runtime=runtime)
    stage.hold.set()
    await stage.run()
    assert stage.most == 1


async def test_the_intent_is_on_disk_before_the_effect_and_a_reading_needs_no_sync() -> None:
    stage = Stage([calls(("set_device", {"device": "lamp", "value": True})), calls(("look", {})), "ok"], profile=FULL)
    seen: list[list[str]] = []
    original = stage.inside

    def spy(what: str) -> Any:
        seen.append(stage.ledger.kinds())
        return original(what)

    stage.inside = spy  # type: ignore[method-assign]
    await stage.run()
    assert seen[0] == ["intent"]
    rows = [(row.kind, row.tool, synced) for row, synced in zip(stage.ledger.rows, stage.ledger.synced, strict=True)]
    assert rows == [
        ("intent", "set_device", True),
        ("outcome", "set_device", True),
        ("outcome", "look", False),
    ]


async def test_what_cannot_be_recorded_does_not_happen_and_readings_go_on() -> None:
    wanted = [("set_device", {"device": "lamp", "value": True}), ("look", {"what": "x"})]
    stage = Stage([calls(*wanted), "ok"], profile=FULL)
    stage.ledger.full = True
    end = await stage.run()
    assert stage.results(end) == [("set_device", "blocked"), ("look", "ok")]
    assert stage.log == ["look x"]


async def test_the_emergency_stop_holds_back_effects_and_lets_readings_through() -> None:
    wanted = [("set_device", {"device": "lamp", "value": True}), ("look", {"what": "x"})]
    stage = Stage([calls(*wanted), "ok"], profile=FULL)
    stage.stop = True
    end = await stage.run()
    assert set(stage.results(end)) == {("set_device", "blocked"), ("look", "ok")}


async def test_cancel_between_calls_keeps_what_was_done_and_interrupts_the_rest() -> None:
    runtime = RuntimeProfile(parallel_tools=False)
    wanted = [("look", {"what": "x"}), ("wait", {"slot": "a"}), ("look", {"what": "y"})]
    stage = Stage([calls(*wanted), "never"], runtime=runtime)
    state, task = await begin(stage)
    await until(lambda: stage.running == 1 and "wait a" in stage.log)
    state.cancel.cancel("user")
    end = await task
    assert end.how == "cancelled"
    assert [result.outcome.value for result in end.results] == ["ok", "interrupted", "interrupted"]
    assert [message.call_id for message in stage.history if message.role is Role.TOOL] == ["c0", "c1", "c2"]
    assert stage.log == ["look x", "wait a"]
    assert len(stage.provider.requests) == 1


async def test_an_effect_that_had_begun_is_unknown_when_it_is_cancelled() -> None:
    stage = Stage([calls(("wait", {"slot": "a", "changing": True})), "never"], profile=FULL)
    state, task = await begin(stage)
    await until(lambda: stage.running == 1)
    state.cancel.cancel("user")
    end = await task
    assert [result.outcome.value for result in end.results] == ["unknown"]
    assert stage.running == 0
    assert stage.ledger.rows[-1].outcome == "unknown"


async def test_cancel_in_parallel_leaves_finished_calls_their_results() -> None:
    stage = Stage([calls(("look", {"what": "x"}), ("wait", {"slot": "a"})), "never"])
    state, task = await begin(stage)
    await until(lambda: stage.of(CallEnded) and stage.running == 1)
    state.cancel.cancel("user")
    end = await task
    answers = {result.call.id: result.outcome.value for result in end.results}
    assert answers == {"c0": "ok", "c1": "interrupted"}


async def test_cancel_while_an_operator_is_asked_withdraws_the_question() -> None:
    stage = Stage(
        [calls(("set_device", {"device": "pump", "value": True})), "never"],
        profile=RiskProfile(always_ask=["pump"]),
        approver=FakeApprover(),
    )
    state, task = await begin(stage)
    await until(lambda: stage.approver.questions)  # type: ignore[union-attr]
    state.cancel.cancel("user")
    end = await task
    assert end.how == "cancelled"
    assert [result.outcome.value for result in end.results] == ["denied"]
    assert stage.of(QuestionEnded)[0].source == "cancelled"
    assert stage.log == []


async def test_after_a_cancel_no_further_question_is_asked() -> None:
    wanted = [("set_device", {"device": "pump", "value": value}) for value in (True, False)]
    stage = Stage([calls(*wanted), "never"], profile=RiskProfile(always_ask=["pump"]), approver=FakeApprover())
    state, task = await begin(stage)
    await until(lambda: stage.approver.questions)  # type: ignore[union-attr]
    state.cancel.cancel("user")
    end = await task
    assert [result.outcome.value for result in end.results] == ["denied", "interrupted"]
    assert len(stage.approver.questions) == 1  # type: ignore[union-attr]
    assert "(user)" in end.text


async def test_cancel_while_the_model_thinks_asks_it_no_further() -> None:
    gone = asyncio.Event()

    async def think(_request: Any) -> str:
        try:
            await asyncio.sleep(3600)
        finally:
            gone.set()
        return "late"

    stage = Stage([think])
    state, task = await begin(stage)
    await until(lambda: stage.provider.requests)
    state.cancel.cancel("user")
    end = await task
    assert end.how == "cancelled"
    assert gone.is_set()


async def test_every_call_has_one_start_and_one_end_whatever_became_of_it() -> None:
    wanted = [
        ("look", {"what": "x"}),
        ("look", {"what": "x"}),
        ("fail", {}),
        ("broken", {}),
        ("launch", {}),
        ("set_device", {"device": "pump", "value": True}),
        ("set_device", {"device": "pump"}),
    ]
    stage = Stage([calls(*wanted), "ok"])
    await stage.run()
    for call_id in (f"c{place}" for place in range(len(wanted))):
        kinds = [type(event) for event in stage.events if getattr(event, "call_id", "") == call_id]
        assert kinds == [CallStarted, CallEnded]
    outcomes = {event.call_id: event.outcome for event in stage.of(CallEnded)}
    assert list(dict(sorted(outcomes.items())).values()) == [
        "ok", "duplicate", "error", "error", "error", "blocked", "error",
    ]  # fmt: skip


async def test_a_failing_tool_keeps_what_it_had_said() -> None:
    stage = Stage([calls(("fail", {})), "ok"])
    end = await stage.run()
    assert end.results[0].text == "half of it\nError: it does not work"
    assert end.results[0].receipt is None


async def test_no_output_is_said() -> None:
    stage = Stage([calls(("look", {"what": "nothing"})), "ok"])
    end = await stage.run()
    assert end.results[0].text == "(no output)"
    assert end.results[0].receipt is not None
