from __future__ import annotations

import asyncio

import pytest

from tests.store.hands import HandClock, all_rows, kinds, opened
from zeroclawd.interfaces import Claimed, Inbox
from zeroclawd.messages import Entry

DAY = 86_400.0


async def test_an_id_is_new_once_with_its_rows_in_the_same_commit(tmp_path):
    async with opened(tmp_path) as store:
        inbox: Inbox = store.inbox
        before = store.database.counters.commits
        assert await inbox.claim("mqtt", "r1", "print", Entry("command", note="accepted")) == Claimed(new=True)
        assert store.database.counters.commits == before + 1
        again = await inbox.claim("mqtt", "r1", "print", Entry("command", note="accepted"))
        assert again == Claimed(new=False, state="accepted", reply=None)
    assert [row.note for row in all_rows(tmp_path)] == ["accepted"]


async def test_a_second_delivery_gets_the_first_ones_reply_also_after_a_restart(tmp_path):
    async with opened(tmp_path) as store:
        await store.inbox.claim("mqtt", "r1", "print")
        await store.inbox.finish("mqtt", "r1", b"the valve is open")
    async with opened(tmp_path, boot_id="boot-2") as store:
        assert await store.inbox.claim("mqtt", "r1", "print") == Claimed(False, "final", b"the valve is open")
        assert (await store.inbox.claim("other", "r1", "print")).new


async def test_the_same_id_with_another_content_is_told_apart_and_learns_nothing(tmp_path):
    async with opened(tmp_path) as store:
        await store.inbox.claim("mqtt", "r1", "print")
        await store.inbox.finish("mqtt", "r1", b"secret")
        assert await store.inbox.claim("mqtt", "r1", "another") == Claimed(False, "reused", None)


async def test_of_deliveries_at_the_same_moment_one_is_new(tmp_path):
    async with opened(tmp_path) as store:
        answers = await asyncio.gather(*(store.inbox.claim("mqtt", "r1", "print", Entry("command")) for _ in range(20)))
    assert [answer.new for answer in answers].count(True) == 1
    assert kinds(tmp_path) == ["command"]


async def test_what_an_earlier_boot_never_answered_comes_back_with_its_routing(tmp_path):
    async with opened(tmp_path) as store:
        await store.inbox.claim("mqtt", "r1", "print", routing=b"there")
        await store.inbox.claim("mqtt", "r2", "print", routing=b"here")
        await store.inbox.claim("mqtt", "r3", "print")
        await store.inbox.claim("other", "r4", "print")
        await store.inbox.finish("mqtt", "r2", b"done")
        assert await store.inbox.unfinished("mqtt") == []
    async with opened(tmp_path, boot_id="boot-2") as store:
        await store.inbox.claim("mqtt", "r5", "print", routing=b"now")
        assert await store.inbox.unfinished("mqtt") == [("r1", b"there"), ("r3", None)]
        await store.inbox.finish("mqtt", "r1", b"unknown")
        assert await store.inbox.unfinished("mqtt") == [("r3", None)]


async def test_beyond_the_count_the_oldest_go_but_none_at_work(tmp_path):
    async with opened(tmp_path) as store:
        store.inbox.max_ids = 5
        for n in range(5):
            await store.inbox.claim("mqtt", f"r{n}", "print")
            if n != 1:
                await store.inbox.finish("mqtt", f"r{n}", b"done")
        for n in range(5, 9):
            await store.inbox.claim("mqtt", f"r{n}", "print")
        assert not (await store.inbox.claim("mqtt", "r1", "print")).new
        assert not (await store.inbox.claim("mqtt", "r4", "print")).new
        assert (await store.inbox.claim("mqtt", "r0", "print")).new


async def test_beyond_the_age_ids_go_by_a_time_that_is_known(tmp_path):
    clock = HandClock(wall_time=1_000.0, is_synced=False)
    async with opened(tmp_path, clock) as store:
        store.inbox.max_age = 10 * DAY
        for n in ("unsynced", "old", "young"):
            if n == "old":
                clock.step(1_700_000_000)  # the clock is set: nothing has become old by that
                clock.is_synced = True
            if n == "young":
                clock.advance(9 * DAY)
            await store.inbox.claim("mqtt", n, "print")
            await store.inbox.finish("mqtt", n, b"done")
        clock.advance(2 * DAY)
        await store.inbox.claim("mqtt", "any", "print")
        assert not (await store.inbox.claim("mqtt", "unsynced", "print")).new
        assert not (await store.inbox.claim("mqtt", "young", "print")).new
        assert (await store.inbox.claim("mqtt", "old", "print")).new


async def test_a_long_ago_reply_is_forgotten_and_its_id_is_not(tmp_path):
    async with opened(tmp_path) as store:
        store.inbox.kept_replies = 3
        for n in range(6):
            await store.inbox.claim("mqtt", f"r{n}", "print")
            await store.inbox.finish("mqtt", f"r{n}", b"done")
        assert await store.inbox.claim("mqtt", "r0", "print") == Claimed(False, "final", None)
        assert await store.inbox.claim("mqtt", "r5", "print") == Claimed(False, "final", b"done")


async def test_a_claim_whose_rows_are_refused_takes_no_id(tmp_path):
    async with opened(tmp_path) as store:
        with pytest.raises(ValueError, match="invented"):
            await store.inbox.claim("mqtt", "r1", "print", Entry("invented"))
        assert (await store.inbox.claim("mqtt", "r1", "print")).new
