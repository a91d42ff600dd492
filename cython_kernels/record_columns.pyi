from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Buffer: TypeAlias = bytes | bytearray | memoryview | NDArray[Any]

WRONG: tuple[str, ...]
"""What each error code says; 0 is no error."""

class Layout:
    """Record types for the kernels; number 0 is that of the list, or of the message.

    Parameters
    ----------
    record_types : sequence of (k8, fields)
        Each field is (key, type code, optional, target): the code of an optional is that of its value; the target is
        a column number, for a nested record (code 21) the number of its type, which is above its parent's, and -1 for
        a field that is stepped over.
    """

    n_columns: int
    n_fields: int
    def __init__(self, record_types: Sequence[tuple[bool, Sequence[tuple[int, int, bool, int]]]]) -> None: ...

Target = tuple[
    NDArray[Any] | None, NDArray[np.uint8] | None, NDArray[np.int64] | None, NDArray[np.int64] | None
]
"""Of a column of fixed width: its values as bytes, zeroed; validity bytes, zeroed, of optionals. Of one of variable
length: None, validity, and two zeroed arrays that get, by row, 2 * offset + k8 of the value's code byte, and its size
(bytes of text, elements of lists)."""

def read_list(
    layout: Layout,
    data: Buffer,
    begin: int,
    end: int,
    first: int,
    stop: int,
    k8: bool,
    columns: Sequence[Target],
) -> tuple[int, int]:
    """Read the ``stop - first`` records of a list, ``data[begin:end]`` without its count, into rows [first, stop).

    `k8`: whether the list stands in a run of eight-bit keys. Returns (0, end) or (error code, offset).
    """

def read_records(
    layout: Layout,
    data: Buffer,
    start: NDArray[np.int64],
    length: NDArray[np.int64],
    columns: Sequence[Target],
) -> tuple[int, int]:
    """Read whole messages (D0 or D8), one per row. Returns (0, any) or (error code, offset)."""

def table_columns(
    layout: Layout,
    data: Buffer,
    begin: int,
    end: int,
    rows: int,
    k8: bool,
    outs: Sequence[NDArray[Any] | None],
    text: NDArray[np.uint8] | None,
    start: NDArray[np.int64],
    length: NDArray[np.int64],
) -> tuple[int, int]:
    """Find the columns of a table, ``data[begin:end]`` without its row count (colbin.md 7), and read its text.

    `start` and `length` (int64, one per field of the type) get where the bytes of the column codec are; `start` is
    -1 of absent columns. `k8`: whether the columns have eight-bit keys. `outs`, by field, has offsets of shape
    (rows + 1,) for text columns that are wanted: int32, int64 when the table has 2 GiB. Their text goes into `text`,
    which has room for ``end - begin`` bytes: that of one column is ``text[start:start + length]``.
    Returns (0, any) or (error code, offset).
    """

def read_table(
    layout: Layout,
    data: Buffer,
    begin: int,
    end: int,
    rows: int,
    k8: bool,
    outs: Sequence[NDArray[Any] | None],
    text: NDArray[np.uint8] | None,
    start: NDArray[np.int64],
    length: NDArray[np.int64],
) -> tuple[int, int, int]:
    """`table_columns`, and the columns of fixed width decoded into `outs` (by field; None: not wanted).

    Absent columns become zeros. Returns (0, 0, -1), (error code, offset, -1), or the codec's error code, the offset and
    the field of a column that is wrong.
    """

def locate(
    layout: Layout, data: Buffer, begin: int, end: int, k8: bool, key: int
) -> tuple[int, int, int, int]:
    """Find the composite field `key` of the record ``data[begin:end]``.

    Returns (0, code or descriptor, start, stop) of its body, the code being -1 when it is absent; or
    (error code, offset, 0, 0).
    """

def texts(
    data: Buffer, place: NDArray[np.int64], size: NDArray[np.int64], code: int, out: NDArray[np.uint8]
) -> tuple[int, int]:
    """Copy the values that pass one found, one behind the other; return (bytes, -1), or (-1, row) for text that is
    malformed, or no longer what pass one found.

    `out` has room for the sum of `size`, which becomes exact where text was packed.
    """

def integer_lists(
    data: Buffer, place: NDArray[np.int64], size: NDArray[np.int64], code: int, out: NDArray[np.uint8]
) -> int:
    """Copy list elements into the bytes of their type; return -1, or a row with an element outside its range, or
    that is no longer what pass one found."""

def string_lists_bytes(data: Buffer, place: NDArray[np.int64]) -> int:
    """Return the bytes of all elements of lists of strings."""

def string_lists(
    data: Buffer,
    place: NDArray[np.int64],
    size: NDArray[np.int64],
    offsets: NDArray[np.int64],
    out: NDArray[np.uint8],
) -> int:
    """Copy the elements of lists of strings: `offsets`, shape (elements + 1,), and their bytes; return -1, or a row
    that is no longer what pass one found.
    """

Source = tuple[
    NDArray[np.uint8] | None,
    NDArray[np.uint8] | None,
    NDArray[np.int64] | None,
    NDArray[np.int64] | None,
    NDArray[np.uint8] | None,
]
"""Values (of lists: elements) as bytes; validity bytes; offsets by row into bytes or elements; of lists of strings, the
offsets of their elements; bytes."""

def write_list(
    layout: Layout, columns: Sequence[Source], begin: int, end: int, out: NDArray[np.uint8]
) -> int:
    """Write rows [begin, end) as the elements of a list in a four-bit run: LEN and run each; return the bytes.

    Raises
    ------
    ValueError
        If `out` has no room for the worst case (5 bytes a row, 10 for each of its fields, 15 for a list of strings,
        5 for each string, and all text and elements), or columns do not have the rows, or offsets leave their bytes.
        Nothing is written.
    """

def write_records(
    layout: Layout,
    columns: Sequence[Source],
    begin: int,
    end: int,
    stop: NDArray[np.int64],
    out: NDArray[np.uint8],
) -> int:
    """Write rows [begin, end) as messages of their own, one behind the other; return the bytes.

    `stop`, shape (end - begin,), gets where each ends. Room and errors are those of `write_list`.
    """

def write_string_column(
    k8: bool, key: int, offsets: NDArray[np.int64], data: NDArray[np.uint8], out: NDArray[np.uint8]
) -> int:
    """Write a text column of a table, its key included; return the bytes. `out` has room for 5 bytes per row more."""
