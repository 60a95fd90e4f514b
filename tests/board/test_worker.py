"""Blocking calls off the event loop: order, deadlines, and what a hang costs."""

from __future__ import annotations

import asyncio
import threading

import pytest

from zeroclawd.board.hardware import HardwareError
from zeroclawd.board.worker import Worker


@pytest.fixture
def worker():
    worker = Worker("bus 1")
    yield worker
    worker.close()


async def test_calls_run_in_order_in_one_thread_that_is_not_the_loops(worker):
    order, threads = [], set()

    def call(number):
        order.append(number)
        threads.add(threading.current_thread().name)
        return number

    ends = await asyncio.gather(*(worker.run(lambda number=number: call(number), 5) for number in range(20)))
    assert ends == order == list(range(20))
    assert threads == {"board bus 1"}


async def test_an_error_comes_through(worker):
    with pytest.raises(ZeroDivisionError):
        await worker.run(lambda: 1 / 0, 5)
    assert await worker.run(lambda: "still there", 5) == "still there"


async def test_a_call_that_hangs_fails_at_its_deadline_and_the_next_ones_at_once(worker):
    free = threading.Event()
    with pytest.raises(HardwareError, match=r"bus 1 gave no answer within 0\.05 s; whether it acted is not known"):
        await worker.run(free.wait, 0.05)
    with pytest.raises(HardwareError, match="bus 1 hangs"):
        await worker.run(lambda: None, 60)
    assert worker.hung
    free.set()
    for _ in range(1000):
        if not worker.hung:
            break
        await asyncio.sleep(0.001)
    assert await worker.run(lambda: "back", 5) == "back"


async def test_a_call_that_waited_past_its_deadline_never_runs(worker):
    free, ran = threading.Event(), []
    first = asyncio.create_task(worker.run(free.wait, 5))
    await asyncio.sleep(0)
    with pytest.raises(HardwareError, match="was busy for"):
        await worker.run(lambda: ran.append("late"), 0.05)
    free.set()
    await first
    await worker.run(lambda: None, 5)
    assert ran == []


async def test_a_cancelled_call_that_waits_never_runs(worker):
    free, ran = threading.Event(), []
    first = asyncio.create_task(worker.run(free.wait, 5))
    second = asyncio.create_task(worker.run(lambda: ran.append("cancelled"), 5))
    await asyncio.sleep(0.01)
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    free.set()
    await first
    await worker.run(lambda: None, 5)
    assert ran == []


async def test_a_closed_worker_fails_at_once():
    worker = Worker("bus 1")
    worker.close()
    with pytest.raises(HardwareError, match="is closed"):
        await worker.run(lambda: None, 5)


def test_without_a_loop_the_deadline_is_the_same():
    worker, free = Worker("bus 1"), threading.Event()
    assert worker.run_blocking(lambda: 42, 5) == 42
    with pytest.raises(TimeoutError, match="of its own"):
        worker.run_blocking(lambda: (_ for _ in ()).throw(TimeoutError("of its own")), 5)
    with pytest.raises(HardwareError, match="gave no answer"):
        worker.run_blocking(free.wait, 0.05)
    free.set()
    worker.close()


def test_a_thread_is_started_only_when_it_is_needed_and_does_not_hold_up_the_process():
    before = threading.active_count()
    worker = Worker("idle")
    assert threading.active_count() == before
    worker.run_blocking(lambda: None, 5)
    assert any(thread.daemon and thread.name == "board idle" for thread in threading.enumerate())
    worker.close()
