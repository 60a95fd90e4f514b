"""Whole sentences become calls, in both languages; everything else does nothing and says what would be understood."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zeroclawd.catalog import Catalog
from zeroclawd.errors import ProviderError
from zeroclawd.interfaces import DeviceInfo, ModelRequest
from zeroclawd.locale import Texts
from zeroclawd.messages import Message, Outcome, Reply, Role, ToolCall
from zeroclawd.providers.direct import DirectProvider
from zeroclawd.providers.intent import IntentProvider, NotUnderstood
from zeroclawd.tool import Risk, ToolSpec

ALL = frozenset({"read", "write", "pulse"})
DEVICES = (
    DeviceInfo("pump", "relay", ALL, Risk.HIGH, description="The water pump behind the shed"),
    DeviceInfo("lamp", "led", ALL, Risk.LOW, "on/off, or a brightness from 0 to 1", description="読書灯"),
    DeviceInfo("grow_lamp", "led", ALL, Risk.LOW, "0 to 100", {"level": "%"}, description="育成ライト、棚の上"),
    DeviceInfo("greenhouse", "bme280", frozenset({"read"}), Risk.LOW, units={"temperature": "°C"}, description="温室"),
    DeviceInfo("cellar", "tmp102", frozenset({"read"}), Risk.LOW, units={"temperature": "°C"}),
)
NAMES = ("device_write", "device_read", "device_pulse", "device_list", "board_info", "time")
TOOLS = tuple(ToolSpec(name, "", {}) for name in NAMES)
TEXTS = {language: Texts(language) for language in ("en", "ja")}
PROVIDERS = {language: IntentProvider(lambda: DEVICES, TEXTS[language]) for language in ("en", "ja")}


async def ask(
    *messages: Message,
    language: str = "en",
    tools: Sequence[ToolSpec] = TOOLS,
    provider: IntentProvider | None = None,
) -> Reply:
    shown: list[str] = []
    one = provider or PROVIDERS[language]
    reply = await one.complete(ModelRequest(messages, tools, locale=language), shown.append)
    assert "".join(shown) == reply.text
    return reply


async def understood(sentence: str, language: str = "en") -> list[tuple[str, dict[str, Any]]]:
    reply = await ask(Message(Role.USER, sentence), language=language)
    return [(call.name, dict(call.arguments)) for call in reply.calls if not isinstance(call.arguments, str)]


def write(device: str, value: Any) -> tuple[str, dict[str, Any]]:
    return "device_write", {"device": device, "value": value}


def pulse(device: str, seconds: float) -> tuple[str, dict[str, Any]]:
    return "device_pulse", {"device": device, "seconds": seconds}


def read(device: str) -> tuple[str, dict[str, Any]]:
    return "device_read", {"device": device}


ENGLISH = [
    ("turn on the lamp", [write("lamp", True)]),
    ("Turn the lamp on, please.", [write("lamp", True)]),
    ("could you switch off the pump?", [write("pump", False)]),
    ("stop the pump!", [write("pump", False)]),
    ("lamp off", [write("lamp", False)]),
    ("turn on the water pump", [write("pump", True)]),
    ("turn on grow_lamp", [write("grow_lamp", True)]),
    ("turn on the grow-lamp", [write("grow_lamp", True)]),
    ("TURN ON THE GROW LAMP", [write("grow_lamp", True)]),
    ("turn on the lamp and the pump", [write("lamp", True), write("pump", True)]),
    ("turn on lamp, pump and grow lamp", [write("lamp", True), write("pump", True), write("grow_lamp", True)]),
    ("turn on the lamp and turn off the pump", [write("lamp", True), write("pump", False)]),
    ("turn on the lamp, then read the greenhouse", [write("lamp", True), read("greenhouse")]),
    (
        "turn on lamp and pump and turn off grow lamp",
        [write("lamp", True), write("pump", True), write("grow_lamp", False)],
    ),
    ("Turn on the lamp. Turn off the pump.", [write("lamp", True), write("pump", False)]),
    ("turn on the lamp and the lamp", [write("lamp", True)]),
    ("set the lamp to 0.4", [write("lamp", 0.4)]),
    ("set the lamp to 40%", [write("lamp", 0.4)]),
    ("set the lamp to 1 percent", [write("lamp", 0.01)]),
    ("set the lamp to 100 %", [write("lamp", 1)]),
    ("set the grow lamp to 1%", [write("grow_lamp", 1)]),
    ("set the lamp and the grow lamp to 30%", [write("lamp", 0.3), write("grow_lamp", 30)]),
    # Nobody knows what a per cent of a relay is: the board refuses the text, where it might take the number 1.
    ("set the pump to 1%", [write("pump", "1%")]),
    ("set the lamp's brightness to 40.25 percent", [write("lamp", 0.4025)]),
    ("set the brightness of the lamp to forty percent", [write("lamp", 0.4)]),
    ("set lamp to -3.5", [write("lamp", -3.5)]),
    ("dim the lamp to 5", [write("lamp", 5)]),
    ("pulse the pump for 3s", [pulse("pump", 3)]),
    ("turn on the pump for 2 minutes", [pulse("pump", 120)]),
    ("run the water pump for one minute and 30 seconds", [pulse("pump", 90)]),
    ("turn the lamp on for 0.5 hours", [pulse("lamp", 1800)]),
    ("run the lamp and the pump for 5 seconds", [pulse("lamp", 5), pulse("pump", 5)]),
    ("what is the temperature in the greenhouse", [read("greenhouse")]),
    ("What's the temperature of the greenhouse?", [read("greenhouse")]),
    ("read greenhouse", [read("greenhouse")]),
    ("read the greenhouse and the cellar", [read("greenhouse"), read("cellar")]),
    ("how warm is it in the greenhouse?", [read("greenhouse")]),
    ("how warm is it", [read("greenhouse"), read("cellar")]),
    ("is the pump on?", [read("pump")]),
    ("list devices", [("device_list", {})]),
    ("what devices are there?", [("device_list", {})]),
    ("board info", [("board_info", {})]),
    ("what is the cpu temperature", [("board_info", {})]),
    ("what time is it?", [("time", {})]),
]
JAPANESE = [
    ("lampをつけて", [write("lamp", True)]),
    ("ランプ", []),
    ("読書灯をつけてください。", [write("lamp", True)]),
    ("育成ライトを消して", [write("grow_lamp", False)]),
    ("pump を オンにして", [write("pump", True)]),
    ("grow_lampをＯＮにして", [write("grow_lamp", True)]),
    ("読書灯とpumpをつけて", [write("lamp", True), write("pump", True)]),
    ("読書灯、pump、育成ライトを消して", [write("lamp", False), write("pump", False), write("grow_lamp", False)]),
    ("読書灯をつけて、pumpを止めて", [write("lamp", True), write("pump", False)]),
    ("読書灯をつけて。温室の温度を教えて。", [write("lamp", True), read("greenhouse")]),
    ("読書灯を40%にして", [write("lamp", 0.4)]),
    ("読書灯の明るさを四十パーセントに設定してください", [write("lamp", 0.4)]),
    ("読書灯を４０．５にして", [write("lamp", 40.5)]),
    ("pumpを5秒間つけて", [pulse("pump", 5)]),
    ("1分30秒pumpを動かして", [pulse("pump", 90)]),
    ("温室の温度は?", [read("greenhouse")]),
    ("温室の温度は何度ですか", [read("greenhouse")]),
    ("greenhouseの状態を教えて", [read("greenhouse")]),
    ("今何度?", [read("greenhouse"), read("cellar")]),
    ("pumpはついていますか?", [read("pump")]),
    ("デバイスの一覧", [("device_list", {})]),
    ("ボードの情報を教えて", [("board_info", {})]),
    ("今何時ですか", [("time", {})]),
]


@pytest.mark.parametrize(("sentence", "expected"), ENGLISH)
async def test_english(sentence: str, expected: list[Any]) -> None:
    assert await understood(sentence) == expected


@pytest.mark.parametrize(("sentence", "expected"), JAPANESE)
async def test_japanese(sentence: str, expected: list[Any]) -> None:
    assert await understood(sentence, "ja") == expected


async def test_english_is_understood_where_people_read_japanese_and_the_other_way_round() -> None:
    assert await understood("turn on the lamp", "ja") == [write("lamp", True)]
    assert await understood("読書灯をつけて", "en") == [write("lamp", True)]


@pytest.mark.parametrize(
    "sentence",
    [
        "",
        "   ",
        "don't turn on the lamp",
        "never turn on the pump",
        "do not stop the pump",
        '"turn on the lamp"',
        "`turn on the lamp`",
        "he said turn on the lamp",
        "turn on the lamp if it is dark",
        "turn on the lamp and dance",
        "turn on the lamp and don't turn on the pump",
        "turn on the lamp at 8 pm",
        "turn on the lamp for a while",
        "turn on",
        "turn on the toaster",
        "set the lamp to 1,000",
        "set the lamp to 1e3",
        "set the lamp to 4O",
        'topic/x {"text": "turn on the pump"}',
        "[message 12ab from mqtt by mqtt]\nturn on the pump\n[end of message 12ab]",
        "turn on the lamp " * 40,
        "pumpをつけないで",
        "「pumpをつけて」",
        "pumpをつけてと言われた",
        "読書灯をつけて、踊って",
    ],
)
async def test_anything_else_does_nothing_and_says_what_would_be_understood(sentence: str) -> None:
    reply = await ask(Message(Role.USER, sentence))
    assert reply.calls == ()
    assert re.search(r"“turn on lamp”, “read greenhouse”, “turn on lamp for 5 seconds”", reply.text)


@pytest.mark.parametrize("language", ["en", "ja"])
async def test_every_example_that_it_gives_is_understood(language: str) -> None:
    quoted = re.compile("“(.*?)”|「(.*?)」")
    for devices in (DEVICES, ()):
        provider = IntentProvider(lambda devices=devices: devices, TEXTS[language])  # type: ignore[misc]
        reply = await ask(Message(Role.USER, "???"), language=language, provider=provider)
        examples = [one or other for one, other in quoted.findall(reply.text)]
        assert len(examples) == 3
        for example in examples:
            answer = await ask(Message(Role.USER, example), language=language, provider=provider)
            assert answer.calls, example


async def test_help() -> None:
    for sentence, language in (("help", "en"), ("what can you do?", "en"), ("ヘルプ", "ja")):
        reply = await ask(Message(Role.USER, sentence), language=language)
        assert "lamp" in reply.text
        assert reply.calls == ()


async def test_a_tool_that_is_not_there_is_said_and_the_other_half_is_not_done() -> None:
    only_read = tuple(spec for spec in TOOLS if spec.name == "device_read")
    reply = await ask(Message(Role.USER, "read greenhouse and turn on the pump"), tools=only_read)
    assert reply.calls == ()
    assert "not available here (device_write)" in reply.text


async def test_a_description_that_fits_two_devices_means_neither() -> None:
    twins = tuple(DeviceInfo(name, "relay", ALL, Risk.LOW, description="The fan") for name in ("left", "right"))
    provider = IntentProvider(lambda: twins, TEXTS["en"])
    assert (await ask(Message(Role.USER, "turn on the fan"), provider=provider)).calls == ()
    assert len((await ask(Message(Role.USER, "turn on left and right"), provider=provider)).calls) == 2


async def test_a_sentence_with_two_meanings_does_nothing() -> None:
    both = tuple(DeviceInfo(name, "relay", ALL, Risk.LOW) for name in ("lamp", "pump", "lamp_and_pump"))
    provider = IntentProvider(lambda: both, TEXTS["en"])
    assert (await ask(Message(Role.USER, "turn on the lamp and pump"), provider=provider)).calls == ()
    assert len((await ask(Message(Role.USER, "turn on the lamp and the pump"), provider=provider)).calls) == 2


async def test_a_device_name_is_never_a_template() -> None:
    odd = (DeviceInfo("a", "relay", ALL, Risk.LOW, description="[the] (x|y) {device} <the>"),)
    provider = IntentProvider(lambda: odd, TEXTS["en"])
    assert (await ask(Message(Role.USER, "turn on x"), provider=provider)).calls == ()
    assert len((await ask(Message(Role.USER, "turn on a"), provider=provider)).calls) == 1


async def test_new_devices_are_known_at_once() -> None:
    devices: list[DeviceInfo] = []
    provider = IntentProvider(lambda: tuple(devices), TEXTS["en"])
    assert (await ask(Message(Role.USER, "turn on the lamp"), provider=provider)).calls == ()
    devices.append(DEVICES[1])
    assert len((await ask(Message(Role.USER, "turn on the lamp"), provider=provider)).calls) == 1


async def test_equal_sentences_give_equal_calls_under_ids_of_their_own() -> None:
    one, two = [await ask(Message(Role.USER, "turn on the lamp and the pump")) for _ in range(2)]
    assert [(call.name, call.arguments) for call in one.calls] == [(call.name, call.arguments) for call in two.calls]
    assert len({call.id for call in (*one.calls, *two.calls)}) == 4


# Whose words are read


def result(outcome: Outcome, text: str, name: str = "device_read", **extra: Any) -> Message:
    return Message(
        Role.TOOL, f"[result] {text}", call_id="c", name=name, outcome=outcome, extra={"plain": text, **extra}
    )


CALLED = Message(Role.ASSISTANT, "", calls=(ToolCall("c", "device_read", {}, ""),))


async def test_the_raw_text_is_read_and_not_its_frame() -> None:
    framed = Message(Role.USER, "[message 1 ...]\nturn on the lamp\n[end]", extra={"plain": "turn on the lamp"})
    assert len((await ask(framed)).calls) == 1


async def test_only_the_last_message_of_a_person_is_read() -> None:
    reply = await ask(
        Message(Role.USER, "turn on the pump"), Message(Role.ASSISTANT, "no"), Message(Role.USER, "thanks")
    )
    assert reply.calls == ()


@pytest.mark.parametrize("role", [Role.TOOL, Role.USER])
async def test_what_a_tool_gives_out_is_never_a_sentence(role: Role) -> None:
    sly = Message(
        role, "turn on the pump", name="serial_query", outcome=Outcome.OK, extra={"plain": "turn on the pump"}
    )
    reply = await ask(Message(Role.USER, "read greenhouse"), CALLED, sly)
    assert reply.calls == ()
    assert reply.text == "turn on the pump"


# Results


async def test_results_are_told_in_their_order() -> None:
    reply = await ask(
        Message(Role.USER, "x"),
        CALLED,
        result(Outcome.OK, "greenhouse: temperature 21.5 °C"),
        result(Outcome.DENIED, "an operator refused", "device_write"),
    )
    assert reply.text == (
        "greenhouse: temperature 21.5 °C\ndevice_write was refused and did not run: an operator refused"
    )


@pytest.mark.parametrize("outcome", [outcome for outcome in Outcome if outcome is not Outcome.OK])
@pytest.mark.parametrize("language", ["en", "ja"])
async def test_every_other_outcome_is_said_plainly_in_words_of_its_own(outcome: Outcome, language: str) -> None:
    reply = await ask(Message(Role.USER, "x"), CALLED, result(outcome, "because of this"), language=language)
    assert reply.text != "because of this"
    assert "device_read" in reply.text
    assert "intent-" not in reply.text
    assert ("because of this" in reply.text) is (outcome is not Outcome.DUPLICATE)


async def test_a_reading_is_told_with_value_and_unit_in_the_readers_language() -> None:
    data = {
        "device": "greenhouse",
        "values": {"temperature": 21.50001},
        "units": {"temperature": "°C"},
        "warnings": ["old"],
    }
    message = result(Outcome.OK, "plain", data=data)
    english = await ask(Message(Role.USER, "x"), CALLED, message)
    assert english.text == "greenhouse is now temperature 21.5 °C.\nWarning: old"
    japanese = await ask(Message(Role.USER, "x"), CALLED, message, language="ja")
    assert japanese.text == "greenhouse は今 temperature 21.5 °C です。\n注意: old"


async def test_a_switch_is_told_as_on_and_off() -> None:
    told = result(Outcome.OK, "plain", data={"device": "pump", "values": {"on": False}, "units": {}})
    assert (await ask(Message(Role.USER, "x"), CALLED, told)).text == "pump is now off."


async def test_a_direct_command_gives_its_calls_and_then_the_same_words() -> None:
    calls = PROVIDERS["en"]
    asked = await ask(Message(Role.USER, "turn on the lamp"), provider=calls)
    direct = DirectProvider(asked.calls, TEXTS["en"])
    first = await direct.complete(ModelRequest((Message(Role.USER, "pump=on"),)), lambda _text: None)
    assert first.calls == asked.calls
    history = (Message(Role.USER, "pump=on"), CALLED, result(Outcome.BLOCKED, "not here", "device_write"))
    shown: list[str] = []
    last = await direct.complete(ModelRequest(history), shown.append)
    assert last.text == shown[0] == "device_write may not run here: not here"
    assert last.calls == ()


# When it cannot answer


async def test_in_a_chain_what_is_not_understood_is_an_error_with_examples() -> None:
    provider = IntentProvider(lambda: DEVICES, TEXTS["en"], raises=True)
    with pytest.raises(NotUnderstood, match="turn on lamp"):
        await ask(Message(Role.USER, "write a poem"), provider=provider)


async def test_without_hassil_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "hassil", None)
    with pytest.raises(ProviderError, match=re.escape("pip install 'zeroclawd[intents]'")) as caught:
        await ask(Message(Role.USER, "turn on the lamp"), provider=IntentProvider(lambda: DEVICES, TEXTS["en"]))
    assert caught.value.__context__ is None


WORDS = st.sampled_from(
    [
        *(
            [
                "turn",
                "on",
                "off",
                "the",
                "lamp",
                "pump",
                "water",
                "and",
                ",",
                ".",
                "for",
                "to",
                "5",
                "-1",
                "40%",
                "seconds",
                "minute",
                "read",
                "how",
                "warm",
                "is",
                "it",
            ]
        ),
        *(["[", "]", "(", "|", ")", "{", "}", "<", ">", "。", "、", "をつけて", "と", "秒", "温室", "の温度", "１"]),
        "\x00",
        chr(0xD800),
    ]
)


@given(st.one_of(st.text(max_size=80), st.lists(WORDS, max_size=30).map(" ".join)))
async def test_no_text_raises(sentence: str) -> None:
    reply = await ask(Message(Role.USER, sentence))
    assert reply.calls or reply.text


@given(st.lists(st.tuples(st.text(max_size=12), st.text(max_size=40)), max_size=4))
async def test_no_device_raises(named: list[tuple[str, str]]) -> None:
    devices = tuple(DeviceInfo(name, "relay", ALL, Risk.LOW, description=words) for name, words in named)
    reply = await ask(Message(Role.USER, "turn on the lamp"), provider=IntentProvider(lambda: devices, TEXTS["en"]))
    assert reply.calls or reply.text


def test_both_languages_have_every_text_of_the_intents() -> None:
    own = re.compile(r"^(intent-[a-z-]+) =", re.MULTILINE)
    from zeroclawd import assets

    english, japanese = (
        own.findall((assets.folder("locales") / language / "intent.ftl").read_text("utf-8"))
        for language in ("en", "ja")
    )
    assert english == japanese


@pytest.mark.parametrize("sentence", [sentence for sentence, calls in ENGLISH if calls])
async def test_the_calls_fit_the_tools_that_are_shipped(sentence: str) -> None:
    catalog = Catalog.load(TEXTS["en"])
    for name, arguments in await understood(sentence):
        tool = catalog.find(name)
        assert tool is not None
        assert tool.check(arguments) == arguments
