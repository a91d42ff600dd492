"""Who may write here?

One exclusive, non-blocking, advisory lock per `.cstore` file (on the file itself) or per shard directory (on
``.colstore.lock`` inside it), the same locks that other `.cstore` libraries take (cstore.md 10). A lock belongs to
an inode, a name does not: `open_locked` trusts a lock only after it has seen that the name still leads to the
inode that it locked.
"""

from __future__ import annotations

import errno
import os
import sys
import warnings
from types import TracebackType

from ..errors import WriterLockedError
from .uncopyable import Uncopyable

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

__all__ = [
    "DIRECTORY_LOCK_NAME",
    "DirectoryLock",
    "LockedFile",
    "lock_exclusive_nonblocking",
    "open_locked",
    "unlock",
]

DIRECTORY_LOCK_NAME = ".colstore.lock"
"""The empty file inside a shard directory that its writers lock; created on demand, never removed."""

_WINDOWS_LOCK_OFFSET = 2**62
"""Windows locks bytes, and mandatorily: one byte far behind any data keeps readers unhindered (cstore.md 10)."""

_NOT_SUPPORTED = frozenset({errno.ENOLCK, errno.EOPNOTSUPP, 524})
"""What ``flock`` says on file systems without locks; 524 is the kernel's ENOTSUPP, which leaks out of NFS."""

_REOPEN_LIMIT = 1000
"""Each failed round of `open_locked` means that somebody renamed over the file between open and lock."""


def _held_by_another(path: str | None) -> WriterLockedError:
    return WriterLockedError(errno.EWOULDBLOCK, "another writer holds the lock", path)


def lock_exclusive_nonblocking(fd: int, *, path: str | None = None) -> bool:
    """Take the exclusive advisory lock of an open file without waiting.

    Parameters
    ----------
    fd : int
        Descriptor of the file, open for writing where the file system asks for that (NFS).
    path : str, optional
        For messages.

    Returns
    -------
    bool
        True when the lock is held; False when the file system has no locks (a `RuntimeWarning` was given).

    Raises
    ------
    WriterLockedError
        Another open file description holds the lock. It is a `BlockingIOError` and so an `OSError`.
    """
    if sys.platform == "win32":
        try:
            os.lseek(fd, _WINDOWS_LOCK_OFFSET, os.SEEK_SET)
            msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)
        except OSError as exc:
            if exc.errno in (errno.EACCES, errno.EDEADLOCK):
                raise _held_by_another(path) from exc
            raise
        finally:
            os.lseek(fd, 0, os.SEEK_SET)
        return True
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as exc:
        if exc.errno in (errno.EWOULDBLOCK, errno.EAGAIN):
            raise _held_by_another(path) from exc
        if exc.errno in _NOT_SUPPORTED:
            where = f" ({path})" if path is not None else ""
            warnings.warn(
                f"locks are not supported by this file system{where}; going on without one. "
                "Make sure that nobody else writes the same file.",
                RuntimeWarning,
                stacklevel=2,
            )
            return False
        raise
    return True


def unlock(fd: int) -> None:
    """Release the lock of `fd`. Needed before ``close``: a forked child may share the open file description."""
    try:
        if sys.platform == "win32":
            os.lseek(fd, _WINDOWS_LOCK_OFFSET, os.SEEK_SET)
            msvcrt.locking(fd, msvcrt.LK_UNLCK, 1)
        else:
            fcntl.flock(fd, fcntl.LOCK_UN)
    except OSError:
        # Nothing to release (a file system without locks); closing the descriptor does the rest.
        pass


class LockedFile(Uncopyable):
    """An open descriptor and the lock on it; owns both.

    Attributes
    ----------
    fd : int
    path : str
        The name that led to the file when it was locked.
    """

    __slots__ = ("_pid", "fd", "path")

    def __init__(self, fd: int, path: str) -> None:
        self.fd = fd
        self.path = path
        self._pid = os.getpid()

    @property
    def closed(self) -> bool:
        return self.fd < 0

    def is_current(self) -> bool:
        """Return whether `path` still leads to the locked inode."""
        return _same_inode(self.fd, self.path)

    def release(self) -> None:
        """Unlock and close; does nothing the second time."""
        fd, self.fd = self.fd, -1
        if fd < 0:
            return
        if os.getpid() == self._pid:
            unlock(fd)  # a forked child must not: it would release the lock of its parent
        os.close(fd)

    def __enter__(self) -> LockedFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.release()


def _same_inode(fd: int, path: str) -> bool:
    try:
        named = os.stat(path)
    except FileNotFoundError:
        return False
    held = os.fstat(fd)
    return (held.st_dev, held.st_ino) == (named.st_dev, named.st_ino)


def open_locked(path: str, flags: int = os.O_RDWR, *, mode: int = 0o666) -> LockedFile:
    """Open `path`, lock it, and make sure that the lock is on the file of that name.

    Between open and lock another writer may rename a new file over the name (a compaction, a ``recreate``); the
    lock is then on a dead file. So device and inode are compared after the lock is granted, and everything
    starts again when they differ (cstore.md 8.1 step 2).

    Parameters
    ----------
    path : str
        A real local path.
    flags : int
        For ``os.open``. With ``os.O_EXCL`` the file is made here, and the lock is its first owner's.
    mode : int
        Mode bits of a file that is made here, before the umask.

    Raises
    ------
    FileNotFoundError, FileExistsError, PermissionError
        As ``os.open`` gives them.
    WriterLockedError
        Another writer holds the lock; nothing was changed.
    """
    flags |= getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
    for _ in range(_REOPEN_LIMIT):
        fd = os.open(path, flags, mode)
        try:
            lock_exclusive_nonblocking(fd, path=path)
            if _same_inode(fd, path):
                return LockedFile(fd, path)
        except BaseException:
            os.close(fd)
            raise
        unlock(fd)
        os.close(fd)
    raise _held_by_another(path)


class DirectoryLock(Uncopyable):
    """The lock of a shard directory: held by one `append`, or by an appender for its lifetime (cstore.md 10).

    Parameters
    ----------
    directory : str
        An existing local directory. ``.colstore.lock`` is made inside it on demand, with mode
        ``0o644 & ~umask``, stays empty and is never removed.

    Raises
    ------
    WriterLockedError
        Another writer holds the lock.
    """

    __slots__ = ("_file",)

    def __init__(self, directory: str) -> None:
        path = os.path.join(directory, DIRECTORY_LOCK_NAME)
        self._file = open_locked(path, os.O_RDWR | os.O_CREAT, mode=0o644)

    def release(self) -> None:
        """Give the lock back; does nothing the second time."""
        self._file.release()

    def __enter__(self) -> DirectoryLock:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.release()
