"""Single keys from a terminal, as they are pressed."""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import os
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def pressed(queue: asyncio.Queue[str]) -> Iterator[bool]:
    """Put what is typed into the queue until the block ends; False if standard input is no terminal.

    Each entry is what came at once: one key as a rule, more if something was pasted. What was typed before is dropped.
    The terminal is put back as it was, however the block ends (termios(3), cbreak mode: Ctrl-C still interrupts).
    """
    import termios
    import tty

    if not sys.stdin.isatty():
        yield False
        return
    number = sys.stdin.fileno()
    before = termios.tcgetattr(number)
    decoder = codecs.getincrementaldecoder("utf-8")("ignore")

    def read() -> None:
        typed = os.read(number, 1024)
        if not typed:
            loop.remove_reader(number)  # the terminal is gone, and would be ready to be read for ever
        elif text := decoder.decode(typed):
            queue.put_nowait(text)

    loop = asyncio.get_running_loop()
    tty.setcbreak(number, termios.TCSAFLUSH)
    loop.add_reader(number, read)
    try:
        yield True
    finally:
        loop.remove_reader(number)
        termios.tcsetattr(number, termios.TCSADRAIN, before)
