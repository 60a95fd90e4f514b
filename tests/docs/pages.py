"""The pages for people, cut into blocks and tables."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block: `language` and `mark` are the two words behind the fence."""

    page: str
    line: int
    language: str
    mark: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def page(name: str) -> str:
    return (ROOT / name).read_text("utf-8")


def names() -> list[str]:
    return ["README.md", *(f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md")))]


def blocks(name: str, language: str, mark: str | None = None) -> list[Block]:
    """The fenced blocks of a page in this language, with this mark or with any."""
    text = page(name)
    found = [
        Block(name, text[: match.start()].count("\n") + 1, match[1], match[2] or "", match[3])
        for match in re.finditer(r"^```(\w+)(?: (\w+))?\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    ]
    return [one for one in found if one.language == language and mark in (None, one.mark)]


def section(name: str, title: str) -> str:
    """What stands below a heading, up to the next one of the same or a higher level."""
    text = page(name)
    start = re.search(rf"^(#+) {re.escape(title)}$", text, re.MULTILINE)
    assert start, f"{name} has no heading {title!r}"
    rest = text[start.end() :]
    end = re.search(rf"^#{{1,{len(start[1])}}} ", rest, re.MULTILINE)
    return rest[: end.start()] if end else rest


def table(text: str) -> list[list[str]]:
    """The rows of the first table in a text, without its heading."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def prose(text: str) -> str:
    """A text without its fenced blocks, on one line, so that it does not matter where its lines are broken."""
    return " ".join(re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE).split())


def paragraph(name: str, start: str) -> str:
    """The paragraph or list item of a page that begins so."""
    found = re.search(rf"^{re.escape(start)}.*?(?=\n\n|\n- |\Z)", page(name), re.DOTALL | re.MULTILINE)
    assert found, f"{name} has nothing that begins with {start!r}"
    return found[0]


def words(text: str) -> list[str]:
    """What stands in backquotes, outside of fenced blocks."""
    return re.findall(r"`([^`]+)`", prose(text))
