from __future__ import annotations

import asyncio
import dataclasses
import json
import sqlite3

import pytest

from tests.store.hands import HandClock, all_rows, file_of, intent, kinds, opened, outcome
from zeroclawd.config import Bytes, LedgerConfig, Seconds
from zeroclawd.errors import StoreError
from zeroclawd.messages import Entry
from zeroclawd.store import checkpoints, rows
from zeroclawd.store.rows import COLUMNS
from zeroclawd.store.verify import verify


async def test_a_row_holds_what_the_entry_said_and_what_the_store_knows(tmp_path):
    entry = Entry(
        **{field.name: f"the {field.name}" for field in dataclasses.fields(Entry) if field.name != "kind"},
        kind="decision",
    )
    async with opened(tmp_path, HandClock(is_synced=False), boot_id="b7") as store:
        assert await store.ledger.append(entry) == 1
    (row,) = all_rows(tmp_path)
    assert (row.seq, row.prev_hash, row.boot_id) == (1, "0" * 64, "b7")
    assert (row.wall_time, row.wall_synced, row.monotonic) == (1_700_000_000_000_000, 0, 100_000_000)
    assert row.time == 1_700_000_000.0
    for field in dataclasses.fields(Entry):
        assert getattr(row, field.name) == getattr(entry, field.name)
    assert row.hash == rows.row_hash(row)


def test_every_field_of_an_entry_has_its_column_in_the_same_order():
    assert COLUMNS[7:] == tuple(field.name for field in dataclasses.fields(Entry))


async def test_rows_of_one_append_are_neighbours_and_the_last_ones_seq_comes_back(tmp_path):
    async with opened(tmp_path) as store:
        seqs = await asyncio.gather(*(store.ledger.append(intent(f"{n}a"), intent(f"{n}b")) for n in range(50)))
    assert sorted(seqs) == list(range(2, 101, 2))
    for seq in seqs:
        pair = [row.call_id for row in all_rows(tmp_path) if row.seq in (seq - 1, seq)]
        assert pair[0][:-1] == pair[1][:-1]
    assert verify(file_of(tmp_path)).ok


async def test_an_unknown_kind_is_refused(tmp_path):
    async with opened(tmp_path) as store:
        with pytest.raises(ValueError, match="invented"):
            await store.ledger.append(Entry("invented"))


async def test_text_that_no_column_can_hold_is_written_out_and_what_is_too_long_is_cut(tmp_path):
    async with opened(tmp_path) as store:
        await store.ledger.append(Entry("command", note="a\udc80b\x00c", arguments="x" * 70_000))
    (row,) = all_rows(tmp_path)
    assert row.note == "a\\udc80b\x00c"
    assert row.arguments.startswith("x" * 65_536 + "… (+4464 ")
    assert verify(file_of(tmp_path)).ok


async def test_rows_are_never_changed_nor_removed_by_the_daemon_itself(tmp_path):
    async with opened(tmp_path) as store:
        await store.ledger.append(intent())
        for statement in ("UPDATE ledger SET note = 'x'", "DELETE FROM ledger"):
            with pytest.raises(StoreError):
                await store.database.write(lambda connection, text=statement: connection.execute(text))
        assert len(all_rows(tmp_path)) == 1


# Boots


async def test_a_boot_finds_intents_without_outcome_and_calls_them_unknown(tmp_path):
    async with opened(tmp_path, boot_id="one") as store:
        await store.ledger.boot("version=1")
        await store.ledger.append(intent("done"), intent("open", device="valve", tool="device_write", principal="anna"))
        await store.ledger.append(outcome("done"))
    async with opened(tmp_path, boot_id="two") as store:
        (left,) = await store.ledger.boot("version=1")
        assert (left.seq, left.turn_id, left.call_id) == (3, "t1", "open")
        assert (left.device, left.tool, left.principal) == ("valve", "device_write", "anna")
    row = all_rows(tmp_path)[-1]
    assert (row.kind, row.outcome, row.call_id, row.device, row.boot_id) == (
        "outcome",
        "unknown",
        "open",
        "valve",
        "two",
    )
    assert "row 3 of boot one" in row.note
    assert kinds(tmp_path) == ["boot", "intent", "intent", "outcome", "boot", "outcome"]
    async with opened(tmp_path, boot_id="three") as store:
        assert await store.ledger.boot() == []
    assert verify(file_of(tmp_path)).warnings == ()


async def test_intents_of_this_boot_are_nobodys_leftovers(tmp_path):
    async with opened(tmp_path, boot_id="one") as store:
        await store.ledger.append(intent("early"))
        assert await store.ledger.boot() == []


async def test_a_call_id_that_a_model_uses_again_is_closed_once_for_each_time(tmp_path):
    async with opened(tmp_path, boot_id="one") as store:
        await store.ledger.append(intent("call_1"), outcome("call_1"), intent("call_1"))
    async with opened(tmp_path, boot_id="two") as store:
        assert [left.seq for left in await store.ledger.boot()] == [3]


@pytest.mark.parametrize("clean", [True, False])
async def test_the_boot_row_says_how_the_last_boot_ended(tmp_path, clean):
    async with opened(tmp_path, boot_id="one") as store:
        await store.ledger.boot("version=1")
        if clean:
            await store.ledger.stop("SIGTERM")
    async with opened(tmp_path, boot_id="two") as store:
        await store.ledger.boot("version=1")
    first, *_, last = (row for row in all_rows(tmp_path) if row.kind == "boot")
    assert "after=first start" in first.note
    assert "new device key" in first.note
    assert ("after=clean stop" if clean else "after=power cut or crash") in last.note
    assert "new device key" not in last.note


# Clocks


async def test_a_step_of_the_wall_clock_writes_a_row_first(tmp_path):
    clock = HandClock(wall_time=1_000.0, is_synced=False)
    async with opened(tmp_path, clock) as store:
        await store.ledger.boot()
        clock.advance(10)
        await store.ledger.append(intent("a"))
        clock.advance(3600)
        clock.step(1.9)
        await store.ledger.append(intent("b"))
        clock.step(-2.5)
        await store.ledger.append(intent("c"))
        clock.step(15_552_000)
        clock.is_synced = True
        await store.ledger.append(intent("d"))
        await store.ledger.append(intent("e"))
    assert kinds(tmp_path) == ["boot", "intent", "intent", "clock", "intent", "clock", "intent", "intent"]
    back, forth = (row for row in all_rows(tmp_path) if row.kind == "clock")
    assert "moved by -2.500 s" in back.note
    assert "moved by +15552000.000 s; was not synced, is synced" in forth.note


async def test_a_reboot_is_no_step(tmp_path):
    clock = HandClock()
    async with opened(tmp_path, clock) as store:
        await store.ledger.boot()
    clock.reboot()
    async with opened(tmp_path, clock, boot_id="two") as store:
        await store.ledger.boot()
        await store.ledger.append(intent())
    assert kinds(tmp_path) == ["boot", "boot", "intent"]


async def test_a_clock_that_is_set_without_a_step_is_noted_too(tmp_path):
    clock = HandClock(is_synced=False)
    async with opened(tmp_path, clock) as store:
        await store.ledger.boot()
        clock.is_synced = True
        await store.ledger.append(intent())
    assert kinds(tmp_path) == ["boot", "clock", "intent"]


# Checkpoints


async def test_the_stop_row_is_covered_by_a_last_checkpoint(tmp_path):
    published: list[checkpoints.Checkpoint] = []

    async def publish(point: checkpoints.Checkpoint) -> None:
        published.append(point)

    async with opened(tmp_path) as store:
        store.ledger.publish = publish
        await store.ledger.boot()
        point = await store.ledger.stop("SIGTERM")
        assert await store.ledger.checkpoint() is None
        key = store.keys.node.public
    assert published == [point]
    assert kinds(tmp_path) == ["boot", "stop", "checkpoint"]
    assert (point.node, point.seq, point.hash) == ("node-1", 2, all_rows(tmp_path)[1].hash)
    assert point.key == key
    assert point.genuine()
    assert point.genuine(key)
    assert checkpoints.parse(json.loads(point.text())) == point
    for change in (
        {"seq": 3},
        {"hash": "0" * 64},
        {"node": "other"},
        {"wall_time": 1},
        {"boot_id": "x"},
        {"key": "AAAA"},
    ):
        assert not dataclasses.replace(point, **change).genuine()
    assert set(point.document()) == {"v", "node", "seq", "hash", "boot_id", "wall_time", "sig", "key"}


async def test_checkpoints_come_after_so_many_rows_and_do_not_beget_each_other(tmp_path):
    seen: asyncio.Queue[checkpoints.Checkpoint] = asyncio.Queue()
    limits = LedgerConfig(checkpoint_every=5, checkpoint_interval=Seconds(3600))
    async with opened(tmp_path, limits=limits) as store:
        store.ledger.publish = seen.put
        async with asyncio.TaskGroup() as group:
            keeper = group.create_task(store.ledger.keep())
            await store.ledger.append(*(intent(str(n)) for n in range(5)))
            point = await asyncio.wait_for(seen.get(), 30)
            assert point.seq == 5
            await store.ledger.append(*(intent(str(n)) for n in range(4)))
            assert seen.empty()
            await store.ledger.append(intent("last"))
            assert (await asyncio.wait_for(seen.get(), 30)).seq == 11
            keeper.cancel()
    assert kinds(tmp_path).count("checkpoint") == 2


async def test_after_activity_comes_one_last_checkpoint_and_then_silence(tmp_path):
    seen: asyncio.Queue[checkpoints.Checkpoint] = asyncio.Queue()
    limits = LedgerConfig(checkpoint_every=1000, checkpoint_interval=Seconds(0.1))
    async with opened(tmp_path, limits=limits) as store:
        store.ledger.publish = seen.put
        async with asyncio.TaskGroup() as group:
            keeper = group.create_task(store.ledger.keep())
            await store.ledger.append(intent())
            assert (await asyncio.wait_for(seen.get(), 30)).seq == 1
            jobs = store.database.counters.jobs
            await asyncio.sleep(0.5)
            assert store.database.counters.jobs == jobs
            keeper.cancel()
    assert kinds(tmp_path) == ["intent", "checkpoint"]


# Bounds


async def written(store, count: int, size: int = 2_000) -> None:
    for start in range(0, count, 50):
        await store.ledger.append(*(Entry("safety", note=f"{n} " + "x" * size) for n in range(start, start + 50)))


async def test_rows_beyond_the_size_are_exported_then_removed_and_the_chain_goes_on(tmp_path):
    limits = LedgerConfig(max_size=Bytes(1_000_000), export_dir=str(tmp_path / "usb"))
    async with opened(tmp_path, limits=limits) as store:
        await store.ledger.boot()
        await written(store, 200)
        assert await store.ledger.trim() == []
        await written(store, 400)
        first = await store.ledger.trim()
        sizes = [await store.database.read(lambda connection: connection.execute("PRAGMA page_count").fetchone()[0])]
        await written(store, 300)
        sizes += [await store.database.read(lambda connection: connection.execute("PRAGMA page_count").fetchone()[0])]
        second = await store.ledger.trim()
        await store.ledger.checkpoint()
    assert [segment.first for segment in first] == [1]
    assert second[0].first == first[-1].last + 1
    found = all_rows(tmp_path)
    assert found[0].seq == second[-1].last + 1
    assert found[0].prev_hash == second[-1].hash
    answer = verify(file_of(tmp_path))
    assert answer.problems == ()
    assert answer.warnings == ()
    files = [segment.file for segment in (*first, *second)]
    assert all(file.stat().st_mode & 0o777 == 0o600 for file in files)
    whole = verify(file_of(tmp_path), segments=files)
    assert whole.problems == ()
    assert (whole.first, whole.rows) == (1, found[-1].seq)
    assert sizes[0] == sizes[1], "the room of the removed rows is not used again"


async def test_rows_beyond_the_age_go_but_only_by_a_known_time(tmp_path):
    clock = HandClock(wall_time=1_000.0, is_synced=False)
    limits = LedgerConfig(max_age=Seconds(86_400))
    async with opened(tmp_path, clock, limits=limits) as store:
        await store.ledger.append(intent("before"), outcome("before"))
        clock.step(1_700_000_000)
        assert await store.ledger.trim() == []
        clock.is_synced = True
        await store.ledger.append(intent("old"), outcome("old"))
        assert await store.ledger.trim() == []
        clock.advance(80_000)
        await store.ledger.append(intent("young"), outcome("young"))
        clock.advance(10_000)
        (segment,) = await store.ledger.trim()
        assert (segment.first, segment.last) == (1, 5)
        assert await store.ledger.trim() == []
    assert [row.call_id for row in all_rows(tmp_path)] == ["young", "young", ""]
    assert verify(file_of(tmp_path)).ok


async def test_an_intent_that_waits_for_its_outcome_is_not_cut_off(tmp_path):
    clock = HandClock()
    async with opened(tmp_path, clock, limits=LedgerConfig(max_age=Seconds(10))) as store:
        await store.ledger.append(intent("a"), outcome("a"), intent("waits"), intent("b"), outcome("b"))
        clock.advance(100)
        await store.ledger.append(intent("c"))
        (segment,) = await store.ledger.trim()
        assert segment.last == 2


async def test_exports_beside_the_database_are_bounded_and_their_loss_is_recorded(tmp_path):
    limits = LedgerConfig(max_size=Bytes(400_000))
    async with opened(tmp_path, limits=limits) as store:
        for _ in range(8):
            await written(store, 150)
            await store.ledger.trim()
    files = list((tmp_path / "ledger").glob("*.jsonl"))
    assert files
    assert sum(file.stat().st_size for file in files) <= 400_000
    gone = [
        name for row in all_rows(tmp_path) if row.kind == "checkpoint" for name in json.loads(row.note)["removed_files"]
    ]
    assert gone
    assert not {file.name for file in files}.intersection(gone)
    assert verify(file_of(tmp_path)).ok


async def test_a_folder_that_the_operator_named_is_never_cleaned(tmp_path):
    limits = LedgerConfig(max_size=Bytes(400_000), export_dir=str(tmp_path / "usb"))
    segments = []
    async with opened(tmp_path, limits=limits) as store:
        for _ in range(8):
            await written(store, 150)
            segments += await store.ledger.trim()
    assert all(segment.file.parent == tmp_path / "usb" and segment.file.exists() for segment in segments)
    assert verify(file_of(tmp_path), segments=[segment.file for segment in segments]).first == 1


async def test_what_cannot_be_exported_is_not_removed(tmp_path):
    (tmp_path / "blocked").write_text("a file where the folder should be")
    limits = LedgerConfig(max_size=Bytes(400_000), export_dir=str(tmp_path / "blocked"))
    async with opened(tmp_path, limits=limits) as store:
        await written(store, 300)
        with pytest.raises(StoreError):
            await store.ledger.trim()
        assert len(all_rows(tmp_path)) == 300


# Questions that people ask


async def test_rows_are_found_by_what_people_ask_for(tmp_path):
    clock = HandClock()
    async with opened(tmp_path, clock) as store:
        for n in range(10):
            device = "valve" if n % 2 else "lamp"
            await store.ledger.append(
                intent(f"c{n}", device=device, tool="device_write", principal="anna"),
                outcome(f"c{n}", how="denied" if n == 3 else "ok", device=device, receipt=f"zc-receipt-{n}"),
            )
            clock.advance(60)
        path = file_of(tmp_path)

        def ask(**terms):
            return [row.call_id for row in rows.rows(path, **terms)]

        assert ask(device="valve", kind="outcome") == ["c1", "c3", "c5", "c7", "c9"]
        assert ask(outcome="denied") == ["c3"]
        assert ask(since=1_700_000_000.0 + 480, kind="intent") == ["c8", "c9"]
        assert ask(until=1_700_000_000.0 + 60, kind="intent") == ["c0"]
        assert ask(tool="device_write", limit=2) == ["c8", "c9"]
        assert ask(after_seq=2, limit=3) == ["c1", "c1", "c2"]
        assert ask(turn="t1", principal="anna", kind="intent", limit=1) == ["c9"]
        assert ask(device="nothing") == []
        found = rows.find_receipt(path, "zc-receipt-4")
        assert found is not None
        assert found.call_id == "c4"
        assert rows.find_receipt(path, "zc-receipt-77") is None
        assert rows.find_receipt(path, "") is None
        assert rows.show(path, 3).call_id == "c1"
        assert rows.show(path, 99) is None


def test_asking_a_file_that_is_not_there_is_an_error_with_a_hint(tmp_path):
    with pytest.raises(StoreError) as caught:
        rows.rows(tmp_path / "nowhere.db")
    assert caught.value.hint


def test_asking_a_file_that_is_no_database_is_an_error(tmp_path):
    (tmp_path / "text.db").write_text("this is not a database, whatever its name says" * 100)
    with pytest.raises(StoreError):
        rows.rows(tmp_path / "text.db")


async def test_looking_at_a_copy_leaves_nothing_beside_it(tmp_path):
    async with opened(tmp_path / "state") as store:
        await store.ledger.append(intent())
    copy = tmp_path / "evidence"
    copy.mkdir()
    (copy / "zeroclawd.db").write_bytes(file_of(tmp_path / "state").read_bytes())
    assert verify(copy / "zeroclawd.db").rows == 1
    assert len(rows.rows(copy / "zeroclawd.db")) == 1
    assert [path.name for path in copy.iterdir()] == ["zeroclawd.db"]


async def test_an_export_is_whole_or_not_there(tmp_path):
    async with opened(tmp_path) as store:
        await store.ledger.append(*(intent(str(n)) for n in range(20)))
        out = tmp_path / "rows.jsonl"
        segment = rows.export(file_of(tmp_path), out, from_seq=5, to_seq=12)
        assert (segment.first, segment.last) == (5, 12)
        lines = [json.loads(line) for line in out.read_text().splitlines()]
        assert [line["seq"] for line in lines[:-1]] == list(range(5, 13))
        assert lines[-1]["head"]["hash"] == segment.hash
        assert lines[-1]["head"]["prev_hash"] == lines[0]["prev_hash"]
        assert rows.export(file_of(tmp_path), tmp_path / "none.jsonl", from_seq=99) is None
        assert not (tmp_path / "none.jsonl").exists()
        with pytest.raises(StoreError):
            rows.export(file_of(tmp_path), tmp_path / "no" / "folder.jsonl")
    answer = verify(out)
    assert answer.ok
    assert (answer.first, answer.rows) == (5, 8)
    assert "begins at row 5" in answer.warnings[0].what


async def test_a_ledger_may_be_checked_while_it_is_written(tmp_path):
    async with opened(tmp_path) as store:
        stop = asyncio.Event()

        async def write() -> int:
            count = 0
            while not stop.is_set():
                await store.ledger.append(intent(str(count)), outcome(str(count)), sync=count % 3 == 0)
                count += 1
            return count

        task = asyncio.create_task(write())
        answers = [await asyncio.to_thread(verify, file_of(tmp_path)) for _ in range(20)]
        stop.set()
        count = await task
        assert [answer.problems for answer in answers] == [()] * 20
        assert [answer.rows for answer in answers] == sorted(answer.rows for answer in answers)
        assert verify(file_of(tmp_path)).rows == 2 * count


async def test_the_reader_of_a_live_file_takes_nothing_away(tmp_path):
    async with opened(tmp_path) as store:
        await store.ledger.append(intent())
        log = file_of(tmp_path).with_name("zeroclawd.db-wal")
        size = log.stat().st_size
        verify(file_of(tmp_path))
        assert log.stat().st_size == size
        with sqlite3.connect(f"file:{file_of(tmp_path)}?mode=ro", uri=True) as other:
            assert other.execute("SELECT count(*) FROM ledger").fetchone() == (1,)
        other.close()
