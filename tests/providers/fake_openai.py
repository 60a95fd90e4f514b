"""A chat completions server that refuses what strict servers refuse, and that can stall, cut, redirect and fail."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Answer:
    """One answer of the server: a status with a body, or a stream of events; `stall` never ends, `cut` breaks off."""

    status: int = 200
    body: Any = None
    events: Sequence[Any] = ()
    headers: dict[str, str] = field(default_factory=dict)
    content_type: str = ""
    cut: bool = False
    stall: bool = False
    silent: bool = False


def text(content: str, **more: Any) -> Answer:
    """A plain reply."""
    return Answer(body={"choices": [{"index": 0, "message": {"role": "assistant", "content": content}, **_stop(more)}]})


def call(*calls: tuple[str, str, str]) -> Answer:
    """A plain reply with calls (id, name, arguments)."""
    listed = [
        {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}
        for id, name, arguments in calls
    ]
    message = {"role": "assistant", "content": None, "tool_calls": listed}
    return Answer(body={"model": "m-1", "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]})


def stream(*deltas: dict[str, Any], finish: str | None = "stop", done: bool = True, **more: Any) -> Answer:
    """A streamed reply."""
    events: list[Any] = [{"choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    if finish:
        events.append({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
    return Answer(events=[*events, *(["[DONE]"] if done else [])], **more)


def _line(event: Any) -> bytes:
    """One event as it stands on the wire; bytes are sent as they are."""
    if isinstance(event, bytes):
        return event
    return f"data: {event if isinstance(event, str) else json.dumps(event)}\n\n".encode()


def _stop(more: dict[str, Any]) -> dict[str, Any]:
    return {"finish_reason": "stop", **more}


class FakeOpenAI:
    """Gives the queued answers in order; `requests` and `headers` hold what came, `connections` counts sockets."""

    def __init__(self) -> None:
        self.answers: list[Answer] = []
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.refused: list[str] = []
        self.came = asyncio.Event()
        self.connections = 0
        self.unsupported: set[str] = set()
        self.port = 0
        self.scheme = "http"
        self._open: set[asyncio.StreamWriter] = set()
        self._closing = asyncio.Event()

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}/v1"

    @contextlib.asynccontextmanager
    async def running(self, tls: ssl.SSLContext | None = None) -> AsyncIterator[FakeOpenAI]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=tls)
        self.port = server.sockets[0].getsockname()[1]
        self.scheme = "https" if tls else "http"
        try:
            yield self
        finally:
            self._closing.set()
            server.close()
            for writer in list(self._open):
                writer.close()
            await server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._open.add(writer)
        try:
            while await self._one(reader, writer):
                pass
        except (asyncio.IncompleteReadError, ConnectionError, ssl.SSLError):
            pass
        finally:
            self._open.discard(writer)
            writer.close()
            with contextlib.suppress(ConnectionError, ssl.SSLError):
                await writer.wait_closed()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)}
        content = await reader.readexactly(int(headers["content-length"]))
        self.paths.append(head[0].split()[1])
        self.headers.append(headers)
        request = json.loads(content)
        self.requests.append(request)
        self.came.set()
        problem = fault(request, self.unsupported)
        if problem:
            self.refused.append(problem)
            answer = Answer(400, {"error": {"message": problem, "type": "invalid_request_error"}})
        else:
            answer = self.answers.pop(0) if self.answers else text("(nothing queued)")
        return await self._give(answer, writer)

    async def _give(self, answer: Answer, writer: asyncio.StreamWriter) -> bool:
        if answer.silent:
            await self._closing.wait()
            return False
        kind = answer.content_type or ("text/event-stream" if answer.events else "application/json")
        lines = [f"HTTP/1.1 {answer.status} X", f"content-type: {kind}"]
        lines += [f"{name}: {value}" for name, value in answer.headers.items()]
        if not answer.events:
            body = answer.body if isinstance(answer.body, bytes) else json.dumps(answer.body).encode()
            writer.write("\r\n".join([*lines, f"content-length: {len(body)}", "", ""]).encode() + body)
            await writer.drain()
            return True
        writer.write("\r\n".join([*lines, "transfer-encoding: chunked", "", ""]).encode())
        for event in answer.events:
            line = _line(event)
            writer.write(f"{len(line):x}\r\n".encode() + line + b"\r\n")
            await writer.drain()
        if answer.stall:
            await self._closing.wait()
        if answer.cut or answer.stall:
            return False
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        return True


def fault(request: dict[str, Any], unsupported: set[str]) -> str:
    """Why a strict server refuses the request, or empty."""
    for option in unsupported:
        if option in request:
            return f"Unsupported parameter: '{option}' is not supported with this model."
    if not isinstance(request.get("model"), str) or not request.get("messages"):
        return "model and messages are required"
    if request.get("tools") == []:
        return "[] is too short - 'tools'"
    return _history_fault(request["messages"])


def _history_fault(messages: list[dict[str, Any]]) -> str:
    open_calls: list[str] = []
    used: set[str] = set()
    for message in messages:
        role = message["role"]
        if role == "tool":
            if message.get("tool_call_id") not in open_calls:
                return "messages with role 'tool' must be a response to a preceding message with 'tool_calls'"
            open_calls.remove(message["tool_call_id"])
        elif open_calls:
            return f"tool_call_ids did not have response messages: {', '.join(open_calls)}"
        if not isinstance(message.get("content"), str) and not (role == "assistant" and message.get("tool_calls")):
            return f"content of a {role} message must be a string"
        for one in _calls(message):
            problem = _call_fault(one, used)
            if problem:
                return problem
            open_calls.append(one["id"])
            used.add(one["id"])
        if message.get("tool_calls") == []:
            return "[] is too short - 'tool_calls'"
    return f"tool_call_ids did not have response messages: {', '.join(open_calls)}" if open_calls else ""


def _calls(message: dict[str, Any]) -> list[dict[str, Any]]:
    found = message.get("tool_calls")
    return found if isinstance(found, list) else []


def _call_fault(one: dict[str, Any], used: set[str]) -> str:
    if not one.get("id") or one["id"] in used:
        return f"duplicate or empty tool call id {one.get('id')!r}"
    if one.get("type") != "function":
        return "type of a tool call must be 'function'"
    arguments = one.get("function", {}).get("arguments")
    if not isinstance(arguments, str):
        return "arguments must be a string"
    try:
        value = json.loads(arguments)
    except ValueError:
        return "arguments must be JSON"
    return "" if isinstance(value, dict) else "arguments must be the JSON of an object"
