"""Writes a history in the dialect of chat completions: string arguments, tool messages by id, no empty lists."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from zeroclawd.messages import Message, Role, ToolCall
from zeroclawd.providers.assemble import utf8
from zeroclawd.tool import ToolSpec


def messages(history: Sequence[Message], provider: str) -> list[dict[str, Any]]:
    """The `messages` of a request; what a provider wants to see again goes only to the provider that said it.

    Reasoning text is sent back within the turn that it belongs to: later it costs tokens, and some endpoints refuse it.
    """
    turn = max((place for place, message in enumerate(history) if message.role is Role.USER), default=-1)
    sound = _own_ids(history)
    return [_message(message, provider, place > turn) for place, message in enumerate(sound)]


def _own_ids(history: Sequence[Message]) -> Iterator[Message]:
    """The history with a new id for each call whose id an earlier call had: some endpoints refuse the second one.

    Servers that give no ids, or number them anew in every reply, make such histories.
    """
    used: set[str] = set()
    renamed: dict[str, str] = {}
    for message in history:
        if message.calls:
            renamed = {call.id: _unused(call.id, used) for call in message.calls}
            used.update(renamed.values())
            calls = tuple(replace(call, id=renamed[call.id]) for call in message.calls)
            yield message if calls == message.calls else replace(message, calls=calls)
        elif message.role is Role.TOOL and renamed.get(message.call_id, message.call_id) != message.call_id:
            yield replace(message, call_id=renamed[message.call_id])
        else:
            yield message


def _unused(wanted: str, used: set[str]) -> str:
    return next(name for name in (wanted, *(f"{wanted}_{n}" for n in range(1, len(used) + 2))) if name not in used)


def tools(specs: Sequence[ToolSpec]) -> list[dict[str, Any]]:
    """The `tools` of a request."""
    return [
        {
            "type": "function",
            "function": {"name": spec.name, "description": spec.description, "parameters": spec.parameters},
        }
        for spec in specs
    ]


def _message(message: Message, provider: str, current: bool) -> dict[str, Any]:
    match message.role:
        case Role.ASSISTANT:
            return _assistant(message, provider, current)
        case Role.TOOL:
            return {"role": "tool", "tool_call_id": message.call_id, "content": utf8(message.text)}
        case role:
            return {"role": role.value, "content": utf8(message.text)}


def _assistant(message: Message, provider: str, current: bool) -> dict[str, Any]:
    kept = message.extra if message.extra.get("from", provider) == provider else {}
    wire: dict[str, Any] = {"role": "assistant", "content": utf8(message.text)}
    if message.calls:
        wire["content"] = utf8(message.text) or None
        extras = kept.get("calls")
        extras = extras if isinstance(extras, list) and len(extras) == len(message.calls) else [{}] * len(message.calls)
        wire["tool_calls"] = [_call(call, extra) for call, extra in zip(message.calls, extras, strict=True)]
    keys = ("reasoning_content", "reasoning_details", "extra_content") if current else _LASTING
    return wire | {key: kept[key] for key in keys if kept.get(key)}


_LASTING = ("reasoning_details", "extra_content")


def _call(call: ToolCall, extra: Mapping[str, Any]) -> dict[str, Any]:
    function = {"name": call.name, "arguments": _arguments(call.arguments)}
    kept = {key: value for key, value in extra.items() if key == "extra_content"}
    return {"id": call.id, "type": "function", "function": function} | kept


def _arguments(arguments: Mapping[str, Any]) -> str:
    """Always the text of a JSON object: strict servers refuse the whole history otherwise."""
    try:
        return msgspec.json.encode(arguments).decode()
    except UnicodeEncodeError:
        return json.dumps(arguments)
