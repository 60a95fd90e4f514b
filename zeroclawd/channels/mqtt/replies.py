"""Makes what a sender reads: one JSON document for each stage of a command, and the address it goes to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from zeroclawd.channels.mqtt.envelope import VERSION, rfc3339
from zeroclawd.errors import RefusedMessage
from zeroclawd.frozen import dataclass
from zeroclawd.interfaces import Parcel, Reading
from zeroclawd.messages import Outbound, Stage, ToolResult
from zeroclawd.redact import bounded

TEXT_LIMIT = 131_072


@dataclass(frozen=True, slots=True)
class Address:
    """Where replies to one command go; `correlation` is MQTT 5 correlation data as hex."""

    topic: str
    correlation: str = ""

    def parcel(self, payload: bytes) -> Parcel:
        """The reply as it is published."""
        properties = {"correlation": self.correlation} if self.correlation else {}
        return Parcel(self.topic, payload, properties=properties)

    def routing(self) -> bytes:
        """The address as the inbox keeps it."""
        return msgspec.json.encode(self)

    @classmethod
    def of(cls, reply_to: Mapping[str, Any], default: str) -> Address:
        """The address that an Ingress carries, or the default one."""
        return cls(str(reply_to.get("topic") or default), str(reply_to.get("correlation") or ""))

    @classmethod
    def read(cls, routing: bytes | None, default: str) -> Address:
        """The address that the inbox kept; the default one if it kept none."""
        try:
            return msgspec.json.decode(routing or b"{}", type=cls)
        except msgspec.DecodeError:
            return cls(default)


def reply(command_id: str, stage: Stage, text: str, now: float, **more: Any) -> bytes:
    """A reply document; `now` is Unix seconds."""
    document = {"v": VERSION, "id": command_id, "stage": stage.value, "text": bounded(text, TEXT_LIMIT), **more}
    return msgspec.json.encode({**document, "ts": rfc3339(now)}, enc_hook=str)


def refusal(error: RefusedMessage, now: float) -> bytes:
    """The error reply to a message that is not acted on."""
    return reply(error.command_id, Stage.ERROR, error.text, now, reason=error.reason)


def turn_reply(outbound: Outbound, now: float) -> bytes:
    """The reply of a turn, with its receipts and what became of each call."""
    receipts = [
        {"tool": result.receipt.tool, "call_id": result.receipt.call_id, "receipt": result.receipt.token}
        for result in outbound.results
        if result.receipt
    ]
    return reply(
        outbound.id,
        outbound.stage,
        outbound.text,
        now,
        turn_id=outbound.turn_id,
        receipts=receipts,
        results=[_result(result) for result in outbound.results],
        flags=list(outbound.flags),
    )


def _result(result: ToolResult) -> dict[str, Any]:
    return {
        "tool": result.call.name,
        "call_id": result.call.id,
        "outcome": result.outcome.value,
        "device": result.assessment.device if result.assessment else "",
        "decided_by": result.decision.by if result.decision else "",
        "seconds": round(result.seconds, 3),
    }


def state(reading: Reading) -> bytes:
    """A device's state; a device with one value has `value` and `unit` beside the lists."""
    values, units = dict(reading.values), dict(reading.units)
    document: dict[str, Any] = {"v": VERSION, "device": reading.device}
    if len(values) == 1:
        (name, value), *_rest = values.items()
        document |= {"value": value, "unit": units.get(name, "")}
    return msgspec.json.encode(
        {
            **document,
            "values": values,
            "units": units,
            "time": rfc3339(reading.taken_at),
            "how": reading.how,
            "warnings": list(reading.warnings),
            "simulated": reading.simulated,
        },
        enc_hook=str,
    )
