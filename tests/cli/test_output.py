"""What commands print: nothing that a terminal would obey or hide, aligned columns, local times with their offset."""

from __future__ import annotations

import json
import time
from pathlib import Path

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zeroclawd.cli import output

ANY = st.text(st.characters(codec=None))
# Two halves that stand side by side are one letter to JSON, so only whole letters can come back as they were.
WHOLE = st.text(st.characters(codec="utf-8"))
DOCUMENTS = st.recursive(
    st.none() | st.booleans() | st.integers() | WHOLE, lambda inner: st.lists(inner) | st.dictionaries(WHOLE, inner)
)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain text", "plain text"),
        ("grün 温度 ✓", "grün 温度 ✓"),
        ("\x1b[2J\x1b]0;owned\x07", "\\u001b[2J\\u001b]0;owned\\u0007"),
        ("on\rdeny", "on\\u000ddeny"),
        ("\x9b31m", "\\u009b31m"),
        ("pump \u202e no", "pump \\u202e no"),
        ("va\u200blve", "va\\u200blve"),
        ("half \ud800", "half \\ud800"),
        ("tag \U000e0041", "tag \\udb40\\udc41"),
        ("line\u2028two", "line\\u2028two"),
    ],
)
def test_what_a_terminal_would_obey_or_hide_is_written_out(text: str, shown: str) -> None:
    assert output.visible(text) == shown


@given(ANY)
def test_any_text_becomes_printable_and_can_be_written_in_utf8(text: str) -> None:
    shown = output.visible(text)
    assert shown.isprintable() or " " in shown or "\u3000" in shown or "\xa0" in shown
    assert not any(letter < " " or "\x7f" <= letter <= "\x9f" for letter in shown)
    shown.encode("utf-8")


@given(DOCUMENTS)
def test_json_says_the_same_and_has_nothing_in_it_that_a_terminal_obeys(document: object) -> None:
    text = output.json_text(document)
    assert json.loads(text) == document
    assert not any(letter < " " or "\x7f" <= letter <= "\x9f" for letter in text)


def test_columns_are_aligned_in_a_pipe_also_with_wide_letters(capsys: pytest.CaptureFixture[str]) -> None:
    output.table(("name", "shows"), [("温室", "21 °C"), ("pump\x1b[1m", "on")], none="-")
    assert capsys.readouterr().out == (
        "name           shows\n"
        "温室           21 °C\n"
        "pump\\u001b[1m  on\n"
    )  # fmt: skip


def test_an_empty_table_says_so_beside_the_output(capsys: pytest.CaptureFixture[str]) -> None:
    output.table(("name",), [], none="nothing is there")
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", "nothing is there\n")


def test_times_are_local_and_carry_their_offset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    assert output.moment(1_700_000_000.25) == "2023-11-15 07:13:20+09:00"
    assert output.moment(1e30) == "1000000000000000019884624838656"
    assert output.unix("2023-11-14T22:13:20.250Z") == 1_700_000_000.25
    assert output.unix(None) is None
    assert output.since("2023-11-15T07:13:20", "--since") == 1_700_000_000
    assert output.since("2023-11-15", "--since") == 1_699_974_000
    monkeypatch.undo()
    time.tzset()


def test_spans_are_taken_from_now_and_nonsense_names_the_option() -> None:
    assert output.since("2h", "--since") == pytest.approx(time.time() - 7200, abs=60)
    assert output.span("90", "--for") == 90
    assert output.span("1h", "--for") == 3600
    for text in ("yesterday", "", "1 fortnight", "2023-13-01"):
        with pytest.raises(click.BadParameter, match="2026-01-31"):
            output.since(text, "--since")
    for text in ("0", "soon", "-3m"):
        with pytest.raises(click.BadParameter) as error:
            output.span(text, "--for")
        assert error.value.param_hint == "--for"


@pytest.mark.parametrize(
    ("seconds", "shown"), [(119.9, "1:59"), (60, "1:00"), (12.7, "12s"), (-3, "0s"), (3600, "60:00")]
)
def test_the_time_that_is_left_is_short(seconds: float, shown: str) -> None:
    assert output.left(seconds) == shown


def test_a_line_that_would_wrap_shows_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "11")
    assert output.fitting("\x1b[1mten letter\x1b[0m") == "\x1b[1mten letter\x1b[0m"
    assert output.fitting("eleven letters") == "…n letters"
    assert output.width(output.fitting("温度は二十一度です")) <= 10


def test_the_language_is_that_of_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for name in ("LC_ALL", "LC_MESSAGES", "LANG"):
        monkeypatch.delenv(name, raising=False)
    assert output.words().language == "en"
    monkeypatch.setenv("LANG", "ja_JP.UTF-8")
    assert output.words().language == "ja"
    monkeypatch.setenv("LC_ALL", "C")
    assert output.words().language == "en"
    output.words()("send-accepted")
    assert any(path.name.startswith("texts-en-") for path in (tmp_path / "zeroclawd").iterdir())


def test_colour_is_never_put_on_where_nobody_wants_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert output.by_meaning("denied") == "\x1b[31mdenied\x1b[0m"
    assert output.by_meaning("something else") == "something else"
    monkeypatch.setenv("NO_COLOR", "1")
    assert output.by_meaning("denied") == "denied"
