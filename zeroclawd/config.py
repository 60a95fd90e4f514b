"""Reads the TOML config into frozen, validated types; an unknown key, a bad value or a missing reference is an error.

Errors carry file, line, dotted key and reason. Kinds of devices have keys of their own (`DeviceConfig.options`): the
board checks those when it is built, and `Loaded.locate` gives its errors their file and line.
"""

from __future__ import annotations

import math
import os
import re
import stat
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import msgspec

from zeroclawd import signing
from zeroclawd.errors import ConfigError, KeyFileError
from zeroclawd.frozen import dataclass
from zeroclawd.schema import choices_of
from zeroclawd.tool import Risk

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(ms|s|m|h|d)?")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, None: 1.0}
_SIZE = re.compile(r"([0-9]{1,18})\s*(B|kB|KB|MB|GB)?")
_SIZES = {"B": 1, "kB": 1000, "KB": 1000, "MB": 1_000_000, "GB": 1_000_000_000, None: 1}

RiskWord = Literal["low", "medium", "high"]


class Seconds(float):
    """A span of time: a number of seconds or text such as `"500ms"`, `"30s"`, `"10m"`, `"2h"`, `"7d"`."""


class Bytes(int):
    """A size: a number of bytes or text such as `"64kB"`, `"16MB"`."""


class _Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    pass


class ToolReceipts(_Section, frozen=True):
    """`[agent.tool_receipts]`: in-band evidence of successful results."""

    enabled: bool = True
    show_in_response: bool = False
    inject_system_prompt: bool = True


class AgentConfig(_Section, frozen=True):
    """`[agent]`: who this daemon is and which profiles it runs with."""

    name: str = "agent"
    locale: str = "en"
    state_dir: str = "/var/lib/zeroclawd"
    workspace: str = ""
    providers: list[str] = msgspec.field(default_factory=lambda: ["intent"])
    risk_profile: str = "default"
    runtime_profile: str = "default"
    system_prompt: str = ""
    tool_receipts: ToolReceipts = msgspec.field(default_factory=ToolReceipts)


class RiskProfile(_Section, frozen=True):
    """`[risk_profiles.<name>]`: what may run, what asks, and who may say yes. Lists are final as written."""

    level: str = "supervised"
    auto_approve: list[str] = msgspec.field(default_factory=list)
    always_ask: list[str] = msgspec.field(default_factory=list)
    allowed_tools: list[str] = msgspec.field(default_factory=list)
    excluded_tools: list[str] = msgspec.field(default_factory=list)
    approval_timeout: Seconds = Seconds(120)
    sender_may_approve: bool = False


class RuntimeProfile(_Section, frozen=True):
    """`[runtime_profiles.<name>]`: bounds of a turn and of its tools."""

    max_tool_iterations: int = 10
    max_tool_result_chars: int = 50_000
    max_history_messages: int = 50
    parallel_tools: bool = True
    max_parallel: int = 4
    max_turns: int = 8
    queue: int = 64
    turn_timeout: Seconds = Seconds(900)
    tool_protocol: Literal["auto", "native", "text"] = "auto"
    strict_tool_parsing: bool = False
    tool_call_dedup_exempt: list[str] = msgspec.field(default_factory=list)
    loop_ignore_tools: list[str] = msgspec.field(default_factory=list)
    shell_timeout: Seconds = Seconds(60)
    shell_environment: list[str] = msgspec.field(default_factory=list)
    loop: Literal["auto", "asyncio", "uvloop"] = "auto"


class ProviderConfig(_Section, frozen=True):
    """`[providers.<alias>]`: one model endpoint."""

    kind: Literal["openai", "intent", "scripted"]
    base_url: str = ""
    model: str = ""
    api_key_file: str = ""
    api_key_env: str = ""
    api_key_credential: str = ""
    ca_file: str = ""
    tools: Literal["native", "text"] = "native"
    stream: bool = True
    connect_timeout: Seconds = Seconds(10)
    idle_timeout: Seconds = Seconds(60)
    total_timeout: Seconds = Seconds(300)
    retries: int = 2
    temperature: float | None = None
    max_tokens: int | None = None
    replies: list[Any] = msgspec.field(default_factory=list)


class TlsConfig(_Section, frozen=True):
    """`[channels.mqtt.<alias>.tls]`: the hostname is always checked."""

    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""


class MqttConfig(_Section, frozen=True):
    """`[channels.mqtt.<alias>]`: one broker."""

    host: str = "localhost"
    port: int = 0
    node: str = ""
    base_topic: str = "zeroclaw"
    client_id: str = ""
    protocol: Literal["auto", "5", "3.1.1"] = "auto"
    username: str = ""
    password_file: str = ""
    password_env: str = ""
    password_credential: str = ""
    tls: TlsConfig | None = None
    keepalive: Seconds = Seconds(60)
    session_expiry: Seconds = Seconds(86_400)
    plain_text: bool = False
    max_age: Seconds = Seconds(300)
    max_payload: Bytes = Bytes(65_536)
    senders: list[str] = msgspec.field(default_factory=list)
    require_signature: bool = False
    reply_prefixes: list[str] = msgspec.field(default_factory=list)
    groups: list[str] = msgspec.field(default_factory=list)
    fleet: bool = False
    events: bool = False
    allow_unsigned: Literal["none", "low", "medium", "high"] = "none"
    outbox_count: int = 10_000
    outbox_size: Bytes = Bytes(16_000_000)
    outbox_age: Seconds = Seconds(7 * 86_400)


class ChannelsConfig(_Section, frozen=True):
    """`[channels]`: the kinds of channels, each with its aliases."""

    mqtt: dict[str, MqttConfig] = msgspec.field(default_factory=dict)


class OperatorConfig(_Section, frozen=True):
    """`[operators.<name>]`: somebody who may answer questions; `public_key` is Ed25519, base64."""

    public_key: str = ""
    hmac_key_file: str = ""
    may_approve: RiskWord = "medium"
    devices: list[str] = msgspec.field(default_factory=list)
    groups: list[str] = msgspec.field(default_factory=list)
    release_estop: bool = True


class BoardConfig(_Section, frozen=True):
    """`[board]`: what the devices are wired to."""

    kind: Literal["auto", "pi", "sim"] = "auto"
    chip: str = ""
    estop_pin: int | None = None
    estop_active_low: bool = True
    timeout: Seconds = Seconds(5)


class DeviceConfig(_Section, frozen=True, forbid_unknown_fields=False):
    """`[devices.<name>]`: what every kind has; `options` holds the kind's own keys, checked by the board."""

    kind: str
    description: str = ""
    risk: RiskWord | None = None
    quorum: int = 1
    groups: list[str] = msgspec.field(default_factory=list)
    idempotent: bool = False
    safe_state: bool | float | str | None = None
    max_on: Seconds | None = None
    min_off: Seconds | None = None
    min_interval: Seconds | None = None
    interlocks: list[str] = msgspec.field(default_factory=list)
    options: dict[str, Any] = msgspec.field(default_factory=dict)


class LedgerConfig(_Section, frozen=True):
    """`[ledger]`: bounds of the durable record."""

    max_size: Bytes = Bytes(256_000_000)
    max_age: Seconds = Seconds(400 * 86_400)
    checkpoint_every: int = 100
    checkpoint_interval: Seconds = Seconds(3600)
    export_dir: str = ""


class ObservabilityConfig(_Section, frozen=True):
    """`[observability]`: the journal."""

    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["auto", "journal", "text", "json"] = "auto"
    turn_events: bool = True


class Config(_Section, frozen=True):
    """The whole file."""

    agent: AgentConfig = msgspec.field(default_factory=AgentConfig)
    risk_profiles: dict[str, RiskProfile] = msgspec.field(default_factory=dict)
    runtime_profiles: dict[str, RuntimeProfile] = msgspec.field(default_factory=dict)
    providers: dict[str, ProviderConfig] = msgspec.field(default_factory=dict)
    channels: ChannelsConfig = msgspec.field(default_factory=ChannelsConfig)
    operators: dict[str, OperatorConfig] = msgspec.field(default_factory=dict)
    board: BoardConfig = msgspec.field(default_factory=BoardConfig)
    devices: dict[str, DeviceConfig] = msgspec.field(default_factory=dict)
    ledger: LedgerConfig = msgspec.field(default_factory=LedgerConfig)
    observability: ObservabilityConfig = msgspec.field(default_factory=ObservabilityConfig)

    @property
    def risk(self) -> RiskProfile:
        """The agent's risk profile."""
        return self.risk_profiles.get(self.agent.risk_profile) or RiskProfile()

    @property
    def runtime(self) -> RuntimeProfile:
        """The agent's runtime profile."""
        return self.runtime_profiles.get(self.agent.runtime_profile) or RuntimeProfile()

    @property
    def workspace(self) -> Path:
        """The folder that file and shell tools live in."""
        return Path(self.agent.workspace) if self.agent.workspace else Path(self.agent.state_dir) / "workspace"

    @property
    def state_dir(self) -> Path:
        """The folder of the daemon's own state; no tool reaches it."""
        return Path(self.agent.state_dir)


@dataclass(frozen=True, slots=True)
class Loaded:
    """A config with the file that it came from."""

    config: Config
    file: str
    text: str

    def locate(self, error: ConfigError) -> ConfigError:
        """Return the error with file and line filled in from its key."""
        line = error.line or line_of(self.text, error.key)
        return ConfigError(error.reason, key=error.key, file=self.file, line=line, hint=error.hint)


def load(path: Path | str) -> Loaded:
    """Read and validate a config file; ConfigError says file, line, key and reason."""
    file = str(path)
    try:
        text = Path(path).read_bytes().decode("utf-8")
    except OSError as error:
        raise ConfigError(
            f"cannot be read: {error.strerror or error}", file=file, hint="`zeroclawd init` writes a starter config"
        ) from error
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise ConfigError("is not UTF-8", file=file, line=line) from error
    except ValueError as error:
        raise ConfigError(f"cannot be read: {error}", file=file) from error
    return parse(text, file)


def parse(text: str, file: str = "<config>") -> Loaded:
    """Validate the text of a config file."""
    table = _toml(text, file)
    unlocated = Loaded(Config(), file, text)
    try:
        _refuse_unknown(table, Config, "")
        _refuse_odd_numbers(table, "")
        config = _convert(_with_options(table))
        _check_references(config)
        return Loaded(config, file, text)
    except ConfigError as error:
        raise unlocated.locate(error) from None
    except RecursionError:  # dotted keys nest without end
        raise ConfigError("is nested too deeply", file=file) from None


def _toml(text: str, file: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        place = re.search(r"\(at line (\d+), column \d+\)", str(error))
        line = int(place[1]) if place else text.count("\n") + 1
        raise ConfigError(f"is not valid TOML: {error}", file=file, line=line) from error
    except RecursionError:
        raise ConfigError("is nested too deeply", file=file) from None
    except ValueError as error:  # a number with more digits than int() takes
        raise ConfigError(f"is not valid TOML: {str(error).partition(';')[0]}", file=file) from error


def _refuse_odd_numbers(value: Any, path: str) -> None:
    """TOML's integers have 64 bits; it has `nan` and `inf` too, but every comparison with `nan` is false."""
    match value:
        case int() if not -(2**63) <= value < 2**63:
            raise ConfigError("is too large a number", key=path)
        case float() if not math.isfinite(value):
            raise ConfigError(f"{value} is not a number to work with", key=path)
        case dict():
            for key, inner in value.items():
                _refuse_odd_numbers(inner, f"{path}.{key}" if path else key)
        case list():
            for place, inner in enumerate(value):
                _refuse_odd_numbers(inner, f"{path}[{place}]")


def _convert(table: dict[str, Any]) -> Config:
    try:
        return msgspec.convert(table, Config, dec_hook=_decode)
    except msgspec.ValidationError as error:
        reason, _, path = str(error).partition(" - at `")
        path = path.rstrip("`").removeprefix("$").lstrip(".")
        raise ConfigError(_in_words(reason, path), key=_dotted(path, table)) from error


_WORDS = {
    "object": "a table",
    "array": "a list",
    "str": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "datetime": "a date",
}


def _in_words(reason: str, path: str) -> str:
    """msgspec's reason in the words of a config file; a wrong choice is answered with the choices."""
    if wrong := re.fullmatch(r"Invalid enum value ['`]?(.*?)['`]?", reason, re.DOTALL):
        known = [str(choice) for choice in choices_of(_type_at(path))]
        return f"must be one of {', '.join(map(repr, known))}, not {wrong[1]!r}{_did_you_mean(wrong[1], known)}"
    if missing := re.fullmatch(r"Object missing required field `(.+)`", reason):
        return f"needs {missing[1]!r}"
    if types := re.fullmatch(r"Expected `(.+)`, got `(.+)`", reason):
        expected = [_WORDS.get(kind, kind) for kind in types[1].split(" | ") if kind != "null"]
        return f"must be {' or '.join(expected)}, not {_WORDS.get(types[2], types[2])}"
    return reason.replace("`", "'")


def _type_at(path: str) -> Any:
    """The declared type of the value at msgspec's path, in which `[...]` is any name in a table of tables."""
    kind: Any = Config
    for part in re.findall(r"\[[^\]]*\]|[^.\[\]]+", path):
        if part.startswith("["):
            kind = get_args(kind)[-1]
        else:
            section = next(inner for inner in (kind, *get_args(kind)) if _is_section(inner))
            kind = next(field.type for field in msgspec.structs.fields(section) if field.name == part)
    return kind


def _dotted(path: str, table: Mapping[str, Any]) -> str:
    """Turn msgspec's path into our dotted key: `devices[...].pin` names no device, so find the first that fails."""
    if "[...]" not in path:
        return path
    return _first_failing(path, table) or path.replace("[...]", "")


_TABLES: dict[str, Any] = {
    "risk_profiles": RiskProfile,
    "runtime_profiles": RuntimeProfile,
    "providers": ProviderConfig,
    "channels.mqtt": MqttConfig,
    "operators": OperatorConfig,
    "devices": DeviceConfig,
}


def _first_failing(keys: str, table: Mapping[str, Any]) -> str:
    section, _, rest = keys.partition("[...]")
    kind, group = _TABLES.get(section), _at(table, section)
    if kind is None or not isinstance(group, dict):
        return ""
    for name, entry in group.items():
        try:
            msgspec.convert(entry, kind, dec_hook=_decode)
        except msgspec.ValidationError:
            return f"{section}.{name}{rest}".replace("[...]", "")
    return ""


def _at(table: Mapping[str, Any], dotted: str) -> Any:
    here: Any = table
    for key in dotted.split("."):
        here = here.get(key) if isinstance(here, dict) else None
    return here


def _decode(kind: type, value: Any) -> Any:
    if kind is Seconds:
        return Seconds(duration(value))
    if kind is Bytes:
        return Bytes(size(value))
    raise NotImplementedError(kind)


def duration(value: Any) -> float:
    """Seconds from a number or from text such as `"10m"`; ValueError otherwise."""
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e10:
        return float(value)
    match = _DURATION.fullmatch(value.strip()) if isinstance(value, str) else None
    if not match or float(match[1]) * _UNITS[match[2]] >= 1e10:
        raise ValueError(f"a duration is a number of seconds or text such as '30s' or '10m', not {_quoted(value)}")
    return float(match[1]) * _UNITS[match[2]]


def size(value: Any) -> int:
    """Bytes from a number or from text such as `"16MB"`; ValueError otherwise."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 10**18:
        return value
    match = _SIZE.fullmatch(value.strip()) if isinstance(value, str) else None
    if not match:
        raise ValueError(f"a size is a number of bytes or text such as '64kB', not {_quoted(value)}")
    return int(match[1]) * _SIZES[match[2]]


def _quoted(value: Any) -> str:
    return repr(value)[:80] if not isinstance(value, int) or abs(value) < 10**30 else "such a number"


# Keys that do not exist


_TOOL_LISTS = "tools are limited in [risk_profiles.<name>]: allowed_tools, excluded_tools"
_RECEIPTS = "receipts are configured in [agent.tool_receipts]"

# Where (a table), what (a key), and the place that is meant.
_MISPLACED = (
    (r"channels(\..+)?", r"(allowed|excluded|denied)_tools|tools(_allow|_deny)?|tool_(allow|deny)list", _TOOL_LISTS),
    (
        r"channels\..+",
        r"password|passwd",
        "a password is not written here: use password_file, password_env or password_credential",
    ),
    (
        r"providers\..+",
        r"api_key|key|token",
        "a key is not written here: use api_key_file, api_key_env or api_key_credential",
    ),
    (
        r"operators\..+",
        r"(private|secret|signing)_key|seed|hmac_key|key",
        "a private key stays with its operator; here stands public_key, or hmac_key_file for a shared one",
    ),
    (
        r"|agent|runtime_profiles\..+",
        r"(allowed|excluded)_tools|auto_approve|always_ask|level|approval_timeout",
        "what may run is decided in [risk_profiles.<name>]",
    ),
    (r"|runtime_profiles\..+|risk_profiles\..+", "tool_receipts", _RECEIPTS),
    ("", "agents", "this daemon runs one agent: [agent]"),
)


def _refuse_unknown(table: Mapping[str, Any], kind: Any, at: str) -> None:
    fields = {field.name: field.type for field in msgspec.structs.fields(kind)}
    for key, value in table.items():
        path = f"{at}.{key}" if at else key
        if key not in fields:
            if kind is DeviceConfig:
                continue
            raise _unknown(key, path, at, list(fields))
        _descend(value, fields[key], path)


def _descend(value: Any, kind: Any, path: str) -> None:
    inner = next((part for part in (kind, *get_args(kind)) if _is_section(part)), None)
    if not isinstance(value, dict) or inner is None:
        return
    if get_origin(kind) is not dict:
        _refuse_unknown(value, inner, path)
        return
    for name, entry in value.items():
        if not isinstance(entry, dict):
            meant = _misplaced(path, name) or f"what stands here are tables: [{path}.<name>]"
            raise ConfigError(f"there is no such key here; {meant}", key=f"{path}.{name}")
        if not _NAME.fullmatch(name):
            raise ConfigError(f"{name!r} is not a name (letters, digits, '-' and '_')", key=path)
        _refuse_unknown(entry, inner, f"{path}.{name}")


def _is_section(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def _unknown(key: str, path: str, at: str, known: list[str]) -> ConfigError:
    if meant := _misplaced(at, key):
        return ConfigError(f"there is no such key here; {meant}", key=path)
    guess = _did_you_mean(key, known) or f"; known here: {', '.join(sorted(known))}"
    return ConfigError(f"unknown key{guess}", key=path)


def _misplaced(at: str, key: str) -> str:
    found = (meant for table, what, meant in _MISPLACED if re.fullmatch(table, at) and re.fullmatch(what, key))
    return next(found, "")


def _did_you_mean(given: str, known: list[str]) -> str:
    import difflib

    near = difflib.get_close_matches(given, known, n=1, cutoff=0.6)
    return f"; did you mean {near[0]!r}?" if near else ""


def _with_options(table: dict[str, Any]) -> dict[str, Any]:
    """Move the keys that belong to a device's kind into its `options`."""
    devices = table.get("devices")
    if not isinstance(devices, dict):
        return table
    common = {field.name for field in msgspec.structs.fields(DeviceConfig)} - {"options"}
    moved: dict[str, Any] = {}
    for name, entry in devices.items():
        own = {key: value for key, value in entry.items() if key not in common}
        moved[name] = {key: value for key, value in entry.items() if key in common} | {"options": own}
    return {**table, "devices": moved}


# References and values that types cannot say


def _check_references(config: Config) -> None:
    for profile, where in ((config.agent.risk_profile, "risk"), (config.agent.runtime_profile, "runtime")):
        known = getattr(config, f"{where}_profiles")
        if profile not in known and profile != "default":
            raise ConfigError(f"there is no [{where}_profiles.{profile}]", key=f"agent.{where}_profile")
    if not config.agent.providers:
        raise ConfigError("needs at least one provider, such as 'intent'", key="agent.providers")
    for name in config.agent.providers:
        if name not in config.providers and name != "intent":
            raise ConfigError(f"there is no [providers.{name}]", key="agent.providers")
    if not config.agent.state_dir:
        raise ConfigError("is the folder of the daemon's own state and cannot be empty", key="agent.state_dir")
    for check in (_check_risk, _check_least, _check_providers, _check_mqtt, _check_operators, _check_devices):
        check(config)


def _check_risk(config: Config) -> None:
    levels = ["read_only", "readonly", "supervised", "full"]
    for name, profile in config.risk_profiles.items():
        key = f"risk_profiles.{name}"
        if profile.level not in levels:
            near = _did_you_mean(profile.level, levels)
            raise ConfigError(
                f"level is 'read_only', 'supervised' or 'full', not {profile.level!r}{near}", key=f"{key}.level"
            )
        for field in ("allowed_tools", "excluded_tools"):
            for entry in getattr(profile, field):
                if set("*?:") & set(entry):
                    raise ConfigError(f"{entry!r}: names of tools are exact here", key=f"{key}.{field}")


# The least that each of these numbers may be; a time is more than nothing.
_LEAST: dict[str, tuple[str, ...]] = {
    "risk_profiles": ("approval_timeout",),
    "runtime_profiles": (
        *("max_tool_iterations", "max_tool_result_chars", "max_history_messages", "max_parallel", "max_turns", "queue"),
        *("turn_timeout", "shell_timeout"),
    ),
    "providers": ("connect_timeout", "idle_timeout", "total_timeout", "max_tokens"),
    "channels.mqtt": ("max_payload", "outbox_count", "outbox_size"),
    "devices": ("quorum",),
    "board": ("timeout",),
    "ledger": ("max_size", "checkpoint_every", "checkpoint_interval"),
}


def _check_least(config: Config) -> None:
    for section, names in _LEAST.items():
        group: Any = config
        for part in section.split("."):
            group = getattr(group, part)
        tables = (
            {f"{section}.{name}": entry for name, entry in group.items()}
            if isinstance(group, dict)
            else {section: group}
        )
        for path, table in tables.items():
            for name in names:
                _check_one_least(getattr(table, name), f"{path}.{name}")


def _check_one_least(value: int | float | None, key: str) -> None:
    if isinstance(value, float) and value <= 0:
        raise ConfigError("must be more than no time at all", key=key)
    if isinstance(value, int) and value < 1:
        raise ConfigError("must be at least 1", key=key)


def _check_providers(config: Config) -> None:
    for name, provider in config.providers.items():
        key = f"providers.{name}"
        if provider.kind == "openai" and not provider.base_url.startswith(("http://", "https://")):
            raise ConfigError('an openai provider needs base_url = "http(s)://..."', key=f"{key}.base_url")
        if provider.kind == "openai" and not provider.model:
            raise ConfigError("an openai provider needs a model", key=f"{key}.model")
        if provider.retries < 0:
            raise ConfigError("cannot be less than 0", key=f"{key}.retries")
        _check_one_source(provider, key, "api_key")


def _check_one_source(table: ProviderConfig | MqttConfig, key: str, what: str) -> None:
    given = [name for name in (f"{what}_file", f"{what}_env", f"{what}_credential") if getattr(table, name)]
    if len(given) > 1:
        raise ConfigError(f"{' and '.join(given)} are both given, and only one can hold it", key=f"{key}.{given[1]}")


def _check_mqtt(config: Config) -> None:
    for alias, mqtt in config.channels.mqtt.items():
        key = f"channels.mqtt.{alias}"
        _check_topics(mqtt, key)
        if mqtt.node and (not _NAME.fullmatch(mqtt.node) or mqtt.node in ("all", "group")):
            raise ConfigError(
                f"{mqtt.node!r} is not a name (letters, digits, '-' and '_', and neither 'all' nor 'group')",
                key=f"{key}.node",
            )
        if mqtt.tls and bool(mqtt.tls.cert_file) != bool(mqtt.tls.key_file):
            raise ConfigError("cert_file and key_file come together", key=f"{key}.tls")
        if not 0 <= mqtt.port < 65536:
            raise ConfigError("a port is 1 to 65535", key=f"{key}.port")
        # MQTT 5.0, sections 3.1.2.10 and 3.1.2.11.2: two and four bytes of seconds
        for field, most in (("keepalive", 0xFFFF), ("session_expiry", 0xFFFFFFFF)):
            if getattr(mqtt, field) > most:
                raise ConfigError(f"cannot be more than {most} seconds", key=f"{key}.{field}")
        _check_one_source(mqtt, key, "password")


def _check_topics(mqtt: MqttConfig, key: str) -> None:
    """MQTT 5.0, section 4.7: no wildcards and no NUL in a topic name, and `$` leads to the broker's own topics."""
    topics = [
        ("base_topic", mqtt.base_topic),
        *(("reply_prefixes", prefix.rstrip("/")) for prefix in mqtt.reply_prefixes),
    ]
    for field, topic in (*topics, *(("groups", group) for group in mqtt.groups)):
        slash = "/" if field == "groups" else r"^/|/$"
        if not topic or topic.startswith("$") or re.search(rf"[+#\x00-\x1f\x7f-\x9f]|{slash}", topic):
            raise ConfigError(
                f"{topic!r} cannot be part of a topic (no '+', '#', '$', control character, nor a slash at either end)",
                key=f"{key}.{field}",
            )


def _check_operators(config: Config) -> None:
    groups = {group for device in config.devices.values() for group in device.groups}
    owners: dict[bytes | str, str] = {}
    for name, operator in config.operators.items():
        key = f"operators.{name}"
        if bool(operator.public_key) == bool(operator.hmac_key_file):
            raise ConfigError("needs either public_key or hmac_key_file", key=key)
        for device in operator.devices:
            if device not in config.devices:
                raise ConfigError(f"there is no device {device!r}", key=f"{key}.devices")
        for group in operator.groups:
            if group not in groups:
                raise ConfigError(f"no device is in a group {group!r}", key=f"{key}.groups")
        other = owners.setdefault(_identity(operator), name)
        if other != name:
            raise ConfigError(f"has the key of {other!r}, and one key is one person", key=key)


def _identity(operator: OperatorConfig) -> bytes | str:
    """What tells two people apart: the key itself, in whatever spelling, or the file that holds it."""
    try:
        return signing.unb64(operator.public_key) or operator.hmac_key_file
    except ValueError:
        return operator.public_key


def _check_devices(config: Config) -> None:
    for name, device in config.devices.items():
        able = [one for one in config.operators.values() if _may_decide(one, name, device)]
        if 1 < device.quorum > len(able):
            raise ConfigError(
                f"needs {device.quorum} different operators, and {len(able)} who may decide here are configured",
                key=f"devices.{name}.quorum",
            )


def _may_decide(operator: OperatorConfig, name: str, device: DeviceConfig) -> bool:
    least = max(Risk.MEDIUM, Risk.parse(device.risk or "medium"))
    everywhere = not operator.devices and not operator.groups
    here = name in operator.devices or not set(operator.groups).isdisjoint(device.groups)
    return Risk.parse(operator.may_approve) >= least and (everywhere or here)


# Lines


def line_of(text: str, key: str) -> int:
    """The line (from 1) on which a dotted key or its table stands in TOML text; 0 if it cannot be told."""
    lines = _lines(text) if key else {}
    parts = re.sub(r"\[\d*\]", "", key).split(".")
    return next((lines[at] for cut in range(len(parts), 0, -1) if (at := ".".join(parts[:cut])) in lines), 0)


def _lines(text: str) -> dict[str, int]:
    """The line of every key and table; one that is named only by what it holds stands where that first does."""
    named: dict[str, int] = {}
    implied: dict[str, int] = {}
    table: tuple[str, ...] = ()
    for number, statement, keys in _statements(text):
        paths = [path for path in _paths(keys) if path]
        if statement.lstrip().startswith("["):
            table = paths[-1]
            paths = [table]
        else:
            paths = [(*table, *path) for path in paths]
        for path in paths:
            named.setdefault(".".join(path), number)
            for cut in range(1, len(path)):
                implied.setdefault(".".join(path[:cut]), number)
    return implied | named


def _statements(text: str) -> Iterator[tuple[int, str, dict[str, Any]]]:
    """Each header and each assignment with its first line: the fewest lines that are TOML by themselves."""
    start, statement = 1, ""
    for number, line in enumerate(text.split("\n"), 1):
        statement += f"{line}\n"
        try:
            keys = tomllib.loads(statement)
        except tomllib.TOMLDecodeError:
            continue
        yield start, statement, keys
        start, statement = number + 1, ""


def _paths(keys: Any, deepest: int = 16) -> Iterator[tuple[str, ...]]:
    """The path of every key in a table and the tables in it, outer ones first; `[[x]]` counts as `[x]`."""
    yield ()
    inner = keys[-1] if isinstance(keys, list) and keys else keys
    if isinstance(inner, dict) and deepest:
        for key, value in inner.items():
            yield from ((key, *path) for path in _paths(value, deepest - 1))


# Secrets


def secret(
    what: str, *, file: str = "", env: str = "", credential: str = "", environ: Mapping[str, str] = os.environ
) -> str:
    """Read a secret from a file, an environment variable or a systemd credential; empty if none is named.

    KeyFileError says which place failed and what to try (systemd.exec(5), LoadCredential=).
    """
    if credential:
        folder = environ.get("CREDENTIALS_DIRECTORY", "")
        if not folder:
            raise KeyFileError(
                f"{what}: no systemd credentials here, so {credential!r} cannot be read",
                hint=f"run under the unit with LoadCredential={credential}:/path, or use a file",
            )
        return _read_secret(what, Path(folder) / credential)
    if file:
        return _read_secret(what, Path(file), warn_world=True)
    if env:
        if not environ.get(env):
            raise KeyFileError(f"{what}: the environment variable {env} is not set", hint=f"export {env}=...")
        return environ[env]
    return ""


def _read_secret(what: str, path: Path, *, warn_world: bool = False) -> str:
    try:
        text = path.read_text("utf-8").strip()
        open_to_all = warn_world and stat.S_IMODE(path.stat().st_mode) & 0o007
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8 text"
        raise KeyFileError(
            f"{what}: {path} cannot be read: {reason}", hint="check the path and who may read it"
        ) from None
    if open_to_all:
        raise KeyFileError(f"{what}: {path} can be read by everybody", hint=f"chmod 600 {path}")
    if not text:
        raise KeyFileError(f"{what}: {path} is empty")
    return text


Secret = Callable[[], str]
