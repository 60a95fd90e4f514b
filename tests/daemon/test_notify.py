"""Talking to the service manager over a real datagram socket."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest

from zeroclawd.daemon.notify import Notifier, watchdog_interval


@pytest.fixture
def manager(tmp_path: Path):  # type: ignore[no-untyped-def]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(str(tmp_path / "notify"))
        sock.setblocking(False)
        yield sock


def address(manager: socket.socket) -> str:
    return str(manager.getsockname())


def test_lines_go_in_one_datagram(manager: socket.socket) -> None:
    Notifier({"NOTIFY_SOCKET": address(manager)}).send("READY=1", "STATUS=ready")
    assert manager.recv(100) == b"READY=1\nSTATUS=ready"


def test_a_status_is_sent_when_it_changes(manager: socket.socket) -> None:
    notifier = Notifier({"NOTIFY_SOCKET": address(manager)})
    for text in ("a", "a", "b"):
        notifier.status(text)
    assert [manager.recv(100), manager.recv(100)] == [b"STATUS=a", b"STATUS=b"]
    with pytest.raises(BlockingIOError):
        manager.recv(100)


def test_an_abstract_address_is_understood() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind("\0zeroclawd-test-notify")
        Notifier({"NOTIFY_SOCKET": "@zeroclawd-test-notify"}).send("READY=1")
        assert sock.recv(100) == b"READY=1"


def test_without_a_manager_and_with_a_dead_one_nothing_happens(tmp_path: Path) -> None:
    Notifier({}).send("READY=1")
    Notifier({"NOTIFY_SOCKET": str(tmp_path / "nobody")}).send("READY=1")


@pytest.mark.parametrize(
    ("environ", "wanted"),
    [
        ({"WATCHDOG_USEC": "500000"}, 0.25),
        ({"WATCHDOG_USEC": "2000000"}, 1.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "77"}, 15.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "78"}, None),
        ({"WATCHDOG_USEC": ""}, None),
        ({"WATCHDOG_USEC": "abc"}, None),
        ({"WATCHDOG_USEC": "-5"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({}, None),
    ],
)
def test_the_watchdog_is_fed_at_half_its_time(environ: dict[str, str], wanted: float | None) -> None:
    assert watchdog_interval(environ, pid=77) == wanted


async def test_the_watchdog_starves_while_something_is_stuck(manager: socket.socket) -> None:
    notifier = Notifier({"NOTIFY_SOCKET": address(manager), "WATCHDOG_USEC": "20000"})
    stuck = "turn of command x"
    task = asyncio.create_task(notifier.feed(lambda: stuck))
    await asyncio.sleep(0.05)
    with pytest.raises(BlockingIOError):
        manager.recv(100)
    stuck = ""
    loop = asyncio.get_running_loop()
    assert await asyncio.wait_for(loop.sock_recv(manager, 100), 5) == b"WATCHDOG=1"
    task.cancel()
