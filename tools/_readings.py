"""How a reading is put into words for the model and into data for whoever reads it by machine."""

from __future__ import annotations

import time
from typing import Any

from zeroclawd.interfaces import Reading
from zeroclawd.tool import Output, Value


def report(reading: Reading) -> Output:
    """One line with value, unit, age and how it was got, and one line for each thing to doubt."""
    age = max(0.0, uptime() - reading.taken_mono)
    values = ", ".join(f"{name}={say(value, reading.units.get(name, ''))}" for name, value in reading.values.items())
    how = "; ".join(filter(None, (f"{age:.1f} s old", reading.how, "simulated" if reading.simulated else "")))
    line = f"{reading.device}: {values or 'no value'} ({how})"
    return Output("\n".join((line, *(f"warning: {text}" for text in reading.warnings))), data(reading, age))


def data(reading: Reading, age: float) -> dict[str, Any]:
    """The reading as plain JSON types; `age` in seconds, `taken_at` in Unix seconds."""
    return {
        "device": reading.device,
        "values": dict(reading.values),
        "units": dict(reading.units),
        "taken_at": reading.taken_at,
        "age": round(age, 3),
        "how": reading.how,
        "warnings": list(reading.warnings),
        "simulated": reading.simulated,
    }


def say(value: Value, unit: str = "") -> str:
    """A value in words: true and false as a model writes them, six significant digits, the unit after a space."""
    if isinstance(value, bool):
        return str(value).lower()
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    return f"{text} {unit}" if unit else text


def uptime() -> float:
    """Seconds since the kernel booted, sleep included (clock_gettime(2), CLOCK_BOOTTIME)."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()
