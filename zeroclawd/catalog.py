"""Finds the tools: one file, one tool; hands out those that a turn may see, which are those that it may run."""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import inspect
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from zeroclawd import assets, policy
from zeroclawd.config import RiskProfile
from zeroclawd.frozen import dataclass
from zeroclawd.interfaces import Board
from zeroclawd.schema import BadArguments, Signature, canonical_name
from zeroclawd.tool import Arguments, Declaration, Output, Tool, ToolContext, ToolSpec

PACKAGE = "zeroclawd_tools"
ROLES: tuple[type, ...] = (Board, ToolContext)

Words = Callable[[str], str]

__all__ = ["PACKAGE", "ROLES", "BadArguments", "Broken", "Catalog"]


@dataclass(frozen=True, slots=True)
class Broken:
    """A tool file that cannot be loaded, and why; the others work."""

    file: str
    reason: str


@dataclass(frozen=True, slots=True)
class Catalog:
    """All tools by canonical name, and the files that failed."""

    tools: Mapping[str, Tool]
    broken: tuple[Broken, ...] = ()

    @classmethod
    def load(cls, words: Words, folder: Path | None = None) -> Catalog:
        """Load every tool file of the folder; `words` gives the Fluent texts."""
        where = folder or assets.folder("tools")
        _make_package(where)
        tools: dict[str, Tool] = {}
        broken: list[Broken] = []
        for path in sorted(where.glob("[!_]*.py")):
            try:
                tool = _load_file(path, words)
                if tool.name in tools:
                    raise ValueError(f"there is already a tool {tool.name!r}")
                tools[tool.name] = tool
            except (Exception, SystemExit) as error:  # a broken tool file must not take the others down
                broken.append(Broken(str(path), f"{type(error).__name__}: {error}"))
        return cls(tools, tuple(broken))

    def scoped(self, profile: RiskProfile, *, per_run: Sequence[str] | None = None, local_cli: bool = False) -> Catalog:
        """The tools that one turn may see and run."""
        names = policy.admitted(profile, tuple(self.tools), per_run=per_run, local_cli=local_cli)
        return Catalog({name: self.tools[name] for name in names})

    def find(self, name: str) -> Tool | None:
        """The tool of this name in any spelling, or None."""
        return self.tools.get(canonical_name(name))

    def specs(self) -> tuple[ToolSpec, ...]:
        """What the model is told, in the order of the names, the same bytes every time."""
        return tuple(self.tools[name].spec for name in sorted(self.tools))


def _make_package(folder: Path) -> None:
    """Make the folder importable under a name of its own, so that tool files can share helpers."""
    known = sys.modules.get(PACKAGE)
    if known is not None and list(known.__path__) == [str(folder)]:
        return
    for name in [name for name in sys.modules if name == PACKAGE or name.startswith(f"{PACKAGE}.")]:
        del sys.modules[name]
    spec = importlib.machinery.ModuleSpec(PACKAGE, None, is_package=True)
    spec.submodule_search_locations = [str(folder)]
    sys.modules[PACKAGE] = importlib.util.module_from_spec(spec)


def _load_file(path: Path, words: Words) -> Tool:
    module = importlib.import_module(f"{PACKAGE}.{path.stem}")
    function = getattr(module, path.stem, None)
    declared = getattr(function, "__tool__", None)
    if not isinstance(declared, Declaration):
        raise ValueError(f"has no coroutine {path.stem!r} marked with @tool")
    return make(declared, words, source=str(path))


def make(declared: Declaration, words: Words, *, source: str = "") -> Tool:
    """Build the tool from its declaration: schema from the signature, words from the locale."""
    if not inspect.iscoroutinefunction(declared.function):
        raise TypeError(f"{declared.function.__name__!r} is not a coroutine (async def)")
    name = canonical_name(declared.function.__name__)
    if "__" in name:
        raise ValueError(f"{name!r} has the form of a tool of an MCP server, <server>__<tool>")
    signature = Signature(declared.function, ROLES)
    message = f"tool-{name.replace('_', '-')}"
    spec = ToolSpec(name, words(message), signature.schema(lambda part: words(f"{message}.{part.replace('_', '-')}")))
    return Tool(
        spec=spec,
        assess=declared.assess,
        run=_runner(declared.function, signature),
        check=signature.check,
        kind=declared.kind,
        exclusive=declared.exclusive,
        repeatable=declared.repeatable,
        source=source,
    )


def _runner(
    function: Callable[..., Awaitable[Output | str]], signature: Signature
) -> Callable[[Arguments, Mapping[type, Any]], Awaitable[Output]]:
    async def run(arguments: Arguments, roles: Mapping[type, Any]) -> Output:
        handed = {name: roles[kind] for name, kind in signature.roles.items()}
        result = await function(**arguments, **handed)
        return Output(result) if isinstance(result, str) else result

    return run
