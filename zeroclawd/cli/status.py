"""`zeroclawd status`: what the nodes say of themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from zeroclawd.cli import connection, output

if TYPE_CHECKING:
    from zeroclawd.cli.retained import Node


@click.command("status")
@output.options
@connection.options
def command(as_json: bool, **where: str) -> int:
    """Show the status of all nodes, or of one: exit 1 if none is there or one is not well."""
    from zeroclawd.cli.retained import nodes

    found = connection.resolve(where)
    known = connection.run(found, nodes(found))
    if as_json:
        for node in known:
            output.as_json({"node": node.name, "availability": node.availability, **node.status})
    else:
        none = output.words()("status-none")
        output.table(
            ("node", "state", "stop", "questions", "version", "since", "why"),
            [_cells(node) for node in known],
            none=f"{none} ({found.address}, {found.base}/{found.only or '+'})",
        )
    return 0 if known and all(node.state == "ok" for node in known) else 1


def _cells(node: Node) -> tuple[str, ...]:
    said = node.status
    mqtt = said.get("mqtt")
    started = said.get("started")
    return (
        node.name,
        node.state,
        "engaged" if said.get("emergency_stop") else "-",
        str(mqtt.get("open_questions", "-")) if isinstance(mqtt, dict) else "-",
        str(said.get("version", "-")),
        output.moment(started) if isinstance(started, int | float) else "-",
        "; ".join(map(str, said.get("reasons") or ())) or "-",
    )
