"""Replies that real servers have sent, each with the calls that it must and must not yield; the files name sources."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from zeroclawd.errors import ProviderError
from zeroclawd.messages import Finish, Message, Reply, Role, ToolCall
from zeroclawd.providers import wire
from zeroclawd.providers.assemble import Assembler
from zeroclawd.schema import Signature
from zeroclawd.turn.parse import parse

FOLDER = Path(__file__).parent.parent / "cases"
CASES = [json.loads(path.read_text("utf-8")) for path in sorted(FOLDER.glob("*.json"))]
OPENAI = [case for case in CASES if case["protocol"].startswith("openai_")]


def assembled(case: dict[str, Any]) -> tuple[Reply, str]:
    shown: list[str] = []
    assembler = Assembler(shown.append)
    if case["protocol"] == "openai_chat":
        assembler.body(case["provider_response"])
    else:
        for event in case["provider_response"]:
            assembler.event(event)
    return assembler.reply(), "".join(shown)


async def relay_set(channel: int, on: bool) -> str:
    return f"{channel} {on}"


def coerced(call: ToolCall) -> Any:
    """Types by schema come with the check of arguments, which the turn does before anybody is asked."""
    return Signature(relay_set, ()).check(call.arguments) if call.name == "relay_set" else call.arguments


def test_there_are_cases_of_both_kinds() -> None:
    assert {case["protocol"] for case in OPENAI} == {"openai_chat", "openai_sse"}


@pytest.mark.parametrize("case", OPENAI, ids=lambda case: case["id"])
def test_the_calls_of_a_reply(case: dict[str, Any]) -> None:
    if case["expected_error"] == "provider_error":
        with pytest.raises(ProviderError):
            assembled(case)
        return
    reply, _ = assembled(case)
    text, calls = parse(reply, text_protocol=case.get("text_protocol", False))
    runnable = [{"name": call.name, "arguments": coerced(call)} for call in calls if not call.fault]
    assert runnable == case["expected_calls"]
    if case["expected_error"]:
        assert calls
        assert all(call.fault for call in calls)
    if "expected_text" in case:
        assert text == case["expected_text"]
    if "expected_ids" in case:
        assert [call.id for call in calls] == case["expected_ids"]
    assert len({call.id for call in calls}) == len(calls)
    assert all(call.id for call in calls)


@pytest.mark.parametrize(
    "case", [case for case in OPENAI if case["expected_error"] != "provider_error"], ids=lambda case: case["id"]
)
def test_every_reply_can_be_sent_back(case: dict[str, Any]) -> None:
    """Also a broken one: what is replayed is a JSON object, under unique ids, and no empty list of calls."""
    reply, _ = assembled(case)
    text, calls = parse(reply, text_protocol=case.get("text_protocol", False))
    (sent,) = wire.messages([Message(Role.ASSISTANT, text, calls=tuple(calls), extra=reply.extra)], "any")
    assert sent.get("tool_calls") != []
    for call in sent.get("tool_calls", ()):
        assert isinstance(json.loads(call["function"]["arguments"]), dict)


@pytest.mark.parametrize(("case_id", "finish"), [("C10", Finish.CUT), ("C13", Finish.LENGTH), ("C09", Finish.STOP)])
def test_how_a_stream_ended(case_id: str, finish: Finish) -> None:
    case = next(case for case in OPENAI if case["id"] == case_id)
    assert assembled(case)[0].finish is finish


def test_usage_after_the_answer_is_kept() -> None:
    case = next(case for case in OPENAI if case["id"] == "C08")
    reply, _ = assembled(case)
    assert (reply.usage.input_tokens, reply.usage.output_tokens) == (41, 9)


def test_reasoning_is_neither_shown_nor_read_for_calls() -> None:
    case = next(case for case in OPENAI if case["id"] == "C18")
    reply, shown = assembled(case)
    assert shown == ""
    assert "gpio_write" in reply.extra["reasoning_content"]
