"""Which predicates does a kernel evaluate by itself?

Conjunctions of comparisons with constants, over columns that are mapped: one pass over the mapping gives the mask and
its counts. Everything else is NumPy's work (`Predicate.mask`), which gives the same rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from . import buffers, threads
from .dataset import Source
from .plan import Part
from .selection import Mask

if TYPE_CHECKING:
    from .predicate import Predicate

__all__ = ["RangeTests", "mask_in_place", "ranges_in_place"]

RangeTests: TypeAlias = dict[Part, tuple[str, Any, bool, Any, bool]]
"""What the kernel is to test, by the part that it reads."""

CODES = frozenset(("b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8"))
VALID = ("b1", True, True, True, True)


def ranges_in_place(source: Source, predicate: Predicate) -> RangeTests | None:
    """Return `predicate` as ranges of mapped columns, or None where it has to be evaluated by ``Predicate.mask``."""
    ranges = predicate.simple_ranges()
    if ranges is None or not source.mapped:
        return None
    tests: RangeTests = {}
    for name, lo, lo_inclusive, hi, hi_inclusive in ranges:
        position = source.schema.index(name)
        field = source.schema.fields[position]
        code = "i8" if field.dtype.kind in "mM" else field.dtype.str[1:]
        if code not in CODES or not field.dtype.isnative:
            return None
        tests[position, False] = (code, _number(lo), lo_inclusive, _number(hi), hi_inclusive)
        if field.nullable:  # no comparison selects a null
            tests[position, True] = VALID
    return tests


def _number(bound: np.generic | None) -> Any:
    """Return a bound as a Python number, of a time its stored integer."""
    if bound is None:
        return None
    return bound.view(np.int64).item() if bound.dtype.kind in "mM" else bound.item()


def mask_in_place(source: Source, tests: RangeTests, segments: NDArray[np.bool_]) -> Mask:
    """Return the rows of `segments` that lie in all ranges, counted.

    Parameters
    ----------
    source : Source
        All files mapped.
    tests : RangeTests
        From `ranges_in_place`.
    segments : ndarray of bool, shape (S,)
        Segments that can match; the others are not read.

    Returns
    -------
    Mask
        Over all rows, with its `offsets`.

    Raises
    ------
    FormatError
        If a file is shorter than its committed size by now.

    Notes
    -----
    Allocates the mask, one byte a row.
    """
    source.check_sizes()
    table = source.table(tuple(tests))
    mask = buffers.empty(source.n_rows, np.dtype(np.bool_))
    work = int(source.plan.segments.rows[segments].sum()) * len(tests)
    with threads.lease(threads.wanted_threads(work, source.thread_cap())) as granted:
        offsets = source.mask_of_ranges()(
            table, list(tests.values()), mask, segments=segments, threads=granted
        )
    return Mask(mask, offsets)
