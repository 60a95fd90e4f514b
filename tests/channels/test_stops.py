"""Anybody stops; only an entitled operator's fresh, own signature lets go on, and only once."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.broker import Mosquitto
from tests.channels.node import (
    ALICE,
    MALLORY,
    OPERATORS,
    MovableClock,
    Node,
    Person,
    command,
    mqtt,
    node,
    person,
    release,
)
from zeroclawd.channels.mqtt.envelope import rfc3339

pytestmark = pytest.mark.broker


@pytest.fixture
async def running(tmp_path: Path, broker: Mosquitto) -> AsyncIterator[Node]:
    async with node(tmp_path / "state", mqtt(broker.port), operators=OPERATORS) as started:
        yield started


@pytest.fixture
async def caller(broker: Mosquitto) -> AsyncIterator[Person]:
    async with person(broker.port) as somebody:
        yield somebody


def now(shift: float = 0.0) -> str:
    return rfc3339(time.time() + shift)


async def engaged(running: Node, caller: Person, count: int = 1) -> None:
    await caller.say("estop", "engage")
    await running.host.until(lambda: len(running.host.stops) == count)
    assert running.host.engaged


async def test_anybody_engages_and_an_operator_releases(running: Node, caller: Person) -> None:
    await caller.say("estop", {"v": 1, "action": "engage", "reason": "smoke\x07", "id": "e-1"})
    await caller.reply("e-1")
    assert running.host.stops == [("mqtt:home:unverified", "smoke?")]
    await caller.say("estop", release(ALICE, "alice", now(), id="e-2"))
    await caller.reply("e-2")
    assert running.host.stops[-1] == ("operator:alice", "released")
    assert not running.host.engaged


REFUSED: dict[str, Callable[[], Any]] = {
    "unknown_operator": lambda: release(ALICE, "eve", now()),
    "bad_signature": lambda: release(MALLORY, "alice", now()),
    "not_entitled": lambda: release(MALLORY, "junior", now()),
    "wrong_boot": lambda: release(ALICE, "alice", now(), boot_id="boot-0"),
    "stale": lambda: release(ALICE, "alice", now(-301)),
    "malformed": lambda: {"v": 1, "action": "release", "operator": "alice"},
    "not_json": lambda: b"release",
    "oversize": lambda: b"x" * 70_000,
}


@pytest.mark.parametrize("reason", REFUSED)
async def test_a_refused_release_leaves_it_engaged(running: Node, caller: Person, reason: str) -> None:
    await engaged(running, caller)
    await caller.say("estop", REFUSED[reason]())
    await caller.refusal(reason)
    assert running.host.engaged
    assert running.counts[reason] == 1
    assert running.ledger("estop")[-1].decision == "refused"
    await caller.say("estop", release(ALICE, "alice", now()))
    await running.host.until(lambda: not running.host.engaged)


async def test_a_changed_release_is_not_signed(running: Node, caller: Person) -> None:
    await engaged(running, caller)
    await caller.say("estop", release(ALICE, "alice", now(-10)) | {"ts": now()})
    await caller.refusal("bad_signature")
    assert running.host.engaged


async def test_a_release_counts_once(running: Node, caller: Person) -> None:
    await engaged(running, caller)
    once = release(ALICE, "alice", now())
    await caller.say("estop", once)
    await running.host.until(lambda: not running.host.engaged)
    await engaged(running, caller, 3)
    await caller.say("estop", once)
    await caller.refusal("replayed")
    assert running.host.engaged


async def test_without_a_set_clock_a_release_still_counts_once(
    tmp_path: Path, broker: Mosquitto, caller: Person
) -> None:
    clock = MovableClock()
    clock.is_synced = False
    clock.wall_shift = -1e9
    async with node(tmp_path, mqtt(broker.port), operators=OPERATORS, clock=clock) as started:
        await engaged(started, caller)
        once = release(ALICE, "alice", now())
        await caller.say("estop", once)
        await started.host.until(lambda: not started.host.engaged)
        await engaged(started, caller, 3)
        await caller.say("estop", once)
        await caller.refusal("replayed")


async def test_a_retained_stop_and_a_retained_release_are_neither(running: Node, caller: Person) -> None:
    await caller.say("estop", "engage", retain=True)
    await caller.say("estop", release(ALICE, "alice", now()), retain=True)
    await caller.say("cancel", {"id": "c-1"}, retain=True)
    await running.host.until(lambda: running.counts.get("retained") == 3)
    assert running.host.stops == []


async def test_the_stop_does_not_wait_behind_commands(
    running: Node, caller: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    import asyncio

    from zeroclawd.store.inbox import DurableInbox

    stuck = asyncio.Event()

    async def hang(*_: Any, **__: Any) -> None:
        await stuck.wait()

    monkeypatch.setattr(DurableInbox, "claim", hang)
    for number in range(30):
        await caller.say("command", command(f"c-{number}"))
    await engaged(running, caller)
    assert not stuck.is_set()
