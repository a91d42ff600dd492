"""Values that CF encoding turns into integers: do they survive it?

xarray's encoder rounds and casts. A value beyond the range of the integer wraps to another one without a word
(`encoding={"t": {"dtype": "int16", "scale_factor": 0.01}}`), so do times counted in a small integer; a missing value
that nothing stands for becomes 0 or whatever the processor makes of it, and a value that is encoded as the fill value
is missing when it is read. So values are looked at first: of numbers the two extremes are encoded, and all of them only
where the fill value lies between these.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from xarray.coding import times
from xarray.coding.variables import CFScaleOffsetCoder

__all__ = ["checked_packing"]

_PACKING = ("scale_factor", "add_offset", "_FillValue", "missing_value")


def checked_packing(variable: xr.Variable, name: Any) -> xr.Variable:
    """Return a variable that is to be encoded, its values in memory or checked by each task of Dask.

    Parameters
    ----------
    variable : xarray.Variable
        Its encoding has been looked at by `check_packing`.

    Raises
    ------
    SchemaMismatchError
        If a value, or the one that stands for missing ones, does not survive the integers that its encoding asks for;
        names the variable and the first such value.
    """
    wanted = variable.encoding.get("dtype")
    if wanted is None or variable.dtype.kind not in "iufMm":
        return variable
    dtype = np.dtype(wanted)
    if dtype.kind not in "iu" or dtype == variable.dtype:
        return variable
    encoding = {key: variable.encoding[key] for key in _PACKING if variable.encoding.get(key) is not None}
    if isinstance(encoding.get("scale_factor"), (int, np.integer)):
        encoding["scale_factor"] = float(encoding["scale_factor"])  # integers are not divided in place
    low, high = _range(dtype, variable.encoding.get("_Unsigned"))
    if "_Unsigned" not in variable.encoding:
        for key in ("_FillValue", "missing_value"):
            fill = np.asarray(encoding.get(key))
            value = fill.item() if fill.ndim == 0 and fill.dtype.kind in "iuf" else low
            fits = _is_scaled(encoding) if value != value else low <= value <= high
            if not fits:
                raise _refusal(name, f"{key} {value!r}, which does not fit {dtype}")
    data: Any = variable._data
    lazy = hasattr(data, "dask") and hasattr(data, "map_blocks")
    units = variable.encoding.get("units")
    if variable.dtype.kind in "Mm" and units is None and lazy:
        return variable  # xarray refuses it: each block would choose units of its own
    check = partial(
        _checked,
        name=name,
        dtype=dtype,
        low=low,
        high=high,
        encoding=encoding,
        units=units,
        calendar=variable.encoding.get("calendar"),
    )
    checked = (
        data.map_blocks(check, dtype=data.dtype, meta=data._meta)
        if lazy
        else check(np.asarray(variable.data))
    )
    return xr.Variable(
        variable.dims, checked, variable.attrs, {**variable.encoding, **encoding}, fastpath=True
    )


def _range(dtype: np.dtype[Any], unsigned: Any) -> tuple[int, int]:
    """Return the smallest and the largest number that is read back as it was, `_Unsigned` considered."""
    bits = dtype.itemsize * 8
    signed = dtype.kind == "i" if unsigned is None else str(unsigned).lower() != "true"
    return (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)


def _checked(
    values: NDArray[Any],
    *,
    name: Any,
    dtype: np.dtype[Any],
    low: int,
    high: int,
    encoding: Mapping[str, Any],
    units: str | None,
    calendar: str | None,
) -> NDArray[Any]:
    """Return `values` as they are, or raise `SchemaMismatchError`."""
    if not values.size:
        return values
    fill = _fill_value(encoding)
    is_time = values.dtype.kind in "Mm"
    ends = np.array([values.min(), values.max()])  # missing if any value is
    if np.isnat(ends).any() if is_time else ends[0] != ends[0]:
        if fill is None and not (is_time and dtype == np.int64):  # whose smallest value is NaT
            raise _refusal(
                name,
                f"missing value ({'NaT' if is_time else 'NaN'}), and nothing stands for it in {dtype}: give "
                "_FillValue, or leave out the dtype",
            )
        ends = np.array([np.fmin.reduce(values, axis=None), np.fmax.reduce(values, axis=None)])
        if np.isnat(ends).any() if is_time else ends[0] != ends[0]:  # nothing but missing values
            return values
    if is_time:
        present = values[~np.isnat(values)].reshape(-1)
        numbers = _counted(present, units, calendar, float if _is_scaled(encoding) else np.int64)
    else:
        present = numbers = ends
    stored = _encoded(numbers, encoding)
    bad = ~((stored >= low) & (stored <= high))
    if bad.any():
        if not is_time:
            present = values.reshape(-1)
            stored = _encoded(present, encoding)
            bad = ~((stored >= low) & (stored <= high) | (present != present))
        at = int(np.argmax(bad))
        raise _refusal(
            name,
            f"value {_shown(present[at])}, which is encoded as {stored[at].item()!r} and does not fit {dtype}",
        )
    if fill is None or not low <= stored.min() <= stored.max() <= high:
        return values
    if is_time or _may_meet(fill, stored, dtype):
        if not is_time:
            present = values.reshape(-1)
            stored = _encoded(present[present == present], encoding)
            present = present[present == present]
        met = np.mod(stored - fill, 2.0 ** (dtype.itemsize * 8)) == 0
        if met.any():
            value = _shown(present[int(np.argmax(met))])
            raise _refusal(
                name, f"value {value}, which is encoded as the value that stands for missing ones, {fill!r}"
            )
    return values


def _may_meet(fill: Any, stored: NDArray[Any], dtype: np.dtype[Any]) -> bool:
    """Whether a value between the two that are given may be stored as the fill value is."""
    span = 2 ** (dtype.itemsize * 8)
    return any(stored.min() <= other <= stored.max() for other in (fill - span, fill, fill + span))


def _fill_value(encoding: Mapping[str, Any]) -> Any:
    """Return the number that is stored for missing values, None if there is none."""
    for key in ("_FillValue", "missing_value"):
        fill = np.asarray(encoding.get(key))
        if fill.size == 1 and fill.dtype.kind in "iuf" and fill.item() == fill.item():
            return fill.item()
    return None


def _is_scaled(encoding: Mapping[str, Any]) -> bool:
    return "scale_factor" in encoding or "add_offset" in encoding


def _counted(values: NDArray[Any], units: str | None, calendar: str | None, dtype: Any) -> NDArray[Any]:
    """Return times or durations as numbers of `units`, as xarray counts them."""
    if values.dtype.kind == "M":
        return np.asarray(times.encode_cf_datetime(values, units, calendar, np.dtype(dtype))[0])
    return np.asarray(times.encode_cf_timedelta(values, units, np.dtype(dtype))[0])


def _encoded(values: NDArray[Any], encoding: Mapping[str, Any]) -> NDArray[Any]:
    """Return what would be stored, before it is cast."""
    with np.errstate(all="ignore"):
        variable = xr.Variable("values", values, {}, dict(encoding))
        found = np.asarray(CFScaleOffsetCoder().encode(variable).values)
        return np.round(found) if found.dtype.kind == "f" else found


def _shown(value: Any) -> str:
    return str(value) if value.dtype.kind in "Mm" else repr(value.item())


def _refusal(name: Any, what: str) -> Exception:
    from colstore_io.errors import SchemaMismatchError

    return SchemaMismatchError(
        f"variable {name!r} has the {what}. It would be read as another one; choose another dtype, scale_factor, "
        "add_offset, units or _FillValue in its encoding"
    )
