"""Pieces of a selection, fetched and decoded.

A job decodes one column of one piece, or all columns of it where they lie in the same bytes, hands the rows that are
wanted to the result of the column, and drops the rest. Bytes of mapped files are where they are; of others those of
`WAVE_BYTES` are fetched in one round, while nothing is decoded.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import config, threads
from .chunk_cache import Key
from .dataset import Source
from .formats import Allocate, DecodedColumn, Decoder, TakingDecoder
from .jobs import AHEAD, Job, run_all, run_in_order, run_queue
from .pieces import Cut, Piece
from .results import Collected, JoinedResult, Result
from .storage import read_ranges
from .taking import Take

__all__ = ["WAVE_BYTES", "Loader"]

GROUP_BYTES = 64 << 20
"""Decoded bytes of segments that are decoded together when they are iterated over."""

SMALL_JOB_BYTES = 1 << 14
"""Stored bytes of a column of a segment below which a read stays in its thread: the interpreter has most of such a job.

30 columns of 5 KB took two threads on two cores no less time than one, and at times three times as much."""

PLANNED_JOBS = 1024
"""Jobs up to which all are made before the first is run, while no other thread wants to run Python code."""

WAVE_BYTES = 64 << 20
"""Stored bytes that are fetched at once, beside those of one segment."""

Fetched = dict[tuple[int, int, int], memoryview]
"""Stored bytes by file, offset and length."""


@dataclass(frozen=True, slots=True)
class _Load:
    """Columns of a piece that are fetched and decoded together.

    Attributes
    ----------
    numbers : list of int
        Which of the loader's fields.
    rows : (int, int)
        Rows of the segment that are decoded: those of the piece, or all of them.
    keep : bool
        Whether the decoded columns go into the source's cache.
    ranges : list of (int, int)
        Where their bytes are in the file.
    """

    numbers: list[int]
    rows: tuple[int, int]
    keep: bool
    ranges: list[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class _Plan:
    """What is to be decoded of a piece, and which columns of it are here already."""

    piece: Piece
    loads: list[_Load]
    here: list[tuple[int, DecodedColumn]]


class _Wanted:
    """The rows that the jobs of one piece take, computed by the first of them and dropped by the last."""

    def __init__(self, cut: Cut, piece: Piece, users: int) -> None:
        self._cut, self._piece, self._users = cut, piece, users
        self._take: Take | None = None
        self._lock = threading.Lock()

    def get(self) -> Take | None:
        with self._lock:
            if self._take is None:
                self._take = self._cut.take(self._piece)
            return self._take

    def done(self) -> None:
        with self._lock:
            self._users -= 1
            if self._users <= 0:
                self._take = None


class Loader:
    """Decodes pieces of some fields of a source.

    Parameters
    ----------
    source : Source
        With decoders.
    positions : sequence of int
        Of the fields in the schema.
    dictionaries : collection of str
        Columns that may come as dictionary arrays.
    allocate : callable, optional
        Memory of what is decoded and not picked from.
    caching : bool
        Whether a part of a chunk that is read again and again makes the source keep all of it.
    """

    def __init__(
        self,
        source: Source,
        positions: Sequence[int],
        dictionaries: Collection[str] = (),
        allocate: Allocate | None = None,
        *,
        caching: bool = True,
    ) -> None:
        self.source = source
        self.positions = positions
        self.fields = [source.schema.fields[p] for p in positions]
        self.categorical = [n for n, f in enumerate(self.fields) if f.name in dictionaries]
        self._allocate = allocate
        self._columns: dict[int, list[int]] = {}  # by layout
        self._limit = config.get_decoded_cache_bytes() if caching else 0
        self._room = self._limit  # what this read may still decode to be kept
        self._maps = source.mappings()
        self._kinds: dict[type, bool] = {}
        self.fetched: Fetched = {}
        """Stored bytes that need not be fetched: what another loader of these columns has left."""

    @cached_property
    def first_segment(self) -> NDArray[np.int64]:
        """Number of the first segment of each file."""
        plan = self.source.plan
        return np.searchsorted(plan.segments.file, np.arange(len(plan.files)))

    def _takes(self, decoder: Decoder) -> bool:
        """Tell whether a decoder picks rows; asked once, as it takes as long as a small chunk."""
        kind = type(decoder)
        found = self._kinds.get(kind)
        if found is None:
            found = self._kinds[kind] = isinstance(decoder, TakingDecoder)
        return found

    def columns(self, file: int) -> list[int]:
        """Return the numbers of the fields in a file."""
        plan = self.source.plan
        layout = plan.files[file].layout
        found = self._columns.get(layout)
        if found is None:
            found = self._columns[layout] = plan.layouts[layout].columns(self.positions)
        return found

    def run(self, cut: Cut, results: Sequence[Result], pieces: Sequence[Piece] | None = None) -> None:
        """Decode pieces, by default all of them, and put their columns into `results`.

        Afterwards `fetched` has the stored bytes of all pieces if they were fetched in one round.
        """
        self.source.check_sizes()
        pieces = cut.pieces if pieces is None else pieces
        if not self.fields or not pieces:
            return
        if len(pieces) == 1:
            self._run_one(cut, results, pieces[0])
            return
        chained = any(isinstance(result, JoinedResult) and result.ordered for result in results)
        if self._mapped(pieces) and not chained:
            self._run(_Batch(self, cut, results, pieces, None), chained)
            return
        waves = 0
        for plans in self._waves(cut, results, pieces):
            waves += 1
            if waves > 1:
                self.fetched = {}
            self._fetch(plans)
            self._run(_Batch(self, cut, results, [plan.piece for plan in plans], plans), chained)
        if waves > 1:
            self.fetched = {}

    def _run_one(self, cut: Cut, results: Sequence[Result], piece: Piece) -> None:
        plan = self.plan(cut, results, piece)
        if plan.loads:
            self._fetch([plan])
            self._run(_Batch(self, cut, results, [piece], [plan]), False)
            return
        # All of it is here already: nothing is worth a thread.
        take = cut.take(piece)
        for number, whole in plan.here:
            column = _picked(whole, 0, piece, take, results[number])
            results[number].put(piece, take, column, shared=take is None)

    def in_groups(self, cut: Cut) -> Iterator[tuple[Sequence[Piece], list[Collected]]]:
        """Decode whole segments, some at once: those of `GROUP_BYTES`, or `AHEAD` a thread if these are more.

        Of many columns fewer, as they keep the threads busy; one at least.

        Yields
        ------
        (pieces, results)
            One result for each field.
        """
        cap = self._cap()
        size = AHEAD * cap
        if cut.pieces and self.fields:
            # As many jobs as keep the threads busy, or as many segments as nobody minds to hold.
            piece = max(cut.pieces, key=lambda piece: piece.count)
            one = self._decoded_bytes(piece, range(len(self.fields)), piece.count)
            size = max(1, min(size, 2 * size // len(self.fields)), GROUP_BYTES // max(1, int(one)))
        results = [Collected() for _ in self.fields]
        if self._mapped(cut.pieces):
            for at in range(0, len(cut.pieces), size):
                pieces = cut.pieces[at : at + size]
                self.run(cut, results, pieces)
                yield pieces, results
            return
        self.source.check_sizes()
        for plans in self._waves(cut, results, cut.pieces):
            self.fetched = {}
            self._fetch(plans)
            for at in range(0, len(plans), size):
                part = plans[at : at + size]
                pieces = [plan.piece for plan in part]
                if self.fields:
                    self._run(_Batch(self, cut, results, pieces, part), False)
                yield pieces, results

    def _cap(self) -> int:
        cap = self.source.thread_cap()
        return cap if cap > 0 else threads.budget()

    def _mapped(self, pieces: Sequence[Piece]) -> bool:
        if all(mapping is not None for mapping in self._maps):
            return True
        file = self.source.plan.segments.file
        return all(self._maps[int(file[piece.segment])] is not None for piece in pieces)

    def _waves(self, cut: Cut, results: Sequence[Result], pieces: Sequence[Piece]) -> Iterator[list[_Plan]]:
        plans: list[_Plan] = []
        weight = 0
        for piece in pieces:
            plan = self.plan(cut, results, piece)
            weight += sum(length for load in plan.loads for _, length in load.ranges)
            plans.append(plan)
            if weight >= WAVE_BYTES:
                yield plans
                plans, weight = [], 0
        if plans:
            yield plans

    def plan(self, cut: Cut, results: Sequence[Result], piece: Piece) -> _Plan:
        """Return what is known of a piece already, and what is to be decoded for the rest of it."""
        n_rows = int(self.source.plan.segments.rows[piece.segment])
        numbers = list(range(len(self.fields)))
        if not self._limit or (piece.rows == (0, n_rows) and not cut.picks(piece)):
            return self._whole_plan(results, piece, numbers, n_rows)
        joined = [number for number in numbers if results[number].whole_segments]
        numbers = [number for number in numbers if number not in joined]
        cache = self.source.decoded
        cold, hot, here = [], [], []
        for number in numbers:
            key = self._key(piece, number)
            whole = cache.get(key)
            if whole is not None:
                here.append((number, whole))
                continue
            size = self._decoded_bytes(piece, [number], n_rows)
            if size <= self._room and cache.wants(key):
                self._room -= size
                hot.append(number)
            else:
                cold.append(number)
        file = int(self.source.plan.segments.file[piece.segment])
        if hot and cold and not self.source.plan.decoders[file].independent:
            cold, hot = sorted(cold + hot), []  # all columns lie in the same bytes: once is enough
        loads = []
        if joined:  # cut at an end of a range: whole all the same
            loads.append(self._load(piece, joined, (0, n_rows), False))
        if cold:
            loads.append(self._load(piece, cold, piece.rows, False))
        if hot:
            loads.append(self._load(piece, hot, (0, n_rows), True))
        return _Plan(piece, loads, here)

    def _whole_plan(self, results: Sequence[Result], piece: Piece, numbers: list[int], n_rows: int) -> _Plan:
        """Return the plan of a piece that the cache has no part in."""
        joined = [number for number in numbers if results[number].whole_segments]
        if not joined or piece.rows == (0, n_rows):
            return _Plan(piece, [self._load(piece, numbers, piece.rows, False)], [])
        loads = [self._load(piece, joined, (0, n_rows), False)]
        rest = [number for number in numbers if number not in joined]
        if rest:
            loads.append(self._load(piece, rest, piece.rows, False))
        return _Plan(piece, loads, [])

    def _key(self, piece: Piece, number: int) -> Key:
        return piece.segment, self.positions[number], number in self.categorical

    def _decoded_bytes(self, piece: Piece, numbers: Sequence[int], n_rows: int) -> int:
        """Return about how many bytes rows of some fields take."""
        fixed = sum(self.fields[n].row_bytes for n in numbers if not self.fields[n].variable)
        variable = [n for n in numbers if self.fields[n].variable]
        if not variable:
            return n_rows * fixed
        file = int(self.source.plan.segments.file[piece.segment])
        columns = self.columns(file)
        decoder = self.source.plan.decoders[file]
        return int(n_rows * (fixed + decoder.decoded_row_bytes([columns[n] for n in variable])))

    def _load(self, piece: Piece, numbers: list[int], rows: tuple[int, int], keep: bool) -> _Load:
        file = int(self.source.plan.segments.file[piece.segment])
        columns = self.columns(file)
        local = piece.segment - int(self.first_segment[file])
        ranges = self.source.plan.decoders[file].ranges(local, [columns[n] for n in numbers], rows)
        return _Load(numbers, rows, keep, ranges)

    def _fetch(self, plans: Sequence[_Plan]) -> None:
        """Fetch the bytes of plans that are not mapped, in one round."""
        keys: list[tuple[int, int, int]] = []
        for plan in plans:
            file = int(self.source.plan.segments.file[plan.piece.segment])
            if self._maps[file] is None:
                keys += [(file, *place) for load in plan.loads for place in load.ranges]
        keys = [key for key in dict.fromkeys(keys) if key not in self.fetched]
        if not keys:
            return
        requests = [(self.source.files[file], offset, length) for file, offset, length in keys]
        self.fetched.update(zip(keys, read_ranges(requests), strict=True))

    def _data(self, file: int, ranges: Sequence[tuple[int, int]]) -> list[Any]:
        mapping = self._maps[file]
        if mapping is not None:
            return [mapping.data[offset : offset + length] for offset, length in ranges]
        return [self.fetched[file, offset, length] for offset, length in ranges]

    def _run(self, batch: _Batch, chained: bool) -> None:
        """Decode the pieces of a batch, as many at once as threads are free."""
        weight = batch.weight()
        small = weight < SMALL_JOB_BYTES * batch.count * len(self.fields)
        with threads.lease(1 if small else threads.wanted_threads(weight, self._cap())) as granted:
            if chained or batch.count <= AHEAD * granted or (batch.known and batch.free):
                run_all(batch.all_jobs(), granted)
            elif batch.known and batch.settled is None:
                run_queue(batch.all_jobs(), granted)
            else:
                run_in_order(batch.jobs, batch.count, granted, batch.settled)

    def jobs(self, cut: Cut, results: Sequence[Result], plan: _Plan) -> list[Job]:
        """Return what is to be done for a piece."""
        piece = plan.piece
        file = int(self.source.plan.segments.file[piece.segment])
        independent = self.source.plan.decoders[file].independent
        parts: list[tuple[_Load, list[int], list[tuple[int, int]]]] = []
        for load in plan.loads:
            if independent:
                parts += [
                    (load, [number], [place]) for number, place in zip(load.numbers, load.ranges, strict=True)
                ]
            else:
                parts.append((load, load.numbers, load.ranges))
        wanted = _Wanted(cut, piece, len(parts) + len(plan.here))
        jobs = []
        for load, numbers, ranges in parts:
            chain = None
            result = results[numbers[0]]
            if independent and isinstance(result, JoinedResult) and result.ordered:
                chain = numbers[0]
            run = self._decoding(piece, file, load, numbers, ranges, results, wanted)
            jobs.append(Job(sum(length for _, length in ranges), run, chain))
        for number, whole in plan.here:
            weight = piece.count * self.fields[number].row_bytes
            jobs.append(Job(weight, self._picking(piece, number, whole, results, wanted)))
        return jobs

    def _decoding(
        self,
        piece: Piece,
        file: int,
        load: _Load,
        numbers: Sequence[int],
        ranges: Sequence[tuple[int, int]],
        results: Sequence[Result],
        wanted: _Wanted,
    ) -> Callable[[int], None]:
        decoder: Any = self.source.plan.decoders[file]
        local = piece.segment - int(self.first_segment[file])
        all_columns = self.columns(file)
        columns = [all_columns[number] for number in numbers]
        dictionaries = [c for n, c in zip(numbers, columns, strict=True) if n in self.categorical]
        taking = self._takes(decoder)
        data = self._data(file, ranges)

        def run(granted: int) -> None:
            joined = results[numbers[0]].whole_segments
            take = None if joined else wanted.get()
            shared = load.keep
            if take is not None and not load.keep and taking:
                decoded = decoder.take(
                    local,
                    columns,
                    data,
                    take,
                    out=[results[number].target(piece, take) for number in numbers],
                    threads=granted,
                    dictionaries=dictionaries,
                )
            else:
                direct = take is None and not load.keep
                decoded = decoder.decode(
                    local,
                    columns,
                    data,
                    rows=load.rows,
                    out=[results[number].out(piece) for number in numbers] if direct else None,
                    threads=granted,
                    dictionaries=dictionaries,
                    allocate=self._allocate if direct else None,
                )
                shared = not direct
            for number in numbers:
                column = decoded.pop(0)
                if load.keep:
                    self.source.decoded.put(self._key(piece, number), column)
                if shared:
                    column = _picked(column, load.rows[0], piece, take, results[number])
                results[number].put(piece, take, column, shared=load.keep and take is None)
            wanted.done()

        return run

    def _picking(
        self, piece: Piece, number: int, whole: DecodedColumn, results: Sequence[Result], wanted: _Wanted
    ) -> Callable[[int], None]:
        def run(granted: int) -> None:
            take = wanted.get()
            column = _picked(whole, 0, piece, take, results[number])
            results[number].put(piece, take, column, shared=take is None)
            wanted.done()

        return run


class _Batch:
    """Pieces whose bytes are at hand.

    Attributes
    ----------
    count : int
    known : bool
        Whether they are few enough for all jobs to be made at once.
    free : bool
        Whether nothing is held for a piece before it is begun or after it has ended, so that any order will do.
    settled : callable or None
        See `run_in_order`.
    """

    def __init__(
        self,
        loader: Loader,
        cut: Cut,
        results: Sequence[Result],
        pieces: Sequence[Piece],
        plans: list[_Plan] | None,
    ) -> None:
        self._loader, self._cut, self._results, self._pieces = loader, cut, results, pieces
        self._plans = plans
        self._made: dict[int, list[Job]] = {}
        self.count = len(pieces)
        self.known = self.count * len(loader.fields) <= PLANNED_JOBS
        self.free = not any(cut.picks(piece) for piece in pieces)
        ordered = [result for result in results if result.settled() is not None]
        self.settled: Callable[[], int] | None = None
        if ordered:
            self.free = False
            first = pieces[0].number
            self.settled = lambda: min(result.settled() or 0 for result in ordered) - first

    def jobs(self, number: int) -> list[Job]:
        """Return the jobs of a piece, once."""
        found = self._made.pop(number, None)
        if found is not None:
            return found
        if self._plans is None:
            plan = self._loader.plan(self._cut, self._results, self._pieces[number])
        else:
            plan = self._plans[number]
        return self._loader.jobs(self._cut, self._results, plan)

    def all_jobs(self) -> list[Job]:
        """Return the jobs of all pieces, one piece after the other."""
        return [job for number in range(self.count) for job in self.jobs(number)]

    def weight(self) -> int:
        """Return how many stored bytes all pieces have, or about how many."""
        if self._plans is not None:
            return sum(length for plan in self._plans for load in plan.loads for _, length in load.ranges)
        numbers = range(self.count if self.known else 1)
        for number in numbers:
            self._made[number] = self.jobs(number)
        weight = sum(job.weight for number in numbers for job in self._made[number])
        return weight * self.count // len(numbers)


def _picked(
    column: DecodedColumn, first: int, piece: Piece, take: Take | None, result: Result
) -> DecodedColumn:
    """Return the wanted rows of a piece out of a decoded range that begins with row `first` of the segment.

    As `TakingDecoder.take` gives them; without `take`, as `Decoder.decode` does, but an array is a slice.
    """
    start, stop = piece.rows
    if take is None:
        if column.array is not None:
            return DecodedColumn(array=column.array.slice(start - first, stop - start))
        out = result.out(piece)
        values: NDArray[Any] | None = None
        if column.values is not None:
            values = column.values[start - first : stop - first]
            if out is not None:
                out[...] = values
                values = out
        validity = column.validity
        return DecodedColumn(values, None if validity is None else validity[start - first : stop - first])
    if column.array is not None:
        return DecodedColumn(array=_taken(column.array.slice(start - first, stop - start), take))
    values = result.target(piece, take)
    if column.values is not None and values is not None:
        take.put(start, column.values[start - first : stop - first], values)
    validity = column.validity
    if validity is not None:
        validity = take.pick(start, validity[start - first : stop - first])
    return DecodedColumn(values, validity)


def _taken(array: Any, take: Take) -> Any:
    import pyarrow as pa

    if take.mask is not None:
        return array.filter(pa.array(take.mask))
    return array.take(pa.array(take.positions()))
