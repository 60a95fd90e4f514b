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
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zeroclawd import assets

if TYPE_CHECKING:
    from fluent.runtime import FluentBundle

log = logging.getLogger(__name__)

FALLBACK = "en"


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
        if self._plain is None:
            self._plain = self._load_plain()
        if not variables and message in self._plain:
            return self._plain[message]
        return self._format(message, variables)

    def has(self, message: str) -> bool:
        """True if some language has this message."""
        return self(message) != message

    def _nearest(self, language: str) -> str:
        for candidate in (language, language.replace("-", "_").split("_")[0]):
            if candidate and (self._folder / candidate).is_dir():
                return candidate
        return FALLBACK

    def _files(self) -> list[tuple[str, Path]]:
        languages = dict.fromkeys((self.language, FALLBACK))
        return [(name, path) for name in languages for path in sorted((self._folder / name).glob("*.ftl"))]

    # Texts without variables

    def _load_plain(self) -> dict[str, str]:
        contents = [(language, path.read_text("utf-8")) for language, path in self._files()]
        print_of_files = hashlib.sha256(json.dumps(contents).encode()).hexdigest()[:24]
        kept = self._cache / f"texts-{self.language}-{print_of_files}.json" if self._cache else None
        if kept and kept.is_file():
            with contextlib.suppress(OSError, ValueError):
                found = json.loads(kept.read_text("utf-8"))
                if isinstance(found, dict):
                    return found
        plain = self._render_plain()
        if kept:
            _keep(kept, plain)
        return plain

    def _render_plain(self) -> dict[str, str]:
        plain: dict[str, str] = {}
        for bundle in reversed(self._load()):
            plain |= _plain_messages(bundle)
        return plain

    # Fluent itself

    def _load(self) -> list[FluentBundle]:
        if self._bundles is None:
            from fluent.runtime import FluentBundle, FluentResource

            by_language: dict[str, FluentBundle] = {}
            for language, path in self._files():
                bundle = by_language.setdefault(language, FluentBundle([language], use_isolating=False))
                bundle.add_resource(FluentResource(path.read_text("utf-8")))
            self._bundles = list(by_language.values())
        return self._bundles

    def _format(self, message: str, variables: Mapping[str, Any]) -> str:
        name, _, attribute = message.partition(".")
        for bundle in self._load():
            if not bundle.has_message(name):
                continue
            found = bundle.get_message(name)
            pattern = found.attributes.get(attribute) if attribute else found.value
            if pattern is None:
                continue
            text, errors = bundle.format_pattern(pattern, dict(variables))
            for error in errors:
                log.warning("text_incomplete message=%s language=%s error=%s", message, bundle.locales[0], error)
            return str(text)
        return message


def _plain_messages(bundle: FluentBundle) -> dict[str, str]:
    """Every message and attribute of a bundle that formats without a variable."""
    plain: dict[str, str] = {}
    for name in bundle._messages:
        found = bundle.get_message(name)
        for key, pattern in ((name, found.value), *((f"{name}.{k}", v) for k, v in found.attributes.items())):
            if pattern is None:
                continue
            text, errors = bundle.format_pattern(pattern, {})
            if not errors:
                plain[key] = str(text)
    return plain


def _keep(path: Path, plain: Mapping[str, str]) -> None:
    """Write the rendered texts beside the state; a folder that cannot be written costs time, nothing else."""
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        for old in path.parent.glob(f"{path.name.rsplit('-', 1)[0]}-*.json"):
            old.unlink()
        temporary = path.with_suffix(f".{os.getpid()}.tmp")
        temporary.write_text(json.dumps(plain, ensure_ascii=False), "utf-8")
        temporary.replace(path)
