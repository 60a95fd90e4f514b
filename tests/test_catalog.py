"""The catalog: one file, one tool; a broken one leaves the others; what is advertised is what can run."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zeroclawd import assets
from zeroclawd.catalog import PACKAGE, BadArguments, Catalog, make
from zeroclawd.config import RiskProfile
from zeroclawd.interfaces import Board
from zeroclawd.locale import Texts
from zeroclawd.tool import Assessment, Effect, Output, Risk, Tool, ToolContext, tool


@pytest.fixture(autouse=True)
def _own_package() -> Iterator[None]:
    """The catalog keeps its package in `sys.modules`; whatever other tests have loaded comes back afterwards."""
    kept = {name: module for name, module in sys.modules.items() if name.partition(".")[0] == PACKAGE}
    yield
    for name in [name for name in sys.modules if name.partition(".")[0] == PACKAGE]:
        del sys.modules[name]
    sys.modules.update(kept)


GOOD = """
from zeroclawd.tool import Effect, Risk, tool

@tool(risk=Risk.LOW, effect=Effect.READ)
async def {name}(text: str = "x") -> str:
    return "{name} " + text
"""


def folder(where: Path, **files: str) -> Path:
    for name, text in files.items():
        (where / f"{name}.py").write_text(text)
    return where


def load(where: Path) -> Catalog:
    return Catalog.load(lambda message: f"words of {message}", where)


async def answer(found: Tool, **arguments: Any) -> Output:
    return await found.run(found.check(arguments), {})


# Files


async def test_a_tool_is_one_file_with_a_coroutine_of_the_same_name(tmp_path: Path) -> None:
    catalog = load(folder(tmp_path, hello=GOOD.format(name="hello")))
    found = catalog.tools["hello"]
    assert list(catalog.tools) == ["hello"]
    assert found.spec.description == "words of tool-hello"
    assert found.spec.parameters["properties"]["text"]["description"] == "words of tool-hello.text"
    assert found.source == str(tmp_path / "hello.py")
    assert found.attribution == "tool.hello"
    assert await answer(found, text="you") == Output("hello you")


BROKEN = {
    "bad_syntax": "async def bad_syntax(:",
    "bad_import": "import no_such_module_anywhere",
    "bad_raise": "raise RuntimeError('at import')",
    "bad_exit": "import sys\nsys.exit(3)",
    "bad_empty": "",
    "bad_name": GOOD.format(name="other_name"),
    "bad_unmarked": "async def bad_unmarked() -> str:\n    return ''",
    "bad_plain": GOOD.format(name="bad_plain").replace("async def", "def"),
    "bad_untyped": GOOD.format(name="bad_untyped").replace("text: str", "text"),
    "bad_star": GOOD.format(name="bad_star").replace('text: str = "x"', "*text: str").replace("+ text", "+ str(text)"),
    "bad_type": GOOD.format(name="bad_type").replace("text: str", "text: NoSuchType"),
    "bad_of__server": GOOD.format(name="bad_of__server"),
    "bad.dotted": GOOD.format(name="bad"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_tool_file_leaves_the_others_and_is_told_with_its_reason(tmp_path: Path, name: str) -> None:
    files = {"aaa": GOOD.format(name="aaa"), name: BROKEN[name], "zzz": GOOD.format(name="zzz")}
    catalog = load(folder(tmp_path, **files))
    assert list(catalog.tools) == ["aaa", "zzz"]
    assert [Path(broken.file).name for broken in catalog.broken] == [f"{name}.py"]
    assert catalog.broken[0].reason.partition(": ")[2]


def test_a_file_that_is_no_utf_8_leaves_the_others(tmp_path: Path) -> None:
    folder(tmp_path, fine=GOOD.format(name="fine"))
    (tmp_path / "torn.py").write_bytes(b"# \xff\xfe")
    catalog = load(tmp_path)
    assert list(catalog.tools) == ["fine"]
    assert len(catalog.broken) == 1


def test_a_mended_file_works_at_the_next_load(tmp_path: Path) -> None:
    assert load(folder(tmp_path, hello="import no_such_module_anywhere")).broken
    catalog = load(folder(tmp_path, hello=GOOD.format(name="hello") + "# mended\n"))
    assert list(catalog.tools) == ["hello"]


def test_two_spellings_of_one_name_are_one_tool_and_one_fault(tmp_path: Path) -> None:
    catalog = load(folder(tmp_path, Hello=GOOD.format(name="Hello"), hello=GOOD.format(name="hello")))
    assert list(catalog.tools) == ["hello"]
    assert "already a tool 'hello'" in catalog.broken[0].reason


async def test_files_with_an_underscore_are_helpers_that_tools_share(tmp_path: Path) -> None:
    helped = GOOD.format(name="helped").replace("\n@tool", "\nfrom zeroclawd_tools._shared import WORD\n\n@tool", 1)
    catalog = load(folder(tmp_path, _shared="WORD = 'shared'", helped=helped.replace('"helped "', "WORD + ' '")))
    assert list(catalog.tools) == ["helped"]
    assert (await answer(catalog.tools["helped"])).text == "shared x"


async def test_another_folder_is_another_catalog(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    one.mkdir()
    other.mkdir()
    first = load(folder(one, hello=GOOD.format(name="hello")))
    second = load(folder(other, hello=GOOD.format(name="hello").replace("hello ", "goodbye ")))
    assert (await answer(first.tools["hello"])).text == "hello x"
    assert (await answer(second.tools["hello"])).text == "goodbye x"


def test_an_empty_folder_is_an_empty_catalog(tmp_path: Path) -> None:
    assert load(tmp_path) == Catalog({})
    assert load(tmp_path).specs() == ()


# The decorator


def made(**given: Any) -> Tool:
    @tool(**given)
    async def valve_set(device: str, board: Board, context: ToolContext, open: bool = True) -> str:
        return f"{device} {open} {board} {context.locale}"

    return make(valve_set.__tool__, str)  # type: ignore[attr-defined]


def test_a_tool_that_says_nothing_of_itself_is_high_and_its_effect_unknown() -> None:
    told = made().assess({"device": "pump"})
    assert told == Assessment(Risk.HIGH, Effect.UNKNOWN)
    assert (made().exclusive, made().repeatable, made().kind) == (False, False, "tool")


def test_a_device_parameter_is_a_resource_that_the_call_holds() -> None:
    told = made(risk=Risk.MEDIUM, effect=Effect.MUTATE, device="device").assess({"device": "pump"})
    assert told == Assessment(Risk.MEDIUM, Effect.MUTATE, frozenset({"device:pump"}), "pump")
    assert made(device="device").assess({}).resources == frozenset()


def test_an_assess_of_its_own_replaces_risk_effect_and_device() -> None:
    own = Assessment(Risk.LOW, Effect.READ)
    found = made(risk=Risk.HIGH, effect=Effect.MUTATE, device="device", assess=lambda _arguments: own)
    assert found.assess({"device": "pump"}) is own


def test_what_the_decorator_says_arrives_at_the_tool() -> None:
    found = made(exclusive=True, repeatable=True, kind="probe")
    assert (found.exclusive, found.repeatable, found.attribution) == (True, True, "probe.valve_set")


async def test_roles_are_handed_in_and_never_taken_from_the_model() -> None:
    found = made()
    assert set(found.spec.parameters["properties"]) == {"device", "open"}
    with pytest.raises(BadArguments, match="unknown field 'board'"):
        found.check({"device": "pump", "board": "mine"})
    roles = {Board: "the board", ToolContext: ToolContext(Path(), locale="ja")}
    assert await found.run(found.check({"device": "pump"}), roles) == Output("pump True the board ja")


async def test_a_tool_may_return_text_or_an_output_with_data() -> None:
    @tool()
    async def both() -> Output:
        return Output("text", {"a": 1})

    found = make(both.__tool__, str)  # type: ignore[attr-defined]
    assert await found.run({}, {}) == Output("text", {"a": 1})


# Names and scopes


@pytest.mark.parametrize("spelling", ["hello", "Hello", " HELLO ", "ｈｅｌｌｏ"])
def test_a_tool_is_found_in_any_spelling(tmp_path: Path, spelling: str) -> None:
    catalog = load(folder(tmp_path, hello=GOOD.format(name="hello")))
    assert catalog.find(spelling) is catalog.tools["hello"]
    assert catalog.find("hell") is None


NAMES = ("alpha", "beta", "gamma")


def three() -> Catalog:
    def one(name: str) -> Tool:
        @tool()
        async def function() -> str:
            return name

        function.__name__ = name
        return make(cast(Any, function).__tool__, str)

    return Catalog({name: one(name) for name in reversed(NAMES)})


names = st.lists(st.sampled_from((*NAMES, "Alpha ", "delta")), max_size=3)


@given(names, names, st.none() | names, st.booleans())
def test_advertised_is_executable(
    allowed: list[str], excluded: list[str], per_run: list[str] | None, cli: bool
) -> None:
    profile = RiskProfile(allowed_tools=allowed, excluded_tools=excluded)
    scoped = three().scoped(profile, per_run=per_run, local_cli=cli)
    advertised = [spec.name for spec in scoped.specs()]
    assert advertised == sorted(scoped.tools)
    for name in NAMES:
        assert (scoped.find(name) is not None) == (name in advertised)
    again = scoped.scoped(profile, per_run=per_run, local_cli=cli)
    assert [spec.name for spec in again.specs()] == advertised


def told(catalog: Catalog) -> str:
    return json.dumps([(spec.name, spec.description, spec.parameters) for spec in catalog.specs()])


def test_specs_are_the_same_bytes_every_time_and_in_the_order_of_the_names() -> None:
    profile = RiskProfile()
    assert [spec.name for spec in three().specs()] == list(NAMES)
    assert told(three()) == told(three()) == told(three().scoped(profile))


# The shipped tools

SHIPPED = sorted(path.stem for path in assets.folder("tools").glob("[!_]*.py"))
LANGUAGES = sorted(path.name for path in assets.folder("locales").iterdir() if path.is_dir())


@pytest.fixture(scope="module", params=LANGUAGES)
def shipped(request: pytest.FixtureRequest) -> Catalog:
    return Catalog.load(Texts(request.param))


def test_every_shipped_tool_loads(shipped: Catalog) -> None:
    assert shipped.broken == ()
    assert sorted(shipped.tools) == SHIPPED


@pytest.mark.parametrize("name", SHIPPED)
def test_every_shipped_tool_has_words_for_itself_and_each_parameter(shipped: Catalog, name: str) -> None:
    spec = shipped.tools[name].spec
    message = f"tool-{name.replace('_', '-')}"
    assert spec.description.strip()
    assert not spec.description.startswith(message), f"no text for {message}"
    for parameter, part in spec.parameters["properties"].items():
        words = part.get("description", "")
        assert words.strip(), f"no text for {message}.{parameter}"
        assert not words.startswith(message), f"no text for {message}.{parameter.replace('_', '-')}"


@pytest.mark.parametrize("name", SHIPPED)
def test_every_shipped_tool_judges_itself_as_decided(shipped: Catalog, name: str) -> None:
    """Low has no side effect, and what changes something or may is not low, whatever the arguments are."""
    told = shipped.tools[name].assess({})
    assert (told.risk is Risk.LOW) == (told.effect is Effect.READ)


def test_specs_of_the_shipped_tools_are_the_same_bytes_at_every_load() -> None:
    assert told(Catalog.load(Texts("en"))) == told(Catalog.load(Texts("en")))
