"""The list tells a model all it needs to use a device, and touches none."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable

import pytest

from zeroclawd.board.board import DeviceBoard
from zeroclawd.board.sim import SimHardware
from zeroclawd.errors import DeviceError
from zeroclawd.interfaces import DeviceInfo
from zeroclawd.tool import Assessment, Effect, Output, Risk

Call = Callable[..., Awaitable[Output]]


async def test_each_device_has_a_line_in_the_order_of_the_config(call: Call, board: DeviceBoard) -> None:
    lines = (await call("device_list", board=board)).text.splitlines()
    assert [line.split(":")[0] for line in lines] == ["pump", "lamp", "greenhouse", "door"]
    assert lines[0].startswith("pump: relay, water pump; can read, write, pulse; takes true or false")
    assert "10 min" in lines[0]
    assert lines[2] == "greenhouse: bme280; can read; gives temperature °C, pressure hPa, humidity %"


async def test_the_data_is_plain_json(call: Call, board: DeviceBoard) -> None:
    data = (await call("device_list", board=board)).data
    assert json.loads(json.dumps(data)) == data
    assert (data[0]["name"], data[0]["risk"], data[0]["can"]) == ("pump", "high", ["pulse", "read", "write"])


async def test_nothing_is_touched(call: Call, board: DeviceBoard, sim: SimHardware) -> None:
    before = len(sim.log), sim.bus(1).transfers
    await call("device_list", board=board)
    assert (len(sim.log), sim.bus(1).transfers) == before


async def test_a_device_that_failed_says_so(call: Call, board: DeviceBoard, sim: SimHardware) -> None:
    sim.bus(1).chips.clear()
    with pytest.raises(DeviceError):
        await call("device_read", board=board, device="greenhouse")
    text = (await call("device_list", board=board)).text
    assert "FAULT" in text.splitlines()[2]
    assert text.count("FAULT") == 1


class Bare:
    """A board with one device that can do nothing, or with none."""

    def __init__(self, *devices: DeviceInfo) -> None:
        self._devices = devices

    def devices(self) -> tuple[DeviceInfo, ...]:
        return self._devices


async def test_a_board_without_devices_says_so(call: Call) -> None:
    assert (await call("device_list", board=Bare())).text == "no devices are configured"
    idle = DeviceInfo("x", "odd", frozenset(), Risk.LOW)
    assert (await call("device_list", board=Bare(idle))).text == "x: odd; can nothing"


def test_it_only_reads(assess: Callable[..., Assessment]) -> None:
    assert assess("device_list") == Assessment(Risk.LOW, Effect.READ)
