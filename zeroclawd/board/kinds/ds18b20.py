"""A DS18B20 thermometer on the 1-wire bus, through the kernel's w1_therm driver."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from zeroclawd.board.driver import Driver, Options, Sample
from zeroclawd.board.hardware import Hardware, HardwareError, OneWire
from zeroclawd.errors import ConfigError
from zeroclawd.tool import Value

if TYPE_CHECKING:
    from zeroclawd.board.sim import SimHardware

# Analog Devices DS18B20 data sheet 19-7487, table 1 (p. 6): +85 °C is also what the register holds after power-on.
_POWER_ON = 85.0
_READS = 3
_RANGE = (-55.0, 125.0)


class Ds18b20Options(Options, frozen=True):
    """`sensor` is the id that `ls /sys/bus/w1/devices` shows, such as 28-0316a2795bff."""

    sensor: str


class Ds18b20(Driver):
    """Degrees Celsius. A measurement takes up to 0.75 s."""

    Options = Ds18b20Options
    patience = 3.0

    def __init__(self, options: Ds18b20Options, safe: Value | None) -> None:
        del safe
        if not re.fullmatch(r"28-[0-9a-f]{12}", options.sensor):
            raise ConfigError(f"{options.sensor!r} is not an id such as 28-0316a2795bff", key="sensor")
        self._sensor = options.sensor
        self._wire: OneWire | None = None
        self.resource = "1-wire"
        self.units = {"temperature": "°C"}

    def claims(self) -> frozenset[str]:
        """Its sensor."""
        return frozenset({f"sensor {self._sensor}"})

    def open(self, hardware: Hardware) -> None:
        """Find the bus and see that the sensor answers."""
        wire = hardware.one_wire()
        wire.read(self._sensor)
        self._wire = wire

    def read(self) -> Sample:
        """Measure again while the sensor shows its power-on value; if it stays at that, say so."""
        assert self._wire is not None
        celsius = _POWER_ON
        for _attempt in range(_READS):
            celsius = parse(self._wire.read(self._sensor), self._sensor)
            if celsius != _POWER_ON:
                break
        return Sample({"temperature": celsius}, f"1-wire sensor {self._sensor}, checksum good", _doubts(celsius))

    def simulate(self, sim: SimHardware) -> None:
        """21.437 °C."""
        sim.onewire.set(self._sensor, text_of(21_437))


def parse(text: str, sensor: str) -> float:
    """Degrees Celsius from the kernel's w1_slave text; HardwareError if it is empty, short or its checksum is bad."""
    lines = text.splitlines()
    if not lines:
        raise HardwareError(
            f"1-wire sensor {sensor} gave nothing: it is missing or its checksum is bad", transient=True
        )
    if not lines[0].rstrip().endswith("YES"):
        raise HardwareError(f"1-wire sensor {sensor}: the checksum is bad", transient=True)
    match = re.search(r"\bt=(-?\d+)\s*$", lines[1]) if len(lines) > 1 else None
    if match is None:
        raise HardwareError(f"1-wire sensor {sensor} gave only part of a measurement", transient=True)
    return int(match[1]) / 1000


def text_of(thousandths: int) -> str:
    """What the kernel shows of a good measurement, for simulated sensors."""
    raw = round(thousandths * 16 / 1000) & 0xFFFF
    scratchpad = f"{raw & 0xFF:02x} {raw >> 8:02x} 4b 46 7f ff 0c 10 1c"
    return f"{scratchpad} : crc=1c YES\n{scratchpad} t={thousandths}\n"


def _doubts(celsius: float) -> tuple[str, ...]:
    if celsius == _POWER_ON:
        return ("implausible: exactly 85 °C is what this sensor shows before its first measurement",)
    if not _RANGE[0] <= celsius <= _RANGE[1]:
        return (f"implausible: the sensor measures {_RANGE[0]:g} to {_RANGE[1]:g} °C",)
    return ()


KIND = Ds18b20
