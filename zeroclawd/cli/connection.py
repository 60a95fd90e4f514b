"""Where a command finds its broker and its operator's key: options, a client file, or a daemon's config."""

from __future__ import annotations

import os
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from zeroclawd.errors import ChannelError, ConfigError, KeyFileError

if TYPE_CHECKING:
    from pathlib import Path

    from zeroclawd.channels.mqtt.client import Client
    from zeroclawd.channels.mqtt.documents import Signature
    from zeroclawd.config import MqttConfig, TlsConfig
    from zeroclawd.interfaces import Health
    from zeroclawd.signing import Keypair

Command = TypeVar("Command", bound=Callable[..., Any])
Result = TypeVar("Result")

VARIABLE = "ZEROCLAWD_CLIENT"
USUAL = "~/.config/zeroclawd/client.toml"
KEYS = (
    "broker", "node", "base_topic", "username", "password_file", "ca_file", "cert_file", "key_file", "operator",
    "operator_key", "state_dir",
)  # fmt: skip
"""What a client file may say, each of it text; docs/cli.md says what it means."""
_FILES = ("password_file", "ca_file", "cert_file", "key_file", "operator_key", "state_dir")
_KEY_OF = {"base": "base_topic"}
_LOGIN = ("username", "password_file", "ca_file", "cert_file", "key_file")


class Where(NamedTuple):
    """A broker, the node that is meant, and who signs; `only` is the node if an option named it, and else all are meant."""

    host: str
    port: int
    tls: bool = False
    base: str = "zeroclaw"
    node: str = ""
    only: str = ""
    username: str = ""
    password_file: str = ""
    password_env: str = ""
    password_credential: str = ""
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    protocol: str = "auto"
    operator: str = ""
    operator_key: str = ""

    @property
    def address(self) -> str:
        """The broker, for people."""
        return f"{'mqtts' if self.tls else 'mqtt'}://{self.host}:{self.port}"

    def one_node(self) -> str:
        """The node, for commands that need one."""
        if not self.node:
            raise click.UsageError(
                "which node? Name it with --node, or as `node` in the client file; `zeroclawd status` lists the nodes"
            )
        return self.node

    # What a connection takes

    @property
    def mqtt(self) -> MqttConfig:
        """The same as a daemon's config would say it."""
        from zeroclawd.config import MqttConfig

        return MqttConfig(
            host=self.host,
            port=self.port,
            base_topic=self.base,
            username=self.username,
            password_file=self.password_file,
            password_env=self.password_env,
            password_credential=self.password_credential,
            tls=self.tls_config(),
            protocol=self.protocol,  # type: ignore[arg-type]
        )

    def tls_config(self) -> TlsConfig | None:
        """How to check the broker's certificate, or None without TLS."""
        if not self.tls:
            return None
        from zeroclawd.config import TlsConfig

        return TlsConfig(ca_file=self.ca_file, cert_file=self.cert_file, key_file=self.key_file)

    def password(self) -> str:
        """The password of the login; empty if none is named."""
        from zeroclawd.config import secret

        return secret("password", file=self.password_file, env=self.password_env, credential=self.password_credential)

    # Who signs

    def signature(self) -> Signature | None:
        """Who signs and with what, or None if nobody is named."""
        if not self.operator and not self.operator_key:
            return None
        if not (self.operator and self.operator_key):
            missing = "--key FILE" if self.operator else "--operator NAME"
            raise click.UsageError(f"an operator signs with a name and a key; {missing} is missing")
        from pathlib import Path

        from zeroclawd.channels.mqtt.documents import Signature

        return Signature(self.operator, read_key(Path(self.operator_key).expanduser()))

    def signed(self) -> Signature:
        """Who signs; UsageError if nobody does."""
        made = self.signature()
        if made is None:
            raise click.UsageError(
                "this needs an operator's signature: --operator NAME --key FILE, or `operator` and `operator_key` in the "
                "client file; `zeroclawd operator keygen NAME` makes a key"
            )
        return made


def read_key(path: Path) -> Keypair:
    """An operator's key file: 32 bytes in base64, readable by its owner alone. KeyFileError says what is wrong with it."""
    from zeroclawd.signing import Keypair, unb64

    try:
        text, mode = path.read_text("utf-8"), path.stat().st_mode
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "not text"
        raise KeyFileError(
            f"the operator's key {path} cannot be read: {reason}",
            hint="`zeroclawd operator keygen NAME` makes one; --key names the file",
        ) from None
    if mode & 0o077:
        raise KeyFileError(f"the operator's key {path} is open to others", hint=f"chmod 600 {path}")
    try:
        seed = unb64(text)
    except ValueError:
        seed = b""
    if len(seed) != 32:
        raise KeyFileError(
            f"{path} is no operator's key (32 bytes in base64)",
            hint="take the file that `zeroclawd operator keygen NAME` wrote, not the public key",
        )
    return Keypair(seed)


# Options


def options(function: Command) -> Command:
    """The options by which a command finds its broker; `resolve` makes a Where of them."""
    for option in reversed(_BROKER):
        function = option(function)
    return function


def signing_options(function: Command) -> Command:
    """The options by which a command finds out who signs."""
    for option in reversed(_OPERATOR):
        function = option(function)
    return function


_FILE = click.Path(dir_okay=False)
_BROKER = (
    click.option("--broker", default="", metavar="URL", help="mqtt://HOST[:PORT], or mqtts:// for TLS."),
    click.option("--node", default="", help="The node that is meant.  [default: as in the file, or all]"),
    click.option("--base", default="", help="The base topic.  [default: zeroclaw]"),
    click.option("--username", default="", help="The broker login."),
    click.option("--password-file", default="", type=_FILE, help="A file with its password."),
    click.option("--ca-file", default="", type=_FILE, help="The authority of the broker's certificate."),
    click.option("--cert-file", default="", type=_FILE, help="Your own certificate, where the broker wants one."),
    click.option("--key-file", default="", type=_FILE, help="The private key of that certificate."),
    click.option("--config", default="", type=_FILE, help="Take broker and node from a daemon's config."),
    click.option("--channel", default="", help="Which [channels.mqtt.<alias>] of it, if there are several."),
)
_OPERATOR = (
    click.option("--operator", default="", metavar="NAME", help="Who signs."),
    click.option("--key", "operator_key", default="", type=_FILE, help="The operator's key file."),
)


def resolve(given: Mapping[str, str], environ: Mapping[str, str] = os.environ) -> Where:
    """Join options with a daemon's config or the client file; options go first. UsageError if no broker is named."""
    named = {_KEY_OF.get(name, name): value for name, value in given.items() if value}
    named["only"] = named.get("node", "")
    config, channel, broker = (named.pop(name, "") for name in ("config", "channel", "broker"))
    if config and broker:
        raise click.UsageError("--config and --broker both name a broker; give one of them")
    if config:
        return _where({**_from_config(config, channel), **named})
    file = client_file(environ)
    known = _read_client(file) if file else {}
    if broker:
        # What the file says of another broker's login must not reach this one.
        known = {key: value for key, value in known.items() if key not in _LOGIN} | {"broker": broker}
    if "broker" not in known:
        raise click.UsageError(
            "which broker? Give --broker mqtt://HOST, or --config FILE of a daemon, or write\n"
            f'  broker = "mqtt://HOST"\ninto {USUAL} or the file that ${VARIABLE} names'
        )
    return _where({**known, **named})


def _where(found: dict[str, Any]) -> Where:
    if "broker" in found:
        found |= _address(found.pop("broker"))
    base = found.pop("base_topic", "zeroclaw")
    found.pop("state_dir", "")
    found["port"] = found["port"] or (8883 if found["tls"] else 1883)
    where = Where(base=base, **found)
    if (where.ca_file or where.cert_file) and not where.tls:
        raise click.UsageError(f"certificates mean TLS, and {where.address} has none; write mqtts://")
    return where


def _address(broker: str) -> dict[str, Any]:
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(broker if "://" in broker else f"mqtt://{broker}")
        port = parts.port or 0
    except ValueError:
        parts, port = urlsplit(""), 0
    if parts.scheme not in ("mqtt", "mqtts") or not parts.hostname or parts.path.strip("/"):
        raise click.UsageError(f"{broker!r} is no broker: mqtt://HOST[:PORT], or mqtts://HOST[:PORT] for TLS")
    if parts.username is not None:
        raise click.UsageError(
            "a login does not belong into the address, where others see it: --username, --password-file"
        )
    return {"host": parts.hostname, "port": port, "tls": parts.scheme == "mqtts"}


# The client file


def client_file(environ: Mapping[str, str] = os.environ) -> str:
    """The client file that is used: the one that is named, the usual one if it is there, or none (empty)."""
    named = environ.get(VARIABLE, "")
    path = os.path.expanduser(named or USUAL)
    if os.path.isfile(path):
        return path
    if named:
        raise ConfigError("there is no such file", file=path, hint=f"unset {VARIABLE}, or name one that is there")
    return ""


def client_state_dir(environ: Mapping[str, str] = os.environ) -> str:
    """Where the client file says that the daemon keeps its ledger; empty if it does not say."""
    file = client_file(environ)
    return _read_client(file).get("state_dir", "") if file else ""


def _read_client(file: str) -> dict[str, str]:
    import tomllib

    try:
        with open(file, "rb") as opened:
            table = tomllib.load(opened)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError(f"cannot be read: {reason}", file=file) from None
    for key, value in table.items():
        if key not in KEYS:
            raise ConfigError(f"unknown key{_did_you_mean(key)}", key=key, file=file, hint=f"known: {', '.join(KEYS)}")
        if not isinstance(value, str):
            raise ConfigError("must be text", key=key, file=file)
    return {key: _beside(file, value) if key in _FILES else value for key, value in table.items() if value}


def _did_you_mean(key: str) -> str:
    import difflib

    near = difflib.get_close_matches(key, KEYS, n=1)
    return f"; did you mean '{near[0]}'?" if near else ""


def _beside(file: str, name: str) -> str:
    return os.path.join(os.path.dirname(file), os.path.expanduser(name))


def _from_config(path: str, channel: str) -> dict[str, Any]:
    from zeroclawd.config import load
    from zeroclawd.daemon.build import node_of

    config = load(path).config
    channels = config.channels.mqtt
    if channel and channel not in channels:
        raise click.UsageError(f"{path} has no [channels.mqtt.{channel}]; it has {', '.join(channels) or 'none'}")
    if len(channels) != 1 and not channel:
        raise click.UsageError(
            f"{path} has several brokers; say which with --channel: {', '.join(channels)}"
            if channels
            else f"{path} has no [channels.mqtt.<alias>]"
        )
    mqtt = channels[channel or next(iter(channels))]
    same = ("host", "port", "username", "password_file", "password_env", "password_credential", "protocol")
    tls = mqtt.tls
    files = {name: getattr(tls, name) for name in ("ca_file", "cert_file", "key_file")} if tls else {}
    return {
        **{name: getattr(mqtt, name) for name in same}, **files, "tls": tls is not None,
        "base_topic": mqtt.base_topic, "node": node_of(config),
    }  # fmt: skip


# Running


def client(where: Where, *listen: str, on_change: Callable[[Health], None] = lambda _health: None) -> Client:
    """A client that listens on these topics below the base."""
    import logging

    from zeroclawd.channels.mqtt.client import Client

    # What the link has to say is told as an error or by `on_change`, not in the form of a journal.
    logging.getLogger("zeroclawd").addHandler(logging.NullHandler())
    return Client(where.mqtt, listen=listen, on_change=on_change)


def run(where: Where, main: Coroutine[Any, Any, Result]) -> Result:
    """Run to the end; an error comes out alone, and one of the connection says which broker was tried."""
    import asyncio

    try:
        return asyncio.run(main)
    except BaseExceptionGroup as group:
        raise _first(group) from None
    except ChannelError as error:
        raise ChannelError(error.text, hint=error.hint or f"is {where.address} the broker of the nodes?") from None


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
