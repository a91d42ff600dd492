from typing import Any

import numpy as np
from numpy.typing import NDArray

from .segments import SegmentTable

class QuickColumn:
    """Small reads of one column of one mapped file, with as little around the copy as can be.

    Parameters
    ----------
    table : SegmentTable
        Of this column alone, with rows, without gaps.
    keep : object
        What owns the memory that the table points into; held, so that a close in another thread unmaps nothing here.
    dtype : numpy.dtype
        In native byte order, without objects.
    end : int
        Bytes that the file must still have.
    most : int
        Rows of the largest read that is made here.
    """

    def __init__(
        self, table: SegmentTable, keep: object, dtype: np.dtype[Any], end: int, most: int
    ) -> None: ...
    def look(self, fd: int, known_seconds: float, warm_seconds: float) -> bool:
        """Look at the size of the file and, where it is long enough, allow reads for a while.

        Parameters
        ----------
        fd : int
            An open descriptor of the file. Reads ask it for the size, each one.
        known_seconds : float
            How long it may be used before it is looked up again: descriptors are closed and opened to keep few.
        warm_seconds : float
            How long the column is known to be in memory: scattered rows are read only meanwhile.

        Returns
        -------
        bool
            False when the file is too short, or the descriptor is none.
        """

    def rows(self, key: object) -> NDArray[Any] | None:
        """Return the rows that `key` selects, or None.

        Parameters
        ----------
        key : slice or ndarray

        Returns
        -------
        ndarray, shape (k,), or None
            A new array. None when this is somebody else's business: the last look is too old, the file too short, a
            row is out of range, no row or more than `most`, a step other than 1, an array that is not one of aligned
            int64.

        Raises
        ------
        TypeError
            As ``slice.indices``.
        """

class ColumnShortcut:
    """Base of a lazy column: a holder, a part, and a key that nobody has looked at yet.

    `array` answers keys that a `QuickColumn` reads, and asks the subclass about everything else:

    * ``_selected(key)``: what ``self[key]`` is;
    * ``_array(copy, out)``: what `array` gives.

    A holder that is a `TableShortcut` is asked for its quick column, ``_source.quick_columns[part]``.

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

    The subclass has ``_source`` (with ``parts_by_name`` and ``quick_columns``), ``_closed``, ``_holder``,
    ``_column_type`` (a `ColumnShortcut`) and ``_selected(key)``.

    Attributes
    ----------
    _holds_itself : bool
        ``_holder`` would be this object: it is not asked for.
    """

    _holds_itself: bool

    def __getitem__(self, key: Any) -> Any: ...
