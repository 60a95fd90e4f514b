"""One thread per group of lines, bus or port: blocking calls run there in order, each with a deadline."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from zeroclawd.board.hardware import HardwareError

Result = TypeVar("Result")
_Job = tuple["Future[Any]", Callable[[], Any]]


class Worker:
    """Runs blocking calls one after the other, away from the event loop.

    A call that outlives its deadline is left to its thread, and until it returns every other call fails at once: a bus
    that hangs costs the devices on it and nothing else. A call that was still waiting never runs. The thread is a
    daemon, so that it cannot hold up the end of the process.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._hung: Future[Any] | None = None
        self._closed = False

    @property
    def hung(self) -> bool:
        """True while a call that missed its deadline has not come back."""
        return self._hung is not None and not self._hung.done()

    async def run(self, call: Callable[[], Result], seconds: float) -> Result:
        """Run the call and return its result; HardwareError after `seconds`."""
        job = self._submit(call)
        answer = asyncio.wrap_future(job)
        try:
            await asyncio.wait({answer}, timeout=seconds)
            if not answer.done():
                raise self._late(job, seconds)
            return answer.result()
        finally:
            answer.cancel()

    def run_blocking(self, call: Callable[[], Result], seconds: float) -> Result:
        """The same for callers without an event loop."""
        job = self._submit(call)
        try:
            return job.result(seconds)
        except TimeoutError:
            if job.done():
                raise
            raise self._late(job, seconds) from None

    def close(self) -> None:
        """Let the thread end after the calls that already wait; later ones fail."""
        self._closed = True
        if self._thread is not None:
            self._jobs.put(None)

    def _submit(self, call: Callable[[], Result]) -> Future[Result]:
        if self.hung:
            raise HardwareError(f"{self.name} hangs: an earlier call has not come back")
        if self._closed:
            raise HardwareError(f"{self.name} is closed")
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name=f"board {self.name}", daemon=True)
            self._thread.start()
        job: Future[Result] = Future()
        self._jobs.put((job, call))
        return job

    def _late(self, job: Future[Any], seconds: float) -> HardwareError:
        if job.cancel():
            return HardwareError(f"{self.name} was busy for {seconds:g} s; nothing was done")
        self._hung = job
        return HardwareError(f"{self.name} gave no answer within {seconds:g} s; whether it acted is not known")

    def _work(self) -> None:
        while (entry := self._jobs.get()) is not None:
            job, call = entry
            if not job.set_running_or_notify_cancel():
                continue
            try:
                job.set_result(call())
            except BaseException as error:
                job.set_exception(error)
            del job, call, entry
