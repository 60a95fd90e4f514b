"""What needs no daemon: usage errors, starter configs, keys, completion, and answers when nobody is there."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from tests.broker import free_port
from tests.cli.people import run
from zeroclawd.cli.main import COMMANDS


def test_the_version_and_the_help() -> None:
    assert run("--version").stdout.startswith("zeroclawd 0.")
    shown = run("--help").stdout
    assert all(name in shown for name in ("run", "demo", "approvals", "receipts", "completion"))


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself(name: str) -> None:
    done = run(name, "--help")
    assert done.returncode == 0
    assert len(done.stdout.splitlines()) > 4


def test_a_typo_is_answered_with_the_nearest_command() -> None:
    done = run("aprovals")
    assert done.returncode == 2
    assert "did you mean 'approvals'?" in done.stderr


def test_without_a_broker_all_ways_are_named() -> None:
    done = run("send", "hello")
    assert done.returncode == 2
    assert all(way in done.stderr for way in ("--broker", "--config", "client.toml", "ZEROCLAWD_CLIENT"))


def test_a_broker_that_is_not_there_is_one_line() -> None:
    done = run("send", "hello", "--broker", f"mqtt://127.0.0.1:{free_port()}", "--node", "n1")
    assert done.returncode == 1
    assert done.stderr.startswith("error: ")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("broker", ["http://x", "mqtt://", "ftp://a:1"])
def test_a_broker_that_is_none(broker: str) -> None:
    assert run("status", "--broker", broker).returncode == 2


def test_a_client_file_with_a_typo(tmp_path: Path) -> None:
    client = tmp_path / "client.toml"
    client.write_text('brokr = "mqtt://x"\n')
    done = run("status", ZEROCLAWD_CLIENT=str(client))
    assert done.returncode == 2
    assert "brokr" in done.stderr


def test_an_answer_needs_a_key() -> None:
    done = run("estop", "release", "--broker", "mqtt://127.0.0.1:1", "--node", "n1")
    assert done.returncode == 2
    assert "operator keygen" in done.stderr


def test_keygen_makes_a_private_file_once(tmp_path: Path) -> None:
    done = run("operator", "keygen", "alice", cwd=tmp_path)
    assert done.returncode == 0
    assert done.stdout.startswith('[operators.alice]\npublic_key = "')
    assert stat.S_IMODE((tmp_path / "alice.key").stat().st_mode) == 0o600
    assert run("operator", "keygen", "alice", cwd=tmp_path).returncode == 2
    assert run("operator", "keygen", "../x", cwd=tmp_path).returncode == 2


def test_init_writes_what_check_accepts_and_never_overwrites(tmp_path: Path) -> None:
    for board in ("sim", "pi"):
        assert run("init", f"{board}.toml", "--board", board, cwd=tmp_path).returncode == 0
        done = run("check", "--config", f"{board}.toml", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert run("init", f"{board}.toml", cwd=tmp_path).returncode == 2
    found = json.loads(run("check", "--json", "--config", "sim.toml", cwd=tmp_path).stdout)
    assert found["ok"] is True


def test_check_names_file_line_key_and_reason(tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text("[agent]\nname = 'x'\nlocal = 'en'\n")
    done = run("check", "--config", "bad.toml", cwd=tmp_path)
    assert done.returncode == 2
    assert "bad.toml:3: agent.local: unknown key; did you mean 'locale'?" in done.stderr
    as_json = run("check", "--json", "--config", "bad.toml", cwd=tmp_path)
    assert json.loads(as_json.stdout)["ok"] is False


def test_a_ledger_that_is_not_there(tmp_path: Path) -> None:
    done = run("receipts", "verify", "--state-dir", str(tmp_path))
    assert done.returncode == 1
    assert "--state-dir" in done.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_a_script_that_names_its_place(shell: str) -> None:
    done = run("completion", shell)
    assert done.returncode == 0
    assert f"zeroclawd completion {shell} >" in done.stdout
    assert "_ZEROCLAWD_COMPLETE" in done.stdout


def test_tools_lists_all_with_their_risk() -> None:
    rows = [json.loads(line) for line in run("tools", "--json").stdout.splitlines()]
    assert len(rows) == 12
    assert {row["name"]: row["risk"] for row in rows}["file_write"] == "medium"
    assert run("tools").stdout.splitlines()[0].split() == ["name", "risk", "effect", "file", "what", "it", "does"]


@pytest.mark.parametrize("broker", ["mosquitto", "iotcore"])
def test_the_demo_plays_and_checks_every_step(broker: str) -> None:
    done = run("demo", "--json", "--broker", broker)
    assert done.returncode == 0, done.stdout + done.stderr
    steps = [json.loads(line) for line in done.stdout.splitlines()]
    assert all(step["ok"] for step in steps)
    assert {"reading", "lamp", "pump approved", "pump denied", "forgery and replay", "max_on", "ledger verified",
            "tampering found"} <= {step["step"] for step in steps}  # fmt: skip
    assert all(set(step) == {"step", "ok", "detail"} for step in steps)
