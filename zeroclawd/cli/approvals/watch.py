"""The live view of all questions: lines in a pipe, one-key answers in a terminal; it outlives a broker that restarts."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from zeroclawd.channels.mqtt.client import Client, Seen
from zeroclawd.channels.mqtt.client import questions as topics
from zeroclawd.cli import connection, keys, output
from zeroclawd.cli.approvals import ANSWER_SECONDS, questions
from zeroclawd.cli.approvals.questions import OUTCOME, REQUEST, Asked
from zeroclawd.cli.connection import Where
from zeroclawd.errors import ChannelError
from zeroclawd.messages import Verdict

if TYPE_CHECKING:
    from zeroclawd.interfaces import Health
    from zeroclawd.locale import Texts

# A key that was meant for the question before must not answer the one that has just taken its place.
TOO_SOON = 0.5
# How long a question stays in sight after its time, for a node that is late to say what became of it.
GRACE = 5.0
_OVER = frozenset({"decided", "expired", "unknown_request"})
_ESCAPE, _DELETE = "\x1b", ("\x7f", "\b")


class Desk:
    """The open questions in the order in which they came, and which of them is before the operator."""

    def __init__(self) -> None:
        self.open: dict[tuple[str, str], Asked] = {}
        self.skipped: set[tuple[str, str]] = set()
        self.answered: set[tuple[str, str]] = set()

    def put(self, asked: Asked) -> bool:
        """Take a question, or how many have approved it by now; True if this was not asked before.

        One that comes again in other words is another one: it goes to the end, and whatever was done about it is undone.
        """
        fresh = not asked.same(self.open.get(asked.key))
        if fresh:
            self.end(asked.key)
        self.open[asked.key] = asked
        return fresh

    def end(self, key: tuple[str, str]) -> None:
        """It is over."""
        self.open.pop(key, None)
        self.skipped.discard(key)
        self.answered.discard(key)

    @property
    def waiting(self) -> list[Asked]:
        """Those that the operator has neither skipped nor answered."""
        return [asked for key, asked in self.open.items() if key not in self.skipped | self.answered]

    @property
    def current(self) -> Asked | None:
        """The one before the operator."""
        return next(iter(self.waiting), None)

    @property
    def late(self) -> list[Asked]:
        """Those whose time is long over."""
        return [asked for asked in self.open.values() if asked.left() < -GRACE]


class Screen:
    """Lines that stay, and below them one line that is written anew in place."""

    def __init__(self, *, live: bool) -> None:
        self._live = live
        self._below = ""

    def say(self, text: str) -> None:
        """A line that stays."""
        output.echo(f"\r\x1b[K{text}" if self._below else text)
        output.write(self._below)

    def ring(self) -> None:
        """Call somebody who looks elsewhere."""
        if self._live:
            output.write("\a")

    def below(self, text: str) -> None:
        """What stands below; empty for nothing."""
        fitting = output.fitting(text) if self._live else ""
        if fitting != self._below:
            self._below = fitting
            output.write(f"\r\x1b[K{fitting}")


class Watch:
    """Shows what comes and, where somebody can sign and sits at a terminal, takes their keys."""

    def __init__(self, where: Where, words: Texts, *, as_json: bool) -> None:
        self._where = where
        self._words = words
        self._json = as_json
        self._by = where.signature()
        self._live = output.terminal() and not as_json
        self._screen = Screen(live=self._live)
        self._desk = Desk()
        self._keys: asyncio.Queue[str] = asyncio.Queue()
        self._shown: Asked | None = None
        self._shown_at = 0.0
        self._typed: str | None = None
        self._changed = asyncio.Event()
        self._connected = False
        self._down = False

    async def run(self) -> int:
        """Until it is cancelled or the operator quits."""
        listen = topics(self._where.only or "+")
        async with connection.client(self._where, *listen, on_change=self._link) as client:
            self._connected = True
            with keys.pressed(self._keys) as keyboard:
                answering = keyboard and self._live and self._by is not None
                self._greet(answering)
                try:
                    await self._work(client, answering=answering)
                finally:
                    self._screen.below("")
                    self._connected = False
        return 0

    async def _work(self, client: Client, *, answering: bool) -> None:
        async with asyncio.TaskGroup() as group:
            looking = group.create_task(self._look(client), name="look")
            if answering:
                ticking = group.create_task(self._tick(), name="tick")
                await self._serve(client, group)
                ticking.cancel()
                looking.cancel()

    def _greet(self, answering: bool) -> None:
        if self._json:
            return
        whom = self._where.only or self._words("watch-all-nodes")
        output.echo(f"{self._words('watch-begin')} {self._where.address}, {whom}", err=True)
        if answering and self._by:
            output.echo(f"{self._words('watch-as')} {self._by.operator}: {self._words('watch-keys')}", err=True)
        elif self._live and not self._by:
            output.echo(self._words("watch-no-key"), err=True)

    # What comes

    async def _look(self, client: Client) -> None:
        async for seen in client.watch():
            if seen.rest.startswith(REQUEST):
                self._question(seen)
            elif seen.rest == OUTCOME and seen.document:
                self._outcome(seen)
            self._refresh()

    def _question(self, seen: Seen) -> None:
        for late in self._desk.late:
            self._desk.end(late.key)
        asked = questions.read(seen)
        if asked is None:
            self._desk.end((seen.node, seen.rest.removeprefix(REQUEST)))
            return
        known = self._desk.open.get(asked.key)
        again = known is not None and known.quorum == asked.quorum
        fresh = self._desk.put(asked)
        if self._json and (fresh or not again):
            output.as_json(asked.document)
        elif fresh and not self._json:
            self._screen.say(f"\n{questions.shown(asked)}" if self._live else self._stamped(questions.line(asked)))
            self._screen.ring()

    def _outcome(self, seen: Seen) -> None:
        said = seen.document
        key = (seen.node, str(said.get("request_id", "")))
        if self._json:
            output.as_json({"node": seen.node, **said})
        else:
            who = f"{output.visible(seen.node)}  {output.visible(key[1][:8])}"
            self._screen.say(self._stamped(f"{who}  {questions.outcome(self._words, said)}"))
        if said.get("result") == "refused" and self._by and said.get("operator") == self._by.operator:
            self._desk.answered.discard(key)
            self._advise(said)
        if said.get("event") == "ended" or said.get("reason") in _OVER:
            self._desk.end(key)

    def _advise(self, said: Mapping[str, Any]) -> None:
        if not self._json and (advice := questions.advice(self._words, said)):
            self._screen.say(f"  {advice}")

    def _stamped(self, text: str) -> str:
        return f"{output.moment(time.time())}  {text}"

    def _link(self, health: Health) -> None:
        """The connection was lost or is back; that it comes up and is ended by us is no news."""
        if not self._connected or (health.state == "ok") is not self._down:
            return
        self._down = health.state != "ok"
        if self._json:
            output.as_json({"event": "connection", "state": health.state, "detail": health.detail})
        else:
            what = self._words("watch-lost" if self._down else "watch-back")
            self._screen.say(self._stamped(f"{what} {output.visible(health.detail)}"))

    # The line below, and what time does

    async def _tick(self) -> None:
        while True:
            self._changed.clear()
            self._draw()
            try:
                async with asyncio.timeout(1 if self._desk.open else None):
                    await self._changed.wait()
            except TimeoutError:
                for asked in self._desk.late:
                    self._desk.end(asked.key)

    def _refresh(self) -> None:
        self._changed.set()

    def _draw(self) -> None:
        asked = self._desk.current
        if asked is None or not asked.same(self._shown):
            self._typed = None
            self._shown, self._shown_at = asked, time.monotonic()
        self._screen.below(self._prompt(asked))

    def _prompt(self, asked: Asked | None) -> str:
        if asked is None:
            skipped = len(self._desk.skipped)
            return output.colour(f"{self._words('watch-skipped')}: {skipped}", dim=True) if skipped else ""
        if self._typed is not None:
            return f"{self._words('watch-replacement')} {self._typed}"
        others = len(self._desk.waiting) - 1
        more = f"  (+{others})" if others else ""
        what = f"{asked.short} {output.left(asked.left())}"
        return f"{output.colour(what, output.DOUBT)}  {self._words('watch-keys')}{more}"

    # Keys

    async def _serve(self, client: Client, group: asyncio.TaskGroup) -> None:
        while True:
            typed = await self._keys.get()
            asked = self._desk.current
            in_sight = asked is not None and asked.same(self._shown)
            if self._typed is not None and asked is not None and in_sight:
                for key in typed:
                    self._type(key, client, group, asked)
            elif typed in ("q", "\x04"):
                return
            elif asked is None:
                self._desk.skipped.clear()
            elif in_sight and time.monotonic() - self._shown_at >= TOO_SOON:
                self._act(typed, client, group, asked)
            self._refresh()

    def _act(self, key: str, client: Client, group: asyncio.TaskGroup, asked: Asked) -> None:
        match key:
            case "a":
                self._answer(client, group, asked, Verdict.APPROVE)
            case "d":
                self._answer(client, group, asked, Verdict.DENY)
            case "r":
                self._typed = ""
            case "s":
                self._desk.skipped.add(asked.key)

    def _type(self, key: str, client: Client, group: asyncio.TaskGroup, asked: Asked) -> None:
        if self._typed is None:
            return
        if key in ("\r", "\n"):
            text, self._typed = self._typed, None
            self._answer(client, group, asked, Verdict.REPLACE, replacement=text)
        elif key == _ESCAPE:
            self._typed = None
        elif key in _DELETE:
            self._typed = self._typed[:-1]
        elif key.isprintable():
            self._typed += key

    def _answer(self, client: Client, group: asyncio.TaskGroup, asked: Asked, verdict: Verdict, **more: Any) -> None:
        self._desk.answered.add(asked.key)
        group.create_task(self._send(client, asked, verdict, more), name=f"answer {asked.id}")

    async def _send(self, client: Client, asked: Asked, verdict: Verdict, more: dict[str, Any]) -> None:
        """Sign and send; what the node says of it is shown like all outcomes, and its silence here."""
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                await client.answer(asked.document, verdict, self._by, **more)
        except (TimeoutError, ChannelError) as error:
            why = str(error) or self._words("watch-no-word")
            self._screen.say(self._stamped(f"{output.visible(asked.node)}  {asked.short}  {output.visible(why)}"))
            self._desk.answered.discard(asked.key)
        self._refresh()
