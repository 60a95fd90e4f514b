"""Runs turns: serial within a session, side by side between sessions, and never held up by one that waits for a person."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import field, replace
from typing import TYPE_CHECKING

from zeroclawd.errors import StoreError
from zeroclawd.events import Progress, QuestionAsked, TurnEvent
from zeroclawd.frozen import dataclass
from zeroclawd.interfaces import Approver, CancelToken, Emit, Sessions
from zeroclawd.messages import Decision, Inbound, Message, Outbound, Question, Stage
from zeroclawd.turn.context import TurnContext, TurnState, resolve

if TYPE_CHECKING:
    from zeroclawd.turn.loop import TurnEnd

log = logging.getLogger(__name__)

Deliver = Callable[[Outbound], Awaitable[None]]

SHUTDOWN_SECONDS = 5.0
_PROGRESS_LIMIT = 1_000


@dataclass(slots=True)
class _Running:
    inbound: Inbound
    cancel: CancelToken = field(default_factory=CancelToken)
    started: float = 0.0


class _Slots:
    """The turns that may work at once; one that waits for an operator gives its place to another."""

    def __init__(self, count: int) -> None:
        self._semaphore = asyncio.Semaphore(count)

    async def __aenter__(self) -> None:
        await self._semaphore.acquire()

    async def __aexit__(self, *_: object) -> None:
        self._semaphore.release()

    def lend(self, approver: Approver) -> Approver:
        """The same approver, with this turn's place free while it waits."""
        return _Lending(self._semaphore, approver)


@dataclass(frozen=True, slots=True)
class _Lending:
    semaphore: asyncio.Semaphore
    approver: Approver

    async def ask(self, question: Question, cancel: CancelToken) -> Decision:
        self.semaphore.release()
        try:
            return await self.approver.ask(question, cancel)
        finally:
            await self.semaphore.acquire()


class TurnRunner:
    """Takes inbound messages and delivers their replies; `base` may be replaced while turns run, each keeps its own."""

    def __init__(self, base: TurnContext, sessions: Sessions, emit: Emit, deliver: Deliver) -> None:
        self.base = base
        self._sessions = sessions
        self._emit = emit
        self._deliver = deliver
        self._slots = _Slots(base.runtime.max_turns)
        self._queues: dict[str, deque[_Running]] = {}
        self._new: asyncio.Queue[str] = asyncio.Queue()
        self._progress: asyncio.Queue[Outbound] = asyncio.Queue(1_000)
        self._closing = False
        self._idle = asyncio.Event()
        self._idle.set()

    # What channels ask for

    def submit(self, inbound: Inbound) -> bool:
        """Queue a turn; False if the queue is full or the daemon is going down."""
        waiting = sum(len(queue) for queue in self._queues.values())
        if self._closing or waiting >= self.base.runtime.queue:
            return False
        session = f"{inbound.ingress.channel}/{inbound.session}"
        if session not in self._queues:
            self._queues[session] = deque()
            self._idle.clear()
            self._new.put_nowait(session)
        self._queues[session].append(_Running(inbound))
        return True

    def cancel(self, channel: str, command_id: str, reason: str) -> bool:
        """Cancel a queued or running turn; False if there is none of this id."""
        for running in self._all():
            if running.inbound.id == command_id and running.inbound.ingress.channel == channel:
                running.cancel.cancel(reason)
                return True
        return False

    def cancel_all(self, reason: str) -> None:
        """Cancel everything that is queued or running."""
        for running in self._all():
            running.cancel.cancel(reason)

    def busy(self) -> int:
        """How many turns are queued or running."""
        return len(self._all())

    def stuck(self) -> str:
        """A turn that has gone on well beyond its time limit, or empty: then something below it hangs."""
        limit = float(self.base.runtime.turn_timeout) + 60
        for running in self._all():
            if running.started and time.monotonic() - running.started > limit:
                return f"turn of command {running.inbound.id}"
        return ""

    def _all(self) -> list[_Running]:
        return [running for queue in self._queues.values() for running in queue]

    # Work

    async def run(self) -> None:
        """Serve sessions until cancelled; a session's worker lives while it has turns."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._carry_progress(), name="progress")
            while True:
                session = await self._new.get()
                group.create_task(self._work(session), name=f"session {session}")

    async def close(self, seconds: float = SHUTDOWN_SECONDS) -> None:
        """Take nothing new, cancel what runs, and wait a bounded time until every turn has answered."""
        self._closing = True
        self.cancel_all("shutdown")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._idle.wait()
        while not self._progress.empty():
            await self._deliver(self._progress.get_nowait())

    async def _work(self, session: str) -> None:
        queue = self._queues[session]
        try:
            while queue:
                async with self._slots:
                    await self._serve(queue[0])
                queue.popleft()
        finally:
            del self._queues[session]
            if not self._queues:
                self._idle.set()

    async def _serve(self, running: _Running) -> None:
        running.started = time.monotonic()
        inbound = running.inbound
        try:
            outbound = await self._turn(running)
        except Exception as error:  # a bug in a turn answers its command and leaves the daemon alive
            log.exception("turn_broke command=%s", inbound.id)
            outbound = Outbound(inbound.id, Stage.ERROR, f"internal error: {type(error).__name__}", inbound.ingress)
        await self._deliver(outbound)

    async def _turn(self, running: _Running) -> Outbound:
        from zeroclawd.turn.loop import run_turn  # with the first turn: a daemon may wait for days

        inbound = running.inbound
        turn_id = os.urandom(8).hex()
        state = TurnState(
            turn_id,
            inbound,
            history=await self._history(inbound),
            observers=lambda event: self._observe(inbound, event),
            cancel=running.cancel,
        )
        context = resolve(self.base, inbound)
        if context.approver is not None:
            context = replace(context, approver=self._slots.lend(context.approver))
        loop = asyncio.get_running_loop()
        limit = loop.call_later(float(context.runtime.turn_timeout), running.cancel.cancel, "timeout")
        try:
            end = await run_turn(context, state)
        finally:
            limit.cancel()
        await self._keep(inbound, state)
        return self._reply(inbound, turn_id, end)

    @staticmethod
    def _reply(inbound: Inbound, turn_id: str, end: TurnEnd) -> Outbound:
        stage = Stage.FINAL if end.how in ("finished", "capped", "stopped") else Stage.ERROR
        flags = (*end.flags, *(() if end.how == "finished" else (end.how,)))
        return Outbound(inbound.id, stage, end.text, inbound.ingress, turn_id, end.results, flags)

    # Histories: only of sessions that somebody named

    async def _history(self, inbound: Inbound) -> list[Message]:
        return [] if inbound.session == inbound.id else await self._sessions.load(self._key(inbound))

    async def _keep(self, inbound: Inbound, state: TurnState) -> None:
        if inbound.session == inbound.id:
            return
        try:
            await self._sessions.save(self._key(inbound), state.history)
        except StoreError as error:
            log.error("session_not_saved session=%s error=%s", inbound.session, error.text)

    @staticmethod
    def _key(inbound: Inbound) -> str:
        return f"{inbound.ingress.channel}/{inbound.session}"

    # Progress for whoever waits

    def _observe(self, inbound: Inbound, event: TurnEvent) -> None:
        self._emit(event)
        match event:
            case QuestionAsked(summary=text) | Progress(text=text):
                flags = ("asks_operator",) if isinstance(event, QuestionAsked) else ()
                shown = self.base.redactor.text(text, _PROGRESS_LIMIT)
                note = Outbound(inbound.id, Stage.PROGRESS, shown, inbound.ingress, event.turn_id, flags=flags)
                if not self._progress.full():
                    self._progress.put_nowait(note)

    async def _carry_progress(self) -> None:
        while True:
            await self._deliver(await self._progress.get())
