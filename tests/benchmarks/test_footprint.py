"""The footprint benchmark, in a short form: every row is measured, and no budget is far off."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.footprint import Row, cpu_of, cpu_so_far, main, memory_of, switches, written

ROOT = Path(__file__).resolve().parents[2]
# Two runs beside other tests say less than ten on a quiet machine: other interpreters share this one's pages, and take its
# processors. What does not depend on them must be within its budget here too.
SLACK = 1.5
SURE = {"bytes written, idle", "state files changed, idle", "distributions installed", "size installed"}


@pytest.mark.broker
def test_the_daemon_stays_near_its_budgets_and_writes_nothing_when_idle() -> None:
    command = [sys.executable, "-m", "benchmarks.footprint", "--runs", "2", "--idle", "3", "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode in (0, 1), done.stderr
    assert done.stdout, done.stderr
    found = json.loads(done.stdout)
    rows = {row["what"]: row for row in found["rows"]}
    assert len(rows) == 10
    assert found["ok"] == (done.returncode == 0) == all(row["ok"] for row in rows.values())
    far = {what: row for what, row in rows.items() if row["value"] > row["budget"] * (1 if what in SURE else SLACK)}
    assert far == {}


def test_a_row_over_its_budget_says_so() -> None:
    assert Row("x", 10, "ms", 5, 2, budget=2).ok
    assert not Row("x", 11, "ms", 5, 2.2, budget=2).ok


def test_the_cpu_of_a_command_is_its_own() -> None:
    lazy, busy = ("pass", "for _ in range(20_000_000): pass")
    assert cpu_of([sys.executable, "-c", busy], {}) > 2 * cpu_of([sys.executable, "-c", lazy], {})


def test_a_command_that_fails_ends_the_benchmark() -> None:
    with pytest.raises(SystemExit, match="ended with 3"):
        cpu_of([sys.executable, "-c", "raise SystemExit(3)"], {})


def test_a_process_is_measured_while_it_lives() -> None:
    code = (
        "import os, sys\nkept = bytearray(os.urandom(1)) * 30_000_000\nfor _ in range(5_000_000): pass\n"
        "print(flush=True)\nfor line in sys.stdin: print(flush=True)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin
        assert process.stdout
        process.stdout.readline()
        assert cpu_so_far(process.pid) > 0.02
        assert memory_of(process.pid) > 30_000_000
        before, wrote = switches(process.pid), written(process.pid)
        for _ in range(50):
            process.stdin.write(b"\n")
            process.stdin.flush()
            process.stdout.readline()
        assert switches(process.pid) >= before + 40  # one may not have been counted yet, and some lines come together
        assert written(process.pid) == wrote


def test_an_unknown_option_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--ilde", "3"])
    assert "--ilde" in capsys.readouterr().err
