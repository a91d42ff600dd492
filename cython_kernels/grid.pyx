# cython: language_level=3
"""N-D arrays in chunks: scattered points, and sub-boxes with steps and index lists, into C-contiguous outputs.

Access pattern of the points: random; chunk and offset of each point follow from its indices by arithmetic, addresses are worked
out for a block of points at a time, so that many cache misses are in flight. Of the boxes: the longest runs that
are contiguous on both sides, bound by memory bandwidth.
"""

from cython.parallel cimport prange
from libc.stdint cimport int64_t, uint8_t, uint64_t

cdef extern from "kernel_math.h" nogil:
    int64_t ceil_div(int64_t n, int64_t d)
    int64_t spread_chunk(int64_t turn, int64_t n, int64_t threads)
    int64_t shared_load(const int64_t *cell)
    void shared_store(int64_t *cell, int64_t value)

cdef extern from "grid.h" nogil:
    int GRID_MAX_DIMS
    ctypedef struct grid_points:
        int64_t ndim
        const uint64_t *bases
        const int64_t *counts
        const int64_t *edges
        const int64_t *uniform
        const uint64_t *index
        const int64_t *index_step
        int64_t itemsize
        char *out
    int64_t grid_take(const grid_points *g, int64_t begin, int64_t end)
    ctypedef struct grid_run:
        int64_t out_start, count, chunk, local_start, step
    ctypedef struct grid_slab:
        int64_t ndim
        const uint64_t *bases
        const int64_t *counts
        const int64_t *lengths
        const int64_t *length_at
        const grid_run *runs
        const int64_t *run_counts
        const int64_t *run_at
        const int64_t *out_shape
        int64_t itemsize
        char *out
    void grid_copy_block(const grid_slab *g, int64_t which)

cdef int64_t MAX = 0x7fffffffffffffff
# Points that one turn of a thread takes.
cdef int64_t POINT_CHUNK = 1 << 14


cdef int64_t product(const int64_t[::1] numbers, int64_t start) except -1:
    cdef int64_t k, total = start
    for k in range(numbers.shape[0]):
        if numbers[k] < 0 or (numbers[k] > 0 and total > MAX // numbers[k]):
            raise ValueError(f"impossible lengths: {list(numbers)}")
        total *= numbers[k]
    return total


cdef int64_t check_bases(const uint64_t[::1] bases, const int64_t[::1] counts) except -1:
    cdef int64_t k, n
    if counts.shape[0] > GRID_MAX_DIMS:
        raise ValueError(f"at most {GRID_MAX_DIMS} dimensions, got {counts.shape[0]}")
    n = product(counts, 1)
    if bases.shape[0] != n:
        raise ValueError(f"the box has {n} chunks, got {bases.shape[0]} addresses")
    for k in range(n):
        if bases[k] == 0:
            raise ValueError(f"chunk {k} of the box has no address")
    return n


cdef void take_in_parallel(const grid_points *g, int64_t n, int threads, int64_t *bad) noexcept nogil:
    cdef int64_t turn, chunks = ceil_div(n, POINT_CHUNK), begin, found
    for turn in prange(chunks, schedule="dynamic", num_threads=threads):
        if shared_load(bad) < 0:
            begin = spread_chunk(turn, chunks, threads) * POINT_CHUNK
            found = grid_take(g, begin, min(begin + POINT_CHUNK, n))
            if found >= 0:
                shared_store(bad, found)


def take_points(const uint64_t[::1] bases not None, const int64_t[::1] counts not None,
                const int64_t[::1] edges not None, const int64_t[::1] uniform not None,
                const uint64_t[::1] index not None, const int64_t[::1] index_step not None, int64_t n_points,
                int64_t itemsize, uint8_t[::1] out not None, *, threads=1):
    cdef int64_t d, k, at = 0, ndim = counts.shape[0], bad = -1
    cdef int team = min(threads, 1024)
    cdef grid_points g
    if team < 1:
        raise ValueError(f"threads must be at least 1, got {threads}")
    if uniform.shape[0] != ndim or index.shape[0] != ndim or index_step.shape[0] != ndim:
        raise ValueError("counts, uniform, index and index_step must have one entry for each dimension")
    if itemsize < 1 or n_points < 0 or n_points > MAX // itemsize or out.shape[0] != n_points * itemsize:
        raise ValueError(f"out must have {n_points} times {itemsize} bytes, got {out.shape[0]}")
    check_bases(bases, counts)
    for d in range(ndim):
        if counts[d] < 1 or counts[d] > edges.shape[0] - at - 1:
            raise ValueError("edges must have counts + 1 entries for each dimension")
        if edges[at] < 0:
            raise ValueError("edges must not be negative")
        for k in range(counts[d]):
            if edges[at + k] >= edges[at + k + 1]:
                raise ValueError("edges must increase")
            if uniform[d] > 0 and k < counts[d] - 1 and edges[at + k + 1] - edges[at + k] != uniform[d]:
                raise ValueError("a uniform dimension has chunks of one length, but for the last")
        if uniform[d] > 0 and counts[d] > 1 and edges[at + counts[d]] - edges[at + counts[d] - 1] > uniform[d]:
            raise ValueError("the last chunk of a uniform dimension is not longer than the others")
        at += counts[d] + 1
    if at != edges.shape[0]:
        raise ValueError("edges must have counts + 1 entries for each dimension")
    if n_points == 0:
        return -1
    g.ndim = ndim
    g.bases = &bases[0]
    if ndim:
        g.counts = &counts[0]
        g.edges = &edges[0]
        g.uniform = &uniform[0]
        g.index = &index[0]
        g.index_step = &index_step[0]
    else:
        g.counts = g.edges = g.uniform = g.index_step = NULL
        g.index = NULL
    g.itemsize = itemsize
    g.out = <char *>&out[0]
    with nogil:
        if team == 1 or n_points <= POINT_CHUNK:
            bad = grid_take(&g, 0, n_points)
        else:
            take_in_parallel(&g, n_points, team, &bad)
    return bad


cdef void copy_serially(const grid_slab *g, int64_t blocks) noexcept nogil:
    cdef int64_t which
    for which in range(blocks):
        grid_copy_block(g, which)


cdef void copy_in_parallel(const grid_slab *g, int64_t blocks, int threads) noexcept nogil:
    cdef int64_t turn
    for turn in prange(blocks, schedule="dynamic", num_threads=threads):
        grid_copy_block(g, turn)


def copy_slab(const uint64_t[::1] bases not None, const int64_t[::1] counts not None,
              const int64_t[::1] lengths not None, const int64_t[:, ::1] runs not None,
              const int64_t[::1] run_counts not None, const int64_t[::1] out_shape not None, int64_t itemsize,
              uint8_t[::1] out not None, *, threads=1):
    cdef int64_t d, r, ndim = counts.shape[0], at = 0, run_at = 0, blocks, length
    cdef int64_t length_at[64]
    cdef int64_t runs_at[64]
    cdef int team = min(threads, 1024)
    cdef grid_slab g
    if team < 1:
        raise ValueError(f"threads must be at least 1, got {threads}")
    check_bases(bases, counts)
    if run_counts.shape[0] != ndim or out_shape.shape[0] != ndim:
        raise ValueError("counts, run_counts and out_shape must have one entry for each dimension")
    if runs.shape[1] != 5:
        raise ValueError("runs must have five columns")
    if itemsize < 1 or out.shape[0] != product(out_shape, itemsize):
        raise ValueError(f"out does not have the bytes of {list(out_shape)} values of {itemsize} bytes")
    for d in range(ndim):
        length_at[d] = at
        runs_at[d] = run_at
        if counts[d] > lengths.shape[0] - at or run_counts[d] < 0 or run_counts[d] > runs.shape[0] - run_at:
            raise ValueError("lengths and runs must have the entries that counts and run_counts promise")
        for r in range(run_at, run_at + run_counts[d]):
            if runs[r, 2] < 0 or runs[r, 2] >= counts[d]:
                raise ValueError(f"run {r} lies in no chunk of the box")
            length = lengths[at + runs[r, 2]]
            if runs[r, 0] < 0 or runs[r, 1] < 1 or runs[r, 1] > out_shape[d] - runs[r, 0]:
                raise ValueError(f"run {r} leaves the output")
            if (runs[r, 3] < 0 or runs[r, 3] >= length or runs[r, 4] < 1
                    or (runs[r, 1] > 1 and runs[r, 4] > (length - 1 - runs[r, 3]) // (runs[r, 1] - 1))):
                raise ValueError(f"run {r} leaves its chunk")
        at += counts[d]
        run_at += run_counts[d]
    if at != lengths.shape[0] or run_at != runs.shape[0]:
        raise ValueError("lengths and runs must have the entries that counts and run_counts promise")
    blocks = product(run_counts, 1)
    if blocks == 0 or out.shape[0] == 0:
        return
    g.ndim = ndim
    g.bases = &bases[0]
    if ndim:
        g.counts = &counts[0]
        g.lengths = &lengths[0]
        g.runs = <const grid_run *>&runs[0, 0]
        g.run_counts = &run_counts[0]
        g.out_shape = &out_shape[0]
    else:
        g.counts = g.lengths = g.run_counts = g.out_shape = NULL
        g.runs = NULL
    g.length_at = length_at
    g.run_at = runs_at
    g.itemsize = itemsize
    g.out = <char *>&out[0]
    with nogil:
        if team == 1 or blocks == 1:
            copy_serially(&g, blocks)
        else:
            copy_in_parallel(&g, blocks, team)
