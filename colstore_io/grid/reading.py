"""Reading variables: which bytes a selection needs, and how they become an array.

A read is a `Job`: it names the byte ranges that are not in mapped files, and finishes when somebody has fetched them.
So several variables are read with one round of requests (`read_jobs`). Mapped files are never fetched from: the kernels
read them in place.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from .. import buffers, config, storage, threads
from ..errors import FormatError, StaleDatasetError, TruncatedFileError
from ..formats.cstore.records import RECORD_HEADER_SIZE, record_says
from ..kernels import grid as kernels
from ..storage import ByteFile, IOStats, Location
from . import twins
from .layout import product
from .model import Member, Role, TextFile, VariableSpec
from .places import MemberBoxes, MemberLayout, missing_chunk, owners_of
from .selecting import Outer, Points, outer, points

__all__ = ["GridSource", "GridVariable", "Job", "read_jobs"]

_BLOCK_BYTES = 1 << 20
"""Bytes that one turn of a thread copies of a box: longer runs along the leading dimension are cut so."""

_PARALLEL_BYTES = 8 << 20
"""Boxes below this are copied by one thread. A chunk that a Dask task reads is one of several at once anyway; with both
cores of a loaded machine busy, copies of 1.3 MB took 20 ms in a team of two and 0.4 ms alone."""

_UNCHECKED_POINTS = 1 << 16
"""From this many points on, the kernel alone checks indices of a grid of few chunks: finding the smallest and the
largest of 2 million took as long as a third of reading them."""

_FEW_CHUNKS = 1 << 10

_GAP_BYTES = 64 << 10
"""Ranges of one chunk at most this far apart are fetched as one."""

Request = tuple[ByteFile, int, int]
T = TypeVar("T")


@dataclass
class Job:
    """One read under way.

    Attributes
    ----------
    requests : list of (ByteFile, offset, length)
        Byte ranges that must be fetched.
    finish : callable
        Takes the answers in the order of `requests`; returns the array, or the next `Job` of a read in two steps.
    variable : str
        For messages.
    """

    requests: list[Request]
    finish: Callable[[Sequence[memoryview]], NDArray[Any] | Job]
    variable: str = ""


def read_jobs(jobs: Sequence[Job]) -> list[NDArray[Any]]:
    """Perform several reads: the ranges of all of them in one concurrent round, and one more for text."""
    results: list[NDArray[Any] | Job] = list(jobs)
    while waiting := [number for number, item in enumerate(results) if isinstance(item, Job)]:
        asked: list[Request] = []
        for number in waiting:
            job = results[number]
            assert isinstance(job, Job)
            asked += job.requests
        answers = _fetched(asked, [results[number] for number in waiting]) if asked else []
        at = 0
        for number in waiting:
            job = results[number]
            assert isinstance(job, Job)
            results[number] = job.finish(answers[at : at + len(job.requests)])
            at += len(job.requests)
    return [item for item in results if not isinstance(item, Job)]


def _fetched(asked: list[Request], jobs: Sequence[Any]) -> list[memoryview]:
    try:
        return storage.read_ranges(asked)
    except (FileNotFoundError, StaleDatasetError, TruncatedFileError) as exc:
        names = ", ".join(sorted({repr(job.variable) for job in jobs if job.variable}))
        raise FormatError(
            f"a file that variable {names} needs is missing or was cut short: {exc}. Restore the file, or open an "
            "older generation of the directory by the path of its manifest"
        ) from None


@dataclass(frozen=True, slots=True)
class _Opened:
    """A member at hand: its file, its layout, and the mapping with its address (0: not mapped)."""

    file: ByteFile
    layout: MemberLayout
    mapping: NDArray[np.uint8] | None
    address: int


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
        self._lock = threading.Lock()  # guards the two tables; held for no I/O

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
            found = os.stat(local_path).st_size
        except FileNotFoundError:
            raise self.damaged(variable, path, "is not there") from None
        if found < size:
            raise self.damaged(variable, path, f"was cut short: {found} of {size} bytes are left")

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

    def open(self, member: Member, variable: str) -> _Opened:
        """Return a member at hand, its first and last record compared with the manifest if it is mapped."""
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
        if mapping is None:
            with self._lock:
                self._layouts[member.path] = layout
            return _Opened(file, layout, None, 0)
        if fresh:
            self._compare(member, layout, mapping, variable)
            with self._lock:
                self._layouts[member.path] = layout
        return _Opened(file, layout, mapping, mapping.ctypes.data)

    def _compare(
        self, member: Member, layout: MemberLayout, mapping: NDArray[np.uint8], variable: str
    ) -> None:
        ends = {0: member.box.first, member.n_records - 1: tuple(n - 1 for n in member.box.stop)}
        for index, chunk in ends.items():
            starts, rows = layout.records([np.array([c], np.int64) for c in chunk])
            begin = int(starts[0])
            header = mapping[begin - RECORD_HEADER_SIZE : begin].tobytes()
            if not record_says(header, index, int(rows[0])):
                raise self.damaged(
                    variable, member.path, f"has no record {index} of {int(rows[0])} rows where it should be"
                )

    def close(self) -> None:
        """Let go of all files. Arrays that were read are not affected; a later read opens them again."""
        with self._lock:
            files, self._files = list(self._files.values()), {}
            self._layouts = {}
        for file in files:
            file.close()


@dataclass
class _Chunks:
    """The touched chunks of one column, and where their values are.

    Attributes
    ----------
    bases : ndarray of uint64
        Address of each chunk's values; of a chunk that must be fetched, 0 until it was.
    files : list
        For each chunk to fetch: (number, file, byte offset of its values).
    keep : list
        What owns the memory behind `bases`.
    """

    bases: NDArray[np.uint64]
    fetched: list[tuple[int, ByteFile, int]] = field(default_factory=list)
    keep: list[Any] = field(default_factory=list)


class GridVariable:
    """One variable of a container, read by keys.

    Parameters
    ----------
    source : GridSource
    spec : VariableSpec
    members : sequence of Member
        Those that hold chunks of it, in the order of the manifest.
    texts : mapping of str to TextFile
        Files with its bytes, by path.
    """

    __slots__ = ("_boxes", "members", "source", "spec", "texts")

    def __init__(
        self, source: GridSource, spec: VariableSpec, members: Sequence[Member], texts: dict[str, TextFile]
    ) -> None:
        self.source = source
        self.spec = spec
        self.members = tuple(members)
        self.texts = texts
        self._boxes: MemberBoxes | None = None

    def __reduce__(self) -> tuple[object, ...]:
        return (GridVariable, (self.source, self.spec, self.members, self.texts))

    def __repr__(self) -> str:
        return f"GridVariable({self.spec.name!r}, dtype={self.spec.dtype}, shape={self.spec.shape})"

    # ------------------------------------------------------------------------------------------------------
    # What a caller asks for

    def read_outer(self, key: Sequence[Any]) -> NDArray[Any]:
        """Return the outer product of one int, slice or 1-D index array per dimension.

        Returns
        -------
        ndarray
            Owns its memory, in the dtype of the variable; dimensions with an int are dropped.

        Raises
        ------
        IndexError
            If an index is out of range.
        FormatError
            If a file is missing or damaged; names the variable.
        """
        return read_jobs([self.outer_job(key)])[0]

    def read_points(self, key: Sequence[Any]) -> NDArray[Any]:
        """Return scattered points: index arrays that broadcast, whose dimensions come first, and slices."""
        return read_jobs([self.points_job(key)])[0]

    def outer_job(self, key: Sequence[Any]) -> Job:
        """Plan `read_outer`."""
        if len(key) == 1 and isinstance(
            key[0], np.ndarray
        ):  # no need to sort: one dimension's points are its rows
            return self.points_job(key)
        return self._named(self._job(outer(key, self.spec.axes, self.spec.dims)))

    def points_job(self, key: Sequence[Any]) -> Job:
        """Plan `read_points`."""
        spec = self.spec
        # Only a read in place can leave the check to the kernel, and only plain values are read once.
        trusting = spec.kind == "plain" and spec.n_chunks <= _FEW_CHUNKS
        selection = points(key, spec.axes, spec.dims, unchecked_size=_UNCHECKED_POINTS if trusting else None)
        return self._named(self._job(selection))

    def _named(self, job: Job) -> Job:
        job.variable = self.spec.name
        return job

    # ------------------------------------------------------------------------------------------------------
    # Planning

    def _job(self, selection: Outer | Points) -> Job:
        spec = self.spec
        if product(selection.shape) == 0:
            empty = np.empty(selection.shape, spec.dtype)
            return Job([], lambda answers: empty)
        if spec.kind == "plain":
            return self._column(selection, "", spec.dtype)
        if spec.kind == "complex":
            parts = [self._column(selection, role, spec.stored_dtypes[0]) for role in ("real", "imag")]
            return _joined(parts, lambda pair: _as_complex(pair, spec.dtype))
        parts = [self._column(selection, role, np.dtype(np.int64)) for role in ("start", "size")]
        owner = self._owner_of_values(selection)
        return _joined(parts, lambda pair: self._text(pair[0], pair[1], owner))

    def _owners(
        self, selection: Outer | Points
    ) -> tuple[NDArray[np.int32], list[tuple[int, tuple[slice, ...]]]]:
        if self._boxes is None:
            self._boxes = MemberBoxes(self.members, len(self.spec.dims))
        owners, parts = owners_of(self.members, selection.chunks, self._boxes)
        # Of the box around points only the touched chunks count; they are looked at when their bases are.
        if isinstance(selection, Outer) and (owners < 0).any():
            where = np.argwhere(owners < 0)[0]
            number = [int(own[i]) for own, i in zip(selection.chunks, where, strict=True)]
            raise missing_chunk(self.spec.name, number, self.source.place.spelling)
        return owners, parts

    def _column(self, selection: Outer | Points, role: Role, dtype: np.dtype[Any]) -> Job:
        owners, parts = self._owners(selection)
        chunks = _Chunks(np.zeros(owners.size, np.uint64))
        table = chunks.bases.reshape(owners.shape)
        for number, part in parts:
            member = self.members[number]
            opened = self.source.open(member, self.spec.name)
            own = [c[p] for c, p in zip(selection.chunks, part, strict=True)]
            starts, rows = opened.layout.records(own)
            places = starts + rows * member.prefixes[self.spec.name, role]
            shape = tuple(len(c) for c in own)
            mine = owners[part] == number
            if opened.mapping is not None:
                chunks.keep.append(opened.mapping)
                addresses = (places + opened.address).astype(np.uint64).reshape(shape)
                if mine.all():
                    table[part] = addresses
                else:
                    table[part][mine] = addresses[mine]
            else:
                flat = np.arange(owners.size).reshape(owners.shape)[part][mine]
                for position, place in zip(flat.tolist(), places.reshape(shape)[mine].tolist(), strict=True):
                    chunks.fetched.append((position, opened.file, place))
        if isinstance(selection, Outer):
            return self._outer_job(selection, chunks, dtype)
        if not selection.checked and (chunks.fetched or (owners < 0).any()):
            return self._column(points(selection.key, self.spec.axes, self.spec.dims), role, dtype)
        return self._points_job(selection, chunks, owners, dtype)

    # ------------------------------------------------------------------------------------------------------
    # Boxes

    def _outer_job(self, selection: Outer, chunks: _Chunks, dtype: np.dtype[Any]) -> Job:
        ranges = [
            (position, file, place, _outer_ranges(selection, position, dtype.itemsize))
            for position, file, place in chunks.fetched
        ]
        requests = _requests(ranges)

        def finish(answers: Sequence[memoryview]) -> NDArray[Any]:
            _place(ranges, answers, chunks)
            picks = list(selection.picks)
            itemsize = dtype.itemsize
            while picks and picks[-1].whole:  # rows of the last dimensions are contiguous: one wide value
                itemsize *= picks.pop().count
            out = _empty(product(selection.counts), dtype)
            raw = out.view(np.uint8)
            team = self.source.team(len(raw)) if len(raw) >= _PARALLEL_BYTES else 1
            runs = [pick.runs for pick in picks]
            if team > 1 and runs:
                runs[0] = _cut(runs[0], len(raw), picks[0].count)
            counts = np.array([len(pick.chunks) for pick in picks], np.int64)
            lengths = _concatenated([pick.lengths for pick in picks])
            table = np.concatenate(runs) if runs else np.zeros((0, 5), np.int64)
            run_counts = np.array([len(own) for own in runs], np.int64)
            shape = np.array([pick.count for pick in picks], np.int64)
            with threads.lease(team) as granted:
                self.source.kernels.copy_slab(
                    chunks.bases, counts, lengths, table, run_counts, shape, itemsize, raw, threads=granted
                )
            return out.reshape(selection.shape)

        return Job(requests, finish)

    # ------------------------------------------------------------------------------------------------------
    # Points

    def _points_job(
        self, selection: Points, chunks: _Chunks, owners: NDArray[np.int32], dtype: np.dtype[Any]
    ) -> Job:
        ranges: list[_Ranges] = []
        if chunks.fetched or (owners < 0).any():
            ranges = self._point_ranges(selection, chunks, owners, dtype.itemsize)
        requests = _requests(ranges)

        def finish(answers: Sequence[memoryview]) -> NDArray[Any] | Job:
            _place(ranges, answers, chunks)
            chunks.bases[chunks.bases == 0] = 1  # of chunks that no point lies in; the kernel wants no gaps
            out = _empty(product(selection.shape), dtype)
            if not self._take(selection, chunks, out, dtype.itemsize):
                # Negative indices, or some out of range: look at each, and fold or raise.
                return self._job(points(selection.key, self.spec.axes, self.spec.dims))
            return out.reshape(selection.shape)

        return Job(requests, finish)

    def _take(self, selection: Points, chunks: _Chunks, out: NDArray[Any], itemsize: int) -> bool:
        """Read the points; False if an index that nobody had checked is out of range."""
        spec, shape = self.spec, selection.shape
        counts = np.array([len(own) for own in selection.chunks], np.int64)
        edges = _concatenated(
            [
                axis.edges(int(own[0]), int(own[-1]) + 1)
                for axis, own in zip(spec.axes, selection.chunks, strict=True)
            ]
        )
        uniform = np.array([axis.uniform for axis in spec.axes], np.int64)
        raw = out.view(np.uint8)
        # Indices that broadcast (points times a slice) are written out for some rows of the result at a time.
        per_row = product(shape[1:])
        step = 1 if not shape else shape[0] if per_row == 1 else max(1, (1 << 20) // per_row)
        team = self.source.team(product(shape))
        with threads.lease(team) as granted:
            for begin in range(0, shape[0] if shape else 1, max(step, 1)):
                end = min(begin + step, shape[0]) if shape else 1
                addresses, steps, keep = _flat_indices(selection, begin, end)
                n = (end - begin) * per_row
                part = raw[begin * per_row * itemsize :][: n * itemsize]
                bad = self.source.kernels.take_points(
                    chunks.bases, counts, edges, uniform, addresses, steps, n, itemsize, part, threads=granted
                )
                del keep
                if bad >= 0:
                    return False
        return True

    def _point_ranges(
        self, selection: Points, chunks: _Chunks, owners: NDArray[np.int32], itemsize: int
    ) -> list[_Ranges]:
        number = np.zeros(1, np.int64)
        offset = np.zeros(1, np.int64)
        for axis, own, index in zip(self.spec.axes, selection.chunks, selection.indices, strict=True):
            chunk = np.asarray(axis.chunk_of(index), np.int64) - own[0]
            edges = axis.edges(int(own[0]), int(own[-1]) + 1)
            offset = offset * (edges[chunk + 1] - edges[chunk]) + (index - edges[chunk])
            number = number * len(own) + chunk
        shape = np.broadcast_shapes(number.shape, offset.shape)
        number, offset = (
            np.broadcast_to(number, shape).reshape(-1),
            np.broadcast_to(offset, shape).reshape(-1),
        )
        touched = np.unique(number)
        absent = owners.reshape(-1)[touched] < 0
        if absent.any():
            where = np.unravel_index(int(touched[np.argmax(absent)]), owners.shape)
            which = [int(own[i]) for own, i in zip(selection.chunks, where, strict=True)]
            raise missing_chunk(self.spec.name, which, self.source.place.spelling)
        order = np.lexsort((offset, number))
        number, offset = number[order], offset[order]
        begins = np.searchsorted(number, touched)
        ends = np.searchsorted(number, touched, side="right")
        own_offsets = {
            int(t): offset[a:b]
            for t, a, b in zip(touched.tolist(), begins.tolist(), ends.tolist(), strict=True)
        }
        return [
            (position, file, place, _merged(own_offsets[position] * itemsize, itemsize))
            for position, file, place in chunks.fetched
            if position in own_offsets
        ]

    # ------------------------------------------------------------------------------------------------------
    # Text

    def _owner_of_values(self, selection: Outer | Points) -> NDArray[np.int32]:
        """Return which member each value of the result comes from; broadcasts to its shape."""
        owners, _ = self._owners(selection)
        if owners.size == 1 or (owners == owners.reshape(-1)[0]).all():
            return owners.reshape(-1)[:1].reshape((1,) * len(selection.shape))
        if isinstance(selection, Points):
            chunk = [
                np.asarray(axis.chunk_of(index)) - own[0]
                for axis, own, index in zip(self.spec.axes, selection.chunks, selection.indices, strict=True)
            ]
            return np.asarray(owners[tuple(chunk)], np.int32)
        positions = []
        for pick in selection.picks:
            position = np.empty(pick.count, np.int64)
            for start, count, chunk_number, _, _ in pick.runs.tolist():
                position[start : start + count] = chunk_number
            positions.append(position)
        return np.asarray(owners[np.ix_(*positions)].reshape(selection.shape), np.int32)

    def _text(self, start: NDArray[np.int64], size: NDArray[np.int64], owner: NDArray[np.int32]) -> Job:
        """Plan the second step of text: fetch the bytes of every value that has any."""
        shape = start.shape
        starts, sizes = start.reshape(-1), size.reshape(-1)
        owners = np.broadcast_to(owner, shape).reshape(-1)
        requests: list[Request] = []
        asked: list[NDArray[np.int64]] = []
        for number in np.unique(owners).tolist():
            text = self.texts[self.members[number].texts[self.spec.name]]
            mine = np.flatnonzero(owners == number)
            if not mine.size:
                continue
            bad = (sizes[mine] < -2) | (starts[mine] < 0) | (sizes[mine] > text.n_bytes - starts[mine])
            if bad.any():
                raise self.source.damaged(self.spec.name, text.path, "does not hold the text that it should")
            mine = mine[sizes[mine] > 0]
            if not mine.size:
                continue
            file = self.source.file(text.path, text.size, self.spec.name)
            requests += [
                (file, text.begin + a, n)
                for a, n in zip(starts[mine].tolist(), sizes[mine].tolist(), strict=True)
            ]
            asked.append(mine)
        positions = np.concatenate(asked) if asked else np.zeros(0, np.int64)

        def finish(answers: Sequence[memoryview]) -> NDArray[Any]:
            is_text = self.spec.kind == "text"
            out = np.full(len(sizes), "" if is_text else b"", object)
            try:
                for position, answer in zip(positions.tolist(), answers, strict=True):
                    value = bytes(answer)
                    out[position] = value.decode("utf-8", "surrogatepass") if is_text else value
            except UnicodeDecodeError:
                raise FormatError(
                    f"variable {self.spec.name!r} holds text that is no UTF-8",
                    path=self.source.place.spelling,
                ) from None
            out[sizes == -1] = np.nan
            out[sizes == -2] = None
            return out.reshape(shape)

        return Job(requests, finish, self.spec.name)


_Ranges = tuple[int, ByteFile, int, NDArray[np.int64]]
"""Chunk, file, byte offset of its values, and the byte ranges wanted, shape (n, 2): begin and end in the chunk."""


def _joined(parts: Sequence[Job], finish: Callable[[list[Any]], NDArray[Any] | Job]) -> Job:
    """Return the job that performs `parts` together and finishes with their results."""
    counts = [len(part.requests) for part in parts]

    def run(answers: Sequence[memoryview]) -> NDArray[Any] | Job:
        results = []
        at = 0
        for part, count in zip(parts, counts, strict=True):
            results.append(part.finish(answers[at : at + count]))
            at += count
        return finish(results)

    return Job([request for part in parts for request in part.requests], run)


def _as_complex(pair: list[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    out = np.empty(pair[0].shape, dtype)
    out.real, out.imag = pair
    return out


def _empty(count: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    return buffers.empty(count, dtype)


def _concatenated(parts: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    return np.concatenate(parts).astype(np.int64, copy=False) if parts else np.zeros(0, np.int64)


def _cut(runs: NDArray[np.int64], nbytes: int, count: int) -> NDArray[np.int64]:
    """Cut long runs of the leading dimension, so that threads can share them."""
    longest = max(1, count * _BLOCK_BYTES // max(nbytes, 1))
    if not len(runs) or runs[:, 1].max() <= longest:
        return runs
    pieces = []
    for out_start, n, chunk, start, step in runs.tolist():
        begin = np.arange(0, n, longest, dtype=np.int64)
        piece = np.empty((len(begin), 5), np.int64)
        piece[:, 0] = out_start + begin
        piece[:, 1] = np.minimum(longest, n - begin)
        piece[:, 2] = chunk
        piece[:, 3] = start + begin * step
        piece[:, 4] = step
        pieces.append(piece)
    return np.concatenate(pieces)


def _flat_indices(
    selection: Points, begin: int, end: int
) -> tuple[NDArray[np.uint64], NDArray[np.int64], list[NDArray[np.int64]]]:
    """Return addresses and steps of the indices of rows ``[begin, end)`` of the result, and what owns them."""
    shape = (end - begin, *selection.shape[1:]) if selection.shape else ()
    keep, addresses, steps = [], [], []
    for index in selection.indices:
        if index.size == 1:
            array, step = np.ascontiguousarray(index).reshape(-1), 0
        else:
            rows = np.broadcast_to(index, selection.shape)[begin:end]
            array, step = np.ascontiguousarray(rows, np.int64).reshape(-1), 8
        assert array.size in (1, product(shape))
        keep.append(array)
        addresses.append(array.ctypes.data)
        steps.append(step)
    return np.array(addresses, np.uint64), np.array(steps, np.int64), keep


# ----------------------------------------------------------------------------------------------------------
# Byte ranges of chunks that must be fetched


def _merged(offsets: NDArray[np.int64], width: int) -> NDArray[np.int64]:
    """Return ranges of bytes, shape (n, 2), that cover `width` bytes at each of the sorted `offsets`."""
    breaks = np.flatnonzero(np.diff(offsets) > width + _GAP_BYTES)
    found = np.empty((len(breaks) + 1, 2), np.int64)
    found[:, 0] = offsets[np.concatenate(([0], breaks + 1))]
    found[:, 1] = offsets[np.concatenate((breaks, [len(offsets) - 1]))] + width
    return found


def _outer_ranges(selection: Outer, position: int, itemsize: int) -> NDArray[np.int64]:
    """Return the byte ranges that a selection needs of touched chunk `position`: rows of the last dimension, merged."""
    lengths, wanted = [], []
    for pick in reversed(selection.picks):
        position, own = divmod(position, len(pick.chunks))
        lengths.append(int(pick.lengths[own]))
        runs = pick.runs[pick.runs[:, 2] == own]
        parts = [np.arange(a, a + n * s, s, dtype=np.int64) for _, n, _, a, s in runs.tolist()]
        wanted.append(np.unique(np.concatenate(parts)))
    offsets = np.zeros(1, np.int64)
    width = stride = itemsize
    for length, local in zip(lengths, wanted, strict=True):
        if width == stride:  # everything behind this dimension is wanted, or there is nothing behind it
            gaps = (np.diff(local) - 1) * stride
            if gaps.max(initial=0) <= _GAP_BYTES:
                offsets = local[:1] * stride
                width = int(local[-1] - local[0]) * stride + width
            else:
                offsets = local * stride
        else:
            offsets = (local[:, None] * stride + offsets[None, :]).reshape(-1)
        stride *= length
    return _merged(np.sort(offsets), width)


def _requests(ranges: Sequence[_Ranges]) -> list[Request]:
    return [
        (file, place + begin, end - begin)
        for _, file, place, wanted in ranges
        for begin, end in wanted.tolist()
    ]


def _place(ranges: Sequence[_Ranges], answers: Sequence[memoryview], chunks: _Chunks) -> None:
    """Give each fetched chunk a base: an address from which the kernels find every byte that was asked for."""
    at = 0
    for position, _, _, wanted in ranges:
        own = answers[at : at + len(wanted)]
        at += len(wanted)
        first = int(wanted[0, 0])
        if len(own) == 1:
            memory = np.frombuffer(own[0], np.uint8)
        else:
            # Pages that no range reaches are never touched, so this takes no more memory than the ranges.
            memory = np.empty(int(wanted[-1, 1]) - first, np.uint8)
            for (begin, end), answer in zip(wanted.tolist(), own, strict=True):
                memory[begin - first : end - first] = np.frombuffer(answer, np.uint8)
        chunks.keep.append(memory)
        chunks.bases[position] = (memory.ctypes.data - first) % 2**64
