"""The shell tool runs what it judged, keeps both outputs, and leaves no process behind."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import subprocess
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from zeroclawd.errors import ToolError
from zeroclawd.tool import Output, ToolLimits
from zeroclawd_tools._process import PATH, Said, environment

Call = Callable[..., Awaitable[Output]]


def living(mark: str) -> list[int]:
    """Processes (zombies aside) whose command line holds a mark."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                line = (entry / "cmdline").read_bytes()
                if mark.encode() in line:
                    found.append(int(entry.name))
    return found


@pytest.fixture
def mark() -> str:
    """A number of seconds that no other sleeping process uses."""
    return f"{300 + time.time_ns() % 10_000_000 / 10_000_000:.7f}"


def poll(condition: Callable[[], object]) -> bool:
    deadline = time.monotonic() + 30
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.01)
    return bool(condition())


async def until(condition: Callable[[], object]) -> None:
    assert await asyncio.to_thread(poll, condition)


def git(*words: str | Path) -> None:
    subprocess.run(["git", *words], check=True)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


async def failure(awaitable: Awaitable[Output]) -> ToolError:
    with pytest.raises(ToolError) as caught:
        await awaitable
    return caught.value


async def test_a_command_runs_in_the_workspace(call: Call, workspace: Path) -> None:
    assert (await call("shell", command="pwd")).text == f"{workspace}\n"


async def test_success_without_output_is_empty_and_has_status_zero(call: Call) -> None:
    assert await call("shell", command="true") == Output("", {"status": 0})


async def test_pipelines_lists_and_redirections(call: Call, workspace: Path) -> None:
    (workspace / "a.txt").write_text("b\na\nb\n")
    assert (await call("shell", command="sort a.txt | uniq | wc -l")).text.strip() == "2"
    assert (await call("shell", command="false || echo x && echo y; echo z")).text == "x\ny\nz\n"
    assert (await call("shell", command="false && echo x; true")).text == ""
    assert (await call("shell", command="cat missing 2>/dev/null | wc -l")).text.strip() == "0"
    assert (await call("shell", command="cat missing 2>&1 | wc -l")).text.strip() == "1"
    assert (await call("shell", command="seq 1 1000000 | head -n 1")).text == "1\n"
    assert (await call("shell", command="FOO='a b' printenv FOO")).text == "a b\n"


async def test_words_are_not_read_a_second_time(call: Call) -> None:
    assert (await call("shell", command="echo '$(id)' \"a  b\" '`id`' \\; '*'")).text == "$(id) a  b `id` ; *\n"


async def test_success_keeps_both_outputs(call: Call) -> None:
    output = await call("shell", command="sh -c 'echo out; echo err >&2'")
    assert output.text == "out\n[stderr]\nerr\n"


async def test_a_failure_keeps_both_outputs_and_the_status(call: Call) -> None:
    error = await failure(call("shell", command="sh -c 'echo out; echo err >&2; exit 3'"))
    assert (error.text, error.output) == ("exit status 3", "out\n[stderr]\nerr\n")


async def test_a_program_ended_by_a_signal_says_so(call: Call) -> None:
    error = await failure(call("shell", command="sh -c 'kill -SEGV $$'"))
    assert error.text == "exit status 139 (SIGSEGV)"


async def test_a_missing_program_fails_like_in_a_shell(call: Call) -> None:
    error = await failure(call("shell", command="no-such-program x"))
    assert (error.text, error.output) == ("exit status 127", "no-such-program: command not found\n")
    assert (await call("shell", command="no-such-program 2>/dev/null || echo else")).text.startswith("else\n")
    assert (await call("shell", command="no-such-program | wc -c")).text.startswith("0\n")


async def test_programs_come_from_the_fixed_path_only(call: Call, workspace: Path) -> None:
    fake = workspace / "ls"
    fake.write_text("#!/bin/sh\necho fake\n")
    fake.chmod(0o755)
    assert (await call("shell", command="ls ls")).text == "ls\n"
    assert (await call("shell", command="PATH=. ls ls")).text == "ls\n"
    assert (await call("shell", command="./ls")).text == "fake\n"


async def test_an_opaque_line_runs_by_a_shell(call: Call, workspace: Path) -> None:
    assert (await call("shell", command="x=$((1+2)); echo $x > f; cat f")).text == "3\n"
    assert (workspace / "f").read_text() == "3\n"


@pytest.mark.parametrize("line", ["", "  \n ", "# just a comment", "ls \0"])
async def test_an_empty_or_impossible_line_is_refused(call: Call, line: str) -> None:
    await failure(call("shell", command=line))


async def test_standard_input_is_empty(call: Call) -> None:
    assert (await call("shell", command="cat | wc -c")).text.strip() == "0"


# What a child sees


async def test_a_child_sees_only_the_listed_environment(
    call: Call, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OPENAI_API_KEY", "CREDENTIALS_DIRECTORY", "NOTIFY_SOCKET", "LD_PRELOAD_X", "TZ", "MINE"):
        monkeypatch.setenv(name, "UTC")
    listed = ToolLimits(environment=("MINE", "NOTIFY_SOCKET", "CREDENTIALS_DIRECTORY", "NOT_SET"))
    seen = dict(line.split("=", 1) for line in (await call("shell", command="env", limits=listed)).text.splitlines())
    plain = {name for name in seen if not name.startswith("GIT_")}
    allowed = {"PATH", "HOME", "LANG", "LC_ALL", "TERM", "TZ", "TMPDIR", "MINE"}
    assert {"PATH", "HOME", "MINE", "TZ"} <= plain <= allowed
    assert (seen["HOME"], seen["PATH"]) == (str(workspace), PATH)


def test_no_list_brings_in_what_belongs_to_the_daemon_alone(workspace: Path) -> None:
    inherited = {"NOTIFY_SOCKET": "x", "PATH": "/evil", "HOME": "/root", "A": "b"}
    found = environment(workspace, ["NOTIFY_SOCKET", "PATH", "HOME", "A"], inherited)
    assert (found.get("NOTIFY_SOCKET"), found["PATH"], found["A"]) == (None, PATH, "b")


async def test_a_child_inherits_no_descriptor_but_the_three(call: Call) -> None:
    assert (await call("shell", command="sh -c 'ls /proc/self/fd'")).text.split() == ["0", "1", "2", "3"]


# Paths


async def test_globs_expand_where_paths_are_taken_and_nowhere_else(call: Call, workspace: Path) -> None:
    for name in ("a.txt", "b.txt", "-n", ".hidden"):
        (workspace / name).write_text("x")
    assert (await call("shell", command="ls *.txt")).text == "a.txt\nb.txt\n"
    assert (await call("shell", command="ls '*.txt' || echo none")).text.startswith("none\n")
    assert (await call("shell", command="ls -d *")).text == "./-n\na.txt\nb.txt\n"
    assert (await call("shell", command="find . -name *.txt | sort")).text == "./a.txt\n./b.txt\n"
    assert (await call("shell", command="echo *.txt")).text == "*.txt\n"


async def test_a_link_out_of_the_workspace_is_not_followed_by_harmless_commands(
    call: Call, workspace: Path, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret")
    (workspace / "link").symlink_to(secret)
    (workspace / "up").symlink_to(tmp_path)
    for line in ("cat link", "head -n 1 up/secret", "cat li*", "cp a link", "touch up/new", "mkdir -p up/new/x"):
        error = await failure(call("shell", command=line))
        assert "out of the workspace" in error.text
    assert names(tmp_path) == ["secret", "workspace"]
    assert secret.read_text() == "secret"


async def test_what_ran_before_a_refusal_is_kept(call: Call, workspace: Path, tmp_path: Path) -> None:
    (workspace / "link").symlink_to(tmp_path)
    error = await failure(call("shell", command="echo first; ls link/"))
    assert error.output == "first\n"


async def test_a_glob_does_not_reach_into_a_repository(call: Call, workspace: Path) -> None:
    git("init", "-q", workspace)
    before = (workspace / ".git" / "config").read_text()
    (workspace / "config").write_text("[core]\n\tfsmonitor = touch ran\n")
    await failure(call("shell", command="cp config .g*"))
    assert (workspace / ".git" / "config").read_text() == before


async def test_git_starts_no_helper_named_in_the_workspace(call: Call, workspace: Path) -> None:
    """Settings that name programs, in places that a file tool could have written, are not followed by a harmless call."""
    git("init", "-q", workspace)
    git("-C", workspace, "config", "core.fsmonitor", "touch ran; false")
    (workspace / ".gitconfig").write_text('[core]\n\tpager = touch ran\n[diff]\n\texternal = "touch ran"\n')
    (workspace / "a").write_text("x")
    git("-C", workspace, "add", "a")
    (workspace / "ran").unlink(missing_ok=True)
    (workspace / "a").write_text("y")
    assert "a" in (await call("shell", command="git status --short && git diff")).text
    assert not (workspace / "ran").exists()


async def test_git_sees_no_repository_around_the_workspace(call: Call, workspace: Path, tmp_path: Path) -> None:
    git("init", "-q", tmp_path)
    error = await failure(call("shell", command="git status"))
    assert "not a git repository" in error.output


async def test_a_folder_that_only_looks_like_a_repository_is_none(call: Call, workspace: Path) -> None:
    git("init", "-q", "--bare", workspace)
    error = await failure(call("shell", command="git log"))
    assert "safe.bareRepository" in error.output


# Bounds


async def test_a_flood_keeps_head_and_tail(call: Call) -> None:
    output = await call("shell", command="seq 1 100000", limits=ToolLimits(output_bytes=2000))
    assert output.text.startswith("1\n2\n")
    assert output.text.endswith("\n100000\n")
    assert "bytes left out]" in output.text
    assert len(output.text) < 2100


@pytest.mark.parametrize("size", [4093, 4094, 4095, 4096, 4097])
def test_output_is_cut_between_characters(size: int) -> None:
    said = Said(size)
    said.add("温".encode() * 5000)
    text = said.text()
    assert set(text) <= set("温\n[]0123456789 bytesleftou")
    missing = int(text.split("[")[1].split()[0])
    assert text.count("温") * 3 + missing == 15_000


def test_bytes_that_are_no_text_can_be_sent_on() -> None:
    said = Said(100)
    said.add(b"\xff\xfe\x00")
    json.dumps(said.text()).encode("utf-8")
    assert said.text() == "\ufffd\ufffd\0"


def test_output_in_pieces_is_kept_like_output_at_once() -> None:
    whole, pieces = Said(10), Said(10)
    data = bytes(range(65, 91))
    whole.add(data)
    for byte in data:
        pieces.add(bytes([byte]))
    assert whole.text() == pieces.text() == "ABCDE\n[16 bytes left out]\nVWXYZ"


# Ends


async def test_a_background_child_neither_holds_up_the_call_nor_outlives_it(call: Call, mark: str) -> None:
    started = time.monotonic()
    output = await call("shell", command=f"(sleep {mark} &); printf ready")
    assert output.text.startswith("ready\n[")
    assert time.monotonic() - started < 30
    await until(lambda: not living(mark))


async def test_a_background_child_that_gave_up_its_outputs_is_ended_too(call: Call, mark: str) -> None:
    assert (await call("shell", command=f"sleep {mark} >/dev/null 2>&1 & echo $! >/dev/null; printf ok")).text == "ok"
    await until(lambda: not living(mark))


async def test_a_command_that_takes_too_long_is_ended_with_its_children(call: Call, mark: str) -> None:
    line = f"sh -c 'echo begun; sleep {mark} & sleep {mark}; wait'"
    error = await failure(call("shell", command=line, limits=ToolLimits(shell_seconds=0.5)))
    assert "0.5 s" in error.text
    assert error.output == "begun\n"
    await until(lambda: not living(mark))


async def test_a_command_that_ignores_sigterm_is_killed(call: Call, mark: str, workspace: Path) -> None:
    line = f"sh -c 'trap \"\" TERM; touch begun; while :; do sleep {mark}; done'"
    task = asyncio.create_task(call("shell", command=line))
    await until((workspace / "begun").exists)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until(lambda: not living(mark))


async def test_cancelling_ends_every_program_of_a_pipeline(call: Call, mark: str) -> None:
    task = asyncio.create_task(call("shell", command=f"sleep {mark} | sleep {mark} | sleep {mark}"))
    await until(lambda: len(living(mark)) >= 3)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not living(mark)


async def test_a_second_cancel_still_leaves_nothing_behind(call: Call, mark: str, workspace: Path) -> None:
    line = f"sh -c 'trap \"\" TERM; touch begun; while :; do sleep {mark}; done'"
    task = asyncio.create_task(call("shell", command=line))
    await until((workspace / "begun").exists)
    task.cancel()
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until(lambda: not living(mark))


async def test_a_program_may_end_in_order_when_asked(call: Call, workspace: Path) -> None:
    line = "sh -c 'trap \"echo bye > bye; exit\" TERM; touch begun; while :; do sleep 0.02; done'"
    task = asyncio.create_task(call("shell", command=line))
    await until((workspace / "begun").exists)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (workspace / "bye").read_text() == "bye\n"


async def test_many_calls_leave_no_descriptor_open(call: Call) -> None:
    await call("shell", command="echo warm | cat")
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        await call("shell", command="echo x | cat | wc -c; no-such-program | cat; true")
    await asyncio.sleep(0)
    assert len(os.listdir("/proc/self/fd")) <= before


async def test_a_missing_workspace_is_said(call: Call, workspace: Path) -> None:
    shutil.rmtree(workspace)
    assert "workspace" in (await failure(call("shell", command="ls"))).text


async def test_two_calls_run_side_by_side(call: Call) -> None:
    first, second = await asyncio.gather(
        call("shell", command="sh -c 'while [ ! -e b ]; do sleep 0.01; done; echo a'"),
        call("shell", command="touch b"),
    )
    assert (first.text, second.text) == ("a\n", "")


def test_the_same_holds_on_uvloop(call: Call, mark: str) -> None:
    """uvloop starts processes and reads pipes by itself."""
    uvloop = pytest.importorskip("uvloop")

    async def work() -> None:
        assert (await call("shell", command="echo b a | tr ' ' '\\n' | sort; false || echo c")).text == "a\nb\nc\n"
        assert (await call("shell", command=f"(sleep {mark} &); printf ready")).text.startswith("ready\n[")
        assert (await call("shell", command="seq 1 1000000 | head -n 1")).text == "1\n"
        line = f"sh -c 'echo begun; sleep {mark}'"
        assert (await failure(call("shell", command=line, limits=ToolLimits(shell_seconds=0.5)))).output == "begun\n"

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(work())
    assert poll(lambda: not living(mark))
