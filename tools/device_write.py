"""Sets an output and says what is there afterwards."""

from zeroclawd.interfaces import Board
from zeroclawd.tool import Effect, Output, Risk, tool
from zeroclawd_tools._readings import report


@tool(risk=Risk.MEDIUM, effect=Effect.MUTATE, device="device")
async def device_write(device: str, value: bool | float | str, board: Board) -> Output:
    """The reading after the write; the board refuses what its limits do not allow, whoever asks."""
    return report(await board.write(device, value))
