"""Questions as an operator sees them: read with suspicion, found by the beginning of their id, and shown whole."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import click

from zeroclawd.cli import output
from zeroclawd.errors import ChannelError
from zeroclawd.frozen import dataclass

if TYPE_CHECKING:
    from zeroclawd.channels.mqtt.client import Seen
    from zeroclawd.locale import Texts

REQUEST = "approval/request/"
OUTCOME = "approval/outcome"
_NEEDED = ("request_id", "nonce", "arguments_digest", "node")
# What a node says anew of a question without asking another one.
_PASSING = frozenset({"quorum", "expires_in"})


@dataclass(frozen=True, slots=True)
class Asked:
    """An open question; `until` is when it ends, on our monotonic clock."""

    node: str
    id: str
    document: Mapping[str, Any]
    until: float

    @property
    def key(self) -> tuple[str, str]:
        """What tells it from the questions of all other nodes."""
        return self.node, self.id

    def same(self, other: Asked | None) -> bool:
        """True if both ask the same in every word: an answer to one is then an answer to the other."""
        return other is not None and self.key == other.key and self._lasting() == other._lasting()

    def _lasting(self) -> dict[str, Any]:
        return {name: value for name, value in self.document.items() if name not in _PASSING}

    @property
    def short(self) -> str:
        """The beginning of its id, for people."""
        return output.visible(self.id[:8])

    @property
    def summary(self) -> str:
        """What it is about, in one line."""
        return self.text("summary") or self.text("tool")

    @property
    def quorum(self) -> tuple[int, int]:
        """How many approvals it has and how many it needs."""
        said = self.document.get("quorum")
        have, need = (said.get(name) for name in ("have", "need")) if isinstance(said, dict) else (0, 1)
        return (have if isinstance(have, int) else 0, need if isinstance(need, int) else 1)

    def text(self, name: str) -> str:
        """A field as one line that hides nothing."""
        value = self.document.get(name)
        return output.visible(value if isinstance(value, str) else "" if value is None else str(value))

    def left(self) -> float:
        """Seconds that are left."""
        return self.until - time.monotonic()


def read(seen: Seen) -> Asked | None:
    """The question in a retained request; None if it is cleared, or is not the question of this topic."""
    said = seen.document
    request_id = seen.rest.removeprefix(REQUEST)
    if not all(isinstance(said.get(name), str) for name in _NEEDED):
        return None
    if said["request_id"] != request_id or said["node"] != seen.node:
        return None
    return Asked(seen.node, request_id, said, time.monotonic() + _lifetime(seen))


def _lifetime(seen: Seen) -> float:
    """Seconds that are left as the broker counts them; else as the node said, and this clock only where it says less."""
    if seen.expiry is not None:
        return seen.expiry
    said = seen.document.get("expires_in")
    whole = float(said) if isinstance(said, int | float) else 120.0
    ends = output.unix(seen.document.get("expires_at"))
    passed = ends - time.time() if ends is not None else whole
    return min(whole, passed) if passed > 0 else whole


def open_ones(messages: Iterable[Seen]) -> list[Asked]:
    """The questions among retained messages, the one that ends first before the others."""
    found = [read(seen) for seen in messages if seen.rest.startswith(REQUEST) and seen.payload]
    return sorted((asked for asked in found if asked is not None), key=lambda asked: asked.until)


def pick(beginning: str, among: list[Asked]) -> Asked:
    """The one question whose id begins so. UsageError if several do, ChannelError if none does."""
    fitting = [asked for asked in among if asked.id == beginning] or [
        asked for asked in among if asked.id.startswith(beginning)
    ]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        named = ", ".join(f"{asked.node} {output.visible(asked.id)}" for asked in fitting[:5])
        raise click.UsageError(
            f"{beginning!r} is the beginning of {len(fitting)} ids: {named}; --node tells nodes apart"
        )
    raise ChannelError(
        f"no open question has an id that begins with {beginning!r}: it was answered, has expired, or never was",
        hint="`zeroclawd approvals list` shows what is open",
    )


# Showing


def shown(asked: Asked) -> str:
    """The whole question: nothing that would be done is left out."""
    have, need = asked.quorum
    rows = [
        ("risk", output.by_meaning(asked.text("risk"))),
        ("device", asked.text("device") or "-"),
        ("tool", asked.text("tool")),
        ("asked by", asked.text("requested_by") or "-"),
        ("agent", f"{asked.text('agent')}, turn {asked.text('turn_id')}"),
        ("left", output.left(asked.left())),
        *([("approvals", f"{have} of {need}")] if need > 1 else []),
        ("id", output.visible(asked.id)),
        ("arguments", _arguments(asked)),
    ]
    head = f"{output.visible(asked.node)}: {output.colour(asked.summary, bold=True)}"
    return "\n".join((head, *(f"  {name:10} {text}" for name, text in rows)))


def _arguments(asked: Asked) -> str:
    """All arguments as JSON: in one line if they fit, else one a line."""
    arguments = asked.document.get("arguments")
    if len(text := json.dumps(arguments, ensure_ascii=False)) <= 80:
        return output.visible(text)
    lines = json.dumps(arguments, ensure_ascii=False, indent=2).split("\n")
    return f"\n{' ' * 13}".join(output.visible(line) for line in lines)


def line(asked: Asked) -> str:
    """The same in one line, for a pipe."""
    have, need = asked.quorum
    votes = f"  approvals={have}/{need}" if need > 1 else ""
    arguments = output.visible(json.dumps(asked.document.get("arguments"), ensure_ascii=False, separators=(",", ":")))
    return (
        f"{output.visible(asked.node)}  asked  {asked.short}  {asked.summary}  risk={asked.text('risk')}  "
        f"device={asked.text('device') or '-'}  tool={asked.text('tool')}  by={asked.text('requested_by') or '-'}{votes}  "
        f"left={output.left(asked.left())}  arguments={arguments}"
    )


def outcome(words: Texts, said: Mapping[str, Any]) -> str:
    """What a node says of an answer or of the end of a question, as a sentence."""
    by = output.visible(str(said.get("operator") or said.get("by") or "-"))
    if said.get("event") == "ended":
        end = str(said.get("outcome"))
        return f"{words('approvals-ended')}: {output.by_meaning(output.visible(end))} ({by})"
    verdict = output.visible(str(said.get("verdict") or words("approvals-answer")))
    if said.get("result") == "accepted":
        return f"{verdict}: {output.colour(words('approvals-accepted'), output.GOOD)} ({by}){_votes(words, said)}"
    why = output.visible(str(said.get("text") or said.get("reason") or "?"))
    return f"{verdict}: {output.colour(words('approvals-refused'), output.BAD)} ({by}): {why}"


def _votes(words: Texts, said: Mapping[str, Any]) -> str:
    quorum = said.get("quorum")
    have, need = (quorum.get("have", 0), quorum.get("need", 1)) if isinstance(quorum, dict) else (0, 1)
    more = f"; {words('approvals-more-needed')}" if isinstance(need, int) and have < need else ""
    return f", {have}/{need}{more}" if need != 1 and said.get("verdict") in ("approve", "always") else ""


def advice(words: Texts, said: Mapping[str, Any]) -> str:
    """What to try after a refusal, or empty."""
    message = f"approvals-try-{str(said.get('reason', '')).replace('_', '-')}"
    return words(message) if words.has(message) else ""
