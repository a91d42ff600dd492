"""Our classes under the reference's names, with a few attributes that its tests look at."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

import colstore_io
from colstore_io.predicate import bind
from colstore_io.rows import matching_segments, predicate_mask
from colstore_io.selection import Range

from .format import read_header

__all__ = ["Appender", "ColStoreDataset", "ColStoreInfo", "ColStoreReader", "ColStoreWriter"]

Appender = colstore_io.Appender
ColStoreDataset = colstore_io.Dataset
ColStoreInfo = colstore_io.Info
ColStoreReader = colstore_io.Reader
ColStoreWriter = colstore_io.Writer


def _mappings(reader: colstore_io.Reader) -> dict[str, NDArray[np.uint8]]:
    """Return the mapping that the columns lie in, for ``shares_memory``; the reference has one per column."""
    (mapping,) = reader.source.mappings()
    assert mapping is not None
    return dict.fromkeys(reader.columns, mapping)


_READER: Any = colstore_io.Reader
_READER._is_multi_record = colstore_io.Reader.needs_compaction
_READER._memmaps = property(_mappings)


def _record_stats(reader: colstore_io.Reader) -> dict[str, dict[str, NDArray[Any]]] | None:
    """Return the statistics footer in the reference's shape; ours keeps nothing about strings."""
    found = {name: reader.source.statistics_of(name) for name in reader.columns}
    if not any(found.values()):
        return None
    nothing: NDArray[Any] = np.zeros(reader.n_records, dtype=np.bool_)
    return {
        name: {"min": nothing, "max": nothing, "prunable": nothing}
        if statistics is None
        else {"min": statistics["minimum"], "max": statistics["maximum"], "prunable": statistics["usable"]}
        for name, statistics in found.items()
    }


def _try_skip_query_mask(reader: colstore_io.Reader, predicate: Any) -> NDArray[np.bool_] | None:
    """Return the mask of a predicate for which records are skipped, else ``None``."""
    bound = bind(predicate, reader.schema)
    if matching_segments(reader.source, bound).all():
        return None
    return predicate_mask(reader.source, bound, Range(0, 1, reader.n_rows))


def _uniform_record_layout(reader: colstore_io.Reader) -> tuple[int, int, int, int] | None:
    """Return rows, distance and start of equal records and the rows of the last one, ``None`` for others."""
    segments = reader.source.plan.segments
    if not segments.uniform_rows:
        return None
    first, second = segments.body_start[:2].tolist()
    return segments.uniform_rows, second - first, first, int(segments.rows[-1])


def _column_prefix_bytes(reader: colstore_io.Reader) -> dict[str, int]:
    """Return the bytes of a row in front of each column."""
    itemsizes = [dtype.itemsize for dtype in reader.dtypes.values()]
    return dict(zip(reader.columns, accumulate(itemsizes, initial=0), strict=False))


_READER._uniform_record_layout = _uniform_record_layout
_READER._column_prefix_bytes = property(_column_prefix_bytes)
_READER._n_rows_per_record = property(lambda reader: reader.source.plan.segments.rows)
_READER._record_starts_bytes = property(lambda reader: reader.source.plan.segments.body_start)
_READER._record_stats = property(_record_stats)
_READER._try_skip_query_mask = _try_skip_query_mask
_READER._manifest = property(lambda reader: read_header(reader.path)[0])
_READER._stats_offset = property(lambda reader: read_header(reader.path)[0]["stats_offset"])
