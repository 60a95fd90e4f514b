"""What a tool is: its spec, its risk and effect, and the coroutine that does the work."""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any, TypeVar

from zeroclawd.frozen import dataclass

Arguments = Mapping[str, Any]
Value = bool | int | float | str


class Risk(enum.IntEnum):
    """How much a call may cost: low has no side effect, medium changes local state, high is destructive or physical."""

    LOW = 1
    MEDIUM = 2
    HIGH = 3

    @property
    def word(self) -> str:
        """The risk as it is written in configs, questions and ledger rows."""
        return self.name.lower()

    @classmethod
    def parse(cls, word: str) -> Risk:
        """Read `low`, `medium` or `high`; ValueError otherwise."""
        try:
            return cls[word.strip().upper()]
        except KeyError:
            raise ValueError(f"risk is low, medium or high, not {word!r}") from None


class Effect(enum.StrEnum):
    """Whether a call changes anything; what is not known counts as mutating."""

    READ = "read"
    MUTATE = "mutate"
    UNKNOWN = "unknown"

    @property
    def mutates(self) -> bool:
        """True unless the call is known to change nothing."""
        return self is not Effect.READ


@dataclass(frozen=True, slots=True)
class Assessment:
    """What one call with these arguments may do: risk, effect, the resources it holds, and why it was judged so."""

    risk: Risk
    effect: Effect
    resources: frozenset[str] = frozenset()
    device: str = ""
    why: str = ""


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """What the model sees: name, description and a JSON Schema object of the parameters."""

    name: str
    description: str
    parameters: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Output:
    """What a tool returns: the text for the model and, where there is any, structured data."""

    text: str
    data: Any = None


@dataclass(frozen=True, slots=True)
class ToolLimits:
    """Bounds that tools keep: seconds, bytes, and the environment variables that a child process may see."""

    shell_seconds: float = 60.0
    output_bytes: int = 1_048_576
    file_bytes: int = 10_485_760
    environment: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ToolContext:
    """What a call knows of its surroundings; a parameter of this type is handed in and hidden from the model."""

    workspace: Path
    locale: str = "en"
    turn_id: str = ""
    call_id: str = ""
    limits: ToolLimits = field(default_factory=ToolLimits)
    progress: Callable[[str], None] = lambda _text: None


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool as the catalog hands it out; `run` takes checked arguments and the roles that the coroutine asks for."""

    spec: ToolSpec
    assess: Callable[[Arguments], Assessment]
    run: Callable[[Arguments, Mapping[type, Any]], Awaitable[Output]]
    check: Callable[[Arguments], Arguments]
    kind: str = "tool"
    exclusive: bool = False
    repeatable: bool = False
    source: str = ""

    @property
    def name(self) -> str:
        """The canonical name."""
        return self.spec.name

    @property
    def attribution(self) -> str:
        """`<kind>.<alias>`, the key of logs and ledger rows."""
        return f"{self.kind}.{self.spec.name}"


@dataclass(frozen=True, slots=True)
class Declaration:
    """What the decorator notes on a coroutine; the catalog makes a Tool of it."""

    function: Callable[..., Awaitable[Output | str]]
    assess: Callable[[Arguments], Assessment]
    kind: str
    exclusive: bool
    repeatable: bool


Function = TypeVar("Function", bound=Callable[..., Awaitable[Any]])


def tool(
    *,
    risk: Risk = Risk.HIGH,
    effect: Effect = Effect.UNKNOWN,
    device: str = "",
    assess: Callable[[Arguments], Assessment] | None = None,
    kind: str = "tool",
    exclusive: bool = False,
    repeatable: bool = False,
) -> Callable[[Function], Function]:
    """Mark a coroutine as a tool: its name becomes the tool's, its signature the schema.

    `device` names the parameter that holds a device name; the call then holds that device as a resource. `assess`
    replaces `risk`, `effect` and `device` where they depend on the arguments. `repeatable` lets equal calls of one reply
    all run; `exclusive` keeps a call from running beside any other.
    """

    def judge(arguments: Arguments) -> Assessment:
        name = str(arguments.get(device, "")) if device else ""
        held = frozenset({f"device:{name}"}) if name else frozenset[str]()
        return Assessment(risk, effect, held, name)

    def mark(function: Function) -> Function:
        declared = Declaration(function, assess or judge, kind, exclusive, repeatable)
        function.__tool__ = declared  # type: ignore[attr-defined]
        return function

    return mark
