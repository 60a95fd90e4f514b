"""Owns the tasks of a board that may outlive the call that began them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")

log = logging.getLogger(__name__)


class Tasks:
    """Every task has a name; a failure that nobody waits for is logged."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[Any]] = set()

    def start(self, work: Coroutine[Any, Any, Result], name: str) -> asyncio.Task[Result]:
        """Begin some work; it is logged if it fails."""
        task = self.own(work, name)
        task.add_done_callback(_log_failure)
        return task

    async def unbroken(self, work: Coroutine[Any, Any, Result], name: str) -> Result:
        """Wait for work that is finished and booked once it has begun, even if the caller is cancelled meanwhile."""
        return await self.finished(self.own(work, name))

    async def finished(self, task: asyncio.Task[Result]) -> Result:
        """Wait for a task without breaking it; a cancelled caller still waits once before it goes."""
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            await asyncio.wait([task])
            if not task.cancelled() and task.exception() is not None:
                log.warning("board_task_failed task=%r error=%s", task.get_name(), task.exception())
            raise

    async def end(self, seconds: float) -> None:
        """Wait for what is under way, then cancel what is left."""
        for left in (seconds, 1.0):
            others = self._running - {asyncio.current_task()}
            if others:
                await asyncio.wait(others, timeout=left)
            for task in self._running - {asyncio.current_task()}:
                task.cancel()

    def own(self, work: Coroutine[Any, Any, Result], name: str) -> asyncio.Task[Result]:
        """Begin some work that somebody waits for."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task


def _log_failure(task: asyncio.Task[Any]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("board_task_failed task=%r error=%s", task.get_name(), error, exc_info=error)
