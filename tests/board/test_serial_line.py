"""Conversations on a serial port: whole lines only, answers of this query only, and ports that come and go."""

from __future__ import annotations

import asyncio
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.board.rig import Rig
from zeroclawd.board.kinds.serial_line import LineBuffer
from zeroclawd.errors import DeviceFailed, LimitRefused, ValueRefused

HEAD = "[board]\nkind='sim'\ntimeout='2s'\n[devices.meter]\nkind='serial_line'\nport='/dev/ttyX'\ntimeout='300ms'\n"


def opened(keys: str, answer=lambda line: b"") -> tuple[Rig, object]:
    rig = Rig(HEAD + keys)
    peer = rig.sim.peer("/dev/ttyX")
    peer.answer = answer
    return rig, peer


# Lines


def test_bytes_that_come_in_pieces_make_whole_lines():
    lines = LineBuffer(b"\n", 100)
    lines.restart(partial=True)
    assert lines.feed(b"T=21.") == []
    assert lines.feed(b"5\r\nT=22.0\r\n") == ["T=22.0"]
    assert lines.feed(b"T=23") == []
    assert lines.feed(b".5\n") == ["T=23.5"]


@given(st.lists(st.text("abc=.0123456789", max_size=20), max_size=8), st.integers(1, 7), st.booleans())
def test_how_bytes_are_cut_makes_no_difference(said, size, partial):
    data = b"".join(line.encode() + b"\r\n" for line in said)
    lines = LineBuffer(b"\r\n", 100)
    lines.restart(partial=partial)
    heard = [line for start in range(0, len(data), size) for line in lines.feed(data[start : start + size])]
    assert heard == said[1 if partial else 0 :]


@given(st.lists(st.binary(max_size=300), max_size=20))
def test_a_buffer_never_grows_beyond_its_longest_line(pieces):
    lines = LineBuffer(b"\n", 64)
    for piece in pieces:
        for line in lines.feed(piece):
            assert len(line) <= 64
        assert len(lines._bytes) <= 64


def test_of_a_line_that_is_too_long_nothing_is_kept():
    lines = LineBuffer(b"\n", 8)
    assert lines.feed(b"x" * 100) == []
    assert lines.feed(b"tail\nnext\n") == ["next"]


# Queries


async def test_a_query_takes_its_answer():
    rig, peer = opened("query='T?'\nunit='°C'", lambda line: b"21.5\r\n" if line == b"T?\n" else b"")
    async with rig:
        reading = await rig.board.read("meter")
        assert (reading.values, reading.units["value"]) == ({"text": "21.5", "value": 21.5}, "°C")
        assert peer.heard == [b"T?\n"]


async def test_a_pattern_finds_the_value_and_skips_noise():
    rig, _ = opened(
        "query='T?'\npattern='^T=([-0-9.]+)'\nrange=[-20, 60]", lambda _line: b"boot v1.2\r\n\r\nT=-3.25 ok\r\nT=99\r\n"
    )
    async with rig:
        assert (await rig.board.read("meter")).values == {"text": "T=-3.25 ok", "value": -3.25}


async def test_an_old_answer_is_not_taken_for_a_new_one():
    rig, peer = opened("query='T?'")
    async with rig:
        with pytest.raises(DeviceFailed, match=r"sent no line that fits within 0\.3 s"):
            await rig.board.read("meter")
        peer.say(b"late answer\n")
        peer.answer = lambda _line: b"22\n"
        assert (await rig.board.read("meter")).values["value"] == 22


async def test_silence_does_not_reopen_the_port():
    rig, peer = opened("query='T?'")
    async with rig:
        for _ in range(2):
            with pytest.raises(DeviceFailed):
                await rig.board.read("meter")
        assert peer.opened == 1


async def test_a_value_outside_the_range_is_doubted():
    rig, _ = opened("query='T?'\nrange=[0, 50]", lambda _line: b"85\n")
    async with rig:
        assert (await rig.board.read("meter")).warnings == ("implausible: outside 0 to 50",)


# Streams


async def test_a_stream_gives_its_next_whole_line():
    rig, peer = opened("mode='stream'\npattern='T=([0-9.]+)$'")
    stop = threading.Event()

    def speak():
        number = 0
        while not stop.wait(0.005):
            number += 1
            peer.say(f"{number % 10}\r\nT={number}.".encode())

    speaker = threading.Thread(target=speak)
    async with rig:
        peer.say(b"T=99.9\nT=98")  # what waited before is of unknown age
        speaker.start()
        try:
            value = (await rig.board.read("meter")).values["value"]
        finally:
            stop.set()
            speaker.join()
    assert value < 90
    assert round(value % 1 * 10) == (int(value) + 1) % 10  # both halves belong to one line


# Ports


async def test_a_port_that_is_pulled_out_is_opened_again_when_it_is_back():
    rig, peer = opened("query='T?'", lambda _line: b"21\n")
    async with rig:
        assert (await rig.board.read("meter")).values["value"] == 21
        peer.unplug()
        for _ in range(2):
            with pytest.raises(DeviceFailed, match="serial port /dev/ttyX is gone"):
                await rig.board.read("meter")
        assert "is gone" in rig.board.device("meter").fault
        peer.plug()
        assert (await rig.board.read("meter")).values["value"] == 21
        assert peer.opened == 2
        assert rig.board.device("meter").fault == ""


async def test_a_port_that_is_missing_at_start_comes_later_by_itself():
    rig, peer = opened("query='T?'", lambda _line: b"21\n")
    peer.unplug()
    async with rig:
        assert "is gone" in rig.board.device("meter").fault
        peer.plug()
        await rig.pass_time(1)
        await rig.until(lambda: rig.board.device("meter").fault == "")


async def test_a_port_is_pulled_out_while_somebody_waits_for_it():
    rig, peer = opened("query='T?'\ntimeout='2s'".replace("timeout", "terminator='\\n' #"))
    async with rig:
        reading = asyncio.create_task(rig.board.read("meter"))
        await rig.until(lambda: peer.heard)
        peer.unplug()
        with pytest.raises(DeviceFailed, match="is gone"):
            await reading


async def test_what_a_board_says_while_it_boots_is_not_an_answer():
    rig, peer = opened("query='T?'\nsettle='50ms'", lambda _line: b"21\n")
    connect = peer.connect
    peer.connect = lambda name: (connect(name), peer.say(b"ets Jun  8 2016\r\nboot\r\n"))
    async with rig:
        assert (await rig.board.read("meter")).values["text"] == "21"


# Writing


async def test_a_number_is_sent_once_within_its_range_and_acknowledged():
    rig, peer = opened(
        "query='L?'\nsend='LEVEL {value}'\nrange=[0, 100]\nacknowledge='OK'\nsafe_state=0", lambda _line: b"OK\n"
    )
    async with rig:
        peer.heard.clear()
        reading = await rig.board.write("meter", 12.5)
        assert peer.heard == [b"LEVEL 12.5\n"]
        assert reading.values == {"sent": 12.5}
        assert "does not show what is set" in reading.how
        with pytest.raises(ValueRefused, match="takes 0 to 100, and 101 is outside"):
            await rig.board.write("meter", 101)
    assert peer.heard[-1] == b"LEVEL 0\n"


async def test_a_write_that_is_not_acknowledged_is_not_repeated():
    rig, peer = opened("query='L?'\nsend='LEVEL {value}'\nrange=[0, 100]\nacknowledge='OK'", lambda _line: b"ERR 3\n")
    async with rig:
        with pytest.raises(DeviceFailed, match="did not acknowledge: 'ERR 3' instead of 'OK'"):
            await rig.board.write("meter", 12)
        assert peer.heard == [b"LEVEL 12\n"]


@pytest.mark.parametrize("value", ["fast", "slow\nLEVEL 100", True, 3, ""])
async def test_only_the_words_of_the_config_are_sent(value):
    rig, peer = opened("query='?'\nsend='FAN {value}'\nchoices=['slow', 'off']\nsafe_state='off'")
    async with rig:
        with pytest.raises(ValueRefused, match="takes one of 'slow', 'off'"):
            await rig.board.write("meter", value)
        await rig.board.write("meter", "slow")
        assert peer.heard == [b"FAN off\n", b"FAN slow\n"]


async def test_limits_hold_for_what_is_sent():
    rig, peer = opened(
        "query='?'\nsend='FAN {value}'\nchoices=['slow', 'off']\nsafe_state='off'\nmax_on='5s'\nmin_off='5s'"
    )
    async with rig:
        with pytest.raises(LimitRefused, match="stays off"):
            await rig.board.write("meter", "slow")
        await rig.pass_time(5)
        await rig.board.write("meter", "slow")
        await rig.pass_time(5)
        await rig.until(lambda: rig.memory.rows)
        assert peer.heard[-1] == b"FAN off\n"
