"""Files are found by name, in order, and within bounds."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from zeroclawd.errors import ToolError
from zeroclawd.tool import Output

Call = Callable[..., Awaitable[Output]]


@pytest.fixture
def tree(workspace: Path) -> Path:
    for name in ("b.py", "a.py", "src/c.py", "src/deep/d.py", "src/deep/e.txt", ".git/config", ".env", "x[1].txt"):
        (workspace / name).parent.mkdir(parents=True, exist_ok=True)
        (workspace / name).write_text("")
    return workspace


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("*.py", ["a.py", "b.py"]),
        ("**/*.py", ["a.py", "b.py", "src/c.py", "src/deep/d.py"]),
        ("src/**", ["src/c.py", "src/deep/", "src/deep/d.py", "src/deep/e.txt"]),
        ("src/*", ["src/c.py", "src/deep/"]),
        ("*/*/[de].*", ["src/deep/d.py", "src/deep/e.txt"]),
        ("**/deep/**/*.txt", ["src/deep/e.txt"]),
        ("./a.py", ["a.py"]),
        ("src/c.py", ["src/c.py"]),
        ("x[[]1].txt", ["x[1].txt"]),
        (".*", [".env"]),
        ("**/config", []),
        ("A.PY", []),
    ],
)
async def test_patterns(call: Call, tree: Path, pattern: str, expected: list[str]) -> None:
    output = await call("glob_search", pattern=pattern)
    assert output.data == {"paths": expected, "cut": ""}
    assert output.text == ("\n".join(expected) or "no match")


async def test_an_absolute_pattern_below_the_workspace_works(call: Call, tree: Path) -> None:
    assert (await call("glob_search", pattern=f"{tree}/src/*.py")).text == "src/c.py"


@pytest.mark.parametrize("pattern", ["", "../*", "/etc/*", "src/../../*", "."])
async def test_a_pattern_outside_is_refused(call: Call, tree: Path, pattern: str) -> None:
    with pytest.raises(ToolError):
        await call("glob_search", pattern=pattern)


async def test_a_folder_that_is_not_there_is_said(call: Call, tree: Path) -> None:
    with pytest.raises(ToolError, match="missing: does not exist"):
        await call("glob_search", pattern="missing/*.py")


async def test_more_than_is_shown_is_said(call: Call, workspace: Path) -> None:
    for number in range(501):
        (workspace / f"{number:04}").touch()
    output = await call("glob_search", pattern="*")
    assert len(output.data["paths"]) == 500
    assert output.text.endswith("[not all: the first 500]")
    (workspace / "0000").unlink()
    assert not (await call("glob_search", pattern="*")).data["cut"]


async def test_a_name_that_is_not_utf_8_can_be_sent_on(call: Call, workspace: Path) -> None:
    (workspace / "a\udcff").touch()
    assert (await call("glob_search", pattern="a*")).text == "a\ufffd"


async def test_a_pattern_of_many_stars_ends(call: Call, workspace: Path) -> None:
    folder = workspace
    for _ in range(30):
        folder = folder / "aaaaaaaaaaaaaaaa"
        folder.mkdir()
    assert (await call("glob_search", pattern="**/*a" * 15 + "/b")).text == "no match"


async def test_depth_is_bounded(call: Call, workspace: Path) -> None:
    folder = workspace
    for _ in range(60):
        folder = folder / "d"
        folder.mkdir()
    assert len((await call("glob_search", pattern="**")).data["paths"]) == 40
