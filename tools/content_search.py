"""Finds lines in the text files of the workspace."""

from __future__ import annotations

import contextlib
import fnmatch
import json
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from zeroclawd.errors import ToolError
from zeroclawd.tool import Effect, Output, Risk, ToolContext, tool
from zeroclawd_tools._workspace import Bounds, Workspace, in_thread, is_binary, read_at, shown

_MOST, _WIDEST, _SECONDS, _ENTRIES, _BYTES = 200, 300, 15.0, 100_000, 200_000_000

Search = Callable[[bytes], list[int]]


@tool(risk=Risk.LOW, effect=Effect.READ)
async def content_search(
    pattern: str, context: ToolContext, path: str = ".", include: str = "*", regex: bool = False
) -> Output:
    """`path:number: line` for each line with the pattern, in files below `path` whose name fits `include`."""
    if not pattern or "\0" in pattern or "\n" in pattern:
        raise ToolError("the pattern is empty or more than one line")
    workspace, most = Workspace(context.workspace), context.limits.file_bytes

    def work(stop: threading.Event) -> tuple[list[str], list[str]]:
        bounds = Bounds(_SECONDS, _ENTRIES, stop)
        with _by_process(pattern, bounds) if regex else _by_text(pattern) as search:
            return _collect(_texts(workspace, path, include, bounds, most), search, bounds)

    lines, notes = await in_thread(work)
    return Output("\n".join(lines + notes) or "no match", {"matches": len(lines), "notes": notes})


def _collect(texts: Iterator[tuple[str, bytes]], search: Search, bounds: Bounds) -> tuple[list[str], list[str]]:
    found: list[str] = []
    for path, text in texts:
        numbers = search(text)
        lines = text.split(b"\n") if numbers else []
        for number in numbers:
            if len(found) == _MOST:
                return found, [f"[not all: the first {_MOST}]"]
            found.append(f"{shown(path)}:{number}: {_line(lines[number - 1])}")
    return found, [f"[not all: {bounds.cut}]"] if bounds.cut else []


def _line(raw: bytes) -> str:
    text = raw.decode("utf-8", "replace").rstrip("\r")
    return text if len(text) <= _WIDEST else f"{text[:_WIDEST]} [{len(text)} characters]"


def _texts(workspace: Workspace, path: str, include: str, bounds: Bounds, most: int) -> Iterator[tuple[str, bytes]]:
    """The text files in question, one after the other; what cannot be read, is too large or is binary is passed over."""
    if workspace.kind(path) == "file":
        text = workspace.read(path, most)
        if is_binary(text):
            raise ToolError(f"{path}: is a binary file")
        yield path, text
        return
    total = 0
    for found in workspace.walk(path, bounds):
        if found.is_folder or not fnmatch.fnmatchcase(found.name, include):
            continue
        with contextlib.suppress(ToolError, OSError):
            text = read_at(found.folder, found.name, found.path, most)
            total += len(text)
            if not is_binary(text):
                yield found.path, text
        if total > _BYTES:
            bounds.cut = f"{_BYTES} bytes were read"
            return


# Two ways to search


@contextlib.contextmanager
def _by_text(pattern: str) -> Iterator[Search]:
    """Plain text, exactly as given."""
    wanted = pattern.encode("utf-8", "replace")

    def search(text: bytes) -> list[int]:
        if wanted not in text:
            return []
        return [number for number, line in enumerate(text.split(b"\n"), 1) if wanted in line]

    yield search


@contextlib.contextmanager
def _by_process(pattern: str, bounds: Bounds) -> Iterator[Search]:
    """A regular expression of Python, in a process that is killed when the time is over (CWE-1333)."""
    program = [sys.executable, "-I", "-S", str(Path(__file__).with_name("_matcher.py")), pattern, str(_MOST + 1)]
    pipe = subprocess.PIPE
    with subprocess.Popen(program, stdin=pipe, stdout=pipe, stderr=pipe, env={"LANG": "C.UTF-8"}) as child:
        try:
            _answer(child, bounds)
            yield lambda text: _ask(child, text, bounds)
        finally:
            child.kill()


def _ask(child: subprocess.Popen[bytes], text: bytes, bounds: Bounds) -> list[int]:
    assert child.stdin is not None
    child.stdin.write(len(text).to_bytes(8, "big") + text)
    child.stdin.flush()
    return _answer(child, bounds)


def _answer(child: subprocess.Popen[bytes], bounds: Bounds) -> list[int]:
    """What the process says next; it reads only between answers, so nothing that is sent to it has to wait."""
    assert child.stdout is not None
    assert child.stderr is not None
    while not select.select([child.stdout], [], [], 0.1)[0]:
        if bounds.stop.is_set() or time.monotonic() > bounds.deadline:
            raise ToolError(f"the search with this pattern takes longer than {bounds.seconds:g} s")
    answer = child.stdout.readline()
    if not answer:
        reason = child.stderr.read().decode("utf-8", "replace").strip()
        raise ToolError(f"the pattern is no regular expression: {reason}")
    numbers: list[int] = json.loads(answer)
    return numbers
