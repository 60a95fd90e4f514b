"""Names, arguments and their schemas: one canonical form, one check, for every stage that compares calls."""

from __future__ import annotations

import functools
import inspect
import types
import typing
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Union

import msgspec

from zeroclawd.tool import Arguments

_encoder = msgspec.json.Encoder(order="deterministic")


class BadArguments(ValueError):
    """Arguments that do not fit a tool's schema; the text is for the model to act on."""


def canonical_name(name: str) -> str:
    """The one spelling of a tool's name: NFKC, no space around it, lower case."""
    return unicodedata.normalize("NFKC", name).strip().casefold()


def canonical(arguments: Any) -> bytes:
    """The one spelling of arguments: JSON with sorted keys, no spaces, and whole numbers without a fraction."""
    return _encoder.encode(_whole(arguments))


def _whole(value: Any) -> Any:
    match value:
        case bool() | str() | None:
            return value
        case float() if value.is_integer() and abs(value) < 2**53:
            return int(value)
        case Mapping():
            return {str(key): _whole(inner) for key, inner in value.items()}
        case list() | tuple():
            return [_whole(inner) for inner in value]
    return value


def signature(name: str, arguments: Any) -> str:
    """Equal for two calls that mean the same."""
    return f"{canonical_name(name)} {canonical(arguments).decode()}"


# Schemas from signatures


class Signature:
    """A coroutine's parameters, split into those that the model fills in and the roles that are handed in."""

    def __init__(self, function: Callable[..., Any], roles: Iterable[type]) -> None:
        known = tuple(roles)
        hints = typing.get_type_hints(function)
        self.roles: dict[str, type] = {}
        fields: list[Any] = []
        for name, parameter in inspect.signature(function).parameters.items():
            kind = hints.get(name, Any)
            if kind in known:
                self.roles[name] = kind
            elif parameter.default is inspect.Parameter.empty:
                fields.append((name, kind))
            else:
                fields.append((name, kind, parameter.default))
        self.struct = msgspec.defstruct(
            f"{function.__name__}_arguments", fields, forbid_unknown_fields=True, kw_only=True
        )
        self.types = {field[0]: field[1] for field in fields}

    def schema(self, describe: Callable[[str], str]) -> dict[str, Any]:
        """A JSON Schema object without references; `describe` gives a parameter's words."""
        (_schema,), components = msgspec.json.schema_components((self.struct,))
        body = components[self.struct.__name__]
        properties = {name: {**_tidy(part), "description": describe(name)} for name, part in body["properties"].items()}
        return {
            "type": "object",
            "properties": {name: {k: v for k, v in part.items() if v != ""} for name, part in properties.items()},
            "required": body.get("required", []),
            "additionalProperties": False,
        }

    def check(self, arguments: Arguments) -> dict[str, Any]:
        """The arguments with types as declared and nothing unknown; BadArguments otherwise.

        Numbers and booleans that came as text are read as what they say where the schema has no text; nothing is rounded,
        cut or guessed.
        """
        lenient = {name: _coerce(value, self.types.get(name)) for name, value in arguments.items()}
        try:
            checked = msgspec.convert(lenient, self.struct)
        except msgspec.ValidationError as error:
            raise BadArguments(self._explain(str(error))) from None
        return {name: getattr(checked, name) for name in self.types if name in arguments}

    def _explain(self, text: str) -> str:
        reason, _, path = text.partition(" - at `$.")
        where = f"{path.rstrip('`')}: " if path else ""
        return f"{where}{reason.replace('`', chr(39))} (parameters: {', '.join(self.types) or 'none'})"


def _tidy(part: Mapping[str, Any]) -> dict[str, Any]:
    """Drop what costs tokens and says nothing: a null default."""
    return {key: value for key, value in part.items() if not (key == "default" and value is None)}


def _coerce(value: Any, kind: Any) -> Any:
    if not isinstance(value, str):
        return _as_whole(value, kind)
    wanted = _members(kind)
    if str in wanted or not wanted:
        return value
    text = value.strip()
    if bool in wanted and text.lower() in ("true", "false"):
        return text.lower() == "true"
    for number in (int, float):
        if number in wanted:
            try:
                return number(text)
            except ValueError:
                continue
    return value


def _as_whole(value: Any, kind: Any) -> Any:
    """`3.0` for an integer is 3; `3.5` stays and is refused."""
    if isinstance(value, float) and value.is_integer() and int in _members(kind) and float not in _members(kind):
        return int(value)
    return value


@functools.cache
def _members(kind: Any) -> frozenset[type]:
    if isinstance(kind, types.UnionType) or typing.get_origin(kind) is Union:
        return frozenset().union(*(_members(inner) for inner in typing.get_args(kind)))
    if typing.get_origin(kind) is typing.Annotated:
        return _members(typing.get_args(kind)[0])
    if typing.get_origin(kind) is typing.Literal:
        return frozenset(type(choice) for choice in typing.get_args(kind))
    return frozenset({kind}) if isinstance(kind, type) else frozenset()
