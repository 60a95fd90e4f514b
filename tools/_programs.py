"""What well-known programs may do, judged by program, sub-command and flags; what is not listed here is of high risk.

A use lists every flag that it admits, by exact name, so a flag that nobody thought of raises the risk instead of slipping
through (abbreviated long options included). This says how much a call may change. It is no sandbox: what a program may
reach is bounded by the unit's own sandbox.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from zeroclawd.tool import Assessment, Effect, Risk
from zeroclawd_tools._command import Command, Opaque, Plain, Word


@dataclass(frozen=True, slots=True)
class Use:
    """One way to use a program: its flags (`valued` ones take the next word or the rest of theirs) and its operands.

    `operands` says what they are: `paths` are looked at below, `pattern` is one text and then paths, `text` is just text.
    `fits` is what each operand must look like, `most` how many there may be; with `free` every word is an operand.
    """

    risk: Risk = Risk.LOW
    flags: str = ""
    valued: str = ""
    long: frozenset[str] = frozenset()
    long_valued: frozenset[str] = frozenset()
    operands: Literal["paths", "pattern", "text"] = "paths"
    fits: str = ""
    most: int = 10_000
    least: int = 0
    free: bool = False


@dataclass(frozen=True, slots=True)
class Judgement:
    """The risk of one command, why, and which of its words (by position) are paths."""

    risk: Risk
    why: str
    paths: frozenset[int] = frozenset()


def assess(line: Plain | Opaque) -> Assessment:
    """The assessment of a whole command line: that of its worst command; only low risk is known to change nothing."""
    if isinstance(line, Opaque):
        return Assessment(Risk.HIGH, Effect.UNKNOWN, why=f"needs a shell: {line.why}")
    worst = max((judge(command) for command in line.commands), key=lambda one: one.risk, default=_EMPTY)
    effects = {Risk.LOW: Effect.READ, Risk.MEDIUM: Effect.MUTATE, Risk.HIGH: Effect.UNKNOWN}
    return Assessment(worst.risk, effects[worst.risk], why=worst.why)


def judge(command: Command) -> Judgement:
    """What one command may do."""
    name, words = command.words[0].text, command.words
    if "/" in name:
        return Judgement(Risk.HIGH, f"{name}: a program given by its path")
    judged = _judge_find(words) if name == "find" else _judge_uses(words, *_uses(words))
    return _with_variables(judged, command.variables)


_EMPTY = Judgement(Risk.HIGH, "no command")


def _uses(words: Sequence[Word]) -> tuple[str, int, Sequence[Use]]:
    """The label, the position of the first argument, and the uses of a program or of its sub-command."""
    name = words[0].text
    if name not in SUBCOMMANDS:
        return name, 1, PROGRAMS.get(name, ())
    start = next((place for place, word in enumerate(words) if place and word.text != "--no-pager"), len(words))
    verb = words[start].text if start < len(words) else ""
    return f"{name} {verb}".rstrip(), start + 1, SUBCOMMANDS[name].get(verb, ())


def _judge_uses(words: Sequence[Word], label: str, start: int, uses: Sequence[Use]) -> Judgement:
    if not uses:
        return Judgement(Risk.HIGH, f"{label}: not known to be harmless")
    for use in uses:
        paths = _operands(words, start, use)
        if paths is not None:
            return _judge_paths(Judgement(use.risk, f"{label}: {use.risk.word}", frozenset(paths)), words)
    return Judgement(Risk.HIGH, f"{label}: with arguments that are not known to be harmless")


def _operands(words: Sequence[Word], start: int, use: Use) -> list[int] | None:
    """The positions of the operands that are paths; None if a flag or an operand is not of this use."""
    operands, patterned, place, flags_end = list[int](), False, start, False
    while place < len(words):
        word, here = words[place].text, place
        place += 1
        if use.free or flags_end or word == "-" or not word.startswith("-"):
            operands.append(here)
        elif word == "--":
            flags_end = True
        elif (taken := _flag(word, use)) is None:
            return None
        else:
            patterned |= use.operands == "pattern" and word.startswith(("-e", "--regexp"))
            place += taken
    return _fitting(words, operands, use, patterned) if place == len(words) else None


def _flag(word: str, use: Use) -> int | None:
    """How many further words a flag takes; None if this use does not have it."""
    if word.startswith("--"):
        name, equals, _value = word[2:].partition("=")
        if name in use.long_valued:
            return 0 if equals else 1
        return 0 if name in use.long else None
    for place, letter in enumerate(word[1:], 2):
        if letter in use.valued:
            return 0 if word[place:] else 1
        if letter not in use.flags:
            return None
    return 0


def _fitting(words: Sequence[Word], operands: list[int], use: Use, patterned: bool) -> list[int] | None:
    globs = any(words[place].pattern for place in operands)
    if not use.least <= len(operands) <= use.most or (globs and use.operands == "paths" and use.most < 10_000):
        return None
    if use.fits and not all(re.fullmatch(use.fits, words[place].text) for place in operands):
        return None
    match use.operands:
        case "text":
            return []
        case "pattern":
            return operands if patterned else operands[1:]
    return operands


# find(1) has a language of its own


_FIND_TESTS = re.compile(
    r"-(?:amin|atime|cmin|ctime|gid|group|i?name|i?path|i?regex|regextype|links|maxdepth|mindepth|mmin|mtime|perm|printf"
    r"|size|type|uid|used|user)"
)
_FIND_WORDS = re.compile(
    r"-(?:a|and|depth|empty|false|ls|mount|not|o|or|print0?|prune|quit|readable|true|writable|xdev)|[!(),]"
)


def _judge_find(words: Sequence[Word]) -> Judgement:
    begin = next((place for place, word in enumerate(words) if place and word.text[:1] in ("-", "(", "!")), len(words))
    place = begin
    while place < len(words):
        word = words[place].text
        if _FIND_TESTS.fullmatch(word):
            place += 2
        elif _FIND_WORDS.fullmatch(word):
            place += 1
        else:
            return Judgement(Risk.HIGH, f"find: with {word}")
    return _judge_paths(Judgement(Risk.LOW, "find: low", frozenset(range(1, begin))), words)


# Paths and variables


# Files of the kernel and the system that everybody may read and that hold no secret
_OPEN_TO_ALL = frozenset(
    {
        "/dev/null",
        "/etc/os-release",
        "/proc/cpuinfo",
        "/proc/loadavg",
        "/proc/meminfo",
        "/proc/uptime",
        "/proc/version",
        "/sys/class/thermal/thermal_zone0/temp",
        "/sys/firmware/devicetree/base/model",
    }
)


def open_to_all(path: str, risk: Risk) -> bool:
    """True for a file outside the workspace that a command of low risk may read."""
    return risk is Risk.LOW and path in _OPEN_TO_ALL


def _judge_paths(judged: Judgement, words: Sequence[Word]) -> Judgement:
    """A path that leaves the workspace by its own text, or a change to a repository's own files, is of high risk."""
    for place in judged.paths:
        path = words[place].text
        parts = path.split("/")
        if (path.startswith("/") and not open_to_all(path, judged.risk)) or ".." in parts:
            return Judgement(Risk.HIGH, f"{words[0].text}: {path} is outside the workspace", judged.paths)
        if ".git" in parts and judged.risk is not Risk.LOW:
            return Judgement(Risk.HIGH, f"{words[0].text}: changes {path}", judged.paths)
    return judged


# Variables by which the loader, the C library or a program listed here finds code, settings or programs to run
_POWERFUL = re.compile(
    r"(?:LD|DYLD|GIT|GCONV|GLIBC|MALLOC|LOC|NLS|SSH|GPG|XDG|SYSTEMD|DBUS|BASH|SHELL|PYTHON|PERL|RUBY|NODE|JAVA|LESS|GREP)"
    r"[A-Z0-9_]*|ENV|HOME|IFS|PATH|PAGER|MANPAGER|EDITOR|VISUAL|BROWSER|TMPDIR|TZDIR|PS4|CDPATH|HOSTALIASES|RES_OPTIONS"
    r"|[A-Za-z]+_(?:proxy|PROXY)"
)


def _with_variables(judged: Judgement, variables: Iterable[tuple[str, str]]) -> Judgement:
    for name, _value in variables:
        if _POWERFUL.fullmatch(name):
            return Judgement(Risk.HIGH, f"sets {name}", judged.paths)
        if judged.risk is Risk.LOW:
            judged = Judgement(Risk.MEDIUM, f"sets {name}", judged.paths)
    return judged


# The tables


def _set(names: str) -> frozenset[str]:
    return frozenset(names.split())


def _low(
    flags: str = "", valued: str = "", long: str = "", long_valued: str = "", most: int = 10_000
) -> tuple[Use, ...]:
    return (Use(Risk.LOW, flags, valued, _set(long), _set(long_valued), most=most),)


def _text(flags: str = "", valued: str = "", long: str = "", fits: str = "", most: int = 10_000) -> tuple[Use, ...]:
    return (Use(Risk.LOW, flags, valued, _set(long), operands="text", fits=fits, most=most),)


def _medium(
    flags: str = "", valued: str = "", long: str = "", long_valued: str = "", fits: str = "", most: int = 10_000
) -> tuple[Use, ...]:
    return (Use(Risk.MEDIUM, flags, valued, _set(long), _set(long_valued), fits=fits, most=most),)


_DIGITS = "0123456789"
_SUMS = _low("bt", long="tag text binary zero")
_WORDS = (Use(Risk.LOW, operands="text", free=True),)

PROGRAMS: Mapping[str, Sequence[Use]] = {
    "arch": _text(most=0),
    "basename": _text("az", "s"),
    "cat": _low("AbeEnstTuv", long="number show-all squeeze-blank"),
    "cmp": _low("bls", "n", most=2),
    "cp": _medium("aprRvnifu", long="recursive verbose archive no-clobber force"),
    "cut": _low("sz", "bcdf", "complement only-delimited", "bytes characters delimiter fields output-delimiter"),
    "date": _text("uR", "d", "utc universal rfc-email iso-8601", fits=r"\+.*"),
    "df": _text("ahHiklPT", "t", "all human-readable inodes local portability print-type total"),
    "diff": _low("abBiqsuwy", "U", "brief unified ignore-all-space color", most=2),
    "dirname": _text("z"),
    "du": _low("abchkmsSx0", "dB", "all apparent-size bytes human-readable summarize total", "max-depth exclude"),
    "echo": _WORDS,
    "false": _text(),
    "file": _low("bihL", long="brief mime mime-type"),
    "free": _text("bghkmtw", most=0, long="human si total wide"),
    "grep": (
        Use(
            Risk.LOW,
            "EFGHILPTabchilnoqrsvwxyz" + _DIGITS,
            "ABCem",
            _set("color colour count extended-regexp files-with-matches files-without-match fixed-strings ignore-case")
            | _set("invert-match line-number no-filename no-messages only-matching perl-regexp quiet recursive")
            | _set("with-filename word-regexp"),
            _set("after-context before-context context include exclude exclude-dir max-count regexp"),
            operands="pattern",
        ),
    ),
    "head": _low("qvz" + _DIGITS, "cn", "quiet verbose", "bytes lines"),
    "hostname": _text("dfiIs", most=0, long="fqdn long short all-ip-addresses"),
    "id": _text("gGnruz", most=1),
    "ln": _medium("snvT", long="symbolic verbose"),
    "ls": _low(
        "1aAbBcCdfFgGhiklmnNopqQrRsStuUvxXZ",
        "I",
        "all almost-all directory human-readable inode reverse recursive size full-time group-directories-first color",
        "sort time time-style",
    ),
    "lsblk": _text("abdfilmnprSt", "o", "all fs json list bytes", most=0),
    "lscpu": _text("aeJp", long="json all", most=0),
    "lsusb": _text("tv", most=0),
    "md5sum": _SUMS,
    "mkdir": _medium("pv", "m", "parents verbose", "mode"),
    "mv": _medium("finuvT", long="force verbose no-clobber"),
    "nl": _low("p", "bdfhilnsvw"),
    "nproc": _text(long="all", most=0),
    "printf": _WORDS,
    "ps": _text("AaefFlxw", "p", fits="a?u?x?w*|aux?w*|axu?w*|[0-9,]+", long="forest no-headers"),
    "pwd": _text("LP", most=0),
    "readlink": _low("efmnz", most=1),
    "realpath": _low("emqsz"),
    "rmdir": _medium("pv", long="parents verbose"),
    "seq": _text("w", "fs", fits=r"-?[0-9.]+"),
    "sha1sum": _SUMS,
    "sha256sum": _SUMS,
    "sha512sum": _SUMS,
    "sort": _low("bcCdfghiMnrRsuVz", "kt", "numeric-sort human-numeric-sort reverse unique version-sort", "key"),
    "stat": _low("fLt", "c", "file-system terse", "format printf"),
    "tac": _low("br", "s"),
    "tail": _low("qvz" + _DIGITS, "cn", "quiet verbose", "bytes lines"),
    "touch": _medium("acm", long="no-create"),
    "tr": _text("cCdst", long="complement delete squeeze-repeats"),
    "true": _text(),
    "uname": _text("aimnoprsv", most=0, long="all kernel-name kernel-release machine nodename"),
    "uniq": _low("cdDiuz", "fsw", "count repeated unique ignore-case", most=1),
    "uptime": _text("ps", most=0, long="pretty since"),
    "wc": _low("clmLw", long="bytes chars lines words max-line-length"),
    "whoami": _text(most=0),
}

_LOG = Use(
    Risk.LOW,
    "bEipqswz" + _DIGITS,
    "GnSU",
    _set("all all-match branches cached color date-order decorate find-renames first-parent follow format graph merges")
    | _set("minimal name-only name-status no-color no-decorate no-ext-diff no-merges no-patch no-renames no-textconv")
    | _set("numstat oneline parents patch patience pretty raw reverse shortstat source staged stat summary tags")
    | _set("topo-order word-diff"),
    _set("after author before committer date diff-filter grep max-count since skip unified until"),
)
_REFERENCE = r"[A-Za-z0-9_][A-Za-z0-9_./~^-]*"

_GIT: Mapping[str, Sequence[Use]] = {
    "add": _medium("AuvnN", long="all update verbose dry-run intent-to-add"),
    "blame": _low("elswcfn", "L", "show-email"),
    "branch": (
        *_low("arv", long="all remotes verbose list show-current no-color", most=0),
        *_medium("dmcvtu", long="delete move copy verbose track", fits=_REFERENCE, most=2),
    ),
    "checkout": _medium("qtf", "bB", "quiet track detach", fits=_REFERENCE),
    "cherry-pick": _medium("nx", long="abort continue no-commit skip", fits=_REFERENCE),
    "commit": _medium(
        "aqsv", "m", "all quiet signoff verbose amend allow-empty allow-empty-message no-edit", "message author date"
    ),
    "describe": _low(long="abbrev all always dirty long tags", long_valued="match", most=1),
    "diff": (_LOG,),
    "log": (_LOG,),
    "ls-files": _low("cdmostz", long="cached deleted modified others stage exclude-standard"),
    "merge": _medium("qn", "m", "abort continue no-ff ff-only no-commit squash quiet no-edit", fits=_REFERENCE),
    "mv": _medium("fknv"),
    "push": _medium("quv", long="quiet verbose set-upstream tags", fits=_REFERENCE, most=2),
    "rebase": _medium(long="abort continue skip quiet", fits=_REFERENCE, most=2),
    "remote": _text("v", most=0, long="verbose"),
    "reset": _medium("q", long="quiet soft mixed", fits=_REFERENCE),
    "restore": _medium("qSW", long="staged worktree quiet"),
    "rev-parse": _text(long="abbrev-ref short verify show-toplevel is-inside-work-tree show-prefix"),
    "revert": _medium("n", long="abort continue no-commit no-edit skip", fits=_REFERENCE),
    "shortlog": _low("ens", long="all summary numbered email", most=1),
    "show": (_LOG,),
    "stash": (
        Use(Risk.LOW, operands="text", fits="list", least=1, most=1),
        Use(Risk.MEDIUM, "u", "m", operands="text", fits="push|pop|apply|save", most=1),
    ),
    "status": _low("bsuvz", long="short branch porcelain verbose long ignored show-stash untracked-files"),
    "switch": _medium("qtd", "c", "quiet track detach", "create", fits=_REFERENCE, most=2),
    "tag": (
        *_low("ln" + _DIGITS, long="list", most=0),
        *_medium("a", "m", "annotate", fits=_REFERENCE, most=2),
    ),
    "--version": _text(most=0),
}

_UNIT = r"[A-Za-z0-9@_.:\\*-]+"
_SYSTEMCTL = _text("al", "nt", "all full no-pager no-legend plain", fits=_UNIT)

SUBCOMMANDS: Mapping[str, Mapping[str, Sequence[Use]]] = {
    "git": _GIT,
    "systemctl": dict.fromkeys(
        ("is-active", "is-enabled", "is-failed", "list-timers", "list-units", "status"), _SYSTEMCTL
    ),
    "vcgencmd": {
        verb: _text(fits="[a-z0-9_]+", most=1)
        for verb in ("get_throttled", "measure_clock", "measure_temp", "measure_volts", "version", "get_mem")
    },
}
