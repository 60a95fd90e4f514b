"""docs/tools.md: the table is what the catalog says, and whoever copies the example has a tool that works."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, blocks, page, section, table, words
from zeroclawd.catalog import Catalog
from zeroclawd.locale import Texts
from zeroclawd.tool import Tool

PAGE = "docs/tools.md"


def test_the_table_is_what_the_catalog_says():
    tools = Catalog.load(Texts("en")).tools
    rows = {words(row[0])[0]: row for row in table(section(PAGE, "The shipped ones"))}
    assert set(rows) == set(tools)
    for name, (_, risk, effect, about) in rows.items():
        assert ("may be repeated" in about) == tools[name].repeatable
        if name != "shell":
            assert (risk, effect) == _judged(tools[name])


def _judged(tool: Tool) -> tuple[str, str]:
    judged = tool.assess({})
    return judged.risk.word, judged.effect.value


def test_every_key_of_the_decorator_is_explained():
    import inspect

    from zeroclawd.tool import tool

    explained = {words(row[0])[0] for row in table(section(PAGE, "What the decorator says"))}
    assert explained == set(inspect.signature(tool).parameters) - {"kind"}


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout of the parts that tools need, with nothing of the page in it yet."""
    for name in ("zeroclawd", "tools", "locales"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "tests/conftest.py", "tests/broker.py", "tests/process.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "tests/tools").mkdir()
    for name in ("conftest.py", "test_words.py"):
        shutil.copy(ROOT / "tests/tools" / name, tmp_path / "tests/tools" / name)
    return tmp_path


def in_checkout(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    return subprocess.run(
        [sys.executable, "-m", *arguments], cwd=folder, env=environ, capture_output=True, text=True, timeout=100
    )


def copy_the_page(folder: Path) -> None:
    (tool,), (test,) = blocks(PAGE, "python", "tool"), blocks(PAGE, "python", "test")
    (folder / "tools/device_mean.py").write_text(tool.text, "utf-8")
    (folder / "tests/tools/test_device_mean.py").write_text(test.text, "utf-8")


def test_the_example_works_for_whoever_copies_it(checkout: Path):
    copy_the_page(checkout)
    pytest_line = shlex.split(re.findall(r"^    \.venv/bin/python -m (.*?) +#", page(PAGE), re.MULTILINE)[0])
    lacking = in_checkout(checkout, *pytest_line)
    assert "lacks words for {'tool-device-mean'" in lacking.stdout
    for words_block in blocks(PAGE, "ftl"):
        with (checkout / "locales" / words_block.mark / "tools.ftl").open("a", encoding="utf-8") as file:
            file.write(f"\n{words_block.text}")
    done = in_checkout(checkout, *pytest_line)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 passed" in done.stdout  # two of the page, and the words in two languages
    listed = in_checkout(checkout, "zeroclawd", "tools")
    assert listed.returncode == 0, listed.stdout + listed.stderr
    assert "Mean of several fresh readings." in listed.stdout


def test_the_example_is_in_the_houses_style(tmp_path: Path):
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for name, mark in (("tools/device_mean.py", "tool"), ("tests/tools/test_device_mean.py", "test")):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(blocks(PAGE, "python", mark)[0].text, "utf-8")
    for command in (("check", "--no-cache"), ("format", "--check", "--no-cache")):
        done = in_checkout(tmp_path, "ruff", *command, ".")
        assert done.returncode == 0, done.stdout + done.stderr
