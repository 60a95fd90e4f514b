"""Understands a fixed set of sentences without a model or a network: the built-in provider, on hassil's templates.

Only a whole sentence that a template describes becomes calls, and only the text that a person sent is read. What can be
read in two ways, or is understood in part, does nothing and says what would be understood.
"""

from __future__ import annotations

import asyncio
import re
import secrets
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zeroclawd import assets
from zeroclawd.errors import ProviderError
from zeroclawd.frozen import dataclass
from zeroclawd.interfaces import DeviceInfo, ModelRequest
from zeroclawd.messages import RawCall, Reply
from zeroclawd.providers import wording
from zeroclawd.providers.wording import NotUnderstood
from zeroclawd.tool import ToolSpec

if TYPE_CHECKING:
    from hassil import Intents, RecognizeResult, SlotList

Devices = Callable[[], tuple[DeviceInfo, ...]]

_LONGEST_SENTENCE = 300
_MOST_PARTS = 6
_MOST_CALLS = 16
_MOST_NUMBERS = 8

HELP = "help"


@dataclass(frozen=True, slots=True)
class Call:
    """A call that a sentence asks for."""

    tool: str
    arguments: Mapping[str, Any]

    @property
    def key(self) -> tuple[str, str]:
        """Equal for equal calls."""
        return self.tool, repr(sorted(self.arguments.items()))


class IntentProvider:
    """Answers what its templates know; `raises` makes it fail with NotUnderstood where it would say what it knows.

    `devices` gives the devices of now: their names and descriptions are what a sentence may name. `texts` speaks.
    """

    native_tools = True

    def __init__(
        self,
        devices: Devices,
        texts: wording.Say,
        *,
        name: str = "intent",
        raises: bool = False,
        folder: Path | None = None,
        new_id: Callable[[], str] = lambda: secrets.token_hex(4),
    ) -> None:
        self.name = name
        self._devices = devices
        self._texts = texts
        self._raises = raises
        self._new_id = new_id
        self._grammars = Grammars(folder or assets.folder("locales"))

    async def complete(self, request: ModelRequest, on_text: Callable[[str], None]) -> Reply:
        """Calls for a sentence, a short text for results; ProviderError if hassil is not installed."""
        results = wording.results_of(request.messages)
        answer = wording.told(self._texts, results) if results else await self._understand(request)
        if isinstance(answer, str):
            on_text(answer)
            return Reply(text=answer)
        return Reply(calls=tuple(RawCall(f"intent_{self._new_id()}", call.tool, call.arguments) for call in answer))

    async def close(self) -> None:
        """Nothing to let go of."""

    async def _understand(self, request: ModelRequest) -> str | list[Call]:
        devices = self._devices()
        calls = await self._grammars.calls(wording.asked_by(request.messages), request.locale, devices)
        if not calls:
            known = self._known(request.tools, devices)
            if self._raises:
                raise NotUnderstood(self._texts("intent-offline", examples=known))
            return self._texts("intent-not-understood", examples=known)
        if any(call.tool == HELP for call in calls):
            return self._texts("intent-help", examples=self._known(request.tools, devices))
        missing = next((call.tool for call in calls if call.tool not in {spec.name for spec in request.tools}), None)
        return self._texts("intent-no-tool", tool=missing) if missing else calls

    def _known(self, tools: Sequence[ToolSpec], devices: Sequence[DeviceInfo]) -> str:
        """Three sentences that would be understood here, with names of real devices where there are any."""
        offered = {spec.name for spec in tools}
        examples = (
            self._texts(message, **variables)
            for tool, message, variables in _examples(devices)
            if tool in offered or not offered
        )
        quoted = [self._texts("intent-quoted", text=text) for text, _ in zip(examples, range(3), strict=False)]
        return self._texts("intent-comma").join(quoted)


def _examples(devices: Sequence[DeviceInfo]) -> Iterator[tuple[str, str, dict[str, str]]]:
    """Tool, message and variables of every example, the most useful ones first."""
    for tool, can, message in (
        ("device_write", "write", "intent-example-write"),
        ("device_read", "read", "intent-example-read"),
        ("device_pulse", "pulse", "intent-example-pulse"),
    ):
        fitting = [info for info in devices if can in info.can and not info.fault]
        # The least risky device makes the best example, and of reading one that can only be read.
        fitting.sort(key=lambda info: (can == "read" and "write" in info.can, info.risk))
        if fitting:
            yield tool, message, {"device": spoken(fitting[0].name)}
    yield "device_list", "intent-example-list", {}
    yield "board_info", "intent-example-board", {}
    yield "time", "intent-example-time", {}


# Sentences


class Grammars:
    """The templates of `locales/<language>/intents.yaml`, read when a sentence may be of that language."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._loaded: dict[str, Grammar] = {}
        self._loading = asyncio.Lock()

    async def calls(self, text: str, locale: str, devices: Sequence[DeviceInfo]) -> list[Call]:
        """The calls that a text asks for, in its order; none if any part of it is not understood."""
        sentence = normal(text)
        if not sentence or len(sentence) > _LONGEST_SENTENCE:
            return []
        names = Names.of(devices)
        for language in self._languages(sentence, locale):
            found = (await self._grammar(language)).calls(sentence, names)
            if found:
                return found
        return []

    def _languages(self, sentence: str, locale: str) -> list[str]:
        """The reader's language first; then those whose letters the sentence has."""
        own = locale.replace("_", "-").split("-")[0].casefold()
        likely = "ja" if _CJK.search(sentence) else "en"
        known = {path.parent.name for path in self._folder.glob("*/intents.yaml")}
        return [language for language in dict.fromkeys((own, likely)) if language in known]

    async def _grammar(self, language: str) -> Grammar:
        async with self._loading:
            if language not in self._loaded:
                path = self._folder / language / "intents.yaml"
                # Import and parsing take a tenth of a second and more on a small board.
                self._loaded[language] = await asyncio.to_thread(Grammar.load, path)
        return self._loaded[language]


@dataclass(frozen=True, slots=True)
class Names:
    """What devices are called in sentences (text, device), and the devices that show a quantity such as `temperature`."""

    spoken: tuple[tuple[str, str], ...]
    infos: tuple[DeviceInfo, ...]

    @classmethod
    def of(cls, devices: Sequence[DeviceInfo]) -> Names:
        """Names as configured and as spoken, and descriptions; what could mean two devices means neither."""
        own = {variant: info.name for info in devices for variant in _variants(info.name)}
        described: dict[str, set[str]] = {}
        for info in devices:
            for phrase in _phrases(info.description):
                described.setdefault(phrase, set()).add(info.name)
        plain = {phrase: next(iter(names)) for phrase, names in described.items() if len(names) == 1}
        return cls(tuple((plain | own).items()), tuple(devices))

    def info(self, name: str) -> DeviceInfo | None:
        """The device of this name."""
        return next((info for info in self.infos if info.name == name), None)

    def showing(self, quantity: str) -> list[str]:
        """The readable devices with a value of this name."""
        return [info.name for info in self.infos if "read" in info.can and quantity in info.units]


def spoken(name: str) -> str:
    """A device's name as people say it."""
    return re.sub(r"[_-]+", " ", name).strip()


def _variants(name: str) -> Iterator[str]:
    yield from dict.fromkeys((normal(name).casefold(), normal(spoken(name)).casefold()))


_ARTICLE = re.compile(r"^(?:the|a|an|my|our)\s+", re.IGNORECASE)


def _phrases(description: str) -> Iterator[str]:
    """A description that may stand for the device: whole, and up to its first comma, bracket or relative clause."""
    whole = normal(description).casefold()
    head = re.split(r"\s*[,;:.(\[、。(「]\s*|\s+(?:in|on|at|of|for|behind|under|above|near|that|which|with)\s+", whole)[
        0
    ]
    for phrase in dict.fromkeys((whole, head)):
        phrase = _ARTICLE.sub("", phrase).strip(" .。")
        if 1 < len(phrase) <= 60:
            yield phrase


_CJK = re.compile(r"[぀-ヿ㐀-䶿一-鿿々]")
_AROUND_CJK = re.compile(r"\s*([぀-ヿ㐀-䶿一-鿿々、。]+)\s*")
_NUMBER = re.compile(r"(?<![A-Za-z0-9_.,-])-?\d{1,12}(?:\.\d{1,6})?(?![.,]?\d)")


def normal(text: str) -> str:
    """One spelling of a sentence: full-width forms as plain ones, no control characters, single spaces, none in kana."""
    plain = unicodedata.normalize("NFKC", text.encode("utf-8", "replace").decode())
    visible = "".join(" " if unicodedata.category(letter)[0] in "CZ" else letter for letter in plain)
    return _AROUND_CJK.sub(r"\1", " ".join(visible.split()))


class Grammar:
    """One language's templates, and what the sentences that fit them ask for."""

    def __init__(self, intents: Intents, joints: str, comma: str) -> None:
        self._intents = intents
        self._joints = re.compile(joints, re.IGNORECASE)
        self._comma = comma

    @classmethod
    def load(cls, path: Path) -> Grammar:
        """Read the templates; ProviderError if hassil is missing."""
        missing = False
        try:
            import hassil
            import yaml
        except ImportError:
            missing = True
        if missing:
            install = "pip install 'zeroclawd[intents]'"
            raise ProviderError(f"the built-in intents need hassil: {install}", hint=install)
        content = yaml.safe_load(path.read_text("utf-8"))
        grammar = cls(hassil.Intents.from_dict(content), content["joints"], content["comma"])
        # The first sentence compiles templates and number words, which is slow: it is read here, in the thread.
        grammar.calls(content["sample"], Names((("device", "device"),), ()))
        return grammar

    def calls(self, sentence: str, names: Names) -> list[Call]:
        """The calls of a whole text; of one with several sentences only if each of them is understood."""
        pieces = _pieces(self._joints, sentence)
        if len(pieces) > 2 * _MOST_PARTS:
            return []
        found = self._walk(pieces, names, {})
        unique = list({call.key: call for call in found or ()}.values())
        return unique if len(unique) <= _MOST_CALLS else []

    def _walk(self, pieces: Sequence[str], names: Names, tried: dict[int, list[Call] | None]) -> list[Call] | None:
        """Split the text into the longest understood sentences from its start; None if a rest is left."""
        if not pieces:
            return []
        if len(pieces) not in tried:
            tried[len(pieces)] = None
            for end in range(len(pieces), 0, -2):
                first = self._sentence("".join(pieces[:end]), names)
                rest = self._walk(pieces[end + 1 :], names, tried) if first else None
                if first and rest is not None:
                    tried[len(pieces)] = [*first, *rest]
                    break
        return tried[len(pieces)]

    def _sentence(self, sentence: str, names: Names) -> list[Call]:
        """The calls of one sentence; none if no template fits, or if two fit that ask for different things."""
        enumerated = re.sub(r"\s*,\s*", self._comma, sentence)
        for spelling in dict.fromkeys((sentence, enumerated)):
            readings: dict[tuple[tuple[str, str], ...], list[Call]] = {}
            for result in self._recognized(spelling, names):
                calls = list(_asked(result, names))
                readings.setdefault(tuple(call.key for call in calls), calls)
            if readings:
                return next(iter(readings.values())) if len(readings) == 1 else []
        return []

    def _recognized(self, sentence: str, names: Names) -> Iterable[RecognizeResult]:
        import hassil

        # Numbers are those that stand in the sentence, so each is matched whole and exactly.
        numbers = [(text, _number(text)) for text in dict.fromkeys(_NUMBER.findall(sentence))][:_MOST_NUMBERS]
        lists: dict[str, SlotList] = {
            "device": hassil.TextSlotList.from_tuples(names.spoken, allow_template=False, name="device"),
            "digits": hassil.TextSlotList.from_tuples(numbers, allow_template=False, name="digits"),
        }
        return hassil.recognize_all(sentence, self._intents, slot_lists=lists)


def _pieces(joints: re.Pattern[str], sentence: str) -> list[str]:
    """The text cut at its joints (`and`, a comma, a full stop), the joints kept between: sentence, joint, sentence."""
    pieces: list[str] = []
    at = 0
    for joint in joints.finditer(sentence):
        pieces += [sentence[at : joint.start()], joint[0]]
        at = joint.end()
    pieces.append(sentence[at:])
    return pieces if pieces[-1].strip() or len(pieces) == 1 else pieces[:-2]


def _number(text: str) -> int | float:
    value = float(text)
    return int(value) if value.is_integer() else value


# From a template to calls


def _asked(result: RecognizeResult, names: Names) -> Iterator[Call]:
    """The template's metadata as calls: `tool`, constant `arguments`, `$slot` for what the sentence said.

    `each: device` makes one call for each device that was named, `each: quantity` one for each device that shows it.
    """
    metadata = result.intent_metadata or {}
    said = _said(result)
    for name in _targets(metadata.get("each"), result, said, names):
        slots = said | {"number": _scaled(said, names.info(name))} if "percent" in said else said
        arguments = {key: _filled(value, slots) for key, value in metadata.get("arguments", {}).items()}
        yield Call(metadata["tool"], ({"device": name} if name else {}) | arguments)


def _scaled(said: Mapping[str, Any], info: DeviceInfo | None) -> Any:
    """So many per cent as the device takes it; as text, which no such device takes, where its scale is not known.

    One per cent of a lamp that takes 0 to 1 must never be read as 1.
    """
    number = said["number"]
    if info is not None and "%" in info.units.values():
        return number
    if info is not None and _FRACTION.search(info.writes):
        return _whole(number / 100)
    return f"{number}%"


_FRACTION = re.compile(r"\b0 to 1\b(?!\.?\d)")


def _targets(each: str | None, result: RecognizeResult, said: Mapping[str, Any], names: Names) -> list[str]:
    match each:
        case "device":
            return list(dict.fromkeys(str(entity.value) for entity in result.entities_list if entity.name == "device"))
        case "quantity":
            return names.showing(str(said["quantity"]))
        case _:
            return [""]


def _said(result: RecognizeResult) -> dict[str, Any]:
    """Slots by name; a span of time is `seconds`, whole numbers are ints."""
    said: dict[str, Any] = {}
    seconds = 0.0
    amount: float = 0
    for entity in result.entities_list:
        if entity.name in ("number", "digits"):
            amount = said["number"] = _whole(entity.value)
        elif entity.name == "unit":
            seconds += amount * float(entity.value)
        else:
            said[entity.name] = entity.value
    return said | {"seconds": _whole(seconds)}


def _whole(value: Any) -> int | float:
    number = float(value)
    return int(number) if number.is_integer() else round(number, 6)


def _filled(value: Any, said: Mapping[str, Any]) -> Any:
    return said[value[1:]] if isinstance(value, str) and value.startswith("$") else value
