"""A stage for turns: fakes of the rooms that obey the same roles, and tools that say what they did."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from zeroclawd import catalog as catalogs
from zeroclawd.catalog import Catalog
from zeroclawd.config import RiskProfile, RuntimeProfile, ToolReceipts
from zeroclawd.errors import StoreFull, ToolError, UnknownDevice
from zeroclawd.events import TurnEvent
from zeroclawd.interfaces import CancelToken, DeviceInfo, ModelRequest, Reading
from zeroclawd.locale import Texts
from zeroclawd.messages import (
    Decision,
    Entry,
    Grant,
    Inbound,
    Ingress,
    Message,
    Question,
    RawCall,
    Reply,
    Source,
    Verdict,
)
from zeroclawd.receipts import ReceiptScope
from zeroclawd.redact import Redactor
from zeroclawd.tool import Assessment, Declaration, Effect, Output, Risk, Tool, ToolContext, ToolLimits, tool
from zeroclawd.turn.context import TurnContext, TurnState, resolve
from zeroclawd.turn.loop import TurnEnd, run_turn


class FakeClock:
    def __init__(self) -> None:
        self.now = 1_700_000_000.0

    def wall(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.now

    def synced(self) -> bool:
        return True


class FakeBoard:
    def __init__(self, **risks: Risk) -> None:
        self.infos = {
            name: DeviceInfo(name, "relay", frozenset({"read", "write", "pulse"}), risk) for name, risk in risks.items()
        }
        self.writes: list[tuple[str, Any]] = []

    def devices(self) -> tuple[DeviceInfo, ...]:
        return tuple(self.infos.values())

    def device(self, name: str) -> DeviceInfo:
        if name not in self.infos:
            raise UnknownDevice(name, "there is no such device")
        return self.infos[name]

    async def read(self, name: str) -> Reading:
        return Reading(name, {"on": True}, {}, 0.0, 0.0, "fake")

    async def write(self, name: str, value: Any) -> Reading:
        self.writes.append((name, value))
        return Reading(name, {"on": bool(value)}, {}, 0.0, 0.0, "fake")

    async def pulse(self, name: str, seconds: float) -> Reading:
        return await self.write(name, True)

    def about(self) -> Mapping[str, Any]:
        return {"kind": "fake"}


class FakeLedger:
    def __init__(self) -> None:
        self.rows: list[Entry] = []
        self.synced: list[bool] = []
        self.full = False

    async def append(self, *entries: Entry, sync: bool = True) -> int:
        if self.full:
            raise StoreFull("the disk is full")
        self.rows.extend(entries)
        self.synced.extend([sync] * len(entries))
        return len(self.rows)

    def kinds(self) -> list[str]:
        return [row.kind for row in self.rows]


class FakeQuestions:
    def __init__(self) -> None:
        self.given: list[Grant] = []

    async def opened(self, channel: str, question: Question, *entries: Entry) -> None: ...

    async def closed(self, request_id: str, outcome: str, *entries: Entry) -> None: ...

    async def leftovers(self, channel: str) -> list[str]:
        return []

    async def grant(self, grant: Grant, *entries: Entry) -> None:
        self.given.append(grant)

    async def grants(self) -> list[Grant]:
        return self.given


class FakeApprover:
    """Answers from a list, or waits for the cancel token when it has none left."""

    def __init__(self, *answers: Decision) -> None:
        self.answers = list(answers)
        self.questions: list[Question] = []

    async def ask(self, question: Question, cancel: CancelToken) -> Decision:
        self.questions.append(question)
        if self.answers:
            return self.answers.pop(0)
        await cancel.wait()
        return Decision(False, Source.CANCELLED, by="runtime")


YES = Decision(True, Source.OPERATOR, by="alice", verdict=Verdict.APPROVE)
NO = Decision(False, Source.OPERATOR, by="alice", verdict=Verdict.DENY)


class FakeProvider:
    """Gives the replies of a list; a callable in it is asked for its reply."""

    name = "fake"

    def __init__(self, *replies: Any, native_tools: bool = True) -> None:
        self.native_tools = native_tools
        self.replies = list(replies)
        self.requests: list[ModelRequest] = []

    async def complete(self, request: ModelRequest, on_text: Callable[[str], None]) -> Reply:
        self.requests.append(request)
        reply = self.replies.pop(0) if self.replies else Reply("done")
        if isinstance(reply, Exception):
            raise reply
        if callable(reply):
            reply = await reply(request)
        if isinstance(reply, str):
            reply = Reply(reply)
        on_text(reply.text)
        return reply

    async def close(self) -> None: ...


def calls(*wanted: tuple[str, dict[str, Any]], text: str = "") -> Reply:
    return Reply(text, tuple(RawCall(f"c{place}", name, args) for place, (name, args) in enumerate(wanted)))


@dataclass
class Stage:
    """Everything that a turn needs, with knobs for a test to turn."""

    replies: Sequence[Any] = ()
    risks: Mapping[str, Risk] = field(default_factory=lambda: {"pump": Risk.HIGH, "lamp": Risk.MEDIUM})
    profile: RiskProfile = field(default_factory=RiskProfile)
    runtime: RuntimeProfile = field(default_factory=RuntimeProfile)
    approver: FakeApprover | None = None
    text_only: bool = False
    hooks: tuple[Any, ...] = ()

    def __post_init__(self) -> None:
        self.log: list[str] = []
        self.running = 0
        self.most = 0
        self.hold = asyncio.Event()
        self.events: list[TurnEvent] = []
        self.board = FakeBoard(**self.risks)
        self.ledger = FakeLedger()
        self.questions = FakeQuestions()
        self.provider = FakeProvider(*self.replies, native_tools=not self.text_only)
        self.clock = FakeClock()
        self.stop = False
        self.history: list[Message] = []
        self.catalog = Catalog({one.name: one for one in self._tools()})
        ids = itertools.count(1)
        self.context = TurnContext(
            agent="fake",
            node="node",
            boot_id="boot",
            provider=self.provider,
            catalog=self.catalog,
            everything=self.catalog,
            profile=self.profile,
            runtime=self.runtime,
            approver=None,
            board=self.board,
            ledger=self.ledger,
            questions=self.questions,
            clock=self.clock,
            redactor=Redactor.of(["hunter2hunter2"]),
            digest_key=b"k" * 32,
            receipts=ReceiptScope.derive(b"d" * 32, "boot"),
            receipt_settings=ToolReceipts(),
            texts=Texts("en"),
            workspace=Path("/nowhere"),
            limits=ToolLimits(),
            stopped=lambda: self.stop,
            direct=lambda raw: FakeProvider(Reply(calls=tuple(raw)), "direct done"),
            approvers=lambda _ingress: self.approver,
            before_hooks=self.hooks,
            new_id=lambda: f"id{next(ids)}",
        )

    def state(self, text: str = "hello", **fields: Any) -> TurnState:
        ingress = fields.pop("ingress", Ingress("mqtt:home", "mqtt:home:unverified"))
        inbound = Inbound("cmd", text, "cmd", ingress, **fields)
        state = TurnState("turn", inbound, self.history, self.events.append)
        state.nonce = "0badcafe"
        return state

    async def run(self, text: str = "hello", state: TurnState | None = None, **fields: Any) -> TurnEnd:
        state = state or self.state(text, **fields)
        return await run_turn(resolve(self.context, state.inbound), state)

    def results(self, end: TurnEnd) -> list[tuple[str, str]]:
        return [(result.call.name, result.outcome.value) for result in end.results]

    def of(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    # Tools

    def _tools(self) -> list[Tool]:
        return [make(function) for function in (self._look(), self._set(), self._wait(), self._fail(), self._broken())]

    def _look(self) -> Any:
        @tool(risk=Risk.LOW, effect=Effect.READ)
        async def look(what: str = "") -> str:
            async with self.inside(f"look {what}"):
                return f"saw {what}" if what != "nothing" else ""

        return look

    def _set(self) -> Any:
        @tool(risk=Risk.MEDIUM, effect=Effect.MUTATE, device="device")
        async def set_device(device: str, value: bool) -> Output:
            async with self.inside(f"set {device} {value}"):
                return Output(f"{device} is {value}", {"value": value})

        return set_device

    def _wait(self) -> Any:
        def judge(arguments: Mapping[str, Any]) -> Assessment:
            changing = bool(arguments.get("changing"))
            effect = Effect.MUTATE if changing else Effect.READ
            return Assessment(Risk.LOW, effect, frozenset({f"slot:{arguments.get('slot', '')}"}))

        @tool(assess=judge, repeatable=True)
        async def wait(slot: str = "", changing: bool = False) -> str:
            async with self.inside(f"wait {slot}"):
                await self.hold.wait()
            return f"waited {slot}"

        return wait

    def _fail(self) -> Any:
        @tool(risk=Risk.LOW, effect=Effect.READ)
        async def fail() -> str:
            raise ToolError("it does not work", output="half of it")

        return fail

    def _broken(self) -> Any:
        @tool(risk=Risk.LOW, effect=Effect.READ)
        async def broken(context: ToolContext) -> str:
            raise KeyError(context.call_id)

        return broken

    def inside(self, what: str) -> Any:
        return _Inside(self, what)


@dataclass
class _Inside:
    stage: Stage
    what: str

    async def __aenter__(self) -> None:
        self.stage.log.append(self.what)
        self.stage.running += 1
        self.stage.most = max(self.stage.most, self.stage.running)
        await asyncio.sleep(0)

    async def __aexit__(self, *_: object) -> None:
        self.stage.running -= 1


def make(function: Any) -> Tool:
    declared = function.__tool__
    assert isinstance(declared, Declaration)
    return catalogs.make(declared, lambda message: message)


def change(stage: Stage, **fields: Any) -> Stage:
    stage.context = replace(stage.context, **fields)
    return stage
