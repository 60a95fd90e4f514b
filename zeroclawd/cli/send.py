"""`zeroclawd send`: sends a command and shows what becomes of it."""

from __future__ import annotations

import asyncio
import secrets
import sys
from collections.abc import Mapping
from typing import Any

import click

from zeroclawd.cli import connection, output
from zeroclawd.cli.connection import Where


@click.command("send")
@click.argument("text")
@click.option("--no-wait", is_flag=True, help="Return when the broker has it; print its id.")
@click.option("--timeout", default=300.0, show_default=True, help="Seconds to wait for the last reply.")
@click.option("--session", default="", help="A conversation that remembers what was said in it.")
@click.option("--tools", default="", help="Only these tools may be used (comma separated).")
@click.option("--sign", is_flag=True, help="Sign as the operator; else the sender is not verified.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per reply.")
@connection.options
def command(
    text: str, no_wait: bool, timeout: float, session: str, tools: str, sign: bool, as_json: bool, **where: str
) -> int:
    """Send TEXT to a node (- reads it from standard input), show progress and the reply.

    Exit 0 if it was done, 1 if it was refused, failed or not answered in time. Ctrl-C cancels the command.
    """
    said = sys.stdin.read().strip() if text == "-" else text
    if not said:
        raise click.UsageError("there is nothing to send")
    found = connection.resolve(**where)
    wanted = [name.strip() for name in tools.split(",") if name.strip()] if tools else None
    if no_wait:
        return asyncio.run(_post(found, said, session, sign=sign, as_json=as_json))
    sender = _Sender(found, said, session, wanted, sign=sign, as_json=as_json)
    return asyncio.run(sender.run(timeout))


async def _post(where: Where, text: str, session: str, *, sign: bool, as_json: bool) -> int:
    from zeroclawd.channels.mqtt.client import Client

    async with Client(where.mqtt) as client:
        by = where.signed() if sign else None
        command_id = await client.post(where.one_node(), text, session=session, by=by)
    output.as_json({"id": command_id}) if as_json else click.echo(command_id)
    return 0


class _Sender:
    def __init__(
        self, where: Where, text: str, session: str, tools: list[str] | None, *, sign: bool, as_json: bool
    ) -> None:
        self._where, self._text, self._session, self._tools = where, text, session, tools
        self._sign, self._json = sign, as_json
        self._id = secrets.token_hex(8)

    async def run(self, timeout: float) -> int:
        """Send, wait and show; Ctrl-C asks the node to cancel before it ends."""
        from zeroclawd.channels.mqtt.client import Client, replies

        node = self._where.one_node()
        async with Client(self._where.mqtt, listen=replies(node)) as client:
            try:
                async with asyncio.timeout(timeout):
                    return await self._follow(client, node)
            except TimeoutError:
                click.echo(f"no reply within {timeout:g} s; the command {self._id} may still be carried out", err=True)
                return 1
            except asyncio.CancelledError:
                asyncio.current_task().uncancel()  # type: ignore[union-attr]
                await client.cancel(node, self._id)
                click.echo(f"\ncancelled {self._id}", err=True)
                return 130

    async def _follow(self, client: Any, node: str) -> int:
        last: Mapping[str, Any] = {}
        by = self._where.signed() if self._sign else None
        async for reply in client.send(
            node, self._text, session=self._session, tools=self._tools, by=by, command_id=self._id
        ):
            last = reply
            output.as_json(reply) if self._json else _show(reply)
        return _code(last)


def _code(last: Mapping[str, Any]) -> int:
    """0 only if the turn ended well and no call of it was refused or failed."""
    outcomes = [str(result.get("outcome")) for result in last.get("results", ())]
    fine = last.get("stage") == "final" and (not outcomes or "ok" in outcomes)
    return 0 if fine and all(outcome in ("ok", "duplicate") for outcome in outcomes) else 1


def _show(reply: Mapping[str, Any]) -> None:
    match reply.get("stage"):
        case "accepted":
            click.echo(click.style("accepted", dim=True), err=True)
        case "progress":
            click.echo(click.style(f"waiting for an operator: {reply.get('text', '')}", fg="yellow"), err=True)
        case stage:
            click.echo(click.style(str(reply.get("text", "")), fg="red" if stage == "error" else None))
            for receipt in reply.get("receipts", ()):
                click.echo(click.style(f"  {receipt['tool']}: {receipt['receipt']}", dim=True))
            for flag in reply.get("flags", ()):
                click.echo(click.style(f"  note: {flag}", fg="yellow"), err=True)
