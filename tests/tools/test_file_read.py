"""Lines of text files come as they are, with a note where there is more."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from zeroclawd.errors import ToolError
from zeroclawd.schema import BadArguments
from zeroclawd.tool import Output, ToolLimits

Call = Callable[..., Awaitable[Output]]


async def test_a_whole_file_comes_as_it_is(call: Call, workspace: Path) -> None:
    (workspace / "a").write_text("one\n  two\n\nfour\n")
    output = await call("file_read", path="a")
    assert output.text == "one\n  two\n\nfour"
    assert output.data == {"path": "a", "lines": 4, "first": 1, "last": 4, "bytes": 16}


async def test_a_part_says_which_lines_it_holds(call: Call, workspace: Path) -> None:
    (workspace / "a").write_text("".join(f"line {number}\n" for number in range(1, 3001)))
    assert (await call("file_read", path="a", offset=2, limit=2)).text == "line 2\nline 3\n[lines 2-3 of 3000]"
    assert (await call("file_read", path="a", offset=2999)).text.endswith("line 3000\n[lines 2999-3000 of 3000]")
    assert (await call("file_read", path="a")).text.endswith("line 1000\n[lines 1-1000 of 3000]")


async def test_beyond_the_end_says_how_long_the_file_is(call: Call, workspace: Path) -> None:
    (workspace / "a").write_text("x\n")
    assert (await call("file_read", path="a", offset=5)).text == "[no line 5: the file has 1 lines]"


async def test_an_empty_file_is_empty(call: Call, workspace: Path) -> None:
    (workspace / "a").write_text("")
    assert (await call("file_read", path="a")).text == ""


async def test_carriage_returns_and_odd_separators_stay(call: Call, workspace: Path) -> None:
    (workspace / "a").write_bytes("a\r\nb\u2028c\x0cd\r\n".encode())
    output = await call("file_read", path="a")
    assert (output.text, output.data["lines"]) == ("a\r\nb\u2028c\x0cd\r", 2)


async def test_text_that_is_not_utf_8_is_shown_with_marks(call: Call, workspace: Path) -> None:
    (workspace / "a").write_bytes(b"caf\xe9\n")
    assert (await call("file_read", path="a")).text == "caf\ufffd"


async def test_a_binary_file_is_refused(call: Call, workspace: Path) -> None:
    (workspace / "a").write_bytes(b"\x7fELF\0\0")
    with pytest.raises(ToolError, match="binary file of 6 bytes"):
        await call("file_read", path="a")


async def test_a_file_that_is_too_large_is_refused_before_it_is_read(call: Call, workspace: Path) -> None:
    (workspace / "a").touch()
    os.truncate(workspace / "a", 1 << 40)
    with pytest.raises(ToolError, match=str(1 << 40)):
        await call("file_read", path="a")
    (workspace / "b").write_text("12345")
    with pytest.raises(ToolError, match="5 bytes"):
        await call("file_read", path="b", limits=ToolLimits(file_bytes=4))
    assert (await call("file_read", path="b", limits=ToolLimits(file_bytes=5))).text == "12345"


async def test_lines_count_from_one(call: Call, workspace: Path) -> None:
    (workspace / "a").write_text("x")
    for wrong in ({"offset": 0}, {"limit": 0}, {"offset": -1}):
        with pytest.raises(ToolError):
            await call("file_read", path="a", **wrong)
    with pytest.raises(BadArguments):
        await call("file_read", path="a", offset="many")
