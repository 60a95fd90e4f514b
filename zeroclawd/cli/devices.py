"""`zeroclawd devices`: the devices of a node and what they show."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import click

from zeroclawd.cli import connection, output


@click.command("devices")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per device.")
@connection.options
def command(as_json: bool, **where: str) -> int:
    """List the devices of all nodes, or of one, with their last published states."""
    from zeroclawd.cli.status import collect

    nodes = asyncio.run(collect(connection.resolve(**where)))
    rows = []
    for node, known in sorted(nodes.items()):
        faults = known.get("status", {}).get("devices", {})
        for name in sorted({*faults, *known["devices"]}):
            state = known["devices"].get(name, {})
            if as_json:
                output.as_json({"node": node, "device": name, "fault": faults.get(name, ""), "state": state})
            rows.append((node, name, str(faults.get(name, "-")), _shown(state), str(state.get("time", "-"))))
    if not as_json:
        output.table(("node", "device", "health", "shows", "since"), rows, none="no device is heard of")
    return 0 if rows else 1


def _shown(state: Mapping[str, Any]) -> str:
    values, units = state.get("values", {}), state.get("units", {})
    return ", ".join(f"{name} {value} {units.get(name, '')}".strip() for name, value in values.items()) or "-"
