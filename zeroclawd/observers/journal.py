"""The journal: short English event names with fields, in the form that whoever reads them wants."""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import sys
from typing import Any, TextIO

from zeroclawd.events import Chunk, TurnEvent
from zeroclawd.redact import Redactor, plain

log = logging.getLogger("zeroclawd.turn")

# sd-daemon(3): a line on stderr may begin with its syslog priority.
_PRIORITY = {logging.DEBUG: 7, logging.INFO: 6, logging.WARNING: 4, logging.ERROR: 3, logging.CRITICAL: 2}


def journal(event: TurnEvent) -> None:
    """Log a turn's event; streamed text is left out, it comes again at the end."""
    if isinstance(event, Chunk):
        return
    fields = {field.name: getattr(event, field.name) for field in dataclasses.fields(event)}
    name = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in type(event).__name__).strip("_")
    log.info(
        "%s %s", name, " ".join(f"{key}={_value(value)}" for key, value in fields.items() if value not in ("", {}))
    )


def _value(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3f}"
    text = plain(value if isinstance(value, str) else str(value), 300)
    return json.dumps(text, ensure_ascii=False) if " " in text or '"' in text else text


class Formatter(logging.Formatter):
    """One line a record, scrubbed: `journal` with a priority, `text` with the time, `json` as an object."""

    def __init__(self, form: str, redactor: Redactor) -> None:
        super().__init__()
        self._form = form
        self._redactor = redactor

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        text = record.getMessage()
        if record.exc_info:
            text = f"{text} | {self.formatException(record.exc_info)}"
        # Scrubbed first: a secret that is cut or spread over lines would no longer be known.
        line = plain(self._redactor.text(text), 4_000)
        match self._form:
            case "journal":
                return f"<{_PRIORITY.get(record.levelno, 6)}>{line}"
            case "json":
                return json.dumps(
                    {"time": record.created, "level": record.levelname.lower(), "event": line}, ensure_ascii=False
                )
            case _:
                return f"{self.formatTime(record, '%H:%M:%S')} {record.levelname.lower():7} {line}"


def set_up(level: str, form: str, redactor: Redactor, stream: TextIO | None = None) -> None:
    """Send the root logger's records to stderr; `auto` is `journal` under systemd (JOURNAL_STREAM), else `text`."""
    if form == "auto":
        form = "journal" if os.environ.get("JOURNAL_STREAM") else "text"
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(Formatter(form, redactor))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
