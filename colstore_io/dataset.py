"""A plan with its files at hand: it turns segments into addresses, and hands out byte ranges of what is not mapped."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import buffers, formats, kernels_numpy, places, tuning
from .bounds import BlockTable, joined_statistics
from .chunk_cache import ChunkCache
from .fields import Schema
from .formats import ShardMeta, Statistics
from .formats.siblings import Siblings
from .kernels import compare
from .kernels import segments as kernels
from .kernels.shortcuts import QuickRows
from .plan import NO_VALIDITY, DatasetPlan, Part
from .storage import ByteFile, IOStats, LocalFile, LocalFiles, MemoryFile, PlacesMovedError

__all__ = ["Source"]


QUICK_ROWS = 4096
"""Below this many rows of mapped columns the dispatch costs more than the copy."""

_QUICK_COLUMNS = 32
_QUICK_FILES = 128
"""Of more, some would have no descriptor at hand (`storage.mapping`)."""

_MANY_FILES = 128
SIZES_GOOD_SECONDS = 0.002
"""How long a look at the sizes of more than `_MANY_FILES` files is believed in. Up to so many files are asked for their
sizes before every read of them, which is what keeps a read off pages that another program cut away. More have no
descriptors at hand, and to ask all of 1000 by name takes 1.7 ms, a gather of 1000 of their rows 0.01. So a file that is
cut within this time after a look is as one that is cut during a read: nothing but ``mmap=False`` is safe from that."""


class Source:
    """A plan and its opened files: hands out addresses of mapped columns and byte ranges of the others.

    Parameters
    ----------
    plan : DatasetPlan
    files : sequence of ByteFile
        In the order of ``plan.files``.
    metas : sequence of ShardMeta, optional
        In the same order: where the files' statistics are. Stays with the client: neither pickles nor restricted
        sources carry it.
    backend : str
        ``"cpp"`` for the compiled kernels, ``"numpy"`` for their twins.
    max_workers : int, optional
        Upper bound of threads of one read; default: the process-wide setting.

    Notes
    -----
    Reads from several threads are safe. Pickling carries the plan and the files' URLs and tokens, no data.
    """

    def __init__(
        self,
        plan: DatasetPlan,
        files: Sequence[ByteFile],
        *,
        metas: Sequence[ShardMeta] = (),
        backend: str = "cpp",
        max_workers: int | None = None,
    ) -> None:
        self.plan = plan
        self.files: Sequence[ByteFile] = files if type(files) is LocalFiles else tuple(files)
        self.metas: Sequence[ShardMeta] = metas if type(metas) is Siblings else tuple(metas)
        self.partitions: tuple[Mapping[str, Any] | None, ...] = ()
        self.backend = backend
        self.max_workers = max_workers
        self._prepare()

    def _prepare(self) -> None:
        self.n_rows = self.plan.n_rows
        self._maps: tuple[NDArray[np.uint8] | None, ...] | None = None
        self._tables: dict[tuple[Part, ...], Any] = {}
        self._bases: dict[tuple[Part, ...], tuple[NDArray[np.int64], object]] = {}
        self.warm: dict[tuple[Part, ...], float] = {}  # see `cold.suspect`
        self._columns: dict[Part, NDArray[Any]] = {}
        self.quick_columns: dict[Part, QuickRows | None] = {}  # read by the shortcuts of views
        self._quick_tables: dict[tuple[Part, ...], QuickRows | None] = {}
        self.ready: dict[Any, Any] = {}  # of encoded files; see `ready_column`
        self._sizes_good_until = 0.0
        self._arenas: list[buffers.Arena] = []
        self.decoded = ChunkCache()  # of encoded files; neither pickled nor shared with restricted sources
        self._walked: tuple[Source, int] | None = None
        self._moved: Source | None = None  # what this source turned out to be; see `look_at`
        self._lock = threading.Lock()  # guards the memos above; no other lock is taken under it
        if type(self.files) is LocalFiles:
            self.files.on_made = self._watch
            for number, file in self.files.made():
                self._watch(number, file)
            return
        for number, any_file in enumerate(self.files):
            self._watch(number, any_file)

    def _watch(self, number: int, file: ByteFile) -> None:
        if isinstance(file, LocalFile) and file.on_change is None:
            file.on_change = functools.partial(places.only_appended, self.plan, number)

    def __getstate__(self) -> tuple[Any, ...]:
        return (self.plan, tuple(self.files), self.backend, self.max_workers)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.plan, self.files, self.backend, self.max_workers = state
        self.metas = ()
        self.partitions = ()
        self._prepare()

    @property
    def schema(self) -> Schema:
        return self.plan.schema

    @property
    def io(self) -> IOStats:
        """Requests and bytes of all files so far; live counters when the files were opened together."""
        if type(self.files) is LocalFiles:
            return self.files.io
        counters = {id(file.io): file.io for file in self.files}
        if len(counters) == 1:
            return next(iter(counters.values()))
        total = IOStats()
        for counter in counters.values():
            total.add(
                requests=counter.requests,
                bytes=counter.bytes,
                metadata_requests=counter.metadata_requests,
                seconds=counter.seconds,
            )
        return total

    @cached_property
    def token(self) -> str:
        """Hash of what this source reads: files, their versions, the plan. Never of data."""
        hasher = hashlib.blake2b(self.plan.digest.encode(), digest_size=16)
        files = self.files
        identities = (
            files.identities()
            if type(files) is LocalFiles
            else (
                (file.spelling if file.location is None else file.location.url, file.token) for file in files
            )
        )
        hasher.update("".join(map(repr, identities)).encode("utf-8", "surrogatepass"))
        return hasher.hexdigest()

    def __dask_tokenize__(self) -> str:
        return self.token

    def thread_cap(self) -> int:
        cap = tuning.gather_thread_cap()
        return cap if self.max_workers is None else max(1, min(cap, self.max_workers))

    @property
    def encoded(self) -> bool:
        """True when chunks are decoded whole: no row has an address."""
        return bool(self.plan.decoders)

    @cached_property
    def parts_by_name(self) -> dict[str, Part]:
        """Part of every name that can be read alone: columns, and validity companions that no column hides."""
        companions = {f.validity: (p, True) for p, f in enumerate(self.schema) if f.validity is not None}
        return {**companions, **{f.name: (p, False) for p, f in enumerate(self.schema)}}

    @cached_property
    def nullable(self) -> tuple[bool, ...]:
        """Whether each field is handed out as an Arrow array: it may hold nulls, or has values of variable length."""
        return tuple(f.nullable or f.variable for f in self.schema)

    @cached_property
    def _layout_of_file(self) -> NDArray[np.int64]:
        return np.array([entry.layout for entry in self.plan.files], np.int64)

    # -- addresses

    def mappings(self) -> tuple[NDArray[np.uint8] | None, ...]:
        """Return one read-only array over the committed bytes of each file, ``None`` where it cannot be mapped."""
        maps = self._maps
        if maps is None:
            maps = self._maps = tuple(
                file.map(entry.committed_end) for file, entry in zip(self.files, self.plan.files, strict=True)
            )
        return maps

    def refuse_overlap(self, out: Sequence[NDArray[Any]]) -> None:
        """Raise `ValueError` where an output is part of a file in memory: what is read would change what is to be read.

        Files on disk are mapped read-only by ourselves, where no array of a caller's can be.
        """
        if not isinstance(self.files, tuple):
            return
        for file in self.files:
            if isinstance(file, MemoryFile):
                memory = file.map(file.size)
                if memory is not None and any(np.may_share_memory(target, memory) for target in out):
                    raise ValueError(f"out overlaps the memory of {file.spelling}, which is read from")

    def check_sizes(self, first_row: int = 0, row_stop: int | None = None) -> None:
        """Raise `FormatError` if a mapped file was cut below its committed end by another program.

        Looks at the files that hold rows [first_row, row_stop).
        """
        files, entries = self.files, self.plan.files
        if len(files) == 1:
            files[0].check_size(entries[0].committed_end)
            return
        low, high = 0, len(files)
        if high > 1 and row_stop is not None:
            segments = self.plan.segments
            first, stop = segments.span(first_row, row_stop)
            low, high = (
                (int(segments.file[first]), int(segments.file[stop - 1]) + 1) if stop > first else (0, 0)
            )
        many = high - low == len(files) > _MANY_FILES
        if many and time.monotonic() < self._sizes_good_until:
            return
        for number in range(low, high):
            files[number].check_size(entries[number].committed_end)
        if many:
            self._sizes_good_until = time.monotonic() + SIZES_GOOD_SECONDS

    @cached_property
    def mapped(self) -> bool:
        """True when every file is mapped, so that columns are addressable in place."""
        return not self.encoded and all(m is not None for m in self.mappings())

    def chunk_offsets(self, part: Part, low: int = 0, high: int | None = None) -> NDArray[np.int64]:
        """Return the file offset of the chunk of `part` in segments [low, high); -1 where the file has none."""
        plan = self.plan
        high = plan.segments.n_segments if high is None else high
        prefix_of_layout = np.array([layout.prefix(part) for layout in plan.layouts], np.int64)
        if prefix_of_layout.size == 0:
            return np.empty(0, np.int64)
        prefix = prefix_of_layout[self._layout_of_file[plan.segments.file[low:high]]]
        offsets = plan.segments.body_start[low:high] + plan.segments.rows[low:high] * prefix
        return np.where(prefix == NO_VALIDITY, NO_VALIDITY, offsets)

    def part_dtype(self, part: Part) -> np.dtype[Any]:
        """Return the stored dtype of `part`."""
        position, validity = part
        return np.dtype(np.bool_) if validity else self.plan.schema.fields[position].dtype

    def _bases_over(
        self, part: Part, maps: Sequence[NDArray[np.uint8] | None], keep: list[object]
    ) -> NDArray[np.int64]:
        """Return ``base[s]`` such that row i of segment s is at ``base[s] + i * itemsize`` (cstore.md 14).

        They point into `maps`, and into what is appended to `keep`.
        """
        segments = self.plan.segments
        addresses = np.array([0 if m is None or m.size == 0 else m.ctypes.data for m in maps], np.int64)
        offsets = self.chunk_offsets(part)
        itemsize = self.part_dtype(part).itemsize
        bases = (
            (addresses[segments.file] if addresses.size else offsets)
            + offsets
            - segments.row_start[:-1] * itemsize
        )
        absent = offsets == NO_VALIDITY
        if absent.any():
            ones = np.ones(int(segments.rows[absent].max(initial=1)), np.bool_)
            keep.append(ones)
            bases[absent] = ones.ctypes.data - segments.row_start[:-1][absent]
        return bases

    def addresses(self, parts: tuple[Part, ...]) -> NDArray[np.int64]:
        """Return the bases of each of `parts`, shape (len(parts), S), memoised.

        For questions about pages: what reads there takes `table`, which holds the memory.
        """
        return self._placed(parts)[0]

    def _placed(self, parts: tuple[Part, ...]) -> tuple[NDArray[np.int64], object]:
        """Return bases and what owns the memory that they point into: after a `close` others would be mapped anew."""
        placed = self._bases.get(parts)
        if placed is None:
            maps = self.mappings()
            keep: list[object] = [maps]
            stacked = np.stack([self._bases_over(part, maps, keep) for part in parts])
            placed = self._bases.setdefault(parts, (np.ascontiguousarray(stacked, np.int64), tuple(keep)))
        return placed

    def kernel_module(self) -> Any:
        return kernels_numpy if self.backend == "numpy" else kernels

    def mask_of_ranges(self) -> Any:
        """Return the kernel that compares columns with ranges; see ``kernels/compare.pyi``."""
        return kernels_numpy.mask_of_ranges if self.backend == "numpy" else compare.mask_of_ranges

    def table(self, parts: tuple[Part, ...]) -> Any:
        """Return the kernels' segment table over the mapped files for `parts`, memoised.

        It holds what it points into: another thread may close this source while a kernel runs over it.
        """
        table = self._tables.get(parts)
        if table is None:
            with self._lock:
                segments = self.plan.segments
                base, keep = self._placed(parts)
                table = self.kernel_module().SegmentTable(
                    segments.row_start[:-1],
                    segments.row_start[1:],
                    base,
                    np.array([self.part_dtype(part).itemsize for part in parts], np.int64),
                    segments.n_rows,
                    segments.uniform_rows,
                )
                table.keep = keep
                self._tables[parts] = table
        return table

    def segment_view(self, part: Part, segment: int) -> NDArray[Any] | None:
        """Return a read-only array over the mapped chunk of `part`, ``None`` where there is no mapping or chunk."""
        plan = self.plan
        if self.encoded:
            return None
        mapping = self.mappings()[int(plan.segments.file[segment])]
        offset = int(self.chunk_offsets(part, segment, segment + 1)[0])
        if mapping is None or offset == NO_VALIDITY:
            return None
        rows = int(plan.segments.rows[segment])
        if rows == 0:
            return np.frombuffer(b"", np.uint8).view(self.part_dtype(part))
        return np.ndarray((rows,), self.part_dtype(part), buffer=mapping, offset=offset)

    def column_view(self, part: Part) -> NDArray[Any] | None:
        """Return the whole mapped column as one array when it is one segment in native byte order, else None."""
        view = self._columns.get(part)
        if view is None:
            if self.plan.segments.n_segments != 1 or not self.mapped or not self.part_dtype(part).isnative:
                return None
            view = self.segment_view(part, 0)
            if view is None:
                return None
            self._columns[part] = view
        return view

    def quick_rows(self, part: Part, key: Any) -> NDArray[Any] | None:
        """Return the rows of a small read on the shortest road, or None: then `gather.read_part` is to be asked.

        Parameters
        ----------
        part : Part
        key : slice or ndarray
            Not checked.

        Notes
        -----
        Microseconds count here: a NumPy slice of a mapped file, copied, takes one. For `SIZES_GOOD_SECONDS` after
        this, views read by the column in `quick_columns` without coming here (`kernels.shortcuts`); it asks for the
        size of the file before every read.
        """
        try:
            column = self.quick_columns[part]
        except KeyError:
            column = self.quick_columns[part] = self._quick((part,))
        return None if column is None or not self._look(column, (part,)) else column.rows(key)  # type: ignore[return-value]

    def quick_columns_of(self, parts: tuple[Part, ...], key: Any) -> list[NDArray[Any]] | None:
        """Return the rows of several parts as `quick_rows` does, one array for each."""
        try:
            table = self._quick_tables[parts]
        except KeyError:
            table = self._quick_tables[parts] = self._quick(parts)
        if table is None:
            return None
        found = table.rows(key)
        if found is None and self._look(table, parts):
            found = table.rows(key)
        return found if found is None or isinstance(found, list) else [found]

    def _look(self, rows: QuickRows, parts: tuple[Part, ...]) -> bool:
        """Have `rows` read for a while; False where it cannot."""
        # Without a descriptor at hand the size is asked for by name; without a look at the pages, cold.py has a say.
        held = [file._descriptor for file in self.files]  # type: ignore[attr-defined]
        if len(held) == 1 and held[0] is None:
            return False
        return rows.look(held, SIZES_GOOD_SECONDS, self.warm.get(parts, 0.0) - time.monotonic())

    def _quick(self, parts: tuple[Part, ...]) -> QuickRows | None:
        if not 0 < len(parts) <= _QUICK_COLUMNS or self.encoded or self.backend == "numpy" or not self.n_rows:
            return None
        if any(not validity and self.nullable[position] for position, validity in parts):
            return None
        if len(self.files) > _QUICK_FILES or not all(isinstance(file, LocalFile) for file in self.files):
            return None
        dtypes = tuple(self.part_dtype(part) for part in parts)
        if not self.mapped or not all(dtype.isnative for dtype in dtypes):
            return None
        ends = np.array([entry.committed_end for entry in self.plan.files], np.int64)
        files = np.ascontiguousarray(self.plan.segments.file, np.int32)
        table = self.table(parts)
        return QuickRows(table, table.keep, dtypes, ends, files, QUICK_ROWS)

    @contextlib.contextmanager
    def arena(self) -> Iterator[buffers.Arena]:
        """Lend memory for one read; the same again to the next one, another to one that comes at the same time."""
        with self._lock:
            arena = self._arenas.pop() if self._arenas else buffers.Arena()
        try:
            yield arena
        finally:
            arena.reset()
            with self._lock:
                self._arenas.append(arena)

    # -- places that were assumed

    def look_at(self, segments: NDArray[np.bool_]) -> None:
        """Have the places of these segments looked at, where they were assumed; after this `plan` is right about them.

        For whoever draws conclusions from the rows of a segment: one round of small reads at most. If a segment is not
        where it was assumed to be, all files are walked and `plan` has other segments, as many as before.

        Parameters
        ----------
        segments : ndarray of bool, shape (S,)
            Of a source of whole files.
        """
        if type(self.files) is LocalFiles:
            return
        try:
            places.look_at(self.plan.segments, self.files, segments)
        except PlacesMovedError:
            self._moved = self.walked()[0]
            self.plan = self._moved.plan

    def walked(self) -> tuple[Source, int]:
        """Return a source of the whole files whose records were all looked at, and its row that is row 0 of this one.

        For a read that found that a record is not where it was assumed to be; memoised.

        Raises
        ------
        FormatError
            If a file is damaged.
        """
        if self._walked is None:
            plan, files, first_row = places.looked_up(self.plan, self.files)
            self._walked = (
                Source(plan, files, backend=self.backend, max_workers=self.max_workers),
                first_row,
            )
        return self._walked

    # -- derived sources

    def restrict(
        self, low: int, high: int, names: Sequence[str], *, categories: Collection[str] = ()
    ) -> Source:
        """Return a source of segments [low, high) and columns `names` alone: an address-complete task descriptor.

        See `DatasetPlan.restrict`.
        """
        if self._moved is not None:
            return self._moved.restrict(low, high, names, categories=categories)
        plan = self.plan
        first, last = (
            (int(plan.segments.file[low]), int(plan.segments.file[high - 1])) if high > low else (0, -1)
        )
        return Source(
            plan.restrict(low, high, names, categories=categories),
            self.files[first : last + 1],
            backend=self.backend,
            max_workers=self.max_workers,
        )

    @cached_property
    def statistics(self) -> tuple[Statistics | None, ...]:
        """Statistics of each file; those that the open did not bring along are fetched in one round, once."""
        if not self.metas or (type(self.metas) is Siblings and not self.metas.may_have_statistics):
            return (None,) * len(self.files)
        self.metas = tuple(formats.read_statistics(self.files, self.metas))
        return tuple(meta.statistics for meta in self.metas)

    def statistics_of(self, name: str) -> Mapping[str, NDArray[Any]] | None:
        """Return ``minimum``, ``maximum`` and ``usable`` per segment of a physical column.

        None when no file has statistics of it.
        """
        known = self.statistics
        if not any(s is not None and name in s.minimum for s in known):
            return self._partition_bounds(name)
        return joined_statistics(known, self._segments_of_file, name)

    def _partition_bounds(self, name: str) -> Mapping[str, NDArray[Any]] | None:
        """Return the bounds of a text column by which a manifest has put files into folders; None without one."""
        if not self.partitions or name not in self.schema or self.schema[name].dtype.kind not in "UO":
            return None
        values = [None if partition is None else partition.get(name) for partition in self.partitions]
        usable = np.repeat([isinstance(value, str) for value in values], self._segments_of_file)
        if not usable.any():
            return None
        bound = np.repeat(
            np.array([v if isinstance(v, str) else "" for v in values], np.str_), self._segments_of_file
        )
        return {"minimum": bound, "maximum": bound, "usable": usable}

    def null_counts_of(self, name: str) -> NDArray[np.int64] | None:
        """Return the number of nulls of a column per segment, -1 where a file does not say; None where none does."""
        known = self.statistics
        if not any(s is not None and name in s.nulls for s in known):
            return None
        return np.concatenate(
            [
                np.full(n_segments, -1) if s is None or name not in s.nulls else s.nulls[name]
                for s, n_segments in zip(known, self._segments_of_file, strict=True)
            ]
        )

    @cached_property
    def _segments_of_file(self) -> list[int]:
        counts: list[int] = np.bincount(self.plan.segments.file, minlength=len(self.plan.files)).tolist()
        return counts

    @cached_property
    def blocks(self) -> BlockTable | None:
        """Bounds per block of rows from the files' indexes, looked for once; None when no file has one."""
        if not self.metas:
            return None
        known = formats.read_blocks(self.files, self.metas)
        if all(statistics is None for statistics in known):
            return None
        return BlockTable.of(known, [entry.rows for entry in self.plan.files])

    def close(self) -> None:
        """Drop the mappings and tables; arrays handed out stay valid."""
        self._prepare()
        if type(self.files) is LocalFiles:
            self.files.close()
            return
        for file in self.files:
            file.close()
