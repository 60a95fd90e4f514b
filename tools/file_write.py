"""Writes a whole text file in the workspace."""

from zeroclawd.errors import ToolError
from zeroclawd.tool import Output, ToolContext, tool
from zeroclawd_tools._workspace import Workspace, in_thread, writes


@tool(assess=writes)
async def file_write(path: str, content: str, context: ToolContext) -> Output:
    """Create or replace the file, in one step that a power cut cannot halve; folders are made as needed."""
    raw = content.encode()
    if len(raw) > context.limits.file_bytes:
        raise ToolError(f"{len(raw)} bytes are more than the {context.limits.file_bytes} that can be written")
    new = await in_thread(lambda _stop: Workspace(context.workspace).write(path, raw))
    done = "created" if new else "replaced"
    return Output(f"{done} {path}, {len(raw)} bytes", {"path": path, "bytes": len(raw), "created": new})
