from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from .segments import SegmentTable

class HasDescriptor(Protocol):
    fd: int

class QuickRows:
    """Small reads of some columns of mapped files, with as little around the copy as can be.

    Parameters
    ----------
    table : SegmentTable
        Of these columns alone (at most 32), with rows, without gaps.
    keep : object
        What owns the memory that the table points into; held, so that a close in another thread unmaps nothing here.
    dtypes : tuple of numpy.dtype
        In native byte order, without objects; one for each column.
    ends : ndarray of int64, shape (F,)
        Bytes that each file must still have.
    file_of_segment : ndarray of int32, shape (S,)
        Non-decreasing numbers of files.
    most : int
        Rows of the largest read that is made here.
    """

    def __init__(
        self,
        table: SegmentTable,
        keep: object,
        dtypes: tuple[np.dtype[Any], ...],
        ends: NDArray[np.int64],
        file_of_segment: NDArray[np.int32],
        most: int,
    ) -> None: ...
    def look(
        self, descriptors: Sequence[HasDescriptor | None], known_seconds: float, warm_seconds: float
    ) -> bool:
        """Take the descriptors of the files, and allow reads for a while.

        Parameters
        ----------
        descriptors : sequence of objects with ``fd``, or None
            The open descriptor of each file, weakly referenced; None for a file that has none at hand: nothing of it is
            read then, or when the object is gone. Reads ask the files that they touch for their sizes, each time.
        known_seconds : float
            How long they may be used before they are looked up again: descriptors are closed and opened to keep few.
        warm_seconds : float
            How long the columns are known to be in memory: scattered rows are read only meanwhile.

        Returns
        -------
        bool
            False when there is one file, and it is too short or the descriptor is none.
        """

    def rows(self, key: object) -> NDArray[Any] | list[NDArray[Any]] | None:
        """Return the rows that `key` selects, or None.

        Parameters
        ----------
        key : slice or ndarray

        Returns
        -------
        ndarray, shape (k,), or list of them, or None
            New arrays, a list when there are several columns. None when this is somebody else's business: the last look
            is too old, a file too short, a row is out of range, no row or more than `most`, a step other than 1, an
            array that is not one of aligned int64.

        Raises
        ------
        TypeError
            As ``slice.indices``.
        """

class ColumnShortcut:
    """Base of a lazy column: a holder, a part, and a key that nobody has looked at yet.

    `array` answers keys that a `QuickRows` reads, and asks the subclass about everything else:

    * ``_selected(key)``: what ``self[key]`` is;
    * ``_array(copy, out)``: what `array` gives.

    A holder that is a `TableShortcut` or a `PinnedShortcut` is asked for its quick column,
    ``source.quick_columns[part]``.

    Parameters
    ----------
    holder : object
    part : hashable
    rows : object
        A slice, an array, None for all rows, or what the subclass makes of a chain of keys.
    """

    def __init__(self, holder: Any, part: Any, rows: Any) -> None: ...
    @property
    def _holder(self) -> Any: ...
    @property
    def _part(self) -> Any: ...
    @property
    def _chain(self) -> Any: ...
    def __getitem__(self, key: Any) -> Any: ...
    def array(self, *, copy: bool = True, out: NDArray[Any] | None = None) -> Any:
        """Return the values; see ``ColumnView``."""

class TableShortcut:
    """Base of an open table: answers ``table[rows, "x"]`` and ``table["x"]``, and asks the subclass about other keys.

    The subclass sets ``_source`` (with ``parts_by_name`` and ``quick_columns``) and ``_closed``, and has
    ``_column_type`` (a `ColumnShortcut`), ``_pinned_type`` (a `PinnedShortcut`) and ``_selected(key)``.

    Attributes
    ----------
    _holds_itself : bool
        Columns get this object for their holder, not a `PinnedShortcut` of it.
    """

    _holds_itself: bool
    _closed: bool
    _source: Any

    def __getitem__(self, key: Any) -> Any: ...

class PinnedShortcut:
    """Base of what the views made from a table at one moment see of it.

    Parameters
    ----------
    table : TableShortcut
    source : object
        The table's at that moment; the table may get another one.
    """

    def __init__(self, table: TableShortcut, source: Any) -> None: ...
    @property
    def table(self) -> Any: ...
    @property
    def source(self) -> Any: ...
