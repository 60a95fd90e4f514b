"""What a broker has retained for us: everything that comes until nothing more comes for a moment."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from zeroclawd.cli import connection
from zeroclawd.cli.connection import Where

if TYPE_CHECKING:
    from zeroclawd.channels.mqtt.client import Client, Seen

# A broker sends what is retained right after it has granted the subscription, and marks no end of it.
QUIET_SECONDS = 0.6
AT_MOST_SECONDS = 5.0


async def gather(client: Client) -> list[Seen]:
    """The retained messages, the last one of each topic."""
    found: dict[tuple[str, str], Seen] = {}
    watching = client.watch()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(AT_MOST_SECONDS):
            while True:
                async with asyncio.timeout(QUIET_SECONDS):
                    seen = await anext(watching)
                found[seen.node, seen.rest] = seen
    return list(found.values())


@dataclass(slots=True)
class Node:
    """What is known of a node: its presence, its status document, and the states of its devices."""

    name: str
    availability: str = "unknown"
    status: Mapping[str, Any] = field(default_factory=dict)
    devices: dict[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def state(self) -> str:
        """`ok`, `degraded`, `offline` or `unknown`."""
        if self.availability != "online":
            return self.availability
        return str(self.status.get("state", "unknown"))

    def take(self, seen: Seen) -> None:
        """Note what one message says."""
        if seen.rest == "availability":
            self.availability = seen.payload.decode("utf-8", "replace")
        elif seen.rest == "status":
            self.status = seen.document
        elif seen.rest.startswith("device/") and seen.document:
            self.devices[seen.rest.split("/")[1]] = seen.document


async def nodes(where: Where) -> list[Node]:
    """All nodes that the broker knows of, or the one that is named, by name."""
    from zeroclawd.channels.mqtt.client import states

    async with connection.client(where, *states(where.only or "+")) as client:
        return sorted(of(await gather(client)).values(), key=lambda node: node.name)


def of(messages: list[Seen]) -> dict[str, Node]:
    """The nodes that these messages speak of."""
    found: dict[str, Node] = {}
    for seen in messages:
        found.setdefault(seen.node, Node(seen.node)).take(seen)
    return found
