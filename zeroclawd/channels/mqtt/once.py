"""Publishes one message and ends: what a script needs, without an event loop and what comes with one."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode, MQTTProtocolVersion

from zeroclawd.channels.mqtt import wording
from zeroclawd.errors import ChannelError

if TYPE_CHECKING:
    from typing import Protocol

    from paho.mqtt.properties import Properties
    from paho.mqtt.reasoncodes import ReasonCode

    from zeroclawd.config import TlsConfig

    class Target(wording.Broker, Protocol):
        """A broker with all that it takes to connect."""

        @property
        def protocol(self) -> str:
            """As in the config; `auto` tries 3.1.1 if the broker does not speak 5."""
            ...

        def password(self) -> str:
            """What goes with the login; KeyFileError if it cannot be read."""
            ...

        def tls_config(self) -> TlsConfig | None:
            """How to check the broker's certificate, or None without TLS."""
            ...


ACKNOWLEDGE_SECONDS = 15.0
_VERSIONS = {
    "auto": (MQTTProtocolVersion.MQTTv5, MQTTProtocolVersion.MQTTv311),
    "5": (MQTTProtocolVersion.MQTTv5,),
    "3.1.1": (MQTTProtocolVersion.MQTTv311,),
}


class _OtherProtocol(ChannelError):
    """The broker does not answer to this version of the protocol."""


def publish(target: Target, topic: str, payload: bytes) -> None:
    """Publish with QoS 1 and return when the broker has it; ChannelError or KeyFileError in one sentence otherwise."""
    *first, last = _VERSIONS[target.protocol]
    for version in first:
        with contextlib.suppress(_OtherProtocol):
            return _Attempt(target, version, topic, payload).run()
    return _Attempt(target, last, topic, payload).run()


class _Attempt:
    """One connection, in which one message is published."""

    def __init__(self, target: Target, version: MQTTProtocolVersion, topic: str, payload: bytes) -> None:
        self._target = target
        self._topic, self._payload = topic, payload
        self._error: ChannelError | None = None
        self._last_error = ""
        self._answered = False
        self._done = False
        self._client = mqtt.Client(CallbackAPIVersion.VERSION2, protocol=version, reconnect_on_failure=False)
        self._client.connect_timeout = wording.CONNECT_SECONDS
        self._client.on_connect = self._on_connect
        self._client.on_publish = self._on_publish
        self._client.on_log = self._on_log

    def run(self) -> None:
        try:
            self._connect()
        except OSError as error:
            raise ChannelError(wording.explain(error, self._target)) from None
        try:
            self._wait()
        finally:
            self._client.disconnect()

    def _connect(self) -> None:
        if self._target.username:
            self._client.username_pw_set(self._target.username, self._target.password() or None)
        if tls := self._target.tls_config():
            self._client.tls_set_context(wording.tls_context(tls))
        self._client.connect(self._target.host, self._target.port)

    def _wait(self) -> None:
        deadline = time.monotonic() + ACKNOWLEDGE_SECONDS
        while not self._done:
            lost = self._client.loop(0.5) != MQTTErrorCode.MQTT_ERR_SUCCESS
            if self._error:
                raise self._error
            if lost and not self._done:
                raise self._lost()
            if time.monotonic() > deadline:
                raise ChannelError("the broker did not acknowledge the message in time")

    def _lost(self) -> ChannelError:
        if self._answered:
            return ChannelError("the connection to the broker was lost before it acknowledged the message")
        kind = ChannelError if self._last_error else _OtherProtocol
        return kind(wording.silent(self._target, self._last_error))

    # paho's callbacks

    def _on_connect(
        self, client: mqtt.Client, _data: Any, _flags: Any, reason: ReasonCode, properties: Properties | None
    ) -> None:
        self._answered = True
        if reason.value == wording.UNSUPPORTED_PROTOCOL:
            self._error = _OtherProtocol("the broker does not speak this version of MQTT")
        elif reason.is_failure:
            self._error = ChannelError(wording.refusal(self._target, reason, properties))
        else:
            client.publish(self._topic, self._payload, qos=1)

    def _on_publish(self, _client: Any, _data: Any, _mid: int, reason: ReasonCode, _properties: Any) -> None:
        if reason.is_failure:
            self._error = ChannelError(f"the broker refused the message: {reason}")
        self._done = True

    def _on_log(self, _client: Any, _data: Any, level: int, text: str) -> None:
        if level == mqtt.MQTT_LOG_ERR:
            self._last_error = text
