"""Receipts: evidence of one result, checkable after a restart, and impossible to make up."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zeroclawd.messages import Receipt
from zeroclawd.receipts import TOKEN, ReceiptScope, foreign

KEY = b"\x2a" * 32
NOW = 1711547700
CALL: dict[str, Any] = {"call_id": "c1", "tool": "shell", "arguments": {"command": "date"}, "result": "Mon Mar 27"}


def scope(name: str = "boot-1", key: bytes = KEY) -> ReceiptScope:
    return ReceiptScope.derive(key, name)


def token(**change: Any) -> str:
    return scope().issue(**{**CALL, **change}, now=NOW).token


def test_a_receipt_names_time_and_digest_in_its_own_form() -> None:
    receipt = scope().issue(**CALL, now=NOW)
    assert TOKEN.fullmatch(receipt.token)
    assert receipt.token.startswith(f"zc-receipt-{NOW}-")
    assert receipt == Receipt(receipt.token, "c1", "shell", NOW)


def test_a_scopes_key_derives_from_the_device_key_and_the_scopes_id_so_a_receipt_verifies_after_a_restart() -> None:
    assert scope().verify(token(), **CALL)
    assert not scope("boot-2").verify(token(), **CALL)
    assert not scope(key=b"\x2b" * 32).verify(token(), **CALL)


@pytest.mark.parametrize(
    "change",
    [
        {"call_id": "c2"},
        {"tool": "shel"},
        {"tool": "Shell"},
        {"arguments": {"command": "date "}},
        {"arguments": {"command": "date", "approved": False}},
        {"arguments": {}},
        {"result": "Mon Mar 28"},
        {"result": ""},
        {"result": "Mon Mar 27\n"},
    ],
)
def test_a_receipt_belongs_to_one_call_and_one_result(change: dict[str, Any]) -> None:
    assert not scope().verify(token(), **{**CALL, **change})


def test_the_same_arguments_in_another_order_are_the_same_call() -> None:
    told = token(arguments={"a": 1, "b": 2})
    assert scope().verify(told, **{**CALL, "arguments": {"b": 2.0, "a": 1}})


texts = st.text(st.sampled_from('ab|{}"'), max_size=4)
calls = st.fixed_dictionaries(
    {"call_id": texts, "tool": texts, "arguments": st.dictionaries(texts, texts, max_size=2), "result": texts}
)


@given(calls, calls)
def test_two_different_calls_never_share_a_receipt(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert (token(**one) == token(**other)) == (one == other)


@given(calls, calls)
def test_a_receipt_verifies_with_its_own_call_only(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert scope().verify(token(**one), **one)
    assert scope().verify(token(**one), **other) == (one == other)


@given(st.integers(0, 53), st.characters(codec="ascii"))
def test_any_change_of_a_character_breaks_a_receipt(place: int, character: str) -> None:
    good = token()
    changed = good[:place] + character + good[place + 1 :]
    assert scope().verify(changed, **CALL) == (changed == good)


@pytest.mark.parametrize(
    "damaged",
    [
        "",
        "zc-receipt-",
        "zc-receipt-1711547700-",
        "zc-receipt--" + "A" * 43,
        "zc-receipt-1711547700-" + "A" * 43,
        "zc-receipt-" + "9" * 400 + "-" + "A" * 43,
    ],
)
def test_a_malformed_receipt_is_a_no_and_never_an_error(damaged: str) -> None:
    assert not scope().verify(damaged, **CALL)


def test_only_the_spelling_that_was_issued_verifies() -> None:
    good = token()
    for other in (
        f" {good}",
        f"{good}\n",
        f"{good}=",
        good.upper(),
        good.replace(str(NOW), f"0{NOW}"),
        good.replace(str(NOW), "١٧١١٥٤٧٧٠٠"),
        good.replace("zc-receipt", "zc_receipt"),
    ):
        assert not scope().verify(other, **CALL)


def test_a_result_that_is_no_unicode_has_a_receipt_too() -> None:
    assert scope().verify(token(result="\ud800"), **{**CALL, "result": "\ud800"})


def test_the_key_is_never_shown() -> None:
    assert "***" not in repr(ReceiptScope(b"***", "boot-1"))


def test_what_a_scope_remembers_is_bounded() -> None:
    small = dataclasses.replace(scope(), bound=3)
    tokens = [small.issue("c", "t", {}, str(number), NOW).token for number in range(10)]
    assert list(small.issued) == tokens[-3:]


# Replies are scanned


def receipts(*results: str) -> list[Receipt]:
    return [scope().issue("c", "t", {}, result, NOW) for result in results]


def test_a_receipt_that_was_given_is_not_flagged() -> None:
    one, other = receipts("1", "2")
    text = f"Done [receipt: {one.token}], and `{other.token}`. See {one.token}, ({other.token})"
    assert foreign(text, [one, other]) == []


@pytest.mark.parametrize("mark", ["_", "__", "*", "**", "***", "`", '"', "-", "--", ".", ":", "\n", " - "])
def test_the_marks_around_a_receipt_are_not_part_of_it(mark: str) -> None:
    for number in range(40):
        (one,) = receipts(str(number))
        assert foreign(f"It ran {mark}{one.token}{mark}", [one]) == []


def test_a_receipt_of_another_call_is_flagged() -> None:
    one, other = receipts("1", "2")
    assert foreign(f"ran: {other.token}", [one]) == [other.token]


def test_an_invented_receipt_is_flagged() -> None:
    invented = f"zc-receipt-{NOW}-{'A' * 43}"
    assert foreign(f"The pump is on. Receipt: {invented}", receipts("1")) == [invented]
    assert foreign("zc-receipt-123", []) == ["zc-receipt-123"]
    assert foreign("ZC-RECEIPT-123-abc", []) == ["ZC-RECEIPT-123-abc"]


@given(st.integers(12, 65), st.sampled_from("Ab9"))
def test_a_damaged_receipt_is_flagged(place: int, character: str) -> None:
    (one,) = receipts("1")
    cut = one.token[:place]
    swapped = one.token[:place] + character + one.token[place + 1 :]
    longer = one.token + character
    for damaged in {cut, swapped, longer} - {one.token}:
        assert foreign(f"see {damaged} here", [one]) == [damaged]


def test_each_foreign_receipt_is_told_once() -> None:
    assert foreign("zc-receipt-2-b zc-receipt-1-a zc-receipt-2-b", []) == ["zc-receipt-1-a", "zc-receipt-2-b"]


def test_a_reply_without_receipts_has_none_to_flag() -> None:
    assert foreign("The pump is on; its receipt is in the ledger.", receipts("1")) == []
