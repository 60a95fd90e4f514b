"""The topics of one node as validated values, and what a received topic means."""

from __future__ import annotations

import re
from typing import Final

from zeroclawd.errors import ConfigError
from zeroclawd.frozen import dataclass

COMMAND: Final = "command"
CANCEL: Final = "cancel"
SET: Final = "set"
DECISION: Final = "approval/decision"
ESTOP: Final = "estop"

_LEVEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
# The fleet topics `<base>/all/...` and `<base>/group/...` stand where a node's name would.
_TAKEN = frozenset({"all", "group"})
_RESERVED = frozenset(
    {"availability", "status", COMMAND, "reply", CANCEL, "device", "approval", "event", ESTOP, "checkpoint"}
)


def checked_base(text: str, key: str) -> str:
    """A topic prefix without wildcards, NUL, leading `$` or empty levels (MQTT 5.0, section 4.7); else ConfigError."""
    if not text or re.search(r"[+#\x00\ud800-\udfff]", text) or text.startswith("$") or "" in text.split("/"):
        raise ConfigError(f"{text!r} cannot be part of a topic (no '+', '#', NUL, empty level or leading '$')", key=key)
    return text


def checked_node(text: str, key: str = "node") -> str:
    """A node's name: one topic level that no fleet topic uses; ConfigError otherwise."""
    if not _LEVEL.fullmatch(text) or text in _TAKEN:
        raise ConfigError(
            f"{text!r} is not a node's name (letters, digits, '-', '_' and '.'; not 'all', 'group')", key=key
        )
    return text


def publishable(topic: str) -> bool:
    """True if a message may be published to this topic (MQTT 5.0, sections 3.3.2.1 and 4.7)."""
    fits = 0 < len(topic.encode("utf-8", "replace")) <= 1024
    return fits and not re.search(r"[+#\x00-\x1f\x7f\ud800-\udfff]", topic) and not topic.startswith("$")


@dataclass(frozen=True, slots=True)
class Heard:
    """What a received topic is: its kind, whom the message is for (node, `all` or `group/<g>`), and the device it names."""

    kind: str
    addressee: str
    device: str = ""


@dataclass(frozen=True, slots=True)
class Topics:
    """All topics of one node under one base."""

    base: str
    node: str
    groups: tuple[str, ...] = ()
    fleet: bool = False

    def __post_init__(self) -> None:
        checked_base(self.base, "base_topic")
        checked_node(self.node)
        for group in self.groups:
            checked_base(group, "groups")

    @property
    def root(self) -> str:
        """`<base>/<node>`."""
        return f"{self.base}/{self.node}"

    @property
    def availability(self) -> str:
        """Plain `online` or `offline`, retained; also the will."""
        return f"{self.root}/availability"

    @property
    def status(self) -> str:
        """The status document, retained."""
        return f"{self.root}/status"

    @property
    def command(self) -> str:
        """Commands for this node."""
        return f"{self.root}/{COMMAND}"

    @property
    def reply(self) -> str:
        """Replies, unless a request names a topic of its own."""
        return f"{self.root}/reply"

    @property
    def cancel(self) -> str:
        """Cancels of commands."""
        return f"{self.root}/{CANCEL}"

    @property
    def decision(self) -> str:
        """Answers of operators."""
        return f"{self.root}/{DECISION}"

    @property
    def outcome(self) -> str:
        """What became of each answer and each question."""
        return f"{self.root}/approval/outcome"

    @property
    def estop(self) -> str:
        """Engaging and releasing the emergency stop."""
        return f"{self.root}/{ESTOP}"

    @property
    def checkpoint(self) -> str:
        """Signed ledger heads."""
        return f"{self.root}/checkpoint"

    def request(self, request_id: str) -> str:
        """The retained question with this id."""
        return f"{self.root}/approval/request/{request_id}"

    def state(self, device: str) -> str:
        """A device's state, retained."""
        return f"{self.root}/device/{device}/state"

    def set(self, device: str) -> str:
        """Direct commands for a device."""
        return f"{self.root}/device/{device}/{SET}"

    def event(self, kind: str) -> str:
        """Turn events of one kind."""
        return f"{self.root}/event/{kind}"

    @property
    def subscriptions(self) -> tuple[str, ...]:
        """The filters that this node listens on."""
        fleet = (f"{self.base}/all/{COMMAND}",) if self.fleet else ()
        groups = tuple(f"{self.base}/group/{group}/{COMMAND}" for group in self.groups)
        own = (self.command, self.cancel, self.set("+"), self.decision, self.estop)
        return own + fleet + groups

    def heard(self, topic: str) -> Heard | None:
        """What a received topic means to this node; None if it is not for it."""
        if topic.startswith(f"{self.root}/"):
            return self._own(topic.removeprefix(f"{self.root}/"))
        if self.fleet and topic == f"{self.base}/all/{COMMAND}":
            return Heard(COMMAND, "all")
        group = topic.removeprefix(f"{self.base}/group/").removesuffix(f"/{COMMAND}")
        if group in self.groups and topic == f"{self.base}/group/{group}/{COMMAND}":
            return Heard(COMMAND, f"group/{group}")
        return None

    def _own(self, rest: str) -> Heard | None:
        if rest in (COMMAND, CANCEL, DECISION, ESTOP):
            return Heard(rest, self.node)
        match rest.split("/"):
            case ["device", device, "set"] if device:
                return Heard(SET, self.node, device)
        return None

    def reply_allowed(self, topic: str, prefixes: tuple[str, ...]) -> bool:
        """True if a sender may have replies sent to this topic: our own reply topic, or one below a configured prefix.

        A reply that lands on a command topic would be a command, so no topic of the protocol itself is ever accepted.
        """
        if topic == self.reply:
            return True
        if not publishable(topic) or (topic.startswith(f"{self.base}/") and not _RESERVED.isdisjoint(topic.split("/"))):
            return False
        return any(topic == prefix or topic.startswith(f"{prefix.rstrip('/')}/") for prefix in prefixes if prefix)


def node_of(base: str, topic: str) -> tuple[str, str]:
    """Split `<base>/<node>/<rest>` into node and rest; two empty texts if it is something else."""
    if not topic.startswith(f"{base}/"):
        return "", ""
    node, _, rest = topic.removeprefix(f"{base}/").partition("/")
    return node, rest
