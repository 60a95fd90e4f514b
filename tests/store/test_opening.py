from __future__ import annotations

import os
import random
import sqlite3

import pytest

from tests.store.hands import HandClock, all_rows, file_of, intent, kinds, opened
from zeroclawd.errors import StoreError
from zeroclawd.messages import Entry
from zeroclawd.store.database import Database
from zeroclawd.store.verify import verify


async def filled(folder, count: int = 30) -> None:
    async with opened(folder, boot_id="before") as store:
        await store.ledger.boot()
        for n in range(count):
            await store.ledger.append(Entry("safety", note=f"{n} " + "x" * 500))


def damage_nothing_left(path):
    path.write_bytes(b"")


def damage_garbage(path):
    path.write_bytes(random.Random(1).randbytes(20_000))


def damage_header(path):
    raw = bytearray(path.read_bytes())
    raw[:100] = b"\xff" * 100
    path.write_bytes(raw)


def damage_schema(path):
    raw = bytearray(path.read_bytes())
    raw[100:4096] = b"\x55" * 3996
    path.write_bytes(raw)


def damage_half(path):
    raw = path.read_bytes()
    path.write_bytes(raw[: len(raw) // 2 // 4096 * 4096])


def damage_last_pages(path):
    raw = bytearray(path.read_bytes())
    raw[-8192:] = b"\xaa" * 8192
    path.write_bytes(raw)


DAMAGES = [
    damage_nothing_left,
    damage_garbage,
    damage_header,
    damage_schema,
    damage_half,
    damage_last_pages,
]


@pytest.mark.parametrize("damage", DAMAGES)
async def test_a_damaged_file_is_set_aside_and_the_ledger_says_so(tmp_path, damage, caplog):
    await filled(tmp_path)
    damage(file_of(tmp_path))
    kept = file_of(tmp_path).read_bytes()
    async with opened(tmp_path) as store:
        await store.ledger.boot("version=1")
        await store.ledger.append(intent())
    (aside,) = tmp_path.glob("zeroclawd.db.broken-*")
    assert aside.name == "zeroclawd.db.broken-20231114T221320Z"
    assert aside.read_bytes() == kept
    assert kinds(tmp_path) == ["boot", "intent"]
    assert aside.name in all_rows(tmp_path)[0].note
    assert "database_set_aside" in caplog.text
    assert verify(file_of(tmp_path)).ok


async def test_two_damaged_files_of_one_second_are_both_kept(tmp_path):
    for _ in range(2):
        file_of(tmp_path).write_bytes(b"garbage" * 1000)
        async with opened(tmp_path):
            pass
    assert len(list(tmp_path.glob("zeroclawd.db.broken-*"))) == 2


async def test_a_log_without_its_database_is_not_played_into_a_new_one(tmp_path):
    await filled(tmp_path)
    it = Database.open(tmp_path, 0.0)
    await it.write(lambda connection: connection.execute("INSERT INTO memory VALUES ('old', 'value')"))
    log = file_of(tmp_path).with_name("zeroclawd.db-wal").read_bytes()
    await it.close()
    file_of(tmp_path).unlink()
    file_of(tmp_path).with_name("zeroclawd.db-wal").write_bytes(log)
    async with opened(tmp_path) as store:
        await store.ledger.boot()
        assert await store.memory.recall("old") is None
        assert "write-ahead log" in all_rows(tmp_path)[0].note
    (aside,) = tmp_path.glob("*broken*")
    assert aside.read_bytes() == log


@pytest.mark.parametrize("name", ["zeroclawd.db", "zeroclawd.db-wal", "zeroclawd.db-shm", "lock", "reserve"])
async def test_each_state_file_may_be_empty_after_a_power_cut(tmp_path, name):
    live = tmp_path / "live"
    async with opened(live) as store:
        await store.ledger.boot()
        await store.ledger.append(intent())
        after = tmp_path / "after"
        after.mkdir()
        for path in live.iterdir():
            (after / path.name).write_bytes(path.read_bytes())
            (after / path.name).chmod(0o600)
    (after / name).write_bytes(b"")
    async with opened(after, boot_id="boot-2") as store:
        await store.ledger.boot()
        await store.ledger.append(intent("c2"))
    assert verify(file_of(after)).ok


async def test_a_torn_log_loses_its_tail_and_nothing_else(tmp_path):
    live, after = tmp_path / "live", tmp_path / "after"
    async with opened(live) as store:
        await store.ledger.boot()
        for n in range(10):
            await store.ledger.append(intent(f"c{n}"))
        after.mkdir()
        for path in live.iterdir():
            if not path.name.endswith("-shm"):
                (after / path.name).write_bytes(path.read_bytes())
                (after / path.name).chmod(0o600)
    log = after / "zeroclawd.db-wal"
    whole = log.stat().st_size
    for keep in (whole - 1, whole - 5000, whole // 2, 40, 10):
        os.truncate(log, keep)
        answer = verify(file_of(after))
        assert answer.ok
        assert answer.rows <= 11
    async with opened(after, boot_id="boot-2") as store:
        await store.ledger.boot()
    assert verify(file_of(after)).ok


async def test_damage_that_is_met_later_refuses_and_is_set_aside_at_the_next_start(tmp_path):
    await filled(tmp_path, 200)
    raw = bytearray(file_of(tmp_path).read_bytes())
    page = 4096
    connection = sqlite3.connect(file_of(tmp_path))
    root = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'sqlite_autoindex_inbox_1'").fetchone()[
        0
    ]
    connection.close()
    raw[(root - 1) * page : root * page] = b"\x77" * page
    file_of(tmp_path).write_bytes(raw)
    async with opened(tmp_path) as store:
        with pytest.raises(StoreError, match="damaged"):
            await store.inbox.claim("mqtt", "id", "print")
        assert store.health().state == "degraded"
        await store.memory.remember("still", "works")
        assert store.health().state == "degraded"
    async with opened(tmp_path, boot_id="boot-2") as store:
        await store.ledger.boot()
        assert (await store.inbox.claim("mqtt", "id", "print")).new
        assert store.health().state == "ok"
    assert "found damaged while in use" in all_rows(tmp_path)[0].note
    assert len(list(tmp_path.glob("*broken-*"))) == 1


async def test_an_interrupted_creation_is_begun_again(tmp_path):
    (tmp_path / "zeroclawd.db.new").write_bytes(b"half of a databa")
    async with opened(tmp_path, HandClock()) as store:
        await store.ledger.boot()
    assert kinds(tmp_path) == ["boot"]
    assert not list(tmp_path.glob("*.new"))
    assert not list(tmp_path.glob("*broken*"))
