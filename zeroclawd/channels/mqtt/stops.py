"""Takes cancels and the emergency stop, in a lane of their own so that nothing is ahead of them."""

from __future__ import annotations

from zeroclawd import signing
from zeroclawd.channels.mqtt import envelope
from zeroclawd.channels.mqtt.envelope import Engage, Packet, Release
from zeroclawd.channels.mqtt.link import Delivery
from zeroclawd.channels.mqtt.parts import Parts
from zeroclawd.channels.mqtt.replies import Address, reply
from zeroclawd.channels.mqtt.topics import CANCEL, Heard
from zeroclawd.errors import EmergencyStopped, RefusedMessage
from zeroclawd.interfaces import Host
from zeroclawd.messages import Entry, Stage


class Stops:
    """Anybody who may publish here can stop; only an entitled operator's fresh signature lets go on."""

    def __init__(self, parts: Parts, host: Host) -> None:
        self._parts = parts
        self._host = host
        self._released: set[tuple[str, float]] = set()

    async def take(self, delivery: Delivery, heard: Heard) -> None:
        """Act on one message or refuse it; an empty one is nothing."""
        if not delivery.payload:
            return
        try:
            if delivery.retain:
                raise RefusedMessage("retained", "a retained message is never a command; clear it from its topic")
            if heard.kind == CANCEL:
                self._cancel(delivery)
            else:
                await self._estop(delivery)
        except RefusedMessage as error:
            await self._refuse(error, delivery, heard)

    def _cancel(self, delivery: Delivery) -> None:
        packet = Packet(delivery.correlation)
        command_id = envelope.cancel(delivery.payload, packet, limit=int(self._parts.config.max_payload))
        if not self._host.cancel(self._parts.name, command_id, "cancelled by its sender"):
            raise RefusedMessage("unknown_id", "no command of this id waits or runs", command_id=command_id)

    async def _estop(self, delivery: Delivery) -> None:
        match envelope.estop(delivery.payload, limit=int(self._parts.config.max_payload)):
            case Engage() as wish:
                await self._host.engage_stop(self._parts.unverified, wish.reason or "over MQTT")
                self._answer(wish.id, "the emergency stop is engaged")
            case Release() as wish:
                self._check_release(wish)
                try:
                    await self._host.release_stop(f"operator:{wish.operator}")
                except EmergencyStopped as error:
                    raise _no(wish, "still_engaged", error.text) from None
                self._answer(wish.id, "the emergency stop is released")

    def _check_release(self, wish: Release) -> None:
        operator = self._parts.identities.operator(wish.operator)
        if operator is None:
            raise _no(wish, "unknown_operator", "no operator of this name is configured")
        fields = signing.release_fields(self._parts.topics.node, dict(wish.fields))
        if not self._parts.identities.signed(wish.operator, wish.sig, signing.RELEASE, fields):
            raise _no(wish, "bad_signature", "the signature is not this operator's over this release")
        if not operator.release_estop:
            raise _no(wish, "not_entitled", "this operator does not release the emergency stop")
        if not signing.equal(wish.boot_id, self._parts.boot_id):
            raise _no(wish, "wrong_boot", "the release is for another run of the daemon; see boot_id in the status")
        self._check_fresh(wish)

    def _check_fresh(self, wish: Release) -> None:
        """Each release counts once; by the wall clock, as far as that is set, it is also of this moment."""
        clock = self._parts.clock
        if clock.synced() and abs(clock.wall() - wish.ts) > float(self._parts.config.max_age):
            raise _no(wish, "stale", "the release was not signed just now")
        if (wish.operator, wish.ts) in self._released:
            raise _no(wish, "replayed", "this release has been used before")
        self._released.add((wish.operator, wish.ts))

    def _answer(self, command_id: str, text: str) -> None:
        if command_id:
            self._send(reply(command_id, Stage.FINAL, text, self._parts.clock.wall()))

    def _send(self, payload: bytes) -> None:
        self._parts.post.passing(Address(self._parts.topics.reply).parcel(payload))

    async def _refuse(self, error: RefusedMessage, delivery: Delivery, heard: Heard) -> None:
        kind = "command" if heard.kind == CANCEL else "estop"
        note = f"{heard.kind}: {error.reason}: {error.text}"
        entry = Entry(kind, channel=self._parts.name, decision="refused", note=note)
        address = None if delivery.retain else Address(self._parts.topics.reply)
        await self._parts.refuse(error, entry, address)


def _no(wish: Release, reason: str, text: str) -> RefusedMessage:
    return RefusedMessage(reason, text, command_id=wish.id)
