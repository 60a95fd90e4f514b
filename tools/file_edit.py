"""Replaces a passage of a text file in the workspace."""

from zeroclawd.errors import ToolError
from zeroclawd.tool import Output, ToolContext, tool
from zeroclawd_tools._workspace import Workspace, in_thread, writes


@tool(assess=writes)
async def file_edit(path: str, old: str, new: str, context: ToolContext, all: bool = False) -> Output:
    """Replace `old`, which stands exactly once in the file, or everywhere with `all`; the rest keeps its bytes."""
    if not old:
        raise ToolError("old is empty; say which text is to be replaced")
    if old == new:
        raise ToolError("old and new are the same")
    count, most = 0, context.limits.file_bytes

    def change(content: bytes) -> bytes:
        nonlocal count
        before, after = _with_ends_of(content, old), _with_ends_of(content, new)
        count = _matches(path, content, before, all)
        changed = content.replace(before, after)
        if len(changed) > most:
            raise ToolError(f"{path}: would have more than the {most} bytes that can be written")
        return changed

    await in_thread(lambda _stop: Workspace(context.workspace).edit(path, most, change))
    return Output(f"{path}: {count} {'passage' if count == 1 else 'passages'} replaced", {"path": path, "count": count})


def _with_ends_of(content: bytes, text: str) -> bytes:
    """The text as bytes, its line ends those of a file that has CRLF."""
    raw = text.encode()
    return raw.replace(b"\n", b"\r\n") if b"\r\n" in content and b"\r\n" not in raw else raw


def _matches(path: str, content: bytes, old: bytes, everywhere: bool) -> int:
    count = content.count(old)
    if count == 1 or (count and everywhere):
        return count
    if count:
        raise ToolError(f"{path}: old stands there {count} times; take in more lines, or set all")
    near = b"".join(old.split()) in b"".join(content.split())
    raise ToolError(f"{path}: old does not stand there" + ("; only its spaces or line ends differ" if near else ""))
