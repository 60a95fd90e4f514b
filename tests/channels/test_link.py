"""One connection: what it says of itself, what it survives, and what it never does silently."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import os
import re
import signal
import subprocess
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.broker import Mosquitto, mosquitto
from tests.channels import fake
from tests.channels.certificates import authority
from tests.channels.node import PATIENCE, command, eventually, mqtt, node, person
from zeroclawd.channels.mqtt.channel import default_client_id
from zeroclawd.channels.mqtt.link import Delivery, Link, Options, Presence, PublishRefused, _Backoff
from zeroclawd.config import Seconds, TlsConfig
from zeroclawd.errors import ChannelError
from zeroclawd.interfaces import Parcel

pytestmark = pytest.mark.broker


class Ears:
    """Collects what a link says."""

    def __init__(self) -> None:
        self.news = asyncio.Event()
        self.heard: list[Delivery] = []
        self.ups = 0
        self.says: list[tuple[str, str]] = []
        self.link: Link

    def receive(self, delivery: Delivery) -> None:
        self.heard.append(delivery)
        self.link.ack(delivery)
        self.news.set()

    def up(self) -> None:
        self.ups += 1
        self.news.set()

    def change(self) -> None:
        health = self.link.health()
        self.says.append((health.state, health.detail))
        self.news.set()

    async def until(self, condition: Callable[[], Any]) -> Any:
        return await eventually(self.news, condition)

    async def said(self, state: str, words: str) -> str:
        found = await self.until(lambda: [d for s, d in self.says if s == state and words in d])
        return str(found[0])


@contextlib.asynccontextmanager
async def linked(port: int, **more: Any) -> AsyncIterator[Ears]:
    ears = Ears()
    options = dataclasses.replace(
        Options("127.0.0.1", port, "link-under-test", subscriptions=("zeroclaw/n1/command",), first_wait=0.05), **more
    )
    ears.link = Link(
        options,
        ears.receive,
        name="mqtt.test",
        log=logging.getLogger("tests.link"),
        on_up=ears.up,
        on_change=ears.change,
    )
    task = asyncio.create_task(ears.link.run(), name="link")
    try:
        yield ears
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


# What goes wrong is one sentence, said once, and tried again


async def test_nothing_listens(caplog: pytest.LogCaptureFixture, broker: Mosquitto) -> None:
    broker.stop()
    caplog.set_level(logging.INFO, "tests.link")
    async with linked(broker.port) as ears:
        assert f"nothing listens at 127.0.0.1:{broker.port}" in await ears.said("down", "nothing listens")
        await asyncio.sleep(0.5)  # several attempts, and still one line
        assert len([r for r in caplog.records if "nothing listens" in r.getMessage()]) == 1
        broker.start()
        await ears.said("ok", "connected")
        assert len([r for r in caplog.records if "mqtt_link" in r.getMessage()]) == 2


async def test_a_name_that_nobody_knows(broker: Mosquitto) -> None:
    async with linked(broker.port, host="no-such-host.invalid") as ears:
        await ears.said("down", "the name no-such-host.invalid cannot be resolved")


def password_file(path: Path) -> Path:
    subprocess.run(["mosquitto_passwd", "-b", "-c", str(path), "node", "right"], check=True, capture_output=True)
    return path


async def test_a_wrong_password_and_then_the_right_one(tmp_path: Path) -> None:
    passwords = password_file(tmp_path / "passwords")
    secret = tmp_path / "secret"
    secret.write_text("wrong")
    more = f"allow_anonymous false\npassword_file {passwords}\n"
    with mosquitto(tmp_path / "broker", more) as broker:
        async with linked(broker.port, username="node", password=lambda: secret.read_text()) as ears:
            await ears.said("down", "the broker refuses the login of user node")
            secret.write_text("right")
            await ears.said("ok", "connected")
        async with linked(broker.port) as ears:
            await ears.said("down", "the broker refuses the login of user (none)")


async def test_a_missing_password_file_is_named(tmp_path: Path, broker: Mosquitto) -> None:
    config = mqtt(broker.port, username="node", password_file=str(tmp_path / "absent"))
    async with node(tmp_path / "state", config, wait=False) as started:
        await started.host.until(lambda: "absent cannot be read" in started.channel.health().detail)


DENIES = """\
{"defaultACLAccess": {"publishClientSend": true, "publishClientReceive": true, "subscribe": false, "unsubscribe": true},
 "clients": [], "groups": [], "roles": []}
"""


def dynamic_security() -> str:
    found = list(Path("/usr/lib").glob("*/mosquitto_dynamic_security.so"))
    if not found:
        pytest.skip("this mosquitto has no plugin that refuses subscriptions")
    return str(found[0])


async def test_a_refused_subscription_is_not_healthy_and_heals(tmp_path: Path) -> None:
    rules = tmp_path / "rules.json"
    rules.write_text(DENIES)
    plugin = f"allow_anonymous true\nplugin {dynamic_security()}\nplugin_opt_config_file {rules}\n"
    with mosquitto(tmp_path / "broker", plugin) as broker:
        async with linked(broker.port, presence=Presence("zeroclaw/n1/availability")) as ears:
            told = await ears.said("degraded", "does not grant the subscription to zeroclaw/n1/command")
            assert "Not authorized" in told
            assert ears.link.up  # replies and states still go out
            broker.stop()
            rules.write_text(DENIES.replace('"subscribe": false', '"subscribe": true'))
            broker.start()
            await ears.said("ok", "connected")


async def test_a_node_whose_subscriptions_are_refused_says_so(tmp_path: Path) -> None:
    rules = tmp_path / "rules.json"
    rules.write_text(DENIES)
    plugin = f"allow_anonymous true\nplugin {dynamic_security()}\nplugin_opt_config_file {rules}\n"
    with mosquitto(tmp_path / "broker", plugin) as broker:
        async with node(tmp_path / "state", mqtt(broker.port), wait=False) as started:
            await started.until_healthy("degraded")
            assert "zeroclaw/n1/approval/decision" in started.channel.health().detail


async def test_what_the_broker_may_not_take_is_refused_and_not_lost_silently(tmp_path: Path) -> None:
    rules = tmp_path / "acl"
    rules.write_text("topic readwrite zeroclaw/n1/#\n")
    with mosquitto(tmp_path / "broker", f"allow_anonymous true\nacl_file {rules}\n") as broker:
        async with linked(broker.port) as ears:
            await ears.said("ok", "connected")
            await ears.link.publish(Parcel("zeroclaw/n1/reply", b"x"))
            with pytest.raises(PublishRefused, match="Not authorized"):
                await ears.link.publish(Parcel("elsewhere", b"x"))


# TLS


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return authority(tmp_path_factory.mktemp("ca"))


def over_tls(certificates: Any, names: str, more: str = "") -> str:
    certificate, key = certificates.issue(re.sub(r"\W", "-", names), "server", names)
    return f"allow_anonymous true\ncafile {certificates.ca}\ncertfile {certificate}\nkeyfile {key}\n{more}"


async def test_tls_with_an_own_authority(tmp_path: Path, certificates: Any) -> None:
    with mosquitto(tmp_path, over_tls(certificates, "IP:127.0.0.1")) as broker:
        async with linked(broker.port, tls=TlsConfig(ca_file=str(certificates.ca))) as ears:
            await ears.said("ok", "connected")
            await ears.link.publish(Parcel("zeroclaw/n1/reply", b"x" * 200_000))


async def test_a_certificate_for_another_name_is_refused(tmp_path: Path, certificates: Any) -> None:
    with mosquitto(tmp_path, over_tls(certificates, "DNS:other.example")) as broker:
        async with linked(broker.port, tls=TlsConfig(ca_file=str(certificates.ca))) as ears:
            told = await ears.said("down", "the certificate of 127.0.0.1")
            assert "not valid for '127.0.0.1'" in told


async def test_an_unknown_authority_is_refused(tmp_path: Path, certificates: Any) -> None:
    other = authority(tmp_path / "other")
    with mosquitto(tmp_path / "broker", over_tls(certificates, "IP:127.0.0.1")) as broker:
        async with linked(broker.port, tls=TlsConfig(ca_file=str(other.ca))) as ears:
            await ears.said("down", "is not accepted")


async def test_a_client_certificate_is_shown_where_it_is_asked_for(tmp_path: Path, certificates: Any) -> None:
    more = over_tls(certificates, "IP:127.0.0.1", "require_certificate true\n")
    certificate, key = certificates.issue("node", "client")
    with mosquitto(tmp_path, more) as broker:
        async with linked(
            broker.port, tls=TlsConfig(ca_file=str(certificates.ca), cert_file=str(certificate), key_file=str(key))
        ) as ears:
            await ears.said("ok", "connected")
        async with linked(broker.port, tls=TlsConfig(ca_file=str(certificates.ca))) as ears:
            await ears.said("down", "ertificate")  # certificate required, as OpenSSL words it


async def test_no_fall_back_to_plain_text(tmp_path: Path, broker: Mosquitto, certificates: Any) -> None:
    async with linked(broker.port, tls=TlsConfig(ca_file=str(certificates.ca))) as ears:
        await ears.until(lambda: ears.says)
        assert ears.link.health().state == "down"
        assert "TLS" in ears.says[0][1] or "cannot be reached" in ears.says[0][1]


async def test_plain_text_to_a_tls_port_says_what_to_look_at(tmp_path: Path, certificates: Any) -> None:
    with mosquitto(tmp_path, over_tls(certificates, "IP:127.0.0.1")) as broker:
        async with linked(broker.port) as ears:
            await ears.said("down", "does the port want TLS?")


async def test_a_missing_ca_file_is_named(broker: Mosquitto) -> None:
    async with linked(broker.port, tls=TlsConfig(ca_file="/nowhere/ca.crt")) as ears:
        await ears.said("down", "tls.ca_file: /nowhere/ca.crt")


# Protocol versions


@pytest.mark.parametrize("protocol", ["5", "3.1.1"])
async def test_both_versions_carry_the_channel(tmp_path: Path, broker: Mosquitto, protocol: Any) -> None:
    async with node(tmp_path / "state", mqtt(broker.port, protocol=protocol)) as started, person(broker.port) as caller:
        assert started.channel.report()["protocol"] == protocol
        await caller.say("command", command("c-1"))
        await started.host.until(lambda: started.host.taken)
        await started.final(started.host.taken[0])
        await caller.reply("c-1")


@pytest.mark.parametrize("polite", [True, False])
async def test_an_old_broker_is_spoken_to_in_3_1_1(polite: bool) -> None:
    versions: list[int] = []

    async def old(kind: int, rest: bytes, writer: asyncio.StreamWriter) -> None:
        if kind == fake.CONNECT:
            versions.append(fake.version(rest))
            if versions[-1] == 4:
                writer.write(b"\x20\x02\x00\x00")
            elif polite:
                writer.write(b"\x20\x02\x00\x01")
            if versions[-1] != 4:
                await writer.drain()
                writer.close()
        elif kind == fake.SUBSCRIBE:
            writer.write(b"\x90\x03" + rest[:2] + b"\x01")

    async with fake.broker(old) as port, linked(port) as ears:
        await ears.said("ok", "with MQTT 3.1.1")
        assert versions == [5, 4]


async def test_a_subscription_that_is_never_answered_is_not_healthy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zeroclawd.channels.mqtt.link.GRANT_SECONDS", 0.3)

    async def silent(kind: int, _rest: bytes, writer: asyncio.StreamWriter) -> None:
        if kind == fake.CONNECT:
            writer.write(b"\x20\x03\x00\x00\x00")

    async with fake.broker(silent) as port, linked(port, protocol="5") as ears:
        await ears.said("down", "does not answer the subscriptions")
        assert not ears.link.up


async def test_a_dead_link_is_noticed_within_one_and_a_half_keepalives() -> None:
    """The other end is gone without a word, as behind a firewall that drops: nothing is ever answered again."""

    async def mute(kind: int, rest: bytes, writer: asyncio.StreamWriter) -> None:
        if kind == fake.CONNECT:
            writer.write(b"\x20\x03\x00\x00\x00")
        elif kind == fake.SUBSCRIBE:
            writer.write(b"\x90\x04" + rest[:2] + b"\x00\x01")

    async with fake.broker(mute) as port, linked(port, protocol="5", keepalive=10.0) as ears:
        await ears.said("ok", "connected")
        began = asyncio.get_running_loop().time()
        await ears.said("down", "has not answered for a whole keepalive")
        assert asyncio.get_running_loop().time() - began < 15.5


async def test_an_unacknowledged_message_ends_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zeroclawd.channels.mqtt.link.ACKNOWLEDGE_SECONDS", 0.3)

    async def forgetful(kind: int, rest: bytes, writer: asyncio.StreamWriter) -> None:
        if kind == fake.CONNECT:
            writer.write(b"\x20\x03\x00\x00\x00")
        elif kind == fake.SUBSCRIBE:
            writer.write(b"\x90\x04" + rest[:2] + b"\x00\x01")

    async with fake.broker(forgetful) as port, linked(port, protocol="5") as ears:
        await ears.said("ok", "connected")
        with pytest.raises(ChannelError):
            await ears.link.publish(Parcel("zeroclaw/n1/reply", b"x"))
        await ears.said("down", "does not acknowledge")


async def test_what_the_broker_cannot_take_for_its_size_is_refused_here(tmp_path: Path) -> None:
    with mosquitto(tmp_path, "allow_anonymous true\nmax_packet_size 1000\n") as broker:
        async with linked(broker.port) as ears:
            await ears.said("ok", "connected")
            with pytest.raises(PublishRefused):
                await ears.link.publish(Parcel("zeroclaw/n1/reply", b"x" * 2000))
            await ears.link.publish(Parcel("zeroclaw/n1/reply", b"x" * 500))


async def test_a_message_that_cannot_be_read_does_not_keep_the_node_deaf() -> None:
    """The broker sends it again in every session, so after the second time the session is begun anew."""
    clean: list[bool] = []
    # A PUBLISH to `a`, QoS 1, with a user property that holds U+FEFF, which paho refuses.
    bad = b"\x00\x01a\x00\x01" + b"\x0a\x26\x00\x01k\x00\x03\xef\xbb\xbf" + b"x"

    async def poisoned(kind: int, rest: bytes, writer: asyncio.StreamWriter) -> None:
        if kind == fake.CONNECT:
            clean.append(bool(rest[7] & 0x02))
            writer.write(b"\x20\x03\x00\x00\x00")
        elif kind == fake.SUBSCRIBE:
            writer.write(b"\x90\x04" + rest[:2] + b"\x00\x01")
            if not clean[-1]:
                writer.write(bytes([0x32, len(bad)]) + bad)

    async with fake.broker(poisoned) as port, linked(port, protocol="5", session_expiry=3600.0) as ears:
        await ears.until(lambda: clean.count(True) == 1 and ears.link.health().state == "ok")
        assert clean == [False, False, True]


# Who else is there


async def test_a_session_that_was_taken_over_is_recognised() -> None:
    async def rude(kind: int, rest: bytes, writer: asyncio.StreamWriter) -> None:
        if kind == fake.CONNECT:
            writer.write(b"\x20\x03\x00\x00\x00")
        elif kind == fake.SUBSCRIBE:
            writer.write(b"\x90\x04" + rest[:2] + b"\x00\x01" + b"\xe0\x07\x8e\x05\x1f\x00\x02no")

    async with fake.broker(rude) as port, linked(port, protocol="5") as ears:
        told = await ears.said("down", "took this session over")
        assert "link-under-test" in told


async def test_a_clash_of_client_ids_is_recognised_where_the_broker_does_not_say_so(broker: Mosquitto) -> None:
    async with linked(broker.port, longest_wait=0.2) as first, linked(broker.port, longest_wait=0.2):
        told = await first.said("down", "does another client use the id")
        assert "link-under-test" in told


def test_waits_grow_with_jitter_and_start_small() -> None:
    runs = []
    for _ in range(50):
        backoff = _Backoff(1.0, 60.0)
        runs.append([backoff.next() for _ in range(12)])
    assert all(0.1 <= wait <= 60 for run in runs for wait in run)
    assert all(run[0] <= 1.0 for run in runs)
    assert max(run[-1] for run in runs) > 30
    assert len({round(run[-1], 3) for run in runs}) > 40


def test_the_default_client_id_stays_and_differs_between_boards(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_text("0123456789abcdef0123456789abcdef\n")
    two.write_text("fedcba9876543210fedcba9876543210\n")
    assert default_client_id("pi", "home", one) == default_client_id("pi", "home", one)
    assert len({default_client_id("pi", "home", one), default_client_id("pi", "home", two)}) == 2
    assert default_client_id("pi", "home", one) != default_client_id("pi", "office", one)
    assert "0123456789" not in default_client_id("pi", "home", one)
    assert default_client_id("pi", "home", tmp_path / "none").startswith("zeroclawd-pi-")


# Presence and restarts


async def test_presence_over_a_whole_life(tmp_path: Path, broker: Mosquitto) -> None:
    async with person(broker.port) as watcher:

        def last() -> bytes:
            heard = watcher.on("availability")
            return heard[-1].payload if heard else b""

        async with node(tmp_path, mqtt(broker.port)):
            await watcher.until(lambda: last() == b"online")
        await watcher.until(lambda: last() == b"offline")
        async with node(tmp_path, mqtt(broker.port), boot_id="boot-2", clean=False):
            await watcher.until(lambda: last() == b"online")
        await watcher.until(lambda: last() == b"offline")  # the will
        async with node(tmp_path, mqtt(broker.port), boot_id="boot-3"), person(broker.port) as late:
            heard = await late.until(lambda: [d for d in late.on("availability") if d.payload == b"online"])
            assert heard[0].retain


async def test_commands_are_heard_after_a_broker_forgot_everything(tmp_path: Path, broker: Mosquitto) -> None:
    async with node(tmp_path / "state", mqtt(broker.port)) as started:
        for number in range(3):
            broker.stop(signal.SIGKILL)
            await started.until_healthy("down")
            broker.start()
            await started.until_healthy()
            async with person(broker.port) as caller:
                await caller.say("command", command(f"c-{number}"))
                await started.host.until(lambda: len(started.host.taken) == number + 1)  # noqa: B023
                await caller.until(lambda: caller.documents("status"))
                await caller.until(lambda: [d for d in caller.on("availability") if d.payload == b"online"])


async def test_unacknowledged_messages_come_again(tmp_path: Path, broker: Mosquitto) -> None:
    """What was not acknowledged is still the broker's, and comes back on the next connection."""
    async with linked(broker.port, session_expiry=3600.0) as ears:
        await ears.said("ok", "connected")
        ears.link.ack = lambda delivery: None  # type: ignore[method-assign]
        async with person(broker.port) as caller:
            await caller.say("command", b"keep me")
            await ears.until(lambda: ears.heard)
    async with linked(broker.port, session_expiry=3600.0) as again:
        await again.until(lambda: again.heard)
        assert (again.heard[0].payload, again.heard[0].dup) == (b"keep me", True)


def used() -> tuple[int, int]:
    """Threads and open descriptors of this process."""
    return threading.active_count(), len(os.listdir("/proc/self/fd"))


async def test_neither_threads_nor_descriptors_pile_up(broker: Mosquitto) -> None:
    async with linked(broker.port, longest_wait=0.1) as ears:
        await ears.said("ok", "connected")
        before = used()
        for _ in range(5):
            broker.stop()
            await ears.until(lambda: ears.link.health().state == "down")
            await asyncio.sleep(0.3)
            ups = ears.ups
            broker.start()
            await ears.until(lambda: ears.ups > ups)  # noqa: B023
        after = used()
        assert after[0] <= before[0]
        assert after[1] <= before[1] + 2


async def test_an_idle_link_sleeps(tmp_path: Path, broker: Mosquitto) -> None:
    """Counted in paho's thread: with a keepalive of a minute, a quiet link wakes up less than once in five seconds."""
    async with node(tmp_path / "state", mqtt(broker.port, keepalive=Seconds(60))) as started:
        await asyncio.sleep(1.5)
        thread = next(t for t in threading.enumerate() if t.name.startswith("paho"))
        before = _switches(thread)
        await asyncio.sleep(3)
        assert _switches(thread) - before <= 1
        assert started.channel.health().state == "ok"


def _switches(thread: threading.Thread) -> int:
    text = Path(f"/proc/self/task/{thread.native_id}/status").read_text()
    return int(re.findall(r"^voluntary_ctxt_switches:\s+(\d+)", text, re.MULTILINE)[0])


async def test_stopping_while_the_broker_is_away_is_quick(tmp_path: Path, broker: Mosquitto) -> None:
    broker.stop()
    loop = asyncio.get_running_loop()
    async with node(tmp_path / "state", mqtt(broker.port), wait=False) as started:
        await started.host.until(lambda: "nothing listens" in started.channel.health().detail)
        began = loop.time()
    assert loop.time() - began < PATIENCE / 3
