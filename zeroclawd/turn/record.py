"""Record: a result gets its receipt, its ledger row and its end event, and the loop detector hears of it."""

from __future__ import annotations

import hashlib
import logging
from dataclasses import replace

from zeroclawd import signing
from zeroclawd.errors import StoreError
from zeroclawd.events import CallEnded
from zeroclawd.messages import Outcome, ToolResult
from zeroclawd.schema import canonical_name
from zeroclawd.turn.context import TurnContext, TurnState
from zeroclawd.turn.framing import shown
from zeroclawd.turn.prepare import entry_of

log = logging.getLogger(__name__)

REPEATS = 4
"""How often the same call may give the same result before the turn is stopped."""


async def record(context: TurnContext, state: TurnState, result: ToolResult) -> ToolResult:
    """Give one result its receipt and what the model will see of it, and write down that it happened."""
    result = _with_receipt(context, result)
    result = replace(result, shown=shown(result, state.nonce, context.runtime.max_tool_result_chars))
    await _write(context, state, result)
    _watch_for_loops(context, state, result)
    state.emit(
        CallEnded,
        call_id=result.call.id,
        tool=result.call.name,
        outcome=result.outcome,
        seconds=result.seconds,
        text=result.text,
        receipt=result.receipt.token if result.receipt else "",
        decided_by=result.decision.by if result.decision else "",
    )
    _after_hooks(context, result)
    return result


def looping(state: TurnState) -> str:
    """The call that goes round in circles, or empty: equal arguments and equal results, other calls between or not."""
    for signature, count in state.repeats.items():
        if count > REPEATS:
            return signature.partition(" ")[0]
    return ""


def _with_receipt(context: TurnContext, result: ToolResult) -> ToolResult:
    if context.receipts is None or result.outcome is not Outcome.OK:
        return result
    now = int(context.clock.wall())
    call = result.call
    return replace(result, receipt=context.receipts.issue(call.id, call.name, call.arguments, result.text, now))


async def _write(context: TurnContext, state: TurnState, result: ToolResult) -> None:
    """The outcome row; an effect's row is on disk before anybody hears of it, a reading's needs no sync."""
    row = entry_of(
        context,
        state,
        result.call,
        result.assessment,
        result.digest,
        kind="outcome",
        decision=result.decision,
        outcome=result.outcome.value,
        result_digest=_digest(context, result.text),
        shown_digest=_digest(context, result.shown),
        receipt=result.receipt.token if result.receipt else "",
        note=context.redactor.text(result.text, 200) if result.outcome is not Outcome.OK else "",
    )
    try:
        await context.ledger.append(row, sync=result.intent_seq > 0)
    except StoreError as error:
        # An effect has happened and its intent is on disk: the next boot reports it as unknown. Of readings the store's
        # own complaint is enough.
        level = logging.ERROR if result.intent_seq else logging.DEBUG
        log.log(level, "outcome_not_recorded call=%s tool=%s error=%s", result.call.id, result.call.name, error.text)


def _digest(context: TurnContext, text: str) -> str:
    return signing.keyed_digest(context.digest_key, "result", text)


def _watch_for_loops(context: TurnContext, state: TurnState, result: ToolResult) -> None:
    if result.call.name in {canonical_name(name) for name in context.runtime.loop_ignore_tools}:
        return
    if len(state.seen) == state.seen.maxlen:
        state.repeats[state.seen[0]] -= 1
    told = hashlib.sha256(result.text.encode("utf-8", "replace")).hexdigest()
    state.seen.append(f"{result.call.signature} {told}")
    state.repeats[state.seen[-1]] += 1


def _after_hooks(context: TurnContext, result: ToolResult) -> None:
    for hook in context.after_hooks:
        try:
            hook(result)
        except Exception:  # what looks on must not undo what was done
            log.exception("after_hook_failed tool=%s", result.call.name)
