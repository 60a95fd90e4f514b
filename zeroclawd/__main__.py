"""Where `zeroclawd` starts: answers `--version` by itself, hands everything else to the command line."""

from __future__ import annotations

import sys


def main() -> int:
    """Run the command line and return its exit code: 0 done, 1 failed, 2 not usable as given."""
    if sys.argv[1:] == ["--version"]:
        from zeroclawd import __version__

        print(f"zeroclawd {__version__}")
        return 0
    from zeroclawd.cli.main import run

    return run()


if __name__ == "__main__":
    sys.exit(main())
