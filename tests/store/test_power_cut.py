from __future__ import annotations

import random
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from tests.store.hands import HandClock, file_of, opened
from zeroclawd.store import rows
from zeroclawd.store.verify import verify

CUTS = 12
ROOT = Path(__file__).parents[2]


def killed_after(folder: Path, lines: int, first: int, run: str) -> list[list[str]]:
    """Run the hammer, kill it after so many answers, and return what it had said."""
    hammer = [sys.executable, "-m", "tests.store.hammer", str(folder), str(first), run]
    with subprocess.Popen(hammer, stdout=subprocess.PIPE, cwd=ROOT) as process:
        assert process.stdout is not None
        said = [process.stdout.readline() for _ in range(lines)]
        process.send_signal(signal.SIGKILL)
        said += process.stdout.readlines()
    assert process.returncode == -signal.SIGKILL, "the hammer ended by itself"
    return [line.decode().split() for line in said if line.endswith(b"\n")]


def of(said: list[list[str]], word: str) -> list[list[str]]:
    return [line[1:] for line in said if line[0] == word]


def check_rows(folder: Path, said: list[list[str]]) -> None:
    found = {row.seq: row for row in rows.rows(file_of(folder))}
    for seq, kind, call in of(said, "row"):
        assert (found[int(seq)].kind, found[int(seq)].call_id) == (kind, call)


def check_others(folder: Path, said: list[list[str]]) -> None:
    with closing(sqlite3.connect(f"file:{file_of(folder)}?mode=ro", uri=True)) as connection:
        taken = dict(connection.execute("SELECT command_id, finished FROM inbox").fetchall())
        parcels = dict(connection.execute("SELECT id, CAST(payload AS TEXT) FROM outbox").fetchall())
    assert all(number in taken for (number,) in of(said, "claimed"))
    assert all(taken[number] for (number,) in of(said, "finished"))
    assert all(parcels[int(number)] == call for number, call in of(said, "parcel"))


@pytest.mark.timeout(600)
async def test_what_was_answered_survives_a_kill_at_any_moment_and_no_id_is_claimed_twice(tmp_path):
    dice = random.Random(7)
    everything: list[list[str]] = []
    first, open_before = 0, set[str]()
    for cut in range(CUTS):
        said = killed_after(tmp_path, dice.randrange(1, 300), first, f"run{cut}")
        everything += said
        answer = verify(file_of(tmp_path))
        assert answer.problems == ()
        check_rows(tmp_path, everything)
        check_others(tmp_path, everything)
        assert set(of(said, "boot")[0]) == open_before
        open_before = intents_without_outcome(tmp_path)
        numbers = [int(number) for (number,) in of(everything, "claimed")]
        first = max([0, *numbers]) - dice.randrange(0, 8)  # some come again
    claims = Counter(number for (number,) in of(everything, "claimed"))
    assert len(claims) > 50
    assert set(claims.values()) == {1}
    assert of(everything, "again"), "no id came twice, so nothing was shown"
    await check_next_boot(tmp_path, everything, open_before)


def intents_without_outcome(folder: Path) -> set[str]:
    found = rows.rows(file_of(folder))
    ended = {row.call_id for row in found if row.kind == "outcome"}
    return {row.call_id for row in found if row.kind == "intent"} - ended


async def check_next_boot(folder: Path, said: list[list[str]], left: set[str]) -> None:
    async with opened(folder, HandClock(), boot_id="last") as store:
        assert {item.call_id for item in await store.ledger.boot()} == left
        unfinished = dict(await store.inbox.unfinished("mqtt"))
        assert set(unfinished.values()) <= {b"there"}
        assert not {number for (number,) in of(said, "finished")}.intersection(unfinished)
    answer = verify(file_of(folder))
    assert (answer.problems, [warning for warning in answer.warnings if "intent" in warning.what]) == ((), [])
