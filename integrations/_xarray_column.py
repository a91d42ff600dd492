"""One column as xarray's backends want it: an array that reads when it is indexed.

Index arrays go straight into the gather kernels (integrations.md 3.3). Variables of which the same rows are wanted are
read in one pass: by the accessor, and by whatever asks for them in one turn of an event loop (``load_async``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray
from xarray.backends import BackendArray
from xarray.core import indexing

if TYPE_CHECKING:
    from colstore_io.dataset import Source

__all__ = ["ColumnArray", "Form", "Group", "Wanted", "grouped"]

Form = Literal["plain", "stored", "missing"]


def time_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype in which xarray keeps `dtype`: times in s, ms, us or ns."""
    if dtype.kind not in "mM":
        return dtype
    unit, count = np.datetime_data(dtype)
    if unit in ("s", "ms", "us", "ns") and count == 1:
        return dtype
    if unit not in ("ms", "us"):
        unit = "ns" if unit in ("ns", "ps", "fs", "as") else "s"
    return np.dtype(f"{dtype.kind}8[{unit}]")


class ColumnArray(BackendArray):
    """One column, read when it is indexed. Pickling carries addresses, no data.

    Parameters
    ----------
    source : Source
        Shared by all variables of a dataset.
    position : int
        Position of the field in the schema.
    form : {"plain", "stored", "missing"}
        Nulls marked in NumPy's own way, values as stored, or a mask that is True where the value is missing.

    Attributes
    ----------
    shape : tuple of int, (n_rows,)
    dtype : numpy.dtype
        Of every array that indexing returns, exactly.
    """

    __slots__ = ("dtype", "form", "position", "shape", "source")

    def __init__(self, source: Source, position: int, form: Form = "plain") -> None:
        from colstore_io.plain import plain_dtype

        field = source.schema.fields[position]
        self.source = source
        self.position = position
        self.form = form
        self.shape = (source.n_rows,)
        if form == "missing":
            self.dtype = np.dtype(np.bool_)
        else:
            self.dtype = time_dtype(plain_dtype(field) if form == "plain" else field.native_dtype)

    def __getitem__(self, key: indexing.ExplicitIndexer) -> NDArray[Any]:
        rows, shape = self._flat(key)
        return self._read(rows).reshape(shape)

    async def async_getitem(self, key: indexing.ExplicitIndexer) -> NDArray[Any]:
        rows, shape = self._flat(key)
        return (await _read_together(self, rows)).reshape(shape)

    def _flat(self, key: indexing.ExplicitIndexer) -> tuple[slice | NDArray[Any], tuple[int, ...]]:
        """Return a slice or one-dimensional index array, and the shape of its result."""
        # No `explicit_indexing_adapter`: there is nothing to decompose, since slices of either direction and index
        # arrays of any shape go to the kernels as they are; and it fails on empty slices with a negative step.
        (rows,) = key.tuple
        if isinstance(rows, slice):
            return rows, (-1,)
        rows = np.asarray(rows)
        if not isinstance(key, indexing.VectorizedIndexer) and rows.size and rows.min() < 0:
            # xarray has added the length to what was negative, once. What still is was out of range.
            from colstore_io.selection import out_of_range

            raise out_of_range(int(rows.min()) - self.shape[0], self.shape[0])
        return rows.reshape(-1), rows.shape

    def _read(self, rows: slice | NDArray[Any]) -> NDArray[Any]:
        return Group(self.source, rows, {self: self}).read()[self]

    def finish(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return `values`, as stored or plain, in the dtype of this variable."""
        return values.astype(self.dtype, copy=False)

    def __repr__(self) -> str:
        return f"ColumnArray({self.source.schema.fields[self.position].name!r}, dtype={self.dtype}, shape={self.shape})"


def _read_forms(source: Source, rows: Any, wanted: Sequence[ColumnArray]) -> list[NDArray[Any]]:
    """Read several variables over the same rows: all plain ones in one pass."""
    from colstore_io.plain import read_missing, read_plain, read_stored

    plain = [array.position for array in wanted if array.form == "plain"]
    found = iter(read_plain(source, rows, plain) if plain else [])
    values = []
    for array in wanted:
        if array.form == "plain":
            values.append(next(found))
        elif array.form == "stored":
            values.append(read_stored(source, rows, array.position))
        else:
            values.append(read_missing(source, rows, array.position))
    return values


def _same_rows(a: Any, b: Any) -> bool:
    if isinstance(a, slice) or isinstance(b, slice):
        return isinstance(a, slice) and isinstance(b, slice) and a == b
    return a is b or bool(np.array_equal(a, b))


@dataclass(frozen=True, slots=True)
class Group:
    """Variables of one source that are read in one pass, because the same rows of them are wanted.

    Attributes
    ----------
    key : slice, int or index array
    members : dict of Hashable to ColumnArray
    """

    source: Source
    key: Any
    members: dict[Hashable, ColumnArray]

    def read(self, rows: Any = None) -> dict[Hashable, NDArray[Any]]:
        """Return the values of all members; `rows` selects within the rows of `key`."""
        from colstore_io.selection import compose, normalise

        n_rows = self.source.n_rows
        selection = normalise(self.key, n_rows)
        if rows is not None:
            selection = compose(selection, rows, n_rows)
        found = _read_forms(self.source, selection, list(self.members.values()))
        return {
            name: array.finish(values)
            for (name, array), values in zip(self.members.items(), found, strict=True)
        }


def grouped(wanted: Iterable[Wanted]) -> list[Group]:
    groups: list[Group] = []
    for item in wanted:
        for group in groups:
            if group.source is item.array.source and _same_rows(group.key, item.key):
                group.members[item.name] = item.array
                break
        else:
            groups.append(Group(item.array.source, item.key, {item.name: item.array}))
    return groups


@dataclass(frozen=True, slots=True)
class Wanted:
    """One variable, the rows of it that are wanted, and by what name (or future) it is wanted."""

    name: Hashable
    array: ColumnArray
    key: Any


_asked: WeakKeyDictionary[asyncio.AbstractEventLoop, list[Wanted]] = WeakKeyDictionary()
"""What was asked for in the current turn of each event loop; touched by the thread of that loop only."""


async def _read_together(array: ColumnArray, rows: slice | NDArray[Any]) -> NDArray[Any]:
    """Read with all that is asked for in the same turn of the event loop: one pass, one round of requests."""
    loop = asyncio.get_running_loop()
    asked = _asked.get(loop)
    if asked is None:
        asked = _asked[loop] = []
        loop.call_soon(_start, loop)
    future: asyncio.Future[NDArray[Any]] = loop.create_future()
    asked.append(Wanted(future, array, rows))
    return await future


def _start(loop: asyncio.AbstractEventLoop) -> None:
    for group in grouped(_asked.pop(loop)):
        # In a thread: reads of fsspec wait for fsspec's own event loop (integrations.md 3.6), kernels for memory.
        job = loop.run_in_executor(None, group.read)
        job.add_done_callback(partial(_answer, list(group.members)))


def _answer(futures: list[Any], job: asyncio.Future[dict[Hashable, NDArray[Any]]]) -> None:
    for future in futures:
        if future.done():  # cancelled meanwhile
            continue
        if job.cancelled():
            future.cancel()
        elif (error := job.exception()) is not None:
            future.set_exception(error)
        else:
            future.set_result(job.result()[future])
