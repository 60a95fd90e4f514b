"""The simulation models wires: what a test may rely on when it plays the outside world."""

from __future__ import annotations

import pytest

from tests.board.rig import Rig
from zeroclawd.board.hardware import HardwareError, PortSettings, Pull
from zeroclawd.board.sim import SimHardware
from zeroclawd.errors import ReadbackFailed


def test_a_wire_carries_a_level_both_ways_and_over_several_pins():
    sim, seen = SimHardware(), []
    sim.tie(17, 5)
    sim.tie(5, 6)
    line = sim.input(6, pull=Pull.DOWN, changed=seen.append)
    assert line.get() is False
    output = sim.output(17, high=True)
    output.set(False)
    output.set(True)
    assert seen == [True, False, True]
    assert line.get() is True


def test_an_input_is_pulled_until_something_drives_it():
    sim = SimHardware()
    up, down = (sim.input(pin, pull=pull, changed=lambda _level: None) for pin, pull in ((4, Pull.UP), (5, Pull.DOWN)))
    assert (up.get(), down.get()) == (True, False)
    sim.set_input(4, False)
    sim.set_input(5, True)
    assert (up.get(), down.get()) == (False, True)
    sim.set_input(4, None)
    assert up.get() is True


def test_only_real_changes_are_told():
    sim, seen = SimHardware(), []
    sim.input(4, pull=Pull.UP, changed=seen.append)
    for high in (True, True, False, False, True):
        sim.set_input(4, high)
    assert seen == [False, True]


def test_a_chip_counts_on_and_wraps():
    chip = SimHardware().chip(1, 0x48)
    chip.write(0xFE, b"abc")
    assert chip.read(0xFE, 3) == b"abc"
    assert chip.read(0, 1) == b"c"


def test_a_chip_of_wide_registers_keeps_them_apart():
    chip = SimHardware().chip(1, 0x48, width=2)
    chip.write(0, b"ab")
    chip.write(1, b"cd")
    assert (chip.read(0, 2), chip.read(1, 2)) == (b"ab", b"cd")


def test_a_bus_fails_as_often_as_it_is_told():
    sim = SimHardware()
    sim.chip(1, 0x48)
    sim.bus(1).faults.fail(HardwareError("no"), times=2)
    for _ in range(2):
        with pytest.raises(HardwareError, match="no"):
            sim.i2c(1).read(0x48, 0, 1)
    assert sim.i2c(1).read(0x48, 0, 1) == b"\0"
    with pytest.raises(HardwareError, match="nothing answers at 0x50 on I2C bus 1"):
        sim.i2c(1).read(0x50, 0, 1)


def test_a_port_without_a_peer_is_silent():
    port = SimHardware().serial(PortSettings(path="/dev/ttyX"))
    port.write(b"anybody?\n")
    assert port.read(0.01) == b""


async def test_a_welded_relay_is_noticed_when_it_is_switched_off():
    rig = Rig("[board]\nkind='sim'\n[devices.pump]\nkind='relay'\npin=17")
    async with rig:
        await rig.board.write("pump", True)
        rig.sim.stick(17, True)
        with pytest.raises(ReadbackFailed, match="pump: off was written, but it shows on on"):
            await rig.board.write("pump", False)
        assert (await rig.board.read("pump")).values == {"on": True}
        assert "off was written, but it shows on on" in rig.board.device("pump").fault
        rig.sim.stick(17, None)
        await rig.pass_time(1)
        await rig.until(lambda: rig.board.device("pump").fault == "")


async def test_a_feedback_contact_can_watch_a_relay():
    rig = Rig(
        "[board]\nkind='sim'\n[devices.pump]\nkind='relay'\npin=17\n"
        "[devices.flow]\nkind='contact'\npin=27\npull='down'\ndebounce=0"
    )
    rig.sim.tie(17, 27)
    async with rig:
        await rig.board.write("pump", True)
        await rig.until(lambda: rig.memory.states("flow", "closed")[-1:] == [True])
