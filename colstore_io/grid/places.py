"""Which file holds which chunk, and where in it? From touched chunks to members, records and byte offsets."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import FormatError
from ..formats.cstore.records import BODY_ALIGNMENT, RECORD_HEADER_SIZE
from .layout import product
from .model import Member

__all__ = ["MemberBoxes", "MemberLayout", "missing_chunk", "outer_product", "owners_of"]


def _aligned(nbytes: Any) -> Any:
    return -(-nbytes // BODY_ALIGNMENT) * BODY_ALIGNMENT


def outer_product(factors: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    """Return the product over all combinations, in C order, flat."""
    return reduce(lambda a, b: np.multiply.outer(a, b).reshape(-1), factors, np.ones(1, np.int64))


class MemberLayout:
    """Where the records of a member lie; tables are made when chunks of different sizes need them.

    Attributes
    ----------
    end : int
        Behind the values of the last record.
    """

    __slots__ = ("_row_count", "_rows", "_size", "_starts", "end", "member")

    def __init__(self, member: Member) -> None:
        self.member = member
        self._rows: NDArray[np.int64] | None = None
        self._starts: NDArray[np.int64] | None = None
        if all(len(axis.runs) == 1 for axis in member.axes):
            rows = product([axis.runs[0][0] for axis in member.axes])
            self._row_count, self._size = rows, _aligned(rows * member.row_bytes) + RECORD_HEADER_SIZE
            self.end = member.begin + (member.n_records - 1) * self._size + rows * member.row_bytes
        else:
            self._rows = outer_product([np.diff(axis.edges()) for axis in member.axes])
            sizes = _aligned(self._rows * member.row_bytes) + RECORD_HEADER_SIZE
            self._starts = member.begin + np.concatenate(([0], np.cumsum(sizes[:-1])))
            self.end = int(self._starts[-1]) + int(self._rows[-1]) * member.row_bytes

    def records(self, chunks: Sequence[NDArray[np.int64]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return where records begin, and their rows, for all combinations of `chunks` (numbers in the whole grid)."""
        member = self.member
        record = np.zeros(1, np.int64)
        for own, first, axis in zip(chunks, member.box.first, member.axes, strict=True):
            record = (record[:, None] * axis.count + (own - first)[None, :]).reshape(-1)
        if self._starts is not None and self._rows is not None:
            return self._starts[record], self._rows[record]
        return member.begin + record * self._size, np.full(len(record), self._row_count, np.int64)

    def record(self, number: int) -> tuple[int, int]:
        """Return where record `number` of the member begins, and its rows."""
        if self._starts is not None and self._rows is not None:
            return int(self._starts[number]), int(self._rows[number])
        return self.member.begin + number * self._size, self._row_count


class MemberBoxes:
    """The boxes of many members as arrays, so that those that a read touches are found without a look at each.

    Attributes
    ----------
    first, stop : ndarray of int64, shape (members, dimensions)
    """

    __slots__ = ("first", "stop")

    def __init__(self, members: Sequence[Member], n_dims: int) -> None:
        shape = (len(members), n_dims)
        self.first = np.array([member.box.first for member in members], np.int64).reshape(shape)
        self.stop = np.array([member.box.stop for member in members], np.int64).reshape(shape)

    def holding(self, chunk: Sequence[int]) -> list[int]:
        """Return the members whose boxes hold one chunk, in their order."""
        own = np.array(chunk, np.int64)
        return np.flatnonzero(((self.first <= own) & (self.stop > own)).all(axis=1)).tolist()

    def touched(self, chunks: Sequence[NDArray[np.int64]]) -> list[int]:
        """Return the members whose boxes meet the box around `chunks`, in their order."""
        low = np.array([int(own[0]) for own in chunks], np.int64)
        high = np.array([int(own[-1]) for own in chunks], np.int64)
        return np.flatnonzero(((self.first <= high) & (self.stop > low)).all(axis=1)).tolist()


def owners_of(
    members: Sequence[Member], chunks: Sequence[NDArray[np.int64]], boxes: MemberBoxes
) -> tuple[NDArray[np.int32], list[tuple[int, tuple[slice, ...]]]]:
    """Return which member holds each of the chunks in the outer product of `chunks`; -1 where none does.

    Parameters
    ----------
    members : sequence of Member
        In the order of the manifest: a later one wins.
    chunks : sequence of ndarray of int64
        Increasing numbers along each dimension, at least one.
    boxes : MemberBoxes
        Of `members`.

    Returns
    -------
    owners : ndarray of int32, shape (len(chunks[0]), ...)
    parts : list of (int, tuple of slice)
        For each member that owns any, the part of the table that lies in its box.
    """
    owners = np.full([len(own) for own in chunks], -1, np.int32)
    parts: list[tuple[int, tuple[slice, ...]]] = []
    for number in boxes.touched(chunks):
        member = members[number]
        part = []
        for own, first, stop in zip(chunks, member.box.first, member.box.stop, strict=True):
            if len(own) == 1:
                inside = first <= own[0] < stop
                part.append(slice(0, 1 if inside else 0))
            else:
                low, high = np.searchsorted(own, (first, stop))
                part.append(slice(int(low), int(high)))
            if part[-1].start >= part[-1].stop:
                break
        else:
            owners[tuple(part)] = number
            parts.append((number, tuple(part)))
    return owners, [(number, part) for number, part in parts if (owners[part] == number).any()]


def missing_chunk(variable: str, number: Sequence[int], path: str) -> FormatError:
    return FormatError(
        f"no file holds chunk {tuple(int(n) for n in number)} of variable {variable!r}",
        path=path,
        section="grid manifest",
    )
