"""The texts that people and models read: Fluent files by language, each missing one taken from English.

Texts without variables are rendered once and kept on disk by a hash of the files, so that a daemon that says nothing else
need not import Fluent. Isolation marks are off: these texts also go to logs, prompts and machines.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zeroclawd import assets

if TYPE_CHECKING:
    from fluent.runtime import FluentBundle

log = logging.getLogger(__name__)

FALLBACK = "en"

# Fluent gives up on a text with a value of more than 2500 characters; longer ones take their place afterwards.
_LONG = 2_000


class Texts:
    """The messages of one language; call it with an id and variables, attributes as `id.attribute`."""

    def __init__(self, language: str, folder: Path | None = None, cache: Path | None = None) -> None:
        self._folder = folder or assets.folder("locales")
        self.language = self._nearest(language)
        self._cache = cache
        self._plain: dict[str, str] | None = None
        self._bundles: list[FluentBundle] | None = None

    def __call__(self, message: str, **variables: Any) -> str:
        """The text; if no language has it, its id, so that a person can report what is missing."""
        plain = self._known()
        return plain[message] if message in plain else self._format(message, variables)

    def has(self, message: str) -> bool:
        """True if some language has this message."""
        return message in self._known() or self._find(message) is not None

    def _nearest(self, language: str) -> str:
        if self._folder.is_dir():
            shipped = {path.name.casefold(): path.name for path in self._folder.iterdir() if path.is_dir()}
            wanted = language.replace("_", "-").partition(".")[0].casefold()
            for candidate in (wanted, wanted.partition("-")[0]):
                if candidate in shipped:
                    return shipped[candidate]
        return FALLBACK

    def _contents(self) -> list[tuple[str, str, str]]:
        """Language, file name and text of every file that can be read, the wanted language first."""
        languages = dict.fromkeys((self.language, FALLBACK))
        files = [(name, path) for name in languages for path in sorted((self._folder / name).glob("*.ftl"))]
        found = []
        for language, path in files:
            try:
                found.append((language, path.name, path.read_text("utf-8")))
            except (OSError, UnicodeDecodeError) as error:
                log.warning("texts_unreadable file=%s error=%s", path, error)
        return found

    # Texts without variables

    def _known(self) -> dict[str, str]:
        if self._plain is None:
            self._plain = self._load_plain()
        return self._plain

    def _load_plain(self) -> dict[str, str]:
        contents = self._contents()
        if self._cache is None:
            return self._render_plain(contents)
        print_of_files = hashlib.sha256(json.dumps(contents).encode()).hexdigest()[:24]
        kept = self._cache / f"texts-{self.language}-{print_of_files}.json"
        plain = _kept(kept)
        if plain is None:
            plain = self._render_plain(contents)
            _keep(kept, plain)
        return plain

    def _render_plain(self, contents: list[tuple[str, str, str]]) -> dict[str, str]:
        """Every text that needs no variable, each from the first language that has the message at all."""
        plain: dict[str, str | None] = {}
        for bundle in self._load(contents):
            for key, pattern in _patterns(bundle):
                if key not in plain:
                    text, errors = bundle.format_pattern(pattern, {})
                    plain[key] = None if errors else str(text)
        return {key: text for key, text in plain.items() if text is not None}

    # Fluent itself

    def _load(self, contents: list[tuple[str, str, str]] | None = None) -> list[FluentBundle]:
        if self._bundles is None:
            from fluent.runtime import FluentBundle, FluentResource
            from fluent.syntax.ast import Junk

            by_language: dict[str, FluentBundle] = {}
            for language, file, text in self._contents() if contents is None else contents:
                resource = FluentResource(text)
                for entry in resource.body:
                    if isinstance(entry, Junk):
                        start = (entry.content or "")[:80]
                        log.warning("text_broken language=%s file=%s text=%r", language, file, start)
                bundle = by_language.setdefault(language, FluentBundle([language], use_isolating=False))
                bundle.add_resource(resource)
            self._bundles = list(by_language.values())
        return self._bundles

    def _find(self, message: str) -> tuple[FluentBundle, Any] | None:
        name, _, attribute = message.partition(".")
        for bundle in self._load():
            if bundle.has_message(name):
                found = bundle.get_message(name)
                pattern = found.attributes.get(attribute) if attribute else found.value
                if pattern is not None:
                    return bundle, pattern
        return None

    def _format(self, message: str, variables: Mapping[str, Any]) -> str:
        found = self._find(message)
        if found is None:
            return message
        bundle, pattern = found
        long = {name: text for name, text in variables.items() if isinstance(text, str) and len(text) > _LONG}
        marks = {name: f"\x00{name}\x00" for name in long}
        told, errors = bundle.format_pattern(pattern, {**variables, **marks})
        for error in errors:
            log.warning("text_incomplete message=%s language=%s error=%s", message, bundle.locales[0], error)
        text = str(told)
        for name, mark in marks.items():
            text = text.replace(mark, long[name])
        return text


def _patterns(bundle: FluentBundle) -> Iterator[tuple[str, Any]]:
    """Every message and attribute of a bundle, by the id that it is called with."""
    for name in bundle._messages:
        found = bundle.get_message(name)
        if found.value is not None:
            yield name, found.value
        for attribute, pattern in found.attributes.items():
            yield f"{name}.{attribute}", pattern


def _kept(path: Path) -> dict[str, str] | None:
    """The rendered texts of an earlier run, if there are any and they are whole."""
    with contextlib.suppress(OSError, ValueError):
        found = json.loads(path.read_text("utf-8"))
        if isinstance(found, dict) and all(isinstance(text, str) for text in found.values()):
            return found
    return None


def _keep(path: Path, plain: Mapping[str, str]) -> None:
    """Write the rendered texts beside the state; a folder that cannot be written costs time, nothing else."""
    stem, _, print_of_files = path.stem.rpartition("-")
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        for old in path.parent.glob(f"{stem}-{'?' * len(print_of_files)}.json"):
            old.unlink()
        temporary = path.with_suffix(f".{os.getpid()}.tmp")
        temporary.write_text(json.dumps(plain, ensure_ascii=False), "utf-8")
        temporary.replace(path)
