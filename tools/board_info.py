"""Tells what the board itself is and how it fares."""

from zeroclawd.interfaces import Board
from zeroclawd.tool import Effect, Output, Risk, tool
from zeroclawd_tools._readings import say


@tool(risk=Risk.LOW, effect=Effect.READ)
async def board_info(board: Board) -> Output:
    """One line for each fact that the board knows of itself: model, temperature, uptime and the like."""
    facts = dict(board.about())
    return Output("\n".join(f"{name}: {say(value)}" for name, value in facts.items() if value != ""), facts)
