"""Parse: a reply becomes calls; what is damaged becomes a call with a fault, never an exception and never a guess."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from zeroclawd.messages import Finish, RawCall, Reply, ToolCall
from zeroclawd.schema import canonical_name, signature

CUT_OFF = "the reply was cut off before it was complete, so none of its calls ran; send less in one reply"
DAMAGED = "the reply was damaged or withheld by the provider, so none of its calls ran"
_DEEPEST = 32
_TOO_DEEP = f"the arguments are nested more than {_DEEPEST} levels deep; nothing ran"
_FAULTS = {Finish.LENGTH: CUT_OFF, Finish.CUT: CUT_OFF, Finish.ERROR: DAMAGED}


def parse(reply: Reply, *, text_protocol: bool = False, strict: bool = False) -> tuple[str, list[ToolCall]]:
    """The reply's visible text and its calls in order; a call that cannot be run as given says so in `fault`.

    Native calls switch text parsing off; `strict` never reads calls from text.
    """
    text = without_reasoning(reply.text)
    raws = list(reply.calls)
    if not raws and text_protocol and not strict:
        text, raws = tagged(text)
    fault = _FAULTS.get(reply.finish, "")
    return text.strip(), [_call(raw, call_id, fault) for raw, call_id in zip(raws, _ids(raws), strict=True)]


def _ids(raws: list[RawCall]) -> Iterator[str]:
    """The provider's ids where they are there and differ; a call's own place in the reply settles the rest."""
    used = {raw.id for raw in raws}
    given: set[str] = set()
    for place, raw in enumerate(raws):
        call_id = raw.id
        if not call_id or call_id in given:
            call_id = next(name for name in _fresh(raw.id or "call", place) if name not in used | given)
        given.add(call_id)
        yield call_id


def _fresh(stem: str, place: int) -> Iterator[str]:
    yield f"{stem}_{place}"
    number = 0
    while True:
        number += 1
        yield f"{stem}_{place}_{number}"


def _call(raw: RawCall, call_id: str, fault: str) -> ToolCall:
    name = canonical_name(raw.name) if isinstance(raw.name, str) else ""
    arguments, damage = arguments_of(raw.arguments)
    if not name:
        damage = damage or "the call names no tool"
    return ToolCall(call_id, name, arguments, signature(name, arguments), fault or damage)


def arguments_of(given: str | Mapping[str, Any] | None) -> tuple[dict[str, Any], str]:
    """Arguments as an object, and what is wrong with them; blank text is no arguments, broken text is a fault."""
    if isinstance(given, Mapping):
        return (dict(given), "") if _shallow(given, _DEEPEST) else ({}, _TOO_DEEP)
    if given is None or not str(given).strip():
        return {}, ""
    try:
        value = json.loads(given, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        return {}, f"the arguments are not valid JSON ({error}); nothing ran"
    if isinstance(value, str):
        value = _inner_object(value)
    if value is None:
        return {}, ""
    if not isinstance(value, dict):
        return {}, "the arguments are not a JSON object; nothing ran"
    return (value, "") if _shallow(value, _DEEPEST) else ({}, _TOO_DEEP)


def _shallow(value: Any, levels: int) -> bool:
    inner = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    return levels > 0 and all(_shallow(one, levels - 1) for one in inner)


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON number")


def _inner_object(text: str) -> Any:
    """One extra level of encoding is undone, if an object comes out."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return value if isinstance(value, dict) else text


# Reasoning and code are never calls


_THINK = re.compile(r"<think(?:ing)?>.*?(?:</think(?:ing)?>|\Z)", re.DOTALL | re.IGNORECASE)


def without_reasoning(text: str) -> str:
    """The text without think blocks; one that is never closed swallows the rest."""
    return _THINK.sub("", text)


_FENCE = re.compile(r"^(```|~~~)[^\n]*\n.*?(?:^\1[ \t]*$|\Z)", re.DOTALL | re.MULTILINE)
_SPAN = re.compile(r"(`+)(?!`).+?(?<!`)\1(?!`)", re.DOTALL)


def _code_ranges(text: str) -> list[tuple[int, int]]:
    return [match.span() for pattern in (_FENCE, _SPAN) for match in pattern.finditer(text)]


# The text protocol: <tool_call>{"name": ..., "arguments": {...}}</tool_call>


_OPEN = "<tool_call>"
_CLOSE = "</tool_call>"
_decoder = json.JSONDecoder(parse_constant=_no_constant)


def tagged(text: str) -> tuple[str, list[RawCall]]:
    """Calls between tags; each ends where its JSON value ends, so a tag inside a string is only text."""
    code = _code_ranges(text)
    kept: list[str] = []
    calls: list[RawCall] = []
    at = 0
    while (start := text.find(_OPEN, at)) >= 0:
        if any(low <= start < high for low, high in code):
            kept.append(text[at : start + len(_OPEN)])
            at = start + len(_OPEN)
            continue
        kept.append(text[at:start])
        found, at = _one_tagged(text, start + len(_OPEN))
        calls.extend(found)
    return "".join((*kept, text[at:])), calls


def _one_tagged(text: str, at: int) -> tuple[list[RawCall], int]:
    start = at + len(text[at:]) - len(text[at:].lstrip())
    try:
        value, end = _decoder.raw_decode(text, start)
    except (ValueError, RecursionError):
        close = text.find(_CLOSE, at)
        broken = text[at:close] if close >= 0 else text[at:]
        return [RawCall("", _name_in(broken), broken.strip() or "nothing between the tags")], close + len(
            _CLOSE
        ) if close >= 0 else len(text)
    after = end + len(text[end:]) - len(text[end:].lstrip())
    if text.startswith(_CLOSE, after):
        after += len(_CLOSE)
    return list(_from_values(value)), after


def _from_values(value: Any) -> Iterable[RawCall]:
    for item in value if isinstance(value, list) else [value]:
        if not isinstance(item, dict) or not isinstance(item.get("name"), str):
            yield RawCall("", "", json.dumps(item))
            continue
        arguments = item.get("arguments", item.get("parameters", {}))
        given = arguments if isinstance(arguments, dict | str) else json.dumps(arguments)
        yield RawCall(str(item.get("id") or ""), item["name"], given)


def _name_in(broken: str) -> str:
    """The name in a damaged call, so that its error can say which call it was."""
    match = re.search(r'"name"\s*:\s*"([^"\\]{1,64})"', broken)
    return match[1] if match else "unknown"
