from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.store.hands import HandClock, file_of, intent, opened, outcome
from zeroclawd import signing
from zeroclawd.store import rows
from zeroclawd.store.ledger import KINDS
from zeroclawd.store.rows import COLUMNS, Row, row_hash

PAGE = (Path(__file__).parents[2] / "docs" / "ledger.md").read_text("utf-8")


def block(language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    assert found
    return found[1]


def by_hand() -> dict[str, object]:
    """What somebody gets who copies the page's program."""
    names: dict[str, object] = {}
    exec(block("python"), names)
    return names


def test_the_worked_example_is_what_the_daemon_computes():
    document = json.loads(block("json"))
    row = Row(**document)
    assert row_hash(row) == row.hash == "768ba57765d939efdf00f22b09ff6421e23d59eb4237cc47133256064e8ef67d"
    assert by_hand()["row_hash"](document) == row.hash
    start = signing.encode(signing.ROW, [row.prev_hash])
    assert start.startswith(bytes.fromhex("00000017 7a65726f636c6177642d6c65646765722d726f772d7631 00000040 6161"))
    assert signing.encode(row.note, []) == bytes.fromhex("00000005 c3bc626572")


async def test_the_pages_program_checks_an_export_and_finds_an_edit(tmp_path):
    async with opened(tmp_path, HandClock()) as store:
        await store.ledger.boot("version=1")
        await store.ledger.append(intent(note="ü"), outcome(receipt="zc-receipt-1"))
        await store.ledger.stop()
    out = tmp_path / "rows.jsonl"
    rows.export(file_of(tmp_path), out)
    lines = out.read_text("utf-8").splitlines()
    check = by_hand()["check"]
    assert check(lines) is True
    with pytest.raises(AssertionError):
        check([line.replace('"intent"', '"command"') for line in lines])


def test_every_field_and_every_kind_is_explained():
    explained = set(re.findall(r"`(\w+)`", "\n".join(line for line in PAGE.splitlines() if line.startswith("| `"))))
    assert explained.issuperset(COLUMNS)
    assert explained.issuperset(KINDS)


def test_the_fields_of_a_checkpoints_signature_are_as_written():
    from zeroclawd.store.checkpoints import Checkpoint

    pair = signing.Keypair(b"k" * 32)
    point = Checkpoint.sign(pair, "node-1", 7, "a" * 64, "b7c1", 1_700_000_000_000_000)
    fields = ["1", "node-1", "7", "a" * 64, "b7c1", "1700000000000000"]
    assert "zeroclawd-checkpoint-v1, v, node, seq, hash, boot_id, wall_time" in PAGE
    assert signing.CHECKPOINT == "zeroclawd-checkpoint-v1"
    assert signing.Verifier(pair.public).verify(point.sig, "zeroclawd-checkpoint-v1", fields)
