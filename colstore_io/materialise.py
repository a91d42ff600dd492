"""From a selection to arrays: fields as NumPy or Arrow arrays, and views of the mapping without a copy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import arrays
from .dataset import Source
from .gather import read
from .plan import Part
from .schema import Field
from .selection import Range, RowSelection

__all__ = ["materialise", "refuse_nullable", "view_without_copy"]


def _parts_of(source: Source, positions: Sequence[int]) -> list[Part]:
    parts: list[Part] = []
    for position in positions:
        parts.append((position, False))
        if source.schema.fields[position].nullable:
            parts.append((position, True))
    return parts


def materialise(
    source: Source, rows: RowSelection, positions: Sequence[int], out: Sequence[NDArray[Any]] | None = None
) -> list[Any]:
    """Read fields: NumPy arrays, Arrow arrays for nullable ones."""
    fields = [source.schema.fields[p] for p in positions]
    if out is not None:
        for field in fields:
            refuse_nullable(field, "out=")
    values = iter(read(source, rows, _parts_of(source, positions), out))
    return [_assemble(field, values) for field in fields]


def _assemble(field: Field, values: Iterator[NDArray[Any]]) -> Any:
    data = next(values)
    if not field.nullable:
        return data
    # A companion byte other than 0 counts as 1 (cstore.md 4.2).
    return arrays.arrow_array(field, data, next(values).view(np.uint8) != 0)


def refuse_nullable(field: Field, what: str) -> None:
    if field.nullable:
        raise ValueError(
            f"column {field.name!r} is nullable: {what} has no form for it; use array() or frame()"
        )


def view_without_copy(source: Source, rows: RowSelection, part: Part) -> NDArray[Any]:
    """Return a read-only view of the mapping, or raise `ValueError` (cstore-behaviour.md 4)."""
    field = source.schema.fields[part[0]]
    if not part[1]:
        refuse_nullable(field, "copy=False")
    if not source.mapped:
        raise ValueError(
            "copy=False needs a mapped local file; this one is read without mapping (use copy=True)"
        )
    if not source.part_dtype(part).isnative:
        raise ValueError(f"column {field.name!r} is not in native byte order: copy=False is not possible")
    if not isinstance(rows, Range):
        raise ValueError("copy=False is not possible for fancy and boolean selections; use copy=True")
    source.check_sizes()
    segments = source.plan.segments
    if segments.n_segments == 1:
        low = 0
    else:
        first, last = (
            sorted((rows.start, rows.start + (rows.count - 1) * rows.step)) if rows.count else (0, -1)
        )
        low, high = segments.span(first, last + 1)
        if rows.count == 0:
            raise ValueError(
                "an empty selection of several segments is not contiguous in memory; use copy=True"
            )
        if high - low != 1:
            many_files = segments.file[low] != segments.file[high - 1]
            what = "spans multiple files and" if many_files else "spans multiple records and"
            raise ValueError(f"the selection {what} is not contiguous in memory; use copy=True")
    view = source.segment_view(part, low)
    if view is None:
        raise ValueError(f"column {field.name!r} is not stored in this file: copy=False is not possible")
    start = rows.start - int(segments.row_start[low])
    stop: int | None = start + rows.count * rows.step
    if stop is not None and stop < 0:
        stop = None
    return view[start : stop : rows.step] if rows.count else view[:0]
