"""Parsing: damage becomes a fault, prose and code never become calls, ids are unique and nothing is guessed."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zeroclawd.messages import Finish, RawCall, Reply
from zeroclawd.turn.parse import arguments_of, parse, tagged

CALL = '<tool_call>{"name":"shell","arguments":{"command":"date"}}</tool_call>'


def names(text: str, **more: Any) -> list[tuple[str, Any]]:
    _, found = parse(Reply(text, **more), text_protocol=True)
    return [(call.name, call.arguments) for call in found if not call.fault]


def test_a_tagged_call() -> None:
    assert parse(Reply(CALL), text_protocol=True)[0] == ""
    assert names(CALL) == [("shell", {"command": "date"})]


def test_prose_around_and_between_calls_is_text() -> None:
    text, found = parse(Reply(f"Sure. {CALL} and {CALL} bye"), text_protocol=True)
    assert text == "Sure.  and  bye"
    assert [call.id for call in found] == ["call_0", "call_1"]


def test_the_end_is_found_by_the_value_and_not_by_a_tag() -> None:
    sly = '<tool_call>{"name":"file_write","arguments":{"content":"a } \\" </tool_call> b"}}</tool_call>done'
    text, (call,) = parse(Reply(sly), text_protocol=True)
    assert call.arguments == {"content": 'a } " </tool_call> b'}
    assert text == "done"


@pytest.mark.parametrize(
    "text",
    [
        f"<think>{CALL}</think>ok",
        f"<think>{CALL}",
        f"```xml\n{CALL}\n```",
        f"~~~\n{CALL}\n~~~",
        f"Write `{CALL}` to call.",
        "The tag <tool_call> opens a call.".replace("<tool_call>", "`<tool_call>`"),
    ],
)
def test_reasoning_and_code_are_never_calls(text: str) -> None:
    assert parse(Reply(text), text_protocol=True)[1] == []


def test_without_the_protocol_text_is_text() -> None:
    assert parse(Reply(CALL)) == (CALL, [])
    assert parse(Reply(CALL), text_protocol=True, strict=True) == (CALL, [])


def test_native_calls_switch_text_parsing_off() -> None:
    reply = Reply(CALL, (RawCall("n1", "look", "{}"),))
    _, found = parse(reply, text_protocol=True)
    assert [call.name for call in found] == ["look"]


@pytest.mark.parametrize("broken", ['{"name":"shell","arguments":{"command":"da', '{"name":"shell"', "not json", ""])
def test_a_damaged_tagged_call_is_a_fault_and_never_a_guess(broken: str) -> None:
    _, found = parse(Reply(f"<tool_call>{broken}</tool_call>"), text_protocol=True)
    assert len(found) == 1
    assert found[0].fault
    assert found[0].arguments == {}


@pytest.mark.parametrize(
    ("given_", "wanted"),
    [
        ("", {}),
        ("  ", {}),
        ("{}", {}),
        ("null", {}),
        ('{"a": 1}', {"a": 1}),
        ('"{\\"a\\": 1}"', {"a": 1}),
        ({"a": 1}, {"a": 1}),
        (None, {}),
    ],
)
def test_arguments_that_are_an_object(given_: Any, wanted: Any) -> None:
    assert arguments_of(given_) == (wanted, "")


@pytest.mark.parametrize("given_", ['{"a": 1', "[1]", "3", '"text"', '{"a": NaN}', "{'a': 1}", "[" * 100_000])
def test_arguments_that_are_none(given_: str) -> None:
    arguments, fault = arguments_of(given_)
    assert arguments == {}
    assert fault


def test_nested_text_that_looks_like_json_stays_text() -> None:
    assert arguments_of('{"content": "{\\"a\\": 1}"}') == ({"content": '{"a": 1}'}, "")


@pytest.mark.parametrize("ids", [["a", "a"], ["", ""], ["a", "", "a"], ["call_1", ""], ["a", "a", "a_1"]])
def test_ids_are_unique_and_unique_ones_are_left_alone(ids: list[str]) -> None:
    _, found = parse(Reply(calls=tuple(RawCall(one, "look", "{}") for one in ids)))
    got = [call.id for call in found]
    assert len(set(got)) == len(ids)
    for place, one in enumerate(ids):
        if one and ids.count(one) == 1:
            assert got[place] == one
    assert all(got)


def test_a_call_without_a_name_is_a_fault() -> None:
    _, (call,) = parse(Reply(calls=(RawCall("a", "  ", "{}"),)))
    assert "names no tool" in call.fault


def test_names_have_one_spelling() -> None:
    _, (call,) = parse(Reply(calls=(RawCall("a", " Shell ", '{"b":1,"a":[2,1]}'),)))
    assert call.name == "shell"
    assert call.signature == 'shell {"a":[2,1],"b":1}'


@given(st.text(), st.booleans())
def test_no_text_breaks_the_parser(text: str, wrapped: bool) -> None:
    body = f"<tool_call>{text}</tool_call>" if wrapped else text
    visible, found = parse(Reply(body), text_protocol=True)
    assert isinstance(visible, str)
    for call in found:
        json.dumps(call.arguments)


@given(st.dictionaries(st.text(), st.text()))
def test_what_is_written_is_what_is_read(arguments: dict[str, str]) -> None:
    written = json.dumps({"name": "look", "arguments": arguments})
    _, (raw,) = tagged(f"x <tool_call>{written}</tool_call> y")
    assert raw.arguments == arguments


@pytest.mark.parametrize("finish", [Finish.LENGTH, Finish.CUT])
def test_a_cut_reply_makes_every_call_a_fault(finish: Finish) -> None:
    _, found = parse(Reply(CALL + CALL, finish=finish), text_protocol=True)
    assert [bool(call.fault) for call in found] == [True, True]


def test_arguments_nested_beyond_reason_are_a_fault() -> None:
    deep: Any = {}
    for _ in range(40):
        deep = {"a": [deep]}
    for given_ in (deep, json.dumps(deep)):
        assert arguments_of(given_)[1]
