"""Values and missing values of one block of rows, and how conditions combine them.

A predicate is evaluated block by block: 64 Ki rows fit into the second-level cache with a few temporaries, and memory
does not grow with the number of rows. Missing values follow the rule of their column (cstore-behaviour.md 8):

* ``"nan"``: a comparison with a missing value is false, ``!=`` is true; the result is never missing.
* ``"na"``: three-valued (Kleene) logic; a row whose predicate is missing is dropped in the end.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..fields import Nulls, native
from .arrowtext import ArrowText

__all__ = ["BLOCK_ROWS", "Block", "BoolArray", "ColumnValues", "Vector"]

BLOCK_ROWS = 1 << 16
"""Rows evaluated at a time."""

BoolArray: TypeAlias = "NDArray[np.bool_]"


@dataclass(frozen=True, slots=True)
class ColumnValues:
    """The buffers of one column.

    Attributes
    ----------
    values : ndarray, shape (n,)
        Any byte order, alignment or stride; not modified. Text of variable length is an `ArrowText`.
    validity : ndarray of bool, shape (n,), optional
        False = missing. Omitted when nothing is missing, or when NaN or NaT mark what is.
    nulls : {"nan", "na"}
        The rule that missing values follow, from the dtype in which the column is handed out.
    """

    values: NDArray[Any] | ArrowText
    validity: BoolArray | None = None
    nulls: Nulls = "nan"


@dataclass(slots=True)
class Vector:
    """Values of one block. Conditions are Vectors of bool, False where `null`.

    `null` is True where a value is missing by a validity mask (never by NaN); None when nowhere.
    """

    values: Any  # an array, or a scalar constant
    null: BoolArray | None = None
    na: bool = False

    def hard_null(self) -> BoolArray | None:
        """Return where the value is missing under the ``"na"`` rule."""
        return self.null if self.na else None

    def soft_null(self) -> BoolArray | None:
        """Return where the value is missing by mask, but under the ``"nan"`` rule."""
        return None if self.na else self.null


def union(left: BoolArray | None, right: BoolArray | None) -> BoolArray | None:
    """Return ``left | right`` where None is "nowhere"."""
    if left is None:
        return right
    return left if right is None else left | right


class Block:
    """Rows ``[start, stop)`` of the columns of a predicate; each column is prepared once."""

    __slots__ = ("_columns", "_values", "start", "stop")

    def __init__(self, values: Mapping[str, ColumnValues], start: int, stop: int) -> None:
        self._values = values
        self._columns: dict[str, Vector] = {}
        self.start = start
        self.stop = stop

    @property
    def n_rows(self) -> int:
        return self.stop - self.start

    def column(self, name: str) -> Vector:
        """Return the column in native byte order, with bools that hold 0 or 1 only."""
        vector = self._columns.get(name)
        if vector is None:
            vector = self._columns[name] = self._prepare(self._values[name])
        return vector

    def text(self, name: str) -> tuple[ArrowText, BoolArray | None, bool] | None:
        """Return a column of variable-length text as it lies, where it is missing, and whether by the "na" rule.

        None for a column of any other kind.
        """
        column = self._values[name]
        if not isinstance(column.values, ArrowText):
            return None
        null = None
        if column.validity is not None:
            null = np.equal(column.validity[self.start : self.stop].view(np.uint8), 0)
            null = null if null.any() else None
        return column.values[self.start : self.stop], null, column.nulls == "na"

    def _prepare(self, column: ColumnValues) -> Vector:
        values = column.values[self.start : self.stop]
        if isinstance(values, ArrowText):
            values = values.padded()
        if values.dtype.kind == "b":
            values = _as_bool(values)  # bytes from a file may be neither 0 nor 1
        elif not values.dtype.isnative:
            values = values.astype(native(values.dtype))
        na = column.nulls == "na"
        null = None
        if column.validity is not None:
            null = np.equal(column.validity[self.start : self.stop].view(np.uint8), 0)
        if na and values.dtype.kind in "mM":
            null = union(null, np.isnat(values))  # Arrow and masked times have no NaT beside their null
        if null is not None and not null.any():
            null = None
        return Vector(values, null, na)


def _as_bool(values: NDArray[Any]) -> BoolArray:
    return np.not_equal(values.view(np.uint8), 0)


def is_plain(column: ColumnValues) -> bool:
    """Return True when the column needs no preparation, so that its rows can be compared where they lie."""
    dtype = column.values.dtype
    return column.validity is None and column.nulls == "nan" and dtype.kind not in "bmM" and dtype.isnative
