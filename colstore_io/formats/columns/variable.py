"""Values of variable length to Arrow arrays: nulls, text that must be UTF-8, dictionaries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from ...kernels import decode as kernel
from .. import DecodedColumn
from .chunk import ChunkFacts, Place
from .tags import Type

if TYPE_CHECKING:
    import pyarrow as pa

    from .dictionary import Dictionary
    from .sinks import Request

__all__ = [
    "INT32_MAX",
    "VariableValues",
    "arrow_dictionary",
    "arrow_type",
    "as_buffer",
    "dictionary_column",
    "entries_are_utf8",
    "offset_type",
    "refuse_text",
    "variable_column",
]


INT32_MAX = (1 << 31) - 1


def offset_type(size: int) -> np.dtype[Any]:
    """Return the dtype of offsets into `size` bytes: Arrow's ``string`` has 32 bits, ``large_string`` 64."""
    return np.dtype(np.int64 if size > INT32_MAX else np.int32)


@dataclass(frozen=True, slots=True)
class VariableValues:
    """The values of a chunk that are not null.

    Attributes
    ----------
    offsets : ndarray of int32 or int64, shape (rows + 1,)
        The last ``k + 1`` are positions in `data` of the k values; non-decreasing.
    data : ndarray of uint8
    checked : bool
        Whether text is known to be UTF-8.
    """

    offsets: NDArray[Any]
    data: NDArray[np.uint8]
    checked: bool = False


def variable_column(
    values: VariableValues, bitmap: memoryview | None, facts: ChunkFacts, request: Request, place: Place
) -> DecodedColumn:
    """Return all rows as an Arrow array: ``string`` or ``binary``, ``large_`` where 32 bits do not reach.

    Values that have a room (`Request.room`) stay there; it is told.

    Raises
    ------
    FormatError
        If the column is text, must be UTF-8 and is not, naming the first such row.
    """
    offsets, n_rows = values.offsets, facts.n_rows
    if bitmap is not None:
        kernel.spread_offsets(offsets, bitmap)
    text = facts.type is Type.STRING and request.text
    if text and not values.checked:
        bad = kernel.first_not_utf8(values.data, offsets)
        if bad >= 0:
            refuse_text(bad, values.data[offsets[bad] : offsets[bad + 1]].tobytes(), place)
    null_count = facts.null_count if bitmap is not None else 0
    if request.room is not None:
        inverted = None if bitmap is None else np.bitwise_not(np.frombuffer(bitmap, np.uint8))
        request.room.put(len(values.data), inverted, null_count, text)
        return DecodedColumn()
    import pyarrow as pa

    array = pa.Array.from_buffers(
        arrow_type(text, wide=offsets.dtype.itemsize == 8),
        n_rows,
        [_validity(bitmap), as_buffer(offsets), as_buffer(values.data)],
        null_count=null_count,
    )
    return DecodedColumn(array=array)


def entries_are_utf8(parts: Dictionary) -> int:
    """Return the first entry that is not UTF-8, or -1."""
    bounds = parts.bounds
    wide = len(parts.area) > INT32_MAX
    return kernel.first_not_utf8(parts.area, bounds.astype(np.int64) if wide else bounds.view(np.int32))


def dictionary_column(
    indices: NDArray[np.uint32],
    parts: Dictionary,
    bitmap: memoryview | None,
    facts: ChunkFacts,
    request: Request,
    place: Place,
) -> DecodedColumn:
    """Return all rows as an Arrow dictionary array of int32 indices.

    Parameters
    ----------
    indices : ndarray of uint32, shape (rows,)
        Those of the values that are not null at its end.
    parts : Dictionary
        Which must not be used afterwards: the array takes its memory over.
    """
    import pyarrow as pa

    dictionary = arrow_dictionary(parts, text=facts.type is Type.STRING and request.text, place=place)
    n_rows = facts.n_rows
    null_count = 0
    if bitmap is not None:
        null_count = facts.null_count
        kernel.expand(indices.view(np.uint8), 4, bitmap)
    keys = pa.Array.from_buffers(
        pa.int32(), n_rows, [_validity(bitmap), as_buffer(indices.view(np.int32))], null_count=null_count
    )
    return DecodedColumn(array=pa.DictionaryArray.from_arrays(keys, dictionary, safe=False))


def arrow_dictionary(parts: Dictionary, *, text: bool, place: Place) -> pa.Array:
    """Return the entries of a dictionary as an Arrow array, which takes their memory over."""
    import pyarrow as pa

    bounds, area = parts.bounds, parts.area
    if text:
        bad = entries_are_utf8(parts)
        if bad >= 0:
            refuse_text(-1, area[bounds[bad] : bounds[bad + 1]].tobytes(), place)
    wide = int(bounds[-1]) > INT32_MAX
    return pa.Array.from_buffers(
        arrow_type(text, wide=wide),
        len(bounds) - 1,
        [None, as_buffer(bounds.astype(np.int64) if wide else bounds), as_buffer(area)],
        null_count=0,
    )


def arrow_type(text: bool, *, wide: bool) -> pa.DataType:
    """Return the type of text or bytes, with offsets of 64 bits if `wide`."""
    import pyarrow as pa

    if text:
        return pa.large_string() if wide else pa.string()
    return pa.large_binary() if wide else pa.binary()


def _validity(bitmap: memoryview | None) -> pa.Buffer | None:
    """Return Arrow's bitmap (1 = a value) for one of the file (1 = null); both count bits from the lowest."""
    return None if bitmap is None else as_buffer(np.bitwise_not(np.frombuffer(bitmap, np.uint8)))


def as_buffer(values: NDArray[Any]) -> pa.Buffer:
    """Return the memory of an array as an Arrow buffer."""
    import pyarrow as pa

    return pa.py_buffer(values.view(np.uint8) if values.size else np.empty(0, np.uint8))


def refuse_text(row: int, value: bytes, place: Place) -> NoReturn:
    """Raise `FormatError` for text that is not UTF-8; `row` is -1 for an entry of a dictionary."""
    shown = repr(value if len(value) <= 40 else value[:40] + b"...")
    where = f"row {row}" if row >= 0 else "a dictionary entry"
    place.fail(
        f"{where} is no UTF-8 text: {shown}. Open the file with errors='surrogateescape' to get bytes."
    )
