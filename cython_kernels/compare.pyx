# cython: language_level=3
"""Conjunctions of ranges over a table of segments, compared in place; see ``compare.pyi`` for the contract.

Access pattern: sequential reads of one to a few columns that are larger than the caches, one mask byte written a row.
Every entry releases the GIL, and enters no OpenMP region when ``threads`` is 1.
"""

from cpython.buffer cimport (
    PyBUF_C_CONTIGUOUS,
    PyBUF_ND,
    PyBUF_WRITABLE,
    PyBuffer_Release,
    PyObject_GetBuffer,
)
from cpython.pycapsule cimport PyCapsule_GetPointer
from cython.parallel cimport prange
from libc.math cimport INFINITY
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, malloc

import numpy as _numpy

cdef extern from "kernel_math.h" nogil:
    int64_t ceil_div(int64_t n, int64_t d)
    int64_t spread_chunk(int64_t turn, int64_t n, int64_t threads)

cdef extern from "segment_table.h" nogil:
    ctypedef struct segment_table:
        int64_t n_rows, n_segments, n_columns
        int64_t *itemsize

cdef extern from "mask.h" nogil:
    enum:
        MASK_CHUNK_ROWS_C "MASK_CHUNK_ROWS"
    enum:
        ISA_PORTABLE
        ISA_AVX2
        ISA_AVX512
    int detect_isa()

cdef extern from "compare.h" nogil:
    enum:
        KIND_B1
        KIND_I1
        KIND_I2
        KIND_I4
        KIND_I8
        KIND_U1
        KIND_U2
        KIND_U4
        KIND_U8
        KIND_F4
        KIND_F8
    ctypedef union bound:
        int64_t i
        uint64_t u
        double f
    ctypedef struct range_test:
        int kind
        bound lo
        bound hi
        int open_lo, open_hi
    int64_t test_span(const segment_table *t, int isa, const range_test *tests, const uint8_t *wanted, int64_t begin,
                      int64_t end, uint8_t *mask)

# Best instruction set of this machine, found once.
cdef int best_isa = detect_isa()

cdef dict _KINDS = {
    "b1": (KIND_B1, 0, 1),
    "i1": (KIND_I1, -(1 << 7), (1 << 7) - 1),
    "i2": (KIND_I2, -(1 << 15), (1 << 15) - 1),
    "i4": (KIND_I4, -(1 << 31), (1 << 31) - 1),
    "i8": (KIND_I8, -(1 << 63), (1 << 63) - 1),
    "u1": (KIND_U1, 0, (1 << 8) - 1),
    "u2": (KIND_U2, 0, (1 << 16) - 1),
    "u4": (KIND_U4, 0, (1 << 32) - 1),
    "u8": (KIND_U8, 0, (1 << 64) - 1),
    "f4": (KIND_F4, None, None),
    "f8": (KIND_F8, None, None),
}


cdef int pick_isa(object forced) except -1:
    """Instruction set of a call; the best one unless `forced` names another."""
    cdef int isa
    if forced is None:
        return best_isa
    if forced not in ("avx512", "avx2", "portable"):
        raise ValueError(f"route must be one of avx512, avx2, portable, got {forced!r}")
    isa = {"avx512": best_isa, "avx2": ISA_AVX2, "portable": ISA_PORTABLE}[forced]
    if isa > best_isa or (forced == "avx512" and best_isa < ISA_AVX512):
        raise ValueError(f"route {forced!r} needs instructions that this machine does not have")
    return isa


cdef int set_test(range_test *test, object given, int64_t itemsize) except -1:
    """Translate one range into bounds of the column's type, closed ones for integers; an empty one into lo > hi."""
    code, lo, lo_inclusive, hi, hi_inclusive = given
    if code not in _KINDS:
        raise ValueError(f"ranges are tested on {', '.join(_KINDS)}, got {code!r}")
    if int(code[1:]) != itemsize:
        raise ValueError(f"a range of {code} does not fit a column of {itemsize} bytes a value")
    kind, least, greatest = _KINDS[code]
    test.kind = kind
    test.open_lo = test.open_hi = 0
    if code[0] == "f":
        test.lo.f = -INFINITY if lo is None else lo
        test.hi.f = INFINITY if hi is None else hi
        test.open_lo = lo is not None and not lo_inclusive
        test.open_hi = hi is not None and not hi_inclusive
        return 0
    low = least if lo is None else max(least, int(lo) + (not lo_inclusive))
    high = greatest if hi is None else min(greatest, int(hi) - (not hi_inclusive))
    if low > high:
        low, high = greatest, least
    if code[0] == "i":
        test.lo.i, test.hi.i = low, high
    else:
        test.lo.u, test.hi.u = low, high
    return 0


cdef void test_chunk(const segment_table *t, int isa, const range_test *tests, const uint8_t *wanted, uint8_t *mask,
                     int64_t *offsets, int64_t chunk) noexcept nogil:
    cdef int64_t begin = chunk * MASK_CHUNK_ROWS_C
    offsets[chunk + 1] = test_span(t, isa, tests, wanted, begin, min(begin + MASK_CHUNK_ROWS_C, t.n_rows), mask)


cdef void test_chunks(const segment_table *t, int isa, const range_test *tests, const uint8_t *wanted, uint8_t *mask,
                      int64_t *offsets, int threads) noexcept nogil:
    cdef int64_t chunks = ceil_div(t.n_rows, MASK_CHUNK_ROWS_C), turn
    offsets[0] = 0
    if threads == 1:
        for turn in range(chunks):
            test_chunk(t, isa, tests, wanted, mask, offsets, turn)
    else:
        for turn in prange(chunks, schedule="dynamic", chunksize=4, num_threads=threads):
            test_chunk(t, isa, tests, wanted, mask, offsets, spread_chunk(turn, chunks, threads))
    for turn in range(chunks):
        offsets[turn + 1] += offsets[turn]


def mask_of_ranges(table, tests, mask, *, segments=None, threads=1, route=None):
    cdef const segment_table *t = <const segment_table *>PyCapsule_GetPointer(table._capsule(), "colstore_io.segment_table")
    cdef int isa = pick_isa(route), team
    cdef Py_buffer view, wanted_view
    cdef int64_t[::1] offsets
    cdef const uint8_t *wanted = NULL
    cdef range_test *ranges
    cdef int64_t c
    if threads < 1:
        raise ValueError(f"threads must be at least 1, got {threads}")
    team = min(threads, 1024)
    tests = tuple(tests)
    if len(tests) != t.n_columns or t.n_columns == 0:
        raise ValueError(f"one range for each of {t.n_columns} columns is needed, got {len(tests)}")
    result = _numpy.empty(ceil_div(t.n_rows, MASK_CHUNK_ROWS_C) + 1, _numpy.int64)
    offsets = result
    ranges = <range_test *>malloc(t.n_columns * sizeof(range_test))
    if ranges == NULL:
        raise MemoryError
    try:
        for c in range(t.n_columns):
            set_test(&ranges[c], tests[c], t.itemsize[c])
        get_flags(mask, &view, t.n_rows, "mask", PyBUF_WRITABLE)
        try:
            if segments is not None:
                get_flags(segments, &wanted_view, t.n_segments, "segments", 0)
                wanted = <const uint8_t *>wanted_view.buf
            with nogil:
                test_chunks(t, isa, ranges, wanted, <uint8_t *>view.buf, &offsets[0], team)
            if segments is not None:
                PyBuffer_Release(&wanted_view)
        finally:
            PyBuffer_Release(&view)
    finally:
        free(ranges)
    return result


cdef int get_flags(object array, Py_buffer *view, int64_t length, str name, int flags) except -1:
    """Acquire a 1-D C-contiguous buffer of `length` bytes."""
    PyObject_GetBuffer(array, view, PyBUF_ND | PyBUF_C_CONTIGUOUS | flags)
    if view.ndim == 1 and view.itemsize == 1 and view.shape[0] == length:
        return 0
    PyBuffer_Release(view)
    raise ValueError(f"{name} must be a 1-D array of {length} bytes")
