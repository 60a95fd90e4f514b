"""The house: the rooms, opened in order, introduced to each other, and closed in the reverse order."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from zeroclawd import __version__, signing
from zeroclawd.config import Config
from zeroclawd.daemon.build import Plan
from zeroclawd.daemon.clock import SystemClock
from zeroclawd.daemon.turns import TurnRunner
from zeroclawd.errors import StoreError
from zeroclawd.events import TurnEvent
from zeroclawd.interfaces import Approver, Clock, DeviceInfo, Emit, Health, Observer, Provider, Reading
from zeroclawd.messages import Entry, Inbound, Ingress, Outbound
from zeroclawd.observers.emit import Emitter
from zeroclawd.observers.journal import journal
from zeroclawd.receipts import ReceiptScope
from zeroclawd.tool import ToolLimits
from zeroclawd.turn.context import TurnContext

if TYPE_CHECKING:
    from zeroclawd.board.board import DeviceBoard
    from zeroclawd.board.hardware import Hardware
    from zeroclawd.channels.mqtt.channel import MqttChannel
    from zeroclawd.providers.pool import Pool
    from zeroclawd.store.checkpoints import Checkpoint
    from zeroclawd.store.store import Store

log = logging.getLogger(__name__)


class House:
    """Opens the rooms and is what they need of each other: the board's host, and the channels'."""

    def __init__(
        self,
        plan: Plan,
        clock: Clock,
        *,
        hardware: Hardware | None = None,
        observers: Sequence[Observer] = (),
    ) -> None:
        self.plan = plan
        self.clock = clock
        self.boot_id = os.urandom(8).hex()
        self.started = clock.wall()
        self.problems: dict[str, str] = {}
        self._closed = False
        self._shown: dict[str, Reading] = {}
        self._hardware = hardware
        self._extra_observers = tuple(observers)
        self.channels: tuple[MqttChannel, ...] = ()
        self.store: Store
        self.board: DeviceBoard
        self.runner: TurnRunner
        self._pool: Pool
        self._provider: Provider

    @property
    def config(self) -> Config:
        """The config that runs."""
        return self.plan.config

    # Opening and closing

    async def open(self) -> None:
        """Open store and board, drive the safe states, and build what turns start from. READY holds when this returns."""
        from zeroclawd.store.store import Store

        config = self.config
        config.workspace.mkdir(parents=True, exist_ok=True, mode=0o750)
        self.store = Store.open(config.state_dir, self.clock, self.boot_id, self.plan.node, config.ledger)
        self.store.ledger.publish = self._publish_checkpoint
        self.store.on_change(self.refresh)
        try:
            await self._open_rest()
        except BaseException:
            await self.close_store("failed to open")
            raise

    async def _open_rest(self) -> None:
        from zeroclawd.board.board import DeviceBoard

        self.board = DeviceBoard(self.config, self, self.clock, self._hardware)
        self.unknown = await self.store.ledger.boot(f"zeroclawd {__version__}")
        await self.board.start()
        self._build_turns()
        self.channels = self._build_channels()
        for reading in list(self._shown.values()):  # what the board showed while nobody was there to be told
            self.changed(reading)

    def _build_turns(self) -> None:
        from zeroclawd.providers.pool import Pool

        self._pool = Pool()
        self._provider = self._build_provider(self.plan)
        self.emit = self._build_emit()
        self.runner = TurnRunner(self._context(self.plan, self._provider), self.store.sessions, self.emit, self.deliver)

    def _build_provider(self, plan: Plan) -> Provider:
        from zeroclawd.providers.build import build

        return build(plan.config, self._pool, self.board.devices, plan.texts)

    def _build_emit(self) -> Emit:
        own: list[Observer] = [*self._extra_observers]
        if self.config.observability.turn_events:
            own.append(journal)
        return Emitter(self.plan.redactor, [*own, self._tell_channels])

    def _tell_channels(self, event: TurnEvent) -> None:
        for channel in self.channels:
            if channel.name == event.channel:
                channel.observe(event)

    def _build_channels(self) -> tuple[MqttChannel, ...]:
        from zeroclawd.channels.mqtt.channel import MqttChannel
        from zeroclawd.store.outbox import OutboxBounds

        config = self.config
        return tuple(
            MqttChannel(
                alias,
                mqtt,
                node=self.plan.node,
                boot_id=self.boot_id,
                operators=config.operators,
                risk=config.risk,
                device_groups={name: tuple(device.groups) for name, device in config.devices.items()},
                inbox=self.store.inbox,
                outbox=self.store.outbox(
                    f"mqtt.{alias}",
                    OutboxBounds(mqtt.outbox_count, int(mqtt.outbox_size), float(mqtt.outbox_age)),
                ),
                questions=self.store.questions,
                ledger=self.store.ledger,
                clock=self.clock,
                redactor=self.plan.redactor,
            )
            for alias, mqtt in config.channels.mqtt.items()
        )

    def _context(self, plan: Plan, provider: Provider) -> TurnContext:
        from zeroclawd.providers.direct import DirectProvider

        config, settings = plan.config, plan.config.agent.tool_receipts
        key = self.store.device_key
        return TurnContext(
            agent=config.agent.name,
            node=plan.node,
            boot_id=self.boot_id,
            provider=provider,
            catalog=plan.catalog,
            everything=plan.catalog,
            profile=config.risk,
            runtime=config.runtime,
            approver=None,
            board=self.board,
            ledger=self.store.ledger,
            questions=self.store.questions,
            clock=self.clock,
            redactor=plan.redactor,
            digest_key=signing.derive(key, "digests"),
            receipts=ReceiptScope.derive(key, self.boot_id) if settings.enabled else None,
            receipt_settings=settings,
            texts=plan.texts,
            workspace=config.workspace,
            limits=ToolLimits(
                shell_seconds=float(config.runtime.shell_timeout), environment=tuple(config.runtime.shell_environment)
            ),
            stopped=self.stopped,
            direct=lambda calls: DirectProvider(calls, plan.texts),
            approvers=self.approver_for,
            language=plan.texts.language,
            system_prompt=config.agent.system_prompt,
        )

    async def close(self, reason: str) -> None:
        """Answer what runs and drive the safe states, once; each step is bounded, and the next one comes anyway."""
        if self._closed:
            return
        self._closed = True
        for name, step, seconds in (
            ("turns", self.runner.close(), 6.0),
            ("board", self.board.stop(reason), 10.0),
            ("provider", self._provider.close(), 2.0),
        ):
            try:
                async with asyncio.timeout(seconds):
                    await step
            except Exception as error:  # one part that does not close must not keep the relay on
                log.error("close_failed part=%s error=%s", name, error)

    async def close_store(self, reason: str) -> None:
        """The last step: the channels have said goodbye, the stop row and what is queued go to disk."""
        try:
            async with asyncio.timeout(5.0):
                await self.store.ledger.stop(reason)
        except (StoreError, TimeoutError) as error:
            log.error("stop_not_recorded error=%s", error)
        await self.store.close()

    # What channels need (interfaces.Host)

    def submit(self, inbound: Inbound) -> bool:
        """Queue a turn."""
        if isinstance(self.clock, SystemClock):
            self.clock.asks = True
        return self.runner.submit(inbound)

    def cancel(self, channel: str, command_id: str, reason: str) -> bool:
        """Cancel a turn."""
        return self.runner.cancel(channel, command_id, reason)

    async def engage_stop(self, by: str, reason: str) -> None:
        """Engage the emergency stop and cancel what runs."""
        await self.board.engage(by, reason)
        self.runner.cancel_all("emergency stop")
        self.refresh()

    async def release_stop(self, by: str) -> None:
        """Release the emergency stop."""
        await self.board.release(by)
        self.refresh()

    def stopped(self) -> bool:
        """True while the emergency stop is engaged."""
        return self.board.stopped

    def devices(self) -> tuple[DeviceInfo, ...]:
        """The configured devices."""
        return self.board.devices()

    def approver_for(self, ingress: Ingress) -> Approver | None:
        """Who is asked about a call of this message: the operators of the channel that it came by."""
        return next((channel.approver for channel in self.channels if channel.name == ingress.channel), None)

    async def deliver(self, outbound: Outbound) -> None:
        """Bring a reply to the channel of its command."""
        for channel in self.channels:
            if channel.name == outbound.ingress.channel:
                try:
                    await channel.deliver(outbound)
                except StoreError as error:
                    log.error("reply_not_kept command=%s error=%s", outbound.id, error.text)

    # What the board needs (interfaces.BoardHost)

    async def remember(self, key: str, value: str) -> None:
        """Keep a value of the board's on disk."""
        await self.store.memory.remember(key, value)

    async def recall(self, key: str) -> str | None:
        """A value that the board kept."""
        return await self.store.memory.recall(key)

    async def record(self, kind: str, device: str, note: str) -> None:
        """A ledger row of the board's."""
        await self.store.ledger.append(Entry(kind, agent=self.config.agent.name, device=device, note=note), sync=True)
        self.refresh()

    def changed(self, reading: Reading) -> None:
        """A device has a new state."""
        self._shown[reading.device] = reading
        for channel in self.channels:
            channel.changed(reading)

    # Status

    def health(self) -> list[Health]:
        """Every part, each with its own state."""
        faulty = [device.name for device in self.board.devices() if device.fault]
        board = Health("board", "degraded" if faulty else "ok", f"out of order: {', '.join(faulty)}" if faulty else "")
        return [board, self.store.health(), *(channel.health() for channel in self.channels)]

    def reasons(self) -> list[str]:
        """Why the whole is not ok, each in one sentence."""
        parts = [f"{part.part}: {part.detail or part.state}" for part in self.health() if part.state != "ok"]
        stop = ["the emergency stop is engaged"] if self.stopped() else []
        return [*parts, *stop, *self.problems.values()]

    def status(self) -> Mapping[str, Any]:
        """The status document."""
        parts = self.health()
        return {
            "version": __version__,
            "node": self.plan.node,
            "agent": self.config.agent.name,
            "boot_id": self.boot_id,
            "started": self.started,
            "clock_synced": self.clock.synced(),
            "state": "ok" if not self.reasons() else "degraded",
            "health": {part.part: {"state": part.state, "detail": part.detail} for part in parts},
            "emergency_stop": self.stopped(),
            "reasons": self.reasons(),
            "devices": {device.name: device.fault or "ok" for device in self.board.devices()},
        }

    def refresh(self) -> None:
        """The status document may have changed."""
        for channel in self.channels:
            channel.refresh()

    def stuck(self) -> str:
        """What no longer makes progress, or empty; the watchdog is fed only while it is empty."""
        return self.runner.stuck()

    async def _publish_checkpoint(self, checkpoint: Checkpoint) -> None:
        for channel in self.channels:
            await channel.checkpoint(checkpoint.text().encode())

    async def report_unknown(self) -> None:
        """Say of each effect that an earlier boot began and never finished that nobody knows how it ended."""
        for call in self.unknown:
            log.warning("effect_unknown tool=%s device=%s turn=%s", call.tool, call.device, call.turn_id)

    # Reload

    async def reload(self, plan: Plan) -> list[str]:
        """Take over what can change while running; returns the sections that need a restart."""
        old, new = self.config, plan.config
        fixed = ("channels", "board", "devices", "ledger")
        waiting = [name for name in fixed if getattr(old, name) != getattr(new, name)]
        if (old.agent.state_dir, old.agent.name) != (new.agent.state_dir, new.agent.name):
            waiting.append("agent")
        kept = replace_sections(new, old, (*fixed, "agent") if "agent" in waiting else fixed)
        merged = replace(plan, loaded=replace(plan.loaded, config=kept))
        old_provider, self._provider = self._provider, self._build_provider(merged)
        self.plan = merged
        self.runner.base = self._context(merged, self._provider)
        for channel in self.channels:
            channel.reconfigure(kept.operators, kept.risk)
        await old_provider.close()
        await self.store.ledger.append(Entry("config", note=f"reloaded; waiting for a restart: {waiting or 'none'}"))
        return waiting


def replace_sections(config: Config, source: Config, names: Sequence[str]) -> Config:
    """The config with these sections taken from another one."""
    import msgspec

    return msgspec.structs.replace(config, **{name: getattr(source, name) for name in names})
