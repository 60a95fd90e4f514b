"""The device key: 32 random bytes, made once, that the keys of digests, receipts and checkpoints derive from."""

from __future__ import annotations

import os
import secrets
import stat
from dataclasses import field
from pathlib import Path

from zeroclawd import signing
from zeroclawd.errors import KeyFileError
from zeroclawd.frozen import dataclass
from zeroclawd.store.opening import sync_folder

FILE = "device.key"
SIZE = 32
_NODE = "zeroclawd-node-key-v1"


@dataclass(frozen=True, slots=True)
class DeviceKey:
    """The key, and whether it was made just now; its text form does not show it."""

    raw: bytes = field(repr=False)
    created: bool = False

    @property
    def node(self) -> signing.Keypair:
        """The Ed25519 key that signs this node's checkpoints."""
        return signing.Keypair(signing.derive(self.raw, _NODE))


def load_or_create(folder: Path) -> DeviceKey:
    """Read `<folder>/device.key`, or make it if there is none.

    KeyFileError if it cannot be read, has another size, or is open to others: it is not made anew then, because the
    digests and receipts of the past could never be checked again.
    """
    path = folder / FILE
    try:
        if not path.exists():
            return _create(path)
        return _read(path)
    except OSError as error:
        raise KeyFileError(
            f"the device key {path} cannot be read: {error.strerror or error}",
            hint="check the path, who owns it, and whether the disk is full or read-only",
        ) from None


def _read(path: Path) -> DeviceKey:
    raw = path.read_bytes()
    if len(raw) != SIZE:
        raise KeyFileError(
            f"the device key {path} has {len(raw)} bytes instead of {SIZE}",
            hint="restore it from a backup; if there is none, move it away: a new one is made, and the digests, receipts "
            "and checkpoints made with the old one can no longer be checked",
        )
    if stat.S_IMODE(path.stat().st_mode) & 0o077:
        raise KeyFileError(f"the device key {path} is open to others", hint=f"chmod 600 {path}")
    return DeviceKey(raw)


def _create(path: Path) -> DeviceKey:
    """Write under another name, sync, then rename: no power cut leaves a short key."""
    fresh = path.with_name(f"{FILE}.new")
    fresh.unlink(missing_ok=True)
    raw = secrets.token_bytes(SIZE)
    handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.write(handle, raw)
        os.fsync(handle)
    finally:
        os.close(handle)
    fresh.rename(path)
    sync_folder(path.parent)
    return DeviceKey(raw, created=True)
