"""The house: imports go down only, have no effect, and every room says in one sentence what it is for."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
MODULES = sorted((ROOT / "zeroclawd").rglob("*.py"))
TOOLS = sorted((ROOT / "tools").glob("*.py"))
WORDS = ("tool", "messages", "events", "interfaces", "errors", "assets", "frozen")
RULES = ("config", "catalog", "policy", "schema", "signing", "receipts", "redact", "locale")
HEAVY = (
    "gpiozero",
    "smbus2",
    "serial",
    "lgpio",
    "httpx2",
    "hassil",
    "yaml",
    "nacl",
    "rich",
    "fluent",
    "uvloop",
    "iotcore",
)


def short(path: Path) -> str:
    return str(path.relative_to(ROOT))


def dotted(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(path: Path) -> set[str]:
    """Every module that a file imports, wherever in the file."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found |= {node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def fresh(code: str, cwd: Path, *arguments: str) -> str:
    """What a new interpreter prints that writes no bytecode."""
    done = subprocess.run(
        [sys.executable, "-B", "-c", code, *arguments],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


# Floors


def test_imports_go_down_and_no_room_imports_another_room() -> None:
    fresh("from importlinter.cli import lint_imports; raise SystemExit(lint_imports(no_cache=True))", ROOT)


def test_every_module_stands_on_a_floor() -> None:
    text = (ROOT / "pyproject.toml").read_text("utf-8")
    floors = text.partition("layers = [")[2].partition("]")[0]
    named = set(re.findall(r"\w+", floors))
    there = {
        path.stem for path in (ROOT / "zeroclawd").iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file()
    }
    assert there - {"__init__"} <= named
    assert {*WORDS, *RULES} <= named


@pytest.mark.parametrize("word", WORDS)
def test_words_need_the_standard_library_only(word: str) -> None:
    for name in imports(ROOT / "zeroclawd" / f"{word}.py"):
        top, _, rest = name.partition(".")
        assert top in sys.stdlib_module_names or (top == "zeroclawd" and rest.partition(".")[0] in ("", *WORDS)), name


def test_words_load_nothing_but_the_standard_library(tmp_path: Path) -> None:
    code = (
        "import sys; before = set(sys.modules)\n"
        "for name in sys.argv[1:]: __import__(f'zeroclawd.{name}')\n"
        "print(*sorted({name.partition('.')[0] for name in set(sys.modules) - before} - sys.stdlib_module_names))"
    )
    assert fresh(code, tmp_path, *WORDS).split() == ["zeroclawd"]


def test_rules_do_not_load_what_only_a_room_or_a_moment_needs(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "for name in sys.argv[1:]: __import__(f'zeroclawd.{name}')\n"
        "print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    )
    assert not set(fresh(code, tmp_path, *RULES).split()) & {*HEAVY, "paho", "click", "sqlite3", "babel"}


@pytest.mark.parametrize("path", TOOLS, ids=lambda path: path.stem)
def test_a_tool_imports_the_words_its_helpers_and_its_own_library(path: Path) -> None:
    for name in imports(path):
        top, _, rest = name.partition(".")
        if top == "zeroclawd":
            assert rest.partition(".")[0] in ("", *WORDS), name
        if top == "zeroclawd_tools":
            assert not rest or rest.startswith("_"), f"{path.stem} imports the tool {rest}"


@pytest.mark.parametrize("path", MODULES, ids=short)
def test_nothing_imports_a_tool(path: Path) -> None:
    assert not {name for name in imports(path) if name.partition(".")[0] in ("tools", "zeroclawd_tools")}


# Imports have no effect

WATCH = """
import importlib, json, logging, os, signal, sys, threading, warnings
effects, importing = [], []
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
QUIET = ("socket.", "subprocess.", "shutil.", "tempfile.", "os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.chmod",
         "os.fork", "os.system", "os.putenv", "os.unsetenv", "signal.", "sqlite3.connect", "os.chdir")
def watch(event, arguments):
    if event == "open" and isinstance(arguments[2], int) and arguments[2] & WRITING:
        effects.append(f"{importing[-1:]}: writes {arguments[0]}")
    elif event.startswith(QUIET) and event != "socket.__new__":
        effects.append(f"{importing[-1:]}: {event} {arguments}")
def state():
    return {
        "threads": [thread.name for thread in threading.enumerate()],
        "environment": dict(os.environ),
        "folder": os.getcwd(),
        "handlers": [repr(handler) for handler in logging.getLogger().handlers],
        "signals": [repr(signal.getsignal(number)) for number in sorted(signal.valid_signals())],
        "filters": len(warnings.filters),
    }
import msgspec, click, paho.mqtt.client
before = state()
sys.addaudithook(watch)
for name in sys.argv[1:]:
    importing.append(name)
    importlib.import_module(name)
after = state()
print("\\n" + json.dumps({"effects": effects, "changed": [key for key in before if before[key] != after[key]]}))
"""


def test_importing_every_module_has_no_effect(tmp_path: Path) -> None:
    names = [dotted(path) for path in MODULES]
    printed, _, told = fresh(WATCH, tmp_path, *names).rpartition("\n{")
    assert json.loads("{" + told) == {"effects": [], "changed": []}
    assert printed.strip() == ""
    assert list(tmp_path.iterdir()) == []


# What everything says of itself


@pytest.mark.parametrize("path", [*MODULES, *TOOLS], ids=short)
def test_every_module_says_in_one_sentence_what_it_is_for(path: Path) -> None:
    words = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
    first = words.split("\n\n")[0]
    assert first, "no docstring"
    assert first.endswith("."), first
    assert not re.search(r"[.!?] [A-Z]", first), first
    assert "\n" not in first, "the sentence fits on one line"


# The tree


def test_nothing_gets_a_folder_at_the_top_without_a_reason() -> None:
    allowed = {"zeroclawd", "tools", "locales", "systemd", "tests", "docs", "benchmarks"}
    made = {"dist", "build", "__pycache__"}
    there = {path.name for path in ROOT.iterdir() if path.is_dir() and not path.name.startswith(".")}
    assert {name for name in there - made if not name.endswith(".egg-info")} <= allowed


def test_tools_is_a_folder_and_never_an_importable_name() -> None:
    assert not (ROOT / "tools" / "__init__.py").exists()
    assert 'packages = ["zeroclawd"]' in (ROOT / "pyproject.toml").read_text("utf-8")
