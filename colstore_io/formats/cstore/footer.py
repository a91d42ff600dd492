"""The statistics footer: smallest and largest value per record and column (cstore.md section 7).

Advisory. Whatever is wrong with a footer means "no statistics", never an error.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...fields import PhysicalColumn, native
from .. import Statistics

__all__ = [
    "FOOTER_MAGIC",
    "Bounds",
    "ColumnEntries",
    "FooterLayout",
    "check_statistics_columns",
    "decode_statistics",
    "empty_statistics",
    "encode_statistics",
    "footer_size",
    "record_statistics",
    "statistics_entries",
]

FOOTER_MAGIC = b"CSTAT\x00\x01\x00"
FOOTER_VERSION = 1
MAX_NAME_BYTES = 0xFFFF

_HEAD = struct.Struct("<8sIII")
_U16 = struct.Struct("<H")
_U32 = struct.Struct("<I")
_BOUNDED_KINDS = "fiubMm"
_EXTENDED_PRECISION = np.finfo(np.longdouble).nmant == 63
"""x86 long double: 10 bytes of value, 6 of filler with no defined content."""


class Bounds(NamedTuple):
    """What the footer says about one column of one record: raw little-endian values, and whether they hold."""

    minimum: bytes
    maximum: bytes
    prunable: bool


def record_statistics(arrays: Sequence[NDArray[Any]]) -> list[Bounds]:
    """Return the footer entries of one record.

    Parameters
    ----------
    arrays : sequence of ndarray, shape (n_rows,)
        The columns of the record in file order, companions included.

    Returns
    -------
    list of Bounds
        Not prunable with zero bytes for strings, empty records, floats that are not all finite, and times
        with NaT.

    Notes
    -----
    Two passes over each column, no temporary arrays.
    """
    return [_bounds(array) for array in arrays]


def _bounds(array: NDArray[Any]) -> Bounds:
    kind = array.dtype.kind
    if kind in _BOUNDED_KINDS and len(array):
        with np.errstate(invalid="ignore"):
            low, high = array.min(), array.max()
        # NaN and NaT spread into both results, infinities end up in one of them.
        if kind == "f":
            prunable = bool(np.isfinite(low) and np.isfinite(high))
        elif kind in "Mm":
            prunable = not (np.isnat(low) or np.isnat(high))
        else:
            prunable = True
        if prunable:
            return Bounds(_value_bytes(low, array.dtype), _value_bytes(high, array.dtype), True)
    empty = bytes(max(array.dtype.itemsize, 1 if kind == "S" else 4 if kind == "U" else 0))
    return Bounds(empty, empty, False)


def _value_bytes(value: Any, dtype: np.dtype[Any]) -> bytes:
    raw = np.asarray(value, dtype=dtype.newbyteorder("<")).tobytes()
    if dtype.kind == "f" and dtype.itemsize == 16 and _EXTENDED_PRECISION:
        return raw[:10] + bytes(6)  # equal data give equal files
    return raw


def empty_statistics(columns: Sequence[PhysicalColumn]) -> list[Bounds]:
    """Return entries that say nothing, for a record of which no statistics were kept."""
    return [Bounds(bytes(c.itemsize), bytes(c.itemsize), False) for c in columns]


def check_statistics_columns(columns: Sequence[PhysicalColumn]) -> None:
    """Raise if a footer cannot name these columns; called before any byte is written.

    Raises
    ------
    ValueError
        If a name is longer than 65535 UTF-8 bytes or holds a lone surrogate.
    """
    for column in columns:
        try:
            length = len(column.name.encode("utf-8"))
        except UnicodeEncodeError:
            raise ValueError(
                f"column name {column.name!a} holds a lone surrogate and cannot have statistics; "
                "rename it or pass statistics=False"
            ) from None
        if length > MAX_NAME_BYTES:
            raise ValueError(
                f"a column name of {length} UTF-8 bytes cannot have statistics (at most {MAX_NAME_BYTES}); "
                "rename it or pass statistics=False"
            )


def _dtype_text(column: PhysicalColumn) -> str:
    return str(column.manifest.get("dtype", column.dtype.str))


def _names(columns: Sequence[PhysicalColumn]) -> bytes:
    parts: list[bytes] = []
    for column in columns:
        for text in (column.name, _dtype_text(column)):
            raw = text.encode("utf-8")
            parts += (_U16.pack(len(raw)), raw)
    return b"".join(parts)


def encode_statistics(columns: Sequence[PhysicalColumn], entries: Sequence[Sequence[Bounds]]) -> bytes:
    """Return the footer of a file.

    Parameters
    ----------
    columns : sequence of PhysicalColumn
        In file order.
    entries : sequence over records of sequences over columns of Bounds
        As `record_statistics`, `empty_statistics` and `statistics_entries` give them.

    Raises
    ------
    ValueError
        As `check_statistics_columns`, or if an entry has the wrong width.
    """
    check_statistics_columns(columns)
    parts = [_HEAD.pack(FOOTER_MAGIC, FOOTER_VERSION, len(columns), len(entries)), _names(columns)]
    for position, column in enumerate(columns):
        own = [record[position] for record in entries]
        if any(len(b.minimum) != column.itemsize or len(b.maximum) != column.itemsize for b in own):
            raise ValueError(f"statistics of column {column.name!r} do not have {column.itemsize} bytes")
        parts += [b.minimum for b in own]
        parts += [b.maximum for b in own]
        parts.append(bytes(b.prunable for b in own))
    body = b"".join(parts)
    return body + _U32.pack(zlib.crc32(body))


def footer_size(columns: Sequence[PhysicalColumn], n_records: int) -> int | None:
    """Return the exact size of the footer of such a file, or None when no footer can name the columns."""
    layout = FooterLayout.of(columns, n_records)
    return None if layout is None else layout.size


@dataclass(frozen=True, slots=True)
class ColumnEntries:
    """Where a footer keeps what it says about one column: offsets of minima, maxima and flags."""

    dtype: np.dtype[Any]
    minimum: int
    maximum: int
    flags: int


@dataclass(frozen=True, slots=True)
class FooterLayout:
    """The footer that files of these columns and that many records have: everything but the values is known.

    Attributes
    ----------
    prefix : bytes
        Magic, version, counts, names and dtypes.
    entries : dict of str to ColumnEntries
        In file order, string columns included.
    n_records, size : int
    """

    prefix: bytes
    entries: Mapping[str, ColumnEntries]
    n_records: int
    size: int

    @classmethod
    def of(cls, columns: Sequence[PhysicalColumn], n_records: int) -> FooterLayout | None:
        """Return the layout, or None when no footer can name the columns."""
        try:
            check_statistics_columns(columns)
        except ValueError:
            return None
        prefix = _HEAD.pack(FOOTER_MAGIC, FOOTER_VERSION, len(columns), n_records) + _names(columns)
        entries: dict[str, ColumnEntries] = {}
        position = len(prefix)
        for column in columns:
            width = n_records * column.itemsize
            entries[column.name] = ColumnEntries(
                column.dtype, position, position + width, position + 2 * width
            )
            position += 2 * width + n_records
        return cls(prefix, entries, n_records, position + _U32.size)

    def accepts(self, data: bytes) -> bool:
        """Whether `data` is such a footer, undamaged."""
        if len(data) != self.size or not data.startswith(self.prefix):
            return False
        if zlib.crc32(memoryview(data)[:-4]) != _U32.unpack(data[-4:])[0]:
            return False
        n = self.n_records
        if n > 64:  # from here on NumPy's call overhead pays
            return all(np.frombuffer(data, np.uint8, n, e.flags).max() <= 1 for e in self.entries.values())
        return not any(n and max(data[e.flags : e.flags + n]) > 1 for e in self.entries.values())

    def decode(self, data: bytes | memoryview) -> Statistics | None:
        """Return what a footer says, or None when anything about it is inconsistent; see `decode_statistics`."""
        owned = bytes(data)
        if not self.accepts(owned):
            return None
        decoded = _Decoded(self, owned)
        return Statistics(_Part(decoded, 0), _Part(decoded, 1), _Part(decoded, 2))


def decode_statistics(
    data: bytes | memoryview, columns: Sequence[PhysicalColumn], n_records: int
) -> Statistics | None:
    """Return what a footer says, or None when anything about it is inconsistent.

    Parameters
    ----------
    data : buffer
        Bytes from the footer's offset to the end of the file. Copied.
    columns, n_records
        What the header and the records say.

    Returns
    -------
    Statistics or None
        Mappings whose arrays are made when they are asked for, in native byte order, read-only. String columns
        are left out: their bounds are never used. An entry is usable when it is flagged prunable, neither bound
        is NaN or NaT, and minimum <= maximum.
    """
    layout = FooterLayout.of(columns, n_records)
    return None if layout is None else layout.decode(data)


class _Decoded:
    """A checked footer. Columns are decoded on demand: a file has many, a query asks for few."""

    __slots__ = ("_cache", "data", "layout")

    def __init__(self, layout: FooterLayout, data: bytes) -> None:
        self.layout = layout
        self.data = data
        # Filled without a lock: two threads may decode one column twice, with equal results.
        self._cache: dict[str, tuple[NDArray[Any], NDArray[Any], NDArray[np.bool_]]] = {}

    def __reduce__(self) -> tuple[object, ...]:
        return (_Decoded, (self.layout, self.data))

    def column(self, name: str) -> tuple[NDArray[Any], NDArray[Any], NDArray[np.bool_]]:
        known = self._cache.get(name)
        if known is not None:
            return known
        entry = self.layout.entries[name]
        if entry.dtype.kind not in _BOUNDED_KINDS:
            raise KeyError(name)
        n = self.layout.n_records
        low = _values(self.data, entry.dtype, n, entry.minimum)
        high = _values(self.data, entry.dtype, n, entry.maximum)
        flags = np.frombuffer(self.data, np.uint8, n, entry.flags)
        with np.errstate(invalid="ignore"):
            usable = (flags != 0) & (low <= high)  # the comparison is false for NaN and NaT
        for array in (low, high, usable):
            array.flags.writeable = False
        self._cache[name] = low, high, usable
        return low, high, usable


class _Part(Mapping[str, NDArray[Any]]):
    """The minima, the maxima or the usable flags of a footer, by column name."""

    __slots__ = ("_decoded", "_number")

    def __init__(self, decoded: _Decoded, number: int) -> None:
        self._decoded = decoded
        self._number = number

    def __reduce__(self) -> tuple[object, ...]:
        return (_Part, (self._decoded, self._number))

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self._decoded.column(name)[self._number]

    def __contains__(self, name: object) -> bool:
        entry = self._decoded.layout.entries.get(name)  # type: ignore[call-overload]
        return entry is not None and entry.dtype.kind in _BOUNDED_KINDS

    def __iter__(self) -> Iterator[str]:
        return (name for name, e in self._decoded.layout.entries.items() if e.dtype.kind in _BOUNDED_KINDS)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __repr__(self) -> str:
        return repr(dict(self))


def _values(data: bytes, dtype: np.dtype[Any], count: int, offset: int) -> NDArray[Any]:
    if dtype.kind == "b":
        return np.frombuffer(data, np.uint8, count, offset).astype(np.bool_)
    values: NDArray[Any] = np.frombuffer(data, dtype, count, offset)
    owned: NDArray[Any] = values.copy() if dtype.isnative else values.byteswap().view(native(dtype))
    return owned


def statistics_entries(
    statistics: Statistics, columns: Sequence[PhysicalColumn], n_records: int
) -> list[list[Bounds]]:
    """Return the entries of a decoded footer, per record, for a writer that goes on with the file."""
    records: list[list[Bounds]] = [[] for _ in range(n_records)]
    for column in columns:
        size = column.itemsize
        empty = Bounds(bytes(size), bytes(size), False)
        usable = statistics.usable.get(column.name)
        if usable is None:
            for record in records:
                record.append(empty)
            continue
        stored = column.dtype.newbyteorder("<")
        low = statistics.minimum[column.name].astype(stored).tobytes()
        high = statistics.maximum[column.name].astype(stored).tobytes()
        for r, record in enumerate(records):
            part = slice(r * size, (r + 1) * size)
            record.append(Bounds(low[part], high[part], True) if usable[r] else empty)
    return records
