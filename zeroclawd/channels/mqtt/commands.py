"""Takes commands and direct device values: at most one turn for each id, and never silence."""

from __future__ import annotations

import hashlib
import os
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace

from zeroclawd import signing
from zeroclawd.channels.mqtt import envelope
from zeroclawd.channels.mqtt.envelope import Command, DeviceSet, Packet
from zeroclawd.channels.mqtt.link import Delivery
from zeroclawd.channels.mqtt.parts import Parts
from zeroclawd.channels.mqtt.replies import Address, reply
from zeroclawd.channels.mqtt.topics import SET, Heard
from zeroclawd.errors import RefusedMessage, StoreError
from zeroclawd.frozen import dataclass
from zeroclawd.interfaces import Claimed, Host
from zeroclawd.messages import Entry, Inbound, Ingress, RawCall, Stage, Trust
from zeroclawd.redact import plain

PACKETS_REMEMBERED = 256
_PACKET = "packet-"


@dataclass(frozen=True, slots=True)
class _Sender:
    """Whom a command counts as."""

    principal: str
    trust: Trust


class Commands:
    """The lane of commands and device values; `host` is where turns are queued."""

    def __init__(self, parts: Parts, host: Host, new_id: Callable[[], str] = lambda: os.urandom(8).hex()) -> None:
        self._parts = parts
        self._host = host
        self._new_id = new_id
        self._packets: OrderedDict[tuple[int, bytes], None] = OrderedDict()
        self._retained: set[str] = set()

    async def take(self, delivery: Delivery, heard: Heard) -> None:
        """Act on one message or refuse it; what was taken is on disk when this returns. An empty one is nothing."""
        if not delivery.payload:
            return
        if delivery.retain:
            await self._refuse_retained(delivery)
            return
        command: Command | None = None
        try:
            wanted, command = self._read(delivery, heard)
            sender = self._admit(command, heard)
            if wanted is not None:
                self._admit_set(wanted)
            command = self._with_id(command, delivery)
        except RefusedMessage as error:
            await self._refuse(error, self._address(delivery, command.reply_to if command else ""))
            return
        await self._claim(self._inbound(command, wanted, sender, delivery), command, heard)

    # Reading and admitting

    def _read(self, delivery: Delivery, heard: Heard) -> tuple[DeviceSet | None, Command]:
        packet = Packet(delivery.correlation, delivery.expiry, delivery.response_topic)
        limit = int(self._parts.config.max_payload)
        if heard.kind == SET:
            wanted = envelope.device_set(delivery.payload, packet, heard.device, limit=limit)
            return wanted, wanted.command
        plain_text = self._parts.config.plain_text
        return None, envelope.command(delivery.payload, packet, limit=limit, plain_text=plain_text)

    def _with_id(self, command: Command, delivery: Delivery) -> Command:
        """Give an id to what came without one, unless it may be a packet that was acted on before."""
        if command.id:
            return command
        packet = (delivery.mid, hashlib.sha256(delivery.payload).digest())
        if delivery.dup and delivery.qos and (packet in self._packets or self._parts.connects() <= 1):
            raise RefusedMessage(
                "redelivered", "sent twice by the broker and without an id, so it may have been done already"
            )
        self._packets[packet] = None
        while len(self._packets) > PACKETS_REMEMBERED:
            self._packets.popitem(last=False)
        return replace(command, id=f"{_PACKET}{self._new_id()}")

    def _admit(self, command: Command, heard: Heard) -> _Sender:
        self._check_age(command)
        senders = self._parts.config.senders
        if senders and command.sender not in senders:
            raise RefusedMessage("unknown_sender", "this sender is not known here", command_id=command.id)
        if command.sig:
            return self._verified(command, heard)
        if self._parts.config.require_signature:
            raise RefusedMessage("unsigned", "a command needs a signature here", command_id=command.id)
        return _Sender(self._parts.unverified, Trust.UNTRUSTED)

    def _verified(self, command: Command, heard: Heard) -> _Sender:
        fields = signing.command_fields(heard.addressee, dict(command.fields))
        if not self._parts.identities.signed(command.sender, command.sig, signing.COMMAND, fields):
            raise RefusedMessage("bad_signature", "the signature is not this sender's", command_id=command.id)
        if command.ts is None:
            raise RefusedMessage(
                "no_time", "a signed command needs ts, or it could be sent again for ever", command_id=command.id
            )
        return _Sender(f"operator:{command.sender}", Trust.TRUSTED)

    def _check_age(self, command: Command) -> None:
        """Age by the wall clock, as far as that is set; the broker itself drops what MQTT 5 let expire."""
        clock = self._parts.clock
        if command.ts is None or not clock.synced():
            return
        limit = float(self._parts.config.max_age)
        age = clock.wall() - command.ts
        if age > (limit if command.ttl is None else min(limit, command.ttl)):
            raise RefusedMessage("stale", f"too old: sent {age:.0f} seconds ago", command_id=command.id)
        if age < -limit:
            raise RefusedMessage("stale", f"sent {-age:.0f} seconds in the future", command_id=command.id)

    def _admit_set(self, wanted: DeviceSet) -> None:
        known = {info.name: info for info in self._host.devices()}
        info = known.get(wanted.device)
        given = wanted.command.id
        if info is None:
            raise RefusedMessage("unknown_device", f"there is no device {plain(wanted.device, 64)!r}", command_id=given)
        if not given and not info.idempotent:
            raise RefusedMessage(
                "no_id", 'a bare value could be carried out twice; send {"id": "...", "value": ...} instead'
            )
        if self._host.stopped():
            raise RefusedMessage("estop", "the emergency stop is engaged", command_id=given)

    # Taking

    def _inbound(self, command: Command, wanted: DeviceSet | None, sender: _Sender, delivery: Delivery) -> Inbound:
        address = self._address(delivery, command.reply_to)
        calls: tuple[RawCall, ...] = ()
        if wanted is not None:
            arguments = {"device": wanted.device, "value": wanted.value}
            calls = (RawCall(f"set-{command.id}", "device_write", arguments),)
        verified = sender.trust is Trust.TRUSTED
        session = f"{sender.principal}/{command.session}" if verified and command.session else command.session
        reply_to = {"topic": address.topic, "correlation": address.correlation}
        return Inbound(
            id=command.id,
            text=command.text,
            session=session or command.id,
            ingress=Ingress(
                self._parts.name, sender.principal, sender=command.sender, reply_to=reply_to, trust=sender.trust
            ),
            tools=command.tools,
            calls=calls,
            once=not command.id.startswith(_PACKET),
        )

    async def _claim(self, inbound: Inbound, command: Command, heard: Heard) -> None:
        address = self._address_of(inbound)
        entry = self._row(inbound, "accepted", f"id {inbound.id}")
        try:
            claimed = await self._parts.inbox.claim(
                self._parts.name, inbound.id, _fingerprint(command, heard), entry, routing=address.routing()
            )
        except StoreError as error:
            refused = RefusedMessage(
                "store", "commands cannot be recorded now, so none is taken", command_id=inbound.id
            )
            self._parts.log.error("inbox_failed channel=%s error=%s", self._parts.name, error.text)
            await self._refuse(refused, address)
            return
        if claimed.new:
            await self._submit(inbound, address)
        else:
            await self._again(inbound, address, claimed)

    async def _submit(self, inbound: Inbound, address: Address) -> None:
        now = self._parts.clock.wall()
        self._parts.post.passing(address.parcel(reply(inbound.id, Stage.ACCEPTED, "", now)))
        if self._host.submit(inbound):
            return
        text = "too many commands wait already; send it again later, with a new id"
        await self._parts.refusals.note("busy", text, self._row(inbound, "refused", "busy"))
        await self.finish(inbound.id, reply(inbound.id, Stage.ERROR, text, now, reason="busy"), address)

    async def _again(self, inbound: Inbound, address: Address, claimed: Claimed) -> None:
        """A second delivery: the first one's answer again, and no second turn."""
        if claimed.state == "reused":
            error = RefusedMessage("id_reused", "another command had this id before", command_id=inbound.id)
            await self._refuse(error, address)
            return
        row = self._row(inbound, "duplicate", f"id {inbound.id}")
        await self._parts.refusals.note("duplicate", "a command came again and was not run again", row)
        running = reply(inbound.id, Stage.ACCEPTED, "", self._parts.clock.wall(), duplicate=True)
        self._parts.post.passing(address.parcel(claimed.reply or running))

    async def finish(self, command_id: str, payload: bytes, address: Address) -> None:
        """Keep the last reply of a command, for later deliveries of its id and for its sender."""
        try:
            await self._parts.inbox.finish(self._parts.name, command_id, payload)
        except StoreError as error:
            self._parts.log.error("inbox_failed channel=%s error=%s", self._parts.name, error.text)
        await self._parts.post.keep(address.parcel(payload))

    async def end_interrupted(self) -> None:
        """Answer what an earlier boot took and never answered: nobody knows how far it came, and it is not run again."""
        text = "the daemon stopped before this was done; what was done by then is in the ledger"
        for command_id, routing in await self._parts.inbox.unfinished(self._parts.name):
            address = Address.read(routing, self._parts.topics.reply)
            payload = reply(command_id, Stage.ERROR, text, self._parts.clock.wall(), reason="interrupted")
            await self.finish(command_id, payload, address)

    # Refusing

    async def _refuse(self, error: RefusedMessage, address: Address) -> None:
        note = f"{error.reason}: {error.text}{f' (id {error.command_id})' if error.command_id else ''}"
        entry = Entry("command", channel=self._parts.name, decision="refused", note=note)
        await self._parts.refuse(error, entry, address)

    async def _refuse_retained(self, delivery: Delivery) -> None:
        """It comes again with every subscription: counted each time, on record and in the log once for each topic."""
        if delivery.topic in self._retained:
            self._parts.refusals.count("retained")
            return
        self._retained.add(delivery.topic)
        text = "a retained message is never a command; clear it from its topic"
        entry = Entry("command", channel=self._parts.name, decision="refused", note=f"retained: {text}")
        await self._parts.refusals.note("retained", text, entry)

    def _row(self, inbound: Inbound, decision: str, note: str) -> Entry:
        device = inbound.calls[0].arguments if inbound.calls else {}
        return Entry(
            "command",
            channel=self._parts.name,
            principal=inbound.ingress.principal,
            device=str(device["device"]) if isinstance(device, dict) and device else "",
            arguments=self._parts.redactor.text(inbound.text, 2_000),
            decision=decision,
            note=note,
        )

    def _address(self, delivery: Delivery, reply_to: str) -> Address:
        """Where replies go: the packet's or the envelope's wish if it is allowed, else our own topic."""
        topics, prefixes = self._parts.topics, tuple(self._parts.config.reply_prefixes)
        wishes = (wish for wish in (delivery.response_topic, reply_to) if wish)
        allowed = (wish for wish in wishes if topics.reply_allowed(wish, prefixes))
        return Address(next(allowed, topics.reply), delivery.correlation.hex())

    def _address_of(self, inbound: Inbound) -> Address:
        return Address.of(inbound.ingress.reply_to, self._parts.topics.reply)


def _fingerprint(command: Command, heard: Heard) -> str:
    """Differs if the same id comes with another text, for another device, or with other tools."""
    tools = ("set", *command.tools) if command.tools is not None else ()
    return hashlib.sha256(signing.encode("command", (heard.kind, heard.device, command.text, *tools))).hexdigest()
