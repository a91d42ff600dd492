"""Dtypes and attributes in Zarr's words: what can be said, how, and the reason where it cannot."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from ._zarr_model import Skipped

__all__ = ["INSTEAD", "Values", "bad_name", "fill_value_of", "json_attributes", "values_of"]

_UNITS = {
    "D": "days",
    "h": "hours",
    "m": "minutes",
    "s": "seconds",
    "ms": "milliseconds",
    "us": "microseconds",
    "ns": "nanoseconds",
}
"""NumPy's units of time that CF knows too."""

_XARRAY_UNITS = ("s", "ms", "us", "ns")

_TIME_KEYS = (
    "units",
    "calendar",
    "dtype",
    "_FillValue",
    "missing_value",
    "scale_factor",
    "add_offset",
    "_Unsigned",
)

_DIMENSIONS = "_ARRAY_DIMENSIONS"

INSTEAD = "open the files with engine='colstore'"


class Values:
    """How the values of one array are described.

    Attributes
    ----------
    dtype : numpy.dtype
        Of the bytes: int64 for times, else as stored.
    attrs : dict
        CF attributes that say what the numbers mean.
    """

    __slots__ = ("attrs", "dtype")

    def __init__(self, dtype: np.dtype[Any], attrs: Mapping[str, str] | None = None) -> None:
        self.dtype = dtype
        self.attrs = dict(attrs or {})


def values_of(dtype: np.dtype[Any], attrs: Mapping[str, Any], *, text: bool) -> Values | str:
    """Return how values stored as `dtype` are described; text if they cannot be: the reason.

    Times are integers with CF attributes (integrations.md 5.2).

    Parameters
    ----------
    attrs : mapping
        The attributes that the variable has already.
    text : bool
        Whether text and bytes of fixed width are wanted.
    """
    kind = dtype.kind
    if kind in "SU":
        return (
            Values(dtype)
            if text
            else f"it is text of fixed width; ask for it by name, or with text=True ({dtype})"
        )
    if kind == "f" and dtype.itemsize > 8:
        return f"Zarr has no floats of {dtype.itemsize} bytes; {INSTEAD}"
    if kind not in "mM":
        return Values(dtype)
    taken = [key for key in _TIME_KEYS if key in attrs]
    if taken:
        return f"its attribute {taken[0]!r} would change what its times mean in CF; {INSTEAD}"
    unit, count = np.datetime_data(dtype)
    if unit not in _UNITS or count != 1:
        return f"CF has no unit for {dtype}; {INSTEAD}"
    integers = np.dtype(f"{dtype.byteorder}i8") if dtype.byteorder in "<>" else np.dtype(np.int64)
    if kind == "M":
        return Values(
            integers, {"units": f"{_UNITS[unit]} since 1970-01-01", "calendar": "proleptic_gregorian"}
        )
    # The dtype tells xarray that a duration is meant; without it "seconds" may be any number of them.
    kept = unit if unit in _XARRAY_UNITS else "s"
    return Values(integers, {"units": _UNITS[unit], "dtype": f"timedelta64[{kept}]"})


def bad_name(name: str) -> str | None:
    """Return why no array of a Zarr hierarchy can have this name; None when one can."""
    if not name or name in (".", "..") or "/" in name or "\\" in name or name.startswith("__"):
        return "Zarr reserves such names (empty, dots, with a slash, beginning with '__'); rename it"
    if name in ("zarr.json", ".zarray", ".zattrs", ".zgroup", ".zmetadata"):
        return "Zarr keeps its metadata under this name; rename it"
    return None


def json_attributes(attrs: Mapping[str, Any], owner: str) -> tuple[dict[str, Any], list[Skipped]]:
    """Return the attributes that JSON can hold, and those that it cannot.

    NumPy scalars become numbers and arrays lists, as xarray writes them to Zarr: values are kept, dtypes are not.
    """
    kept: dict[str, Any] = {}
    skipped: list[Skipped] = []
    for key, value in attrs.items():
        try:
            if key == _DIMENSIONS:
                raise TypeError("Zarr keeps the names of dimensions under this name")
            kept[key] = _plain(value)
        except TypeError as exc:
            skipped.append(Skipped(f"{owner}@{key}", f"{exc}; {INSTEAD}"))
    return kept, skipped


def _plain(value: Any) -> Any:
    if isinstance(value, (np.ndarray, np.generic)):
        if value.dtype.kind not in "biufU":
            raise TypeError(f"a NumPy value of dtype {value.dtype} has no form in JSON")
        return value.tolist()
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {key: _plain(item) for key, item in value.items()}
    raise TypeError(f"a value of type {type(value).__name__} has no form in JSON")


def fill_value_of(attrs: dict[str, Any], dtype: np.dtype[Any]) -> Any:
    """Take CF's ``_FillValue`` out of JSON attributes if a value of `dtype` is exactly that; None otherwise.

    What is left in the attributes means the same to xarray, and nothing to others.
    """
    value = attrs.get("_FillValue")
    if isinstance(value, bool) or not isinstance(value, (int, float)) or dtype.kind not in "iuf":
        return None
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        if not math.isfinite(value) or value != int(value) or not limits.min <= value <= limits.max:
            return None
    else:
        with np.errstate(over="ignore"):
            stored = float(dtype.type(value))
        if stored != value and not (math.isnan(stored) and math.isnan(value)):
            return None
    del attrs["_FillValue"]
    return int(value) if dtype.kind in "iu" else float(value)
