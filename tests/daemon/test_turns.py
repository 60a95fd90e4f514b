"""Running turns: serial in a session, side by side between sessions, never held up by one that waits for a person."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from tests.turn.stage import YES, FakeApprover, Stage, calls, change, make
from zeroclawd.catalog import Catalog
from zeroclawd.config import RiskProfile, RuntimeProfile
from zeroclawd.daemon.turns import TurnRunner
from zeroclawd.errors import StoreFull
from zeroclawd.interfaces import CancelToken
from zeroclawd.messages import Decision, Inbound, Ingress, Message, Outbound, Question, Reply
from zeroclawd.messages import Stage as Stages
from zeroclawd.tool import Effect, Risk, ToolContext, tool

HERE = Ingress("mqtt.home", "mqtt:home:unverified")


class FakeSessions:
    def __init__(self) -> None:
        self.kept: dict[str, list[Message]] = {}
        self.full = False

    async def load(self, session: str) -> list[Message]:
        return list(self.kept.get(session, []))

    async def save(self, session: str, messages: Any) -> None:
        if self.full:
            raise StoreFull("the disk is full")
        self.kept[session] = list(messages)


class Bench:
    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.sessions = FakeSessions()
        self.sent: list[Outbound] = []
        self._news = asyncio.Event()
        self.runner = TurnRunner(stage.context, self.sessions, stage.events.append, self.deliver)

    async def deliver(self, outbound: Outbound) -> None:
        self.sent.append(outbound)
        self._news.set()

    def submit(self, command_id: str, session: str = "", text: str = "hello") -> bool:
        return self.runner.submit(Inbound(command_id, text, session or command_id, HERE))

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not holds():
                self._news.clear()
                if not holds():
                    await asyncio.wait_for(self._news.wait(), 10) if self.sent else await asyncio.sleep(0)

    def last(self) -> list[tuple[str, str]]:
        return [(one.id, one.text) for one in self.sent if one.stage is not Stages.PROGRESS]


@asynccontextmanager
async def bench(stage: Stage) -> AsyncIterator[Bench]:
    made = Bench(stage)
    task = asyncio.create_task(made.runner.run())
    try:
        yield made
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


class Gate:
    """A model that answers when it is let."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.inside = 0
        self.most = 0

    async def __call__(self, _request: Any) -> str:
        self.inside += 1
        self.most = max(self.most, self.inside)
        await self.open.wait()
        self.inside -= 1
        return "done"


async def test_a_command_is_answered() -> None:
    async with bench(Stage(["hi"])) as made:
        assert made.submit("a")
        await made.until(lambda: bool(made.last()))
        assert made.last() == [("a", "hi")]
        assert made.runner.busy() == 0


async def test_turns_of_one_session_are_serial_and_share_their_history() -> None:
    gate = Gate()
    stage = Stage([gate, gate])
    async with bench(stage) as made:
        made.submit("a", "s", "one")
        made.submit("b", "s", "two")
        await made.until(lambda: gate.inside == 1)
        gate.open.set()
        await made.until(lambda: len(made.last()) == 2)
        assert gate.most == 1
        texts = [message.extra.get("plain", message.text) for message in stage.provider.requests[1].messages[1:]]
        assert texts == ["one", "done", "two"]


async def test_sessions_run_side_by_side_up_to_the_bound() -> None:
    gate = Gate()
    stage = Stage([gate] * 5, runtime=RuntimeProfile(max_turns=3))
    async with bench(stage) as made:
        for name in "abcde":
            made.submit(name)
        await made.until(lambda: gate.inside == 3)
        gate.open.set()
        await made.until(lambda: len(made.last()) == 5)
        assert gate.most == 3


async def test_turns_that_wait_for_an_operator_hold_nobody_up() -> None:
    answered = asyncio.Event()

    class Slow(FakeApprover):
        async def ask(self, question: Question, cancel: CancelToken) -> Decision:
            self.questions.append(question)
            await answered.wait()
            return YES

    pump = calls(("set_device", {"device": "pump", "value": True}))

    async def reply(request: Any) -> Reply:
        text = str(request.messages[-1].extra.get("plain", ""))
        return pump if text == "pump" else Reply("light is on")

    approver = Slow()
    stage = Stage([reply] * 6, profile=RiskProfile(always_ask=["pump"]), approver=approver,
                  runtime=RuntimeProfile(max_turns=1))  # fmt: skip
    async with bench(stage) as made:
        made.submit("p1", text="pump")
        made.submit("p2", text="pump")
        await made.until(lambda: len(approver.questions) == 2)
        made.submit("light")
        await made.until(lambda: ("light", "light is on") in made.last())
        assert [one.stage for one in made.sent if one.id == "p1"] == [Stages.PROGRESS]
        answered.set()
        await made.until(lambda: {"p1", "p2"} <= {name for name, _ in made.last()})


async def test_a_full_queue_takes_no_more() -> None:
    gate = Gate()
    async with bench(Stage([gate] * 4, runtime=RuntimeProfile(queue=2))) as made:
        assert [made.submit(name) for name in "abc"] == [True, True, False]
        gate.open.set()
        await made.until(lambda: len(made.last()) == 2)
        assert made.submit("d")


async def test_a_queued_and_a_running_turn_can_be_cancelled_by_their_channel_only() -> None:
    gate = Gate()
    async with bench(Stage([gate])) as made:
        made.submit("a", "s")
        made.submit("b", "s")
        await made.until(lambda: gate.inside == 1)
        assert not made.runner.cancel("mqtt.other", "a", "x")
        assert not made.runner.cancel("mqtt.home", "zzz", "x")
        assert made.runner.cancel("mqtt.home", "b", "x")
        assert made.runner.cancel("mqtt.home", "a", "x")
        await made.until(lambda: len(made.last()) == 2)
        assert [one.stage for one in made.sent] == [Stages.ERROR, Stages.ERROR]
        assert len(made.stage.provider.requests) == 1


async def test_a_bug_in_a_turn_answers_its_command_and_the_next_one_works() -> None:
    async with bench(Stage([ZeroDivisionError("oops"), "fine"])) as made:
        made.submit("a")
        await made.until(lambda: len(made.last()) == 1)
        made.submit("b")
        await made.until(lambda: len(made.last()) == 2)
        assert made.sent[0].stage is Stages.ERROR
        assert made.last()[1] == ("b", "fine")


async def test_a_turn_that_takes_too_long_is_cancelled_and_answers() -> None:
    gate = Gate()
    from zeroclawd.config import Seconds

    async with bench(Stage([gate], runtime=RuntimeProfile(turn_timeout=Seconds(0.05)))) as made:
        made.submit("a")
        await made.until(lambda: bool(made.last()))
        assert made.sent[0].stage is Stages.ERROR


async def test_a_history_that_cannot_be_kept_still_answers() -> None:
    async with bench(Stage(["hi"])) as made:
        made.sessions.full = True
        made.submit("a", "s")
        await made.until(lambda: bool(made.last()))
        assert made.last() == [("a", "hi")]


async def test_closing_answers_everything_and_takes_nothing_new() -> None:
    gate = Gate()
    async with bench(Stage([gate] * 2)) as made:
        made.submit("a")
        made.submit("b", "s")
        await made.until(lambda: gate.inside == 2)
        await made.runner.close(5)
        assert {name for name, _ in made.last()} == {"a", "b"}
        assert not made.submit("c")


async def test_what_a_tool_says_meanwhile_is_scrubbed_on_its_way_out() -> None:
    @tool(risk=Risk.LOW, effect=Effect.READ)
    async def talk(context: ToolContext) -> str:
        context.progress("login with hunter2hunter2 " + "x" * 5_000)
        return "done"

    async with bench(change(Stage([calls(("talk", {})), "ok"]), everything=Catalog({"talk": make(talk)}))) as made:
        made.submit("a")
        await made.until(lambda: {one.stage for one in made.sent} >= {Stages.PROGRESS, Stages.FINAL})
        (said,) = [one.text for one in made.sent if one.stage is Stages.PROGRESS]
        assert "hunter2" not in said
        assert len(said) <= 1_000
