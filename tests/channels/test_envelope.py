"""What comes in is read strictly, and every fault has its own name."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from zeroclawd.channels.mqtt import envelope
from zeroclawd.channels.mqtt.envelope import Answer, Command, DeviceSet, Engage, Packet, Release
from zeroclawd.errors import RefusedMessage
from zeroclawd.messages import Verdict

NO_PACKET = Packet()
LIMIT = 4096


def read(payload: bytes | dict[str, Any], packet: Packet = NO_PACKET, **more: Any) -> Command:
    raw = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    return envelope.command(raw, packet, limit=LIMIT, plain_text=more.pop("plain_text", False))


def reason_of(payload: bytes | dict[str, Any], packet: Packet = NO_PACKET, **more: Any) -> str:
    with pytest.raises(RefusedMessage) as caught:
        read(payload, packet, **more)
    assert len(caught.value.text) < 300
    return caught.value.reason


def decide(**more: Any) -> bytes:
    whole = {"request_id": "r1", "nonce": "n", "verdict": "approve", "arguments_digest": "d", **more}
    return json.dumps({name: value for name, value in whole.items() if value is not ...}).encode()


READERS = {
    "command": lambda raw: envelope.command(raw, NO_PACKET, limit=LIMIT, plain_text=False),
    "plain": lambda raw: envelope.command(raw, NO_PACKET, limit=LIMIT, plain_text=True),
    "set": lambda raw: envelope.device_set(raw, NO_PACKET, "pump", limit=LIMIT),
    "cancel": lambda raw: envelope.cancel(raw, NO_PACKET, limit=LIMIT),
    "answer": lambda raw: envelope.answer(raw, limit=LIMIT),
    "estop": lambda raw: envelope.estop(raw, limit=LIMIT),
}

NAMES = """
    v id text session sender ts ttl reply_to tools sig value request_id nonce verdict arguments_digest operator node
    replacement grant match action boot_id reason
"""
names = st.sampled_from(NAMES.split())
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.sampled_from(
        ["approve", "always", "replace", "release", "engage", "exact", "r1", "2026-01-31T12:00:00Z", 1e300]
    ),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=4),
    max_leaves=12,
)


def assert_read_or_refused(name: str, raw: bytes) -> None:
    refused: RefusedMessage | None = None
    try:
        READERS[name](raw)
    except RefusedMessage as error:
        refused = error
    if refused is not None:
        assert refused.reason.isidentifier()
        assert refused.text.isprintable()
        assert len(refused.text) < 300


@pytest.mark.parametrize("name", READERS)
@given(raw=st.binary(max_size=200))
@example(b"[" * 4000)
@example(b'{"id":"a","text":"' + b"\xc3\x28" + b'"}')
@example(b'{"id":"a","text":"\\ud800"}')
@example(b'{"id":"a","value":1e999}')
@example(b'{"id":"a","value":' + b"9" * 4000 + b"}")
def test_no_bytes_raise_anything_but_a_refusal(name: str, raw: bytes) -> None:
    assert_read_or_refused(name, raw)


@pytest.mark.parametrize("name", READERS)
@given(fields=st.dictionaries(names, values, max_size=10))
def test_no_json_raises_anything_but_a_refusal(name: str, fields: dict[str, Any]) -> None:
    assert_read_or_refused(name, json.dumps(fields).encode())


@given(command_id=st.text(max_size=140))
def test_an_id_that_is_taken_is_safe_in_topics_and_logs(command_id: str) -> None:
    refused: RefusedMessage | None = None
    taken = ""
    try:
        taken = read({"id": command_id, "text": "x"}).id
    except RefusedMessage as error:
        refused = error
    if refused is not None:
        assert refused.reason in ("bad_id", "no_id", "nul")
        return
    assert taken == command_id
    assert not set(taken) & set("/+# \x00\n")


def test_a_whole_command() -> None:
    taken = read(
        {
            "v": 1,
            "id": "c-1",
            "text": "light on",
            "session": "kitchen",
            "sender": "alice",
            "ts": "2026-01-31T12:00:00+09:00",
            "ttl": 60,
            "reply_to": "apps/x",
            "tools": ["device_read"],
            "sig": "AA",
        }
    )
    assert (taken.id, taken.session, taken.sender, taken.ttl, taken.tools) == (
        "c-1",
        "kitchen",
        "alice",
        60.0,
        ("device_read",),
    )
    assert taken.ts == 1769828400.0


def test_an_empty_tool_list_is_not_the_same_as_none() -> None:
    assert read({"id": "a", "text": "x", "tools": []}).tools == ()
    assert read({"id": "a", "text": "x"}).tools is None


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b'{"id":"r1","text":"tem', "not_json"),
        (b"[]", "malformed"),
        (b'"text"', "malformed"),
        (b"null", "malformed"),
        (b'{"id":"r2","text":"a\xc3\x28\x00\x17stat/x{"', "not_utf8"),
        (b"\xff" * 4000, "not_utf8"),
        (b"x" * (LIMIT + 1), "oversize"),
        (b"light on", "not_json"),
        (b'{"id":"a","text":"x"}\x00', "nul"),
        ({"id": "a", "text": "x\x00y"}, "nul"),
        ({"text": "x"}, "no_id"),
        ({"id": "", "text": "x"}, "no_id"),
        ({"id": "a/b", "text": "x"}, "bad_id"),
        ({"id": "a" * 129, "text": "x"}, "bad_id"),
        ({"id": 7, "text": "x"}, "bad_id"),
        ({"id": ["a"], "text": "x"}, "bad_id"),
        ({"id": "a"}, "malformed"),
        ({"id": "a", "text": " \n"}, "malformed"),
        ({"id": "a", "text": 7}, "malformed"),
        ({"id": "a", "text": "x", "tools": "shell"}, "malformed"),
        ({"id": "a", "text": "x", "tools": [1]}, "malformed"),
        ({"id": "a", "text": "x", "ttl": "60"}, "malformed"),
        ({"id": "a", "text": "x", "ttl": True}, "malformed"),
        ({"id": "a", "text": "x", "ttl": -1}, "malformed"),
        ({"id": "a", "text": "x", "ts": "yesterday"}, "malformed"),
        ({"id": "a", "text": "x", "ts": "2026-01-31T12:00:00"}, "malformed"),
        ({"id": "a", "text": "x", "sender": "a\nb"}, "malformed"),
        ({"id": "a", "text": "x", "v": 2}, "version"),
        ({"id": "a", "text": "x", "v": True}, "version"),
    ],
)
def test_each_fault_has_its_reason(payload: bytes | dict[str, Any], reason: str) -> None:
    assert reason_of(payload) == reason


def test_a_refusal_names_the_command_once_its_id_is_known() -> None:
    with pytest.raises(RefusedMessage) as caught:
        read({"id": "c-1", "text": 7})
    assert caught.value.command_id == "c-1"


def test_a_refusal_never_repeats_what_it_refuses() -> None:
    with pytest.raises(RefusedMessage) as caught:
        read({"id": "c-1", "text": "x", "sender": "\x1b[31mroot"})
    assert "root" not in caught.value.text


def test_correlation_data_stands_in_for_an_id() -> None:
    assert read({"text": "x"}, Packet(b"abc-1")).id == "abc-1"
    assert read({"text": "x"}, Packet(b"\xff\x00")).id == "hex:ff00"
    assert read({"id": "own", "text": "x"}, Packet(b"abc-1")).id == "own"
    assert reason_of({"text": "x"}, Packet(b"\xff" * 200)) == "bad_id"


def test_plain_text_is_taken_only_where_it_is_configured() -> None:
    taken = read("灯りをつけて".encode(), plain_text=True)
    assert (taken.id, taken.text, taken.fields) == ("", "灯りをつけて", {})
    assert reason_of(b'{"id":"a","text":"tem', plain_text=True) == "not_json"


# Values of devices


@pytest.mark.parametrize(
    ("payload", "value"),
    [
        (b"on", True),
        (b"OFF\n", False),
        (b"true", True),
        (b"21.5", 21.5),
        (b"-3", -3),
        (b'"open"', "open"),
        (b'"ON"', True),
        (b'{"id":"a","value":false}', False),
        (b'{"id":"a","value":"off"}', False),
    ],
)
def test_values(payload: bytes, value: object) -> None:
    taken = envelope.device_set(payload, NO_PACKET, "lamp", limit=LIMIT)
    assert isinstance(taken, DeviceSet)
    assert taken.value == value
    assert type(taken.value) is type(value)


@pytest.mark.parametrize(
    "payload", [b"open", b"[1]", b"null", b"{}", b'{"id":"a","value":{}}', b"NaN", b"1e999", b"9" * 40]
)
def test_what_is_no_value(payload: bytes) -> None:
    with pytest.raises(RefusedMessage):
        envelope.device_set(payload, NO_PACKET, "lamp", limit=LIMIT)


@given(value=st.booleans() | st.integers(-(2**60), 2**60) | st.floats(allow_nan=False, allow_infinity=False))
def test_a_number_comes_through_as_it_was_sent(value: float) -> None:
    taken = envelope.device_set(json.dumps({"id": "a", "value": value}).encode(), NO_PACKET, "dimmer", limit=LIMIT)
    assert math.isclose(float(taken.value), float(value), rel_tol=0, abs_tol=0)


# Answers


@pytest.mark.parametrize("verdict", ["approveX", 1, None, True, ["approve"], ""])
def test_an_unknown_verdict_is_refused(verdict: object) -> None:
    with pytest.raises(RefusedMessage) as caught:
        envelope.answer(decide(verdict=verdict), limit=LIMIT)
    assert (caught.value.reason, caught.value.command_id) == ("malformed", "r1")


def test_a_replacement_is_cleaned_and_cut_between_characters() -> None:
    taken = envelope.answer(decide(verdict="replace", replacement="a\x1b\x07b\tc\n" + "é" * 40_000), limit=1_000_000)
    assert isinstance(taken, Answer)
    assert taken.replacement is not None
    assert taken.replacement.startswith("ab\tc\né")
    assert 65_530 < len(taken.replacement.encode()) <= 65_536


@pytest.mark.parametrize(
    "grant",
    [..., None, "exact", {}, {"match": "tool", "ttl": 60}, {"match": "exact"}, {"match": "exact", "ttl": 0}]
    + [{"match": "exact", "ttl": ttl} for ttl in (-1, "60", True, 1e9)],
)
def test_always_needs_terms(grant: object) -> None:
    with pytest.raises(RefusedMessage) as caught:
        envelope.answer(decide(verdict="always", grant=grant), limit=LIMIT)
    assert caught.value.reason == "malformed"


def test_replace_needs_a_text() -> None:
    with pytest.raises(RefusedMessage):
        envelope.answer(decide(verdict="replace"), limit=LIMIT)


def test_what_belongs_to_another_verdict_is_left_aside() -> None:
    taken = envelope.answer(decide(verdict="deny", replacement="x", grant={"match": "exact", "ttl": 9}), limit=LIMIT)
    assert (taken.verdict, taken.replacement, taken.grant) == (Verdict.DENY, None, None)


# Stops


@pytest.mark.parametrize("payload", [b"engage", b"STOP", b'"on"', b'{"action":"engage"}'])
def test_the_stop_is_easy_to_reach(payload: bytes) -> None:
    assert isinstance(envelope.estop(payload, limit=LIMIT), Engage)


@pytest.mark.parametrize(
    "payload",
    [b"release", b"off", b'{"action":"release"}', b'{"action":"release","ts":"x"}', b'{"action":"release","ts":1}'],
)
def test_a_release_is_never_a_plain_word(payload: bytes) -> None:
    with pytest.raises(RefusedMessage):
        envelope.estop(payload, limit=LIMIT)


def test_a_whole_release() -> None:
    taken = envelope.estop(
        b'{"action":"release","operator":"alice","ts":1700000000,"boot_id":"b","sig":"AA"}', limit=LIMIT
    )
    assert isinstance(taken, Release)
    assert (taken.operator, taken.ts, taken.boot_id) == ("alice", 1.7e9, "b")


@given(st.floats(allow_nan=True) | st.integers())
def test_any_number_can_be_told_as_a_time(moment: float) -> None:
    assert envelope.rfc3339(moment).endswith("Z")
