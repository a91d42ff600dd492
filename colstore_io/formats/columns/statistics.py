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

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import Statistics
from .footer import Footer
from .tags import NUMPY_TYPES, Type

__all__ = ["bounds_of", "footer_of", "statistics_of"]

_BYTES = int(Type.BYTES)


class _Known:
    """What a footer says, by column; nothing of it is looked at before it is asked for."""

    __slots__ = ("_bounded", "_every", "_footer", "_made", "_names", "_text")

    def __init__(self, footer: Footer, names: tuple[str, ...], text: bool) -> None:
        self._footer, self._names, self._text = footer, names, text
        self._every: dict[str, int] | None = None
        self._bounded: dict[str, int] | None = None
        self._made: dict[tuple[str, bool], tuple[NDArray[Any], ...]] = {}

    @property
    def footer(self) -> Footer:
        return self._footer

    def columns(self, bounded: bool) -> dict[str, int]:
        """Return the numbers of all columns, or of those that can have bounds, by name."""
        if self._every is None or self._bounded is None:
            self._every = {name: column for column, name in enumerate(self._names)}
            last = Type.STRING if self._text else Type.FLOAT64
            types = self._footer.types.tolist()
            self._bounded = {
                name: column
                for name, column in self._every.items()
                if types[column] <= last and types[column] != Type.BYTES
            }
        return self._bounded if bounded else self._every

    def of(self, name: str, bounded: bool) -> tuple[NDArray[Any], ...]:
        """Return the three arrays of `bounds_of`, or one of null counts."""
        made = self._made.get((name, bounded))
        if made is None:
            column = self.columns(bounded)[name]
            if bounded:
                made = bounds_of(self._footer, column)
            else:
                made = (self._footer.chunks["null_count"][:, column].astype(np.int64),)
            self._made[name, bounded] = made
        return made


class _PerColumn(Mapping[str, Any]):
    """Arrays by column name, made when first asked for. Pickles as a plain dictionary.

    Parameters
    ----------
    known : _Known
    part : int
        0, 1, 2: minimum, maximum, usable; 3: null counts.
    """

    __slots__ = ("_known", "_part")

    def __init__(self, known: _Known, part: int) -> None:
        self._known, self._part = known, part

    @property
    def footer(self) -> Footer:
        return self._known.footer

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self._known.of(name, self._part < 3)[self._part % 3]

    def __iter__(self) -> Iterator[str]:
        return iter(self._known.columns(self._part < 3))

    def __len__(self) -> int:
        return len(self._known.columns(self._part < 3))

    def __contains__(self, name: object) -> bool:
        return name in self._known.columns(self._part < 3)

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
    known = _Known(footer, names, text)
    return Statistics(*[_PerColumn(known, part) for part in range(4)])


def footer_of(statistics: Statistics | None) -> Footer | None:
    """Return the footer that `statistics_of` was given, None for statistics from elsewhere."""
    part = None if statistics is None else statistics.minimum
    return part.footer if isinstance(part, _PerColumn) else None


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
