"""Which failures of SQLite and of the file system mean a full or read-only disk, and which a damaged file."""

from __future__ import annotations

import errno
import sqlite3

from zeroclawd.errors import StoreError, StoreFull

_CANNOT_RECORD = {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN}
_DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EFBIG}

FULL_HINT = "make room on the disk (df -h), or see why it is read-only (dmesg); no restart is needed"


def primary_code(error: BaseException) -> int:
    """SQLite's primary result code (https://sqlite.org/rescode.html), or -1 where there is none."""
    return getattr(error, "sqlite_errorcode", -1) & 0xFF if hasattr(error, "sqlite_errorcode") else -1


def damaged(error: BaseException) -> bool:
    """True if the file is not a database, or not a whole one."""
    return primary_code(error) in _DAMAGED


def translate(error: Exception) -> Exception:
    """The error of our own tree for one of SQLite or the system; any other comes back as it is."""
    if isinstance(error, sqlite3.Error):
        if primary_code(error) in _CANNOT_RECORD:
            return StoreFull(f"cannot record: {error}", hint=FULL_HINT)
        if damaged(error):
            hint = "restart zeroclawd: the damaged file is then set aside and a new one started"
            return StoreError(f"the database is damaged: {error}", hint=hint)
        if primary_code(error) in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}:
            return StoreError(f"cannot record: {error}", hint="another program holds the database open for writing")
        return StoreError(f"cannot record: {error}")
    if isinstance(error, OSError):
        kind = StoreFull if error.errno in _NO_ROOM else StoreError
        return kind(f"cannot record: {error}", hint=FULL_HINT if kind is StoreFull else "check who owns the folder")
    return error
