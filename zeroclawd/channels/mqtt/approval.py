"""Carries questions to operators over the broker and judges their answers; a refused answer leaves its question open."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import math
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any

import msgspec

from zeroclawd import policy, signing
from zeroclawd.channels.mqtt import envelope
from zeroclawd.channels.mqtt.envelope import Answer, rfc3339
from zeroclawd.channels.mqtt.identity import Identities
from zeroclawd.channels.mqtt.link import Delivery, Link, PublishRefused
from zeroclawd.channels.mqtt.post import Post
from zeroclawd.channels.mqtt.refusals import Refusals
from zeroclawd.channels.mqtt.topics import Topics
from zeroclawd.errors import ChannelError, RefusedMessage, StoreError
from zeroclawd.frozen import dataclass
from zeroclawd.interfaces import CancelToken, Clock, Ledger, Parcel, Questions
from zeroclawd.messages import Decision, Entry, Grant, Question, Source, Verdict
from zeroclawd.schema import canonical

CONNECT_PATIENCE = 5.0
REMEMBERED = 512


_Why = tuple[Source, str]
_LATE: _Why = (Source.TIMED_OUT, "no operator answered in time")


@dataclass(frozen=True, slots=True)
class Rules:
    """What decides who may answer: whether a sender may, what may stay unsigned, and which groups a device is in."""

    sender_may_approve: bool = False
    allow_unsigned: str = "none"
    device_groups: Mapping[str, Sequence[str]] = field(default_factory=dict)
    limit: int = 65_536


@dataclass(frozen=True, slots=True)
class _By:
    """Who answered: the name that counts for the quorum and the ledger, and whether a signature proves it."""

    name: str
    signed: bool


@dataclass(slots=True)
class _Open:
    question: Question
    deadline: float
    decided: asyncio.Future[Decision]
    votes: dict[str, str] = field(default_factory=dict)
    unsaid: asyncio.Event = field(default_factory=asyncio.Event)
    closing: bool = False


class MqttApprover:
    """Asks many questions at once; each ends by its answers, its lifetime, its cancel, or a restart."""

    def __init__(
        self,
        *,
        channel: str,
        topics: Topics,
        rules: Rules,
        identities: Identities,
        link: Link,
        post: Post,
        questions: Questions,
        ledger: Ledger,
        refusals: Refusals,
        clock: Clock,
        log: logging.Logger,
        on_change: Callable[[], None] = lambda: None,
        patience: float = CONNECT_PATIENCE,
    ) -> None:
        self._channel = channel
        self._topics = topics
        self._rules = rules
        self._identities = identities
        self._link = link
        self._post = post
        self._questions = questions
        self._ledger = ledger
        self._refusals = refusals
        self._clock = clock
        self._log = log
        self._on_change = on_change
        self._patience = patience
        self._open: dict[str, _Open] = {}
        self._ended: OrderedDict[str, str] = OrderedDict()

    def allow_senders(self, allowed: bool) -> None:
        """Whether the sender of a command may answer its question, from the next answer on."""
        self._rules = dataclasses.replace(self._rules, sender_may_approve=allowed)

    @property
    def pending(self) -> tuple[Question, ...]:
        """The questions that are open now."""
        return tuple(entry.question for entry in self._open.values())

    # Asking

    async def ask(self, question: Question, cancel: CancelToken) -> Decision:
        """Wait for operators until the question's lifetime ends on the monotonic clock, or `cancel` fires."""
        opened = _Open(
            question,
            self._clock.monotonic() + question.lifetime,
            asyncio.get_running_loop().create_future(),
        )
        try:
            await self._questions.opened(self._channel, question, _row(question, self._channel, "asked"))
        except StoreError as error:
            return Decision(False, Source.FAILED, by="runtime", reason=error.text, request_id=question.request_id)
        self._open[question.request_id] = opened
        self._on_change()
        try:
            await self._wait(opened, cancel)
        except asyncio.CancelledError:
            await self._end(opened, Source.CANCELLED, "the turn was stopped")
            raise
        except Exception:
            self._log.exception("question_failed request=%s", question.request_id)
            await self._end(opened, Source.FAILED, "the question could not be asked")
        return opened.decided.result()

    async def _wait(self, opened: _Open, cancel: CancelToken) -> None:
        name = f"question {opened.question.request_id}"
        async with asyncio.TaskGroup() as group:
            announce = group.create_task(self._announce(opened), name=f"{name} announce")
            watch = group.create_task(_watch(cancel), name=f"{name} cancel")
            left = max(0.0, opened.deadline - self._clock.monotonic())
            done, _waiting = await asyncio.wait(
                (opened.decided, announce, watch), timeout=left, return_when=asyncio.FIRST_COMPLETED
            )
            if not opened.decided.done():
                ended = next((task for task in (watch, announce) if task in done), None)
                await self._end(opened, *(ended.result() if ended else _LATE))
            announce.cancel()
            watch.cancel()

    async def _announce(self, opened: _Open) -> _Why:
        """Publish the question, and again after each reconnect and each vote; return why nobody can be reached."""
        if not await self._link.wait_up(self._patience):
            return Source.UNREACHABLE, "the broker cannot be reached"
        while True:
            opened.unsaid.clear()
            try:
                await self._link.publish(self._request(opened))
            except PublishRefused as error:
                return Source.UNREACHABLE, error.text
            except ChannelError as error:
                # An outage while waiting: the question lives on until it expires, and is said again on reconnect.
                self._log.debug("question_unsaid request=%s why=%s", opened.question.request_id, error.text)
            await opened.unsaid.wait()

    def link_is_up(self) -> None:
        """A broker may have lost its retained messages: publish every open question again."""
        for opened in self._open.values():
            opened.unsaid.set()

    def _request(self, opened: _Open) -> Parcel:
        question = opened.question
        left = max(0.0, opened.deadline - self._clock.monotonic())
        grantable = question.need == 1
        document = {
            "v": envelope.VERSION,
            "request_id": question.request_id,
            "nonce": question.nonce,
            "node": question.node,
            "boot_id": question.boot_id,
            "agent": question.agent,
            "turn_id": question.turn_id,
            "call_id": question.call_id,
            "tool": question.tool,
            "device": question.device,
            "risk": question.risk.word,
            "arguments": question.arguments,
            "arguments_digest": question.digest,
            "summary": question.summary,
            "requested_by": question.requested_by,
            "channel": question.channel,
            "issued_at": rfc3339(question.issued_at),
            "expires_at": rfc3339(question.expires_at),
            "expires_in": round(left, 1),
            "quorum": {"need": question.need, "have": len(opened.votes)},
            "verdicts": [verdict for verdict in Verdict if grantable or verdict is not Verdict.ALWAYS],
        }
        return Parcel(
            self._topics.request(question.request_id),
            msgspec.json.encode(document, enc_hook=str),
            retain=True,
            properties={"expiry": max(1, math.ceil(left))},
        )

    # Ending

    async def _end(self, opened: _Open, source: Source, why: str) -> None:
        """End a question that nobody decided; if an answer is just being recorded, that answer holds."""
        if opened.closing:
            await asyncio.shield(opened.decided)
            return
        question = opened.question
        decision = Decision(False, source, by="runtime", reason=why, request_id=question.request_id)
        await self._close(opened, decision, _row(question, self._channel, source, note=why))

    async def _close(
        self,
        opened: _Open,
        decision: Decision,
        entry: Entry,
        *,
        grant: Grant | None = None,
        answered: Mapping[str, Any] | None = None,
    ) -> None:
        """Withdraw the question, record its end, let the turn go on, and only then tell everybody."""
        opened.closing = True
        request_id = opened.question.request_id
        self._open.pop(request_id, None)
        self._on_change()
        self._remember(request_id, _outcome_of(decision))
        recorded = _unrecorded(decision, "the decision could not be recorded")
        try:
            await self._record_end(opened.question, decision, entry, grant)
            recorded = decision
        except StoreError as error:
            self._log.error("approval_not_recorded request=%s error=%s", request_id, error.text)
        finally:
            opened.decided.set_result(recorded)
        if answered is not None:
            await self._tell(request_id, "answer", **answered)
        await self._tell(request_id, "ended", outcome=_outcome_of(recorded), by=recorded.by)

    async def _record_end(self, question: Question, decision: Decision, entry: Entry, grant: Grant | None) -> None:
        await self._post.keep(Parcel(self._topics.request(question.request_id), b"", retain=True))
        await self._questions.closed(question.request_id, _outcome_of(decision), entry)
        if grant is not None:
            await self._questions.grant(grant, _granted(question, self._channel, grant))

    def _remember(self, request_id: str, outcome: str) -> None:
        self._ended[request_id] = outcome
        while len(self._ended) > REMEMBERED:
            self._ended.popitem(last=False)

    async def end_leftovers(self) -> None:
        """End every question of an earlier boot as `restarted`: denied, and its retained request cleared."""
        for request_id in await self._questions.leftovers(self._channel):
            self._remember(request_id, Source.RESTARTED)
            entry = Entry(
                "decision",
                channel=self._channel,
                decision=Source.RESTARTED,
                decided_by="runtime",
                approval_id=request_id,
                note="the daemon restarted while the question was open",
            )
            await self._post.keep(Parcel(self._topics.request(request_id), b"", retain=True))
            await self._questions.closed(request_id, Source.RESTARTED, entry)
            await self._tell(request_id, "ended", outcome=Source.RESTARTED, by="runtime")

    async def _tell(self, request_id: str, event: str, **more: Any) -> None:
        document = {
            "v": envelope.VERSION,
            "request_id": request_id,
            "event": event,
            **more,
            "ts": rfc3339(self._clock.wall()),
        }
        parcel = Parcel(self._topics.outcome, msgspec.json.encode(document))
        if more.get("result") == "refused":
            self._post.passing(parcel)
        else:
            await self._post.keep(parcel)

    # Judging

    async def judge(self, delivery: Delivery) -> None:
        """Take one answer; whatever is wrong with it is counted, recorded and told, and the question stays open."""
        if not delivery.payload:
            return
        answer: Answer | None = None
        by: _By | None = None
        try:
            if delivery.retain:
                raise RefusedMessage("retained", "a retained message is never a decision")
            answer = envelope.answer(delivery.payload, limit=self._rules.limit)
            opened = self._find(answer)
            by = self._identify(answer, opened.question)
            self._check(answer, opened, by)
        except RefusedMessage as refusal:
            await self._refuse(refusal, answer, by)
            return
        await self._accept(answer, opened, by)

    def _find(self, answer: Answer) -> _Open:
        opened = self._open.get(answer.request_id)
        if opened is None:
            raise _gone(answer.request_id, self._ended.get(answer.request_id))
        if self._clock.monotonic() >= opened.deadline:
            raise _gone(answer.request_id, Source.TIMED_OUT)
        if answer.node and answer.node != opened.question.node:
            raise _no(answer, "wrong_node", "the answer is for another node")
        if not signing.equal(answer.nonce, opened.question.nonce):
            raise _no(answer, "wrong_nonce", "the answer does not carry this question's nonce")
        if not signing.equal(answer.digest, opened.question.digest):
            raise _no(answer, "wrong_digest", "the answer is for other arguments")
        return opened

    def _identify(self, answer: Answer, question: Question) -> _By:
        if not answer.sig:
            if not policy.unsigned_allowed(self._rules.allow_unsigned, question.risk):
                raise _no(answer, "unsigned", "an answer to this question needs a signature")
            return _By(f"unsigned:{answer.operator}" if answer.operator else "unsigned", signed=False)
        if self._identities.operator(answer.operator) is None:
            raise _no(answer, "unknown_operator", "no operator of this name is configured")
        fields = signing.decision_fields(dict(answer.fields))
        if not self._identities.signed(answer.operator, answer.sig, signing.DECISION, fields):
            raise _no(answer, "bad_signature", "the signature is not this operator's over this answer")
        return _By(answer.operator, signed=True)

    def _check(self, answer: Answer, opened: _Open, by: _By) -> None:
        question = opened.question
        operator = self._identities.operator(by.name) if by.signed else None
        if operator is not None:
            groups = self._rules.device_groups.get(question.device, ())
            why = policy.entitled(operator, question.risk, question.device, groups)
            if why:
                raise _no(answer, "not_entitled", f"the operator {why}")
        if question.requested_by == f"operator:{answer.operator}" and not self._rules.sender_may_approve:
            raise _no(answer, "own_command", "whoever sent a command does not decide on it")
        if _voter(by) in opened.votes and answer.verdict in (Verdict.APPROVE, Verdict.ALWAYS):
            raise _no(answer, "repeated", "this operator's answer counts already")
        if answer.verdict is Verdict.ALWAYS:
            self._check_grant(answer, question, by)

    @staticmethod
    def _check_grant(answer: Answer, question: Question, by: _By) -> None:
        if not by.signed:
            raise _no(answer, "unsigned", "a grant needs a signature")
        if question.need > 1:
            raise _no(answer, "grant_refused", "what needs several operators is never granted in advance")
        if answer.grant is not None and answer.grant.match == "device" and not question.device:
            raise _no(answer, "grant_refused", "this call has no device that a grant could name")

    async def _refuse(self, refusal: RefusedMessage, answer: Answer | None, by: _By | None) -> None:
        request_id, claimed = refusal.command_id, answer.operator if answer else ""
        who = by.name if by else f"claimed:{claimed}" if claimed else ""
        note = f"{refusal.reason}: {refusal.text}"
        opened = self._open.get(request_id)
        if opened is None:
            entry = Entry(
                "decision",
                channel=self._channel,
                decision="refused",
                decided_by=who,
                approval_id=request_id,
                note=note,
            )
        else:
            entry = _row(opened.question, self._channel, "refused", by=who, note=note)
        await self._refusals.note(refusal.reason, refusal.text, entry)
        still = "open" if opened else self._ended.get(request_id, "unknown")
        told = {"result": "refused", "reason": refusal.reason, "text": refusal.text, "operator": claimed}
        await self._tell(request_id, "answer", **told, question=still)

    async def _accept(self, answer: Answer, opened: _Open, by: _By) -> None:
        question = opened.question
        approving = answer.verdict in (Verdict.APPROVE, Verdict.ALWAYS)
        if approving:
            opened.votes[_voter(by)] = by.name
        have = len(opened.votes)
        quorum = {"need": question.need, "have": have}
        told = {"result": "accepted", "verdict": answer.verdict, "operator": by.name, "quorum": quorum}
        entry = _row(question, self._channel, answer.verdict, by=by.name, note=f"{have} of {question.need}")
        if approving and have < question.need:
            await self._count(opened, entry, told)
            return
        names = ", ".join(opened.votes.values()) if approving else by.name
        grant = self._grant(answer, question, by)
        await self._close(opened, _decision(answer, question, names), entry, grant=grant, answered=told)

    async def _count(self, opened: _Open, entry: Entry, told: Mapping[str, Any]) -> None:
        """One approval of several: on record, told, and shown in the question."""
        try:
            await self._ledger.append(entry)
        except StoreError as error:
            await self._end(opened, Source.FAILED, error.text)
            return
        await self._tell(opened.question.request_id, "answer", **told)
        opened.unsaid.set()

    def _grant(self, answer: Answer, question: Question, by: _By) -> Grant | None:
        if answer.grant is None:
            return None
        return Grant(
            id=question.request_id,
            principal=question.requested_by,
            tool=question.tool,
            match=answer.grant.match,
            digest=question.digest,
            device=question.device,
            granted_by=by.name,
            expires_at=self._clock.wall() + answer.grant.ttl,
        )


async def _watch(cancel: CancelToken) -> _Why:
    await cancel.wait()
    return Source.CANCELLED, cancel.reason


def _no(answer: Answer, reason: str, text: str) -> RefusedMessage:
    return RefusedMessage(reason, text, command_id=answer.request_id)


def _gone(request_id: str, outcome: str | None) -> RefusedMessage:
    if outcome is None:
        return RefusedMessage("unknown_request", "there is no such question", command_id=request_id)
    if outcome == Source.TIMED_OUT:
        return RefusedMessage("expired", "too late: the question has expired and nothing ran", command_id=request_id)
    return RefusedMessage("decided", f"too late: the question has ended ({outcome})", command_id=request_id)


def _voter(by: _By) -> str:
    """Unsigned answers all count as one person, whatever name they claim."""
    return by.name if by.signed else "unsigned"


def _decision(answer: Answer, question: Question, by: str) -> Decision:
    return Decision(
        allowed=answer.verdict in (Verdict.APPROVE, Verdict.ALWAYS),
        source=Source.OPERATOR,
        by=by,
        verdict=answer.verdict,
        request_id=question.request_id,
        replacement=answer.replacement,
    )


def _unrecorded(decision: Decision, why: str) -> Decision:
    """What cannot be recorded is not allowed; a denial stands whether or not it could be recorded."""
    if not decision.allowed:
        return decision
    return Decision(False, Source.FAILED, by="runtime", reason=why, request_id=decision.request_id)


def _outcome_of(decision: Decision) -> str:
    match decision.verdict:
        case Verdict.APPROVE | Verdict.ALWAYS:
            return "approved"
        case Verdict.DENY:
            return "denied"
        case Verdict.REPLACE:
            return "replaced"
    return str(decision.source)


def _row(question: Question, channel: str, decision: str, *, by: str = "runtime", note: str = "") -> Entry:
    return Entry(
        "decision",
        turn_id=question.turn_id,
        call_id=question.call_id,
        agent=question.agent,
        channel=channel,
        principal=question.requested_by,
        tool=question.tool,
        device=question.device,
        risk=question.risk.word,
        arguments=canonical(question.arguments).decode("utf-8", "replace")[:4096],
        arguments_digest=question.digest,
        decision=str(decision),
        decided_by="" if decision == "asked" else by,
        approval_id=question.request_id,
        note=note,
    )


def _granted(question: Question, channel: str, grant: Grant) -> Entry:
    return Entry(
        "grant",
        turn_id=question.turn_id,
        call_id=question.call_id,
        agent=question.agent,
        channel=channel,
        principal=grant.principal,
        tool=grant.tool,
        device=grant.device,
        risk=question.risk.word,
        arguments_digest=grant.digest,
        decision=grant.match,
        decided_by=grant.granted_by,
        approval_id=grant.id,
        note=f"until {rfc3339(grant.expires_at)}",
    )
