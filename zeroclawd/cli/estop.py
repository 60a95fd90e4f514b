"""`zeroclawd estop`: stop everything that moves, from anywhere."""

from __future__ import annotations

import asyncio

import click

from zeroclawd.cli import connection
from zeroclawd.cli.connection import Where
from zeroclawd.errors import ChannelError

_SECONDS = 15.0


@click.group("estop")
def command() -> None:
    """The emergency stop of a node: drives every output to its safe state and holds it there."""


@command.command("engage")
@click.option("--reason", default="", help="Why; it stands in the ledger.")
@connection.options
def engage(reason: str, **where: str) -> int:
    """Engage it. Whoever may publish here may do this; only a signed operator can release it."""
    asyncio.run(_engage(connection.resolve(**where), reason))
    click.echo(click.style("engaged", fg="red", bold=True) + ": outputs are in their safe states and stay there")
    return 0


@command.command("release")
@connection.options
def release(**where: str) -> int:
    """Release it, signed by an entitled operator. Nothing is switched on by that."""
    asyncio.run(_release(connection.resolve(**where)))
    click.echo(click.style("released", fg="green"))
    return 0


async def _engage(where: Where, reason: str) -> None:
    from zeroclawd.channels.mqtt.client import Client, states

    node = where.one_node()
    async with Client(where.mqtt, listen=states(node)) as client:
        await client.engage(node, reason)
        await _until(client, stopped=True)


async def _release(where: Where) -> None:
    from zeroclawd.channels.mqtt.client import Client, states

    node, by = where.one_node(), where.signed()
    async with Client(where.mqtt, listen=states(node)) as client:
        async with asyncio.timeout(_SECONDS):
            async for seen in client.watch():
                if seen.rest == "status" and seen.document:
                    await client.release(node, str(seen.document.get("boot_id", "")), by)
                    break
        await _until(client, stopped=False)


async def _until(client: object, *, stopped: bool) -> None:
    """Wait until the node says so itself."""
    from zeroclawd.channels.mqtt.client import Client

    assert isinstance(client, Client)
    try:
        async with asyncio.timeout(_SECONDS):
            async for seen in client.watch():
                if seen.rest == "status" and seen.document.get("emergency_stop") is stopped:
                    return
    except TimeoutError:
        raise ChannelError(
            f"the node did not say within {_SECONDS:g} s that the stop is {'engaged' if stopped else 'released'}",
            hint="zeroclawd status; a release must be signed by an operator that the node's config knows",
        ) from None
