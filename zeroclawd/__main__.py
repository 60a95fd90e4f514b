"""Where `zeroclawd` starts: answers `--version` by itself, hands everything else to the command line."""

from __future__ import annotations

import sys
from pathlib import Path


def main() -> int:
    """Run the command line and return its exit code: 0 done, 1 failed, 2 not usable as given."""
    if sys.argv[1:] == ["--version"]:
        from zeroclawd import __version__

        print(f"zeroclawd {__version__}")
        return 0
    match sys.argv[1:]:
        case ["run", "--config", file]:
            return _daemon(file)
    from zeroclawd.cli.main import run

    return run()


def _daemon(file: str) -> int:
    """The unit's own way in: a daemon has no use for the command line's library, and a board has better uses for memory."""
    from zeroclawd.daemon.service import run
    from zeroclawd.errors import ConfigError, KeyFileError, ZeroclawdError

    try:
        return run(Path(file))
    except ZeroclawdError as error:
        print(f"error: {error}", *([f"  try: {error.hint}"] if error.hint else []), sep="\n", file=sys.stderr)
        return 2 if isinstance(error, ConfigError | KeyFileError) else 1


if __name__ == "__main__":
    sys.exit(main())
