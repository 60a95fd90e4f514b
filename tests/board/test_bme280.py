"""The BME280's arithmetic and conversation, against Bosch's worked example and the double precision formulas."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.board.rig import Rig, simulated
from zeroclawd.board.kinds.bme280 import EXAMPLE, EXAMPLE_RAW, Calibration, Raw
from zeroclawd.errors import DeviceFailed

CONFIG = "[board]\nkind='sim'\n[devices.air]\nkind='bme280'\naddress=0x77"


def temperature_double(calibration, raw):
    """Data sheet BST-BME280-DS002, section 8.1 (p. 49): the same formulas in floating point, as an oracle."""
    t1, t2, t3 = calibration.t
    first = (raw / 16384.0 - t1 / 1024.0) * t2
    second = (raw / 131072.0 - t1 / 8192.0) ** 2 * t3
    return (first + second) / 5120.0, first + second


def pressure_double(calibration, raw, t_fine):
    p1, p2, p3, p4, p5, p6, p7, p8, p9 = calibration.p
    first = t_fine / 2.0 - 64000.0
    second = first * first * p6 / 32768.0 + first * p5 * 2.0
    second = second / 4.0 + p4 * 65536.0
    first = (1.0 + (p3 * first * first / 524288.0 + p2 * first) / 524288.0 / 32768.0) * p1
    pressure = (1048576.0 - raw - second / 4096.0) * 6250.0 / first
    return pressure + (p9 * pressure * pressure / 2147483648.0 + pressure * p8 / 32768.0 + p7) / 16.0


def humidity_double(calibration, raw, t_fine):
    h1, h2, h3, h4, h5, h6 = calibration.h
    fine = t_fine - 76800.0
    humidity = raw - (h4 * 64.0 + h5 / 16384.0 * fine)
    humidity *= h2 / 65536.0 * (1.0 + h6 / 67108864.0 * fine * (1.0 + h3 / 67108864.0 * fine))
    humidity *= 1.0 - h1 * humidity / 524288.0
    return min(max(humidity, 0.0), 100.0)


def test_the_worked_example_of_the_data_sheet():
    """BST-BMP280-DS001, section 3.12: t_fine 128422, 25.08 °C, 100653.27 Pa."""
    fine = EXAMPLE.t_fine(519888)
    assert fine == 128422
    assert EXAMPLE.temperature(fine) == 25.08
    assert EXAMPLE.pressure(415148, fine) == pytest.approx(100653.27, abs=0.05)


@given(st.integers(300_000, 700_000), st.integers(200_000, 600_000), st.integers(20_000, 40_000))
def test_integers_and_doubles_agree(raw_t, raw_p, raw_h):
    celsius, fine_double = temperature_double(EXAMPLE, raw_t)
    assume(-40 <= celsius <= 85)
    fine = EXAMPLE.t_fine(raw_t)
    assert EXAMPLE.temperature(fine) == pytest.approx(celsius, abs=0.011)
    assert fine == pytest.approx(fine_double, abs=20)
    assert EXAMPLE.pressure(raw_p, fine) == pytest.approx(pressure_double(EXAMPLE, raw_p, fine), abs=2)
    assert EXAMPLE.humidity(raw_h, fine) == pytest.approx(humidity_double(EXAMPLE, raw_h, fine), abs=0.02)


signed = st.integers(-32768, 32767)
unsigned = st.integers(0, 65535)
calibrations = st.builds(
    Calibration,
    t=st.tuples(unsigned, signed, signed),
    p=st.tuples(unsigned, *([signed] * 8)),
    h=st.tuples(
        st.integers(0, 255), signed, st.integers(0, 255), st.integers(-2048, 2047), st.integers(-2048, 2047),
        st.integers(-128, 127),
    ),
)  # fmt: skip


@given(calibrations)
def test_the_trimming_registers_are_read_as_table_16_says(calibration):
    assert Calibration.unpack(*calibration.pack()) == calibration


def test_the_shared_nibbles_go_to_their_own_values():
    """0xE4 / 0xE5[3:0] is H4, 0xE5[7:4] / 0xE6 is H5: table 16, p. 24."""
    first, _ = EXAMPLE.pack()
    second = bytes([0, 0, 0, 0x12, 0x34, 0x56, 0])
    assert Calibration.unpack(first, second).h[3:5] == (0x124, 0x563)
    second = bytes([0, 0, 0, 0xFF, 0x0F, 0xFF, 0])
    assert Calibration.unpack(first, second).h[3:5] == (-1, -16)


@given(st.integers(0, 0xFFFFF), st.integers(0, 0xFFFFF), st.integers(0, 0xFFFF))
def test_the_data_registers_are_read_as_they_are_laid_out(temperature, pressure, humidity):
    raw = Raw(temperature, pressure, humidity)
    assert Raw.unpack(raw.pack()) == raw


@pytest.fixture
async def rig():
    async with Rig(CONFIG) as rig:
        yield rig


def write(rig, register, data):
    rig.sim.chip(1, 0x77).write(register, data)


async def test_one_measurement_is_asked_for_with_humidity_first(rig):
    said, real = [], rig.sim.bus(1).write
    rig.sim.bus(1).write = lambda address, register, data: (
        said.append((register, data)),
        real(address, register, data),
    )
    await rig.board.read("air")
    assert said == [(0xF2, b"\x01"), (0xF4, b"\x25")]


async def test_a_chip_that_skipped_the_measurement_is_an_error(rig):
    write(rig, 0xF7, Raw(0x80000, 0x80000, 0x8000).pack())
    with pytest.raises(DeviceFailed, match="air: the chip at 0x77 on I2C bus 1 did not measure"):
        await rig.board.read("air")


async def test_a_blank_calibration_is_an_error():
    rig = Rig(CONFIG)
    write(rig, 0x88, b"\0" * 24)
    async with rig:
        with pytest.raises(DeviceFailed, match="calibration is blank"):
            await rig.board.read("air")


async def test_values_beyond_what_the_chip_measures_are_doubted(rig):
    write(rig, 0xF7, Raw(900_000, EXAMPLE_RAW.pressure, 0).pack())
    reading = await rig.board.read("air")
    assert reading.values["humidity"] == 0
    assert any(warning.startswith("implausible: this chip measures temperature") for warning in reading.warnings)


async def test_a_bmp280_has_no_humidity():
    rig = Rig(CONFIG)
    write(rig, 0xD0, b"\x58")
    write(rig, 0xE1, b"\xff" * 7)
    async with rig:
        reading = await rig.board.read("air")
        assert dict(reading.values) == {"temperature": 25.08, "pressure": 1006.53}
        assert set(reading.units) == {"temperature", "pressure"}


async def test_another_chip_at_the_address_is_refused_until_it_is_the_right_one():
    rig = Rig(CONFIG)
    write(rig, 0xD0, b"\x61")
    async with rig:
        assert "says that it is 0x61; a BME280 says 0x60" in rig.board.device("air").fault
        write(rig, 0xD0, b"\x60")
        assert (await rig.board.read("air")).values["temperature"] == 25.08
        assert rig.board.device("air").fault == ""


def test_the_simulation_holds_a_chip_with_known_values():
    assert simulated(CONFIG).chip(1, 0x77).read(0xD0, 1) == b"\x60"
