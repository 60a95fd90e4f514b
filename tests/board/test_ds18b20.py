"""The kernel's 1-wire text: what is a measurement, what is none, and what is to be doubted."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.board.rig import Rig
from zeroclawd.board.hardware import HardwareError
from zeroclawd.board.kinds.ds18b20 import parse, text_of
from zeroclawd.errors import DeviceFailed

SENSOR = "28-0316a2795bff"
CONFIG = f"[board]\nkind='sim'\n[devices.probe]\nkind='ds18b20'\nsensor='{SENSOR}'"

GOOD = "57 01 4b 46 7f ff 0c 10 1c : crc=1c YES\n57 01 4b 46 7f ff 0c 10 1c t=21437\n"
BAD_SUM = "57 01 4b 46 7f ff 0c 10 1c : crc=1c NO\n57 01 4b 46 7f ff 0c 10 1c t=21437\n"
POWER_ON = "50 05 4b 46 7f ff 0c 10 1c : crc=1c YES\n50 05 4b 46 7f ff 0c 10 1c t=85000\n"


@pytest.fixture
async def rig():
    async with Rig(CONFIG) as rig:
        yield rig


@pytest.mark.parametrize(
    ("text", "celsius"), [(GOOD, 21.437), (GOOD.replace("21437", "-5062"), -5.062), (GOOD.replace("21437", "0"), 0.0)]
)
def test_a_good_text_is_a_temperature(text, celsius):
    assert parse(text, SENSOR) == celsius


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "gave nothing"),
        (BAD_SUM, "the checksum is bad"),
        (GOOD.splitlines()[0] + "\n", "only part of a measurement"),
        (GOOD.replace("t=21437", ""), "only part of a measurement"),
        (GOOD.replace("t=21437", "t=2x"), "only part of a measurement"),
        ("\0\n", "the checksum is bad"),
        ("\n\n", "the checksum is bad"),
    ],
)
async def test_a_damaged_text_is_read_again_and_then_an_error(rig, text, why):
    rig.sim.onewire.set(SENSOR, text, GOOD)
    assert (await rig.board.read("probe")).values == {"temperature": 21.437}
    rig.sim.onewire.set(SENSOR, text)
    with pytest.raises(DeviceFailed, match=why):
        await rig.board.read("probe")


async def test_a_missing_sensor_is_an_error_and_works_when_it_is_back(rig):
    rig.sim.onewire.texts.clear()
    with pytest.raises(DeviceFailed, match=f"no 1-wire sensor {SENSOR}"):
        await rig.board.read("probe")
    rig.sim.onewire.set(SENSOR, GOOD)
    assert (await rig.board.read("probe")).values == {"temperature": 21.437}


async def test_the_power_on_value_is_measured_again(rig):
    rig.sim.onewire.set(SENSOR, POWER_ON, GOOD)
    reading = await rig.board.read("probe")
    assert (reading.values, reading.warnings) == ({"temperature": 21.437}, ())


async def test_the_power_on_value_that_stays_is_doubted(rig):
    rig.sim.onewire.set(SENSOR, POWER_ON)
    reading = await rig.board.read("probe")
    assert reading.values == {"temperature": 85.0}
    assert "before its first measurement" in reading.warnings[0]


async def test_a_temperature_that_the_sensor_cannot_measure_is_doubted(rig):
    rig.sim.onewire.set(SENSOR, GOOD.replace("21437", "-127000"))
    assert "implausible" in (await rig.board.read("probe")).warnings[0]


@given(st.text(max_size=80))
def test_any_text_is_a_temperature_or_an_error(text):
    try:
        said: float | str = parse(text, SENSOR)
    except HardwareError as error:
        said = error.text
    assert isinstance(said, float) or SENSOR in said


@given(st.integers(-55_000, 125_000))
def test_simulated_texts_say_what_they_were_told(thousandths):
    assert parse(text_of(thousandths), SENSOR) == thousandths / 1000
