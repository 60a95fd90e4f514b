"""The board tells what it is."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from zeroclawd.board.board import DeviceBoard
from zeroclawd.tool import Assessment, Effect, Output, Risk, Value

Call = Callable[..., Awaitable[Output]]


async def test_facts_of_the_sim_board(call: Call, board: DeviceBoard) -> None:
    output = await call("board_info", board=board)
    lines = output.text.splitlines()
    assert "kind: sim" in lines
    assert "simulated: true" in lines
    assert "emergency_stop: false" in lines
    assert output.data == dict(board.about())


class Odd:
    def about(self) -> Mapping[str, Value]:
        return {"temperature": 48.123456789, "cores": 4, "degraded": ""}


async def test_numbers_are_short_and_empty_facts_left_out(call: Call) -> None:
    assert (await call("board_info", board=Odd())).text == "temperature: 48.1235\ncores: 4"


def test_it_only_reads(assess: Callable[..., Assessment]) -> None:
    assert assess("board_info") == Assessment(Risk.LOW, Effect.READ)
