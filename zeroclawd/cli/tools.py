"""`zeroclawd tools`: what a model may call here, and what does not load."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from zeroclawd.cli import output

if TYPE_CHECKING:
    from zeroclawd.catalog import Catalog


@click.command("tools")
@click.option(
    "--config", type=click.Path(path_type=Path, dir_okay=False), default=None, help="Say which ones this config admits."
)
@output.options
def command(config: Path | None, as_json: bool) -> int:
    """List the tools: name, risk, effect, file, and why a file does not load. Exit 1 if one does not."""
    from zeroclawd.catalog import Catalog

    catalog = Catalog.load(output.words())
    found = [*_loaded(catalog, config), *_broken(catalog)]
    if as_json:
        for one in found:
            output.as_json(one)
    else:
        heads = ("name", "risk", "effect", *(("admitted",) if config else ()), "file", "what it does")
        keys = ("name", "risk", "effect", *(("admitted",) if config else ()), "file", "about")
        rows = [[_cell(one.get(key, "-")) for key in keys] for one in found]
        output.table(heads, rows, none=output.words()("tools-none"))
    return 1 if catalog.broken else 0


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)


def _loaded(catalog: Catalog, config: Path | None) -> list[dict[str, Any]]:
    """One document a tool; risk and effect are those of a call that says nothing more."""
    admitted = _admitted(catalog, config) if config else None
    found: list[dict[str, Any]] = []
    for name, tool in sorted(catalog.tools.items()):
        judged = tool.assess({})
        found.append(
            {
                "name": name,
                "risk": judged.risk.word,
                "effect": judged.effect.value,
                **({"admitted": name in admitted} if admitted is not None else {}),
                "file": Path(tool.source).name,
                "about": tool.spec.description,
                "parameters": tool.spec.parameters,
            }
        )
    return found


def _admitted(catalog: Catalog, config: Path) -> frozenset[str]:
    from zeroclawd.config import load

    return frozenset(catalog.scoped(load(config).config.risk).tools)


def _broken(catalog: Catalog) -> list[dict[str, Any]]:
    return [
        {"file": Path(one.file).name, "error": one.reason, "about": f"broken: {one.reason}"} for one in catalog.broken
    ]
