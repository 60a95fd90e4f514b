"""Turns data into bytes for a column and back: JSON, or MessagePack where there are bytes inside."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

T = TypeVar("T")


def to_json(value: Any) -> bytes:
    """JSON of dataclasses and plain data; a lone surrogate, which UTF-8 cannot hold, is written out as `\\udc80`."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return msgspec.json.encode(_mend(msgspec.to_builtins(value)))


def from_json(raw: bytes, kind: type[T]) -> T:
    """The value again; ValueError if it is not one of this type."""
    return msgspec.json.decode(raw, type=kind)


def to_packed(value: Any) -> bytes:
    """MessagePack of plain data, bytes included."""
    try:
        return msgspec.msgpack.encode(value)
    except UnicodeEncodeError:
        return msgspec.msgpack.encode(_mend(value))


def from_packed(raw: bytes) -> dict[str, Any]:
    """The mapping again; tuples come back as lists."""
    return msgspec.msgpack.decode(raw, type=dict[str, Any])


def _mend(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(value, dict):
        return {_mend(key): _mend(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_mend(item) for item in value]
    return value
