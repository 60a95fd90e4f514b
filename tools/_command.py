"""Reads a POSIX command line: plain commands joined by `|`, `&&`, `||` and `;`, or something that only a shell can run.

The grammar is that of POSIX.1-2017, Shell Command Language, sections 2.2 (quoting), 2.3 (tokens) and 2.10. Quotes,
escapes, comments, line continuations and operators are understood in full. Whatever would be expanded (parameters,
commands, arithmetic, `~`), here-documents, redirections but those to /dev/null and between the two outputs, background
commands, compound commands and built-ins that change the shell itself make the line opaque. What is plain is later run
word for word as it was read here, so no second reader can see other words in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

Sink = Literal["out", "err", "null"]
Join = Literal["", ";", "&&", "||"]


@dataclass(frozen=True, slots=True)
class Word:
    """One word: its text without quotes; `pattern` is the text as a glob if it holds an unquoted `*`, `?` or `[`."""

    text: str
    pattern: str = ""
    bare: str = ""


@dataclass(frozen=True, slots=True)
class Command:
    """A program with its arguments, the variables set for it alone, and where its two outputs go."""

    words: tuple[Word, ...]
    variables: tuple[tuple[str, str], ...] = ()
    out: Sink = "out"
    err: Sink = "err"


@dataclass(frozen=True, slots=True)
class Step:
    """A pipeline, and how it hangs together with what stands before it."""

    join: Join
    pipeline: tuple[Command, ...]


@dataclass(frozen=True, slots=True)
class Plain:
    """A line that needs no shell; no steps if nothing stands in it."""

    steps: tuple[Step, ...]

    @property
    def commands(self) -> Iterator[Command]:
        """All commands, in order."""
        return (command for step in self.steps for command in step.pipeline)


@dataclass(frozen=True, slots=True)
class Opaque:
    """A line that needs a shell, and what in it does."""

    why: str


def parse(line: str) -> Plain | Opaque:
    """Read a command line; what cannot be understood with certainty is opaque."""
    try:
        return Plain(tuple(_Parser(line).steps()))
    except _NeedsShell as reason:
        return Opaque(str(reason))


class _NeedsShell(Exception):
    """Something that is left to a shell."""


_OPERATORS = ("<<-", "<<", "<>", "<&", "<", ">>", ">&", ">|", ">", "&&", "&", ";;", ";", "||", "|", "(", ")", "\n")
_METACHARACTERS = frozenset(" \t\n;&|<>()")
_GLOB = frozenset("*?[")


def _set(names: str) -> frozenset[str]:
    return frozenset(names.split())


_RESERVED = _set("! { } case coproc do done elif else esac fi for function if in select then time until while [[ ]]")
_BUILTINS = _set(
    ". : alias bg break cd command continue declare eval exec exit export fc fg getopts hash jobs let local popd pushd "
    "read readonly return set shift shopt source times trap type typeset ulimit umask unalias unset wait"
)
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=")


class _Lexer:
    """Cuts a line into words and operators (section 2.3)."""

    def __init__(self, line: str) -> None:
        self.line = line
        self.at = 0

    def tokens(self) -> Iterator[Word | str]:
        if "\0" in self.line:
            raise _NeedsShell("a NUL character")
        while self._skip_blank():
            operator = next((op for op in _OPERATORS if self.line.startswith(op, self.at)), None)
            if operator is None:
                yield self._word()
            else:
                self.at += len(operator)
                yield operator

    def _skip_blank(self) -> bool:
        """Go to the next token, past blanks, continued lines and comments; False at the end."""
        while self.at < len(self.line):
            if self.line[self.at] in " \t":
                self.at += 1
            elif self.line.startswith("\\\n", self.at):
                self.at += 2
            elif self.line[self.at] == "#":
                end = self.line.find("\n", self.at)
                self.at = len(self.line) if end < 0 else end
            else:
                return True
        return False

    def _word(self) -> Word:
        word = _Building()
        while self.at < len(self.line) and self.line[self.at] not in _METACHARACTERS:
            character = self.line[self.at]
            self.at += 1
            match character:
                case "'":
                    word.quote(self._until_quote())
                case '"':
                    word.quote("".join(self._in_double_quotes()))
                case "\\":
                    self._escaped(word)
                case "$" | "`":
                    raise _NeedsShell(f"an expansion with {character}")
                case _:
                    word.add(character)
        return word.done()

    def _until_quote(self) -> str:
        end = self.line.find("'", self.at)
        if end < 0:
            raise _NeedsShell("a quote that does not end")
        text, self.at = self.line[self.at : end], end + 1
        return text

    def _escaped(self, word: _Building) -> None:
        if self.at == len(self.line):
            raise _NeedsShell("a backslash at the end")
        if self.line[self.at] != "\n":
            word.quote(self.line[self.at])
        self.at += 1

    def _in_double_quotes(self) -> Iterator[str]:
        """Section 2.2.3: within double quotes `\\` escapes only $ ` " \\ and newline; `$` before the end is itself."""
        while self.at < len(self.line):
            character, after = self.line[self.at], self.line[self.at + 1 : self.at + 2]
            self.at += 1
            if character == '"':
                return
            if character == "`" or (character == "$" and after not in ('"', " ")):
                raise _NeedsShell(f"an expansion with {character}")
            if character == "\\" and after and after in '$`"\\\n':
                self.at += 1
                character = after if after != "\n" else ""
            yield character
        raise _NeedsShell("a quote that does not end")


@dataclass(slots=True)
class _Building:
    """A word while it is read: `bare` is what stands before the first quote."""

    text: list[str] = field(default_factory=list)
    pattern: list[str] = field(default_factory=list)
    bare: list[str] = field(default_factory=list)
    quoted: bool = False
    glob: bool = False

    def add(self, character: str) -> None:
        if character == "~" and (not self.text or self.text[-1] in "=:") and not (self.quoted and not self.text):
            raise _NeedsShell("an expansion with ~")
        self.glob |= character in _GLOB
        self.text.append(character)
        self.pattern.append(character)
        if not self.quoted:
            self.bare.append(character)

    def quote(self, text: str) -> None:
        self.quoted = True
        self.text.extend(text)
        self.pattern.extend(f"[{character}]" if character in _GLOB else character for character in text)

    def done(self) -> Word:
        text, bare = "".join(self.text), "".join(self.bare)
        return Word(text, "".join(self.pattern) if self.glob else "", bare if self.quoted else text)


class _Parser:
    """Puts tokens together: commands into pipelines, pipelines into a list (section 2.9)."""

    def __init__(self, line: str) -> None:
        self._tokens = _Lexer(line)
        self._pipeline: list[Command] = []
        self._command = _Drafted()
        self._join: Join = ""
        self._wanted = ""

    def steps(self) -> Iterator[Step]:
        tokens = self._tokens.tokens()
        for token in tokens:
            match token:
                case Word():
                    self._take_word(token)
                case "<" | ">" | ">&":
                    self._redirect(token, next(tokens, None))
                case "|":
                    self._end_command("|")
                case "&&" | "||" | ";":
                    yield self._end_pipeline(token)
                case "\n":
                    if not self._command.empty:
                        yield self._end_pipeline(";")
                case _:
                    raise _NeedsShell(f"the operator {token}")
        if self._wanted:
            raise _NeedsShell(f"nothing after {self._wanted}")
        if not self._command.empty:
            yield self._end_pipeline(";")

    def _take_word(self, word: Word) -> None:
        if self._directs(word):
            self._command.number = word.text
        else:
            self._command.take(word)
        self._wanted = ""

    def _directs(self, word: Word) -> bool:
        """True for digits right before `<` or `>`: the number of a descriptor (section 2.10.1)."""
        digits = word.bare == word.text and word.text.isascii() and word.text.isdigit()
        return digits and self._tokens.line.startswith(("<", ">"), self._tokens.at)

    def _redirect(self, operator: str, target: Word | str | None) -> None:
        if not isinstance(target, Word) or self._directs(target):
            raise _NeedsShell(f"a redirection with {operator}")
        self._command.redirect(operator, target)
        self._wanted = ""

    def _end_command(self, operator: str) -> None:
        if self._command.empty:
            raise _NeedsShell(f"nothing before {operator}")
        self._pipeline.append(self._command.done())
        self._command = _Drafted()
        self._wanted = operator

    def _end_pipeline(self, operator: Join) -> Step:
        self._end_command(operator)
        step = Step(self._join, tuple(self._pipeline))
        self._pipeline = []
        self._join = operator
        self._wanted = "" if operator == ";" else operator
        return step


class _Drafted:
    """A simple command while it is read (section 2.9.1)."""

    def __init__(self) -> None:
        self.words: list[Word] = []
        self.variables: list[tuple[str, str]] = []
        self.sinks: dict[str, Sink] = {"1": "out", "2": "err"}
        self.number = ""
        self.empty = True

    def take(self, word: Word) -> None:
        self.empty = False
        assigned = _ASSIGNMENT.match(word.bare)
        if not self.words and assigned:
            self.variables.append((assigned[1], word.text[assigned.end() :]))
            return
        if not self.words and (word.pattern or word.text in _BUILTINS or word.bare in _RESERVED):
            raise _NeedsShell(f"the shell's own {word.text}")
        self.words.append(word)

    def redirect(self, operator: str, target: Word) -> None:
        number, self.number, self.empty = self.number or ("0" if operator == "<" else "1"), "", False
        match operator, number, target.text:
            case "<", "0", "/dev/null":
                pass
            case ">", "1" | "2", "/dev/null":
                self.sinks[number] = "null"
            case ">&", "1" | "2", "1" | "2":
                self.sinks[number] = self.sinks[target.text]
            case _:
                raise _NeedsShell(f"a redirection with {operator}")

    def done(self) -> Command:
        if not self.words:
            raise _NeedsShell("a line without a command")
        return Command(tuple(self.words), tuple(self.variables), self.sinks["1"], self.sinks["2"])
