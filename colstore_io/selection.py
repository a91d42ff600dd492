"""What does this key mean?

A row key (an integer, slice, index array, mask) becomes one of three selections, checked against a row count.
Selections compose: a key applied to a selection gives a selection again. Nothing here reads data.

The rules are those of cstore-behaviour.md 2.1 and 2.2.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["Index", "Mask", "Range", "RowSelection", "compose", "normalise"]


class Range:
    """Rows ``start + k * step`` for k in [0, count). Every row lies in the table."""

    __slots__ = ("count", "start", "step")

    def __init__(self, start: int, step: int, count: int) -> None:
        self.start = start
        self.step = step
        self.count = count

    def covers(self, n: int) -> bool:
        """Return True when these are all `n` rows in order."""
        return self.start == 0 and self.step == 1 and self.count == n

    @property
    def stop(self) -> int:
        """One past the last row of a unit-step range."""
        return self.start + self.count

    @property
    def extent(self) -> tuple[int, int]:
        """Smallest half-open range of rows that holds all of these."""
        if self.count == 0:
            return self.start, self.start
        last = self.start + (self.count - 1) * self.step
        return (self.start, last + 1) if self.step > 0 else (last, self.start + 1)

    def positions(self, n: int) -> NDArray[np.int64]:
        del n
        return np.arange(self.start, self.start + self.count * self.step, self.step, dtype=np.int64)

    def __repr__(self) -> str:
        return f"Range(start={self.start}, step={self.step}, count={self.count})"


class Index:
    """Rows by position: any order, repeats allowed.

    Attributes
    ----------
    rows : ndarray of int64, shape (count,)
        C-contiguous. Unless `checked`, entries may be negative (counted from the end, folded once) or out of
        range; whoever reads them checks, so that the check can be fused into the pass that needs it.
    """

    __slots__ = ("checked", "count", "rows")

    def __init__(self, rows: NDArray[np.int64], *, checked: bool = False) -> None:
        self.rows = rows
        self.count = rows.shape[0]
        self.checked = checked

    def positions(self, n: int) -> NDArray[np.int64]:
        """Return the rows folded into [0, n); `IndexError` for one out of range."""
        if self.checked or self.count == 0:
            return self.rows
        low, high = int(self.rows.min()), int(self.rows.max())
        if low < -n or high >= n:
            raise out_of_range(low if low < -n else high, n)
        if low >= 0:
            return self.rows
        return np.where(self.rows < 0, self.rows + n, self.rows)

    def __repr__(self) -> str:
        return f"Index({self.count} rows)"


class Mask:
    """Rows where `mask` is true.

    Attributes
    ----------
    mask : ndarray of bool, shape (n,)
        C-contiguous, one entry per row of the table.
    offsets : ndarray of int64, optional
        The kernels' prefix counts (``mask_offsets(mask)``), when whoever made the mask counted it in the same pass.
        Never kept of a mask that a user gave and may change.
    """

    __slots__ = ("_count", "mask", "offsets")

    def __init__(self, mask: NDArray[np.bool_], offsets: NDArray[np.int64] | None = None) -> None:
        self.mask = mask
        self.offsets = offsets
        self._count: int | None = None if offsets is None else int(offsets[-1])

    @property
    def count(self) -> int:
        if self._count is None:
            self._count = int(np.count_nonzero(self.mask))
        return self._count

    def positions(self, n: int) -> NDArray[np.int64]:
        del n
        return np.flatnonzero(self.mask).astype(np.int64, copy=False)

    def __repr__(self) -> str:
        return f"Mask({self.mask.shape[0]} rows)"


RowSelection: TypeAlias = Range | Index | Mask


def out_of_range(row: int, n: int) -> IndexError:
    """Build the error for a row number outside [-n, n)."""
    return IndexError(f"index {row} is out of bounds for {n} rows")


def normalise(key: Any, n: int) -> RowSelection:
    """Turn a row key into a selection over `n` rows.

    Parameters
    ----------
    key : None, int, slice, range, sequence of int or bool, ndarray
        ``None`` is all rows. See cstore-behaviour.md 2.1 for every case.
    n : int
        Rows of the table.

    Raises
    ------
    IndexError
        For a key that does not fit: out of range, a mask of another length, floats, strings, 2-D arrays,
        booleans as scalars.
    TypeError, ValueError
        For a slice with non-integer bounds, or with step 0.

    Notes
    -----
    The entries of an index array are left unchecked (see `Index`).
    """
    if isinstance(key, slice):
        start, stop, step = key.indices(n)
        if step == 1:
            return Range(start, 1, stop - start if stop > start else 0)
        return Range(start, step, len(range(start, stop, step)))
    if key is None:
        return Range(0, 1, n)
    if isinstance(key, (bool, np.bool_)):
        raise IndexError(
            f"a boolean ({key}) is not a row; a mask must have one entry for each of the {n} rows"
        )
    if isinstance(key, (int, np.integer)):
        return _single(int(key), n)
    if isinstance(key, range):
        return _from_range(key, n)
    if key is Ellipsis or isinstance(key, (str, bytes, float, complex)):
        raise IndexError(
            f"rows cannot be selected by {key!r}; use an integer, slice, index array or boolean mask"
        )
    return _from_array(key, n)


def _single(row: int, n: int) -> Range:
    folded = row + n if row < 0 else row
    if not 0 <= folded < n:
        raise out_of_range(row, n)
    return Range(folded, 1, 1)


def _from_range(key: range, n: int) -> RowSelection:
    if len(key) == 0:
        return Range(0, 1, 0)
    low, high = min(key[0], key[-1]), max(key[0], key[-1])
    if low < -n or high >= n:
        raise out_of_range(low if low < -n else high, n)
    if low >= 0:
        return Range(key[0], key.step, len(key))
    if high < 0:
        return Range(key[0] + n, key.step, len(key))
    return Index(
        np.arange(key.start, key.stop, key.step, dtype=np.int64)
    )  # crosses zero: folds element by element


def _from_array(key: Any, n: int) -> RowSelection:
    if isinstance(key, np.ndarray):
        array = key
    elif (mask := _nullable_mask(key)) is not None:
        array = mask
    else:
        try:
            array = np.asarray(key)
        except (TypeError, ValueError, OverflowError) as error:  # ragged lists, foreign objects
            raise IndexError(f"rows cannot be selected by a {type(key).__name__}: {error}") from None
    kind = array.dtype.kind
    if array.ndim == 0:
        if kind in "iu":
            return _single(int(array), n)
        raise IndexError(f"rows cannot be selected by a {type(key).__name__} of dtype {array.dtype}")
    if array.ndim != 1:
        raise IndexError(f"row selectors are 1-D, got an array of shape {array.shape}")
    if kind == "b":
        if array.shape[0] != n:
            raise IndexError(f"mask length {array.shape[0]} differs from the {n} rows of the selection")
        return Mask(np.ascontiguousarray(array, dtype=np.bool_))
    if array.shape[0] == 0:
        return Range(0, 1, 0)
    if kind == "u" and array.dtype.itemsize == 8 and array.max() > np.uint64(np.iinfo(np.int64).max):
        raise out_of_range(int(array.max()), n)  # a plain cast would wrap to a negative row
    if kind in "iu":
        index = np.ascontiguousarray(array, dtype=np.int64)
        return Index(index if index.flags.aligned else index.copy())
    raise IndexError(f"row selectors are integer or boolean arrays, got dtype {array.dtype}")


def _nullable_mask(key: Any) -> NDArray[np.bool_] | None:
    """Return a mask out of an Arrow or pandas boolean array, where a null selects nothing; None for other keys."""
    kind = str(getattr(key, "type", None) or getattr(key, "dtype", None))
    if kind == "bool" and hasattr(key, "fill_null"):  # pyarrow.Array, ChunkedArray
        return np.asarray(key.fill_null(False), dtype=np.bool_)
    if kind in ("boolean", "bool[pyarrow]") and hasattr(key, "to_numpy"):  # pandas, masked or Arrow-backed
        filled: NDArray[np.bool_] = key.to_numpy(dtype=np.bool_, na_value=False)
        return filled
    return None


def compose(outer: RowSelection, key: Any, n: int) -> RowSelection:
    """Apply `key` to the rows of `outer`, itself a selection over `n` rows.

    A slice of a slice stays a slice and a mask of a mask stays a mask; everything else becomes positions.
    """
    if isinstance(outer, Range) and outer.covers(n):
        return normalise(key, n)
    inner = normalise(key, outer.count)
    if isinstance(inner, Range) and inner.covers(outer.count):
        return outer
    if isinstance(outer, Range):
        if isinstance(inner, Range):
            return Range(outer.start + inner.start * outer.step, outer.step * inner.step, inner.count)
        return Index(outer.start + inner.positions(outer.count) * outer.step, checked=True)
    if isinstance(outer, Mask) and isinstance(inner, Mask):
        combined = outer.mask.copy()
        combined[outer.mask] = inner.mask
        return Mask(combined)
    return Index(np.ascontiguousarray(outer.positions(n)[inner.positions(outer.count)]), checked=True)
