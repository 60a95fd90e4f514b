"""Scrubs secrets and bounds lengths where events, logs, questions and ledger rows leave; never what a tool returns.

Known secret values are hidden wherever they stand; otherwise by shape (keys of well-known services, private keys,
credentials in URLs) and by the name of the key that holds them.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Any

from zeroclawd.frozen import dataclass

HIDDEN = "[hidden]"

# A key's name says "secret" only as a whole word: `api_key` and `userPassword` do, `keyboard` and `token_count` do not.
_SECRET_WORDS = frozenset(
    {"password", "passwd", "passphrase", "secret", "token", "credential", "credentials", "authorization"}
)
_SECRET_PAIRS = frozenset({("api", "key"), ("private", "key"), ("access", "key"), ("secret", "key"), ("auth", "key")})
_HARMLESS_TAILS = frozenset(
    {"count", "counts", "limit", "length", "size", "usage", "budget", "type", "id", "file", "env"}
)
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")

_SHAPES = re.compile(
    r"""(?x)
    -----BEGIN\ [A-Z ]*PRIVATE\ KEY-----.{0,8192}?(?:-----END\ [A-Z ]*PRIVATE\ KEY-----|\Z)
  | \b(?:sk|pk|rk)[-_](?:live|test|ant|proj|or)[-_][A-Za-z0-9_-]{16,256}
  | \bsk-[A-Za-z0-9]{20,256}
  | \bgsk_[A-Za-z0-9]{20,256} | \bAIza[A-Za-z0-9_-]{35}
  | \bgh[pousr]_[A-Za-z0-9]{36,255} | \bgithub_pat_[A-Za-z0-9_]{22,255}
  | \bxox[a-z]{1,2}-[A-Za-z0-9-]{10,256}
  | \bAKIA[A-Z0-9]{16}\b
  | \beyJ[A-Za-z0-9_-]{8,2048}\.eyJ[A-Za-z0-9_-]{8,4096}\.[A-Za-z0-9_-]{8,1024}
  | /bot\d{6,12}:[A-Za-z0-9_-]{30,64}
    """,
    re.DOTALL,
)
_URL_USER = re.compile(r"\b([a-z][a-z0-9+.-]{1,20}://)[^\s/@\"'<>]{1,256}@", re.IGNORECASE)
_URL_KEY = re.compile(
    r"([?&](?:[a-z_-]{0,20}key|token|access_token|sig|signature|password|secret)=)[^\s&#\"'<>]{1,2048}", re.IGNORECASE
)
_ASSIGNED = re.compile(
    r"(?i)\b((?:[a-z0-9]{1,20}[_-]){0,3}(?:password|passwd|secret|token|api[_-]?key|authorization)"
    r"[\"']?\s{0,4}[:=]\s{0,4}(?:bearer\s{1,4}|basic\s{1,4})?[\"']?)([^\s\"',;&}]{6,1024})"
)
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\u2028\u2029\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Redactor:
    """Hides known values and secret-looking shapes; `values` are the secrets that this daemon itself has read."""

    values: frozenset[str] = field(default_factory=frozenset)

    @classmethod
    def of(cls, values: Iterable[str]) -> Redactor:
        """A redactor for these secrets; those under six characters are left out, they would hide ordinary words."""
        return cls(frozenset(value for value in values if len(value) >= 6))

    def text(self, text: str, limit: int = 0) -> str:
        """Scrub a text, and with `limit` keep at most so many characters of it."""
        for value in sorted(self.values, key=len, reverse=True):
            text = text.replace(value, HIDDEN)
        text = _SHAPES.sub(HIDDEN, text)
        text = _URL_USER.sub(rf"\1{HIDDEN}@", text)
        text = _URL_KEY.sub(rf"\1{HIDDEN}", text)
        text = _ASSIGNED.sub(rf"\1{HIDDEN}", text)
        return bounded(text, limit) if limit else text

    def data(self, value: Any, limit: int = 0, *, key: str = "") -> Any:
        """Scrub every text in a structure, and whole values whose key names a secret; the shape stays."""
        match value:
            case _ if key and names_secret(key) and value not in (None, "", True, False):
                return HIDDEN
            case str():
                return self.text(value, limit)
            case Mapping():
                return {self.text(str(name)): self.data(inner, limit, key=str(name)) for name, inner in value.items()}
            case list() | tuple():
                return [self.data(inner, limit) for inner in value]
        return value


def names_secret(key: str) -> bool:
    """True for `api_key`, `clientSecret`, `X-Auth-Token`; false for `keyboard`, `token_count`, `key_file`."""
    words = [word.lower() for word in _WORD.findall(key)]
    if not words or words[-1] in _HARMLESS_TAILS:
        return False
    joined = "".join(words)
    pairs = set(itertools.pairwise(words))
    return bool(_SECRET_WORDS & set(words)) or bool(pairs & _SECRET_PAIRS) or joined in ("apikey", "privatekey")


def bounded(text: str, limit: int) -> str:
    """At most `limit` characters, the head and the tail kept, with a note of how many are missing between them.

    Two thirds of the room go to the head. A text that fits is returned as it is.
    """
    if len(text) <= limit:
        return text
    note = f"\n[... {len(text) - limit} characters left out ...]\n"
    room = limit - len(note)
    if room < 2:
        return text[:limit]
    head = room * 2 // 3
    return text[:head] + note + text[head - room :]


def plain(text: str, limit: int = 200) -> str:
    """One safe line for a log or an error: no control characters, no lone surrogates, at most `limit` characters."""
    line = _CONTROL.sub("?", text.replace("\r", " ").replace("\n", " ").replace("\t", " "))
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


def clean(text: str, limit: int = 65_536) -> str:
    """An operator's text without control characters but newline and tab, at most `limit` bytes on a character boundary."""
    kept = _CONTROL.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))
    return kept.encode("utf-8")[:limit].decode("utf-8", "ignore")
