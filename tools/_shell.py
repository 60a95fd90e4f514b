"""Runs a command line in the workspace: plain programs, pipelines and lists without a shell, anything else by /bin/sh.

An unquoted `*`, `?` or `[` is expanded where the program takes paths; elsewhere it stays as it is. Before a command of less
than high risk starts, its paths are looked up, and one that leads out of the workspace is refused. That keeps the judged
risk honest; it is no sandbox, which is the unit's business.
"""

from __future__ import annotations

import asyncio
import glob
import itertools
import os
from collections.abc import Iterator
from pathlib import Path

from zeroclawd.errors import ToolError
from zeroclawd.tool import Output, Risk, ToolContext
from zeroclawd_tools._command import Command, Opaque, Plain, Word, parse
from zeroclawd_tools._process import Program, Run, Said, environment, signal_name
from zeroclawd_tools._programs import judge, open_to_all

_MOST_NAMES = 5_000


async def run(command: str, context: ToolContext) -> Output:
    """Both outputs and the status; a failure keeps them, and so does a command that took too long."""
    line, limits = parse(command), context.limits
    if line == Plain(()):
        raise ToolError("the command is empty")
    if "\0" in command:
        raise ToolError("a command cannot hold a NUL character")
    run = _prepared(context)
    try:
        async with asyncio.timeout(limits.shell_seconds):
            status = await _execute(line, command, run)
    except TimeoutError:
        raise ToolError(f"ended after {limits.shell_seconds:g} s, as it took too long", output=_said(run)) from None
    except ToolError as error:
        raise ToolError(error.text, output=_said(run)) from error
    if status:
        name = signal_name(status)
        raise ToolError(f"exit status {status}" + (f" ({name})" if name else ""), output=_said(run))
    return Output(_said(run), {"status": status})


def _prepared(context: ToolContext) -> Run:
    workspace, limits = Path(os.path.realpath(context.workspace)), context.limits
    if not workspace.is_dir():
        raise ToolError("the workspace folder is missing")
    return Run(
        workspace, environment(workspace, limits.environment), Said(limits.output_bytes), Said(limits.output_bytes)
    )


async def _execute(line: Plain | Opaque, command: str, run: Run) -> int:
    if isinstance(line, Opaque):
        return await run.pipeline([Program(("/bin/sh", "-c", command))])
    status = 0
    for step in line.steps:
        if (step.join == "&&" and status) or (step.join == "||" and not status):
            continue
        programs = await asyncio.to_thread(_programs, step.pipeline, run)
        status = await run.pipeline(programs)
    return status


def _said(run: Run) -> str:
    out, err = run.out.text(), run.err.text()
    parts = [out]
    if err:
        parts += ["" if not out or out.endswith("\n") else "\n", "[stderr]\n" if out else "", err]
    if run.left_running:
        parts += ["" if (err or out).endswith("\n") else "\n", "[what it left running in the background was ended]"]
    return "".join(parts)


# From words to arguments


def _programs(pipeline: tuple[Command, ...], run: Run) -> list[Program]:
    return [
        Program(tuple(_arguments(command, run.workspace)), command.variables, command.out, command.err)
        for command in pipeline
    ]


def _arguments(command: Command, workspace: Path) -> Iterator[str]:
    judged = judge(command)
    for place, word in enumerate(command.words):
        if judged.risk is Risk.HIGH:
            yield from _names(word, workspace)
        elif place in judged.paths:
            for name in _names(word, workspace):
                _refuse_outside(name, workspace, judged.risk)
                yield name
        else:
            yield word.text


def _names(word: Word, workspace: Path) -> list[str]:
    """What a word stands for: matching names in order, or itself if it is no pattern or nothing matches.

    A name that could be read as a flag or an operator gets `./` in front, so that no file can smuggle in an option.
    """
    if not word.pattern or word.text.startswith("-"):
        return [word.text]
    found = sorted(itertools.islice(glob.iglob(word.pattern, root_dir=workspace), _MOST_NAMES + 1))
    if len(found) > _MOST_NAMES:
        raise ToolError(f"{word.text}: matches more than {_MOST_NAMES} names")
    return [name if name[:1].isalnum() or name[:1] in "_./" else f"./{name}" for name in found] or [word.text]


def _refuse_outside(name: str, workspace: Path, risk: Risk) -> None:
    real = os.path.realpath(workspace / name)
    inside = real == str(workspace) or real.startswith(f"{workspace}/")
    if not inside and not open_to_all(name, risk):
        raise ToolError(f"{name}: leads out of the workspace, so this was not run")
    if risk is not Risk.LOW and ".git" in real.removeprefix(str(workspace)).split("/"):
        raise ToolError(f"{name}: files in .git are not changed this way, so this was not run")
