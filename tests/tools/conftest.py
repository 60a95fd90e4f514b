"""Calls tools on the same road as a turn does: found by the catalog, arguments checked, roles handed in."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from zeroclawd.board.board import DeviceBoard
from zeroclawd.board.sim import SimHardware
from zeroclawd.catalog import Catalog
from zeroclawd.config import parse
from zeroclawd.interfaces import Board, Reading
from zeroclawd.locale import Texts
from zeroclawd.tool import Assessment, Output, ToolContext, ToolLimits

# At import, so that test modules can import zeroclawd_tools by name
CATALOG = Catalog.load(Texts("en"))

Call = Callable[..., Awaitable[Output]]


@pytest.fixture
def catalog() -> Catalog:
    assert not CATALOG.broken, CATALOG.broken
    return CATALOG


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path.resolve() / "workspace"
    folder.mkdir()
    return folder


@pytest.fixture
def limits() -> ToolLimits:
    return ToolLimits()


@pytest.fixture
def call(workspace: Path, limits: ToolLimits) -> Call:
    """`await call("file_read", path="a")`; `board=` and `limits=` replace the usual ones."""

    async def run(name: str, *, board: Any = None, limits: ToolLimits = limits, **arguments: Any) -> Output:
        tool = CATALOG.tools[name]
        roles = {Board: board, ToolContext: ToolContext(workspace, limits=limits)}
        return await tool.run(tool.check(arguments), roles)

    return run


@pytest.fixture
def assess() -> Callable[..., Assessment]:
    def judge(name: str, **arguments: Any) -> Assessment:
        return CATALOG.tools[name].assess(CATALOG.tools[name].check(arguments))

    return judge


# A board


class Host:
    """What a board needs from the house, in memory."""

    def __init__(self) -> None:
        self.kept: dict[str, str] = {}

    async def remember(self, key: str, value: str) -> None:
        self.kept[key] = value

    async def recall(self, key: str) -> str | None:
        return self.kept.get(key)

    async def record(self, kind: str, device: str, note: str) -> None:
        """The board's own tests look at the rows."""

    def changed(self, reading: Reading) -> None:
        """The board's own tests look at the changes."""


class KernelClock:
    def wall(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    def synced(self) -> bool:
        return True


DEVICES = """
[board]
kind = "sim"

[devices.pump]
kind = "relay"
description = "water pump"
pin = 17
active_low = true
safe_state = "off"
max_on = "10m"
risk = "high"

[devices.lamp]
kind = "led"
pin = 18

[devices.greenhouse]
kind = "bme280"
bus = 1
address = 0x76

[devices.door]
kind = "contact"
pin = 22
"""


@pytest.fixture
async def board() -> AsyncIterator[DeviceBoard]:
    """The sim board with a relay, a lamp, a sensor and a contact."""
    made = DeviceBoard(parse(DEVICES).config, Host(), KernelClock())
    await made.start()
    yield made
    await made.stop("the test is over")


@pytest.fixture
def sim(board: DeviceBoard) -> SimHardware:
    """The wires and chips of that board."""
    assert isinstance(board.hardware, SimHardware)
    return board.hardware
