from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.store.hands import HandClock, opened
from zeroclawd.interfaces import Outbox, Parcel
from zeroclawd.store.outbox import DurableOutbox, OutboxBounds


def reply(n: int, size: int = 0, **more) -> Parcel:
    return Parcel("reply", f"{n}".encode() + b"x" * size, **more)


def state(topic: str, payload: bytes = b"on") -> Parcel:
    return Parcel(topic, payload, retain=True, replace=True)


async def payloads(outbox: Outbox, limit: int = 100) -> list[bytes]:
    return [parcel.payload for parcel in await outbox.waiting(limit)]


async def test_parcels_wait_in_order_until_they_are_done_also_over_a_restart(tmp_path):
    properties = {"correlation": b"\x00\xff", "expiry": 60, "user": [["a", "b"]]}
    async with opened(tmp_path) as store:
        outbox = store.outbox("mqtt")
        for n in range(4):
            assert (await outbox.put(reply(n, properties=properties, retain=n == 2))).id > 0
        (first,) = await outbox.waiting(1)
        await outbox.done(first.id)
    async with opened(tmp_path, boot_id="boot-2") as store:
        outbox = store.outbox("mqtt")
        await outbox.put(reply(4))
        waiting = await outbox.waiting(10)
        assert [parcel.payload for parcel in waiting] == [b"1", b"2", b"3", b"4"]
        assert [parcel.id for parcel in waiting] == sorted(parcel.id for parcel in waiting)
        assert waiting[0].properties == properties
        assert [parcel.retain for parcel in waiting] == [False, True, False, False]
        assert len(await outbox.waiting(2)) == 2


async def test_each_channel_has_its_own(tmp_path):
    async with opened(tmp_path) as store:
        one, other = store.outbox("mqtt.home"), store.outbox("mqtt.cloud")
        first, second = await one.put(reply(1)), await other.put(reply(2))
        assert first.id != second.id
        assert await payloads(one) == [b"1"]
        assert await payloads(other) == [b"2"]


async def test_a_new_state_takes_the_old_ones_place_and_wears_no_card(tmp_path):
    async with opened(tmp_path) as store:
        outbox = store.outbox("mqtt")
        await store.ledger.boot()
        commits = store.database.counters.commits
        for n in range(1_000):
            await outbox.put(state("lamp", b"%d" % n))
        await outbox.put(state("valve"))
        assert await payloads(outbox) == [b"999", b"on"]
        assert store.database.counters.commits == commits
        assert outbox.dropped == 0


async def test_a_reply_is_on_disk_when_put_returns(tmp_path):
    async with opened(tmp_path) as store:
        outbox = store.outbox("mqtt")
        syncs = store.database.counters.syncs
        await outbox.put(reply(1))
        assert store.database.counters.syncs == syncs + 1


async def test_states_and_replies_keep_their_order_among_each_other(tmp_path):
    async with opened(tmp_path) as store:
        outbox = store.outbox("mqtt")
        for parcel in (reply(0), state("a", b"1"), reply(2), state("b", b"3"), reply(4)):
            await outbox.put(parcel)
        assert await payloads(outbox) == [b"0", b"1", b"2", b"3", b"4"]
        await outbox.put(state("a", b"5"))
        assert await payloads(outbox) == [b"0", b"2", b"3", b"4", b"5"]


async def test_when_full_the_oldest_state_goes_first_then_the_oldest_reply_and_all_are_counted(tmp_path):
    async with opened(tmp_path) as store:
        outbox = store.outbox("mqtt", OutboxBounds(count=4))
        for parcel in (reply(0), state("a", b"a"), reply(1), state("b", b"b")):
            await outbox.put(parcel)
        await outbox.put(reply(2))
        assert await payloads(outbox) == [b"0", b"1", b"b", b"2"]
        await outbox.put(reply(3))
        assert await payloads(outbox) == [b"0", b"1", b"2", b"3"]
        await outbox.put(reply(4))
        assert await payloads(outbox) == [b"1", b"2", b"3", b"4"]
        assert outbox.dropped == 3


async def test_a_hundred_thousand_states_while_the_broker_is_away_take_no_more_than_the_bound(tmp_path):
    async with opened(tmp_path) as store:
        outbox = store.outbox("mqtt", OutboxBounds(count=50))
        for n in range(3_000):
            await outbox.put(state(f"t{n}"))
        assert await outbox.size() == 50
        assert outbox.dropped == 2_950


async def test_bytes_are_bounded_too(tmp_path):
    async with opened(tmp_path) as store:
        outbox = store.outbox("mqtt", OutboxBounds(size=10_000))
        for n in range(10):
            await outbox.put(reply(n, 3_000))
        assert [payload[:1] for payload in await payloads(outbox)] == [b"7", b"8", b"9"]
        assert outbox.dropped == 7
        await outbox.put(reply(0, 20_000))
        assert len(await payloads(outbox)) == 3
        assert outbox.dropped == 8


async def test_what_expires_is_dropped_by_the_monotonic_clock_whatever_the_wall_clock_does(tmp_path):
    clock = HandClock(wall_time=1_000.0, is_synced=False)
    async with opened(tmp_path, clock) as store:
        outbox = store.outbox("mqtt")
        await outbox.put(reply(1, expires_at=clock.wall() + 60))
        await outbox.put(state("a"))
        await outbox.put(reply(2))
        clock.step(15_552_000)
        clock.is_synced = True
        assert len(await payloads(outbox)) == 3
        clock.advance(61)
        assert await payloads(outbox) == [b"on", b"2"]
        assert outbox.expired == 1


async def test_after_a_restart_the_wall_clock_decides_once_it_is_synced(tmp_path):
    clock = HandClock()
    async with opened(tmp_path, clock) as store:
        outbox = store.outbox("mqtt")
        await outbox.put(reply(1, expires_at=clock.wall() + 60))
        await outbox.put(reply(2))
    clock.reboot()
    clock.wall_time, clock.is_synced = 0.0, False
    async with opened(tmp_path, clock, boot_id="boot-2") as store:
        outbox = store.outbox("mqtt", OutboxBounds(age=1_000))
        assert await payloads(outbox) == [b"1", b"2"]
        clock.wall_time, clock.is_synced = 1_700_000_100.0, True
        assert await payloads(outbox) == [b"2"]
        clock.advance(1_000)
        assert await payloads(outbox) == []
        assert outbox.expired == 2


async def test_done_twice_or_for_what_was_replaced_is_nothing(tmp_path):
    async with opened(tmp_path) as store:
        outbox = store.outbox("mqtt")
        old = await outbox.put(state("a", b"1"))
        await outbox.put(state("a", b"2"))
        await outbox.done(old.id)
        await outbox.done(old.id)
        assert await payloads(outbox) == [b"2"]


def expected(bounds: OutboxBounds, parcels: list[Parcel]) -> list[bytes]:
    """The rule said again, slowly."""
    kept: list[Parcel] = []
    for parcel in parcels:
        kept = [old for old in kept if not (parcel.replace and old.replace and old.topic == parcel.topic)]
        kept.append(parcel)
        while len(kept) > bounds.count:
            kept.remove(next((old for old in kept if old.replace), kept[0]))
    return [parcel.payload for parcel in kept]


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.tuples(st.sampled_from(["reply", "a", "b", "c"]), st.binary(max_size=3)), max_size=20),
    st.integers(1, 6),
)
async def test_what_waits_is_what_the_rule_says(tmp_path_factory, wanted, count):
    bounds = OutboxBounds(count=count)
    parcels = [Parcel(topic, payload, replace=topic != "reply") for topic, payload in wanted]
    async with opened(tmp_path_factory.mktemp("outbox")) as store:
        outbox: DurableOutbox = store.outbox("mqtt", bounds)
        for parcel in parcels:
            await outbox.put(parcel)
        assert await payloads(outbox) == expected(bounds, parcels)
