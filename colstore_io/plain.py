"""Columns as plain NumPy arrays, nulls included.

Array libraries (xarray, dask.array) have no validity mask: a nullable column takes the form in which NumPy can say
"missing" itself. Columns without nulls keep their stored dtype (integrations.md 3.2).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from . import arrays
from .dataset import Source
from .fields import Field
from .gather import read_part
from .materialise import read_fields
from .selection import Range, normalise

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "LazyColumn",
    "LazyColumns",
    "common_dtype",
    "objects",
    "plain_dtype",
    "read_missing",
    "read_plain",
    "read_stored",
]


def plain_dtype(field: Field) -> np.dtype[Any]:
    """Return the dtype in which `read_plain` gives a column.

    Notes
    -----
    A nullable integer becomes float64 with NaN (float32 up to 16 bits, where that is exact); integers beyond 2**53
    lose digits. Floats keep their dtype, times have NaT. Booleans, text and bytes become objects, NaN where missing.
    """
    dtype = field.native_dtype
    if field.variable or not field.nullable or dtype.kind in "fmM":
        return dtype
    if dtype.kind in "iu":
        return np.dtype(np.float32 if dtype.itemsize <= 2 else np.float64)
    return np.dtype(object)


def common_dtype(fields: Sequence[Field]) -> np.dtype[Any]:
    """Return the dtype of one array that holds all of `fields`.

    Raises
    ------
    TypeError
        If numbers, times and text are mixed.
    """
    try:
        return np.result_type(*(plain_dtype(field) for field in fields))
    except TypeError:
        listed = ", ".join(f"{field.name} ({plain_dtype(field)})" for field in fields)
        raise TypeError(f"no common dtype for an array of {listed}; read them one by one") from None


def read_plain(source: Source, rows: Any, positions: Sequence[int]) -> list[NDArray[Any]]:
    """Read columns in one pass, each in its `plain_dtype`.

    Parameters
    ----------
    source : Source
    rows : RowSelection
    positions : sequence of int
        Positions in ``source.schema.fields``.

    Returns
    -------
    list of ndarray, shape (rows.count,)
        Owned by the caller.
    """
    fields = [source.schema.fields[p] for p in positions]
    if len(positions) == 1 and not fields[0].nullable and not fields[0].variable:
        return [read_part(source, rows, (positions[0], False))]
    return [
        _filled(field, *data)
        if isinstance(data, tuple)
        else data
        if isinstance(data, np.ndarray)
        else objects(data)
        for field, data in zip(fields, read_fields(source, rows, positions), strict=True)
    ]


def objects(array: pa.Array) -> NDArray[Any]:
    """Return an Arrow array of variable-length values as Python objects, NaN where missing."""
    values: NDArray[Any] = array.to_numpy(zero_copy_only=False)
    if values.dtype != object:  # all of them null
        values = values.astype(object)
    if array.null_count:
        values = values if values.flags.writeable else values.copy()
        values[np.asarray(array.is_null())] = np.nan  # pandas and xarray look for NaN, Arrow says None
    return values


def read_stored(source: Source, rows: Any, position: int) -> NDArray[Any]:
    """Read the stored values of one column; what stands under a null is unspecified."""
    if source.schema.fields[position].variable:
        return objects(read_part(source, rows, (position, False)))
    return read_part(source, rows, (position, False))


def read_missing(source: Source, rows: Any, position: int) -> NDArray[np.bool_]:
    """Return where a nullable column has no value."""
    return _as_missing(read_part(source, rows, (position, True)))


def _as_missing(flags: NDArray[Any]) -> NDArray[np.bool_]:
    missing: NDArray[np.bool_] = flags.view(np.uint8) == 0  # a byte other than 0 counts as 1 (cstore.md 4.2)
    return missing


def _filled(field: Field, values: NDArray[Any], valid: NDArray[np.bool_]) -> NDArray[Any]:
    """Return values with the missing ones marked; `values` may be used as the result."""
    missing = ~valid
    kind = values.dtype.kind
    if kind in "iuf":
        values = values.astype(plain_dtype(field), copy=False)
        values[missing] = np.nan
    elif kind in "mM":
        values[missing] = "NaT"
    elif kind == "b":
        values = (values.view(np.uint8) != 0).astype(object)
        values[missing] = np.nan
    else:
        values = arrays.arrow_array(field, values, ~missing).to_numpy(zero_copy_only=False)
        if not values.flags.writeable:
            values = values.copy()
        values[missing] = np.nan  # pandas and xarray look for NaN, Arrow says None
    return values


class LazyColumn:
    """One column as an array that is read when it is indexed: what chunked arrays are made from.

    Has no ``copy`` and no ``__array__``: nothing can turn it into memory by accident (integrations.md 2.1). Pickling
    carries addresses, no data.

    Attributes
    ----------
    shape : tuple of int, (n_rows,)
    dtype : numpy.dtype
    """

    __slots__ = ("_position", "_source", "dtype", "shape")

    ndim = 1

    def __init__(self, source: Source, position: int) -> None:
        self._source = source
        self._position = position
        self.dtype = plain_dtype(source.schema.fields[position])
        self.shape = (source.n_rows,)

    def __getitem__(self, key: Any) -> Any:
        rows = key[0] if isinstance(key, tuple) and len(key) == 1 else key
        (values,) = read_plain(self._source, normalise(rows, self.shape[0]), [self._position])
        return values[0] if isinstance(rows, (int, np.integer)) else values

    def __dask_tokenize__(self) -> tuple[str, str, int]:
        return "LazyColumn", self._source.token, self._position

    def __repr__(self) -> str:
        return f"<LazyColumn {self._source.schema.fields[self._position].name!r}: {self.shape[0]} rows, {self.dtype}>"


class LazyColumns:
    """Several columns as one two-dimensional array, rows by columns, that is read when it is indexed.

    Attributes
    ----------
    shape : tuple of int, (n_rows, n_columns)
    dtype : numpy.dtype
        The common dtype of the columns.
    """

    __slots__ = ("_source", "dtype", "shape")

    ndim = 2

    def __init__(self, source: Source) -> None:
        self._source = source
        self.dtype = common_dtype(source.schema.fields)
        self.shape = (source.n_rows, len(source.schema))

    def __getitem__(self, key: Any) -> Any:
        rows, columns = (*(key if isinstance(key, tuple) else (key,)), slice(None))[:2]
        n_rows, n_columns = self.shape
        positions = np.arange(n_columns)[columns]
        selection = Range(0, 1, n_rows) if rows is Ellipsis else normalise(rows, n_rows)
        found = read_plain(self._source, selection, np.atleast_1d(positions).tolist())
        block = np.empty(
            (len(found), selection.count), self.dtype
        )  # one column after the other, as they come
        for target, values in zip(block, found, strict=True):
            target[...] = values
        table = block.T
        if isinstance(rows, (int, np.integer)):
            table = table[0]
        return table[..., 0] if positions.ndim == 0 else table

    def __dask_tokenize__(self) -> tuple[str, str]:
        return "LazyColumns", self._source.token

    def __repr__(self) -> str:
        return f"<LazyColumns {self._source.schema.names}: {self.shape[0]} rows, {self.dtype}>"
