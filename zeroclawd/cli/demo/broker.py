"""A broker for the demo: mosquitto where it is installed, else the one that comes as a Python wheel."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import socket
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

from zeroclawd.errors import ChannelError

_READY_SECONDS = 10.0

_MOSQUITTO = """\
listener {port} 127.0.0.1
allow_anonymous true
persistence false
log_type error
"""

_RUMQTTD = """\
id = 0
[router]
id = 0
max_connections = 64
max_outgoing_packet_count = 200
max_segment_size = 1048576
max_segment_count = 10
[v5.1]
name = "demo"
listen = "127.0.0.1:{port}"
next_connection_delay_ms = 1
[v5.1.connections]
connection_timeout_ms = 10000
max_payload_size = 1048576
max_inflight_count = 100
dynamic_filters = true
"""


def find_mosquitto() -> str:
    """The mosquitto program, or empty; Debian keeps it where only root looks."""
    return shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin") or ""


def free_port() -> int:
    """A port of the loopback interface that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.asynccontextmanager
async def running(folder: Path, port: int, wanted: str) -> AsyncIterator[str]:
    """Run a broker on this port of the loopback interface; yields its name. ChannelError if there is none."""
    program = find_mosquitto() if wanted in ("auto", "mosquitto") else ""
    if program:
        async with _mosquitto(program, folder, port):
            yield "mosquitto"
        return
    if wanted == "mosquitto":
        raise ChannelError("mosquitto is not installed", hint="sudo apt-get install mosquitto, or --broker iotcore")
    with _iotcore(folder, port):
        yield "iotcore"


@contextlib.asynccontextmanager
async def _mosquitto(program: str, folder: Path, port: int) -> AsyncIterator[None]:
    config = folder / "mosquitto.conf"
    config.write_text(_MOSQUITTO.format(port=port), "utf-8")
    process = await asyncio.create_subprocess_exec(
        program, "-c", str(config), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    try:
        await _listening(process, port)
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        await process.wait()


async def _listening(process: asyncio.subprocess.Process, port: int) -> None:
    try:
        async with asyncio.timeout(_READY_SECONDS):
            while not await _accepts(port):
                if process.returncode is not None:
                    raise ChannelError(f"mosquitto ended with {process.returncode}")
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise ChannelError(f"mosquitto does not listen on port {port}") from None


async def _accepts(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    return True


@contextlib.contextmanager
def _iotcore(folder: Path, port: int) -> Iterator[None]:
    try:
        from iotcore import Broker
    except ImportError:
        raise ChannelError(
            "there is no MQTT broker here", hint="pip install 'zeroclawd[demo]', or sudo apt-get install mosquitto"
        ) from None
    config = folder / "rumqttd.toml"
    config.write_text(_RUMQTTD.format(port=port), "utf-8")
    with Broker(config_path=str(config)):
        yield
