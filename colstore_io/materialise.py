"""From a selection to arrays: fields as NumPy or Arrow arrays, and views of the mapping without a copy."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import arrays, buffers
from .dataset import Source
from .decoding import read_columns
from .fields import Field, native
from .gather import read
from .plan import Part
from .ready import ready_column, segment_view
from .selection import Range, RowSelection

__all__ = [
    "as_given",
    "as_validity",
    "materialise",
    "parts_of",
    "read_borrowed",
    "read_fields",
    "refuse_nullable",
    "view_without_copy",
]


def parts_of(source: Source, positions: Sequence[int]) -> list[Part]:
    parts: list[Part] = []
    for position in positions:
        parts.append((position, False))
        field = source.schema.fields[position]
        if field.nullable and not field.variable:  # Arrow arrays carry their own nulls
            parts.append((position, True))
    return parts


def materialise(
    source: Source,
    rows: RowSelection,
    positions: Sequence[int],
    out: Sequence[NDArray[Any]] | None = None,
    *,
    dictionaries: Collection[str] = (),
) -> list[Any]:
    """Read fields as they are handed out: NumPy arrays, Arrow arrays for nullable ones; see `read_fields`."""
    fields = [source.schema.fields[p] for p in positions]
    if out is not None:
        for field in fields:
            refuse_nullable(field, "out=")
    return [
        as_given(field, data)
        for field, data in zip(
            fields, read_fields(source, rows, positions, out, dictionaries=dictionaries), strict=True
        )
    ]


def as_given(field: Field, data: Any) -> Any:
    """Return a column as it is handed out: a pair (values, validity) becomes an Arrow array."""
    return arrays.arrow_array(field, *data) if isinstance(data, tuple) else data


def read_borrowed(
    source: Source, rows: RowSelection, positions: Sequence[int], arena: buffers.Arena
) -> list[Any]:
    """Read fields as `materialise` does, into the memory of `arena`."""
    fields = [source.schema.fields[p] for p in positions]
    if source.encoded:
        found = read_columns(source, rows, positions, allocate=arena.allocate)
    else:
        parts = parts_of(source, positions)
        out = []
        for part in parts:
            dtype = native(source.part_dtype(part))
            out.append(arena.allocate(rows.count * dtype.itemsize).view(dtype))
        values = iter(read(source, rows, parts, out))
        found = [(next(values), as_validity(next(values))) if f.nullable else next(values) for f in fields]
    return [as_given(field, data) for field, data in zip(fields, found, strict=True)]


def read_fields(
    source: Source,
    rows: RowSelection,
    positions: Sequence[int],
    out: Sequence[NDArray[Any]] | None = None,
    *,
    dictionaries: Collection[str] = (),
) -> list[Any]:
    """Read fields as buffers: NumPy arrays, for nullable ones the pair (values, validity).

    Fields of variable length are Arrow arrays, nulls included; those in `dictionaries` dictionary arrays where the
    file has them.
    """
    if source.encoded:
        return read_columns(source, rows, positions, out, dictionaries=dictionaries)
    values = iter(read(source, rows, parts_of(source, positions), out))
    return [
        (next(values), as_validity(next(values))) if source.schema.fields[p].nullable else next(values)
        for p in positions
    ]


def as_validity(flags: NDArray[Any]) -> NDArray[np.bool_]:
    """Return companion bytes as booleans: other than 0 counts as 1 (cstore.md 4.2); NumPy's kernels assume 0 or 1."""
    valid: NDArray[np.bool_] = flags.view(np.uint8) != 0
    return valid


def refuse_nullable(field: Field, what: str) -> None:
    """Raise `ValueError` for a field that is no NumPy array."""
    if field.nullable or field.variable:
        reason = "is nullable" if field.nullable else "has values of variable length"
        raise ValueError(f"column {field.name!r} {reason}: {what} has no form for it; use array() or frame()")


def view_without_copy(source: Source, rows: RowSelection, part: Part) -> NDArray[Any]:
    """Return a read-only view of the mapping, or raise `ValueError` (cstore-behaviour.md 4)."""
    field = source.schema.fields[part[0]]
    if not part[1]:
        refuse_nullable(field, "copy=False")
    if source.encoded:
        ready = ready_column(source, part)
        if ready is None or any(chunk.view is None for _, chunk in ready.chunks):
            raise ValueError(
                f"copy=False is not possible: files of format {source.plan.format!r} are decoded, unless a mapped "
                "one stores a column without nulls as it is in memory"
            )
    elif not source.mapped:
        raise ValueError(
            "copy=False needs a mapped local file; this one is read without mapping (use copy=True)"
        )
    if not source.part_dtype(part).isnative:
        raise ValueError(f"column {field.name!r} is not in native byte order: copy=False is not possible")
    if not isinstance(rows, Range):
        raise ValueError("copy=False is not possible for fancy and boolean selections; use copy=True")
    source.check_sizes(*rows.extent)
    segments = source.plan.segments
    low = 0
    if segments.n_segments != 1:
        if rows.count == 0:
            raise ValueError(
                "an empty selection of several segments is not contiguous in memory; use copy=True"
            )
        low, high = segments.span(*rows.extent)
        files = segments.file
        if rows.step < 0 and rows.count > 1:
            raise ValueError(
                "a reversed selection of several segments is not contiguous in memory; use copy=True"
            )
        if files[low] != files[high - 1]:
            raise ValueError(
                "the selection spans multiple files and is not contiguous in memory; use copy=True"
            )
        if high - low != 1:
            raise ValueError(
                "the selection spans multiple records and is not contiguous in memory; "
                "use copy=True, or compact the file"
            )
        # A stepped slice is a view only where the file is one record, as other readers of the format have it
        # (cstore-behaviour.md 4).
        if rows.step > 1 and rows.count > 1 and int(np.count_nonzero(files == files[low])) != 1:
            raise ValueError("copy=False is not possible for a stepped slice of a file of several records")
    view = segment_view(source, part, low) if source.encoded else source.segment_view(part, low)
    if view is None:
        raise ValueError(f"column {field.name!r} is not stored in this file: copy=False is not possible")
    start = rows.start - int(segments.row_start[low])
    stop: int | None = start + rows.count * rows.step
    if stop is not None and stop < 0:
        stop = None
    return view[start : stop : rows.step] if rows.count else view[:0]
