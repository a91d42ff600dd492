"""NumPy twins of the compiled kernels: same names, same signatures, same results.

They are what the compiled kernels are tested against, and what runs where these cannot (a platform without a
compiler, a suspected bug: compare both). Arguments that only steer speed (`threads`, `prefetch`, `route`, `isa`) are
checked and otherwise ignored. The contracts are written out in the ``.pyi`` files of ``colstore_io.kernels``.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import stat
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "HEAD_FIELDS",
    "MASK_CHUNK_ROWS",
    "SegmentTable",
    "alike",
    "copy_runs",
    "encode_record",
    "first_out_of_range",
    "gather_instruction_sets",
    "instruction_sets",
    "interleave",
    "mask_of_ranges",
    "mask_offsets",
    "openmp_enabled",
    "read_heads",
    "walk_records",
    "walk_records_fd",
]

MASK_CHUNK_ROWS = 16384
"""Rows that one entry of `mask_offsets` accounts for."""

_MAX_ROWS = 1 << 62
_INT64_MAX = (1 << 63) - 1
_GATHER_ROUTES = ("affine", "uniform", "bucket", "search", "cursor")
_MASK_ROUTES = ("avx512", "avx2", "portable")
_RANGE_CODES = ("b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8")
_HEADER_BYTES = 32


def _memory(address: int, nbytes: int) -> NDArray[np.uint8]:
    """View `nbytes` of memory at an absolute address (taken modulo 2**64); the caller keeps it alive."""
    if nbytes == 0:
        return np.empty(0, np.uint8)
    return np.ctypeslib.as_array((ctypes.c_uint8 * nbytes).from_address(address % (1 << 64)))


def _check_threads(threads: int) -> None:
    if threads < 1:
        raise ValueError(f"threads must be at least 1, got {threads}")


def _check_vector(array: NDArray[Any], name: str, itemsize: int, kinds: str) -> None:
    dtype = array.dtype
    if array.ndim != 1 or dtype.itemsize != itemsize or dtype.kind not in kinds or not dtype.isnative:
        raise TypeError(f"{name} must be a 1-D array of {itemsize}-byte items, got {array.ndim}-D {dtype}")


def _flags(mask: NDArray[Any]) -> NDArray[np.bool_]:
    """Return the mask as true booleans: any byte but 0 counts as true."""
    _check_vector(mask, "mask", 1, "bui")
    return np.asarray(mask.view(np.uint8) != 0)


class SegmentTable:
    """Where each row of one or more columns lives; twin of ``colstore_io.kernels.segments.SegmentTable``.

    Row ``i`` (global) of column ``c`` is at address ``base[c, s] + i * itemsize[c]``, ``s`` being the last
    segment with ``row_start[s] <= i`` (cstore.md 14).

    Parameters
    ----------
    row_start, row_stop : ndarray of int64, shape (S,)
        Half-open row ranges in ascending order; gaps between them belong to no segment.
    base : ndarray of int64, shape (C, S)
        Wrapping byte bases; the memory behind them must outlive the table: set `keep` to what owns it.
    itemsize : ndarray of int64, shape (C,)
        Bytes per value.
    n_rows : int
        Rows of the whole table, at least ``row_stop[-1]``.
    uniform_rows : int, optional
        U > 0 promises ``row_start[s] == s * U``, and a last segment of at most U rows.

    Raises
    ------
    ValueError
        If shapes disagree, segments overlap, a size is impossible, or the uniform promise does not hold.
    """

    def __init__(
        self,
        row_start: NDArray[np.int64],
        row_stop: NDArray[np.int64],
        base: NDArray[np.int64],
        itemsize: NDArray[np.int64],
        n_rows: int,
        uniform_rows: int = 0,
    ) -> None:
        n_segments, n_columns = len(row_start), len(itemsize)
        if row_stop.shape != (n_segments,) or base.shape != (n_columns, n_segments):
            raise ValueError(
                f"shapes disagree: {row_start.shape}, {row_stop.shape}, {base.shape}, {itemsize.shape}"
            )
        if not 0 <= n_rows <= _MAX_ROWS:
            raise ValueError(f"n_rows must lie in [0, 2^62], got {n_rows}")
        for size in itemsize.tolist():
            if size < 1 or n_rows > _MAX_ROWS // size:
                raise ValueError(f"item size {size} is impossible for {n_rows} rows")
        edges = np.concatenate([[0], np.stack([row_start, row_stop], axis=1).ravel(), [n_rows]])
        if bool((edges[1:] < edges[:-1]).any()):
            raise ValueError("segments overlap, or end after n_rows")
        if uniform_rows < 0:
            raise ValueError(f"uniform_rows must not be negative, got {uniform_rows}")
        if uniform_rows > 0 and n_segments > 0:
            if [s * uniform_rows for s in range(n_segments)] != row_start.tolist():
                raise ValueError(f"segments do not start at multiples of {uniform_rows}")
            if int(row_stop[-1]) - int(row_start[-1]) > uniform_rows:
                raise ValueError(f"the last segment is longer than {uniform_rows} rows")
        self.keep: object = None
        self._start, self._stop = row_start.copy(), row_stop.copy()
        self._base: list[list[int]] = base.tolist()
        self._itemsize: list[int] = itemsize.tolist()
        self.n_columns, self.n_segments = n_columns, n_segments
        self.n_rows, self.uniform_rows = n_rows, uniform_rows

    def _items(self, column: int, segment: int) -> NDArray[np.void]:
        """View the values of one column in one segment as opaque items."""
        width = self._itemsize[column]
        start, stop = int(self._start[segment]), int(self._stop[segment])
        address = self._base[column][segment] + start * width
        return _memory(address, (stop - start) * width).view(f"V{width}")

    def _targets(self, out: NDArray[Any] | Sequence[NDArray[Any]], length: int) -> list[NDArray[np.void]]:
        """Check the outputs and view them as opaque items."""
        arrays: list[NDArray[Any]] = [out] if isinstance(out, np.ndarray) else list(out)
        if len(arrays) != self.n_columns:
            raise ValueError(
                f"out must have one array for each of {self.n_columns} columns, got {len(arrays)}"
            )
        for array, width in zip(arrays, self._itemsize, strict=True):
            if array.shape != (length,) or array.dtype.itemsize != width:
                raise ValueError(f"out must have shape ({length},) and items of {width} bytes")
            if not array.flags.c_contiguous or not array.flags.writeable:
                raise ValueError("out must be C-contiguous and writable")
        return [array.view(f"V{width}") for array, width in zip(arrays, self._itemsize, strict=True)]

    def _gather(self, rows: NDArray[np.int64], targets: list[NDArray[np.void]]) -> int:
        """Copy `rows` (all in [0, n_rows)); -1, or the first position that no segment holds."""
        segments = np.searchsorted(self._start, rows, side="right") - 1
        stored = segments >= 0
        stored[stored] = rows[stored] < self._stop[segments[stored]]
        if not stored.all():
            return int(np.argmin(stored))
        order = np.arange(len(rows))
        if bool((segments[1:] < segments[:-1]).any()):
            order = np.argsort(segments, kind="stable")
            segments, rows = segments[order], rows[order]
        cuts = [0, *(np.nonzero(np.diff(segments))[0] + 1).tolist(), len(rows)]
        for first, last in itertools.pairwise(cuts):
            if first < last:
                segment = int(segments[first])
                local = rows[first:last] - self._start[segment]
                for column, target in enumerate(targets):
                    target[order[first:last]] = self._items(column, segment)[local]
        return -1

    def take(
        self,
        indices: NDArray[np.int64],
        out: NDArray[Any] | Sequence[NDArray[Any]],
        *,
        threads: int = 1,
        prefetch: int = -1,
        route: str | None = None,
        isa: str | None = None,
    ) -> int:
        """Copy the rows `indices` into `out`; -1, or the position of a bad index (`out` then: anything)."""
        _check_threads(threads)
        if isa not in (None, "portable"):
            raise ValueError(f"isa must be one of portable, got {isa!r}")
        _check_vector(indices, "indices", 8, "i")
        targets = self._targets(out, len(indices))
        if route is not None and len(indices) > 0 and self.n_segments > 0:
            if route not in _GATHER_ROUTES:
                raise ValueError(f"route must be one of {', '.join(_GATHER_ROUTES)}, got {route!r}")
            if (route == "affine" and self.n_segments > 1) or (route == "uniform" and self.uniform_rows == 0):
                raise ValueError(f"route {route!r} does not fit the table")
        bad = first_out_of_range(indices, self.n_rows)
        if bad >= 0:
            return bad
        return self._gather(np.where(indices < 0, indices + self.n_rows, indices), targets)

    def copy_strided(
        self,
        start: int,
        step: int,
        count: int,
        out: NDArray[Any] | Sequence[NDArray[Any]],
        *,
        threads: int = 1,
    ) -> None:
        """Copy the rows ``start + k * step`` for k < `count` into `out`."""
        _check_threads(threads)
        if count < 0 or step == 0:
            raise ValueError(f"count must not be negative and step not 0, got {count} and {step}")
        if count > 0 and not (0 <= start < self.n_rows and 0 <= start + (count - 1) * step < self.n_rows):
            raise ValueError(f"rows {start} + k*{step} for k < {count} do not all lie in [0, {self.n_rows})")
        targets = self._targets(out, count)
        if count == 0:
            return
        rows = np.full(1, start, np.int64) if count == 1 else start + step * np.arange(count, dtype=np.int64)
        if self._gather(rows, targets) >= 0:
            raise ValueError("a row of the progression lies in no segment")

    def compress(
        self,
        mask: NDArray[np.bool_],
        offsets: NDArray[np.int64],
        out: NDArray[Any] | Sequence[NDArray[Any]],
        *,
        threads: int = 1,
        route: str | None = None,
    ) -> None:
        """Copy the rows where `mask` is true into `out`; `offsets` is ``mask_offsets(mask)``."""
        _check_threads(threads)
        if route is not None and route not in _MASK_ROUTES:
            raise ValueError(f"route must be one of {', '.join(_MASK_ROUTES)}, got {route!r}")
        selected = _flags(mask)
        _check_vector(offsets, "offsets", 8, "i")
        if len(mask) != self.n_rows:
            raise ValueError(f"mask must have {self.n_rows} rows, got {len(mask)}")
        if len(offsets) != -(-self.n_rows // MASK_CHUNK_ROWS) + 1 or offsets[0] != 0:
            raise ValueError("offsets must be the prefix counts of mask_offsets(mask)")
        targets = self._targets(out, int(offsets[-1]))
        if not np.array_equal(offsets, mask_offsets(mask)):
            raise ValueError("offsets do not belong to this mask")
        if self._gather(np.nonzero(selected)[0], targets) >= 0:
            raise ValueError("the mask selects a row that lies in no segment")


def mask_offsets(mask: NDArray[np.bool_], *, threads: int = 1) -> NDArray[np.int64]:
    """Return the prefix counts of true rows per `MASK_CHUNK_ROWS` rows, int64, starting with 0."""
    _check_threads(threads)
    selected = _flags(mask)
    offsets = np.zeros(-(-len(selected) // MASK_CHUNK_ROWS) + 1, np.int64)
    if len(selected) > 0:
        starts = np.arange(0, len(selected), MASK_CHUNK_ROWS)
        np.cumsum(np.add.reduceat(selected.astype(np.int64), starts), out=offsets[1:])
    return offsets


def mask_of_ranges(
    table: SegmentTable,
    tests: Sequence[tuple[str, Any, bool, Any, bool]],
    mask: NDArray[np.bool_],
    *,
    segments: NDArray[np.bool_] | None = None,
    threads: int = 1,
    route: str | None = None,
) -> NDArray[np.int64]:
    """Mark the rows that lie in one range per column in `mask`; return ``mask_offsets(mask)``."""
    _check_threads(threads)
    if route is not None and route not in _MASK_ROUTES:
        raise ValueError(f"route must be one of {', '.join(_MASK_ROUTES)}, got {route!r}")
    if len(tests) != table.n_columns or table.n_columns == 0:
        raise ValueError(f"one range for each of {table.n_columns} columns is needed, got {len(tests)}")
    for (code, *_), width in zip(tests, table._itemsize, strict=True):
        if code not in _RANGE_CODES or int(code[1:]) != width:
            raise ValueError(f"a range of {code!r} does not fit a column of {width} bytes a value")
    if mask.shape != (table.n_rows,) or mask.itemsize != 1 or not mask.flags.c_contiguous:
        raise ValueError(f"mask must be a 1-D array of {table.n_rows} bytes")
    if segments is not None and segments.shape != (table.n_segments,):
        raise ValueError(f"segments must be a 1-D array of {table.n_segments} bytes")
    mask[:] = False
    for segment in range(table.n_segments):
        if segments is not None and not segments[segment]:
            continue
        rows = mask[int(table._start[segment]) : int(table._stop[segment])]
        rows[:] = True
        for column, (code, lo, lo_inclusive, hi, hi_inclusive) in enumerate(tests):
            values = table._items(column, segment).view(code)
            if code == "b1":
                values = values.view(np.uint8) != 0
            if code[0] == "f":  # also without a bound: NaN lies in no range
                rows &= ~np.isnan(values)
            if lo is not None:
                rows &= values >= lo if lo_inclusive else values > lo
            if hi is not None:
                rows &= values <= hi if hi_inclusive else values < hi
    return mask_offsets(mask)


def first_out_of_range(indices: NDArray[np.int64], n_rows: int, *, threads: int = 1) -> int:
    """Return the position of an index outside ``[-n_rows, n_rows)``, or -1."""
    _check_threads(threads)
    _check_vector(indices, "indices", 8, "i")
    if n_rows < 0:
        raise ValueError(f"n_rows must not be negative, got {n_rows}")
    bad = (indices >= n_rows) | (indices < -n_rows)
    return int(np.argmax(bad)) if bool(bad.any()) else -1


def openmp_enabled() -> bool:
    """Return whether the kernels can use several threads: these cannot."""
    return False


def instruction_sets() -> tuple[str, ...]:
    """Return the code paths that ``compress(route=...)`` can force on this machine."""
    return ("portable",)


def gather_instruction_sets() -> tuple[str, ...]:
    """Return the versions that ``take(isa=...)`` can force on this machine."""
    return ("portable",)


def copy_runs(
    source: NDArray[np.uint64],
    target: NDArray[np.uint64],
    nbytes: NDArray[np.int64],
    *,
    threads: int = 1,
) -> None:
    """Copy ``nbytes[r]`` bytes from address ``source[r]`` to ``target[r]`` for every run r."""
    _check_threads(threads)
    if not len(source) == len(target) == len(nbytes):
        raise ValueError("source, target and nbytes must have the same length")
    if (len(nbytes) > 0 and int(nbytes.min()) < 0) or sum(nbytes.tolist()) > _INT64_MAX:
        raise ValueError("a run has an impossible length")
    for origin, place, size in zip(source.tolist(), target.tolist(), nbytes.tolist(), strict=True):
        _memory(place, size)[:] = _memory(origin, size)


def interleave(
    columns: NDArray[np.uint64],
    itemsize: NDArray[np.int64],
    out: NDArray[np.uint8],
    n_rows: int,
    *,
    threads: int = 1,
) -> None:
    """Pack `n_rows` values of every column into records of ``sum(itemsize)`` bytes."""
    _check_threads(threads)
    sizes = itemsize.tolist()
    if len(columns) != len(sizes):
        raise ValueError("columns and itemsize must have the same length")
    record_bytes = sum(sizes)
    if min(sizes, default=1) < 1 or n_rows < 0 or n_rows * record_bytes > _INT64_MAX:
        raise ValueError("an item size or n_rows is impossible")
    if len(out) != n_rows * record_bytes:
        raise ValueError(f"out must have {n_rows * record_bytes} bytes, got {len(out)}")
    records = out.reshape(n_rows, record_bytes)
    at = 0
    for address, size in zip(columns.tolist(), sizes, strict=True):
        records[:, at : at + size] = _memory(address, n_rows * size).reshape(n_rows, size)
        at += size


def _walk(
    read: Callable[[int], bytes],
    first_offset: int,
    row_bytes: int,
    end: int,
    rows: NDArray[np.int64],
    body_start: NDArray[np.int64],
) -> tuple[int, int]:
    if len(rows) != len(body_start):
        raise ValueError("rows and body_start must have the same length")
    if first_offset < 0 or row_bytes < 0:
        raise ValueError("first_offset and row_bytes must not be negative")
    offset = first_offset
    for record in range(len(rows)):
        header = read(offset) if offset <= end - _HEADER_BYTES else b""
        if len(header) < _HEADER_BYTES:
            return record, 1
        if header[:4] != b"REC\x01":
            return record, 2
        if int.from_bytes(header[4:12], "little", signed=True) != record:
            return record, 3
        if zlib.crc32(header[:28]) != int.from_bytes(header[28:32], "little"):
            return record, 4
        n = int.from_bytes(header[12:20], "little", signed=True)
        if n < 0 or n * row_bytes > _INT64_MAX - 7:
            return record, 5
        stored = -(-n * row_bytes // 8) * 8
        if offset + _HEADER_BYTES + stored > end:
            return record, 6
        rows[record], body_start[record] = n, offset + _HEADER_BYTES
        offset += _HEADER_BYTES + stored
    return len(rows), 0


def walk_records(
    buffer: NDArray[np.uint8],
    first_offset: int,
    row_bytes: int,
    end: int,
    rows: NDArray[np.int64],
    body_start: NDArray[np.int64],
) -> tuple[int, int]:
    """Validate ``len(rows)`` record headers in memory; (good records, code) as in ``kernels/records.pyi``."""

    def read(offset: int) -> bytes:
        return buffer[offset : offset + _HEADER_BYTES].tobytes()

    return _walk(read, first_offset, row_bytes, end, rows, body_start)


def walk_records_fd(
    fd: int,
    first_offset: int,
    row_bytes: int,
    end: int,
    rows: NDArray[np.int64],
    body_start: NDArray[np.int64],
) -> tuple[int, int]:
    """Validate ``len(rows)`` record headers by ``pread``; returns what `walk_records` returns."""

    def read(offset: int) -> bytes:
        return os.pread(fd, _HEADER_BYTES, offset)

    return _walk(read, first_offset, row_bytes, end, rows, body_start)


def encode_record(arrays: list[Any], dtypes: list[np.dtype[Any]], index: int, most: int) -> bytes | None:
    """Return a small record as it stands in a file, or None; see ``kernels/records.pyi``."""
    if len(arrays) != len(dtypes) or not 0 < len(arrays) <= 64:
        return None
    size = _HEADER_BYTES
    for array, dtype in zip(arrays, dtypes, strict=True):
        if type(array) is not np.ndarray or array.dtype != dtype or array.ndim != 1:
            return None
        if len(array) != len(arrays[0]) or not array.flags.c_contiguous:
            return None
        size += array.nbytes
    if size > most:
        return None
    header = b"REC\x01" + index.to_bytes(8, "little") + len(arrays[0]).to_bytes(8, "little") + bytes(8)
    header += zlib.crc32(header).to_bytes(4, "little")
    return b"".join([header, *(array.tobytes() for array in arrays), bytes(-size % 8)])


HEAD_FIELDS = 5
"""Fields of a file's state; see ``kernels/heads.pyi``."""


def read_heads(names: bytes, heads: NDArray[np.uint8], states: NDArray[np.int64]) -> None:
    """Read the first bytes of many files; see ``kernels/heads.pyi``."""
    n, room = heads.shape
    if states.shape != (n, HEAD_FIELDS):
        raise ValueError(f"states must have shape ({n}, {HEAD_FIELDS})")
    if n and (room == 0 or names.count(0) < n):
        raise ValueError(f"there must be {n} names, each ended by a zero byte, and room for heads")
    states[:] = 0
    for head, state, name in zip(heads, states, names.split(b"\0"), strict=False):
        try:
            fd = os.open(name, os.O_RDONLY | os.O_NONBLOCK)
        except OSError as error:
            state[0] = error.errno
            continue
        try:
            data = os.pread(fd, room, 0)
            found = os.fstat(fd)
            if stat.S_ISREG(found.st_mode) and len(data) == min(room, found.st_size):
                head[: len(data)] = np.frombuffer(data, np.uint8)
                state[1:4] = len(data), found.st_size, found.st_mtime_ns
                state[4:].view(np.uint64)[0] = found.st_ino
            else:
                state[0] = -1
        except OSError:  # a directory
            state[0] = -1
        finally:
            os.close(fd)


def alike(
    heads: NDArray[np.uint8],
    states: NDArray[np.int64],
    text_end: int,
    record: int,
    row_bytes: int,
    rows: NDArray[np.int64],
) -> int:
    """Find the files that say what the first one says; see ``kernels/heads.pyi``."""
    n, room = heads.shape
    if states.shape != (n, HEAD_FIELDS) or rows.shape != (n,):
        raise ValueError(f"states and rows must have {n} entries")
    body = record + _HEADER_BYTES
    if not 72 <= text_end <= record <= room - _HEADER_BYTES or row_bytes < 1:
        raise ValueError("the first header does not fit into its head")
    for i in range(n):
        error, length, size = states[i, :3].tolist()
        head = heads[i].tobytes()
        count, body_start = np.zeros(1, np.int64), np.zeros(1, np.int64)
        same = (
            error == 0
            and length >= body
            and head[:8] == heads[0].tobytes()[:8]
            and head[72:text_end] == heads[0].tobytes()[72:text_end]
            and zlib.crc32(head[8:32]) == int.from_bytes(head[32:36], "little")
            and int.from_bytes(head[8:16], "little", signed=True) == 1
            and walk_records(heads[i, :length], record, row_bytes, size, count, body_start) == (1, 0)
            and count[0] == int.from_bytes(head[16:24], "little", signed=True)
        )
        rows[i] = count[0] if same else -1
    return int((rows >= 0).sum())
