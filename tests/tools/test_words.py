"""Every tool and parameter has its words in every shipped language, and no words are left over."""

from __future__ import annotations

import msgspec
import pytest

from zeroclawd import assets
from zeroclawd.catalog import Catalog
from zeroclawd.locale import Texts

LANGUAGES = sorted(folder.name for folder in assets.folder("locales").iterdir() if folder.is_dir())


def words(language: str) -> dict[str, set[str]]:
    """The attributes of each message about a tool; a message without a value counts as none."""
    from fluent.syntax import FluentParser
    from fluent.syntax.ast import Junk, Message

    text = (assets.folder("locales") / language / "tools.ftl").read_text("utf-8")
    entries = FluentParser().parse(text).body
    assert not [entry for entry in entries if isinstance(entry, Junk)]
    return {
        entry.id.name: {attribute.id.name for attribute in entry.attributes}
        for entry in entries
        if isinstance(entry, Message) and entry.value
    }


def wanted(catalog: Catalog) -> dict[str, set[str]]:
    return {
        f"tool-{name.replace('_', '-')}": {part.replace("_", "-") for part in tool.spec.parameters["properties"]}
        for name, tool in catalog.tools.items()
    }


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_tool_and_parameter_has_words_and_no_words_are_left_over(catalog: Catalog, language: str) -> None:
    given, needed = words(language), wanted(catalog)
    missing = {tool: sorted(parts - given.get(tool, set())) for tool, parts in needed.items()}
    lacking = {tool: parts for tool, parts in missing.items() if parts or tool not in given}
    assert not lacking, f"locales/{language}/tools.ftl lacks words for {lacking}"
    left = {tool: sorted(parts - needed.get(tool, set())) for tool, parts in given.items()}
    surplus = {tool: parts for tool, parts in left.items() if parts or tool not in needed}
    assert not surplus, f"locales/{language}/tools.ftl has words for what does not exist: {surplus}"


# A tool of somebody's own is on their own bill.
SHIPPED = frozenset(
    {"board_info", "content_search", "device_list", "device_pulse", "device_read", "device_write"}
    | {"file_edit", "file_read", "file_write", "glob_search", "shell", "time"}
)


@pytest.mark.parametrize("language", LANGUAGES)
def test_what_a_model_reads_of_all_tools_is_short(language: str) -> None:
    """Twelve tools in the form of a chat completions request; with the prompt the budget is 6 KB, in English."""
    specs = [spec for spec in Catalog.load(Texts(language)).specs() if spec.name in SHIPPED]
    assert len(specs) == len(SHIPPED)
    request = [
        {"type": "function", "function": {"name": s.name, "description": s.description, "parameters": s.parameters}}
        for s in specs
    ]
    size = len(msgspec.json.encode(request))
    assert size <= (4_300 if language == "en" else 5_000), size


def test_the_tools_of_this_board_are_all_there(catalog: Catalog) -> None:
    expected = "board_info content_search device_list device_pulse device_read device_write file_edit file_read "
    assert set((expected + "file_write glob_search shell time").split()) <= set(catalog.tools)
