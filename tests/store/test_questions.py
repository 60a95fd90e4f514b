from __future__ import annotations

from tests.store.hands import HandClock, all_rows, kinds, opened
from zeroclawd.interfaces import Questions
from zeroclawd.messages import Entry, Grant, Question
from zeroclawd.tool import Risk


def question(request_id: str = "q1") -> Question:
    return Question(
        request_id=request_id,
        nonce="n",
        node="node-1",
        boot_id="boot-1",
        agent="agent",
        turn_id="t1",
        call_id="c1",
        tool="device_write",
        device="valve",
        risk=Risk.HIGH,
        arguments={"device": "valve", "value": True, "deep": [1, 2.5, None, {"x": "\udc80"}]},
        digest="d",
        summary="open the valve?",
        requested_by="anna",
        channel="mqtt",
        issued_at=1.0,
        expires_at=121.0,
        lifetime=120.0,
        need=2,
    )


def grant(name: str, expires_at: float) -> Grant:
    return Grant(name, "anna", "device_write", "device", "", "valve", "bob", expires_at)


async def test_what_an_earlier_boot_left_open_is_found_and_then_closed(tmp_path):
    async with opened(tmp_path) as store:
        questions: Questions = store.questions
        await questions.opened("mqtt", question("q1"), Entry("decision", decision="asked"))
        await questions.opened("mqtt", question("q2"), Entry("decision", decision="asked"))
        await questions.opened("other", question("q3"))
        await questions.closed("q1", "operator", Entry("decision", decision="approve", decided_by="bob"))
        assert await questions.leftovers("mqtt") == []
    async with opened(tmp_path, boot_id="boot-2") as store:
        await store.questions.opened("mqtt", question("q4"))
        assert await store.questions.leftovers("mqtt") == ["q2"]
        await store.questions.closed("q2", "restarted", Entry("decision", decision="restarted"))
        assert await store.questions.leftovers("mqtt") == []
    assert [row.decision for row in all_rows(tmp_path)] == ["asked", "asked", "approve", "restarted"]


async def test_a_question_and_its_row_share_one_commit(tmp_path):
    async with opened(tmp_path) as store:
        before = store.database.counters.commits
        await store.questions.opened("mqtt", question(), Entry("decision"))
        await store.questions.closed("q1", "operator", Entry("decision"))
        await store.questions.grant(grant("g", 2e9), Entry("grant"))
        assert store.database.counters.commits == before + 3
    assert kinds(tmp_path) == ["decision", "decision", "grant"]


async def test_a_question_comes_back_as_it_was_asked(tmp_path):
    async with opened(tmp_path) as store:
        await store.questions.opened("mqtt", question())
        found = await store.questions.question("q1")
        assert found is not None
        assert found.risk is Risk.HIGH
        assert found.arguments["deep"] == [1, 2.5, None, {"x": "\\udc80"}]
        assert (found.summary, found.need, found.expires_at) == ("open the valve?", 2, 121.0)
        assert await store.questions.question("nobody") is None


async def test_grants_hold_until_they_expire(tmp_path):
    clock = HandClock()
    async with opened(tmp_path, clock) as store:
        await store.questions.grant(grant("short", clock.wall() + 60))
        await store.questions.grant(grant("long", clock.wall() + 6_000))
        assert await store.questions.grants() == [grant("short", 1_700_000_060.0), grant("long", 1_700_006_000.0)]
        clock.advance(61)
        assert [held.id for held in await store.questions.grants()] == ["long"]
    clock.reboot()
    async with opened(tmp_path, clock, boot_id="boot-2") as store:
        assert [held.id for held in await store.questions.grants()] == ["long"]
        clock.advance(6_000)
        assert await store.questions.grants() == []


async def test_a_step_of_the_wall_clock_neither_ends_nor_extends_a_grant(tmp_path):
    clock = HandClock(wall_time=1_000.0, is_synced=False)
    async with opened(tmp_path, clock) as store:
        await store.questions.grant(grant("g", clock.wall() + 60))
        clock.step(15_552_000)
        assert len(await store.questions.grants()) == 1
        clock.step(-15_553_000)
        clock.advance(61)
        assert await store.questions.grants() == []


async def test_a_grant_of_an_earlier_boot_does_not_hold_without_a_clock(tmp_path):
    clock = HandClock()
    async with opened(tmp_path, clock) as store:
        await store.questions.grant(grant("g", clock.wall() + 86_400))
    clock.reboot()
    clock.wall_time, clock.is_synced = 0.0, False
    async with opened(tmp_path, clock, boot_id="boot-2") as store:
        assert await store.questions.grants() == []
        clock.wall_time, clock.is_synced = 1_700_000_600.0, True
        assert [held.id for held in await store.questions.grants()] == ["g"]


async def test_a_grant_of_the_same_id_is_replaced_and_old_ones_are_swept(tmp_path):
    clock = HandClock()
    async with opened(tmp_path, clock) as store:
        await store.questions.grant(grant("old", clock.wall() + 1))
        clock.advance(10)
        await store.questions.grant(grant("g", clock.wall() + 60))
        await store.questions.grant(grant("g", clock.wall() + 600))
        assert [held.expires_at for held in await store.questions.grants()] == [1_700_000_610.0]

        def count(connection):
            return connection.execute("SELECT count(*) FROM grants").fetchone()[0]

        assert await store.database.read(count) == 1
