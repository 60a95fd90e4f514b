"""The scripted provider plays its list, and keeps what it was asked."""

from __future__ import annotations

from typing import Any

import pytest

from zeroclawd.errors import ProviderError
from zeroclawd.interfaces import ModelRequest
from zeroclawd.messages import Finish, Message, RawCall, Reply, Role
from zeroclawd.providers.scripted import ScriptedProvider

REQUEST = ModelRequest((Message(Role.USER, "hi"),))


async def test_every_kind_of_item() -> None:
    shown: list[str] = []
    call = {"name": "time", "arguments": {"zone": "UTC"}, "id": "a"}
    script = ScriptedProvider(
        [
            "text",
            Reply("whole"),
            {"text": "let me see", "calls": [call]},
            {"calls": [{"name": "time"}], "finish": "cut"},
        ]
    )
    replies = [await script.complete(REQUEST, shown.append) for _ in range(4)]
    assert [reply.text for reply in replies] == [*shown, ""] == ["text", "whole", "let me see", ""]
    assert replies[2].calls == (RawCall("a", "time", {"zone": "UTC"}),)
    assert (replies[3].calls, replies[3].finish) == ((RawCall("", "time", {}),), Finish.CUT)
    assert script.requests == [REQUEST] * 4


async def test_an_exception_is_raised_and_the_script_goes_on() -> None:
    script = ScriptedProvider([ProviderError("away"), "back"])
    with pytest.raises(ProviderError, match="away"):
        await script.complete(REQUEST, print)
    assert (await script.complete(REQUEST, lambda _text: None)).text == "back"


@pytest.mark.parametrize("item", [{"calls": [{}]}, {"finish": "sideways"}, {"calls": [1]}, 7])
async def test_an_item_that_is_no_reply_is_an_error(item: Any) -> None:
    with pytest.raises(ProviderError, match="no reply"):
        await ScriptedProvider([item]).complete(REQUEST, print)


async def test_the_end_of_the_script_is_an_error() -> None:
    with pytest.raises(ProviderError, match="reply number 1"):
        await ScriptedProvider([]).complete(REQUEST, print)
