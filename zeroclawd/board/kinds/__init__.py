"""The kinds of devices: one file each, found by looking into this folder; a file names its driver as `KIND`."""

from __future__ import annotations

import importlib
from pathlib import Path

from zeroclawd.board.driver import Driver
from zeroclawd.errors import ConfigError


def kinds() -> list[str]:
    """The names of all kinds."""
    return sorted(path.stem for path in Path(__path__[0]).glob("[!_]*.py"))


def driver_of(kind: str) -> type[Driver]:
    """The driver of a kind; ConfigError names the nearest kind there is."""
    known = kinds()
    if kind not in known:
        import difflib

        near = difflib.get_close_matches(kind, known, n=1)
        guess = f"; did you mean '{near[0]}'?" if near else f"; kinds are: {', '.join(known)}"
        raise ConfigError(f"there is no kind {kind!r}{guess}", key="kind")
    driver: type[Driver] = importlib.import_module(f"{__name__}.{kind}").KIND
    return driver
