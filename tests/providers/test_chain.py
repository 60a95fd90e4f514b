"""The chain: the next one answers only while nothing was said, and whoever asked for results gets them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from zeroclawd.errors import ProviderError
from zeroclawd.interfaces import ModelRequest, Provider
from zeroclawd.messages import Message, Outcome, RawCall, Reply, Role, ToolCall
from zeroclawd.providers.chain import ChainProvider
from zeroclawd.providers.intent import NotUnderstood
from zeroclawd.providers.scripted import ScriptedProvider

AWAY = ProviderError("away", retryable=True, hint="check the network")


class HalfSaid:
    """Says a word and breaks."""

    name = "half"
    native_tools = True

    async def complete(self, request: ModelRequest, on_text: Callable[[str], None]) -> Reply:
        on_text("The pump is ")
        raise ProviderError("broke off", retryable=True)

    async def close(self) -> None: ...


class Seconds:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def chain(*providers: Provider, **more: Any) -> tuple[ChainProvider, list[tuple[str, str]]]:
    failures: list[tuple[str, str]] = []
    return ChainProvider(providers, failed=lambda name, error: failures.append((name, error.text)), **more), failures


async def ask(provider: Provider, *messages: Message) -> Reply:
    return await provider.complete(ModelRequest(messages or (Message(Role.USER, "hi"),)), lambda _text: None)


def results(by: str) -> Sequence[Message]:
    call = ToolCall("c", "time", {}, "time {}")
    return (
        Message(Role.USER, "hi"),
        Message(Role.ASSISTANT, "", calls=(call,), extra={"from": by}),
        Message(Role.TOOL, "12:00", call_id="c", name="time", outcome=Outcome.OK),
    )


async def test_the_next_one_answers_and_the_failure_is_told() -> None:
    one, failures = chain(ScriptedProvider([AWAY], name="cloud"), ScriptedProvider(["here"], name="local"))
    reply = await ask(one)
    assert (reply.text, reply.extra["from"]) == ("here", "local")
    assert failures == [("cloud", "away")]


async def test_after_a_word_nobody_else_is_asked() -> None:
    second = ScriptedProvider(["The pump is off"])
    one, failures = chain(HalfSaid(), second)
    with pytest.raises(ProviderError, match="broke off"):
        await ask(one)
    assert (second.requests, failures) == ([], [("half", "broke off")])


async def test_all_failures_make_one_error_with_the_first_ones_hint() -> None:
    one, _ = chain(ScriptedProvider([AWAY]), ScriptedProvider([ProviderError("no model", hint="install one")]))
    with pytest.raises(ProviderError, match="away; no model") as caught:
        await ask(one)
    assert (caught.value.hint, caught.value.retryable) == ("check the network", True)


async def test_one_that_is_away_rests_and_is_asked_again_later() -> None:
    clock = Seconds()
    cloud = ScriptedProvider([AWAY, "back"], name="cloud")
    local = ScriptedProvider(["1", "2", "3"], name="local")
    one, _ = chain(cloud, local, monotonic=clock, rest=20.0)
    assert [(await ask(one)).text, (await ask(one)).text] == ["1", "2"]
    assert len(cloud.requests) == 1
    clock.now = 20.0
    assert (await ask(one)).text == "back"


async def test_it_rests_as_long_as_it_asked_for() -> None:
    clock = Seconds()
    cloud = ScriptedProvider([ProviderError("busy", retryable=True, retry_after=90.0), "back"], name="cloud")
    one, _ = chain(cloud, ScriptedProvider(["1", "2"], name="local"), monotonic=clock, rest=20.0)
    await ask(one)
    clock.now = 89.0
    assert (await ask(one)).text == "2"
    clock.now = 90.0
    assert (await ask(one)).text == "back"


async def test_a_refused_request_does_not_make_it_rest() -> None:
    cloud = ScriptedProvider([ProviderError("too long"), "fine"], name="cloud")
    one, _ = chain(cloud, ScriptedProvider(["1"], name="local"))
    assert [(await ask(one)).text, (await ask(one)).text] == ["1", "fine"]


async def test_the_last_one_is_asked_even_if_it_was_away() -> None:
    local = ScriptedProvider([AWAY, "back"], name="local")
    one, _ = chain(ScriptedProvider([AWAY], name="cloud"), local)
    with pytest.raises(ProviderError):
        await ask(one)
    assert (await ask(one)).text == "back"


async def test_results_go_to_who_asked_for_them_and_then_to_the_others() -> None:
    first = ScriptedProvider(["from the first"], name="first")
    second = ScriptedProvider([AWAY], name="second")
    one, _ = chain(first, second)
    assert (await ask(one, *results("second"))).text == "from the first"
    assert len(second.requests) == 1


async def test_a_sentence_that_is_not_understood_is_no_failure() -> None:
    one, failures = chain(ScriptedProvider([NotUnderstood("what?")]), ScriptedProvider(["clear"]))
    assert (await ask(one)).text == "clear"
    assert failures == []


async def test_calls_are_marked_with_who_made_them() -> None:
    one, _ = chain(ScriptedProvider([Reply(calls=(RawCall("a", "time", {}),), extra={"x": 1})], name="cloud"))
    assert (await ask(one)).extra == {"x": 1, "from": "cloud"}


def test_an_empty_chain_is_refused() -> None:
    with pytest.raises(ValueError, match="provider"):
        ChainProvider(())
