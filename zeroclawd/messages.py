"""The data that flows from an inbound message to an outbound reply; all of it frozen."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import field
from typing import Any

from zeroclawd.frozen import dataclass
from zeroclawd.tool import Assessment, Risk, Tool


class Outcome(enum.StrEnum):
    """How a call ended. Only `ok` gets a receipt."""

    OK = "ok"
    ERROR = "error"
    DENIED = "denied"
    REPLACED = "replaced"
    BLOCKED = "blocked"
    DUPLICATE = "duplicate"
    INTERRUPTED = "interrupted"
    UNKNOWN = "unknown"


class Verdict(enum.StrEnum):
    """What an operator may answer to a question."""

    APPROVE = "approve"
    DENY = "deny"
    ALWAYS = "always"
    REPLACE = "replace"


class Source(enum.StrEnum):
    """Where a decision came from. All but policy, grant and operator are denials by the runtime."""

    POLICY = "policy"
    GRANT = "grant"
    OPERATOR = "operator"
    TIMED_OUT = "timed_out"
    UNREACHABLE = "unreachable"
    UNAVAILABLE = "unavailable"
    CANCELLED = "cancelled"
    RESTARTED = "restarted"
    FAILED = "failed"


class Trust(enum.StrEnum):
    """Whether the text of a message may be read as instructions of a known person."""

    TRUSTED = "trusted"
    UNTRUSTED = "untrusted"


@dataclass(frozen=True, slots=True)
class Ingress:
    """Where a message came from and where its answer goes; `principal` is what was verified, `sender` what was claimed."""

    channel: str
    principal: str
    sender: str = ""
    reply_to: Mapping[str, Any] = field(default_factory=dict)
    interactive: bool = False
    trust: Trust = Trust.UNTRUSTED

    @property
    def local_cli(self) -> bool:
        """True on the machine's own terminal, which `excluded_tools` spares."""
        return self.channel == "cli"


@dataclass(frozen=True, slots=True)
class RawCall:
    """A call as the provider gave it: `arguments` is still text, or an object where the provider sends objects."""

    id: str
    name: str
    arguments: str | Mapping[str, Any]


class Finish(enum.StrEnum):
    """How a provider's reply ended; calls of a reply that ended by length, cut or error never run."""

    STOP = "stop"
    LENGTH = "length"
    CUT = "cut"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens that one model request cost."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer of a model; `extra` is what the provider wants to see again unchanged (reasoning signatures)."""

    text: str = ""
    calls: tuple[RawCall, ...] = ()
    finish: Finish = Finish.STOP
    usage: Usage = Usage()
    model: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A parsed call. `signature` is equal for calls that mean the same; `fault` says why a call cannot be run as given."""

    id: str
    name: str
    arguments: Mapping[str, Any]
    signature: str
    fault: str = ""


class Role(enum.StrEnum):
    """Who speaks in a message of the history."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


@dataclass(frozen=True, slots=True)
class Message:
    """One message of the history; `calls` belong to an assistant, `call_id` and `name` to a tool's answer."""

    role: Role
    text: str
    calls: tuple[ToolCall, ...] = ()
    call_id: str = ""
    name: str = ""
    outcome: Outcome | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether one call may run: by whom, how, and with what it is replaced if it may not."""

    allowed: bool
    source: Source
    by: str = ""
    reason: str = ""
    verdict: Verdict | None = None
    request_id: str = ""
    replacement: str | None = None
    asked: bool = False


@dataclass(frozen=True, slots=True)
class Receipt:
    """Evidence that the runtime produced a successful result; no approval, and no proof that the result is true."""

    token: str
    call_id: str
    tool: str
    issued_at: int


@dataclass(frozen=True, slots=True)
class Prepared:
    """A call that may run: the tool, what it may do, and the decision that let it through."""

    call: ToolCall
    tool: Tool
    assessment: Assessment
    decision: Decision
    digest: str = ""


@dataclass(frozen=True, slots=True)
class ToolResult:
    """How a call ended. `text` is the full result; `shown` is what the model is given of it."""

    call: ToolCall
    outcome: Outcome
    text: str
    data: Any = None
    seconds: float = 0.0
    receipt: Receipt | None = None
    shown: str = ""
    decision: Decision | None = None
    assessment: Assessment | None = None
    digest: str = ""
    intent_seq: int = 0
    ends_turn: bool = False


Slot = Prepared | ToolResult


@dataclass(frozen=True, slots=True)
class Inbound:
    """A message that becomes a turn. `calls` are direct commands that need no model; `tools` narrows what may be seen.

    `once` is False where the message came without an id, so that nobody can tell a second delivery.
    """

    id: str
    text: str
    session: str
    ingress: Ingress
    tools: tuple[str, ...] | None = None
    calls: tuple[RawCall, ...] = ()
    once: bool = True


class Stage(enum.StrEnum):
    """What an outbound message is."""

    ACCEPTED = "accepted"
    PROGRESS = "progress"
    FINAL = "final"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Outbound:
    """A reply on its way to the channel that the command came from."""

    id: str
    stage: Stage
    text: str
    ingress: Ingress
    turn_id: str = ""
    results: tuple[ToolResult, ...] = ()
    flags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Question:
    """What an operator is asked. `arguments` are scrubbed but complete; `digest` binds the real ones.

    `issued_at` and `expires_at` are Unix seconds; `lifetime` is the same span in seconds for the monotonic clock.
    """

    request_id: str
    nonce: str
    node: str
    boot_id: str
    agent: str
    turn_id: str
    call_id: str
    tool: str
    device: str
    risk: Risk
    arguments: Mapping[str, Any]
    digest: str
    summary: str
    requested_by: str
    channel: str
    issued_at: float
    expires_at: float
    lifetime: float
    need: int = 1


@dataclass(frozen=True, slots=True)
class Grant:
    """An `always`: later calls of this principal and tool that match need no question until `expires_at` (Unix seconds).

    `match` is `exact` (same canonical arguments, `digest`) or `device` (any arguments for `device`).
    """

    id: str
    principal: str
    tool: str
    match: str
    digest: str
    device: str
    granted_by: str
    expires_at: float


@dataclass(frozen=True, slots=True)
class Entry:
    """One row of the ledger before the store adds sequence, hashes, boot and clocks; fields as in docs/ledger.md."""

    kind: str
    turn_id: str = ""
    call_id: str = ""
    agent: str = ""
    channel: str = ""
    principal: str = ""
    tool: str = ""
    device: str = ""
    risk: str = ""
    arguments: str = ""
    arguments_digest: str = ""
    decision: str = ""
    decided_by: str = ""
    approval_id: str = ""
    outcome: str = ""
    result_digest: str = ""
    shown_digest: str = ""
    receipt: str = ""
    note: str = ""
