"""The roles that rooms play for each other; the daemon introduces them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import field
from typing import Any, Protocol, TypeVar

from zeroclawd.events import TurnEvent
from zeroclawd.frozen import dataclass
from zeroclawd.messages import Decision, Entry, Grant, Inbound, Message, Outbound, Question, Reply
from zeroclawd.tool import Risk, ToolSpec, Value

Result = TypeVar("Result")


class Clock(Protocol):
    """Time as a board has it: the wall clock may be wrong until it is synced, the monotonic one never goes back."""

    def wall(self) -> float:
        """Unix seconds."""
        ...

    def monotonic(self) -> float:
        """Seconds since this kernel booted (CLOCK_BOOTTIME where there is one)."""
        ...

    def synced(self) -> bool:
        """True once something has set the wall clock."""
        ...


class CancelToken:
    """Says once that a turn is to stop; whoever waits for it wakes up."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self.reason = ""

    def cancel(self, reason: str) -> None:
        """Ask for the stop; the first reason stays."""
        if not self._event.is_set():
            self.reason = reason
            self._event.set()

    @property
    def cancelled(self) -> bool:
        """True once somebody has asked for the stop."""
        return self._event.is_set()

    async def wait(self) -> None:
        """Return when somebody asks for the stop."""
        await self._event.wait()


# Models


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One request to a model: the history with its system message first, and the specs the model may call."""

    messages: Sequence[Message]
    tools: Sequence[ToolSpec] = ()
    session: str = ""
    locale: str = "en"


class Provider(Protocol):
    """A model endpoint, or something that answers like one."""

    name: str
    native_tools: bool

    async def complete(self, request: ModelRequest, on_text: Callable[[str], None]) -> Reply:
        """Answer the request; `on_text` gets the text as it comes. Raises ProviderError."""
        ...

    async def close(self) -> None:
        """Let go of connections."""
        ...


# Approval


class Approver(Protocol):
    """Carries a question to whoever may answer it. A denial is an answer; it never raises but for cancellation."""

    async def ask(self, question: Question, cancel: CancelToken) -> Decision:
        """Wait for the decision until the question's lifetime ends or `cancel` fires, then withdraw the question."""
        ...


# Devices


@dataclass(frozen=True, slots=True)
class Reading:
    """What a device shows: values with their units, when they were taken (Unix seconds), how, and what to doubt.

    `taken_mono` is the monotonic clock at the same moment; age is measured by it. `simulated` marks the sim board.
    """

    device: str
    values: Mapping[str, Value]
    units: Mapping[str, str]
    taken_at: float
    taken_mono: float
    how: str
    warnings: tuple[str, ...] = ()
    simulated: bool = False


@dataclass(frozen=True, slots=True)
class DeviceInfo:
    """What is known of a device without touching it; `limits` are the safety rules in words, `fault` is empty if it works.

    `can` holds `read`, `write` and `pulse`; `writes` says in words what it takes; `units` is by value name.
    """

    name: str
    kind: str
    can: frozenset[str]
    risk: Risk
    writes: str = ""
    units: Mapping[str, str] = field(default_factory=dict)
    limits: tuple[str, ...] = ()
    quorum: int = 1
    idempotent: bool = False
    fault: str = ""
    description: str = ""


class Board(Protocol):
    """The devices of one board, with the safety rules that hold for everybody. Errors are DeviceErrors."""

    def devices(self) -> tuple[DeviceInfo, ...]:
        """All configured devices in the order of the config."""
        ...

    def device(self, name: str) -> DeviceInfo:
        """One device; UnknownDevice names the nearest ones."""
        ...

    async def read(self, name: str) -> Reading:
        """Take a fresh reading."""
        ...

    async def write(self, name: str, value: Value) -> Reading:
        """Set an output, read it back and return what is there now."""
        ...

    async def pulse(self, name: str, seconds: float) -> Reading:
        """Switch an output on, hold it for `seconds`, switch it off; returns the reading after."""
        ...

    def about(self) -> Mapping[str, Value]:
        """The board itself: model, kind, temperature, uptime and the like."""
        ...


class BoardHost(Protocol):
    """What a board needs from the house: a memory that survives power cuts, a ledger, and ears for changes."""

    async def remember(self, key: str, value: str) -> None:
        """Keep a value on disk; returns when it is there."""
        ...

    async def recall(self, key: str) -> str | None:
        """The kept value, or None."""
        ...

    async def record(self, kind: str, device: str, note: str) -> None:
        """Write a ledger row (`safety`, `estop`); returns when it is on disk."""
        ...

    def changed(self, reading: Reading) -> None:
        """Told of every new state: of outputs and contacts as they change, of sensors as they are read; never blocks."""
        ...


# Memory that survives a power cut


class Ledger(Protocol):
    """The durable, chained record of what was asked, decided and done."""

    async def append(self, *entries: Entry, sync: bool = True) -> int:
        """Add rows in order and return the last one's seq; with `sync` they are on disk when this returns. StoreError."""
        ...


@dataclass(frozen=True, slots=True)
class Claimed:
    """What the inbox says of a command id: new, or seen before with its last reply if there is one yet.

    `state` is `accepted`, `final`, or `reused`: the same id came before with another fingerprint.
    """

    new: bool
    state: str = "accepted"
    reply: bytes | None = None


class Inbox(Protocol):
    """Remembers command ids, so that a second delivery runs nothing."""

    async def claim(
        self, channel: str, command_id: str, fingerprint: str, *entries: Entry, routing: bytes | None = None
    ) -> Claimed:
        """Take the id for this delivery; on disk when this returns.

        The ledger rows are written in the same commit, and only if the id is new. `routing` says where an answer goes if
        this boot never gives one.
        """
        ...

    async def finish(self, channel: str, command_id: str, reply: bytes) -> None:
        """Keep the final reply for later deliveries of the same id."""
        ...

    async def unfinished(self, channel: str) -> list[tuple[str, bytes | None]]:
        """Ids that an earlier boot took and never answered, with the routing that was kept for them."""
        ...


@dataclass(frozen=True, slots=True)
class Parcel:
    """A message to publish: `replace` drops an older one of the same topic; `expires_at` is Unix seconds or 0."""

    topic: str
    payload: bytes
    qos: int = 1
    retain: bool = False
    replace: bool = False
    expires_at: float = 0.0
    properties: Mapping[str, Any] = field(default_factory=dict)
    id: int = 0


class Outbox(Protocol):
    """Messages that wait for their acknowledgement, on disk, bounded."""

    async def put(self, parcel: Parcel) -> Parcel:
        """Keep the parcel and return it with its id."""
        ...

    async def waiting(self, limit: int) -> list[Parcel]:
        """The oldest parcels, in order."""
        ...

    async def done(self, parcel_id: int) -> None:
        """The broker has acknowledged it."""
        ...


class Questions(Protocol):
    """Open questions, so that a restart can say what became of them, and the grants that answers gave."""

    async def opened(self, channel: str, question: Question, *entries: Entry) -> None:
        """Keep an open question; on disk when this returns."""
        ...

    async def closed(self, request_id: str, outcome: str, *entries: Entry) -> None:
        """The question is over."""
        ...

    async def leftovers(self, channel: str) -> list[str]:
        """Request ids that an earlier boot left open."""
        ...

    async def grant(self, grant: Grant, *entries: Entry) -> None:
        """Keep a grant."""
        ...

    async def grants(self) -> list[Grant]:
        """The grants that have not expired."""
        ...


class Sessions(Protocol):
    """Conversation histories by session."""

    async def load(self, session: str) -> list[Message]:
        """The history as it was stored, oldest first."""
        ...

    async def save(self, session: str, messages: Sequence[Message]) -> None:
        """Replace the stored history."""
        ...


# Channels and observers


@dataclass(frozen=True, slots=True)
class Health:
    """Whether a part works, and what to say of it; `state` is ok, degraded or down."""

    part: str
    state: str
    detail: str = ""


class Host(Protocol):
    """What a channel needs from the daemon: somewhere to bring messages, cancels and stops."""

    def submit(self, inbound: Inbound) -> bool:
        """Queue a turn; False when the queue is full."""
        ...

    def cancel(self, channel: str, command_id: str, reason: str) -> bool:
        """Cancel a queued or running turn; False when there is none of that id."""
        ...

    async def engage_stop(self, by: str, reason: str) -> None:
        """Engage the emergency stop; returns when the safe states are driven."""
        ...

    async def release_stop(self, by: str) -> None:
        """Release the emergency stop; the caller has verified who asks."""
        ...

    def stopped(self) -> bool:
        """True while the emergency stop is engaged."""
        ...

    def status(self) -> Mapping[str, Any]:
        """The status document: version, boot id, started, health, emergency stop, reasons."""
        ...

    def devices(self) -> tuple[DeviceInfo, ...]:
        """The devices whose states a channel may publish."""
        ...


class Channel(Protocol):
    """A way in and out. `run` lives as long as the daemon."""

    name: str
    approver: Approver | None

    async def run(self, host: Host) -> None:
        """Work until cancelled; then say goodbye within a bounded time."""
        ...

    async def deliver(self, outbound: Outbound) -> None:
        """Bring a reply to whoever sent the command, now or when the broker is back."""
        ...

    def changed(self, reading: Reading) -> None:
        """Publish a device's new state; never blocks."""
        ...

    def refresh(self) -> None:
        """The status document has changed; publish it again; never blocks."""
        ...

    def observe(self, event: TurnEvent) -> None:
        """An event of a turn that came by this channel, scrubbed; never blocks."""
        ...

    async def checkpoint(self, payload: bytes) -> None:
        """Publish a signed ledger head, now or when there is a connection again."""
        ...

    def health(self) -> Health:
        """Connected, granted, and what is refused."""
        ...


Observer = Callable[[TurnEvent], None]
Emit = Callable[[TurnEvent], None]
BeforeHook = Callable[[str, Mapping[str, Any]], Awaitable["HookAnswer"]]


@dataclass(frozen=True, slots=True)
class HookAnswer:
    """What a before-tool hook says: go on with this name and these arguments, or stop for a reason."""

    name: str
    arguments: Mapping[str, Any]
    stop: str = ""
