"""Names, arguments and schemas: one spelling for what means the same, and no guess about what does not fit."""

from __future__ import annotations

import json
import math
from typing import Annotated, Any, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zeroclawd.interfaces import Board
from zeroclawd.schema import BadArguments, Signature, canonical, canonical_name, signature
from zeroclawd.tool import ToolContext

words = st.text(st.characters(codec="utf-8"), max_size=8)
numbers = (
    st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from((0, 1, 1.0, -0.0, 2**53, 2.0**53, 2**53 + 1, 10**22, 1e22))
)
json_values = st.recursive(
    st.none() | st.booleans() | numbers | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=6,
)


def same(one: Any, other: Any) -> bool:
    """Whether two JSON values say the same: numbers by value, booleans apart from numbers, objects in any order."""
    match one, other:
        case (bool(), _) | (_, bool()):
            return one is other
        case (int() | float(), int() | float()):
            return one == other
        case (dict(), dict()):
            return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
        case (list(), list()):
            return len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and one == other


# One canonical form


@given(json_values, json_values)
def test_two_json_values_share_their_bytes_exactly_if_they_say_the_same(one: Any, other: Any) -> None:
    assert (canonical(one) == canonical(other)) == same(one, other)


@given(json_values)
def test_the_canonical_form_is_json_that_says_the_same_and_is_its_own_canonical_form(value: Any) -> None:
    told = json.loads(canonical(value))
    assert same(told, value)
    assert canonical(told) == canonical(value)


@given(st.dictionaries(words, json_values, max_size=5), st.randoms())
def test_the_order_of_keys_does_not_show(value: dict[str, Any], random: Any) -> None:
    keys = list(value)
    random.shuffle(keys)
    assert canonical({key: value[key] for key in keys}) == canonical(value)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ({"a": {"x": 1, "y": [1, 2]}}, {"a": {"y": [1.0, 2.0], "x": 1.0}}),
        (1, 1.0),
        (0, -0.0),
        (2**53, 2.0**53),
        (10**22, 1e22),
        ((1, 2), [1, 2]),
        (json.loads('{ "a" : [ 1 ,\n 2 ] }'), json.loads('{"a":[1,2]}')),
        (json.loads('{"a":1e2}'), json.loads('{"a":100}')),
        (json.loads(r'{"a":"\u00e9"}'), json.loads('{"a":"é"}')),
    ],
)
def test_what_means_the_same_is_spelled_the_same(one: Any, other: Any) -> None:
    assert canonical(one) == canonical(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (True, 1),
        (False, 0),
        (None, "null"),
        ("1", 1),
        ([], {}),
        ([1, 2], [2, 1]),
        ([[1], 2], [1, [2]]),
        ("", None),
        ({"a": None}, {}),
        (2**53, 2**53 + 1),
        ("é", "e\u0301"),
        (1.5, "1.5"),
    ],
)
def test_what_differs_is_spelled_differently(one: Any, other: Any) -> None:
    assert canonical(one) != canonical(other)


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    "value",
    [
        math.nan,
        math.inf,
        -math.inf,
        {"a": [math.nan]},
        "\ud800",
        {"\udfff": 1},
        {1: "a"},
        {None: 1},
        b"x",
        {"a": {1, 2}},
        pytest.param(10**5000, id="more digits than int takes"),
        pytest.param(-(10**400), id="more digits than any float has"),
        pytest.param(nested(100_000), id="nested"),
    ],
)
def test_what_json_cannot_say_has_no_canonical_form(value: Any) -> None:
    with pytest.raises(BadArguments):
        canonical(value)


# Names and signatures of calls


@pytest.mark.parametrize("spelling", ["shell", " Shell ", "SHELL", "\tshell\n", "ｓｈｅｌｌ"])
def test_every_spelling_of_a_name_is_one_name(spelling: str) -> None:
    assert canonical_name(spelling) == "shell"


@given(st.text(max_size=20))
def test_the_canonical_name_of_a_canonical_name_is_itself(name: str) -> None:
    assert canonical_name(canonical_name(name)) == canonical_name(name)


def test_a_signature_is_equal_for_calls_that_mean_the_same_and_only_for_those() -> None:
    told = signature(" Shell ", {"b": 1, "a": [2, 1]})
    assert told == signature("shell", {"a": [2.0, 1], "b": 1.0})
    assert told != signature("shell", {"a": [1, 2], "b": 1})
    assert told != signature("shell", {"a": [2, 1], "b": 1, "approved": False})
    assert told != signature("shell2", {"a": [2, 1], "b": 1})


@pytest.mark.parametrize(
    "value", [math.inf, "\ud800", pytest.param(nested(100_000), id="nested"), pytest.param(10**5000, id="long")]
)
def test_a_call_that_no_tool_can_take_still_has_a_signature(value: Any) -> None:
    told = signature("shell", {"a": value})
    assert told.startswith("shell ")
    assert told != signature("shell", {})
    told.encode()


# Schemas


async def everything(
    whole: int,
    number: float,
    switch: bool,
    text: str,
    board: Board,
    context: ToolContext,
    word: Literal["on", "off"] = "on",
    step: Literal[1, 2] = 1,
    maybe: int | None = None,
    many: list[int] = [],  # noqa: B006
    names: list[str] | None = None,
    either: bool | float | str = 0,
    count: int | float = 0,
    percent: Annotated[int, msgspec.Meta(ge=0, le=100)] = 0,
) -> str:
    return ""


EVERYTHING = Signature(everything, (Board, ToolContext))
NEEDED = {"whole": 1, "number": 1.5, "switch": True, "text": "x"}


def checked(**given: Any) -> dict[str, Any]:
    return EVERYTHING.check({**NEEDED, **given})


def refusal(**given: Any) -> str:
    with pytest.raises(BadArguments) as caught:
        checked(**given)
    return str(caught.value)


def test_the_schema_names_every_parameter_with_its_type_and_words() -> None:
    schema = EVERYTHING.schema(lambda name: f"words of {name}")
    properties = schema["properties"]
    assert schema["type"] == "object"
    assert schema["required"] == ["whole", "number", "switch", "text"]
    assert schema["additionalProperties"] is False
    assert properties["whole"] == {"type": "integer", "description": "words of whole"}
    assert properties["number"]["type"] == "number"
    assert properties["switch"]["type"] == "boolean"
    assert properties["text"]["type"] == "string"
    assert properties["word"] == {"enum": ["off", "on"], "default": "on", "description": "words of word"}
    assert properties["many"]["items"] == {"type": "integer"}
    assert {"type": "null"} in properties["maybe"]["anyOf"]
    assert "default" not in properties["maybe"]
    assert (properties["percent"]["minimum"], properties["percent"]["maximum"]) == (0, 100)


def test_roles_are_hidden_from_the_schema_and_refused_as_arguments() -> None:
    assert EVERYTHING.roles == {"board": Board, "context": ToolContext}
    assert not {"board", "context"} & set(EVERYTHING.schema(str)["properties"])
    assert "unknown field 'board'" in refusal(board="x")


def test_a_parameter_without_words_has_no_description_rather_than_an_empty_one() -> None:
    assert "description" not in EVERYTHING.schema(lambda _name: "")["properties"]["whole"]


def test_the_schema_has_no_references_and_is_the_same_bytes_every_time() -> None:
    told = [json.dumps(Signature(everything, (Board, ToolContext)).schema(str)) for _ in range(3)]
    assert "$ref" not in told[0]
    assert told[0] == told[1] == told[2]


def test_a_parameter_that_cannot_be_given_by_name_or_has_no_type_is_refused() -> None:
    async def by_place(a: int, /) -> str: ...
    async def any_number(*a: int) -> str: ...
    async def any_names(**a: int) -> str: ...
    async def untyped(a) -> str: ...  # type: ignore[no-untyped-def]

    for function in (by_place, any_number, any_names, untyped):
        with pytest.raises(TypeError, match="parameter 'a'"):
            Signature(function, ())


class Inner(msgspec.Struct):
    a: int


async def structured(a: Inner) -> str:
    return ""


def test_a_parameter_of_a_class_would_need_references_and_is_refused() -> None:
    with pytest.raises(TypeError, match="plain JSON types"):
        Signature(structured, ()).schema(str)


# Checking


@pytest.mark.parametrize(
    ("name", "given", "taken"),
    [
        ("whole", 2, 2),
        ("whole", "2", 2),
        ("whole", " -2 ", -2),
        ("whole", "0", 0),
        ("whole", 3.0, 3),
        ("whole", "3.0", 3),
        ("whole", "1e3", 1000),
        ("whole", str(2**63 + 1), 2**63 + 1),
        ("number", 1, 1.0),
        ("number", "1.5", 1.5),
        ("number", "-2e-3", -0.002),
        ("number", "7", 7.0),
        ("switch", "true", True),
        ("switch", " False ", False),
        ("text", "true", "true"),
        ("text", "12", "12"),
        ("text", "", ""),
        ("word", "off", "off"),
        ("step", "2", 2),
        ("step", 2.0, 2),
        ("maybe", None, None),
        ("maybe", "3", 3),
        ("maybe", 3.0, 3),
        ("many", ["1", 2.0, 3], [1, 2, 3]),
        ("names", ["1", "true"], ["1", "true"]),
        ("either", "on", "on"),
        ("either", "true", "true"),
        ("either", "1", "1"),
        ("either", True, True),
        ("either", 0.5, 0.5),
        ("count", "3", 3),
        ("count", "3.0", 3.0),
        ("count", 3.0, 3.0),
        ("percent", "100", 100),
    ],
)
def test_arguments_are_read_as_what_they_say(name: str, given: Any, taken: Any) -> None:
    found = checked(**{name: given})[name]
    assert found == taken
    assert type(found) is type(taken)


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("whole", 3.5),
        ("whole", "3.5"),
        ("whole", True),
        ("whole", "true"),
        ("whole", None),
        ("whole", ""),
        ("whole", "1_000"),
        ("whole", "٣"),
        ("whole", "٣.0"),
        ("whole", "007"),
        ("whole", "+7"),
        ("whole", "0x10"),
        ("whole", "2 3"),
        ("whole", "1e400"),
        ("whole", "9" * 5000),
        ("whole", [1]),
        ("whole", {"a": 1}),
        ("number", "nan"),
        ("number", "inf"),
        ("number", "-Infinity"),
        ("number", "1e400"),
        ("number", math.nan),
        ("number", math.inf),
        ("number", "1_0.5"),
        ("number", ".5"),
        ("number", "1."),
        ("number", True),
        pytest.param("number", 10**400, id="number-long"),
        ("switch", "yes"),
        ("switch", "on"),
        ("switch", "1"),
        ("switch", 1),
        ("switch", 0.0),
        ("text", 5),
        ("text", None),
        ("text", "\ud800"),
        ("text", ["x"]),
        ("word", "On"),
        ("step", 3),
        ("maybe", "null"),
        ("maybe", ""),
        ("many", "[1,2]"),
        ("many", ["1.5"]),
        ("many", [True]),
        ("names", [1]),
        ("either", None),
        ("either", [1]),
        ("count", "on"),
        ("percent", 101),
        ("percent", "-1"),
    ],
)
def test_what_does_not_fit_is_refused_and_never_guessed(name: str, given: Any) -> None:
    refusal(**{name: given})


def test_a_refusal_names_the_parameter_what_was_expected_and_what_there_is() -> None:
    told = refusal(whole="many")
    assert told.startswith("whole: ")
    assert "'int'" in told
    assert "parameters: whole, number, switch, text, word" in told


def test_an_unknown_parameter_is_refused_with_the_names_that_exist() -> None:
    told = refusal(wholle=1)
    assert "unknown field 'wholle'" in told
    assert "whole, number" in told


def test_a_missing_parameter_is_named() -> None:
    with pytest.raises(BadArguments, match="missing required field 'whole'"):
        EVERYTHING.check({})


def test_a_wrong_choice_is_answered_with_the_choices() -> None:
    assert "'on', 'off'" in refusal(word="up")
    assert "1, 2" in refusal(step=7)


def test_the_place_in_a_list_is_told() -> None:
    assert refusal(many=[1, "x"]).startswith("many[1]: ")


def test_a_tool_without_parameters_says_so() -> None:
    async def nothing() -> str:
        return ""

    with pytest.raises(BadArguments, match=r"parameters: none"):
        Signature(nothing, ()).check({"a": 1})
    assert Signature(nothing, ()).check({}) == {}


def test_defaults_are_filled_in_so_that_spelling_one_out_makes_no_other_call() -> None:
    implied = EVERYTHING.check(NEEDED)
    assert implied.items() >= NEEDED.items()
    assert set(implied) == set(EVERYTHING.types)
    spelled_out = EVERYTHING.check({**NEEDED, "count": implied["count"]})
    assert canonical(spelled_out) == canonical(implied)


@given(st.dictionaries(st.sampled_from(sorted(EVERYTHING.types)) | words, json_values, max_size=6))
def test_any_json_is_checked_or_refused_and_what_is_checked_stays_as_it_is(arguments: dict[str, Any]) -> None:
    given = {**NEEDED, **arguments}
    try:
        taken = EVERYTHING.check(given)
    except BadArguments:
        return
    assert EVERYTHING.check(taken) == taken
    assert canonical(EVERYTHING.check(taken)) == canonical(taken)
