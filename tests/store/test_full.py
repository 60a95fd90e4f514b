from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.store.hands import HandClock, all_rows, file_of, intent, kinds, opened, outcome
from zeroclawd.config import LedgerConfig
from zeroclawd.errors import StoreFull
from zeroclawd.interfaces import Parcel
from zeroclawd.messages import Entry
from zeroclawd.store.outbox import OutboxBounds
from zeroclawd.store.store import Store
from zeroclawd.store.verify import verify


async def limit_pages(store: Store, pages: int) -> None:
    """Let the file have no more than so many pages (0: as many as it has)."""

    def job(connection):
        now = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count = {pages or now}")

    await store.database.write(job)


async def fill(store: Store, size: int = 3_000) -> int:
    """Append until the disk is full; how many rows found room."""
    for count in range(100_000):
        try:
            await store.ledger.append(intent(f"f{count}", note="x" * size))
        except StoreFull:
            return count
    raise AssertionError("it never got full")


async def test_a_full_file_refuses_reads_on_and_recovers_without_a_restart(tmp_path, caplog):
    changes = []
    async with opened(tmp_path) as store:
        store.on_change(lambda: changes.append(store.health().state))
        await store.ledger.boot()
        await limit_pages(store, 0)
        count = await fill(store)
        assert store.health().state == "degraded"
        assert "full" in store.health().detail
        for _ in range(20):
            with pytest.raises(StoreFull):
                await store.ledger.append(intent(note="x" * 3_000))
        with pytest.raises(StoreFull):
            await store.inbox.claim("mqtt", "1", "print", Entry("command", note="x" * 30_000))
        assert await store.sessions.load("s") == []
        assert len(all_rows(tmp_path)) == count + 1
        await limit_pages(store, 10_000)
        assert (await store.inbox.claim("mqtt", "1", "print", Entry("command"))).new
        await store.ledger.append(intent("after"))
        assert store.health().state == "ok"
        assert changes == ["degraded", "ok"]
    said = [
        record
        for record in caplog.records
        if record.name.startswith("zeroclawd.store") and record.levelno >= logging.WARNING
    ]
    assert [record.getMessage().split()[0] for record in said] == ["store_cannot_record", "store_records_again"]
    assert verify(file_of(tmp_path)).ok


async def test_a_job_that_finds_no_room_spares_the_small_one_beside_it(tmp_path):
    async with opened(tmp_path) as store:
        await store.ledger.boot()
        await limit_pages(store, 0)
        large = store.ledger.append(intent("large", note="x" * 60_000))
        small = store.memory.remember("key", "small")
        answers = await asyncio.gather(large, small, return_exceptions=True)
        assert isinstance(answers[0], StoreFull)
        assert answers[1] is None
        assert await store.memory.recall("key") == "small"
    assert kinds(tmp_path) == ["boot"]


async def test_a_reply_that_finds_no_room_waits_in_memory(tmp_path):
    async with opened(tmp_path) as store:
        await limit_pages(store, 0)
        outbox = store.outbox("mqtt")
        parcel = await outbox.put(Parcel("reply", b"cannot record" * 10_000))
        assert [waiting.id for waiting in await outbox.waiting(10)] == [parcel.id]
        await outbox.done(parcel.id)
        assert await outbox.waiting(10) == []


async def test_of_what_waits_in_memory_states_make_room_for_replies(tmp_path):
    async with opened(tmp_path) as store:
        await limit_pages(store, 0)
        outbox = store.outbox("mqtt", OutboxBounds(count=2))
        reply = Parcel("reply", b"cannot record" * 10_000)
        await outbox.put(reply)
        await outbox.put(Parcel("lamp", b"on", replace=True))
        await outbox.put(reply)
        assert [parcel.topic for parcel in await outbox.waiting(10)] == ["reply", "reply"]
        assert outbox.dropped == 1


async def test_a_boot_on_a_full_disk_is_written_before_the_first_row_that_finds_room(tmp_path):
    async with opened(tmp_path, boot_id="one") as store:
        await store.ledger.append(intent("open"))
    async with opened(tmp_path, boot_id="two") as store:
        await limit_pages(store, 0)
        store.ledger.boot_id = "two" + "x" * 5_000
        (left,) = await store.ledger.boot()
        assert left.call_id == "open"
        assert kinds(tmp_path) == ["intent"]
        await limit_pages(store, 10_000)
        await store.ledger.append(intent("next"))
    assert kinds(tmp_path) == ["intent", "boot", "outcome", "intent"]
    assert verify(file_of(tmp_path)).ok


# A real disk


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MB; only root may mount one."""
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "none", str(tmp_path)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("needs the right to mount a tmpfs")
    try:
        yield tmp_path / "state"
    finally:
        subprocess.run(["umount", "-l", str(tmp_path)], check=True)


def remount(folder: Path, how: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{how}", str(folder.parent)], check=True)


def use_up(folder: Path) -> Path:
    """Write a file until nothing more fits."""
    hog = folder.parent / "hog"
    with contextlib.suppress(OSError), hog.open("wb", buffering=0) as file:
        while True:
            file.write(b"x" * 4096)
    return hog


async def test_on_a_full_disk_what_has_begun_can_still_be_ended(small_disk, caplog):
    async with opened(small_disk) as store:
        await store.ledger.boot()
        await store.ledger.append(intent("begun"))
        hog = use_up(small_disk)
        count = await fill(store)
        await store.ledger.append(outcome("begun"))
        await store.ledger.append(Entry("safety", note="watchdog switched the pump off"))
        with pytest.raises(StoreFull):
            await store.ledger.append(intent("not now"))
        await store.memory.remember("estop", "engaged")
        with pytest.raises(StoreFull):
            await store.ledger.append(outcome("reading"), sync=False)
        assert store.health().state == "degraded"
        assert not (small_disk / "reserve").exists()
        hog.unlink()
        await store.ledger.append(intent("now"))
        assert store.health().state == "ok"
        assert (small_disk / "reserve").stat().st_size > 0
    assert kinds(small_disk) == ["boot", *["intent"] * (count + 1), "outcome", "safety", "intent"]
    assert verify(file_of(small_disk)).ok
    assert caplog.text.count("store_cannot_record") == 1


async def test_a_daemon_starts_on_a_full_disk(small_disk):
    async with opened(small_disk) as store:
        await store.ledger.append(intent("open"))
    use_up(small_disk)
    async with opened(small_disk, boot_id="two") as store:
        assert [left.call_id for left in await store.ledger.boot()] == ["open"]
        with pytest.raises(StoreFull):
            await store.ledger.append(intent("next"))
        assert await store.sessions.load("s") == []
    assert kinds(small_disk) == ["intent", "boot", "outcome"]


async def test_a_first_start_without_room_says_so(small_disk):
    small_disk.mkdir()
    use_up(small_disk)
    with pytest.raises(StoreFull) as caught:
        Store.open(small_disk, HandClock(), "one", "node-1")
    assert "df" in caught.value.hint
    (small_disk.parent / "hog").unlink()
    async with opened(small_disk) as store:
        await store.ledger.boot()
    assert kinds(small_disk) == ["boot"]


async def test_a_disk_that_is_read_only_says_so(small_disk):
    async with opened(small_disk) as store:
        await store.ledger.append(intent())
    remount(small_disk, "ro")
    with pytest.raises(StoreFull) as caught:
        Store.open(small_disk, HandClock(), "two", "node-1")
    assert "read-only" in caught.value.hint
    assert verify(file_of(small_disk)).rows == 1
    remount(small_disk, "rw")


async def test_what_cannot_be_exported_for_want_of_room_stays(small_disk):
    limits = LedgerConfig(max_size=200_000)
    async with opened(small_disk, limits=limits) as store:
        for n in range(120):
            await store.ledger.append(Entry("safety", note=f"{n}" + "x" * 2_000), sync=False)
        use_up(small_disk)
        with pytest.raises(StoreFull):
            await store.ledger.trim()
        assert len(all_rows(small_disk)) == 120
        assert list((small_disk / "ledger").glob("*")) == []
