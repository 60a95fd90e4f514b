"""A daemon's store at full speed, to be killed: it says on stdout what has been answered, and nothing before."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from tests.store.hands import intent, outcome
from zeroclawd.config import LedgerConfig
from zeroclawd.daemon.clock import SystemClock
from zeroclawd.interfaces import Parcel
from zeroclawd.store.outbox import DurableOutbox
from zeroclawd.store.store import Store


def say(*words: object) -> None:
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


async def command(store: Store, outbox: DurableOutbox, number: int, run: str) -> None:
    """What one command does to the store, from its arrival to its reply."""
    claimed = await store.inbox.claim("mqtt", str(number), "print", routing=b"there")
    if not claimed.new:
        say("again", number)
        return
    say("claimed", number)
    call = f"{run}-{number}"
    seq = await store.ledger.append(intent(call, device="valve"))
    say("row", seq, "intent", call)
    seq = await store.ledger.append(outcome(call))
    say("row", seq, "outcome", call)
    await store.inbox.finish("mqtt", str(number), call.encode())
    say("finished", number)
    parcel = await outbox.put(Parcel("reply", call.encode()))
    say("parcel", parcel.id, call)


async def work(store: Store, first: int, run: str) -> None:
    outbox = store.outbox("mqtt")
    number = first
    while True:
        async with asyncio.TaskGroup() as group:
            for offset in range(4):
                group.create_task(command(store, outbox, number + offset, run))
        number += 4


async def main(folder: str, first: str, run: str) -> None:
    store = Store.open(Path(folder), SystemClock(), run, "node-1", LedgerConfig(checkpoint_every=20))
    left = await store.ledger.boot()
    say("boot", *(item.call_id for item in left))
    async with asyncio.TaskGroup() as group:
        group.create_task(store.ledger.keep())
        group.create_task(work(store, int(first), run))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
