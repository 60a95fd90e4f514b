"""How commands print: tables and colour where a terminal is, aligned plain text in a pipe, JSON where it is asked for."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from zeroclawd.locale import Texts

Command = TypeVar("Command", bound=Callable[..., Any])

_LANGUAGE = "zeroclawd.language"
GOOD, DOUBT, BAD, QUIET = "green", "yellow", "red", "bright_black"
_MEANING = {
    "ok": GOOD, "approve": GOOD, "approved": GOOD, "online": GOOD, "low": GOOD, "yes": GOOD,
    "medium": DOUBT, "degraded": DOUBT, "asked": DOUBT, "replaced": DOUBT, "interrupted": DOUBT,
    "high": BAD, "error": BAD, "denied": BAD, "refused": BAD, "blocked": BAD, "offline": BAD, "down": BAD,
    "unknown": BAD, "broken": BAD, "engaged": BAD,
}  # fmt: skip


# Options


def options(function: Command) -> Command:
    """`--json` and `--lang`, which every command of ours has."""
    function = click.option("--json", "as_json", is_flag=True, help="JSON, one object a line.")(function)
    return click.option(
        "--lang",
        default="",
        expose_value=False,
        callback=_note_language,
        help="Language.  [default: $LANG]",
    )(function)


def _note_language(context: click.Context, _parameter: click.Parameter, value: str) -> None:
    if value:
        context.meta[_LANGUAGE] = value


def words() -> Texts:
    """What people read, in the language of `--lang` or of the environment (locale(7))."""
    from zeroclawd.locale import Texts

    context = click.get_current_context(silent=True)
    named = context.meta.get(_LANGUAGE, "") if context else ""
    environ = (os.environ.get(name, "") for name in ("LC_ALL", "LC_MESSAGES", "LANG"))
    return Texts(named or next((name for name in environ if name), "en"), cache=_cache())


def _cache() -> Any:
    from pathlib import Path

    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "zeroclawd"


# Text


def terminal() -> bool:
    """True where a person looks at standard output."""
    return sys.stdout.isatty()


def colour(text: str, fg: str = "", *, bold: bool = False, dim: bool = False) -> str:
    """The text in colour; `echo` takes it off again in a pipe, and it is never put on where NO_COLOR is set."""
    if os.environ.get("NO_COLOR") or not text:
        return text
    return click.style(text, fg=fg or None, bold=bold or None, dim=dim or None) if fg or bold or dim else text


def by_meaning(text: str) -> str:
    """A word such as `ok` or `denied` in the colour of what it means."""
    return colour(text, _MEANING.get(text, ""))


def echo(text: str = "", *, err: bool = False) -> None:
    """A line, at once."""
    click.echo(text, err=err)


def write(text: str) -> None:
    """Part of a line, at once."""
    click.echo(text, nl=False)


def visible(text: str) -> str:
    r"""The text with everything that a terminal would obey or hide written out, as JSON does it: `\u001b`, `\u202e`.

    What comes from models, senders and devices is shown to people who decide by it, so nothing in it may move the cursor,
    change the order of letters, or stay unseen.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(_written(letter) for letter in text)


def _written(letter: str) -> str:
    import unicodedata

    if unicodedata.category(letter) not in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"):
        return letter
    raw = letter.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{raw[place : place + 2].hex()}" for place in range(0, len(raw), 2))


def lines(text: str) -> list[str]:
    """A text of several lines, each of them visible."""
    return [visible(line.replace("\t", "    ")) for line in text.replace("\r\n", "\n").split("\n")]


def as_json(document: Any) -> None:
    """One JSON document on a line of its own."""
    click.echo(json_text(document))


def json_text(document: Any) -> str:
    """Compact JSON; control characters are written out, so that a terminal may show it."""
    import json

    return visible(json.dumps(document, ensure_ascii=False, separators=(",", ":"), default=str))


# Tables


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], *, none: str, whole: int = 1) -> None:
    """A table: in a terminal wrapped to its width but for the first `whole` columns, in a pipe aligned.

    `none` is said, beside the output, if there is no row.
    """
    listed = [[visible(str(cell)) for cell in row] for row in rows]
    if not listed:
        click.echo(none, err=True)
    elif terminal():
        _drawn(heads, listed, whole)
    else:
        _plain(heads, listed)


def _drawn(heads: Sequence[str], rows: Sequence[Sequence[str]], whole: int) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    plain = bool(os.environ.get("NO_COLOR"))
    drawn = Table(box=None, pad_edge=False, header_style="" if plain else "bold")
    for place, head in enumerate(heads):
        drawn.add_column(head, overflow="fold", no_wrap=place < whole)
    for row in rows:
        drawn.add_row(*(Text(cell, style=_MEANING.get(cell, "")) for cell in row))
    Console(highlight=False, no_color=plain or None).print(drawn)


def _plain(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    widths = [max(width(row[place]) for row in (heads, *rows)) for place in range(len(heads))]
    for row in (heads, *rows):
        cells = [cell + " " * (wide - width(cell)) for cell, wide in zip(row, widths, strict=True)]
        click.echo("  ".join(cells).rstrip())


def width(text: str) -> int:
    """Columns that a text takes: East Asian wide letters take two (UAX #11), combining marks none."""
    if text.isascii():
        return len(text)
    import unicodedata

    return sum(
        0 if unicodedata.combining(letter) else 2 if unicodedata.east_asian_width(letter) in "WF" else 1
        for letter in text
    )


def fitting(text: str) -> str:
    """A line that does not wrap in this terminal: as it is, or the end of it without its colours."""
    import shutil

    room = shutil.get_terminal_size().columns - 1
    if width(bare := click.unstyle(text)) <= room:
        return text
    while width(bare) >= room and bare:
        bare = bare[1:]
    return f"…{bare}"


# Time


def moment(seconds: float) -> str:
    """Unix seconds as local time with its offset."""
    import datetime

    try:
        stamp = datetime.datetime.fromtimestamp(seconds).astimezone()
    except (ValueError, OverflowError, OSError):
        return f"{seconds:.0f}"
    return stamp.isoformat(" ", "seconds")


def unix(text: object) -> float | None:
    """Unix seconds of RFC 3339 text; None if it is none."""
    import datetime

    try:
        return datetime.datetime.fromisoformat(str(text)).timestamp()
    except (ValueError, OverflowError):
        return None


def since(text: str, name: str) -> float:
    """Unix seconds from a span that has passed (`2h`, `3d`), or from an ISO date or time; BadParameter names `name`."""
    import datetime
    import time

    ago = _span(text)
    if ago is not None:
        return time.time() - ago
    try:
        return datetime.datetime.fromisoformat(text).astimezone().timestamp()
    except (ValueError, OverflowError):
        raise click.BadParameter(
            f"{text!r} is neither a span such as 2h or 3d nor a time such as 2026-01-31 or 2026-01-31T08:00",
            param_hint=name,
        ) from None


def span(text: str, name: str) -> float:
    """Seconds of a span such as `90`, `30s`, `10m`, `1h`, `7d`; BadParameter names `name`."""
    seconds = _span(text)
    if not seconds:
        raise click.BadParameter(f"{text!r} is no span of time; write 30s, 10m, 1h or 7d", param_hint=name)
    return seconds


def _span(text: str) -> float | None:
    from zeroclawd.config import duration

    try:
        return float(duration(text))
    except ValueError:
        return None


def left(seconds: float) -> str:
    """Time that is left: `1:43`, or `12s` when it is little."""
    whole = max(0, int(seconds))
    return f"{whole // 60}:{whole % 60:02d}" if whole >= 60 else f"{whole}s"
