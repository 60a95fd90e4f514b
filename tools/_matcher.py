"""A process of its own that looks for a regular expression: a pattern that never ends is ended by killing it.

Started as `python -I _matcher.py PATTERN MOST`. It writes an empty JSON list when it is ready, or, on standard error, the
reason why the pattern is bad. For each text on standard input (8 bytes of length, big-endian, then the bytes) it writes
one line of JSON: the numbers of the first MOST lines that match, from 1.
"""

import itertools
import json
import re
import sys


def main() -> None:
    """Answer until standard input ends."""
    try:
        search = re.compile(sys.argv[1]).search
    except (re.error, OverflowError, RecursionError) as error:
        sys.exit(str(error))
    _answer([])
    while head := sys.stdin.buffer.read(8):
        text = sys.stdin.buffer.read(int.from_bytes(head, "big")).decode("utf-8", "replace")
        matching = (number for number, line in enumerate(text.split("\n"), 1) if search(line.rstrip("\r")))
        _answer(list(itertools.islice(matching, int(sys.argv[2]))))


def _answer(numbers: list[int]) -> None:
    sys.stdout.write(json.dumps(numbers) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
