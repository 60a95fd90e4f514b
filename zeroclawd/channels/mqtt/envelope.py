"""Reads what came in, bytes to typed values, strictly: each fault is a RefusedMessage with its own counted reason."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import field
from datetime import datetime
from typing import Any

import msgspec

from zeroclawd.channels.mqtt.documents import VERSION as VERSION
from zeroclawd.channels.mqtt.documents import rfc3339 as rfc3339
from zeroclawd.errors import RefusedMessage
from zeroclawd.frozen import dataclass
from zeroclawd.messages import Verdict
from zeroclawd.redact import clean, plain
from zeroclawd.schema import canonical
from zeroclawd.tool import Value

ID_LENGTH = 128
_ID = re.compile(r"[A-Za-z0-9._:@=~-]{1,128}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@ -]{0,127}")
_TRUE = frozenset({"on", "true", "yes"})
_FALSE = frozenset({"off", "false", "no"})
_DAY = 86_400.0

Fields = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Packet:
    """What the MQTT packet itself says: correlation data, seconds until it expires, and a response topic."""

    correlation: bytes = b""
    expiry: float | None = None
    response_topic: str = ""


@dataclass(frozen=True, slots=True)
class Command:
    """A command; `fields` is the envelope as it was signed, empty for plain text. Times are Unix seconds, `ttl` seconds."""

    id: str
    text: str
    session: str = ""
    sender: str = ""
    ts: float | None = None
    ttl: float | None = None
    reply_to: str = ""
    tools: tuple[str, ...] | None = None
    sig: str = ""
    fields: Fields = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DeviceSet:
    """A value for one device; `command.id` is empty where the payload was only the value."""

    device: str
    value: Value
    command: Command


@dataclass(frozen=True, slots=True)
class GrantTerms:
    """What an `always` covers (`exact` or `device`) and for how many seconds."""

    match: str
    ttl: float


@dataclass(frozen=True, slots=True)
class Answer:
    """An operator's answer to one question; `fields` is what the signature covers."""

    request_id: str
    nonce: str
    verdict: Verdict
    digest: str
    operator: str = ""
    node: str = ""
    replacement: str | None = None
    grant: GrantTerms | None = None
    sig: str = ""
    fields: Fields = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Engage:
    """Somebody wants the emergency stop."""

    reason: str = ""
    id: str = ""


@dataclass(frozen=True, slots=True)
class Release:
    """An operator wants the emergency stop lifted; `boot_id` binds it to this run of the daemon."""

    operator: str
    ts: float
    boot_id: str
    sig: str
    id: str = ""
    fields: Fields = field(default_factory=dict)


def command(payload: bytes, packet: Packet, *, limit: int, plain_text: bool) -> Command:
    """A command envelope, or plain text where that is configured; correlation data stands in for a missing id."""
    text = _text(payload, limit)
    if plain_text and not text.lstrip().startswith("{"):
        return Command(_id_of({}, packet, required=False), _said(text, ""))
    fields = _object(text)
    given = _id_of(fields, packet, required=True)
    with_id = _Reader(fields, given)
    said = _said(with_id.text("text", limit, required=True), given)
    return _command(with_id, given, said, fields)


def _command(reader: _Reader, given: str, said: str, fields: Fields) -> Command:
    if "sig" in fields and "id" not in fields:
        # Correlation data is not signed: whoever heard a command could send it again under another.
        raise RefusedMessage("bad_signature", "a signed envelope carries its own id", command_id=given)
    return Command(
        id=given,
        text=said,
        session=reader.name("session"),
        sender=reader.name("sender"),
        ts=reader.moment("ts"),
        ttl=reader.seconds("ttl"),
        reply_to=reader.text("reply_to", 1024),
        tools=reader.names("tools"),
        sig=reader.text("sig", 512),
        fields=fields,
    )


def device_set(payload: bytes, packet: Packet, device: str, *, limit: int) -> DeviceSet:
    """A value for a device: a JSON scalar, on/off text, or `{"id", "value"}` with what else a command has.

    The signature of an envelope covers the text that `set_text` makes of it.
    """
    text = _text(payload, limit)
    if not text.lstrip().startswith("{"):
        value = _scalar(text)
        return DeviceSet(device, value, Command(_id_of({}, packet, required=False), set_text(device, value)))
    fields = _object(text)
    given = _id_of(fields, packet, required=False)
    if "value" not in fields:
        raise RefusedMessage("malformed", "the envelope has no value", command_id=given)
    value = _value(fields["value"], given)
    said = set_text(device, value)
    return DeviceSet(device, value, _command(_Reader(fields, given), given, said, {**fields, "text": said}))


def set_text(device: str, value: Value) -> str:
    """The one spelling of a direct command, for its signature, its history and its fingerprint."""
    return f"set {device} {canonical(value).decode()}"


def cancel(payload: bytes, packet: Packet, *, limit: int) -> str:
    """The id of the command that is to stop: `{"id"}`, or correlation data alone."""
    text = _text(payload, limit)
    return _id_of(_object(text), packet, required=True)


def answer(payload: bytes, *, limit: int) -> Answer:
    """An operator's answer; what belongs to its verdict must be there and fit."""
    fields = _object(_text(payload, limit))
    request_id = _id_of({"id": fields.get("request_id")}, Packet(), required=True)
    reader = _Reader(fields, request_id)
    verdict = reader.choice("verdict", Verdict)
    return Answer(
        request_id=request_id,
        nonce=reader.text("nonce", 256, required=True),
        verdict=verdict,
        digest=reader.text("arguments_digest", 256, required=True),
        operator=reader.name("operator"),
        node=reader.name("node"),
        replacement=_replacement(reader, verdict),
        grant=_grant(reader, verdict),
        sig=reader.text("sig", 512),
        fields=fields,
    )


def _replacement(reader: _Reader, verdict: Verdict) -> str | None:
    given = reader.fields.get("replacement")
    if verdict is not Verdict.REPLACE:
        return None
    if not isinstance(given, str):
        raise reader.refuse("malformed", "replace needs a replacement, and it is text")
    return clean(given)


def _grant(reader: _Reader, verdict: Verdict) -> GrantTerms | None:
    given = reader.fields.get("grant")
    if verdict is not Verdict.ALWAYS:
        return None
    if not isinstance(given, dict) or given.get("match") not in ("exact", "device"):
        raise reader.refuse("malformed", "always needs a grant with match 'exact' or 'device', and a ttl in seconds")
    ttl = _Reader(given, reader.command_id).seconds("ttl")
    if not ttl or ttl > 366 * _DAY:
        raise reader.refuse("malformed", "a grant's ttl is a number of seconds, more than none and at most 366 days")
    return GrantTerms(given["match"], ttl)


def estop(payload: bytes, *, limit: int) -> Engage | Release:
    """Engage or release the emergency stop; engaging may be one plain word (`engage`, `stop`, `on`)."""
    text = _text(payload, limit)
    if text.strip().strip('"').casefold() in ("engage", "stop", "on"):
        return Engage()
    fields = _object(text)
    reader = _Reader(fields, _id_of(fields, Packet(), required=False))
    match fields.get("action"):
        case "engage":
            return Engage(plain(reader.text("reason", limit)), reader.command_id)
        case "release":
            return _release(reader, fields)
    raise reader.refuse("malformed", "action is 'engage' or 'release'")


def _release(reader: _Reader, fields: Fields) -> Release:
    ts = reader.moment("ts")
    if ts is None:
        raise reader.refuse("malformed", "a release needs ts, the time it was signed")
    return Release(
        operator=reader.name("operator"),
        ts=ts,
        boot_id=reader.text("boot_id", 128, required=True),
        sig=reader.text("sig", 512),
        id=reader.command_id,
        fields=fields,
    )


# Steps that all of them share


def _text(payload: bytes, limit: int) -> str:
    if len(payload) > limit:
        raise RefusedMessage("oversize", f"the message has {len(payload)} bytes, and {limit} are taken here")
    try:
        text = payload.decode("utf-8")
    except UnicodeDecodeError as error:
        raise RefusedMessage("not_utf8", f"the message is not UTF-8 (from byte {error.start} on)") from None
    if "\x00" in text:
        raise RefusedMessage("nul", "the message contains a NUL character")
    return text


def _json(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        raise RefusedMessage("not_json", f"the message is not JSON: {plain(str(error), 120)}") from None


def _object(text: str) -> dict[str, Any]:
    fields = _json(text)
    if not isinstance(fields, dict):
        raise RefusedMessage("malformed", "the message is JSON but not an object")
    version = fields.get("v", VERSION)
    if isinstance(version, bool) or version != VERSION:
        raise RefusedMessage("version", f"this node speaks version {VERSION} of the protocol")
    return fields


def _id_of(fields: Fields, packet: Packet, *, required: bool) -> str:
    given = fields.get("id")
    if given is None:
        given = _correlated(packet.correlation)
    if not isinstance(given, str):
        raise RefusedMessage("bad_id", "an id is text")
    if not given and required:
        raise RefusedMessage("no_id", "the message has no id")
    if given and not _ID.fullmatch(given):
        raise RefusedMessage("bad_id", f"an id has 1 to {ID_LENGTH} of the characters A-Z a-z 0-9 . _ : @ = ~ -")
    return given


def _correlated(data: bytes) -> str:
    """Correlation data is bytes of any kind: what is no id as it stands becomes one as hex."""
    text = data.decode("ascii", "replace")
    return text if not data or _ID.fullmatch(text) else f"hex:{data.hex()}"


def _said(text: str, command_id: str) -> str:
    if not text.strip():
        raise RefusedMessage("malformed", "the command's text is empty", command_id=command_id)
    return text


def _scalar(text: str) -> Value:
    word = text.strip().casefold()
    if word in _TRUE:
        return True
    if word in _FALSE:
        return False
    try:
        parsed = _json(text)
    except RefusedMessage:
        raise RefusedMessage("malformed", "a value is a JSON scalar, on or off") from None
    return _value(parsed, "")


def _value(parsed: Any, command_id: str) -> Value:
    match parsed:
        case bool():
            return parsed
        case int() if abs(parsed) < 2**63:
            return parsed
        case float() if math.isfinite(parsed):
            return parsed
        case str() if len(parsed) <= 1024 and "\x00" not in parsed and _encodable(parsed):
            word = parsed.strip().casefold()
            return True if word == "on" else False if word == "off" else parsed
    raise RefusedMessage("malformed", "a value is one number, one boolean or one short text", command_id=command_id)


def _encodable(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class _Reader:
    """Takes fields out of an object; a wrong type is `malformed` and names the field, never its content."""

    fields: Fields
    command_id: str

    def refuse(self, reason: str, text: str) -> RefusedMessage:
        return RefusedMessage(reason, text, command_id=self.command_id)

    def text(self, name: str, limit: int, *, required: bool = False) -> str:
        given = self.fields.get(name)
        if given is None and not required:
            return ""
        if not isinstance(given, str) or (required and not given):
            raise self.refuse("malformed", f"{name} is {'missing' if given in (None, '') else 'not text'}")
        if len(given) > limit:
            raise self.refuse("malformed", f"{name} is longer than {limit} characters")
        if "\x00" in given:
            raise self.refuse("nul", f"{name} contains a NUL character")
        if not _encodable(given):
            raise self.refuse("malformed", f"{name} contains half of a surrogate pair")
        return given

    def name(self, name: str) -> str:
        given = self.text(name, 128)
        if given and not _NAME.fullmatch(given):
            raise self.refuse("malformed", f"{name} has characters that a name does not have")
        return given

    def names(self, name: str) -> tuple[str, ...] | None:
        given = self.fields.get(name)
        if given is None:
            return None
        if not isinstance(given, list) or len(given) > 256:
            raise self.refuse("malformed", f"{name} is not a list of names")
        for entry in given:
            if not isinstance(entry, str) or len(entry) > 256 or re.search(r"[\x00-\x1f]", entry):
                raise self.refuse("malformed", f"{name} is not a list of names")
        return tuple(given)

    def choice(self, name: str, among: type[Verdict]) -> Verdict:
        given = self.fields.get(name)
        if not isinstance(given, str) or given not in set(among):
            raise self.refuse("malformed", f"{name} is one of {', '.join(among)}")
        return among(given)

    def seconds(self, name: str) -> float | None:
        given = self.fields.get(name)
        if given is None:
            return None
        if isinstance(given, bool) or not isinstance(given, int | float) or not 0 <= given < 1e10:
            raise self.refuse("malformed", f"{name} is a number of seconds")
        return float(given)

    def moment(self, name: str) -> float | None:
        """Unix seconds, from a number or from RFC 3339 text with an offset."""
        given = self.fields.get(name)
        if given is None or given == "":
            return None
        if isinstance(given, int | float) and not isinstance(given, bool) and 0 <= given < 1e11:
            return float(given)
        moment = _parsed(given) if isinstance(given, str) and len(given) <= 64 else None
        if moment is None:
            raise self.refuse("malformed", f"{name} is no time: Unix seconds, or text such as 2026-01-31T12:00:00Z")
        return moment


def _parsed(text: str) -> float | None:
    try:
        moment = datetime.fromisoformat(text.strip())
        return moment.timestamp() if moment.tzinfo else None
    except (ValueError, OverflowError):
        return None
