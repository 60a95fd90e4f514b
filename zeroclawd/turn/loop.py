"""The loop: a message becomes a turn; reads like the table of stages."""

from __future__ import annotations

import time
from collections.abc import Sequence

from zeroclawd import receipts
from zeroclawd.errors import ProviderError
from zeroclawd.events import HistoryTrimmed, TurnEnded, TurnStarted
from zeroclawd.frozen import dataclass
from zeroclawd.messages import Message, Outcome, Role, ToolResult
from zeroclawd.turn.append import append, repaired, trimmed
from zeroclawd.turn.context import TurnContext, TurnState
from zeroclawd.turn.dispatch import dispatch
from zeroclawd.turn.framing import user_message
from zeroclawd.turn.parse import parse
from zeroclawd.turn.prepare import prepare
from zeroclawd.turn.record import looping, record
from zeroclawd.turn.request import Cancelled, request


@dataclass(frozen=True, slots=True)
class TurnEnd:
    """How a turn ended: `how` is finished, cancelled, capped, stopped or failed; `flags` are warnings for the reader."""

    how: str
    text: str
    results: tuple[ToolResult, ...]
    flags: tuple[str, ...] = ()


async def run_turn(context: TurnContext, state: TurnState) -> TurnEnd:
    """Serve one message; the history in `state` is complete and sound when this returns, however the turn ends."""
    started = time.monotonic()
    _begin(context, state)
    try:
        how, text = await _rounds(context, state)
    except Cancelled:
        how, text = "cancelled", context.texts("turn-cancelled", reason=state.cancel.reason, done=_done(state))
    except ProviderError as error:
        how, text = "failed", context.texts("turn-failed", reason=context.redactor.text(error.text, 300))
    return _finish(context, state, how, text, started)


async def _rounds(context: TurnContext, state: TurnState) -> tuple[str, str]:
    while state.round < context.runtime.max_tool_iterations:
        state.round += 1
        _take_steering(state)
        if state.cancel.cancelled:
            raise Cancelled
        reply = await request(context, state)
        text, calls = parse(reply, text_protocol=context.text_protocol, strict=context.runtime.strict_tool_parsing)
        if not calls:
            return "finished", text or context.texts("turn-empty")
        slots = await prepare(context, state, calls)
        results = await dispatch(context, state, slots, then=record)
        append(context, state, reply, text, [result.call for result in results], results)
        if stop := _reason_to_stop(context, state, results):
            return "stopped", stop
    return "capped", context.texts("turn-capped", rounds=state.round, done=_done(state))


def _begin(context: TurnContext, state: TurnState) -> None:
    state.agent = context.agent
    state.history[:] = repaired(state.history)
    state.history.append(user_message(state.inbound.text, state.ingress, state.nonce))
    state.emit(
        TurnStarted, command_id=state.inbound.id, principal=state.ingress.principal, session=state.inbound.session
    )


def _take_steering(state: TurnState) -> None:
    """Messages that reached a running turn join it before the next request."""
    while not state.steering.empty():
        state.history.append(user_message(state.steering.get_nowait(), state.ingress, state.nonce))


def _reason_to_stop(context: TurnContext, state: TurnState, results: Sequence[ToolResult]) -> str:
    refused = next((result for result in results if result.ends_turn), None)
    if refused:
        return context.texts("turn-refused-again", tool=refused.call.name, done=_done(state))
    if tool := looping(state):
        return context.texts("turn-looping", tool=tool, done=_done(state))
    return ""


def _finish(context: TurnContext, state: TurnState, how: str, text: str, started: float) -> TurnEnd:
    flags = _flags(context, state, text)
    state.history.append(Message(Role.ASSISTANT, text))
    _trim(context, state)
    if context.receipt_settings.show_in_response and state.receipts:
        lines = "\n".join(f"  {receipt.tool}: {receipt.token}" for receipt in state.receipts)
        text = f"{text}\n---\n{context.texts('receipts-heading')}\n{lines}"
    state.emit(
        TurnEnded,
        command_id=state.inbound.id,
        how=how,
        seconds=time.monotonic() - started,
        rounds=state.round,
        text=text,
    )
    return TurnEnd(how, text, tuple(state.results), flags)


def _trim(context: TurnContext, state: TurnState) -> None:
    kept = trimmed(state.history, context.runtime.max_history_messages)
    if dropped := len(state.history) - len(kept):
        state.history[:] = kept
        state.emit(HistoryTrimmed, dropped=dropped, kept=len(kept))


def _flags(context: TurnContext, state: TurnState, text: str) -> tuple[str, ...]:
    """A receipt in the reply that no call of this turn was given is told to the reader."""
    return tuple(context.texts("receipt-foreign", token=token) for token in receipts.foreign(text, state.receipts))


def _done(state: TurnState) -> str:
    """What was done, for a turn that ends early: one line a call."""
    lines = [
        f"{result.call.name}: {result.outcome}" for result in state.results if result.outcome is not Outcome.DUPLICATE
    ]
    return "; ".join(lines) or "-"
