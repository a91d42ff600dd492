"""What values are: missing ones, text of one width, attributes that stand for values."""

from __future__ import annotations

import copy
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr
from xarray.coding import strings

__all__ = [
    "FEW_CHUNKS",
    "PACKING",
    "all_missing",
    "as_characters",
    "first_object",
    "holds_dates",
    "is_character_array",
    "is_null",
    "may_stand_for_values",
    "of_any_length",
    "own_attributes",
]

FEW_CHUNKS = 1 << 10
"""Up to so many chunks along a dimension their lengths are given one by one, equal ones too. They mean the same as one
number, and Dask, which writes the number out three times for each variable, takes a quarter less to make its arrays."""

PACKING = frozenset({"_FillValue", "missing_value", "scale_factor", "add_offset"})
"""Attributes that xarray's CF decoding computes with."""


def may_stand_for_values(value: Any) -> bool:
    """Whether an attribute can be a fill value or a factor: a scalar, or several of them."""
    if isinstance(value, (list, tuple)):
        return all(_is_scalar(item) for item in value)
    return _is_scalar(value) or isinstance(value, np.ndarray)


def _is_scalar(value: Any) -> bool:
    return value is None or isinstance(value, (bool, int, float, complex, str, bytes, np.generic))


def own_attributes(attrs: Mapping[str, Any]) -> dict[str, Any]:
    """Return attributes that a user may change: whoever opened the same manifest has others."""
    return {
        key: copy.deepcopy(value) if isinstance(value, (np.ndarray, list, dict)) else value
        for key, value in attrs.items()
    }


def is_null(value: Any) -> bool:
    """Whether a value of an object array is missing: None, NaN, NaT or pandas' NA."""
    if value is None or type(value).__name__ == "NAType":
        return True
    try:
        return bool(value != value)
    except (TypeError, ValueError):
        return False


def of_any_length(dtype: np.dtype[Any]) -> type | None:
    """Return `str` or `bytes` for the dtype of text or bytes of any length, None for any other."""
    wanted = strings.check_vlen_dtype(dtype)
    return wanted if wanted in (str, bytes) else None


def holds_dates(variable: xr.Variable) -> bool:
    """Whether objects are dates of `cftime`; xarray tells by the first, too."""
    cftime = sys.modules.get("cftime")  # dates cannot exist without it
    if cftime is None or variable.dtype.kind != "O" or not variable.size:
        return False
    return isinstance(first_object(variable), cftime.datetime)


def first_object(variable: xr.Variable) -> Any:
    """Return the first value of an array of objects that has one; of Dask arrays it is computed."""
    first: Any = np.asarray(variable[(0,) * variable.ndim].data)
    return first.item() if first.ndim == 0 else first  # a list in the array


def all_missing(variable: xr.Variable) -> bool:
    """Whether every value in memory is missing, so that the variable may be of any type. False for Dask."""
    if variable.dtype.kind not in "Of" or hasattr(variable._data, "dask"):
        return False
    values = np.asarray(variable.data)
    if values.dtype.kind == "f":
        return bool(np.isnan(values).all())
    return all(map(is_null, values.reshape(-1).tolist()))


def is_character_array(variable: xr.Variable, stored: xr.Variable) -> bool:
    """Whether text `variable` is stored as characters along one more dimension."""
    return (
        variable.dtype.kind == "S" == stored.dtype.kind
        and stored.dtype.itemsize == 1
        and stored.dims[:-1] == variable.dims
        and stored.ndim == variable.ndim + 1
    )


def as_characters(variable: xr.Variable, stored: xr.Variable, name: Any) -> xr.Variable:
    """Return `variable` as wide as the dimension of characters in the file is long.

    Raises
    ------
    SchemaMismatchError
        If a value is longer, or, in blocks of Dask, may be; names the variable.
    """
    from colstore_io.errors import SchemaMismatchError
    from colstore_io.grid.fitting import advice, without_loss

    wanted = np.dtype(f"S{max(stored.shape[-1], 1)}")
    unseen = hasattr(variable._data, "dask")
    fits = variable.dtype.itemsize <= wanted.itemsize
    if not fits and not unseen:
        fits = without_loss(np.asarray(variable.data), wanted) is not None
    if not fits:
        raise SchemaMismatchError(
            f"variable {name!r} is {variable.dtype}, the dataset has text of {stored.shape[-1]} characters, along the "
            f"dimension {stored.dims[-1]!r}: {advice(wanted, unseen=unseen)}"
        )
    return variable.astype(wanted)
