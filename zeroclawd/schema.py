"""Names, arguments and their schemas: one canonical form, one check, for every stage that compares calls."""

from __future__ import annotations

import functools
import inspect
import math
import re
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, Literal, Union

import msgspec

from zeroclawd.tool import Arguments

_encoder = msgspec.json.Encoder(order="deterministic")


class BadArguments(ValueError):
    """Arguments that do not fit a tool's schema; the text is for the model to act on."""


def canonical_name(name: str) -> str:
    """The one spelling of a tool's name: NFKC before and after folding the case (UAX #31), no space around it."""
    if name.isascii():
        return name.casefold().strip()
    import unicodedata

    folded = unicodedata.normalize("NFKC", name).casefold()
    return unicodedata.normalize("NFKC", folded).strip()


def canonical(arguments: Any) -> bytes:
    """The one spelling of arguments: JSON with sorted keys, no spaces, and whole numbers without a fraction.

    Two values that differ never share it. BadArguments for what JSON cannot say: not a number, infinity, half of a
    surrogate pair, a key that is no text, and what is nested or long beyond reason.
    """
    try:
        return _encoder.encode(_whole(arguments))
    except RecursionError:
        raise BadArguments("the arguments are nested too deeply") from None
    except UnicodeEncodeError:
        raise BadArguments("a text in the arguments holds half of a surrogate pair, which is no character") from None


def _whole(value: Any) -> Any:
    match value:
        case bool() | str() | None:
            return value
        case int():
            return _of_sane_size(value)
        case float() if math.isfinite(value):
            return int(value) if value.is_integer() else value
        case Mapping():
            return {_text_key(key): _whole(inner) for key, inner in value.items()}
        case list() | tuple():
            return [_whole(inner) for inner in value]
    raise BadArguments(f"{value if isinstance(value, float) else type(value).__name__} is no JSON value")


def _of_sane_size(value: int) -> int:
    """The number itself: as long as any float is (309 digits), since writing out a longer one takes quadratic time."""
    if value.bit_length() > 1024:
        raise BadArguments("a number in the arguments is too long")
    return value


def _text_key(key: Any) -> str:
    if not isinstance(key, str):
        raise BadArguments(f"a {type(key).__name__} cannot name an argument")
    return key


def signature(name: str, arguments: Any) -> str:
    """Equal for two calls that mean the same; arguments without a canonical form never pass `check`, and all look alike."""
    try:
        return f"{canonical_name(name)} {canonical(arguments).decode()}"
    except BadArguments:
        return f"{canonical_name(name)} ?"


# Schemas from signatures


class Signature:
    """A coroutine's parameters, split into those that the model fills in and the roles that are handed in."""

    def __init__(self, function: Callable[..., Any], roles: Iterable[type]) -> None:
        known = tuple(roles)
        hints = typing.get_type_hints(function, include_extras=True)
        self.roles: dict[str, type] = {}
        fields: list[Any] = []
        for name, parameter in inspect.signature(function).parameters.items():
            kind = _type_of(parameter, hints)
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
        if len(components) > 1:
            raise TypeError(f"parameters are plain JSON types, not classes: {', '.join(sorted(self.types))}")
        properties = {name: {**_tidy(part), "description": describe(name)} for name, part in body["properties"].items()}
        return {
            "type": "object",
            "properties": {name: {k: v for k, v in part.items() if v != ""} for name, part in properties.items()},
            "required": body.get("required", []),
            "additionalProperties": False,
        }

    def check(self, arguments: Arguments) -> dict[str, Any]:
        """The arguments with types as declared, defaults filled in and nothing unknown; BadArguments otherwise.

        Numbers and booleans that came as text are read as what they say where the schema has no text; nothing is rounded,
        cut or guessed.
        """
        canonical(arguments)
        lenient = {name: _coerce(value, self.types.get(name)) for name, value in arguments.items()}
        try:
            checked = msgspec.convert(lenient, self.struct)
        except msgspec.ValidationError as error:
            raise BadArguments(self._explain(str(error))) from None
        return {name: getattr(checked, name) for name in self.types}

    def _explain(self, text: str) -> str:
        reason, _, path = text.partition(" - at `$.")
        where = f"{path.rstrip('`')}: " if path else ""
        choices = choices_of(self.types.get(path.rstrip("`"))) if reason.startswith("Invalid enum value") else ()
        may = f", it is one of {', '.join(map(repr, choices))}" if choices else ""
        return f"{where}{reason.replace('`', chr(39))}{may} (parameters: {', '.join(self.types) or 'none'})"


def _tidy(part: Mapping[str, Any]) -> dict[str, Any]:
    """Drop what costs tokens and says nothing: a null default."""
    return {key: value for key, value in part.items() if not (key == "default" and value is None)}


# RFC 8259, section 6: no sign but minus, no leading zeros, ASCII digits.
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,308})(?:\.[0-9]+)?(?:[eE][+-]?[0-9]{1,4})?")


def _coerce(value: Any, kind: Any) -> Any:
    if isinstance(value, list) and (items := _items(kind)) is not None:
        return [_coerce(item, items) for item in value]
    wanted = _members(kind)
    if isinstance(value, str) and wanted and str not in wanted:
        value = _read(value, wanted)
    # 3.0 for an integer is 3; 3.5 stays, and is refused
    if isinstance(value, float) and value.is_integer() and int in wanted and float not in wanted:
        return int(value)
    return value


def _read(text: str, wanted: frozenset[type]) -> Any:
    """The boolean or number that a text spells out; a text that does not stays what it is, and is refused."""
    bare = text.strip()
    if bool in wanted and bare.lower() in ("true", "false"):
        return bare.lower() == "true"
    if not wanted & {int, float} or not _NUMBER.fullmatch(bare):
        return text
    if int in wanted and bare.lstrip("-").isdecimal():
        return int(bare)
    number = float(bare)
    return number if math.isfinite(number) else text


def _type_of(parameter: inspect.Parameter, hints: Mapping[str, Any]) -> Any:
    """The type that a parameter is declared with; TypeError where a call by name could not fill it, or it has none."""
    if parameter.kind not in (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY):
        raise TypeError(f"parameter {parameter.name!r} cannot be given by name")
    if parameter.name not in hints:
        raise TypeError(f"parameter {parameter.name!r} has no type")
    return hints[parameter.name]


def _bare(kind: Any) -> Any:
    return typing.get_args(kind)[0] if typing.get_origin(kind) is Annotated else kind


def _alternatives(kind: Any) -> tuple[Any, ...]:
    """The types that a union is made of, or the one type itself."""
    bare = _bare(kind)
    return typing.get_args(bare) if typing.get_origin(bare) in (Union, types.UnionType) else (bare,)


def _items(kind: Any) -> Any:
    """What a list parameter holds, or None for what is no list."""
    lists = [part for part in map(_bare, _alternatives(kind)) if typing.get_origin(part) is list]
    return typing.get_args(lists[0])[0] if lists else None


@functools.cache
def _members(kind: Any) -> frozenset[type]:
    """The plain types that a parameter takes; a choice of literals counts as the types of the literals."""
    found: set[type] = set()
    for part in map(_bare, _alternatives(kind)):
        if typing.get_origin(part) is Literal:
            found |= {type(choice) for choice in typing.get_args(part)}
        elif isinstance(part, type):
            found.add(part)
    return frozenset(found)


def choices_of(kind: Any) -> tuple[Any, ...]:
    """The values that a `Literal` takes, alone or beside other types; nothing for what is no choice."""
    parts = map(_bare, _alternatives(kind))
    return tuple(choice for part in parts if typing.get_origin(part) is Literal for choice in typing.get_args(part))
