"""Makes what a person's client publishes: commands, cancels, decisions and releases, signed where somebody signs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from zeroclawd.messages import Verdict
    from zeroclawd.signing import Signer

VERSION = 1


class Signature(NamedTuple):
    """Who signs, and with what."""

    operator: str
    signer: Signer


def command(
    command_id: str,
    text: str,
    now: float,
    *,
    session: str = "",
    ttl: float | None = None,
    tools: Sequence[str] | None = None,
) -> dict[str, Any]:
    """A command; `now` is Unix seconds, `ttl` seconds."""
    return {
        "v": VERSION,
        "id": command_id,
        "text": text,
        "ts": rfc3339(now),
        **({"session": session} if session else {}),
        **({"ttl": ttl} if ttl is not None else {}),
        **({"tools": list(tools)} if tools is not None else {}),
    }


def signed_command(node: str, unsigned: Mapping[str, Any], by: Signature | None) -> dict[str, Any]:
    """The command with its sender and signature; as it is if nobody signs."""
    if by is None:
        return dict(unsigned)
    from zeroclawd import signing

    signed = {**unsigned, "sender": by.operator}
    return {**signed, "sig": by.signer.sign(signing.COMMAND, signing.command_fields(node, signed))}


def cancel(command_id: str) -> dict[str, Any]:
    """The wish that a command ends."""
    return {"v": VERSION, "id": command_id}


def decision(
    question: Mapping[str, Any],
    verdict: Verdict,
    by: Signature | None,
    now: float,
    *,
    replacement: str | None = None,
    grant: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The answer to a question as it was published."""
    answer: dict[str, Any] = {
        "v": VERSION,
        "request_id": question["request_id"],
        "nonce": question["nonce"],
        "verdict": verdict.value,
        "arguments_digest": question["arguments_digest"],
        "ts": rfc3339(now),
        **({"operator": by.operator} if by else {}),
        **({"replacement": replacement} if replacement is not None else {}),
        **({"grant": dict(grant)} if grant is not None else {}),
    }
    if by is not None:
        from zeroclawd import signing

        answer["sig"] = by.signer.sign(signing.DECISION, signing.decision_fields(answer))
    return answer


def engage(reason: str, command_id: str = "") -> dict[str, Any]:
    """The wish to engage the emergency stop; whoever gives an id gets a reply."""
    return {"v": VERSION, "action": "engage", "reason": reason, **({"id": command_id} if command_id else {})}


def release(node: str, boot_id: str, by: Signature, now: float, command_id: str = "") -> dict[str, Any]:
    """The signed release of the emergency stop of one run of the daemon."""
    from zeroclawd import signing

    wish: dict[str, Any] = {
        "v": VERSION,
        "action": "release",
        "operator": by.operator,
        "ts": rfc3339(now),
        "boot_id": boot_id,
        **({"id": command_id} if command_id else {}),
    }
    return {**wish, "sig": by.signer.sign(signing.RELEASE, signing.release_fields(node, wish))}


def rfc3339(moment: float) -> str:
    """Unix seconds as UTC text; what no calendar holds becomes the epoch."""
    try:
        stamp = datetime.fromtimestamp(moment, UTC)
    except (ValueError, OverflowError, OSError):
        stamp = datetime.fromtimestamp(0, UTC)
    return stamp.isoformat(timespec="milliseconds").replace("+00:00", "Z")
