"""What the lanes of one MQTT channel share."""

from __future__ import annotations

import logging
from collections.abc import Callable

from zeroclawd.channels.mqtt.identity import Identities
from zeroclawd.channels.mqtt.post import Post
from zeroclawd.channels.mqtt.refusals import Refusals
from zeroclawd.channels.mqtt.replies import Address, refusal
from zeroclawd.channels.mqtt.topics import Topics
from zeroclawd.config import MqttConfig
from zeroclawd.errors import RefusedMessage
from zeroclawd.frozen import dataclass
from zeroclawd.interfaces import Clock, Inbox, Ledger
from zeroclawd.messages import Entry
from zeroclawd.redact import Redactor


@dataclass(frozen=True, slots=True)
class Parts:
    """One channel's own things, and what the daemon lent it."""

    name: str
    alias: str
    config: MqttConfig
    topics: Topics
    boot_id: str
    clock: Clock
    log: logging.Logger
    post: Post
    refusals: Refusals
    identities: Identities
    inbox: Inbox
    ledger: Ledger
    redactor: Redactor
    connects: Callable[[], int]

    @property
    def unverified(self) -> str:
        """The principal of whoever did not sign."""
        return f"mqtt:{self.alias}:unverified"

    async def refuse(self, error: RefusedMessage, entry: Entry, address: Address | None) -> None:
        """Count, record and, where there is somebody to tell, answer."""
        await self.refusals.note(error.reason, error.text, entry)
        if address is not None:
            self.post.passing(address.parcel(refusal(error, self.clock.wall())))
