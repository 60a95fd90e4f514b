from __future__ import annotations

import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests.store.hands import HandClock, opened
from zeroclawd.errors import KeyFileError
from zeroclawd.store import keys
from zeroclawd.store.store import Store


async def test_the_key_is_made_once_and_stays(tmp_path):
    async with opened(tmp_path) as store:
        key, node = store.device_key, store.keys.node.public
        assert len(key) == 32
        assert store.keys.created
    async with opened(tmp_path) as store:
        assert store.device_key == key
        assert store.keys.node.public == node
        assert not store.keys.created
    assert stat.S_IMODE((tmp_path / "device.key").stat().st_mode) == 0o600
    assert not list(tmp_path.glob("*.new"))


def test_a_start_needs_no_signature_library(tmp_path):
    program = """
import asyncio, sys
from pathlib import Path
from tests.store.hands import HandClock, opened, intent

async def main():
    async with opened(Path(sys.argv[1])) as store:
        await store.ledger.boot()
        await store.ledger.append(intent())

asyncio.run(main())
assert "nacl" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], cwd=Path(__file__).parents[2], check=True)


def test_the_key_is_never_shown(tmp_path):
    key = keys.load_or_create(tmp_path)
    assert key.raw.hex() not in repr(key)
    assert repr(key.raw) not in repr(key)


@pytest.mark.parametrize("content", [b"", b"short", b"x" * 33])
def test_a_key_of_another_size_is_refused_and_left_as_it_is(tmp_path, content):
    (tmp_path / "device.key").write_bytes(content)
    with pytest.raises(KeyFileError, match="instead of 32") as caught:
        Store.open(tmp_path, HandClock(), "boot-1", "node-1")
    assert "backup" in caught.value.hint
    assert (tmp_path / "device.key").read_bytes() == content
    (tmp_path / "device.key").unlink()
    store = Store.open(tmp_path, HandClock(), "boot-1", "node-1")
    assert store.database.shut()


def test_a_key_that_others_may_read_is_refused(tmp_path):
    keys.load_or_create(tmp_path)
    (tmp_path / "device.key").chmod(0o644)
    with pytest.raises(KeyFileError) as caught:
        keys.load_or_create(tmp_path)
    assert "chmod 600" in caught.value.hint


def test_a_key_that_cannot_be_read_is_an_error_with_a_hint(tmp_path):
    (tmp_path / "device.key").mkdir()
    with pytest.raises(KeyFileError) as caught:
        keys.load_or_create(tmp_path)
    assert caught.value.hint


def test_an_interrupted_creation_is_begun_again(tmp_path):
    (tmp_path / "device.key.new").write_bytes(b"half")
    assert len(keys.load_or_create(tmp_path).raw) == 32
