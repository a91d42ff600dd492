"""A selection as it would be stored: how `store` and `append` take a reader, a dataset or a view."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from . import convert
from .dataset import Source
from .decoding import read_segments
from .fields import Field, Schema
from .gather import read
from .materialise import parts_of, read_fields
from .selection import Range, RowSelection, compose

if TYPE_CHECKING:
    from .ingest import Batch

__all__ = ["BATCH_BYTES", "stored_batches"]

BATCH_BYTES = 64 << 20
"""Bytes of one batch of a selection."""


def stored_batches(source: Source, rows: RowSelection, positions: Sequence[int]) -> Iterator[Batch]:
    """Yield the selected rows and columns as they are stored.

    One batch per segment of a whole table, blocks of about `BATCH_BYTES` of a selection. Text of variable length is
    read twice: its widest value decides the width of the stored column.
    """
    fields = tuple(source.schema.fields[p] for p in positions)
    if source.encoded:
        yield from _fixed_width(source, rows, positions, fields)
        return
    from .ingest import Batch

    schema = Schema(fields, source.schema.attrs)
    for block in _blocks(source, rows, fields):
        arrays = read(source, block, parts_of(source, positions))
        stored = tuple(a.astype(a.dtype.newbyteorder("<"), copy=False) for a in arrays)
        yield Batch(schema, stored, block.count)


def _blocks(source: Source, rows: RowSelection, fields: Sequence[Field]) -> Iterator[RowSelection]:
    if isinstance(rows, Range) and rows.covers(source.n_rows):
        starts = source.plan.segments.row_start
        for first, stop in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True):
            if stop > first:
                yield Range(first, 1, stop - first)
        if source.n_rows:
            return
    step = max(1, BATCH_BYTES // max(1, sum(f.row_bytes for f in fields)))
    for first in range(0, max(1, rows.count), step):
        yield compose(rows, slice(first, first + step), source.n_rows)


def _fixed_width(
    source: Source, rows: RowSelection, positions: Sequence[int], fields: Sequence[Field]
) -> Iterator[Batch]:
    import pyarrow as pa
    import pyarrow.compute as pc

    from .ingest import Batch, ingest_stream

    whole = isinstance(rows, Range) and rows.covers(source.n_rows) and rows.count > 0

    def columns_of(chosen: Sequence[int]) -> Iterator[list[object]]:
        if whole:
            yield from read_segments(source, chosen)
        else:
            yield read_fields(source, rows, chosen)

    text = [
        p
        for p, f in zip(positions, fields, strict=True)
        if f.variable and f.logical in ("string", "large_string")
    ]
    widths = dict.fromkeys((source.schema.fields[p].name for p in text), 1)
    for columns in columns_of(text) if text else ():
        for position, column in zip(text, columns, strict=True):
            longest = pc.max(pc.utf8_length(column)).as_py() or 0
            name = source.schema.fields[position].name
            widths[name] = max(widths[name], int(longest))
    schema = convert.arrow_schema(fields, declare_not_null=True)  # else every column would get a companion
    stream = pa.RecordBatchReader.from_batches(
        schema, convert.record_batches(schema, fields, columns_of(positions))
    )
    nullable = [f.name for f in fields if f.nullable]
    for batch in ingest_stream(stream, string_width=widths, nullable=nullable or None):
        kept = Schema(batch.schema.fields, {**batch.schema.attrs, **source.schema.attrs})
        yield Batch(kept, batch.arrays, batch.n_rows)
