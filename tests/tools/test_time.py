"""The time comes with its zone, its offset and the uptime."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
import time_machine

from zeroclawd.tool import Assessment, Effect, Output, Risk

Call = Callable[..., Awaitable[Output]]


@pytest.fixture
def tokyo(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


async def test_local_time_zone_and_weekday(call: Call, tokyo: None) -> None:
    with time_machine.travel(1772341567, tick=False):
        output = await call("time")
    assert output.text.startswith("2026-03-01 14:06:07+09:00 Sunday, zone JST, up ")
    assert output.data["time"] == "2026-03-01T14:06:07+09:00"
    assert output.data["unix"] == 1772341567.0


async def test_uptime_is_that_of_the_kernel(call: Call) -> None:
    kernel = float((Path("/proc") / "uptime").read_text().split()[0])
    up = (await call("time")).data["uptime"]
    assert kernel - 1 <= up <= kernel + 60


def test_it_only_reads_and_may_be_repeated(assess: Callable[..., Assessment], catalog: object) -> None:
    assert assess("time") == Assessment(Risk.LOW, Effect.READ)
