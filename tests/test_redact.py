"""Redaction: secrets never leave, everything else does, lengths are kept and no text takes long."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zeroclawd.receipts import ReceiptScope
from zeroclawd.redact import HIDDEN, Redactor, bounded, clean, names_secret, plain

R = Redactor()
any_text = st.text(st.characters() | st.sampled_from("\ud800\udfff\x00\x1b\u2028\u202e温é\n"), max_size=60)


# What stays


def test_only_a_key_that_names_a_secret_is_hidden() -> None:
    given: dict[str, Any] = {
        "keyboard": "de",
        "monkey": 1,
        "token_count": 12,
        "api_key": "abc",
        "device": "28-3c01b607a1b2",
    }
    wanted = {**given, "api_key": HIDDEN}
    assert R.data(given) == wanted
    assert json.loads(R.text(json.dumps(given))) == wanted
    assert json.loads(R.text(json.dumps(given, separators=(",", ":")))) == wanted


HARMLESS = [
    "28-3c01b607a1b2",
    "device 28-3c01b607a1b2 reads 21.4 °C",
    "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
    "9f1c2d3e-4b5a-6978-8796-a5b4c3d2e1f0",
    "disk-0123456789abcdefghijklmnop and task-0123456789abcdefghijklmnop",
    "the keyboard, a monkey, two tokens and 12 passwords",
    "max_tokens=4096, token_count: 123456, tokenizer: bpe",
    "https://example.com/a?monkey=banana&page=2",
    "mqtt://broker.local:8883/a@b",
    "mail ann@example.com",
    "password_file = /etc/zeroclawd/password",
    "api_key_env = OPENAI_KEY_NAME",
    "eyJhbGciOi is only the head of one",
    "bearer of bad news",
    "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
    "a == b, c := d, e: f",
    "",
]


@pytest.mark.parametrize("text", HARMLESS)
def test_what_is_no_secret_is_untouched(text: str) -> None:
    assert R.text(text) == text
    assert R.data([text]) == [text]


@pytest.mark.parametrize(
    "around", ["{}", "Receipt: {}", "token: {}", '"token": "{}"', "Bearer {}", "token={}", "[receipt: {}]"]
)
def test_receipts_are_untouched_whatever_they_are_called(around: str) -> None:
    scope = ReceiptScope.derive(b"k" * 32, "boot")
    for number in range(200):
        receipt = scope.issue("c", "t", {}, str(number), 1711547700).token
        text = around.format(receipt)
        assert R.text(text) == text
        assert R.data({"token": receipt}) == {"token": receipt}


# What goes: shapes

PEM = "-----BEGIN {0}PRIVATE KEY{1}-----\n{2}MIIEvQIBADANBgkqhkiG9w0BAQ+/=\nabcDEF123\n-----END {0}PRIVATE KEY{1}-----"
LETTERS = "abcdefghijklmnopqrstuvwxyz"
# Put together here, so that no scanner takes this file for a leak.
SECRETS = [
    "sk-" + LETTERS + "012345",
    "sk-" + "proj-" + LETTERS[:16] + "_qrst-uvwxyz",
    "sk-" + "ant-api03-" + LETTERS + "-AA",
    "sk-" + "or-v1-" + "abcdef0123456789" * 2,
    "rk_" + "live_" + LETTERS[:20],
    "gsk_" + LETTERS,
    "hf_" + LETTERS + "ABCDEFGH",
    "AIza" + "Sy0123456789" + LETTERS[:23],
    "ghp_" + "a1" * 18,
    "github_pat_" + "a1_" * 12,
    "glpat-" + LETTERS[:20],
    "xoxb-" + "0123456789-" + LETTERS[:10],
    "AKIA" + "ABCDEFGH01234567",
    "eyJhbGciOiJIUzI1NiJ9" + ".eyJzdWIiOiJhbm4ifQ" + ".c2lnbmF0dXJlLXNpZ25hdHVyZQ",
    PEM.format("", "", ""),
    PEM.format("RSA ", "", "Proc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,0A1B\n\n"),
    PEM.format("OPENSSH ", "", ""),
    PEM.format("PGP ", " BLOCK", "Version: 1\n\n"),
]


@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize("around", ["{}", "it is {}.", '"{}"', "({})", "x={} y", "line\n{}\nline", "<{}>"])
def test_a_secret_of_a_known_shape_is_hidden(secret: str, around: str) -> None:
    told = R.text(around.format(secret))
    assert HIDDEN in told
    for part in filter(None, secret.split("\n")):
        assert part not in told


@pytest.mark.parametrize("secret", SECRETS)
def test_it_is_hidden_inside_json_too(secret: str) -> None:
    told = R.text(json.dumps({"note": f"one\n{secret}\ntwo"}))
    assert secret.split("\n")[-1] not in told
    assert json.loads(told)["note"].startswith("one\n")
    assert json.loads(told)["note"].endswith("two")


@pytest.mark.parametrize("length", [300, 3_000, 30_000])
def test_a_very_long_secret_is_hidden_to_its_end(length: int) -> None:
    assert R.text("sk-proj-" + "a" * length + " end") == f"{HIDDEN} end"
    assert R.text("eyJ" + "a" * length + ".eyJ" + "b" * length + "." + "c" * length) == HIDDEN
    assert R.text(f"token={'a' * length} end") == f"token={HIDDEN} end"


def test_a_private_key_without_an_end_is_hidden_as_far_as_it_goes() -> None:
    body = "\n".join("A" * 64 for _ in range(400))
    assert "AAAA" not in R.text(f"-----BEGIN PRIVATE KEY-----\n{body}")
    assert R.text('{"key":"-----BEGIN PRIVATE KEY-----\\nAAAA","pin":17}') == f'{{"key":"{HIDDEN}","pin":17}}'


# What goes: credentials by their place


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("https://ann:s3cret@example.com/v1", "https://[hidden]@example.com/v1"),
        ("mqtts://ann:p@ss:w@broker:8883", "mqtts://[hidden]@broker:8883"),
        ("no route to HTTP://ann@example.com!", "no route to HTTP://[hidden]@example.com!"),
        ("https://h/v1?key=abc", "https://h/v1?key=[hidden]"),
        ("https://h/v1?a=1&api_key=abc&b=2#c", "https://h/v1?a=1&api_key=[hidden]&b=2#c"),
        ("https://h/?X-Amz-Signature=ab12&x=1", "https://h/?X-Amz-Signature=[hidden]&x=1"),
        ("'https://ann:pw@h/?access_token=x'", "'https://[hidden]@h/?access_token=[hidden]'"),
        ("Authorization: Bearer abcdef.ghi-jkl", "Authorization: Bearer [hidden]"),
        ("authorization: Basic YW5uOnB3", "authorization: Basic [hidden]"),
        ("Authorization: token abcdef", "Authorization: token [hidden]"),
        ("'Authorization': 'Bearer abcdef'", "'Authorization': '[hidden]'"),
        ("sent bearer abcdefghijklmnop0123", "sent bearer [hidden]"),
        ("password=hunter2", "password=[hidden]"),
        ("PASSWORD = hunter2, pin = 17", "PASSWORD = [hidden], pin = 17"),
        ("userPassword: hunter2", "userPassword: [hidden]"),
        ("A_B_C_D_E_PASSWORD=hunter2", "A_B_C_D_E_PASSWORD=[hidden]"),
        ("AWS_SECRET_ACCESS_KEY=wJalr/XUtn+", "AWS_SECRET_ACCESS_KEY=[hidden]"),
        ('password="correct horse battery" next', 'password="[hidden]" next'),
        ('{"password":"a","pin":17}', '{"password":"[hidden]","pin":17}'),
        ('{"x":"{\\"token\\":\\"abc def\\",\\"n\\":1}"}', '{"x":"{\\"token\\":\\"[hidden]\\",\\"n\\":1}"}'),
        ("client_secret: abcd", "client_secret: [hidden]"),
        ("x-api-key: 0123abcd\nHost: h", "x-api-key: [hidden]\nHost: h"),
    ],
)
def test_a_credential_is_hidden_by_its_place(text: str, told: str) -> None:
    assert R.text(text) == told
    assert R.text(told) == told


# What goes: known values


def test_a_known_value_is_hidden_wherever_it_stands() -> None:
    known = Redactor.of(["opensesame"])
    assert known.text("xopensesamey, opensesame") == f"x{HIDDEN}y, {HIDDEN}"
    assert known.data({"opensesame": ["a opensesame", {"b": "opensesame"}]}) == {HIDDEN: [f"a {HIDDEN}", {"b": HIDDEN}]}


def test_of_overlapping_values_nothing_remains() -> None:
    known = Redactor.of(["abcdefgh", "efghijkl", "cdefgh"])
    assert known.text("-abcdefghijkl-") == f"-{HIDDEN}-"
    assert Redactor.of(["abcdefghij", "bcdefg"]).text("-abcdefghij-") == f"-{HIDDEN}-"
    assert known.text("-abcdefgh efghijkl-") == f"-{HIDDEN} {HIDDEN}-"
    assert Redactor.of(["ababab"]).text("-abababab-") == f"-{HIDDEN}-"
    assert Redactor.of(["hidden"]).text("well hidden") == f"well {HIDDEN}"


@given(st.lists(st.text("ab", min_size=6, max_size=10), min_size=1, max_size=4), st.text("abc", max_size=40))
def test_no_known_value_survives_in_any_text(values: list[str], text: str) -> None:
    told = Redactor.of(values).text(text)
    for value in values:
        assert value not in told


@pytest.mark.parametrize("value", ['pa"ss\\word', "pässwörter", "a b&c=d/e", "tab\tulator"])
def test_a_known_value_is_hidden_in_json_and_urls_too(value: str) -> None:
    from urllib.parse import quote

    known = Redactor.of([value])
    for spelling in (value, json.dumps(value), json.dumps(value, ensure_ascii=False), f"h/{quote(value, safe='')}/x"):
        assert known.text(spelling).strip('"') in (HIDDEN, f"h/{HIDDEN}/x")


def test_short_values_would_hide_ordinary_words_and_are_left_out() -> None:
    assert Redactor.of(["on", "", "abcde"]).values == frozenset()


def test_no_value_shows_in_a_log() -> None:
    assert "opensesame" not in repr(Redactor.of(["opensesame"]))


# Keys and structures


@pytest.mark.parametrize(
    "key",
    [
        *("api_key", "API_KEY", "apiKey", "APIKey", "apikey", "openai_apikey", "x-api-key", "clientSecret", "secret"),
        *("password", "userPassword", "PASSWD", "passphrase", "X-Auth-Token", "access_token", "token", "Authorization"),
        *("private_key", "privateKey", "aws_secret_access_key", "credentials", "db.password", "session-cookie"),
    ],
)
def test_a_key_names_a_secret(key: str) -> None:
    assert names_secret(key)
    assert R.data({key: "x"}) == {key: HIDDEN}
    assert R.data({key: 1}) == {key: HIDDEN}
    assert R.data({key: {"a": ["b"]}}) == {key: HIDDEN}


@pytest.mark.parametrize(
    "key",
    [
        *("keyboard", "monkey", "key", "token_count", "max_tokens", "tokenizer", "secretary", "passenger", "hotkey"),
        *("key_file", "password_file", "api_key_env", "token_type", "public_key", "device", "pin", "author", ""),
    ],
)
def test_a_key_names_no_secret(key: str) -> None:
    assert not names_secret(key)
    assert R.data({key: "x"}) == {key: "x"}


@pytest.mark.parametrize("value", ["", None, True, False])
def test_what_holds_no_secret_stays_under_any_key(value: Any) -> None:
    assert R.data({"password": value}) == {"password": value}
    assert R.data({"password": value})["password"] is value


def test_the_shape_of_a_structure_stays() -> None:
    given = {"a": [1, 2.5, None, True, {"b": ("x", "y")}], "c": {}}
    assert R.data(given) == {"a": [1, 2.5, None, True, {"b": ["x", "y"]}], "c": {}}


def test_two_keys_that_are_scrubbed_to_the_same_are_still_two_entries() -> None:
    told = R.data({"sk-" + "a" * 30: 1, "sk-" + "b" * 30: 2})
    assert sorted(told.values()) == [1, 2]
    assert "aaa" not in str(told)


def test_texts_and_keys_in_a_structure_are_bounded() -> None:
    told = R.data({"k" * 900: "v" * 900, "l": ["w" * 900]}, 100)
    assert all(len(key) <= 100 for key in told)
    assert sorted(len(text) for text in (*[v for v in told.values() if isinstance(v, str)], told["l"][0])) == [100, 100]


def test_depth_without_end_is_no_error() -> None:
    deep: Any = "sk-" + "a" * 30
    for _ in range(100_000):
        deep = {"a": [deep]}
    assert "aaaa" not in str(R.data(deep))


# Fast on anything

FRAGMENTS = [
    *("a", "eyJ", "eyJaaaaaaaa.", "-eyJaaaaaaaa", "sk-", "sk-proj-", "ghp_" + "a" * 30 + " ", "xoxb-"),
    *(
        "-----BEGIN PRIVATE KEY-----\n",
        "-----BEGIN ",
        "-----BEGIN A PRIVATE KEY----",
        "-",
        "http://",
        "http://a:b",
        "://@",
    ),
    *("&a_a_a_a_", "?key=", "password", 'password="', "password    ", "password\\\\", "token:token:", "secret : '"),
    *("bearer ", "bearer    ", "/bot123456", "[hidden]", "\ud800", "温", "api_key-", "\x00"),
]


@pytest.mark.parametrize("fragment", FRAGMENTS)
def test_a_megabyte_of_anything_takes_no_time_to_speak_of(fragment: str) -> None:
    text = (fragment * (1_000_000 // len(fragment) + 1))[:1_000_000]
    started = time.process_time()
    Redactor.of(["a" * 64, "correct horse"]).text(text, 4_000)
    assert time.process_time() - started < 2.0


# Lengths and characters


@given(any_text, st.integers(-2, 70))
def test_a_bounded_text_has_at_most_so_many_characters_and_exactly_so_many_if_it_was_cut(text: str, limit: int) -> None:
    told = bounded(text, limit)
    assert told == text if len(text) <= limit else len(told) == max(0, limit)


@given(st.integers(0, 3000), st.integers(40, 1200))
def test_the_note_says_how_many_characters_are_missing(length: int, limit: int) -> None:
    text = "".join(chr(0x4E00 + number % 5000) for number in range(length))
    told = bounded(text, limit)
    if length <= limit:
        assert told == text
        return
    head, _, rest = told.partition("\n[... ")
    missing, _, tail = rest.partition(" characters left out ...]\n")
    assert text.startswith(head)
    assert text.endswith(tail)
    assert len(head) + int(missing) + len(tail) == length
    assert len(told) == limit
    assert len(tail) <= len(head) <= 2 * len(tail) + 2


@given(any_text, st.integers(1, 70))
def test_a_scrubbed_text_keeps_its_bound_and_can_be_written_as_utf_8(text: str, limit: int) -> None:
    assert len(R.text(text, limit)) <= limit
    R.text(text).encode()
    json.dumps(R.data({text: [text]}), ensure_ascii=False).encode()


@given(any_text, st.integers(0, 70))
def test_plain_is_one_safe_line_within_its_bound(text: str, limit: int) -> None:
    line = plain(text, limit)
    assert len(line) <= limit
    assert len(line.splitlines()) <= 1
    assert not any(ord(c) < 32 or 0x7F <= ord(c) < 0xA0 or 0xD800 <= ord(c) < 0xE000 for c in line)
    line.encode()


def test_plain_shows_where_something_was() -> None:
    assert plain("a\tb\r\nc") == "a b  c"
    assert plain("a\x1b[31mb\x9b0m\ud800\u202ec") == "a?[31mb?0m??c"
    assert plain("温" * 300) == "温" * 199 + "…"
    assert plain("温" * 200) == "温" * 200


@given(any_text, st.integers(0, 100))
def test_clean_keeps_within_its_bytes_and_cuts_no_character(text: str, limit: int) -> None:
    told = clean(text, limit)
    assert len(told.encode()) <= limit
    assert clean(text).startswith(told)
    assert not any((ord(c) < 32 and c not in "\n\t") or 0x7F <= ord(c) < 0xA0 for c in told)


def test_clean_leaves_an_operators_text_as_it_was_written() -> None:
    text = "Nein, erst\tmorgen.\n温度 is 21 °C 👍🏽"
    assert clean(text) == text
    assert clean("a\r\nb\rc") == "a\nb\nc"
    assert clean("a\x00b\x1b[0mc\u2028d\ud800e\x85f\u202eg") == "ab[0mcdefg"
    assert clean("温" * 30_000) == "温" * (65_536 // 3)


def test_what_somebody_must_judge_is_shown_but_for_secrets_that_are_known() -> None:
    redactor = Redactor.of(["hunter2hunter2"])
    sly = {
        "command": "echo password=$(reboot) '-----BEGIN PRIVATE KEY-----'; rm -rf x # hunter2hunter2",
        "list": [{"api_key": "sk-ant-aaaaaaaaaaaaaaaaaaaaaaaa"}],
    }
    assert redactor.known(sly) == {**sly, "command": sly["command"].replace("hunter2hunter2", HIDDEN)}
