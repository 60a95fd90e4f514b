"""What happens in a turn, one class per moment; the events of a call share its id."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from zeroclawd.frozen import dataclass


@dataclass(frozen=True, slots=True)
class TurnEvent:
    """The root of all events: which turn of which agent, and through which channel it came."""

    turn_id: str
    agent: str
    channel: str


@dataclass(frozen=True, slots=True)
class TurnStarted(TurnEvent):
    """A message became a turn."""

    command_id: str
    principal: str
    session: str


@dataclass(frozen=True, slots=True)
class TurnEnded(TurnEvent):
    """The turn is over: `how` is finished, cancelled, capped, stopped or failed."""

    command_id: str
    how: str
    seconds: float
    rounds: int
    text: str = ""


@dataclass(frozen=True, slots=True)
class ModelAsked(TurnEvent):
    """A request goes to a model."""

    provider: str
    round: int
    messages: int
    tools: int


@dataclass(frozen=True, slots=True)
class ModelAnswered(TurnEvent):
    """A model answered or failed (`error`)."""

    provider: str
    round: int
    seconds: float
    calls: int
    input_tokens: int = 0
    output_tokens: int = 0
    error: str = ""


@dataclass(frozen=True, slots=True)
class CallStarted(TurnEvent):
    """A call has its slot and begins; exactly one per call, also for calls that are refused."""

    call_id: str
    tool: str
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CallEnded(TurnEvent):
    """A call ended; exactly one per call, after its start."""

    call_id: str
    tool: str
    outcome: str
    seconds: float
    text: str = ""
    receipt: str = ""
    decided_by: str = ""


@dataclass(frozen=True, slots=True)
class QuestionAsked(TurnEvent):
    """An operator is asked."""

    call_id: str
    request_id: str
    tool: str
    summary: str
    expires_at: float


@dataclass(frozen=True, slots=True)
class QuestionEnded(TurnEvent):
    """A question is over: approved, denied, replaced, or why nobody decided."""

    call_id: str
    request_id: str
    source: str
    by: str
    allowed: bool


@dataclass(frozen=True, slots=True)
class Progress(TurnEvent):
    """A line for somebody who waits."""

    text: str
    call_id: str = ""


@dataclass(frozen=True, slots=True)
class Chunk(TurnEvent):
    """A piece of the model's text as it streams in."""

    text: str


@dataclass(frozen=True, slots=True)
class HistoryTrimmed(TurnEvent):
    """Old turns were dropped from the history, whole."""

    dropped: int
    kept: int
