# cython: language_level=3
"""Copies between absolute addresses: many byte runs into place, and columns into packed records.

Access pattern: sequential on both sides, bound by memory bandwidth; the work is shared out by bytes, so one long
run is split among threads and many short ones cost little each.
"""

from cython.parallel cimport prange
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

cdef extern from "kernel_math.h" nogil:
    int64_t ceil_div(int64_t n, int64_t d)
    int64_t spread_chunk(int64_t turn, int64_t n, int64_t threads)

cdef extern from "memory_runs.h" nogil:
    void copy_runs_span(const uint64_t *source, const uint64_t *target, const int64_t *ends, int64_t n,
                        int64_t begin, int64_t end)
    void interleave_span(const uint64_t *columns, const int64_t *itemsize, int64_t n_columns, char *out,
                         int64_t record_bytes, int64_t begin, int64_t end)

# Bytes that one turn of a thread moves.
cdef int64_t CHUNK_BYTES = 1 << 20


cdef void copy_serially(const uint64_t *source, const uint64_t *target, const int64_t *nbytes,
                        int64_t n) noexcept nogil:
    cdef int64_t r
    for r in range(n):
        memcpy(<void *>target[r], <const void *>source[r], nbytes[r])


cdef void copy_in_parallel(const uint64_t *source, const uint64_t *target, const int64_t *ends, int64_t n,
                           int64_t total, int threads) noexcept nogil:
    cdef int64_t turn, chunks = ceil_div(total, CHUNK_BYTES), begin
    for turn in prange(chunks, schedule="dynamic", num_threads=threads):
        begin = spread_chunk(turn, chunks, threads) * CHUNK_BYTES
        copy_runs_span(source, target, ends, n, begin, min(begin + CHUNK_BYTES, total))


def copy_runs(const uint64_t[::1] source not None, const uint64_t[::1] target not None,
              const int64_t[::1] nbytes not None, *, threads=1):
    cdef int64_t n = nbytes.shape[0], r, total = 0
    cdef int team = min(threads, 1024)
    cdef int64_t *ends
    if team < 1:
        raise ValueError(f"threads must be at least 1, got {threads}")
    if source.shape[0] != n or target.shape[0] != n:
        raise ValueError("source, target and nbytes must have the same length")
    for r in range(n):
        if nbytes[r] < 0 or total > 0x7fffffffffffffff - nbytes[r]:
            raise ValueError(f"run {r} has an impossible length: {nbytes[r]} bytes")
        total += nbytes[r]
    if total == 0:
        return
    if team == 1 or total <= CHUNK_BYTES:
        with nogil:
            copy_serially(&source[0], &target[0], &nbytes[0], n)
        return
    ends = <int64_t *>malloc(n * sizeof(int64_t))
    if ends == NULL:
        raise MemoryError
    with nogil:
        total = 0
        for r in range(n):
            total += nbytes[r]
            ends[r] = total
        copy_in_parallel(&source[0], &target[0], ends, n, total, team)
        free(ends)


cdef void interleave_in_parallel(const uint64_t *columns, const int64_t *itemsize, int64_t n_columns, char *out,
                                 int64_t record_bytes, int64_t n_rows, int threads) noexcept nogil:
    cdef int64_t rows = max(1, CHUNK_BYTES // record_bytes), turn, begin
    cdef int64_t chunks = ceil_div(n_rows, rows)
    for turn in prange(chunks, schedule="dynamic", num_threads=threads):
        begin = spread_chunk(turn, chunks, threads) * rows
        interleave_span(columns, itemsize, n_columns, out, record_bytes, begin, min(begin + rows, n_rows))


def interleave(const uint64_t[::1] columns not None, const int64_t[::1] itemsize not None,
               uint8_t[::1] out not None, int64_t n_rows, *, threads=1):
    cdef int64_t n = itemsize.shape[0], c, record_bytes = 0
    cdef int team = min(threads, 1024)
    if team < 1:
        raise ValueError(f"threads must be at least 1, got {threads}")
    if columns.shape[0] != n:
        raise ValueError("columns and itemsize must have the same length")
    for c in range(n):
        if itemsize[c] < 1 or record_bytes > 0x7fffffffffffffff - itemsize[c]:
            raise ValueError(f"column {c} has an impossible item size: {itemsize[c]}")
        record_bytes += itemsize[c]
    if n_rows < 0 or (record_bytes > 0 and n_rows > 0x7fffffffffffffff // record_bytes):
        raise ValueError(f"n_rows is impossible: {n_rows}")
    if out.shape[0] != n_rows * record_bytes:
        raise ValueError(f"out must have {n_rows * record_bytes} bytes, got {out.shape[0]}")
    if n_rows == 0 or n == 0:
        return
    with nogil:
        if team == 1:
            interleave_span(&columns[0], &itemsize[0], n, <char *>&out[0], record_bytes, 0, n_rows)
        else:
            interleave_in_parallel(&columns[0], &itemsize[0], n, <char *>&out[0], record_bytes, n_rows, team)
