"""Attribute values to JSON and back (cstore.md 4.2, "Attribute values").

=============================================  =====================================================
Python                                         JSON
=============================================  =====================================================
str, bool, None, int, finite float             as such
NaN, infinities                                ``{"float": "nan"}``, ``"inf"``, ``"-inf"``
list, tuple (comes back as list)               array
NumPy scalar or array                          ``{"data": hex, "dtype": "<f4", "shape": [2]}``
mapping with string keys (comes back as dict)  ``{"map": {...}}``
=============================================  =====================================================

Keys come back in sorted order: the checksum is taken over sorted text, and so it is stored.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .manifest import parse_dtype

__all__ = ["decode_attributes", "encode_attributes"]

_ARRAY_KINDS = "fiubMmSUc"
_COMPLEX = {text: np.dtype(text) for text in ("<c8", "<c16")}
_MAX_CODE_POINT = 0x10FFFF
_MAX_DEPTH = 64
_MAX_INTEGER_BITS = 14_000
"""Below the 4300 digits at which Python refuses to turn text into an integer."""

_NON_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def encode_attributes(attrs: Mapping[str, Any], owner: str) -> dict[str, Any]:
    """Return the JSON form of `attrs`.

    Parameters
    ----------
    attrs : mapping of str to value
    owner : str
        Whose attributes they are, for messages: ``"column 'x'"`` or ``"the table"``.

    Raises
    ------
    TypeError
        Naming the attribute, if a value or key is of a type that has no form here.
    """
    encoded = {}
    for key, value in attrs.items():
        if not isinstance(key, str):
            raise TypeError(f"attribute names must be strings; {owner} has {key!r}")
        encoded[str(key)] = _encode(value, f"attribute {key!r} of {owner}", 0)
    return encoded


def _encode(value: Any, label: str, depth: int) -> Any:
    if depth > _MAX_DEPTH:
        raise TypeError(f"{label} is nested more than {_MAX_DEPTH} levels deep")
    if isinstance(value, (np.generic, np.ndarray)):  # first: np.float64 is a float, np.str_ a str
        return _encode_array(np.asarray(value), label)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, int):
        if abs(value).bit_length() > _MAX_INTEGER_BITS:
            raise TypeError(f"{label} holds an integer of more than {_MAX_INTEGER_BITS} bits")
        return int(value)
    if isinstance(value, float):
        if math.isfinite(value):
            return float(value)
        return {"float": "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"}
    if isinstance(value, (list, tuple)):
        return [_encode(item, label, depth + 1) for item in value]
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise TypeError(f"{label} holds a mapping with the key {key!r}; keys must be strings")
        return {"map": {str(key): _encode(item, label, depth + 1) for key, item in value.items()}}
    raise TypeError(
        f"{label} is of type {type(value).__name__}; use text, numbers, booleans, None, NumPy scalars or "
        "arrays, or lists and dicts of them"
    )


def _encode_array(array: NDArray[Any], label: str) -> dict[str, Any]:
    if array.dtype.kind not in _ARRAY_KINDS or array.dtype.str[1:] in ("c32",):
        raise TypeError(f"{label} is a NumPy value of dtype {array.dtype}, which cannot be stored")
    if array.dtype.itemsize == 0:
        array = np.zeros(array.shape, f"{array.dtype.kind}1")
    stored = array.astype(array.dtype.newbyteorder("<"), copy=False)
    return {"data": stored.tobytes().hex(), "dtype": stored.dtype.str, "shape": list(stored.shape)}


def decode_attributes(encoded: object) -> dict[str, Any]:
    """Return the attributes that `encoded` stands for; arrays in native byte order, owning their memory.

    An object that is none of the forms above (of a later version) comes back as the dict that it is.

    Raises
    ------
    ValueError
        If it is no object, or a NumPy value in it is inconsistent. Says where.
    """
    if not isinstance(encoded, dict):
        raise ValueError("'attrs' is no object")
    return {key: _decode(value, key, 0) for key, value in encoded.items()}


def _decode(value: Any, key: str, depth: int) -> Any:
    if depth > 2 * _MAX_DEPTH + 2:
        raise ValueError(f"attribute {key!a} is nested too deeply")
    if isinstance(value, list):
        return [_decode(item, key, depth + 1) for item in value]
    if not isinstance(value, dict):
        return value
    if value.keys() == {"float"} and isinstance(value["float"], str) and value["float"] in _NON_FINITE:
        return _NON_FINITE[value["float"]]
    if value.keys() == {"map"} and isinstance(value["map"], dict):
        return {k: _decode(item, key, depth + 1) for k, item in value["map"].items()}
    if value.keys() == {"data", "dtype", "shape"}:
        return _decode_array(value["data"], value["dtype"], value["shape"], key)
    return value


@functools.lru_cache(64)
def _known_dtype(text: str) -> np.dtype[Any]:
    return parse_dtype(text)


def _decode_array(data: object, dtype_text: object, shape: object, key: str) -> Any:
    try:
        if isinstance(dtype_text, str) and dtype_text in _COMPLEX:
            dtype = _COMPLEX[dtype_text]
        else:
            dtype = _known_dtype(dtype_text) if isinstance(dtype_text, str) else parse_dtype(dtype_text)
        if not isinstance(data, str) or not isinstance(shape, list):
            raise ValueError("has no hexadecimal data or no shape")
        if not all(isinstance(n, int) and not isinstance(n, bool) and n >= 0 for n in shape):
            raise ValueError("has a shape that is no list of lengths")
        raw = bytes.fromhex(data)
        if math.prod(shape) * dtype.itemsize != len(raw):
            raise ValueError(f"has {len(raw)} bytes, its shape needs {math.prod(shape) * dtype.itemsize}")
        if dtype.kind == "U":
            # NumPy finds out when it makes a str of them, with SystemError.
            codes = np.frombuffer(raw, f"{dtype.str[0]}u4")
            if codes.max(initial=0) > _MAX_CODE_POINT:
                raise ValueError("has characters beyond U+10FFFF")
        array = np.frombuffer(raw, dtype).reshape(shape).astype(dtype.newbyteorder("="))
    except (ValueError, TypeError, OverflowError, MemoryError) as exc:
        raise ValueError(f"attribute {key!a} {exc}") from None
    return array if array.ndim else array[()]
