"""Finds files and folders in the workspace by name."""

import fnmatch
import itertools
import re
import threading
from collections.abc import Callable, Iterable, Sequence

from zeroclawd.errors import ToolError
from zeroclawd.tool import Effect, Output, Risk, ToolContext, tool
from zeroclawd_tools._workspace import Bounds, Workspace, in_thread, shown

_MOST, _SECONDS, _ENTRIES = 500, 10.0, 100_000


@tool(risk=Risk.LOW, effect=Effect.READ)
async def glob_search(pattern: str, context: ToolContext) -> Output:
    """Paths below the workspace that match, sorted; folders end in a slash, links are left out."""
    workspace = Workspace(context.workspace)
    wanted = workspace.parts(pattern)
    if not wanted:
        raise ToolError("the pattern is empty")
    paths, cut = await in_thread(lambda stop: _search(workspace, wanted, stop))
    note = [f"[not all: {cut}]"] if cut else []
    return Output("\n".join([*paths, *note]) or "no match", {"paths": paths, "cut": cut})


def _search(workspace: Workspace, wanted: tuple[str, ...], stop: threading.Event) -> tuple[list[str], str]:
    bounds, matches, paths = Bounds(_SECONDS, _ENTRIES, stop), _matcher(wanted), list[str]()
    fixed = list(itertools.takewhile(lambda part: not set(part) & set("*?["), wanted[:-1]))
    depth = {} if "**" in wanted else {"depth": len(wanted) - len(fixed)}
    for found in workspace.walk("/".join(fixed), bounds, **depth):
        if matches(found.path.split("/")):
            if len(paths) == _MOST:
                bounds.cut = f"the first {_MOST}"
                break
            paths.append(shown(found.path) + ("/" if found.is_folder else ""))
    return sorted(paths), bounds.cut


def _matcher(wanted: tuple[str, ...]) -> Callable[[Iterable[str]], bool]:
    """Whether a path fits, component by component; `**` stands for any number of folders, at a cost linear in the path."""
    tests = [None if part == "**" else re.compile(fnmatch.translate(part)).match for part in wanted]

    def with_skips(states: set[int]) -> set[int]:
        for state in sorted(states):
            while state < len(tests) and tests[state] is None:
                state += 1
                states.add(state)
        return states

    def matches(path: Iterable[str]) -> bool:
        states = with_skips({0})
        for name in path:
            states = with_skips({after for state in states for after in _after(tests, state, name)})
        return len(tests) in states

    return matches


def _after(tests: Sequence[Callable[[str], object] | None], state: int, name: str) -> Iterable[int]:
    if state == len(tests):
        return ()
    test = tests[state]
    if test is None:
        return (state,)
    return (state + 1,) if test(name) else ()
