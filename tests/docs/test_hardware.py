"""docs/hardware.md has every kind, every key and every rule in the words of the code."""

from __future__ import annotations

import re
import tomllib

import msgspec
import pytest

from tests.docs.pages import blocks, page, paragraph, prose, section, table, words
from zeroclawd.board.control import LONGEST_PULSE
from zeroclawd.board.driver import HEADER_PINS, OutputDriver
from zeroclawd.board.kinds import driver_of, kinds
from zeroclawd.board.plan import limits_in_words, plan_devices
from zeroclawd.board.safety import Limits, Switched, interlocked, longest_pulse, min_interval, min_off
from zeroclawd.board.sim import SimHardware
from zeroclawd.config import DeviceConfig, parse

PAGE = "docs/hardware.md"
ALL = [device for block in blocks(PAGE, "toml", "device") for device in plan_devices(parse(block.text).config)]


def test_the_kinds_are_all_there_and_no_other():
    assert set(re.findall(r"^### (\w+)$", section(PAGE, "Kinds"), re.MULTILINE)) == set(kinds())


@pytest.mark.parametrize("kind", kinds())
def test_every_key_of_a_kind_stands_in_its_section(kind: str):
    text = section(PAGE, kind)
    known = {field.name for field in msgspec.structs.fields(driver_of(kind).Options)}
    shown = {
        key
        for block in blocks(PAGE, "toml", "device")
        if block.text in text
        for device in tomllib.loads(block.text)["devices"].values()
        for key in device
    }
    common = {field.name for field in msgspec.structs.fields(DeviceConfig)}
    assert known - shown - set(words(text)) == set()
    assert shown - common <= known


@pytest.mark.parametrize("kind", kinds())
def test_what_a_kind_gives_is_said_with_its_units(kind: str):
    text = section(PAGE, kind)
    examples = [device for device in ALL if device.config.kind == kind]
    assert examples
    for name, unit in examples[0].driver.units.items():
        assert f"`{name}`" in text
        assert unit in text


@pytest.mark.parametrize("device", ALL, ids=lambda device: device.name)
def test_every_example_works_on_a_simulated_board(device):
    sim = SimHardware()
    device.driver.simulate(sim)
    device.driver.open(sim)
    if device.driver.units.get("text") is None:
        assert set(device.driver.read().values) == set(device.driver.units)
    if isinstance(device.driver, OutputDriver) and device.output is not None:
        device.driver.write(device.driver.accept(device.output.safe))


def test_keys_of_every_device_are_all_explained():
    explained = {key for row in table(section(PAGE, "Keys of every device")) for key in words(row[0])}
    assert explained == {field.name for field in msgspec.structs.fields(DeviceConfig)} - {"options"}


def test_the_rules_are_in_the_boards_own_words():
    said = {words(row[0])[0]: words(row[1])[0] for row in table(section(PAGE, "Rules below policy"))}
    text = """
        [devices.tank_float]
        kind = "contact"
        pin = 27
        [devices.pump]
        kind = "relay"
        pin = 17
        safe_state = "off"
        max_on = "10m"
        min_off = "30s"
        min_interval = "1s"
        interlocks = ["tank_float.closed"]
    """
    _, pump = plan_devices(parse(text).config)
    assert list(limits_in_words(pump)) == list(said.values())


def test_refusals_are_in_the_boards_own_words():
    text = prose(section(PAGE, "Rules below policy"))
    pump = next(device for device in ALL if device.name == "pump")
    heater = next(device for device in ALL if device.name == "heater")
    off = Switched.just_off(100.0)
    assert f"`{min_off(pump.limits, off, 118.0).text}`" in text
    assert min_interval(Limits(min_interval=1.0), off, 100.5).text.startswith("changes at most every 1 s; ")
    assert "`changes at most every 1 s; …`" in text
    assert f"`{longest_pulse(pump.limits, 1200).text}`" in text
    no = interlocked(heater.limits, lambda _device, _value: False).text
    assert f"`{no.replace('flow', 'tank_float')}`" in text
    assert LONGEST_PULSE == 3600


def test_pins_and_chips_are_as_the_code_has_them():
    from zeroclawd.board.chips import HEADER_LABELS

    text = page(PAGE)
    assert f"BCM numbers from {HEADER_PINS[0]} to {HEADER_PINS[-1]}" in text
    assert all(f"`{label}" in text for label in HEADER_LABELS)


def test_the_example_interlocks_are_rules():
    from zeroclawd.board.interlock import parse as rule

    for text in words(paragraph(PAGE, "**Interlocks** compare").partition(". A value")[0]):
        assert rule(text).names
