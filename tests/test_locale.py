"""Texts: each missing one is taken from English, none is ever empty, and a quiet daemon does not load Fluent."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from zeroclawd import assets
from zeroclawd.locale import Texts

EN = """
hello = Hello
bye = Bye
only-en = English only
named = { $device } is on
tool-x = Description
    .pin = The pin
    .value = The value
count = { $n ->
    [one] one reading
   *[other] { $n } readings
}
"""
JA = """
hello = こんにちは
named = { $device } はオンです
tool-x = 説明
    .pin = ピン
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write(tmp_path / "locales", en=EN, ja=JA)


def write(folder: Path, **languages: str) -> Path:
    for language, text in languages.items():
        (folder / language).mkdir(parents=True, exist_ok=True)
        (folder / language / "texts.ftl").write_text(text, "utf-8")
    return folder


# Fallback


def test_each_missing_text_is_taken_from_english(folder: Path) -> None:
    texts = Texts("ja", folder)
    assert texts("hello") == "こんにちは"
    assert texts("bye") == "Bye"
    assert texts("named", device="pump") == "pump はオンです"
    assert texts("tool-x") == "説明"
    assert texts("tool-x.pin") == "ピン"
    assert texts("tool-x.value") == "The value"


def test_what_no_language_has_is_its_own_id_and_never_empty(folder: Path) -> None:
    texts = Texts("ja", folder)
    assert texts("no-such-text") == "no-such-text"
    assert texts("no-such-text", device="pump") == "no-such-text"
    assert texts("tool-x.no-such-part") == "tool-x.no-such-part"
    assert not texts.has("no-such-text")
    assert not texts.has("tool-x.no-such-part")


def test_a_message_of_parts_only_has_no_empty_text(tmp_path: Path) -> None:
    texts = Texts("en", write(tmp_path, en="tool-y =\n    .pin = The pin\n"))
    assert texts("tool-y") == "tool-y"
    assert texts("tool-y.pin") == "The pin"


def test_has_is_true_for_texts_with_variables_and_logs_nothing(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    texts = Texts("ja", folder)
    for message in ("hello", "only-en", "named", "tool-x", "tool-x.value", "count"):
        assert texts.has(message)
    assert not caplog.records


@pytest.mark.parametrize("language", ["ja", "ja_JP", "ja-JP", "ja_JP.UTF-8", "JA", "Ja_jp"])
def test_a_language_is_found_in_every_usual_spelling(folder: Path, language: str) -> None:
    assert Texts(language, folder).language == "ja"


@pytest.mark.parametrize("language", ["en", "xx", "", "C", "POSIX", "C.UTF-8", ".", "..", "../locales/ja", "j", "/"])
def test_an_unknown_language_is_english(folder: Path, language: str) -> None:
    texts = Texts(language, folder)
    assert texts.language == "en"
    assert texts("hello") == "Hello"


def test_a_regional_folder_comes_before_its_language(folder: Path) -> None:
    write(folder, **{"zh": "hello = 你好", "zh-TW": "hello = 哈囉"})
    assert Texts("zh_TW.UTF-8", folder)("hello") == "哈囉"
    assert Texts("zh_CN", folder)("hello") == "你好"


def test_a_folder_without_texts_gives_ids(tmp_path: Path) -> None:
    assert Texts("ja", tmp_path / "nowhere")("hello") == "hello"


# Variables


def test_a_missing_variable_is_logged_and_still_gives_text(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    told = Texts("ja", folder)("named")
    assert told == "device はオンです"
    assert "text_incomplete message=named language=ja" in caplog.text


def test_a_text_without_variables_is_not_taken_from_english_because_the_own_one_has_some(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    texts = Texts("ja", write(tmp_path, en="a = English", ja="a = { $x } 日本"))
    assert texts("a", x="1") == "1 日本"
    assert texts("a") == "x 日本"


def test_variables_that_a_text_does_not_use_change_nothing(folder: Path) -> None:
    assert Texts("ja", folder)("hello", device="pump") == "こんにちは"


def test_there_are_no_isolation_marks(folder: Path) -> None:
    told = Texts("en", folder)("named", device="pump")
    assert told == "pump is on"
    assert not set(told) & set("\u2066\u2067\u2068\u2069")


def test_the_plural_is_chosen_by_number(folder: Path) -> None:
    texts = Texts("en", folder)
    assert texts("count", n=1) == "one reading"
    assert texts("count", n=3) == "3 readings"


@pytest.mark.parametrize("length", [2_000, 2_001, 2_501, 100_000])
def test_a_long_value_is_not_lost(folder: Path, length: int, caplog: pytest.LogCaptureFixture) -> None:
    assert Texts("en", folder)("named", device="x" * length) == "x" * length + " is on"
    assert not caplog.records


def test_a_value_is_never_read_as_fluent(folder: Path) -> None:
    assert Texts("en", folder)("named", device="{ $x } { hello }") == "{ $x } { hello } is on"


# Broken files


def test_a_syntax_error_costs_one_text_which_falls_back(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(folder, ja="hello = {\nbye = さようなら\n")
    texts = Texts("ja", folder)
    assert texts("hello") == "Hello"
    assert texts("bye") == "さようなら"
    assert "text_broken language=ja file=texts.ftl" in caplog.text


@pytest.mark.parametrize("content", [b"hello = \xff\xfe", b"\xe3\x81"])
def test_a_file_that_is_no_utf_8_falls_back(folder: Path, content: bytes, caplog: pytest.LogCaptureFixture) -> None:
    (folder / "ja" / "torn.ftl").write_bytes(content)
    texts = Texts("ja", folder)
    assert texts("hello") == "こんにちは"
    assert texts("bye") == "Bye"
    assert "texts_unreadable" in caplog.text


def test_an_empty_file_falls_back(folder: Path) -> None:
    write(folder, ja="")
    assert Texts("ja", folder)("hello") == "Hello"


# The cache on disk

FRESH = """
import sys
from pathlib import Path
from zeroclawd.locale import Texts
texts = Texts("ja", Path(sys.argv[1]), Path(sys.argv[2]))
print(texts("hello"), texts("bye"), texts("tool-x.pin"), texts("hello", device="x"), texts.has("only-en"))
print(any(name.split(".")[0] in ("fluent", "babel") for name in sys.modules))
if len(sys.argv) > 3:
    print(texts("named", device="pump"))
"""


def fresh(folder: Path, cache: Path, *more: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", FRESH, str(folder), str(cache), *more],
        capture_output=True,
        check=True,
        encoding="utf-8",
        env={**os.environ, "PYTHONIOENCODING": "utf-8"},
    )
    assert not done.stderr
    return done.stdout.splitlines()


def test_the_second_run_does_not_load_fluent(folder: Path, tmp_path: Path) -> None:
    cache = tmp_path / "state" / "cache"
    words = "こんにちは Bye ピン こんにちは True"
    assert fresh(folder, cache) == [words, "True"]
    assert fresh(folder, cache) == [words, "False"]
    assert fresh(folder, cache, "and a variable") == [words, "False", "pump はオンです"]


def test_changed_files_renew_the_cache_and_the_old_one_goes(folder: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    assert Texts("ja", folder, cache)("hello") == "こんにちは"
    before = list(cache.iterdir())
    write(folder, ja="hello = やあ")
    assert Texts("ja", folder, cache)("hello") == "やあ"
    after = list(cache.iterdir())
    assert len(before) == len(after) == 1
    assert before != after


def test_a_changed_english_file_renews_the_cache_of_the_others(folder: Path, tmp_path: Path) -> None:
    assert Texts("ja", folder, tmp_path / "cache")("bye") == "Bye"
    write(folder, en="bye = So long")
    assert Texts("ja", folder, tmp_path / "cache")("bye") == "So long"


def test_languages_keep_caches_beside_each_other(folder: Path, tmp_path: Path) -> None:
    write(folder, **{"zh": "hello = 你好", "zh-TW": "hello = 哈囉"})
    for language in ("ja", "en", "zh-TW", "zh", "zh-TW"):
        Texts(language, folder, tmp_path / "cache")("hello")
    assert len(list((tmp_path / "cache").iterdir())) == 4


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b"\xff", b'{"hello": 1}', b'{"hello": null}', b"null"])
def test_a_damaged_cache_is_made_anew(folder: Path, tmp_path: Path, damage: bytes) -> None:
    Texts("ja", folder, tmp_path / "cache")("hello")
    (kept,) = (tmp_path / "cache").iterdir()
    whole = kept.read_bytes()
    kept.write_bytes(damage)
    assert Texts("ja", folder, tmp_path / "cache")("hello") == "こんにちは"
    assert kept.read_bytes() == whole


def test_a_cache_folder_that_cannot_be_written_is_no_error(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    assert Texts("ja", folder, tmp_path / "file")("hello") == "こんにちは"
    assert Texts("ja", folder, tmp_path / "file" / "deeper")("hello") == "こんにちは"
    assert Texts("ja", folder, Path("/proc/no-such-folder"))("hello") == "こんにちは"


def test_without_a_cache_nothing_is_written(folder: Path, tmp_path: Path) -> None:
    Texts("ja", folder)("hello")
    assert [path.name for path in tmp_path.iterdir()] == ["locales"]


def test_the_cache_holds_only_texts_without_variables(folder: Path, tmp_path: Path) -> None:
    Texts("ja", folder, tmp_path / "cache")("hello")
    (kept,) = (tmp_path / "cache").iterdir()
    assert set(json.loads(kept.read_text("utf-8"))) == {
        *("hello", "bye", "only-en", "tool-x", "tool-x.pin", "tool-x.value")
    }


# The shipped catalogues

LOCALES = assets.folder("locales")
LANGUAGES = sorted(path.name for path in LOCALES.iterdir() if path.is_dir())
FILES = sorted({path.name for path in LOCALES.glob("*/*.ftl")})


def variables_of(node: Any) -> set[str]:
    """The names of all variables below a node of Fluent's syntax tree."""
    if isinstance(node, list):
        return set().union(*map(variables_of, node))
    if not hasattr(node, "__dict__"):
        return set()
    own = {node.id.name} if type(node).__name__ == "VariableReference" else set()
    return own.union(*(variables_of(child) for name, child in vars(node).items() if name != "span"))


def catalogue(path: Path) -> dict[str, set[str]]:
    """Every id of a file, attributes as `id.attribute`, with the variables that its text uses."""
    from fluent.syntax import FluentParser, ast

    found: dict[str, set[str]] = {}
    for entry in FluentParser().parse(path.read_text("utf-8")).body:
        assert not isinstance(entry, ast.Junk), f"{path}: {entry.content}"
        if not isinstance(entry, ast.Message):
            continue
        parts = [(entry.id.name, entry.value)]
        parts += [(f"{entry.id.name}.{part.id.name}", part.value) for part in entry.attributes]
        for name, pattern in parts:
            if pattern is not None:
                assert name not in found, f"{path}: {name} twice"
                found[name] = variables_of(pattern)
    return found


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("language", [name for name in LANGUAGES if name != "en"])
def test_every_language_has_the_same_texts_with_the_same_variables(language: str, file: str) -> None:
    english, other = catalogue(LOCALES / "en" / file), catalogue(LOCALES / language / file)
    assert set(other) == set(english)
    assert other == english


@pytest.mark.parametrize("language", LANGUAGES)
def test_no_text_stands_in_two_files(language: str) -> None:
    names = [name for file in FILES for name in catalogue(LOCALES / language / file)]
    assert sorted(names) == sorted(set(names))


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_shipped_text_is_there_and_complete(language: str, caplog: pytest.LogCaptureFixture) -> None:
    texts = Texts(language)
    for file in FILES:
        for name, variables in catalogue(LOCALES / language / file).items():
            told = texts(name, **dict.fromkeys(variables, "value"))
            assert told.strip()
            assert told != name
    assert not caplog.records


OVERCLAIMS = re.compile(
    r"approv|proof|prov(e|ing)\b|guarant|certif|true\b|truth|trust|durab|承認|証明|保証|真実", re.IGNORECASE
)
RECEIPT = re.compile(r"receipt|レシート|受領", re.IGNORECASE)


@pytest.mark.parametrize("language", LANGUAGES)
def test_no_text_of_ours_takes_a_receipt_for_an_approval_or_a_proof_of_truth(language: str) -> None:
    texts = Texts(language)
    found = [texts(name) for file in FILES for name in catalogue(LOCALES / language / file) if "receipt" in name]
    sentences = [one for text in found for one in re.split(r"[.。;\n]", text) if RECEIPT.search(one)]
    assert sentences
    for sentence in sentences:
        assert not OVERCLAIMS.search(sentence) or re.search(r"\b(no|not|never)\b|ない|ません", sentence), sentence


def test_english_is_shipped() -> None:
    assert "en" in LANGUAGES
    assert "ja" in LANGUAGES
