"""`zeroclawd status`: what the nodes say of themselves."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Any

import click

from zeroclawd.cli import connection, output
from zeroclawd.cli.connection import Where

_LISTEN_SECONDS = 1.0


@click.command("status")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per node.")
@connection.options
def command(as_json: bool, **where: str) -> int:
    """Show the status of all nodes, or of one: exit 1 if none is there or one is not well."""
    nodes = asyncio.run(collect(connection.resolve(**where)))
    rows = [(name, _state(node), _text(node)) for name, node in sorted(nodes.items())]
    if as_json:
        for name, node in sorted(nodes.items()):
            output.as_json({"node": name, "availability": node.get("availability"), **node.get("status", {})})
    else:
        output.table(("node", "state", "what"), rows, none="no node is heard of on this broker and base topic")
    return 0 if rows and all(state == "ok" for _, state, _ in rows) else 1


async def collect(where: Where, seconds: float = _LISTEN_SECONDS) -> dict[str, dict[str, Any]]:
    """What the broker has retained of each node: availability, status document, device states."""
    from zeroclawd.channels.mqtt.client import Client, states

    nodes: dict[str, dict[str, Any]] = {}
    async with Client(where.mqtt, listen=states(where.node or "+")) as client:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                async for seen in client.watch():
                    node = nodes.setdefault(seen.node, {"devices": {}})
                    if seen.rest == "availability":
                        node["availability"] = seen.payload.decode("utf-8", "replace")
                    elif seen.rest == "status":
                        node["status"] = seen.document
                    elif seen.rest.startswith("device/"):
                        node["devices"][seen.rest.split("/")[1]] = seen.document
    return nodes


def _state(node: Mapping[str, Any]) -> str:
    if node.get("availability") != "online":
        return "offline"
    return str(node.get("status", {}).get("state", "unknown"))


def _text(node: Mapping[str, Any]) -> str:
    status = node.get("status", {})
    reasons = "; ".join(str(reason) for reason in status.get("reasons", ()))
    return reasons or f"version {status.get('version', '?')}, {len(status.get('devices', {}))} devices"
