"""Scrubs secrets and bounds lengths where events, logs, questions and ledger rows leave; never what a tool returns.

Known secret values are hidden wherever they stand; otherwise by shape (keys of well-known services, private keys,
credentials in URLs) and by the name of the key that holds them.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from typing import Any

from zeroclawd.frozen import dataclass

HIDDEN = "[hidden]"

# A key's name says "secret" only as a whole word: `api_key` and `userPassword` do, `keyboard` and `token_count` do not.
_SECRET_WORDS = frozenset(
    {"password", "passwords", "passwd", "passphrase", "passcode", "secret", "secrets", "token", "cookie"}
    | {"credential", "credentials", "authorization", "apikey", "authkey", "accesskey", "privatekey", "secretkey"}
)
_SECRET_PAIRS = frozenset({("api", "key"), ("private", "key"), ("access", "key"), ("secret", "key"), ("auth", "key")})
_HARMLESS_TAILS = frozenset(
    {"count", "counts", "limit", "length", "size", "usage", "budget", "type", "id", "file", "path", "env"}
)
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")

# Every repetition is possessive, bounded, or ends before the next place where a match may begin: linear in any text.
_SHAPES = re.compile(
    r"""(?x)
    -----BEGIN\ [A-Z0-9\ ]{0,40}PRIVATE\ KEY[A-Z\ ]{0,10}-----
      (?:[A-Za-z0-9+/=\s\\:,.]++|-(?!----))*+ (?:-----END\ [A-Z0-9\ ]{1,60}-----)?
  | (?:(?<![A-Za-z0-9_-])|(?<=\\[nrt])) (?:
        (?:sk|pk|rk)[-_](?:live|test|ant|proj|or|svcacct)[-_][A-Za-z0-9_-]{16,}+
      | sk-[A-Za-z0-9]{20,}+ | gsk_[A-Za-z0-9]{20,}+ | hf_[A-Za-z0-9]{30,}+ | (?:xai|pplx)-[A-Za-z0-9]{40,}+
      | AIza[A-Za-z0-9_-]{35}
      | gh[pousr]_[A-Za-z0-9]{36,}+ | github_pat_[A-Za-z0-9_]{22,}+ | glpat-[A-Za-z0-9_-]{20,}+
      | xox[a-z]{1,2}-[A-Za-z0-9-]{10,}+
      | A[KS]IA[A-Z0-9]{16}(?![A-Za-z0-9])
      | eyJ[A-Za-z0-9_-]{8,}+\.eyJ[A-Za-z0-9_-]{8,}+\.[A-Za-z0-9_-]{8,}+
    )
  | /bot\d{6,12}:[A-Za-z0-9_-]{30,}+
    """
)
_SHAPE_MARKS = (
    *("-----BEGIN ", "sk-", "sk_", "pk-", "pk_", "rk-", "rk_", "hf_", "xai-", "pplx-", "AIza", "ghp_", "gho_", "ghu_"),
    *("ghs_", "ghr_", "github_pat_", "glpat-", "xox", "AKIA", "ASIA", "eyJ", "/bot"),
)
_URL_USER = re.compile(r"://[^\s/?#\"'<>]+@")
_URL_KEY = re.compile(
    r"(?i)([?&](?:[a-z0-9]{1,20}[_-]){0,4}(?:(?:api)?key|token|sig|signature|password|passwd|pwd|secret|credential)=)"
    r"[^\s&#\"'<>]++"
)
# A receipt is no secret, whatever it is called.
_ASSIGNED = re.compile(
    r"(?ix)( (?:pass(?:word|wd|phrase|code)|secret|token|authorization|(?:api|secret|private|access|auth)[_-]?key)"
    r" (?:\\{0,3}[\"'])? \s{0,4}[:=]\s{0,4} )"
    r" (?: (\\{0,3}[\"']) (?!zc-receipt-) [^\"'\\\n]{1,128}+ (?=\\{0,3}[\"'])"
    r"   | ([\"']? (?:(?:bearer|basic|digest|token)\s{1,4})? ) (?!zc-receipt-) [^\s\"',;&}]{4,}+ )"
)
_MARKS = ("pass", "secret", "token", "authorization", "key")
_BEARER = re.compile(r"(?i)\b(bearer\s{1,4})(?!zc-receipt-)[A-Za-z0-9._~+/=-]{16,}+")
_RECEIPT = re.compile(r"zc-receipt-[0-9]{1,20}-[A-Za-z0-9_-]{43}")
_SURROGATE = re.compile(r"[\ud800-\udfff]")
# Control characters of both blocks, line and paragraph separators, and marks that turn the direction of the text.
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")

_DEEPEST = 64


@dataclass(frozen=True, slots=True)
class Redactor:
    """Hides known values and secret-looking shapes; `values` are the secrets that this daemon itself has read."""

    values: frozenset[str] = field(default_factory=frozenset, repr=False)

    @classmethod
    def of(cls, values: Iterable[str]) -> Redactor:
        """A redactor for these secrets; those under six characters are left out, they would hide ordinary words."""
        long = [value for value in values if len(value) >= 6]
        return cls(frozenset(spelling for value in long for spelling in _spellings(value)))

    def text(self, text: str, limit: int = 0) -> str:
        """Scrub a text, and with `limit` keep at most so many characters of it; what is left can be written as UTF-8."""
        if any(value in text for value in self.values):
            text = _without(text, self.values)
        if any(mark in text for mark in _SHAPE_MARKS):
            text = _SHAPES.sub(HIDDEN, text)
        if "://" in text:
            text = _URL_USER.sub(f"://{HIDDEN}@", text)
        text = _without_assigned(text)
        text = _SURROGATE.sub("\ufffd", text)
        return bounded(text, limit) if limit else text

    def data(self, value: Any, limit: int = 0, *, key: str = "") -> Any:
        """Scrub every text in a structure, and whole values whose key names a secret; the shape stays."""
        return self._data(value, limit, key, 0)

    def known(self, value: Any) -> Any:
        """Hide the known values in a structure and nothing else: for what somebody has to judge before it happens.

        What looks like a secret stays, or whoever writes a call could hide what it does behind `password=`.
        """
        match value:
            case str():
                return _SURROGATE.sub("\ufffd", _without(value, self.values))
            case Mapping():
                return {str(self.known(str(name))): self.known(inner) for name, inner in value.items()}
            case list() | tuple():
                return [self.known(inner) for inner in value]
        return value

    def _data(self, value: Any, limit: int, key: str, depth: int) -> Any:
        match value:
            case None | bool() | "":
                return value
            case _ if key and names_secret(key) and not (isinstance(value, str) and _RECEIPT.fullmatch(value)):
                return HIDDEN
            case str():
                return self.text(value, limit)
            case Mapping() | list() | tuple() if depth > _DEEPEST:
                return "[nested too deeply to show]"
            case Mapping():
                return self._mapping(value, limit, depth)
            case list() | tuple():
                return [self._data(inner, limit, "", depth + 1) for inner in value]
        return value

    def _mapping(self, value: Mapping[Any, Any], limit: int, depth: int) -> dict[str, Any]:
        scrubbed: dict[str, Any] = {}
        for name, inner in value.items():
            shown = self.text(str(name), limit)
            while shown in scrubbed:  # two names that are scrubbed to the same are still two entries
                shown += "'"
            scrubbed[shown] = self._data(inner, limit, str(name), depth + 1)
        return scrubbed


def _spellings(value: str) -> set[str]:
    """How a value looks in plain text, inside JSON and inside a URL."""
    from urllib.parse import quote

    return {
        value,
        json.dumps(value)[1:-1],
        json.dumps(value, ensure_ascii=False)[1:-1],
        quote(value, safe="", errors="replace"),
    }


def _without(text: str, values: Iterable[str]) -> str:
    """Hide every occurrence of every value; where some overlap, all that they cover together."""
    parts: list[str] = []
    end = 0
    for start, stop in sorted(span for value in values for span in _spans(text, value)):
        if start > end or not parts:
            parts += [text[end:start], HIDDEN]
        end = max(end, stop)
    return "".join((*parts, text[end:]))


def _spans(text: str, value: str) -> Iterator[tuple[int, int]]:
    at = text.find(value)
    while at >= 0:
        yield at, at + len(value)
        at = text.find(value, at + 1)


def _without_assigned(text: str) -> str:
    """Hide what is given as a key's, token's or password's value: in a URL, a header, JSON or an assignment."""
    folded = text.lower()
    if "?" in text or "&" in text:
        text = _URL_KEY.sub(rf"\1{HIDDEN}", text)
    if "bearer" in folded:
        text = _BEARER.sub(rf"\1{HIDDEN}", text)
    if any(mark in folded for mark in _MARKS):
        text = _ASSIGNED.sub(rf"\1\2\3{HIDDEN}", text)
    return text


def names_secret(key: str) -> bool:
    """True for `api_key`, `clientSecret`, `X-Auth-Token`; false for `keyboard`, `token_count`, `key_file`."""
    words = [word.lower() for word in _WORD.findall(key)]
    if not words or words[-1] in _HARMLESS_TAILS:
        return False
    return not _SECRET_WORDS.isdisjoint(words) or not _SECRET_PAIRS.isdisjoint(itertools.pairwise(words))


def bounded(text: str, limit: int) -> str:
    """At most `limit` characters, the head and the tail kept, with a note of how many are missing between them.

    Two thirds of the room go to the head. A text that fits is returned as it is; what is cut has exactly `limit`.
    """
    if len(text) <= limit:
        return text
    missing, note = len(text) - limit, ""
    while len(text) - limit + len(note) != missing or not note:
        missing = len(text) - limit + len(note)
        note = f"\n[... {missing} characters left out ...]\n"
    room = limit - len(note)
    if room < 2:
        return text[: max(0, limit)]
    head = room * 2 // 3
    return text[:head] + note + text[head - room :]


def plain(text: str, limit: int = 200) -> str:
    """One safe line for a log or an error: no control characters, no lone surrogates, at most `limit` characters."""
    line = _CONTROL.sub("?", text.replace("\r", " ").replace("\n", " ").replace("\t", " "))
    return line if len(line) <= limit else f"{line[: max(0, limit - 1)]}…"[: max(0, limit)]


def clean(text: str, limit: int = 65_536) -> str:
    """An operator's text without control characters but newline and tab, at most `limit` bytes on a character boundary."""
    kept = _CONTROL.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))
    return kept.encode("utf-8")[:limit].decode("utf-8", "ignore")
