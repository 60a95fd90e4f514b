"""How commands print: tables and colour where a terminal is, aligned plain text in a pipe, JSON where it is asked for."""

from __future__ import annotations

import datetime
import sys
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any

import click


def as_json(document: Any) -> None:
    """One JSON document on a line of its own."""
    import msgspec

    click.echo(msgspec.json.encode(document, enc_hook=str).decode())


def terminal() -> bool:
    """True where a person looks at standard output."""
    return sys.stdout.isatty()


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], *, none: str = "nothing") -> None:
    """A table: boxed and wrapped by rich in a terminal, aligned columns in a pipe."""
    listed = [[str(cell) for cell in row] for row in rows]
    if not listed:
        click.echo(none)
    elif terminal():
        _rich(heads, listed)
    else:
        _plain(heads, listed)


def _rich(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=None, pad_edge=False, header_style="bold")
    for head in heads:
        drawn.add_column(head, overflow="fold")
    for row in rows:
        drawn.add_row(*(Text(cell, style=_COLOURS.get(cell, "")) for cell in row))
    Console(highlight=False).print(drawn)


def _plain(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    widths = [max(width(row[place]) for row in (heads, *rows)) for place in range(len(heads))]
    for row in (heads, *rows):
        cells = [cell + " " * (wide - width(cell)) for cell, wide in zip(row, widths, strict=True)]
        click.echo("  ".join(cells).rstrip())


def width(text: str) -> int:
    """Columns that a text takes: East Asian wide characters take two (Unicode Standard Annex 11)."""
    return sum(2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in text)


_COLOURS = {
    "ok": "green", "approve": "green", "run": "green", "online": "green", "low": "green",
    "medium": "yellow", "degraded": "yellow", "ask": "yellow",
    "high": "red", "error": "red", "denied": "red", "refused": "red", "block": "red", "offline": "red", "down": "red",
    "unknown": "red",
}  # fmt: skip


def moment(seconds: float) -> str:
    """A Unix time as local time with its zone."""
    return datetime.datetime.fromtimestamp(seconds).astimezone().strftime("%Y-%m-%d %H:%M:%S %Z")


def when(text: str) -> float:
    """Unix seconds from `1h`, `2d` (ago), an ISO date or an ISO time; click's usage error otherwise."""
    import time

    from zeroclawd.config import duration

    try:
        return time.time() - duration(text)
    except ValueError:
        pass
    try:
        return datetime.datetime.fromisoformat(text).astimezone().timestamp()
    except ValueError:
        raise click.BadParameter(f"{text!r} is neither a span such as 2h nor a time such as 2026-01-31T08:00") from None


def left(seconds: float) -> str:
    """Time that is left, short."""
    whole = max(0, round(seconds))
    return f"{whole // 60}:{whole % 60:02d}" if whole >= 60 else f"{whole} s"
