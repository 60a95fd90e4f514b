"""Lines are found by text or by regular expression, within bounds that no pattern and no file can break."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

import zeroclawd_tools.content_search as module
from zeroclawd.errors import ToolError
from zeroclawd.tool import Output, ToolLimits

Call = Callable[..., Awaitable[Output]]


@pytest.fixture
def tree(workspace: Path) -> Path:
    files = {
        "a.py": b"import os\n# a+b\nprint(1)\n",
        "src/b.py": b"x = 1\r\nprint(2)\r\n",
        "src/c.txt": "温度 print\n".encode(),
        "binary": b"\0print",
        ".git/config": b"print",
        "latin": b"caf\xe9 print\n",
    }
    for name, content in files.items():
        (workspace / name).parent.mkdir(parents=True, exist_ok=True)
        (workspace / name).write_bytes(content)
    return workspace


async def test_text_is_found_with_file_and_line(call: Call, tree: Path) -> None:
    output = await call("content_search", pattern="print")
    found = ["a.py:3: print(1)", "latin:1: caf\ufffd print", "src/b.py:2: print(2)", "src/c.txt:1: 温度 print"]
    assert output.text.splitlines() == found
    assert output.data == {"matches": 4, "notes": []}


async def test_a_pattern_is_plain_text_unless_said(call: Call, tree: Path) -> None:
    assert (await call("content_search", pattern="a+b")).text == "a.py:2: # a+b"
    assert (await call("content_search", pattern="p.int")).text == "no match"
    assert (await call("content_search", pattern="温度")).text == "src/c.txt:1: 温度 print"


async def test_regular_expressions_are_those_of_python(call: Call, tree: Path) -> None:
    output = await call("content_search", pattern=r"^(?:x|print)\b.*\d\)?$", regex=True)
    assert output.text.splitlines() == ["a.py:3: print(1)", "src/b.py:1: x = 1", "src/b.py:2: print(2)"]


async def test_path_and_include_narrow_the_search(call: Call, tree: Path) -> None:
    assert (await call("content_search", pattern="print", path="src", include="*.py")).text == "src/b.py:2: print(2)"
    assert (await call("content_search", pattern="print", path="./a.py")).text == "./a.py:3: print(1)"
    with pytest.raises(ToolError, match="binary"):
        await call("content_search", pattern="print", path="binary")
    with pytest.raises(ToolError, match="does not exist"):
        await call("content_search", pattern="print", path="missing")


@pytest.mark.parametrize("pattern", ["", "a\nb", "a\0b"])
async def test_a_pattern_is_one_line(call: Call, tree: Path, pattern: str) -> None:
    with pytest.raises(ToolError):
        await call("content_search", pattern=pattern)


@pytest.mark.parametrize("pattern", ["(", "*", "a{99999999999999999999}", "(?P<x", "\\"])
async def test_a_bad_expression_is_explained(call: Call, tree: Path, pattern: str) -> None:
    with pytest.raises(ToolError, match=r"no regular expression: \S"):
        await call("content_search", pattern=pattern, regex=True)


async def test_an_expression_that_never_ends_is_ended_and_the_daemon_goes_on(
    call: Call, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_SECONDS", 0.5)
    (workspace / "a").write_text("a" * 60 + "b\n")
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0.02)
            ticks += 1

    async with asyncio.TaskGroup() as group:
        ticking = group.create_task(tick())
        with pytest.raises(ToolError, match=r"longer than 0.5 s"):
            await call("content_search", pattern="(a+)+$", regex=True)
        ticking.cancel()
    assert ticks >= 3


async def test_a_cancelled_search_ends_its_process(call: Call, workspace: Path) -> None:
    (workspace / "a").write_text("a" * 60 + "b\n")
    task = asyncio.create_task(call("content_search", pattern="(a+)+$", regex=True))
    await asyncio.sleep(0.3)
    begun = time.monotonic()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert time.monotonic() - begun < module._SECONDS / 2


async def test_long_lines_and_many_matches_are_cut_and_say_so(call: Call, workspace: Path) -> None:
    (workspace / "a").write_text("x" * 1000 + "\n" + "x\n" * 300)
    for regex in (False, True):
        output = await call("content_search", pattern="x", regex=regex)
        assert output.text.splitlines()[0] == f"a:1: {'x' * 300} [1000 characters]"
        assert output.text.endswith("[not all: the first 200]")
        assert output.data["matches"] == 200


async def test_files_that_are_too_large_are_passed_over(call: Call, workspace: Path) -> None:
    (workspace / "large").write_text("x" * 100)
    (workspace / "small").write_text("x")
    assert (await call("content_search", pattern="x", limits=ToolLimits(file_bytes=50))).text == "small:1: x"


async def test_time_that_is_over_is_said(call: Call, tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_SECONDS", 0.0)
    assert "[not all: 0 s are over]" in (await call("content_search", pattern="print")).text


async def test_many_files_go_through_one_process(call: Call, workspace: Path) -> None:
    for number in range(300):
        (workspace / f"{number:03}").write_text(f"n{number}\n" * 50)
    output = await call("content_search", pattern="^n29[0-9]$", include="29?", regex=True)
    assert output.data["matches"] == 200
