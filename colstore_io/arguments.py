"""Is an argument of the kind that a function takes? One check per kind; the errors name the argument and what it takes.

Each check returns the value as its caller goes on with it. What may be omitted, the caller knows.
"""

from __future__ import annotations

import numbers
import operator
import os
import reprlib
import sys
from collections.abc import Iterable, Mapping
from typing import Any

__all__ = [
    "check_column_names",
    "check_integer",
    "check_mapping",
    "check_name",
    "check_number",
    "check_path",
    "loaded_module",
]


def _refusal(name: str, what: str, value: object) -> TypeError:
    return TypeError(f"{name} must be {what}, got {reprlib.repr(value)}")


def loaded_module(name: str) -> Any:
    """Return the module of an optional library, None where it is not loaded and so nobody can hand us objects of it.

    A module that another thread is importing just now counts as not loaded: its classes may not be there yet.
    """
    module = sys.modules.get(name)
    return None if getattr(getattr(module, "__spec__", None), "_initializing", False) else module


def check_integer(name: str, value: Any, least: int | None = None) -> int:
    """Return an integer (Python's or NumPy's, but no bool); `ValueError` for one that is less than `least`."""
    if isinstance(value, bool):
        raise _refusal(name, "an integer", value)
    try:
        number = operator.index(value)
    except TypeError:
        raise _refusal(name, "an integer", value) from None
    if least is not None and number < least:
        raise ValueError(f"{name} must be at least {least}, got {number}")
    if not -(2**63) <= number < 2**63:
        raise ValueError(f"{name} must fit into 64 bits, got {reprlib.repr(number)}")
    return number


def check_number(name: str, value: Any, least: float | None = None) -> float:
    """Return a real number that is not NaN; `ValueError` for one that is less than `least`, or than no float is."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise _refusal(name, "a number", value)
    try:
        number = float(value)
    except OverflowError:
        raise ValueError(f"{name} is too large, got {reprlib.repr(value)}") from None
    if number != number or (least is not None and number < least):
        raise ValueError(f"{name} must be a number{'' if least is None else f' >= {least:g}'}, got {value!r}")
    return number


def check_mapping(name: str, value: Any) -> Mapping[Any, Any]:
    """Return a mapping, such as a dictionary."""
    if not isinstance(value, Mapping):
        raise _refusal(name, "a mapping such as a dictionary", value)
    return value


def check_name(name: str, value: Any) -> str:
    """Return a string."""
    if not isinstance(value, str):
        raise _refusal(name, "a string", value)
    return value


def check_column_names(name: str, value: Any) -> tuple[str, ...]:
    """Return names of columns as a tuple; one string is one name."""
    if isinstance(value, str):
        return (value,)
    names = tuple(value) if isinstance(value, Iterable) and not isinstance(value, bytes) else None
    if names is None or not all(isinstance(one, str) for one in names):
        raise _refusal(name, "a list of column names", value)
    return names


def check_path(name: str, value: Any) -> str:
    """Return the path of a local file as a string."""
    try:
        path = os.fsdecode(value)
    except TypeError:
        raise _refusal(name, "a path (a string or a pathlib.Path)", value) from None
    if not path:
        raise ValueError(f"{name} is empty; it must name a file")
    return path
