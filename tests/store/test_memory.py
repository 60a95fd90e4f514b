from __future__ import annotations

from tests.store.hands import opened


async def test_a_value_is_on_disk_when_remember_returns_and_comes_back(tmp_path):
    async with opened(tmp_path) as store:
        assert await store.memory.recall("estop") is None
        syncs = store.database.counters.syncs
        await store.memory.remember("estop", "engaged")
        assert store.database.counters.syncs == syncs + 1
    async with opened(tmp_path) as store:
        assert await store.memory.recall("estop") == "engaged"
        await store.memory.remember("estop", "")
        assert await store.memory.recall("estop") == ""


async def test_a_value_that_is_there_already_is_not_written_again(tmp_path):
    async with opened(tmp_path) as store:
        await store.memory.remember("count", "7")
        commits = store.database.counters.commits
        log = tmp_path / "zeroclawd.db-wal"
        size = log.stat().st_size
        await store.memory.remember("count", "7")
        assert store.database.counters.commits == commits
        assert log.stat().st_size == size
