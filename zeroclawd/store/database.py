"""One SQLite file with one writer thread: jobs that wait together share a commit, and an answered commit is on the disk.

A job is a function of the connection. It runs in a savepoint of its own, so that its failure spares its neighbours; once
queued it runs, whoever stops waiting. `write(job)` returns after the commit has been synced. `write(job, sync=False)`
returns after a commit without a sync: the rows survive a crash of the daemon at once, and reach the disk with the next
synced commit, at close, or after `linger` seconds, whichever is first. Nothing wakes up and nothing is written while
nobody writes.
"""

from __future__ import annotations

import asyncio
import logging
import os
import queue
import sqlite3
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from zeroclawd.errors import StoreError, StoreFull
from zeroclawd.store import faults, opening
from zeroclawd.store.reserve import Reserve

log = logging.getLogger(__name__)

T = TypeVar("T")
Job = Callable[[sqlite3.Connection], T]

LINGER = 1.0
_MAX_BATCH = 256
_QUIET_SECONDS = 60.0


@dataclass(slots=True, eq=False)
class _Request:
    """A job with whoever waits for it."""

    job: Job[Any]
    sync: bool
    urgent: bool
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]
    result: Any = None
    error: Exception | None = None

    def settle(self) -> None:
        """Answer whoever still waits; runs on the loop."""
        if self.future.done():
            return
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.result)


@dataclass(slots=True)
class Counters:
    """What was written since the start: jobs, commits that changed something, syncs of the log, jobs refused."""

    jobs: int = 0
    commits: int = 0
    syncs: int = 0
    refused: int = 0


@dataclass(slots=True)
class _Complaint:
    """Says a failure once, then at most once a minute with the number of refusals, and says when it is over."""

    since: int = 0
    next: float = 0.0

    def failed(self, error: Exception, count: int, now: float) -> None:
        self.since += count
        if now >= self.next:
            log.error("store_cannot_record refused=%d reason=%s", self.since, error)
            self.next = now + _QUIET_SECONDS

    def recovered(self) -> None:
        if self.since:
            log.warning("store_records_again refused=%d", self.since)
            self.since, self.next = 0, 0.0


@dataclass(slots=True)
class Database:
    """The one file. `fault` says why nothing can be recorded; `on_change` is called on the loop when that changes."""

    path: Path
    notes: tuple[str, ...]
    linger: float
    on_change: Callable[[], None] = lambda: None
    counters: Counters = field(default_factory=Counters)
    fault: str = ""
    _writer: sqlite3.Connection = field(init=False)
    _lock: int = field(init=False)
    _reserve: Reserve = field(init=False)
    _queue: queue.SimpleQueue[_Request | None] = field(default_factory=queue.SimpleQueue)
    _thread: threading.Thread = field(init=False)
    _reader: sqlite3.Connection | None = None
    _reading: threading.Lock = field(default_factory=threading.Lock)
    _complaint: _Complaint = field(default_factory=_Complaint)
    _due: float = 0.0
    _suspect: bool = False
    _closed: bool = False

    @classmethod
    def open(cls, folder: Path, wall: float, *, linger: float = LINGER, reserve: Reserve | None = None) -> Database:
        """Open or create `<folder>/zeroclawd.db` (0600) and start its writer; `wall` is Unix seconds.

        `notes` says what was not as expected, such as a damaged file that was set aside. StoreFull, StoreError.
        """
        reserve = reserve or Reserve(folder)
        try:
            opened = opening.open_for_writing(folder, wall)
        except StoreFull:
            if not reserve.release():
                raise
            opened = opening.open_for_writing(folder, wall)
        database = cls(opened.path, opened.notes, linger)
        database._writer, database._lock, database._reserve = opened.connection, opened.lock, reserve
        for note in opened.notes:
            log.error("database_set_aside what=%s", note)
        database._thread = threading.Thread(target=database._work, name="store-writer", daemon=True)
        database._thread.start()
        return database

    # What the loop calls

    async def write(self, job: Job[T], *, sync: bool = True, urgent: bool = False) -> T:
        """Run a job in the writer and return its result after the commit; see the module about `sync`.

        `urgent` jobs end what has begun and may use the reserve of a full disk. StoreFull if the disk is full, read-only
        or failing; StoreError if the database is damaged, locked by somebody else, or closed.
        """
        if self._closed:
            raise StoreError("the database is closed")
        loop = asyncio.get_running_loop()
        request = _Request(job, sync, urgent, loop, loop.create_future())
        self._queue.put(request)
        result: T = await request.future
        return result

    async def read(self, job: Job[T]) -> T:
        """Run a job over a connection that cannot write; it sees every answered write. StoreError."""
        if self._closed:
            raise StoreError("the database is closed")
        return await asyncio.to_thread(self._read, job)

    async def close(self, timeout: float = 10.0) -> bool:
        """Finish what is queued, sync, and let go of the file; False if the disk did not answer within `timeout`."""
        return await asyncio.to_thread(self.shut, timeout)

    def shut(self, timeout: float = 10.0) -> bool:
        """The same for a caller that has no loop."""
        if not self._closed:
            self._closed = True
            self._queue.put(None)
        self._thread.join(timeout)
        if self._thread.is_alive():
            log.error("store_does_not_close seconds=%g", timeout)
            return False
        return True

    # The reader

    def _read(self, job: Job[T]) -> T:
        try:
            with self._reading:
                if self._reader is None:
                    self._reader = opening.connect_to_read(self.path, live=True)
                return job(self._reader)
        except sqlite3.Error as error:
            raise faults.translate(error) from error

    # The writer thread

    def _work(self) -> None:
        try:
            while (batch := self._next_batch()) is not None:
                if batch:
                    self._serve(batch)
                else:
                    self._sync_late()
        finally:
            if self._due:
                self._sync_late()
            self._close_connections()

    def _close_connections(self) -> None:
        """The writer goes last: it then moves its log into the file and removes it."""
        with self._reading:
            if self._reader is not None:
                self._reader.close()
            self._writer.close()
        os.close(self._lock)

    def _next_batch(self) -> list[_Request] | None:
        """The jobs that wait, at least one; empty when it is time to sync; None at the end."""
        try:
            first = self._queue.get(timeout=max(0.0, self._due - time.monotonic()) if self._due else None)
        except queue.Empty:
            return []
        if first is None:
            return None
        batch = [first]
        while len(batch) < _MAX_BATCH:
            try:
                more = self._queue.get_nowait()
            except queue.Empty:
                break
            if more is None:
                self._queue.put(None)  # nothing is queued after the end
                break
            batch.append(more)
        return batch

    def _serve(self, batch: list[_Request]) -> None:
        before = self.fault
        pending = batch
        if not self._reserve.hold():
            pending = [request for request in batch if request.urgent]
            self._fail(batch, StoreFull("cannot record: the disk is full or read-only", hint=faults.FULL_HINT))
        if pending:
            self._transact(pending)
        again = [request for request in pending if request.urgent and isinstance(request.error, StoreFull)]
        if again and self._reserve.release():
            self._transact(again)
        self._judge(batch)
        self._answer(batch, before != self.fault)

    def _transact(self, batch: list[_Request]) -> None:
        """Run the jobs in one transaction; each ends with its result or its error."""
        self._fail(batch, None)
        self.counters.jobs += len(batch)
        try:
            self._run(batch, any(request.sync for request in batch) or 0 < self._due <= time.monotonic())
        except Exception as error:  # the writer lives on, whatever happens
            self._roll_back()
            self._note_damage(error)
            self._fail([request for request in batch if request.error is None], faults.translate(error))

    def _run(self, batch: list[_Request], sync: bool) -> None:
        before = self._writer.total_changes
        self._writer.execute(f"PRAGMA synchronous = {'FULL' if sync else 'NORMAL'}")
        self._writer.execute("BEGIN IMMEDIATE")
        for request in batch:
            self._run_one(request)
        self._writer.execute("COMMIT")
        changed = self._writer.total_changes != before
        self.counters.commits += changed
        if sync and changed:
            self.counters.syncs += 1
            self._due = 0.0
        elif sync and self._due:
            self._sync_log()  # what an earlier job left unsynced is part of what this one saw
        elif changed and not self._due:
            self._due = time.monotonic() + self.linger

    def _run_one(self, request: _Request) -> None:
        self._writer.execute("SAVEPOINT job")
        try:
            request.result = request.job(self._writer)
        except Exception as error:
            if not self._writer.in_transaction:  # SQLite has rolled back everybody's work
                raise
            self._writer.execute("ROLLBACK TO job")
            self._note_damage(error)
            request.error = faults.translate(error)
        self._writer.execute("RELEASE job")

    def _roll_back(self) -> None:
        try:
            if self._writer.in_transaction:
                self._writer.execute("ROLLBACK")
        except sqlite3.Error as error:
            log.error("rollback_failed reason=%s", error)

    @staticmethod
    def _fail(requests: list[_Request], error: Exception | None) -> None:
        for request in requests:
            request.error = error

    def _judge(self, batch: list[_Request]) -> None:
        """Keep `fault` true, complain once, and say when it is over."""
        refused = [request.error for request in batch if isinstance(request.error, StoreError)]
        self.counters.refused += len(refused)
        if refused:
            self.fault = str(refused[0])
            self._complaint.failed(refused[0], len(refused), time.monotonic())
        elif not self._suspect and self._reserve.hold():
            self.fault = ""
            self._complaint.recovered()

    def _note_damage(self, error: Exception) -> None:
        """Leave word for the next start, which sets the damaged file aside."""
        if faults.damaged(error) and not self._suspect:
            self._suspect = True
            try:
                (self.path.parent / opening.SUSPECT).touch(0o600)
            except OSError as why:
                log.error("suspicion_not_noted reason=%s", why)

    def _sync_log(self) -> None:
        """Bring the commits that were not synced to the disk."""
        self._due = 0.0
        opening.sync_file(self.path.with_name(self.path.name + "-wal"))
        self.counters.syncs += 1

    def _sync_late(self) -> None:
        """The same when nobody waits for it."""
        try:
            self._sync_log()
        except OSError as error:
            self.fault = str(faults.translate(error))
            self._complaint.failed(error, 1, time.monotonic())

    def _answer(self, batch: list[_Request], changed: bool) -> None:
        """Wake the loop once for the whole batch."""
        for loop in {request.loop for request in batch}:
            settled = [request for request in batch if request.loop is loop]
            try:
                loop.call_soon_threadsafe(self._settle, settled, changed)
            except RuntimeError:
                log.warning("loop_closed_before_answer jobs=%d", len(settled))

    def _settle(self, requests: list[_Request], changed: bool) -> None:
        for request in requests:
            request.settle()
        if changed:
            self.on_change()
