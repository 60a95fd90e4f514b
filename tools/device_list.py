"""Lists the devices of the board with all that is needed to use them."""

from collections.abc import Iterator
from typing import Any

from zeroclawd.interfaces import Board, DeviceInfo
from zeroclawd.tool import Effect, Output, Risk, tool


@tool(risk=Risk.LOW, effect=Effect.READ)
async def device_list(board: Board) -> Output:
    """One line for each device, in the order of the config; nothing is touched."""
    devices = board.devices()
    lines = [f"{info.name}: {'; '.join(_parts(info))}" for info in devices]
    return Output("\n".join(lines) or "no devices are configured", [_data(info) for info in devices])


def _parts(info: DeviceInfo) -> Iterator[str]:
    yield f"{info.kind}, {info.description}" if info.description else info.kind
    yield "can " + (", ".join(word for word in ("read", "write", "pulse") if word in info.can) or "nothing")
    if info.writes:
        yield f"takes {info.writes}"
    if info.units:
        yield "gives " + ", ".join(f"{name} {unit}".rstrip() for name, unit in info.units.items())
    yield from info.limits
    if info.fault:
        yield f"FAULT {info.fault}"


def _data(info: DeviceInfo) -> dict[str, Any]:
    return {
        "name": info.name,
        "kind": info.kind,
        "description": info.description,
        "can": sorted(info.can),
        "writes": info.writes,
        "units": dict(info.units),
        "limits": list(info.limits),
        "risk": info.risk.word,
        "fault": info.fault,
    }
