"""Room on the disk that is kept for the end of what has begun: an outcome fits where an intent no longer does."""

from __future__ import annotations

import os
from pathlib import Path

from zeroclawd.store.opening import sync_folder

SIZE = 1_048_576
_NAME = "reserve"


class Reserve:
    """A file that does nothing but hold its blocks; it is given up on a full disk and taken back when there is room."""

    def __init__(self, folder: Path, size: int = SIZE) -> None:
        self._path = folder / _NAME
        self._size = size
        self._held = False

    def hold(self) -> bool:
        """Take the room, if it is not held already; False if the disk has none."""
        if not self._held:
            try:
                self._held = self._take()
            except OSError:
                self._drop()
        return self._held

    def release(self) -> bool:
        """Give the room up; False if it was not held."""
        held = self._held or (self._path.exists() and self._path.stat().st_size > 0)
        self._held = False
        if held:
            self._drop()
        return held

    def _take(self) -> bool:
        handle = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            if os.fstat(handle).st_blocks * 512 < self._size:
                os.posix_fallocate(handle, 0, self._size)
                os.fsync(handle)
        finally:
            os.close(handle)
        return True

    def _drop(self) -> None:
        try:
            self._path.unlink(missing_ok=True)
            sync_folder(self._path.parent)  # a journalling file system frees the blocks with its next commit
        except OSError:
            return  # a read-only disk has nothing to give up
