"""Files inside the workspace, opened component by component from its descriptor, so that no link leads out of it.

A path is walked with openat(2) and O_NOFOLLOW; what is created, written and renamed is named relative to the descriptor
of its own folder. A link that is swapped in between check and use is therefore met as a link and refused.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import itertools
import os
import secrets
import stat
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, TypeVar

from zeroclawd.errors import ToolError
from zeroclawd.tool import Arguments, Assessment, Effect, Risk

Result = TypeVar("Result")

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_DEEPEST = 40
_LOCK_SECONDS = 5.0


# What a call may do


def reads(path: str) -> Assessment:
    """The assessment of a call that reads one file."""
    return Assessment(Risk.LOW, Effect.READ, resources(path))


def writes(arguments: Arguments) -> Assessment:
    """The assessment of a call that writes the file named by its `path`."""
    return Assessment(Risk.MEDIUM, Effect.MUTATE, resources(str(arguments.get("path", ""))))


def resources(path: str) -> frozenset[str]:
    """`file:<path>`, normalised; every ending of an absolute path, as one of them is the path below the workspace."""
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if not path.startswith("/"):
        return frozenset({f"file:{'/'.join(parts)}"})
    return frozenset(f"file:{'/'.join(parts[start:])}" for start in range(len(parts)))


# Blocking work


async def in_thread(work: Callable[[threading.Event], Result]) -> Result:
    """Do blocking work in a thread; a cancelled call tells it to stop and waits until it has, so nothing goes on unseen."""
    stop = threading.Event()
    task = asyncio.create_task(asyncio.to_thread(work, stop), name="workspace")
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        stop.set()
        await asyncio.wait({task})
        if not task.cancelled():
            task.exception()
        raise


# The workspace


class Found(NamedTuple):
    """An entry of a walk: its path below the workspace, and its name in the folder that `folder` has open."""

    path: str
    name: str
    folder: int
    is_folder: bool


@dataclass(slots=True)
class Bounds:
    """How long and how far a walk may go; `cut` says in words which bound ended it."""

    seconds: float
    entries: int
    stop: threading.Event = field(default_factory=threading.Event)
    cut: str = ""
    deadline: float = 0.0

    def __post_init__(self) -> None:
        self.deadline = time.monotonic() + self.seconds

    def spent(self) -> bool:
        """Count one entry; True when the walk must end."""
        self.entries -= 1
        if self.entries < 0:
            self.cut = "too many files"
        elif self.stop.is_set() or time.monotonic() > self.deadline:
            self.cut = f"{self.seconds:g} s are over"
        return bool(self.cut)


class Workspace:
    """The one folder that file tools reach; each method opens it anew and raises ToolError worded for the model."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def parts(self, path: str) -> tuple[str, ...]:
        """The components of a path below the workspace; absolute paths are accepted if they lie in it."""
        if "\0" in path:
            raise ToolError("a path cannot hold a NUL character")
        if path == "~" or path.startswith("~/") or ".." in path.split("/"):
            raise ToolError(f"{path}: only paths inside the workspace can be used, without '..' and '~'")
        if path.startswith("/"):
            path = self._below(path)
        return tuple(part for part in path.split("/") if part not in ("", "."))

    def _below(self, path: str) -> str:
        plain = "/" + "/".join(part for part in path.split("/") if part not in ("", "."))
        for root in (os.path.abspath(self.root), os.path.realpath(self.root)):
            if plain == root or plain.startswith(root.rstrip("/") + "/"):
                return plain[len(root.rstrip("/")) :]
        raise ToolError(f"{path}: is outside the workspace")

    @contextlib.contextmanager
    def folder(self, parts: tuple[str, ...], *, create: bool = False) -> Iterator[int]:
        """A descriptor of a folder, reached without following a link; `create` makes what is missing."""
        here = os.open(self.root, _FOLDER)
        try:
            for done, name in enumerate(parts):
                try:
                    below = _step(here, name, create)
                except OSError as error:
                    raise _worded(error, "/".join(parts[: done + 1]), here, name) from error
                os.close(here)
                here = below
            yield here
        finally:
            os.close(here)

    @contextlib.contextmanager
    def _parent(self, path: str, *, create: bool = False) -> Iterator[tuple[int, str]]:
        parts = self.parts(path)
        if not parts:
            raise ToolError(f"{path or 'an empty path'}: is not a file")
        try:
            with self.folder(parts[:-1], create=create) as folder:
                try:
                    yield folder, parts[-1]
                except OSError as error:
                    raise _worded(error, path, folder, parts[-1]) from error
        except OSError as error:
            raise ToolError(f"the workspace cannot be opened: {error.strerror}") from error

    def read(self, path: str, most: int) -> bytes:
        """The whole of a regular file of at most `most` bytes."""
        with self._parent(path) as (folder, name):
            return read_at(folder, name, path, most)

    def write(self, path: str, content: bytes) -> bool:
        """Replace or create a file, with its folders; True if it is new. After a power cut it is the old or the new one."""
        _refuse_repository(self.parts(path))
        with self._parent(path, create=True) as (folder, name), _locked(folder):
            mode = _mode(folder, name, path)
            _replace(folder, name, content, mode)
            return mode is None

    def edit(self, path: str, most: int, change: Callable[[bytes], bytes]) -> None:
        """Read a file, change it and put it in its place, with nobody else of us in between."""
        _refuse_repository(self.parts(path))
        with self._parent(path) as (folder, name), _locked(folder):
            mode = _mode(folder, name, path)
            _replace(folder, name, change(read_at(folder, name, path, most)), mode)

    def kind(self, path: str) -> str:
        """`folder` or `file`; anything else is refused."""
        if not self.parts(path):
            return "folder"
        with self._parent(path) as (folder, name):
            mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
            if not (stat.S_ISDIR(mode) or stat.S_ISREG(mode)):
                raise ToolError(f"{path}: is {_kind(mode)}")
            return "folder" if stat.S_ISDIR(mode) else "file"

    def walk(self, path: str, bounds: Bounds, depth: int = _DEEPEST) -> Iterator[Found]:
        """Files and folders below a folder, by name, without following links and without `.git`."""
        parts = self.parts(path)
        try:
            with self.folder(parts) as folder:
                yield from _walk(folder, "".join(f"{part}/" for part in parts), bounds, depth)
        except OSError as error:
            raise ToolError(f"{path}: {error.strerror}") from error


def read_at(folder: int, name: str, path: str, most: int) -> bytes:
    """The content of a regular file in an open folder; a pipe, device or link is refused without waiting for it."""
    descriptor = os.open(name, _READ, dir_fd=folder)
    with open(descriptor, "rb", buffering=0) as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise ToolError(f"{path}: is {_kind(found.st_mode)}, not a regular file")
        if found.st_size > most:
            raise ToolError(f"{path}: has {found.st_size} bytes, more than the {most} that can be read")
        return _read_all(file.read, most, path)


def _read_all(read: Callable[[int], bytes | None], most: int, path: str) -> bytes:
    content = bytearray()
    while chunk := read(min(1 << 20, most + 1 - len(content))):
        content += chunk
        if len(content) > most:
            raise ToolError(f"{path}: grew beyond the {most} bytes that can be read")
    return bytes(content)


def shown(path: str) -> str:
    """A path as text that can be encoded; bytes of a name that are not UTF-8 become marks."""
    return os.fsencode(path).decode("utf-8", "replace")


def is_binary(content: bytes) -> bool:
    """True if the beginning of a file shows that it is not text."""
    return b"\0" in content[:8192]


# The steps of the walk and of a write


def _step(here: int, name: str, create: bool) -> int:
    try:
        return os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=here)
    except FileNotFoundError:
        if not create:
            raise
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, 0o777, dir_fd=here)
        os.fsync(here)
    return os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=here)


def _walk(folder: int, prefix: str, bounds: Bounds, depth: int) -> Iterator[Found]:
    with os.scandir(folder) as listing:
        entries = sorted(itertools.islice(listing, bounds.entries + 1), key=lambda entry: entry.name)
    for entry in entries:
        if bounds.spent():
            return
        if entry.is_file(follow_symlinks=False):
            yield Found(prefix + entry.name, entry.name, folder, False)
        elif entry.is_dir(follow_symlinks=False) and entry.name != ".git":
            yield Found(prefix + entry.name, entry.name, folder, True)
            if depth > 1:
                yield from _enter(folder, entry.name, prefix, bounds, depth)


def _enter(folder: int, name: str, prefix: str, bounds: Bounds, depth: int) -> Iterator[Found]:
    try:
        below = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=folder)
    except OSError:  # it is gone, has become a link, or is not ours to read
        return
    try:
        yield from _walk(below, f"{prefix}{name}/", bounds, depth - 1)
    finally:
        os.close(below)


@contextlib.contextmanager
def _locked(folder: int) -> Iterator[None]:
    """Hold a folder against other writers of ours; the lock goes with the descriptor (flock(2))."""
    deadline = time.monotonic() + _LOCK_SECONDS
    while True:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise ToolError("the folder is locked by another program") from None
            time.sleep(0.01)
    try:
        yield
    finally:
        fcntl.flock(folder, fcntl.LOCK_UN)


def _mode(folder: int, name: str, path: str) -> int | None:
    """The permissions of the file that stands there, None if there is none; what is no writable regular file is refused."""
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(found.st_mode):
        raise ToolError(f"{path}: is {_kind(found.st_mode)}, not a regular file")
    if not found.st_mode & stat.S_IWUSR:
        raise ToolError(f"{path}: is read-only")
    return stat.S_IMODE(found.st_mode)


def _replace(folder: int, name: str, content: bytes, mode: int | None) -> None:
    temporary = f".zeroclawd-{secrets.token_hex(8)}.tmp"
    descriptor = os.open(temporary, _CREATE, 0o666 if mode is None else 0o600, dir_fd=folder)
    try:
        with open(descriptor, "wb", buffering=0) as file:
            _write_all(file.write, content)
            if mode is not None:
                os.fchmod(descriptor, mode)
            os.fsync(descriptor)
        os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary, dir_fd=folder)
        raise
    os.fsync(folder)


def _write_all(write: Callable[[memoryview], int | None], content: bytes) -> None:
    rest = memoryview(content)
    while rest:
        rest = rest[write(rest) or 0 :]


def _refuse_repository(parts: tuple[str, ...]) -> None:
    """A repository's own files name programs that git runs, so writing them is more than writing a file."""
    if ".git" in parts:
        raise ToolError("files in .git are not written by this tool")


# Words for what went wrong


def _worded(error: OSError, path: str, folder: int, name: str) -> ToolError:
    with contextlib.suppress(OSError):
        mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
        if stat.S_ISLNK(mode):
            return ToolError(f"{path}: is a symbolic link, and links are not followed")
        if error.errno in (errno.ENOTDIR, errno.EISDIR, errno.ENXIO):
            return ToolError(f"{path}: is {_kind(mode)}")
    words = {errno.ENOENT: "does not exist", errno.ELOOP: "is a symbolic link, and links are not followed"}
    return ToolError(f"{path}: {words.get(error.errno or 0) or error.strerror or error}")


def _kind(mode: int) -> str:
    kinds = {
        stat.S_IFLNK: "a symbolic link",
        stat.S_IFDIR: "a folder",
        stat.S_IFREG: "a file",
        stat.S_IFIFO: "a pipe",
        stat.S_IFSOCK: "a socket",
    }
    return kinds.get(stat.S_IFMT(mode), "a device")
