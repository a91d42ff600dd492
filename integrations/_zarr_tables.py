"""Tables as virtual Zarr arrays: how rows are cut into chunks, and where each chunk lies.

A column of a record is one run of values (cstore.md 6), so any range of its rows is a chunk. Zarr wants chunks of one
length, all of them stored in full. The last one of a column is as a rule shorter: it is read past its end, into the
next column, and what was read too much is cut off by Zarr (integrations.md 5.3). Only at the end of the file there is
nothing to read; so the length is chosen such that this does not happen, or the chunk is copied.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ._zarr_model import (
    INLINE,
    Description,
    FileVersion,
    Options,
    Skipped,
    VirtualArray,
    VirtualGroup,
    check_count,
)
from ._zarr_values import INSTEAD, Values, bad_name, fill_value_of, json_attributes, values_of

if TYPE_CHECKING:
    from colstore_io.dataset import Source
    from colstore_io.fields import Field
    from colstore_io.plan import FileLayout

__all__ = ["Records", "choose_rows", "describe_table"]

_SPREAD = 2
"""Chunks have at least a half and at most twice the bytes that were asked for, if there is a length that fits."""

_WIDE_SPREAD = 64
"""If there is none, ones smaller by up to this much are taken."""

_MAX_CANDIDATES = 1 << 20

_FEW_COPIED_BYTES = 1 << 20
"""Copies of up to this many bytes of a table are not worth smaller chunks."""

_REFERENCE_BYTES = 70
"""What a chunk takes in a file of references, about; a copied byte takes 4/3."""

_WHOLE_COLUMN_BYTES = 256 << 20
"""The longest column that is one chunk, where nothing else is possible."""


@dataclass(frozen=True, slots=True)
class Records:
    """The records of a table that have rows, as far as cutting them depends on it.

    Attributes
    ----------
    n_rows : int
    starts : ndarray of int64
        First row of each record; the first is 0.
    last : tuple of int
        Of the last record: its first row, the file offset of its body, and where the committed bytes of its file end.
    """

    n_rows: int
    starts: NDArray[np.int64]
    last: tuple[int, int, int]

    @property
    def step(self) -> int:
        """Every chunk length that divides this begins a chunk with every record; 0 when any length does."""
        return int(np.gcd.reduce(self.starts[1:])) if len(self.starts) > 1 else 0

    @property
    def uniform(self) -> bool:
        """Whether all records but the last have the same number of rows."""
        return len(self.starts) < 3 or bool((np.diff(self.starts) == self.starts[1]).all())

    def overruns(self, rows: Any, prefix: int, itemsize: int) -> Any:
        """Return whether the last chunk of `rows` rows of a column ends behind the committed bytes; array or bool."""
        first, body, end = self.last
        begin = (self.n_rows - 1) // rows * rows - first
        return body + (self.n_rows - first) * prefix + (begin + rows) * itemsize > end


def choose_rows(records: Records, columns: Sequence[tuple[int, int]], options: Options) -> int:
    """Return how many rows the chunks of all columns have.

    Parameters
    ----------
    records : Records
    columns : sequence of (prefix, itemsize)
        Of the columns that are described.
    options : Options

    Returns
    -------
    int
        At least 1, and at most the rows of the table if that has any. Near ``chunk_bytes`` of the widest column,
        such that no column needs a copy of its last chunk, or else few bytes are copied.

    Raises
    ------
    ValueError
        If records begin where no chunk of ``chunk_rows`` begins; if records are of different lengths, and what they
        have in common is shorter than ``smallest_chunk``.
    """
    n_rows, step = records.n_rows, records.step
    if n_rows == 0:
        return int(options.chunk_rows or 1)
    if options.chunk_rows is not None:
        rows = min(int(options.chunk_rows), n_rows)
        if step % rows:
            raise ValueError(
                f"chunk_rows={options.chunk_rows} would put two records into one chunk: records begin at multiples of "
                f"{step} rows, so it must divide {step}"
            )
        return rows
    if step and not records.uniform and step < options.smallest_chunk:
        raise ValueError(
            f"the records of this table have different numbers of rows, which have only {step} in common; Zarr needs "
            f"chunks of one length. Rewrite it with records of equal length, choose chunk_rows={step}, or {INSTEAD}"
        )
    widest = max([itemsize for _, itemsize in columns], default=1)
    target = max(1.0, options.chunk_bytes / widest)
    candidates = _candidates(n_rows, step, target)
    copies = np.zeros(len(candidates), np.int64)
    for prefix, itemsize in columns:
        copies += np.where(records.overruns(candidates, prefix, itemsize), candidates * itemsize, 0)
    distance = np.abs(np.log(candidates / target))
    cheap = copies <= min(options.inline_bytes, _FEW_COPIED_BYTES)
    near = cheap & (distance <= math.log(_SPREAD) * (1 + 1e-9))
    if near.any():
        return _nearest(candidates, distance, near, copies)
    if cheap.any():
        return _nearest(candidates, distance, cheap, copies)
    even = math.gcd(step, n_rows)
    if not options.inline_bytes and step and even >= options.smallest_chunk:
        return even
    written = copies * 4 / 3 + -(-n_rows // candidates) * len(columns) * _REFERENCE_BYTES
    return int(candidates[written.argmin()])


def _nearest(
    candidates: NDArray[np.int64],
    distance: NDArray[Any],
    allowed: NDArray[np.bool_],
    copies: NDArray[np.int64],
) -> int:
    """Return the candidate nearest to the target; one without copies, if there is one."""
    free = allowed & (copies == 0)
    order = np.where(free if free.any() else allowed, distance, np.inf)
    return int(candidates[order.argmin()])


def _candidates(n_rows: int, step: int, target: float) -> NDArray[np.int64]:
    """Return chunk lengths from which to choose: divisors of `step`, else what cuts the rows nearly evenly."""
    whole = step or n_rows
    fewest = max(1, math.ceil(whole / (target * _SPREAD)))
    most = max(fewest, int(whole / target * _WIDE_SPREAD))
    parts = np.arange(fewest, min(most, fewest + _MAX_CANDIDATES, whole) + 1, dtype=np.int64)
    if step:
        parts = parts[step % parts == 0]
        lengths = step // parts
    else:
        lengths = -(-n_rows // parts)
    return lengths if lengths.size else np.array([whole], np.int64)


def describe_table(source: Source, options: Options, spelling: str) -> Description:
    """Describe an open table.

    Parameters
    ----------
    source : Source
    options : Options
    spelling : str
        Of the table, for messages.

    Raises
    ------
    UnsupportedFeatureError
        If the files are of a format whose chunks are encoded.
    ColumnNotFoundError
        If a column is unknown.
    ValueError
        If a column that was asked for cannot be described, or the rows cannot be cut.
    """
    from colstore_io.errors import UnsupportedFeatureError

    plan, schema = source.plan, source.schema
    if source.encoded:
        raise UnsupportedFeatureError(
            f"a {plan.format} file holds encoded columns, which no codec of Zarr reads; {INSTEAD}, or copy the data "
            "with Dataset.to_zarr",
            path=spelling,
        )
    if options.group is not None:
        raise ValueError("group= is for grid containers, and this is a table")
    attrs, skipped = json_attributes(schema.attrs, "")
    records, last_layout = _records(source)
    columns: list[_Column] = []
    for name in schema.names if options.names is None else options.names:
        position = schema.index(name)
        found = _values(schema.fields[position], asked=options.names is not None, text=options.text)
        if isinstance(found, Values):
            prefix = 0 if last_layout is None else last_layout.prefix((position, False))
            columns.append(_Column(name, position, found, prefix, found.dtype.itemsize))
        else:
            skipped.append(_skipped(name, found, options))
    rows = choose_rows(records, [(column.prefix, column.itemsize) for column in columns], options)
    arrays = {}
    for column in columns:
        own_rows, copied = _own_rows(records, column, rows, options)
        if not own_rows:
            skipped.append(_skipped(column.name, _NO_ROOM.format(rows=rows), options))
            continue
        own_attrs, lost = json_attributes(schema.fields[column.position].attrs, column.name)
        skipped += lost
        own_attrs |= column.values.attrs
        arrays[column.name] = _array(source, column, own_attrs, own_rows, copied, options.row_dim)
    files = tuple(FileVersion(_url_of(file), file.size, file.token or None) for file in source.files)
    return Description({"/": VirtualGroup(attrs, arrays)}, files, tuple(skipped))


_NO_ROOM = (
    "its last chunk of {rows} rows would end behind the end of the file, and may not be copied. Choose chunk_rows that "
    "divide the number of rows, put another column behind it when the file is written, or use write_references, which "
    "makes a copy of that chunk"
)


@dataclass(frozen=True, slots=True)
class _Column:
    """A column that can be described.

    Attributes
    ----------
    prefix : int
        Bytes of a row before it, in the file with the last record.
    """

    name: str
    position: int
    values: Values
    prefix: int
    itemsize: int


def _skipped(name: str, reason: str, options: Options) -> Skipped:
    if options.names is not None:
        raise ValueError(f"column {name!r} cannot be shown as a Zarr array: {reason}")
    return Skipped(name, reason)


def _own_rows(records: Records, column: _Column, rows: int, options: Options) -> tuple[int, bool]:
    """Return the rows of the chunks of one column, 0 if it has none, and whether the last one must be copied."""
    if not records.n_rows or not records.overruns(rows, column.prefix, column.itemsize):
        return rows, False
    if rows * column.itemsize <= options.inline_bytes:
        return rows, True
    one_record = len(records.starts) == 1
    if options.chunk_rows is None and one_record and records.n_rows * column.itemsize <= _WHOLE_COLUMN_BYTES:
        return records.n_rows, False
    return 0, False


def _url_of(file: Any) -> str:
    if file.location is None:
        raise ValueError(
            "references need files with an address: give a path or URL, not contents or a file object"
        )
    return url_of(file.location)


def url_of(location: Any) -> str:
    """Return what is written into references for a file: a plain path on this machine, else its URL.

    Raises
    ------
    ValueError
        For a chain of URLs.
    """
    if location.local_path is not None:
        return str(location.local_path)
    if "::" in location.url:
        raise ValueError(
            "references hold plain URLs, not chains of them: name the file itself, without a cache or an archive "
            "around it"
        )
    return str(location.url)


def _values(field: Field, *, asked: bool, text: bool) -> Values | str:
    """Return how a column is described, or the reason why it cannot be."""
    bad = bad_name(field.name)
    if bad is not None:
        return bad
    if field.nullable or field.variable:
        return f"it is nullable or of variable length, for which Zarr has no layout; {INSTEAD}"
    if field.dtype.str[1:] == "S1" and not asked:
        return "xarray would join a column of single characters to one text; ask for it by name"
    return values_of(field.dtype, field.attrs, text=text or asked)


def _records(source: Source) -> tuple[Records, FileLayout | None]:
    """Return the records that have rows, and the layout of the file with the last of them."""
    source.look_at(np.ones(source.plan.segments.n_segments, np.bool_))
    plan, segments = source.plan, source.plan.segments
    filled = np.flatnonzero(segments.rows)
    if not filled.size:
        return Records(0, np.zeros(1, np.int64), (0, 0, 0)), None
    last = int(filled[-1])
    file = plan.files[int(segments.file[last])]
    return Records(
        segments.n_rows,
        segments.row_start[:-1][filled],
        (int(segments.row_start[last]), int(segments.body_start[last]), file.committed_end),
    ), plan.layouts[file.layout]


def _array(
    source: Source, column: _Column, attrs: dict[str, Any], rows: int, copied: bool, dim: str
) -> VirtualArray:
    segments = source.plan.segments
    check_count(-(-segments.n_rows // rows), f"column {column.name!r}")
    first = np.arange(0, segments.n_rows, rows, dtype=np.int64)
    owner = segments.locate(first)
    offset = source.chunk_offsets((column.position, False))[owner]
    offset += (first - segments.row_start[owner]) * column.itemsize
    file = segments.file[owner].astype(np.int32)
    inline: dict[tuple[int, ...], bytes] = {}
    if copied:
        last = len(first) - 1
        inline[last,] = _padded(source, column.position, int(first[last]), rows)
        file[last], offset[last] = INLINE, 0
    dtype = column.values.dtype
    return VirtualArray(
        name=column.name,
        dtype=dtype,
        shape=(segments.n_rows,),
        chunks=(rows,),
        dims=(dim,),
        fill_value=fill_value_of(attrs, dtype),
        attrs=attrs,
        file=file,
        offset=offset,
        inline=inline,
    )


def _padded(source: Source, position: int, first: int, rows: int) -> bytes:
    """Read the last rows of a column, from `first` on, as a whole chunk: in their stored byte order, then zeros."""
    from colstore_io.plain import read_stored
    from colstore_io.selection import normalise

    values = read_stored(source, normalise(slice(first, source.n_rows), source.n_rows), position)
    dtype = source.schema.fields[position].dtype
    return values.astype(dtype, copy=False).tobytes().ljust(rows * dtype.itemsize, b"\0")
