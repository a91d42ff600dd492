"""As a pandas DataFrame: one block per column, no consolidation copy, the matching nullable dtypes.

pandas builds a frame around given arrays when it is asked not to copy. What is left to decide is the form of each
column: NumPy as it is, masked arrays around values and mask, or an extension array around an Arrow array
(cstore-behaviour.md 3, integrations.md 6.4).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .arrays import ARROW_UNITS, TEXT_LOGICAL, arrow_array, as_dictionary
from .fields import Field

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

__all__ = ["frame"]


def frame(
    names: Sequence[str],
    fields: Sequence[Field],
    columns: Sequence[Any],
    *,
    n_rows: int | None = None,
    dtype_backend: str | None = None,
    categories: bool | Collection[str] = False,
    na_text: bool = False,
    copy: bool = True,
) -> pd.DataFrame:
    """Build a pandas DataFrame around columns.

    Parameters
    ----------
    names : sequence of str
        Column labels; no two equal.
    fields : sequence of Field
        What the columns are.
    columns : sequence
        For each field an ndarray; for a nullable one a `pyarrow.Array`, or the pair (values, validity), which is
        used without a copy. All of them are given up by the caller: they become part of the frame, and null slots
        of a pair may be overwritten.
    n_rows : int, optional
        Rows; needed only when there are no columns.
    dtype_backend : {None, "numpy_nullable", "pyarrow"}
        ``None``: NumPy dtypes; of nullable fields, integers and booleans become masked arrays, floats NumPy with
        NaN, text pandas' ``str`` (missing values are NaN), times, dates and bytes Arrow-backed. The others are as
        in `pandas.read_parquet`.
    categories : bool or collection of str, default False
        Give categorical fields (all, or those named) the ``category`` dtype, with the stored categories if there
        are any. Fields of variable length become categorical when they are named.
    na_text : bool, default False
        Text becomes ``string[pyarrow]``, whose missing value is NA, without a `dtype_backend` too.
    copy : bool, default True
        False: every column of the frame must be the given array itself, else `ValueError`.

    Returns
    -------
    pandas.DataFrame
        With a ``RangeIndex`` and one block per column.

    Raises
    ------
    ValueError
        If names repeat, `dtype_backend` is unknown, or `copy=False` cannot be kept; names the column.
    """
    try:
        import pandas as pd
    except ImportError:
        raise ImportError("frame() needs pandas: pip install 'colstore_io[pandas]'") from None

    if dtype_backend not in (None, "numpy_nullable", "pyarrow"):
        raise ValueError(f"dtype_backend must be 'numpy_nullable', 'pyarrow' or None, got {dtype_backend!r}")
    if len(set(names)) != len(names):
        raise ValueError(f"a frame cannot repeat a column, got {list(names)}; select each column once")
    built: dict[str, Any] = {}
    for name, field, data in zip(names, fields, columns, strict=True):
        as_category = categories if isinstance(categories, bool) else name in categories
        if not copy and (as_category or not _is_shared(field, dtype_backend)):
            raise ValueError(f"column {name!r} cannot be in a frame without a copy; use copy=True")
        if as_category and (
            field.ordered is not None or (field.variable and not isinstance(categories, bool))
        ):
            built[name] = _categorical(field, data)
        elif dtype_backend == "pyarrow":
            built[name] = _arrow_backed(field, data)
        elif field.nullable or field.variable or dtype_backend is not None:
            built[name] = _nullable(field, data, dtype_backend, na_text)
        else:
            built[name] = _plain(field, data, na_text)
    if n_rows is None:
        n_rows = len(next(iter(built.values()))) if built else 0
    # By position, so that labels which pandas' str index cannot hold (lone surrogates) are possible too.
    result = pd.DataFrame(dict(enumerate(built.values())), index=pd.RangeIndex(n_rows), copy=False)
    result.columns = _labels(names)
    return result


def _labels(names: Sequence[str]) -> pd.Index[Any]:
    import pandas as pd

    try:
        return pd.Index(list(names)) if names else pd.Index([], dtype=object)
    except UnicodeError:
        return pd.Index(list(names), dtype=object)


def _is_shared(field: Field, dtype_backend: str | None) -> bool:
    """Tell whether a frame can hold the stored values of a column themselves."""
    kind = field.dtype.kind
    if field.nullable or field.variable or dtype_backend is not None or field.tz is not None:
        return False
    if kind in "mM":  # pandas has four units, and converts the others
        unit, count = np.datetime_data(field.dtype)
        return unit in ARROW_UNITS and count == 1
    return kind in "iufb" or (kind == "S" and field.logical not in TEXT_LOGICAL)


def _as_arrow(field: Field, data: Any) -> pa.Array:
    if isinstance(data, tuple):
        return arrow_array(field, *data)
    return arrow_array(field, data) if isinstance(data, np.ndarray) else data


def _values_and_mask(field: Field, data: Any) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Return writable values and the mask that is true where a value is missing."""
    if isinstance(data, np.ndarray):
        return data, np.zeros(len(data), np.bool_)
    if isinstance(data, tuple):
        values, validity = data
        # Any non-zero byte counts as 1 (cstore.md 4.2).
        missing = None if validity is None else validity.view(np.uint8) == 0
    else:
        from .ingest.arrow import values_from_arrow

        imported = values_from_arrow(data, field.name)
        values, missing = imported.values, None if imported.validity is None else ~imported.validity
    if not values.flags.writeable:
        values = values.copy()
    return values, np.zeros(len(values), np.bool_) if missing is None else missing


def _plain(field: Field, values: NDArray[Any], na_text: bool = False) -> Any:
    import pandas as pd

    kind = field.dtype.kind
    if kind == "U" or (kind == "S" and field.logical in TEXT_LOGICAL):
        return _text(field, values, nan=not na_text)
    if kind == "M" and field.tz is not None:
        unit, count = np.datetime_data(field.dtype)
        if unit in ARROW_UNITS and count == 1:
            dtype = _zone_dtype(field, unit)
            return pd.array(np.ascontiguousarray(values).view(np.int64), dtype=dtype)
    return values


def _zone_dtype(field: Field, unit: Any) -> Any:
    import pandas as pd

    try:
        return pd.DatetimeTZDtype(unit, field.tz)
    except (KeyError, ValueError, TypeError, OSError) as error:  # whatever a file may say, and missing tzdata
        raise ValueError(
            f"column {field.name!r}: pandas does not know the time zone {field.tz!r}; array() gives the UTC values"
        ) from error


def _text(field: Field, data: Any, *, nan: bool) -> Any:
    """Give text as pandas' ``str`` (missing is NaN) or ``string`` (missing is NA)."""
    import pandas as pd

    modern = int(pd.__version__.split(".")[0]) >= 3
    if nan and not modern and not field.nullable and isinstance(data, np.ndarray) and data.dtype.kind == "U":
        return data.astype(object)  # what pandas 2 itself makes of it
    try:
        # With the offsets that pandas wants: it converts others.
        wide = replace(field, logical="large_string") if field.dtype.kind in "US" else field
        array = _as_arrow(wide, data)
    except ValueError:
        if field.nullable or data.dtype.kind != "U":
            raise
        # Not Unicode: objects, in a Series so that pandas does not try to make text of them again.
        return pd.Series(data.astype(object), dtype=object)
    dtype: Any = pd.StringDtype("pyarrow", na_value=np.nan) if nan and modern else pd.StringDtype("pyarrow")
    return pd.Series(array, dtype=dtype, copy=False).array


def _nullable(field: Field, data: Any, dtype_backend: str | None, na_text: bool = False) -> Any:
    import pandas as pd

    kind = field.dtype.kind
    masked = {"i": pd.arrays.IntegerArray, "u": pd.arrays.IntegerArray, "b": pd.arrays.BooleanArray}.get(kind)
    if masked is not None:
        return masked(*_values_and_mask(field, data), copy=False)
    if kind == "f":
        values, missing = _values_and_mask(field, data)
        if dtype_backend == "numpy_nullable" and values.dtype.itemsize in (4, 8):
            return pd.arrays.FloatingArray(values, missing, copy=False)
        if missing.any():
            values[missing] = np.nan
        return values
    if kind == "U" or (kind in "SO" and field.logical in TEXT_LOGICAL):
        return _text(field, data, nan=dtype_backend is None and not na_text)
    return _arrow_backed(field, data) if field.nullable or field.variable else _plain(field, data, na_text)


def _arrow_backed(field: Field, data: Any) -> Any:
    import pandas as pd

    try:
        array = _as_arrow(field, data)
    except TypeError:
        if field.nullable:
            raise
        return data  # no Arrow type for it: NumPy as it is
    return pd.arrays.ArrowExtensionArray(array)


def _categorical(field: Field, data: Any) -> Any:
    import pandas as pd
    import pyarrow as pa
    import pyarrow.compute as pc

    plain = _as_arrow(field, data)
    if field.variable:
        encoded = plain if pa.types.is_dictionary(plain.type) else pc.dictionary_encode(plain)
        codes = np.asarray(pc.fill_null(encoded.indices, -1))
        return pd.Categorical.from_codes(
            codes, categories=pd.Index(encoded.dictionary.to_pandas()), ordered=False
        )
    if pa.types.is_floating(plain.type):  # NaN is no category in pandas, but missing
        plain = pc.if_else(pc.is_nan(plain), pa.scalar(None, plain.type), plain)
    encoded = as_dictionary(field, plain)
    codes = np.asarray(pc.fill_null(encoded.indices, -1))
    entries = pd.Index(encoded.dictionary.to_pandas())
    return pd.Categorical.from_codes(codes, categories=entries, ordered=bool(field.ordered))
