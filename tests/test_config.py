"""The config: every key of the types parses, and whatever is wrong is told with file, line, key and what was meant."""

from __future__ import annotations

import datetime
import json
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zeroclawd.config import Bytes, Config, DeviceConfig, Seconds, duration, line_of, load, parse, secret, size
from zeroclawd.errors import ConfigError, KeyFileError
from zeroclawd.signing import Keypair

Document = dict[str, Any]

# What cannot be any text or number, because something else in the file must fit it.
SPECIAL: Document = {
    "agent.risk_profile": "one",
    "agent.runtime_profile": "one",
    "agent.providers": ["one", "intent"],
    "risk_profiles.one.level": "full",
    "providers.one.kind": "openai",
    "providers.one.base_url": "https://example.com/v1",
    "operators.one.public_key": Keypair(b"1" * 32).public,
    "operators.one.devices": ["one"],
    "operators.one.groups": ["garden"],
    "devices.one.groups": ["garden"],
    "devices.one.quorum": 1,
    "devices.one.options": None,
    # of two ways to name a secret only one may be used
    "providers.one.api_key_env": None,
    "providers.one.api_key_credential": None,
    "channels.mqtt.one.password_env": None,
    "channels.mqtt.one.password_credential": None,
    "operators.one.hmac_key_file": None,
}


def is_section(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def example(kind: Any, path: str) -> Any:
    """A value of the declared type that is not the default, built from the type itself."""
    if path in SPECIAL:
        return SPECIAL[path]
    if is_section(kind):
        parts = {f.name: example(f.type, f"{path}.{f.name}" if path else f.name) for f in msgspec.structs.fields(kind)}
        return {name: value for name, value in parts.items() if value is not None}
    match get_origin(kind):
        case origin if origin is Literal:
            return get_args(kind)[-1]
        case origin if origin is dict:
            return {"one": example(get_args(kind)[1], f"{path}.one")}
        case origin if origin is list:
            return [example(get_args(kind)[0], f"{path}[0]")]
        case origin if origin in (types.UnionType, Union):
            return example(get_args(kind)[0], path)
    return {bool: True, int: 7, float: 0.5, str: "text", Seconds: "90s", Bytes: "64kB", Any: "anything"}[kind]


def document() -> Document:
    return dict(example(Config, ""))


def write(table: Document, path: str = "") -> Iterator[tuple[str, str]]:
    """The lines of a table as TOML, each with the dotted key that stands on it."""
    if path:
        yield path, f"[{path}]"
    inner = {key: value for key, value in table.items() if isinstance(value, dict)}
    for key, value in table.items():
        if key not in inner:
            yield (f"{path}.{key}" if path else key), f"{key} = {value_of(value)}"
    for key, value in inner.items():
        yield from write(value, f"{path}.{key}" if path else key)


def value_of(value: Any) -> str:
    match value:
        case datetime.date():
            return value.isoformat()
        case dict():
            return "{" + ", ".join(f"{json.dumps(key)} = {value_of(inner)}" for key, inner in value.items()) + "}"
        case list():
            return "[" + ", ".join(map(value_of, value)) + "]"
    return json.dumps(value)


def text_of(table: Document) -> str:
    return "".join(f"{line}\n" for _, line in write(table))


def line_in(table: Document, path: str) -> int:
    return next(number for number, (key, _) in enumerate(write(table), 1) if key == path)


def leaves(table: Document, path: str = "") -> Iterator[str]:
    for key, value in table.items():
        here = f"{path}.{key}" if path else key
        yield from leaves(value, here) if isinstance(value, dict) else [here]


def sections(table: Document, path: str = "") -> Iterator[str]:
    yield path
    for key, value in table.items():
        if isinstance(value, dict):
            yield from sections(value, f"{path}.{key}" if path else key)


def table_at(table: Document, path: str) -> Document:
    for part in filter(None, path.split(".")):
        table = table[part]
    return table


def parsed(text: str) -> Config:
    return parse(text, "zeroclawd.toml").config


def refusal(text: str) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        parse(text, "zeroclawd.toml")
    assert str(caught.value).startswith("zeroclawd.toml")
    assert caught.value.reason
    return caught.value


def told(text: str) -> tuple[int, str, str]:
    error = refusal(text)
    return error.line, error.key, error.reason


LEAVES = list(leaves(document()))
SECTIONS = list(sections(document()))


# Every key


def test_an_empty_file_is_a_config() -> None:
    assert parsed("") == Config()
    assert parsed("# only a comment\n") == Config()


def test_every_key_of_the_types_is_in_the_example() -> None:
    keys = {path.rpartition(".")[2] for path in [*LEAVES, *SECTIONS, *SPECIAL]}
    kinds = [Config]
    while kinds:
        for field in msgspec.structs.fields(kinds.pop()):
            assert field.name in keys
            kinds += [kind for kind in (field.type, *get_args(field.type)) if is_section(kind)]


def test_every_key_set_once_is_accepted_and_what_is_in_effect_is_what_the_file_says() -> None:
    given = document()
    config = parsed(text_of(given))
    for path in LEAVES:
        value: Any = config
        for part in path.split("."):
            value = value[part] if isinstance(value, dict) else getattr(value, part)
        wanted = table_at(given, path.rpartition(".")[0])[path.rpartition(".")[2]]
        if isinstance(value, Seconds):
            assert value == 90.0, path
        elif isinstance(value, Bytes):
            assert value == 64_000, path
        else:
            assert value == wanted, path


@pytest.mark.parametrize("path", ["runtime_profiles.one", "risk_profiles.one", "board", "ledger", "channels.mqtt.one"])
def test_a_table_of_one_key_leaves_the_others_at_their_defaults(path: str) -> None:
    for leaf in [leaf for leaf in LEAVES if leaf.rpartition(".")[0] == path]:
        key = leaf.rpartition(".")[2]
        parsed(f"[{path}]\n{key} = {value_of(table_at(document(), path)[key])}\n")


@pytest.mark.parametrize("path", [path for path in SECTIONS if not path.startswith("devices.")])
def test_an_unknown_key_in_any_section_is_an_error_with_its_line(path: str) -> None:
    given = document()
    at = f"{path}.qqq" if path else "qqq"
    table_at(given, path)["qqq"] = 1
    line, key, reason = told(text_of(given))
    assert (line, key) == (line_in(given, at), at)
    assert reason.startswith(("unknown key; known here: ", "there is no such key here; "))


TYPOS = [path for path in LEAVES if not path.startswith("devices.")]


@pytest.mark.parametrize("path", TYPOS)
def test_a_typo_in_any_key_is_an_error_that_names_the_right_one(path: str) -> None:
    given = document()
    section, _, name = path.rpartition(".")
    typo = name[:2] + name[3:] if len(name) > 4 else name + "s"
    table = table_at(given, section)
    table[typo] = table.pop(name)
    at = f"{section}.{typo}"
    line, key, reason = told(text_of(given))
    assert (line, key) == (line_in(given, at), at)
    assert reason == f"unknown key; did you mean '{name}'?"


def test_the_typo_of_the_tracker_is_told() -> None:
    text = '[risk_profiles.edge]\nlevel = "read_only"\naproval_timeout = "5m"\n'
    assert told(text) == (3, "risk_profiles.edge.aproval_timeout", "unknown key; did you mean 'approval_timeout'?")


@pytest.mark.parametrize("name", [field.name for field in msgspec.structs.fields(Config)])
def test_a_typo_in_the_name_of_a_section_is_told(name: str) -> None:
    typo = name[:-2] + name[-1]
    line, key, reason = told(f"\n[{typo}.one]\n")
    assert (line, key) == (2, typo)
    assert reason == f"unknown key; did you mean '{name}'?"


@pytest.mark.parametrize("wrong", [datetime.date(2026, 1, 2), {"qqq": 1}, [[1]], {}], ids=repr)
@pytest.mark.parametrize("path", [path for path in LEAVES if not path.endswith(".replies")])
def test_a_value_of_the_wrong_type_is_an_error_with_its_line(path: str, wrong: Any) -> None:
    given = document()
    section, _, name = path.rpartition(".")
    table_at(given, section)[name] = wrong
    line, key, reason = told(text_of(given))
    assert key.removesuffix("[0]") == path
    assert line == line_in(given, path)
    assert reason.startswith(("must be ", "a duration is ", "a size is "))
    assert "`" not in reason


@pytest.mark.parametrize("path", [path for path in SECTIONS if path])
@pytest.mark.parametrize("wrong", [5, "text", [1], [{"a": 1}], True])
def test_what_is_no_table_where_one_belongs_is_an_error(path: str, wrong: Any) -> None:
    given = document()
    section, _, name = path.rpartition(".")
    table_at(given, section)[name] = wrong
    lines = [line for _, line in write(given)]
    if not section:  # keys of the root stand before the first table
        row = f"{name} = {value_of(wrong)}"
        lines = [row, *(line for line in lines if line != row)]
    _, key, _ = told("\n".join(lines))
    assert key.startswith(path)


# Choices


def choices() -> Iterator[tuple[str, tuple[Any, ...]]]:
    def walk(kind: Any, path: str) -> Iterator[tuple[str, tuple[Any, ...]]]:
        for field in msgspec.structs.fields(kind):
            here = f"{path}.{field.name}" if path else field.name
            for part in (field.type, *get_args(field.type)):
                if get_origin(part) is Literal:
                    yield here, get_args(part)
                elif is_section(part):
                    yield from walk(part, f"{here}.one" if get_origin(field.type) is dict else here)

    return walk(Config, "")


@pytest.mark.parametrize(("path", "known"), list(choices()))
def test_a_wrong_choice_is_answered_with_the_choices(path: str, known: tuple[str, ...]) -> None:
    given = document()
    section, _, name = path.rpartition(".")
    table_at(given, section)[name] = "qqqqq"
    line, key, reason = told(text_of(given))
    assert (line, key) == (line_in(given, path), path)
    assert reason == f"must be one of {', '.join(map(repr, known))}, not 'qqqqq'"


def test_a_choice_that_is_nearly_right_is_named() -> None:
    assert told('[observability]\nlog_level = "warn"')[2].endswith("not 'warn'; did you mean 'warning'?")
    assert told('[risk_profiles.a]\nlevel = "supervise"')[2].endswith("not 'supervise'; did you mean 'supervised'?")
    assert told('[devices.a]\nkind = "led"\nrisk = "hihg"')[2].endswith("not 'hihg'; did you mean 'high'?")


@pytest.mark.parametrize("level", ["read_only", "readonly", "supervised", "full"])
def test_every_level_is_accepted_and_readonly_is_another_spelling(level: str) -> None:
    assert parsed(f'[risk_profiles.default]\nlevel = "{level}"').risk.level == level


@pytest.mark.parametrize("level", ["", "Full", "read-only", "READONLY", "autonomous"])
def test_another_level_is_refused(level: str) -> None:
    _, key, reason = told(f'[risk_profiles.default]\nlevel = "{level}"')
    assert key == "risk_profiles.default.level"
    assert "'read_only', 'supervised' or 'full'" in reason


# Durations, sizes, numbers


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        (0, 0.0),
        (30, 30.0),
        (1.5, 1.5),
        ("500ms", 0.5),
        ("30s", 30.0),
        ("10m", 600.0),
        ("2h", 7200.0),
        ("7d", 604_800.0),
        ("1.5h", 5400.0),
        ("30", 30.0),
        (" 10 m ", 600.0),
    ],
)
def test_a_duration_is_seconds_or_text_with_a_unit(given: Any, seconds: float) -> None:
    assert duration(given) == seconds


@pytest.mark.parametrize(
    "given",
    [
        *("", "s", "ten", "10 years", "1h30m", "-5s", "+5s", "1e3", "٣s", "3 0s", "nan", "inf", "999999999999d"),
        *(-1, -0.5, True, None, [1], float("nan"), float("inf"), 10**11),
        datetime.date(2026, 1, 2),
    ],
)
def test_a_bad_duration_is_refused(given: Any) -> None:
    with pytest.raises(ValueError, match="a duration is a number of seconds or text such as"):
        duration(given)


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (0, 0),
        (10, 10),
        ("10", 10),
        ("10B", 10),
        ("64kB", 64_000),
        ("64 KB", 64_000),
        ("16MB", 16_000_000),
        ("1GB", 10**9),
    ],
)
def test_a_size_is_bytes_or_text_with_a_unit(given: Any, wanted: int) -> None:
    assert size(given) == wanted


@pytest.mark.parametrize("given", ["", "MB", "1.5MB", "5 XB", "-1", "٣MB", "9" * 5000, -1, 1.0, True, None, 10**400])
def test_a_bad_size_is_refused(given: Any) -> None:
    with pytest.raises(ValueError, match="a size is a number of bytes or text such as"):
        size(given)


def test_a_number_that_python_would_not_even_print_is_refused() -> None:
    for read in (duration, size):
        with pytest.raises(ValueError, match="not such a number"):
            read(10**5000)


def test_a_bad_duration_in_a_file_is_told_with_its_place() -> None:
    line, key, reason = told('[risk_profiles.a]\nlevel = "full"\napproval_timeout = "2 minutes"\n')
    assert (line, key) == (3, "risk_profiles.a.approval_timeout")
    assert "'30s' or '10m', not '2 minutes'" in reason


@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "+nan", str(2**63), str(-(2**63) - 1)])
@pytest.mark.parametrize(
    "key", ["providers.a.temperature", "devices.a.safe_state", "devices.a.own_key", "board.estop_pin"]
)
def test_a_number_that_nothing_can_be_done_with_is_refused(key: str, value: str) -> None:
    table, _, name = key.rpartition(".")
    kind = {"providers.a": 'kind = "intent"', "devices.a": 'kind = "led"', "board": 'kind = "sim"'}[table]
    line, at, reason = told(f"[{table}]\n{kind}\n{name} = {value}\n")
    assert (line, at) == (3, key)
    assert "number" in reason


@pytest.mark.parametrize(
    ("table", "key", "value"),
    [
        *[("runtime_profiles.a", name, 0) for name in ("max_tool_iterations", "max_tool_result_chars", "max_parallel")],
        *[("runtime_profiles.a", name, 0) for name in ("max_turns", "queue", "turn_timeout", "shell_timeout")],
        ("runtime_profiles.a", "max_history_messages", -1),
        ("risk_profiles.a", "approval_timeout", 0),
        ("channels.mqtt.a", "max_payload", 0),
        ("channels.mqtt.a", "outbox_count", 0),
        ("board", "timeout", 0),
        ("ledger", "checkpoint_every", 0),
    ],
)
def test_a_bound_that_lets_nothing_through_is_refused(table: str, key: str, value: int) -> None:
    line, at, reason = told(f"[{table}]\n{key} = {value}\n")
    assert (line, at) == (2, f"{table}.{key}")
    assert reason.startswith("must be ")


# TOML and files


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("[agent]\nname = \n", 2),
        ("[agent\n", 1),
        ("[agent]\n\nname 'x'\n", 3),
        ('[agent]\nname = "a"\nname = "b"\n', 3),
        ("[agent]\n[board]\n[agent]\n", 3),
        ("[devices.a]\nkind = 'led'\n[devices.a]\n", 3),
        ("x = [\n1,\n", 3),
        ('x = """\n\n', 3),
        ("a = 1\na.b = 2\n", 2),
    ],
)
def test_broken_toml_is_told_with_its_line(text: str, line: int) -> None:
    error = refusal(text)
    assert error.line == line
    assert error.reason.startswith("is not valid TOML: ")


@pytest.mark.parametrize(
    "text",
    [
        "a = " + "[" * 5000,
        "a = " + "9" * 5000,
        "a = {" + "a={" * 3000,
        "[" + "a." * 5000 + "b]",
        "[devices." + "a." * 5000 + "b]",
    ],
)
def test_toml_without_measure_is_an_error_too(text: str) -> None:
    refusal(text)


def test_a_missing_file_is_told_with_what_to_try(tmp_path: Path) -> None:
    path = tmp_path / "nowhere.toml"
    with pytest.raises(ConfigError) as caught:
        load(path)
    assert str(caught.value) == f"{path}: cannot be read: No such file or directory"
    assert "zeroclawd init" in caught.value.hint


def test_a_folder_or_an_impossible_path_is_told(tmp_path: Path) -> None:
    for path in (tmp_path, "a\0b"):
        with pytest.raises(ConfigError, match="cannot be read"):
            load(path)


def test_a_file_that_is_not_utf_8_is_told_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.write_bytes(b'[agent]\nname = "caf\xe9"\n')
    with pytest.raises(ConfigError) as caught:
        load(path)
    assert str(caught.value) == f"{path}:2: is not UTF-8"


def test_a_file_is_loaded_with_its_text(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.write_bytes('[agent]\r\nname = "温室"\r\n'.encode())
    loaded = load(path)
    assert loaded.config.agent.name == "温室"
    assert loaded.file == str(path)
    error = loaded.locate(ConfigError("is odd", key="agent.name", hint="try"))
    assert (str(error), error.hint) == (f"{path}:2: agent.name: is odd", "try")


# References


@pytest.mark.parametrize(
    ("text", "line", "key", "reason"),
    [
        ('[agent]\nrisk_profile = "edge"', 2, "agent.risk_profile", "there is no [risk_profiles.edge]"),
        ('[agent]\nruntime_profile = "edge"', 2, "agent.runtime_profile", "there is no [runtime_profiles.edge]"),
        ('[agent]\nproviders = ["intent", "cloud"]', 2, "agent.providers", "there is no [providers.cloud]"),
        ("[agent]\nproviders = []", 2, "agent.providers", "needs at least one provider, such as 'intent'"),
        (
            '[agent]\nstate_dir = ""',
            2,
            "agent.state_dir",
            "is the folder of the daemon's own state and cannot be empty",
        ),
        ('[operators.ann]\nhmac_key_file="k"\ndevices=["pmp"]', 3, "operators.ann.devices", "there is no device 'pmp'"),
        (
            '[operators.ann]\nhmac_key_file = "k"\ngroups = ["grden"]\n[devices.a]\nkind = "led"\ngroups = ["garden"]',
            3,
            "operators.ann.groups",
            "no device is in a group 'grden'",
        ),
        ("[operators.ann]\n", 1, "operators.ann", "needs either public_key or hmac_key_file"),
        (
            '[operators.ann]\npublic_key = "a"\nhmac_key_file = "k"',
            1,
            "operators.ann",
            "needs either public_key or hmac_key_file",
        ),
        ("[providers.a]\nmodel = 'm'", 1, "providers.a", "needs 'kind'"),
        ("[devices.a]\npin = 17", 1, "devices.a", "needs 'kind'"),
        (
            "[providers.a]\nkind = 'openai'\nmodel = 'm'",
            1,
            "providers.a.base_url",
            'an openai provider needs base_url = "http(s)://..."',
        ),
        (
            "[providers.a]\nkind = 'openai'\nbase_url = 'https://h'",
            1,
            "providers.a.model",
            "an openai provider needs a model",
        ),
        ("[channels.mqtt.a]\nport = 65536", 2, "channels.mqtt.a.port", "a port is 1 to 65535"),
        ("[channels.mqtt.a]\nkeepalive = '1d'", 2, "channels.mqtt.a.keepalive", "cannot be more than 65535 seconds"),
        (
            "[channels.mqtt.a.tls]\ncert_file = 'c'",
            1,
            "channels.mqtt.a.tls",
            "cert_file and key_file come together",
        ),
    ],
)
def test_what_refers_to_nothing_or_lacks_a_part_is_told(text: str, line: int, key: str, reason: str) -> None:
    assert told(text) == (line, key, reason)


def test_default_profiles_and_the_intent_provider_need_not_be_written() -> None:
    config = parsed('[agent]\nrisk_profile = "default"\nruntime_profile = "default"\nproviders = ["intent"]')
    assert config.risk.level == "supervised"
    assert config.runtime.max_tool_iterations == 10


def test_the_profiles_in_effect_are_those_that_the_agent_names() -> None:
    text = '[agent]\nrisk_profile = "b"\n[risk_profiles.a]\nlevel = "full"\n[risk_profiles.b]\nlevel = "read_only"\n'
    assert parsed(text).risk.level == "read_only"


# What holds where nothing is written


def test_an_approval_times_out_after_120_seconds_unless_configured() -> None:
    assert parsed("").risk.approval_timeout == 120.0
    assert parsed('[risk_profiles.default]\napproval_timeout = "5m"').risk.approval_timeout == 300.0


def test_the_sender_of_a_command_may_not_approve_it_unless_configured() -> None:
    assert not parsed("").risk.sender_may_approve


def test_receipts_are_configured_in_the_agent_and_only_there() -> None:
    receipts = parsed("").agent.tool_receipts
    assert (receipts.enabled, receipts.show_in_response, receipts.inject_system_prompt) == (True, False, True)
    written = "[agent.tool_receipts]\nenabled = false\nshow_in_response = true\ninject_system_prompt = false\n"
    receipts = parsed(written).agent.tool_receipts
    assert (receipts.enabled, receipts.show_in_response, receipts.inject_system_prompt) == (False, True, False)
    for elsewhere in ("tool_receipts", "runtime_profiles.a.tool_receipts", "risk_profiles.a.tool_receipts"):
        assert "[agent.tool_receipts]" in told(f"[{elsewhere}]\nenabled = true")[2]


def test_an_unsigned_decision_lifts_nothing_unless_configured() -> None:
    assert parsed("[channels.mqtt.home]").channels.mqtt["home"].allow_unsigned == "none"


# Keys in the wrong place


@pytest.mark.parametrize("where", ["channels", "channels.mqtt", "channels.mqtt.home"])
@pytest.mark.parametrize("key", ["allowed_tools", "excluded_tools", "tools_allow", "tools_deny", "tools"])
def test_a_tool_list_of_a_channel_is_refused_and_the_right_key_named(where: str, key: str) -> None:
    line, at, reason = told(f'[{where}]\n{key} = ["shell"]')
    assert (line, at) == (2, f"{where}.{key}")
    assert "[risk_profiles.<name>]: allowed_tools, excluded_tools" in reason


@pytest.mark.parametrize(
    ("table", "key", "place"),
    [
        ("channels.mqtt.home", "password", "password_file, password_env or password_credential"),
        ("providers.cloud", "api_key", "api_key_file, api_key_env or api_key_credential"),
        ("operators.ann", "private_key", "public_key"),
        ("operators.ann", "hmac_key", "hmac_key_file"),
        ("runtime_profiles.a", "tool_receipts", "[agent.tool_receipts]"),
        ("runtime_profiles.a", "allowed_tools", "[risk_profiles.<name>]"),
        ("agent", "auto_approve", "[risk_profiles.<name>]"),
        ("agent", "level", "[risk_profiles.<name>]"),
    ],
)
def test_a_key_in_the_wrong_place_names_the_right_one(table: str, key: str, place: str) -> None:
    line, at, reason = told(f'[{table}]\n{key} = "x"')
    assert (line, at) == (2, f"{table}.{key}")
    assert place in reason


@pytest.mark.parametrize(("table", "place"), [("agents.a", "[agent]"), ("tool_receipts", "[agent.tool_receipts]")])
def test_a_table_in_the_wrong_place_names_the_right_one(table: str, place: str) -> None:
    assert place in told(f"[{table}]\n")[2]


def test_a_refused_secret_is_not_repeated() -> None:
    assert "hunter2" not in str(refusal('[channels.mqtt.a]\npassword = "hunter2"'))
    assert "hunter2" not in str(refusal('[providers.a]\nkind = "intent"\napi_key = "hunter2"'))


@pytest.mark.parametrize("entry", ["*", "gpio_*", "file_?", "device_write:pump"])
@pytest.mark.parametrize("field", ["allowed_tools", "excluded_tools"])
def test_names_of_tools_are_exact_so_a_wildcard_there_is_refused(field: str, entry: str) -> None:
    line, key, reason = told(f'[risk_profiles.a]\nlevel = "full"\n{field} = ["shell", "{entry}"]')
    assert (line, key) == (3, f"risk_profiles.a.{field}")
    assert repr(entry) in reason


def test_a_wildcard_may_ask_or_approve() -> None:
    profile = parsed('[risk_profiles.default]\nalways_ask = ["*"]\nauto_approve = ["*", "device_write:pump"]').risk
    assert profile.always_ask == ["*"]


# Topics


@pytest.mark.parametrize(
    "topic", ["", "/", "/a", "a/", "+", "a/+/b", "a+", "#", "a/#", "a\\u0000b", "a\\nb", "$SYS", "$share/a", "a\\u0085"]
)
def test_a_base_topic_that_cannot_be_one_is_refused(topic: str) -> None:
    line, key, reason = told(f'[channels.mqtt.a]\nhost = "h"\nbase_topic = "{topic}"')
    assert (line, key) == (3, "channels.mqtt.a.base_topic")
    assert "cannot be part of a topic" in reason


@pytest.mark.parametrize("topic", ["zeroclaw", "home/garden", "a b", "温室", "a/$b", "-"])
def test_other_base_topics_are_accepted(topic: str) -> None:
    assert parsed(f'[channels.mqtt.a]\nbase_topic = "{topic}"').channels.mqtt["a"].base_topic == topic


@pytest.mark.parametrize("group", ["", "a/b", "+", "a#", "$a"])
def test_a_group_is_one_level_of_a_topic(group: str) -> None:
    assert told(f'[channels.mqtt.a]\ngroups = ["{group}"]')[1] == "channels.mqtt.a.groups"


@pytest.mark.parametrize("prefix", ["", "/", "a/+", "#", "$SYS/a"])
def test_a_reply_prefix_that_would_fit_anything_is_refused(prefix: str) -> None:
    assert told(f'[channels.mqtt.a]\nreply_prefixes = ["{prefix}"]')[1] == "channels.mqtt.a.reply_prefixes"


def test_a_reply_prefix_may_end_in_a_slash() -> None:
    assert parsed('[channels.mqtt.a]\nreply_prefixes = ["answers/", "replies"]')


@pytest.mark.parametrize("node", ["a/b", "+", "a b", "-a", "all", "group", "x" * 65])
def test_a_node_is_a_name_that_no_fleet_topic_has(node: str) -> None:
    assert told(f'[channels.mqtt.a]\nnode = "{node}"')[1] == "channels.mqtt.a.node"


@pytest.mark.parametrize("name", ['"a b"', '"a.b"', '"温室"', '""', '"-a"', '"a/b"', '"*"'])
@pytest.mark.parametrize("table", ["devices", "operators", "providers", "channels.mqtt", "risk_profiles"])
def test_a_name_is_letters_digits_and_dashes(table: str, name: str) -> None:
    line, key, reason = told(f"# first\n[{table}.{name}]\n")
    assert (line, key) == (2, table)
    assert "is not a name" in reason


# Who decides


def operators(*names: str, **more: str) -> str:
    extra = "".join(f"{key} = {value}\n" for key, value in more.items())
    keys = {name: Keypair(name.encode().ljust(32, b"-")).public for name in names}
    return "".join(f'[operators.{name}]\npublic_key = "{key}"\n{extra}' for name, key in keys.items())


PUMP = """\
[devices.pump]
kind = "relay"
quorum = 2
groups = ["garden"]
[devices.lamp]
kind = "relay"
groups = ["house"]
"""


@pytest.mark.parametrize("names", [(), ("ann",)])
def test_a_quorum_larger_than_the_number_of_operators_is_refused(names: tuple[str, ...]) -> None:
    line, key, reason = told(PUMP + operators(*names))
    assert (line, key) == (3, "devices.pump.quorum")
    assert reason == f"needs 2 different operators, and {len(names)} who may decide here are configured"


def test_a_quorum_of_operators_who_may_decide_is_accepted() -> None:
    assert parsed(PUMP + operators("ann", "bob")).devices["pump"].quorum == 2
    assert parsed(PUMP + operators("ann", devices='["pump"]') + operators("bob", groups='["garden"]'))


@pytest.mark.parametrize(
    "limit",
    [
        {"devices": '["lamp"]'},
        {"groups": '["house"]'},
        {"may_approve": '"low"'},
        {"devices": '["lamp"]', "groups": '["house"]'},
    ],
)
def test_operators_who_may_not_decide_on_a_device_do_not_count_for_its_quorum(limit: dict[str, str]) -> None:
    assert told(PUMP + operators("ann") + operators("bob", **limit))[1] == "devices.pump.quorum"


def test_operators_below_the_risk_of_a_device_do_not_count_for_its_quorum() -> None:
    high = PUMP.replace("quorum = 2", 'quorum = 2\nrisk = "high"')
    assert told(high + operators("ann", "bob"))[1] == "devices.pump.quorum"
    assert parsed(high + operators("ann", "bob", may_approve='"high"'))


def test_one_key_is_one_person_in_whatever_spelling() -> None:
    key = Keypair(b"\xfb" * 32).public
    spelled = key.replace("-", "+").replace("_", "/") + "="
    text = f'[operators.ann]\npublic_key = "{key}"\n[operators.bob]\npublic_key = "{spelled}"\n'
    assert told(text) == (3, "operators.bob", "has the key of 'ann', and one key is one person")
    text = '[operators.ann]\nhmac_key_file = "/k"\n[operators.bob]\nhmac_key_file = "/k"\n'
    assert told(text)[1] == "operators.bob"


# Lines

LINES = """\
# a comment with agent.name = "x"
[agent] # the agent
name = "a"
system_prompt = \"\"\"
[devices.valve]
kind = "not here"
retries = 5
\"\"\"
providers = [
    "intent", # first
    "cloud",
]

[channels.mqtt."home"]
host = "h"
"port" = 1883
tls.ca_file = '''
/etc/ca'''
tls . cert_file = "c"

[providers]
cloud = { kind = "openai", model = "m", retries = 2 }
  [ providers . "backup" ]
  kind="intent"

[[shelf]]
a = 1
[[shelf]]
a = 2

[devices.valve.deep]
x = 1
[devices.valve]
kind = "relay"
[devices]
lamp.kind = "led"
lamp.pin = 3
"""


@pytest.mark.parametrize(
    ("key", "line"),
    [
        ("agent", 2),
        ("agent.name", 3),
        ("agent.system_prompt", 4),
        ("agent.providers", 9),
        ("agent.providers[1]", 9),
        ("agent.missing", 2),
        ("channels", 14),
        ("channels.mqtt.home", 14),
        ("channels.mqtt.home.host", 15),
        ("channels.mqtt.home.port", 16),
        ("channels.mqtt.home.tls", 17),
        ("channels.mqtt.home.tls.ca_file", 17),
        ("channels.mqtt.home.tls.cert_file", 19),
        ("channels.mqtt.home.tls.key_file", 17),
        ("channels.mqtt.home.nothing.at.all", 14),
        ("providers", 21),
        ("providers.cloud", 22),
        ("providers.cloud.retries", 22),
        ("providers.backup", 23),
        ("providers.backup.kind", 24),
        ("shelf", 26),
        ("shelf.a", 27),
        ("devices.valve.deep.x", 32),
        ("devices.valve", 33),
        ("devices.valve.kind", 34),
        ("devices.lamp", 36),
        ("devices.lamp.pin", 37),
        ("nowhere", 0),
        ("", 0),
    ],
)
@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_a_key_is_found_on_its_line(key: str, line: int, ending: str) -> None:
    assert line_of(LINES.replace("\n", ending), key) == line


def test_odd_line_separators_inside_a_text_are_no_lines() -> None:
    assert line_of('[agent]\nname = "a\u2028b\u0085c"\nlocale = "en"\n', "agent.locale") == 3


@pytest.mark.parametrize("path", LEAVES)
def test_every_key_of_the_example_is_found_on_its_line(path: str) -> None:
    assert line_of(text_of(document()), path) == line_in(document(), path)


# Anything at all


def line_of_fault(text: str) -> int:
    """The line that a refusal names, 0 if it names none; 1 if there is nothing to refuse."""
    try:
        parse(text, "f")
    except ConfigError as error:
        return error.line
    return 1


@given(st.text(max_size=200))
def test_any_text_is_a_config_or_a_config_error(text: str) -> None:
    assert 0 <= line_of_fault(text) <= text.count("\n") + 1


PIECES = [f"{line}\n" for _, line in write(document())]
scalars = (
    st.booleans()
    | st.integers()
    | st.text(st.characters(codec="utf-8"), max_size=10)
    | st.sampled_from(("", "one", "10m"))
)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab.", max_size=3), inner, max_size=2)
)
lines = st.sampled_from(PIECES) | st.builds(
    lambda path, value: f"{path.rpartition('.')[2]} = {value_of(value)}\n", st.sampled_from(LEAVES), values
)


@given(st.lists(lines, max_size=12).map("".join))
def test_any_mixture_of_lines_is_a_config_or_a_config_error(text: str) -> None:
    assert 0 <= line_of_fault(text) <= text.count("\n") + 1


@given(st.dictionaries(st.sampled_from(LEAVES), values, min_size=1, max_size=2))
def test_any_value_of_any_key_is_accepted_or_told_with_a_line(changes: dict[str, Any]) -> None:
    rows = []
    for path, line in write(document()):
        name = path.rpartition(".")[2]
        rows.append(f"{name} = {value_of(changes[path])}\n" if path in changes else f"{line}\n")
    assert line_of_fault("".join(rows)) != 0


def test_the_keys_of_a_devices_kind_are_its_options() -> None:
    device = parsed('[devices.a]\nkind = "relay"\npin = 17\nactive_low = true\nrisk = "high"\n').devices["a"]
    assert device == DeviceConfig(kind="relay", risk="high", options={"pin": 17, "active_low": True})


# Secrets


def key_file(tmp_path: Path, content: bytes = b"opensesame\n", mode: int = 0o600) -> Path:
    path = tmp_path / "key"
    path.write_bytes(content)
    path.chmod(mode)
    return path


@pytest.mark.parametrize("mode", [0o600, 0o400, 0o640, 0o660])
def test_a_secret_is_read_from_a_file(tmp_path: Path, mode: int) -> None:
    assert secret("providers.a", file=str(key_file(tmp_path, mode=mode))) == "opensesame"


def test_a_secret_is_read_from_the_environment() -> None:
    assert secret("providers.a", env="KEY", environ={"KEY": "opensesame"}) == "opensesame"


def test_a_secret_is_read_from_a_credential_of_systemd_whatever_its_mode(tmp_path: Path) -> None:
    key_file(tmp_path, mode=0o444)
    environ = {"CREDENTIALS_DIRECTORY": str(tmp_path)}
    assert secret("providers.a", credential="key", environ=environ) == "opensesame"


def test_no_secret_is_named_and_none_is_read() -> None:
    assert secret("providers.a") == ""


def no_secret(**where: Any) -> KeyFileError:
    with pytest.raises(KeyFileError) as caught:
        secret("providers.a", **where)
    assert str(caught.value).startswith("providers.a: ")
    assert "opensesame" not in str(caught.value) + caught.value.hint
    return caught.value


@pytest.mark.parametrize("mode", [0o604, 0o644, 0o602, 0o666, 0o777])
def test_a_file_that_everybody_can_read_is_refused(tmp_path: Path, mode: int) -> None:
    path = key_file(tmp_path, mode=mode)
    error = no_secret(file=str(path))
    assert "can be read by everybody" in str(error)
    assert error.hint == f"chmod 600 {path}"


@pytest.mark.parametrize("content", [b"", b"\n", b"  \n\t"])
def test_an_empty_file_is_refused(tmp_path: Path, content: bytes) -> None:
    assert "is empty" in str(no_secret(file=str(key_file(tmp_path, content))))


def test_a_file_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    assert "No such file" in str(no_secret(file=str(tmp_path / "nowhere")))
    assert "Is a directory" in str(no_secret(file=str(tmp_path)))
    assert "not UTF-8 text" in str(no_secret(file=str(key_file(tmp_path, b"\xff\xfe"))))
    assert no_secret(file="a\0b").hint


def test_an_unset_or_empty_variable_is_told() -> None:
    assert "the environment variable KEY is not set" in str(no_secret(env="KEY", environ={}))
    assert "KEY is not set" in str(no_secret(env="KEY", environ={"KEY": ""}))


def test_a_credential_without_systemd_is_told_with_what_to_try() -> None:
    error = no_secret(credential="key", environ={})
    assert "no systemd credentials here" in str(error)
    assert "LoadCredential=key" in error.hint


@pytest.mark.parametrize("table", ["providers.a", "channels.mqtt.a"])
def test_two_places_for_one_secret_are_refused(table: str) -> None:
    what, kind = ("api_key", 'kind = "intent"') if table == "providers.a" else ("password", 'host = "h"')
    line, key, reason = told(f'[{table}]\n{kind}\n{what}_file = "f"\n{what}_env = "E"\n')
    assert (line, key) == (4, f"{table}.{what}_env")
    assert "only one" in reason
