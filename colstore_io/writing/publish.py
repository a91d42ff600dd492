"""When does a name lead to finished bytes?

A *destination* says where the bytes will stand: `InPlace` is the file itself, `Replacement` a temporary file beside
the target that is renamed over it, `Upload` a spool that becomes one object of an object store. All three are
written to in the same way; the difference shows only in `publish` (cstore.md 8.1, 8.3 and 8.4).
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import io
import os
import secrets
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from .. import storage
from ..storage import Location
from .locks import LockedFile, open_locked
from .output import sync, sync_directory, write_at
from .uncopyable import Uncopyable

__all__ = [
    "Destination",
    "InPlace",
    "Replacement",
    "Target",
    "Upload",
    "publish_new",
    "resolve_target",
    "temporary_path",
    "write_small_file",
]

EXISTS = "the file exists; mode='recreate' replaces it, update() appends to it"

_NAME_MAX = 255


@dataclass(frozen=True, slots=True)
class Target:
    """A name to write to.

    Attributes
    ----------
    spelling : str
        As the caller wrote it.
    local_path : str or None
        Absolute path, when the bytes will stand on this machine.
    location : storage.Location or None
        The object, when they will stand in an object store.
    """

    spelling: str
    local_path: str | None
    location: Location | None

    @property
    def result(self) -> Path | str:
        """What a caller gets back: a `Path` for a local file, the URL as spelled otherwise."""
        return Path(self.spelling) if self.location is None else self.spelling


def resolve_target(path: Any, *, storage_options: Any = None, filesystem: Any = None) -> Target:
    """Return where `path` leads for writing. Touches neither disk nor network.

    Parameters
    ----------
    path : str or os.PathLike
        A local path, or a URL of any fsspec file system.

    Raises
    ------
    TypeError
        If `path` is neither.
    """
    if not isinstance(path, (str, os.PathLike)):
        raise TypeError(f"expected a path or a URL to write to, got {type(path).__name__}")
    spelling = os.fspath(path)
    if not isinstance(spelling, str):
        spelling = os.fsdecode(spelling)
    remote = isinstance(path, str) and ("://" in path or "::" in path)
    if filesystem is None and not remote:
        # As `open` takes it: "~" is the home directory, and a PathLike is taken literally.
        local = os.path.expanduser(spelling) if isinstance(path, str) else spelling
        return Target(spelling, os.path.abspath(local), None)
    location = storage.locate(spelling, storage_options=storage_options, filesystem=filesystem)
    if location.local_path is not None:
        return Target(location.local_path, os.path.abspath(location.local_path), None)
    return Target(spelling, None, location)


def unappendable(spelling: str, mode: str) -> io.UnsupportedOperation:
    """Return the error, an `OSError` and a `ValueError`, of whoever would append to an object of a store."""
    return io.UnsupportedOperation(
        f"mode {mode!r} is not possible on an object store ({spelling}): objects cannot be appended to. "
        "Make the dataset a directory and append a shard: colstore_io.append(directory, data)"
    )


def temporary_path(target: str) -> str:
    """Return a fresh name ``.<name>.<random>.tmp`` in the directory of `target` (cstore.md 8.4)."""
    directory, name = os.path.split(target)
    token = f".{secrets.token_hex(8)}.tmp"
    while len(os.fsencode(name)) + len(token) + 1 > _NAME_MAX:
        name = name[:-1]
    return os.path.join(directory, f".{name}{token}")


def _rename_noreplace(source: str, target: str) -> bool:
    """Rename unless `target` exists, by Linux's ``renameat2``; False when the system cannot."""
    try:
        call = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError, TypeError):
        return False
    at_fdcwd, rename_noreplace = -100, 1
    if call(at_fdcwd, os.fsencode(source), at_fdcwd, os.fsencode(target), rename_noreplace) == 0:
        return True
    code = ctypes.get_errno()
    if code in (errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP, errno.EPERM):
        return False
    raise OSError(code, os.strerror(code), target)


def publish_new(temporary: str, target: str) -> None:
    """Give the file `temporary` the name `target`, which must not exist. Does not sync the directory.

    A hard link where the file system has them; else a rename that refuses to replace; else an exclusive create
    and a rename over the empty file made by it.

    Raises
    ------
    FileExistsError
        `target` exists; it was not touched, and `temporary` is still there.
    """
    if sys.platform == "win32":
        os.rename(temporary, target)  # refuses to replace there
        return
    try:
        os.link(temporary, target, follow_symlinks=False)
    except FileExistsError:
        raise FileExistsError(errno.EEXIST, EXISTS, target) from None
    except (OSError, NotImplementedError) as exc:
        known = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EINVAL, errno.EACCES)
        if isinstance(exc, OSError) and exc.errno not in known:
            raise
    else:
        os.unlink(temporary)
        return
    if sys.platform.startswith("linux") and _rename_noreplace(temporary, target):
        return
    with open_locked(target, os.O_RDWR | os.O_CREAT | os.O_EXCL):
        os.replace(temporary, target)


def write_small_file(
    target: str, data: bytes, *, exclusive: bool, before_name: Callable[[int], None] = sync
) -> None:
    """Write `data` aside, sync, and give it the name `target`; with `exclusive` only if that is free.

    Parameters
    ----------
    before_name : callable
        Makes the descriptor that it is given durable, and whatever else must be so before `target` appears.

    Raises
    ------
    FileExistsError
        With `exclusive`, when `target` exists.
    """
    temporary = temporary_path(target)
    fd = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), 0o666)
    try:
        try:
            write_at(fd, [memoryview(data)], 0)
            before_name(fd)
        finally:
            os.close(fd)
        if exclusive:
            publish_new(temporary, target)
        else:
            os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    sync_directory(os.path.dirname(target))


class Destination(Protocol):
    """Where finished bytes will stand. `fd` is what gets written; it is owned by the destination."""

    @property
    def fd(self) -> int: ...

    @property
    def is_public(self) -> bool:
        """Whether the final name leads to `fd` already."""

    @property
    def is_spool(self) -> bool:
        """Whether `fd` only waits to be sent elsewhere, and never has to reach the disk."""

    def sync(self) -> None:
        """Make what is in `fd` durable, where `fd` is what will be kept."""

    def publish(self) -> None:
        """Make what is in `fd` visible under the final name, durably, after `sync`. May be repeated."""

    def discard(self) -> None:
        """Nothing was written: close, and remove what was made for it."""

    def give_up(self) -> None:
        """Close after a failure. A temporary file goes, the bytes of a file written in place stay."""

    def close(self) -> None:
        """Unlock and close."""

    def abandon(self) -> None:
        """Close the descriptors only, in a forked child: files and locks are its parent's."""


class InPlace(Uncopyable):
    """The file itself, locked: a streaming ``create`` (`created`) or an ``update`` (cstore.md 8.1).

    Parameters
    ----------
    file : LockedFile
        Owned from now on.
    created : bool
        The file was made by this writer: its name is synced with the first `publish`, and `discard` removes it.
    """

    def __init__(self, file: LockedFile, *, created: bool) -> None:
        self._file = file
        self._created = created
        self._published = not created

    @property
    def fd(self) -> int:
        return self._file.fd

    @property
    def is_public(self) -> bool:
        return True

    is_spool = False

    def sync(self) -> None:
        sync(self.fd)

    def publish(self) -> None:
        if not self._published:
            sync_directory(os.path.dirname(self._file.path))
            self._published = True

    def discard(self) -> None:
        # Not when somebody has renamed another file over the name meanwhile.
        if self._created and not self._published and not self._file.closed and self._file.is_current():
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._file.path)
        self.close()

    def give_up(self) -> None:
        self.close()

    def close(self) -> None:
        self._file.release()

    def abandon(self) -> None:
        self._file.release()


class Replacement(Uncopyable):
    """A temporary file beside the target that gets the target's name when it is published.

    The lock of an existing target is held from the start, that of the temporary file from its first byte on, so
    there is no moment at which another writer could take the name for free. Readers and mappings of the old file
    are not disturbed: it stays whole as long as somebody has it open (cstore.md 8.1, 8.3).

    Parameters
    ----------
    target : str
        Absolute path. Symbolic links are followed, so that they survive.
    exclusive : bool
        `publish` refuses to replace (`FileExistsError`), and so does this constructor, before anything is written.
    lock : LockedFile, optional
        The lock of the target, when the caller holds it already; owned from now on.
    work_path : str, optional
        Name of the work file instead of a random one. A left-over of that name is removed; the caller holds the
        lock that makes this safe.

    Raises
    ------
    FileExistsError
        `exclusive`, and there is something of that name.
    WriterLockedError
        Another writer holds the target; nothing was changed.
    """

    def __init__(
        self,
        target: str,
        *,
        exclusive: bool = False,
        lock: LockedFile | None = None,
        work_path: str | None = None,
    ) -> None:
        if exclusive and os.path.lexists(target):
            raise FileExistsError(errno.EEXIST, EXISTS, target)
        self.target = os.path.realpath(target)
        self._exclusive = exclusive
        self._lock = lock
        self._published = False
        try:
            if not exclusive and lock is None:
                self._lock = self._lock_target()
            if work_path is not None:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(work_path)
            path = temporary_path(self.target) if work_path is None else work_path
            try:
                self._file = open_locked(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
            except FileNotFoundError:  # no such directory; name what the user named
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), target) from None
        except BaseException:
            if self._lock is not None:
                self._lock.release()
            raise

    def _lock_target(self) -> LockedFile | None:
        try:
            if not stat.S_ISREG(os.stat(self.target).st_mode):
                kind = errno.EISDIR if os.path.isdir(self.target) else errno.EINVAL
                raise OSError(kind, "not a regular file, refusing to replace it", self.target)
            return open_locked(self.target)
        except FileNotFoundError:
            return None

    @property
    def fd(self) -> int:
        return self._file.fd

    @property
    def is_public(self) -> bool:
        return self._published

    is_spool = False

    def sync(self) -> None:
        sync(self.fd)

    def publish(self) -> None:
        if self._published:
            return
        if self._exclusive:
            publish_new(self._file.path, self.target)
        else:
            self._publish_over()
        self._published = True
        self._file.path = self.target
        if self._lock is not None:
            self._lock.release()
            self._lock = None
        sync_directory(os.path.dirname(self.target))

    def _publish_over(self) -> None:
        while True:
            if self._lock is not None and not self._lock.is_current():
                # Somebody who takes no locks replaced or removed the target: ours is on a dead file.
                self._lock.release()
                self._lock = None
            if self._lock is None:
                self._lock = self._lock_target()
            if self._lock is not None:
                with contextlib.suppress(OSError):  # file systems without mode bits
                    os.fchmod(self.fd, stat.S_IMODE(os.fstat(self._lock.fd).st_mode))
                os.replace(self._file.path, self.target)
                return
            try:
                publish_new(self._file.path, self.target)
                return
            except FileExistsError:  # a file appeared meanwhile: lock that one, then rename over it
                continue

    def successor(self) -> Replacement:
        """Return another, empty file for the same name; the lock of the target goes over to it."""
        lock, self._lock = self._lock, None
        return Replacement(self.target, exclusive=self._exclusive, lock=lock)

    def discard(self) -> None:
        self.give_up()

    def give_up(self) -> None:
        if not self._published and not self._file.closed:
            with contextlib.suppress(OSError):
                os.unlink(self._file.path)
        self.close()

    def close(self) -> None:
        self._file.release()
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def abandon(self) -> None:
        self.close()


class Upload(Uncopyable):
    """One object of an object store: spooled to an anonymous local file, uploaded as a whole when published.

    Parameters
    ----------
    location : storage.Location
    exclusive : bool
        The object must not exist (`FileExistsError` from `publish`).
    next_location : callable, optional
        With `exclusive`: gives another place to try when somebody else took the first.
    """

    _CHUNK_BYTES = 16 << 20
    _ATTEMPTS = 100

    def __init__(
        self,
        location: Location,
        *,
        exclusive: bool = False,
        next_location: Callable[[], Location] | None = None,
    ) -> None:
        self.location = location
        self._exclusive = exclusive
        self._next_location = next_location
        self._spool: Any = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the writer

    @property
    def fd(self) -> int:
        return int(self._spool.fileno())

    @property
    def is_public(self) -> bool:
        return False

    is_spool = True

    def sync(self) -> None:
        pass  # the store answers when the object is durable

    def publish(self) -> None:
        for _ in range(self._ATTEMPTS - 1):
            try:
                storage.write_object(self.location, self._chunks(), exclusive=self._exclusive)
                break
            except FileExistsError:
                if self._next_location is None:
                    raise
                self.location = self._next_location()
        else:
            storage.write_object(self.location, self._chunks(), exclusive=self._exclusive)
        self._exclusive = False  # a second commit replaces our own object

    def _chunks(self) -> Iterator[bytes]:
        offset = 0
        while chunk := os.pread(self.fd, self._CHUNK_BYTES, offset):
            offset += len(chunk)
            yield chunk

    def successor(self) -> Upload:
        """Return another, empty spool for the same object."""
        return Upload(self.location, exclusive=self._exclusive, next_location=self._next_location)

    def discard(self) -> None:
        self.close()

    def give_up(self) -> None:
        self.close()

    def close(self) -> None:
        self._spool.close()

    def abandon(self) -> None:
        self.close()
