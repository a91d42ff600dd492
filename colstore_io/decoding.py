"""Rows of segments that are decoded whole.

The counterpart of `gather` for formats without addresses: fetch the chunks that a selection touches, in waves of
bounded size; decode them in parallel, by one column of one segment or by one segment; and put the wanted rows in their
place. A range of rows decodes straight into the result.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from . import buffers, config, threads
from .chunk_cache import Key
from .dataset import Source
from .fields import native
from .formats import Allocate, DecodedColumn, JoiningDecoder, ValueRoom
from .joining import Joiner
from .ready import ready_column
from .selection import Index, Mask, Range, RowSelection, out_of_range
from .storage import read_ranges

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Columns", "read_columns", "read_segments"]

WAVE_BYTES = 64 << 20
"""Stored bytes of the segments that are decoded at once, beside one segment a thread."""

LEAST_JOINED = 4
"""A range is decoded with the rest of the segments that it cuts if that is no more than a fourth of all."""

Columns: TypeAlias = "list[NDArray[Any] | tuple[NDArray[Any], NDArray[np.bool_]] | pa.Array]"
"""For each field an array; for a nullable one of fixed width (values, validity); for variable length an Arrow array."""


@dataclass(frozen=True, slots=True)
class _Piece:
    """Rows of one segment that are wanted.

    Attributes
    ----------
    segment : int
    rows : (int, int)
        Rows within the segment that are decoded.
    take : ndarray, slice or None
        Which of these are wanted, in which order: positions or a mask. None is all.
    place : slice or ndarray of int64
        Where they go in the result.
    number : int
        Of the piece, among all pieces of a selection: which room it has in what joins them (`joining`).
    """

    segment: int
    rows: tuple[int, int]
    take: NDArray[Any] | slice | None
    place: Any
    number: int


def read_columns(
    source: Source,
    rows: RowSelection,
    positions: Sequence[int],
    out: Sequence[NDArray[Any] | None] | None = None,
    *,
    dictionaries: Collection[str] = (),
    allocate: Allocate | None = None,
) -> Columns:
    """Read the selected rows of fields.

    Parameters
    ----------
    source : Source
        With decoders.
    rows : RowSelection
    positions : sequence of int
        Of fields in the schema; repeats allowed.
    out : sequence of ndarray or None, optional
        Targets of fixed-width fields: shape (rows.count,), native dtype.
    dictionaries : collection of str
        Columns that may come as Arrow dictionary arrays.
    allocate : callable, optional
        Memory of the results of a contiguous range.

    Raises
    ------
    IndexError
        If a row is out of range; nothing was read or written then.
    FormatError
        If a chunk is damaged, naming file, segment and column. A given `out` is unspecified then.
    ValueError
        If `out` overlaps memory that is read from; nothing is written then.

    Notes
    -----
    Peak memory: the result, the stored bytes of one wave (`WAVE_BYTES`), of a range of text the rest of the segments
    that it cuts, and for selections other than a contiguous range the decoded segments of one wave; besides, what the
    source keeps of chunks that are read in part again and again (``config.get_decoded_cache_bytes()``, 32 MiB).
    """
    if out is not None:
        source.refuse_overlap([target for target in out if target is not None])
    if isinstance(rows, Range) and rows.covers(source.n_rows):
        found = _ready_columns(source, positions, out, allocate)
        rest = [number for number in range(len(positions)) if number not in found]
        if found:
            if rest:
                given = None if out is None else [out[number] for number in rest]
                others = [positions[number] for number in rest]
                read = _read_columns(source, rows, others, given, dictionaries, allocate)
                found.update(zip(rest, read, strict=True))
            return [found[number] for number in range(len(positions))]
    return _read_columns(source, rows, positions, out, dictionaries, allocate)


def _ready_columns(
    source: Source,
    positions: Sequence[int],
    out: Sequence[NDArray[Any] | None] | None,
    allocate: Allocate | None,
) -> dict[int, Any]:
    """Return all rows of the fields that have a short road, by their number among `positions`."""
    found: dict[int, Any] = {}
    checked = False
    for number, position in enumerate(positions):
        ready = ready_column(source, (position, False))
        if ready is None:
            continue
        if not checked:
            source.check_sizes()
            checked = True
        target = None if out is None else out[number]
        if target is None and allocate is not None:
            target = allocate(source.n_rows * ready.dtype.itemsize).view(ready.dtype)
        values = ready.read(source, target)
        if values is not None:
            found[number] = values
    return found


def _read_columns(
    source: Source,
    rows: RowSelection,
    positions: Sequence[int],
    out: Sequence[NDArray[Any] | None] | None,
    dictionaries: Collection[str],
    allocate: Allocate | None,
) -> Columns:
    pieces, order = _pieces(source, rows)
    count = rows.count
    reader = _Reader(source, positions, dictionaries, allocate)
    targets = reader.targets(count, out)
    joiners = reader.join(pieces, targets)
    validity: list[NDArray[np.bool_] | None] = [None] * len(positions)
    parts: list[list[pa.Array]] = [[] for _ in positions]
    for piece, decoded in reader.run(pieces, targets):
        for number, column in enumerate(decoded):
            if number in joiners:
                continue
            if column.array is not None:
                array = column.array
                parts[number].append(array if piece.take is None else _taken(array, piece.take))
                continue
            target = targets[number]
            assert isinstance(target, np.ndarray)
            if column.values is not None and piece.take is not None:
                target[piece.place] = column.values[piece.take]
            if column.validity is not None:
                mask = validity[number]
                if mask is None and piece.take is None and len(column.validity) == count:
                    validity[number] = column.validity
                    continue
                if mask is None:
                    mask = validity[number] = np.ones(count, np.bool_)
                mask[piece.place] = column.validity if piece.take is None else column.validity[piece.take]
    result: Columns = []
    for number, position in enumerate(positions):
        field = source.schema.fields[position]
        if number in joiners:
            targets[number] = None
            result.append(joiners.pop(number).finish())
        elif field.variable:
            result.append(_joined(field, parts[number], order))
        elif field.nullable:
            mask = validity[number]
            result.append((targets[number], np.ones(count, np.bool_) if mask is None else mask))
        else:
            result.append(targets[number])
    return result


def read_segments(
    source: Source, positions: Sequence[int], *, dictionaries: Collection[str] = (), share: bool = False
) -> Iterator[Columns]:
    """Yield the fields of each segment that has rows, in order; a wave of segments is decoded at once.

    Parameters
    ----------
    source : Source
    positions : sequence of int
    dictionaries : collection of str
        As in `read_columns`.
    share : bool, default False
        Give read-only views of mapped files where values are stored as they are in memory.
    """
    table = source.plan.segments
    numbers = np.flatnonzero(table.rows > 0).tolist()
    roads = [ready_column(source, (position, False)) for position in positions]
    slow = [number for number, road in enumerate(roads) if road is None]
    decoded = _decoded_segments(source, numbers, [positions[number] for number in slow], dictionaries)
    for index, s in enumerate(numbers):
        if index == 0 and len(slow) < len(roads):
            source.check_sizes()
        columns: Columns = [
            None if road is None else road.segment(source, index, share=share) for road in roads
        ]
        if slow:
            for number, column in zip(slow, next(decoded), strict=True):
                columns[number] = column
        for number, column in enumerate(columns):
            if column is None:  # damaged: the ordinary way says where
                rows = Range(int(table.row_start[s]), 1, int(table.rows[s]))
                (columns[number],) = _read_columns(source, rows, [positions[number]], None, (), None)
        yield columns


def _decoded_segments(
    source: Source, numbers: Sequence[int], positions: Sequence[int], dictionaries: Collection[str]
) -> Iterator[Columns]:
    table = source.plan.segments
    pieces = [
        _Piece(s, (0, int(table.rows[s])), None, slice(0, int(table.rows[s])), number)
        for number, s in enumerate(numbers)
    ]
    reader = _Reader(source, positions, dictionaries, None)
    fields = [source.schema.fields[p] for p in positions]
    for piece, decoded in reader.run(pieces, None):
        n_rows = piece.rows[1]
        columns: Columns = []
        for field, column in zip(fields, decoded, strict=True):
            if column.array is not None:
                columns.append(column.array)
            elif field.nullable:
                mask = np.ones(n_rows, np.bool_) if column.validity is None else column.validity
                columns.append((column.values, mask))
            else:
                columns.append(column.values)
        yield columns


# ----------------------------------------------------------------------------------------------------------
# Which rows of which segments


def _pieces(source: Source, rows: RowSelection) -> tuple[list[_Piece], NDArray[np.int64] | None]:
    """Cut a selection at segment borders.

    Returns
    -------
    (pieces, order)
        In segment order. `order[k]` is where the k-th row of the pieces, one after the other, belongs in the result;
        None when they are in order.
    """
    table = source.plan.segments
    if rows.count == 0:
        return [], None
    if isinstance(rows, Range) and rows.step == 1:
        low, high = table.span(rows.start, rows.stop)
        pieces: list[_Piece] = []
        for s in range(low, high):
            origin = int(table.row_start[s])
            first, stop = max(rows.start, origin), min(rows.stop, int(table.row_start[s + 1]))
            if stop > first:
                place = slice(first - rows.start, stop - rows.start)
                pieces.append(_Piece(s, (first - origin, stop - origin), None, place, len(pieces)))
        return pieces, None
    if isinstance(rows, Mask):
        return _mask_pieces(table.row_start, rows.mask), None
    if isinstance(rows, Index) and not rows.checked:
        bad = source.kernel_module().first_out_of_range(rows.rows, source.n_rows)
        if bad >= 0:
            raise out_of_range(int(rows.rows[bad]), source.n_rows)
    positions = rows.positions(source.n_rows)
    order: NDArray[np.int64] | None = None
    if positions.shape[0] > 1 and not bool((positions[1:] >= positions[:-1]).all()):
        order = np.argsort(positions, kind="stable")
        positions = positions[order]
    numbers = table.locate(positions)
    edges = np.flatnonzero(np.diff(numbers)) + 1
    pieces = []
    for first, stop in zip([0, *edges.tolist()], [*edges.tolist(), positions.shape[0]], strict=True):
        s = int(numbers[first])
        local = positions[first:stop] - table.row_start[s]
        low = int(local[0])
        target: Any = slice(first, stop) if order is None else order[first:stop]
        pieces.append(_Piece(s, (low, int(local[-1]) + 1), local - low, target, len(pieces)))
    return pieces, order


def _mask_pieces(row_start: NDArray[np.int64], mask: NDArray[np.bool_]) -> list[_Piece]:
    pieces: list[_Piece] = []
    done = 0
    for s in range(row_start.shape[0] - 1):
        own = mask[int(row_start[s]) : int(row_start[s + 1])]
        count = int(np.count_nonzero(own))
        if count == 0:
            continue
        first = int(own.argmax())
        stop = own.shape[0] - int(own[::-1].argmax())
        take = None if count == stop - first else own[first:stop]
        pieces.append(_Piece(s, (first, stop), take, slice(done, done + count), len(pieces)))
        done += count
    return pieces


def _taken(array: pa.Array, take: Any) -> pa.Array:
    import pyarrow as pa

    chosen = pa.array(take)
    return array.filter(chosen) if take.dtype == np.bool_ else array.take(chosen)


def _joined(field: Any, parts: list[pa.Array], order: NDArray[np.int64] | None) -> pa.Array:
    import pyarrow as pa
    import pyarrow.compute as pc

    from .arrays import arrow_type

    if not parts:
        return pa.array([], arrow_type(field))
    if len({part.type for part in parts}) > 1:
        # One chunk too large for 32-bit offsets, or only some chunks are dictionaries, or not UTF-8.
        plain = [part.dictionary_decode() if isinstance(part, pa.DictionaryArray) else part for part in parts]
        widest = max((part.type for part in plain), key=lambda t: _WIDTHS.get(str(t), 0))
        parts = [part.cast(widest) for part in plain]
    elif len(parts) > 1 and isinstance(parts[0], pa.DictionaryArray):
        whole = pa.chunked_array(parts).unify_dictionaries()
        parts = whole.chunks
    if len(parts) == 1:
        array = parts[0]
    else:
        total = sum(part.nbytes for part in parts)
        if total >= _INT32_MAX and str(parts[0].type) in ("string", "binary"):
            wide = pa.large_string() if str(parts[0].type) == "string" else pa.large_binary()
            parts = [part.cast(wide) for part in parts]
        array = pa.concat_arrays(parts)
    if order is not None:
        places = np.empty(order.shape[0], np.int64)
        places[order] = np.arange(order.shape[0])
        array = pc.take(array, pa.array(places))
    return array


_INT32_MAX = (1 << 31) - 1
_WIDTHS = {"string": 1, "large_string": 2, "binary": 3, "large_binary": 4}
"""Which type holds the values of the others."""


# ----------------------------------------------------------------------------------------------------------
# Fetch and decode


@dataclass(frozen=True, slots=True)
class _Load:
    """Columns of a piece that are fetched and decoded together.

    Attributes
    ----------
    piece : _Piece
    numbers : list of int
        Which of the reader's fields.
    rows : (int, int)
        Rows of the segment that are decoded: those of the piece, or all of them to be kept.
    keep : bool
        Whether the decoded columns go into the source's cache.
    ranges : list of (int, int)
        Where their bytes are in the file.
    results : list of DecodedColumn or None
        Of all fields of the piece; shared by its loads.
    """

    piece: _Piece
    numbers: list[int]
    rows: tuple[int, int]
    keep: bool
    ranges: list[tuple[int, int]]
    results: list[DecodedColumn | None]


_Target: TypeAlias = "NDArray[Any] | Joiner | None"


class _Reader:
    """Decodes pieces of some fields of a source."""

    def __init__(
        self,
        source: Source,
        positions: Sequence[int],
        dictionaries: Collection[str],
        allocate: Allocate | None,
    ) -> None:
        self.source = source
        self.positions = positions
        self.fields = [source.schema.fields[p] for p in positions]
        self.allocate = allocate
        self.categorical = [n for n, f in enumerate(self.fields) if f.name in dictionaries]
        plan = source.plan
        self.first_segment = np.searchsorted(plan.segments.file, np.arange(len(plan.files)))

    def targets(self, count: int, out: Sequence[NDArray[Any] | None] | None) -> list[_Target]:
        targets: list[_Target] = []
        for number, field in enumerate(self.fields):
            given = None if out is None else out[number]
            if field.variable:
                if given is not None:
                    raise ValueError(f"column {field.name!r} has no fixed width: out= has no form for it")
                targets.append(None)
            elif given is None:
                targets.append(self._empty(count, native(field.dtype)))
            else:
                dtype = native(field.dtype)
                if given.dtype != dtype or given.shape != (count,):
                    raise ValueError(
                        f"out must have dtype {dtype} and shape ({count},), got {given.dtype} and {given.shape}"
                    )
                if not (given.flags.c_contiguous and given.flags.writeable):
                    raise ValueError("out must be C-contiguous and writable")
                targets.append(given)
        return targets

    def join(self, pieces: Sequence[_Piece], targets: list[_Target]) -> dict[int, Joiner]:
        """Put a `Joiner` among `targets` for each field of variable length whose segments are all read whole.

        A contiguous range may cut the first and the last one: they are decoded whole where that is little.

        Returns
        -------
        dict of int to Joiner
            By the number of the field.
        """
        plan = self.source.plan
        rows = [int(plan.segments.rows[piece.segment]) for piece in pieces]
        if len(pieces) < 2 or any(piece.take is not None for piece in pieces):
            return {}
        left_out = pieces[0].rows[0], rows[-1] - pieces[-1].rows[1]
        first = [left_out[0], *([0] * (len(rows) - 1))]
        stop = [*rows[:-1], rows[-1] - left_out[1]]
        if [piece.rows for piece in pieces] != list(zip(first, stop, strict=True)):
            return {}
        if sum(left_out) * LEAST_JOINED > sum(rows):
            return {}
        if not all(decoder.independent and isinstance(decoder, JoiningDecoder) for decoder in plan.decoders):
            return {}
        joiners = {}
        for number, field in enumerate(self.fields):
            if not field.variable or number in self.categorical:
                continue
            try:
                joiner = Joiner(rows, self._value_bytes(pieces, number), self.allocate, left_out=left_out)
            except MemoryError:  # reading one after the other says which it is that asks for so much
                continue
            joiners[number] = targets[number] = joiner
        return joiners

    def _value_bytes(self, pieces: Sequence[_Piece], number: int) -> list[int] | None:
        """Return how many bytes the values of a field have in each piece, if the files say so and are at hand."""
        plan, maps = self.source.plan, self.source.mappings()
        sizes = []
        for piece in pieces:
            file = int(plan.segments.file[piece.segment])
            mapping, decoder = maps[file], plan.decoders[file]
            if mapping is None or not isinstance(decoder, JoiningDecoder):
                return None
            column = self._columns(file)[number]
            local = piece.segment - int(self.first_segment[file])
            ((offset, length),) = decoder.ranges(local, [column])
            size = decoder.value_bytes(local, column, mapping.data[offset : offset + length])
            if size is None:
                return None
            sizes.append(size)
        return sizes

    def _empty(self, count: int, dtype: np.dtype[Any]) -> NDArray[Any]:
        if self.allocate is None:
            return buffers.empty(count, dtype)
        return self.allocate(count * dtype.itemsize).view(dtype)

    def run(
        self, pieces: Sequence[_Piece], targets: Sequence[_Target] | None
    ) -> Iterator[tuple[_Piece, list[DecodedColumn]]]:
        """Yield the pieces with their columns, in order. Values of pieces that are taken whole go into `targets`."""
        self.source.check_sizes()
        limit = config.get_decoded_cache_bytes()
        room = [limit]  # what this read may decode to be kept
        wave: list[tuple[_Piece, list[DecodedColumn | None], list[_Load]]] = []
        weight = 0
        for piece in pieces:
            results, loads = self._loads(piece, targets, room if limit else None)
            weight += sum(length for load in loads for _, length in load.ranges)
            wave.append((piece, results, loads))
            if weight >= WAVE_BYTES:
                yield from self._wave(wave, targets)
                wave, weight = [], 0
        if wave:
            yield from self._wave(wave, targets)

    def _loads(
        self, piece: _Piece, targets: Sequence[_Target] | None, room: list[int] | None
    ) -> tuple[list[DecodedColumn | None], list[_Load]]:
        """Return what is known of a piece already, and what is to be decoded for the rest of it."""
        results: list[DecodedColumn | None] = [None] * len(self.fields)
        n_rows = int(self.source.plan.segments.rows[piece.segment])
        numbers = list(range(len(self.fields)))
        if room is None or targets is None or (piece.take is None and piece.rows == (0, n_rows)):
            return results, [self._load(piece, numbers, piece.rows, False, results)]
        joined = [number for number in numbers if isinstance(targets[number], Joiner)]
        numbers = [number for number in numbers if number not in joined]
        cache = self.source.decoded
        cold, hot = [], []
        for number in numbers:
            key = self._key(piece, number)
            whole = cache.get(key)
            if whole is not None:
                results[number] = self._part(whole, piece, targets[number])
                continue
            size = self._decoded_bytes(piece, number, n_rows)
            if size <= room[0] and cache.wants(key):
                room[0] -= size
                hot.append(number)
            else:
                cold.append(number)
        file = int(self.source.plan.segments.file[piece.segment])
        if hot and cold and not self.source.plan.decoders[file].independent:
            cold, hot = sorted(cold + hot), []  # all columns lie in the same bytes: once is enough
        loads = []
        if joined:  # cut at an end of a range: whole all the same
            loads.append(self._load(piece, joined, (0, n_rows), False, results))
        if cold:
            loads.append(self._load(piece, cold, piece.rows, False, results))
        if hot:
            loads.append(self._load(piece, hot, (0, n_rows), True, results))
        return results, loads

    def _key(self, piece: _Piece, number: int) -> Key:
        return piece.segment, self.positions[number], number in self.categorical

    def _decoded_bytes(self, piece: _Piece, number: int, n_rows: int) -> int:
        field = self.fields[number]
        if not field.variable:
            return n_rows * field.row_bytes
        file = int(self.source.plan.segments.file[piece.segment])
        column = self._columns(file)[number]
        return int(n_rows * self.source.plan.decoders[file].decoded_row_bytes([column]))

    @staticmethod
    def _part(whole: DecodedColumn, piece: _Piece, target: _Target) -> DecodedColumn:
        """Return the rows of a piece from its whole segment, as `Decoder.decode` would give them: nothing shared."""
        first, stop = piece.rows
        if whole.array is not None:
            array = whole.array.slice(first, stop - first)
            if piece.take is None:  # else the caller takes rows, which copies
                import pyarrow as pa

                array = pa.concat_arrays([array])  # a copy: a view would keep the whole segment alive
            return DecodedColumn(array=array)
        assert whole.values is not None
        values = whole.values[first:stop]
        if piece.take is None and isinstance(target, np.ndarray):
            target[piece.place] = values
            values = target[piece.place]
        return DecodedColumn(values, None if whole.validity is None else whole.validity[first:stop])

    def _columns(self, file: int) -> list[int]:
        plan = self.source.plan
        return plan.layouts[plan.files[file].layout].columns(self.positions)

    def _load(
        self,
        piece: _Piece,
        numbers: list[int],
        rows: tuple[int, int],
        keep: bool,
        results: list[DecodedColumn | None],
    ) -> _Load:
        file = int(self.source.plan.segments.file[piece.segment])
        columns = self._columns(file)
        local = piece.segment - int(self.first_segment[file])
        ranges = self.source.plan.decoders[file].ranges(local, [columns[n] for n in numbers], rows)
        return _Load(piece, numbers, rows, keep, ranges, results)

    def _wave(
        self,
        wave: Sequence[tuple[_Piece, list[DecodedColumn | None], list[_Load]]],
        targets: Sequence[_Target] | None,
    ) -> Iterator[tuple[_Piece, list[DecodedColumn]]]:
        loads = [load for _, _, own in wave for load in own]
        jobs: list[tuple[int, Callable[[int], None]]] = []
        chains: dict[
            int, list[tuple[int, Callable[[int], None]]]
        ] = {}  # of segments that are decoded in order
        for load, data in zip(loads, self._fetch(loads), strict=True):
            file = int(self.source.plan.segments.file[load.piece.segment])
            if self.source.plan.decoders[file].independent:
                for number, (_, length), block in zip(load.numbers, load.ranges, data, strict=True):
                    link = (length, self._job(load, [number], [block], targets))
                    target = None if targets is None else targets[number]
                    if isinstance(target, Joiner) and target.ordered:
                        chains.setdefault(number, []).append(link)
                    else:
                        jobs.append(link)
            else:
                weight = sum(length for _, length in load.ranges)
                jobs.append((weight, self._job(load, load.numbers, data, targets)))
        jobs += [(sum(weight for weight, _ in links), _chain(links)) for links in chains.values()]
        if not self.fields:
            jobs = []
        # The heaviest first: a long column that begins last would run alone.
        jobs.sort(key=lambda job: -job[0])
        work = sum(weight for weight, _ in jobs)
        wanted = threads.wanted_threads(work, self.source.thread_cap())
        with threads.lease(wanted) as granted:
            if granted == 1:
                for _, job in jobs:
                    job(1)
            elif len(jobs) == 1:
                jobs[0][1](granted)
            else:
                self._parallel(jobs, granted)
        for piece, decoded, _ in wave:
            yield piece, decoded  # type: ignore[misc]

    @staticmethod
    def _parallel(jobs: Sequence[tuple[int, Callable[[int], None]]], granted: int) -> None:
        """Run jobs on `granted` threads; those that outweigh a thread's share get several."""
        total = max(1, sum(weight for weight, _ in jobs))
        large = [job for weight, job in jobs if weight * granted > total and weight > 1 << 20]
        if large and len(jobs) - len(large) < granted:
            # A few long columns: one after the other on all threads, then the rest side by side.
            for job in large:
                job(granted)
            jobs = [entry for entry in jobs if entry[1] not in large]
        if not jobs:
            return
        threads.map_with_helpers(lambda entry: entry[1](1), jobs, granted - 1)

    def _fetch(self, loads: Sequence[_Load]) -> list[list[memoryview]]:
        """Return the bytes of the ranges: views of mapped files, the rest fetched in one round."""
        maps = self.source.mappings()
        found: list[list[Any]] = []
        requests: list[tuple[Any, int, int]] = []
        slots: list[tuple[int, int]] = []
        for number, load in enumerate(loads):
            file = int(self.source.plan.segments.file[load.piece.segment])
            mapping = maps[file]
            own: list[Any] = []
            for position, (offset, length) in enumerate(load.ranges):
                if mapping is not None:
                    own.append(mapping.data[offset : offset + length])
                else:
                    own.append(None)
                    requests.append((self.source.files[file], offset, length))
                    slots.append((number, position))
            found.append(own)
        for (number, position), data in zip(slots, read_ranges(requests), strict=True):
            found[number][position] = data
        return found

    def _job(
        self,
        load: _Load,
        numbers: Sequence[int],
        data: Sequence[memoryview],
        targets: Sequence[_Target] | None,
    ) -> Callable[[int], None]:
        source, piece = self.source, load.piece
        file = int(source.plan.segments.file[piece.segment])
        decoder = source.plan.decoders[file]
        local = piece.segment - int(self.first_segment[file])
        all_columns = self._columns(file)
        columns = [all_columns[number] for number in numbers]
        categorical = [
            column for number, column in zip(numbers, columns, strict=True) if number in self.categorical
        ]

        def run(granted: int) -> None:
            out: list[NDArray[Any] | ValueRoom | None] | None = None
            if targets is not None and piece.take is None and not load.keep:
                out = [_place(targets[number], piece) for number in numbers]
            decoded = decoder.decode(
                local,
                columns,
                data,
                rows=load.rows,
                out=out,
                threads=granted,
                dictionaries=categorical,
                allocate=None if load.keep else self.allocate,
            )
            for number, column in zip(numbers, decoded, strict=True):
                if load.keep:
                    assert targets is not None
                    source.decoded.put(self._key(piece, number), column)
                    column = self._part(column, piece, targets[number])
                load.results[number] = column

        return run


def _place(target: _Target, piece: _Piece) -> NDArray[Any] | ValueRoom | None:
    """Return where a piece goes that is taken whole."""
    if isinstance(target, Joiner):
        return target.room(piece.number)
    return None if target is None else target[piece.place]


def _chain(links: Sequence[tuple[int, Callable[[int], None]]]) -> Callable[[int], None]:
    """Return the job of doing jobs one after the other."""

    def run(granted: int) -> None:
        for _, link in links:
            link(granted)

    return run
