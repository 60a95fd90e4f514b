from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.store.hands import opened
from zeroclawd.errors import StoreError
from zeroclawd.messages import Message, Outcome, Role, ToolCall

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=8,
)
mapping = st.dictionaries(text, plain, max_size=3)
call = st.builds(ToolCall, id=text, name=text, arguments=mapping, signature=text, fault=text)
message = st.builds(
    Message,
    role=st.sampled_from(Role),
    text=text,
    calls=st.lists(call, max_size=3).map(tuple),
    call_id=text,
    name=text,
    outcome=st.none() | st.sampled_from(Outcome),
    extra=mapping,
)


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(message, max_size=6))
async def test_a_history_comes_back_as_it_was_saved(tmp_path_factory, messages):
    folder = tmp_path_factory.mktemp("sessions")
    async with opened(folder) as store:
        await store.sessions.save("s", messages)
        assert await store.sessions.load("s") == messages
        assert await store.sessions.load("other") == []
    async with opened(folder, boot_id="boot-2") as store:
        assert await store.sessions.load("s") == messages


async def test_saving_replaces(tmp_path):
    async with opened(tmp_path) as store:
        await store.sessions.save("s", [Message(Role.USER, "one"), Message(Role.USER, "two")])
        await store.sessions.save("s", [Message(Role.USER, "three")])
        assert await store.sessions.load("s") == [Message(Role.USER, "three")]


async def test_text_that_utf8_cannot_hold_is_written_out(tmp_path):
    broken = Message(Role.ASSISTANT, "\ud800", (ToolCall("1", "n", {"\udcff": ["\udc80"]}, "s"),))
    async with opened(tmp_path) as store:
        await store.sessions.save("s", [broken])
        (found,) = await store.sessions.load("s")
    assert found.text == "\\ud800"
    assert found.calls[0].arguments == {"\\udcff": ["\\udc80"]}


async def test_the_sessions_saved_longest_ago_go_by_count_and_by_bytes(tmp_path):
    async with opened(tmp_path) as store:
        store.sessions.max_sessions = 3
        for name in ("a", "b", "c", "a", "d"):
            await store.sessions.save(name, [Message(Role.USER, name)])
        assert [bool(await store.sessions.load(name)) for name in "abcd"] == [True, False, True, True]
        store.sessions.max_size = 5_000
        await store.sessions.save("e", [Message(Role.USER, "x" * 4_900)])
        assert [bool(await store.sessions.load(name)) for name in "acde"] == [False, False, False, True]


async def test_a_history_larger_than_all_may_be_is_refused_and_the_old_one_stays(tmp_path):
    async with opened(tmp_path) as store:
        store.sessions.max_size = 1_000
        await store.sessions.save("s", [Message(Role.USER, "small")])
        with pytest.raises(StoreError):
            await store.sessions.save("s", [Message(Role.USER, "x" * 2_000)])
        assert [kept.text for kept in await store.sessions.load("s")] == ["small"]


async def test_a_history_that_cannot_be_read_is_empty_and_said(tmp_path, caplog):
    async with opened(tmp_path) as store:
        await store.sessions.save("s", [Message(Role.USER, "one")])

        def spoil(connection):
            return connection.execute("UPDATE sessions SET messages = ?", (b'[{"role":"wizard"}]',))

        await store.database.write(spoil)
        assert await store.sessions.load("s") == []
    assert "history_unreadable" in caplog.text


async def test_saving_waits_for_no_sync(tmp_path):
    async with opened(tmp_path) as store:
        store.database.linger = 60.0
        syncs = store.database.counters.syncs
        await store.sessions.save("s", [Message(Role.USER, "one")])
        assert store.database.counters.syncs == syncs
