"""Every level that is driven, from the claim on: an active-low relay must not pulse, neither at boot nor at the end."""

from __future__ import annotations

import os
from typing import Any

import pytest

from tests.board.rig import Rig
from zeroclawd.board.chips import Chip
from zeroclawd.board.hardware import HardwareError, Pull
from zeroclawd.board.pi import PiHardware

CONFIG = """
[board]
kind = "sim"
[devices.door]
kind = "relay"
pin = 17
active_low = true
[devices.pump]
kind = "relay"
pin = 18
[devices.fan]
kind = "relay"
pin = 19
active_low = true
safe_state = "on"
[devices.lamp]
kind = "led"
pin = 22
active_low = true
"""


async def test_no_line_ever_leaves_its_safe_level_unasked():
    rig = Rig(CONFIG)
    async with rig:
        for name in rig.config.devices:
            await rig.board.read(name)
        await rig.board.engage("operator", "smoke")
        await rig.board.release("operator")
    assert {pin: set(rig.sim.driven(pin)) for pin in (17, 18, 19, 22)} == {17: {1}, 18: {0}, 19: {0}, 22: {1}}


class FakeChip:
    """What lgpio's functions do to the lines of a chip, with everything that is driven written down."""

    def __init__(self) -> None:
        self.log: list[tuple[Any, ...]] = []
        self.outputs: set[int] = set()
        self.levels: dict[int, int] = {}
        self.claimed: set[int] = set()
        self.open = False
        self.failure: Exception | None = None
        self.callbacks: dict[int, Any] = {}

    def install(self, monkeypatch: pytest.MonkeyPatch, module: Any) -> None:
        for name in [name for name in dir(self) if name.startswith(("gpio", "tx_"))]:
            monkeypatch.setattr(module, name, getattr(self, name))
        monkeypatch.setattr(module, "callback", self.listen)

    def gpiochip_open(self, _number: int) -> int:
        self.open = True
        return 7

    def gpiochip_close(self, _handle: int) -> None:
        self.open = False
        self.claimed.clear()

    def gpio_claim_input(self, _handle: int, gpio: int, _flags: int = 0) -> None:
        self._fail()
        self.claimed.add(gpio)
        self.outputs.discard(gpio)
        self.log.append(("input", gpio))

    def gpio_claim_output(self, _handle: int, gpio: int, level: int = 0, _flags: int = 0) -> None:
        self._fail()
        self.claimed.add(gpio)
        self.outputs.add(gpio)
        self.gpio_write(_handle, gpio, level)

    def gpio_claim_alert(self, _handle: int, gpio: int, _edges: int, _flags: int = 0) -> None:
        self.claimed.add(gpio)

    def gpio_free(self, _handle: int, gpio: int) -> None:
        self.claimed.discard(gpio)

    def gpio_write(self, _handle: int, gpio: int, level: int) -> None:
        self._fail()
        self.levels[gpio] = int(level)
        self.log.append(("drive", gpio, int(level)))

    def gpio_read(self, _handle: int, gpio: int) -> int:
        self._fail()
        return self.levels.get(gpio, 0)

    def gpio_get_mode(self, _handle: int, gpio: int) -> int:
        return 2 if gpio in self.outputs else 0

    def tx_pwm(self, _handle: int, gpio: int, _frequency: float, duty: float) -> None:
        self.log.append(("drive", gpio, duty / 100))

    def listen(self, _handle: int, gpio: int, _edges: int, function: Any) -> Any:
        self.callbacks[gpio] = function

        class Callback:
            def cancel(self) -> None:
                pass

        return Callback()

    def driven(self, gpio: int) -> list[float]:
        return [entry[2] for entry in self.log if entry[:2] == ("drive", gpio)]

    def _fail(self) -> None:
        if self.failure is not None:
            raise self.failure


@pytest.fixture
def lgpio(monkeypatch, tmp_path):
    monkeypatch.setenv("LG_WD", os.environ.get("LG_WD", str(tmp_path)))
    return pytest.importorskip("lgpio")


@pytest.fixture
def chip(monkeypatch, lgpio):
    chip = FakeChip()
    chip.install(monkeypatch, lgpio)
    monkeypatch.setattr("gpiozero.pins.local.get_pi_revision", lambda: 0x902120)
    monkeypatch.setattr("zeroclawd.board.pi.list_chips", lambda: [Chip(0, "pinctrl-bcm2835", 54)])
    return chip


@pytest.fixture
def hardware(chip):
    hardware = PiHardware()
    yield hardware
    chip.failure = None
    hardware.close()


@pytest.mark.parametrize("high", [True, False])
def test_the_first_level_of_a_claimed_output_is_the_asked_one(hardware, chip, high):
    line = hardware.output(17, high=high)
    assert chip.driven(17) == [int(high)]
    line.set(not high)
    assert line.get() is not high
    assert chip.driven(17) == [int(high), int(not high)]


def test_the_stock_pin_of_gpiozero_drives_low_first(chip):
    """Why there is a pin class of our own (gpiozero 2.0.1); if this fails one day, it can go."""
    from gpiozero.pins.lgpio import LGPIOFactory

    factory = LGPIOFactory(chip=0)
    factory.pin(17).output_with_state(True)
    assert chip.driven(17) == [0, 1]
    factory.close()


def test_closing_changes_no_level_and_frees_the_lines(hardware, chip):
    hardware.output(17, high=True)
    hardware.input(27, pull=Pull.UP, changed=lambda _level: None)
    before = list(chip.log)
    hardware.close()
    assert chip.log == before
    assert not chip.claimed
    assert not chip.open


def test_pwm_starts_from_the_steady_level(hardware, chip):
    line = hardware.pwm(22, duty=1.0, frequency=100)
    assert set(chip.driven(22)) == {1}
    line.set(0.25)
    assert chip.driven(22)[-2:] == [1, 0.25]
    assert set(chip.driven(22)) == {1, 0.25}
    assert line.get() == 0.25
    line.set(0.29)
    assert line.get() == 0.29
    line.set(1.0)
    assert chip.driven(22)[-1] == 1
    assert line.get() == 1


def test_an_input_tells_both_edges(hardware, chip):
    levels = []
    line = hardware.input(27, pull=Pull.UP, changed=levels.append)
    assert chip.driven(27) == []
    chip.levels[27] = 1
    assert line.get() is True
    chip.callbacks[27](0, 27, 0, 123)
    chip.callbacks[27](0, 27, 1, 456)
    assert levels == [False, True]


def test_a_busy_line_is_named_and_the_others_work(hardware, chip, lgpio):
    hardware.output(18, high=False)
    chip.failure = lgpio.error("GPIO busy")
    with pytest.raises(HardwareError, match="line 17 is in use, by another process or a kernel driver") as caught:
        hardware.output(17, high=True)
    assert "gpioinfo" in caught.value.hint
    chip.failure = None
    hardware.output(17, high=True)


@pytest.mark.parametrize("text", ["bad lineinfo IOCTL", "bad GPIO read"])
def test_a_chip_that_went_away_is_lost(hardware, chip, lgpio, text):
    line = hardware.output(18, high=False)
    chip.failure = lgpio.error(text)
    with pytest.raises(HardwareError, match=r"line 18: .*must be restarted") as caught:
        line.get()
    assert caught.value.lost


def test_a_board_that_is_no_pi_says_so(monkeypatch, chip):
    from gpiozero import PinUnknownPi

    def unknown():
        raise PinUnknownPi("unable to locate Pi revision in /proc/device-tree or /proc/cpuinfo")

    monkeypatch.setattr("gpiozero.pins.local.get_pi_revision", unknown)
    with pytest.raises(HardwareError, match="cannot tell which Raspberry Pi this is") as caught:
        PiHardware().output(17, high=True)
    assert "kind = 'sim'" in caught.value.hint


def test_a_unit_that_hides_the_revision_is_told(monkeypatch, chip):
    def hidden():
        raise FileNotFoundError(2, "No such file or directory", "/proc/cpuinfo")

    monkeypatch.setattr("gpiozero.pins.local.get_pi_revision", hidden)
    with pytest.raises(HardwareError) as caught:
        PiHardware().output(17, high=True)
    assert "ProcSubset=pid" in caught.value.hint


def test_lgpio_gets_a_folder_for_its_fifo(monkeypatch, tmp_path):
    from zeroclawd.board.pi import _give_lgpio_a_folder

    monkeypatch.delenv("LG_WD", raising=False)
    monkeypatch.setenv("RUNTIME_DIRECTORY", f"{tmp_path}:/run/other")
    _give_lgpio_a_folder()
    assert os.environ["LG_WD"] == str(tmp_path)
    monkeypatch.delenv("LG_WD")
    monkeypatch.delenv("RUNTIME_DIRECTORY")
    _give_lgpio_a_folder()
    assert os.path.isdir(os.environ["LG_WD"])
    assert os.environ["LG_WD"] != os.getcwd()
    monkeypatch.setenv("LG_WD", "/kept")
    _give_lgpio_a_folder()
    assert os.environ["LG_WD"] == "/kept"
