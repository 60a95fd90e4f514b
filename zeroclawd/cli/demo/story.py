"""The story: each step acts as a person would, over the broker, and is checked against the board and the ledger."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from zeroclawd import signing
from zeroclawd.board.sim import SimHardware
from zeroclawd.channels.mqtt.client import Client, Signature, questions, replies, states
from zeroclawd.cli.demo import broker as brokers
from zeroclawd.cli.demo.timeline import Timeline
from zeroclawd.config import MqttConfig, parse
from zeroclawd.daemon.build import plan
from zeroclawd.daemon.clock import SystemClock
from zeroclawd.daemon.house import House
from zeroclawd.daemon.service import Service
from zeroclawd.messages import Verdict
from zeroclawd.observers import journal

NODE = "greenhouse-1"
MAX_ON = 1.5

_CONFIG = """\
[agent]
name = "demo"
state_dir = "{folder}/state"
providers = ["intent"]

[risk_profiles.default]
level = "supervised"
auto_approve = ["lamp"]
always_ask = ["pump"]
approval_timeout = "60s"

[channels.mqtt.demo]
host = "127.0.0.1"
port = {port}
node = "{node}"

[operators.alice]
public_key = "{alice}"
may_approve = "high"

[board]
kind = "sim"

[devices.pump]
kind = "relay"
description = "water pump"
pin = 17
active_low = true
safe_state = "off"
max_on = "{max_on}s"
risk = "high"
interlocks = ["tank_float.closed"]

[devices.tank_float]
kind = "contact"
description = "float switch in the tank"
pin = 27

[devices.lamp]
kind = "relay"
description = "lamp"
pin = 22

[devices.greenhouse]
kind = "bme280"
description = "greenhouse"
bus = 1
address = 0x76
"""


class StepFailed(Exception):
    """A check of a step did not hold."""


@dataclass(slots=True)
class Stage:
    """The running house, the people around it, and the timeline."""

    house: House
    show: Timeline
    person: Client
    alice: Signature
    mallory: Signature
    folder: Path
    answered: list[Mapping[str, Any]] = field(default_factory=list)
    known: set[str] = field(default_factory=set)

    # What people do

    async def ask(self, text: str, operator: Operator | None = None) -> Mapping[str, Any]:
        """Send a command and let an operator answer its question; returns the last reply."""
        self.show.line("you", f"“{text}”")
        final: Mapping[str, Any] = {}
        async with asyncio.timeout(30), asyncio.TaskGroup() as group:
            seat = group.create_task(self._answer(operator), name="operator")
            async for reply in self.person.send(NODE, text):
                final = reply
            seat.cancel()
        self._tell(final)
        return final

    async def _answer(self, operator: Operator | None) -> None:
        async for seen in self.person.watch():
            question = seen.document
            if seen.rest.startswith("approval/request/") and question.get("request_id") not in self.known:
                if not question:
                    continue
                self.known.add(str(question["request_id"]))
                self.show.line("policy", f"asks an operator: {question['summary']} ({question['risk']} risk)")
                if operator is not None:
                    await operator(question)
                return

    def _tell(self, final: Mapping[str, Any]) -> None:
        self.show.line("reply", str(final.get("text", "")))
        for receipt in final.get("receipts", ()):
            self.show.line("receipt", f"{receipt['tool']}: {receipt['receipt']}")

    async def decide(self, question: Mapping[str, Any], verdict: Verdict, by: Signature) -> Mapping[str, Any]:
        """Sign and send a decision; returns what the node says of it."""
        async with asyncio.timeout(20):
            return await self.person.answer(question, verdict, by)

    async def until_online(self) -> None:
        """Wait until the node has subscribed: its birth message comes after that."""
        async with asyncio.timeout(20):
            async for seen in self.person.watch():
                if seen.rest == "availability" and seen.payload == b"online":
                    return

    # What is true

    def level(self, device: str) -> bool:
        """Whether the device is on at the pins, read behind the daemon's back."""
        low_is_on = bool(self.house.config.devices[device].options.get("active_low"))
        return self.hardware.level(device_pin(self.house, device)) is not low_is_on

    @property
    def hardware(self) -> SimHardware:
        """The simulated wires."""
        wires = self.house.board.hardware
        if not isinstance(wires, SimHardware):
            raise StepFailed("the demo's board is not simulated")
        return wires

    def expect(self, holds: bool, otherwise: str) -> None:
        """Go on if it holds."""
        if not holds:
            raise StepFailed(otherwise)

    def outcomes(self, final: Mapping[str, Any]) -> list[str]:
        """The outcomes of a reply's calls."""
        return [str(result["outcome"]) for result in final.get("results", ())]


Operator = Callable[[Mapping[str, Any]], Awaitable[None]]
Step = Callable[[Stage], Awaitable[str]]


def device_pin(house: House, device: str) -> int:
    """The pin that a relay is wired to."""
    return int(house.config.devices[device].options["pin"])


# The steps


async def reading(stage: Stage) -> str:
    """A reading of low risk is answered at once."""
    final = await stage.ask("what is the temperature in the greenhouse?")
    stage.expect(stage.outcomes(final) == ["ok"], f"the reading ended as {final}")
    stage.expect(bool(final["receipts"]), "the reading has no receipt")
    stage.show.line("board", "BME280 registers through the datasheet's compensation")
    return "low risk: answered at once, nobody was asked"


async def lamp(stage: Stage) -> str:
    """A lamp is switched without asking: approved in advance."""
    final = await stage.ask("turn on the lamp")
    stage.expect(stage.outcomes(final) == ["ok"], f"the lamp ended as {final}")
    stage.expect(stage.level("lamp"), "the lamp's pin is not on")
    stage.show.line("board", "lamp is on, read back from its pin")
    return "medium risk, approved in advance: switched and read back"


async def approved(stage: Stage) -> str:
    """The pump asks; a signed yes opens it."""

    async def yes(question: Mapping[str, Any]) -> None:
        stage.expect(not stage.level("pump"), "the pump was on before anybody said yes")
        stage.answered.append(question)
        said = await stage.decide(question, Verdict.APPROVE, stage.alice)
        stage.show.line(
            "operator", f"alice signs a yes for digest {question['arguments_digest'][:12]}…: {said['result']}"
        )

    final = await stage.ask("turn on the pump", yes)
    stage.expect(stage.outcomes(final) == ["ok"], f"the pump ended as {final}")
    stage.expect(stage.level("pump"), "the pump's pin is not on")
    stage.show.line("board", "pump is on, read back from its pin")
    return "high risk: switched only after a signed yes, with a receipt"


async def limit(stage: Stage) -> str:
    """Nobody switches it off: the board does."""
    from zeroclawd.store.rows import rows as rows_of

    stage.show.line("runtime", f"nobody switches it off; max_on is {MAX_ON} s")
    async with asyncio.timeout(MAX_ON + 10):
        async for seen in stage.person.watch():
            if seen.rest == "device/pump/state" and not stage.level("pump"):
                break
    path = stage.house.store.database.path
    for _ in range(250):
        # The cut comes first and its row right after: somebody who reads the file may be quicker than the disk.
        cuts = await asyncio.to_thread(rows_of, path, kind="safety", device="pump")
        if cuts:
            break
        await asyncio.sleep(0.02)
    stage.expect(bool(cuts), "the ledger has no safety row for the cut")
    stage.show.line("board", f"pump cut: {cuts[-1].note}")
    return "max_on cut the pump below every policy, and the ledger says so"


async def denied(stage: Stage) -> str:
    """A second question is answered with no."""

    async def no(question: Mapping[str, Any]) -> None:
        said = await stage.decide(question, Verdict.DENY, stage.alice)
        stage.show.line("operator", f"alice signs a no: {said['result']}")

    final = await stage.ask("turn on the pump", no)
    stage.expect(stage.outcomes(final) == ["denied"], f"the pump ended as {final}")
    stage.expect(not stage.level("pump"), "the pump is on")
    stage.expect(not final["receipts"], "a denied call has a receipt")
    return "denied: the pump stayed off, and there is no receipt"


async def forged(stage: Stage) -> str:
    """A forged yes and a replayed yes open nothing; the question stays open for the real operator."""

    async def attack(question: Mapping[str, Any]) -> None:
        forged = await stage.decide(question, Verdict.APPROVE, stage.mallory)
        stage.show.line("forger", f"signs as alice with a key of his own: {forged['result']}, {forged['reason']}")
        stage.expect(forged["reason"] == "bad_signature", f"the forged decision was {forged}")
        replayed = await stage.decide(stage.answered[0], Verdict.APPROVE, stage.alice)
        stage.show.line("forger", f"sends alice's earlier yes again: {replayed['result']}, {replayed['reason']}")
        stage.expect(replayed["result"] == "refused", f"the replayed decision was {replayed}")
        crossed = {**question, "nonce": stage.answered[0]["nonce"]}
        mixed = await stage.decide(crossed, Verdict.APPROVE, stage.alice)
        stage.expect(mixed["result"] == "refused", f"the crossed decision was {mixed}")
        stage.show.line("forger", f"puts the old nonce on the new question: {mixed['result']}, {mixed['reason']}")
        stage.expect(not stage.level("pump"), "a forged decision switched the pump")
        said = await stage.decide(question, Verdict.DENY, stage.alice)
        stage.show.line("operator", f"the question is still open; alice signs a no: {said['result']}")

    final = await stage.ask("turn on the pump", attack)
    stage.expect(stage.outcomes(final) == ["denied"], f"the pump ended as {final}")
    stage.expect(not stage.level("pump"), "the pump is on")
    return "forged, replayed and crossed decisions refused, each counted; the question stayed open"


async def interlock(stage: Stage) -> str:
    """The tank is empty: not even a signed yes switches the pump on."""
    pin = device_pin(stage.house, "tank_float")
    stage.hardware.set_input(pin, True)
    stage.show.line("board", "the float switch opens: the tank is empty")

    async def yes(question: Mapping[str, Any]) -> None:
        said = await stage.decide(question, Verdict.APPROVE, stage.alice)
        stage.show.line("operator", f"alice signs a yes: {said['result']}")

    final = await stage.ask("turn on the pump", yes)
    stage.expect(stage.outcomes(final) == ["error"], f"the pump ended as {final}")
    stage.expect(not stage.level("pump"), "the pump is on")
    stage.hardware.set_input(pin, False)
    return "the interlock held against an approved call"


async def verified(stage: Stage) -> str:
    """The ledger proves all of it."""
    from zeroclawd.store.verify import verify

    found = await asyncio.to_thread(verify, stage.house.store.database.path)
    stage.expect(found.ok, f"the ledger does not verify: {found.problems}")
    stage.show.line("ledger", f"{found.rows} rows, head {found.head.hash[:16]}…, chain intact")
    return f"receipts verify: {found.rows} rows, chain intact"


async def tampered(stage: Stage) -> str:
    """One byte of a copy is changed: the same check names the row."""
    from zeroclawd.store.verify import verify

    copy = stage.folder / "copy.db"
    await asyncio.to_thread(_copy, stage.house.store.database.path, copy)
    changed = await asyncio.to_thread(_change_one_byte, copy)
    found = await asyncio.to_thread(verify, copy)
    stage.expect(not found.ok, "the changed copy verifies")
    where, what = found.problems[0]
    stage.show.line("forger", f"changes one byte of a copy: {changed}")
    stage.show.line("ledger", f"row {where}: {what}")
    return f"one changed byte is found in row {where}"


def _copy(source: Path, target: Path) -> None:
    """A consistent copy of the database while it is in use."""
    import sqlite3

    with (
        contextlib.closing(sqlite3.connect(f"file:{source}?mode=ro", uri=True)) as live,
        contextlib.closing(sqlite3.connect(target)) as copy,
    ):
        live.backup(copy)
        copy.execute("PRAGMA journal_mode=DELETE")


def _change_one_byte(path: Path) -> str:
    """Change one letter of the name of who approved, as somebody with a database tool would."""
    import sqlite3

    with contextlib.closing(sqlite3.connect(path)) as copy:
        found = copy.execute(
            "SELECT min(seq) FROM ledger WHERE decision = 'approve' AND decided_by = 'alice'"
        ).fetchone()
        if found[0] is None:
            raise StepFailed("the ledger does not say who approved")
        copy.execute("DROP TRIGGER ledger_is_never_changed")
        copy.execute("UPDATE ledger SET decided_by = 'alica' WHERE seq = ?", found)
        copy.commit()
    return f"in row {found[0]}, alice becomes alica"


STEPS: tuple[tuple[str, str, Step], ...] = (
    ("reading", "Somebody asks for a reading", reading),
    ("lamp", "Somebody turns on the lamp", lamp),
    ("pump approved", "Somebody turns on the pump, and an operator is asked", approved),
    ("max_on", "The pump runs too long", limit),
    ("pump denied", "Somebody asks for the pump again, and the operator says no", denied),
    ("forgery and replay", "Somebody else tries to say yes", forged),
    ("interlock", "The tank runs empty", interlock),
    ("ledger verified", "The next morning: who switched the pump, and who said yes?", verified),
    ("tampering found", "Somebody rewrites history", tampered),
)


# The theatre


async def play(*, as_json: bool, stay: bool, keep: bool, broker: str) -> int:
    """Set the stage, play every step, clear the stage; 0 if every step held, else 1."""
    show = Timeline(as_json=as_json)
    acting = asyncio.current_task()
    if acting is not None:  # a broker of ours must not outlive us
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, acting.cancel)
    folder = Path(tempfile.mkdtemp(prefix="zeroclawd-demo-"))
    try:
        async with _set(show, folder, broker) as stage:
            await _play_steps(stage)
            if stay and not show.failed:
                await _stay(stage)
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)
    if keep:
        show.say(f"\nconfig, keys and ledger: {folder}")
    verdict = "every step held" if not show.failed else f"{show.failed} steps failed"
    show.say(f"\n{verdict}")
    return 1 if show.failed else 0


async def _play_steps(stage: Stage) -> None:
    for number, (name, title, step) in enumerate(STEPS, 1):
        stage.show.title(number, title)
        try:
            detail = await step(stage)
        except (StepFailed, TimeoutError, KeyError) as error:
            stage.show.check(name, False, f"{type(error).__name__}: {error}")
        except BaseExceptionGroup as group:
            stage.show.check(name, False, "; ".join(f"{type(one).__name__}: {one}" for one in group.exceptions))
        else:
            stage.show.check(name, True, detail)


@contextlib.asynccontextmanager
async def _set(show: Timeline, folder: Path, wanted: str) -> AsyncIterator[Stage]:
    alice, mallory = signing.Keypair.generate(), signing.Keypair.generate()
    port = brokers.free_port()
    text = _CONFIG.format(folder=folder, port=port, node=NODE, alice=alice.public, max_on=MAX_ON)
    (folder / "config.toml").write_text(text, "utf-8")
    planned = plan(parse(text, str(folder / "config.toml")))
    journal.set_up("error", "text", planned.redactor)
    house = House(planned, SystemClock())
    service = Service(planned, None, house=house)
    async with brokers.running(folder, port, wanted) as broker, asyncio.TaskGroup() as group:
        ready = asyncio.Event()
        daemon = group.create_task(service.run(ready.set, signals=False), name="daemon")
        try:
            await _until(ready, daemon)
            show.say(
                f"zeroclawd demo: broker {broker} on 127.0.0.1:{port}, node {NODE}, simulated board, operator alice"
            )
            house_pin = device_pin(house, "tank_float")
            listen = (*replies(NODE), *questions(NODE), *states(NODE))
            config = MqttConfig(host="127.0.0.1", port=port)
            async with Client(config, listen=listen) as person:
                stage = Stage(house, show, person, Signature("alice", alice), Signature("alice", mallory), folder)
                stage.hardware.set_input(house_pin, False)
                await stage.until_online()
                yield stage
        finally:
            service.end("the demo is over")


async def _until(ready: asyncio.Event, daemon: asyncio.Task[int]) -> None:
    waiting = asyncio.create_task(ready.wait(), name="until ready")
    await asyncio.wait({waiting, daemon}, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if daemon.done():
        daemon.result()


async def _stay(stage: Stage) -> None:
    """Leave the house open until Ctrl-C, with what another terminal needs."""
    key = stage.folder / "alice.key"
    signer = stage.alice.signer
    key.write_text(signing.b64(signer.seed) if isinstance(signer, signing.Keypair) else "", "utf-8")
    key.chmod(0o600)
    client = stage.folder / "client.toml"
    port = stage.house.config.channels.mqtt["demo"].port
    client.write_text(
        f'broker = "mqtt://127.0.0.1:{port}"\nnode = "{NODE}"\noperator = "alice"\noperator_key = "{key}"\n'
        f'state_dir = "{stage.folder / "state"}"\n',
        "utf-8",
    )
    stage.show.say("\nIt stays open. In another terminal:\n")
    stage.show.say(f"  export ZEROCLAWD_CLIENT={client}")
    stage.show.say("  zeroclawd approvals watch            # and in a third one:")
    stage.show.say('  zeroclawd send "turn on the pump"\n\nCtrl-C ends it.')
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None:
            task.uncancel()  # Ctrl-C is how it is meant to end
