"""Frozen dataclasses whose methods are shared instead of compiled for each class.

The standard library compiles six functions for every frozen dataclass, which was a third of the CPU that this daemon
needed to start. Here all of them share six that read the class's fields; type checkers see `dataclasses.dataclass` itself.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(*, frozen: bool = False, slots: bool = False, **options: Any) -> Any:
        """Stands in for `dataclasses.dataclass`; without `frozen` it is that."""
        if not frozen or options:
            return dataclasses.dataclass(frozen=frozen, slots=slots, **options)
        return lambda cls: _frozen(cls, slots)


def _frozen(cls: type, slots: bool) -> Any:
    own = set(cls.__dict__)
    made: Any = dataclasses.dataclass(init=False, repr=False, eq=False, slots=slots)(cls)
    fields = list(dataclasses.fields(made))
    made.__frozen__ = tuple(field.name for field in fields)
    made.__init__ = _initialiser(made.__name__, fields, hasattr(made, "__post_init__"))
    for name, method in _SHARED.items():
        if name not in own:
            setattr(made, name, method)
    return made


def _initialiser(name: str, fields: list[dataclasses.Field[Any]], post_init: bool) -> Any:
    names = tuple(field.name for field in fields)
    known = frozenset(names)
    values = {field.name: field.default for field in fields if field.default is not dataclasses.MISSING}
    makers = {f.name: f.default_factory for f in fields if f.default_factory is not dataclasses.MISSING}
    put = object.__setattr__

    def __init__(self: Any, *args: Any, **given: Any) -> None:
        if len(args) > len(names):
            raise TypeError(f"{name} takes {len(names)} arguments, not {len(args)}")
        for key, value in zip(names, args, strict=False):
            if key in given:
                raise TypeError(f"{name} got {key!r} twice")
            put(self, key, value)
        for key in names[len(args) :]:
            if key in given:
                put(self, key, given[key])
            elif key in values:
                put(self, key, values[key])
            elif key in makers:
                put(self, key, makers[key]())
            else:
                raise TypeError(f"{name} needs {key!r}")
        if given and not known.issuperset(given):
            raise TypeError(f"{name} has no {', '.join(sorted(set(given) - known))}")
        if post_init:
            self.__post_init__()

    return __init__


def _values(self: Any) -> tuple[Any, ...]:
    return tuple(getattr(self, name) for name in self.__frozen__)


def _repr(self: Any) -> str:
    shown = (
        f"{name}={getattr(self, name)!r}" for name in self.__frozen__ if type(self).__dataclass_fields__[name].repr
    )
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _eq(self: Any, other: Any) -> Any:
    return _values(self) == _values(other) if other.__class__ is self.__class__ else NotImplemented


def _hash(self: Any) -> int:
    return hash(_values(self))


def _refuse(self: Any, name: str, *_: Any) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot change {name!r} of a {type(self).__qualname__}")


def _reduce(self: Any) -> tuple[Any, ...]:
    return type(self), _values(self)


_SHARED = {
    "__repr__": _repr,
    "__eq__": _eq,
    "__hash__": _hash,
    "__setattr__": _refuse,
    "__delattr__": _refuse,
    "__reduce__": _reduce,
}
