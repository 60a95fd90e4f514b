"""Switches an output on for a while and off again, as one call."""

from zeroclawd.interfaces import Board
from zeroclawd.tool import Effect, Output, Risk, tool
from zeroclawd_tools._readings import report


@tool(risk=Risk.MEDIUM, effect=Effect.MUTATE, device="device")
async def device_pulse(device: str, seconds: float, board: Board) -> Output:
    """The reading after the pulse; the board holds the time and switches off even if the call is cancelled."""
    return report(await board.pulse(device, seconds))
