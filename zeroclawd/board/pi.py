"""The Raspberry Pi: lines through gpiozero and lgpio, I2C through smbus2, serial through pyserial, 1-wire through sysfs."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from zeroclawd.board.chips import choose_chip, list_chips
from zeroclawd.board.hardware import HardwareError, I2cBus, OneWire, PortSettings, Pull, SerialPort, check_length
from zeroclawd.tool import Value

_ABSENT = (errno.EREMOTEIO, errno.ENXIO, errno.ENODEV)
_GONE = "the GPIO chip has gone; the daemon must be restarted"


class PiHardware:
    """The hardware of a Raspberry Pi; each part is opened when the first device needs it.

    `chip` overrides the choice of the GPIO chip. Tests hand in a gpiozero pin factory, a function that opens a bus, one
    that opens a serial port, and the folder of the 1-wire sensors.
    """

    kind = "pi"
    simulated = False

    def __init__(
        self,
        chip: str = "",
        *,
        factory: Any = None,
        open_bus: Callable[[int], Any] | None = None,
        open_port: Callable[..., Any] | None = None,
        one_wire_folder: str = "/sys/bus/w1/devices",
    ) -> None:
        self._chip = chip
        self._factory = factory
        self._factory_is_ours = factory is None
        self._open_bus = open_bus or _open_smbus
        self._open_port = open_port or _open_pyserial
        self._busses: dict[int, PiI2cBus] = {}
        self._one_wire = PiOneWire(Path(one_wire_folder))

    def output(self, pin: int, *, high: bool) -> PiOutput:
        """Claim an output whose first level is `high`."""
        with _plainly(pin):
            line = self._pin(pin)
            line.output_with_state(high)
            return PiOutput(pin, line)

    def pwm(self, pin: int, *, duty: float, frequency: float) -> PiPwm:
        """Claim an output for PWM; levels of 0 and 1 are steady until the first value between them."""
        with _plainly(pin):
            line = self._pin(pin)
            line.output_with_state(duty >= 0.5)
            claimed = PiPwm(pin, line, frequency)
            claimed.set(duty)
            return claimed

    def input(self, pin: int, *, pull: Pull, changed: Callable[[bool], None]) -> PiInput:
        """Claim an input with its pull resistor and listen to both edges."""
        with _plainly(pin):
            line = self._pin(pin)
            line.input_with_pull("floating" if pull is Pull.NONE else pull.value)
            return PiInput(pin, line, changed)

    def i2c(self, bus: int) -> I2cBus:
        """The I2C bus /dev/i2c-N."""
        if bus not in self._busses:
            with _bus_plainly(bus):
                self._busses[bus] = PiI2cBus(bus, self._open_bus(bus))
        return self._busses[bus]

    def one_wire(self) -> OneWire:
        """The kernel's 1-wire sensors."""
        return self._one_wire

    def serial(self, settings: PortSettings) -> SerialPort:
        """Open a serial port by its stable path or its adapter's USB identity."""
        return PiSerialPort(settings, self._open_port)

    def about(self) -> Mapping[str, Value]:
        """Model, temperature, uptime and memory, as far as the kernel shows them to this process."""
        return dict(_facts())

    def close(self) -> None:
        """Give lines and buses back; a pin factory that was handed in stays its owner's.

        Nothing here drives a line, but what a released line does is the kernel's business: it keeps its level or becomes
        an input. A relay that must stay off without a daemon needs a resistor that holds it off.
        """
        for bus in self._busses.values():
            bus.close()
        self._busses.clear()
        if self._factory is not None and self._factory_is_ours:
            self._factory.close()
            self._factory = None

    def _pin(self, pin: int) -> Any:
        if self._factory is None:
            chip = choose_chip(list_chips(), self._chip)
            self._factory = _open_factory(chip.number)
        return self._factory.pin(pin)


class PiOutput:
    """A line that is driven; reading it asks the line itself."""

    def __init__(self, pin: int, line: Any) -> None:
        self._pin = pin
        self._line = line

    def set(self, high: bool) -> None:
        """Drive the line."""
        with _plainly(self._pin):
            self._line.state = high

    def get(self) -> bool:
        """The level that the line has."""
        with _plainly(self._pin):
            return bool(self._line.state)


class PiPwm:
    """A line under PWM, which starts with the first duty between 0 and 1."""

    def __init__(self, pin: int, line: Any, frequency: float) -> None:
        self._pin = pin
        self._line = line
        self._frequency = frequency

    def set(self, duty: float) -> None:
        """Set the fraction of time that the line is high."""
        with _plainly(self._pin):
            if self._line.frequency is None and duty not in (0, 1):
                self._line.frequency = self._frequency
            self._line.state = float(duty) if self._line.frequency else bool(duty)

    def get(self) -> float:
        """The fraction that was set; a line under PWM does not show more."""
        with _plainly(self._pin):
            return float(self._line.state)


class PiInput:
    """A line that something outside drives."""

    def __init__(self, pin: int, line: Any, changed: Callable[[bool], None]) -> None:
        self._pin = pin
        self._line = line
        self._tell = changed
        line.edges = "both"
        line.when_changed = self._changed

    def get(self) -> bool:
        """The level right now."""
        with _plainly(self._pin):
            return bool(self._line.state)

    def _changed(self, _ticks: float, level: int) -> None:
        self._tell(bool(level))


class PiI2cBus:
    """One /dev/i2c-N through smbus2 or something of its shape."""

    def __init__(self, number: int, bus: Any) -> None:
        self._number = number
        self._bus = bus

    def read(self, address: int, register: int, length: int) -> bytes:
        """Read registers as one I2C block."""
        check_length(length)
        with _bus_plainly(self._number, address):
            data = bytes(self._bus.read_i2c_block_data(address, register, length))
        if len(data) != length:
            raise HardwareError(
                f"0x{address:02x} on I2C bus {self._number} sent {len(data)} of {length} bytes", transient=True
            )
        return data

    def write(self, address: int, register: int, data: bytes) -> None:
        """Write registers as one I2C block."""
        check_length(len(data))
        with _bus_plainly(self._number, address):
            self._bus.write_i2c_block_data(address, register, list(data))

    def close(self) -> None:
        """Close the bus's file."""
        with contextlib.suppress(OSError):
            self._bus.close()


class PiOneWire:
    """Sensors below /sys/bus/w1/devices, as the w1_therm driver shows them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def sensors(self) -> list[str]:
        """The ids of the sensors that the kernel has found."""
        return sorted(path.parent.name for path in self._folder.glob("*/w1_slave"))

    def read(self, sensor: str) -> str:
        """Let the sensor measure, which takes up to 0.75 s, and return the kernel's text."""
        try:
            return (self._folder / sensor / "w1_slave").read_text("ascii", "replace")
        except FileNotFoundError:
            there = ", ".join(self.sensors()) or "none"
            raise HardwareError(
                f"no 1-wire sensor {sensor}; sensors here: {there}",
                hint="1-wire needs `dtoverlay=w1-gpio` in config.txt, and the sensor its 4.7 kΩ pull-up",
                transient=True,
            ) from None
        except OSError as error:
            raise HardwareError(f"1-wire sensor {sensor}: {error.strerror or error}", transient=True) from error


class PiSerialPort:
    """A serial port through pyserial. It is held open, and closed by whoever meets an error."""

    def __init__(self, settings: PortSettings, open_port: Callable[..., Any]) -> None:
        self._settings = settings
        self._node = _find_port(settings)
        with _port_plainly(settings.name):
            self._port = open_port(self._node, settings)

    def read(self, seconds: float) -> bytes:
        """What has come in; waits for the first byte."""
        with _port_plainly(self._settings.name):
            self._port.timeout = seconds
            first = bytes(self._port.read(1))
            return first + bytes(self._port.read(self._port.in_waiting)) if first else b""

    def write(self, data: bytes) -> None:
        """Send bytes, after a look at whether the port is still the one that was opened (pyserial/pyserial#36)."""
        if _find_port(self._settings) != self._node:
            raise HardwareError(f"serial port {self._settings.name} has moved to another device node")
        with _port_plainly(self._settings.name):
            self._port.write(data)
            self._port.flush()

    def discard(self) -> None:
        """Forget what has come in."""
        with _port_plainly(self._settings.name):
            self._port.reset_input_buffer()

    def close(self) -> None:
        """Close the port at once, so that an adapter that comes back can have its old name."""
        with contextlib.suppress(Exception):
            self._port.close()


# GPIO


def _open_factory(chip: int) -> Any:
    """A gpiozero pin factory over lgpio whose claims, PWM and closing do not glitch."""
    _give_lgpio_a_folder()
    try:
        import lgpio
        from gpiozero.pins.lgpio import LGPIOFactory, LGPIOPin
    except ImportError as error:
        raise HardwareError(
            f"GPIO needs gpiozero and lgpio: {error}", hint="pip install 'zeroclawd[board]', or python3-lgpio"
        ) from error

    class SteadyPin(LGPIOPin):  # type: ignore[misc]  # gpiozero has no types
        """The stock pin drives a new output low before it drives it as asked, and turns into an input when closed."""

        _pwm: Any
        _callback: Any

        def output_with_state(self, state: bool) -> None:
            lgpio.gpio_claim_output(self.factory._handle, self._number, int(state))

        def _set_frequency(self, value: float | None) -> None:
            if self._pwm is None and value:
                duty = 100 if self._get_state() else 0
                lgpio.tx_pwm(self.factory._handle, self._number, value, duty)
                self._pwm = (value, duty)
            else:
                super()._set_frequency(value)

        def _set_state(self, value: float) -> None:
            if self._pwm is None:
                super()._set_state(value)
            else:
                # Tenths of a percent; the stock pin cuts to whole percents, so that 0.29 becomes 28.
                self._pwm = (self._pwm[0], round(100 * value, 1))
                lgpio.tx_pwm(self.factory._handle, self._number, *self._pwm)

        def close(self) -> None:
            if self._callback is not None:
                self._callback.cancel()
                self._callback = None

    with _plainly(None):
        factory = LGPIOFactory(chip=chip)
        factory.pin_class = SteadyPin
        _ = factory.board_info
        return factory


def _give_lgpio_a_folder() -> None:
    """Name a folder for the FIFO that `import lgpio` makes, which otherwise is the working directory."""
    if "LG_WD" in os.environ:
        return
    runtime = os.environ.get("RUNTIME_DIRECTORY", "").split(":")[0]
    if not runtime:
        import atexit
        import shutil
        import tempfile

        runtime = tempfile.mkdtemp(prefix="zeroclawd-lgpio-")
        atexit.register(shutil.rmtree, runtime, ignore_errors=True)
    os.environ["LG_WD"] = runtime


@contextlib.contextmanager
def _plainly(pin: int | None) -> Iterator[None]:
    """Say in plain words what gpiozero or lgpio raises."""
    line = "the GPIO chip" if pin is None else f"line {pin}"
    try:
        yield
    except HardwareError:
        raise
    except Exception as error:
        raise _gpio_error(line, error) from error


def _gpio_error(line: str, error: Exception) -> HardwareError:
    text = str(error).strip("'\"")
    kind = type(error).__name__
    if kind == "PinUnknownPi" or (isinstance(error, OSError) and "cpuinfo" in str(error)):
        return HardwareError(
            "gpiozero cannot tell which Raspberry Pi this is, so it cannot drive its pins",
            hint="on another board set kind = 'sim' in [board]; in a unit, ProcSubset=pid hides the revision",
        )
    if kind == "PinInvalidPin":
        return HardwareError(f"this board has no {line} on its header")
    if kind == "PinFixedPull":
        return HardwareError(f"{line} has a resistor of its own: {text}", hint="use pull = 'up' on BCM 2 and 3")
    if "busy" in text:
        return HardwareError(
            f"{line} is in use, by another process or a kernel driver", hint="`gpioinfo` names the user of each line"
        )
    if any(
        sign in text for sign in ("bad lineinfo", "bad GPIO read", "bad GPIO write", "bad handle", "unknown handle")
    ):
        return HardwareError(f"{line}: {text}: {_GONE}", lost=True)
    return HardwareError(
        f"{line}: {text or kind}", hint="the user needs the group gpio; the unit DeviceAllow=char-gpiochip rw"
    )


# I2C


def _open_smbus(number: int) -> Any:
    try:
        from smbus2 import SMBus
    except ImportError as error:
        raise HardwareError(f"I2C needs smbus2: {error}", hint="pip install 'zeroclawd[board]'") from error
    return SMBus(number)


@contextlib.contextmanager
def _bus_plainly(number: int, address: int | None = None) -> Iterator[None]:
    """Say in plain words what the kernel's errno of a transfer means."""
    try:
        yield
    except FileNotFoundError as error:
        raise HardwareError(
            f"there is no I2C bus {number}", hint="enable it: dtparam=i2c_arm=on in config.txt"
        ) from error
    except PermissionError as error:
        raise HardwareError(
            f"I2C bus {number} may not be opened", hint="put the user into the group i2c; DeviceAllow=char-i2c rw"
        ) from error
    except OSError as error:
        place = f"I2C bus {number}" if address is None else f"0x{address:02x} on I2C bus {number}"
        if error.errno in _ABSENT and address is not None:
            text = f"nothing answers at {place}"
        else:
            text = f"{place}: {error.strerror or error}"
        raise HardwareError(text, hint="`i2cdetect -y` shows who answers", transient=True) from error


# Serial


def _open_pyserial(node: str, settings: PortSettings) -> Any:
    """Open a port with DTR and RTS set beforehand, because opening it may reset what is connected (pyserial#124)."""
    try:
        import serial
    except ImportError as error:
        raise HardwareError(f"serial ports need pyserial: {error}", hint="pip install 'zeroclawd[board]'") from error
    port = serial.serial_for_url(node, do_not_open=True, baudrate=settings.baud, timeout=0, write_timeout=2)
    if "://" not in node:
        port.exclusive = True
    if settings.dtr is not None:
        port.dtr = settings.dtr
    if settings.rts is not None:
        port.rts = settings.rts
    port.open()
    return port


def _find_port(settings: PortSettings) -> str:
    """The device node that a port's path or USB identity stands for right now."""
    if settings.path:
        return settings.path if "://" in settings.path else os.path.realpath(settings.path)
    try:
        from serial.tools.list_ports import comports
    except ImportError as error:
        raise HardwareError(f"serial ports need pyserial: {error}", hint="pip install 'zeroclawd[board]'") from error
    fitting = sorted(str(port.device) for port in comports() if _identity(port, settings.usb))
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        raise HardwareError(
            f"several adapters are USB {settings.usb}: {', '.join(fitting)}",
            hint="add the adapter's serial number, as in usb = '2341:0043:85735313'",
        )
    raise HardwareError(f"no adapter with USB identity {settings.usb} is plugged in")


def _identity(port: Any, wanted: str) -> bool:
    if port.vid is None or port.pid is None:
        return False
    vendor, product, *serial = wanted.split(":")
    same_kind = (port.vid, port.pid) == (int(vendor, 16), int(product, 16))
    return same_kind and (not serial or port.serial_number == serial[0])


@contextlib.contextmanager
def _port_plainly(name: str) -> Iterator[None]:
    """Say in plain words what pyserial raises; a port that was pulled out may raise termios.error, which is no OSError."""
    import termios

    try:
        yield
    except HardwareError:
        raise
    except (OSError, ValueError, termios.error) as error:
        code = getattr(error, "errno", None)
        if code == errno.ENOENT:
            raise HardwareError(
                f"serial port {name} is not there", hint="`ls /dev/serial/by-id` lists ports"
            ) from error
        if code == errno.EACCES:
            raise HardwareError(
                f"serial port {name} may not be opened", hint="put the user into the group dialout"
            ) from error
        raise HardwareError(f"serial port {name}: {error}") from error


# The board itself


def _facts() -> Iterator[tuple[str, Value]]:
    """What the kernel shows; a fact that is hidden or missing is left out."""
    for name, path, read in (
        ("model", "/proc/device-tree/model", lambda text: text.strip("\0\n ")),
        ("temperature_celsius", "/sys/class/thermal/thermal_zone0/temp", lambda text: int(text) / 1000),
        ("uptime_seconds", "/proc/uptime", lambda text: int(float(text.split()[0]))),
        ("memory_total_mb", "/proc/meminfo", lambda text: _meminfo(text, "MemTotal")),
        ("memory_available_mb", "/proc/meminfo", lambda text: _meminfo(text, "MemAvailable")),
    ):
        with contextlib.suppress(OSError, ValueError, KeyError, IndexError):
            yield name, read(Path(path).read_text("utf-8", "replace"))


def _meminfo(text: str, key: str) -> int:
    lines = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    return int(lines[key].split()[0]) // 1024
