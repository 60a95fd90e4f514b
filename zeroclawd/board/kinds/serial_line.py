"""Something on a serial port that speaks in lines: it answers a query, or sends lines by itself."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Literal

from zeroclawd.board.driver import Options, OutputDriver, Sample, as_number, check_range
from zeroclawd.board.hardware import Hardware, HardwareError, PortSettings, SerialPort
from zeroclawd.config import Seconds
from zeroclawd.errors import ConfigError
from zeroclawd.tool import Value

if TYPE_CHECKING:
    from zeroclawd.board.sim import SimHardware

_LONGEST_WAIT = 30.0


class SerialOptions(Options, frozen=True):
    """The port and the conversation on it.

    The port is named by `port` (best one below /dev/serial/by-id) or by `usb`, its adapter's `vendor:product` or
    `vendor:product:serial`. Mode `query` sends `query` and takes the next line; mode `stream` takes the next whole line.
    `pattern` is a regular expression that a line must match to count; its first group, else the whole line, is the
    value, which is a number if it reads like one. `send`, such as `SET {value}`, makes the device writable with the
    numbers in `range` or the words in `choices`; `acknowledge` is the line that must answer it.
    """

    port: str = ""
    usb: str = ""
    baud: int = 9600
    mode: Literal["query", "stream"] = "query"
    query: str = ""
    pattern: str = ""
    unit: str = ""
    range: list[float] | None = None
    choices: list[str] | None = None
    send: str = ""
    acknowledge: str = ""
    terminator: str = "\n"
    max_line: int = 256
    timeout: Seconds = Seconds(2)
    settle: Seconds = Seconds(0)
    dtr: bool | None = None
    rts: bool | None = None


class LineBuffer:
    """Cuts what comes in into whole lines; of a line longer than `longest` bytes nothing is kept.

    After `restart(partial=True)` the bytes up to the first end of line are dropped, since nobody knows what came before.
    """

    def __init__(self, terminator: bytes, longest: int) -> None:
        self._terminator = terminator
        self._longest = longest
        self._bytes = bytearray()
        self._dropping = False

    def restart(self, *, partial: bool) -> None:
        """Forget everything."""
        self._bytes.clear()
        self._dropping = partial

    def feed(self, data: bytes) -> list[str]:
        """The whole lines that these bytes complete, without their ends."""
        self._bytes += data
        *lines, rest = bytes(self._bytes).split(self._terminator)
        self._bytes = bytearray(rest)
        whole = []
        for line in lines:
            if not self._dropping and len(line) <= self._longest:
                whole.append(line.decode("utf-8", "replace").strip("\r\n\0 "))
            self._dropping = False
        if len(self._bytes) > self._longest:
            self._dropping = True
            del self._bytes[: -len(self._terminator)]
        return whole


class SerialLine(OutputDriver):
    """A line of text, and a number where the line has one. The port stays open; if it goes, it is opened again."""

    Options = SerialOptions

    def __init__(self, options: SerialOptions, safe: Value | None) -> None:
        _check(options)
        self._options = options
        self._settings = PortSettings(options.port, options.usb, options.baud, options.dtr, options.rts)
        self._range = check_range(options.range)
        self._pattern = re.compile(options.pattern) if options.pattern else None
        self._lines = LineBuffer(_end(options), options.max_line)
        self._hardware: Hardware | None = None
        self._port: SerialPort | None = None
        self.resource = f"serial port {self._settings.name}"
        self.patience = float(options.timeout) + float(options.settle)
        self.units = {"text": "", "value": options.unit}
        self.takes = self._words()
        self.safe = None if safe is None else self.accept(safe)

    def claims(self) -> frozenset[str]:
        """Its port."""
        return frozenset({self.resource})

    def open(self, hardware: Hardware) -> None:
        """Open the port and wait until what is there has settled."""
        self._hardware = hardware
        self._opened()

    def read(self) -> Sample:
        """Ask and take the answer, or take the next whole line."""
        asks = self._options.mode == "query"
        with self._using() as port:
            port.discard()
            self._lines.restart(partial=not asks)
            if asks:
                port.write(self._options.query.encode() + _end(self._options))
            line = self._listen(port, self._fits)
        if line is None:
            raise HardwareError(f"{self.resource} sent no line that fits within {self._options.timeout:g} s")
        return self._sample(line, f"{'answer' if asks else 'next line'} on {self.resource}")

    def close(self) -> None:
        """Close the port."""
        if self._port is not None:
            self._port.close()
            self._port = None

    def accept(self, value: Value) -> Value:
        """A number within the range, or one of the words."""
        if not self.takes:
            raise ValueError("cannot be written")
        if self._range is not None:
            return as_number(value, *self._range, self._options.unit)
        choices = self._options.choices or []
        if value not in choices:
            raise ValueError(f"takes {self.takes}, not {value!r}")
        return value

    def active(self, value: Value) -> bool:
        """Not in the safe state."""
        return value != self.safe

    def write(self, value: Value) -> None:
        """Send the value once and wait for the acknowledgement, if there is to be one."""
        said = f"{value:.10g}" if isinstance(value, float) else str(value)
        wanted = self._options.acknowledge
        with self._using() as port:
            port.discard()
            self._lines.restart(partial=False)
            port.write(self._options.send.replace("{value}", said).encode() + _end(self._options))
            answer = self._listen(port, bool) if wanted else ""
        if answer != wanted:
            raise HardwareError(f"{self.resource} did not acknowledge: {answer!r} instead of {wanted!r}")

    def agrees(self, value: Value, sample: Sample) -> bool:
        """A port does not show what was sent."""
        del value, sample
        return True

    def reads_back(self) -> bool:
        """What a device says is not what was sent to it."""
        return False

    def simulate(self, sim: SimHardware) -> None:
        """A peer that answers the query with the middle of the range, or with `ok`, and acknowledges what it is sent."""
        middle = f"{sum(self._range) / 2:g}" if self._range else "ok"
        end, query = _end(self._options), self._options.query.encode()
        acknowledge = self._options.acknowledge.encode() + end if self._options.acknowledge else b""
        peer = sim.peer(self._settings.path or self._settings.usb)
        peer.answer = lambda line: middle.encode() + end if query and line == query + end else acknowledge

    def _opened(self) -> SerialPort:
        if self._port is None:
            assert self._hardware is not None
            self._port = self._hardware.serial(self._settings)
            time.sleep(float(self._options.settle))
        return self._port

    @contextlib.contextmanager
    def _using(self) -> Iterator[SerialPort]:
        """The open port; after an error it is closed at once, so that the next call finds it anew."""
        try:
            yield self._opened()
        except HardwareError:
            self.close()
            raise

    def _listen(self, port: SerialPort, fits: Callable[[str], bool]) -> str | None:
        """The first line that fits, or None when the time is up."""
        until = time.monotonic() + float(self._options.timeout)
        while (left := until - time.monotonic()) > 0:
            for line in self._lines.feed(port.read(left)):
                if fits(line):
                    return line
        return None

    def _fits(self, line: str) -> bool:
        return bool(line) if self._pattern is None else self._pattern.search(line) is not None

    def _sample(self, line: str, how: str) -> Sample:
        match = self._pattern.search(line) if self._pattern else None
        part = match[1] if match and match.re.groups else line
        try:
            number = float(part)
        except ValueError:
            return Sample({"text": line}, how)
        doubts: tuple[str, ...] = ()
        if self._range is not None and not self._range[0] <= number <= self._range[1]:
            doubts = (f"implausible: outside {self._range[0]:g} to {self._range[1]:g} {self._options.unit}".rstrip(),)
        return Sample({"text": line, "value": number}, how, doubts)

    def _words(self) -> str:
        if not self._options.send:
            return ""
        if self._range is not None:
            return f"a number, {self._range[0]:g} to {self._range[1]:g} {self._options.unit}".rstrip()
        return "one of " + ", ".join(repr(choice) for choice in self._options.choices or [])


def _end(options: SerialOptions) -> bytes:
    return options.terminator.encode()


def _check(options: SerialOptions) -> None:
    """Refuse options that contradict each other."""
    if bool(options.port) == bool(options.usb):
        raise ConfigError("name the port either by `port` or by `usb`", key="port")
    if options.usb and not re.fullmatch(r"[0-9a-fA-F]{4}:[0-9a-fA-F]{4}(:.+)?", options.usb):
        raise ConfigError("is vendor:product in hexadecimal, such as '2341:0043'", key="usb")
    if options.mode == "query" and not options.query:
        raise ConfigError("mode 'query' needs the line to ask with", key="query")
    if not options.terminator:
        raise ConfigError("cannot be empty", key="terminator")
    if not 1 <= options.max_line <= 65536:
        raise ConfigError("is 1 to 65536 bytes", key="max_line")
    for key in ("timeout", "settle"):
        if getattr(options, key) > _LONGEST_WAIT:
            raise ConfigError(f"is at most {_LONGEST_WAIT:g} s", key=key)
    _check_sending(options)
    try:
        re.compile(options.pattern)
    except re.error as error:
        raise ConfigError(f"is no regular expression: {error}", key="pattern") from None


def _check_sending(options: SerialOptions) -> None:
    if options.send and "{value}" not in options.send:
        raise ConfigError("has {value} where the value goes", key="send")
    if options.send and (options.range is None) == (options.choices is None):
        raise ConfigError("needs either `range` or `choices`: what may be sent", key="send")
    if options.acknowledge and not options.send:
        raise ConfigError("only what is sent is acknowledged: `send` is missing", key="acknowledge")


KIND = SerialLine
