"""The parser of command lines: what is plain is understood word by word, and everything else is left to a shell."""

from __future__ import annotations

import shlex
import shutil
import subprocess

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from zeroclawd_tools._command import Opaque, Plain, parse


def argvs(line: str) -> list[list[str]]:
    parsed = parse(line)
    assert isinstance(parsed, Plain), parsed
    return [[word.text for word in command.words] for command in parsed.commands]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("ls -la", [["ls", "-la"]]),
        ("echo 'a;b' \"c|d\" e\\;f", [["echo", "a;b", "c|d", "e;f"]]),
        ("echo '' \"\" x''y", [["echo", "", "", "xy"]]),
        ('echo "a\\"b\\\\c\\d"', [["echo", 'a"b\\c\\d']]),
        ("echo '$HOME `id`'", [["echo", "$HOME `id`"]]),
        ('grep "x$" f', [["grep", "x$", "f"]]),
        ("echo \\$HOME", [["echo", "$HOME"]]),
        ("ec\\\nho a\\\n b", [["echo", "a", "b"]]),
        ("ls # it's a comment; rm x", [["ls"]]),
        ("ls # it's\nrm x", [["ls"], ["rm", "x"]]),
        ("echo a#b \\#c '#d'", [["echo", "a#b", "#c", "#d"]]),
        ("a && b || c ; d\ne", [["a"], ["b"], ["c"], ["d"], ["e"]]),
        ("a &&\n\n b |\n c", [["a"], ["b"], ["c"]]),
        ("a;\nb\n\n", [["a"], ["b"]]),
        ("echo 2 >/dev/null", [["echo", "2"]]),
        ("echo {a,b} a=~b x~y", None),
        ("echo {a,b} x~y HEAD~2", [["echo", "{a,b}", "x~y", "HEAD~2"]]),
        ("echo '~' \"~/x\"", [["echo", "~", "~/x"]]),
        ("", []),
        ("  # nothing", []),
        ("echo 温度 °C", [["echo", "温度", "°C"]]),
        ("ls\r", [["ls\r"]]),
    ],
)
def test_words_are_those_that_a_shell_would_see(line: str, expected: list[list[str]] | None) -> None:
    if expected is None:
        assert isinstance(parse(line), Opaque)
    else:
        assert argvs(line) == expected


@pytest.mark.parametrize(
    "line",
    """
    echo $HOME
    echo "$HOME"
    echo ${x}
    echo $(id)
    echo `id`
    echo "`id`"
    echo $((1+1))
    echo $'x'
    echo ~
    cat ~/x
    A=~/x ls
    ls > out
    ls >> out
    ls >| out
    ls > /dev/null/x
    ls > '/dev/nul'l*
    ls <> f
    cat < in.txt
    ls >&3
    ls 3>/dev/null
    ls >&-
    ls &> f
    ls 2>&1>&2
    ls |& cat
    ls &
    ls & id
    cat <(id)
    (ls)
    { ls; }
    f() { ls; }
    ! ls
    if true; then ls; fi
    for x in a b; do ls; done
    cd x
    export A=b
    eval ls
    exec ls
    . x
    source x
    A=b
    *
    l*s
    ls ;; id
    ; ls
    ls ; ; id
    ls &&
    ls |
    | ls
    && ls
    ls 'x
    ls "x
    ls x\\
    cat <<EOF
    cat <<< x
    cat <<-EOF
    >/dev/null
    """.strip().splitlines(),
)
def test_what_needs_a_shell_is_opaque(line: str) -> None:
    assert isinstance(parse(line.strip()), Opaque)


def test_a_nul_character_is_opaque() -> None:
    assert isinstance(parse("ls \0 x"), Opaque)


def test_redirections_between_outputs_apply_from_left_to_right() -> None:
    def sinks(line: str) -> tuple[str, str]:
        parsed = parse(line)
        assert isinstance(parsed, Plain)
        (command,) = parsed.commands
        return command.out, command.err

    assert sinks("ls") == ("out", "err")
    assert sinks("ls 2>&1") == ("out", "out")
    assert sinks("ls >/dev/null 2>&1") == ("null", "null")
    assert sinks("ls 2>&1 >/dev/null") == ("null", "out")
    assert sinks("ls 1>&2 2> '/dev/null' </dev/null") == ("err", "null")


def test_steps_keep_how_they_hang_together() -> None:
    parsed = parse("a | b && c || d; e\nf")
    assert isinstance(parsed, Plain)
    assert [(step.join, len(step.pipeline)) for step in parsed.steps] == [
        ("", 2),
        ("&&", 1),
        ("||", 1),
        (";", 1),
        (";", 1),
    ]


def test_an_unquoted_glob_keeps_quoted_characters_literal() -> None:
    parsed = parse("ls a* '*' b\\*c? d")
    assert isinstance(parsed, Plain)
    (command,) = parsed.commands
    assert [word.pattern for word in command.words] == ["", "a*", "", "b[*]c?", ""]


pieces = st.sampled_from(
    [*" \t\n'\"\\#;&|<>()$`*?~{}!=a2b", "&&", "||", "a b", "/dev/null", "2>&1", "ab ", " # ", "x=y "]
)


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])
@given(st.lists(pieces, max_size=14).map("".join))
def test_a_plain_line_gives_a_shell_the_same_words(line: str) -> None:
    """A shell whose every command is a function that prints its arguments sees the words that we would run."""
    parsed = parse(f"prog {line}")
    assume(isinstance(parsed, Plain) and len(parsed.steps) == 1)
    assert isinstance(parsed, Plain)
    commands = list(parsed.commands)
    assume(len(commands) == 1 and not any(word.pattern for word in commands[0].words) and commands[0].out == "out")
    shell = shutil.which("dash") or "/bin/sh"
    script = "prog() { printf '%s\\0' \"$@\"; }\n" + f"prog {line}"
    seen = subprocess.run([shell, "-f", "-c", script], capture_output=True, check=False).stdout
    words = [word.text for word in commands[0].words[1:]]
    assert seen == (("\0".join(words) + "\0") if words else "\0").encode()


@settings(max_examples=200, deadline=None)
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8), max_size=4))
def test_quoted_words_come_back_as_they_were(words: list[str]) -> None:
    assert argvs(shlex.join(["prog", *words])) == [["prog", *words]]
