"""Where `zeroclawd` starts: answers `--version` by itself, hands everything else to the command line."""

from __future__ import annotations

import gc
import importlib
import sys


def main() -> int:
    """Run the command line and return its exit code: 0 done, 1 failed, 2 not usable as given."""
    if sys.argv[1:] == ["--version"]:
        from zeroclawd import __version__

        print(f"zeroclawd {__version__}")
        return 0
    match sys.argv[1:]:
        case ["run", "--config", file]:
            return _daemon(file)
    if sys.argv[1:2] != ["run"]:
        # A command is over before its garbage is worth a search: looking for it was a sixth of the CPU of a short one.
        gc.set_threshold(50_000, 10, 10)
    from zeroclawd.cli.main import run

    code = run()
    gc.freeze()
    return code


def _daemon(file: str) -> int:
    """The unit's own way in: a daemon has no use for the command line's library, and a board has better uses for memory."""
    from pathlib import Path

    _spare("typing_extensions")
    from zeroclawd.daemon.service import run
    from zeroclawd.errors import ConfigError, KeyFileError, ZeroclawdError

    try:
        return run(Path(file))
    except ZeroclawdError as error:
        print(f"error: {error}", *([f"  try: {error.hint}"] if error.hint else []), sep="\n", file=sys.stderr)
        return 2 if isinstance(error, ConfigError | KeyFileError) else 1


def _spare(name: str) -> None:
    """Let msgspec do without a module that it takes where it finds it, though `typing` has all of it: 0.6 MB."""
    if name in sys.modules:
        return
    sys.modules[name] = None  # type: ignore[assignment]  # importlib's way to say: not here
    importlib.import_module("msgspec")
    del sys.modules[name]


if __name__ == "__main__":
    sys.exit(main())
