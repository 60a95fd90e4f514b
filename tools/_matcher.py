"""A process of its own that looks for a regular expression: a pattern that never ends is ended by killing it.

Started as `python -I _matcher.py PATTERN`. For each text on standard input (8 bytes of length, big-endian, then the bytes)
it writes one line of JSON: the numbers of the lines that match, from 1. A bad pattern ends it with the reason on standard
error.
"""

import json
import re
import sys


def main() -> None:
    """Answer until standard input ends."""
    try:
        search = re.compile(sys.argv[1]).search
    except (re.error, OverflowError, RecursionError) as error:
        sys.exit(str(error))
    while head := sys.stdin.buffer.read(8):
        text = sys.stdin.buffer.read(int.from_bytes(head, "big")).decode("utf-8", "replace")
        numbers = [number for number, line in enumerate(text.split("\n"), 1) if search(line.rstrip("\r"))]
        sys.stdout.write(json.dumps(numbers) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
