"""Values that CF encoding turns into other numbers: do they survive it?

xarray's encoder rounds and casts. A value beyond the range of the integer wraps to another one without a word
(`encoding={"t": {"dtype": "int16", "scale_factor": 0.01}}`), so do times counted in a small integer; a missing value
that nothing stands for becomes 0 or whatever the processor makes of it, a value that is encoded as the fill value
is missing when it is read, and one beyond the range of a float becomes infinite. So values are looked at first.

Encoding is monotone. So the two extremes say whether all values fit, and only those near the one that the fill value
stands for can be encoded as it: these are looked for piece by piece, and encoded. Times are counted once: what was
looked at is what is written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from xarray.coding import times
from xarray.coding.variables import CFScaleOffsetCoder

from ._xarray_values import holds_dates

__all__ = ["checked_packing"]

_PACKING = ("scale_factor", "add_offset", "_FillValue", "missing_value")
_PIECE = 1 << 16  # values; their masks stay in the cache
_NAT = np.iinfo(np.int64).min


@dataclass(frozen=True, slots=True)
class _Packing:
    """How numbers of one variable are stored; travels to the tasks of Dask.

    Parameters
    ----------
    low, high : int
        The smallest and the largest integer that is read back as it was. Unused where `dtype` is a float.
    encoding : mapping
        Those of `_PACKING` that are given.
    is_time : bool
        Values are counts of times or durations; the smallest int64 is NaT.
    shown : callable
        Writes one value for a message.
    """

    name: Any
    dims: tuple[Any, ...]
    dtype: np.dtype[Any]
    low: int
    high: int
    encoding: Mapping[str, Any]
    is_time: bool
    shown: Callable[[Any], str]

    @property
    def fill(self) -> Any:
        """The number that stands for missing values, None if there is none."""
        for key in ("_FillValue", "missing_value"):
            fill = np.asarray(self.encoding.get(key))
            if fill.size == 1 and fill.dtype.kind in "iuf" and fill.item() == fill.item():
                return fill.item()
        return None

    @property
    def is_scaled(self) -> bool:
        return "scale_factor" in self.encoding or "add_offset" in self.encoding

    def stored(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return what would be stored, before it is cast."""
        with np.errstate(all="ignore"):
            variable = xr.Variable("values", values, {}, dict(self.encoding))
            found = np.asarray(CFScaleOffsetCoder().encode(variable).values)
            if found.dtype == np.float16:  # too short for the ends of the ranges
                found = found.astype(np.float32)
            return np.round(found) if found.dtype.kind == "f" and self.dtype.kind in "iu" else found

    def unfit(self, values: NDArray[Any]) -> NDArray[np.bool_]:
        """Return which values do not fit `dtype`, missing ones aside."""
        stored = self.stored(values)
        if self.dtype.kind == "f":
            with np.errstate(all="ignore"):
                return np.asarray(np.isfinite(values) & ~np.isfinite(stored.astype(self.dtype)))
        # Not `<= high`, which a float may not have: it would be rounded up.
        fits = (stored >= self.low) & (stored < self.high + 1)
        return np.asarray(~(fits | self.missing(values)))

    def missing(self, values: NDArray[Any]) -> NDArray[np.bool_]:
        """Return which values are missing."""
        if values.dtype.kind == "f":
            return np.asarray(np.isnan(values))
        return np.asarray(values == _NAT) if self.is_time else np.zeros(values.shape, np.bool_)


def checked_packing(variable: xr.Variable, name: Any) -> xr.Variable:
    """Return a variable that is to be encoded, its values in memory or checked by each task of Dask.

    Times come back counted: to do it twice takes longer than everything else here.

    Parameters
    ----------
    variable : xarray.Variable
        Its encoding has been looked at by `check_packing`.

    Raises
    ------
    SchemaMismatchError
        If a value, or the one that stands for missing ones, does not survive the dtype that its encoding asks for;
        names the variable, the first such value, and its place.
    """
    wanted = variable.encoding.get("dtype")
    if wanted is None or variable.dtype.kind not in "iufmMO":
        return variable
    dtype = np.dtype(wanted)
    if dtype.kind not in "iuf":
        return variable
    is_time = variable.dtype.kind in "mM" or holds_dates(variable)
    if not is_time and variable.dtype.kind == "O":
        return variable
    encoding = {key: variable.encoding[key] for key in _PACKING if variable.encoding.get(key) is not None}
    is_scaled = "scale_factor" in encoding or "add_offset" in encoding
    if dtype == variable.dtype and not is_scaled:
        return variable
    if dtype.kind == "f" and (dtype.itemsize >= 8 or (is_time and dtype.itemsize > 2)):
        return variable  # nothing is beyond it
    if isinstance(encoding.get("scale_factor"), (int, np.integer)):
        encoding["scale_factor"] = float(encoding["scale_factor"])  # integers are not divided in place
    low, high = _range(dtype, variable.encoding.get("_Unsigned")) if dtype.kind in "iu" else (0, 0)
    if dtype.kind in "iu" and "_Unsigned" not in variable.encoding:
        _check_fill(encoding, name, dtype, low, high, is_scaled)
    lazy = _is_dask(variable._data)
    if is_time and lazy and variable.encoding.get("units") is None:
        return variable  # xarray refuses it: each block would choose units of its own
    numbers = _counted(variable) if is_time else variable
    if is_scaled and numbers.dtype.kind in "iu" and {"_FillValue", "missing_value"} & set(encoding):
        # xarray leaves that out here, and then cannot divide in place.
        floats: Any = numbers.data.astype(np.float64)
        numbers = xr.Variable(numbers.dims, floats, numbers.attrs, numbers.encoding, fastpath=True)
    packing = _Packing(
        name,
        variable.dims,
        dtype,
        low,
        high,
        encoding,
        is_time,
        _shown_times(variable, numbers) if is_time else repr,
    )
    data: Any = numbers._data
    if lazy:
        starts = tuple(tuple(int(n) for n in np.cumsum((0, *own[:-1]))) for own in data.chunks)
        checked = data.map_blocks(
            partial(_checked, packing=packing, starts=starts), dtype=data.dtype, meta=data._meta
        )
    else:
        checked = _checked(np.asarray(numbers.data), packing=packing)
    return xr.Variable(numbers.dims, checked, numbers.attrs, {**numbers.encoding, **encoding}, fastpath=True)


def _range(dtype: np.dtype[Any], unsigned: Any) -> tuple[int, int]:
    """Return the smallest and the largest number that is read back as it was, `_Unsigned` considered."""
    bits = dtype.itemsize * 8
    signed = dtype.kind == "i" if unsigned is None else str(unsigned).lower() != "true"
    return (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)


def _check_fill(
    encoding: Mapping[str, Any], name: Any, dtype: np.dtype[Any], low: int, high: int, is_scaled: bool
) -> None:
    for key in ("_FillValue", "missing_value"):
        fill = np.asarray(encoding.get(key))
        value = fill.item() if fill.ndim == 0 and fill.dtype.kind in "iuf" else low
        fits = is_scaled if value != value else low <= value <= high
        if fits and is_scaled and value == value and value != int(value):
            fits = False  # xarray stores it rounded, and names it as it was
        if not fits:
            raise _refusal(name, f"{key} {value!r}, which does not fit {dtype}")


def _counted(variable: xr.Variable) -> xr.Variable:
    """Return times, dates or durations as numbers of their units, as xarray counts them: int64, float64 if scaled."""
    coder = times.CFTimedeltaCoder() if variable.dtype.kind == "m" else times.CFDatetimeCoder()
    wanted = np.dtype(variable.encoding["dtype"])
    encoding = {**variable.encoding, "dtype": np.dtype(np.int64 if wanted.kind in "iu" else np.float64)}
    found: xr.Variable = coder.encode(
        xr.Variable(variable.dims, variable._data, variable.attrs, encoding, fastpath=True)
    )
    found.encoding["dtype"] = wanted
    return found


def _is_dask(data: Any) -> bool:
    return hasattr(data, "dask") and hasattr(data, "map_blocks")


def _checked(
    values: NDArray[Any],
    *,
    packing: _Packing,
    starts: Sequence[Sequence[int]] = (),
    block_id: Sequence[int] | None = None,
) -> NDArray[Any]:
    """Return `values` as they are, or raise `SchemaMismatchError`. Runs in a task, if `block_id` is given."""
    if not values.size:
        return values
    ends, missing = _extremes(values, packing.is_time)
    dtype, fill = packing.dtype, packing.fill

    def refusal(at: int, what: str) -> Exception:
        first = [own[n] for own, n in zip(starts, block_id or (), strict=True)] or [0] * values.ndim
        index = np.unravel_index(at, values.shape) if values.ndim else ()
        found = (f"{dim}={int(i) + n}" for dim, i, n in zip(packing.dims, index, first, strict=True))
        return _refusal(packing.name, what + (f" (at {', '.join(found)})" if values.ndim else ""))

    def shown(at: int) -> str:
        return f"value {packing.shown(values.flat[at].item())}, which is encoded as"

    # The smallest int64 is NaT.
    if missing and fill is None and dtype.kind in "iu" and not (packing.is_time and dtype == np.int64):
        what = f"missing value ({'NaT' if packing.is_time else 'NaN'}), and nothing stands for it in {dtype}"
        raise refusal(_first(values, packing.missing), what + ": give _FillValue, or leave out the dtype")
    if not len(ends):  # nothing but missing values
        return values
    if packing.unfit(ends).any() or (dtype.kind == "f" and not np.isfinite(ends).all()):
        at = _first(values, packing.unfit)
        if at >= 0:
            stored = packing.stored(values.flat[at : at + 1]).item()
            raise refusal(at, f"{shown(at)} {stored!r} and does not fit {dtype}")
    if fill is None or dtype.kind == "f":
        return values
    code = packing.low + (int(fill) - packing.low) % (packing.high - packing.low + 1)
    codes = packing.stored(ends)
    if codes.min() <= code <= codes.max():
        at = _first(values, _met(packing, code, values.dtype))
        if at >= 0:
            raise refusal(at, f"{shown(at)} the value that stands for missing ones, {fill!r}")
    return values


def _extremes(values: NDArray[Any], is_time: bool) -> tuple[NDArray[Any], bool]:
    """Return the smallest and the largest value, nothing if all are missing, and whether any is."""
    low, high = values.min(), values.max()
    if values.dtype.kind == "f":
        if low == low:
            return np.array([low, high]), False
        low, high = np.fmin.reduce(values, axis=None), np.fmax.reduce(values, axis=None)
        return np.array([low, high] if low == low else [], values.dtype), True
    if not (is_time and low == _NAT):
        return np.array([low, high]), False
    if high == _NAT:
        return np.array([], values.dtype), True
    low = np.fmin.reduce(values.view("m8[s]"), axis=None).view(np.int64)  # NaT is left out
    return np.array([low, high]), True


def _first(values: NDArray[Any], test: Callable[[NDArray[Any]], NDArray[np.bool_]]) -> int:
    """Return the place of the first value, in C order, that a test finds; -1 without one. Memory: that of a piece."""
    # In the order of the memory; where a value is first does not matter until there is one.
    orders: tuple[Literal["K", "C"], ...] = ("C",) if values.flags.c_contiguous else ("K", "C")
    at = -1
    for order in orders:
        start, at = 0, -1
        for piece in np.nditer(values, ["external_loop", "buffered"], order=order, buffersize=_PIECE):
            found = test(np.asarray(piece))
            if found.any():
                at = start + int(np.argmax(found))
                break
            start += len(found)
        if at < 0:
            break
    return at


def _met(packing: _Packing, code: int, dtype: np.dtype[Any]) -> Callable[[NDArray[Any]], NDArray[np.bool_]]:
    """Return a test for values that are stored as `code`.

    Only values near the one that `code` is read as are encoded, and compared. "Near" is wide enough for all rounding
    of a 32-bit float, in which xarray may compute.
    """
    scale = float(np.asarray(packing.encoding.get("scale_factor", 1.0)).item())
    offset = float(np.asarray(packing.encoding.get("add_offset", 0.0)).item())
    narrow = (dtype.kind == "f" and dtype.itemsize < 8) or packing.is_scaled
    eps = float(np.finfo(np.float32 if narrow else np.float64).eps)
    if dtype == np.float16:
        eps = float(np.finfo(np.float16).eps)
    width = 0.5 + 8 * eps * (1 + abs(code) + abs(offset / scale))
    edges = sorted(((code - width) * scale + offset, (code + width) * scale + offset))
    low: Any = edges[0]
    high: Any = edges[1]
    if dtype.kind in "iu":
        low, high = (code, code) if not packing.is_scaled else (int(np.ceil(low)), int(np.floor(high)))

    def test(piece: NDArray[Any]) -> NDArray[np.bool_]:
        with np.errstate(all="ignore"):
            near = np.asarray(piece == low if low == high else (piece >= low) & (piece <= high))
        if near.any():
            near[near] = packing.stored(piece[near]) == code
        return near

    return test


def _shown_times(variable: xr.Variable, numbers: xr.Variable) -> Callable[[Any], str]:
    """Return what writes a count as the time, date or duration that it stands for."""
    resolution = np.datetime_data(variable.dtype)[0] if variable.dtype.kind in "mM" else ""
    return partial(_shown_time, kind=variable.dtype.kind, attrs=dict(numbers.attrs), resolution=resolution)


def _shown_time(count: Any, *, kind: str, attrs: Mapping[str, Any], resolution: Any) -> str:
    units = attrs["units"]
    unit: Any = resolution if resolution in ("s", "ms", "us", "ns") else "ns"
    try:
        if kind == "m":
            return str(times.decode_cf_timedelta(np.array([count]), units, unit)[0])
        return str(
            times.decode_cf_datetime(
                np.array([count]), units, attrs.get("calendar"), use_cftime=kind == "O", time_unit=unit
            )[0]
        )
    except (ValueError, OverflowError):
        return f"{count!r} ({units})"


def _refusal(name: Any, what: str) -> Exception:
    from colstore_io.errors import SchemaMismatchError

    return SchemaMismatchError(
        f"variable {name!r} has the {what}. It would be read as another one; choose another dtype, scale_factor, "
        "add_offset, units or _FillValue in its encoding"
    )
