"""Append: the assistant's calls and their results go into the history as one group, in the order of the calls."""

from __future__ import annotations

from collections.abc import Sequence

from zeroclawd.messages import Message, Reply, Role, ToolCall, ToolResult
from zeroclawd.turn.context import TurnContext, TurnState
from zeroclawd.turn.framing import tool_message


def append(
    context: TurnContext,
    state: TurnState,
    reply: Reply,
    text: str,
    calls: Sequence[ToolCall],
    results: Sequence[ToolResult],
) -> None:
    """Add one round; every call has its answer under its own id."""
    said = reply.text if context.text_protocol else text
    state.history.append(Message(Role.ASSISTANT, said, calls=tuple(calls), extra=reply.extra))
    state.history.extend(tool_message(result) for result in results)
    state.results.extend(results)


def turns_of(history: Sequence[Message]) -> list[list[Message]]:
    """The history cut where a user speaks; what stands before the first user message is dropped."""
    turns: list[list[Message]] = []
    for message in history:
        if message.role is Role.USER:
            turns.append([])
        if turns:
            turns[-1].append(message)
    return turns


def trimmed(history: Sequence[Message], limit: int) -> list[Message]:
    """The newest whole turns that fit `limit` messages; the newest turn always stays."""
    kept: list[list[Message]] = []
    count = 0
    for turn in reversed(turns_of(history)):
        if kept and count + len(turn) > limit:
            break
        kept.append(turn)
        count += len(turn)
    return [message for turn in reversed(kept) for message in turn]


def repaired(history: Sequence[Message]) -> list[Message]:
    """The history without orphans: a call without all its answers goes with its group, an answer without a call goes."""
    sound: list[Message] = []
    messages = [message for turn in turns_of(history) for message in turn]
    at = 0
    while at < len(messages):
        message = messages[at]
        end = at + 1
        while end < len(messages) and messages[end].role is Role.TOOL:
            end += 1
        answers = messages[at + 1 : end] if message.role is Role.ASSISTANT else []
        if message.role is Role.TOOL:
            at = end
            continue
        wanted = [call.id for call in message.calls]
        if [answer.call_id for answer in answers] == wanted:
            sound += [message, *answers]
        elif message.role is Role.USER or (message.text and not message.calls):
            sound.append(message)
        at = end
    return sound
