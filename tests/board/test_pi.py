"""The real adapter's own parts: which chip, what an errno means, serial ports on a pseudo-terminal, 1-wire in a folder."""

from __future__ import annotations

import contextlib
import os
import threading
from types import SimpleNamespace

import pytest

from zeroclawd.board import chips
from zeroclawd.board.chips import Chip, choose_chip, list_chips
from zeroclawd.board.hardware import HardwareError, PortSettings, Pull
from zeroclawd.board.pi import PiHardware

PI4 = [Chip(0, "pinctrl-bcm2711", 58), Chip(1, "raspberrypi-exp-gpio", 8)]
PI5 = [Chip(4, "gpio-brcmstb@107d508500", 32), Chip(10, "pinctrl-rp1", 54), Chip(11, "gpio-brcmstb@107d517c00", 17)]


@pytest.mark.parametrize(
    ("found", "wanted", "number"),
    [
        (PI4, "", 0),
        (PI5, "", 10),
        (PI5, "gpiochip4", 4),
        (PI5, "/dev/gpiochip11", 11),
        (PI4, "raspberrypi-exp-gpio", 1),
    ],
)
def test_the_chip_is_chosen_by_label_unless_the_config_names_one(found, wanted, number):
    assert choose_chip(found, wanted).number == number


def test_another_chip_is_refused_and_not_driven():
    with pytest.raises(HardwareError, match=r"chips here: gpiochip0 \(pl061\)"):
        choose_chip([Chip(0, "pl061", 8)])
    with pytest.raises(HardwareError, match="there is no GPIO chip 'gpiochip7'"):
        choose_chip(PI5, "gpiochip7")


def fake_ioctl(labels):
    def ioctl(descriptor, request, buffer):
        assert request == 0x8044B401
        assert len(buffer) == 68
        name = os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}"))
        label = labels[name]
        if isinstance(label, Exception):
            raise label
        return name.encode().ljust(32, b"\0") + label.encode().ljust(32, b"\0") + (54).to_bytes(4, "little")

    return ioctl


def test_chips_are_asked_for_their_labels(monkeypatch, tmp_path):
    for number in (10, 11):
        (tmp_path / f"gpiochip{number}").touch()
    monkeypatch.setattr(chips.fcntl, "ioctl", fake_ioctl({"gpiochip10": "pinctrl-rp1", "gpiochip11": OSError(25, "")}))
    assert list_chips(str(tmp_path)) == [Chip(10, "pinctrl-rp1", 54)]


def test_a_chip_that_may_not_be_opened_says_which_group(monkeypatch, tmp_path):
    (tmp_path / "gpiochip0").touch()
    monkeypatch.setattr(chips.fcntl, "ioctl", fake_ioctl({"gpiochip0": PermissionError(13, "")}))
    with pytest.raises(HardwareError, match="gpiochip0 may not be opened") as caught:
        list_chips(str(tmp_path))
    assert "group gpio" in caught.value.hint


@pytest.fixture
def mock_pi():
    from gpiozero.pins.mock import MockFactory, MockPWMPin

    return PiHardware(factory=MockFactory(pin_class=MockPWMPin))


def test_a_board_without_the_pin_says_so():
    from gpiozero.pins.mock import MockFactory

    first_model = PiHardware(factory=MockFactory(revision="0002"))  # its header ends at BCM 25
    with pytest.raises(HardwareError, match="this board has no line 26 on its header"):
        first_model.output(26, high=False)


def test_a_pin_with_a_resistor_of_its_own_says_so(mock_pi):
    mock_pi.input(2, pull=Pull.UP, changed=lambda _level: None)
    with pytest.raises(HardwareError, match="line 3 has a resistor of its own"):
        mock_pi.input(3, pull=Pull.DOWN, changed=lambda _level: None)


# I2C


class Bus:
    def __init__(self, error=None, data=b""):
        self.error, self.data, self.lengths = error, data, []

    def read_i2c_block_data(self, _address, _register, length):
        self.lengths.append(length)
        if self.error:
            raise self.error
        return list(self.data)

    def write_i2c_block_data(self, _address, _register, _data):
        raise self.error

    def close(self):
        raise OSError(9, "closed already")


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (OSError(121, "Remote I/O error"), "nothing answers at 0x48 on I2C bus 1"),
        (OSError(6, "No such device or address"), "nothing answers at 0x48 on I2C bus 1"),
        (OSError(19, "No such device"), "nothing answers at 0x48 on I2C bus 1"),
        (OSError(5, "Input/output error"), "0x48 on I2C bus 1: Input/output error"),
        (OSError(110, "Connection timed out"), "0x48 on I2C bus 1: Connection timed out"),
    ],
)
def test_an_errno_of_a_transfer_is_said_plainly_and_may_pass(error, text):
    bus = PiHardware(open_bus=lambda _number: Bus(error)).i2c(1)
    for transfer in (lambda: bus.read(0x48, 0, 1), lambda: bus.write(0x48, 0, b"\0")):
        with pytest.raises(HardwareError) as caught:
            transfer()
        assert caught.value.text == text
        assert caught.value.transient


@pytest.mark.parametrize(("error", "text"), [(2, "there is no I2C bus 3"), (13, "I2C bus 3 may not be opened")])
def test_a_bus_that_cannot_be_opened_says_why(error, text):
    def opening(number):
        raise OSError(error, os.strerror(error), f"/dev/i2c-{number}")

    with pytest.raises(HardwareError) as caught:
        PiHardware(open_bus=opening).i2c(3)
    assert caught.value.text == text


@pytest.mark.parametrize("length", [0, -1, 33, 64])
def test_a_transfer_is_never_cut_silently(length):
    fake = Bus(data=b"\0" * 32)
    with pytest.raises(HardwareError, match="1 to 32 bytes"):
        PiHardware(open_bus=lambda _number: fake).i2c(1).read(0x48, 0, length)
    assert fake.lengths == []


def test_a_transfer_that_came_short_is_an_error():
    with pytest.raises(HardwareError, match="sent 3 of 8 bytes"):
        PiHardware(open_bus=lambda _number: Bus(data=b"abc")).i2c(1).read(0x48, 0, 8)


def test_a_bus_is_opened_once_and_closing_ignores_what_is_closed():
    opened = []
    hardware = PiHardware(open_bus=lambda number: opened.append(number) or Bus())
    assert hardware.i2c(1) is hardware.i2c(1)
    assert opened == [1]
    hardware.close()


# 1-wire


def test_a_missing_sensor_names_those_that_are_there(tmp_path):
    (tmp_path / "28-000000000001").mkdir()
    (tmp_path / "28-000000000001" / "w1_slave").write_text("text")
    (tmp_path / "w1_bus_master1").mkdir()
    wire = PiHardware(one_wire_folder=str(tmp_path)).one_wire()
    assert wire.sensors() == ["28-000000000001"]
    assert wire.read("28-000000000001") == "text"
    with pytest.raises(HardwareError, match="no 1-wire sensor 28-000000000002; sensors here: 28-000000000001"):
        wire.read("28-000000000002")


# Serial


@pytest.fixture
def terminal():
    master, slave = os.openpty()
    yield SimpleNamespace(master=master, path=os.ttyname(slave))
    for descriptor in (master, slave):
        with contextlib.suppress(OSError):
            os.close(descriptor)


def test_a_port_carries_bytes_both_ways(terminal):
    port = PiHardware().serial(PortSettings(path=terminal.path))
    os.write(terminal.master, b"T=21.5\n")
    assert port.read(5) == b"T=21.5\n"
    assert port.read(0.01) == b""
    port.write(b"SET 3\n")
    assert os.read(terminal.master, 100) == b"SET 3\n"
    os.write(terminal.master, b"old")
    assert port.read(5)
    os.write(terminal.master, b"older")
    threading.Event().wait(0.05)
    port.discard()
    assert port.read(0.01) == b""
    port.close()
    port.close()


def test_a_port_whose_adapter_went_away_fails_at_once(terminal):
    port = PiHardware().serial(PortSettings(path=terminal.path))
    os.close(terminal.master)
    for use in (lambda: port.read(5), port.discard, lambda: port.write(b"?")):
        with pytest.raises(HardwareError, match=f"serial port {terminal.path}"):
            use()
    port.close()


def test_a_port_that_moved_is_not_written_to(terminal, tmp_path):
    other_master, other_slave = os.openpty()
    link = tmp_path / "by-id"
    link.symlink_to(terminal.path)
    port = PiHardware().serial(PortSettings(path=str(link)))
    link.unlink()
    link.symlink_to(os.ttyname(other_slave))
    with pytest.raises(HardwareError, match="has moved to another device node"):
        port.write(b"open the valve\n")
    port.close()
    again = PiHardware().serial(PortSettings(path=str(link)))
    again.write(b"open the valve\n")
    assert os.read(other_master, 100) == b"open the valve\n"
    again.close()
    os.close(other_master)
    os.close(other_slave)


def test_a_port_that_is_not_there_says_so():
    with pytest.raises(HardwareError, match="serial port /dev/ttyNone is not there") as caught:
        PiHardware().serial(PortSettings(path="/dev/ttyNone"))
    assert "/dev/serial/by-id" in caught.value.hint


def test_dtr_and_rts_are_set_before_the_port_opens(monkeypatch):
    said = []

    class Port:
        def __setattr__(self, name, value):
            said.append((name, value))

        def open(self):
            said.append("open")

    monkeypatch.setattr("serial.serial_for_url", lambda _node, **settings: said.append(settings) or Port())
    PiHardware().serial(PortSettings(path="/dev/ttyX", baud=115200, dtr=False, rts=False))
    assert said[0] == {"do_not_open": True, "baudrate": 115200, "timeout": 0, "write_timeout": 2}
    assert said[1:] == [("exclusive", True), ("dtr", False), ("rts", False), "open"]


ADAPTERS = [
    SimpleNamespace(device="/dev/ttyUSB0", vid=0x1A86, pid=0x7523, serial_number=None),
    SimpleNamespace(device="/dev/ttyACM0", vid=0x2341, pid=0x0043, serial_number="857353138"),
    SimpleNamespace(device="/dev/ttyACM1", vid=0x2341, pid=0x0043, serial_number="112233445"),
    SimpleNamespace(device="/dev/ttyS0", vid=None, pid=None, serial_number=None),
]


@pytest.mark.parametrize(
    ("usb", "node"),
    [("1a86:7523", "/dev/ttyUSB0"), ("2341:0043:857353138", "/dev/ttyACM0"), ("2341:0043:112233445", "/dev/ttyACM1")],
)
def test_an_adapter_is_found_by_its_usb_identity(monkeypatch, usb, node):
    opened = []
    monkeypatch.setattr("serial.tools.list_ports.comports", lambda: ADAPTERS)
    PiHardware(open_port=lambda node, _settings: opened.append(node)).serial(PortSettings(usb=usb))
    assert opened == [node]


@pytest.mark.parametrize(
    ("usb", "text"),
    [("2341:0043", "several adapters are USB 2341:0043"), ("dead:beef", "no adapter with USB identity dead:beef")],
)
def test_an_adapter_that_is_missing_or_not_unique_is_an_error(monkeypatch, usb, text):
    monkeypatch.setattr("serial.tools.list_ports.comports", lambda: ADAPTERS)
    with pytest.raises(HardwareError, match=text):
        PiHardware().serial(PortSettings(usb=usb))


def test_what_is_known_of_the_board_is_told_and_the_rest_left_out():
    about = PiHardware().about()
    assert about["uptime_seconds"] > 0
    assert about["memory_total_mb"] >= about["memory_available_mb"] > 0
