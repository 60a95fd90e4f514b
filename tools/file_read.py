"""Reads lines of a text file in the workspace."""

from zeroclawd.errors import ToolError
from zeroclawd.tool import Output, ToolContext, tool
from zeroclawd_tools._workspace import Workspace, in_thread, is_binary, reads


@tool(assess=lambda arguments: reads(str(arguments.get("path", ""))))
async def file_read(path: str, context: ToolContext, offset: int = 1, limit: int = 1000) -> Output:
    """The lines from `offset` (1-based) on, at most `limit`; a note says which lines these are if they are not all."""
    if offset < 1 or limit < 1:
        raise ToolError("offset and limit begin at 1")
    content = await in_thread(lambda _stop: Workspace(context.workspace).read(path, context.limits.file_bytes))
    if is_binary(content):
        raise ToolError(f"{path}: is a binary file of {len(content)} bytes")
    lines = content.decode("utf-8", "replace").split("\n")
    if lines[-1] == "":
        lines.pop()
    shown = lines[offset - 1 : offset - 1 + limit]
    end = offset - 1 + len(shown)
    facts = {"path": path, "lines": len(lines), "first": offset, "last": end, "bytes": len(content)}
    return Output(_text(shown, offset, end, len(lines)), facts)


def _text(shown: list[str], offset: int, end: int, total: int) -> str:
    if len(shown) == total:
        return "\n".join(shown)
    if not shown:
        return f"[no line {offset}: the file has {total} lines]"
    return "\n".join((*shown, f"[lines {offset}-{end} of {total}]"))
