"""`zeroclawd check`: parses, validates and dry-builds a config, and says what would run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from zeroclawd.daemon.build import Plan

_COLOURS = {"run": "green", "ask": "yellow", "block": "red"}


@click.command("check")
@click.option(
    "--config",
    "file",
    type=click.Path(path_type=Path),
    default=Path("/etc/zeroclawd/config.toml"),
    show_default=True,
    help="The config file.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def command(file: Path, as_json: bool) -> int:
    """Check a config without touching hardware or network: exit 0 if it would run, 2 if not."""
    from zeroclawd.config import load
    from zeroclawd.daemon.build import plan
    from zeroclawd.errors import ZeroclawdError

    try:
        planned = plan(load(file))
    except ZeroclawdError as error:
        if not as_json:
            raise
        click.echo(json.dumps({"ok": False, "error": str(error), "hint": error.hint}))
        return 2
    found = summary(planned)
    click.echo(json.dumps(found, ensure_ascii=False)) if as_json else _print(found)
    return 1 if planned.catalog.broken else 0


def summary(planned: Plan) -> dict[str, Any]:
    """What would run, as data."""
    from zeroclawd.daemon.build import rulings

    config = planned.config
    return {
        "ok": not planned.catalog.broken,
        "file": planned.loaded.file,
        "node": planned.node,
        "providers": config.agent.providers,
        "channels": {
            f"mqtt.{alias}": f"{mqtt.host}:{mqtt.port or (8883 if mqtt.tls else 1883)}{' over TLS' if mqtt.tls else ''}"
            for alias, mqtt in config.channels.mqtt.items()
        },
        "board": config.board.kind,
        "devices": list(planned.devices),
        "operators": {
            name: f"up to {who.may_approve} risk, {', '.join(who.devices + who.groups) or 'all devices'}"
            for name, who in config.operators.items()
        },
        "policy": [
            {"tool": row.tool, "about": row.about, "risk": row.risk, "ruling": row.ruling, "reason": row.reason}
            for row in rulings(planned)
        ],
        "broken_tools": [{"file": broken.file, "reason": broken.reason} for broken in planned.catalog.broken],
        "notes": _notes(planned),
    }


def _notes(planned: Plan) -> list[str]:
    """What is allowed but probably not meant."""
    config = planned.config
    notes = []
    if not config.channels.mqtt:
        notes.append("no channel is configured: nothing can be asked of this daemon")
    if config.risk.always_ask and not config.operators:
        notes.append("calls must ask, and no operator is configured: they will all be refused")
    if not config.devices:
        notes.append("no device is configured")
    return notes


def _print(found: dict[str, Any]) -> None:
    click.echo(f"{click.style('ok', fg='green', bold=True)}  {found['file']}  node {found['node']}")
    click.echo(f"\nproviders  {', '.join(found['providers'])}")
    for title in ("channels", "operators"):
        for name, text in found[title].items():
            click.echo(f"{title:10} {name}: {text}")
    click.echo(f"{'board':10} {found['board']}")
    for line in found["devices"]:
        click.echo(f"{'device':10} {line}")
    click.echo("\nwhat the policy says of each call, of shell commands by example")
    for row in found["policy"]:
        call = f"{row['tool']} {row['about']}".strip()
        ruling = click.style(f"{row['ruling']:5}", fg=_COLOURS[row["ruling"]])
        click.echo(f"  {ruling} {call:28} {row['risk']:6} {row['reason']}")
    for broken in found["broken_tools"]:
        click.echo(f"\n{click.style('broken', fg='red')}  {broken['file']}: {broken['reason']}")
    for note in found["notes"]:
        click.echo(f"\n{click.style('note', fg='yellow')}  {note}")
