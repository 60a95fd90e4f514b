"""Builds the providers that a config names, in its order, with the built-in intents as the last resort."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from zeroclawd.config import Config, ProviderConfig, secret
from zeroclawd.errors import ConfigError, KeyFileError
from zeroclawd.interfaces import DeviceInfo, Provider
from zeroclawd.providers.later import LaterProvider
from zeroclawd.providers.pool import Pool
from zeroclawd.providers.wording import Say

if TYPE_CHECKING:
    from zeroclawd.providers.openai import Endpoint

INTENT = "intent"

Devices = Callable[[], tuple[DeviceInfo, ...]]


def build(
    config: Config, pool: Pool, devices: Devices, texts: Say, environ: Mapping[str, str] = os.environ
) -> Provider:
    """The chain of `agent.providers`; with `intent` alone it is that provider itself.

    KeyFileError if a key cannot be read; ConfigError if the providers cannot stand in one chain.
    """
    _check_protocols(config)
    names = list(dict.fromkeys(config.agent.providers))
    if not any(_kind(config, name) == INTENT for name in names):
        names.append(INTENT)
    providers = [_one(config, name, pool, devices, texts, environ, alone=len(names) == 1) for name in names]
    if len(providers) == 1:
        return providers[0]
    from zeroclawd.providers.chain import ChainProvider

    return ChainProvider(providers)


def _check_protocols(config: Config) -> None:
    """A turn writes its request in one protocol: a model that gets the other one would only claim to have done things."""
    if config.runtime.tool_protocol != "auto":
        return
    asked = [config.providers[name] for name in config.agent.providers if _kind(config, name) != INTENT]
    if len({provider.tools for provider in asked}) > 1:
        raise ConfigError(
            "mixes providers with tools = 'native' and tools = 'text'",
            key="agent.providers",
            hint="set tool_protocol = 'text' in the runtime profile to speak text to all of them",
        )


def _kind(config: Config, name: str) -> str:
    found = config.providers.get(name)
    return found.kind if found else INTENT


def _one(
    config: Config,
    name: str,
    pool: Pool,
    devices: Devices,
    texts: Say,
    environ: Mapping[str, str],
    *,
    alone: bool,
) -> Provider:
    found = config.providers.get(name)
    match found.kind if found else INTENT:
        case "openai" if found:
            native = _native(config, found)
            return _openai(endpoint(name, found, environ, native=native), pool)
        case "scripted" if found:
            from zeroclawd.providers.scripted import ScriptedProvider

            return ScriptedProvider(found.replies, name=name, native_tools=_native(config, found))
        case _:
            return _intent(name, devices, texts, alone=alone)


def _openai(where: Endpoint, pool: Pool) -> Provider:
    def make() -> Provider:
        from zeroclawd.providers.openai import OpenAIProvider

        return OpenAIProvider(where, pool)

    return LaterProvider(where.name, make, native_tools=where.native_tools)


def _intent(name: str, devices: Devices, texts: Say, *, alone: bool) -> Provider:
    def make() -> Provider:
        from zeroclawd.providers.intent import IntentProvider

        return IntentProvider(devices, texts, name=name, raises=not alone)

    return LaterProvider(name, make)


def _native(config: Config, found: ProviderConfig) -> bool:
    protocol = config.runtime.tool_protocol
    return (found.tools if protocol == "auto" else protocol) == "native"


def endpoint(
    name: str, found: ProviderConfig, environ: Mapping[str, str] = os.environ, *, native: bool = True
) -> Endpoint:
    """A config section as an endpoint, with its key read; KeyFileError if that fails."""
    key = secret(
        f"providers.{name}",
        file=found.api_key_file,
        env=found.api_key_env,
        credential=found.api_key_credential,
        environ=environ,
    )
    if not (key.isascii() and key.isprintable() and " " not in key):
        raise KeyFileError(
            f"providers.{name}: the key holds characters that no key has",
            hint="the file holds the key and nothing else",
        )
    from zeroclawd.providers.openai import Endpoint

    return Endpoint(
        name=name,
        base_url=found.base_url,
        model=found.model,
        key=key,
        ca_file=found.ca_file,
        native_tools=native,
        stream=found.stream,
        connect_timeout=float(found.connect_timeout),
        idle_timeout=float(found.idle_timeout),
        total_timeout=float(found.total_timeout),
        retries=found.retries,
        temperature=found.temperature,
        max_tokens=found.max_tokens,
    )
