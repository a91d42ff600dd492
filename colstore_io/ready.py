"""Whole columns of decoded files that are read again: chunks checked once, then read by one call of a kernel.

Around a read of one column of some megabytes everything but the kernel costs as much as the kernel: finding chunks,
parsing their headers, handing blocks to threads. What does not change between two reads of an open file is done by the
first of them. Chunks that are stored as they are in memory are not even copied where a view will do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from . import buffers, threads
from .dataset import Source
from .fields import native
from .formats import ReadyChunk, ReadyDecoder
from .plan import Part

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["ReadyColumn", "arrow_table", "read_whole", "ready_column", "segment_view"]

MOST_SEGMENTS = 1024
"""Row groups up to which a column is kept ready; beyond, what is around a chunk hardly counts."""


@dataclass(frozen=True, slots=True)
class ReadyColumn:
    """One column of a mapped file.

    Attributes
    ----------
    dtype : numpy.dtype
        Native.
    chunks : tuple of (int, ReadyChunk)
        One per segment that has rows: the segment, and how to read it.
    raw_bytes : int
        Bytes that a read of all goes through.
    """

    dtype: np.dtype[Any]
    chunks: tuple[tuple[int, ReadyChunk], ...]
    raw_bytes: int

    def read(self, source: Source, out: NDArray[Any] | None = None) -> NDArray[Any] | None:
        """Return all values; None when a chunk is damaged, or `out` is no place for them: then ask `decoding`.

        Parameters
        ----------
        source : Source
        out : ndarray, optional
            Unspecified where None is returned.
        """
        count = source.n_rows
        if out is None:
            out = buffers.empty(count, self.dtype)
        elif out.dtype != self.dtype or out.shape != (count,) or not out.flags.carray:
            return None
        if count == 0:
            return out
        memory = out.view(np.uint8)
        at, width = 0, self.dtype.itemsize
        for _, chunk in self.chunks:
            size = chunk.n_rows * width
            if not _read(source, chunk, memory[at : at + size]):
                return None
            at += size
        return out

    def segment(self, source: Source, number: int, *, share: bool) -> NDArray[Any] | None:
        """Return the values of the `number`-th chunk, a view of the file if that is possible and `share` allows it."""
        chunk = self.chunks[number][1]
        if share and chunk.view is not None:
            return chunk.view
        out = buffers.empty(chunk.n_rows, self.dtype)
        return out if _read(source, chunk, out.view(np.uint8)) else None


def _read(source: Source, chunk: ReadyChunk, out: NDArray[np.uint8]) -> bool:
    if not chunk.shared:
        return chunk.read(out, 1)
    with threads.lease(threads.wanted_threads(chunk.raw_bytes, source.thread_cap())) as granted:
        return chunk.read(out, granted)


def read_whole(source: Source, part: Part, out: NDArray[Any] | None) -> NDArray[Any] | None:
    """Return all values of a column on the shortest road, None where there is none; see `ReadyColumn.read`."""
    ready = ready_column(source, part)
    if ready is None:
        return None
    if out is not None:
        source.refuse_overlap([out])
    source.check_sizes()
    return ready.read(source, out)


def arrow_table(source: Source, positions: Sequence[int], schema: Callable[[], pa.Schema]) -> pa.Table | None:
    """Return all rows of some columns of one row group as Arrow data, on the shortest road; None where there is none.

    Parameters
    ----------
    source : Source
    positions : sequence of int
    schema : callable
        Makes the schema of these columns; called once for an open file.
    """
    if not source.encoded or not positions:
        return None
    roads = []
    for position in positions:
        road = ready_column(source, (position, False))
        if road is None or len(road.chunks) != 1:
            return None
        roads.append(road)
    import pyarrow as pa

    source.check_sizes()
    key = ("schema", *positions)
    made = source.ready.get(key)
    if made is None:
        made = source.ready[key] = schema()
    arrays = []
    for road, kind in zip(roads, made.types, strict=True):
        values = road.segment(source, 0, share=True)
        if values is None:
            return None
        arrays.append(pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)], null_count=0))
    return pa.Table.from_arrays(arrays, schema=made)


def ready_column(source: Source, part: Part) -> ReadyColumn | None:
    """Return how a whole column is read on the shortest road, found once for an open file.

    None where there is none: files that are not mapped, columns with nulls or of variable length, encodings that no
    single kernel decodes, chunks that break a rule (reading them in the ordinary way says which).
    """
    found: ReadyColumn | bool | None = source.ready.get(part, False)
    if not isinstance(found, bool):
        return found
    found = source.ready[part] = _prepared(source, part)
    return found


def segment_view(source: Source, part: Part, segment: int) -> NDArray[Any] | None:
    """Return a read-only array over a chunk that is stored as it is in memory; None for any other."""
    ready = ready_column(source, part)
    if ready is None:
        return None
    return next((chunk.view for number, chunk in ready.chunks if number == segment), None)


def _prepared(source: Source, part: Part) -> ReadyColumn | None:
    position, validity = part
    plan = source.plan
    field = plan.schema.fields[position]
    segments = plan.segments
    if not source.encoded or validity or field.variable or field.nullable or field.dtype.hasobject:
        return None
    if segments.n_segments > MOST_SEGMENTS or source.backend == "numpy":
        return None
    maps = source.mappings()
    source.check_sizes()  # headers are read from the mapping
    chunks: list[tuple[int, ReadyChunk]] = []
    first = np.searchsorted(segments.file, np.arange(len(plan.files)))
    for s in np.flatnonzero(segments.rows > 0).tolist():
        file = int(segments.file[s])
        mapping, decoder = maps[file], plan.decoders[file]
        if mapping is None or not isinstance(decoder, ReadyDecoder):
            return None
        (column,) = plan.layouts[plan.files[file].layout].columns([position])
        chunk = decoder.ready(s - int(first[file]), column, mapping.data)
        if chunk is None:
            return None
        chunks.append((s, chunk))
    return ReadyColumn(native(field.dtype), tuple(chunks), sum(chunk.raw_bytes for _, chunk in chunks))
