"""The MQTT channel: puts link, post, lanes and approver together and plays the role of a channel."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from zeroclawd.channels.mqtt import replies
from zeroclawd.channels.mqtt.approval import MqttApprover, Rules
from zeroclawd.channels.mqtt.commands import Commands
from zeroclawd.channels.mqtt.envelope import VERSION, rfc3339
from zeroclawd.channels.mqtt.identity import Identities
from zeroclawd.channels.mqtt.link import Delivery, Link, Options, Presence
from zeroclawd.channels.mqtt.parts import Parts
from zeroclawd.channels.mqtt.post import Post
from zeroclawd.channels.mqtt.refusals import Refusals
from zeroclawd.channels.mqtt.replies import Address
from zeroclawd.channels.mqtt.stops import Stops
from zeroclawd.channels.mqtt.topics import COMMAND, DECISION, SET, Heard, Topics
from zeroclawd.config import MqttConfig, OperatorConfig, RiskProfile, secret
from zeroclawd.errors import StoreError
from zeroclawd.events import Chunk, TurnEvent
from zeroclawd.interfaces import Approver, Clock, Health, Host, Inbox, Ledger, Outbox, Parcel, Questions, Reading
from zeroclawd.messages import Outbound, Stage
from zeroclawd.redact import Redactor
from zeroclawd.signing import keyed_digest

LANE_BOUND = 256
FLUSH_SECONDS = 1.5
# Counters change with every refused message; the status follows them at most this often (seconds).
STATUS_SPACING = 1.0

_Take = Callable[[Delivery, Heard], Awaitable[None]]


class MqttChannel:
    """One broker: commands in, replies and states out, and questions to operators over the same connection."""

    def __init__(
        self,
        alias: str,
        config: MqttConfig,
        *,
        node: str,
        boot_id: str,
        operators: Mapping[str, OperatorConfig],
        risk: RiskProfile,
        device_groups: Mapping[str, Sequence[str]],
        inbox: Inbox,
        outbox: Outbox,
        questions: Questions,
        ledger: Ledger,
        clock: Clock,
        log: logging.Logger | None = None,
        redactor: Redactor | None = None,
        first_wait: float = 1.0,
    ) -> None:
        self.name = f"mqtt.{alias}"
        self._log = log or logging.getLogger(__name__)
        self._clock = clock
        self._config = config
        self.topics = Topics(config.base_topic, config.node or node, tuple(config.groups), config.fleet)
        self._link = Link(
            options(alias, config, self.topics, first_wait=first_wait),
            self._receive,
            name=self.name,
            log=self._log,
            on_up=self._link_is_up,
            on_change=self.refresh,
        )
        self._post = Post(self._link, outbox, self._log, self._refresh_soon)
        refusals = Refusals(self.name, ledger, clock, self._log, self._refresh_soon)
        self._parts = Parts(
            name=self.name,
            alias=alias,
            config=config,
            topics=self.topics,
            boot_id=boot_id,
            clock=clock,
            log=self._log,
            post=self._post,
            refusals=refusals,
            identities=Identities(operators),
            inbox=inbox,
            ledger=ledger,
            redactor=redactor or Redactor(),
            connects=lambda: self._link.connects,
        )
        self._approver = MqttApprover(
            channel=self.name,
            topics=self.topics,
            rules=Rules(risk.sender_may_approve, config.allow_unsigned, device_groups, int(config.max_payload)),
            identities=self._parts.identities,
            link=self._link,
            post=self._post,
            questions=questions,
            ledger=ledger,
            refusals=refusals,
            clock=clock,
            log=self._log,
            on_change=self._refresh_soon,
        )
        self.approver: Approver | None = self._approver
        self._lanes = {
            name: asyncio.Queue[tuple[Delivery, Heard]](LANE_BOUND) for name in ("command", "answer", "stop")
        }
        self._host: Host | None = None
        self._commands: Commands | None = None
        self._soon: asyncio.TimerHandle | None = None
        self._status = b""

    # The life of the channel

    async def run(self, host: Host) -> None:
        """Work until cancelled; then send what is left, say goodbye and leave, all within a bounded time."""
        self._host = host
        self._commands = commands = Commands(self._parts, host)
        stops = Stops(self._parts, host)
        await self._end_what_an_earlier_boot_left(commands)
        takers: dict[str, _Take] = {"command": commands.take, "answer": self._judge, "stop": stops.take}
        async with asyncio.TaskGroup() as whole:
            whole.create_task(self._link.run(), name=f"{self.name} link")
            try:
                await self._work(takers)
            finally:
                self._rest()
                await self._post.flush(FLUSH_SECONDS)

    async def _end_what_an_earlier_boot_left(self, commands: Commands) -> None:
        try:
            await commands.end_interrupted()
            await self._approver.end_leftovers()
        except StoreError as error:
            self._log.error("leftovers_failed channel=%s error=%s", self.name, error.text)

    async def _work(self, takers: Mapping[str, _Take]) -> None:
        self.refresh()
        async with asyncio.TaskGroup() as lanes:
            lanes.create_task(self._post.run(), name=f"{self.name} post")
            for name, take in takers.items():
                lanes.create_task(self._serve(self._lanes[name], take), name=f"{self.name} {name} lane")

    def _rest(self) -> None:
        if self._soon is not None:
            self._soon.cancel()

    async def _serve(self, lane: asyncio.Queue[tuple[Delivery, Heard]], take: _Take) -> None:
        """Take one message after the other; it is acknowledged when it has been acted on, refused or found faulty."""
        while True:
            delivery, heard = await lane.get()
            try:
                await take(delivery, heard)
            except Exception:
                self._log.exception("mqtt_message_failed channel=%s topic=%s", self.name, delivery.topic)
                self._parts.refusals.count("failed")
            self._link.ack(delivery)

    async def _judge(self, delivery: Delivery, _heard: Heard) -> None:
        await self._approver.judge(delivery)

    # What the link tells

    def _receive(self, delivery: Delivery) -> None:
        """Sort a message into its lane; a lane that is full refuses it, so that the broker can go on."""
        heard = self.topics.heard(delivery.topic)
        if heard is None:
            self._link.ack(delivery)
            return
        lane = "command" if heard.kind in (COMMAND, SET) else "answer" if heard.kind == DECISION else "stop"
        try:
            self._lanes[lane].put_nowait((delivery, heard))
        except asyncio.QueueFull:
            self._parts.refusals.count("busy")
            self._link.ack(delivery)

    def _link_is_up(self) -> None:
        self._post.link_is_up()
        self._approver.link_is_up()

    # What the daemon tells

    async def deliver(self, outbound: Outbound) -> None:
        """Bring a reply to its sender: the last one by way of the disk, earlier ones while somebody listens."""
        address = Address.of(outbound.ingress.reply_to, self.topics.reply)
        payload = replies.turn_reply(outbound, self._clock.wall())
        if outbound.stage in (Stage.FINAL, Stage.ERROR) and self._commands is not None:
            await self._commands.finish(outbound.id, payload, address)
        else:
            self._post.passing(address.parcel(payload))

    def changed(self, reading: Reading) -> None:
        """Publish a device's new state, as the hardware shows it."""
        self._post.state(self.topics.state(reading.device), replies.state(reading))

    def refresh(self) -> None:
        """Publish the status document if it differs from the last one."""
        if self._host is None:
            return
        document = {"v": VERSION, **self._host.status(), "mqtt": self.report()}
        payload = msgspec.json.encode(document, enc_hook=str)
        if payload != self._status:
            self._status = payload
            self._post.state(self.topics.status, payload)

    def _refresh_soon(self) -> None:
        if self._soon is None and self._host is not None:
            self._soon = asyncio.get_running_loop().call_later(STATUS_SPACING, self._refresh_now)

    def _refresh_now(self) -> None:
        self._soon = None
        self.refresh()

    def observe(self, event: TurnEvent) -> None:
        """Publish a turn's event where the config asks for it; streamed text stays here, it comes again at the end."""
        if not self._config.events or isinstance(event, Chunk):
            return
        kind = re.sub(r"(?<!^)(?=[A-Z])", "_", type(event).__name__).lower()
        document = {**msgspec.to_builtins(event, enc_hook=str), "v": VERSION, "ts": rfc3339(self._clock.wall())}
        self._link.publish_now(self.topics.event(kind), msgspec.json.encode(document))

    def reconfigure(self, operators: Mapping[str, OperatorConfig], risk: RiskProfile) -> None:
        """Take over who may approve; it holds from the next answer on."""
        self._parts.identities.replace(operators)
        self._approver.allow_senders(risk.sender_may_approve)

    async def checkpoint(self, payload: bytes) -> None:
        """Publish a signed ledger head, now or when the broker is back."""
        await self._post.keep(Parcel(self.topics.checkpoint, payload))

    # What others ask

    def health(self) -> Health:
        """`ok` only when connected and every subscription is granted."""
        return self._link.health()

    def report(self) -> dict[str, Any]:
        """The channel's part of the status document: link, protocol, open questions, and what was refused and why."""
        health = self._link.health()
        refused = dict(sorted(self._parts.refusals.counts.items()))
        return {
            "channel": self.name,
            "state": health.state,
            "detail": health.detail,
            "protocol": self._link.protocol,
            "connects": self._link.connects,
            "open_questions": len(self._approver.pending),
            "refused": refused,
            "dropped": self._link.dropped,
            "not_taken": self._post.refused,
        }


def options(alias: str, config: MqttConfig, topics: Topics, *, first_wait: float = 1.0) -> Options:
    """The link's options from the config's keys; the password is read anew for every attempt."""
    what = f"channels.mqtt.{alias}"
    return Options(
        host=config.host,
        port=config.port or (8883 if config.tls else 1883),
        client_id=config.client_id or default_client_id(topics.node, alias),
        subscriptions=topics.subscriptions,
        protocol=config.protocol,
        username=config.username,
        password=lambda: secret(
            what, file=config.password_file, env=config.password_env, credential=config.password_credential
        ),
        tls=config.tls,
        keepalive=float(config.keepalive) or 60.0,
        session_expiry=float(config.session_expiry),
        max_packet=max(2 * int(config.max_payload), 2_097_152) + 65_536,
        presence=Presence(topics.availability),
        first_wait=first_wait,
    )


def default_client_id(node: str, alias: str, machine_id: Path = Path("/etc/machine-id")) -> str:
    """An id that stays over restarts and differs between boards: from node, alias and machine-id(5), which stays secret."""
    try:
        machine = machine_id.read_bytes().strip()
    except OSError:
        machine = b""
    suffix = keyed_digest(machine, "zeroclawd-client-id", alias)[:8]
    return f"zeroclawd-{node}-{suffix}"
