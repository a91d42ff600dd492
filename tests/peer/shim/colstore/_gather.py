"""The reference's compiled ``colstore._gather``, as far as our kernels do the same job.

A call builds the segment table that the arguments describe and hands it to our kernel. Kernels that record a
segment number per index for the next column have no counterpart: our ``take`` gathers several columns in one
pass.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from colstore_io import config, threads
from colstore_io.kernels import copy as copy_kernels
from colstore_io.kernels import segments

from ._missing import NotApplicable, missing

Array = NDArray[Any]


def _expect(condition: bool) -> None:
    """Stop where a private kernel of the reference would refuse its arguments: ours has other ones."""
    if not condition:
        raise NotApplicable("the checks of the arguments of a private kernel")


def _table(starts: Array, base: Array, itemsize: int, uniform_rows: int = 0) -> segments.SegmentTable:
    _expect(starts.flags.c_contiguous and base.flags.c_contiguous)
    return segments.SegmentTable(
        starts[:-1].copy(),
        starts[1:].copy(),
        base.reshape(1, -1),
        np.array([itemsize], dtype=np.int64),
        int(starts[-1]),
        uniform_rows,
    )


def _one_segment(source: Array) -> segments.SegmentTable:
    _expect(source.flags.c_contiguous)
    return _table(np.array([0, len(source)]), np.array([source.ctypes.data]), source.dtype.itemsize)


def _threads(thread_cap: int) -> int:
    return thread_cap if thread_cap > 0 else threads.usable_cores()


def _take(
    table: segments.SegmentTable, indices: Array, output: Array, thread_cap: int, prefetch: int
) -> None:
    bad = table.take(indices, output, threads=_threads(thread_cap), prefetch=prefetch)
    if bad >= 0:
        raise IndexError(f"index {indices[bad]} is out of range")


def max_threads() -> int:
    """Return how many threads a kernel may use."""
    return threads.usable_cores()


def gather(
    source: Array, indices: Array, output: Array, thread_cap: int = 0, prefetch_distance: int = -1
) -> None:
    """Copy ``source[indices]`` into `output`."""
    _expect(source.dtype == output.dtype)
    _take(_one_segment(source), indices, output, thread_cap, prefetch_distance)


gather_into = gather


def gather_bytes(
    source: Array, byte_offsets: Array, output: Array, thread_cap: int = 0, prefetch_distance: int = -1
) -> None:
    """Copy the items that begin at `byte_offsets`: one run of bytes each."""
    itemsize = output.dtype.itemsize
    _expect(source.flags.c_contiguous and byte_offsets.flags.c_contiguous and output.flags.c_contiguous)
    copy_kernels.copy_runs(
        (source.ctypes.data + byte_offsets).astype(np.uint64),
        (output.ctypes.data + itemsize * np.arange(len(output))).astype(np.uint64),
        np.full(len(output), itemsize, dtype=np.int64),
        threads=_threads(thread_cap),
    )


def gather_segment(
    indices: Array,
    output: Array,
    segment_starts_rows: Array,
    segment_base: Array,
    thread_cap: int = 0,
    prefetch_distance: int = -1,
) -> None:
    """Gather over segments: row i of segment s is at ``segment_base[s] + i * itemsize``."""
    _expect(len(segment_starts_rows) == len(segment_base) + 1)
    _take(
        _table(segment_starts_rows, segment_base, output.dtype.itemsize),
        indices,
        output,
        thread_cap,
        prefetch_distance,
    )


gather_segment_sorted = gather_segment  # our kernel looks at the indices itself


def gather_segment_uniform(
    indices: Array,
    output: Array,
    rows_per_segment: int,
    segment_base: Array,
    thread_cap: int = 0,
    prefetch_distance: int = -1,
) -> None:
    """Gather over segments of `rows_per_segment` rows each."""
    _expect(rows_per_segment >= 1)
    table = _table(
        rows_per_segment * np.arange(len(segment_base) + 1),
        segment_base,
        output.dtype.itemsize,
        rows_per_segment,
    )
    _take(table, indices, output, thread_cap, prefetch_distance)


def gather_segment_mask(
    mask: Array,
    output: Array,
    segment_starts_rows: Array,
    segment_base: Array,
    thread_cap: int = 0,
    prefetch_distance: int = -1,
) -> None:
    """Gather the rows where `mask` is true."""
    _expect(mask.dtype == np.bool_ and len(mask) == segment_starts_rows[-1])
    count = _threads(thread_cap)
    offsets = segments.mask_offsets(mask, threads=count)
    _table(segment_starts_rows, segment_base, output.dtype.itemsize).compress(
        mask, offsets, output, threads=count
    )


def _record_table(
    source: Array,
    starts: Array,
    body_start: Array,
    rows: Array,
    prefix: int,
    itemsize: int,
    uniform_rows: int = 0,
) -> segments.SegmentTable:
    _expect(all(array.flags.c_contiguous for array in (source, starts, body_start, rows)))
    base = source.ctypes.data + body_start + prefix * rows - starts[:-1] * itemsize
    return _table(starts, base, itemsize, uniform_rows)


def gather_multirecord_strided(
    source: Array,
    output: Array,
    start: int,
    stop: int,
    step: int,
    record_starts_rows: Array,
    record_starts_bytes: Array,
    n_rows_per_record: Array,
    col_prefix_bytes: int,
    thread_cap: int = 0,
    prefetch_distance: int = -1,
) -> None:
    """Copy rows ``start:stop:step`` of one column of a file with several records."""
    _expect(step != 0)
    count = len(range(start, stop, step))
    table = _record_table(
        source,
        record_starts_rows,
        record_starts_bytes,
        n_rows_per_record,
        col_prefix_bytes,
        output.dtype.itemsize,
    )
    table.copy_strided(start, step, count, output, threads=_threads(thread_cap))


def gather_multirecord_uniform(
    source: Array,
    indices: Array,
    output: Array,
    rows_per_record: int,
    record_stride_bytes: int,
    first_body_offset: int,
    n_records: int,
    last_record_rows: int,
    col_prefix_bytes: int,
    thread_cap: int = 0,
    prefetch_distance: int = -1,
) -> None:
    """Gather over records of `rows_per_record` rows whose bodies are `record_stride_bytes` bytes apart."""
    _expect(1 <= last_record_rows <= rows_per_record)
    rows = np.full(n_records, rows_per_record, dtype=np.int64)
    rows[-1] = last_record_rows
    starts = np.concatenate([[0], np.cumsum(rows)])
    body_start = first_body_offset + record_stride_bytes * np.arange(n_records, dtype=np.int64)
    itemsize = output.dtype.itemsize
    table = _record_table(source, starts, body_start, rows, col_prefix_bytes, itemsize, rows_per_record)
    _take(table, indices, output, thread_cap, prefetch_distance)


def parallel_copy_runs(
    output: Array, addresses: Array, offsets: Array, lengths: Array, thread_cap: int = 0
) -> None:
    """Copy ``lengths[r]`` bytes from ``addresses[r]`` to byte ``offsets[r]`` of `output`, for every r."""
    _expect(addresses.dtype == offsets.dtype == lengths.dtype == np.int64)
    target = (output.ctypes.data + offsets).astype(np.uint64)
    copy_kernels.copy_runs(addresses.astype(np.uint64), target, lengths, threads=_threads(thread_cap))


def interleave_records(
    output: Array,
    record_itemsize: int,
    n_rows: int,
    addresses: Array,
    itemsizes: Array,
    field_offsets: Array,
    thread_cap: int = 0,
) -> None:
    """Turn columns into records."""
    _expect(addresses.dtype == np.int64)
    _expect(np.array_equal(np.cumsum(itemsizes) - itemsizes, field_offsets))  # ours are always packed
    raw = output.view(np.uint8).reshape(-1) if len(output) else np.empty(0, dtype=np.uint8)
    columns = addresses.astype(np.uint64)
    copy_kernels.interleave(columns, itemsizes, raw, n_rows, threads=_threads(thread_cap))


def default_prefetch_distance() -> int:
    """Return the compiled default of the look-ahead, in elements."""
    return config.DEFAULT_PREFETCH_DISTANCE


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    return missing(__name__, name)
