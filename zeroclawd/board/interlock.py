"""Interlocks: a small checked language of conditions over device values, such as `tank.level > 10 and not valve.on`.

    rule       = conjunction { "or" conjunction }
    conjunction = negation { "and" negation }
    negation   = "not" negation | comparison
    comparison = operand [ ("<" | "<=" | ">" | ">=" | "==" | "!=") operand ]
    operand    = number | "true" | "false" | device "." value | "(" rule ")"

A rule holds only if every value it names is known: what is missing, in doubt or of the wrong type makes it undecided, and
an undecided interlock refuses.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping

from zeroclawd.frozen import dataclass
from zeroclawd.tool import Value

Lookup = Callable[[str, str], Value | None]

_COMPARE: Mapping[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}
_TOKEN = re.compile(
    r"\s*(?:(?P<number>-?\d+(?:\.\d+)?)(?![\w.])|(?P<name>[A-Za-z0-9][A-Za-z0-9_-]*\.[A-Za-z_][A-Za-z0-9_]*)"
    r"|(?P<word>[A-Za-z_][A-Za-z0-9_-]*)|(?P<sign><=|>=|==|!=|[<>()]))"
)
_MOST_DEEP = 32


class RuleError(ValueError):
    """The text is not a rule; says where and why."""


class Undecided(Exception):
    """A value that the rule needs is unknown or in doubt."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what


@dataclass(frozen=True, slots=True)
class Literal:
    """A number, true or false."""

    value: bool | float


@dataclass(frozen=True, slots=True)
class Name:
    """A device's value."""

    device: str
    value: str


@dataclass(frozen=True, slots=True)
class Not:
    """The opposite of a condition."""

    of: Node


@dataclass(frozen=True, slots=True)
class All:
    """Every condition holds."""

    of: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class AnyOf:
    """At least one condition holds."""

    of: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two operands and a sign between them."""

    left: Node
    sign: str
    right: Node


Node = Literal | Name | Not | All | AnyOf | Comparison


@dataclass(frozen=True, slots=True)
class Rule:
    """A parsed interlock with the text it was written as."""

    text: str
    node: Node

    @property
    def names(self) -> frozenset[Name]:
        """Every device value that the rule needs."""
        return frozenset(_names(self.node))

    def holds(self, lookup: Lookup) -> bool:
        """Whether the condition is met; Undecided if `lookup` does not know one of the values, even an idle one."""
        for name in sorted(self.names, key=lambda name: (name.device, name.value)):
            _known(name, lookup)
        return _truth(self.node, lookup)


def parse(text: str) -> Rule:
    """Read a rule; RuleError otherwise."""
    parser = _Parser(text)
    node = parser.rule(0)
    if parser.sign:
        raise parser.error("expected 'and', 'or' or the end")
    return Rule(text, node)


class _Parser:
    """Reads tokens from left to right; `sign` is the current one, empty at the end."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._end = 0
        self._kind = ""
        self.sign = ""
        self._next()

    def error(self, why: str) -> RuleError:
        found = repr(self.sign) if self.sign else "nothing"
        return RuleError(f"{self._text!r} is not an interlock: {why} at column {self._at + 1}, found {found}")

    def rule(self, depth: int) -> Node:
        if depth > _MOST_DEEP:
            raise self.error("nested too deeply")
        parts = [self._conjunction(depth)]
        while self._take("or"):
            parts.append(self._conjunction(depth))
        return parts[0] if len(parts) == 1 else AnyOf(tuple(parts))

    def _conjunction(self, depth: int) -> Node:
        parts = [self._negation(depth)]
        while self._take("and"):
            parts.append(self._negation(depth))
        return parts[0] if len(parts) == 1 else All(tuple(parts))

    def _negation(self, depth: int) -> Node:
        if depth > _MOST_DEEP:
            raise self.error("nested too deeply")
        if self._take("not"):
            return Not(self._negation(depth + 1))
        return self._comparison(depth)

    def _comparison(self, depth: int) -> Node:
        left = self._operand(depth)
        if self.sign not in _COMPARE:
            if _is_number(left):
                raise self.error("a number alone is no condition; expected a comparison")
            return left
        sign = self._advance()
        right = self._operand(depth)
        if self.sign in _COMPARE:
            raise self.error("compare two things at a time and join with 'and'; unexpected comparison")
        if not isinstance(left, Literal | Name) or not isinstance(right, Literal | Name):
            raise self.error("only numbers, true, false and device values are compared, not conditions")
        return Comparison(left, sign, right)

    def _operand(self, depth: int) -> Node:
        if self._take("("):
            inner = self.rule(depth + 1)
            if not self._take(")"):
                raise self.error("expected ')'")
            return inner
        match self._kind, self.sign:
            case "number", sign:
                self._next()
                return Literal(float(sign))
            case "name", sign:
                self._next()
                device, _, value = sign.partition(".")
                return Name(device, value)
            case "word", "true" | "false" as sign:
                self._next()
                return Literal(sign == "true")
            case "word", sign if sign not in ("and", "or", "not"):
                raise self.error("a device is named with one of its values, as in 'tank.level'; expected such a name")
        raise self.error("expected a device value, a number or '('")

    def _take(self, sign: str) -> bool:
        if self.sign != sign:
            return False
        self._next()
        return True

    def _advance(self) -> str:
        sign = self.sign
        self._next()
        return sign

    def _next(self) -> None:
        self._at = self._end + len(self._text[self._end :]) - len(self._text[self._end :].lstrip())
        match = _TOKEN.match(self._text, self._end)
        if match is None:
            self.sign = self._text[self._at : self._at + 1]
            self._kind = "unknown"
            if self.sign:
                raise self.error("this cannot be read")
            return
        self._kind = match.lastgroup or ""
        self.sign = match[self._kind]
        self._end = match.end()


def _is_number(node: Node) -> bool:
    return isinstance(node, Literal) and not isinstance(node.value, bool)


def _names(node: Node) -> Iterator[Name]:
    match node:
        case Name():
            yield node
        case Not(of=inner):
            yield from _names(inner)
        case All(of=parts) | AnyOf(of=parts):
            for part in parts:
                yield from _names(part)
        case Comparison(left=left, right=right):
            yield from _names(left)
            yield from _names(right)
        case Literal():
            pass


def _known(name: Name, lookup: Lookup) -> Value:
    value = lookup(name.device, name.value)
    if value is None:
        raise Undecided(f"{name.device}.{name.value} is not known")
    if isinstance(value, float) and not math.isfinite(value):
        raise Undecided(f"{name.device}.{name.value} is {value}")
    return value


def _truth(node: Node, lookup: Lookup) -> bool:
    match node:
        case Literal(value=bool() as given):
            return given
        case Name():
            value = _known(node, lookup)
            if isinstance(value, bool):
                return value
            raise Undecided(f"{node.device}.{node.value} is {value!r}, neither true nor false")
        case Not(of=inner):
            return not _truth(inner, lookup)
        case All(of=parts):
            truths = [_truth(part, lookup) for part in parts]
            return all(truths)
        case AnyOf(of=parts):
            truths = [_truth(part, lookup) for part in parts]
            return any(truths)
        case Comparison(left=left, sign=sign, right=right):
            return _compare(_operand(left, lookup), sign, _operand(right, lookup))
    raise Undecided(f"{node!r} is no condition")


def _operand(node: Node, lookup: Lookup) -> Value:
    match node:
        case Literal(value=value):
            return value
        case Name():
            return _known(node, lookup)
    raise Undecided(f"{node!r} cannot be compared")


def _compare(left: Value, sign: str, right: Value) -> bool:
    """Numbers with numbers by any sign, true and false only by `==` and `!=`."""
    both_bool = isinstance(left, bool) and isinstance(right, bool)
    both_numbers = not isinstance(left, bool | str) and not isinstance(right, bool | str)
    if not both_numbers and not (both_bool and sign in ("==", "!=")):
        raise Undecided(f"{left!r} {sign} {right!r} compares different kinds of things")
    return _COMPARE[sign](float(left), float(right))
