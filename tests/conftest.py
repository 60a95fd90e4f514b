"""What all tests share."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.broker import Mosquitto, mosquitto
from tests.process import Daemon

# A job in the background of a script ignores Ctrl-C, and so would every program that the tests start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Wall time on a shared machine says nothing about the code.
settings.register_profile("zeroclawd", deadline=None)
settings.load_profile("zeroclawd")


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Mosquitto]:
    with mosquitto(tmp_path / "broker") as running:
        yield running


@pytest.fixture
def daemon(tmp_path: Path, broker: Mosquitto) -> Iterator[Daemon]:
    made = Daemon(tmp_path, broker.port)
    yield made
    if made.process is not None:
        made.end(signal.SIGKILL)
    made.notify.close()
