"""Any register of any chip: width, sign, byte order, scale, range."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.board.rig import Rig
from zeroclawd.board.kinds.i2c_register import Register, RegisterOptions
from zeroclawd.board.sim import SimHardware
from zeroclawd.errors import DeviceFailed, LimitRefused

HEAD = "[board]\nkind='sim'\n[devices.x]\nkind='i2c_register'\naddress=0x48\n"


@pytest.mark.parametrize(
    ("keys", "data", "value"),
    [
        ("register=5", b"\xff", 255),
        ("register=5\nsigned=true", b"\xff", -1),
        ("register=0\nwidth=16\nsigned=true\nscale=0.00390625\nunit='°C'", b"\x19\x10", 25.0625),
        ("register=0\nwidth=16\nbyte_order='little'", b"\x01\x02", 513),
        ("register=3\nwidth=24\nscale=2.0\noffset=-10.0", b"\x00\x00\x07", 4),
        ("register=3\nwidth=32\nsigned=true", b"\x80\x00\x00\x00", -(2**31)),
    ],
)
async def test_a_register_means_what_the_config_says(keys, data, value):
    rig = Rig(HEAD + keys)
    async with rig:
        chip = rig.sim.chip(1, 0x48)
        chip.write(rig.config.devices["x"].options["register"], data)
        reading = await rig.board.read("x")
        assert reading.values == {"value": value}
        assert reading.warnings == ()
        assert rig.board.device("x").can == {"read"}


async def test_a_value_outside_the_range_is_doubted():
    async with Rig(HEAD + "register=1\nrange=[0, 50]\nunit='%'") as rig:
        rig.sim.chip(1, 0x48).write(1, b"\x33")
        assert (await rig.board.read("x")).warnings == ("implausible: outside 0 to 50 %",)


@given(
    st.sampled_from([8, 16, 24, 32]),
    st.booleans(),
    st.sampled_from(["big", "little"]),
    st.sampled_from([1.0, 0.5, 0.01, -2.0]),
    st.floats(-100, 100, allow_nan=False),
    st.data(),
)
def test_what_is_written_is_what_is_read(width, signed, order, scale, offset, data):
    low, high = (-(2 ** (width - 1)), 2 ** (width - 1) - 1) if signed else (0, 2**width - 1)
    ends = sorted((low * scale + offset, high * scale + offset))
    options = RegisterOptions(
        address=0x48, register=2, width=width, signed=signed, byte_order=order, scale=scale, offset=offset,
        range=ends, writable=True,
    )  # fmt: skip
    driver, sim = Register(options, None), SimHardware()
    driver.simulate(sim)
    driver.open(sim)
    value = driver.accept(data.draw(st.floats(*ends)))
    driver.write(value)
    assert driver.agrees(value, driver.read())


async def test_limits_hold_for_a_register_with_a_safe_state():
    text = "register=1\nwritable=true\nrange=[0, 100]\nsafe_state=20\nmax_on='10s'\nmin_interval='2s'"
    async with Rig(HEAD + text) as rig:
        chip = rig.sim.chip(1, 0x48)
        assert chip.read(1, 1) == b"\x14"
        await rig.pass_time(5)
        await rig.board.write("x", 70)
        with pytest.raises(LimitRefused, match="at most every 2 s"):
            await rig.board.write("x", 71)
        await rig.pass_time(10)
        await rig.until(lambda: rig.memory.rows)
        assert chip.read(1, 1) == b"\x14"
        assert rig.memory.rows[0][2].startswith("taken to 20 by max_on")


async def test_a_register_without_a_safe_state_is_left_alone_at_start_and_end():
    rig = Rig(HEAD + "register=1\nwritable=true\nrange=[0, 100]")
    rig.sim.chip(1, 0x48).write(1, b"\x07")
    async with rig:
        assert (await rig.board.read("x")).values == {"value": 7}
        await rig.board.write("x", 9)
        await rig.board.engage("operator", "smoke")
    assert rig.sim.chip(1, 0x48).read(1, 1) == b"\x09"


async def test_a_failed_read_of_an_output_does_not_change_it():
    async with Rig(HEAD + "register=1\nwritable=true\nrange=[0, 100]\nsafe_state=0") as rig:
        await rig.board.write("x", 60)
        chip = rig.sim.bus(1).chips.pop(0x48)
        with pytest.raises(DeviceFailed):
            await rig.board.read("x")
        rig.sim.bus(1).chips[0x48] = chip
        await rig.pass_time(1)
        await rig.until(lambda: rig.board.device("x").fault == "")
        assert chip.read(1, 1) == b"\x3c"
