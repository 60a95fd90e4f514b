"""Request: the history and the specs go to the model, its reply comes back."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace

import msgspec

from zeroclawd.errors import ProviderError
from zeroclawd.events import Chunk, ModelAnswered, ModelAsked
from zeroclawd.interfaces import ModelRequest
from zeroclawd.messages import Message, Reply, Role
from zeroclawd.tool import ToolSpec
from zeroclawd.turn.context import TurnContext, TurnState
from zeroclawd.turn.framing import EXPLANATION


class Cancelled(Exception):
    """The turn was cancelled while the model was thinking."""


async def request(context: TurnContext, state: TurnState) -> Reply:
    """Ask the model; raises ProviderError, or Cancelled if the turn is cancelled meanwhile."""
    asked = _compose(context, state)
    state.emit(
        ModelAsked,
        provider=context.provider.name,
        round=state.round,
        messages=len(asked.messages),
        tools=len(context.catalog.tools),
    )
    started = time.monotonic()
    try:
        reply = await _or_cancelled(context, state, asked)
    except ProviderError as error:
        _answered(context, state, started, error=error.text)
        raise
    _answered(context, state, started, reply=reply)
    return reply


async def _or_cancelled(context: TurnContext, state: TurnState, asked: ModelRequest) -> Reply:
    async with asyncio.TaskGroup() as group:
        model = group.create_task(
            _complete(context, asked, lambda text: state.emit(Chunk, text=text)), name=f"model {state.turn_id}"
        )
        watch = group.create_task(state.cancel.wait(), name=f"cancel {state.turn_id}")
        await asyncio.wait({model, watch}, return_when=asyncio.FIRST_COMPLETED)
        watch.cancel()
        if not model.done():
            model.cancel()
    if model.cancelled():
        raise Cancelled
    outcome = model.result()
    if isinstance(outcome, ProviderError):
        raise outcome
    return outcome


async def _complete(context: TurnContext, asked: ModelRequest, on_text: object) -> Reply | ProviderError:
    """A provider's failure as a value, so that it does not end the group as an exception group."""
    try:
        return await context.provider.complete(asked, on_text)  # type: ignore[arg-type]
    except ProviderError as error:
        return error


def _answered(
    context: TurnContext, state: TurnState, started: float, *, reply: Reply | None = None, error: str = ""
) -> None:
    state.emit(
        ModelAnswered,
        provider=str(reply.extra.get("from", "")) or context.provider.name if reply else context.provider.name,
        round=state.round,
        seconds=time.monotonic() - started,
        calls=len(reply.calls) if reply else 0,
        input_tokens=reply.usage.input_tokens if reply else 0,
        output_tokens=reply.usage.output_tokens if reply else 0,
        error=error,
    )


# Composing the request


def _compose(context: TurnContext, state: TurnState) -> ModelRequest:
    specs = context.catalog.specs()
    system = Message(Role.SYSTEM, "\n\n".join(part for part in _system(context, specs) if part))
    history = [_as_text(message) for message in state.history] if context.text_protocol else state.history
    return ModelRequest((system, *history), specs, session=state.inbound.session, locale=context.language)


def _system(context: TurnContext, specs: Sequence[ToolSpec]) -> list[str]:
    receipts = context.receipts is not None and context.receipt_settings.inject_system_prompt
    return [
        context.system_prompt or context.texts("prompt-system", agent=context.agent, node=context.node),
        EXPLANATION,
        context.texts("prompt-receipts") if receipts else "",
        _protocol(context, specs) if context.text_protocol and not context.runtime.strict_tool_parsing else "",
    ]


def _protocol(context: TurnContext, specs: Sequence[ToolSpec]) -> str:
    """How a model without native calls writes them."""
    if not specs:
        return ""
    lines = [context.texts("prompt-text-protocol")]
    for spec in specs:
        schema = msgspec.json.encode(spec.parameters).decode()
        lines.append(f"- {spec.name}: {spec.description} {schema}")
    return "\n".join(lines)


def _as_text(message: Message) -> Message:
    """History for a model that knows no tool role: its calls stand in its own text, results come as user messages."""
    match message.role:
        case Role.TOOL:
            return replace(message, role=Role.USER, text=f"{message.name}: {message.text}", call_id="")
        case Role.ASSISTANT if message.calls:
            return Message(Role.ASSISTANT, message.text, extra=message.extra)
        case _:
            return message
