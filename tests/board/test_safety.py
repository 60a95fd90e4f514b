"""Tries to break each rule of the board from above: parallel calls, cancelled calls, restarts, clock steps, full disks."""

from __future__ import annotations

import asyncio
import contextlib
import json

import pytest

from tests.board.rig import Gate, Memory, Rig
from zeroclawd.board.hardware import HardwareError
from zeroclawd.board.safety import Limits, Switched, recollect, refusal, span
from zeroclawd.errors import (
    DeviceError,
    DeviceFailed,
    EmergencyStopped,
    LimitRefused,
    ReadbackFailed,
    StoreError,
    ValueRefused,
)

CONFIG = """
[board]
kind = "sim"
timeout = "2s"

[devices.pump]
kind = "relay"
pin = 17
active_low = true
max_on = "60s"
min_off = "30s"

[devices.lamp]
kind = "led"
pin = 22
max_on = "10s"

[devices.fan]
kind = "relay"
pin = 5
safe_state = "on"

[devices.bell]
kind = "relay"
pin = 6
min_interval = "5s"

[devices.heater]
kind = "relay"
pin = 13
interlocks = ["tank.closed and level.value > 10"]

[devices.tank]
kind = "contact"
pin = 27

[devices.level]
kind = "i2c_register"
address = 0x48
register = 1
range = [0, 100]
"""


@pytest.fixture
async def rig():
    rig = Rig(CONFIG)
    async with rig:
        await rig.pass_time(100)
        yield rig


async def restarted(memory: Memory, boot_id: str = "boot-1", start: float = 1000.0) -> Rig:
    rig = Rig(CONFIG, memory=memory, boot_id=boot_id, start=start)
    await rig.board.start()
    return rig


def hold(rig: Rig, pin: int) -> Gate:
    """Hold up the next drive of a pin, in the worker's thread, right before it happens."""
    gate, real = Gate(), rig.sim.drive

    def drive(driven: int, level: float) -> None:
        if driven == pin and not gate.reached.is_set():
            gate()
        real(driven, level)

    rig.sim.drive = drive
    return gate


# max_on


async def test_writing_on_again_does_not_extend_max_on(rig):
    await rig.board.write("pump", True)
    for _ in range(5):
        await rig.pass_time(11)
        await rig.board.write("pump", True)
    assert rig.level(17) == 0
    await rig.pass_time(5)
    await rig.until(lambda: rig.level(17) == 1)


async def test_another_brightness_does_not_extend_max_on(rig):
    await rig.board.write("lamp", 0.2)
    await rig.pass_time(6)
    await rig.board.write("lamp", 0.9)
    await rig.pass_time(4)
    await rig.until(lambda: rig.level(22) == 0)
    assert "max_on" in rig.memory.rows[0][2]


async def test_switching_off_disarms_max_on(rig):
    await rig.board.write("lamp", 1)
    await rig.board.write("lamp", 0)
    assert rig.timers.pending() == 0
    await rig.pass_time(9)
    await rig.board.write("lamp", 1)
    await rig.pass_time(9)
    assert rig.level(22) == 1
    assert rig.memory.rows == []


async def test_a_wall_clock_that_steps_changes_no_limit(rig):
    await rig.board.write("pump", True)
    rig.clock.wall_now += 180 * 86_400
    await rig.pass_time(59)
    assert rig.level(17) == 0
    rig.clock.wall_now -= 365 * 86_400
    await rig.pass_time(1)
    await rig.until(lambda: rig.level(17) == 1)


async def test_a_cut_that_does_not_work_is_recorded_and_tried_until_it_does(rig):
    await rig.board.write("pump", True)
    rig.sim.stick(17, False)
    await rig.pass_time(60)
    await rig.until(lambda: rig.memory.rows)
    assert "should go to off by max_on" in rig.memory.rows[0][2]
    assert "off was written, but it shows on on" in rig.board.device("pump").fault
    drives = len(rig.sim.driven(17))
    await rig.pass_time(1)
    await rig.until(lambda: len(rig.sim.driven(17)) > drives)
    rig.sim.stick(17, None)
    await rig.pass_time(2)
    await rig.until(lambda: rig.board.device("pump").fault == "")
    assert rig.level(17) == 1


async def test_on_after_an_off_that_is_under_way_comes_after_it_and_has_its_own_timer(rig):
    await rig.board.write("lamp", 1)
    await rig.pass_time(6)
    gate = hold(rig, 22)
    off = asyncio.create_task(rig.board.write("lamp", 0))
    await rig.until(gate.reached.is_set)
    on = asyncio.create_task(rig.board.write("lamp", 0.5))
    await asyncio.sleep(0.01)
    gate.opened.set()
    await asyncio.gather(off, on)
    assert rig.sim.driven(22)[-2:] == [0, 0.5]
    await rig.pass_time(9)
    assert rig.level(22) == 0.5
    await rig.pass_time(1)
    await rig.until(lambda: rig.level(22) == 0)


async def test_an_old_reading_that_comes_late_changes_nothing(rig):
    old = await rig.board.read("tank")
    await rig.pass_time(1)
    rig.outside(27, False)
    await rig.until(lambda: rig.memory.states("tank", "closed")[-1])
    rig.board._control.noticed(rig.board._devices["tank"], old)
    assert rig.board._devices["tank"].last.values == {"closed": True}


async def test_a_timer_is_armed_before_the_effect_so_that_a_slow_one_is_still_cut(rig):
    gate = hold(rig, 17)
    writing = asyncio.create_task(rig.board.write("pump", True))
    await rig.until(gate.reached.is_set)
    assert rig.timers.pending() == 1
    await rig.pass_time(60)
    gate.opened.set()
    with pytest.raises(LimitRefused, match="switched off again at once"):
        await writing
    await rig.until(lambda: rig.memory.rows)
    assert rig.level(17) == 1


# min_off and min_interval


async def test_min_off_refuses_and_says_what_is_left(rig):
    await rig.board.write("pump", True)
    await rig.board.write("pump", False)
    await rig.pass_time(10)
    with pytest.raises(LimitRefused, match="stays off for at least 30 s; 20 s are left") as caught:
        await rig.board.write("pump", True)
    assert caught.value.limit == "min_off"
    await rig.pass_time(20)
    await rig.board.write("pump", True)


async def test_min_off_also_counts_from_a_cut(rig):
    await rig.board.write("pump", True)
    await rig.pass_time(60)
    await rig.until(lambda: rig.memory.rows)
    with pytest.raises(LimitRefused, match="stays off"):
        await rig.board.write("pump", True)


async def test_of_many_parallel_writes_min_interval_lets_one_through(rig):
    ends = await asyncio.gather(*(rig.board.write("bell", True) for _ in range(8)), return_exceptions=True)
    assert sum(isinstance(end, LimitRefused) for end in ends) == 7
    assert rig.sim.driven(6) == [0, 0, 1]


async def test_switching_off_is_never_too_early(rig):
    await rig.board.write("bell", True)
    assert (await rig.board.write("bell", False)).values == {"on": False}
    with pytest.raises(LimitRefused, match="at most every 5 s"):
        await rig.board.write("bell", True)


async def test_no_limit_stands_before_a_safe_state_that_is_on(rig):
    assert rig.level(5) == 1
    await rig.board.write("fan", False)
    await rig.board.write("fan", True)
    await rig.board.write("fan", False)
    await rig.board.engage("operator", "smoke")
    assert rig.level(5) == 1
    with pytest.raises(EmergencyStopped):
        await rig.board.write("fan", False)


# Restarts


async def test_min_off_holds_across_a_restart(rig):
    await rig.board.write("pump", True)
    await rig.board.write("pump", False)
    await rig.board.stop("update")
    again = await restarted(rig.memory, start=rig.clock.now + 10)
    with pytest.raises(LimitRefused, match="20 s are left"):
        await again.board.write("pump", True)
    await again.pass_time(20)
    await again.board.write("pump", True)
    await again.board.stop("done")


async def test_another_boot_counts_as_just_switched_off(rig):
    await rig.board.write("pump", True)
    await rig.board.write("pump", False)
    again = await restarted(rig.memory, boot_id="boot-2", start=5000)
    await again.pass_time(29)
    with pytest.raises(LimitRefused):
        await again.board.write("pump", True)
    await again.pass_time(1)
    await again.board.write("pump", True)
    await again.board.stop("done")


@pytest.mark.parametrize(
    "kept", [None, "", "nonsense", "[]", "{}", '{"boot":"boot-1","active":false,"since":9e9,"changed":9e9}']
)
async def test_a_memory_that_says_nothing_counts_as_just_switched_off(kept):
    memory = Memory()
    if kept is not None:
        memory.kept["board.switched.pump"] = kept
    rig = await restarted(memory)
    with pytest.raises(LimitRefused, match="30 s are left"):
        await rig.board.write("pump", True)
    await rig.board.stop("done")


async def test_a_crash_while_on_is_found_and_recorded_and_ends_in_the_safe_state(rig):
    await rig.board.write("pump", True)
    assert json.loads(rig.memory.kept["board.switched.pump"])["active"] is True
    again = await restarted(rig.memory, start=rig.clock.now + 5)  # the old board is never stopped: it crashed
    assert again.sim.driven(17)[0] == 1
    assert again.memory.rows[0][:2] == ("safety", "pump")
    assert "was on when the daemon last ended" in again.memory.rows[0][2]
    with pytest.raises(LimitRefused, match="stays off"):
        await again.board.write("pump", True)
    await again.board.stop("done")


async def test_an_effect_that_cannot_be_remembered_does_not_happen(rig):
    rig.memory.full = True
    with pytest.raises(StoreError):
        await rig.board.write("pump", True)
    assert rig.sim.driven(17) == [1, 1]
    assert rig.timers.pending() == 0
    rig.memory.full = False
    await rig.board.write("pump", True)


async def test_switching_off_works_on_a_full_disk(rig):
    await rig.board.write("pump", True)
    rig.memory.full = True
    assert (await rig.board.write("pump", False)).values == {"on": False}
    rig.memory.full = False


# Pulses


async def test_a_cancelled_pulse_ends_off(rig):
    pulse = asyncio.create_task(rig.board.pulse("lamp", 8))
    await rig.until(lambda: rig.level(22) == 1)
    pulse.cancel()
    with pytest.raises(asyncio.CancelledError):
        await pulse
    assert rig.level(22) == 0
    assert rig.timers.pending() == 0
    await rig.board.write("lamp", 1)


async def test_a_pulse_cancelled_while_it_switches_on_ends_off(rig):
    gate = hold(rig, 22)
    pulse = asyncio.create_task(rig.board.pulse("lamp", 8))
    await rig.until(gate.reached.is_set)
    pulse.cancel()
    await asyncio.sleep(0.01)
    gate.opened.set()
    with pytest.raises(asyncio.CancelledError):
        await pulse
    assert rig.sim.driven(22)[-2:] == [1, 0]


async def test_a_pulse_that_fails_to_switch_on_ends_off(rig):
    rig.sim.stick(22, False)
    with pytest.raises(ReadbackFailed):
        await rig.board.pulse("lamp", 8)
    assert rig.sim.driven(22)[-1] == 0
    rig.sim.stick(22, None)
    await rig.pass_time(1)
    await rig.until(lambda: rig.board.device("lamp").fault == "")


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf"), 3601, True, "5"])
async def test_a_pulse_lasts_a_sensible_time(rig, seconds):
    with pytest.raises(ValueRefused, match="pulse lasts"):
        await rig.board.pulse("bell", seconds)
    assert rig.sim.driven(6) == [0, 0]


async def test_a_pulse_is_no_longer_than_max_on(rig):
    with pytest.raises(LimitRefused, match="may be on for at most 10 s, so not for 11 s"):
        await rig.board.pulse("lamp", 11)
    pulse = asyncio.create_task(rig.board.pulse("lamp", 10))
    await rig.until(lambda: rig.level(22) == 1)
    await rig.pass_time(10)
    assert (await pulse).values["on"] is False
    assert rig.memory.rows == []


async def test_a_pulse_has_the_device_to_itself_but_off_ends_it(rig):
    pulse = asyncio.create_task(rig.board.pulse("lamp", 8))
    await rig.until(lambda: rig.level(22) == 1)
    with pytest.raises(LimitRefused, match="a pulse is running"):
        await rig.board.write("lamp", 0.5)
    with pytest.raises(LimitRefused, match="is on already"):
        await rig.board.pulse("lamp", 1)
    assert rig.level(22) == 1
    await rig.board.write("lamp", False)
    with pytest.raises(LimitRefused, match="cut short: was switched off meanwhile"):
        await pulse
    assert rig.level(22) == 0


async def test_a_device_that_is_on_is_not_pulsed(rig):
    await rig.board.write("lamp", 1)
    with pytest.raises(LimitRefused, match="is on already"):
        await rig.board.pulse("lamp", 1)
    assert rig.level(22) == 1


async def test_the_stop_cuts_a_pulse_short(rig):
    pulse = asyncio.create_task(rig.board.pulse("lamp", 8))
    await rig.until(lambda: rig.level(22) == 1)
    await rig.board.engage("operator", "smoke")
    assert rig.level(22) == 0
    with pytest.raises(LimitRefused, match="emergency stop"):
        await pulse


# Interlocks


async def closed_tank(rig: Rig, level: int) -> None:
    rig.sim.chip(1, 0x48).write(1, bytes([level]))
    rig.outside(27, False)
    await rig.until(lambda: rig.memory.states("tank", "closed")[-1])
    await rig.pass_time(0.02)


async def test_an_interlock_asks_its_sensors_afresh(rig):
    await closed_tank(rig, 5)
    with pytest.raises(LimitRefused, match=r"works only while tank\.closed and level\.value > 10, and that is not so"):
        await rig.board.write("heater", True)
    rig.sim.chip(1, 0x48).write(1, bytes([11]))
    await rig.board.write("heater", True)


async def test_an_interlock_with_a_failed_sensor_refuses(rig):
    await closed_tank(rig, 50)
    rig.sim.bus(1).chips.clear()
    with pytest.raises(LimitRefused, match=r"level\.value is not known"):
        await rig.board.write("heater", True)
    assert rig.sim.driven(13)[-1] == 0


async def test_an_interlock_does_not_believe_a_reading_that_doubts_itself(rig):
    await closed_tank(rig, 200)  # outside the plausible range of 0 to 100
    with pytest.raises(LimitRefused, match=r"level\.value is not known"):
        await rig.board.write("heater", True)


async def test_a_sensor_that_fails_while_the_device_is_on_cuts_it(rig):
    await closed_tank(rig, 50)
    await rig.board.write("heater", True)
    rig.sim.bus(1).chips.clear()
    with pytest.raises(DeviceFailed):
        await rig.board.read("level")
    await rig.until(lambda: rig.memory.rows)
    assert rig.level(13) == 0
    assert "level.value is not known" in rig.memory.rows[0][2]


async def test_a_failed_read_tells_the_last_reading_and_its_age(rig):
    rig.sim.chip(1, 0x48).write(1, b"\x2a")
    await rig.board.read("level")
    await rig.pass_time(40)
    rig.sim.bus(1).chips.clear()
    with pytest.raises(DeviceFailed) as caught:
        await rig.board.read("level")
    assert caught.value.output == "the last reading is stale, 40 s old: value 42"


async def test_a_low_reading_taken_by_anybody_cuts_the_device(rig):
    await closed_tank(rig, 50)
    await rig.board.write("heater", True)
    rig.sim.chip(1, 0x48).write(1, b"\x03")
    await rig.board.read("level")
    await rig.until(lambda: rig.memory.rows)
    assert rig.level(13) == 0


async def test_a_change_has_old_sensor_values_asked_again(rig):
    await closed_tank(rig, 50)
    await rig.board.write("heater", True)
    rig.sim.chip(1, 0x48).write(1, b"\x03")
    await rig.pass_time(60)
    assert rig.level(13) == 1  # nobody polls
    rig.board._control.noticed(rig.board._devices["tank"], rig.board._devices["tank"].last)
    await rig.until(lambda: rig.memory.rows)
    assert rig.level(13) == 0


async def test_a_contact_that_opens_between_check_and_effect_stops_the_effect(rig):
    await closed_tank(rig, 50)
    gate = Gate()
    real = rig.board._devices["heater"]._write
    rig.board._devices["heater"]._write = lambda value, guard: (gate() if value else None, real(value, guard))[1]
    writing = asyncio.create_task(rig.board.write("heater", True))
    await rig.until(gate.reached.is_set)
    rig.outside(27, True)
    await rig.until(lambda: not rig.memory.states("tank", "closed")[-1])
    gate.opened.set()
    with pytest.raises(LimitRefused, match=r"works only while tank\.closed"):
        await writing
    await rig.until(lambda: rig.memory.rows)
    assert 1 not in rig.sim.driven(13)


async def test_a_contact_that_opens_while_a_slow_sensor_is_asked_refuses(rig):
    await closed_tank(rig, 50)
    rig.sim.bus(1).faults.hang()
    writing = asyncio.create_task(rig.board.write("heater", True))
    await rig.until(lambda: rig.sim.bus(1).transfers)
    await asyncio.sleep(0.01)
    rig.outside(27, True)
    await rig.until(lambda: not rig.memory.states("tank", "closed")[-1])
    rig.sim.bus(1).faults.free()
    with pytest.raises(LimitRefused):
        await writing
    assert 1 not in rig.sim.driven(13)


async def test_off_does_not_wait_for_a_write_that_waits_for_a_hung_sensor(rig):
    await closed_tank(rig, 50)
    rig.sim.bus(1).faults.hang()
    writing = asyncio.create_task(rig.board.write("heater", True))
    await asyncio.sleep(0.01)
    assert (await rig.board.write("heater", False)).values == {"on": False}
    rig.sim.bus(1).faults.free()
    with pytest.raises(LimitRefused, match="switched off meanwhile"):
        await writing
    assert 1 not in rig.sim.driven(13)


# The emergency stop


async def test_a_stop_between_check_and_effect_stops_the_effect(rig):
    gate = Gate()
    real = rig.board._devices["lamp"]._write
    rig.board._devices["lamp"]._write = lambda value, guard: (gate() if value else None, real(value, guard))[1]
    writing = asyncio.create_task(rig.board.write("lamp", 1))
    await rig.until(gate.reached.is_set)
    stopping = asyncio.create_task(rig.board.engage("operator", "smoke"))
    await asyncio.sleep(0.01)
    gate.opened.set()
    with pytest.raises(EmergencyStopped):
        await writing
    await stopping
    assert 1 not in rig.sim.driven(22)


async def test_a_stop_in_the_middle_of_the_effect_ends_in_the_safe_state(rig):
    gate = hold(rig, 22)
    writing = asyncio.create_task(rig.board.write("lamp", 1))
    await rig.until(gate.reached.is_set)
    stopping = asyncio.create_task(rig.board.engage("operator", "smoke"))
    await asyncio.sleep(0.01)
    gate.opened.set()
    await stopping
    with contextlib.suppress(DeviceError):
        await writing
    assert rig.sim.driven(22)[-2:] == [1, 0]


async def test_the_latch_holds_across_restarts_and_boots(rig):
    await rig.board.engage("operator", "smoke")
    again = await restarted(rig.memory, boot_id="boot-2")
    assert again.board.stopped
    assert again.board.stop_reason == "operator: smoke"
    with pytest.raises(EmergencyStopped):
        await again.board.write("lamp", 1)
    await again.board.release("anna")
    third = await restarted(rig.memory)
    assert not third.board.stopped
    for each in (again, third):
        await each.board.stop("done")


@pytest.mark.parametrize("kept", ["", "nonsense", "null", "[]", "{}", '{"engaged":"no"}', '{"engaged":0}'])
async def test_a_latch_that_cannot_be_read_is_engaged(kept):
    memory = Memory()
    memory.kept["board.estop"] = kept
    rig = await restarted(memory)
    assert rig.board.stopped
    with pytest.raises(EmergencyStopped):
        await rig.board.write("lamp", 1)
    await rig.board.stop("done")


async def test_a_board_that_was_not_started_is_stopped():
    rig = Rig(CONFIG)
    with pytest.raises(EmergencyStopped, match="has not started"):
        await rig.board.write("lamp", 1)


async def test_a_board_that_was_not_started_can_still_be_stopped():
    rig = Rig(CONFIG)
    await rig.board.engage("operator", "smoke")
    assert rig.sim.log == []
    assert "the board has not started" in rig.memory.rows[0][2]
    await rig.board.stop("done")


async def test_a_full_disk_does_not_keep_the_stop_from_acting(rig):
    await rig.board.write("lamp", 1)
    rig.memory.full = True
    with pytest.raises(StoreError):
        await rig.board.engage("operator", "smoke")
    assert rig.level(22) == 0
    assert rig.board.stopped
    with pytest.raises(StoreError):
        await rig.board.release("operator")
    assert rig.board.stopped
    rig.memory.full = False


async def test_a_stop_engaged_while_it_is_released_stays_engaged(rig):
    await rig.board.engage("operator", "smoke")
    engaging = []

    def again():
        rig.memory.before_remember = lambda: None
        engaging.append(asyncio.create_task(rig.board.engage("anna", "fire")))
        rig.board._control.stop.latch("anna", "fire")

    rig.memory.before_remember = again
    await rig.board.release("operator")
    await asyncio.gather(*engaging)
    assert rig.board.stopped
    assert json.loads(rig.memory.kept["board.estop"])["engaged"] is True


async def test_a_cancelled_caller_does_not_break_off_the_stop(rig):
    await rig.board.write("lamp", 1)
    gate = hold(rig, 22)
    stopping = asyncio.create_task(rig.board.engage("operator", "smoke"))
    await rig.until(gate.reached.is_set)
    stopping.cancel()
    gate.opened.set()
    with pytest.raises(asyncio.CancelledError):
        await stopping
    assert rig.level(22) == 0
    assert json.loads(rig.memory.kept["board.estop"])["engaged"] is True


async def test_a_stop_says_which_device_did_not_follow(rig):
    await rig.board.write("lamp", 1)
    rig.sim.stick(22, True)
    await rig.board.engage("operator", "smoke")
    kind, _, note = rig.memory.rows[-1]
    assert kind == "estop"
    assert "not in its safe state: lamp: off was written, but it shows" in note
    rig.sim.stick(22, None)
    await rig.pass_time(1)
    await rig.until(lambda: rig.board.device("lamp").fault == "")
    assert rig.level(22) == 0


STOP_INPUT = CONFIG.replace('timeout = "2s"', 'timeout = "2s"\nestop_pin = 26')


async def test_an_input_engages_the_stop_and_holds_it():
    rig = Rig(STOP_INPUT)
    async with rig:
        assert not rig.board.stopped
        await rig.board.write("fan", True)
        await rig.board.write("lamp", 1)
        rig.outside(26, False)
        assert rig.board.stopped  # at once, from the thread that saw the edge
        await rig.until(lambda: rig.memory.rows)
        assert rig.level(22) == 0
        assert rig.memory.rows == [("estop", "", "engaged by input on pin 26: engaged")]
        with pytest.raises(EmergencyStopped, match="its input on pin 26 is still engaged"):
            await rig.board.release("operator")
        rig.outside(26, True)
        assert rig.board.stopped
        await rig.board.release("operator")
        assert not rig.board.stopped


async def test_a_bouncing_stop_input_engages_once():
    rig = Rig(STOP_INPUT)
    async with rig:
        for high in (False, True, False, True, False):
            rig.outside(26, high)
        await rig.until(lambda: rig.memory.rows)
        await rig.pass_time(1)
        assert len(rig.memory.rows) == 1


async def test_an_input_that_is_engaged_at_start_stops_the_board():
    rig = Rig(STOP_INPUT)
    rig.outside(26, False)
    async with rig:
        assert rig.board.stopped


async def test_a_normally_closed_switch_engages_when_its_wire_breaks():
    rig = Rig(STOP_INPUT.replace("estop_pin = 26", "estop_pin = 26\nestop_active_low = false"))
    rig.outside(26, False)
    async with rig:
        assert not rig.board.stopped
        rig.sim.set_input(26, None)
        assert rig.board.stopped
        await rig.until(lambda: rig.memory.rows)


async def test_an_input_that_cannot_be_read_stops_the_board():
    rig = Rig(STOP_INPUT)
    rig.sim.occupy(26)
    async with rig:
        assert rig.board.stopped
        with pytest.raises(EmergencyStopped, match="cannot be read"):
            await rig.board.release("operator")
        rig.sim.vacate(26)
        await rig.board.release("operator")
        assert not rig.board.stopped


# Degraded devices


async def test_a_busy_pin_degrades_its_device_until_it_is_free():
    rig = Rig(CONFIG)
    rig.sim.occupy(17)
    async with rig:
        await rig.pass_time(0.5)
        assert rig.board.device("pump").fault == "line 17 is in use by another process"
        await rig.board.write("lamp", 1)
        with pytest.raises(DeviceFailed, match="pump: line 17 is in use"):
            await rig.board.read("pump")
        rig.sim.vacate(17)
        await rig.pass_time(60)
        await rig.until(lambda: rig.board.device("pump").fault == "")
        assert rig.sim.driven(17)[0] == 1


async def test_retries_come_less_and_less_often(rig):
    rig.sim.bus(1).chips.clear()
    with pytest.raises(DeviceFailed):
        await rig.board.read("level")
    rig.clock.now += 0
    before = rig.sim.bus(1).transfers
    for _ in range(60):
        await rig.pass_time(10)
        await asyncio.sleep(0.07)
        if rig.sim.bus(1).transfers - before > 40:
            break
    assert rig.sim.bus(1).transfers - before <= 3 * 17


async def test_a_gpio_chip_that_is_gone_asks_for_a_restart(rig):
    waiting = asyncio.create_task(rig.board.wait_lost())
    rig.sim.level = lambda pin: (_ for _ in ()).throw(HardwareError("the chip has gone", lost=True))
    with pytest.raises(DeviceFailed, match="the chip has gone"):
        await rig.board.read("pump")
    await asyncio.wait_for(waiting, 2)
    del rig.sim.level


# The rules alone


def test_spans_are_said_as_people_say_them():
    assert [span(seconds) for seconds in (0.25, 5, 90, 60, 600, 3600, 5400)] == [
        "0.25 s",
        "5 s",
        "90 s",
        "1 min",
        "10 min",
        "1 h",
        "90 min",
    ]


def test_a_memory_keeps_what_it_was_told():
    known = Switched(True, 10, 12)
    assert recollect(known.encode("b"), "b", 20) == known
    assert recollect(known.encode("b"), "c", 20) == Switched.just_off(20)
    assert recollect(known.encode(""), "", 20) == Switched.just_off(20)


def test_rules_look_at_nothing_but_their_arguments():
    limits = Limits(max_on=10, min_off=5, min_interval=3)
    assert refusal(limits, Switched(False, 0, 0), 4.9).limit == "min_off"
    assert refusal(limits, Switched(False, 0, 3), 5.5).limit == "min_interval"
    assert refusal(limits, Switched(True, 0, 0), 10).limit == "max_on"
    assert refusal(limits, Switched(True, 0, 0), 9.9) is None
