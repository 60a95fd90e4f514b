"""Answers a turn whose calls came with the message: first those calls, then a short text made from their results."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from zeroclawd.interfaces import ModelRequest
from zeroclawd.messages import RawCall, Reply
from zeroclawd.providers import wording


class DirectProvider:
    """One turn's provider: no model is asked, and the calls go the same way as a model's."""

    name = "direct"
    native_tools = True

    def __init__(self, calls: Sequence[RawCall], texts: wording.Say) -> None:
        self._calls = tuple(calls)
        self._texts = texts

    async def complete(self, request: ModelRequest, on_text: Callable[[str], None]) -> Reply:
        """The calls, until results are there; then what the results say."""
        results = wording.results_of(request.messages)
        if not results:
            return Reply(calls=self._calls)
        text = wording.told(self._texts, results)
        on_text(text)
        return Reply(text=text)

    async def close(self) -> None:
        """Nothing to let go of."""
