"""`zeroclawd tools`: what a model may call here, and what does not load."""

from __future__ import annotations

from pathlib import Path

import click

from zeroclawd.cli import output


@click.command("tools")
@click.option("--lang", default="en", show_default=True, help="The language of the descriptions.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per tool, with its schema.")
def command(lang: str, as_json: bool) -> int:
    """List the tools: name, risk, effect, file, and why a file does not load. Exit 1 if one does not."""
    from zeroclawd.catalog import Catalog
    from zeroclawd.locale import Texts

    catalog = Catalog.load(Texts(lang))
    rows = []
    for name, tool in sorted(catalog.tools.items()):
        judged = tool.assess({})
        if as_json:
            spec = {"name": name, "description": tool.spec.description, "parameters": tool.spec.parameters}
            output.as_json({**spec, "risk": judged.risk.word, "effect": judged.effect, "file": tool.source})
        rows.append((name, judged.risk.word, str(judged.effect), Path(tool.source).name, tool.spec.description))
    for broken in catalog.broken:
        if as_json:
            output.as_json({"file": broken.file, "error": broken.reason})
        rows.append(("-", "-", "-", Path(broken.file).name, f"does not load: {broken.reason}"))
    if not as_json:
        output.table(("name", "risk", "effect", "file", "what it does"), rows)
    return 1 if catalog.broken else 0
