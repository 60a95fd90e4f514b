"""Runs a command line in the workspace; what that means stands in `_shell`, which is loaded with the first command."""

from __future__ import annotations

from zeroclawd.tool import Arguments, Assessment, Output, ToolContext, tool


def _assess(arguments: Arguments) -> Assessment:
    from zeroclawd_tools._command import parse
    from zeroclawd_tools._programs import assess

    return assess(parse(str(arguments.get("command", ""))))


@tool(assess=_assess)
async def shell(command: str, context: ToolContext) -> Output:
    """Both outputs and the status; a failure keeps them, and so does a command that took too long."""
    from zeroclawd_tools._shell import run

    return await run(command, context)
