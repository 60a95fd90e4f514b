"""A reading says what, in which unit, how old, how it was got, and what to doubt."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable

import pytest

from zeroclawd.board.board import DeviceBoard
from zeroclawd.board.sim import SimHardware
from zeroclawd.catalog import Catalog
from zeroclawd.errors import DeviceError, UnknownDevice
from zeroclawd.interfaces import Reading
from zeroclawd.tool import Assessment, Effect, Output, Risk

Call = Callable[..., Awaitable[Output]]


async def test_values_units_age_and_source(call: Call, board: DeviceBoard) -> None:
    output = await call("device_read", board=board, device="greenhouse")
    assert output.text.startswith("greenhouse: temperature=25.08 °C, pressure=1006.53 hPa, humidity=45 % (0.0 s old; ")
    assert output.text.endswith("; simulated)")
    assert "I2C bus 1" in output.text
    data = output.data
    assert json.loads(json.dumps(data)) == data
    assert (data["device"], data["units"]["temperature"], data["simulated"]) == ("greenhouse", "°C", True)
    assert 0 <= data["age"] < 60


async def test_each_reading_is_fresh(call: Call, board: DeviceBoard, sim: SimHardware) -> None:
    for high, closed in ((False, True), (True, False)):
        sim.set_input(22, high)
        assert (await call("device_read", board=board, device="door")).data["values"] == {"closed": closed}


async def test_switches_are_true_or_false(call: Call, board: DeviceBoard) -> None:
    assert (await call("device_read", board=board, device="pump")).text.startswith("pump: on=false (")


class Fixed:
    """A board with one reading."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading

    async def read(self, name: str) -> Reading:
        return self._reading


async def test_what_is_to_be_doubted_is_said(call: Call) -> None:
    reading = Reading("t", {"v": 1 / 3, "n": 7, "s": "a b"}, {"v": "K"}, 0.0, 1e12, "1-wire", ("stale", "at its limit"))
    output = await call("device_read", board=Fixed(reading), device="t")
    assert output.text == "t: v=0.333333 K, n=7, s=a b (0.0 s old; 1-wire)\nwarning: stale\nwarning: at its limit"
    empty = Reading("t", {}, {}, 0.0, 1e12, "")
    assert (await call("device_read", board=Fixed(empty), device="t")).text == "t: no value (0.0 s old)"


async def test_a_failed_bus_is_an_error(call: Call, board: DeviceBoard, sim: SimHardware) -> None:
    sim.bus(1).chips.clear()
    with pytest.raises(DeviceError, match="greenhouse: "):
        await call("device_read", board=board, device="greenhouse")


async def test_an_unknown_device_names_near_ones(call: Call, board: DeviceBoard) -> None:
    with pytest.raises(UnknownDevice, match="pump"):
        await call("device_read", board=board, device="pmp")


def test_it_only_reads_and_may_be_repeated(assess: Callable[..., Assessment], catalog: Catalog) -> None:
    assert assess("device_read", device="x") == Assessment(Risk.LOW, Effect.READ, frozenset({"device:x"}), "x")
    assert catalog.tools["device_read"].repeatable
