"""A Bosch BME280 (temperature, pressure, humidity) on I2C; a BMP280, which lacks humidity, works too.

Section and page numbers are those of the data sheet BST-BME280-DS002-15, revision 1.6.
"""

from __future__ import annotations

import struct
import time
from typing import TYPE_CHECKING

from zeroclawd.board.driver import Driver, Options, Sample, bus_claims, check_address, check_bus
from zeroclawd.board.hardware import Hardware, HardwareError, I2cBus
from zeroclawd.errors import ConfigError
from zeroclawd.frozen import dataclass
from zeroclawd.tool import Value

if TYPE_CHECKING:
    from zeroclawd.board.sim import SimHardware

# Registers: section 5.3, table 18, p. 26
_CALIBRATION, _ID, _HUMIDITY_CALIBRATION = 0x88, 0xD0, 0xE1
_CTRL_HUM, _STATUS, _CTRL_MEAS, _DATA = 0xF2, 0xF3, 0xF4, 0xF7

_WITH_HUMIDITY = {0x60: True, 0x58: False}
# One measurement at oversampling 1 takes at most 9.3 ms: appendix B, section 9.1, p. 51.
_MEASURING_SECONDS = 0.01
_ONCE = 0b001_001_01
_SKIPPED = 0x80000
_PLAUSIBLE = {"temperature": (-40.0, 85.0), "pressure": (300.0, 1100.0), "humidity": (0.0, 100.0)}


class Bme280Options(Options, frozen=True):
    """`address` is 0x76 or 0x77, after the level of the pin SDO."""

    address: int = 0x76
    bus: int = 1


@dataclass(frozen=True, slots=True)
class Raw:
    """What the converter gave: 20 bits for temperature and pressure, 16 for humidity."""

    temperature: int
    pressure: int
    humidity: int = 0

    @classmethod
    def unpack(cls, data: bytes) -> Raw:
        """From the registers 0xF7 to 0xFE (section 5.4.7 to 5.4.9, p. 30)."""
        pressure = data[0] << 12 | data[1] << 4 | data[2] >> 4
        temperature = data[3] << 12 | data[4] << 4 | data[5] >> 4
        return cls(temperature, pressure, data[6] << 8 | data[7])

    def pack(self) -> bytes:
        """As the registers 0xF7 to 0xFE hold it."""
        pressure, temperature = (self.pressure << 4).to_bytes(3, "big"), (self.temperature << 4).to_bytes(3, "big")
        return pressure + temperature + self.humidity.to_bytes(2, "big")


@dataclass(frozen=True, slots=True)
class Calibration:
    """The trimming values dig_T1.., dig_P1.. and dig_H1.. of one chip: section 4.2.2, table 16, p. 24."""

    t: tuple[int, int, int]
    p: tuple[int, int, int, int, int, int, int, int, int]
    h: tuple[int, int, int, int, int, int] | None = None

    @classmethod
    def unpack(cls, first: bytes, second: bytes | None) -> Calibration:
        """From the 26 bytes at 0x88 and, where there is humidity, the 7 bytes at 0xE1."""
        words = struct.unpack("<HhhHhhhhhhhh", first[:24])
        t, p = (words[0], words[1], words[2]), words[3:12]
        if second is None:
            return cls(t, p)
        h2, h3, high4, shared, high5, h6 = struct.unpack("<hBbBbb", second)
        return cls(t, p, (first[25], h2, h3, high4 << 4 | shared & 0x0F, high5 << 4 | shared >> 4, h6))

    def pack(self) -> tuple[bytes, bytes]:
        """As the registers hold it."""
        h1, h2, h3, h4, h5, h6 = self.h or (0, 0, 0, 0, 0, 0)
        first = struct.pack("<HhhHhhhhhhhh", *self.t, *self.p) + bytes([0, h1])
        return first, struct.pack("<hBbBbb", h2, h3, h4 >> 4, (h5 & 0x0F) << 4 | h4 & 0x0F, h5 >> 4, h6)

    def t_fine(self, raw: int) -> int:
        """The fine temperature that the other formulas need too: section 4.2.3, p. 25."""
        t1, t2, t3 = self.t
        linear = (((raw >> 3) - (t1 << 1)) * t2) >> 11
        square = (((((raw >> 4) - t1) ** 2) >> 12) * t3) >> 14
        return linear + square

    def temperature(self, t_fine: int) -> float:
        """Degrees Celsius in steps of 0.01: section 4.2.3, p. 25."""
        return ((t_fine * 5 + 128) >> 8) / 100

    def pressure(self, raw: int, t_fine: int) -> float:
        """Pascal, from the formula for 64-bit integers: section 4.2.3, p. 25. Its result has 8 fractional bits."""
        p1, p2, p3, p4, p5, p6, p7, p8, p9 = self.p
        fine = t_fine - 128000
        offset = fine * fine * p6 + ((fine * p5) << 17) + (p4 << 35)
        slope = ((fine * fine * p3) >> 8) + ((fine * p2) << 12)
        slope = (((1 << 47) + slope) * p1) >> 33
        if slope == 0:
            raise HardwareError("the chip's calibration is blank")
        pressure = (((1048576 - raw) << 31) - offset) * 3125 // slope
        square = (p9 * (pressure >> 13) * (pressure >> 13)) >> 25
        linear = (p8 * pressure) >> 19
        return (((pressure + square + linear) >> 8) + (p7 << 4)) / 256

    def humidity(self, raw: int, t_fine: int) -> float:
        """Percent of relative humidity: section 4.2.3, p. 25-26. The formula's result has 10 fractional bits."""
        assert self.h is not None
        h1, h2, h3, h4, h5, h6 = self.h
        fine = t_fine - 76800
        start = ((raw << 14) - (h4 << 20) - h5 * fine + 16384) >> 15
        slope = (((fine * h6) >> 10) * (((fine * h3) >> 11) + 32768)) >> 10
        humidity = start * (((slope + 2097152) * h2 + 8192) >> 14)
        humidity -= ((((humidity >> 15) * (humidity >> 15)) >> 7) * h1) >> 4
        return (min(max(humidity, 0), 419430400) >> 12) / 1024


class Bme280(Driver):
    """°C, hPa and %, measured once for each reading (forced mode); between readings the chip sleeps."""

    Options = Bme280Options

    def __init__(self, options: Bme280Options, safe: Value | None) -> None:
        del safe
        check_bus(options.bus)
        if check_address(options.address) not in (0x76, 0x77):
            raise ConfigError(f"a BME280 has 0x76 or 0x77, not 0x{options.address:02x}", key="address")
        self._bus_number = options.bus
        self._address = options.address
        self._bus: I2cBus | None = None
        self._calibration = Calibration((0, 0, 0), (0,) * 9)
        self.resource = f"I2C bus {options.bus}"
        self.units = {"temperature": "°C", "pressure": "hPa", "humidity": "%"}

    def claims(self) -> frozenset[str]:
        """Its address, and the pins of the bus."""
        return bus_claims(self._bus_number) | {f"0x{self._address:02x} on I2C bus {self._bus_number}"}

    def open(self, hardware: Hardware) -> None:
        """Ask the chip who it is and read its calibration."""
        bus = hardware.i2c(self._bus_number)
        chip = bus.read(self._address, _ID, 1)[0]
        if chip not in _WITH_HUMIDITY:
            raise HardwareError(
                f"the chip at 0x{self._address:02x} on I2C bus {self._bus_number} says that it is 0x{chip:02x}; "
                "a BME280 says 0x60, a BMP280 0x58"
            )
        second = bus.read(self._address, _HUMIDITY_CALIBRATION, 7) if _WITH_HUMIDITY[chip] else None
        self._calibration = Calibration.unpack(bus.read(self._address, _CALIBRATION, 26), second)
        self._bus = bus

    def read(self) -> Sample:
        """Measure once and compensate."""
        raw = self._measure()
        calibration = self._calibration
        fine = calibration.t_fine(raw.temperature)
        values = {
            "temperature": calibration.temperature(fine),
            "pressure": round(calibration.pressure(raw.pressure, fine) / 100, 2),
        }
        if calibration.h is not None:
            values["humidity"] = round(calibration.humidity(raw.humidity, fine), 1)
        how = f"0x{self._address:02x} on I2C bus {self._bus_number}, one measurement"
        return Sample(dict(values), how, tuple(_doubts(values)))

    def simulate(self, sim: SimHardware) -> None:
        """A chip with the trimming values and raw numbers of Bosch's worked example: 25.08 °C and 1006.53 hPa.

        The example is in the data sheet of the BMP280 (BST-BMP280-DS001, section 3.12); humidity is 45 %.
        """
        chip = sim.chip(self._bus_number, self._address)
        first, second = EXAMPLE.pack()
        for register, data in (
            (_ID, b"\x60"),
            (_CALIBRATION, first),
            (_HUMIDITY_CALIBRATION, second),
            (_DATA, EXAMPLE_RAW.pack()),
        ):
            chip.write(register, data)

    def _measure(self) -> Raw:
        """Forced mode: section 3.3.3, p. 15. The humidity setting takes effect with the other one: section 5.4.3, p. 27."""
        assert self._bus is not None
        self._bus.write(self._address, _CTRL_HUM, b"\x01")
        self._bus.write(self._address, _CTRL_MEAS, bytes([_ONCE]))
        time.sleep(_MEASURING_SECONDS)
        if self._bus.read(self._address, _STATUS, 1)[0] & 0b1000:
            time.sleep(_MEASURING_SECONDS)
        raw = Raw.unpack(self._bus.read(self._address, _DATA, 8))
        if raw.temperature == _SKIPPED or raw.pressure == _SKIPPED:
            raise HardwareError(
                f"the chip at 0x{self._address:02x} on I2C bus {self._bus_number} did not measure", transient=True
            )
        return raw


def _doubts(values: dict[str, float]) -> list[str]:
    units = {"temperature": "°C", "pressure": "hPa", "humidity": "%"}
    return [
        f"implausible: this chip measures {name} from {low:g} to {high:g} {units[name]}"
        for name, (low, high) in _PLAUSIBLE.items()
        if name in values and not low <= values[name] <= high
    ]


EXAMPLE = Calibration(
    t=(27504, 26435, -1000),
    p=(36477, -10685, 3024, 2855, 140, -7, 15500, -14600, 6000),
    h=(75, 362, 0, 313, 50, 30),
)
EXAMPLE_RAW = Raw(temperature=519888, pressure=415148, humidity=28205)

KIND = Bme280
