"""One column of whatever kind, as stored values: NumPy arrays, masked arrays, lists, objects, StringDType.

Each converter returns a `Column`: values of a storable dtype (little-endian, contiguous, one-dimensional), what
is missing, and when that needs a validity companion (the table of cstore-behaviour.md 6.1). Native contiguous
NumPy arrays pass through without a copy. `ingest.py` puts columns together.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, NoReturn

import numpy as np
from numpy.typing import NDArray

from ..arguments import loaded_module
from ..fields import STORABLE_KINDS
from .arrow import TextTarget, check_width, fixed_text, refuse_trailing_nul, values_from_arrow

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "Column",
    "Rule",
    "arrow_column",
    "column_of",
    "fit_text",
    "object_column",
    "refuse_polars_dtype",
    "refuse_surrogates",
    "rule_of",
    "storable",
]

Rule = Literal["always", "if_null", "never"]
"""When a column gets a validity companion (third column of the table of cstore-behaviour.md 6.1)."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column, converted but not yet placed in a table.

    Attributes
    ----------
    values : ndarray, shape (n,)
        Storable dtype, little-endian, C-contiguous; zero bytes under nulls.
    validity : ndarray of bool, shape (n,), or None
        ``None``: nothing is missing.
    rule : Rule
        When a companion is written.
    in_band : bool
        NaN and NaT of `values` mean "missing" (pandas' NumPy-backed floats, every NumPy time). They stay in band
        unless a companion is written anyway.
    plain : bool
        Given as a NumPy array: the values are what is to be stored, no more is known about them.
    untyped : bool
        All missing, of no type: takes the type of the table that it is appended to.
    logical, tz, categories, ordered
        As in `colstore_io.fields.Field`.
    """

    values: NDArray[Any]
    validity: NDArray[np.bool_] | None = None
    rule: Rule = "never"
    in_band: bool = False
    plain: bool = False
    untyped: bool = False
    logical: str | None = None
    tz: str | None = None
    categories: tuple[Any, ...] | None = None
    ordered: bool | None = None


def _refuse_dtype(name: str, dtype: np.dtype[Any]) -> NoReturn:
    advice = {
        "c": "store its real and imaginary parts as two columns",
        "V": "store each of its fields as a column",
    }.get(dtype.kind, "cast it to a number, text, or a time type first")
    raise TypeError(f"column {name!r}: unsupported dtype kind {dtype.kind!r} ({dtype}); {advice}")


def storable(name: str, values: NDArray[Any]) -> NDArray[Any]:
    """Return `values` as it can be stored: 1-D, contiguous, little-endian, at least one byte wide.

    Returns `values` itself (as a plain ndarray) when it is so already.

    Raises
    ------
    TypeError
        For a dtype that no file may hold (cstore.md section 5).
    ValueError
        If it is not one-dimensional; a scalar becomes length 1. If text holds what is no text (`refuse_surrogates`).
    """
    if values.dtype.kind not in STORABLE_KINDS:
        _refuse_dtype(name, values.dtype)
    if values.ndim == 0:
        values = values.reshape(1)
    if values.ndim != 1:
        raise ValueError(
            f"column {name!r} has {values.ndim} dimensions, shape {values.shape}; a column is 1D: "
            "split it into several columns"
        )
    dtype = values.dtype.newbyteorder("<")
    if dtype.itemsize == 0:  # S0 and U0 cannot be reopened by others (cstore.md section 5)
        dtype = np.dtype(f"<{dtype.kind}1")
    stored = np.require(values, dtype=dtype, requirements=["C", "A"]).view(np.ndarray)
    if dtype.kind == "U":
        refuse_surrogates(name, stored)
    return stored


def refuse_surrogates(name: str, values: NDArray[Any]) -> None:
    """Check that no value holds a lone surrogate, which no reader could turn into UTF-8.

    Parameters
    ----------
    name : str
        Of the column.
    values : ndarray of ``U``, shape (n,)
        C-contiguous, little-endian.

    Raises
    ------
    ValueError
        Naming column and row.
    """
    codes = values.view("<u4") if values.size else np.empty(0, "<u4")
    if codes.max(initial=0) < 0xD800:  # a pass as fast as memory; most text ends here
        return
    for low in range(0, len(codes), 1 << 20):
        bad = codes[low : low + (1 << 20)] >> 11 == 0xD800 >> 11
        if bad.any():
            _refuse_surrogate(name, (low + int(bad.argmax())) // (values.dtype.itemsize // 4))


def fit_text(name: str, values: NDArray[Any], target: TextTarget) -> NDArray[Any]:
    """Give a fixed-width ``U`` or ``S`` array the width of `target`, if it has one.

    Raises
    ------
    SchemaMismatchError
        If a value is longer.
    ValueError
        If no item can be that wide.
    """
    if target.width is None:
        return values
    kind = values.dtype.kind
    check_width(name, target.width, 4 if kind == "U" else 1)
    dtype = np.dtype(f"<{kind}{target.width}")
    if dtype.itemsize < values.dtype.itemsize:
        longest = int(np.strings.str_len(values).max(initial=0))
        if longest > target.width:
            raise target.too_long(name, longest, "characters" if kind == "U" else "bytes")
    return values if dtype == values.dtype else values.astype(dtype)


def column_of(name: str, data: Any, target: TextTarget) -> Column:
    """Convert anything that can stand for one column.

    Parameters
    ----------
    name : str
        For messages.
    data : array-like
        NumPy (masked too), pandas, Arrow, anything with an Arrow capsule or ``__array__``, sequences, scalars.
    target : TextTarget
        What text becomes.

    Returns
    -------
    Column

    Raises
    ------
    TypeError
        For kinds that cannot be stored: nested, mixed, complex, decimals.
    ValueError
        For more than one dimension, ragged lists, text that ends in NUL or is not valid Unicode.
    SchemaMismatchError
        For text that is longer than `target.width`.
    """
    pandas = loaded_module("pandas")
    if pandas is not None and isinstance(
        data, (pandas.Series, pandas.Index, pandas.api.extensions.ExtensionArray)
    ):
        from .frames import pandas_column

        return pandas_column(name, data, target)
    if isinstance(data, np.ndarray):
        return _numpy_column(name, data, target)
    if not isinstance(getattr(data, "dtype", None), np.dtype):
        if isinstance(data, (list, tuple, str, bytes)):
            return _python_column(name, data, target)
        if hasattr(data, "__arrow_c_stream__") or hasattr(data, "__arrow_c_array__"):
            return arrow_column(name, _arrow_array(name, data), target)
    return _numpy_column(name, np.asarray(data), target)


# ------------------------------------------------------------------------------------------------- NumPy arrays


def _numpy_column(name: str, data: NDArray[Any], target: TextTarget) -> Column:
    if isinstance(data, np.ma.MaskedArray):
        return _masked_column(name, data, target)
    if data.dtype.kind == "T":
        return _string_dtype_column(name, data, target)
    if data.dtype.kind == "O":
        return object_column(name, data, target)
    values = storable(name, data)
    if values.dtype.kind in "US":
        return Column(fit_text(name, values, target), plain=True)
    return Column(values, in_band=values.dtype.kind in "mM", plain=True)


def _masked_column(name: str, data: np.ma.MaskedArray[Any, Any], target: TextTarget) -> Column:
    """`numpy.ma`: an NA of its own, so the rules of masked pandas arrays hold."""
    mask = np.ma.getmaskarray(data)
    if data.dtype.kind == "O":
        objects = np.array(data.data, copy=True)
        objects[mask] = None
        return object_column(name, objects, target)
    values = storable(name, np.asarray(data.data))
    if values.dtype.kind in "US":
        values = fit_text(name, values, target)
    validity = None
    if mask.any():
        validity = ~mask.reshape(values.shape)
        values = np.where(validity, values, np.zeros((), values.dtype))
    rule: Rule = "always" if values.dtype.kind in "biuSU" else "if_null"
    return Column(values, validity, rule, plain=True)


def _string_dtype_column(name: str, data: NDArray[Any], target: TextTarget) -> Column:
    """NumPy's variable-width StringDType, whatever its missing value is."""
    import pyarrow as pa

    if data.ndim > 1:
        raise ValueError(f"column {name!r} has {data.ndim} dimensions; a column is 1D: split it into several")
    data = data.reshape(-1)
    try:
        array = pa.array(data)
        chunks = array.chunks if isinstance(array, pa.ChunkedArray) else [array]
    except (pa.ArrowException, TypeError):
        # pyarrow before StringDType support: objects, but only some rows of them at a time.
        rows = 1 << 16
        chunks = [
            _text_from_objects(name, data[i : i + rows].astype(object), i) for i in range(0, len(data), rows)
        ]
    except UnicodeError:
        _refuse_surrogates(name, data)
    column = arrow_column(name, pa.chunked_array(chunks, chunks[0].type if chunks else pa.string()), target)
    # Which Arrow type the text passed through on the way is no property of the data.
    return replace(column, logical="string" if target.strings == "bytes" else None)


# ----------------------------------------------------------------------------------------------- Python objects


def _python_column(name: str, data: Any, target: TextTarget) -> Column:
    """Lists, tuples, ``str``, ``bytes``: what NumPy makes of them, unless it would lose something."""
    if isinstance(data, (str, bytes)):
        data = [data]
    try:
        array = np.asarray(data)
    except ValueError:
        raise ValueError(
            f"column {name!r} is a ragged nested sequence; a column is one-dimensional: split it into several columns, "
            "or join each value to text"
        ) from None
    if array.ndim == 1 and array.dtype.kind in "USO":
        # NumPy turns [1, "a"] into text and cuts trailing NULs, so text goes by way of the objects themselves.
        objects = np.empty(len(data), object)
        objects[:] = data
        if array.dtype.kind == "U" and target == TextTarget() and all(isinstance(v, str) for v in data):
            if any(value.endswith("\0") for value in data):
                refuse_trailing_nul(name)
            return Column(storable(name, array), rule="if_null")
        column = object_column(name, objects, target)
        if array.dtype.kind == "S" and column.logical == "binary" and column.validity is None:
            return Column(column.values, rule="if_null")  # the bytes of the reference: plain |Sn
        return column
    if array.dtype == np.float64 and array.ndim == 1 and _beyond(data, array):
        array = np.empty(len(data), object)  # NumPy makes floats of integers beyond int64, digits lost
        array[:] = data
    if array.dtype.kind == "O":
        return object_column(name, array, target)
    values = storable(name, array)
    return Column(values, rule="if_null", in_band=values.dtype.kind in "mM")


def _beyond(data: Any, floats: NDArray[np.float64]) -> bool:
    """Whether NumPy made `floats` of integers that they may not hold. Floats among them are there on purpose."""
    with np.errstate(invalid="ignore"):
        large = bool((np.abs(floats) >= 2.0**53).any())
    return large and all(isinstance(value, (int, np.integer)) for value in data)


def _kind_of(cls: type) -> str:
    """Classify the type of one object; anything unknown is its own kind and ends as a TypeError."""
    if cls is type(None) or (cls.__name__ in ("NAType", "NaTType") and cls.__module__.startswith("pandas")):
        return "null"
    # bool before int and timedelta64 before integer: they are subclasses.
    for kind, classes in (
        ("text", str),
        ("bool", (bool, np.bool_)),
        ("bytes", bytes),
        ("timedelta", (datetime.timedelta, np.timedelta64)),
        ("integer", (int, np.integer)),
        ("float", (float, np.floating)),
        ("datetime", (datetime.datetime, np.datetime64)),
        ("date", datetime.date),
    ):
        if issubclass(cls, classes):
            return kind
    return f"{cls.__module__}.{cls.__qualname__}".removeprefix("builtins.")


_ADVICE = {
    "generator": "make a list of what it yields",
    "set": "make a list of it, in the order that you want",
    "dict": "store each of its keys as a column",
    "decimal.Decimal": "convert them to float64, to text, or to integers of the smallest unit",
    "datetime.time": "convert them to text, or to a timedelta since midnight",
    "complex": "store their real and imaginary parts as two columns",
}


def _is_null(objects: NDArray[Any], *, nan: bool) -> NDArray[np.bool_]:
    """Mark None, NA and NaT, and NaN on demand. One pass in Python: these are objects already."""

    def missing(value: Any) -> bool:
        if isinstance(value, (float, np.floating)):
            return nan and value != value
        if isinstance(value, (np.datetime64, np.timedelta64)):
            return bool(np.isnat(value))
        return _kind_of(type(value)) == "null"

    return np.fromiter((missing(value) for value in objects), np.bool_, len(objects))


def object_column(name: str, objects: NDArray[Any], target: TextTarget) -> Column:
    """Convert an object array of one kind: text, numbers, booleans, bytes, dates, times; None among them.

    Parameters
    ----------
    name : str
        For messages.
    objects : ndarray of object, shape (n,)
        Not changed.
    target : TextTarget
        What text becomes.

    Raises
    ------
    TypeError
        If the objects are mixed, or of a kind that cannot be stored; names the column.

    Notes
    -----
    NaN stands for "missing" among text, bytes, booleans and dates, as in pandas; among numbers it is a value. An
    array without rows is text, the kind that object arrays mostly hold.
    """
    if objects.ndim == 0:
        objects = objects.reshape(1)
    if objects.ndim != 1:
        raise ValueError(
            f"column {name!r} has {objects.ndim} dimensions; a column is 1D: split it into several"
        )
    kinds = {_kind_of(cls) for cls in set(map(type, objects))}
    has_null = "null" in kinds
    found = kinds - {"null"}
    if not len(objects):
        return Column(np.empty(0, "S1" if target.strings == "bytes" else "U1"), rule="if_null", untyped=True)
    if found <= {"float"} and has_null and _is_null(objects, nan=True).all():
        found = set()
    if not found:
        return Column(np.full(len(objects), np.nan), untyped=True)
    if "float" in found and len(found) == 2 and "integer" not in found:
        floats = np.fromiter((isinstance(v, (float, np.floating)) for v in objects), np.bool_, len(objects))
        if _is_null(objects, nan=True)[floats].all():
            found.discard("float")
            has_null = True
    if found == {"integer", "float"}:
        found = {"float"}
    if len(found) > 1:
        raise TypeError(
            f"column {name!r} mixes objects of the kinds {', '.join(sorted(found))}; a column holds one kind: "
            "convert all to one, to text for example by map(str, ...), or split the column"
        )
    kind = found.pop()
    converters = {
        "text": _objects_as_text,
        "bytes": _objects_as_bytes,
        "bool": _objects_as_numbers,
        "integer": _objects_as_numbers,
        "float": _objects_as_numbers,
        "date": _objects_as_times,
        "datetime": _objects_as_times,
        "timedelta": _objects_as_times,
    }
    if kind not in converters:
        advice = _ADVICE.get(kind, "convert them to numbers, text or times first")
        raise TypeError(f"column {name!r} holds objects of type {kind}, which cannot be stored; {advice}")
    missing = (
        _is_null(objects, nan=kind != "float") if has_null or kind in ("datetime", "timedelta") else None
    )
    if missing is not None and not missing.any():
        missing = None
    return converters[kind](name, objects, missing, kind, target)


def _refuse_surrogate(name: str, row: int) -> NoReturn:
    raise ValueError(
        f"column {name!r} holds a lone surrogate in row {row}, which cannot be encoded as UTF-8; "
        "replace it, or store bytes"
    ) from None


def _refuse_surrogates(name: str, values: Iterable[Any], first_row: int = 0) -> NoReturn:
    """Raise for the first of `values` that is text and cannot be encoded."""
    row = first_row
    for row, value in enumerate(values, first_row):  # noqa: B007
        if isinstance(value, str) and not value.isascii():
            try:
                value.encode()
            except UnicodeEncodeError:
                break
    _refuse_surrogate(name, row)


def _text_from_objects(name: str, objects: NDArray[Any], first_row: int = 0) -> pa.Array:
    import pyarrow as pa

    try:
        return pa.array(objects, type=pa.large_string(), from_pandas=True)
    except UnicodeError:
        _refuse_surrogates(name, objects, first_row)


def _objects_as_text(
    name: str, objects: NDArray[Any], missing: NDArray[np.bool_] | None, kind: str, target: TextTarget
) -> Column:
    array = _text_from_objects(name, objects)
    values = fixed_text(name, array.chunks if hasattr(array, "chunks") else [array], target)
    logical = "string" if target.strings == "bytes" else None
    return Column(values, None if missing is None else ~missing, "if_null", logical=logical)


def _objects_as_bytes(
    name: str, objects: NDArray[Any], missing: NDArray[np.bool_] | None, kind: str, target: TextTarget
) -> Column:
    import pyarrow as pa

    array = pa.array(objects, type=pa.large_binary(), from_pandas=True)
    values = fixed_text(name, array.chunks if hasattr(array, "chunks") else [array], target, text=False)
    return Column(values, None if missing is None else ~missing, "if_null", logical="binary")


def _objects_as_numbers(
    name: str, objects: NDArray[Any], missing: NDArray[np.bool_] | None, kind: str, target: TextTarget
) -> Column:
    if missing is not None:
        objects = objects.copy()
        objects[missing] = False if kind == "bool" else 0
    if kind == "float" and any(isinstance(v, (int, np.integer)) and abs(int(v)) > 1 << 53 for v in objects):
        raise TypeError(
            f"column {name!r} mixes floats with integers beyond 2**53, which no dtype holds exactly; cast it first"
        )
    for dtype in {"bool": ("?",), "integer": ("<i8", "<u8"), "float": ("<f8",)}[kind]:
        try:
            values = objects.astype(dtype)
        except OverflowError:
            continue
        return Column(values, None if missing is None else ~missing, "if_null")
    raise TypeError(f"column {name!r} holds integers that do not fit 64 bits; store them as text or float64")


def _objects_as_times(
    name: str, objects: NDArray[Any], missing: NDArray[np.bool_] | None, kind: str, target: TextTarget
) -> Column:
    present = objects if missing is None else objects[~missing]
    stored, tz = _times(name, present, kind)
    if missing is None:
        values = stored
    else:
        values = np.zeros(len(objects), stored.dtype)
        values[~missing] = stored
    logical = "date32" if kind == "date" else None
    return Column(
        values,
        None if missing is None else ~missing,
        "if_null",
        in_band=kind != "date",
        logical=logical,
        tz=tz,
    )


def _times(name: str, present: NDArray[Any], kind: str) -> tuple[NDArray[Any], str | None]:
    """Convert date, datetime or timedelta objects without nulls; returns values and time zone."""
    if kind == "date":
        return present.astype("M8[D]"), None
    if all(issubclass(cls, np.generic) for cls in set(map(type, present))):
        return storable(name, np.array(list(present))), None
    zones = {str(getattr(value, "tzinfo", None)) for value in present} if kind == "datetime" else {"None"}
    if len(zones) > 1:
        raise TypeError(
            f"column {name!r} mixes times of several zones ({', '.join(sorted(zones))}); "
            "convert them to one zone first"
        )
    pandas = loaded_module("pandas")
    if pandas is not None and any(
        issubclass(cls, (pandas.Timestamp, pandas.Timedelta)) for cls in set(map(type, present))
    ):
        from .frames import pandas_column

        index = pandas.DatetimeIndex(present) if kind == "datetime" else pandas.TimedeltaIndex(present)
        column = pandas_column(name, index, TextTarget())
        return column.values, column.tz
    if zones == {"None"}:
        return present.astype("M8[us]" if kind == "datetime" else "m8[us]"), None
    import pyarrow as pa

    zone = pa.lib.tzinfo_to_string(present[0].tzinfo)
    return values_from_arrow(pa.array(present, pa.timestamp("us", zone)), name).values, zone


# ------------------------------------------------------------------------------------------------- Arrow columns


def refuse_polars_dtype(name: str, dtype: Any) -> None:
    """Raise TypeError for a Polars dtype that Arrow cannot carry: objects arrive as bytes that are addresses."""
    kind = type(dtype) if not isinstance(dtype, type) else dtype
    if not kind.__module__.startswith("polars."):
        return
    advice = {
        "Object": "convert it to numbers, text or times first",
        "Int128": "cast it to a 64-bit integer, float64 or text first",
        "UInt128": "cast it to a 64-bit integer, float64 or text first",
    }.get(kind.__name__)
    if advice is not None:
        raise TypeError(f"column {name!r} has Polars type {kind.__name__}, which cannot be stored; {advice}")


def _arrow_array(name: str, data: Any) -> Any:
    """Import one column through its capsule (Polars series, Arrow arrays of any library)."""
    import pyarrow as pa

    if isinstance(data, (pa.Array, pa.ChunkedArray)):
        return data
    refuse_polars_dtype(name, getattr(data, "dtype", None))
    try:
        if hasattr(data, "__arrow_c_stream__"):
            return pa.chunked_array(data)
        return pa.array(data)
    except (pa.ArrowException, TypeError) as error:
        raise TypeError(
            f"column {name!r} of type {type(data).__qualname__} cannot be read through Arrow: {error}"
        ) from error


def rule_of(kind: pa.DataType) -> Rule:
    """Return when a column of this Arrow type gets a companion (table of cstore-behaviour.md 6.1)."""
    import pyarrow as pa

    types = pa.types
    if types.is_run_end_encoded(kind):
        return rule_of(kind.value_type)
    if types.is_null(kind):
        return "never"
    if types.is_floating(kind) or types.is_temporal(kind):
        return "if_null"
    return "always"


def arrow_column(name: str, array: Any, target: TextTarget, *, nullable: bool = True) -> Column:
    """Convert a `pyarrow.Array` or `ChunkedArray`.

    Parameters
    ----------
    name : str
        For messages.
    array : pyarrow.Array or pyarrow.ChunkedArray
        The column.
    target : TextTarget
        What text becomes.
    nullable : bool, default True
        False when the Arrow field is declared not nullable: no companion then.

    Raises
    ------
    ValueError
        If a column that is declared not nullable holds nulls.
    """
    import pyarrow as pa

    imported = values_from_arrow(array, name, target)
    rule = rule_of(array.type)
    if not nullable:
        if imported.validity is not None:
            raise ValueError(
                f"column {name!r} is declared not nullable, but holds nulls; correct its Arrow field"
            )
        rule = "never"
    return Column(
        imported.values,
        imported.validity,
        rule,
        untyped=pa.types.is_null(array.type),
        logical=imported.logical,
        tz=imported.tz,
        categories=imported.categories,
        ordered=imported.ordered,
    )
