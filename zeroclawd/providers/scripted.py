"""A provider that says what it was told to say: for tests and rehearsals, without a network."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from zeroclawd.errors import ProviderError
from zeroclawd.interfaces import ModelRequest
from zeroclawd.messages import Finish, RawCall, Reply

Script = str | Reply | Mapping[str, Any] | BaseException


class ScriptedProvider:
    """Plays a list of replies in order, one for each request, and keeps the requests in `requests`.

    An item is a text, a Reply, a mapping `{text, calls: [{name, arguments, id}], finish}` (all optional), or an exception
    to raise. When the list is played out, each further request is a ProviderError.
    """

    def __init__(self, replies: Iterable[Script], *, name: str = "scripted", native_tools: bool = True) -> None:
        self.name = name
        self.native_tools = native_tools
        self.requests: list[ModelRequest] = []
        self._replies = iter(replies)

    async def complete(self, request: ModelRequest, on_text: Callable[[str], None]) -> Reply:
        """The next reply of the script."""
        self.requests.append(request)
        item = next(self._replies, None)
        if item is None:
            raise ProviderError(f"the script of {self.name} has no reply number {len(self.requests)}")
        if isinstance(item, BaseException):
            raise item
        reply = as_reply(item)
        if reply.text:
            on_text(reply.text)
        return reply

    async def close(self) -> None:
        """Nothing to let go of."""


def as_reply(item: str | Reply | Mapping[str, Any]) -> Reply:
    """A script's item as a Reply; ProviderError if it is none."""
    if isinstance(item, Reply):
        return item
    if isinstance(item, str):
        return Reply(text=item)
    try:
        calls = tuple(
            RawCall(str(call.get("id", "")), call["name"], call.get("arguments", {})) for call in item.get("calls", ())
        )
        return Reply(text=item.get("text", ""), calls=calls, finish=Finish(item.get("finish", "stop")))
    except (KeyError, AttributeError, TypeError, ValueError) as error:
        raise ProviderError(f"the script has an item that is no reply: {error!r}") from None
