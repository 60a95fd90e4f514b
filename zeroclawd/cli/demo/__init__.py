"""`zeroclawd demo`: the whole story on a simulated board, every step of it checked."""

from __future__ import annotations

import asyncio

import click


@click.command("demo")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per step: step, ok, detail.")
@click.option("--stay", is_flag=True, help="Leave it running for `send` and `approvals` from another terminal.")
@click.option("--keep", is_flag=True, help="Leave the folder with config, keys and ledger behind.")
@click.option("--broker", type=click.Choice(["auto", "mosquitto", "iotcore"]), default="auto", show_default=True)
def command(as_json: bool, stay: bool, keep: bool, broker: str) -> int:
    """Play the story: a reading, a lamp, a pump that asks, a yes, a no, a forgery, a replay, a limit, and the ledger.

    Needs no key, no network and no hardware. Exits 0 only if every step was checked and held.
    """
    from zeroclawd.cli.demo.story import play

    return asyncio.run(play(as_json=as_json, stay=stay, keep=keep, broker=broker))


__all__ = ["command"]
