"""Where a command finds its broker and its operator's key: flags, a client file, or a daemon's config."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

import click

from zeroclawd.config import MqttConfig, TlsConfig
from zeroclawd.errors import ConfigError, KeyFileError

if TYPE_CHECKING:
    from zeroclawd.channels.mqtt.client import Signature

Command = TypeVar("Command", bound=Callable[..., Any])

VARIABLE = "ZEROCLAWD_CLIENT"
_DEFAULT = Path("~/.config/zeroclawd/client.toml")
_KEYS = (
    "broker", "node", "base_topic", "username", "password_file", "ca_file", "cert_file", "key_file", "operator",
    "operator_key",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Where:
    """A broker, the node that is meant (empty: all), and who signs."""

    mqtt: MqttConfig
    node: str = ""
    operator: str = ""
    operator_key: str = ""

    def one_node(self) -> str:
        """The node, for commands that need one."""
        if not self.node:
            raise click.UsageError("which node? Name it with --node, or in the client file")
        return self.node

    def signature(self) -> Signature | None:
        """Who signs and with what, or None if no operator is named."""
        from zeroclawd.channels.mqtt.client import Signature

        if not self.operator and not self.operator_key:
            return None
        if not (self.operator and self.operator_key):
            raise click.UsageError("an operator has a name and a key: give both --operator and --key")
        return Signature(self.operator, read_key(Path(self.operator_key)))

    def signed(self) -> Signature:
        """Who signs; an error that says what to do if nobody does."""
        made = self.signature()
        if made is None:
            raise click.UsageError(
                "this needs an operator's signature: --operator NAME --key FILE (`zeroclawd operator keygen` makes one)"
            )
        return made


def read_key(path: Path) -> Any:
    """An operator's Ed25519 key file: 32 bytes in base64. KeyFileError says what is wrong with it."""
    from zeroclawd.config import secret
    from zeroclawd.signing import Keypair, unb64

    text = secret("operator key", file=str(path.expanduser()))
    try:
        seed = unb64(text)
    except ValueError:
        seed = b""
    if len(seed) != 32:
        raise KeyFileError(
            f"operator key: {path} holds no Ed25519 key", hint="`zeroclawd operator keygen NAME` makes one"
        )
    return Keypair(seed)


def options(function: Command) -> Command:
    """The options by which a command finds its broker; it gets them as one `where`."""
    for option in reversed(
        (
            click.option("--broker", default="", help="mqtt://HOST[:PORT] or mqtts://HOST[:PORT]."),
            click.option("--node", default="", help="The node that is meant."),
            click.option("--base", default="", help="The base topic.  [default: zeroclaw]"),
            click.option("--username", default="", help="The broker login."),
            click.option("--password-file", default="", help="A file with its password."),
            click.option("--ca-file", default="", help="The authority of the broker's certificate."),
            click.option("--operator", default="", help="Who signs."),
            click.option("--key", "operator_key", default="", help="The operator's key file."),
            click.option("--config", default="", help="Take broker and node from a daemon's config."),
        )
    ):
        function = option(function)
    return function


def resolve(**given: str) -> Where:
    """Join flags, client file and config, the flags first; UsageError names all ways if there is no broker."""
    config = given.pop("config", "")
    found = _from_config(Path(config)) if config else _from_client_file()
    return _with_flags(found, given)


def _from_config(path: Path) -> Where:
    from zeroclawd.config import load

    loaded = load(path).config
    if not loaded.channels.mqtt:
        raise click.UsageError(f"{path} has no [channels.mqtt.<alias>]")
    mqtt = next(iter(loaded.channels.mqtt.values()))
    return Where(mqtt, mqtt.node)


def _from_client_file() -> Where | None:
    named = os.environ.get(VARIABLE, "")
    path = Path(named or _DEFAULT).expanduser()
    if not path.is_file():
        if named:
            raise ConfigError("cannot be read", file=str(path), hint=f"unset {VARIABLE}, or name a file that is there")
        return None
    try:
        table = tomllib.loads(path.read_text("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise ConfigError(f"is no usable client file: {error}", file=str(path)) from None
    for key, value in table.items():
        if key not in _KEYS or not isinstance(value, str):
            raise ConfigError(f"unknown or not a text; known here: {', '.join(_KEYS)}", file=str(path), key=key)
    return _with_flags(None, {("base" if key == "base_topic" else key): value for key, value in table.items()})


def _with_flags(found: Where | None, given: dict[str, str]) -> Where:
    if found is None and not given.get("broker"):
        raise click.UsageError(
            'which broker? Give --broker mqtt://HOST, or --config of a daemon, or write broker = "mqtt://HOST" into '
            f"{_DEFAULT} (or the file that ${VARIABLE} names)"
        )
    where = found or Where(MqttConfig())
    import msgspec

    mqtt = where.mqtt
    if broker := given.get("broker"):
        mqtt = _address(mqtt, broker, given)
    changes = {"username": "username", "password_file": "password_file", "base": "base_topic"}
    mqtt = msgspec.structs.replace(mqtt, **{key: given[flag] for flag, key in changes.items() if given.get(flag)})
    named = {key: given[key] for key in ("node", "operator", "operator_key") if given.get(key)}
    return replace(where, mqtt=mqtt, **named)


def _address(mqtt: MqttConfig, broker: str, given: dict[str, str]) -> MqttConfig:
    import msgspec

    parts = urlsplit(broker if "://" in broker else f"mqtt://{broker}")
    if parts.scheme not in ("mqtt", "mqtts") or not parts.hostname:
        raise click.UsageError(f"{broker!r} is no broker: mqtt://HOST[:PORT], or mqtts://HOST[:PORT] for TLS")
    secure = parts.scheme == "mqtts" or bool(given.get("ca_file"))
    tls = TlsConfig(
        ca_file=given.get("ca_file", ""), cert_file=given.get("cert_file", ""), key_file=given.get("key_file", "")
    )
    return msgspec.structs.replace(mqtt, host=parts.hostname, port=parts.port or 0, tls=tls if secure else None)
