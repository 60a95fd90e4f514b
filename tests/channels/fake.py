"""Brokers that mosquitto does not play, made of a few bytes of MQTT, and a network that can be cut."""

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


class Gate:
    """A way to the broker that can be shut for one client, while the broker and everybody else live on."""

    def __init__(self, broker_port: int) -> None:
        self._broker_port = broker_port
        self._server: asyncio.Server | None = None
        self._ways: set[asyncio.Task[None]] = set()
        self.port = 0

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._pass, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def shut(self) -> None:
        assert self._server is not None
        self._server.close()
        for way in list(self._ways):
            way.cancel()
        await asyncio.gather(*self._ways, return_exceptions=True)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._ways.add(task)
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._broker_port)
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(self._copy(reader, far_writer))
                both.create_task(self._copy(far_reader, writer))
        except* (ConnectionError, EOFError):
            pass
        except* asyncio.CancelledError:
            pass
        finally:
            self._ways.discard(task)
            writer.transport.abort()
            far_writer.transport.abort()

    @staticmethod
    async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
        raise EOFError


@contextlib.asynccontextmanager
async def gate(broker_port: int) -> AsyncIterator[Gate]:
    made = Gate(broker_port)
    await made.open()
    try:
        yield made
    finally:
        await made.shut()
