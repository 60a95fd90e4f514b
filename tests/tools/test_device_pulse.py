"""A pulse is one call: on, held, off."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import pytest

from zeroclawd.board.board import DeviceBoard
from zeroclawd.board.sim import SimHardware
from zeroclawd.errors import DeviceError
from zeroclawd.tool import Assessment, Effect, Output, Risk

Call = Callable[..., Awaitable[Output]]


def switched_on(sim: SimHardware) -> bool:
    deadline = time.monotonic() + 30
    while sim.level(17) and time.monotonic() < deadline:
        time.sleep(0.005)
    return not sim.level(17)


async def test_the_output_goes_on_and_off_again(call: Call, board: DeviceBoard, sim: SimHardware) -> None:
    before = len(sim.driven(17))
    output = await call("device_pulse", board=board, device="pump", seconds=0.05)
    assert sim.driven(17)[before:] == [0.0, 1.0]
    assert output.data["values"] == {"on": False}


async def test_a_cancelled_pulse_switches_off(call: Call, board: DeviceBoard, sim: SimHardware) -> None:
    task = asyncio.create_task(call("device_pulse", board=board, device="pump", seconds=300))
    assert await asyncio.to_thread(switched_on, sim)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert sim.level(17) is True


@pytest.mark.parametrize("seconds", [0, -1, 601])
async def test_a_time_that_is_not_allowed_is_refused(
    call: Call, board: DeviceBoard, sim: SimHardware, seconds: float
) -> None:
    before = len(sim.log)
    with pytest.raises(DeviceError):
        await call("device_pulse", board=board, device="pump", seconds=seconds)
    assert len(sim.log) == before


async def test_a_device_without_output_is_refused(call: Call, board: DeviceBoard) -> None:
    with pytest.raises(DeviceError):
        await call("device_pulse", board=board, device="door", seconds=1)


def test_it_changes_its_device(assess: Callable[..., Assessment]) -> None:
    expected = Assessment(Risk.MEDIUM, Effect.MUTATE, frozenset({"device:pump"}), "pump")
    assert assess("device_pulse", device="pump", seconds=1) == expected
