"""A write reports what is there afterwards; what the board refuses is an error."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from zeroclawd.board.board import DeviceBoard
from zeroclawd.board.sim import SimHardware
from zeroclawd.catalog import Catalog
from zeroclawd.errors import EmergencyStopped, ReadbackFailed, UnknownDevice, ValueRefused
from zeroclawd.schema import BadArguments
from zeroclawd.tool import Assessment, Effect, Output, Risk, Value

Call = Callable[..., Awaitable[Output]]


@pytest.mark.parametrize("value", [True, 1, 1.0, "on", "true"])
async def test_a_switch_is_set_and_read_back(call: Call, board: DeviceBoard, sim: SimHardware, value: Value) -> None:
    output = await call("device_write", board=board, device="pump", value=value)
    assert output.text.startswith("pump: on=true (")
    assert output.data["values"] == {"on": True}
    assert sim.level(17) is False  # active low
    await call("device_write", board=board, device="pump", value=False)
    assert sim.level(17) is True


async def test_a_number_is_set(call: Call, board: DeviceBoard, sim: SimHardware) -> None:
    output = await call("device_write", board=board, device="lamp", value=0.25)
    assert output.data["values"]["brightness"] == 0.25
    assert sim.duty(18) == 0.25


@pytest.mark.parametrize(("device", "value"), [("pump", "perhaps"), ("pump", 2), ("lamp", 1.5), ("door", True)])
async def test_a_value_that_does_not_fit_changes_nothing(
    call: Call, board: DeviceBoard, sim: SimHardware, device: str, value: Value
) -> None:
    before = len(sim.log)
    with pytest.raises(ValueRefused):
        await call("device_write", board=board, device=device, value=value)
    assert len(sim.log) == before


async def test_a_stuck_line_is_an_error_and_no_success(call: Call, board: DeviceBoard, sim: SimHardware) -> None:
    sim.stick(17, True)
    with pytest.raises(ReadbackFailed):
        await call("device_write", board=board, device="pump", value=True)


async def test_the_emergency_stop_holds(call: Call, board: DeviceBoard, sim: SimHardware) -> None:
    await board.engage("test", "drill")
    with pytest.raises(EmergencyStopped):
        await call("device_write", board=board, device="pump", value=True)
    assert sim.level(17) is True


async def test_an_unknown_device_is_an_error(call: Call, board: DeviceBoard) -> None:
    with pytest.raises(UnknownDevice):
        await call("device_write", board=board, device="valve", value=True)


@pytest.mark.parametrize("arguments", [{}, {"value": None}, {"value": [1]}, {"value": True, "force": True}])
async def test_arguments_that_do_not_fit_are_refused(
    call: Call, board: DeviceBoard, arguments: dict[str, object]
) -> None:
    with pytest.raises(BadArguments):
        await call("device_write", board=board, device="pump", **arguments)


def test_it_changes_its_device(assess: Callable[..., Assessment], catalog: Catalog) -> None:
    expected = Assessment(Risk.MEDIUM, Effect.MUTATE, frozenset({"device:pump"}), "pump")
    assert assess("device_write", device="pump", value=True) == expected
    assert not catalog.tools["device_write"].repeatable
