"""What a config of devices may say: every mistake is an error with its key, found before any hardware is touched."""

from __future__ import annotations

import pytest

from zeroclawd.board.board import DeviceBoard, open_hardware
from zeroclawd.board.hardware import HardwareError
from zeroclawd.board.kinds import driver_of, kinds
from zeroclawd.board.plan import plan_devices
from zeroclawd.config import parse
from zeroclawd.errors import ConfigError


def refused(text: str) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        plan_devices(parse(text).config)
    return caught.value


@pytest.mark.parametrize("pin", ["0", "1"])
def test_the_pins_of_the_identification_eeprom_are_refused_with_the_reason(pin):
    error = refused(f"[devices.pump]\nkind='relay'\npin={pin}")
    assert (error.key, "EEPROM" in error.reason) == ("devices.pump.pin", True)


@pytest.mark.parametrize("pin", ["28", "40", "-1", "17.0", "true", '"GPIO17"', '"17"'])
def test_only_numbers_of_header_pins_are_pins(pin):
    assert refused(f"[devices.pump]\nkind='relay'\npin={pin}").key == "devices.pump.pin"


@pytest.mark.parametrize(
    ("text", "key", "reason"),
    [
        ("kind='relais'\npin=5", "kind", "did you mean 'relay'?"),
        ("kind='relay'", "pin", "is needed and missing"),
        ("kind='relay'\npin=5\nactive_lo=true", "active_lo", "did you mean 'active_low'?"),
        ("kind='relay'\npin=5\nsafe_state='half'", "safe_state", "takes true or false"),
        ("kind='relay'\npin=5\nsafe_state='on'\nmax_on='5s'", "max_on", "because the safe state is on"),
        ("kind='relay'\npin=5\nmax_on=0", "max_on", "must be more than 0"),
        ("kind='relay'\npin=5\ninterlocks=['tank.']", "interlocks", "is not an interlock"),
        ("kind='relay'\npin=5\ninterlocks=['tank.full']", "interlocks", "there is no device 'tank'"),
        ("kind='relay'\npin=5\ninterlocks=['not x.on']", "interlocks", "its own interlock"),
        ("kind='relay'\npin=5\ninterlocks=['other.value']", "interlocks", "there is no other.value; there is other.on"),
        ("kind='led'\npin=5\nfrequency=0", "frequency", "is 1 to 10000 Hz"),
        ("kind='led'\npin=5\nsafe_state=2", "safe_state", "takes 0 to 1"),
        ("kind='contact'\npin=5\nmax_on='5s'", "max_on", "a contact is not switched"),
        ("kind='contact'\npin=5\nsafe_state='off'", "safe_state", "a contact is not switched"),
        ("kind='contact'\npin=5\npull='sideways'", "pull", "Invalid enum value"),
        ("kind='contact'\npin=5\npull='none'", "active_low", "say whether closed is low"),
        ("kind='contact'\npin=5\ndebounce='soon'", "debounce", "a duration is"),
        ("kind='bme280'\naddress=0x10", "address", "has 0x76 or 0x77"),
        ("kind='bme280'\nbus=-1", "bus", "numbered from 0"),
        ("kind='ds18b20'\nsensor='../../etc'", "sensor", "is not an id"),
        ("kind='i2c_register'\naddress=0x03\nregister=0", "address", "0x08 to 0x77"),
        ("kind='i2c_register'\naddress=0x48\nregister=256", "register", "0 to 0xff"),
        ("kind='i2c_register'\naddress=0x48\nregister=0\nwidth=12", "width", "Invalid enum value 12"),
        ("kind='i2c_register'\naddress=0x48\nregister=0\nscale=0", "scale", "cannot be 0"),
        ("kind='i2c_register'\naddress=0x48\nregister=0\nwritable=true", "range", "needs the range"),
        ("kind='i2c_register'\naddress=0x48\nregister=0\nrange=[5,1]", "range", "low below high"),
        ("kind='i2c_register'\naddress=0x48\nregister=0\nwritable=true\nrange=[0,300]", "range", "does not fit"),
        ("kind='i2c_register'\naddress=0x48\nregister=0\nsafe_state=1", "safe_state", "cannot be written"),
        (
            "kind='i2c_register'\naddress=0x48\nregister=0\nwritable=true\nrange=[0,9]\nmax_on=5",
            "max_on",
            "needs a safe_state",
        ),
        ("kind='serial_line'\nquery='?'", "port", "either by `port` or by `usb`"),
        ("kind='serial_line'\nport='/dev/x'", "query", "needs the line to ask with"),
        ("kind='serial_line'\nusb='arduino'\nquery='?'", "usb", "vendor:product"),
        ("kind='serial_line'\nport='/dev/x'\nquery='?'\npattern='('", "pattern", "no regular expression"),
        ("kind='serial_line'\nport='/dev/x'\nquery='?'\nsend='SET'", "send", "has {value}"),
        ("kind='serial_line'\nport='/dev/x'\nquery='?'\nsend='S {value}'", "send", "either `range` or `choices`"),
        ("kind='serial_line'\nport='/dev/x'\nquery='?'\nacknowledge='OK'", "acknowledge", "`send` is missing"),
        ("kind='serial_line'\nport='/dev/x'\nquery='?'\ntimeout='5m'", "timeout", "at most 30 s"),
        ("kind='serial_line'\nport='/dev/x'\nquery='?'\nmax_line=0", "max_line", "1 to 65536"),
        ("kind='serial_line'\nport='/dev/x'\nquery='?'\nterminator=''", "terminator", "cannot be empty"),
    ],
)
def test_a_mistake_is_an_error_with_its_key(text, key, reason):
    error = refused(f"[devices.x]\n{text}\n[devices.other]\nkind='relay'\npin=6")
    assert error.key == f"devices.x.{key}"
    assert reason in error.reason


@pytest.mark.parametrize(
    ("one", "other", "thing"),
    [
        ("kind='relay'\npin=17", "kind='contact'\npin=17", "pin 17 belongs to one already"),
        ("kind='bme280'", "kind='relay'\npin=2", "pin 2 belongs to I2C bus 1 already"),
        ("kind='relay'\npin=3", "kind='bme280'", "pin 3 belongs to one already"),
        ("kind='bme280'", "kind='bme280'", "0x76 on I2C bus 1 belongs to one already"),
        (
            "kind='serial_line'\nport='/dev/x'\nquery='?'",
            "kind='serial_line'\nport='/dev/x'\nmode='stream'",
            "serial port /dev/x belongs to one already",
        ),
    ],
)
def test_two_devices_cannot_have_the_same_thing(one, other, thing):
    error = refused(f"[devices.one]\n{one}\n[devices.other]\n{other}")
    assert (error.key, error.reason) == ("devices.other", thing)


def test_several_chips_share_a_bus_and_several_devices_a_chip():
    text = "[devices.air]\nkind='bme280'\n[devices.room]\nkind='bme280'\naddress=0x77\n" + "".join(
        f"[devices.r{number}]\nkind='i2c_register'\naddress=0x48\nregister=1\n" for number in (1, 2)
    )
    assert [device.name for device in plan_devices(parse(text).config)] == ["air", "room", "r1", "r2"]


def test_the_emergency_stop_has_its_pin_for_itself():
    error = refused("[board]\nestop_pin=17\n[devices.pump]\nkind='relay'\npin=17")
    assert error.reason == "pin 17 belongs to the emergency stop already"
    assert refused("[board]\nestop_pin=1").key == "board.estop_pin"


def test_an_error_finds_its_line():
    loaded = parse("[devices.pump]\nkind = 'relay'\npin = 17\nactiv_low = true\n", "board.toml")
    with pytest.raises(ConfigError) as caught:
        plan_devices(loaded.config)
    assert str(loaded.locate(caught.value)).startswith("board.toml:4: devices.pump.activ_low: unknown key")


def test_every_file_of_the_folder_is_a_kind():
    assert kinds() == ["bme280", "button", "contact", "ds18b20", "i2c_register", "led", "relay", "serial_line"]
    for kind in kinds():
        assert driver_of(kind).Options.__doc__


def test_the_plan_touches_nothing_and_reads_like_a_list():
    lines = DeviceBoard.plan(
        parse(
            "[board]\nkind='pi'\nestop_pin=26\n[devices.pump]\nkind='relay'\npin=17\nmax_on='10m'\n"
            "interlocks=['not tank.closed']\n[devices.tank]\nkind='contact'\npin=27\n[devices.air]\nkind='bme280'"
        ).config
    )
    assert lines == [
        "board: pi",
        "emergency stop: engaged while pin 26 is low",
        "pump: relay on pin 17; safe state off; on for at most 10 min; only while not tank.closed",
        "tank: contact on pin 27",
        "air: bme280 on 0x76 on I2C bus 1",
    ]


def test_auto_without_a_chip_says_so_and_names_the_simulation(monkeypatch):
    monkeypatch.setattr("zeroclawd.board.chips.list_chips", lambda folder="/dev": [])
    with pytest.raises(HardwareError, match="there is no GPIO chip of a Raspberry Pi; chips here: none") as caught:
        open_hardware(parse("[board]\nkind='auto'").config)
    assert 'kind = "sim"' in caught.value.hint
