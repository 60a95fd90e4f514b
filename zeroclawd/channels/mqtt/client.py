"""What operators' command line tools speak: the same protocol over the same link, with nothing but a broker and a key."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

import msgspec

from zeroclawd.channels.mqtt import documents, envelope
from zeroclawd.channels.mqtt.channel import options
from zeroclawd.channels.mqtt.documents import Signature
from zeroclawd.channels.mqtt.link import Delivery, Link
from zeroclawd.channels.mqtt.topics import Topics, node_of
from zeroclawd.config import MqttConfig
from zeroclawd.errors import ChannelError
from zeroclawd.frozen import dataclass
from zeroclawd.interfaces import Health, Parcel
from zeroclawd.messages import Stage, Verdict
from zeroclawd.tool import Value

__all__ = ["Client", "Seen", "Signature", "questions", "replies", "states"]

log = logging.getLogger(__name__)

CONNECT_SECONDS = 15.0
ATTEMPTS = 2


@dataclass(frozen=True, slots=True)
class Seen:
    """A message of some node: `rest` is the topic below `<base>/<node>/`, `document` its JSON, empty if it is none.

    `expiry` is the rest of its life in seconds, where the broker speaks MQTT 5 and it has one.
    """

    node: str
    rest: str
    document: Mapping[str, Any]
    payload: bytes
    retained: bool = False
    expiry: float | None = None


class Client:
    """A short-lived connection of a person: `async with Client(config, listen=...)`; ChannelError if it cannot connect.

    It connects again when the connection is lost; `on_change` is told of each change of its health.
    """

    def __init__(
        self,
        config: MqttConfig,
        *,
        listen: Sequence[str] = (),
        wall: Callable[[], float] = time.time,
        on_change: Callable[[Health], None] = lambda _health: None,
    ) -> None:
        self.base = config.base_topic
        self._wall = wall
        self._on_change = on_change
        # Any node will do to make the link's options: a person's client listens only where it is told.
        made = options("client", config, Topics(config.base_topic, "client"), first_wait=0.2)
        name = f"zeroclawd-cli-{secrets.token_hex(6)}"
        self._link = Link(
            replace(
                made,
                client_id=name,
                subscriptions=tuple(f"{self.base}/{rest}" for rest in listen),
                session_expiry=0.0,
                presence=None,
                attempts=ATTEMPTS,
            ),
            self._receive,
            name="client",
            log=log,
            on_change=lambda: self._on_change(self._link.health()),
        )
        self._task: asyncio.Task[None] | None = None
        self._listeners: set[asyncio.Queue[Seen]] = set()
        self._retained: dict[tuple[str, str], Seen] = {}

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._link.run(), name="client link")
        up = asyncio.create_task(self._link.wait_up(CONNECT_SECONDS), name="client connects")
        try:
            await asyncio.wait((self._task, up), return_when=asyncio.FIRST_COMPLETED)
            if self._task.done() or not self._link.up or self._link.health().state != "ok":
                raise ChannelError(self._link.health().detail)
        except BaseException:
            await self._close()
            raise
        finally:
            up.cancel()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._close()

    async def _close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError, ChannelError):
                await self._task

    def _receive(self, delivery: Delivery) -> None:
        self._link.ack(delivery)
        node, rest = node_of(self.base, delivery.topic)
        seen = Seen(node, rest, _document(delivery.payload), delivery.payload, delivery.retain, delivery.expiry)
        self._keep(seen)
        for listener in self._listeners:
            listener.put_nowait(seen)

    def _keep(self, seen: Seen) -> None:
        """What is retained may come before anybody listens here: every listener is told it first."""
        key = (seen.node, seen.rest)
        if not seen.payload:
            self._retained.pop(key, None)
        elif seen.retained or key in self._retained:
            self._retained[key] = seen

    @contextlib.contextmanager
    def _listening(self) -> Iterator[asyncio.Queue[Seen]]:
        queue: asyncio.Queue[Seen] = asyncio.Queue()
        for seen in self._retained.values():
            queue.put_nowait(seen)
        self._listeners.add(queue)
        try:
            yield queue
        finally:
            self._listeners.discard(queue)

    async def watch(self) -> AsyncIterator[Seen]:
        """Everything that is heard, retained messages first, until the caller stops."""
        with self._listening() as queue:
            while True:
                yield await queue.get()

    @contextlib.contextmanager
    def heard(self) -> Iterator[AsyncIterator[Seen]]:
        """The same, from now on: for an answer that may come before one has begun to wait for it."""
        with self._listening() as queue:
            yield _drained(queue)

    async def publish(self, node: str, rest: str, document: Mapping[str, Any]) -> None:
        """Publish JSON below a node; returns when the broker has it."""
        await self._link.publish(Parcel(f"{self.base}/{node}/{rest}", msgspec.json.encode(document)))

    # Commands

    async def send(
        self,
        node: str,
        text: str,
        *,
        session: str = "",
        ttl: float | None = None,
        tools: Sequence[str] | None = None,
        by: Signature | None = None,
        command_id: str = "",
    ) -> AsyncIterator[Mapping[str, Any]]:
        """Send a command and yield its replies up to the last; needs `listen=replies(node)`."""
        command = self._command(text, session, ttl, tools, command_id)
        with self._listening() as queue:
            await self.publish(node, "command", documents.signed_command(node, command, by))
            async for document in _replies(queue, str(command["id"])):
                yield document

    async def post(self, node: str, text: str, *, session: str = "", by: Signature | None = None) -> str:
        """Send a command without waiting for replies; returns its id."""
        command = self._command(text, session, None, None, "")
        await self.publish(node, "command", documents.signed_command(node, command, by))
        return str(command["id"])

    def _command(
        self, text: str, session: str, ttl: float | None, tools: Sequence[str] | None, command_id: str
    ) -> dict[str, Any]:
        given = command_id or secrets.token_hex(8)
        return documents.command(given, text, self._wall(), session=session, ttl=ttl, tools=tools)

    async def set(
        self, node: str, device: str, value: Value, *, by: Signature | None = None
    ) -> AsyncIterator[Mapping[str, Any]]:
        """Set a device without a model and yield the replies; needs `listen=replies(node)`."""
        command = self._command(envelope.set_text(device, value), "", None, None, "")
        signed = {**documents.signed_command(node, command, by), "value": value}
        signed.pop("text")
        with self._listening() as queue:
            await self.publish(node, f"device/{device}/set", signed)
            async for document in _replies(queue, str(command["id"])):
                yield document

    async def cancel(self, node: str, command_id: str) -> None:
        """Ask for the end of a command."""
        await self.publish(node, "cancel", documents.cancel(command_id))

    # Questions

    async def decide(
        self,
        question: Mapping[str, Any],
        verdict: Verdict,
        by: Signature | None,
        *,
        replacement: str | None = None,
        grant: Mapping[str, Any] | None = None,
    ) -> None:
        """Answer a question as it was published; `grant` is `{"match": "exact"|"device", "ttl": seconds}` for `always`."""
        answer = documents.decision(question, verdict, by, self._wall(), replacement=replacement, grant=grant)
        await self.publish(str(question["node"]), "approval/decision", answer)

    async def answer(
        self, question: Mapping[str, Any], verdict: Verdict, by: Signature | None, **more: Any
    ) -> Mapping[str, Any]:
        """Answer a question and return what the node said of the answer; needs `listen=questions()`."""
        with self._listening() as queue:
            await self.decide(question, verdict, by, **more)
            while True:
                seen = await queue.get()
                said = seen.document
                ours = said.get("request_id") == question["request_id"] and said.get("event") == "answer"
                if ours and (by is None or said.get("operator") == by.operator):
                    return said

    # Emergency stop

    async def engage(self, node: str, reason: str = "", *, command_id: str = "") -> None:
        """Engage the emergency stop; with an id there is a reply."""
        await self.publish(node, "estop", documents.engage(reason, command_id))

    async def release(self, node: str, boot_id: str, by: Signature, *, command_id: str = "") -> None:
        """Release the emergency stop of the run that `boot_id` in the node's status names."""
        await self.publish(node, "estop", documents.release(node, boot_id, by, self._wall(), command_id))


def replies(node: str) -> tuple[str, ...]:
    """What to listen on for the replies of one node."""
    return (f"{node}/reply",)


def questions(node: str = "+") -> tuple[str, ...]:
    """What to listen on for questions and what became of them; all nodes unless one is named."""
    return (f"{node}/approval/request/+", f"{node}/approval/outcome")


def states(node: str = "+") -> tuple[str, ...]:
    """What to listen on for the retained status documents, presence and device states."""
    return (f"{node}/availability", f"{node}/status", f"{node}/device/+/state")


async def _drained(queue: asyncio.Queue[Seen]) -> AsyncIterator[Seen]:
    while True:
        yield await queue.get()


async def _replies(queue: asyncio.Queue[Seen], command_id: str) -> AsyncIterator[Mapping[str, Any]]:
    while True:
        document = (await queue.get()).document
        if document.get("id") == command_id:
            yield document
            if document.get("stage") in (Stage.FINAL, Stage.ERROR):
                return


def _document(payload: bytes) -> Mapping[str, Any]:
    try:
        parsed = msgspec.json.decode(payload)
    except (msgspec.DecodeError, RecursionError, ValueError):
        return {}
    return parsed if isinstance(parsed, dict) else {}
