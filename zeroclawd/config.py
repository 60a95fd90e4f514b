"""Reads the TOML config into frozen, validated types; an unknown key, a bad value or a missing reference is an error.

Errors carry file, line, dotted key and reason. Kinds of devices have keys of their own (`DeviceConfig.options`): the
board checks those when it is built, and `Loaded.locate` gives its errors their file and line.
"""

from __future__ import annotations

import os
import re
import stat
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import msgspec

from zeroclawd.errors import ConfigError, KeyFileError
from zeroclawd.frozen import dataclass

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)?")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, None: 1.0}
_SIZE = re.compile(r"(\d+)\s*(B|kB|KB|MB|GB)?")
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
    return parse(text, file)


def parse(text: str, file: str = "<config>") -> Loaded:
    """Validate the text of a config file."""
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        place = re.search(r"\(at line (\d+), column \d+\)", str(error))
        line = int(place[1]) if place else text.count("\n") + 1
        raise ConfigError(f"is not valid TOML: {error}", file=file, line=line) from error
    unlocated = Loaded(Config(), file, text)
    try:
        _refuse_unknown(table, Config, "")
        config = _convert(_with_options(table))
        _check_references(config)
        return Loaded(config, file, text)
    except ConfigError as error:
        raise unlocated.locate(error) from None


def _convert(table: dict[str, Any]) -> Config:
    try:
        return msgspec.convert(table, Config, dec_hook=_decode)
    except msgspec.ValidationError as error:
        reason, _, path = str(error).partition(" - at `")
        raise ConfigError(reason.replace("`", "'"), key=_dotted(path.rstrip("`"), table)) from error


def _dotted(path: str, table: Mapping[str, Any]) -> str:
    """Turn msgspec's path into our dotted key: `$.devices[...].pin` names no device, so find the first that fails."""
    keys = path.removeprefix("$").lstrip(".")
    if "[...]" not in keys:
        return keys
    return _first_failing(keys, table) or keys.replace("[...]", "")


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
    if not match:
        raise ValueError(f"a duration is a number of seconds or text such as '30s' or '10m', not {value!r}")
    return float(match[1]) * _UNITS[match[2]]


def size(value: Any) -> int:
    """Bytes from a number or from text such as `"16MB"`; ValueError otherwise."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    match = _SIZE.fullmatch(value.strip()) if isinstance(value, str) else None
    if not match:
        raise ValueError(f"a size is a number of bytes or text such as '64kB', not {value!r}")
    return int(match[1]) * _SIZES[match[2]]


# Keys that do not exist


_MISPLACED = {
    ("channels.mqtt.*", "allowed_tools"): "tools are limited in [risk_profiles.<name>]: allowed_tools, excluded_tools",
    ("channels.mqtt.*", "tools_allow"): "tools are limited in [risk_profiles.<name>]: allowed_tools",
    ("channels.mqtt.*", "tools_deny"): "tools are limited in [risk_profiles.<name>]: excluded_tools",
    ("channels.mqtt.*", "excluded_tools"): "tools are limited in [risk_profiles.<name>]: excluded_tools",
    ("channels.mqtt.*", "password"): "a password is not written here: use password_file, password_env or "
    "password_credential",
    ("providers.*", "api_key"): "a key is not written here: use api_key_file, api_key_env or api_key_credential",
    ("runtime_profiles.*", "tool_receipts"): "receipts are configured in [agent.tool_receipts]",
    ("", "tool_receipts"): "receipts are configured in [agent.tool_receipts]",
    ("", "agents"): "this daemon runs one agent: [agent]",
}


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
        if not _NAME.fullmatch(name):
            raise ConfigError(f"{name!r} is not a name (letters, digits, '-' and '_')", key=path)
        if isinstance(entry, dict):
            _refuse_unknown(entry, inner, f"{path}.{name}")


def _is_section(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def _unknown(key: str, path: str, at: str, known: list[str]) -> ConfigError:
    pattern = re.sub(r"^(channels\.mqtt|providers|runtime_profiles)\.[^.]+$", r"\1.*", at)
    if (pattern, key) in _MISPLACED:
        return ConfigError(f"there is no such key here; {_MISPLACED[pattern, key]}", key=path)
    import difflib

    near = difflib.get_close_matches(key, known, n=1, cutoff=0.6)
    guess = f"; did you mean '{near[0]}'?" if near else f"; known here: {', '.join(sorted(known))}"
    return ConfigError(f"unknown key{guess}", key=path)


def _with_options(table: dict[str, Any]) -> dict[str, Any]:
    """Move the keys that belong to a device's kind into its `options`."""
    devices = table.get("devices")
    if not isinstance(devices, dict):
        return table
    common = {field.name for field in msgspec.structs.fields(DeviceConfig)} - {"options"}
    moved: dict[str, Any] = {}
    for name, entry in devices.items():
        if not isinstance(entry, dict):
            raise ConfigError("is a table: [devices.<name>]", key=f"devices.{name}")
        own = {key: value for key, value in entry.items() if key not in common}
        moved[name] = {key: value for key, value in entry.items() if key in common} | {"options": own}
    return {**table, "devices": moved}


# References and values that types cannot say


def _check_references(config: Config) -> None:
    for profile, where in ((config.agent.risk_profile, "risk"), (config.agent.runtime_profile, "runtime")):
        known = getattr(config, f"{where}_profiles")
        if profile not in known and profile != "default":
            raise ConfigError(f"there is no [{where}_profiles.{profile}]", key=f"agent.{where}_profile")
    for name in config.agent.providers:
        if name not in config.providers and name != "intent":
            raise ConfigError(f"there is no [providers.{name}]", key="agent.providers")
    for check in (_check_risk, _check_runtime, _check_providers, _check_mqtt, _check_operators, _check_devices):
        check(config)


def _check_risk(config: Config) -> None:
    for name, profile in config.risk_profiles.items():
        if profile.level not in ("read_only", "readonly", "supervised", "full"):
            raise ConfigError(
                f"level is 'read_only', 'supervised' or 'full', not {profile.level!r}",
                key=f"risk_profiles.{name}.level",
            )


def _check_runtime(config: Config) -> None:
    for name, profile in config.runtime_profiles.items():
        for key in ("max_tool_iterations", "max_tool_result_chars", "max_parallel", "max_turns", "queue"):
            if getattr(profile, key) < 1:
                raise ConfigError("must be at least 1", key=f"runtime_profiles.{name}.{key}")


def _check_providers(config: Config) -> None:
    for name, provider in config.providers.items():
        key = f"providers.{name}"
        if provider.kind == "openai" and not provider.base_url.startswith(("http://", "https://")):
            raise ConfigError('an openai provider needs base_url = "http(s)://..."', key=f"{key}.base_url")
        if provider.kind == "openai" and not provider.model:
            raise ConfigError("an openai provider needs a model", key=f"{key}.model")


def _check_mqtt(config: Config) -> None:
    for alias, mqtt in config.channels.mqtt.items():
        key = f"channels.mqtt.{alias}"
        for field, topic in (("base_topic", mqtt.base_topic), *(("groups", group) for group in mqtt.groups)):
            if not topic or re.search(r"[+#\x00]", topic) or topic.startswith("/") or topic.endswith("/"):
                raise ConfigError(
                    f"{topic!r} cannot be part of a topic (no '+', '#', NUL, nor a slash at either end)",
                    key=f"{key}.{field}",
                )
        if mqtt.node and not _NAME.fullmatch(mqtt.node):
            raise ConfigError(f"{mqtt.node!r} is not a name (letters, digits, '-' and '_')", key=f"{key}.node")
        if mqtt.tls and bool(mqtt.tls.cert_file) != bool(mqtt.tls.key_file):
            raise ConfigError("cert_file and key_file come together", key=f"{key}.tls")
        if not 0 <= mqtt.port < 65536:
            raise ConfigError("a port is 1 to 65535", key=f"{key}.port")


def _check_operators(config: Config) -> None:
    for name, operator in config.operators.items():
        key = f"operators.{name}"
        if bool(operator.public_key) == bool(operator.hmac_key_file):
            raise ConfigError("needs either public_key or hmac_key_file", key=key)
        for device in operator.devices:
            if device not in config.devices:
                raise ConfigError(f"there is no device {device!r}", key=f"{key}.devices")


def _check_devices(config: Config) -> None:
    for name, device in config.devices.items():
        if device.quorum < 1:
            raise ConfigError("must be at least 1", key=f"devices.{name}.quorum")
        if device.quorum > 1 and len(config.operators) < device.quorum:
            raise ConfigError(
                f"needs {device.quorum} different operators, and {len(config.operators)} are configured",
                key=f"devices.{name}.quorum",
            )


# Lines


def line_of(text: str, key: str) -> int:
    """The line (from 1) on which a dotted key or its table stands in TOML text; 0 if it cannot be told."""
    if not key:
        return 0
    parts = key.split(".")
    for cut in range(len(parts), 0, -1):
        found = _find_line(text, parts[:cut])
        if found:
            return found
    return 0


def _find_line(text: str, parts: list[str]) -> int:
    table: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        header = re.match(r"\s*\[\[?\s*([^\]#]+?)\s*\]\]?\s*(#.*)?$", line)
        if header:
            table = [part.strip().strip("\"'") for part in header[1].split(".")]
            if table[: len(parts)] == parts:  # a table may be named by its children alone
                return number
            continue
        assigned = re.match(r"\s*([A-Za-z0-9_.\"'-]+)\s*=", line)
        if assigned and table + [part.strip("\"'") for part in assigned[1].split(".")] == parts:
            return number
    return 0


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
    except (OSError, UnicodeDecodeError) as error:
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
