# cython: language_level=3
"""Text of fixed width as UTF-8 with offsets, as Arrow has it; see ``fixed_text.pyi`` for the contract.

Access pattern: sequential on both sides, twice over the rows: once for their sizes, once for their bytes. Two million
rows of seven characters take 37 ms of one thread, where NumPy took 220 by blocks (`benchmarks/dask_frames.py --only text`).
"""

from cython.parallel cimport prange
from libc.stdint cimport int64_t, uint8_t, uint32_t

cdef extern from "kernel_math.h" nogil:
    int64_t ceil_div(int64_t n, int64_t d)

cdef extern from "fixed_text.h" nogil:
    int64_t wide_sizes(const uint32_t *rows, int64_t width, const uint8_t *present, int64_t begin, int64_t end,
                       int64_t *sizes)
    int64_t narrow_sizes(const uint8_t *rows, int64_t width, const uint8_t *present, int64_t begin, int64_t end,
                         int64_t *sizes)
    void wide_rows(const uint32_t *rows, int64_t width, const int64_t *offsets, int64_t begin, int64_t end,
                   uint8_t *data)
    void narrow_rows(const uint8_t *rows, int64_t width, const int64_t *offsets, int64_t begin, int64_t end,
                     uint8_t *data)

# Rows that one turn of a thread takes.
cdef int64_t CHUNK_ROWS = 1 << 14


cdef int64_t check(int64_t nbytes, int64_t n, int64_t width, int itemsize, threads) except -1:
    if itemsize != 1 and itemsize != 4:
        raise ValueError(f"itemsize must be 1 or 4, got {itemsize}")
    if threads < 1:
        raise ValueError(f"threads must be at least 1, got {threads}")
    if width < 1 or n < 0:
        raise ValueError("width must be at least 1, and there must be one offset more than rows")
    if nbytes // itemsize // width != n or nbytes % (itemsize * width):
        raise ValueError(f"{nbytes} bytes are not {n} rows of {width} items of {itemsize} bytes")
    return 0


cdef void sizes_of(const uint8_t *rows, int64_t n, int64_t width, int itemsize, const uint8_t *present,
                   int64_t *sizes, int64_t *bad, int threads) noexcept nogil:
    cdef int64_t turn, begin, found
    for turn in prange(ceil_div(n, CHUNK_ROWS), schedule="static", num_threads=threads):
        begin = turn * CHUNK_ROWS
        if itemsize == 4:
            found = wide_sizes(<const uint32_t *>rows, width, present, begin, min(begin + CHUNK_ROWS, n), sizes)
        else:
            found = narrow_sizes(rows, width, present, begin, min(begin + CHUNK_ROWS, n), sizes)
        if found >= 0:
            bad[0] = found  # of several threads any will do


def text_offsets(const uint8_t[::1] rows not None, int64_t width, int itemsize, int64_t[::1] offsets not None,
                 const uint8_t[::1] present=None, *, threads=1):
    cdef int64_t n = offsets.shape[0] - 1, i, total = 0, bad = -1
    cdef int team = min(threads, 1024)
    cdef const uint8_t *flags = NULL
    check(rows.shape[0], n, width, itemsize, threads)
    if present is not None and present.shape[0] != n:
        raise ValueError(f"there are {present.shape[0]} flags for {n} rows")
    if n and (<size_t>&rows[0]) % <size_t>itemsize:
        raise ValueError("rows are not aligned")
    offsets[0] = 0
    if n == 0:
        return -1
    if present is not None:
        flags = &present[0]
    with nogil:
        sizes_of(&rows[0], n, width, itemsize, flags, &offsets[1], &bad, team)
        if bad < 0:
            for i in range(1, n + 1):  # at most 4 bytes for each item in memory: no overflow
                total = total + offsets[i]
                offsets[i] = total
    return bad


cdef void write_rows(const uint8_t *rows, int64_t n, int64_t width, int itemsize, const int64_t *offsets,
                     uint8_t *data, int threads) noexcept nogil:
    cdef int64_t turn, begin
    for turn in prange(ceil_div(n, CHUNK_ROWS), schedule="static", num_threads=threads):
        begin = turn * CHUNK_ROWS
        if itemsize == 4:
            wide_rows(<const uint32_t *>rows, width, offsets, begin, min(begin + CHUNK_ROWS, n), data)
        else:
            narrow_rows(rows, width, offsets, begin, min(begin + CHUNK_ROWS, n), data)


def write_text(const uint8_t[::1] rows not None, int64_t width, int itemsize, const int64_t[::1] offsets not None,
               uint8_t[::1] data not None, *, threads=1):
    cdef int64_t n = offsets.shape[0] - 1, i
    cdef int team = min(threads, 1024)
    cdef int64_t bad = -1
    check(rows.shape[0], n, width, itemsize, threads)
    if n == 0:
        return
    if (<size_t>&rows[0]) % <size_t>itemsize:
        raise ValueError("rows are not aligned")
    with nogil:
        if offsets[0] < 0 or offsets[n] > data.shape[0]:
            bad = n
        for i in range(n):
            if offsets[i + 1] < offsets[i]:
                bad = i
    if bad >= 0:
        raise ValueError(f"offsets do not ascend within {data.shape[0]} bytes (row {bad})")
    if offsets[n] == offsets[0]:
        return
    with nogil:
        write_rows(&rows[0], n, width, itemsize, &offsets[0], &data[0], team)
