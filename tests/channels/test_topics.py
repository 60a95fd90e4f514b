"""Topics are values that were checked once."""

from __future__ import annotations

import pytest

from zeroclawd.channels.mqtt.topics import Heard, Topics, node_of
from zeroclawd.errors import ConfigError

TOPICS = Topics("site/pi", "n1", ("hall", "east/upper"), fleet=True)


@pytest.mark.parametrize("base", ["", "/site", "site/", "site//pi", "site/+/pi", "site/#", "a\x00b", "$SYS"])
def test_a_base_that_cannot_work_is_refused_by_its_key(base: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Topics(base, "n1")
    assert caught.value.key == "base_topic"


@pytest.mark.parametrize("name", ["", "a/b", "+", "#", "all", "group", "-x", "a" * 65, "a b"])
def test_a_node_is_one_level_and_no_fleet_topic(name: str) -> None:
    with pytest.raises(ConfigError):
        Topics("zeroclaw", name)


def test_what_is_heard() -> None:
    assert TOPICS.heard("site/pi/n1/command") == Heard("command", "n1")
    assert TOPICS.heard("site/pi/all/command") == Heard("command", "all")
    assert TOPICS.heard("site/pi/group/east/upper/command") == Heard("command", "group/east/upper")
    assert TOPICS.heard("site/pi/n1/device/pump/set") == Heard("set", "n1", "pump")
    assert TOPICS.heard("site/pi/n1/approval/decision") == Heard("approval/decision", "n1")


@pytest.mark.parametrize(
    "topic",
    [
        "site/pi/n2/command",
        "site/pi/n1/command/x",
        "site/pi/n1/device//set",
        "site/pi/n1/device/a/b/set",
        "site/pi/group/west/command",
        "site/pi/n1/status",
        "other/n1/command",
        "site/pi/all/cancel",
    ],
)
def test_what_is_not_for_this_node(topic: str) -> None:
    assert TOPICS.heard(topic) is None


def test_a_node_outside_the_fleet_does_not_hear_it() -> None:
    alone = Topics("zeroclaw", "n1")
    assert alone.heard("zeroclaw/all/command") is None
    assert "zeroclaw/all/command" not in alone.subscriptions


@pytest.mark.parametrize("topic", ["apps/replies/7", "apps/replies", "site/pi/n1/reply", "site/pi/apps/replies/1"])
def test_replies_go_below_a_configured_prefix(topic: str) -> None:
    assert TOPICS.reply_allowed(topic, ("apps/replies", "site/pi/apps/"))


@pytest.mark.parametrize(
    "topic",
    [
        "",
        "apps/repliesX",
        "other",
        "apps/replies/+",
        "apps/replies/\x00",
        "$SYS/x",
        "site/pi/n1/command",
        "site/pi/n2/command",
        "site/pi/n2/approval/decision",
        "site/pi/n1/device/pump/set",
        "site/pi/all/command",
    ],
)
def test_replies_never_go_elsewhere_nor_become_commands(topic: str) -> None:
    assert not TOPICS.reply_allowed(topic, ("apps/replies", "site/pi", "site"))


def test_a_topic_of_any_node() -> None:
    assert node_of("zeroclaw", "zeroclaw/n7/approval/request/r1") == ("n7", "approval/request/r1")
    assert node_of("zeroclaw", "other/n7/x") == ("", "")
