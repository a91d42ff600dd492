"""What does an N-D key mean? One selection per dimension (`Outer`), or points (`Points`), and the chunks they touch.

Pure: no file is looked at. Keys are in the canonical form of xarray's indexers: slices with a positive step, integers
and index arrays in range.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .layout import Axis

__all__ = ["Outer", "Pick", "Points", "outer", "pick", "points"]


@dataclass(frozen=True, slots=True)
class Pick:
    """A selection along one dimension.

    Attributes
    ----------
    count : int
        Indices selected: the length of the result along this dimension.
    scalar : bool
        The dimension is not in the result.
    chunks : ndarray of int64
        Numbers of the chunks that are touched, increasing.
    lengths : ndarray of int64
        Of these chunks.
    runs : ndarray of int64, shape (R, 5)
        As the kernel `copy_slab` takes them; chunks are positions in `chunks`.
    whole : bool
        The whole dimension in order, which is one chunk.
    """

    count: int
    scalar: bool
    chunks: NDArray[np.int64]
    lengths: NDArray[np.int64]
    runs: NDArray[np.int64]
    whole: bool = False


@dataclass(frozen=True, slots=True)
class Outer:
    """The outer product of one selection per dimension."""

    picks: tuple[Pick, ...]

    @property
    def counts(self) -> tuple[int, ...]:
        """Length of the result along every dimension, scalars as 1."""
        return tuple(pick.count for pick in self.picks)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the result."""
        return tuple(pick.count for pick in self.picks if not pick.scalar)

    @property
    def chunks(self) -> tuple[NDArray[np.int64], ...]:
        return tuple(pick.chunks for pick in self.picks)


@dataclass(frozen=True, slots=True)
class Points:
    """Scattered points.

    Attributes
    ----------
    shape : tuple of int
        Of the result.
    indices : tuple of ndarray of int64
        For each dimension, broadcast to `shape`.
    chunks : tuple of ndarray of int64
        The box of chunks around all points: consecutive numbers for each dimension.
    key : tuple
        What was asked for.
    checked : bool
        All indices are in range and not negative. Otherwise `chunks` is the whole grid, and who reads must check.
    """

    shape: tuple[int, ...]
    indices: tuple[NDArray[np.int64], ...]
    chunks: tuple[NDArray[np.int64], ...]
    key: tuple[Any, ...] = ()
    checked: bool = True


_NO_CHUNKS = np.zeros(0, np.int64)
_NO_RUNS = np.zeros((0, 5), np.int64)


def _out_of_range(index: int, length: int, name: str) -> IndexError:
    return IndexError(f"index {index} is out of range for dimension {name!r} of length {length}")


def pick(key: Any, axis: Axis, name: str) -> Pick:
    """Return the selection that `key` (int, slice or 1-D index array) makes along `axis`.

    Raises
    ------
    IndexError
        If an index lies outside ``[-length, length)``; names the dimension.
    """
    length = axis.length
    if isinstance(key, slice):
        return _of_range(range(*key.indices(length)), axis)
    if isinstance(key, (int, np.integer)):
        index = int(key)
        if not -length <= index < length:
            raise _out_of_range(index, length, name)
        index %= length
        chunk = int(axis.chunk_of(index))
        edges = axis.edges(chunk, chunk + 1)
        runs = np.array([[0, 1, 0, index - int(edges[0]), 1]], np.int64)
        return Pick(1, True, np.array([chunk], np.int64), np.diff(edges), runs)
    return _of_array(checked_indices(key, length, name), axis)


def checked_indices(key: Any, length: int, name: str) -> NDArray[np.int64]:
    """Return indices as int64, negative ones folded once.

    Raises
    ------
    IndexError
        If one is out of range, or `key` is not of integers.
    """
    array = np.asarray(key)
    if array.dtype.kind not in "iu" and array.size:
        raise IndexError(f"indices of dimension {name!r} must be integers, got {array.dtype}")
    array = array.astype(np.int64, copy=False)
    if array.size:
        low, high = int(array.min()), int(array.max())
        if low < -length or high >= length:
            raise _out_of_range(low if low < -length else high, length, name)
        if low < 0:
            array = np.where(array < 0, array + length, array)
    return array


def _of_range(rows: range, axis: Axis) -> Pick:
    if rows.step < 0:
        return _of_array(np.arange(rows.start, rows.stop, rows.step, dtype=np.int64), axis)
    n = len(rows)
    if n == 0:
        return Pick(0, False, _NO_CHUNKS, _NO_CHUNKS, _NO_RUNS)
    first, last = int(axis.chunk_of(rows[0])), int(axis.chunk_of(rows[-1]))
    edges = axis.edges(first, last + 1)
    step = rows.step
    if last == first:
        runs = np.array([[0, n, 0, rows.start - int(edges[0]), step]], np.int64)
        whole = step == 1 and n == axis.length
        return Pick(n, False, np.array([first], np.int64), np.diff(edges), runs, whole)
    # Position of the first selected index that is not in front of each edge.
    at = np.clip(-((rows.start - edges) // step), 0, n)
    counts = np.diff(at)
    touched = counts > 0
    starts = at[:-1][touched]
    runs = np.empty((len(starts), 5), np.int64)
    runs[:, 0] = starts
    runs[:, 1] = counts[touched]
    runs[:, 2] = np.arange(len(starts))
    runs[:, 3] = rows.start + starts * step - edges[:-1][touched]
    runs[:, 4] = step
    chunks = np.arange(first, last + 1, dtype=np.int64)[touched]
    return Pick(n, False, chunks, np.diff(edges)[touched], runs)


def _of_array(indices: NDArray[np.int64], axis: Axis) -> Pick:
    n = len(indices)
    if n == 0:
        return Pick(0, False, _NO_CHUNKS, _NO_CHUNKS, _NO_RUNS)
    number = np.asarray(axis.chunk_of(indices), np.int64)
    chunks, position = np.unique(number, return_inverse=True)
    begin = axis.starts(chunks)
    lengths = axis.starts(chunks + 1) - begin
    breaks = np.flatnonzero((np.diff(indices) != 1) | (np.diff(number) != 0)) + 1
    starts = np.concatenate(([0], breaks)).astype(np.int64)
    runs = np.empty((len(starts), 5), np.int64)
    runs[:, 0] = starts
    runs[:, 1] = np.diff(np.concatenate((starts, [n])))
    runs[:, 2] = position[starts]
    runs[:, 3] = indices[starts] - begin[position[starts]]
    runs[:, 4] = 1
    return Pick(n, False, chunks, lengths, runs)


def outer(key: Sequence[Any], axes: Sequence[Axis], dims: Sequence[str]) -> Outer:
    """Return the selection of one key per dimension: ints, slices and 1-D index arrays.

    Raises
    ------
    IndexError
        If there are not as many keys as dimensions, or an index is out of range.
    """
    if len(key) != len(axes):
        raise IndexError(f"{len(key)} keys for {len(axes)} dimensions")
    return Outer(tuple(pick(k, axis, dim) for k, axis, dim in zip(key, axes, dims, strict=True)))


def points(
    key: Sequence[Any], axes: Sequence[Axis], dims: Sequence[str], *, unchecked_size: int | None = None
) -> Points:
    """Return the points of a vectorized key: index arrays that broadcast, whose dimensions come first, and slices.

    Parameters
    ----------
    unchecked_size : int, optional
        Do not look at the indices when an array has at least this many.

    Raises
    ------
    IndexError
        If an index is out of range, or the arrays do not broadcast.
    """
    if len(key) != len(axes):
        raise IndexError(f"{len(key)} keys for {len(axes)} dimensions")
    n_slices = sum(isinstance(k, slice) for k in key)
    arrays = [np.asarray(k) for k in key if not isinstance(k, slice)]
    try:
        front = np.broadcast_shapes(*(array.shape for array in arrays))
    except ValueError as exc:
        raise IndexError(str(exc)) from None
    seen = 0
    found: list[NDArray[np.int64]] = []
    checked = unchecked_size is None or all(array.size < unchecked_size for array in arrays)
    checked = checked or any(array.dtype.kind not in "iu" for array in arrays)
    for k, axis, dim in zip(key, axes, dims, strict=True):
        if isinstance(k, slice):
            array = np.arange(*k.indices(axis.length), dtype=np.int64)
            found.append(array.reshape((-1, *(1,) * (n_slices - seen - 1))))
            seen += 1
        else:
            array = (
                checked_indices(k, axis.length, dim)
                if checked
                else np.asarray(k).astype(np.int64, copy=False)
            )
            found.append(array.reshape((*array.shape, *(1,) * n_slices)))
    shape = np.broadcast_shapes(*(array.shape for array in found)) if found else front
    chunks = []
    for array, axis in zip(found, axes, strict=True):
        if array.size == 0:
            chunks.append(_NO_CHUNKS)
            continue
        if not checked:
            chunks.append(np.arange(axis.count, dtype=np.int64))
            continue
        low, high = int(axis.chunk_of(int(array.min()))), int(axis.chunk_of(int(array.max())))
        chunks.append(np.arange(low, high + 1, dtype=np.int64))
    return Points(tuple(shape), tuple(found), tuple(chunks), tuple(key), checked)
