"""Arguments of ``to_colstore``, looked at before anything is opened, so that errors speak of what the caller wrote."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr
from xarray.coding import times
from xarray.core.indexing import PandasMultiIndexingAdapter

from colstore_io.errors import ColumnNotFoundError

from ._xarray_values import first_object, holds_dates

__all__ = [
    "check_append_dim",
    "check_chunk",
    "check_dtypes",
    "check_encoding",
    "check_packing",
    "checked_chunks",
]

_CHUNK = "a number of indices of at least 1, -1 for the whole dimension, or a sequence of chunk lengths"


def check_append_dim(dim: Any, dataset: xr.Dataset) -> None:
    """Raise `TypeError` unless `dim` may be the name of a dimension, `ValueError` unless the dataset has it."""
    if dim is None:
        return
    if not isinstance(dim, Hashable):
        raise TypeError(f"append_dim must be the name of one dimension, got {dim!r}")
    if dim not in dataset.dims:
        raise ValueError(f"append_dim={dim!r} is no dimension of the dataset, which has {list(dataset.dims)}")


def checked_chunks(chunks: Any, dims: Iterable[Hashable]) -> dict[str, Any]:
    """Return the argument ``chunks`` by name of the dimension, one of `dims`.

    Raises
    ------
    TypeError
        If it is no mapping, or a chunk is neither an int nor a sequence of them.
    ValueError
        If a dimension is unknown, or a length cannot be.
    """
    if chunks is None:
        return {}
    if not isinstance(chunks, Mapping):
        raise TypeError(f"chunks must be a mapping of dimensions to chunk lengths, got {chunks!r}")
    known = list(dims)
    for dim, chunk in chunks.items():
        if dim not in known:
            raise ValueError(f"chunks names {dim!r}, which is no dimension of the dataset {known}")
        check_chunk(chunk, f"chunks[{dim!r}]")
    return {str(dim): chunk for dim, chunk in chunks.items()}


def check_chunk(chunk: Any, what: str) -> None:
    """Raise unless `chunk` says how one dimension may be cut.

    Parameters
    ----------
    what : str
        How to call it in a message.

    Raises
    ------
    TypeError
        If it is neither an int nor a sequence of ints.
    ValueError
        If a length is too small.
    """
    if _is_int(chunk):
        if chunk < 1 and chunk != -1:
            raise ValueError(f"{what} must be at least 1, got {chunk}; it is {_CHUNK}")
        return
    if not isinstance(chunk, (Sequence, np.ndarray)) or isinstance(chunk, (str, bytes)):
        raise TypeError(f"{what} must be {_CHUNK}, got {chunk!r}")
    for length in chunk:
        if not _is_int(length):
            raise TypeError(f"{what} must be {_CHUNK}, got {chunk!r}")
        if length < 0:
            raise ValueError(f"{what} holds a negative length: {chunk!r}")


def _is_int(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def check_encoding(encoding: Any, dataset: xr.Dataset) -> dict[Any, Mapping[str, Any]]:
    """Return the argument ``encoding``, a mapping of variables to mappings.

    Raises
    ------
    TypeError
        If it is no mapping.
    ColumnNotFoundError
        If the dataset has no such variable. (A `KeyError`, as of xarray's own writers; so is the next one as theirs.)
    ValueError
        If what it says of a variable is no mapping, or chunks are not given for every dimension.
    """
    if encoding is None:
        return {}
    if not isinstance(encoding, Mapping):
        raise TypeError(f"encoding must be a mapping of variables to mappings, got {encoding!r}")
    for name, own in encoding.items():
        if name not in dataset.variables:
            raise ColumnNotFoundError(
                f"encoding names {name!r}, which is no variable of the dataset {list(dataset.variables)}"
            )
        if not isinstance(own, Mapping):
            raise ValueError(
                f"encoding[{name!r}] must be castable to a dictionary such as {{'chunks': (10, 20)}}, got {own!r}"
            )
        for key in ("chunks", "chunksizes"):
            if own.get(key) is not None:
                _check_all_chunks(own[key], f"encoding[{name!r}][{key!r}]", dataset.variables[name])
    return dict(encoding)


def _check_all_chunks(chunks: Any, what: str, variable: xr.Variable) -> None:
    dims = list(variable.dims)
    if isinstance(chunks, Mapping):
        for dim, chunk in chunks.items():
            if dim not in dims:
                raise ValueError(f"{what} names {dim!r}, which is no dimension of the variable {dims}")
            check_chunk(chunk, f"{what}[{dim!r}]")
        return
    if not isinstance(chunks, (tuple, list, np.ndarray)):
        raise TypeError(f"{what} must be a tuple with one entry for each dimension {dims}, got {chunks!r}")
    for number, chunk in enumerate(chunks):
        check_chunk(chunk, f"{what}[{number}]")


def check_dtypes(variables: Iterable[tuple[Any, xr.Variable]]) -> None:
    """Raise `TypeError` naming the variable if one has a dtype of pandas, or lists, which xarray cannot encode."""
    for name, variable in variables:
        if not isinstance(variable.dtype, np.dtype):
            raise TypeError(
                f"variable {name!r} has the pandas dtype {variable.dtype}, which cannot be stored; "
                + _advice(str(variable.dtype))
            )
        if variable.dtype.kind == "O" and variable.size and not hasattr(variable._data, "dask"):
            if isinstance(variable._data, PandasMultiIndexingAdapter):
                continue  # xarray refuses these, and says what to do
            first = first_object(variable)
            if isinstance(first, (list, tuple, dict, set, np.ndarray)):
                raise TypeError(
                    f"variable {name!r} holds Python objects ({type(first).__name__}), which cannot be stored; use "
                    "text, bytes, numbers or times, and another dimension for what is in a list"
                )


def _advice(dtype: str) -> str:
    if dtype.startswith("datetime64"):
        return "bring it to UTC and drop its zone first: .dt.tz_convert('UTC').dt.tz_localize(None) in pandas"
    if dtype.startswith(("Int", "UInt", "Float", "boolean")):
        return "convert it first, missing values to NaN, by astype(float)"
    return "convert it first, to text for example by astype(str)"


def check_packing(variable: xr.Variable, name: Any) -> None:
    """Raise unless the encoding of a variable can be one: its dtype, its scale and its units.

    Raises
    ------
    TypeError
        If a part is of another kind than xarray's encoder takes.
    ValueError
        If a scale is zero, a number not finite, or units or a calendar are unknown.
    """
    encoding = variable.encoding
    what = f"encoding of variable {name!r}:"
    wanted = encoding.get("dtype")
    try:
        np.dtype(wanted)
    except (TypeError, ValueError):
        raise TypeError(f"{what} dtype must be one of NumPy, such as 'int16', got {wanted!r}") from None
    for key in ("scale_factor", "add_offset"):
        value = encoding.get(key)
        if value is None:
            continue
        try:
            number = np.asarray(value)
        except ValueError:  # a ragged list
            number = np.empty(0)
        if number.size != 1 or number.dtype.kind not in "iuf":
            raise TypeError(f"{what} {key} must be one number, got {value!r:.60}")
        if not np.isfinite(number).all() or (key == "scale_factor" and not number.all()):
            allowed = "a finite number other than 0" if key == "scale_factor" else "a finite number"
            raise ValueError(f"{what} {key} must be {allowed}, got {value!r:.60}")
    for key in ("_FillValue", "missing_value"):
        value = encoding.get(key)
        if isinstance(value, (list, tuple, dict, set)) and (
            key == "_FillValue" or not isinstance(value, (list, tuple))
        ):
            raise TypeError(f"{what} {key} must be one value, got {value!r:.60}")
        if isinstance(value, (str, bytes)) and variable.dtype.kind in "biufcmM":
            raise TypeError(
                f"{what} {key} must be a number, as its values are {variable.dtype}, got {value!r:.60}"
            )
    for key in ("units", "calendar"):
        value = encoding.get(key)
        if value is not None and not isinstance(value, str):
            raise TypeError(f"{what} {key} must be text, got {value!r:.60}")
    _check_units(variable, what)


def _check_units(variable: xr.Variable, what: str) -> None:
    """Raise `ValueError` if units or calendar of times and durations are unknown: Dask's tasks would find out late."""
    units, calendar = variable.encoding.get("units"), variable.encoding.get("calendar")
    is_span = variable.dtype.kind == "m"
    if (units is None and calendar is None) or not (
        is_span or variable.dtype.kind == "M" or holds_dates(variable)
    ):
        return
    wanted = np.dtype(np.float64)
    try:
        if is_span:
            if units is not None:
                times.encode_cf_timedelta(np.array([1], "m8[s]"), units, wanted)
            return
        one = np.array(["2000-01-01"], "M8[s]")
        since = units if units is not None else "days since 2000-01-01"
        times.encode_cf_datetime(one, since, calendar, wanted)
    except (KeyError, ValueError, OverflowError) as exc:
        why = f"unknown unit {exc}" if isinstance(exc, KeyError) else str(exc)
        example = "'hours'" if is_span else "'hours since 2000-01-01'"
        given = f"units {units!r}" + ("" if calendar is None else f" and calendar {calendar!r}")
        raise ValueError(
            f"{what} {given} cannot be used: {why}; write for example {example}"
            + ("" if is_span else ", with a calendar of CF such as 'standard' or 'noleap'")
        ) from None
