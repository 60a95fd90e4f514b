"""`zeroclawd approvals`: the questions of a whole fleet, and an operator's signed answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from zeroclawd.cli import connection, output
from zeroclawd.cli.connection import Where
from zeroclawd.errors import ChannelError
from zeroclawd.messages import Verdict

if TYPE_CHECKING:
    from zeroclawd.cli.approvals.questions import Asked

Command = TypeVar("Command", bound=Callable[..., Any])

ANSWER_SECONDS = 15.0
_ID_HELP = "ID may be the beginning of an id, as long as it fits one question."


@click.group("approvals")
def command() -> None:
    """Watch, list and answer the questions that nodes ask."""


# Listing and watching


@command.command("list")
@output.options
@connection.options
def list_(as_json: bool, **where: str) -> int:
    """List the open questions of all nodes, or of one."""
    found = connection.resolve(where)
    asked = connection.run(found, _collect(found))
    if as_json:
        for one in asked:
            output.as_json(one.document)
        return 0
    heads = ("id", "node", "what", "risk", "device", "asked by", "approved", "left")
    output.table(heads, [_cells(one) for one in asked], none=output.words()("approvals-none"))
    return 0


async def _collect(where: Where) -> list[Asked]:
    from zeroclawd.channels.mqtt.client import questions as topics
    from zeroclawd.cli.approvals import questions
    from zeroclawd.cli.retained import gather

    async with connection.client(where, *topics(where.only or "+")) as client:
        return questions.open_ones(await gather(client))


def _cells(asked: Asked) -> tuple[str, ...]:
    have, need = asked.quorum
    return (
        asked.short,
        asked.node,
        asked.summary,
        asked.text("risk"),
        asked.text("device") or "-",
        asked.text("requested_by") or "-",
        f"{have} of {need}",
        output.left(asked.left()),
    )


@command.command("watch")
@output.options
@connection.signing_options
@connection.options
def watch(as_json: bool, **where: str) -> int:
    """Show the questions of all nodes as they come, and what becomes of them, until Ctrl-C.

    In a terminal and with an operator's key one key answers: a approve, d deny, r replace, s skip, q quit.
    """
    from zeroclawd.cli.approvals.watch import Watch

    found = connection.resolve(where)
    try:
        return connection.run(found, Watch(found, output.words(), as_json=as_json).run())
    except KeyboardInterrupt:
        return 0


# Answering


class _Answer(NamedTuple):
    verdict: Verdict
    replacement: str | None = None
    grant: Mapping[str, Any] | None = None


def _answering(function: Command) -> Command:
    return output.options(connection.signing_options(connection.options(function)))


@command.command("approve", epilog=_ID_HELP)
@click.argument("request_id", metavar="ID")
@click.option("--always", is_flag=True, help="Also approve later calls of the same sender and tool that match.")
@click.option("--for", "length", default="1h", show_default=True, help="With --always: for how long.")
@click.option(
    "--match", type=click.Choice(["exact", "device"]), default="exact", show_default=True,
    help="With --always: the same arguments, or any for the same device.",
)  # fmt: skip
@_answering
def approve(request_id: str, always: bool, length: str, match: str, as_json: bool, **where: str) -> int:
    """Say yes to a question: show it whole, sign the answer, and say what became of it.

    Exit 0 if the node took the answer, 1 if it refused it (which leaves the question open) or said nothing.
    """
    grant = {"match": match, "ttl": output.span(length, "--for")} if always else None
    return _say(request_id, _Answer(Verdict.ALWAYS if always else Verdict.APPROVE, grant=grant), as_json, where)


@command.command("deny", epilog=_ID_HELP)
@click.argument("request_id", metavar="ID")
@_answering
def deny(request_id: str, as_json: bool, **where: str) -> int:
    """Say no to a question. To tell the model why, use `replace`."""
    return _say(request_id, _Answer(Verdict.DENY), as_json, where)


@command.command("replace", epilog=_ID_HELP)
@click.argument("request_id", metavar="ID")
@click.argument("text")
@_answering
def replace(request_id: str, text: str, as_json: bool, **where: str) -> int:
    """Say no, and give TEXT as the result instead; the tool does not run."""
    return _say(request_id, _Answer(Verdict.REPLACE, replacement=text), as_json, where)


def _say(request_id: str, answer: _Answer, as_json: bool, given: Mapping[str, str]) -> int:
    from zeroclawd.cli.approvals import questions

    where = connection.resolve(given)
    words = output.words()
    said = connection.run(where, _signed_answer(where, request_id, answer, quiet=as_json))
    if as_json:
        output.as_json(said)
    else:
        output.echo(questions.outcome(words, said))
        if said.get("result") != "accepted" and (advice := questions.advice(words, said)):
            output.echo(f"  {advice}", err=True)
    return 0 if said.get("result") == "accepted" else 1


async def _signed_answer(where: Where, request_id: str, answer: _Answer, *, quiet: bool) -> Mapping[str, Any]:
    from zeroclawd.channels.mqtt.client import questions as topics
    from zeroclawd.cli.approvals import questions
    from zeroclawd.cli.retained import gather

    by = where.signed()
    async with connection.client(where, *topics(where.only or "+")) as client:
        asked = questions.pick(request_id, questions.open_ones(await gather(client)))
        if not quiet:
            output.echo(questions.shown(asked), err=True)
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                return await client.answer(
                    asked.document, answer.verdict, by, replacement=answer.replacement, grant=answer.grant
                )
        except TimeoutError:
            raise ChannelError(
                f"{asked.node} did not say within {ANSWER_SECONDS:g} s what became of the answer",
                hint="`zeroclawd status` shows whether it is online, `zeroclawd approvals list` whether it still asks",
            ) from None
