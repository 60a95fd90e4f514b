"""Plans the house: checks everything that can be checked without touching hardware or network."""

from __future__ import annotations

import platform
import re
from pathlib import Path

from zeroclawd import policy, signing
from zeroclawd.catalog import Catalog
from zeroclawd.config import Config, Loaded, MqttConfig, ProviderConfig, secret
from zeroclawd.errors import ConfigError, KeyFileError
from zeroclawd.frozen import dataclass
from zeroclawd.locale import Texts
from zeroclawd.redact import Redactor
from zeroclawd.tool import Effect, Risk


@dataclass(frozen=True, slots=True)
class Plan:
    """What a config would run: nothing has been opened yet, and nothing is wrong that can be seen from outside."""

    loaded: Loaded
    texts: Texts
    catalog: Catalog
    redactor: Redactor
    node: str
    devices: tuple[str, ...]

    @property
    def config(self) -> Config:
        """The config itself."""
        return self.loaded.config


def plan(loaded: Loaded, *, cache: Path | None = None) -> Plan:
    """Check a config to its end; ConfigError says file, line, key and reason."""
    config = loaded.config
    try:
        texts = Texts(config.agent.locale, cache=cache)
        catalog = Catalog.load(texts)
        devices = _plan_board(config)
        _check_names(config, catalog)
        _check_operators(config)
        return Plan(loaded, texts, catalog, Redactor.of(_secrets(config)), node_of(config), devices)
    except ConfigError as error:
        raise loaded.locate(error) from None


def _plan_board(config: Config) -> tuple[str, ...]:
    from zeroclawd.board.plan import describe, plan_devices

    return tuple(describe(config, plan_devices(config)))


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
    """What the policy says of one tool, and of one device where the tool changes devices."""

    tool: str
    device: str
    risk: str
    ruling: str
    reason: str


def rulings(plan: Plan) -> list[Ruled]:
    """What would run, ask or be blocked, as far as it does not depend on a call's other arguments."""
    profile = plan.config.risk
    rows = []
    for name, tool in sorted(plan.catalog.scoped(profile).tools.items()):
        takes_device = "device" in tool.spec.parameters.get("properties", {})
        changes = tool.assess({}).effect is not Effect.READ
        for device in plan.config.devices if takes_device and changes else [""]:
            given = plan.config.devices[device].risk if device else None
            assessment = policy.floor(
                tool.assess({"device": device} if device else {}), Risk.parse(given) if given else None
            )
            answer = policy.rule(profile, name, assessment)
            rows.append(Ruled(name, device, assessment.risk.word, answer.ruling.value, answer.reason))
    return rows
