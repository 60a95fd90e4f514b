"""Questions as an operator sees them: whole, harmless to a terminal, and never another node's."""

from __future__ import annotations

import json
import time
from typing import Any

import click
import pytest

from zeroclawd.channels.mqtt.client import Seen
from zeroclawd.channels.mqtt.documents import rfc3339
from zeroclawd.cli.approvals import questions
from zeroclawd.cli.approvals.watch import Desk
from zeroclawd.errors import ChannelError
from zeroclawd.locale import Texts

WORDS = Texts("en")


def document(request_id: str = "q-1", **more: Any) -> dict[str, Any]:
    return {
        "v": 1, "request_id": request_id, "nonce": "n", "node": "n1", "agent": "agent", "turn_id": "t1",
        "tool": "device_write", "device": "pump", "risk": "high", "arguments": {"device": "pump", "value": True},
        "arguments_digest": "d", "summary": "Set pump to on", "requested_by": "mqtt:home:unverified",
        "expires_in": 60.0, "quorum": {"need": 1, "have": 0}, **more,
    }  # fmt: skip


def seen(said: dict[str, Any], topic: str = "", expiry: float | None = 60.0, node: str = "n1") -> Seen:
    rest = f"approval/request/{topic or said.get('request_id', 'q-1')}"
    return Seen(node, rest, said, json.dumps(said).encode(), True, expiry)


def asked(said: dict[str, Any]) -> questions.Asked:
    found = questions.read(seen(said))
    assert found is not None
    return found


def test_a_question_is_shown_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    assert questions.shown(asked(document())) == (
        "n1: Set pump to on\n"
        "  risk       high\n"
        "  device     pump\n"
        "  tool       device_write\n"
        "  asked by   mqtt:home:unverified\n"
        "  agent      agent, turn t1\n"
        "  left       59s\n"
        "  id         q-1\n"
        '  arguments  {"device": "pump", "value": true}'
    )
    assert questions.line(asked(document(quorum={"need": 2, "have": 1}))) == (
        "n1  asked  q-1  Set pump to on  risk=high  device=pump  tool=device_write  by=mqtt:home:unverified  "
        'approvals=1/2  left=59s  arguments={"device":"pump","value":true}'
    )


def test_long_arguments_are_all_there_one_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    command = "echo harmless " + " " * 4000 + "; rm -rf /"
    shown = questions.shown(asked(document(arguments={"command": command, "seconds": 3})))
    assert json.dumps(command) in shown
    assert shown.endswith('\n               "seconds": 3\n             }')


@pytest.mark.parametrize("field", ["summary", "requested_by", "device", "tool", "risk", "agent"])
def test_no_field_reaches_the_terminal_as_more_than_letters(field: str) -> None:
    hostile = "x\x1b[1A\x1b[2K\rrisk low\n\u202efdp\x9b0m"
    for text in (
        questions.shown(asked(document(**{field: hostile}))),
        questions.line(asked(document(**{field: hostile}))),
    ):
        bare = click.unstyle(text)
        assert not any(letter in bare for letter in ("\x1b", "\r", "\u202e", "\x9b"))
        written = "x\\u001b[1A\\u001b[2K\\u000drisk low\\u000a\\u202efdp\\u009b0m" in bare
        assert written or (field == "agent" and "\n" not in text)


def test_arguments_cannot_hide_anything_either() -> None:
    bare = click.unstyle(questions.shown(asked(document(arguments={"path": "a\u200b\u202egnp.exe", "\x1b[8m": 1}))))
    assert '{"path": "a\\u200b\\u202egnp.exe", "\\u001b[8m": 1}' in bare


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"request_id": "q-1"},
        document(node="n2"),
        document(nonce=5),
        {**document(), "request_id": ["q-1"]},
    ],
)
def test_what_is_no_question_of_this_node_is_none(wrong: dict[str, Any]) -> None:
    assert questions.read(seen(wrong, topic="q-1")) is None


def test_a_question_under_another_ones_topic_is_none() -> None:
    assert questions.read(seen(document("q-2"), topic="q-1")) is None


@pytest.mark.parametrize("odd", [{"quorum": 7}, {"quorum": {"need": "x"}}, {"summary": None}, {"expires_in": "soon"}])
def test_odd_fields_do_not_break_the_view(odd: dict[str, Any]) -> None:
    found = asked(document(**odd))
    assert questions.shown(found)
    assert questions.line(found)


def test_what_is_left_is_counted_by_the_broker_else_by_the_node_and_never_by_a_clock_that_is_off() -> None:
    now = time.time()
    cases = [
        (12.0, {"expires_in": 60.0, "expires_at": rfc3339(now + 60)}, 12),
        (None, {"expires_in": 60.0, "expires_at": rfc3339(now + 20)}, 20),
        (None, {"expires_in": 60.0, "expires_at": rfc3339(now - 9_000)}, 60),
        (None, {"expires_in": 60.0, "expires_at": rfc3339(now + 9_000)}, 60),
        (None, {"expires_in": 60.0}, 60),
        (None, {"expires_in": None}, 120),
    ]
    for expiry, said, expected in cases:
        found = questions.read(seen(document(**said), expiry=expiry))
        assert found is not None
        assert found.left() == pytest.approx(expected, abs=3)


def test_the_beginning_of_an_id_is_enough_if_it_fits_one() -> None:
    among = [asked(document(name)) for name in ("abc1", "abd2", "abc")]
    assert questions.pick("abd", among).id == "abd2"
    assert questions.pick("abc", among).id == "abc"
    with pytest.raises(click.UsageError, match="beginning of 3 ids: n1 abc1, n1 abd2"):
        questions.pick("ab", among)
    with pytest.raises(ChannelError, match="answered, has expired, or never was") as error:
        questions.pick("x", among)
    assert "approvals list" in error.value.hint


def test_the_question_that_ends_first_stands_first() -> None:
    late, soon = document("late"), document("soon")
    cleared = Seen("n1", "approval/request/gone", {}, b"", True)
    found = questions.open_ones([seen(late, expiry=90), seen(soon, expiry=9), cleared, Seen("n1", "status", {}, b"{}")])
    assert [one.id for one in found] == ["soon", "late"]


ACCEPTED = {"event": "answer", "result": "accepted", "operator": "anna"}
REFUSED = {"event": "answer", "result": "refused", "operator": "anna", "reason": "bad_signature"}


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ({**ACCEPTED, "verdict": "approve", "quorum": {"need": 1, "have": 1}}, "approve: accepted (anna)"),
        (
            {**ACCEPTED, "verdict": "approve", "quorum": {"need": 2, "have": 1}},
            "approve: accepted (anna), 1/2; another operator must agree",
        ),
        ({**ACCEPTED, "verdict": "deny", "quorum": {"need": 2, "have": 1}}, "deny: accepted (anna)"),
        ({**REFUSED, "text": "not\x1b[0m signed"}, "answer: refused (anna): not\\u001b[0m signed"),
        (REFUSED, "answer: refused (anna): bad_signature"),
        ({"event": "ended", "outcome": "timed_out", "by": "runtime"}, "ended: timed_out (runtime)"),
        ({"event": "answer"}, "answer: refused (-): ?"),
    ],
)
def test_what_became_of_it_is_one_sentence(said: dict[str, Any], shown: str) -> None:
    assert click.unstyle(questions.outcome(WORDS, said)) == shown


def test_a_refusal_comes_with_something_to_try() -> None:
    assert "keygen" in questions.advice(WORDS, {"reason": "unknown_operator"})
    assert questions.advice(WORDS, {"reason": "something new"}) == ""
    assert questions.advice(WORDS, {}) == ""


def test_a_question_is_the_same_only_in_every_word() -> None:
    one = asked(document())
    assert one.same(asked(document(quorum={"need": 2, "have": 1}, expires_in=3)))
    assert not one.same(None)
    for change in ({"arguments": {}}, {"arguments_digest": "e"}, {"nonce": "m"}, {"summary": "x"}, {"risk": "low"}):
        assert not one.same(asked(document(**change)))


# The desk


def test_the_operator_has_one_question_at_a_time_in_the_order_in_which_they_came() -> None:
    desk = Desk()
    first, second = asked(document("a")), asked(document("b"))
    assert desk.current is None
    assert desk.put(first)
    assert desk.put(second)
    assert not desk.put(first)
    assert desk.current is first
    desk.answered.add(second.key)
    second = asked(document("b", arguments={"device": "furnace"}))
    assert desk.put(second)
    assert not desk.answered
    assert desk.waiting == [first, second]
    desk.skipped.add(first.key)
    assert desk.current is second
    desk.answered.add(second.key)
    assert desk.current is None
    desk.skipped.clear()
    assert desk.current is first
    desk.end(first.key)
    desk.end(second.key)
    desk.put(asked(document("b")))
    assert desk.current is not None
    assert not desk.answered
    assert not desk.late


def test_a_question_whose_time_is_long_over_is_late() -> None:
    desk = Desk()
    found = questions.read(seen(document(), expiry=-6))
    assert found is not None
    desk.put(found)
    assert desk.late == [found]
