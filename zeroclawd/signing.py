"""Signatures and keyed digests over length-prefixed fields, so that no two different messages share their bytes.

Ed25519 (RFC 8032) by PyNaCl, imported when the first key is used; HMAC-SHA256 (RFC 2104) where a signer cannot do better.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import os
from collections.abc import Sequence
from dataclasses import field

from zeroclawd.errors import KeyFileError
from zeroclawd.frozen import dataclass

DECISION = "zeroclawd-decision-v1"
COMMAND = "zeroclawd-command-v1"
RELEASE = "zeroclawd-estop-release-v1"
CHECKPOINT = "zeroclawd-checkpoint-v1"
RECEIPT = "zeroclawd-receipt-v1"
ROW = "zeroclawd-ledger-row-v1"


def encode(label: str, fields: Sequence[str | bytes]) -> bytes:
    """Join a version label and fields, each as a 4-byte big-endian length and its bytes (text as UTF-8): injective."""
    parts = []
    for part in (label, *fields):
        raw = part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part
        parts.append(len(raw).to_bytes(4, "big") + raw)
    return b"".join(parts)


def derive(key: bytes, label: str, *fields: str) -> bytes:
    """A 32-byte key of its own for one purpose, from the device key (HMAC-SHA256 as a PRF, NIST SP 800-108)."""
    return hmac.new(key, encode(label, fields), hashlib.sha256).digest()


def keyed_digest(key: bytes, label: str, *fields: str | bytes) -> str:
    """A hex HMAC-SHA256 over the fields: equal content shows, short secrets cannot be guessed from it."""
    return hmac.new(key, encode(label, fields), hashlib.sha256).hexdigest()


def equal(one: str, other: str) -> bool:
    """Compare two texts in constant time."""
    return hmac.compare_digest(one.encode("utf-8", "surrogatepass"), other.encode("utf-8", "surrogatepass"))


def b64(raw: bytes) -> str:
    """Unpadded base64url (RFC 4648, section 5)."""
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode("ascii")


def unb64(text: str) -> bytes:
    """Read base64 or base64url, padded or not; ValueError if it is neither."""
    plain = text.strip().replace("+", "-").replace("/", "_").rstrip("=")
    try:
        return base64.b64decode(plain + "=" * (-len(plain) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError, UnicodeEncodeError) as error:
        raise ValueError("not base64") from error


@dataclass(frozen=True, slots=True)
class Keypair:
    """An Ed25519 key: `seed` (32 bytes) is the private half and never leaves its owner."""

    seed: bytes = field(repr=False)

    @classmethod
    def generate(cls) -> Keypair:
        """A new key from the system's random source."""
        return cls(os.urandom(32))

    @property
    def public(self) -> str:
        """The public half, base64url."""
        from nacl.signing import SigningKey

        return b64(bytes(SigningKey(self.seed).verify_key))

    def sign(self, label: str, fields: Sequence[str | bytes]) -> str:
        """The signature over the encoded fields, base64url."""
        from nacl.signing import SigningKey

        return b64(SigningKey(self.seed).sign(encode(label, fields)).signature)


@dataclass(frozen=True, slots=True)
class HmacKey:
    """A shared key for signers that have no Ed25519; whoever holds it can sign as well as check."""

    key: bytes = field(repr=False)

    def sign(self, label: str, fields: Sequence[str | bytes]) -> str:
        """The HMAC-SHA256 over the encoded fields, base64url."""
        return b64(hmac.new(self.key, encode(label, fields), hashlib.sha256).digest())


Signer = Keypair | HmacKey


@dataclass(frozen=True, slots=True)
class Verifier:
    """What a device keeps of an operator: a public key, or a shared HMAC key."""

    public_key: str = ""
    hmac_key: bytes = field(default=b"", repr=False)

    def verify(self, signature: str, label: str, fields: Sequence[str | bytes]) -> bool:
        """True if the signature is over exactly these fields by this key; never raises, whatever text it is given."""
        try:
            given, public = unb64(signature), unb64(self.public_key)
        except ValueError:
            return False
        if self.hmac_key:
            return hmac.compare_digest(given, hmac.new(self.hmac_key, encode(label, fields), hashlib.sha256).digest())
        return _ed25519(public, given, encode(label, fields))


def _ed25519(public: bytes, signature: bytes, message: bytes) -> bool:
    from nacl.exceptions import CryptoError
    from nacl.signing import VerifyKey

    try:
        VerifyKey(public).verify(message, signature)
    except (CryptoError, ValueError, TypeError):
        return False
    return True


def public_key(text: str, what: str) -> str:
    """Check that text is an Ed25519 public key (32 bytes, base64); KeyFileError names `what` it belongs to."""
    try:
        raw = unb64(text)
    except ValueError:
        raw = b""
    if len(raw) != 32:
        raise KeyFileError(
            f"{what}: not an Ed25519 public key (32 bytes in base64)",
            hint="`zeroclawd operator keygen NAME` prints the line for the config",
        )
    return b64(raw)


def decision_fields(decision: dict[str, object]) -> list[str]:
    """The fields that a decision's signature covers, in order.

    What is missing or null is empty text; a replacement and a grant are preceded by `set` where there is one, so that an
    empty one is not the same as none.
    """
    names = ("request_id", "nonce", "verdict", "arguments_digest", "operator", "ts")
    replacement, grant = decision.get("replacement"), decision.get("grant")
    terms = grant if isinstance(grant, dict) else {}
    return [
        *(_said(decision.get(name)) for name in names),
        "" if replacement is None else "set",
        _said(replacement),
        "" if grant is None else "set",
        _said(terms.get("match")),
        _said(terms.get("ttl")),
    ]


def command_fields(node: str, command: dict[str, object]) -> list[str]:
    """The fields that a command's signature covers: the node or group it is for, then the envelope's, in order.

    The tools come last, each as a field of its own, preceded by `set` if there is such a list: an empty one allows nothing.
    """
    names = ("id", "text", "session", "sender", "ts", "ttl", "reply_to")
    tools = command.get("tools")
    listed = [_said(name) for name in tools] if isinstance(tools, list) else []
    return [node, *(_said(command.get(name)) for name in names), "" if tools is None else "set", *listed]


def release_fields(node: str, release: dict[str, object]) -> list[str]:
    """The fields that the release of an emergency stop covers."""
    return [node, *(_said(release.get(name)) for name in ("action", "operator", "ts", "boot_id"))]


def _said(value: object) -> str:
    """A JSON value as signed text: text as it is, null as empty, anything else as compact JSON with sorted keys."""
    match value:
        case None:
            return ""
        case str():
            return value
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
