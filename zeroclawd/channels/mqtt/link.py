"""One connection to one broker: the only file that knows paho, and the only place where its thread meets the event loop.

paho's callbacks run in its network thread and do nothing but put a value into a bounded crossing; the event loop takes it
from there. Each attempt to connect has a client of its own, so nothing of an old connection leaks into a new one.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable
from typing import Any, Final, Literal

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

from zeroclawd.channels.mqtt import wording
from zeroclawd.config import TlsConfig
from zeroclawd.errors import ChannelError
from zeroclawd.frozen import dataclass
from zeroclawd.interfaces import Health, Parcel

# paho's Properties is a bag of attributes without types.
_properties: Callable[[int], Any] = Properties

V5: Final = MQTTProtocolVersion.MQTTv5
V311: Final = MQTTProtocolVersion.MQTTv311

GRANT_SECONDS = 30.0
ACKNOWLEDGE_SECONDS = 60.0
GOODBYE_SECONDS = 2.0
# Messages that the broker may have under way to us, unacknowledged (MQTT 5.0, section 3.1.2.11.3).
RECEIVE_MAXIMUM = 64
CROSSING_BOUND = 1024
WINDOW = 16

TAKEN_OVER = 0x8E


class PublishRefused(ChannelError):
    """The broker took the message's packet and refused its content; sending it again would change nothing."""


@dataclass(frozen=True, slots=True)
class Presence:
    """What tells others that this client is there: a retained topic with a birth and a will."""

    topic: str
    online: bytes = b"online"
    offline: bytes = b"offline"


@dataclass(frozen=True, slots=True)
class Options:
    """How to connect. Times are seconds, `max_packet` bytes; `password` is read anew for each attempt.

    `attempts` bounds how often a link that was never up tries, for people who wait; 0 is for ever.
    """

    host: str
    port: int
    client_id: str
    subscriptions: tuple[str, ...] = ()
    protocol: Literal["auto", "5", "3.1.1"] = "auto"
    username: str = ""
    password: Callable[[], str] = str
    tls: TlsConfig | None = None
    keepalive: float = 60.0
    session_expiry: float = 0.0
    max_packet: int = 4_194_304
    presence: Presence | None = None
    hear_own: bool = False
    first_wait: float = 1.0
    longest_wait: float = 60.0
    stable_after: float = 30.0
    attempts: int = 0


@dataclass(frozen=True, slots=True)
class Delivery:
    """A message as it arrived; `expiry` is the rest of its life in seconds, `connection` where it is acknowledged."""

    topic: str
    payload: bytes
    qos: int = 0
    retain: bool = False
    dup: bool = False
    mid: int = 0
    correlation: bytes = b""
    response_topic: str = ""
    expiry: float | None = None
    connection: Any = None


@dataclass(frozen=True, slots=True)
class _Limits:
    """What the broker's CONNACK allows (MQTT 5.0, section 3.2.2.3)."""

    window: int = WINDOW
    packet: int = 268_435_455
    retain: bool = True


@dataclass(frozen=True, slots=True)
class _Opened:
    connection: _Connection
    limits: _Limits


@dataclass(frozen=True, slots=True)
class _Granted:
    connection: _Connection
    refused: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class _Acked:
    connection: _Connection
    mid: int
    refusal: str


@dataclass(frozen=True, slots=True)
class _Ended:
    connection: _Connection
    end: _End


@dataclass(frozen=True, slots=True)
class _End:
    """Why a connection is over, in one sentence for the operator, and what follows from it."""

    text: str
    other_protocol: bool = False
    at_once: bool = False
    malformed: bool = False


_LOST = _End("the connection to the broker was lost")
_CLASH = "the broker keeps closing the connection soon after it was made; does another client use the id {!r}?"

_Event = _Opened | _Granted | _Acked | _Ended | Delivery


class _Crossing:
    """The one bridge from paho's thread to the event loop: bounded, and it never raises into paho."""

    def __init__(self, loop: asyncio.AbstractEventLoop, receive: Callable[[_Event], None], log: logging.Logger) -> None:
        self._loop = loop
        self._receive = receive
        self._log = log
        self._events: collections.deque[_Event] = collections.deque()
        self._awake = threading.Lock()
        self.dropped = 0

    def put(self, event: _Event) -> None:
        """Called in paho's thread."""
        if isinstance(event, Delivery) and len(self._events) >= CROSSING_BOUND:
            self.dropped += 1
            return
        self._events.append(event)
        if self._awake.acquire(blocking=False):
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody listens any more
                self._loop.call_soon_threadsafe(self._drain)

    def _drain(self) -> None:
        self._awake.release()
        while self._events:
            try:
                self._receive(self._events.popleft())
            except Exception:
                self._log.exception("mqtt_event_failed")


class _Connection(mqtt.Client):
    """A paho client for one connection; `loop_start` runs our `loop_forever` in paho's thread."""

    def __init__(self, options: Options, protocol: MQTTProtocolVersion, *, clean: bool, crossing: _Crossing) -> None:
        super().__init__(
            CallbackAPIVersion.VERSION2,
            client_id=options.client_id,
            clean_session=None if protocol == V5 else clean,
            protocol=protocol,
            reconnect_on_failure=False,
            manual_ack=True,
        )
        self.options = options
        self.clean = clean
        self.crossing = crossing
        self.leaving = threading.Event()
        self.opened = False
        self.asked: tuple[str, ...] = ()
        self.end = _End("")
        self.last_error = ""
        # The event loop's own: CONNACK, SUBACK and end as it has seen them, and what waits for acknowledgements.
        self.answered, self.granted, self.ended = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.refused: tuple[str, ...] = ()
        self.acknowledged: dict[int, asyncio.Future[None]] = {}
        self.slots = asyncio.Semaphore(WINDOW)
        self.limits = _Limits()
        self.suppress_exceptions = True
        self.connect_timeout = wording.CONNECT_SECONDS
        # Functions and not bound methods: paho hands the client in, and no reference cycle keeps its sockets open.
        self.on_connect = _on_connect
        self.on_subscribe = _on_subscribe
        self.on_publish = _on_publish
        self.on_message = _on_message
        self.on_disconnect = _on_disconnect
        self.on_log = _on_log

    def loop_forever(self, timeout: float = 1.0, retry_first_connection: bool = False) -> MQTTErrorCode:
        """Connect once, work until the connection is over, and say why it ended; runs in paho's thread."""
        del timeout, retry_first_connection  # how long to wait is in the options, and the link decides what follows
        result = MQTTErrorCode.MQTT_ERR_SUCCESS
        try:
            self._prepare()
            result = self._work()
        except Exception as error:
            self.end = _End(wording.explain(error, self.options), malformed=self.opened)
            _close(self)
        self.crossing.put(_Ended(self, self._final()))
        return result

    def _prepare(self) -> None:
        options = self.options
        if options.username:
            self.username_pw_set(options.username, options.password() or None)
        if options.tls:
            self.tls_set_context(wording.tls_context(options.tls))
        if options.presence:
            self.will_set(options.presence.topic, options.presence.offline, qos=1, retain=True)

    def _work(self) -> MQTTErrorCode:
        # A dead link shows after two of paho's keepalives and two of these waits: within 1.5 of the configured keepalive.
        keepalive = max(2, round(self.options.keepalive * 0.6))
        patience = max(1.0, self.options.keepalive * 0.1)
        if self.protocol == V5:
            properties = _connect_properties(self.options)
            self.connect(self.options.host, self.options.port, keepalive, clean_start=self.clean, properties=properties)
        else:
            self.connect(self.options.host, self.options.port, keepalive)
        result = MQTTErrorCode.MQTT_ERR_SUCCESS
        while result == MQTTErrorCode.MQTT_ERR_SUCCESS and not self.leaving.is_set():
            result = self.loop(patience)
        if self.socket() is not None:
            self.disconnect()
            self.loop(0.1)
        return result

    def _final(self) -> _End:
        """The end as it is known; a connection that closed before any answer may mean the other protocol version."""
        if self.end.text:
            return self.end
        if not self.opened:
            return _End(wording.silent(self.options, self.last_error), other_protocol=not self.last_error)
        return _LOST

    def ask_for(self, filters: tuple[str, ...]) -> None:
        """Subscribe with QoS 1; retained and our own messages show as such where the broker speaks MQTT 5."""
        self.asked = filters
        if self.protocol == V5:
            wanted = SubscribeOptions(qos=1, noLocal=not self.options.hear_own, retainAsPublished=True)
            self.subscribe([(name, wanted) for name in filters])
        else:
            self.subscribe([(name, 1) for name in filters])

    def leave(self) -> None:
        """End the connection; returns at once, `ended` follows."""
        self.leaving.set()
        self.disconnect()


def _close(client: mqtt.Client) -> None:
    sock = client.socket()
    if sock is not None:
        with contextlib.suppress(OSError):
            sock.close()


def _connect_properties(options: Options) -> Any:
    properties = _properties(PacketTypes.CONNECT)
    properties.SessionExpiryInterval = min(int(options.session_expiry), 0xFFFFFFFF)
    properties.ReceiveMaximum = RECEIVE_MAXIMUM
    properties.MaximumPacketSize = options.max_packet
    return properties


# paho's callbacks: they run in its thread, read what they are given and put it into the crossing


def _on_connect(
    client: mqtt.Client, _data: Any, _flags: Any, reason: ReasonCode, properties: Properties | None
) -> None:
    connection = _ours(client)
    connection.on_log = None
    if reason.is_failure:
        connection.end = _refusal(connection, reason, properties)
        return
    connection.opened = True
    connection.crossing.put(_Opened(connection, _limits(properties)))
    if connection.options.subscriptions:
        connection.ask_for(connection.options.subscriptions)
    else:
        connection.crossing.put(_Granted(connection, ()))


def _on_subscribe(client: mqtt.Client, _data: Any, _mid: int, reasons: list[ReasonCode], _properties: Any) -> None:
    connection = _ours(client)
    pairs = zip(connection.asked, reasons, strict=False)
    refused = tuple((name, str(reason)) for name, reason in pairs if reason.is_failure)
    connection.crossing.put(_Granted(connection, refused))


def _on_publish(client: mqtt.Client, _data: Any, mid: int, reason: ReasonCode, _properties: Any) -> None:
    connection = _ours(client)
    connection.crossing.put(_Acked(connection, mid, str(reason) if reason.is_failure else ""))


def _on_message(client: mqtt.Client, _data: Any, message: mqtt.MQTTMessage) -> None:
    connection = _ours(client)
    try:
        topic = message.topic
    except UnicodeDecodeError:
        connection.ack(message.mid, message.qos)
        return
    properties = message.properties
    connection.crossing.put(
        Delivery(
            topic,
            bytes(message.payload),
            message.qos,
            bool(message.retain),
            bool(message.dup),
            message.mid,
            bytes(getattr(properties, "CorrelationData", b"")),
            str(getattr(properties, "ResponseTopic", "")),
            getattr(properties, "MessageExpiryInterval", None),
            connection,
        )
    )


def _on_disconnect(
    client: mqtt.Client, _data: Any, flags: Any, reason: ReasonCode, properties: Properties | None
) -> None:
    connection = _ours(client)
    if connection.end.text or connection.leaving.is_set():
        return
    from_broker = flags.is_disconnect_packet_from_server
    if from_broker and reason.value == TAKEN_OVER:
        text = f"another client connects with the id {connection.options.client_id!r} and took this session over"
        connection.end = _End(f"{text}; give each node its own client_id")
    elif from_broker:
        connection.end = _End(f"the broker ended the connection: {wording.worded(reason, properties)}")
    elif connection.opened and reason.getName() == "Keep alive timeout":
        connection.end = _End("the broker has not answered for a whole keepalive, so the connection counts as lost")
    elif connection.opened and reason.getName() == "Protocol error":
        connection.end = _End("the broker sent a packet that cannot be read", malformed=True)


def _on_log(client: mqtt.Client, _data: Any, level: int, text: str) -> None:
    if level == mqtt.MQTT_LOG_ERR:
        _ours(client).last_error = text


def _ours(client: mqtt.Client) -> _Connection:
    assert isinstance(client, _Connection)
    return client


def _refusal(connection: _Connection, reason: ReasonCode, properties: Properties | None) -> _End:
    if reason.value == wording.UNSUPPORTED_PROTOCOL:
        spoken = "5" if connection.protocol == V5 else "3.1.1"
        return _End(f"the broker does not speak MQTT {spoken}", other_protocol=True, at_once=connection.protocol == V5)
    return _End(wording.refusal(connection.options, reason, properties))


def _limits(properties: Properties | None) -> _Limits:
    return _Limits(
        window=min(WINDOW, getattr(properties, "ReceiveMaximum", WINDOW)),
        packet=getattr(properties, "MaximumPacketSize", 268_435_455),
        retain=bool(getattr(properties, "RetainAvailable", 1)),
    )


# The event loop's side


def _chance() -> float:
    return int.from_bytes(os.urandom(4), "big") / 2**32


@dataclass(slots=True)
class _Backoff:
    """Exponential waits with full jitter, so that a fleet does not come back in one instant."""

    first: float
    longest: float
    chance: Callable[[], float] = _chance
    failures: int = 0

    def next(self) -> float:
        bound = min(self.longest, self.first * 2 ** min(self.failures, 16))
        self.failures += 1
        wait: float = self.chance() * bound
        return max(self.first * 0.1, wait)


class Link:
    """Keeps one connection to a broker up for as long as `run` runs, and says how it is."""

    def __init__(
        self,
        options: Options,
        receive: Callable[[Delivery], None],
        *,
        name: str,
        log: logging.Logger,
        on_up: Callable[[], None] = lambda: None,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        self.options = options
        self.name = name
        self._receive = receive
        self._log = log
        self._on_up = on_up
        self._on_change = on_change
        self._connection: _Connection | None = None
        self._crossing: _Crossing | None = None
        self._granted = asyncio.Event()
        self._state = "down"
        self._detail = "not connected yet"
        self._protocol = V311 if options.protocol == "3.1.1" else V5
        self._backoff = _Backoff(options.first_wait, options.longest_wait)
        self._malformed = 0
        self._short = 0
        self._refused: dict[str, str] = {}
        self.connects = 0

    # What others may ask

    def health(self) -> Health:
        """`ok` only when connected and every subscription is granted."""
        return Health(self.name, self._state, self._detail)

    @property
    def up(self) -> bool:
        """True while messages can be published and the subscriptions have been answered."""
        return self._granted.is_set()

    @property
    def protocol(self) -> str:
        """The protocol version that is spoken, or was last tried."""
        return "5" if self._protocol == V5 else "3.1.1"

    @property
    def dropped(self) -> int:
        """Messages that came faster than they could be taken."""
        return self._crossing.dropped if self._crossing else 0

    async def wait_up(self, seconds: float | None = None) -> bool:
        """Wait until the link is up, at most so long; False if it is not."""
        return await _within(seconds, self._granted)

    def ack(self, delivery: Delivery) -> None:
        """Tell the broker that a message is safe; on a connection that is gone this means nothing."""
        connection = self._connection
        if delivery.qos and connection is not None and delivery.connection is connection:
            connection.ack(delivery.mid, delivery.qos)

    async def publish(self, parcel: Parcel) -> None:
        """Publish and return on the broker's acknowledgement; ChannelError if it does not come.

        PublishRefused says that the broker will not take this message however often it is sent. Calls go out in the order
        in which they were made.
        """
        connection = self._current()
        async with connection.slots:
            if connection is not self._connection:
                raise ChannelError("the connection was lost before the message was sent")
            acknowledged = _publish(connection, parcel)
            try:
                async with asyncio.timeout(ACKNOWLEDGE_SECONDS):
                    await acknowledged
            except TimeoutError:
                connection.end = _End("the broker does not acknowledge what is published")
                connection.leave()
                raise ChannelError("the broker did not acknowledge the message in time") from None

    def publish_now(self, topic: str, payload: bytes) -> None:
        """Publish with QoS 0 if the link is up; otherwise the message is lost, as QoS 0 allows."""
        if self.up and self._connection is not None:
            self._connection.publish(topic, payload, qos=0)

    def _current(self) -> _Connection:
        if self._connection is None or not self.up:
            raise ChannelError(f"not connected: {self._detail}")
        return self._connection

    # The life of the link

    async def run(self) -> None:
        """Connect, and connect again whenever the connection ends; when cancelled, say goodbye within a bounded time.

        ChannelError only where the attempts are bounded and used up.
        """
        self._crossing = _Crossing(asyncio.get_running_loop(), self._take, self._log)
        try:
            while True:
                end = await self._one_connection(self._crossing)
                if self.options.attempts and not self.connects and self._backoff.failures + 1 >= self.options.attempts:
                    raise ChannelError(end.text)
                if not end.at_once:
                    await asyncio.sleep(self._backoff.next())
        finally:
            await self._goodbye()

    async def _one_connection(self, crossing: _Crossing) -> _End:
        clean = self.options.session_expiry <= 0 or self._malformed >= 2
        connection = self._connection = _Connection(self.options, self._protocol, clean=clean, crossing=crossing)
        connection.loop_start()
        began = time.monotonic()
        await connection.answered.wait()
        if not await _within(GRANT_SECONDS, connection.granted):
            connection.end = _End("the broker does not answer the subscriptions")
            connection.leave()
        await self._until_ended(connection)
        self._note_end(connection, time.monotonic() - began)
        return connection.end

    async def _until_ended(self, connection: _Connection) -> None:
        """Ask again, ever more seldom, for subscriptions that the broker refused: its access list may be mended."""
        patience = _Backoff(self.options.first_wait * 10, self.options.longest_wait * 10)
        while not await _within(patience.next() if connection.refused else None, connection.ended):
            if connection.refused:
                connection.ask_for(connection.refused)

    def _note_end(self, connection: _Connection, lasted: float) -> None:
        end = connection.end
        stable = connection.opened and lasted >= self.options.stable_after
        if stable:
            self._backoff.failures = 0
        self._short = 0 if stable else self._short + (end is _LOST)
        self._malformed = self._malformed + 1 if end.malformed else 0
        if end.other_protocol and self.options.protocol == "auto":
            self._protocol = V311 if self._protocol == V5 else V5
        self._say("down", _CLASH.format(self.options.client_id) if self._short >= 3 else end.text)

    async def _goodbye(self) -> None:
        """Publish `offline` and disconnect; whatever does not answer is left behind after a short wait."""
        connection = self._connection
        if connection is None:
            return
        with contextlib.suppress(TimeoutError, ChannelError):
            async with asyncio.timeout(GOODBYE_SECONDS):
                if self.options.presence and self.up:
                    presence = self.options.presence
                    await self.publish(Parcel(presence.topic, presence.offline, retain=True))
        connection.end = _End("stopped")
        connection.leave()
        await _within(GOODBYE_SECONDS, connection.ended)
        self._drop(connection, "stopped")
        self._say("down", "stopped")

    # What paho's thread says

    def _take(self, event: _Event) -> None:
        current = self._connection
        if current is None or event.connection is not current:
            return
        match event:
            case Delivery():
                self._receive(event)
            case _Opened():
                current.limits = event.limits
                current.slots = asyncio.Semaphore(event.limits.window)
                current.answered.set()
            case _Granted():
                self._take_grant(event)
            case _Acked():
                _settle(current.acknowledged.pop(event.mid, None), event.refusal)
            case _Ended():
                self._take_end(event)

    def _take_grant(self, event: _Granted) -> None:
        connection = event.connection
        connection.refused = tuple(name for name, _why in event.refused)
        first = not connection.granted.is_set()
        connection.granted.set()
        self._granted.set()
        self.connects += first
        named = ", ".join(f"{name} ({why})" for name, why in event.refused)
        self._note_refused("subscription", named and f"does not grant the subscription to {named}")
        if first:
            self._give_birth(connection)
            self._on_up()

    def _note_refused(self, what: str, text: str) -> None:
        """What the broker refuses on this connection; `ok` only if that is nothing."""
        self._refused.pop(what, None)
        if text:
            self._refused[what] = text
        if self._refused:
            self._say("degraded", f"the broker {' and '.join(self._refused.values())}; check its access list")
        else:
            self._say("ok", f"connected to {self.options.host}:{self.options.port} with MQTT {self.protocol}")

    def _give_birth(self, connection: _Connection) -> None:
        presence = self.options.presence
        if presence:
            acknowledged = _publish(connection, Parcel(presence.topic, presence.online, retain=True))
            acknowledged.add_done_callback(self._birth_done)

    def _birth_done(self, acknowledged: asyncio.Future[None]) -> None:
        if not acknowledged.cancelled() and isinstance(acknowledged.exception(), PublishRefused):
            self._note_refused("presence", f"does not take the availability ({acknowledged.exception()})")

    def _take_end(self, event: _Ended) -> None:
        event.connection.end = event.end
        self._drop(event.connection, event.end.text)
        for seen in (event.connection.answered, event.connection.granted, event.connection.ended):
            seen.set()

    def _drop(self, connection: _Connection, why: str) -> None:
        self._granted.clear()
        self._refused.clear()
        waiting = list(connection.acknowledged.values())
        connection.acknowledged.clear()
        self._connection = None
        for future in waiting:
            if not future.done():
                future.set_exception(ChannelError(f"the message was not acknowledged: {why}"))
                future.exception()

    def _say(self, state: str, detail: str) -> None:
        """One log line for each change of state, and none for a state that goes on."""
        if (state, detail) == (self._state, self._detail):
            return
        self._state, self._detail = state, detail
        level = logging.INFO if state == "ok" or detail == "stopped" else logging.WARNING
        self._log.log(level, "mqtt_link channel=%s state=%s detail=%s", self.name, state, detail)
        self._on_change()


async def _within(seconds: float | None, event: asyncio.Event) -> bool:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True


def _publish(connection: _Connection, parcel: Parcel) -> asyncio.Future[None]:
    """Hand a message to paho and return what its acknowledgement will settle."""
    # 64 bytes and the topic are a generous bound for the header that MQTT adds.
    if len(parcel.payload) + len(parcel.topic.encode()) + 64 > connection.limits.packet:
        raise PublishRefused(f"the broker takes no message of {len(parcel.payload)} bytes")
    info = connection.publish(
        parcel.topic,
        parcel.payload,
        qos=parcel.qos,
        retain=parcel.retain and connection.limits.retain,
        properties=_publish_properties(parcel) if connection.protocol == V5 else None,
    )
    if info.rc not in (MQTTErrorCode.MQTT_ERR_SUCCESS, MQTTErrorCode.MQTT_ERR_NO_CONN):
        raise ChannelError(f"the message could not be sent: {mqtt.error_string(info.rc)}")
    acknowledged: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    if parcel.qos:
        connection.acknowledged[info.mid] = acknowledged
    else:
        acknowledged.set_result(None)
    return acknowledged


def _publish_properties(parcel: Parcel) -> Any:
    """`correlation` is hex, `expiry` seconds (MQTT 5.0, sections 3.3.2.3.3 and 3.3.2.3.6)."""
    properties = _properties(PacketTypes.PUBLISH)
    correlation = parcel.properties.get("correlation")
    expiry = parcel.properties.get("expiry")
    if correlation:
        properties.CorrelationData = bytes.fromhex(correlation)
    if expiry:
        properties.MessageExpiryInterval = min(int(expiry), 0xFFFFFFFF)
    if parcel.payload:
        properties.PayloadFormatIndicator = 1
    return properties


def _settle(acknowledged: asyncio.Future[None] | None, refusal: str) -> None:
    if acknowledged is None or acknowledged.done():
        return
    if refusal:
        acknowledged.set_exception(PublishRefused(f"the broker refused the message: {refusal}"))
    else:
        acknowledged.set_result(None)
