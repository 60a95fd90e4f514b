"""Builds the house: checks everything that can be checked without touching hardware, then introduces the rooms."""

from __future__ import annotations

import logging
import platform
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zeroclawd import __version__, policy, signing
from zeroclawd.catalog import Catalog
from zeroclawd.config import Config, Loaded, MqttConfig, ProviderConfig, secret
from zeroclawd.errors import ConfigError, KeyFileError, ZeroclawdError
from zeroclawd.interfaces import Approver, Board, Channel, Clock, Emit, Health, Observer, Provider
from zeroclawd.locale import Texts
from zeroclawd.messages import Ingress, RawCall
from zeroclawd.receipts import ReceiptScope
from zeroclawd.redact import Redactor
from zeroclawd.tool import Effect, Risk, ToolLimits
from zeroclawd.turn.context import TurnContext

if TYPE_CHECKING:
    from zeroclawd.board.board import DeviceBoard
    from zeroclawd.store.store import Store

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Plan:
    """What a config would run: nothing has been opened yet, and nothing is wrong that can be seen from outside."""

    loaded: Loaded
    texts: Texts
    catalog: Catalog
    redactor: Redactor
    node: str
    devices: tuple[str, ...]
    notes: tuple[str, ...] = ()

    @property
    def config(self) -> Config:
        """The config itself."""
        return self.loaded.config


def plan(loaded: Loaded, *, cache: Path | None = None) -> Plan:
    """Check a config to the end without touching hardware or network; ConfigError or KeyFileError says what is wrong."""
    config = loaded.config
    try:
        texts = Texts(config.agent.locale, cache=cache)
        catalog = Catalog.load(texts)
        devices = _plan_board(config)
        notes = [*_check_names(config, catalog), *(f"{broken.file}: {broken.reason}" for broken in catalog.broken)]
        redactor = Redactor.of(_secrets(config))
        _check_operators(config)
        return Plan(loaded, texts, catalog, redactor, node_of(config), devices, tuple(notes))
    except ConfigError as error:
        raise loaded.locate(error) from None


def _plan_board(config: Config) -> tuple[str, ...]:
    from zeroclawd.board.board import DeviceBoard

    return tuple(DeviceBoard.plan(config))


def node_of(config: Config) -> str:
    """The device's identity on the broker: as configured, else from the machine id, so that cloned images differ."""
    for mqtt in config.channels.mqtt.values():
        if mqtt.node:
            return mqtt.node
    return re.sub(r"[^A-Za-z0-9_-]", "-", platform.node())[:48] or "board"


def _check_names(config: Config, catalog: Catalog) -> list[str]:
    """A name in a policy list that is neither tool nor device is a typo, and a typo there is dangerous."""
    for name, profile in config.risk_profiles.items():
        for where, entry in policy.unknown_entries(profile, catalog.tools, config.devices):
            raise ConfigError(
                f"{entry!r} is neither a tool nor a device nor 'tool:device'", key=f"risk_profiles.{name}.{where}"
            )
    for name in config.devices:
        if name in catalog.tools:
            raise ConfigError(f"a device cannot be called {name!r}: that is a tool", key=f"devices.{name}")
    return []


def _check_operators(config: Config) -> None:
    for name, operator in config.operators.items():
        key = f"operators.{name}"
        try:
            if operator.public_key:
                signing.public_key(operator.public_key, key)
            else:
                secret(key, file=operator.hmac_key_file)
        except KeyFileError as error:
            raise ConfigError(error.text, key=key, hint=error.hint) from None


def _secrets(config: Config) -> list[str]:
    """Every secret that the config names, read now so that a missing one is found now, and known to the redactor."""
    found = [_provider_key(f"providers.{name}", provider) for name, provider in config.providers.items()]
    found += [_password(f"channels.mqtt.{alias}", mqtt) for alias, mqtt in config.channels.mqtt.items()]
    return [value for value in found if value]


def _provider_key(key: str, provider: ProviderConfig) -> str:
    return _read(
        key, file=provider.api_key_file, env=provider.api_key_env, credential=provider.api_key_credential
    )


def _password(key: str, mqtt: MqttConfig) -> str:
    for name in ("ca_file", "cert_file", "key_file"):
        path = getattr(mqtt.tls, name) if mqtt.tls else ""
        if path and not Path(path).is_file():
            raise ConfigError(f"{path} does not exist", key=f"{key}.tls.{name}")
    return _read(key, file=mqtt.password_file, env=mqtt.password_env, credential=mqtt.password_credential)


def _read(key: str, **where: str) -> str:
    try:
        return secret(key, **where)
    except KeyFileError as error:
        raise ConfigError(error.text.removeprefix(f"{key}: "), key=key, hint=error.hint) from None


def rulings(plan: Plan) -> list[tuple[str, str, str, str, str]]:
    """What the policy says of each tool, and of each device that a tool may change: tool, device, risk, ruling, reason."""
    profile = plan.config.risk
    scoped = plan.catalog.scoped(profile)
    rows = []
    for name, tool in sorted(scoped.tools.items()):
        properties = tool.spec.parameters.get("properties", {})
        for device in plan.config.devices if "device" in properties else [""]:
            assessment = tool.assess({"device": device} if device else {})
            risk = plan.config.devices[device].risk if device else None
            assessment = policy.floor(assessment, Risk.parse(risk) if risk else None)
            answer = policy.rule(profile, name, assessment)
            if assessment.effect is not Effect.READ or not device:
                rows.append((name, device, assessment.risk.word, answer.ruling.value, answer.reason))
    return rows


# The rooms


@dataclass(slots=True)
class House:
    """The rooms, built and introduced; `base` is what every turn starts from."""

    plan: Plan
    clock: Clock
    boot_id: str
    store: Store
    board: DeviceBoard
    provider: Provider
    channels: tuple[Channel, ...]
    base: TurnContext
    emit: Emit
    observers: tuple[Observer, ...] = ()
    extra: dict[str, Any] = field(default_factory=dict)


def turn_context(
    plan: Plan,
    *,
    boot_id: str,
    provider: Provider,
    board: Board,
    store: Store,
    clock: Clock,
    stopped: Callable[[], bool],
    approvers: Callable[[Ingress], Approver | None],
    direct: Callable[[Sequence[RawCall]], Provider],
) -> TurnContext:
    """What every turn of the agent starts from."""
    config = plan.config
    settings = config.agent.tool_receipts
    key = store.device_key
    return TurnContext(
        agent=config.agent.name,
        node=plan.node,
        boot_id=boot_id,
        provider=provider,
        catalog=plan.catalog,
        everything=plan.catalog,
        profile=config.risk,
        runtime=config.runtime,
        approver=None,
        board=board,
        ledger=store.ledger,
        questions=store.questions,
        clock=clock,
        redactor=plan.redactor,
        digest_key=signing.derive(key, "digests"),
        receipts=ReceiptScope.derive(key, boot_id) if settings.enabled else None,
        receipt_settings=settings,
        texts=plan.texts,
        workspace=config.workspace,
        limits=ToolLimits(
            shell_seconds=float(config.runtime.shell_timeout), environment=tuple(config.runtime.shell_environment)
        ),
        stopped=stopped,
        direct=direct,
        approvers=approvers,
        language=plan.texts.language,
        system_prompt=config.agent.system_prompt,
    )


def new_boot_id() -> str:
    """The id of this run of the daemon; questions and receipts belong to one."""
    return secrets.token_hex(8)


def overall(parts: Sequence[Health]) -> str:
    """ok, degraded or down: the worst of the parts, where one channel that is down only degrades the whole."""
    return "ok" if all(part.state == "ok" for part in parts) else "degraded"


def version() -> Mapping[str, str]:
    """What the status document says of the program."""
    return {"version": __version__, "python": platform.python_version()}


__all__ = ["House", "Plan", "ZeroclawdError", "new_boot_id", "node_of", "overall", "plan", "replace", "rulings"]
