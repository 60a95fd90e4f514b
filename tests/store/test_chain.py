from __future__ import annotations

import asyncio
import dataclasses
import json
import shutil
import sqlite3
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.store.hands import HandClock, all_rows, file_of, intent, opened, outcome, tamper
from zeroclawd.errors import StoreError
from zeroclawd.messages import Entry
from zeroclawd.signing import Keypair
from zeroclawd.store import checkpoints, rows
from zeroclawd.store.rows import COLUMNS, NUMBERS, row_hash
from zeroclawd.store.verify import verify

COUNT = 24
EVERY = settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ledger of some rows, a checkpoint among them, and another one published that nobody has written down inside."""
    folder = tmp_path_factory.mktemp("ledger")

    async def fill() -> None:
        clock = HandClock()
        async with opened(folder, clock) as store:
            await store.ledger.boot("version=1")
            for n in range(8):
                clock.advance(1.5)
                await store.ledger.append(intent(f"c{n}", device="valve"), outcome(f"c{n}", receipt=f"r{n}"))
            await store.ledger.checkpoint()
            await store.ledger.append(*(Entry("command", note=f"{n}") for n in range(5)))
            point = await store.ledger.stop()
            (folder / "kept.jsonl").write_text(point.text() + "\n")

    asyncio.run(fill())
    assert len(all_rows(folder)) == COUNT + 1
    return folder


@pytest.fixture
def copy(original: Path, tmp_path: Path) -> Path:
    shutil.copy(file_of(original), tmp_path)
    return tmp_path


def again(original: Path, folder: Path) -> Path:
    """A fresh copy for each example."""
    for old in folder.glob("zeroclawd.db*"):
        old.unlink()
    shutil.copy(file_of(original), folder)
    return file_of(folder)


def test_an_untouched_ledger_is_in_order(original):
    answer = verify(file_of(original), checkpoint=original / "kept.jsonl")
    assert answer.ok
    assert (answer.problems, answer.warnings, answer.first, answer.rows) == ((), (), 1, COUNT + 1)
    assert answer.head == (COUNT + 1, all_rows(original)[-1].hash)
    assert len(answer.keys) == 1


values = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    st.integers(-(2**62), 2**62),
    st.binary(max_size=8),
    st.floats(),
)


@EVERY
@given(seq=st.integers(1, COUNT), column=st.sampled_from([name for name in COLUMNS if name != "seq"]), value=values)
def test_any_edit_of_any_field_is_found(original, tmp_path, seq, column, value):
    path = again(original, tmp_path)
    before = [getattr(row, column) for row in all_rows(tmp_path)]
    try:
        tamper(path, [(f"UPDATE ledger SET {column} = ? WHERE seq = ?", (value, seq))])
        after = [getattr(row, column) for row in all_rows(tmp_path)]
    except sqlite3.IntegrityError:
        return  # NaN is stored as NULL, which the table refuses
    if [*map(repr, before)] == [*map(repr, after)]:
        return
    answer = verify(path)
    assert not answer.ok
    assert {problem.seq for problem in answer.problems}.intersection({seq, seq + 1})


@EVERY
@given(seq=st.integers(1, COUNT))
def test_an_edited_row_that_was_hashed_anew_is_found_by_the_next_one(original, tmp_path, seq):
    path = again(original, tmp_path)
    row = all_rows(tmp_path)[seq - 1]
    forged = row_hash(dataclasses.replace(row, principal="somebody else"))
    tamper(path, [("UPDATE ledger SET principal = 'somebody else', hash = ? WHERE seq = ?", (forged, seq))])
    answer = verify(path)
    assert seq + 1 in {problem.seq for problem in answer.problems}
    assert "does not follow" in answer.problems[0].what


@EVERY
@given(seq=st.integers(1, COUNT), renumber=st.booleans())
def test_a_dropped_row_is_found(original, tmp_path, seq, renumber):
    path = again(original, tmp_path)
    statements = [("DELETE FROM ledger WHERE seq = ?", (seq,))]
    if renumber:
        statements += [("UPDATE ledger SET seq = seq - 1 WHERE seq = ?", (n,)) for n in range(seq + 1, COUNT + 2)]
    tamper(path, statements)
    assert not verify(path).ok


@EVERY
@given(pair=st.lists(st.integers(1, COUNT), min_size=2, max_size=2, unique=True))
def test_rows_that_were_swapped_are_found(original, tmp_path, pair):
    path = again(original, tmp_path)
    one, two = pair
    swap = "UPDATE ledger SET seq = ? WHERE seq = ?"
    tamper(path, [(swap, (-1, one)), (swap, (one, two)), (swap, (two, -1))])
    assert not verify(path).ok


@EVERY
@given(seq=st.integers(1, COUNT), proper=st.booleans())
def test_an_inserted_row_is_found(original, tmp_path, seq, proper):
    path = again(original, tmp_path)
    here = all_rows(tmp_path)[seq - 1]
    row = dataclasses.replace(here, note="never happened")
    if proper:
        row = dataclasses.replace(row, hash=row_hash(row))
    shift = [("UPDATE ledger SET seq = seq + 1 WHERE seq = ?", (n,)) for n in range(COUNT + 1, seq - 1, -1)]
    insert = f"INSERT INTO ledger ({', '.join(COLUMNS)}) VALUES ({', '.join('?' * len(COLUMNS))})"
    tamper(path, [*shift, (insert, tuple(getattr(row, name) for name in COLUMNS))])
    assert not verify(path).ok


@EVERY
@given(keep=st.integers(0, COUNT - 1))
def test_a_tail_that_was_cut_off_is_found_by_a_checkpoint_alone(original, tmp_path, keep):
    path = again(original, tmp_path)
    tamper(path, [("DELETE FROM ledger WHERE seq > ?", (keep,))])
    assert verify(path).ok
    answer = verify(path, checkpoint=original / "kept.jsonl")
    assert [problem.seq for problem in answer.problems] == [COUNT]
    assert "its tail was cut off" in answer.problems[0].what


def rehash(path: Path, first: int, note: str) -> None:
    """What an attacker does who knows the rules: change one row and hash all that follow anew."""
    found = rows.rows(path)
    statements: list[tuple[str, tuple[object, ...]]] = []
    prev = found[first - 2].hash if first > 1 else rows.NO_HASH
    for row in found[first - 1 :]:
        changed = dataclasses.replace(row, prev_hash=prev, note=note if row.seq == first else row.note)
        prev = row_hash(changed)
        update = "UPDATE ledger SET prev_hash = ?, hash = ?, note = ? WHERE seq = ?"
        statements.append((update, (changed.prev_hash, prev, changed.note, row.seq)))
    tamper(path, statements)


def test_a_chain_that_was_hashed_anew_is_found_by_the_signatures_in_it_and_by_the_ones_kept_outside(copy, original):
    rehash(file_of(copy), 3, "nothing to see here")
    inside = verify(file_of(copy))
    assert [problem.seq for problem in inside.problems] == [18, COUNT + 1]
    assert "signed another row" in inside.problems[0].what
    outside = verify(file_of(copy), checkpoint=original / "kept.jsonl")
    assert "the chain was rewritten" in " ".join(problem.what for problem in outside.problems)


def test_a_chain_that_was_hashed_and_signed_anew_is_found_by_the_key(copy, original):
    key = verify(file_of(original)).keys[0]
    thief = Keypair(b"t" * 32)
    found = rows.rows(file_of(copy))
    for row in found:
        if row.kind == "checkpoint":
            point = json.loads(row.note)
            fake = checkpoints.Checkpoint.sign(
                thief, point["node"], point["seq"], point["hash"], point["boot_id"], point["wall_time"]
            )
            rehash(file_of(copy), row.seq, fake.text())
    assert "not signed by the given key" in verify(file_of(copy), public_key=key).problems[0].what
    assert thief.public in verify(file_of(copy)).keys


def test_the_beginning_cannot_be_cut_off_without_a_row_that_says_so(copy):
    tamper(file_of(copy), [("DELETE FROM ledger WHERE seq < ?", (5,))])
    (problem,) = verify(file_of(copy)).problems
    assert "rows 1 to 4 are missing" in problem.what


def test_an_intent_without_outcome_is_a_warning(copy):
    tamper(file_of(copy), [("DELETE FROM ledger WHERE seq > ?", (4,))])
    answer = verify(file_of(copy))
    assert answer.ok
    assert [(warning.seq, warning.what) for warning in answer.warnings] == [(4, "this intent has no outcome")]


def test_an_empty_ledger_is_worth_a_word(copy):
    tamper(file_of(copy), [("DELETE FROM ledger", ())])
    answer = verify(file_of(copy))
    assert (answer.ok, answer.rows, answer.warnings[0].what) == (True, 0, "there is no row")


def test_problems_are_bounded(copy, monkeypatch):
    monkeypatch.setattr("zeroclawd.store.verify._MAX_PROBLEMS", 3)
    tamper(file_of(copy), [("UPDATE ledger SET note = 'x'", ())])
    answer = verify(file_of(copy))
    assert (len(answer.problems), answer.more > 10) == (3, True)


def test_a_page_that_cannot_be_read_is_a_problem_and_not_a_crash(tmp_path):
    async def fill() -> None:
        async with opened(tmp_path) as store:
            await store.ledger.append(*(Entry("safety", note="x" * 1000) for _ in range(200)))

    asyncio.run(fill())
    raw = bytearray(file_of(tmp_path).read_bytes())
    raw[len(raw) // 2 // 4096 * 4096 :][:0] = b""
    middle = len(raw) * 3 // 4 // 4096 * 4096
    raw[middle : middle + 4096] = b"\x99" * 4096
    file_of(tmp_path).write_bytes(raw)
    answer = verify(file_of(tmp_path))
    assert not answer.ok
    assert "cannot be read beyond this row" in answer.problems[-1].what


def test_text_that_is_not_utf8_is_a_problem_and_not_a_crash(copy):
    tamper(file_of(copy), [("UPDATE ledger SET note = CAST(x'ff' AS TEXT) WHERE seq = ?", (6,))])
    assert not verify(file_of(copy)).ok


# Checkpoint files


def test_a_checkpoint_of_another_key_is_refused(original, tmp_path):
    row = all_rows(original)[COUNT - 1]
    thief = Keypair(b"t" * 32)
    point = checkpoints.Checkpoint.sign(thief, "node-1", row.seq, row.hash, row.boot_id, row.wall_time)
    (tmp_path / "kept").write_text(point.text())
    key = verify(file_of(original)).keys[0]
    (problem,) = verify(file_of(original), checkpoint=tmp_path / "kept", public_key=key).problems
    assert "not signed by the given key" in problem.what
    warnings = verify(file_of(original), checkpoint=tmp_path / "kept").warnings
    assert "another key" in warnings[0].what


def test_a_checkpoint_that_was_edited_is_refused(original, tmp_path):
    document = json.loads((original / "kept.jsonl").read_text())
    document["seq"] = 3
    document["hash"] = all_rows(original)[2].hash
    (tmp_path / "kept").write_text(json.dumps(document))
    (problem,) = verify(file_of(original), checkpoint=tmp_path / "kept").problems
    assert "not signed" in problem.what


def test_checkpoints_are_read_as_a_listener_keeps_them(original, tmp_path):
    line = (original / "kept.jsonl").read_text().strip()
    (tmp_path / "kept").write_text(f"zeroclaw/node-1/checkpoint {line}\n\n{line}\n")
    assert len(checkpoints.load(tmp_path / "kept")) == 2
    assert verify(file_of(original), checkpoint=tmp_path / "kept").ok


def test_of_a_fleets_checkpoints_only_this_nodes_count(original, tmp_path):
    stranger = checkpoints.Checkpoint.sign(Keypair(b"o" * 32), "node-2", 5, "f" * 64, "boot", 1)
    (tmp_path / "kept").write_text(stranger.text() + "\n" + (original / "kept.jsonl").read_text())
    assert not verify(file_of(original), checkpoint=tmp_path / "kept").ok
    assert verify(file_of(original), checkpoint=tmp_path / "kept", node="node-1").ok
    with pytest.raises(StoreError, match="node-3"):
        verify(file_of(original), checkpoint=tmp_path / "kept", node="node-3")


@pytest.mark.parametrize("text", ["", "nonsense", "[]", "{}", '{"v":2}', '{"v":1,"node":1}', "\xff"])
def test_a_file_that_holds_no_checkpoint_is_an_error(original, tmp_path, text):
    (tmp_path / "kept").write_bytes(text.encode("latin-1"))
    with pytest.raises(StoreError):
        verify(file_of(original), checkpoint=tmp_path / "kept")
    with pytest.raises(StoreError):
        verify(file_of(original), checkpoint=tmp_path / "nowhere")


def test_a_checkpoint_older_than_the_first_row_is_checked_against_the_segments(tmp_path):
    async def fill() -> tuple[str, str, list[Path]]:
        clock = HandClock()
        async with opened(tmp_path, clock) as store:
            await store.ledger.append(intent("a"), outcome("a"))
            early = await store.ledger.checkpoint()
            await store.ledger.append(intent("b"), outcome("b"))
            late = await store.ledger.checkpoint()
            await store.ledger.append(intent("c"), outcome("c"))
            segment = await asyncio.to_thread(store.ledger._export, late.seq)
            await store.ledger._remove(segment, [])
            return early.text(), late.text(), [segment.file]

    early, late, files = asyncio.run(fill())
    (tmp_path / "early").write_text(early)
    (tmp_path / "late").write_text(late)
    assert verify(file_of(tmp_path), checkpoint=tmp_path / "late").warnings == ()
    answer = verify(file_of(tmp_path), checkpoint=tmp_path / "early")
    assert answer.ok
    assert "older than the first row" in answer.warnings[0].what
    whole = verify(file_of(tmp_path), checkpoint=tmp_path / "early", segments=files)
    assert (whole.problems, whole.warnings) == ((), ())


# Exported files


@pytest.fixture
def exported(original: Path, tmp_path: Path) -> Path:
    out = tmp_path / "rows.jsonl"
    rows.export(file_of(original), out)
    return out


def test_an_exported_file_is_in_order(exported, original):
    answer = verify(exported, checkpoint=original / "kept.jsonl")
    assert (answer.problems, answer.warnings, answer.rows) == ((), (), COUNT + 1)


@EVERY
@given(
    number=st.integers(0, COUNT),
    column=st.sampled_from(COLUMNS),
    value=st.one_of(st.integers(), st.text(), st.none(), st.booleans()),
)
def test_any_edit_of_an_exported_row_is_found(exported, original, number, column, value):
    lines = rows_of(exported, original)
    document = json.loads(lines[number])
    if repr(document[column]) == repr(value):
        return
    document[column] = value
    lines[number] = json.dumps(document)
    edited = exported.with_name("edited.jsonl")
    edited.write_text("\n".join(lines) + "\n")
    assert not verify(edited).ok


def rows_of(exported: Path, _original: Path) -> list[str]:
    return exported.read_text().splitlines()


@pytest.mark.parametrize("cut", [1, 10, 200, 3000])
def test_an_exported_file_that_was_cut_short_is_found(exported, cut):
    raw = exported.read_bytes()
    exported.write_bytes(raw[:-cut] if cut > 1 else raw[: raw.rstrip().rfind(b"\n") + 1])
    assert not verify(exported).ok


def test_a_line_that_is_no_row_or_comes_after_the_head_is_found(exported):
    lines = exported.read_text().splitlines()
    for broken in (
        [*lines[:3], "{}", *lines[3:]],
        [*lines, lines[0]],
        [lines[1], lines[0], *lines[2:]],
        [*lines[:4], *lines[5:]],
    ):
        exported.write_text("\n".join(broken) + "\n")
        assert not verify(exported).ok


def test_every_number_is_a_number():
    assert set(COLUMNS) > NUMBERS
