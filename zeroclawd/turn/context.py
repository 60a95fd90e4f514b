"""Resolve: what a turn runs with, fixed before it starts, and the little that is its own while it runs."""

from __future__ import annotations

import asyncio
import os
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Any

from zeroclawd.catalog import Catalog
from zeroclawd.config import RiskProfile, RuntimeProfile, ToolReceipts
from zeroclawd.events import TurnEvent
from zeroclawd.frozen import dataclass
from zeroclawd.interfaces import Approver, BeforeHook, Board, CancelToken, Clock, Emit, Ledger, Provider, Questions
from zeroclawd.messages import Inbound, Ingress, Message, RawCall, Receipt, ToolResult
from zeroclawd.receipts import ReceiptScope
from zeroclawd.redact import Redactor
from zeroclawd.tool import ToolLimits

AfterHook = Callable[[ToolResult], None]
Text = Callable[..., str]


@dataclass(frozen=True, slots=True)
class TurnContext:
    """Resolved once per agent and narrowed once per message: no stage reads a config or a global."""

    agent: str
    node: str
    boot_id: str
    provider: Provider
    catalog: Catalog
    everything: Catalog
    profile: RiskProfile
    runtime: RuntimeProfile
    approver: Approver | None
    board: Board
    ledger: Ledger
    questions: Questions
    clock: Clock
    redactor: Redactor
    digest_key: bytes
    receipts: ReceiptScope | None
    receipt_settings: ToolReceipts
    texts: Text
    workspace: Path
    limits: ToolLimits
    stopped: Callable[[], bool]
    direct: Callable[[Sequence[RawCall]], Provider]
    approvers: Callable[[Ingress], Approver | None]
    language: str = "en"
    system_prompt: str = ""
    before_hooks: tuple[BeforeHook, ...] = ()
    after_hooks: tuple[AfterHook, ...] = ()
    new_id: Callable[[], str] = lambda: os.urandom(8).hex()

    @property
    def text_protocol(self) -> bool:
        """True where calls are written in the reply's text instead of sent beside it."""
        match self.runtime.tool_protocol:
            case "native":
                return False
            case "text":
                return True
            case _:
                return not self.provider.native_tools


@dataclass(slots=True)
class TurnState:
    """One message's own: its history, where its events go, and what it has been refused so far."""

    turn_id: str
    inbound: Inbound
    history: list[Message]
    observers: Emit
    cancel: CancelToken = field(default_factory=CancelToken)
    steering: asyncio.Queue[str] = field(default_factory=asyncio.Queue)
    nonce: str = field(default_factory=lambda: os.urandom(4).hex())
    round: int = 0
    results: list[ToolResult] = field(default_factory=list)
    refused: set[str] = field(default_factory=set)
    seen: deque[str] = field(default_factory=lambda: deque(maxlen=20))
    repeats: Counter[str] = field(default_factory=Counter)
    agent: str = ""

    @property
    def ingress(self) -> Ingress:
        """Where the message came from."""
        return self.inbound.ingress

    @property
    def receipts(self) -> tuple[Receipt, ...]:
        """The receipts of this turn's calls."""
        return tuple(result.receipt for result in self.results if result.receipt)

    def emit(self, kind: type[TurnEvent], **fields: Any) -> None:
        """Tell the observers that something happened in this turn."""
        self.observers(kind(turn_id=self.turn_id, agent=self.agent, channel=self.ingress.channel, **fields))


def resolve(base: TurnContext, inbound: Inbound) -> TurnContext:
    """The context of one message: the tools that it may see, who is asked, and who answers (nobody, for direct calls)."""
    catalog = base.everything.scoped(base.profile, per_run=inbound.tools, local_cli=inbound.ingress.local_cli)
    provider = base.direct(inbound.calls) if inbound.calls else base.provider
    return replace(base, catalog=catalog, provider=provider, approver=base.approvers(inbound.ingress))
