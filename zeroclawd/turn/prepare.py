"""Prepare: every call of a reply gets its slot, ready to run or already answered, before any of them runs."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from zeroclawd import policy, signing
from zeroclawd.errors import DeviceError, StoreError
from zeroclawd.events import QuestionAsked, QuestionEnded
from zeroclawd.messages import (
    Decision,
    Entry,
    Outcome,
    Prepared,
    Question,
    Slot,
    Source,
    ToolCall,
    ToolResult,
    Verdict,
)
from zeroclawd.schema import BadArguments, canonical, canonical_name, signature
from zeroclawd.tool import Assessment, Effect, Risk, Tool
from zeroclawd.turn.context import TurnContext, TurnState


@dataclass(slots=True)
class Walk:
    """One call on its way through the steps; `seen` and `asked` hold the signatures of this reply."""

    context: TurnContext
    state: TurnState
    call: ToolCall
    seen: set[str]
    asked: set[str]
    tool: Tool | None = None
    assessment: Assessment = field(default_factory=lambda: Assessment(Risk.HIGH, Effect.UNKNOWN))
    decision: Decision = field(default_factory=lambda: Decision(False, Source.POLICY))
    digest: str = ""

    def end(self, outcome: Outcome, text: str, *, ends_turn: bool = False) -> ToolResult:
        """Answer the call here; it does not run."""
        return ToolResult(
            self.call,
            outcome,
            text,
            decision=self.decision,
            assessment=self.assessment if self.tool else None,
            digest=self.digest,
            ends_turn=ends_turn,
        )


Step = Callable[[Walk], Awaitable[ToolResult | None]]


async def prepare(context: TurnContext, state: TurnState, calls: list[ToolCall]) -> list[Slot]:
    """One slot per call, in the order of the calls."""
    seen: set[str] = set()
    asked: set[str] = set()
    return [await _walk(Walk(context, state, call, seen, asked)) for call in calls]


async def _walk(walk: Walk) -> Slot:
    if walk.state.cancel.cancelled:
        return walk.end(Outcome.INTERRUPTED, "the turn was cancelled before this call began")
    for step in STEPS:
        try:
            ended = await step(walk)
        except StoreError:
            return walk.end(Outcome.BLOCKED, "the decision could not be recorded, so the call did not run")
        if ended is not None:
            return ended
    if walk.tool is None:
        raise RuntimeError("a call without a tool passed every step")
    return Prepared(walk.call, walk.tool, walk.assessment, walk.decision, walk.digest)


# The steps, in their order


async def run_before_hooks(walk: Walk) -> ToolResult | None:
    """Hooks may rename a call, change its arguments or stop it; one that fails denies."""
    if walk.call.fault:
        return None
    for hook in walk.context.before_hooks:
        try:
            answer = await hook(walk.call.name, walk.call.arguments)
        except Exception as error:  # a hook guards; if it cannot answer, the answer is no
            walk.decision = Decision(False, Source.FAILED, by="hook", reason=str(error))
            return walk.end(Outcome.BLOCKED, "a check before this call failed, so it did not run")
        if answer.stop:
            walk.decision = Decision(False, Source.POLICY, by="hook", reason=answer.stop)
            return walk.end(Outcome.BLOCKED, f"stopped before it ran: {answer.stop}")
        _change(walk, canonical_name(answer.name), answer.arguments)
    return None


async def fill_delivery_defaults(walk: Walk) -> ToolResult | None:
    """A tool that speaks to a channel speaks to the one that the message came from, unless the call says otherwise."""
    tool = walk.context.catalog.find(walk.call.name)
    takes = tool.spec.parameters.get("properties", {}) if tool else {}
    if "channel" in takes and not str(walk.call.arguments.get("channel", "")).strip():
        _change(walk, walk.call.name, {**walk.call.arguments, "channel": walk.state.ingress.channel})
    return None


async def strip_approved_markers(walk: Walk) -> ToolResult | None:
    """A model cannot approve itself: whatever it says about being approved is taken out, at any depth and spelling."""
    bare = _without_markers(walk.call.arguments)
    if bare != walk.call.arguments:
        _change(walk, walk.call.name, bare)
    return None


async def check_arguments(walk: Walk) -> ToolResult | None:
    """The tool exists here, the arguments fit its schema, the device is known; then the call's risk is known too."""
    if walk.call.fault:
        return walk.end(Outcome.ERROR, walk.call.fault)
    tool = walk.context.catalog.find(walk.call.name)
    if tool is None:
        return _no_such_tool(walk)
    try:
        _change(walk, tool.name, tool.check(walk.call.arguments))
        assessment = tool.assess(walk.call.arguments)
        device = walk.context.board.device(assessment.device) if assessment.device else None
    except (BadArguments, DeviceError) as error:
        return walk.end(Outcome.ERROR, str(error))
    if twice := policy.repeatable(walk.state.inbound.once, assessment, device is None or device.idempotent):
        return walk.end(Outcome.BLOCKED, f"not run: {twice}")
    walk.tool = tool
    walk.assessment = policy.floor(assessment, device.risk if device else None)
    walk.digest = digest_of(walk.context, walk.call)
    return None


async def guard_repeated_prompt(walk: Walk) -> ToolResult | None:
    """An operator is asked once per call and reply; what was refused in this turn is not asked again, and ends it."""
    if walk.call.signature in walk.asked:
        return walk.end(Outcome.DUPLICATE, "the same call was already put to an operator in this reply; see its result")
    if walk.call.signature in walk.state.refused:
        walk.decision = Decision(False, Source.POLICY, reason="refused earlier in this turn")
        text = "this call was refused earlier in this turn and is not asked again"
        return walk.end(Outcome.DENIED, text, ends_turn=True)
    return None


async def ask_approval(walk: Walk) -> ToolResult | None:
    """Policy rules; where it says ask, a grant or an operator answers."""
    answer = policy.rule(walk.context.profile, walk.call.name, walk.assessment)
    match answer.ruling:
        case policy.Ruling.RUN:
            walk.decision = Decision(True, Source.POLICY, by="policy", reason=answer.reason)
            return None
        case policy.Ruling.BLOCK:
            walk.decision = Decision(False, Source.POLICY, by="policy", reason=answer.reason)
            await _note_decision(walk)
            return walk.end(Outcome.BLOCKED, f"not run: {answer.reason}")
    walk.decision = await _granted(walk) or await _ask(walk)
    await _note_decision(walk)
    return None if walk.decision.allowed else _refusal(walk)


async def restore_marker(walk: Walk) -> ToolResult | None:
    """The decision rides on the slot, not in the arguments; it holds only for the very bytes that were decided on."""
    if digest_of(walk.context, walk.call) != walk.digest:
        return walk.end(Outcome.BLOCKED, "the arguments changed after the decision, so the call did not run")
    return None


async def guard_duplicate(walk: Walk) -> ToolResult | None:
    """Equal calls of one reply run once, unless the tool may be repeated."""
    exempt = {canonical_name(name) for name in walk.context.runtime.tool_call_dedup_exempt}
    repeatable = walk.tool is not None and (walk.tool.repeatable or walk.call.name in exempt)
    if walk.call.signature in walk.seen and not repeatable:
        return walk.end(Outcome.DUPLICATE, "an equal call stands earlier in this reply and runs once; see its result")
    walk.seen.add(walk.call.signature)
    return None


STEPS: tuple[Step, ...] = (
    run_before_hooks,
    fill_delivery_defaults,
    strip_approved_markers,
    check_arguments,
    guard_repeated_prompt,
    ask_approval,
    restore_marker,
    guard_duplicate,
)


# What the steps share


def digest_of(context: TurnContext, call: ToolCall) -> str:
    """The keyed digest that binds an approval and a ledger row to the exact tool and arguments."""
    return signing.keyed_digest(context.digest_key, "arguments", call.name, canonical(call.arguments))


def _change(walk: Walk, name: str, arguments: Mapping[str, Any]) -> None:
    walk.call = replace(walk.call, name=name, arguments=dict(arguments), signature=signature(name, arguments))


_LETTERS = re.compile(r"[^a-z]")


def _is_marker(key: object) -> bool:
    return "approved" in _LETTERS.sub("", unicodedata.normalize("NFKC", str(key)).casefold())


def _without_markers(value: Any) -> Any:
    match value:
        case Mapping():
            return {key: _without_markers(inner) for key, inner in value.items() if not _is_marker(key)}
        case list() | tuple():
            return [_without_markers(inner) for inner in value]
    return value


def _no_such_tool(walk: Walk) -> ToolResult:
    if walk.context.everything.find(walk.call.name):
        return walk.end(Outcome.BLOCKED, f"{walk.call.name} is not available in this turn")
    known = ", ".join(sorted(walk.context.catalog.tools)) or "none"
    return walk.end(Outcome.ERROR, f"there is no tool {walk.call.name!r}; there are: {known}")


async def _granted(walk: Walk) -> Decision | None:
    grants = await walk.context.questions.grants()
    grant = policy.granted(
        grants,
        principal=walk.state.ingress.principal,
        tool=walk.call.name,
        digest=walk.digest,
        device=walk.assessment.device,
        now=walk.context.clock.wall(),
    )
    if grant is None:
        return None
    return Decision(True, Source.GRANT, by=grant.granted_by, request_id=grant.id, reason="granted earlier", asked=True)


async def _ask(walk: Walk) -> Decision:
    walk.asked.add(walk.call.signature)
    approver = walk.context.approver
    if approver is None:
        return Decision(False, Source.UNAVAILABLE, by="runtime", reason="nobody can be asked", asked=True)
    question = _question(walk)
    walk.state.emit(
        QuestionAsked,
        call_id=walk.call.id,
        request_id=question.request_id,
        tool=question.tool,
        summary=question.summary,
        expires_at=question.expires_at,
    )
    try:
        decision = await approver.ask(question, walk.state.cancel)
    except StoreError as error:
        decision = Decision(False, Source.FAILED, by="runtime", reason=error.text, request_id=question.request_id)
    walk.state.emit(
        QuestionEnded,
        call_id=walk.call.id,
        request_id=question.request_id,
        source=decision.source,
        by=decision.by,
        allowed=decision.allowed,
    )
    return replace(decision, asked=True, request_id=decision.request_id or question.request_id)


def _question(walk: Walk) -> Question:
    context, call = walk.context, walk.call
    lifetime = float(context.profile.approval_timeout)
    now = context.clock.wall()
    device = context.board.device(walk.assessment.device) if walk.assessment.device else None
    arguments = context.redactor.known(dict(call.arguments))
    return Question(
        request_id=context.new_id(),
        nonce=context.new_id(),
        node=context.node,
        boot_id=context.boot_id,
        agent=context.agent,
        turn_id=walk.state.turn_id,
        call_id=call.id,
        tool=call.name,
        device=walk.assessment.device,
        risk=walk.assessment.risk,
        arguments=arguments,
        digest=walk.digest,
        summary=_summary(context, call.name, walk.assessment, arguments),
        requested_by=walk.state.ingress.principal,
        channel=walk.state.ingress.channel,
        issued_at=now,
        expires_at=now + lifetime,
        lifetime=lifetime,
        need=device.quorum if device else 1,
    )


def _summary(context: TurnContext, tool: str, assessment: Assessment, arguments: Mapping[str, Any]) -> str:
    """One line for a phone; what it shortens it says, and the question holds all arguments."""
    listed = canonical(arguments).decode()
    short = listed if len(listed) <= 160 else f"{listed[:150]}… ({len(listed)})"
    own = context.texts(f"approval-{tool.replace('_', '-')}", device=assessment.device, **_scalars(arguments))
    if own != f"approval-{tool.replace('_', '-')}":
        return own
    return context.texts("approval-call", tool=tool, arguments=short)


def _scalars(arguments: Mapping[str, Any]) -> dict[str, str]:
    return {
        key.replace("_", "-"): {True: "on", False: "off"}.get(value, "") if isinstance(value, bool) else str(value)[:80]
        for key, value in arguments.items()
        if key != "device" and isinstance(value, str | int | float)
    }


def _refusal(walk: Walk) -> ToolResult:
    walk.state.refused.add(walk.call.signature)
    decision = walk.decision
    if decision.verdict is Verdict.REPLACE and decision.replacement is not None:
        return walk.end(Outcome.REPLACED, decision.replacement)
    match decision.source:
        case Source.OPERATOR:
            why = f": {decision.reason}" if decision.reason else ""
            return walk.end(Outcome.DENIED, f"an operator said no{why}; it did not run")
        case Source.TIMED_OUT:
            text = "no operator answered in time; the question has expired and the call did not run"
        case Source.UNREACHABLE:
            text = "no operator could be reached, so the runtime refused the call; it did not run"
        case Source.UNAVAILABLE:
            text = "this call needs an operator and none can be asked here, so the runtime refused it; it did not run"
        case Source.CANCELLED:
            text = "the turn was cancelled while an operator was being asked; it did not run"
        case Source.RESTARTED:
            text = "the daemon restarted while an operator was being asked; it did not run"
        case _:
            text = "the question could not be asked or recorded, so the runtime refused the call; it did not run"
    return walk.end(Outcome.DENIED, text)


async def _note_decision(walk: Walk) -> None:
    """The conclusion for one call; the channel has recorded each answer that led to it."""
    decision = walk.decision
    await walk.context.ledger.append(
        entry_of(walk.context, walk.state, walk.call, walk.assessment, walk.digest, kind="decision", decision=decision),
        sync=False,
    )


def entry_of(
    context: TurnContext,
    state: TurnState,
    call: ToolCall,
    assessment: Assessment | None,
    digest: str,
    *,
    kind: str,
    decision: Decision | None,
    **more: str,
) -> Entry:
    """A ledger row about a call, its arguments scrubbed."""
    verdict = "" if decision is None else ("allowed" if decision.allowed else "refused")
    return Entry(
        kind,
        turn_id=state.turn_id,
        call_id=call.id,
        agent=context.agent,
        channel=state.ingress.channel,
        principal=state.ingress.principal,
        tool=call.name,
        device=assessment.device if assessment else "",
        risk=assessment.risk.word if assessment else "",
        arguments=context.redactor.text(canonical(context.redactor.data(dict(call.arguments))).decode(), 4096),
        arguments_digest=digest,
        decision=f"{verdict}:{decision.source}" if decision else "",
        decided_by=decision.by if decision else "",
        approval_id=decision.request_id if decision else "",
        note=more.pop("note", "") or (context.redactor.text(decision.reason, 500) if decision else ""),
        **more,
    )
