"""Short ways to the values of plain variables: a box inside one mapped chunk, and all of a small variable.

Both do by plain arithmetic what the planner in `reading` does with tables for any selection, and return None for what
they are not made for. A Dask task reads one chunk, an opening Dataset its coordinates: there, planning took longer
than copying.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .. import buffers
from .source import SMALL_BYTES

if TYPE_CHECKING:
    from .model import Member
    from .reading import GridVariable

__all__ = ["read_box", "read_small"]

MOST_BYTES = 8 << 20
"""Larger boxes are copied by several threads, which the general way does."""

_POOLED_BYTES = 256 << 10
"""From this size on, memory comes from the pool of large outputs."""

_FEW_MEMBERS = 8


def read_small(variable: GridVariable, key: Sequence[Any]) -> NDArray[Any] | None:
    """Return the values of a small variable of one chunk, when all of them are wanted.

    Raises
    ------
    FormatError
        If its file is missing or damaged; names the variable.
    """
    spec = variable.spec
    if spec.n_chunks != 1 or not variable.members or len(key) != len(spec.axes):
        return None
    for k, axis in zip(key, spec.axes, strict=True):
        if type(k) is not slice or k.indices(axis.length) != (0, axis.length, 1):
            return None
    member = variable.members[-1]
    nbytes = spec.n_cells * spec.dtype.itemsize
    if nbytes > SMALL_BYTES or member.n_records != 1:
        return None
    data = variable.source.read_small(member, spec.name, "", nbytes)
    return None if data is None else np.frombuffer(data, spec.dtype).reshape(spec.shape).copy()


def read_box(variable: GridVariable, key: Sequence[Any]) -> NDArray[Any] | None:
    """Return a box that lies in one chunk of a mapped member.

    Parameters
    ----------
    key : sequence of int and slice
        One for each dimension; others, and those that are out of range, are not for here.

    Raises
    ------
    FormatError
        If its file is missing or damaged; names the variable.
    """
    spec = variable.spec
    if len(key) != len(spec.axes):
        return None
    chunk: list[int] = []
    shape: list[int] = []
    local: list[int | slice] = []
    for k, axis in zip(key, spec.axes, strict=True):
        if type(k) is slice:
            start, stop, step = k.indices(axis.length)
            if step < 1 or start >= stop:
                return None
            number, first, length = axis.chunk_at(start)
            stop = start + (stop - 1 - start) // step * step + 1
            if stop > first + length:
                return None
            local.append(slice(start - first, stop - first, step))
        elif isinstance(k, (int, np.integer)):
            index = int(k)
            if not 0 <= index < axis.length:
                return None
            number, first, length = axis.chunk_at(index)
            local.append(index - first)
        else:
            return None
        chunk.append(number)
        shape.append(length)
    member = _owner(variable, chunk)
    if member is None:
        return None
    opened = variable.source.open(member, spec.name)
    if opened.mapping is None:
        return None
    record = 0
    for number, begin, axis in zip(chunk, member.box.first, member.axes, strict=True):
        record = record * axis.count + number - begin
    start, rows = opened.layout.record(record)
    place = start + rows * member.prefixes[spec.name, ""]
    box: Any = np.ndarray(tuple(shape), spec.dtype, opened.mapping, place)[tuple(local)]
    if box.nbytes > MOST_BYTES:
        return None
    if box.nbytes < _POOLED_BYTES:
        return np.array(box, spec.dtype, order="C")  # not the narrower dtype of a scalar of text
    out = buffers.empty(box.size, spec.dtype).reshape(box.shape)
    np.copyto(out, box)
    return out


def _owner(variable: GridVariable, chunk: list[int]) -> Member | None:
    """Return the member whose values a chunk has: the last one that holds it."""
    members = variable.members
    numbers: Sequence[int] = range(len(members))
    if len(members) > _FEW_MEMBERS:
        numbers = variable.boxes.holding(chunk)
    for number in reversed(numbers):
        box = members[number].box
        if all(a <= c < b for a, c, b in zip(box.first, chunk, box.stop, strict=True)):
            return members[number]
    return None
