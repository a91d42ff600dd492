"""Reading variables: which bytes a selection needs, and how they become an array.

A read is a `Job`: it names the byte ranges that are not in mapped files, and finishes when somebody has fetched them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import buffers, threads
from ..errors import FormatError
from ..formats.cstore.records import RECORD_HEADER_SIZE
from . import direct
from .fetching import Chunks, Ranges, merged, outer_ranges, place_answers, requests_of
from .jobs import Job, Request, joined, read_jobs
from .layout import product
from .model import Member, Role, TextFile, VariableSpec
from .places import MemberBoxes, missing_chunk, owners_of
from .selecting import Outer, Points, outer, points
from .source import GridSource

__all__ = ["GridVariable"]

_BLOCK_BYTES = 1 << 20
"""Bytes that one turn of a thread copies of a box: longer runs along the leading dimension are cut so."""

_PARALLEL_BYTES = 8 << 20
"""Boxes below this are copied by one thread. A chunk that a Dask task reads is one of several at once anyway; with both
cores of a loaded machine busy, copies of 1.3 MB took 20 ms in a team of two and 0.4 ms alone."""

_TURNS = 4
"""Parts of a box for each thread."""

_UNCHECKED_POINTS = 1 << 16
"""From this many points on, the kernel alone checks indices of a grid of few chunks: finding the smallest and the
largest of 2 million took as long as a third of reading them."""

_FEW_CHUNKS = 1 << 10


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

    @property
    def boxes(self) -> MemberBoxes:
        """The boxes of `members`."""
        if self._boxes is None:
            self._boxes = MemberBoxes(self.members, len(self.spec.dims))
        return self._boxes

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
        if self.spec.kind == "plain":
            values = direct.read_small(self, key)
            if values is None:
                values = direct.read_box(self, key)
            if values is not None:
                return Job([], lambda answers: values, self.spec.name)
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
            return joined(parts, lambda pair: _as_complex(pair, spec.dtype))
        parts = [self._column(selection, role, np.dtype(np.int64)) for role in ("start", "size")]
        owner = self._owner_of_values(selection)
        return joined(parts, lambda pair: self._text(pair[0], pair[1], owner))

    def _owners(
        self, selection: Outer | Points
    ) -> tuple[NDArray[np.int32], list[tuple[int, tuple[slice, ...]]]]:
        if len(self.members) == 1 and self.members[0].box == self.spec.grid:
            whole = tuple([slice(0, len(own)) for own in selection.chunks])
            return np.zeros([len(own) for own in selection.chunks], np.int32), [(0, whole)]
        owners, parts = owners_of(self.members, selection.chunks, self.boxes)
        # Of the box around points only the touched chunks count; they are looked at when their bases are.
        if isinstance(selection, Outer) and (owners < 0).any():
            where = np.argwhere(owners < 0)[0]
            number = [int(own[i]) for own, i in zip(selection.chunks, where, strict=True)]
            raise missing_chunk(self.spec.name, number, self.source.place.spelling)
        return owners, parts

    def _column(self, selection: Outer | Points, role: Role, dtype: np.dtype[Any]) -> Job:
        owners, parts = self._owners(selection)
        chunks = Chunks(np.zeros(owners.size, np.uint64))
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

    def _outer_job(self, selection: Outer, chunks: Chunks, dtype: np.dtype[Any]) -> Job:
        ranges = [
            (position, file, place, outer_ranges(selection, position, dtype.itemsize))
            for position, file, place in chunks.fetched
        ]
        requests = requests_of(ranges)

        def finish(answers: Sequence[memoryview]) -> NDArray[Any]:
            place_answers(ranges, answers, chunks)
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
            shape = np.array([pick.count for pick in picks], np.int64)

            def copy(first: NDArray[np.int64] | None) -> None:
                own = runs if first is None else [first, *runs[1:]]
                table = np.concatenate(own) if own else np.zeros((0, 5), np.int64)
                run_counts = np.array([len(part) for part in own], np.int64)
                self.source.kernels.copy_slab(
                    chunks.bases, counts, lengths, table, run_counts, shape, itemsize, raw, threads=1
                )

            with threads.lease(team) as granted:
                if granted == 1 or not runs:
                    copy(None)
                else:
                    # Not by a team of the kernel: one that waits for a core on a busy machine keeps all waiting.
                    turns = min(len(runs[0]), _TURNS * granted)
                    threads.map_with_helpers(copy, np.array_split(runs[0], turns), granted - 1)
            return out.reshape(selection.shape)

        return Job(requests, finish)

    # ------------------------------------------------------------------------------------------------------
    # Points

    def _points_job(
        self, selection: Points, chunks: Chunks, owners: NDArray[np.int32], dtype: np.dtype[Any]
    ) -> Job:
        ranges: list[Ranges] = []
        if chunks.fetched or (owners < 0).any():
            ranges = self._point_ranges(selection, chunks, owners, dtype.itemsize)
        requests = requests_of(ranges)

        def finish(answers: Sequence[memoryview]) -> NDArray[Any] | Job:
            place_answers(ranges, answers, chunks)
            chunks.bases[chunks.bases == 0] = 1  # of chunks that no point lies in; the kernel wants no gaps
            out = _empty(product(selection.shape), dtype)
            if not self._take(selection, chunks, out, dtype.itemsize):
                # Negative indices, or some out of range: look at each, and fold or raise.
                return self._job(points(selection.key, self.spec.axes, self.spec.dims))
            return out.reshape(selection.shape)

        return Job(requests, finish)

    def _take(self, selection: Points, chunks: Chunks, out: NDArray[Any], itemsize: int) -> bool:
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
        self, selection: Points, chunks: Chunks, owners: NDArray[np.int32], itemsize: int
    ) -> list[Ranges]:
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
            (position, file, place, merged(own_offsets[position] * itemsize, itemsize))
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
        headers: list[Request] = []
        fresh: list[TextFile] = []
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
            if not self.source.knows(text):  # in the same round as the text itself
                fresh.append(text)
                headers.append((file, text.begin - RECORD_HEADER_SIZE, RECORD_HEADER_SIZE))
            requests += [
                (file, text.begin + a, n)
                for a, n in zip(starts[mine].tolist(), sizes[mine].tolist(), strict=True)
            ]
            asked.append(mine)
        positions = np.concatenate(asked) if asked else np.zeros(0, np.int64)

        def finish(answers: Sequence[memoryview]) -> NDArray[Any]:
            for text, header in zip(fresh, answers[: len(fresh)], strict=True):
                self.source.check_text(text, header, self.spec.name)
            is_text = self.spec.kind == "text"
            out = np.full(len(sizes), "" if is_text else b"", object)
            try:
                for position, answer in zip(positions.tolist(), answers[len(fresh) :], strict=True):
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

        return Job([*headers, *requests], finish, self.spec.name)


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
