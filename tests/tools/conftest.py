"""Calls tools on the same road as a turn does: found by the catalog, arguments checked, roles handed in."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from zeroclawd.catalog import Catalog
from zeroclawd.interfaces import Board
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
