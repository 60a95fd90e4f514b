"""The ledger at the command line: who opened the valve last night, who said yes, and did it really happen?"""

from __future__ import annotations

import asyncio
import json
import signal
import sqlite3
from pathlib import Path

import pytest

from tests.cli.people import Terminal, run, start
from tests.store.hands import HandClock, opened
from zeroclawd.messages import Entry

TOKEN = "zc-receipt-1700000002-" + "A" * 43
CALL = {
    "turn_id": "t-1", "call_id": "c-1", "agent": "agent", "channel": "mqtt.home", "principal": "mqtt:home:unverified",
    "tool": "device_write", "device": "valve", "risk": "high", "arguments": '{"device":"valve","value":true}',
}  # fmt: skip


async def _night(folder: Path) -> None:
    clock = HandClock()
    async with opened(folder, clock) as store:
        await store.ledger.boot()
        await store.ledger.append(
            Entry("command", channel="mqtt.home", principal="mqtt:home:unverified", arguments="open\x1b[2J the valve",
                  decision="accepted", note="id 1")
        )  # fmt: skip
        clock.advance(1)
        asked = {**CALL, "approval_id": "q-1"}
        await store.ledger.append(Entry("decision", decision="asked", **asked))
        await store.ledger.append(Entry("decision", decision="approve", decided_by="alice", note="1 of 1", **asked))
        clock.advance(1)
        decided = {**CALL, "decision": "allowed:operator", "decided_by": "alice"}
        await store.ledger.append(Entry("intent", **decided))
        await store.ledger.append(Entry("outcome", outcome="ok", receipt=TOKEN, **decided))
        clock.is_synced = False
        await store.ledger.append(Entry("safety", device="valve", note="max_on: switched off"))


@pytest.fixture
def state(tmp_path: Path) -> Path:
    folder = tmp_path / "state"
    asyncio.run(_night(folder))
    return folder


def test_one_command_answers(state: Path) -> None:
    done = run("receipts", "list", "--device", "valve", "--state-dir", str(state))
    assert done.returncode == 0
    assert done.stdout == (
        "row  time +00:00            kind      device  call                     asked by              decided          "
        "       outcome  note\n"
        "3    2023-11-14 22:13:21    decision  valve   device_write value=true  mqtt:home:unverified  asked            "
        "       -        -\n"
        "4    2023-11-14 22:13:21    decision  valve   device_write value=true  mqtt:home:unverified  approve alice    "
        "       -        1 of 1\n"
        "5    2023-11-14 22:13:22    intent    valve   device_write value=true  mqtt:home:unverified  allowed:operator "
        "alice  -        -\n"
        "6    2023-11-14 22:13:22    outcome   valve   device_write value=true  mqtt:home:unverified  allowed:operator "
        "alice  ok       -\n"
        "8    2023-11-14 22:13:22 ?  safety    valve   -                        -                     -                "
        "       -        max_on: switched off\n"
    )


def test_what_is_listed_can_be_narrowed(state: Path) -> None:
    def rows(*more: str, **environ: str) -> list[int]:
        done = run("receipts", "list", "--json", "--state-dir", str(state), *more, **environ)
        assert done.returncode == 0, done.stderr
        return [json.loads(line)["seq"] for line in done.stdout.splitlines()]

    assert rows("--kind", "decision") == [3, 4]
    assert rows("--outcome", "ok") == [6]
    assert rows("--turn", "t-1", "--limit", "2") == [5, 6]
    assert rows("--tool", "shell") == []
    assert rows("--since", "2023-11-14T22:13:21", "--until", "2023-11-14T22:13:22") == [3, 4]
    assert rows("--since", "2023-11-15T07:13:22", TZ="Asia/Tokyo") == [5, 6, 7, 8]
    assert rows("--since", "1h") == []
    assert run("receipts", "list", "--since", "yesterday", "--state-dir", str(state)).returncode == 2


def test_nothing_in_the_ledger_reaches_the_terminal_as_more_than_letters(state: Path) -> None:
    listed = run("receipts", "list", "--kind", "command", "--state-dir", str(state)).stdout
    assert "open\\u001b[2J the valve" in listed
    shown = run("receipts", "show", "2", "--state-dir", str(state)).stdout
    assert "open\\u001b[2J the valve" in shown
    screen = Terminal(("receipts", "list", "--state-dir", str(state)), {"NO_COLOR": "1"}, columns=200)
    assert "open\\u001b[2J the valve" in screen.rest()
    assert screen.end() == 0
    assert "\x1b[2J" not in screen.shown


def test_a_terminal_gets_a_table_that_fits_and_a_pipe_one_that_does_not_wrap(state: Path) -> None:
    screen = Terminal(("receipts", "list", "--state-dir", str(state)), {}, columns=90)
    screen.rest()
    assert screen.end() == 0
    assert "\x1b[32mok" in screen.shown
    assert "2023-11-14 22:13:21" in screen.shown
    import click

    assert all(len(line) <= 90 for line in click.unstyle(screen.shown).splitlines())
    piped = run("receipts", "list", "--state-dir", str(state), COLUMNS="40").stdout
    assert len(piped.splitlines()) == 9
    assert "\x1b" not in piped


def test_a_row_is_shown_with_the_others_of_its_call(state: Path) -> None:
    done = run("receipts", "show", "6", "--state-dir", str(state))
    lines = done.stdout.splitlines()
    assert lines[0] == "seq               6"
    assert "wall_time         2023-11-14 22:13:22+00:00" in lines
    assert f"receipt           {TOKEN}" in lines
    assert not any(line.startswith("note ") for line in lines), "what is empty is left out"
    assert [line.split()[0] for line in lines[lines.index("the same call:") + 2 :]] == ["3", "4", "5", "6"]
    assert json.loads(run("receipts", "show", "6", "--json", "--state-dir", str(state)).stdout)["receipt"] == TOKEN
    missing = run("receipts", "show", "99", "--state-dir", str(state))
    assert missing.returncode == 1
    assert "try: `zeroclawd receipts list`" in missing.stderr


def test_a_receipt_is_ours_or_it_is_not(state: Path) -> None:
    ours = run("receipts", "check", TOKEN, "--state-dir", str(state))
    assert ours.returncode == 0
    assert "issued by this device" in ours.stdout
    assert "device_write value=true" in ours.stdout
    other = run("receipts", "check", TOKEN.replace("A", "B"), "--state-dir", str(state), LANG="ja_JP.UTF-8")
    assert other.returncode == 1
    assert other.stdout == "この台帳のものではありません\n"
    as_json = json.loads(run("receipts", "check", TOKEN, "--json", "--state-dir", str(state)).stdout)
    assert (as_json["ours"], as_json["seq"]) == (True, 6)


def test_a_whole_chain_and_one_that_was_edited(state: Path) -> None:
    whole = run("receipts", "verify", "--state-dir", str(state))
    assert whole.returncode == 0
    assert whole.stdout.startswith("rows 1-8 (8): the chain is whole\nhead ")
    assert "--checkpoint FILE" in whole.stderr
    with sqlite3.connect(state / "zeroclawd.db") as opened_by_hand:
        opened_by_hand.execute("DROP TRIGGER ledger_is_never_changed")
        opened_by_hand.execute("UPDATE ledger SET decided_by = 'alica' WHERE seq = 4")
    opened_by_hand.close()
    edited = run("receipts", "verify", "--state-dir", str(state))
    assert edited.returncode == 1
    assert edited.stdout.startswith("row 4: ")
    assert "NOT whole" in edited.stdout
    found = json.loads(run("receipts", "verify", "--json", "--file", str(state / "zeroclawd.db")).stdout)
    assert (found["ok"], found["problems"][0]["row"]) == (False, 4)


def test_what_is_exported_verifies_from_a_file_and_from_standard_output(state: Path, tmp_path: Path) -> None:
    out = tmp_path / "all.jsonl"
    done = run("receipts", "export", "--out", str(out), "--json", "--state-dir", str(state))
    assert json.loads(done.stdout)["last"] == 8
    piped = tmp_path / "piped.jsonl"
    piped.write_text(run("receipts", "export", "--state-dir", str(state)).stdout)
    for file in (out, piped):
        assert run("receipts", "verify", "--file", str(file)).returncode == 0
    assert [json.loads(line) for line in out.read_text().splitlines()] == [
        json.loads(line) for line in piped.read_text().splitlines()
    ]
    some = run("receipts", "export", "--from", "3", "--to", "4", "--state-dir", str(state)).stdout.splitlines()
    assert [json.loads(line).get("seq") for line in some] == [3, 4, None]
    assert run("receipts", "export", "--from", "99", "--state-dir", str(state)).returncode == 1


def test_new_rows_are_followed(state: Path) -> None:
    following = start("receipts", "follow", "--kind", "safety", "--state-dir", str(state))
    assert following.stdout is not None
    assert following.stdout.readline().endswith("safety  valve  max_on: switched off\n")

    async def more() -> None:
        async with opened(state, boot_id="boot-2") as store:
            await store.ledger.append(Entry("estop", note="not asked for"))
            await store.ledger.append(Entry("safety", device="pump", note="watchdog"))

    asyncio.run(more())
    assert following.stdout.readline().endswith("safety  pump  watchdog\n")
    following.send_signal(signal.SIGINT)
    out, err = following.communicate(timeout=60)
    assert (following.returncode, out, err) == (0, "", "")


def test_the_ledger_is_found_by_folder_config_client_file_or_not_at_all(state: Path, tmp_path: Path) -> None:
    config, client = tmp_path / "config.toml", tmp_path / "client.toml"
    config.write_text(f'[agent]\nstate_dir = "{state}"\n')
    client.write_text('broker = "mqtt://x"\nstate_dir = "state"\n')
    assert run("receipts", "verify", "--config", str(config)).returncode == 0
    assert run("receipts", "verify", ZEROCLAWD_CLIENT=str(client)).returncode == 0
    nowhere = run("receipts", "list")
    assert nowhere.returncode == 1
    assert "there is no ledger at /var/lib/zeroclawd/zeroclawd.db" in nowhere.stderr
    assert all(way in nowhere.stderr for way in ("--state-dir", "--config", "--file"))
    (tmp_path / "garbage.db").write_bytes(b"no database at all, and long enough for a header" * 100)
    garbage = run("receipts", "list", "--file", str(tmp_path / "garbage.db"))
    assert garbage.returncode == 1
    assert "Traceback" not in garbage.stderr


def test_looking_leaves_nothing_behind(state: Path) -> None:
    before = {path.name: path.stat().st_mtime_ns for path in state.iterdir()}
    for words in (("list",), ("show", "1"), ("verify",), ("check", TOKEN), ("export",)):
        run("receipts", *words, "--state-dir", str(state))
    assert {path.name: path.stat().st_mtime_ns for path in state.iterdir()} == before
