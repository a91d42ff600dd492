"""Columns as streams of bytes: dense values of a row group, and the encodings of columns.md section 6.

`prepare` looks at a column and takes its nulls out; the result offers its values as the buffers that the kernels
take. Nothing here makes a Python object per value.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...kernels import encode as kernels
from .tags import NUMPY_TYPES, PLAIN_WIDTH, Encoding, Type

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Dense", "Dictionary", "Prepared", "encode_stream", "encoded_bytes", "null_bitmap", "prepare"]

LONGEST = 0xFFFFFFFF
"""Encoded bytes, values and lengths have 32 bits (section 15)."""

NARROW_BYTES = 0x7FFFFFFF
"""Text of several chunks is joined with 32 bit offsets up to here."""

_SEED = secrets.randbits(64)  # of hashes in memory; no byte of a file depends on it


@dataclass(slots=True)
class Dictionary:
    """Distinct values of a column in order of first appearance.

    Attributes
    ----------
    codes : ndarray of uint32, shape (n,)
    entries : Dense
    """

    codes: NDArray[np.uint32]
    entries: Dense

    @property
    def width(self) -> int:
        """Bits of a code (section 6.4)."""
        k = self.entries.n
        return 0 if k <= 1 else (k - 1).bit_length()

    @property
    def packed_bytes(self) -> int:
        """Bytes of all codes in the stream, which stand behind its first 12 bytes."""
        return (len(self.codes) * self.width + 7) // 8


@dataclass(slots=True)
class Dense:
    """The non-null values of one column of one row group.

    Attributes
    ----------
    kind : Type
    n : int
        Number of values.
    fixed : ndarray, shape (n,), or None
        Values of a fixed-width column, contiguous, little-endian; bool as NumPy bool.
    offsets : ndarray of int32 or int64, shape (n + 1,), or None
        Of a column of variable length: value i is ``data[offsets[i]:offsets[i + 1]]``.
    data : ndarray of uint8 or None
    ready : Dictionary or None
        Known when the column came as an Arrow dictionary, or once it was looked for.
    known_affixes : (int, int) or None
        `affixes`, once they were looked for.
    """

    kind: Type
    n: int
    fixed: NDArray[Any] | None = None
    offsets: NDArray[Any] | None = None
    data: NDArray[np.uint8] | None = None
    ready: Dictionary | None = field(default=None, repr=False)
    known_affixes: tuple[int, int] | None = field(default=None, repr=False)
    _tried: int = field(default=-1, repr=False)

    @property
    def raw(self) -> NDArray[np.uint8]:
        """The bytes of a fixed-width column; no copy."""
        assert self.fixed is not None
        return self.fixed.view(np.uint8)

    @property
    def variable(self) -> tuple[NDArray[Any], NDArray[np.uint8]]:
        """Offsets and data of a column of variable length."""
        assert self.offsets is not None
        assert self.data is not None
        return self.offsets, self.data

    @property
    def value_bytes(self) -> int:
        """Bytes of all values together, without lengths."""
        if self.fixed is not None:
            return self.fixed.nbytes
        offsets, _ = self.variable
        return int(offsets[-1]) - int(offsets[0])

    @property
    def affixes(self) -> tuple[int, int]:
        """Lengths of the common prefix and suffix of values of variable length (section 6.6). Found once."""
        if self.known_affixes is None:
            self.known_affixes = kernels.affixes(*self.variable)
        return self.known_affixes

    def rows(self, start: int, stop: int) -> Dense:
        """Return the values [start, stop) as views."""
        if self.fixed is not None:
            return Dense(self.kind, stop - start, self.fixed[start:stop])
        offsets, data = self.variable
        return Dense(self.kind, stop - start, None, offsets[start : stop + 1], data)

    def dictionary(self, limit: int | None = None) -> Dictionary | None:
        """Return the dictionary of the values, or None when it has more than `limit` entries. Found once."""
        limit = self.n if limit is None else min(limit, self.n)
        if self.ready is not None:
            return self.ready if self.ready.entries.n <= limit else None
        if limit <= self._tried:
            return None
        codes, firsts = np.empty(self.n, np.uint32), np.empty(limit, np.uint32)
        if self.fixed is not None:
            found = kernels.fixed_codes(self.raw, self.fixed.itemsize, limit, _SEED, codes, firsts)
        else:
            found = kernels.variable_codes(*self.variable, limit, _SEED, codes, firsts)
        if found < 0:
            self._tried = limit
            return None
        self.ready = Dictionary(codes, self.take(firsts[:found]))
        return self.ready

    def take(self, rows: NDArray[np.uint32]) -> Dense:
        """Return the values of `rows`, copied."""
        if self.fixed is not None:
            return Dense(self.kind, len(rows), self.fixed[rows])
        offsets, data = self.variable
        out = np.empty(4 * len(rows) + kernels.entry_bytes(offsets, data, rows), np.uint8)
        kernels.put_entries(offsets, data, rows, out)
        starts = np.empty(len(rows) + 1, np.int64)
        starts[:-1] = out[: 4 * len(rows)].view("<u4")
        starts[-1] = len(out) - 4 * len(rows)
        return Dense(self.kind, len(rows), None, starts, out[4 * len(rows) :])


@dataclass(slots=True)
class Prepared:
    """A column of a row group that passed all checks.

    Attributes
    ----------
    n_rows : int
    null_count : int
    bitmap : bytes
        As stored: one bit per row, 1 = null, lowest bit first; empty where the column is not nullable (section 4).
    dense : Dense
    """

    n_rows: int
    null_count: int
    bitmap: bytes
    dense: Dense


# --------------------------------------------------------------------------------------------------- preparing


def prepare(name: str, kind: Type, nullable: bool, column: Any) -> Prepared:
    """Check one column and take its nulls out.

    Parameters
    ----------
    name : str
        For messages.
    kind, nullable
        As the schema says.
    column : ndarray, or pyarrow Array or ChunkedArray
        A NumPy array must have the type's dtype (in any byte order). Arrow: the type itself, text and binary in any
        of their layouts, or a dictionary of it.

    Raises
    ------
    TypeError
        For a column of another type.
    ValueError
        For nulls in a column that is not nullable, and more than one dimension.
    """
    if isinstance(column, np.ndarray):
        dense = _dense_numpy(name, kind, column)
        bitmap = bytes(-(-dense.n // 8)) if nullable else b""
        return Prepared(dense.n, 0, bitmap, dense)
    import pyarrow as pa

    if not isinstance(column, (pa.Array, pa.ChunkedArray)):
        raise TypeError(f"column {name!r} is neither a NumPy nor an Arrow array, but {type(column).__name__}")
    array = _joined(column)
    if pa.types.is_dictionary(array.type) and array.dictionary.null_count:
        array = array.dictionary_decode()
    n_rows, null_count = len(array), array.null_count
    if null_count and not nullable:
        raise ValueError(
            f"column {name!r} has {null_count} nulls, but the schema says that it has none (it is not nullable)"
        )
    bitmap = null_bitmap(array) if nullable else b""
    if null_count:
        array = array.drop_null()
    return Prepared(n_rows, null_count, bitmap, _dense_arrow(name, kind, array))


def null_bitmap(array: pa.Array) -> bytes:
    """Return the stored null bitmap of an Arrow array (section 4): 1 = null, unused bits 0."""
    n = len(array)
    if array.null_count == 0:
        return bytes(-(-n // 8))
    valid = array.buffers()[0]
    if valid is None or array.offset % 8:
        flags: NDArray[Any] = array.is_null().to_numpy(zero_copy_only=False)
        return np.packbits(flags, bitorder="little").tobytes()
    bits = np.invert(np.frombuffer(valid, np.uint8, -(-n // 8), array.offset // 8))
    if n % 8:
        bits[-1] &= (1 << n % 8) - 1
    return bits.tobytes()


def _dense_numpy(name: str, kind: Type, column: NDArray[Any]) -> Dense:
    dtype = NUMPY_TYPES.get(kind)
    if dtype is None or column.dtype.newbyteorder("=") != dtype.newbyteorder("="):
        wanted = "an Arrow array of text or bytes" if dtype is None else f"dtype {dtype}"
        raise TypeError(f"column {name!r} has dtype {column.dtype}, the schema asks for {wanted}")
    if column.ndim != 1:
        raise ValueError(f"column {name!r} has {column.ndim} dimensions; a column is 1D")
    return Dense(kind, len(column), np.ascontiguousarray(column, dtype))


def _joined(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return one array; text beyond the reach of 32 bit offsets gets 64 bit ones."""
    import pyarrow as pa

    if isinstance(column, pa.Array):
        return column
    if column.num_chunks == 1:
        return column.chunk(0)
    if column.num_chunks == 0:
        return pa.array([], type=column.type)
    if pa.types.is_dictionary(column.type):
        column = column.unify_dictionaries()
    elif column.nbytes > NARROW_BYTES:
        wide = {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}.get(column.type)
        column = column if wide is None else column.cast(wide)
    return pa.concat_arrays(column.chunks)


def _dense_arrow(name: str, kind: Type, array: pa.Array) -> Dense:
    """Return the buffers of an array without nulls."""
    import pyarrow as pa

    if pa.types.is_dictionary(array.type):
        ready = _ready_dictionary(name, kind, array)
        dense = _dense_arrow(name, kind, array.dictionary_decode())
        dense.ready = ready
        return dense
    if pa.types.is_null(array.type):
        array = array.cast(_arrow_type(kind))
    wide = _variable_type(array.type)
    if kind in (Type.STRING, Type.BYTES):
        if wide is None or (kind is Type.STRING) != (wide in (pa.string(), pa.large_string())):
            raise TypeError(f"column {name!r} is {array.type}, the schema asks for {kind.name.lower()}")
        if array.type != wide:
            array = array.cast(wide)
        _, offsets, data = array.buffers()
        dtype: np.dtype[Any] = np.dtype(
            np.int64 if pa.types.is_large_string(wide) or pa.types.is_large_binary(wide) else np.int32
        )
        n = len(array)
        if n == 0 or offsets is None:
            return Dense(kind, 0, None, np.zeros(1, dtype), np.empty(0, np.uint8))
        starts = np.frombuffer(offsets, dtype, n + 1, array.offset * dtype.itemsize)
        values = np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
        return Dense(kind, n, None, starts, values)
    if array.type != _arrow_type(kind):
        raise TypeError(f"column {name!r} is {array.type}, the schema asks for {kind.name.lower()}")
    dtype = NUMPY_TYPES[kind]
    n = len(array)
    buffer = array.buffers()[1]
    if n == 0 or buffer is None:
        return Dense(kind, 0, np.empty(0, dtype))
    if kind is Type.BOOL:
        first = array.offset // 8
        bits = np.frombuffer(buffer, np.uint8)[first : -(-(array.offset + n) // 8)]
        shift = array.offset - 8 * first
        return Dense(kind, n, np.unpackbits(bits, bitorder="little")[shift : shift + n].view(np.bool_))
    return Dense(kind, n, np.frombuffer(buffer, dtype, n, array.offset * dtype.itemsize))


def _variable_type(kind: pa.DataType) -> pa.DataType | None:
    """Return the Arrow type with plain offsets that holds the values of `kind`; None if they have a fixed width."""
    import pyarrow as pa

    types = pa.types
    if kind in (pa.string(), pa.binary(), pa.large_string(), pa.large_binary()):
        return kind
    if types.is_fixed_size_binary(kind):
        return pa.binary()
    if hasattr(types, "is_string_view") and types.is_string_view(kind):
        return pa.large_string()
    if hasattr(types, "is_binary_view") and types.is_binary_view(kind):
        return pa.large_binary()
    return None


def _arrow_type(kind: Type) -> pa.DataType:
    import pyarrow as pa

    if kind is Type.STRING:
        return pa.string()
    return pa.binary() if kind is Type.BYTES else pa.from_numpy_dtype(NUMPY_TYPES[kind])


def _ready_dictionary(name: str, kind: Type, array: pa.DictionaryArray) -> Dictionary | None:
    """Return an Arrow dictionary renumbered as the format wants it; None when it lists a value twice."""
    entries = _dense_arrow(name, kind, array.dictionary)
    distinct = entries.dictionary()
    assert distinct is not None
    entries.ready = None
    if distinct.entries.n != entries.n:
        return None
    old: NDArray[Any] = array.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    codes, order = np.empty(len(old), np.uint32), np.empty(entries.n, np.uint32)
    used = kernels.renumber(old, np.zeros(entries.n, np.uint32), codes, order)
    return Dictionary(codes, entries.take(order[:used]))


# ---------------------------------------------------------------------------------------------------- encoding


def encoded_bytes(dense: Dense, encoding: Encoding) -> int:
    """Return the length of a stream (R of section 3.1) without making it; of all encodings but Tokenized."""
    n = dense.n
    if encoding is Encoding.PLAIN:
        return dense.value_bytes + (0 if dense.kind.fixed else 4 * n)
    if encoding is Encoding.RLE_BITPACK:
        return -(-n // 8)
    if encoding is Encoding.DELTA:
        return 8 * n
    if encoding is Encoding.OFFSET_BYTES:
        return 4 + 4 * n + dense.value_bytes
    if encoding is Encoding.DICT:
        found = dense.dictionary()
        assert found is not None
        return 16 + found.packed_bytes + 4 * found.entries.n + found.entries.value_bytes
    if encoding is Encoding.AFFIX:
        prefix, suffix = dense.affixes
        return 8 + prefix + suffix + dense.value_bytes + n * (4 - prefix - suffix)
    raise ValueError(f"the length of {encoding.name} is known when it is encoded")


def check_encoded_bytes(name: str, nbytes: int) -> None:
    """Raise ValueError when a stream passes what its length fields hold (section 15)."""
    if nbytes > LONGEST:
        raise ValueError(
            f"column {name!r} would have {nbytes} encoded bytes in this row group; the format allows less than "
            "4 GiB. Write smaller row groups (row_group_size=...)"
        )


def encode_stream(name: str, dense: Dense, encoding: Encoding) -> NDArray[np.uint8]:
    """Return the encoded stream of a column (section 6), in all encodings but Tokenized.

    Returns
    -------
    ndarray of uint8
        May share memory with the column.

    Raises
    ------
    ValueError
        If the stream would reach 4 GiB; nothing of that size is allocated then.
    """
    nbytes = encoded_bytes(dense, encoding)
    check_encoded_bytes(name, nbytes)
    if encoding is Encoding.PLAIN and dense.fixed is not None:
        return dense.raw
    if encoding is Encoding.RLE_BITPACK:
        assert dense.fixed is not None
        return np.packbits(dense.fixed)
    out = np.empty(nbytes, np.uint8)
    if encoding is Encoding.PLAIN:
        kernels.prefixed(*dense.variable, 0, 0, out)
    elif encoding is Encoding.DELTA:
        signed = dense.kind <= Type.INT64
        kernels.delta(dense.raw, PLAIN_WIDTH[dense.kind], signed, out.view(np.uint64))
    elif encoding is Encoding.OFFSET_BYTES:
        out[:4] = _u32(dense.n)
        _put_offset_bytes(dense, out[4:])
    elif encoding is Encoding.AFFIX:
        _put_affix(dense, out)
    else:
        _put_dictionary(dense, out)
    return out


def _u32(*values: int) -> NDArray[np.uint8]:
    return np.array(values, "<u4").view(np.uint8)


def _put_offset_bytes(dense: Dense, out: NDArray[np.uint8]) -> None:
    """Write offsets and bytes of all values of variable or fixed width: OffsetBytes without its count (6.5)."""
    n = dense.n
    starts = out[: 4 * n].view("<u4")
    if dense.fixed is not None:
        starts[:] = np.arange(n, dtype=np.uint64) * dense.fixed.itemsize
        out[4 * n :] = dense.raw
        return
    offsets, data = dense.variable
    first, last = int(offsets[0]), int(offsets[-1])
    starts[:] = offsets[:-1] - first
    out[4 * n :] = data[first:last]


def _put_affix(dense: Dense, out: NDArray[np.uint8]) -> None:
    offsets, data = dense.variable
    prefix, suffix = dense.affixes
    head = 8 + prefix + suffix
    if dense.n == 0:
        out[:] = 0
        return
    first, end = int(offsets[0]), int(offsets[1])
    out[:4] = _u32(prefix)
    out[4 : 4 + prefix] = data[first : first + prefix]
    out[4 + prefix : 8 + prefix] = _u32(suffix)
    out[8 + prefix : head] = data[end - suffix : end]
    kernels.prefixed(offsets, data, prefix, suffix, out[head:])


def _put_dictionary(dense: Dense, out: NDArray[np.uint8]) -> None:
    found = dense.dictionary()
    assert found is not None
    k, packed = found.entries.n, found.packed_bytes
    out[:12] = _u32(dense.n, k, found.width)
    kernels.pack_bits(found.codes, found.width, out[12 : 12 + packed])
    out[12 + packed : 16 + packed] = _u32(k)
    _put_offset_bytes(found.entries, out[16 + packed :])
