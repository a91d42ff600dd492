"""One opened file: the interface, its counters, and the two kinds that need no file system.

`ByteFile` is all that the formats see. `LocalFile` and `RemoteFile` are in modules of their own.
"""

from __future__ import annotations

import os
import threading
import time
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from ..errors import FormatError, StorageError, TruncatedFileError
from .names import redact_url

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .resolve import Location

__all__ = ["ByteFile", "IOStats", "MemoryFile", "StreamFile"]

_stats_lock = threading.Lock()  # guards every IOStats of the process; taken last, for a few additions


def _after_fork_in_child() -> None:
    global _stats_lock
    _stats_lock = threading.Lock()  # another thread of the parent may have held it


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


class IOStats:
    """Counters of what was asked of the storage; may be shared by many files and threads.

    Attributes
    ----------
    requests : int
        Reads sent: one per byte range of a remote file, one per ``pread``. Reading a mapping counts nothing.
    bytes : int
        Bytes asked for by those requests.
    metadata_requests : int
        Questions for size and version (``HEAD``, ``info``) and listings.
    seconds : float
        Time spent waiting for them, summed over the calls (not over concurrent requests).
    """

    __slots__ = ("bytes", "metadata_requests", "requests", "seconds")

    def __init__(
        self, requests: int = 0, bytes: int = 0, metadata_requests: int = 0, seconds: float = 0.0
    ) -> None:
        self.requests = requests
        self.bytes = bytes
        self.metadata_requests = metadata_requests
        self.seconds = seconds

    def add(
        self, *, requests: int = 0, bytes: int = 0, metadata_requests: int = 0, seconds: float = 0.0
    ) -> None:
        """Add to the counters; safe from several threads."""
        with _stats_lock:
            self.requests += requests
            self.bytes += bytes
            self.metadata_requests += metadata_requests
            self.seconds += seconds

    def reset(self) -> None:
        """Set all counters to zero."""
        with _stats_lock:
            self.requests = self.bytes = self.metadata_requests = 0
            self.seconds = 0.0

    def as_dict(self) -> dict[str, int | float]:
        """Return the counters as a plain dictionary, taken at one moment."""
        with _stats_lock:
            return {
                "requests": self.requests,
                "bytes": self.bytes,
                "metadata_requests": self.metadata_requests,
                "seconds": self.seconds,
            }

    def __reduce__(self) -> tuple[object, ...]:
        return (IOStats, tuple(self.as_dict().values()))

    def __repr__(self) -> str:
        return (
            f"IOStats(requests={self.requests}, bytes={self.bytes}, "
            f"metadata_requests={self.metadata_requests}, seconds={self.seconds:.6f})"
        )


class ByteFile(ABC):
    """One opened file, read-only; every method may be called from several threads.

    Attributes
    ----------
    location : Location or None
        Where it came from; ``None`` for memory and file objects.
    spelling : str
        Name for messages: as the caller wrote it, without credentials.
    size : int
        Bytes, as known when the file was opened (or planned).
    token : str
        Version token: changes when the contents change (integrations.md 4.4).
    io : IOStats
        Where its requests are counted.
    """

    __slots__ = ("__weakref__", "io", "location", "size", "spelling")

    location: Location | None
    spelling: str
    size: int
    io: IOStats

    def __init__(self, location: Location | None, spelling: str, size: int, io: IOStats | None) -> None:
        self.location = location
        self.spelling = redact_url(spelling) if "://" in spelling else spelling
        self.size = size
        self.io = io if io is not None else IOStats()

    @property
    @abstractmethod
    def token(self) -> str:
        """Version token of the contents this file was opened (or planned) with."""

    @abstractmethod
    def read(self, offset: int, length: int) -> memoryview:
        """Return exactly the bytes ``[offset, offset + length)``, read-only.

        A length of 0 gives an empty view without a request.

        Raises
        ------
        TruncatedFileError
            If the range reaches past the end of the file.
        StaleDatasetError
            If the file is no longer the one that was opened.
        StorageError
            If the store does not answer.
        ValueError
            If `offset` or `length` is negative, or the file was closed.
        """

    def map(self, end: int) -> NDArray[np.uint8] | None:
        """Return a read-only uint8 array over the bytes ``[0, end)``, or ``None`` if the file cannot be mapped.

        The array keeps the memory alive, also after `close`.
        """
        return None

    def check_size(self, end: int) -> None:
        """Raise `FormatError` when the file is shorter than `end` bytes. Local files are looked at now."""
        if end > self.size:
            raise FormatError(f"the file has {self.size} bytes, {end} are needed", path=self.spelling)

    def stat_changed(self) -> bool:
        """Whether the contents differ from `token` now. Free for local files, one metadata request for remote."""
        return False

    @abstractmethod
    def close(self) -> None:
        """Give back what the file holds. Arrays from `map` and views from `read` stay valid."""

    def _check_range(self, offset: int, length: int) -> None:
        if offset < 0 or length < 0:
            raise ValueError(f"{self.spelling}: offset {offset} and length {length} must not be negative")
        if offset + length > self.size:
            raise TruncatedFileError(
                f"{length} bytes are needed here, but the file ends at byte {self.size}. "
                "It is cut short or damaged; fetch or write it again.",
                path=self.spelling,
                offset=offset,
            )

    def __enter__(self) -> ByteFile:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.spelling!r}, size={self.size})"


class MemoryFile(ByteFile):
    """File contents in memory: bytes, bytearray, memoryview, or anything with a contiguous buffer.

    The memory is used in place. A caller that changes a writable buffer changes the file.
    """

    __slots__ = ("_token", "_view")

    def __init__(self, data: Any, *, spelling: str = "<bytes>", io: IOStats | None = None) -> None:
        view = memoryview(data)
        if not view.contiguous:
            raise ValueError("the contents of a file must be one contiguous buffer")
        self._view = view.cast("B").toreadonly() if view.nbytes else memoryview(b"")
        self._token: str | None = None
        super().__init__(None, spelling, self._view.nbytes, io)

    @property
    def token(self) -> str:
        """Hash of the contents, computed when first asked for: O(size)."""
        if self._token is None:
            import hashlib

            self._token = f"content:{self.size}:{hashlib.blake2b(self._view, digest_size=16).hexdigest()}"
        return self._token

    def read(self, offset: int, length: int) -> memoryview:
        self._check_range(offset, length)
        return self._view[offset : offset + length]

    def map(self, end: int) -> NDArray[np.uint8] | None:
        self._check_range(0, end)
        return np.frombuffer(self._view if end else b"", dtype=np.uint8, count=end)

    def close(self) -> None:
        pass

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild_memory_file, (bytes(self._view), self.spelling))


def _rebuild_memory_file(data: bytes, spelling: str) -> MemoryFile:
    return MemoryFile(data, spelling=spelling)


class StreamFile(ByteFile):
    """A seekable binary file object of the caller's. Reads seek, so they take turns under a lock.

    The object stays the caller's: `close` does not close it. It cannot be pickled.
    """

    __slots__ = ("_closed", "_lock", "_stream", "_token")

    def __init__(self, stream: BinaryIO, *, spelling: str | None = None, io: IOStats | None = None) -> None:
        try:
            position = stream.tell()
            size = stream.seek(0, os.SEEK_END)
            stream.seek(position)
        except (AttributeError, OSError, ValueError) as exc:
            raise TypeError(
                f"a file object must be binary, open and seekable to be read, got {type(stream).__name__}: {exc}"
            ) from exc
        name = getattr(stream, "name", None)
        if spelling is None:
            spelling = name if isinstance(name, str) else f"<{type(stream).__name__}>"
        super().__init__(None, spelling, int(size), io)
        self._stream = stream
        self._lock = threading.Lock()  # guards the position of _stream; held during one seek + read
        import uuid

        self._token = f"stream:{uuid.uuid4().hex}"  # nothing tells whether two objects hold the same bytes
        self._closed = False

    @property
    def token(self) -> str:
        return self._token

    def read(self, offset: int, length: int) -> memoryview:
        self._check_range(offset, length)
        if self._closed:
            raise ValueError(f"{self.spelling} is closed.")
        if length == 0:
            return memoryview(b"")
        parts: list[bytes] = []
        missing = length
        begin = time.perf_counter()
        with self._lock:
            self._stream.seek(offset)
            while missing:
                part = self._stream.read(missing)
                if not isinstance(part, bytes | bytearray | memoryview):
                    raise TypeError(
                        f"{self.spelling}: the file object gave {type(part).__name__}, not bytes; open it as binary"
                    )
                if not part:
                    break
                if len(part) > missing:
                    raise StorageError(
                        f"{self.spelling}: the file object gave {len(part)} bytes where {missing} were asked for"
                    )
                parts.append(bytes(part))
                missing -= len(part)
        self.io.add(requests=1, bytes=length, seconds=time.perf_counter() - begin)
        if missing:
            raise TruncatedFileError(
                f"the file object gave {length - missing} of {length} bytes",
                path=self.spelling,
                offset=offset,
            )
        return memoryview(parts[0] if len(parts) == 1 else b"".join(parts))

    def close(self) -> None:
        self._closed = True

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError(
            f"{self.spelling}: an open file object cannot be pickled. Pass a path, a URL, or the contents as bytes."
        )
