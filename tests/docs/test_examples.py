"""Every config that a page shows would run: whole ones to the end of `zeroclawd check`, snippets as far as they go."""

from __future__ import annotations

import pytest

from tests.docs.pages import Block, blocks, names
from zeroclawd.board.plan import plan_devices
from zeroclawd.config import parse
from zeroclawd.daemon.build import plan

EXAMPLES = [block for name in names() for block in blocks(name, "toml")]


def with_mark(mark: str) -> list[Block]:
    return [block for block in EXAMPLES if block.mark == mark]


def test_every_example_says_what_it_is():
    """`config` is a whole config, `device` some devices, and a block without a mark a part that needs more around it."""
    assert {block.mark for block in EXAMPLES} <= {"config", "device", ""}
    assert with_mark("config")
    assert with_mark("device")


@pytest.mark.parametrize("block", with_mark("config"), ids=str)
def test_a_whole_config_passes_the_check(block: Block):
    planned = plan(parse(block.text, str(block)))
    assert not planned.catalog.broken


@pytest.mark.parametrize("block", with_mark("device"), ids=str)
def test_devices_can_be_planned(block: Block):
    config = parse(f'[board]\nkind = "sim"\n{block.text}', str(block)).config
    assert [device.name for device in plan_devices(config)] == list(config.devices) != []


def test_a_part_of_a_config_has_only_keys_that_there_are():
    for block in with_mark(""):
        plan_devices(parse(block.text, str(block)).config)
