"""`zeroclawd approvals`: the questions of a whole fleet, and an operator's signed answers."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from zeroclawd.cli import connection, output
from zeroclawd.cli.connection import Where
from zeroclawd.errors import ChannelError
from zeroclawd.messages import Verdict

if TYPE_CHECKING:
    from zeroclawd.channels.mqtt.client import Client, Seen

_REQUEST = "approval/request/"
_LISTEN_SECONDS = 1.0
_ANSWER_SECONDS = 15.0


@click.group("approvals")
def command() -> None:
    """Watch, list and answer the questions that nodes ask."""


def _questions(where: Where) -> tuple[str, ...]:
    from zeroclawd.channels.mqtt.client import questions

    return questions(where.node or "+")


@contextlib.asynccontextmanager
async def _client(where: Where) -> AsyncIterator[Client]:
    from zeroclawd.channels.mqtt.client import Client

    async with Client(where.mqtt, listen=_questions(where)) as client:
        yield client


async def _open_questions(client: Client, seconds: float = _LISTEN_SECONDS) -> list[Mapping[str, Any]]:
    """The questions that the broker has retained: what arrives until nothing comes for a moment."""
    found: dict[str, Mapping[str, Any]] = {}
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            async for seen in client.watch():
                if seen.rest.startswith(_REQUEST) and seen.document:
                    found[str(seen.document["request_id"])] = seen.document
    return list(found.values())


# Listing


@command.command("list")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per question.")
@connection.options
def list_(as_json: bool, **where: str) -> int:
    """List the open questions of all nodes, or of one."""

    async def run() -> list[Mapping[str, Any]]:
        async with _client(found) as client:
            return await _open_questions(client)

    found = connection.resolve(**where)
    questions = asyncio.run(run())
    if as_json:
        for question in questions:
            output.as_json(question)
    else:
        output.table(
            ("id", "node", "what", "risk", "asked by", "approved", "left"),
            [_row(question) for question in questions],
            none="no question is open",
        )
    return 0


def _row(question: Mapping[str, Any]) -> tuple[str, ...]:
    quorum = question.get("quorum", {})
    return (
        str(question["request_id"])[:8],
        str(question["node"]),
        str(question["summary"]),
        str(question["risk"]),
        str(question["requested_by"]),
        f"{quorum.get('have', 0)} of {quorum.get('need', 1)}",
        output.left(_expiry(question) - time.time()),
    )


def _expiry(question: Mapping[str, Any]) -> float:
    import datetime

    text = str(question.get("expires_at", ""))
    try:
        return datetime.datetime.fromisoformat(text).timestamp()
    except ValueError:
        return float(text or 0)


def describe(question: Mapping[str, Any]) -> str:
    """The whole question: nothing that will be done is left out."""
    import msgspec

    arguments = msgspec.json.format(msgspec.json.encode(question.get("arguments", {}), enc_hook=str), indent=2).decode()
    lines = [
        f"{click.style(str(question['summary']), bold=True)}",
        f"  id         {question['request_id']}",
        f"  node       {question['node']}  agent {question.get('agent', '')}",
        f"  call       {question['tool']}  risk {question['risk']}  device {question.get('device') or '-'}",
        f"  asked by   {question['requested_by']}",
        f"  left       {output.left(_expiry(question) - time.time())}",
        f"  digest     {question['arguments_digest']}",
        "  arguments",
        *(f"    {line}" for line in arguments.splitlines()),
    ]
    return "\n".join(lines)


# Answering


@dataclass(frozen=True, slots=True)
class _Answer:
    verdict: Verdict
    replacement: str | None = None
    grant: Mapping[str, Any] | None = None


def _answering(function: Callable[..., Any]) -> Callable[..., Any]:
    return click.option("--json", "as_json", is_flag=True, help="What became of it, as JSON.")(
        connection.options(function)
    )


@command.command("approve")
@click.argument("request_id")
@click.option("--always", is_flag=True, help="Also grant later calls of the same sender and tool.")
@click.option("--for", "span", default="1h", show_default=True, help="How long a grant holds.")
@click.option("--match", type=click.Choice(["exact", "device"]), default="exact", show_default=True)
@_answering
def approve(request_id: str, always: bool, span: str, match: str, as_json: bool, **where: str) -> int:
    """Say yes to the question REQUEST_ID (the first characters of it are enough)."""
    from zeroclawd.config import duration

    try:
        seconds = duration(span)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--for") from None
    grant = {"match": match, "ttl": seconds} if always else None
    answer = _Answer(Verdict.ALWAYS if always else Verdict.APPROVE, grant=grant)
    return _say(request_id, answer, as_json, where)


@command.command("deny")
@click.argument("request_id")
@_answering
def deny(request_id: str, as_json: bool, **where: str) -> int:
    """Say no to the question REQUEST_ID."""
    return _say(request_id, _Answer(Verdict.DENY), as_json, where)


@command.command("replace")
@click.argument("request_id")
@click.argument("text")
@_answering
def replace(request_id: str, text: str, as_json: bool, **where: str) -> int:
    """Say no, and give TEXT as the result instead; the tool does not run."""
    return _say(request_id, _Answer(Verdict.REPLACE, replacement=text), as_json, where)


def _say(request_id: str, answer: _Answer, as_json: bool, given: dict[str, str]) -> int:
    where = connection.resolve(**given)
    by = where.signature()

    async def run() -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        async with _client(where) as client:
            question = _pick(request_id, await _open_questions(client))
            async with asyncio.timeout(_ANSWER_SECONDS):
                said = await client.answer(
                    question, answer.verdict, by, replacement=answer.replacement, grant=answer.grant
                )
            return question, said

    try:
        question, said = asyncio.run(run())
    except TimeoutError:
        raise ChannelError("the node did not say what became of the answer", hint="zeroclawd approvals list") from None
    if as_json:
        output.as_json(said)
    else:
        click.echo(describe(question), err=True)
        click.echo(outcome(said))
    return 0 if said.get("result") == "accepted" else 1


def _pick(request_id: str, questions: list[Mapping[str, Any]]) -> Mapping[str, Any]:
    fitting = [question for question in questions if str(question["request_id"]).startswith(request_id)]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        raise click.UsageError(f"{request_id!r} fits {len(fitting)} questions; give more of the id")
    raise ChannelError(
        f"no open question begins with {request_id!r}: it has expired, was decided, or never was",
        hint="zeroclawd approvals list",
    )


def outcome(said: Mapping[str, Any]) -> str:
    """What the node said of an answer."""
    if said.get("result") == "accepted":
        quorum = said.get("quorum", {})
        more = f" ({quorum.get('have')} of {quorum.get('need')} so far)" if quorum.get("need", 1) > 1 else ""
        return click.style(f"{said.get('verdict')}: accepted{more}", fg="green")
    return click.style(f"refused: {said.get('text') or said.get('reason')}", fg="red")


# Watching


@command.command("watch")
@click.option("--json", "as_json", is_flag=True, help="Questions and outcomes as JSON lines.")
@connection.options
def watch(as_json: bool, **where: str) -> int:
    """Show questions of all nodes as they come, and what becomes of them.

    In a terminal with an operator's key, one key answers the oldest question: a approve, d deny, r replace, s skip, q quit.
    """
    found = connection.resolve(**where)
    with contextlib.suppress(KeyboardInterrupt):
        return asyncio.run(_Watch(found, as_json).run())
    return 0


class _Watch:
    def __init__(self, where: Where, as_json: bool) -> None:
        self._where = where
        self._json = as_json
        self._by = where.signature()
        self._open: dict[str, Mapping[str, Any]] = {}
        self._keys: asyncio.Queue[str] = asyncio.Queue()

    async def run(self) -> int:
        from zeroclawd.cli.keys import pressed

        async with _client(self._where) as client, asyncio.TaskGroup() as group:
            looking = group.create_task(self._look(client), name="look")
            if self._by is not None and output.terminal() and not self._json:
                with pressed(self._keys) as listening:
                    if listening:
                        click.echo("a approve, d deny, r replace, s skip, q quit", err=True)
                        await self._answer(client)
                        looking.cancel()
                    else:
                        await looking
            else:
                await looking
        return 0

    async def _look(self, client: Client) -> None:
        async for seen in client.watch():
            if seen.rest.startswith(_REQUEST):
                self._question(seen)
            elif seen.rest == "approval/outcome" and seen.document:
                self._outcome(seen)

    def _question(self, seen: Seen) -> None:
        request_id = seen.rest.removeprefix(_REQUEST)
        if not seen.document:
            self._open.pop(request_id, None)
            return
        fresh = request_id not in self._open
        self._open[request_id] = seen.document
        if self._json:
            output.as_json(seen.document)
        elif fresh:
            click.echo(f"\n{describe(seen.document)}")
            if self._by is not None and output.terminal():
                click.echo("  a approve  d deny  r replace  s skip")

    def _outcome(self, seen: Seen) -> None:
        said = seen.document
        if self._json:
            output.as_json({"node": seen.node, **said})
            return
        short = str(said.get("request_id", ""))[:8]
        if said.get("event") == "answer":
            click.echo(f"{seen.node} {short} {said.get('operator') or '-'}: {outcome(said)}")
        else:
            click.echo(f"{seen.node} {short} ended: {said.get('outcome')} by {said.get('by')}")

    # One key

    async def _answer(self, client: Client) -> None:
        while True:
            key = await self._keys.get()
            if key in ("q", "\x03", "\x04"):
                return
            question = next(iter(self._open.values()), None)
            if question is None:
                click.echo("no question is open")
                continue
            await self._act(client, key, question)

    async def _act(self, client: Client, key: str, question: Mapping[str, Any]) -> None:
        match key:
            case "a":
                await client.decide(question, Verdict.APPROVE, self._by)
            case "d":
                await client.decide(question, Verdict.DENY, self._by)
            case "r":
                click.echo("the result instead, then Enter: ", nl=False)
                text = await self._line()
                await client.decide(question, Verdict.REPLACE, self._by, replacement=text)
            case "s":
                self._open[str(question["request_id"])] = self._open.pop(str(question["request_id"]))
                click.echo(f"next: {describe(next(iter(self._open.values())))}")

    async def _line(self) -> str:
        typed = ""
        while (key := await self._keys.get()) not in ("\r", "\n"):
            typed = typed[:-1] if key in ("\x7f", "\b") else typed + key
            click.echo(f"\r\x1b[K> {typed}", nl=False)
        click.echo()
        return typed
