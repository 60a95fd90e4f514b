"""Checkpoints: signed statements of where the ledger's head was, kept by whoever listens, so that a cut tail is found."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from zeroclawd import signing
from zeroclawd.errors import StoreError
from zeroclawd.frozen import dataclass

VERSION = 1


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Row `seq` of this node had this hash at `wall_time` (Unix microseconds); `key` is the node's public key."""

    node: str
    seq: int
    hash: str
    boot_id: str
    wall_time: int
    sig: str
    key: str
    v: int = VERSION

    @classmethod
    def sign(cls, pair: signing.Keypair, node: str, seq: int, hash: str, boot_id: str, wall_time: int) -> Checkpoint:
        """State and sign where the head is."""
        fields = _fields(VERSION, node, seq, hash, boot_id, wall_time)
        return cls(node, seq, hash, boot_id, wall_time, pair.sign(signing.CHECKPOINT, fields), pair.public)

    def genuine(self, public_key: str = "") -> bool:
        """True if this key, or the one that it names itself, signed exactly this."""
        fields = _fields(self.v, self.node, self.seq, self.hash, self.boot_id, self.wall_time)
        try:
            return signing.Verifier(public_key or self.key).verify(self.sig, signing.CHECKPOINT, fields)
        except ValueError:
            return False

    def document(self) -> dict[str, Any]:
        """What is published: v, node, seq, hash, boot_id, wall_time, sig, key."""
        names = ("v", "node", "seq", "hash", "boot_id", "wall_time", "sig", "key")
        return {name: getattr(self, name) for name in names}

    def text(self) -> str:
        """The document as one line of JSON."""
        return json.dumps(self.document(), separators=(",", ":"))


def _fields(v: int, node: str, seq: int, hash: str, boot_id: str, wall_time: int) -> list[str]:
    return [str(v), node, str(seq), hash, boot_id, str(wall_time)]


def parse(document: Mapping[str, Any]) -> Checkpoint:
    """Read a published checkpoint; ValueError says what is wrong."""
    if document.get("v") != VERSION:
        raise ValueError(f"checkpoint version {document.get('v')!r} is not {VERSION}")
    for name, kind in (("node", str), ("hash", str), ("boot_id", str), ("sig", str), ("key", str)):
        if not isinstance(document.get(name), kind):
            raise ValueError(f"{name} must be text")
    for name in ("seq", "wall_time"):
        if type(document.get(name)) is not int:
            raise ValueError(f"{name} must be a whole number")
    return Checkpoint(**{name: document[name] for name in Checkpoint.__dataclass_fields__})


def load(path: Path, node: str = "") -> list[Checkpoint]:
    """Read a file of checkpoints, one JSON object a line, as a listener of the checkpoint topic keeps them.

    With `node`, those of this node alone. StoreError if there is none, or if a line is something else.
    """
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise StoreError(f"{path} cannot be read: {error}") from None
    found = []
    for number, line in enumerate(lines, 1):
        if line.strip():
            found.append(_line(path, number, line[line.find("{") :] if "{" in line else line))
    found = [point for point in found if node in ("", point.node)]
    if not found:
        whose = f" of node {node!r}" if node else ""
        raise StoreError(
            f"{path} holds no checkpoint{whose}", hint="it is filled by a listener on <base>/<node>/checkpoint"
        )
    return found


def _line(path: Path, number: int, line: str) -> Checkpoint:
    try:
        document = json.loads(line)
        if not isinstance(document, dict):
            raise ValueError("not an object")
        return parse(document)
    except ValueError as error:
        raise StoreError(f"{path}:{number}: not a checkpoint: {error}") from None
