"""The sidecar index ``.NAME.cstore.idx``: what a reader otherwise collects by walking (docs/cstore-index.md).

It holds the row counts of all records, from which every offset follows, and smallest and largest value per 64 Ki rows
and column. It is a copy of what the file itself says, so whatever is wrong with it means that there is none: no error,
and no allocation that the file's own counters do not justify.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ... import threads
from ...errors import ColstoreError
from ...fields import PhysicalColumn
from ...kernels.copy import copy_runs
from ...storage import Beside, ByteFile, local_state, open_beside
from .. import BLOCK_ROWS, ShardMeta, Statistics
from .footer import ColumnEntries, FooterLayout
from .header import Header
from .records import RECORD_HEADER_SIZE, RecordIndex, body_bytes, index_of_rows, record_says

__all__ = [
    "INDEX_SUFFIX",
    "MIN_RECORDS",
    "SidecarKey",
    "block_bounds",
    "encode_sidecar",
    "key_of",
    "read_block_statistics",
    "read_record_index",
    "sample_of",
]

INDEX_MAGIC = b"CSIDX\x00\x01\x00"
INDEX_VERSION = 1
INDEX_SUFFIX = ".idx"

MIN_RECORDS = 64
"""Records from which on an open looks for an index. In vain that costs about 5 us, the walk 0.8 us a record: 200 files
of 64 records open 5 % later for it, files of 1000 records no later, and files of fewer records are never asked."""

SAMPLE_BYTES = 512
"""Bytes of the first record, from its header on, that the index remembers a checksum of."""

Bounds = tuple[NDArray[Any], NDArray[Any], NDArray[np.bool_]]
"""Minimum, maximum and usable of one column, each of shape (n_blocks,)."""

_BOUNDED_KINDS = "fiubMm"
_KEY = struct.Struct("<8sIIq64sq")
_SHAPE = struct.Struct("<IIqB3xI")
_PREAMBLE = _KEY.size + _SHAPE.size
_U32 = struct.Struct("<I")
_WIDTHS = (1, 2, 4, 8)


@dataclass(frozen=True, slots=True)
class SidecarKey:
    """The state of a `.cstore` file that an index belongs to.

    Attributes
    ----------
    size, modified_ns : int
        Of the file. The modification time is there because a file of the same shape has the same size, counters and
        columns: only the time tells that its values are others.
    counters : bytes
        The 64 bytes at offset 8.
    manifest_crc32 : int
        CRC-32 of the columns array (cstore.md 4.3), whether or not the manifest states it.
    """

    size: int
    counters: bytes
    manifest_crc32: int
    modified_ns: int

    def packed(self) -> bytes:
        return _KEY.pack(
            INDEX_MAGIC, INDEX_VERSION, self.manifest_crc32, self.size, self.counters, self.modified_ns
        )


def key_of(file: ByteFile, counters: bytes, manifest_crc32: int) -> SidecarKey | None:
    """Return the key of an opened file; None when it is no local file of the current layout."""
    state = local_state(file)
    if state is None or len(counters) != 64:
        return None
    return SidecarKey(file.size, counters, manifest_crc32, state.modified_ns)


def sample_of(meta: ShardMeta, data: NDArray[np.uint8]) -> int:
    """Return the checksum of the first bytes of record 0, by which the index of another file is told; never 0.

    Parameters
    ----------
    meta : ShardMeta
        With a record.
    data : ndarray of uint8
        The bytes [0, committed_end) of the file.
    """
    start, stop = _sample_place(int(meta.body_start[0]), int(meta.record_rows[0]), meta.row_bytes)
    return zlib.crc32(data[start:stop].tobytes()) or 1


def _sample_place(body_start: int, rows: int, row_bytes: int) -> tuple[int, int]:
    start = body_start - RECORD_HEADER_SIZE
    return start, min(start + SAMPLE_BYTES, body_start + body_bytes(rows, row_bytes))


def _bounded(columns: Sequence[PhysicalColumn]) -> list[PhysicalColumn]:
    return [column for column in columns if column.dtype.kind in _BOUNDED_KINDS]


def _n_blocks(n_rows: int) -> int:
    return -(-n_rows // BLOCK_ROWS)


# ----------------------------------------------------------------------------------------------------------
# Writing


def encode_sidecar(
    key: SidecarKey,
    record_rows: NDArray[np.int64],
    columns: Sequence[PhysicalColumn],
    bounds: Sequence[Bounds],
    sample: int = 0,
) -> bytes:
    """Return the bytes of an index.

    Parameters
    ----------
    key : SidecarKey
    record_rows : ndarray of int64, shape (R,)
    columns : sequence of PhysicalColumn
        All of the file.
    bounds : sequence of (minimum, maximum, usable), each of shape (n_blocks,)
        Of the columns that can have bounds, in file order; minimum and maximum in the column's dtype.
    sample : int, optional
        As `sample_of`; 0 for none.
    """
    n_rows = int(record_rows.sum())
    largest = int(record_rows.max(initial=0))
    width = next(w for w in _WIDTHS if largest < 1 << 8 * w)
    front = b"".join(
        (
            key.packed(),
            _SHAPE.pack(BLOCK_ROWS, len(columns), _n_blocks(n_rows), width, sample),
            record_rows.astype(f"<u{width}").tobytes(),
        )
    )
    parts = [front, _U32.pack(zlib.crc32(front))]
    for minimum, maximum, usable in bounds:
        parts += [minimum.tobytes(), maximum.tobytes(), usable.astype(np.uint8).tobytes()]
    body = b"".join(parts)
    return body + _U32.pack(zlib.crc32(body))


_BLOCKS_AT_ONCE = 8
"""Blocks that a thread looks at in one go."""


def block_bounds(
    meta: ShardMeta, memory: NDArray[np.uint8], known: Statistics | None = None, n_known: int = 0
) -> list[Bounds]:
    """Return minimum, maximum and usable per block of 64 Ki rows of every column that can have bounds.

    Parameters
    ----------
    meta : ShardMeta
    memory : ndarray of uint8
        The bytes [0, committed_end) of the file.
    known : Statistics, optional
        Bounds of the first `n_known` blocks, which are not looked at again.

    Notes
    -----
    Floats: bounds of the values that are not NaN. A block has none when it holds NaT, or nothing but NaN. In memory is,
    for each thread, one block of one column.
    """
    edges = np.concatenate([np.zeros(1, np.int64), np.cumsum(meta.record_rows)])
    n_blocks = _n_blocks(int(edges[-1]))
    columns = _bounded(meta.columns)
    found: list[Bounds] = [
        (np.zeros(n_blocks, c.dtype), np.zeros(n_blocks, c.dtype), np.zeros(n_blocks, np.bool_))
        for c in columns
    ]
    if known is not None:
        for column, (minimum, maximum, usable) in zip(columns, found, strict=True):
            usable[:n_known] = kept = known.usable[column.name][:n_known]
            minimum[:n_known][kept] = known.minimum[column.name][:n_known][kept]
            maximum[:n_known][kept] = known.maximum[column.name][:n_known][kept]
    else:
        n_known = 0
    parts = [range(b, min(b + _BLOCKS_AT_ONCE, n_blocks)) for b in range(n_known, n_blocks, _BLOCKS_AT_ONCE)]
    with threads.lease(min(len(parts), threads.budget())) as granted:
        threads.map_with_helpers(
            lambda p: _bound_blocks(p, meta, edges, memory, columns, found), parts, granted - 1
        )
    return found


def _bound_blocks(
    blocks: range,
    meta: ShardMeta,
    edges: NDArray[np.int64],
    memory: NDArray[np.uint8],
    columns: Sequence[PhysicalColumn],
    found: Sequence[Bounds],
) -> None:
    """Fill in the bounds of some blocks. `edges`: first row of each record, and the number of rows."""
    scratch = np.empty(BLOCK_ROWS * max((c.itemsize for c in columns), default=1), np.uint8)
    here = np.uint64(scratch.ctypes.data)
    base = np.uint64(memory.ctypes.data)
    for block in blocks:
        low, high = block * BLOCK_ROWS, min((block + 1) * BLOCK_ROWS, int(edges[-1]))
        first = int(np.searchsorted(edges, low, side="right")) - 1
        stop = int(np.searchsorted(edges, high, side="left"))
        begin = np.maximum(edges[first:stop], low)
        count = np.maximum(
            np.minimum(edges[first + 1 : stop + 1], high) - begin, 0
        )  # records may have no rows
        skipped, place, rows = (
            begin - edges[first:stop],
            meta.body_start[first:stop],
            meta.record_rows[first:stop],
        )
        for column, (minimum, maximum, usable) in zip(columns, found, strict=True):
            dtype = column.dtype
            nbytes = count * dtype.itemsize
            offset = place + rows * meta.column_prefix(column.name) + skipped * dtype.itemsize
            if len(offset) == 1 and not (memory.ctypes.data + int(offset[0])) % dtype.alignment:
                values = np.ndarray((high - low,), dtype, buffer=memory, offset=int(offset[0]))
            else:  # together, and aligned: the copy costs less than what NumPy does for values that are not
                copy_runs(
                    base + offset.astype(np.uint64),
                    here + (np.cumsum(nbytes) - nbytes).astype(np.uint64),
                    nbytes,
                )
                values = scratch[: (high - low) * dtype.itemsize].view(dtype)
            bounds = _bounds(values)
            if bounds is not None:
                minimum[block], maximum[block] = bounds
                usable[block] = True


def _bounds(values: NDArray[Any]) -> tuple[Any, Any] | None:
    kind = values.dtype.kind
    if kind == "b":
        flags = values.view(np.uint8)  # a byte other than 0 and 1 counts as 1
        return flags.min() != 0, flags.max() != 0
    if kind == "f":
        with np.errstate(invalid="ignore"):
            low, high = np.fmin.reduce(values), np.fmax.reduce(values)
        return None if np.isnan(low) or np.isnan(high) else (low, high)
    low, high = values.min(), values.max()
    if kind in "mM" and (np.isnat(low) or np.isnat(high)):
        return None
    return low, high


# ----------------------------------------------------------------------------------------------------------
# Reading


def read_record_index(
    file: ByteFile,
    header: Header,
    head: bytes | memoryview,
    seen: RecordIndex,
    *,
    row_bytes: int,
) -> RecordIndex | None:
    """Return where the records of a file are, from its index; None when there is none that fits.

    Reads the front of the index alone (two small reads), and the header of the last record, which must say the same.
    So must what was read of the file when it was opened: `head`, its first bytes, and the records `seen` in them.
    """
    n_records = header.n_records
    with open_beside(file, INDEX_SUFFIX) as beside:
        if beside is None:
            return None
        key = key_of(file, header.counters, header.manifest.crc32)
        front = None if key is None else _front(beside, key, n_records)
        if front is None:
            return None
    _, _, _, width, sample = _SHAPE.unpack_from(front, _KEY.size)
    rows = np.frombuffer(front, f"<u{width}", n_records, _PREAMBLE)
    if n_records and int(rows.max()) > header.committed_rows:
        return None
    index = index_of_rows(
        rows.astype(np.int64),
        committed_rows=header.committed_rows,
        data_offset=header.data_offset,
        row_bytes=row_bytes,
        size=file.size,
    )
    if index is None or not n_records:
        return index
    if not np.array_equal(index.rows[: len(seen.rows)], seen.rows):
        return None
    start, stop = _sample_place(int(index.body_start[0]), int(index.rows[0]), row_bytes)
    if sample and stop <= len(head) and sample != (zlib.crc32(head[start:stop]) or 1):
        return None
    last = file.read(int(index.body_start[-1]) - RECORD_HEADER_SIZE, RECORD_HEADER_SIZE)
    return index if record_says(last, n_records - 1, int(index.rows[-1])) else None


def _front(beside: Beside, key: SidecarKey, n_records: int) -> bytes | None:
    """Return preamble and row counts, checked against key and checksum."""
    preamble = beside.read(0, _PREAMBLE)
    if len(preamble) < _PREAMBLE or preamble[: _KEY.size] != key.packed():
        return None
    block_rows, _, _, width, _ = _SHAPE.unpack_from(preamble, _KEY.size)
    length = n_records * width
    if width not in _WIDTHS or block_rows != BLOCK_ROWS or beside.size < _PREAMBLE + length + 2 * _U32.size:
        return None
    rest = beside.read(_PREAMBLE, length + _U32.size)
    if len(rest) != length + _U32.size:
        return None
    front = preamble + rest[:length]
    return front if zlib.crc32(front) == _U32.unpack_from(rest, length)[0] else None


def read_block_statistics(
    file: ByteFile, meta: ShardMeta, *, exists: Callable[[ByteFile, str], bool] | None = None
) -> Statistics | None:
    """Return bounds per 64 Ki rows from the index of a file; None when there is none that fits.

    Parameters
    ----------
    file : ByteFile
    meta : ShardMeta
        What was read from the file when it was opened; an index of any other state does not fit.
    exists : callable, optional
        Tells from a listing whether the index may exist.

    Returns
    -------
    Statistics or None
        Arrays of length ``ceil(n_rows / 65536)``, made when asked for. String columns are left out.
    """
    key = key_of(file, meta.counters, meta.manifest_crc32)
    if key is None or (exists is not None and not exists(file, INDEX_SUFFIX)):
        return None
    n_blocks = _n_blocks(meta.n_rows)
    with open_beside(file, INDEX_SUFFIX) as beside:
        if beside is None:
            return None
        front = _front(beside, key, meta.n_records)
        if front is None:
            return None
        _, n_columns, stored_blocks, _, sample = _SHAPE.unpack_from(front, _KEY.size)
        if sample and meta.n_records and sample != _sample_in(file, meta):
            return None
        layout = _layout(meta.columns, n_blocks, len(front) + _U32.size)
        if (n_columns, stored_blocks) != (len(meta.columns), n_blocks) or beside.size != layout.size:
            return None
        data = beside.read(0, layout.size)
    if len(data) != layout.size or not data.startswith(front):
        return None
    return layout.decode(data)


def _sample_in(file: ByteFile, meta: ShardMeta) -> int | None:
    start, stop = _sample_place(int(meta.body_start[0]), int(meta.record_rows[0]), meta.row_bytes)
    try:
        return zlib.crc32(file.read(start, stop - start)) or 1
    except (ColstoreError, OSError):  # whoever reads values will say what is wrong
        return None


def _layout(columns: Sequence[PhysicalColumn], n_blocks: int, start: int) -> FooterLayout:
    """Where the bounds stand: like in a statistics footer, for the columns that can have some."""
    entries: dict[str, ColumnEntries] = {}
    position = start
    for column in _bounded(columns):
        width = n_blocks * column.itemsize
        entries[column.name] = ColumnEntries(column.dtype, position, position + width, position + 2 * width)
        position += 2 * width + n_blocks
    return FooterLayout(INDEX_MAGIC, entries, n_blocks, position + _U32.size)
