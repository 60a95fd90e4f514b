"""What any board must do, over the simulation and over the real adapter on mock pins, loop:// and an injected bus."""

from __future__ import annotations

import asyncio

import pytest

from tests.board.rig import PiRig, Rig
from zeroclawd.board.hardware import HardwareError
from zeroclawd.board.sim import SimChip
from zeroclawd.errors import (
    DeviceFailed,
    EmergencyStopped,
    LimitRefused,
    ReadbackFailed,
    UnknownDevice,
    ValueRefused,
)
from zeroclawd.tool import Risk

CONFIG = """
[board]
kind = "sim"
timeout = "2s"

[devices.pump]
kind = "relay"
description = "well pump"
pin = 17
active_low = true
max_on = "60s"
risk = "high"
interlocks = ["tank.closed"]

[devices.valve]
kind = "relay"
pin = 18
interlocks = ["not drain.on"]

[devices.drain]
kind = "relay"
pin = 19
interlocks = ["not valve.on"]

[devices.tank]
kind = "contact"
pin = 27

[devices.door]
kind = "button"
pin = 23
pull = "down"

[devices.lamp]
kind = "led"
pin = 22

[devices.greenhouse]
kind = "bme280"

[devices.probe]
kind = "ds18b20"
sensor = "28-0316a2795bff"

[devices.scale]
kind = "serial_line"
port = "/dev/ttyEcho"
query = "21.5"
unit = "kg"
range = [0, 100]

[devices.dac]
kind = "i2c_register"
address = 0x48
register = 2
width = 16
scale = 0.01
unit = "V"
range = [0, 10]
writable = true
safe_state = 0
"""


class DeafChip(SimChip):
    """Acknowledges every write and keeps none."""

    def write(self, register, data):
        pass


@pytest.fixture(params=["sim", "pi"])
def rig(request, tmp_path):
    return Rig(CONFIG) if request.param == "sim" else PiRig(CONFIG, tmp_path)


@pytest.fixture(autouse=True)
def _echo(rig):
    rig.sim.peer("/dev/ttyEcho").answer = lambda line: line


async def test_outputs_start_in_their_safe_state(rig):
    async with rig:
        assert rig.level(17) == 1
        assert rig.level(18) == 0
        assert rig.level(22) == 0
        assert (await rig.board.read("pump")).values == {"on": False}


@pytest.mark.parametrize("on", [True, "on", "ON", "true", 1, 1.0, "1"])
async def test_a_relay_takes_every_spelling_of_on(rig, on):
    async with rig:
        reading = await rig.board.write("valve", on)
        assert reading.values == {"on": True}
        assert "line 18 reads high" in reading.how
        assert rig.level(18) == 1


@pytest.mark.parametrize("value", [2, 0.5, "open", "", -1, float("nan"), float("inf")])
async def test_a_relay_refuses_what_is_neither_on_nor_off(rig, value):
    async with rig:
        with pytest.raises(ValueRefused, match=r"valve: takes true or false \(also on/off, 1/0\)"):
            await rig.board.write("valve", value)
        assert rig.level(18) == 0


async def test_an_active_low_relay_is_on_while_its_line_is_low(rig):
    async with rig:
        rig.outside(27, False)
        await rig.until(lambda: rig.memory.states("tank", "closed")[-1])
        reading = await rig.board.write("pump", True)
        assert reading.values == {"on": True}
        assert rig.level(17) == 0
        assert "reads low, active low" in reading.how


async def test_reading_never_changes_a_level(rig):
    async with rig:
        await rig.board.write("valve", True)
        for name in ("pump", "valve", "lamp"):
            for _ in range(3):
                await rig.board.read(name)
        assert (rig.level(17), rig.level(18), rig.level(22)) == (1, 1, 0)


@pytest.mark.parametrize("brightness", [0, 0.01, 0.29, 0.5, 1])
async def test_an_led_takes_a_brightness(rig, brightness):
    async with rig:
        reading = await rig.board.write("lamp", brightness)
        assert reading.values["brightness"] == pytest.approx(brightness, abs=0.01)
        assert reading.values["on"] is (brightness > 0)
        assert rig.level(22) == pytest.approx(brightness, abs=0.01)


@pytest.mark.parametrize("value", [1.5, -0.1, "bright", float("nan"), "1e9"])
async def test_an_led_says_its_range(rig, value):
    async with rig:
        with pytest.raises(ValueRefused, match=r"lamp: takes .*0 to 1"):
            await rig.board.write("lamp", value)


async def test_an_unknown_device_names_the_nearest(rig):
    async with rig:
        for call in (rig.board.read("pomp"), rig.board.write("pomp", True), rig.board.pulse("pomp", 1)):
            with pytest.raises(UnknownDevice, match="did you mean pump"):
                await call
        with pytest.raises(UnknownDevice, match="did you mean pump"):
            rig.board.device("pomp")


async def test_a_sensor_cannot_be_written_or_pulsed(rig):
    async with rig:
        with pytest.raises(ValueRefused, match="a bme280 can be read, not written"):
            await rig.board.write("greenhouse", 20)
        with pytest.raises(ValueRefused, match="cannot be pulsed"):
            await rig.board.pulse("dac", 1)


async def test_devices_are_described_in_the_order_of_the_config(rig):
    async with rig:
        infos = {info.name: info for info in rig.board.devices()}
        assert list(infos) == list(rig.config.devices)
        pump = infos["pump"]
        assert (pump.risk, pump.can, pump.fault) == (Risk.HIGH, {"read", "write", "pulse"}, "")
        assert pump.limits == ("safe state off", "on for at most 1 min", "only while tank.closed")
        assert infos["dac"].writes == "a number, 0 to 10 V"
        assert infos["greenhouse"].units == {"temperature": "°C", "pressure": "hPa", "humidity": "%"}
        assert infos["greenhouse"].can == {"read"}
        assert rig.board.device("pump") == pump


async def test_a_contact_tells_of_its_changes_by_itself(rig):
    async with rig:
        assert rig.memory.states("tank", "closed") == [False]
        rig.outside(27, False)
        await rig.until(lambda: rig.memory.states("tank", "closed") == [False, True])
        rig.outside(23, True)
        await rig.until(lambda: rig.memory.states("door", "pressed") == [False, True])


async def test_a_bouncing_contact_changes_once(rig):
    async with rig:
        for high in (False, True, False, True, False):
            rig.outside(27, high)
        await rig.until(lambda: rig.memory.states("tank", "closed") == [False, True])
        await rig.pass_time(0.02)
        assert (await rig.board.read("tank")).values == {"closed": True}
        assert rig.memory.states("tank", "closed") == [False, True]


async def test_a_contact_that_bounced_back_is_seen_when_the_bounces_are_over(rig):
    async with rig:
        rig.outside(27, False)
        rig.outside(27, True)
        await rig.until(lambda: rig.memory.states("tank", "closed") == [False, True])
        await rig.pass_time(0.02)
        await rig.until(lambda: rig.memory.states("tank", "closed") == [False, True, False])


async def test_sensors_measure_with_units_and_words(rig):
    async with rig:
        air = await rig.board.read("greenhouse")
        assert air.values == {"temperature": 25.08, "pressure": 1006.53, "humidity": pytest.approx(45, abs=0.5)}
        assert air.units["pressure"] == "hPa"
        assert "0x76 on I2C bus 1" in air.how
        assert (await rig.board.read("probe")).values == {"temperature": 21.437}
        weight = await rig.board.read("scale")
        assert (weight.values, weight.units) == ({"text": "21.5", "value": 21.5}, {"text": "", "value": "kg"})


async def test_readings_say_when_they_were_taken_and_whether_they_are_simulated(rig):
    async with rig:
        for name in rig.config.devices:
            reading = await rig.board.read(name)
            assert reading.simulated is (rig.kind == "sim")
            assert (reading.taken_mono, reading.taken_at) == (rig.clock.now, rig.clock.wall_now)
            assert set(reading.units) == set(reading.values)


async def test_a_register_is_written_within_its_range_and_read_back(rig):
    async with rig:
        assert (await rig.board.write("dac", 4.25)).values == {"value": 4.25}
        assert rig.sim.chip(1, 0x48).read(2, 2) == (425).to_bytes(2, "big")
        with pytest.raises(ValueRefused, match=r"takes 0 to 10 V, and 10\.1 is outside"):
            await rig.board.write("dac", 10.1)
        assert (await rig.board.read("dac")).values == {"value": 4.25}


async def test_a_read_is_tried_again_after_a_missed_acknowledge(rig):
    async with rig:
        rig.sim.bus(1).faults.fail(HardwareError("no acknowledge", transient=True), times=2)
        assert (await rig.board.read("dac")).values == {"value": 0}
        assert rig.board.device("dac").fault == ""


async def test_a_chip_that_does_not_answer_is_named_and_the_others_work(rig):
    async with rig:
        chip = rig.sim.bus(1).chips.pop(0x48)
        before = rig.sim.bus(1).transfers
        with pytest.raises(DeviceFailed, match="dac: nothing answers at 0x48 on I2C bus 1"):
            await rig.board.read("dac")
        assert rig.sim.bus(1).transfers - before == 3
        assert "nothing answers" in rig.board.device("dac").fault
        assert rig.board.about()["degraded"] == "dac"
        assert (await rig.board.read("greenhouse")).values["temperature"] == 25.08
        rig.sim.bus(1).chips[0x48] = chip
        await rig.pass_time(1)
        await rig.until(lambda: rig.board.device("dac").fault == "")


async def test_what_cannot_pass_is_not_tried_again(rig):
    async with rig:
        rig.sim.bus(1).chips[0x76].write(0xF7, bytes(8))
        rig.sim.bus(1).chips[0x76].write(0x8E, b"\0\0")
        rig.board._devices["greenhouse"].driver.open(rig.hardware)  # the calibration is blank now
        before = rig.sim.bus(1).transfers
        with pytest.raises(DeviceFailed, match="calibration is blank"):
            await rig.board.read("greenhouse")
        assert rig.sim.bus(1).transfers - before == 4


async def test_a_write_is_never_tried_again(rig):
    async with rig:
        bus, writes = rig.sim.bus(1), []
        real = bus.write
        bus.write = lambda address, register, data: (writes.append(data), real(address, register, data))
        bus.faults.fail(HardwareError("no acknowledge", transient=True), times=1)
        with pytest.raises(DeviceFailed):
            await rig.board.write("dac", 5)
        assert writes == [b"\x01\xf4", b"\x00\x00"]  # once, and then the safe state


async def test_a_level_that_does_not_follow_is_an_error_and_goes_to_the_safe_state(rig):
    async with rig:
        rig.sim.bus(1).chips[0x48] = DeafChip(width=2)
        with pytest.raises(ReadbackFailed, match="dac: 5 was written, but it shows value 0"):
            await rig.board.write("dac", 5)


async def test_an_interlock_refuses_until_it_holds(rig):
    async with rig:
        with pytest.raises(LimitRefused, match=r"pump: works only while tank\.closed") as caught:
            await rig.board.write("pump", True)
        assert caught.value.limit == "interlock"
        assert rig.level(17) == 1
        rig.outside(27, False)
        await rig.board.write("pump", True)
        assert rig.level(17) == 0


async def test_an_interlock_that_breaks_cuts_the_device_and_is_recorded(rig):
    async with rig:
        rig.outside(27, False)
        await rig.board.write("pump", True)
        await rig.pass_time(0.02)
        rig.outside(27, True)
        await rig.until(lambda: rig.memory.rows)
        assert rig.level(17) == 1
        assert rig.memory.rows == [
            ("safety", "pump", "taken to off by interlock: works only while tank.closed, and that is not so")
        ]
        assert rig.memory.states("pump", "on") == [False, True, False]


async def test_two_outputs_that_exclude_each_other_are_never_both_let_on(rig):
    async with rig:
        ends = await asyncio.gather(
            rig.board.write("valve", True), rig.board.write("drain", True), return_exceptions=True
        )
        assert [type(end) for end in ends].count(LimitRefused) == 1
        assert rig.level(18) + rig.level(19) == 1


async def test_a_pulse_is_on_and_then_off(rig):
    async with rig:
        pulse = asyncio.create_task(rig.board.pulse("valve", 5))
        await rig.until(lambda: rig.level(18) == 1)
        await rig.pass_time(4.9)
        assert rig.level(18) == 1
        await rig.pass_time(0.2)
        assert (await pulse).values == {"on": False}
        assert rig.level(18) == 0


async def test_max_on_is_cut_by_a_timer(rig):
    async with rig:
        rig.outside(27, False)
        await rig.board.write("pump", True)
        await rig.pass_time(59)
        assert rig.level(17) == 0
        await rig.pass_time(1)
        await rig.until(lambda: rig.memory.rows)
        assert rig.level(17) == 1
        assert rig.memory.rows[0][:2] == ("safety", "pump")
        assert "max_on: was on for 1 min" in rig.memory.rows[0][2]


async def test_the_emergency_stop_drives_safe_states_and_holds(rig):
    async with rig:
        await rig.board.write("valve", True)
        await rig.board.write("lamp", 0.5)
        await rig.board.write("dac", 5)
        await rig.board.engage("operator", "smoke")
        assert rig.board.stopped
        assert (rig.level(18), rig.level(22)) == (0, 0)
        assert rig.sim.chip(1, 0x48).read(2, 2) == b"\0\0"
        for value in (True, False):
            with pytest.raises(EmergencyStopped, match=r"valve: the emergency stop is engaged \(by operator: smoke\)"):
                await rig.board.write("valve", value)
        with pytest.raises(EmergencyStopped):
            await rig.board.pulse("valve", 1)
        assert (await rig.board.read("valve")).values == {"on": False}
        await rig.board.release("operator")
        assert not rig.board.stopped
        assert rig.level(18) == 0
        await rig.board.write("valve", True)
        assert [(kind, note) for kind, _device, note in rig.memory.rows] == [
            ("estop", "engaged by operator: smoke"),
            ("estop", "released by operator"),
        ]


async def test_a_hung_bus_costs_its_devices_and_nothing_else(rig):
    async with rig:
        rig.sim.bus(1).faults.hang()
        reading = asyncio.create_task(rig.board.read("greenhouse"))
        await asyncio.sleep(0)
        assert (await rig.board.write("valve", True)).values == {"on": True}
        with pytest.raises(DeviceFailed, match="gave no answer within 2 s"):
            await reading
        with pytest.raises(DeviceFailed, match="hangs"):
            await rig.board.read("dac")
        assert (await rig.board.read("probe")).values == {"temperature": 21.437}
        rig.sim.bus(1).faults.free()
        await rig.until(lambda: not rig.board._workers["I2C bus 1"].hung)
        assert (await rig.board.read("greenhouse")).values["temperature"] == 25.08


async def test_stopping_brings_safe_states_and_closing_keeps_them(rig):
    async with rig:
        rig.outside(27, False)
        await rig.board.write("pump", True)
        await rig.board.write("valve", True)
        await rig.board.write("lamp", 0.5)
        await rig.board.stop("update")
        assert (rig.level(17), rig.level(18), rig.level(22)) == (1, 0, 0)
        assert rig.memory.rows == [
            ("safety", "", "the board is being closed (update); taken to the safe state: pump, valve, lamp")
        ]


async def test_a_cancelled_read_leaves_the_board_usable(rig):
    async with rig:
        reading = asyncio.create_task(rig.board.read("greenhouse"))
        await asyncio.sleep(0)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        assert (await rig.board.read("greenhouse")).values["temperature"] == 25.08


async def test_the_board_tells_about_itself(rig):
    async with rig:
        about = rig.board.about()
        assert about["kind"] == rig.kind
        assert about["simulated"] is (rig.kind == "sim")
        assert about["emergency_stop"] is False
        assert about["degraded"] == ""


async def test_an_idle_board_has_no_timer_and_writes_nothing(rig):
    async with rig:
        await rig.pass_time(1)
        writes = rig.memory.writes
        await rig.pass_time(3600)
        assert rig.timers.pending() == 0
        assert rig.memory.writes == writes


async def test_a_sensor_is_told_of_when_it_is_read(rig):
    """What a reading showed is a state too: whoever looks at the broker sees the last one."""
    async with rig:
        name = next(info.name for info in rig.board.devices() if info.kind == "bme280")
        reading = await rig.board.read(name)
        assert rig.memory.states(name, "temperature")[-1] == reading.values["temperature"]
