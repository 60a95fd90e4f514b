"""Brokers that mosquitto does not play: old, silent, or rude ones, made of a few bytes of MQTT."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

CONNECT, PUBLISH, SUBSCRIBE, PINGREQ = 0x10, 0x30, 0x80, 0xC0

Answer = Callable[[int, bytes, asyncio.StreamWriter], Awaitable[None]]


async def packet(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """One MQTT packet: its first byte and what follows the length (MQTT 5.0, section 2.1)."""
    first = (await reader.readexactly(1))[0]
    length, shift = 0, 0
    while True:
        byte = (await reader.readexactly(1))[0]
        length |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            return first, await reader.readexactly(length)


def version(connect: bytes) -> int:
    """The protocol version that a CONNECT asks for."""
    return connect[6]


@contextlib.asynccontextmanager
async def broker(answer: Answer) -> AsyncIterator[int]:
    """Listen and hand every packet to `answer`; yields the port."""
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            while True:
                first, rest = await packet(reader)
                await answer(first & 0xF0, rest, writer)
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            tasks.discard(task)
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.sleep(0)
