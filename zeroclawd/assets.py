"""Finds the folders that are shipped beside the code: tools, locales and systemd files."""

from __future__ import annotations

from pathlib import Path

_HERE = Path(__file__).resolve().parent


def folder(name: str) -> Path:
    """Return the folder `tools`, `locales` or `systemd`: of the checkout if this is one, else of the installed package."""
    checkout = _HERE.parent / name
    if (_HERE.parent / "pyproject.toml").is_file() and checkout.is_dir():
        return checkout
    return _HERE / "assets" / name
