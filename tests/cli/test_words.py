"""What the command line says is there in every language, with the same variables, and nothing is left over."""

from __future__ import annotations

import re

import pytest

from zeroclawd import assets

FOLDER = assets.folder("locales").parent / "zeroclawd/cli"
CODE = "\n".join(path.read_text("utf-8") for path in sorted(FOLDER.rglob("*.py")))


def messages(language: str) -> dict[str, set[str]]:
    """The variables of each message."""
    from fluent.syntax import FluentParser
    from fluent.syntax.ast import Junk, Message

    entries = FluentParser().parse((assets.folder("locales") / language / "cli.ftl").read_text("utf-8")).body
    assert not [entry for entry in entries if isinstance(entry, Junk)]
    found = [entry for entry in entries if isinstance(entry, Message)]
    assert len(found) == len({entry.id.name for entry in found}), "a message stands there twice"
    return {entry.id.name: set(re.findall(r"\{ \$(\w+) \}", _text(entry))) for entry in found}


def _text(entry: object) -> str:
    from fluent.syntax import FluentSerializer

    return str(FluentSerializer().serialize_entry(entry))


def test_all_languages_say_the_same() -> None:
    languages = [folder.name for folder in assets.folder("locales").iterdir() if (folder / "cli.ftl").is_file()]
    assert {"en", "ja"} <= set(languages)
    assert all(messages(language) == messages("en") for language in languages)


def test_every_text_that_is_asked_for_is_there_and_every_text_is_asked_for() -> None:
    asked = set(re.findall(r"""["']([a-z]+(?:-[a-z]+)+)["']""", CODE))
    known = set(messages("en"))
    prefixes = {name.split("-")[0] for name in known}
    reasons = {name for name in known if name.startswith("approvals-try-")}
    assert known - asked == reasons
    assert {name for name in asked if name.split("-")[0] in prefixes} - known <= {"safe-state"}


@pytest.mark.parametrize("reason", ["bad_signature", "not_entitled", "own_command", "expired", "decided"])
def test_a_refusal_that_a_node_gives_comes_with_something_to_try(reason: str) -> None:
    source = (assets.folder("locales").parent / "zeroclawd/channels/mqtt/approval.py").read_text("utf-8")
    assert f'"{reason}"' in source
    assert f"approvals-try-{reason.replace('_', '-')}" in messages("en")
