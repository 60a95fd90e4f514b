"""Tells the local time, the zone and how long the machine has been up."""

from __future__ import annotations

import datetime

from zeroclawd.tool import Effect, Output, Risk, tool
from zeroclawd_tools._readings import uptime


@tool(risk=Risk.LOW, effect=Effect.READ, repeatable=True)
async def time() -> Output:
    """Local time as ISO 8601 with offset, weekday and zone name, and the uptime in seconds."""
    now, up = datetime.datetime.now(datetime.UTC).astimezone(), uptime()
    text = f"{now.isoformat(' ', 'seconds')} {now.strftime('%A')}, zone {now.tzname()}, up {_span(up)}"
    return Output(text, {"time": now.isoformat(), "zone": now.tzname(), "unix": now.timestamp(), "uptime": up})


def _span(seconds: float) -> str:
    minutes = int(seconds // 60)
    days, hours = minutes // 1440, minutes // 60 % 24
    return f"{days} d {hours} h {minutes % 60} min"
