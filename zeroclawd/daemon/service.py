"""The daemon: opens the house, says READY, lives in one task group, and ends in safe states."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import signal
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from zeroclawd.config import Loaded, load
from zeroclawd.daemon.build import Plan, plan
from zeroclawd.daemon.clock import SystemClock
from zeroclawd.daemon.house import House
from zeroclawd.daemon.notify import Notifier
from zeroclawd.errors import ConfigError, ZeroclawdError
from zeroclawd.observers import journal

log = logging.getLogger(__name__)

LAST_GOOD = "last-good.toml"

_SMALL_BOARD = 1_000_000_000


def run(file: Path) -> int:
    """Run the daemon of a config file until SIGTERM or SIGINT; returns the exit code."""
    loaded = load(file)
    planned = plan(loaded, cache=loaded.config.state_dir / "cache")
    settings = loaded.config.observability
    journal.set_up(settings.log_level, settings.log_format, planned.redactor)
    return run_loop(loaded.config.runtime.loop, lambda: Service(planned, file).run())


def run_loop(wanted: str, main: Callable[[], Coroutine[Any, Any, int]]) -> int:
    """Run on uvloop where it is installed and the board has room for it, else on asyncio."""
    with asyncio.Runner(loop_factory=_loop_factory(wanted)) as runner:
        return runner.run(main())


def _loop_factory(wanted: str) -> Callable[[], asyncio.AbstractEventLoop] | None:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if wanted == "asyncio" or (wanted == "auto" and memory < _SMALL_BOARD):
        return None
    try:
        import uvloop
    except ImportError:
        if wanted == "uvloop":
            raise ConfigError("uvloop is not installed", key="runtime_profiles", hint="pip install uvloop") from None
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


class Service:
    """One life of the daemon: start, run, reload on SIGHUP, stop on SIGTERM."""

    def __init__(self, planned: Plan, file: Path | None, *, house: House | None = None) -> None:
        self._plan = planned
        self._file = file
        self._notify = Notifier()
        self._ending = asyncio.Event()
        self._reason = "stopped"
        self._code = 0
        self._reloads: asyncio.Queue[None] = asyncio.Queue(1)
        self.house = house or House(planned, SystemClock(asks=False))

    def end(self, reason: str) -> None:
        """Ask for a clean stop."""
        if not self._ending.is_set():
            self._reason = reason
            self._ending.set()

    async def run(self, ready: Callable[[], None] = lambda: None, *, signals: bool = True) -> int:
        """Open the house, serve until the end is asked for, close in safe states."""
        if signals:
            self._catch_signals()
        self._notify.status("opening the store and the board")
        await self.house.open()
        try:
            await self._serve(ready)
        except BaseException:
            self._reason = "failed"
            raise
        finally:
            await self.house.close(self._reason)
            await self.house.close_store(self._reason)
        return self._code

    async def _serve(self, ready: Callable[[], None]) -> None:
        house = self.house
        async with asyncio.TaskGroup() as group:
            workers = [
                group.create_task(house.runner.run(), name="turns"),
                group.create_task(self._notify.feed(house.stuck), name="watchdog"),
                group.create_task(self._reload_when_asked(), name="reload"),
                group.create_task(house.store.ledger.keep(), name="ledger"),
                group.create_task(self._end_with_the_chip(), name="chip"),
            ]
            channels = [group.create_task(channel.run(house), name=channel.name) for channel in house.channels]
            await house.report_unknown()
            self._keep_last_good()
            self._say_ready()
            ready()
            ended = group.create_task(self._ending.wait(), name="until the end")
            await ended
            self._notify.send("STOPPING=1", f"STATUS=stopping: {self._reason}")
            log.info("stopping reason=%s", self._reason)
            await house.close(self._reason)
            for task in (*channels, *workers):
                task.cancel()

    async def _end_with_the_chip(self) -> None:
        """A GPIO chip that disappears cannot be had back by this process: end, and be started again."""
        await self.house.board.wait_lost()
        self._code = 1
        self.end("the GPIO chip has disappeared")

    def _say_ready(self) -> None:
        # What start-up made stays for good: keeping it out of later collections saves a board memory and time.
        gc.collect()
        gc.freeze()
        devices = len(self.house.config.devices)
        channels = ", ".join(channel.name for channel in self.house.channels) or "no channel"
        self._notify.send("READY=1")
        self._notify.status(f"ready: {devices} devices, {channels}")
        log.info("ready node=%s boot=%s devices=%d channels=%s", self._plan.node, self.house.boot_id, devices, channels)

    def _catch_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.end, signal.Signals(number).name)
        loop.add_signal_handler(signal.SIGHUP, self._ask_for_reload)

    def _ask_for_reload(self) -> None:
        with contextlib.suppress(asyncio.QueueFull):
            self._reloads.put_nowait(None)

    # Reload: a bad config never takes the place of a good one

    async def _reload_when_asked(self) -> None:
        while True:
            await self._reloads.get()
            self._notify.send("RELOADING=1")
            try:
                await self._reload()
            except ZeroclawdError as error:
                self.house.problems["config"] = f"reload refused, the old config goes on: {error}"
                log.error("reload_refused error=%s", error)
            self._notify.send("READY=1")
            self.house.refresh()

    async def _reload(self) -> None:
        if self._file is None:
            return
        planned = plan(load(self._file), cache=self._plan.config.state_dir / "cache")
        waiting = await self.house.reload(planned)
        self.house.problems.pop("config", None)
        if waiting:
            self.house.problems["config"] = f"changed, but in force only after a restart: {', '.join(waiting)}"
        log.info("reloaded waiting_for_restart=%s", ",".join(waiting) or "-")

    def _keep_last_good(self) -> None:
        """Keep the config that started, for driving the safe states when a later one is broken."""
        path = self._plan.config.state_dir / LAST_GOOD
        text = self._plan.loaded.text
        with contextlib.suppress(OSError):
            if path.is_file() and path.read_text("utf-8") == text:
                return
            temporary = path.with_suffix(".tmp")
            temporary.write_text(text, "utf-8")
            temporary.chmod(0o600)
            temporary.replace(path)


def safe_states(file: Path, state_dir: Path) -> tuple[list[str], str]:
    """Drive the safe states from the config, or from the last one that started; returns lines and which file it was."""
    from zeroclawd.board.board import drive_safe_states

    loaded, used = _usable(file, state_dir)
    return drive_safe_states(loaded.config), used


def _usable(file: Path, state_dir: Path) -> tuple[Loaded, str]:
    from zeroclawd.board.plan import plan_devices

    try:
        loaded = load(file)
        plan_devices(loaded.config)  # pins are all that it takes: no secret, no broker, no tool
    except ZeroclawdError as error:
        kept = state_dir / LAST_GOOD
        if not kept.is_file():
            raise
        log.warning("config_unusable error=%s using=%s", error, kept)
        return load(kept), str(kept)
    return loaded, str(file)
