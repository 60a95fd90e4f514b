"""Reads one device afresh."""

from zeroclawd.interfaces import Board
from zeroclawd.tool import Effect, Output, Risk, tool
from zeroclawd_tools._readings import report


@tool(risk=Risk.LOW, effect=Effect.READ, device="device", repeatable=True)
async def device_read(device: str, board: Board) -> Output:
    """Value, unit, age and how they were got; DeviceError if it cannot be read."""
    return report(await board.read(device))
