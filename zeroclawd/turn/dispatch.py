"""Dispatch: slots become results, one after the other or side by side, and every call answers whatever happens."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from zeroclawd.errors import StoreError, ToolError
from zeroclawd.events import CallStarted, Progress
from zeroclawd.interfaces import Board
from zeroclawd.messages import Outcome, Prepared, Slot, ToolResult
from zeroclawd.tool import Output, ToolContext
from zeroclawd.turn.context import TurnContext, TurnState
from zeroclawd.turn.prepare import entry_of

Then = Callable[[TurnContext, TurnState, ToolResult], Awaitable[ToolResult]]

_GRACE = 5.0


async def dispatch(context: TurnContext, state: TurnState, slots: Sequence[Slot], then: Then) -> list[ToolResult]:
    """Run what is prepared and return one result per slot, in order; each result goes through `then` as it ends."""
    if not side_by_side(context, slots):
        return [await _settle(context, state, slot, then) for slot in slots]
    gate = asyncio.Semaphore(context.runtime.max_parallel)
    over = [asyncio.Event() for _ in slots]

    async def in_turn(place: int) -> ToolResult:
        try:
            for earlier in _in_the_way(slots, place):
                await over[earlier].wait()
            async with gate:
                return await _settle(context, state, slots[place], then)
        finally:
            over[place].set()

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(in_turn(place), name=f"call {slot.call.id}") for place, slot in enumerate(slots)]
    return [task.result() for task in tasks]


def side_by_side(context: TurnContext, slots: Sequence[Slot]) -> bool:
    """True if the calls of this reply may overlap at all; decided after preparation."""
    ready = [slot for slot in slots if isinstance(slot, Prepared)]
    return (
        context.runtime.parallel_tools
        and len(ready) > 1
        and not any(slot.decision is not None and slot.decision.asked for slot in slots)
        and not any(slot.tool.exclusive or slot.call.name == "tool_search" for slot in ready)
    )


def _in_the_way(slots: Sequence[Slot], place: int) -> list[int]:
    """Earlier calls that hold a resource of this one, where at least one of the two changes it."""
    mine = slots[place]
    if not isinstance(mine, Prepared):
        return []
    return [number for number, other in enumerate(slots[:place]) if isinstance(other, Prepared) and _clash(mine, other)]


def _clash(one: Prepared, other: Prepared) -> bool:
    if not (one.assessment.effect.mutates or other.assessment.effect.mutates):
        return False
    unknown = not one.assessment.resources or not other.assessment.resources
    both_change = one.assessment.effect.mutates and other.assessment.effect.mutates
    return bool(one.assessment.resources & other.assessment.resources) or (unknown and both_change)


async def _settle(context: TurnContext, state: TurnState, slot: Slot, then: Then) -> ToolResult:
    state.emit(CallStarted, call_id=slot.call.id, tool=slot.call.name, arguments=dict(slot.call.arguments))
    result = slot if isinstance(slot, ToolResult) else await _execute(context, state, slot)
    return await then(context, state, result)


# One call


async def _execute(context: TurnContext, state: TurnState, slot: Prepared) -> ToolResult:
    if state.cancel.cancelled:
        return _result(slot, Outcome.INTERRUPTED, "the turn was cancelled before this call began")
    intent = 0
    if slot.assessment.effect.mutates:
        if context.stopped():
            return _result(slot, Outcome.BLOCKED, "the emergency stop is engaged; nothing was changed")
        try:
            intent = await _intend(context, state, slot)
        except StoreError:
            return _result(slot, Outcome.BLOCKED, "this call could not be recorded, so it did not run")
    started = time.monotonic()
    outcome, text, data = await _run(context, state, slot)
    return _result(slot, outcome, text, data=data, seconds=time.monotonic() - started, intent_seq=intent)


async def _intend(context: TurnContext, state: TurnState, slot: Prepared) -> int:
    """The row that says what is about to happen, on disk before it does."""
    row = entry_of(context, state, slot.call, slot.assessment, slot.digest, kind="intent", decision=slot.decision)
    return await context.ledger.append(row, sync=True)


async def _run(context: TurnContext, state: TurnState, slot: Prepared) -> tuple[Outcome, str, Any]:
    """Race the tool against the cancel token; a call that had begun an effect and cannot say how it ended is unknown."""
    roles = {Board: context.board, ToolContext: _surroundings(context, state, slot)}
    work = asyncio.ensure_future(_caught(slot, roles))
    watch = asyncio.ensure_future(state.cancel.wait())
    try:
        await asyncio.wait({work, watch}, return_when=asyncio.FIRST_COMPLETED)
        if work.done():
            return work.result()
        work.cancel()
        await asyncio.wait({work}, timeout=_GRACE)
        if work.done() and not work.cancelled():
            return work.result()
        if slot.assessment.effect.mutates:
            return Outcome.UNKNOWN, "cancelled after it had begun; whether it took effect is not known", None
        return Outcome.INTERRUPTED, "cancelled before it had a result", None
    finally:
        watch.cancel()
        if not work.done():
            work.cancel()


async def _caught(slot: Prepared, roles: dict[type, Any]) -> tuple[Outcome, str, Any]:
    """Here a tool's failure becomes a result, keeping what it had said and what went wrong."""
    try:
        output: Output = await slot.tool.run(slot.call.arguments, roles)
    except ToolError as error:
        return Outcome.ERROR, "\n".join(part for part in (error.output, f"Error: {error.text}") if part), None
    except Exception as error:  # a bug in a tool answers its call and ends there
        return Outcome.ERROR, f"Error: {slot.call.name} failed: {type(error).__name__}: {error}", None
    return Outcome.OK, _utf8(output.text) or "(no output)", output.data


def _utf8(text: str) -> str:
    """Text that can be encoded everywhere; a lone surrogate from somebody's bytes becomes a mark."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _surroundings(context: TurnContext, state: TurnState, slot: Prepared) -> ToolContext:
    call_id = slot.call.id
    return ToolContext(
        workspace=context.workspace,
        locale=context.language,
        turn_id=state.turn_id,
        call_id=call_id,
        limits=context.limits,
        progress=lambda text: state.emit(Progress, text=text, call_id=call_id),
    )


def _result(
    slot: Prepared, outcome: Outcome, text: str, *, data: Any = None, seconds: float = 0.0, intent_seq: int = 0
) -> ToolResult:
    return ToolResult(
        slot.call,
        outcome,
        text,
        data=data,
        seconds=seconds,
        decision=slot.decision,
        assessment=slot.assessment,
        digest=slot.digest,
        intent_seq=intent_seq,
    )
