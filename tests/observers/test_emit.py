"""The one way out for events: scrubbed, bounded, and no observer can hurt a turn."""

from __future__ import annotations

import io
import json
import logging

import pytest

from zeroclawd.events import CallEnded, CallStarted, Chunk, TurnEvent
from zeroclawd.observers.emit import STRIKES, Emitter
from zeroclawd.observers.journal import Formatter, journal, set_up
from zeroclawd.redact import HIDDEN, Redactor

REDACTOR = Redactor.of(["hunter2hunter2"])


def started(**arguments: str) -> CallStarted:
    return CallStarted("t", "a", "mqtt.home", "c1", "look", arguments)


def test_every_field_is_scrubbed_and_bounded_before_anybody_sees_it() -> None:
    seen: list[TurnEvent] = []
    emit = Emitter(REDACTOR, [seen.append], limit=100)
    emit(started(api_key="x", what="say hunter2hunter2"))
    emit(CallEnded("t", "a", "mqtt.home", "c1", "look", "ok", 0.1, text="温" * 5_000 + "hunter2hunter2"))
    first, second = seen
    assert isinstance(first, CallStarted)
    assert first.arguments == {"api_key": HIDDEN, "what": f"say {HIDDEN}"}
    assert isinstance(second, CallEnded)
    assert len(second.text) <= 100
    assert "hunter2" not in second.text


def test_an_observer_that_breaks_is_dropped_and_the_others_hear_on(caplog: pytest.LogCaptureFixture) -> None:
    seen: list[TurnEvent] = []

    def broken(_event: TurnEvent) -> None:
        raise RuntimeError("no")

    calls = 0

    def counted(event: TurnEvent) -> None:
        nonlocal calls
        calls += 1
        broken(event)

    emit = Emitter(REDACTOR, [counted, seen.append])
    for _ in range(10):
        emit(started())
    assert calls == STRIKES
    assert len(seen) == 10
    assert "observer_dropped" in caplog.text


def test_a_slow_observer_is_dropped() -> None:
    now = 0.0

    def clock() -> float:
        return now

    heard = 0

    def slow(_event: TurnEvent) -> None:
        nonlocal now, heard
        heard += 1
        now += 1.0

    emit = Emitter(REDACTOR, [slow], clock=clock)
    for _ in range(10):
        emit(started())
    assert heard == STRIKES


def test_the_journal_has_names_and_fields_and_no_streamed_text(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "zeroclawd.turn"):
        journal(started(what="two words"))
        journal(Chunk("t", "a", "mqtt.home", "piece"))
    (record,) = caplog.records
    assert record.getMessage().startswith("call_started turn_id=t agent=a channel=mqtt.home call_id=c1 tool=look")


@pytest.mark.parametrize(("form", "wanted"), [("journal", "<4>careful hunter x"), ("text", "warning careful hunter x")])
def test_lines_are_one_line_and_scrubbed(form: str, wanted: str) -> None:
    record = logging.LogRecord("x", logging.WARNING, "f", 1, "careful\nhunter2hunter2 x", None, None)
    line = Formatter(form, REDACTOR).format(record)
    assert "\n" not in line
    assert line.replace(HIDDEN, "hunter").replace("  ", " ").endswith(wanted)


def test_json_lines_are_json_and_exceptions_are_scrubbed() -> None:
    stream = io.StringIO()
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    try:
        set_up("info", "json", REDACTOR, stream)
        try:
            raise ValueError("https://u:hunter2hunter2@host/")
        except ValueError:
            logging.getLogger("zeroclawd.x").exception("failed")
    finally:
        root.handlers[:], root.level = before, level
    said = json.loads(stream.getvalue())
    assert said["level"] == "error"
    assert "hunter2" not in said["event"]
