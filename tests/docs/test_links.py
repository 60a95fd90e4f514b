"""Every link between the pages leads somewhere, and every command that they name exists."""

from __future__ import annotations

import re

import pytest

from tests.docs.pages import ROOT, names, page
from zeroclawd.cli.main import COMMANDS


def anchors(name: str) -> set[str]:
    """The anchors that GitHub makes of headings: lower case, without punctuation, spaces as dashes."""
    headings = re.findall(r"^#+ (.*)$", page(name), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("name", names())
def test_links_lead_somewhere(name: str):
    for target in re.findall(r"\]\((?!https?:)([^)]+)\)", page(name)):
        file, _, anchor = target.partition("#")
        path = ((ROOT / name).parent / file).resolve() if file else ROOT / name
        assert path.is_file(), target
        assert not anchor or anchor in anchors(str(path.relative_to(ROOT))), target


@pytest.mark.parametrize("name", names())
def test_commands_exist(name: str):
    named = set(re.findall(r"(?:`|^ +|/)zeroclawd ([a-z][a-z-]+)", page(name), re.MULTILINE))
    assert named <= set(COMMANDS)
