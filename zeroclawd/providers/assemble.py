"""Puts a chat completion together, from one body or from the fragments of a stream, without ever guessing.

Arguments stay the text that the model wrote: whether that text is a JSON object is for the parser to judge.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from zeroclawd.errors import ProviderError
from zeroclawd.messages import Finish, RawCall, Reply, Usage
from zeroclawd.redact import plain

_FINISH = {
    "length": Finish.LENGTH,
    "max_tokens": Finish.LENGTH,
    "model_length": Finish.LENGTH,
    "content_filter": Finish.ERROR,
    "error": Finish.ERROR,
}
_PASSING_STATUS = frozenset({408, 425, 429})
_PASSING_WORDS = ("rate_limit", "overloaded", "server_error", "timeout", "unavailable", "internal")


@dataclass(slots=True)
class _Open:
    """A call that may still grow."""

    id: str = ""
    name: str = ""
    pieces: list[str] = field(default_factory=list)
    given: Mapping[str, Any] | None = None
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    @property
    def complete(self) -> bool:
        """True if nothing can be added: the arguments are a whole JSON object already."""
        last = next((piece for piece in reversed(self.pieces) if not piece.isspace()), "")
        return self.given is not None or (last.rstrip().endswith("}") and is_object(self.text))

    def raw(self) -> RawCall:
        return RawCall(self.id, self.name, self.given if self.given is not None else utf8(self.text))


class Assembler:
    """Takes decoded events (or one body) of the chat completions protocol and gives the Reply.

    `on_text` gets the visible text as it comes. Reasoning is kept in `Reply.extra` and never shown or read for calls.
    """

    def __init__(self, on_text: Callable[[str], None]) -> None:
        self._on_text = on_text
        self._text: list[str] = []
        self._calls: list[_Open] = []
        self._by_index: dict[int, _Open] = {}
        self._finish: Finish | None = None
        self._ambiguous = False
        self._usage = Usage()
        self._model = ""
        self._reasoning: dict[str, list[str]] = {}
        self._details: list[dict[str, Any]] = []
        self._extra: dict[str, Any] = {}
        self.told = False

    @property
    def finished(self) -> bool:
        """True once the endpoint has said how the reply ended, or that the stream is over."""
        return self._finish is not None

    @property
    def empty(self) -> bool:
        """True while nothing has come that could be part of a reply."""
        return not (self._text or self._calls or self._reasoning or self._details or self.finished)

    def done(self) -> None:
        """The stream's own end mark (`[DONE]`) has come."""
        if self._finish is None:
            self._finish = Finish.STOP

    def event(self, event: Any) -> None:
        """Take one event of a stream; ProviderError if it reports one."""
        choice = self._take_frame(event)
        if choice is None:
            return
        delta = choice.get("delta")
        if isinstance(delta, Mapping):
            self._take_message(delta)
            for fragment in _items(delta.get("tool_calls")):
                self._take_fragment(fragment)
        self._take_finish(choice.get("finish_reason"))

    def body(self, body: Any) -> None:
        """Take a whole reply; ProviderError if it holds none."""
        choice = self._take_frame(body)
        message = choice.get("message") if choice is not None else None
        if choice is None or not isinstance(message, Mapping):
            raise ProviderError(
                "the endpoint answered without a message", hint="check that base_url is a chat completions API"
            )
        self._take_message(message)
        for element in _items(message.get("tool_calls")):
            self._open(element)
        self._take_finish(choice.get("finish_reason"))
        self.done()

    def reply(self) -> Reply:
        """The reply as far as it came; CUT if its end never did."""
        finish = self._finish or Finish.CUT
        if self._ambiguous and finish is Finish.STOP:
            finish = Finish.ERROR
        return Reply(
            text=utf8("".join(self._text)),
            calls=tuple(call.raw() for call in self._calls),
            finish=finish,
            usage=self._usage,
            model=self._model,
            extra=self._kept(),
        )

    # Frames

    def _take_frame(self, frame: Any) -> Mapping[str, Any] | None:
        """Note model and usage; return the first choice, or None if the frame has none (usage, pings)."""
        if not isinstance(frame, Mapping):
            raise ProviderError("the endpoint sent JSON that is not an object")
        if frame.get("error"):
            raise reported(frame["error"])
        if isinstance(frame.get("model"), str):
            self._model = frame["model"]
        self._take_usage(frame.get("usage"))
        for choice in _items(frame.get("choices")):
            if isinstance(choice, Mapping) and choice.get("index") in (0, None):
                if choice.get("error"):
                    raise reported(choice["error"])
                return choice
        return None

    def _take_usage(self, usage: Any) -> None:
        if not isinstance(usage, Mapping):
            return
        details = usage.get("prompt_tokens_details")
        cached = details.get("cached_tokens") if isinstance(details, Mapping) else 0
        self._usage = Usage(_count(usage.get("prompt_tokens")), _count(usage.get("completion_tokens")), _count(cached))

    def _take_finish(self, reason: Any) -> None:
        if isinstance(reason, str) and reason:
            self._finish = _FINISH.get(reason, Finish.STOP)

    def _take_message(self, message: Mapping[str, Any]) -> None:
        text = _visible(message.get("content")) or _visible(message.get("refusal"))
        if text:
            self._text.append(text)
            self.told = True
            self._on_text(utf8(text))
        if isinstance(message.get("reasoning_content"), str):
            self._reasoning.setdefault("reasoning_content", []).append(message["reasoning_content"])
        for detail in _items(message.get("reasoning_details")):
            self._take_detail(detail)
        if isinstance(message.get("extra_content"), Mapping):
            self._extra |= message["extra_content"]

    def _take_detail(self, detail: Any) -> None:
        """Reasoning details stream in pieces: text of the same index and type grows, everything else is set."""
        if not isinstance(detail, Mapping):
            return
        held = next((known for known in self._details if _same_detail(known, detail)), None)
        if held is None:
            self._details.append(dict(detail))
            return
        for key, value in detail.items():
            if key in ("text", "summary", "data") and isinstance(value, str) and isinstance(held.get(key), str):
                held[key] += value
            elif value is not None:
                held[key] = value

    def _kept(self) -> dict[str, Any]:
        kept: dict[str, Any] = {key: utf8("".join(pieces)) for key, pieces in self._reasoning.items()}
        if self._details:
            kept["reasoning_details"] = [dict(detail) for detail in self._details]
        if self._extra:
            kept["extra_content"] = dict(self._extra)
        if any(call.extra for call in self._calls):
            kept["calls"] = [dict(call.extra) for call in self._calls]
        return kept

    # Calls

    def _take_fragment(self, fragment: Any) -> None:
        target = self._target(fragment) if isinstance(fragment, Mapping) else None
        match target:
            case _Open():
                self._grow(target, fragment)
            case "new":
                self._open(fragment)
            case "unknown":
                self._ambiguous = True

    def _target(self, fragment: Mapping[str, Any]) -> _Open | str:
        """The call that a fragment belongs to, `new`, or `unknown` where two are possible.

        Index and id say it; servers that leave them out, or give every call the same index, are understood only where no
        second reading exists.
        """
        index, id_, name, arguments = _index(fragment), _text(fragment.get("id")), *_function(fragment)
        if index is not None and index in self._by_index:
            held = self._by_index[index]
            return "new" if _starts_another(held, id_, name, arguments) else held
        known = next((call for call in self._calls if id_ and call.id == id_), None)
        if known is not None and not (name and index is not None):
            return known
        if not name and not id_ and index is None:
            return self._only(call for call in self._calls if not call.complete)
        if not name:
            return self._only(self._calls)
        last = self._calls[-1] if self._calls and index is None and not id_ else None
        if last is not None and last.name == name and last.text and not last.complete:
            return last
        return "new"

    def _only(self, candidates: Any) -> _Open | str:
        found = list(candidates)
        return found[0] if len(found) == 1 else "unknown"

    def _open(self, fragment: Any) -> None:
        """Begin a call; a damaged one keeps its place, so that it is answered."""
        call = _Open()
        self._calls.append(call)
        if isinstance(fragment, Mapping):
            index = _index(fragment)
            if index is not None:
                self._by_index[index] = call
            self._grow(call, fragment)

    def _grow(self, call: _Open, fragment: Mapping[str, Any]) -> None:
        name, arguments = _function(fragment)
        repeated = call.id and _text(fragment.get("id")) == call.id and arguments == call.text and call.complete
        call.id = call.id or _text(fragment.get("id"))
        if name and name != call.name:
            call.name += name
        if isinstance(arguments, Mapping):
            self._ambiguous |= call.given is not None or bool(call.pieces)
            call.given = dict(arguments)
        elif arguments and not repeated:
            self._ambiguous |= call.given is not None
            call.pieces.append(arguments)
        if isinstance(fragment.get("extra_content"), Mapping):
            call.extra["extra_content"] = dict(fragment["extra_content"])


def _starts_another(held: _Open, id_: str, name: str, arguments: str | Mapping[str, Any]) -> bool:
    """Whether a fragment under a known index begins a second call: servers exist that give every call index 0."""
    if not name:
        return False
    if id_ and held.id and id_ != held.id:
        return True
    return held.complete and (bool(arguments) or name != held.name) and not (id_ and id_ == held.id)


def reported(error: Any) -> ProviderError:
    """The ProviderError for an error object (or text) in a body or a stream; what it quotes is never a call."""
    if not isinstance(error, Mapping):
        return ProviderError(f"the endpoint reports an error: {plain(str(error), 300)}")
    words = " ".join(str(error.get(key) or "") for key in ("code", "type", "status")).casefold()
    status = next((_count(error.get(key)) for key in ("code", "status") if _count(error.get(key))), 0)
    passing = status in _PASSING_STATUS or status >= 500 or any(word in words for word in _PASSING_WORDS)
    message = plain(str(error.get("message") or error.get("code") or error.get("type") or "no reason given"), 300)
    return ProviderError(f"the endpoint reports an error: {message}", retryable=passing)


def is_object(text: str) -> bool:
    """True if the text is one whole JSON object."""
    try:
        return isinstance(msgspec.json.decode(text), dict)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return False


def decode(data: str | bytes) -> Any:
    """Decode JSON; half characters (`\\ud83d` alone) that some servers send are let through. ValueError otherwise."""
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeError):
        return json.loads(data)


def utf8(text: str) -> str:
    """The text with split surrogate pairs joined and lone halves replaced, so that it can be sent anywhere."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def _items(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _count(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def _index(fragment: Mapping[str, Any]) -> int | None:
    index = fragment.get("index")
    return index if isinstance(index, int) and not isinstance(index, bool) else None


def _function(fragment: Mapping[str, Any]) -> tuple[str, str | Mapping[str, Any]]:
    function = fragment.get("function")
    if not isinstance(function, Mapping):
        return "", ""
    arguments = function.get("arguments")
    if arguments is None or isinstance(arguments, str | Mapping):
        return _text(function.get("name")), arguments or ""
    return _text(function.get("name")), json.dumps(arguments)


def _visible(content: Any) -> str:
    """The text of a message: a string, or the text parts of a list (thinking parts are not text)."""
    if isinstance(content, str):
        return content
    parts = [part for part in _items(content) if isinstance(part, Mapping) and part.get("type") == "text"]
    return "".join(_text(part.get("text")) for part in parts)


def _same_detail(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return one.get("index") is not None and (one.get("index"), one.get("type")) == (
        other.get("index"),
        other.get("type"),
    )
