"""Plans the house: checks everything that can be checked without touching hardware or network."""

from __future__ import annotations

import platform
import re
from pathlib import Path

from zeroclawd import assets, policy, signing
from zeroclawd.catalog import Catalog
from zeroclawd.config import Config, Loaded, MqttConfig, ProviderConfig, secret
from zeroclawd.errors import ConfigError, KeyFileError
from zeroclawd.frozen import dataclass
from zeroclawd.locale import Texts
from zeroclawd.redact import Redactor
from zeroclawd.tool import Effect, Risk, Tool


@dataclass(frozen=True, slots=True)
class Plan:
    """What a config would run: nothing has been opened yet, and nothing is wrong that can be seen from outside."""

    loaded: Loaded
    texts: Texts
    catalog: Catalog
    redactor: Redactor
    node: str
    devices: tuple[str, ...]
    writable: tuple[str, ...]

    @property
    def config(self) -> Config:
        """The config itself."""
        return self.loaded.config


def plan(loaded: Loaded, *, cache: Path | None = None) -> Plan:
    """Check a config to its end; ConfigError says file, line, key and reason."""
    config = loaded.config
    try:
        texts = Texts(config.agent.locale, cache=cache)
        _check_language(config, texts)
        catalog = Catalog.load(texts)
        devices, writable = _plan_board(config)
        _check_names(config, catalog)
        _check_operators(config)
        return Plan(loaded, texts, catalog, Redactor.of(_secrets(config)), node_of(config), devices, writable)
    except ConfigError as error:
        raise loaded.locate(error) from None


def _check_language(config: Config, texts: Texts) -> None:
    wanted = config.agent.locale
    if re.split(r"[-_.]", wanted)[0] != texts.language:
        known = ", ".join(sorted(path.name for path in assets.folder("locales").iterdir() if path.is_dir()))
        raise ConfigError(f"there are no texts in {wanted!r}; there are: {known}", key="agent.locale")


def _plan_board(config: Config) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The plan in words, and the names of the devices that can be written to."""
    from zeroclawd.board.plan import describe, plan_devices

    planned = plan_devices(config)
    return tuple(describe(config, planned)), tuple(device.name for device in planned if device.output is not None)


def node_of(config: Config) -> str:
    """The device's identity on the broker: as configured, else the host's name."""
    named = {mqtt.node for mqtt in config.channels.mqtt.values() if mqtt.node}
    if len(named) > 1:
        raise ConfigError(f"one device is one node, and here are {', '.join(sorted(named))}", key="channels.mqtt")
    return next(iter(named), "") or re.sub(r"[^A-Za-z0-9_-]", "-", platform.node())[:48] or "board"


def _check_names(config: Config, catalog: Catalog) -> None:
    """A name in a policy list that is neither tool nor device is a typo, and a typo there is dangerous."""
    for name, profile in config.risk_profiles.items():
        for where, entry in policy.unknown_entries(profile, catalog.tools, config.devices):
            raise ConfigError(
                f"{entry!r} is neither a tool nor a device nor 'tool:device'", key=f"risk_profiles.{name}.{where}"
            )
    for name in config.devices:
        if name in catalog.tools:
            raise ConfigError(f"a device cannot be called {name!r}: that is a tool", key=f"devices.{name}")


def _check_operators(config: Config) -> None:
    for name, operator in config.operators.items():
        key = f"operators.{name}"
        try:
            if operator.public_key:
                signing.public_key(operator.public_key, "public_key")
            else:
                secret("hmac_key_file", file=operator.hmac_key_file)
        except KeyFileError as error:
            raise ConfigError(error.text, key=key, hint=error.hint) from None


def _secrets(config: Config) -> list[str]:
    """Every secret that the config names, read now so that a missing one is found now, and known to the redactor."""
    found = [_provider_key(f"providers.{name}", provider) for name, provider in config.providers.items()]
    found += [_password(f"channels.mqtt.{alias}", mqtt) for alias, mqtt in config.channels.mqtt.items()]
    found += [secret("hmac_key_file", file=who.hmac_key_file) for who in config.operators.values()]
    return [value for value in found if value]


def _provider_key(key: str, provider: ProviderConfig) -> str:
    return _read(key, "api_key", provider.api_key_file, provider.api_key_env, provider.api_key_credential)


def _password(key: str, mqtt: MqttConfig) -> str:
    for name in ("ca_file", "cert_file", "key_file"):
        path = getattr(mqtt.tls, name) if mqtt.tls else ""
        if path and not Path(path).is_file():
            raise ConfigError(f"{path} does not exist", key=f"{key}.tls.{name}")
    return _read(key, "password", mqtt.password_file, mqtt.password_env, mqtt.password_credential)


def _read(key: str, what: str, file: str, env: str, credential: str) -> str:
    try:
        return secret(what, file=file, env=env, credential=credential)
    except KeyFileError as error:
        way = "credential" if credential else "file" if file else "env"
        raise ConfigError(error.text.removeprefix(f"{what}: "), key=f"{key}.{what}_{way}", hint=error.hint) from None


@dataclass(frozen=True, slots=True)
class Ruled:
    """What the policy says of one call: of a tool, with a device where it changes one, with a command where it runs one."""

    tool: str
    about: str
    risk: str
    ruling: str
    reason: str


_COMMANDS = ("ls", "mkdir x", "reboot")


def rulings(plan: Plan) -> list[Ruled]:
    """What would run, ask or be blocked, by an example where it depends on what a call is given."""
    scoped = plan.catalog.scoped(plan.config.risk)
    return [_ruled(plan, tool, given) for _, tool in sorted(scoped.tools.items()) for given in _examples(plan, tool)]


def _examples(plan: Plan, tool: Tool) -> list[dict[str, str]]:
    takes = tool.spec.parameters.get("properties", {})
    if "device" in takes and tool.assess({}).effect is not Effect.READ:
        return [{"device": name} for name in plan.writable]
    if "command" in takes:
        return [{"command": command} for command in _COMMANDS]
    return [{}]


def _ruled(plan: Plan, tool: Tool, given: dict[str, str]) -> Ruled:
    device = given.get("device", "")
    risk = plan.config.devices[device].risk if device else None
    assessment = policy.floor(tool.assess(given), Risk.parse(risk) if risk else None)
    answer = policy.rule(plan.config.risk, tool.name, assessment)
    about = device or given.get("command", "")
    return Ruled(tool.name, about, assessment.risk.word, answer.ruling.value, answer.reason)
