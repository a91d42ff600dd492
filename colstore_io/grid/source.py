"""The data files of a container at hand: opened when they are first read, compared with the manifest, mapped once."""

from __future__ import annotations

import errno
import functools
import os
import stat
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from .. import config, storage, threads
from ..errors import FormatError, StaleDatasetError
from ..formats.cstore.records import RECORD_HEADER_SIZE, record_says
from ..kernels import grid as kernels
from ..storage import ByteFile, IOStats, Location
from . import twins
from .model import Member, Role, TextFile
from .places import MemberLayout

__all__ = ["SMALL_BYTES", "GridSource", "Opened"]

SMALL_BYTES = 64 << 10
"""A variable of one chunk up to this size, a coordinate mostly, is read by one call from a file that is opened for it:
every opening of a Dataset reads some of these, and a mapping would cost more than it saves."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Opened:
    """A member at hand: its file, its layout, and its mapping, if it has one."""

    file: ByteFile
    layout: MemberLayout
    mapping: NDArray[np.uint8] | None

    @property
    def address(self) -> int:
        """Of the mapping; 0 without one."""
        return 0 if self.mapping is None else self.mapping.ctypes.data


class GridSource:
    """The data files of one container, opened when they are first read. Safe in threads; pickles without handles.

    Parameters
    ----------
    place : Location
        The directory.
    mmap : bool
        Map local files; False reads them by ``pread``.
    backend : str, optional
        ``"numpy"`` forces the NumPy twins of the kernels.
    max_workers : int, optional
        Upper bound of threads; default: the process-wide budget.
    """

    def __init__(
        self,
        place: Location,
        *,
        mmap: bool = True,
        backend: str | None = None,
        max_workers: int | None = None,
    ) -> None:
        self.place = place
        self.io = IOStats()
        self._mmap = mmap
        self.backend = config.get_default_backend() if backend is None else backend
        config.check_backend(self.backend)
        self.max_workers = max_workers
        self._files: dict[str, ByteFile] = {}
        self._layouts: dict[str, MemberLayout] = {}
        self._texts: set[TextFile] = set()
        self._lock = threading.Lock()  # guards the three tables; held for no I/O

    def __reduce__(self) -> tuple[object, ...]:
        options: dict[str, Any] = {
            "mmap": self._mmap,
            "backend": self.backend,
            "max_workers": self.max_workers,
        }
        return (functools.partial(GridSource, **options), (self.place,))

    @property
    def kernels(self) -> Any:
        return twins if self.backend == "numpy" else kernels

    def team(self, work: int) -> int:
        """Return how many threads `work` bytes justify."""
        return threads.wanted_threads(work, self.max_workers or config.get_max_workers())

    def file(self, path: str, size: int, variable: str) -> ByteFile:
        """Return the file of a member; it is checked to be there and whole when it is local.

        Raises
        ------
        FormatError
            If it is missing or shorter than the manifest says; names the variable.
        """
        found = self._files.get(path)
        if found is None:
            location = self.place.child(path)
            if location.local_path is not None:
                self._check_there(location.local_path, path, size, variable)
            opened = storage.reopen(location, size=size, token=None, mmap=self._mmap, io=self.io)
            with self._lock:
                found = self._files.setdefault(path, opened)
        return found

    def _check_there(self, local_path: str, path: str, size: int, variable: str) -> None:
        try:
            found = os.stat(local_path)
        except OSError as exc:
            if not _is_absent(exc):
                raise
            raise self.damaged(variable, path, "is not there") from None
        if not stat.S_ISREG(found.st_mode):
            raise self.damaged(variable, path, "is no file")
        if found.st_size < size:
            raise self.damaged(variable, path, f"was cut short: {found.st_size} of {size} bytes are left")

    def _guarded(self, variable: str, path: str, call: Callable[[], T]) -> T:
        try:
            return call()
        except (FileNotFoundError, StaleDatasetError):
            raise self.damaged(variable, path, "is not there") from None
        except FormatError as exc:
            raise self.damaged(variable, path, f"was cut short ({exc.message})") from None

    def damaged(self, variable: str, path: str, what: str) -> FormatError:
        return FormatError(
            f"variable {variable!r} needs {path}, which {what}. Restore the file, or open an older generation of the "
            "directory by the path of its manifest",
            path=self.place.spelling,
        )

    def open(self, member: Member, variable: str) -> Opened:
        """Return a member at hand, its first and last record compared with the manifest if it is local."""
        file = self.file(member.path, member.size, variable)
        layout = self._layouts.get(member.path)
        fresh = layout is None
        if layout is None:
            layout = MemberLayout(member)
            if layout.end > member.size:
                raise self.damaged(
                    variable, member.path, f"has {member.size} bytes, its chunks end at {layout.end}"
                )
        mapping = self._guarded(variable, member.path, lambda: file.map(member.size))
        if fresh:
            if (
                mapping is not None or self.place.local_path is not None
            ):  # elsewhere it would take a round of requests
                self._compare(member, layout, file, mapping, variable)
            with self._lock:
                self._layouts[member.path] = layout
        return Opened(file, layout, mapping)

    def _compare(
        self,
        member: Member,
        layout: MemberLayout,
        file: ByteFile,
        mapping: NDArray[np.uint8] | None,
        variable: str,
    ) -> None:
        def header_at(offset: int) -> bytes:
            if mapping is not None:
                return mapping[offset : offset + RECORD_HEADER_SIZE].tobytes()
            return bytes(file.read(offset, RECORD_HEADER_SIZE))

        ends = {0: member.box.first, member.n_records - 1: tuple(n - 1 for n in member.box.stop)}
        for index, chunk in ends.items():
            starts, rows = layout.records([np.array([c], np.int64) for c in chunk])
            at = int(starts[0]) - RECORD_HEADER_SIZE
            header = self._guarded(variable, member.path, functools.partial(header_at, at))
            if not record_says(header, index, int(rows[0])):
                raise self.damaged(
                    variable, member.path, f"has no record {index} of {int(rows[0])} rows where it should be"
                )

    def knows(self, text: TextFile) -> bool:
        """Whether this text file was found to be where its manifest says."""
        return text in self._texts

    def check_text(self, text: TextFile, header: bytes | memoryview, variable: str) -> None:
        """Compare the record header of a text file, the bytes in front of its text, with the manifest.

        Raises
        ------
        FormatError
            If they are no header of one record of this length; names the file and the variable.
        """
        if not record_says(header, 0, text.n_bytes):
            raise self.damaged(
                variable,
                text.path,
                f"has no text of {text.n_bytes} bytes at {text.begin}, where it should be",
            )
        with self._lock:
            self._texts.add(text)

    def read_small(self, member: Member, variable: str, role: Role, nbytes: int) -> bytes | None:
        """Return all values of a column of a local member of one small record; None when it is not such.

        Raises
        ------
        FormatError
            If the file is missing, cut short, or does not hold that record; names the variable.
        """
        directory = self.place.local_path
        place = member.n_rows * member.prefixes[variable, role]
        if directory is None or place + nbytes > SMALL_BYTES or member.path in self._files:
            return None
        try:
            with open(os.path.join(directory, member.path), "rb", buffering=0) as file:
                size = os.fstat(file.fileno()).st_size
                file.seek(member.begin - RECORD_HEADER_SIZE)
                data = file.read(RECORD_HEADER_SIZE + place + nbytes)
        except OSError as exc:
            if not _is_absent(exc):
                raise
            raise self.damaged(variable, member.path, "is not there") from None
        if size < member.size or len(data) < RECORD_HEADER_SIZE + place + nbytes:
            raise self.damaged(
                variable, member.path, f"was cut short: {size} of {member.size} bytes are left"
            )
        if not record_says(data[:RECORD_HEADER_SIZE], 0, member.n_rows):
            raise self.damaged(
                variable, member.path, f"has no record 0 of {member.n_rows} rows where it should be"
            )
        self.io.add(requests=1, bytes=len(data))
        return data[RECORD_HEADER_SIZE + place :]

    def close(self) -> None:
        """Let go of all files. Arrays that were read are not affected; a later read opens them again."""
        with self._lock:
            files, self._files = list(self._files.values()), {}
            self._layouts = {}
            self._texts = set()
        for file in files:
            file.close()


def _is_absent(error: OSError) -> bool:
    """Whether there is no file of that name: none, a folder, one inside a file, or one that no file can have."""
    absent = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.ELOOP, errno.EINVAL)
    return error.errno in absent
