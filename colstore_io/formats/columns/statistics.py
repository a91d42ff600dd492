"""Bounds of row groups as the footer has them, as far as they can be trusted (columns.md section 9).

=================  ==============================================================================================
column             usable where
=================  ==============================================================================================
bool, integers     there is a value, and both bounds are there
floats             the same, and neither bound is NaN; values that are NaN may hide behind any bounds
string             there is a value, both bounds are UTF-8, and not both are empty: a footer without the fields looks
                   like that
bytes              never: writers compute them wrongly when there are empty values
=================  ==============================================================================================

A footer may have a hundred thousand bounds, of which a predicate looks at those of one column: they are made when they
are asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import Statistics
from .footer import Footer
from .tags import NUMPY_TYPES, Type

__all__ = ["bounds_of", "statistics_of"]

_BYTES = int(Type.BYTES)


class _PerColumn(Mapping[str, Any]):
    """Arrays by column name, made when first asked for. Pickles as a plain dictionary."""

    def __init__(self, columns: Mapping[str, int], make: Callable[[int], NDArray[Any]]) -> None:
        self._columns, self._make = columns, make
        self._made: dict[str, NDArray[Any]] = {}

    def __getitem__(self, name: str) -> NDArray[Any]:
        made = self._made.get(name)
        if made is None:
            made = self._made[name] = self._make(self._columns[name])
        return made

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    def __contains__(self, name: object) -> bool:
        return name in self._columns

    def __reduce__(self) -> tuple[Any, ...]:
        return (dict, (dict(self),))


def statistics_of(footer: Footer, names: tuple[str, ...], *, text: bool) -> Statistics:
    """Return what a footer says about its row groups.

    Parameters
    ----------
    footer : Footer
    names : tuple of str
        Of the columns, as in the schema.
    text : bool
        Whether columns of type string are handed out as text; as bytes they have no bounds.
    """
    every = dict(zip(names, range(len(names)), strict=True))
    last = int(Type.STRING if text else Type.FLOAT64)
    bounded = every
    types = footer.types.tobytes()
    if types and (max(types) > last or _BYTES in types):
        bounded = {name: column for name, column in every.items() if types[column] <= last and types[column] != _BYTES}
    made: dict[int, tuple[NDArray[Any], NDArray[Any], NDArray[np.bool_]]] = {}

    def part(which: int) -> Callable[[int], NDArray[Any]]:
        def make(column: int) -> NDArray[Any]:
            if column not in made:
                made[column] = bounds_of(footer, column)
            return made[column][which]

        return make

    return Statistics(
        minimum=_PerColumn(bounded, part(0)),
        maximum=_PerColumn(bounded, part(1)),
        usable=_PerColumn(bounded, part(2)),
        nulls=_PerColumn(every, lambda column: footer.chunks["null_count"][:, column].astype(np.int64)),
    )


def bounds_of(footer: Footer, column: int) -> tuple[NDArray[Any], NDArray[Any], NDArray[np.bool_]]:
    """Return minimum, maximum (native dtype, or objects: str) and which of them may be trusted, shape (R,) each."""
    kind = Type(int(footer.types[column]))
    chunks = footer.chunks[:, column]
    usable = chunks["null_count"] < footer.n_rows
    if kind.fixed:
        dtype = NUMPY_TYPES[kind]
        usable &= (chunks["min_bytes"] == dtype.itemsize) & (chunks["max_bytes"] == dtype.itemsize)
        low = _fixed_bounds(footer, chunks["min_start"], usable, dtype)
        high = _fixed_bounds(footer, chunks["max_start"], usable, dtype)
        usable &= low <= high  # False too where one is NaN
        return low, high, usable
    usable &= (chunks["min_bytes"] > 0) | (chunks["max_bytes"] > 0)
    low, high = np.full(len(chunks), "", object), np.full(len(chunks), "", object)
    data = footer.data
    for group in np.flatnonzero(usable).tolist():
        start, size, start_high, size_high = (
            int(chunks[name][group]) for name in ("min_start", "min_bytes", "max_start", "max_bytes")
        )
        try:
            low[group] = bytes(data[start : start + size]).decode()
            high[group] = bytes(data[start_high : start_high + size_high]).decode()
        except UnicodeDecodeError:
            low[group] = high[group] = ""
            usable[group] = False
            continue
        usable[group] = low[group] <= high[group]  # by code point, which is by byte
    return low, high, usable


def _fixed_bounds(
    footer: Footer, starts: NDArray[Any], usable: NDArray[np.bool_], dtype: np.dtype[Any]
) -> NDArray[Any]:
    """Gather little-endian values from positions in the footer; 0 where not usable."""
    width = dtype.itemsize
    raw = np.zeros((len(starts), width), np.uint8)
    places = starts[usable].astype(np.int64)[:, None] + np.arange(width)
    raw[usable] = np.frombuffer(footer.data, np.uint8)[places]
    if dtype.kind == "b":
        flags: NDArray[Any] = raw[:, 0] != 0
        return flags
    stored: NDArray[Any] = raw.view(dtype)[:, 0]
    return stored.astype(dtype.newbyteorder("="))
