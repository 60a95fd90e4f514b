"""A node for tests: the real channel over the real store, with a host that takes notes, and a person at the broker."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from zeroclawd.channels.mqtt.channel import MqttChannel
from zeroclawd.channels.mqtt.link import Delivery, Link, Options
from zeroclawd.config import MqttConfig, OperatorConfig, RiskProfile
from zeroclawd.interfaces import CancelToken, DeviceInfo, Parcel
from zeroclawd.messages import Inbound, Outbound, Question, Stage
from zeroclawd.signing import COMMAND, DECISION, RELEASE, Keypair, command_fields, decision_fields, release_fields
from zeroclawd.store.rows import Row, rows
from zeroclawd.store.store import Store
from zeroclawd.tool import Risk

PATIENCE = 30.0
NODE = "n1"
log = logging.getLogger("tests.node")


class MovableClock:
    """The machine's clocks, which a test may shift."""

    def __init__(self) -> None:
        self.wall_shift = 0.0
        self.monotonic_shift = 0.0
        self.is_synced = True

    def wall(self) -> float:
        return time.time() + self.wall_shift

    def monotonic(self) -> float:
        return time.monotonic() + self.monotonic_shift

    def synced(self) -> bool:
        return self.is_synced


class NotingHost:
    """Plays `interfaces.Host` and keeps what it is told; `full` and `engaged` are for the test to set."""

    def __init__(self) -> None:
        self.taken: list[Inbound] = []
        self.cancelled: list[str] = []
        self.stops: list[tuple[str, str]] = []
        self.full = False
        self.engaged = False
        self.fault = False
        self.news = asyncio.Event()
        self.known = (
            DeviceInfo("lamp", "relay", frozenset({"write"}), Risk.LOW, idempotent=True),
            DeviceInfo("pump", "relay", frozenset({"write"}), Risk.HIGH),
        )

    def submit(self, inbound: Inbound) -> bool:
        if self.fault:
            raise ZeroDivisionError("a bug")
        if not self.full:
            self.taken.append(inbound)
            self.news.set()
        return not self.full

    def cancel(self, channel: str, command_id: str, reason: str) -> bool:
        known = any(inbound.id == command_id and inbound.ingress.channel == channel for inbound in self.taken)
        if known:
            self.cancelled.append(command_id)
            self.news.set()
        return known

    async def engage_stop(self, by: str, reason: str) -> None:
        self.engaged = True
        self.stops.append((by, reason))
        self.news.set()

    async def release_stop(self, by: str) -> None:
        self.engaged = False
        self.stops.append((by, "released"))
        self.news.set()

    def stopped(self) -> bool:
        return self.engaged

    def status(self) -> Mapping[str, Any]:
        self.news.set()
        return {"version": "test", "emergency_stop": self.engaged}

    def devices(self) -> tuple[DeviceInfo, ...]:
        return self.known

    async def until(self, condition: Callable[[], Any]) -> None:
        await eventually(self.news, condition)


async def eventually(news: asyncio.Event, condition: Callable[[], Any]) -> Any:
    async with asyncio.timeout(PATIENCE):
        while not (found := condition()):
            news.clear()
            await news.wait()
    return found


@dataclass
class Node:
    """A running channel with everything around it."""

    channel: MqttChannel
    host: NotingHost
    clock: MovableClock
    store: Store
    folder: Path
    task: asyncio.Task[None]
    outbox: Any

    @property
    def counts(self) -> Mapping[str, int]:
        return self.channel.report()["refused"]

    async def final(self, inbound: Inbound, text: str = "done", **more: Any) -> None:
        await self.channel.deliver(Outbound(inbound.id, Stage.FINAL, text, inbound.ingress, **more))

    def ledger(self, kind: str = "") -> list[Row]:
        return [row for row in rows(self.folder / "zeroclawd.db") if not kind or row.kind == kind]

    async def until_healthy(self, state: str = "ok") -> None:
        """Every change of the link asks the host for its status, which wakes us."""
        await self.host.until(lambda: self.channel.health().state == state)

    async def row(self, condition: Callable[[Row], bool]) -> Row:
        """A row of the ledger, now or after the next change of the status."""
        found: list[Row] = []

        def there() -> bool:
            found[:] = [row for row in self.ledger() if condition(row)]
            return bool(found)

        await self.host.until(there)
        return found[-1]


@contextlib.asynccontextmanager
async def node(
    folder: Path,
    config: MqttConfig,
    *,
    boot_id: str = "boot-1",
    operators: Mapping[str, OperatorConfig] | None = None,
    risk: RiskProfile | None = None,
    groups: Mapping[str, tuple[str, ...]] | None = None,
    clock: MovableClock | None = None,
    wait: bool = True,
    clean: bool = True,
) -> AsyncIterator[Node]:
    """Start a node; without `clean` it ends as by a power cut: no goodbye, and nothing is flushed."""
    clock, host = clock or MovableClock(), NotingHost()
    store = Store.open(folder, clock, boot_id, NODE, linger=0.05)
    await store.ledger.boot("test")
    outbox = store.outbox("mqtt.home")
    channel = MqttChannel(
        "home",
        config,
        node=NODE,
        boot_id=boot_id,
        operators=operators or {},
        risk=risk or RiskProfile(),
        device_groups=groups or {},
        inbox=store.inbox,
        outbox=outbox,
        questions=store.questions,
        ledger=store.ledger,
        clock=clock,
        first_wait=0.05,
    )
    task = asyncio.create_task(channel.run(host), name="channel")
    running = Node(channel, host, clock, store, folder, task, outbox)
    try:
        if wait:
            await running.until_healthy()
        yield running
    finally:
        if not clean:
            _cut(channel)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        await store.close(30)


def _cut(channel: MqttChannel) -> None:
    """Take the connection away without a word, as a power cut does."""
    connection = channel._link._connection
    if connection is not None and connection.socket() is not None:
        connection.socket().close()


@dataclass
class Person:
    """Somebody at the broker: hears everything, says anything."""

    link: Link
    heard: list[Delivery] = field(default_factory=list)
    news: asyncio.Event = field(default_factory=asyncio.Event)

    def receive(self, delivery: Delivery) -> None:
        self.link.ack(delivery)
        self.heard.append(delivery)
        self.news.set()

    async def say(self, rest: str, payload: bytes | str | Mapping[str, Any], **more: Any) -> None:
        """Publish below the node; a mapping as JSON."""
        raw = payload if isinstance(payload, bytes) else payload.encode() if isinstance(payload, str) else None
        body = json.dumps(payload).encode() if raw is None else raw
        await self.link.publish(Parcel(f"zeroclaw/{NODE}/{rest}", body, **more))

    def on(self, rest: str) -> list[Delivery]:
        return [delivery for delivery in self.heard if delivery.topic == f"zeroclaw/{NODE}/{rest}"]

    def documents(self, rest: str) -> list[dict[str, Any]]:
        return [json.loads(delivery.payload) for delivery in self.on(rest) if delivery.payload]

    def replies(self, command_id: str) -> list[dict[str, Any]]:
        return [document for document in self.documents("reply") if document["id"] == command_id]

    async def until(self, condition: Callable[[], Any]) -> Any:
        return await eventually(self.news, condition)

    async def reply(self, command_id: str, stage: str = "final") -> dict[str, Any]:
        found = await self.until(lambda: [r for r in self.replies(command_id) if r["stage"] == stage])
        return found[-1]

    async def refusal(self, reason: str, command_id: str = "") -> dict[str, Any]:
        found = await self.until(lambda: [r for r in self.replies(command_id) if r.get("reason") == reason])
        return found[-1]

    async def request(self, request_id: str) -> dict[str, Any]:
        found = await self.until(lambda: self.documents(f"approval/request/{request_id}"))
        return found[-1]

    async def outcome(self, **wanted: Any) -> dict[str, Any]:
        def matching() -> list[dict[str, Any]]:
            return [o for o in self.documents("approval/outcome") if wanted.items() <= o.items()]

        return (await self.until(matching))[-1]


@contextlib.asynccontextmanager
async def person(port: int, *, more: Mapping[str, Any] | None = None) -> AsyncIterator[Person]:
    """Connect with MQTT 5, and again by itself after an outage."""
    people: list[Person] = []
    options = Options(
        "127.0.0.1", port, f"person-{time.monotonic_ns()}", subscriptions=("zeroclaw/#", "apps/#"), first_wait=0.05
    )
    link = Link(
        dataclasses.replace(options, **(more or {})),
        lambda delivery: people[0].receive(delivery),
        name="person",
        log=log,
    )
    people.append(Person(link))
    task = asyncio.create_task(link.run(), name="person")
    try:
        assert await link.wait_up(PATIENCE)
        yield people[0]
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def mqtt(port: int, **more: Any) -> MqttConfig:
    return MqttConfig(host="127.0.0.1", port=port, node=NODE, client_id="node-under-test", **more)


# Operators

ALICE, BOB, MALLORY = Keypair(b"a" * 32), Keypair(b"b" * 32), Keypair(b"m" * 32)
OPERATORS = {
    "alice": OperatorConfig(public_key=ALICE.public, may_approve="high"),
    "bob": OperatorConfig(public_key=BOB.public, may_approve="high"),
    "junior": OperatorConfig(public_key=MALLORY.public, may_approve="low", release_estop=False),
}


def command(command_id: str, text: str = "light on", **more: Any) -> dict[str, Any]:
    return {"v": 1, "id": command_id, "text": text, **more}


def signed_command(key: Keypair, sender: str, document: Mapping[str, Any], node: str = NODE) -> dict[str, Any]:
    whole = {**document, "sender": sender}
    return {**whole, "sig": key.sign(COMMAND, command_fields(node, whole))}


def decision(
    request: Mapping[str, Any], verdict: str, key: Keypair | None = ALICE, operator: str = "alice", **more: Any
) -> dict[str, Any]:
    document: dict[str, Any] = {
        "v": 1,
        "request_id": request["request_id"],
        "nonce": request["nonce"],
        "verdict": verdict,
        "arguments_digest": request["arguments_digest"],
        "operator": operator,
        "ts": "2026-01-31T12:00:00Z",
        **more,
    }
    return document if key is None else {**document, "sig": key.sign(DECISION, decision_fields(document))}


def release(key: Keypair, operator: str, ts: Any, boot_id: str = "boot-1", **more: Any) -> dict[str, Any]:
    document = {"v": 1, "action": "release", "operator": operator, "ts": ts, "boot_id": boot_id, **more}
    return {**document, "sig": key.sign(RELEASE, release_fields(NODE, document))}


def question(request_id: str = "r1", *, lifetime: float = 60.0, need: int = 1, **more: Any) -> Question:
    now = time.time()
    return Question(
        request_id=request_id,
        nonce=f"nonce-{request_id}",
        node=NODE,
        boot_id="boot-1",
        agent="agent",
        turn_id="t1",
        call_id="c1",
        tool="device_write",
        device=more.pop("device", "pump"),
        risk=more.pop("risk", Risk.HIGH),
        arguments={"device": "pump", "value": True},
        digest=f"digest-{request_id}",
        summary="Switch the pump on?",
        requested_by=more.pop("requested_by", "mqtt:home:unverified"),
        channel="mqtt.home",
        issued_at=now,
        expires_at=now + lifetime,
        lifetime=lifetime,
        need=need,
    )


def ask(running: Node, asked: Question, cancel: CancelToken | None = None) -> asyncio.Task[Any]:
    assert running.channel.approver is not None
    return asyncio.create_task(running.channel.approver.ask(asked, cancel or CancelToken()), name="asking")
