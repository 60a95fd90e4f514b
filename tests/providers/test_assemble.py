"""Fragments go to the call that they belong to; where two calls are possible, none runs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zeroclawd.errors import ProviderError
from zeroclawd.messages import Finish, Reply
from zeroclawd.providers.assemble import Assembler


def event(*fragments: Any, finish: str | None = None, **delta: Any) -> dict[str, Any]:
    delta |= {"tool_calls": list(fragments)} if fragments else {}
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def part(
    arguments: Any = None, name: str | None = None, id: str | None = None, index: int | None = None, **more: Any
) -> dict[str, Any]:
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    given = {"index": index, "id": id, "function": function, **more}
    return {key: value for key, value in given.items() if value is not None}


def streamed(*events: Any) -> Reply:
    assembler = Assembler(lambda _text: None)
    for one in events:
        assembler.event(one)
    return assembler.reply()


def calls(*fragments: dict[str, Any]) -> list[tuple[str, str, Any]]:
    reply = streamed(*(event(fragment) for fragment in fragments), event(finish="tool_calls"))
    assert reply.finish is Finish.STOP
    return [(call.id, call.name, call.arguments) for call in reply.calls]


def ambiguous(*fragments: dict[str, Any]) -> bool:
    return streamed(*(event(fragment) for fragment in fragments), event(finish="tool_calls")).finish is Finish.ERROR


def test_a_stray_fragment_with_two_open_calls_makes_the_reply_an_error() -> None:
    two = part("", "relay_set", "a", 0), part("", "relay_set", "b", 1)
    assert ambiguous(*two, part('{"channel":1}', index=2))
    assert ambiguous(*two, part('{"channel":1}'))


def test_without_an_index_the_one_unfinished_call_grows() -> None:
    found = calls(part('{"pin":1}', "gpio_read", "a"), part('{"pi', "gpio_read", "b"), part('n":2}'))
    assert found == [("a", "gpio_read", '{"pin":1}'), ("b", "gpio_read", '{"pin":2}')]


def test_an_id_names_the_call_where_the_index_is_missing() -> None:
    found = calls(part('{"a"', "one", "a"), part('{"b"', "two", "b"), part(":1}", id="a"), part(":2}", id="b"))
    assert found == [("a", "one", '{"a":1}'), ("b", "two", '{"b":2}')]


def test_index_zero_everywhere_is_as_many_calls_as_there_are_ids() -> None:
    found = calls(part('{"pin":1}', "gpio_read", "a", 0), part('{"pin":2}', "gpio_read", "b", 0))
    assert [id for id, _, _ in found] == ["a", "b"]


def test_index_zero_and_no_ids_are_calls_of_their_own_once_the_first_is_whole() -> None:
    found = calls(part('{"pin":1}', "gpio_read", None, 0), part('{"pin":2}', "gpio_read", None, 0))
    assert [arguments for _, _, arguments in found] == ['{"pin":1}', '{"pin":2}']


def test_one_id_under_two_indexes_is_two_calls() -> None:
    found = calls(part('{"pin":1}', "gpio_read", "same", 0), part('{"pin":2}', "gpio_read", "same", 1))
    assert [arguments for _, _, arguments in found] == ['{"pin":1}', '{"pin":2}']


def test_a_whole_call_that_is_said_again_is_the_same_call() -> None:
    found = calls(part('{"pin":1}', "gpio_read", "a", 0), part('{"pin":1}', "gpio_read", "a", 0))
    assert found == [("a", "gpio_read", '{"pin":1}')]


def test_a_name_in_pieces_is_joined() -> None:
    assert calls(part(None, "gpio_", "a", 0), part("{}", "read", None, 0)) == [("a", "gpio_read", "{}")]


def test_arguments_as_an_object_stay_one() -> None:
    assert calls(part({"pin": 1}, "gpio_read", "a", 0)) == [("a", "gpio_read", {"pin": 1})]
    assert ambiguous(part({"pin": 1}, "gpio_read", "a", 0), part('{"pin":2}', None, None, 0))


def test_a_damaged_element_keeps_its_place() -> None:
    assembler = Assembler(lambda _text: None)
    message = {"content": None, "tool_calls": [None, {"id": "b", "function": {"name": "gpio_read", "arguments": "{}"}}]}
    assembler.body({"choices": [{"message": message, "finish_reason": "tool_calls"}]})
    assert [call.name for call in assembler.reply().calls] == ["", "gpio_read"]


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("stop", Finish.STOP),
        ("tool_calls", Finish.STOP),
        ("eos", Finish.STOP),
        ("length", Finish.LENGTH),
        ("max_tokens", Finish.LENGTH),
        ("content_filter", Finish.ERROR),
        ("error", Finish.ERROR),
        (None, Finish.CUT),
    ],
)
def test_finish_reasons(reason: str | None, finish: Finish) -> None:
    assert streamed(event(content="x"), event(finish=reason)).finish is finish


def test_the_end_mark_alone_is_an_end() -> None:
    assembler = Assembler(lambda _text: None)
    assembler.event(event(content="x"))
    assembler.done()
    assert assembler.reply().finish is Finish.STOP


@pytest.mark.parametrize(
    ("error", "retryable"),
    [
        ({"message": "overloaded", "type": "overloaded_error"}, True),
        ({"message": "slow down", "code": 429}, True),
        ({"message": "no", "code": 503}, True),
        ({"message": "no", "type": "invalid_request_error", "code": 400}, False),
        ("just text", False),
    ],
)
def test_an_error_event_is_a_provider_error(error: Any, retryable: bool) -> None:
    with pytest.raises(ProviderError) as caught:
        streamed(event(content="x"), {"error": error})
    assert caught.value.retryable is retryable


def test_text_parts_are_text_and_thinking_parts_are_not() -> None:
    parts = [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "yes"}, "odd"]
    assert streamed(event(content=parts), event(finish="stop")).text == "yes"


def test_a_split_character_is_joined_and_half_a_one_replaced() -> None:
    whole = json.loads('"\\ud83d"'), json.loads('"\\ude00"')
    assert streamed(event(content=whole[0]), event(content=whole[1])).text == "\N{GRINNING FACE}"
    assert streamed(event(content=whole[0])).text == "\N{REPLACEMENT CHARACTER}"


def test_what_the_provider_wants_back_is_kept() -> None:
    detail = {"type": "reasoning.text", "index": 0}
    reply = streamed(
        event(reasoning_content="first "),
        event(reasoning_content="second"),
        event(reasoning_details=[{**detail, "text": "a"}]),
        event(reasoning_details=[{**detail, "text": "b", "signature": "s"}]),
        event(extra_content={"google": {"x": 1}}),
        event(part("{}", "time", "a", 0, extra_content={"google": {"thought_signature": "t"}})),
        event(finish="tool_calls"),
    )
    assert reply.extra == {
        "reasoning_content": "first second",
        "reasoning_details": [{**detail, "text": "ab", "signature": "s"}],
        "extra_content": {"google": {"x": 1}},
        "calls": [{"extra_content": {"google": {"thought_signature": "t"}}}],
    }


FRAGMENTS = st.fixed_dictionaries(
    {},
    optional={
        "index": st.one_of(st.integers(-1, 3), st.none(), st.text(max_size=2)),
        "id": st.one_of(st.sampled_from(["a", "b", ""]), st.none()),
        "function": st.one_of(
            st.none(),
            st.fixed_dictionaries(
                {},
                optional={
                    "name": st.one_of(st.sampled_from(["relay_set", "time", ""]), st.none(), st.integers()),
                    "arguments": st.one_of(
                        st.sampled_from(["", "{}", '{"a":', "1}", "{"]), st.none(), st.just({"a": 1}), st.integers()
                    ),
                },
            ),
        ),
    },
)


@given(st.lists(st.one_of(FRAGMENTS, st.none(), st.text(max_size=2)), max_size=8))
def test_no_fragments_raise(fragments: Sequence[Any]) -> None:
    streamed(*(event(fragment) for fragment in fragments), event(finish="stop"))


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["choices", "delta", "message", "content", "usage", "error", "index", "tool_calls"]),
                inner,
            )
        ),
        max_leaves=12,
    )
)
def test_any_json_is_an_event_or_a_provider_error(anything: Any) -> None:
    for take in ("event", "body"):
        assembler = Assembler(lambda _text: None)
        try:
            getattr(assembler, take)(anything)
        except ProviderError:
            continue
        assembler.reply()


PIECES = st.lists(st.integers(1, 6), min_size=1, max_size=5)


@given(st.dictionaries(st.text(max_size=4), st.text(max_size=8), max_size=3), PIECES, st.randoms(use_true_random=False))
def test_however_two_calls_are_cut_and_mixed_they_come_back_whole(arguments: Any, cuts: list[int], random: Any) -> None:
    texts = [json.dumps(arguments), json.dumps({"other": 1, **arguments})]
    queues = [[part("", "one", "a", 0)], [part("", "two", "b", 1)]]
    for index, text in enumerate(texts):
        at = 0
        for size in [*cuts, len(text)]:
            queues[index].append(part(text[at : at + size], index=index))
            at += size
    mixed = []
    while any(queues):
        mixed.append(random.choice([queue for queue in queues if queue]).pop(0))
    found = {name: text for _, name, text in calls(*mixed)}
    assert found == {"one": texts[0], "two": texts[1]}
