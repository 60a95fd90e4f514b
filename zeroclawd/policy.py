"""Whether a call may be seen, may run, must ask or is blocked, and who may say yes: frozen profile in, answer out."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from dataclasses import replace

from zeroclawd.config import OperatorConfig, RiskProfile
from zeroclawd.frozen import dataclass
from zeroclawd.messages import Grant
from zeroclawd.schema import canonical_name
from zeroclawd.tool import Assessment, Effect, Risk


class Level(enum.StrEnum):
    """How much an agent may do by itself."""

    READ_ONLY = "read_only"
    SUPERVISED = "supervised"
    FULL = "full"

    @classmethod
    def parse(cls, word: str) -> Level:
        """Read a level; `readonly` is another spelling of `read_only`."""
        return cls.READ_ONLY if word == "readonly" else cls(word)


class Ruling(enum.StrEnum):
    """The answer for one call."""

    RUN = "run"
    ASK = "ask"
    BLOCK = "block"


@dataclass(frozen=True, slots=True)
class Answer:
    """A ruling and why; `reason` names no setting, so it may be shown to the model."""

    ruling: Ruling
    reason: str


def floor(assessment: Assessment, device_risk: Risk | None) -> Assessment:
    """Raise the risk of a call that may change something to medium at least, and to its device's configured risk.

    Low means that nothing changes, so a call whose effect is not known is not low; a reading changes nothing.
    """
    if assessment.effect is Effect.READ:
        return assessment
    return replace(assessment, risk=max(assessment.risk, Risk.MEDIUM, device_risk or Risk.MEDIUM))


def rule(profile: RiskProfile, tool: str, assessment: Assessment) -> Answer:
    """Decide one call by its tool, its assessed risk and effect, and the device that it touches."""
    level, risk = Level.parse(profile.level), floor(assessment, None).risk
    if level is Level.READ_ONLY and assessment.effect.mutates:
        return Answer(Ruling.BLOCK, "only calls without side effects may run here")
    if names(profile.always_ask, tool, assessment.device):
        return Answer(Ruling.ASK, "an operator is always asked for this call")
    if level is Level.FULL or risk is Risk.LOW:
        return Answer(Ruling.RUN, f"{risk.word} risk runs at level {level}")
    if risk is Risk.HIGH:
        return Answer(Ruling.BLOCK, "a call of high risk is not allowed here")
    if names(profile.auto_approve, tool, assessment.device):
        return Answer(Ruling.RUN, "approved in advance")
    return Answer(Ruling.ASK, "a call of medium risk needs an operator")


def repeatable(once: bool, assessment: Assessment, idempotent: bool) -> str:
    """Empty if a call may run although its message could come twice, else why it may not.

    A message without an id is known by its packet only; what it does to a device must then be the same done twice.
    """
    if once or idempotent or not assessment.device or assessment.effect is Effect.READ:
        return ""
    return "the command came without an id and could be carried out twice; send it in an envelope with an id"


def names(entries: Iterable[str], tool: str, device: str) -> bool:
    """True if a list names this call: `*`, a tool, a device, or `tool:device`."""
    for entry in entries:
        head, colon, tail = entry.partition(":")
        if colon:
            if canonical_name(head) == tool and tail.strip() == device:
                return True
        elif entry.strip() in ("*", device or "*") or canonical_name(entry) == tool:
            return True
    return False


def unknown_entries(profile: RiskProfile, tools: Iterable[str], devices: Iterable[str]) -> list[tuple[str, str]]:
    """Entries (list, entry) that could never match: a typo in such a list would be silent otherwise.

    What asks may name `*`, tools, devices and `tool:device`; what is allowed or excluded are tools. Tools of MCP servers
    are taken on trust, since a server says only later what it has.
    """
    known_tools, known_devices = set(tools), set(devices)

    def is_tool(entry: str) -> bool:
        return canonical_name(entry) in known_tools or _of_a_server(canonical_name(entry))

    def is_call(entry: str) -> bool:
        head, colon, tail = entry.partition(":")
        if colon:
            return is_tool(head) and tail.strip() in known_devices
        return entry.strip() in known_devices | {"*"} or is_tool(entry)

    lists = {"always_ask": is_call, "auto_approve": is_call, "allowed_tools": is_tool, "excluded_tools": is_tool}
    return [(name, entry) for name, exists in lists.items() for entry in getattr(profile, name) if not exists(entry)]


def _of_a_server(name: str) -> bool:
    """True for the tools of MCP servers, `<server>__<tool>`."""
    server, _, tool = name.partition("__")
    return bool(server and tool)


def admitted(
    profile: RiskProfile, tools: Sequence[str], *, per_run: Sequence[str] | None = None, local_cli: bool = False
) -> tuple[str, ...]:
    """What a turn may see, which is what it may run: the given canonical names that every list lets through, sorted.

    An empty `allowed_tools` is no constraint; MCP tools (`server__tool`) pass a non-empty one unlisted. A per-run list is a
    strict intersection. `excluded_tools` subtracts everywhere but on the local terminal.
    """
    allowed = {canonical_name(name) for name in profile.allowed_tools}
    excluded = set() if local_cli else {canonical_name(name) for name in profile.excluded_tools}
    listed = None if per_run is None else {canonical_name(name) for name in per_run}

    def passes(name: str) -> bool:
        profile_admits = not allowed or name in allowed or _of_a_server(name)
        return profile_admits and name not in excluded and (listed is None or name in listed)

    return tuple(sorted({name for name in tools if passes(name)}))


# Who may say yes


def entitled(operator: OperatorConfig, risk: Risk, device: str, device_groups: Sequence[str] = ()) -> str:
    """Empty if the operator may decide a call of this risk on this device, else why not."""
    if Risk.parse(operator.may_approve) < risk:
        return f"may approve up to {operator.may_approve} risk, and this call is {risk.word}"
    if not operator.devices and not operator.groups:
        return ""
    if device and (device in operator.devices or set(operator.groups) & set(device_groups)):
        return ""
    return f"is not responsible for {device or 'calls without a device'}"


def unsigned_allowed(setting: str, risk: Risk) -> bool:
    """True if a decision without a signature may lift a call of this risk (`allow_unsigned` of the channel)."""
    return setting != "none" and Risk.parse(setting) >= risk


def granted(
    grants: Iterable[Grant], *, principal: str, tool: str, digest: str, device: str, now: float
) -> Grant | None:
    """The first unexpired grant that covers this call of this principal; `now` is Unix seconds."""
    for grant in grants:
        same = grant.principal == principal and grant.tool == tool and grant.expires_at > now
        if same and (
            (grant.match == "exact" and digest != "" and grant.digest == digest)
            or (grant.match == "device" and device != "" and grant.device == device)
        ):
            return grant
    return None
