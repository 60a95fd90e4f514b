"""Which hardware a config gets, and the safe states that are driven when no board is left."""

from __future__ import annotations

import threading

import pytest

from tests.board.rig import Rig
from zeroclawd.board.board import drive_safe_states, open_hardware
from zeroclawd.board.chips import Chip
from zeroclawd.board.hardware import HardwareError
from zeroclawd.board.sim import SimHardware
from zeroclawd.config import parse
from zeroclawd.errors import ConfigError

CONFIG = """
[board]
kind = "{kind}"
timeout = "100ms"
[devices.pump]
kind = "relay"
pin = 17
active_low = true
[devices.fan]
kind = "relay"
pin = 18
safe_state = "on"
[devices.lamp]
kind = "led"
pin = 22
[devices.dac]
kind = "i2c_register"
address = 0x48
register = 2
writable = true
range = [0, 100]
safe_state = 5
[devices.free]
kind = "i2c_register"
address = 0x48
register = 3
writable = true
range = [0, 100]
[devices.air]
kind = "bme280"
"""


def config(kind: str = "pi"):
    return parse(CONFIG.format(kind=kind)).config


def test_a_simulated_board_has_its_devices_in_place():
    hardware = open_hardware(config("sim"))
    assert isinstance(hardware, SimHardware)
    assert hardware.chip(1, 0x76).read(0xD0, 1) == b"\x60"


def test_auto_is_the_pi_where_its_chip_exists(monkeypatch):
    monkeypatch.setattr("zeroclawd.board.chips.list_chips", lambda folder="/dev": [Chip(0, "pinctrl-rp1", 54)])
    assert open_hardware(config("auto")).kind == "pi"


def test_after_a_crash_every_safe_state_is_driven():
    sim = SimHardware()
    sim.chip(1, 0x48)
    lines = drive_safe_states(config(), sim)
    assert (sim.level(17), sim.level(18), sim.level(22)) == (True, True, False)
    assert sim.driven(17)[0] == 1
    assert sim.chip(1, 0x48).read(2, 2) == b"\x05\x00"
    assert [line.split(":")[0] for line in lines] == ["pump", "fan", "lamp", "dac"]
    assert lines[0] == "pump: off (line 17 reads high, active low)"


def test_after_a_crash_one_broken_device_does_not_keep_the_others():
    sim = SimHardware()
    sim.occupy(17)
    lines = drive_safe_states(config(), sim)
    assert lines[0] == "pump: NOT brought to off: line 17 is in use by another process"
    assert lines[3] == "dac: NOT brought to 5: nothing answers at 0x48 on I2C bus 1"
    assert sim.level(18) is True


def test_after_a_crash_a_hung_bus_costs_its_deadline():
    sim = SimHardware()
    sim.chip(1, 0x48)
    sim.bus(1).faults.hang()
    lines = drive_safe_states(config(), sim)
    assert "dac: NOT brought to 5: I2C bus 1 gave no answer within 0.1 s" in lines[3]
    sim.bus(1).faults.free()
    assert threading.active_count() < 50


def test_without_hardware_it_says_so_and_raises_nothing(monkeypatch):
    monkeypatch.setattr("zeroclawd.board.chips.list_chips", lambda folder="/dev": [])
    assert drive_safe_states(config("auto"))[0].startswith("no safe state could be driven: there is no GPIO chip")
    assert drive_safe_states(config("sim")) == ["the board is simulated: there is nothing to drive"]


def test_a_bad_config_is_still_an_error():
    with pytest.raises(ConfigError):
        drive_safe_states(parse("[devices.pump]\nkind='relay'\npin=99").config)


async def test_a_board_without_hardware_does_not_start(monkeypatch):
    def nothing(_config):
        raise HardwareError("there is no GPIO chip")

    rig = Rig(CONFIG.format(kind="auto"))
    rig.hardware = None
    board = rig.new_board()
    monkeypatch.setattr("zeroclawd.board.board.open_hardware", nothing)
    with pytest.raises(HardwareError, match="there is no GPIO chip"):
        await board.start()
    await board.stop("the start failed")
