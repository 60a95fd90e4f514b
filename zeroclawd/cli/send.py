"""`zeroclawd send`: sends a command and shows what becomes of it."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from zeroclawd.cli import connection, output
from zeroclawd.cli.connection import Where

if TYPE_CHECKING:
    import asyncio

    from zeroclawd.channels.mqtt.client import Client
    from zeroclawd.channels.mqtt.documents import Signature
    from zeroclawd.locale import Texts

_GOODBYE_SECONDS = 3.0
_NOT_DONE = frozenset({"denied", "replaced", "blocked", "interrupted", "unknown"})


class _Wish(NamedTuple):
    """What is to be sent, to whom, and who signs it."""

    where: Where
    node: str
    id: str
    text: str
    session: str
    tools: list[str] | None
    by: Signature | None


@click.command("send")
@click.argument("text")
@click.option("--no-wait", is_flag=True, help="End when the broker has it; print its id.")
@click.option("--timeout", default="5m", show_default=True, help="How long to wait for the last reply.")
@click.option("--session", default="", help="A conversation, which remembers what was said in it.")
@click.option("--tools", default="", metavar="A,B", help="Only these tools may be used.")
@click.option(
    "--id", "command_id", default="", help="The id; sent again with the same text, it only asks for the reply."
)
@click.option("--sign", is_flag=True, help="Sign as the operator; otherwise nobody knows who sent it.")
@output.options
@connection.signing_options
@connection.options
def command(
    text: str, no_wait: bool, timeout: str, session: str, tools: str, command_id: str, sign: bool, as_json: bool,
    **where: str,
) -> int:  # fmt: skip
    """Send TEXT to a node (`-` reads it from standard input) and wait for the reply.

    Exit 0 if it was done; 1 if it was refused, failed, or not answered in time. Ctrl-C cancels the command.
    With --no-wait the node may be `all` or `group/NAME`.
    """
    found = connection.resolve(where)
    wish = _Wish(
        found,
        _addressee(found, alone=not no_wait),
        command_id or os.urandom(8).hex(),
        _said(text),
        session,
        [name.strip() for name in tools.split(",") if name.strip()] if tools else None,
        found.signed() if sign else None,
    )
    if no_wait:
        _post(wish)
        output.as_json({"id": wish.id, "node": wish.node}) if as_json else output.echo(wish.id)
        return 0
    seconds = output.span(timeout, "--timeout")
    return connection.run(found, _Waiting(wish, output.words(), as_json=as_json).run(seconds))


def _said(text: str) -> str:
    said = sys.stdin.read() if text == "-" else text
    if not said.strip():
        raise click.UsageError("there is nothing to send")
    return said


def _addressee(where: Where, *, alone: bool) -> str:
    node = where.one_node()
    if alone and (node == "all" or node.startswith("group/")):
        raise click.UsageError(f"{node} answers with many voices; send to it with --no-wait")
    if "+" in node or "#" in node:
        raise click.UsageError(f"{node!r} is not a node's name")
    return node


def _post(wish: _Wish) -> None:
    """Publish it and nothing else: a script that does not wait needs no event loop."""
    import json

    from zeroclawd.channels.mqtt import documents, once

    unsigned = documents.command(wish.id, wish.text, time.time(), session=wish.session, tools=wish.tools)
    payload = json.dumps(documents.signed_command(wish.node, unsigned, wish.by)).encode()
    once.publish(wish.where, f"{wish.where.base}/{wish.node}/command", payload)


class _Waiting:
    """Sends the command, shows each stage, and cancels it on Ctrl-C."""

    def __init__(self, wish: _Wish, words: Texts, *, as_json: bool) -> None:
        self._wish = wish
        self._words = words
        self._json = as_json

    async def run(self, seconds: float) -> int:
        import asyncio
        import signal

        from zeroclawd.channels.mqtt.client import replies

        stop, node = asyncio.Event(), self._wish.node
        async with connection.client(self._wish.where, *replies(node), f"{node}/availability") as client:
            asyncio.get_running_loop().add_signal_handler(signal.SIGINT, stop.set)
            following = asyncio.create_task(self._follow(client), name="follow")
            stopping = asyncio.create_task(stop.wait(), name="until Ctrl-C")
            try:
                await asyncio.wait((following, stopping), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
                if following.done():
                    return following.result()
                return await self._cancel(client, following) if stop.is_set() else self._late(seconds)
            finally:
                following.cancel()
                stopping.cancel()

    async def _follow(self, client: Client) -> int:
        wish = self._wish
        last: Mapping[str, Any] = {}
        if await _offline(client):
            self._note(self._words("send-offline"))
        async for reply in client.send(
            wish.node, wish.text, session=wish.session, tools=wish.tools, by=wish.by, command_id=wish.id
        ):
            last = reply
            output.as_json(reply) if self._json else self._show(reply)
        return exit_code(last)

    async def _cancel(self, client: Client, following: asyncio.Task[int]) -> int:
        """Ask for the end of it and give the node a moment to say how far it came."""
        import asyncio

        await client.cancel(self._wish.node, self._wish.id)
        self._note(self._words("send-cancelling"))
        done, _ = await asyncio.wait((following,), timeout=_GOODBYE_SECONDS)
        if not done:
            self._note(f"{self._words('send-cancel-unanswered')} ({self._wish.id})")
        return 130

    def _late(self, seconds: float) -> int:
        self._note(self._words("send-late", seconds=round(seconds), id=self._wish.id))
        return 1

    # What people see: the reply and its receipts are the output, all else is said beside it

    def _note(self, text: str) -> None:
        output.echo(output.colour(output.visible(text), output.DOUBT), err=True)

    def _show(self, reply: Mapping[str, Any]) -> None:
        text = output.lines(str(reply.get("text", "")))
        match reply.get("stage"):
            case "accepted":
                output.echo(output.colour(self._words("send-accepted"), dim=True), err=True)
            case "progress":
                asking = "asks_operator" in reply.get("flags", ())
                self._note(f"{self._words('send-asking') if asking else '…'} {' '.join(text)}")
            case "error":
                output.echo(output.colour("\n".join(text), output.BAD))
            case _:
                output.echo("\n".join(text))
        self._show_results(reply)

    def _show_results(self, reply: Mapping[str, Any]) -> None:
        for result in reply.get("results", ()):
            if result.get("outcome") != "ok":
                what = " ".join(str(result.get(name, "")) for name in ("tool", "device") if result.get(name))
                by = f" ({result['decided_by']})" if result.get("decided_by") else ""
                output.echo(f"  {output.visible(what)}: {output.by_meaning(str(result.get('outcome')))}{by}", err=True)
        for receipt in reply.get("receipts", ()):
            line = output.visible(f"  {receipt.get('tool')}: {receipt.get('receipt')}")
            output.echo(output.colour(line, dim=True))
        if reply.get("stage") in ("final", "error"):
            for flag in reply.get("flags", ()):
                self._note(f"  {flag}")


def exit_code(last: Mapping[str, Any]) -> int:
    """0 if the reply is a final one, no call was refused or has an unknown end, and the last call did not fail."""
    outcomes = [str(result.get("outcome")) for result in last.get("results", ())]
    done = last.get("stage") == "final" and _NOT_DONE.isdisjoint(outcomes)
    return 0 if done and outcomes[-1:] != ["error"] else 1


async def _offline(client: Client) -> bool:
    """True if the node's will or goodbye is what the broker has of it; nothing heard for a moment is no proof."""
    import asyncio
    import contextlib

    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(0.2):
            async for seen in client.watch():
                if seen.rest == "availability":
                    return seen.payload == b"offline"
    return False
