"""Whatever path a file tool is given and whoever swaps links meanwhile, it stays inside the workspace."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from zeroclawd.errors import ToolError
from zeroclawd.tool import Assessment, Effect, Output, Risk
from zeroclawd_tools._workspace import Workspace, in_thread, resources

Call = Callable[..., Awaitable[Output]]

OUTSIDE = ["..", "../x", "a/../../x", "a/../b", "/etc/passwd", "~", "~/x", "/", "", ".", "a\0b", "./"]


def contents(folder: Path) -> dict[str, str]:
    return {entry.name: entry.read_text() if entry.is_file() else "" for entry in folder.iterdir()}


async def refused(awaitable: Awaitable[Output]) -> str:
    with pytest.raises(ToolError) as caught:
        await awaitable
    return caught.value.text


@pytest.mark.parametrize("path", OUTSIDE)
async def test_a_path_that_is_no_file_of_the_workspace_is_refused(call: Call, path: str, workspace: Path) -> None:
    (workspace / "a").mkdir()
    for name, more in (("file_read", {}), ("file_write", {"content": "x"}), ("file_edit", {"old": "a", "new": "b"})):
        assert await refused(call(name, path=path, **more))
    assert contents(workspace) == {"a": ""}


async def test_an_absolute_path_below_the_workspace_is_the_same_file(call: Call, workspace: Path) -> None:
    await call("file_write", path=f"{workspace}//sub/./a.txt", content="x")
    assert (await call("file_read", path="sub/a.txt")).text == "x"
    assert "outside" in await refused(call("file_read", path=f"{workspace}-other/a.txt"))


async def test_a_workspace_that_is_itself_a_link_works(call: Call, workspace: Path, tmp_path: Path) -> None:
    os.rename(workspace, tmp_path / "real")
    os.symlink(tmp_path / "real", workspace)
    await call("file_write", path="a", content="x")
    assert (await call("file_read", path=str(tmp_path / "real" / "a"))).text == "x"
    assert (await call("file_read", path=str(workspace / "a"))).text == "x"


@pytest.fixture
def secret(workspace: Path, tmp_path: Path) -> Path:
    """A file outside, with links to it and to its folder inside."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_text("secret")
    (workspace / "file").symlink_to(tmp_path / "outside" / "secret")
    (workspace / "folder").symlink_to(tmp_path / "outside")
    (workspace / "dangling").symlink_to(tmp_path / "outside" / "new")
    (workspace / "loop").symlink_to("loop")
    return tmp_path / "outside"


@pytest.mark.parametrize("path", ["file", "folder/secret", "folder/new", "folder/a/b", "dangling", "loop", "loop/x"])
async def test_links_are_not_followed(call: Call, secret: Path, path: str) -> None:
    for name, more in (("file_read", {}), ("file_write", {"content": "x"}), ("file_edit", {"old": "s", "new": "b"})):
        assert "link" in await refused(call(name, path=path, **more))
    assert contents(secret) == {"secret": "secret"}


async def test_searches_do_not_follow_links(call: Call, secret: Path) -> None:
    assert (await call("glob_search", pattern="**")).text == "no match"
    assert (await call("content_search", pattern="secret")).text == "no match"
    for path in ("folder", "file", "folder/secret"):
        assert "link" in await refused(call("content_search", pattern="secret", path=path))
    assert "link" in await refused(call("glob_search", pattern="folder/*"))


async def test_pipes_sockets_and_folders_are_refused_at_once(call: Call, workspace: Path) -> None:
    os.mkfifo(workspace / "pipe")
    (workspace / "folder").mkdir()
    with socket.socket(socket.AF_UNIX) as server, contextlib.chdir(workspace):
        server.bind("socket")
    async with asyncio.timeout(20):
        for path, kind in (("pipe", "pipe"), ("socket", "socket"), ("folder", "folder")):
            for name, more in (
                ("file_read", {}),
                ("file_write", {"content": ""}),
                ("file_edit", {"old": "a", "new": ""}),
            ):
                assert kind in await refused(call(name, path=path, **more))
        assert (await call("content_search", pattern="x")).text == "no match"


async def test_a_file_is_no_folder_and_a_missing_one_is_said(call: Call, workspace: Path) -> None:
    (workspace / "a").write_text("x")
    assert await refused(call("file_write", path="a/b", content="x")) == "a: is a file"
    assert await refused(call("file_read", path="b/c")) == "b: does not exist"
    assert await refused(call("file_read", path="b")) == "b: does not exist"


async def test_a_missing_workspace_is_said_without_its_place(call: Call, workspace: Path) -> None:
    os.rmdir(workspace)
    text = await refused(call("file_read", path="a"))
    assert "workspace" in text
    assert str(workspace) not in text


async def test_a_name_that_is_too_long_is_refused(call: Call, workspace: Path) -> None:
    assert "too long" in await refused(call("file_write", path="a" * 256, content="x"))
    assert contents(workspace) == {}


@pytest.mark.parametrize("path", [".git/config", "sub/.git/hooks/pre-commit", ".git"])
async def test_files_that_name_programs_for_git_are_not_written(call: Call, workspace: Path, path: str) -> None:
    assert ".git" in await refused(call("file_write", path=path, content="x"))
    assert ".git" in await refused(call("file_edit", path=path, old="a", new="b"))
    assert contents(workspace) == {}


# What two calls may do at once


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("a/b", "./a//b", True),
        ("a/b", "/srv/work/a/b", True),
        ("/srv/work/a/b", "/srv/work/./a/b", True),
        ("a/b", "a/c", False),
        ("a", "a/b", False),
    ],
)
def test_two_spellings_of_a_file_hold_one_resource(one: str, other: str, same: bool) -> None:
    assert bool(resources(one) & resources(other)) is same


def test_what_file_tools_may_do(assess: Callable[..., Assessment]) -> None:
    held = frozenset({"file:a/b"})
    assert assess("file_read", path="./a/b") == Assessment(Risk.LOW, Effect.READ, held)
    assert assess("file_write", path="a/b", content="") == Assessment(Risk.MEDIUM, Effect.MUTATE, held)
    assert assess("file_edit", path="a//b", old="a", new="b") == Assessment(Risk.MEDIUM, Effect.MUTATE, held)
    for name in ("glob_search", "content_search"):
        assert assess(name, pattern="x") == Assessment(Risk.LOW, Effect.READ)


def test_edits_of_one_file_from_many_threads_lose_nothing(workspace: Path) -> None:
    (workspace / "count").write_bytes(b"0")
    errors: list[Exception] = []

    def work() -> None:
        try:
            for _ in range(10):
                Workspace(workspace).edit("count", 100, lambda content: str(int(content) + 1).encode())
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert contents(workspace) == {"count": "40"}


async def test_a_cancelled_call_waits_for_its_thread() -> None:
    begun, over = threading.Event(), threading.Event()

    def work(stop: threading.Event) -> None:
        begun.set()
        assert stop.wait(60)
        over.set()

    task = asyncio.create_task(in_thread(work))
    await asyncio.to_thread(begun.wait, 60)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert over.is_set()


# Somebody who swaps links


FLIPPER = """
import contextlib, os, select, sys
folder, outside = sys.argv[1:]
os.chdir(folder)
steps = (
    lambda: os.rename("d", "kept"),
    lambda: os.symlink(outside, "d"),
    lambda: os.unlink("d"),
    lambda: os.rename("kept", "d"),
    lambda: os.symlink(outside + "/f", "d/link"),
    lambda: os.rename("d/link", "d/f"),
    lambda: os.unlink("d/f"),
)
print("ready", flush=True)
while not select.select([sys.stdin], [], [], 0)[0]:
    for step in steps:
        with contextlib.suppress(OSError):
            step()
"""


@contextlib.contextmanager
def flipping(folder: Path, outside: Path) -> Iterator[None]:
    """While this lasts, a process makes `d` a folder and a link out, and `d/f` a file and a link out, in turn."""
    program = [sys.executable, "-c", FLIPPER, str(folder), str(outside)]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as flipper:
        assert flipper.stdin
        assert flipper.stdout
        assert flipper.stdout.readline() == b"ready\n"
        yield
        flipper.stdin.close()
        assert flipper.wait(60) == 0


def _attempt(workspace: Workspace, number: int) -> bool:
    try:
        match number % 4:
            case 0:
                workspace.write("d/f", b"inside")
            case 1:
                workspace.write(f"d/new{number % 8}/f", b"inside")
            case 2:
                workspace.edit("d/f", 1000, lambda content: content + b"!")
            case 3:
                assert b"secret" not in workspace.read("d/f", 1000)
    except ToolError:
        return False
    return True


def test_links_swapped_in_a_loop_lead_nothing_out(workspace: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "f").write_text("secret")
    (workspace / "d").mkdir()
    before = {path: (stat.S_IMODE(path.stat().st_mode), path.stat().st_mtime_ns) for path in (outside, outside / "f")}
    with flipping(workspace, outside):
        done = [_attempt(Workspace(workspace), number) for number in range(1500)]
    assert any(done)
    assert not all(done)
    assert {path: (stat.S_IMODE(path.stat().st_mode), path.stat().st_mtime_ns) for path in before} == before
    assert contents(outside) == {"f": "secret"}
