"""Values that CF encoding turns into integers: do they fit?

xarray's encoder rounds and casts, and a value beyond the range of the integer wraps to another one without a word
(`encoding={"t": {"dtype": "int16", "scale_factor": 0.01}}`). So the extremes are encoded first, and looked at.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from xarray.coding.variables import CFScaleOffsetCoder

__all__ = ["checked_packing"]

_PACKING = ("scale_factor", "add_offset", "_FillValue", "missing_value")


def checked_packing(variable: xr.Variable, name: Any) -> xr.Variable:
    """Return a variable that is to be encoded, its values in memory or checked by each task of Dask.

    Raises
    ------
    SchemaMismatchError
        If a value, or the one that stands for missing ones, does not fit the integers that its encoding asks for;
        names the variable.
    """
    wanted = variable.encoding.get("dtype")
    if wanted is None or variable.dtype.kind not in "iuf":
        return variable
    try:
        dtype = np.dtype(wanted)
    except TypeError:  # xarray says what is wrong with it
        return variable
    if dtype.kind not in "iu" or dtype == variable.dtype:
        return variable
    encoding = {key: variable.encoding[key] for key in _PACKING if key in variable.encoding}
    low, high = _range(dtype, variable.encoding.get("_Unsigned"))
    if "_Unsigned" not in variable.encoding:
        for key in ("_FillValue", "missing_value"):
            fill = np.asarray(encoding.get(key))
            value = fill.item() if fill.ndim == 0 and fill.dtype.kind in "iuf" else low
            if value == value and not low <= value <= high:
                raise _refusal(name, f"{key} {value!r}, which", dtype)
    check = partial(_checked, name=name, dtype=dtype, low=low, high=high, encoding=encoding)
    data: Any = variable._data
    if hasattr(data, "dask") and hasattr(data, "map_blocks"):
        checked = data.map_blocks(check, dtype=data.dtype, meta=data._meta)
    else:
        checked = check(np.asarray(variable.data))
    return xr.Variable(variable.dims, checked, variable.attrs, variable.encoding, fastpath=True)


def _range(dtype: np.dtype[Any], unsigned: Any) -> tuple[int, int]:
    """Return the smallest and the largest number that is read back as it was, `_Unsigned` considered."""
    bits = dtype.itemsize * 8
    signed = dtype.kind == "i" if unsigned is None else str(unsigned).lower() != "true"
    return (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)


def _checked(
    values: NDArray[Any], *, name: Any, dtype: np.dtype[Any], low: int, high: int, encoding: Mapping[str, Any]
) -> NDArray[Any]:
    if not values.size:
        return values
    ends = np.array([np.fmin.reduce(values, axis=None), np.fmax.reduce(values, axis=None)])
    if ends[0] != ends[0]:  # nothing but missing values
        return values
    with np.errstate(all="ignore"):
        encoded = np.round(CFScaleOffsetCoder().encode(xr.Variable("ends", ends, {}, dict(encoding))).values)
    for end, as_stored in zip(ends.tolist(), encoded.tolist(), strict=True):
        if not low <= as_stored <= high:
            raise _refusal(name, f"value {end!r}, which is encoded as {as_stored!r} and", dtype)
    return values


def _refusal(name: Any, what: str, dtype: np.dtype[Any]) -> Exception:
    from colstore_io.errors import SchemaMismatchError

    return SchemaMismatchError(
        f"variable {name!r} has the {what} does not fit {dtype}: it would be read as another one. Choose another "
        "dtype, scale_factor or add_offset in its encoding"
    )
