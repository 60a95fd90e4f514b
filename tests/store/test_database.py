from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import stat
import threading
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from zeroclawd.errors import StoreError
from zeroclawd.store.database import Database


@contextlib.asynccontextmanager
async def database(folder: Path, linger: float = 60.0) -> AsyncIterator[Database]:
    it = Database.open(folder, 1_700_000_000.0, linger=linger)
    await it.write(lambda connection: connection.execute("CREATE TABLE things (n INTEGER PRIMARY KEY, text TEXT)"))
    try:
        yield it
    finally:
        assert await it.close(30)


def add(n: int, text: str = ""):
    return lambda connection: connection.execute("INSERT INTO things VALUES (?, ?)", (n, text)).lastrowid


def numbers(connection: sqlite3.Connection) -> list[int]:
    return [n for (n,) in connection.execute("SELECT n FROM things ORDER BY n")]


class Gate:
    """A job that holds the writer until it is opened."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.open = threading.Event()

    def __call__(self, _connection: sqlite3.Connection) -> None:
        self.entered.set()
        assert self.open.wait(60)


def wait_for(happened: Callable[[], bool]) -> None:
    """Look until it has; for what only a thread of the database knows."""
    until = time.monotonic() + 30
    while not happened():
        assert time.monotonic() < until
        time.sleep(0.01)


async def held(it: Database) -> tuple[Gate, asyncio.Task[None]]:
    gate = Gate()
    task = asyncio.create_task(it.write(gate))
    await asyncio.to_thread(gate.entered.wait, 60)
    return gate, task


async def test_jobs_that_wait_together_share_one_commit_and_one_sync(tmp_path):
    async with database(tmp_path) as it:
        gate, first = await held(it)
        before = (it.counters.commits, it.counters.syncs)
        waiting = [asyncio.create_task(it.write(add(n))) for n in range(100)]
        await asyncio.sleep(0)
        gate.open.set()
        assert await asyncio.gather(*waiting) == list(range(100))
        await first
        assert (it.counters.commits - before[0], it.counters.syncs - before[1]) == (1, 1)
        assert await it.read(numbers) == list(range(100))


async def test_one_failing_job_spares_its_neighbours(tmp_path):
    def half(connection: sqlite3.Connection) -> None:
        add(50)(connection)
        raise ValueError("changed my mind")

    async with database(tmp_path) as it:
        gate, _first = await held(it)
        jobs = [add(1), half, add(1, "twice"), add(2)]
        waiting = [asyncio.create_task(it.write(job)) for job in jobs]
        await asyncio.sleep(0)
        gate.open.set()
        one, two, three, four = await asyncio.gather(*waiting, return_exceptions=True)
        assert (one, four) == (1, 2)
        assert isinstance(two, ValueError)
        assert isinstance(three, StoreError)
        assert await it.read(numbers) == [1, 2]


async def test_what_was_queued_runs_though_nobody_waits_any_more(tmp_path):
    async with database(tmp_path) as it:
        gate, first = await held(it)
        task = asyncio.create_task(it.write(add(7)))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        gate.open.set()
        await first
        await it.write(add(8))
        assert await it.read(numbers) == [7, 8]


async def test_rows_that_need_no_sync_are_seen_at_once_and_ride_with_the_next_sync(tmp_path):
    async with database(tmp_path) as it:
        syncs = it.counters.syncs
        await it.write(add(1), sync=False)
        assert await it.read(numbers) == [1]
        assert it.counters.syncs == syncs
        await it.write(add(2))
        assert it.counters.syncs == syncs + 1


async def test_rows_that_need_no_sync_reach_the_disk_within_the_bound(tmp_path):
    async with database(tmp_path, linger=0.05) as it:
        syncs = it.counters.syncs
        await it.write(add(1), sync=False)
        await asyncio.to_thread(wait_for, lambda: it.counters.syncs > syncs)


async def test_a_stream_of_unsynced_rows_that_never_rests_is_synced_all_the_same(tmp_path):
    async with database(tmp_path, linger=0.5) as it:
        syncs = it.counters.syncs
        await it.write(add(1), sync=False)
        gate = Gate()
        holding = asyncio.create_task(it.write(gate, sync=False))
        await asyncio.to_thread(gate.entered.wait, 60)
        next_one = asyncio.create_task(it.write(add(2), sync=False))
        await asyncio.sleep(0.6)  # the bound is over, and the queue is not empty
        gate.open.set()
        await asyncio.gather(holding, next_one)
        assert it.counters.syncs == syncs + 1


async def test_a_synced_job_that_changes_nothing_still_syncs_what_it_saw(tmp_path):
    async with database(tmp_path) as it:
        await it.write(add(1), sync=False)
        syncs = it.counters.syncs
        await it.write(lambda connection: connection.execute("SELECT 1").fetchone())
        assert it.counters.syncs == syncs + 1


async def test_unsynced_rows_are_synced_at_close(tmp_path):
    async with database(tmp_path) as it:
        await it.write(add(1), sync=False)
        syncs = it.counters.syncs
    assert it.counters.syncs == syncs + 1


def fingerprint(folder: Path) -> dict[str, tuple[int, int]]:
    return {path.name: (path.stat().st_size, path.stat().st_mtime_ns) for path in sorted(folder.iterdir())}


def wakeups(it: Database) -> list[str]:
    """How often the writer thread has run (proc(5), /proc/pid/status)."""
    status = Path(f"/proc/self/task/{it._thread.native_id}/status").read_text()
    return [line for line in status.splitlines() if "voluntary" in line]


async def settled(it: Database) -> list[str]:
    async with asyncio.timeout(30):
        before: list[str] = []
        while before != wakeups(it):
            before = wakeups(it)
            await asyncio.sleep(0.1)
    return before


async def test_an_idle_database_writes_nothing_and_wakes_nobody(tmp_path):
    async with database(tmp_path, linger=0.02) as it:
        syncs = it.counters.syncs
        await it.write(add(1), sync=False)
        await asyncio.to_thread(wait_for, lambda: it.counters.syncs > syncs)
        before, counted = fingerprint(tmp_path), (it.counters.commits, it.counters.syncs, it.counters.jobs)
        switches = await settled(it)
        await asyncio.sleep(0.5)
        assert fingerprint(tmp_path) == before
        assert (it.counters.commits, it.counters.syncs, it.counters.jobs) == counted
        assert wakeups(it) == switches


async def test_commits_are_synced_by_sqlite_itself(tmp_path):
    async with database(tmp_path) as it:

        def look(connection):
            return (
                connection.execute("PRAGMA journal_mode").fetchone()[0],
                connection.execute("PRAGMA foreign_keys").fetchone()[0],
            )

        assert await it.write(look) == ("wal", 1)
        mode: list[int] = []

        def ask(connection):
            return mode.append(connection.execute("PRAGMA synchronous").fetchone()[0])

        await it.write(ask)
        await it.write(ask, sync=False)
        assert mode == [2, 1]


async def test_the_reading_connection_cannot_write(tmp_path):
    async with database(tmp_path) as it:
        with pytest.raises(StoreError):
            await it.read(add(1))


async def test_files_are_for_the_owner_only(tmp_path):
    folder = tmp_path / "deep" / "state"
    async with database(folder) as it:
        await it.write(add(1))
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}
        assert modes["zeroclawd.db"] == 0o600
        assert set(modes.values()) == {0o600}
        assert "zeroclawd.db-wal" in modes
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


async def test_a_looser_mode_is_tightened(tmp_path):
    async with database(tmp_path):
        pass
    os.chmod(tmp_path / "zeroclawd.db", 0o644)
    it = Database.open(tmp_path, 0.0)
    assert stat.S_IMODE((tmp_path / "zeroclawd.db").stat().st_mode) == 0o600
    await it.close()


async def test_two_daemons_do_not_share_a_file(tmp_path):
    async with database(tmp_path):
        with pytest.raises(StoreError, match="another zeroclawd") as caught:
            Database.open(tmp_path, 0.0)
        assert caught.value.hint
    again = Database.open(tmp_path, 0.0)
    assert await again.close()


async def test_after_close_the_answer_is_an_error_and_the_log_is_gone(tmp_path):
    async with database(tmp_path) as it:
        gate, first = await held(it)
        late = asyncio.create_task(it.write(add(3)))
        await asyncio.sleep(0)
        closing = asyncio.create_task(it.close(30))
        gate.open.set()
        assert await late == 3
        assert await closing
        await first
        with pytest.raises(StoreError):
            await it.write(add(4))
        with pytest.raises(StoreError):
            await it.read(numbers)
    assert not (tmp_path / "zeroclawd.db-wal").exists()


async def test_close_gives_up_on_a_disk_that_does_not_answer(tmp_path):
    async with database(tmp_path) as it:
        gate, first = await held(it)
        assert not await it.close(0.05)
        gate.open.set()
        await first


async def test_a_newer_schema_is_left_alone(tmp_path):
    async with database(tmp_path) as it:
        await it.write(add(5))
    connection = sqlite3.connect(tmp_path / "zeroclawd.db")
    connection.execute("PRAGMA user_version = 999")
    connection.close()
    with pytest.raises(StoreError, match="999") as caught:
        Database.open(tmp_path, 0.0)
    assert caught.value.hint
    assert [path.name for path in tmp_path.glob("*broken*")] == []
