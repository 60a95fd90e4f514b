from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAM = """
import asyncio, os, sys
from pathlib import Path
from tests.store.hands import HandClock, intent, outcome
from zeroclawd.store.store import Store

async def main():
    store = Store.open(Path(sys.argv[1]), HandClock(), "boot-1", "node-1", linger=60.0)
    await store.ledger.boot()
    for number in range(3):
        await store.ledger.append(intent(str(number)))
        os.write(9, b"answered\\n")
    await store.ledger.append(outcome("0"), sync=False)
    os.write(9, b"answered without a sync\\n")
    await store.close()
    os.write(9, b"closed\\n")

os.dup2(2, 9)
asyncio.run(main())
"""


def traced(folder: Path) -> list[str]:
    """What the kernel was asked to do with the database, in order (strace(1))."""
    log = folder / "trace"
    calls = "trace=write,pwrite64,fsync,fdatasync,rename"
    command = ["strace", "-f", "-y", "-e", calls, "-o", str(log), sys.executable, "-c", PROGRAM, str(folder / "state")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if "ptrace" in done.stderr or "PTRACE" in done.stderr:
        pytest.skip("strace is not permitted here")
    assert done.returncode == 0, done.stderr
    return log.read_text().splitlines()


def meaning(line: str) -> str:
    if said := re.search(r'write\(9<[^>]*>, "([^"\\]+)', line):
        return said[1]
    if "zeroclawd.db-wal>" not in line and "zeroclawd.db>" not in line:
        return ""
    return "sync" if "sync(" in line else "write"


needs_strace = pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace")


@needs_strace
@pytest.mark.parametrize("name", ["zeroclawd.db", "device.key"])
def test_a_new_file_is_synced_then_named_then_its_folder_is_synced(tmp_path, name):
    lines = traced(tmp_path)
    (renamed,) = (place for place, line in enumerate(lines) if "rename(" in line and f'/state/{name}")' in line)
    before = [line for line in lines[:renamed] if f"/state/{name}.new>" in line]
    assert "sync(" in before[-1]
    after = next(line for line in lines[renamed + 1 :] if "sync(" in line)
    assert "/state>)" in after


@needs_strace
def test_a_row_is_synced_after_it_is_written_and_before_it_is_answered(tmp_path):
    happened = [word for line in traced(tmp_path) if (word := meaning(line))]
    marks = [place for place, word in enumerate(happened) if word.startswith(("answered", "closed"))]
    assert [happened[place] for place in marks] == [*["answered"] * 3, "answered without a sync", "closed"]
    spans = [happened[start + 1 : end] for start, end in zip([-1, *marks[:-1]], marks, strict=True)]
    for span in spans[:3]:
        assert span[-2:] == ["write", "sync"]
    for span in spans[1:3]:
        assert span.count("sync") == 1
    assert set(spans[3]) == {"write"}
    assert "sync" in spans[4]
