"""Opens the database file: creates it whole, sets a damaged one aside, and lets one daemon at a time have it."""

from __future__ import annotations

import fcntl
import os
import sqlite3
from datetime import UTC, datetime
from pathlib import Path

from zeroclawd.errors import StoreError
from zeroclawd.frozen import dataclass
from zeroclawd.store import faults, tables

FILE = "zeroclawd.db"
SUSPECT = "zeroclawd.db.suspect"
_CACHE_KIB = 512


@dataclass(frozen=True, slots=True)
class Opened:
    """A writable connection, its file, the lock that it is held under, and what was not as expected, in words."""

    connection: sqlite3.Connection
    path: Path
    lock: int
    notes: tuple[str, ...] = ()


def open_for_writing(folder: Path, wall: float) -> Opened:
    """Open `<folder>/zeroclawd.db`; an empty or damaged file is renamed, never deleted, and a note says so.

    `wall` (Unix seconds) names the file that is set aside. StoreFull or StoreError if there is nothing to write to.
    """
    try:
        _make_folder(folder)
        lock = _lock(folder)
    except OSError as error:
        raise faults.translate(error) from error
    try:
        return _open(folder / FILE, lock, wall)
    except (OSError, sqlite3.Error) as error:
        os.close(lock)
        raise faults.translate(error) from error
    except BaseException:
        os.close(lock)
        raise


def _open(path: Path, lock: int, wall: float) -> Opened:
    notes = []
    reason = _why_unusable(path)
    if reason:
        notes.append(f"{reason}; set aside as {_set_aside(path, wall)}")
    if not path.exists():
        _create(path)
    os.chmod(path, 0o600)
    connection = connect(path)
    try:
        tables.migrate(connection)
    except BaseException:
        connection.close()
        raise
    return Opened(connection, path, lock, tuple(notes))


def connect(path: Path) -> sqlite3.Connection:
    """A writable connection in WAL mode whose commits reach the disk (`synchronous=FULL`) unless told otherwise."""
    connection = sqlite3.connect(path, timeout=5, isolation_level=None, check_same_thread=False)
    try:
        _configure(connection)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("PRAGMA journal_size_limit = 4194304")
        connection.execute("PRAGMA secure_delete = FAST")  # Debian's default rewrites what is deleted: an SD card wears
    except BaseException:
        connection.close()
        raise
    return connection


def connect_to_read(path: Path, *, live: bool = False) -> sqlite3.Connection:
    """A connection that cannot write, to a file that may be in use; `live` if it certainly is. StoreError.

    A file that nobody has open is read as it lies, so that looking at a copy leaves nothing beside it.
    """
    if not path.is_file():
        raise StoreError(f"{path}: there is no such file", hint="the database is <state_dir>/zeroclawd.db")
    mode = "mode=ro" if live or in_use(path) else "mode=ro&immutable=1"
    try:
        return _connect_to_read(f"file:{_quote(path)}?{mode}")
    except sqlite3.Error as error:
        hint = (
            "run as the user whose file it is, or copy it, with its -wal file if there is one, to a folder of your own"
        )
        raise StoreError(f"{path} cannot be opened: {error}", hint=hint) from error


def _connect_to_read(uri: str) -> sqlite3.Connection:
    connection = sqlite3.connect(uri, uri=True, timeout=5, isolation_level=None, check_same_thread=False)
    try:
        _configure(connection)
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()  # the file is opened by the first question
    except BaseException:
        connection.close()
        raise
    return connection


def in_use(path: Path) -> bool:
    """True if a write-ahead log lies beside the file: somebody has it open, or did not close it."""
    return path.with_name(path.name + "-wal").exists()


def _configure(connection: sqlite3.Connection) -> None:
    connection.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
    connection.execute("PRAGMA temp_store = MEMORY")
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute("PRAGMA cell_size_check = ON")


def _quote(path: Path) -> str:
    return str(path.absolute()).replace("%", "%25").replace("?", "%3f").replace("#", "%23")


def _make_folder(folder: Path) -> None:
    if not folder.is_dir():
        folder.mkdir(mode=0o700, parents=True)
        sync_folder(folder.parent)


def _lock(folder: Path) -> int:
    handle = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise StoreError(
            f"{folder} is used by another zeroclawd", hint="stop the other one first: systemctl status zeroclawd"
        ) from None
    return handle


def _why_unusable(path: Path) -> str:
    if path.with_name(SUSPECT).exists():
        return "the database was found damaged while in use"
    if not path.exists():
        return "the database is gone but its write-ahead log is there" if in_use(path) else ""
    if path.stat().st_size == 0:
        return "the database was empty (0 bytes)"
    try:
        _probe(path)
    except sqlite3.DatabaseError as error:
        if faults.damaged(error):
            return f"the database was damaged ({error})"
        raise
    return ""


def _probe(path: Path) -> None:
    """Touch the places that the daemon needs: the schema, and both ends of every table."""
    connection = connect(path)
    try:
        present = {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        for name in present.intersection(tables.NAMES):
            key = "key" if name == "memory" else "rowid"
            for order in ("ASC", "DESC"):
                connection.execute(f"SELECT * FROM {name} ORDER BY {key} {order} LIMIT 1").fetchall()  # noqa: S608
    finally:
        connection.close()


def _set_aside(path: Path, wall: float) -> str:
    """Rename the file and its write-ahead log to a name with the time in it; return the name."""
    stamp = datetime.fromtimestamp(wall, UTC).strftime("%Y%m%dT%H%M%SZ")
    name = f"{path.name}.broken-{stamp}"
    number = 1
    while path.with_name(name).exists() or path.with_name(name + "-wal").exists():
        number += 1
        name = f"{path.name}.broken-{stamp}-{number}"
    for suffix in ("", "-wal"):
        part = path.with_name(path.name + suffix)
        if part.exists():
            part.rename(path.with_name(name + suffix))
    for rest in (path.with_name(path.name + "-shm"), path.with_name(SUSPECT)):
        rest.unlink(missing_ok=True)
    sync_folder(path.parent)
    return name


def _create(path: Path) -> None:
    """Build a new database under another name and rename it, so that no power cut leaves half of one."""
    fresh = path.with_name(path.name + ".new")
    for suffix in ("", "-wal", "-shm"):
        fresh.with_name(fresh.name + suffix).unlink(missing_ok=True)
    os.close(os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    connection = connect(fresh)
    try:
        tables.migrate(connection)
    finally:
        connection.close()
    sync_file(fresh)
    fresh.rename(path)
    sync_folder(path.parent)


def sync_file(path: Path) -> None:
    """Bring a file's content to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_folder(path: Path) -> None:
    """Bring a folder's entries to the disk, so that a new or renamed file is there after a power cut."""
    sync_file(path)
