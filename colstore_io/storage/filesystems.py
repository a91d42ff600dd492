"""File systems: which kind, alive in this process, and what they tell about an object.

fsspec is imported when there is a file system to speak of: files of this machine are read without it, and importing it
takes as long as importing NumPy.

Its asynchronous clients refuse to work in a forked child, and sockets of the others must not be shared with the parent.
So `live` gives every user of a file system an instance of *this* process, made anew from the arguments of the old one
when the process was forked since (integrations.md 4.5).
"""

from __future__ import annotations

import os
import sys
import threading
import warnings
import weakref
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ..errors import StorageError
from .names import redact

__all__ = [
    "BATCH_SIZE",
    "ObjectState",
    "cached_info",
    "checked_filesystem",
    "gather_infos",
    "gather_lists",
    "infos",
    "is_async",
    "is_filesystem",
    "is_http",
    "is_plain_local",
    "keeps_local_copies",
    "list_infos",
    "live",
    "local_filesystem",
    "local_token",
    "storage_error",
    "sync",
]

BATCH_SIZE = 64
"""Requests in flight at once; fsspec's own default is up to 1280 (integrations.md 4.2)."""

_lock = threading.Lock()  # guards _known and _replaced; taken last, never held during I/O
_known: dict[int, weakref.ref[Any]] = {}  # file systems seen by this process, by id
_foreign: dict[
    int, Any
] = {}  # those that the parent of a forked child had made (kept alive: ids stay unique)
_replaced: dict[int, Any] = {}  # id of a foreign one -> its successor here


def _after_fork_in_child() -> None:
    global _lock
    _lock = threading.Lock()
    _replaced.clear()
    for key, reference in _known.items():
        instance = reference()
        if instance is not None:
            _foreign[key] = instance
    _known.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


def _is_a(fs: Any, module: str, name: str) -> bool:
    """Whether `fs` is of a class of fsspec's; a module that is not loaded, or not wholly yet, made no object."""
    kind = getattr(sys.modules.get(f"fsspec.{module}"), name, None)
    return kind is not None and isinstance(fs, kind)


def is_filesystem(value: Any) -> bool:
    """Whether `value` is a file system of fsspec."""
    if value is None:
        return False
    import fsspec

    return isinstance(value, fsspec.AbstractFileSystem)


def checked_filesystem(value: Any) -> Any:
    """Return a file system, alive in this process; `TypeError` for anything else."""
    if not is_filesystem(value):
        raise TypeError(f"filesystem must be an fsspec file system, got {type(value).__name__}")
    return live(value)


def is_plain_local(fs: Any) -> bool:
    """Whether paths of `fs` are paths of this machine; ``None`` stands for its own file system."""
    if fs is None:
        return True
    return _is_a(fs, "implementations.local", "LocalFileSystem")


def keeps_local_copies(fs: Any) -> bool:
    """Whether `fs` downloads whole files and can name the copies (``simplecache``, ``filecache``)."""
    # The class is asked: instances of caching file systems answer with a function, which is always true.
    return getattr(type(fs), "local_file", False) is True and not is_plain_local(fs)


def is_async(fs: Any) -> bool:
    """Whether `fs` is one of fsspec's asynchronous implementations (not a cache around one)."""
    return _is_a(fs, "asyn", "AsyncFileSystem")


def is_http(fs: Any) -> bool:
    """Whether `fs` is fsspec's own HTTP client (a subclass counts)."""
    return _is_a(fs, "implementations.http", "HTTPFileSystem")


_local_filesystem: Any = None


def local_filesystem() -> Any:
    """Return the file system of this machine; always the same object (fsspec takes 12 us to find it again)."""
    global _local_filesystem
    if _local_filesystem is None:
        import fsspec

        _local_filesystem = fsspec.filesystem("file")
    return _local_filesystem


def _rebuild(fs: Any, **changes: Any) -> Any:
    import fsspec

    options = {
        key: live(value) if isinstance(value, fsspec.AbstractFileSystem) else value
        for key, value in dict(fs.storage_options).items()
    }
    options.update(changes)
    return type(fs)(*fs.storage_args, **options)


def live(fs: Any) -> Any:
    """Return `fs`, or its successor when this process was forked after `fs` was made.

    None is the file system of this machine. An instance made with ``asynchronous=True`` has no blocking methods; a
    blocking twin is returned for it.
    """
    if fs is None:
        return local_filesystem()
    key = id(fs)
    reference = _known.get(key)
    if reference is not None and reference() is fs:
        return fs
    if getattr(fs, "asynchronous", False) is True:
        with _lock:
            twin = _replaced.get(key)
        if twin is None:
            twin = _rebuild(fs, asynchronous=False)
            with _lock:
                _foreign[key] = fs
                _replaced[key] = twin
        return live(twin)
    # The second test is for an instance of the parent that this module meets only now, in the child.
    foreign = _foreign.get(key) is fs or getattr(fs, "_pid", None) not in (None, os.getpid())
    if foreign and not _shares_nothing(fs):
        with _lock:
            successor = _replaced.get(key)
        if successor is None:
            # fsspec keys its instance cache by process id, so this is a new object.
            successor = _rebuild(fs)
            with _lock:
                successor = _replaced.setdefault(key, successor)
                _foreign[key] = fs
                _known[id(successor)] = weakref.ref(successor)
        return successor
    try:
        with _lock:
            _known[key] = weakref.ref(fs)
    except TypeError:
        pass  # a file system without weak references: it stays as it is
    return fs


def _shares_nothing(fs: Any) -> bool:
    """Whether a forked child may go on with the parent's instance (its state is files or plain memory)."""
    return is_plain_local(fs) or _is_a(fs, "implementations.memory", "MemoryFileSystem")


def sync(fs: Any, function: Callable[..., Awaitable[Any]], *args: Any) -> Any:
    """Run a coroutine function on the event loop of an asynchronous `fs` and wait; from any thread."""
    import fsspec.asyn

    return fsspec.asyn.sync(fs.loop, function, *args)


def storage_error(exc: BaseException, action: str, spelling: str) -> Exception:
    """Return the error to raise for `exc`, without credentials: not found, no permission, or `StorageError`."""
    if isinstance(exc, StorageError):
        return StorageError(f"cannot {action} {spelling}: {exc}")
    if isinstance(exc, FileNotFoundError):
        return FileNotFoundError(2, f"cannot {action}: no such file", spelling)
    if isinstance(exc, PermissionError):
        return PermissionError(13, f"cannot {action}: {redact(str(exc)) or 'permission denied'}", spelling)
    if isinstance(exc, IsADirectoryError):
        return IsADirectoryError(21, f"cannot {action}: it is a directory", spelling)
    detail = redact(str(exc)).strip()
    text = f"{type(exc).__name__}: {detail}" if detail else type(exc).__name__
    return StorageError(f"cannot {action} {spelling}: {text}")


# ---------------------------------------------------------------------------------------------------
# Size and version token (integrations.md 4.4)


class ObjectState(NamedTuple):
    """Size in bytes (``None`` when the store does not tell) and version token of one object."""

    size: int | None
    token: str
    others: tuple[str, ...] = ()  # further tokens that the same answer makes, weaker ones last

    def differs_from(self, size: int, token: str | None) -> bool:
        """Whether this is another version than the one known by `size` and `token`.

        Only tokens of one kind are compared: a server may tell its ``Last-Modified`` in one answer and not in
        the next, which says nothing about the object.
        """
        if self.size is not None and self.size != size:
            return True
        if token is None or token == self.token:
            return False
        kind = token.partition(":")[0]
        for mine in (self.token, *self.others):
            if mine.partition(":")[0] == kind:
                return mine != token
        return kind not in _TOKEN_KINDS


_VERSION_KEYS = ("ETag", "etag", "md5Hash", "crc32c", "generation", "VersionId")
_MODIFIED_KEYS = (
    "LastModified",
    "last_modified",
    "Last-Modified",
    "mtime",
    "modified",
    "updated",
    "modificationTime",
    "last_write_time",
    "modify",
    "date_time",
)
_TOKEN_KINDS = frozenset({"etag", "size", "modified", *_VERSION_KEYS})
_warned_weak: set[str] = set()


def local_token(stat: os.stat_result) -> str:
    """Return the version token of a local file: size, modification time in ns, inode. ``chmod`` keeps it."""
    return f"stat:{stat.st_size}:{stat.st_mtime_ns}:{stat.st_ino}"


def _protocol(fs: Any) -> str:
    protocol = getattr(type(fs), "protocol", "abstract")
    return protocol if isinstance(protocol, str) else str(protocol[0])


def state_of(fs: Any, path: str, info: Mapping[str, Any]) -> ObjectState:
    """Return size and token from what ``info`` or a listing says; at most one further question to the store."""
    size = info.get("size", info.get("Size"))
    size = int(size) if isinstance(size, int | float) and size >= 0 else None
    tokens: list[str] = []
    for key in _VERSION_KEYS:
        value = info.get(key)
        if value not in (None, ""):
            name = "etag" if key in ("ETag", "etag") else key
            tokens.append(f"{name}:{str(value).strip(chr(34))}")
    for key in _MODIFIED_KEYS:
        value = info.get(key)
        if value not in (None, ""):
            tokens.append(f"modified:{size}:{_moment(value)}")
            break
    if tokens:
        return ObjectState(size, tokens[0], tuple(tokens[1:]))
    try:
        return ObjectState(size, f"modified:{size}:{_moment(fs.modified(path))}")
    except FileNotFoundError:
        raise
    except Exception:  # NotImplementedError by default; whatever a thin implementation raises
        protocol = _protocol(fs)
        if protocol not in _warned_weak:
            _warned_weak.add(protocol)
            warnings.warn(
                f"the {protocol} file system tells neither version nor modification time: "
                "a changed file is noticed only when its size changes",
                RuntimeWarning,
                stacklevel=2,
            )
        return ObjectState(size, f"size:{size}")


def _moment(value: Any) -> str:
    isoformat = getattr(value, "isoformat", None)
    return str(isoformat()) if isoformat is not None else str(value)


def cached_info(fs: Any, path: str) -> Mapping[str, Any] | None:
    """Return what a listing made earlier by this process says about `path`; no request."""
    try:
        entries = fs._ls_from_cache(path)
    except Exception:  # not there, or an implementation without the listing cache
        return None
    if not entries:
        return None
    for entry in entries:
        if entry.get("name") == path and entry.get("type") == "file" and entry.get("size") is not None:
            return dict(entry)
    return None


async def gather_infos(fs: Any, paths: Sequence[str]) -> list[Any]:
    """Ask an asynchronous `fs` about many paths at once; an exception is an element of the answer."""
    import asyncio

    gate = asyncio.Semaphore(BATCH_SIZE)

    async def one(path: str) -> Any:
        async with gate:
            try:
                return await fs._info(path)
            except Exception as exc:
                return _true_reason(exc)

    return list(await asyncio.gather(*(one(path) for path in paths)))


def _true_reason(exc: Exception) -> Exception:
    """Return what `exc` means: fsspec's HTTP client says "not found" whatever the server answered."""
    cause = exc.__cause__
    if not isinstance(exc, FileNotFoundError) or cause is None or isinstance(cause, FileNotFoundError):
        return exc
    status = getattr(cause, "status", None)
    if status in (404, 410):
        return exc
    if status in (401, 403):
        return PermissionError(f"the server answered {status}")
    if isinstance(status, int):
        return StorageError(f"the server answered {status}")
    if type(cause).__module__.partition(".")[0] == "aiohttp" or isinstance(cause, TimeoutError):
        return StorageError(f"the server cannot be reached: {type(cause).__name__}")
    return exc


def list_infos(fs: Any, folders: Sequence[str]) -> list[Any]:
    """List folders; an element is the list of their entries, or the exception that came instead."""
    answers: list[Any] = []
    for folder in folders:
        try:
            answers.append(fs.ls(folder, detail=True))
        except Exception as exc:
            answers.append(exc)
    return answers


async def gather_lists(fs: Any, folders: Sequence[str]) -> list[Any]:
    """List folders of an asynchronous `fs` at once; as `list_infos`."""
    import asyncio

    return list(
        await asyncio.gather(*(fs._ls(folder, detail=True) for folder in folders), return_exceptions=True)
    )


def infos(fs: Any, paths: Sequence[str]) -> list[Any]:
    """Ask `fs` about many paths: concurrently where it can. An exception is an element of the answer."""
    if not paths:
        return []
    if is_async(fs):
        answers: list[Any] = sync(fs, gather_infos, fs, list(paths))
        return answers
    answers = []
    for path in paths:
        try:
            answers.append(fs.info(path))
        except Exception as exc:
            answers.append(exc)
    return answers
