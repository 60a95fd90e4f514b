"""Short final answers made from tool results, for the providers that have no model to write them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from zeroclawd.errors import ProviderError
from zeroclawd.messages import Message, Outcome, Role

Say = Callable[..., str]

_LONGEST = 1_000


class NotUnderstood(ProviderError):
    """No template fits the sentence; the text says which sentences would be understood."""


def results_of(history: Sequence[Message]) -> list[Message]:
    """The tool results since somebody last spoke; empty if that somebody still waits for an answer."""
    results: list[Message] = []
    for message in reversed(history):
        if is_result(message):
            results.append(message)
        elif message.role is Role.USER:
            break
    return results[::-1]


def is_result(message: Message) -> bool:
    """Whether a message is a tool's answer; it is one too where it was written as a user message with its outcome."""
    return message.role is Role.TOOL or message.outcome is not None


def asked_by(history: Sequence[Message]) -> str:
    """The raw text of the last message that a person sent; never a tool's output."""
    for message in reversed(history):
        if message.role is Role.USER and not is_result(message):
            plain = message.extra.get("plain")
            return plain if isinstance(plain, str) else message.text
    return ""


def told(say: Say, results: Sequence[Message]) -> str:
    """One line for each result: what is true now, or plainly that and why something was not done."""
    return "\n".join(_one(say, result) for result in results)


def _one(say: Say, result: Message) -> str:
    text = _text(result)
    match result.outcome:
        case Outcome.OK | None:
            return _now(say, result.extra.get("data")) or text or say("intent-done", tool=result.name)
        case Outcome.DUPLICATE:
            return say("intent-outcome-duplicate", tool=result.name)
        case outcome:
            return say(f"intent-outcome-{outcome.value}", tool=result.name, text=text)


def _text(result: Message) -> str:
    plain = result.extra.get("plain")
    text = (plain if isinstance(plain, str) else result.text).strip().removeprefix("Error: ")
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def _now(say: Say, data: Any) -> str:
    """A reading in the reader's language, with its warnings; empty if the data is none."""
    if not isinstance(data, Mapping) or not isinstance(data.get("values"), Mapping) or not data.get("device"):
        return ""
    units = data.get("units") if isinstance(data.get("units"), Mapping) else {}
    values = [
        _value(say, str(name), value, str((units or {}).get(name) or "")) for name, value in data["values"].items()
    ]
    if not values:
        return ""
    line = say("intent-now", device=str(data["device"]), values=say("intent-comma").join(values))
    warnings = data.get("warnings") if isinstance(data.get("warnings"), list) else []
    return "\n".join((line, *(say("intent-warning", text=str(text)) for text in warnings or ())))


def _value(say: Say, name: str, value: Any, unit: str) -> str:
    if isinstance(value, bool):
        shown = say("intent-on" if value else "intent-off")
    else:
        shown = f"{value:.6g}" if isinstance(value, float) else str(value)
    shown = f"{shown} {unit}" if unit else shown
    return shown if name in ("value", "on", "state") else say("intent-named-value", name=name, value=shown)
