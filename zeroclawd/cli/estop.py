"""`zeroclawd estop`: stops everything that moves, from anywhere."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

import click

from zeroclawd.cli import connection, output
from zeroclawd.cli.connection import Where
from zeroclawd.errors import ChannelError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from zeroclawd.channels.mqtt.client import Client, Seen

_SECONDS = 15.0


@click.group("estop")
def command() -> None:
    """The emergency stop of a node: drives every output to its safe state and holds it there."""


@command.command("engage")
@click.option("--reason", default="", help="Why; it stands in the ledger.")
@click.option("--all", "everywhere", is_flag=True, help="Every node of the base topic that is known to the broker.")
@output.options
@connection.options
def engage(reason: str, everywhere: bool, as_json: bool, **where: str) -> int:
    """Engage it. Whoever may publish there may stop; only an entitled operator's signature releases.

    Exit 0 only if every node that was meant has said that its stop is engaged.
    """
    found = connection.resolve(where)
    if everywhere and where["node"]:
        raise click.UsageError("--all and --node contradict each other")
    silent, stopped = connection.run(found, _engage(found, reason, everywhere=everywhere))
    words = output.words()
    for node in stopped:
        if as_json:
            output.as_json({"node": node, "emergency_stop": True})
        else:
            output.echo(f"{node}: {output.colour(words('estop-engaged'), output.BAD, bold=True)}")
    if silent:
        raise ChannelError(
            f"published, but not confirmed within {_SECONDS:g} s by: {', '.join(silent)}",
            hint="it may be off or away from the broker; cut its power by hand if something must stop",
        )
    return 0


@command.command("release")
@output.options
@connection.signing_options
@connection.options
def release(as_json: bool, **where: str) -> int:
    """Release it, signed by an entitled operator. Nothing is switched on by that."""
    found = connection.resolve(where)
    connection.run(found, _release(found))
    if as_json:
        output.as_json({"node": found.node, "emergency_stop": False})
    else:
        output.echo(f"{found.node}: {output.colour(output.words()('estop-released'), output.GOOD)}")
    return 0


async def _engage(where: Where, reason: str, *, everywhere: bool) -> tuple[list[str], list[str]]:
    """The nodes that did not confirm, and those that did."""
    from zeroclawd.channels.mqtt.client import states
    from zeroclawd.cli.retained import gather, of

    async with connection.client(where, *states("+" if everywhere else where.one_node())) as client:
        meant = sorted(of(await gather(client))) if everywhere else [where.one_node()]
        if not meant:
            raise ChannelError(
                "no node is known to this broker", hint="name it with --node; `zeroclawd status` lists them"
            )
        for node in meant:
            await client.engage(node, reason)
        silent = await _until_engaged(client, set(meant))
        return sorted(silent), [node for node in meant if node not in silent]


async def _until_engaged(client: Client, silent: set[str]) -> set[str]:
    """Wait until the nodes' own status says it; those that did not say so in time."""
    try:
        async with asyncio.timeout(_SECONDS):
            async for seen in client.watch():
                if seen.rest == "status" and seen.document.get("emergency_stop") is True:
                    silent.discard(seen.node)
                if not silent:
                    break
    except TimeoutError:
        pass
    return silent


async def _release(where: Where) -> None:
    from zeroclawd.channels.mqtt.client import replies, states

    node, by = where.one_node(), where.signed()
    wish = os.urandom(8).hex()
    async with connection.client(where, *states(node), *replies(node)) as client:
        try:
            async with asyncio.timeout(_SECONDS):
                boot_id = await _boot_of(client)
                with client.heard() as heard:
                    await client.release(node, boot_id, by, command_id=wish)
                    await _until_answered(heard, wish)
        except TimeoutError:
            raise ChannelError(
                f"{node} did not say within {_SECONDS:g} s that its stop is released",
                hint="`zeroclawd status` shows whether it is online",
            ) from None


async def _boot_of(client: Client) -> str:
    """The run of the daemon that the release is for, from the node's status."""
    async for seen in client.watch():
        if seen.rest == "status" and seen.document.get("boot_id"):
            return str(seen.document["boot_id"])
    return ""


async def _until_answered(heard: AsyncIterator[Seen], wish: str) -> None:
    async for seen in heard:
        if seen.rest == "reply" and seen.document.get("id") == wish:
            if seen.document.get("stage") == "final":
                return
            said = output.visible(str(seen.document.get("text") or seen.document.get("reason")))
            raise ChannelError(
                f"the release was refused: {said}",
                hint="an operator that the node's config knows, with release_estop, signs with their own key",
            )
