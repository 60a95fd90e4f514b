"""`zeroclawd devices`: what the devices show now, or how they are configured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from zeroclawd.cli import connection, output


@click.command("devices")
@output.options
@connection.options
def command(as_json: bool, **where: str) -> int:
    """List the devices of all nodes, or of one, with their last published states.

    With --config it lists the devices of that config instead, and asks nobody.
    """
    if where["config"]:
        return _configured(where["config"], as_json=as_json)
    found = connection.resolve(where)
    from zeroclawd.cli.retained import nodes

    known = connection.run(found, nodes(found))
    listed = [
        (node.name, name, _fault(node.status, name), node.devices.get(name, {}))
        for node in known
        for name in sorted({*_faults(node.status), *node.devices})
    ]
    if as_json:
        for node_name, name, fault, state in listed:
            output.as_json({"node": node_name, "device": name, "fault": "" if fault == "ok" else fault, "state": state})
    else:
        heads = ("node", "device", "health", "shows", "at", "doubts")
        output.table(heads, [_cells(*one) for one in listed], none=output.words()("devices-none"))
    return 0 if listed else 1


def _faults(status: Mapping[str, Any]) -> Mapping[str, Any]:
    said = status.get("devices")
    return said if isinstance(said, dict) else {}


def _fault(status: Mapping[str, Any], name: str) -> str:
    return str(_faults(status).get(name, "-"))


def _cells(node: str, name: str, fault: str, state: Mapping[str, Any]) -> tuple[str, ...]:
    at = output.unix(state.get("time"))
    doubts = [*map(str, state.get("warnings") or ()), *(["simulated"] if state.get("simulated") else [])]
    return (node, name, fault, shows(state), output.moment(at) if at is not None else "-", ", ".join(doubts) or "-")


def shows(state: Mapping[str, Any]) -> str:
    """The values of a device with their units: `on yes`, `temperature 21.4 °C`."""
    values, units = state.get("values"), state.get("units")
    if not isinstance(values, dict):
        return "-"
    named = units if isinstance(units, dict) else {}
    said = {True: "yes", False: "no"}
    return ", ".join(
        f"{name} {said[value] if isinstance(value, bool) else value} {named.get(name, '')}".strip()
        for name, value in values.items()
    )


def _configured(file: str, *, as_json: bool) -> int:
    from zeroclawd.board.plan import limits_in_words, plan_devices
    from zeroclawd.config import load
    from zeroclawd.errors import ConfigError

    loaded = load(file)
    try:
        planned = plan_devices(loaded.config)
    except ConfigError as error:
        raise loaded.locate(error) from None
    heads = ("device", "kind", "risk", "wired to", "limits", "description")
    rows = [
        (
            device.name,
            device.config.kind,
            device.config.risk or "-",
            ", ".join(sorted(device.driver.claims())),
            "; ".join(limits_in_words(device)) or "-",
            device.config.description or "-",
        )
        for device in planned
    ]
    if as_json:
        for row in rows:
            output.as_json(
                {head.replace(" ", "_"): "" if cell == "-" else cell for head, cell in zip(heads, row, strict=True)}
            )
    else:
        output.table(heads, rows, none=output.words()("devices-none-configured"))
    return 0
