"""A passage is replaced where it stands exactly once; whatever is doubtful changes nothing."""

from __future__ import annotations

import stat
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from zeroclawd.errors import ToolError
from zeroclawd.tool import Output, ToolLimits

Call = Callable[..., Awaitable[Output]]


@pytest.fixture(autouse=True)
def folder(workspace: Path) -> Path:
    (workspace / "a").write_bytes(b"one\n  two\none\n")
    return workspace


async def test_a_passage_is_replaced_and_the_rest_keeps_its_bytes(call: Call, folder: Path) -> None:
    (folder / "a").write_bytes(b"\xff one \xfe\r")
    (folder / "a").chmod(0o640)
    output = await call("file_edit", path="a", old="one", new="温")
    assert (folder / "a").read_bytes() == b"\xff " + "温".encode() + b" \xfe\r"
    assert stat.S_IMODE((folder / "a").stat().st_mode) == 0o640
    assert output == Output("a: 1 passage replaced", {"path": "a", "count": 1})


async def test_a_passage_that_stands_twice_is_refused_with_the_count(call: Call, folder: Path) -> None:
    with pytest.raises(ToolError, match="2 times"):
        await call("file_edit", path="a", old="one", new="1")
    assert (folder / "a").read_bytes() == b"one\n  two\none\n"


async def test_all_replaces_every_one(call: Call, folder: Path) -> None:
    assert (await call("file_edit", path="a", old="one", new="", all=True)).text == "a: 2 passages replaced"
    assert (folder / "a").read_bytes() == b"\n  two\n\n"


async def test_a_passage_that_is_not_there_is_refused(call: Call, folder: Path) -> None:
    for everywhere in (False, True):
        with pytest.raises(ToolError) as caught:
            await call("file_edit", path="a", old="three", new="3", all=everywhere)
        assert caught.value.text == "a: old does not stand there"


async def test_a_near_miss_by_spaces_says_so(call: Call, folder: Path) -> None:
    with pytest.raises(ToolError, match="only its spaces or line ends differ"):
        await call("file_edit", path="a", old="one\ntwo", new="x")


async def test_line_ends_of_the_file_are_kept(call: Call, folder: Path) -> None:
    (folder / "a").write_bytes(b"a\r\nb\r\nc\r\n")
    await call("file_edit", path="a", old="a\nb\n", new="x\ny\nz\n")
    assert (folder / "a").read_bytes() == b"x\r\ny\r\nz\r\nc\r\n"


@pytest.mark.parametrize(("old", "new"), [("", "x"), ("one", "one")])
async def test_an_edit_without_meaning_is_refused(call: Call, folder: Path, old: str, new: str) -> None:
    with pytest.raises(ToolError):
        await call("file_edit", path="a", old=old, new=new)


async def test_an_edit_keeps_to_the_limit(call: Call, folder: Path) -> None:
    with pytest.raises(ToolError, match="would have more"):
        await call("file_edit", path="a", old="two", new="2" * 100, limits=ToolLimits(file_bytes=20))
    assert (folder / "a").read_bytes() == b"one\n  two\none\n"


async def test_a_missing_file_is_not_made(call: Call, workspace: Path) -> None:
    with pytest.raises(ToolError, match="does not exist"):
        await call("file_edit", path="d/b", old="a", new="b")
    assert not (workspace / "d").exists()
