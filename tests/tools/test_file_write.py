"""A file is written whole or not at all."""

from __future__ import annotations

import os
import stat
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from zeroclawd.errors import ToolError
from zeroclawd.tool import Output, ToolLimits

Call = Callable[..., Awaitable[Output]]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


async def test_a_new_file_is_created_with_its_folders(call: Call, workspace: Path) -> None:
    output = await call("file_write", path="a/b/c.txt", content="温度\n")
    assert (workspace / "a" / "b" / "c.txt").read_bytes() == "温度\n".encode()
    assert output == Output("created a/b/c.txt, 7 bytes", {"path": "a/b/c.txt", "bytes": 7, "created": True})


async def test_a_file_is_replaced_and_keeps_its_permissions(call: Call, workspace: Path) -> None:
    file = workspace / "run"
    file.write_text("old, and longer than the new one")
    file.chmod(0o750)
    output = await call("file_write", path="run", content="new")
    assert (file.read_text(), stat.S_IMODE(file.stat().st_mode)) == ("new", 0o750)
    assert output.text == "replaced run, 3 bytes"
    assert names(workspace) == ["run"]


async def test_a_new_file_follows_the_umask(call: Call, workspace: Path) -> None:
    before = os.umask(0o027)
    try:
        await call("file_write", path="d/a", content="")
    finally:
        os.umask(before)
    assert stat.S_IMODE((workspace / "d" / "a").stat().st_mode) == 0o640
    assert stat.S_IMODE((workspace / "d").stat().st_mode) == 0o750


async def test_whoever_has_the_old_file_open_still_reads_the_old_one(call: Call, workspace: Path) -> None:
    (workspace / "a").write_text("old")
    with (workspace / "a").open() as reader:
        await call("file_write", path="a", content="new")
        assert reader.read() == "old"


async def test_a_hard_link_to_elsewhere_is_cut_and_not_written_through(
    call: Call, workspace: Path, tmp_path: Path
) -> None:
    (tmp_path / "outside").write_text("old")
    os.link(tmp_path / "outside", workspace / "a")
    await call("file_write", path="a", content="new")
    assert ((tmp_path / "outside").read_text(), (workspace / "a").read_text()) == ("old", "new")


async def test_a_failed_write_leaves_the_old_file_and_nothing_else(
    call: Call, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (workspace / "a").write_text("old")

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ToolError, match="a: No space left on device"):
        await call("file_write", path="a", content="new")
    assert (names(workspace), (workspace / "a").read_text()) == (["a"], "old")


async def test_the_file_and_its_folder_are_on_disk_before_the_call_ends(
    call: Call, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    fsync, rename = os.fsync, os.rename

    def kept(descriptor: int) -> None:
        order.append("folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", kept)
    monkeypatch.setattr(os, "rename", lambda *names, **folders: (order.append("rename"), rename(*names, **folders)))
    await call("file_write", path="a", content="x")
    assert order == ["file", "rename", "folder"]


async def test_a_read_only_file_is_refused(call: Call, workspace: Path) -> None:
    (workspace / "a").write_text("old")
    (workspace / "a").chmod(0o444)
    with pytest.raises(ToolError, match="read-only"):
        await call("file_write", path="a", content="new")
    assert (workspace / "a").read_text() == "old"


async def test_too_much_content_is_refused_before_anything_is_made(call: Call, workspace: Path) -> None:
    with pytest.raises(ToolError, match="6 bytes"):
        await call("file_write", path="d/a", content="温度", limits=ToolLimits(file_bytes=5))
    assert names(workspace) == []
