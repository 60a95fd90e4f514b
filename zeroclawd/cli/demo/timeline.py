"""What the demo shows: a timeline for people, or one JSON object per step for programs."""

from __future__ import annotations

import json
import time

import click

_COLOURS = {
    "you": "cyan", "operator": "yellow", "forger": "red", "policy": "magenta", "board": "green", "reply": "blue",
    "receipt": "bright_black", "ledger": "bright_black", "runtime": "magenta",
}  # fmt: skip


class Timeline:
    """Prints lines as they happen (who, what) and closes each step with its check."""

    def __init__(self, *, as_json: bool) -> None:
        self._json = as_json
        self._started = time.monotonic()
        self.failed = 0

    def say(self, text: str = "") -> None:
        """A line of its own."""
        if not self._json:
            click.echo(text)

    def title(self, number: int, text: str) -> None:
        """A step begins."""
        self.say(f"\n{click.style(f'{number:2}', bold=True)}  {click.style(text, bold=True)}")

    def line(self, who: str, text: str) -> None:
        """Somebody said, decided or did something."""
        passed = time.monotonic() - self._started
        name = click.style(f"{who:9}", fg=_COLOURS.get(who, "white"))
        self.say(f"    {click.style(f'{passed:6.2f}s', dim=True)}  {name} {text}")

    def check(self, step: str, ok: bool, detail: str) -> None:
        """A step ends: it held or it did not."""
        self.failed += not ok
        if self._json:
            click.echo(json.dumps({"step": step, "ok": ok, "detail": detail}, ensure_ascii=False))
            return
        mark = click.style("ok", fg="green", bold=True) if ok else click.style("FAILED", fg="red", bold=True)
        self.say(f"    {mark}  {detail}")
