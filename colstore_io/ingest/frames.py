"""pandas columns as stored values.

One function per family of pandas dtypes; which of them get a validity companion is the table of
cstore-behaviour.md 6.1. pandas is never imported here: whoever holds a pandas object has imported it.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arguments import loaded_module
from .arrow import TextTarget, storable_categories
from .columns import Column, arrow_column, column_of, object_column, storable

__all__ = ["frame_columns", "is_frame", "is_pandas", "is_pandas_column", "pandas_column"]


def is_frame(data: Any) -> bool:
    """Tell whether `data` is a pandas DataFrame, without importing pandas."""
    pandas = loaded_module("pandas")
    return pandas is not None and isinstance(data, pandas.DataFrame)


def is_pandas(data: Any) -> bool:
    """Tell whether `data` is a DataFrame, Series or Index, without importing pandas."""
    pandas = loaded_module("pandas")
    return pandas is not None and isinstance(data, (pandas.DataFrame, pandas.Series, pandas.Index))


def is_pandas_column(data: Any) -> bool:
    """Tell whether `data` is a Series, an Index, or an array of pandas without either around it."""
    pandas = loaded_module("pandas")
    return pandas is not None and isinstance(
        data, (pandas.Series, pandas.Index, pandas.api.extensions.ExtensionArray)
    )


def frame_columns(frame: Any) -> list[tuple[str, Any]]:
    """Return (name, Series) for each column of a DataFrame, by position; the index is ignored."""
    return [(str(label), frame.iloc[:, i]) for i, label in enumerate(frame.columns)]


def pandas_column(name: str, data: Any, target: TextTarget) -> Column:
    """Convert a Series, an Index or an extension array.

    Parameters
    ----------
    name : str
        For messages.
    data : pandas.Series, pandas.Index or ExtensionArray
        The column; its index is ignored.
    target : TextTarget
        What text becomes.

    Raises
    ------
    TypeError
        For sparse, period and interval columns, and for objects of several kinds; names the column.
    """
    pandas: Any = sys.modules["pandas"]
    if isinstance(data, pandas.MultiIndex):
        raise TypeError(f"column {name!r} is a MultiIndex; store each of its levels as a column")
    dtype = data.dtype
    array = data if isinstance(data, pandas.api.extensions.ExtensionArray) else data.array
    if isinstance(dtype, np.dtype):
        return _numpy_backed(name, array.to_numpy(), target)
    if isinstance(dtype, pandas.CategoricalDtype):
        return _categorical(name, array, target)
    if isinstance(dtype, pandas.DatetimeTZDtype):
        import pyarrow as pa

        values = storable(name, np.asarray(array.to_numpy(dtype=f"M8[{dtype.unit}]")))  # UTC
        return Column(values, in_band=True, tz=str(pa.lib.tzinfo_to_string(dtype.tz)))
    if isinstance(dtype, pandas.StringDtype):
        import pyarrow as pa

        try:
            text = pa.array(array, type=pa.large_string(), from_pandas=True)
        except UnicodeError:
            raise ValueError(
                f"column {name!r} holds a lone surrogate, which cannot be encoded as UTF-8; replace it, or store bytes"
            ) from None
        column = arrow_column(name, text, target)
        # That pandas keeps its text in a large_string is no property of the data.
        return replace(column, logical="string" if target.strings == "bytes" else None)
    if isinstance(dtype, pandas.ArrowDtype):
        return arrow_column(name, array.__arrow_array__(), target)
    masked = (pandas.arrays.IntegerArray, pandas.arrays.BooleanArray, pandas.arrays.FloatingArray)
    if isinstance(array, masked):
        return _masked(name, array)
    raise TypeError(
        f"column {name!r} has pandas dtype {dtype}, which cannot be stored; {_advice(pandas, dtype)}"
    )


def _advice(pandas: Any, dtype: Any) -> str:
    if isinstance(dtype, pandas.SparseDtype):
        return "make it dense with .sparse.to_dense() first"
    if isinstance(dtype, pandas.PeriodDtype):
        return "convert it with .dt.to_timestamp() first"
    if isinstance(dtype, pandas.IntervalDtype):
        return "store its left and right ends as two columns"
    return "cast it to a number, text, or a time type first"


def _numpy_backed(name: str, values: NDArray[Any], target: TextTarget) -> Column:
    if values.dtype.kind == "O":
        return object_column(name, values, target)
    column = column_of(name, values, target)
    # pandas' own meaning: NaN and NaT of these are what is missing.
    return Column(column.values, in_band=values.dtype.kind in "fmM")


def _masked(name: str, array: Any) -> Column:
    """Masked integers, booleans and floats: values and mask are two plain arrays."""
    missing = np.asarray(array.isna())
    if missing.any():
        kind = array.dtype.numpy_dtype
        values = np.array(array.to_numpy(dtype=kind, na_value=kind.type(0)))
        validity = ~missing
    else:
        values, validity = array.to_numpy(dtype=array.dtype.numpy_dtype), None
    values = storable(name, values)
    return Column(values, validity, "if_null" if values.dtype.kind == "f" else "always")


def _categorical(name: str, array: Any, target: TextTarget) -> Column:
    import pyarrow as pa

    codes, categories = np.asarray(array.codes), array.categories
    present = codes >= 0
    validity = None if present.all() else present
    used = np.zeros(len(categories), np.bool_)
    used[codes[present]] = True
    entries = categories
    if target.width is not None and not used.all():
        # A fixed width binds the values, not categories that no row uses.
        entries, codes = categories[used], (np.cumsum(used) - 1)[codes]
    if len(entries):
        column = pandas_column(name, entries, target)
        values = column.values[np.where(present, codes, 0)]
    else:
        column = pandas_column(name, entries.astype("str") if entries.dtype == object else entries, target)
        values = np.zeros(len(codes), column.values.dtype)
    if validity is not None:
        values.view(np.uint8).reshape(len(values), -1)[~validity] = 0
    try:
        listed = storable_categories(pa.array(categories))
    except (pa.ArrowException, TypeError, ValueError):
        listed = None
    return Column(
        values,
        validity,
        "always",
        logical=column.logical,
        tz=column.tz,
        categories=listed,
        ordered=bool(array.ordered),
    )
