# cython: language_level=3
"""Gathers over a table of segments: rows by number, by progression, by mask.

Access pattern: a table says where each row of one or more columns lives (one segment per record of each file,
or per fetched range). Random reads from far more memory than the caches hold, sequential writes into arrays
that the caller owns. Every entry releases the GIL, and works in the calling thread alone when ``threads`` is 1:
no OpenMP region is entered then, which is what makes a forked child safe (cstore-behaviour.md 9).
"""

from cpython.buffer cimport (
    PyBUF_C_CONTIGUOUS,
    PyBUF_FORMAT,
    PyBUF_ND,
    PyBUF_WRITABLE,
    PyBuffer_Release,
    PyObject_GetBuffer,
)
from cpython.pycapsule cimport PyCapsule_New
from cython.parallel cimport prange
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

import numpy as _numpy

cdef extern from "omp_shim.h" nogil:
    int openmp_compiled()

cdef extern from "kernel_math.h" nogil:
    ctypedef struct reciprocal:
        uint64_t magic
        int shift
    reciprocal reciprocal_of(uint64_t d)
    uint64_t divide(uint64_t n, reciprocal r)
    uint64_t divide_portable(uint64_t n, reciprocal r)
    int64_t ceil_div(int64_t n, int64_t d)
    int64_t spread_chunk(int64_t turn, int64_t n, int64_t threads)
    int64_t shared_load(const int64_t *cell)
    void shared_store(int64_t *cell, int64_t value)

cdef extern from "segment_table.h" nogil:
    ctypedef struct bucket_index:
        pass
    ctypedef struct segment_table:
        int64_t n_rows, n_segments, n_columns, uniform_rows
        int has_gaps
        int64_t *row_start
        int64_t *row_stop
        uint64_t *base
        int64_t *itemsize
        reciprocal by_uniform
        bucket_index *buckets
        int64_t rows_searched
    enum:
        ROW_START_PADDING
        ROUTE_AUTO
        ROUTE_AFFINE
        ROUTE_UNIFORM
        ROUTE_BUCKET
        ROUTE_SEARCH
        ROUTE_CURSOR
    const bucket_index *get_buckets(segment_table *t)
    int route_of_few(segment_table *t, int64_t n)
    int looks_sorted(const int64_t *indices, int64_t n)

cdef extern from "gather.h" nogil:
    int64_t check_span(const int64_t *indices, int64_t begin, int64_t end, int64_t n_rows)
    int64_t take_span(const segment_table *t, const bucket_index *b, int isa, int route, const int64_t *indices,
                      int64_t begin, int64_t end, char *const *out, int64_t prefetch)
    int have_wide_gather()
    int best_gather_isa()
    int strided_span(const segment_table *t, int64_t c, int64_t start, int64_t step, int64_t begin,
                     int64_t end, char *out)

cdef extern from "mask.h" nogil:
    enum:
        MASK_CHUNK_ROWS_C "MASK_CHUNK_ROWS"
    enum:
        ISA_PORTABLE
        ISA_AVX2
        ISA_AVX512
    int detect_isa()
    int64_t count_true(int isa, const uint8_t *mask, int64_t n)
    int compress_span(const segment_table *t, int isa, int64_t c, const uint8_t *mask, int64_t begin, int64_t end,
                      char *q, char *stop)
    int mask_hits_gap(const segment_table *t, int isa, const uint8_t *mask)

MASK_CHUNK_ROWS = MASK_CHUNK_ROWS_C

# Best instruction set of this machine, found once.
cdef int best_isa = detect_isa()
cdef int gather_isa = best_gather_isa()

# Rows that one turn of a thread gathers: long enough (0.2 ms) to hide the hand-out, short enough to balance.
cdef int64_t TAKE_CHUNK_ROWS = 1 << 16
# Bytes of output that one turn of a thread copies.
cdef int64_t COPY_CHUNK_BYTES = 1 << 21
# Below this many indices the sortedness sampler is not worth its 32 loads (cstore-behaviour.md 13.1).
cdef int64_t SAMPLER_MINIMUM = 32768
cdef int64_t DEFAULT_PREFETCH = 96
cdef int64_t MAX_ROWS = (<int64_t>1) << 62

cdef enum:
    INLINE_COLUMNS = 8


# ---- buffers -------------------------------------------------------------------------------------------
# Raw buffers instead of memoryviews: a typed memoryview costs 0.4 us, PyObject_GetBuffer 0.05 us; and asking
# without PyBUF_FORMAT is the one way in for datetime64, which NumPy exports only as bare bytes.

cdef int get_values(object array, Py_buffer *view, str letters, Py_ssize_t itemsize, str name) except -1:
    """Acquire a 1-D C-contiguous buffer whose items have one of the struct `letters` and `itemsize` bytes."""
    cdef str format
    PyObject_GetBuffer(array, view, PyBUF_ND | PyBUF_C_CONTIGUOUS | PyBUF_FORMAT)
    if view.ndim == 1 and view.itemsize == itemsize and view.format != NULL and view.format[1] == 0:
        for letter in letters:
            if view.format[0] == <char>ord(letter):
                return 0
    format = (<bytes>view.format).decode("ascii", "replace") if view.format != NULL else "B"
    cdef int ndim = view.ndim
    PyBuffer_Release(view)
    raise TypeError(f"{name} must be a 1-D array of {letters!r} items, got {ndim} dimensions of {format!r}")


cdef int get_target(object array, Py_buffer *view, int64_t itemsize, int64_t length) except -1:
    """Acquire a writable 1-D C-contiguous buffer of `length` items of `itemsize` bytes, any dtype."""
    PyObject_GetBuffer(array, view, PyBUF_ND | PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE)
    if view.ndim == 1 and view.itemsize == itemsize and view.shape[0] == length:
        return 0
    cdef tuple shape = tuple([view.shape[k] for k in range(view.ndim)])
    cdef int64_t got = view.itemsize
    PyBuffer_Release(view)
    raise ValueError(
        f"out must have shape ({length},) and items of {itemsize} bytes, got shape {shape} and {got} bytes"
    )


cdef class _Targets:
    """The output buffers of one call, one per column, held while the kernel runs."""

    cdef Py_buffer few[INLINE_COLUMNS]
    cdef char *few_pointers[INLINE_COLUMNS]
    cdef Py_buffer *views
    cdef char **pointers
    cdef Py_ssize_t held

    def __cinit__(self):
        self.views = self.few
        self.pointers = self.few_pointers
        self.held = 0

    def __dealloc__(self):
        self.release()
        if self.views != self.few:
            free(self.views)
            free(self.pointers)

    cdef void release(self) noexcept:
        while self.held > 0:
            self.held -= 1
            PyBuffer_Release(&self.views[self.held])

    cdef int add(self, object array, int64_t itemsize, int64_t length) except -1:
        get_target(array, &self.views[self.held], itemsize, length)
        self.pointers[self.held] = <char *>self.views[self.held].buf
        self.held += 1
        return 0

    cdef int acquire(self, object out, const segment_table *t, int64_t length) except -1:
        cdef Py_ssize_t c, n = t.n_columns
        if not isinstance(out, (tuple, list)):
            if n != 1:
                raise ValueError(f"out must be a sequence of {n} arrays")
            return self.add(out, t.itemsize[0], length)
        if len(out) != n:
            raise ValueError(f"out must have one array for each of {n} columns, got {len(out)}")
        if n > INLINE_COLUMNS:
            self.views = <Py_buffer *>malloc(n * sizeof(Py_buffer))
            self.pointers = <char **>malloc(n * sizeof(char *))
            if self.views == NULL or self.pointers == NULL:
                raise MemoryError
        for c in range(n):
            self.add(out[c], t.itemsize[c], length)
        return 0


# ---- chunks in parallel --------------------------------------------------------------------------------
# Each of these runs serially, outside any OpenMP region, when threads is 1.

cdef int64_t take_rows(const segment_table *t, const bucket_index *b, int isa, int route, const int64_t *indices,
                       int64_t n, char **out, int64_t prefetch, int threads) noexcept nogil:
    cdef int64_t bad = -1, turn, chunks
    if threads == 1 or n <= TAKE_CHUNK_ROWS:
        return take_span(t, b, isa, route, indices, 0, n, out, prefetch)
    chunks = ceil_div(n, TAKE_CHUNK_ROWS)
    for turn in prange(chunks, schedule="dynamic", num_threads=threads):
        take_chunk(t, b, isa, route, indices, n, out, prefetch, spread_chunk(turn, chunks, threads), &bad)
    return bad


cdef void take_chunk(const segment_table *t, const bucket_index *b, int isa, int route, const int64_t *indices,
                     int64_t n, char **out, int64_t prefetch, int64_t chunk, int64_t *bad) noexcept nogil:
    cdef int64_t begin = chunk * TAKE_CHUNK_ROWS, found
    if shared_load(bad) >= 0:
        return
    found = take_span(t, b, isa, route, indices, begin, min(begin + TAKE_CHUNK_ROWS, n), out, prefetch)
    if found >= 0:
        shared_store(bad, found)


cdef int strided_chunk(const segment_table *t, int64_t start, int64_t step, int64_t count, char **out,
                       int64_t chunk) noexcept nogil:
    """Copy the chunk-th piece of COPY_CHUNK_BYTES, counted through the columns one after the other."""
    cdef int64_t c, rows, pieces, begin
    for c in range(t.n_columns):
        rows = max(1, COPY_CHUNK_BYTES // t.itemsize[c])
        pieces = ceil_div(count, rows)
        if chunk < pieces:
            begin = chunk * rows
            return strided_span(t, c, start, step, begin, min(begin + rows, count), out[c])
        chunk -= pieces
    return 0


cdef int copy_rows(const segment_table *t, int64_t start, int64_t step, int64_t count, char **out,
                   int threads) noexcept nogil:
    cdef int64_t c, chunks = 0, turn
    cdef int failed = 0
    if threads == 1:
        for c in range(t.n_columns):
            failed |= strided_span(t, c, start, step, 0, count, out[c])
        return failed
    for c in range(t.n_columns):
        chunks += ceil_div(count, max(1, COPY_CHUNK_BYTES // t.itemsize[c]))
    for turn in prange(chunks, schedule="dynamic", num_threads=threads):
        failed |= strided_chunk(t, start, step, count, out, spread_chunk(turn, chunks, threads))
    return failed


cdef int compress_chunk(const segment_table *t, int isa, const uint8_t *mask, int64_t n, const int64_t *offsets,
                        char **out, int64_t chunk) noexcept nogil:
    cdef int64_t begin = chunk * MASK_CHUNK_ROWS_C, c
    cdef int64_t end = min(begin + MASK_CHUNK_ROWS_C, n)
    cdef int failed = 0
    if offsets[chunk] == offsets[chunk + 1]:
        return 0
    for c in range(t.n_columns):
        failed |= compress_span(t, isa, c, mask, begin, end, out[c] + offsets[chunk] * t.itemsize[c],
                                out[c] + offsets[chunk + 1] * t.itemsize[c])
    return failed


cdef int compress_rows(const segment_table *t, int isa, const uint8_t *mask, int64_t n, const int64_t *offsets,
                       char **out, int threads) noexcept nogil:
    cdef int64_t chunks = ceil_div(n, MASK_CHUNK_ROWS_C), turn
    cdef int failed = 0
    if threads == 1:
        for turn in range(chunks):
            failed |= compress_chunk(t, isa, mask, n, offsets, out, turn)
        return failed
    for turn in prange(chunks, schedule="dynamic", chunksize=4, num_threads=threads):
        failed |= compress_chunk(t, isa, mask, n, offsets, out, spread_chunk(turn, chunks, threads))
    return failed


cdef void count_chunk(const uint8_t *mask, int64_t n, int64_t *offsets, int64_t chunk) noexcept nogil:
    cdef int64_t begin = chunk * MASK_CHUNK_ROWS_C
    offsets[chunk + 1] = count_true(best_isa, mask + begin, min(<int64_t>MASK_CHUNK_ROWS_C, n - begin))


cdef void count_chunks(const uint8_t *mask, int64_t n, int64_t *offsets, int threads) noexcept nogil:
    cdef int64_t chunks = ceil_div(n, MASK_CHUNK_ROWS_C), chunk
    offsets[0] = 0
    if threads == 1:
        for chunk in range(chunks):
            count_chunk(mask, n, offsets, chunk)
    else:
        for chunk in prange(chunks, schedule="static", num_threads=threads):
            count_chunk(mask, n, offsets, chunk)
    for chunk in range(chunks):
        offsets[chunk + 1] += offsets[chunk]


cdef void check_chunk(const int64_t *indices, int64_t n, int64_t n_rows, int64_t chunk, int64_t *bad) noexcept nogil:
    cdef int64_t begin = chunk * TAKE_CHUNK_ROWS, found
    if shared_load(bad) >= 0:
        return
    found = check_span(indices, begin, min(begin + TAKE_CHUNK_ROWS, n), n_rows)
    if found >= 0:
        shared_store(bad, found)


cdef int64_t check_rows(const int64_t *indices, int64_t n, int64_t n_rows, int threads) noexcept nogil:
    cdef int64_t bad = -1, chunk
    if threads == 1 or n <= TAKE_CHUNK_ROWS:
        return check_span(indices, 0, n, n_rows)
    for chunk in prange(ceil_div(n, TAKE_CHUNK_ROWS), schedule="static", num_threads=threads):
        check_chunk(indices, n, n_rows, chunk, &bad)
    return bad


# ---- the table -----------------------------------------------------------------------------------------

cdef dict _ROUTES = {
    "affine": ROUTE_AFFINE,
    "uniform": ROUTE_UNIFORM,
    "bucket": ROUTE_BUCKET,
    "search": ROUTE_SEARCH,
    "cursor": ROUTE_CURSOR,
}


cdef int pick_isa(object forced) except -1:
    """Instruction set of a compaction; the best one unless `forced` names another."""
    cdef int isa
    if forced is None:
        return best_isa
    if forced not in ("avx512", "avx2", "portable"):
        raise ValueError(f"route must be one of avx512, avx2, portable, got {forced!r}")
    isa = {"avx512": best_isa, "avx2": ISA_AVX2, "portable": ISA_PORTABLE}[forced]
    if isa > best_isa or (forced == "avx512" and best_isa < ISA_AVX512):
        raise ValueError(f"route {forced!r} needs instructions that this machine does not have")
    return isa


cdef int pick_gather_isa(object forced) except -1:
    """Instruction set of a gather, as `pick_isa`."""
    if forced is None:
        return gather_isa
    if forced not in ("avx512", "portable"):
        raise ValueError(f"isa must be one of avx512, portable, got {forced!r}")
    if forced == "portable":
        return ISA_PORTABLE
    if not have_wide_gather():
        raise ValueError(f"isa {forced!r} needs instructions that this machine does not have")
    return ISA_AVX512


cdef int check_threads(object threads) except -1:
    cdef long n = threads
    if n < 1:
        raise ValueError(f"threads must be at least 1, got {threads}")
    return <int>min(n, <long>1024)


cdef class SegmentTable:
    """Where each row of one or more columns lives; see ``segments.pyi`` for the contract."""

    cdef segment_table table
    cdef int64_t *memory
    cdef public object keep

    def __cinit__(self):
        self.memory = NULL

    def __dealloc__(self):
        free(self.memory)
        free(self.table.buckets)

    def __init__(self, const int64_t[::1] row_start not None, const int64_t[::1] row_stop not None,
                 const int64_t[:, ::1] base not None, const int64_t[::1] itemsize not None,
                 int64_t n_rows, int64_t uniform_rows=0):
        cdef segment_table *t = &self.table
        cdef int64_t S = row_start.shape[0], C = itemsize.shape[0], s, c, previous = 0
        if self.memory != NULL:
            raise RuntimeError("a SegmentTable is initialised once")
        if row_stop.shape[0] != S or base.shape[0] != C or base.shape[1] != S:
            raise ValueError(
                f"row_start has {S} segments and itemsize {C} columns, but row_stop has {row_stop.shape[0]} "
                f"and base has shape ({base.shape[0]}, {base.shape[1]})"
            )
        if S > 0x7fffffff:
            raise ValueError(f"at most 2^31 - 1 segments are supported, got {S}")
        if not 0 <= n_rows <= MAX_ROWS:
            raise ValueError(f"n_rows must lie in [0, 2^62], got {n_rows}")
        for c in range(C):
            if itemsize[c] < 1:
                raise ValueError(f"item sizes must be positive, got {itemsize[c]} for column {c}")
            if n_rows > MAX_ROWS // itemsize[c]:
                raise ValueError(f"{n_rows} rows of {itemsize[c]} bytes do not fit the address space")
        t.has_gaps = 0
        for s in range(S):
            if row_start[s] < previous or row_stop[s] < row_start[s]:
                raise ValueError(f"segment {s} with rows [{row_start[s]}, {row_stop[s]}) overlaps the one before it")
            if row_start[s] > previous:
                t.has_gaps = 1
            previous = row_stop[s]
        if previous > n_rows:
            raise ValueError(f"segments end at row {previous}, after n_rows = {n_rows}")
        if previous < n_rows:
            t.has_gaps = 1
        if uniform_rows < 0:
            raise ValueError(f"uniform_rows must not be negative, got {uniform_rows}")
        if uniform_rows > 0:
            for s in range(S):
                if row_start[s] != s * uniform_rows:
                    raise ValueError(f"segment {s} does not start at row {s} * {uniform_rows}")
            if S > 0 and row_stop[S - 1] - row_start[S - 1] > uniform_rows:
                raise ValueError(f"the last segment is longer than {uniform_rows} rows")
            t.by_uniform = reciprocal_of(uniform_rows)
        self.memory = <int64_t *>malloc((2 * S + ROW_START_PADDING + C * S + C) * sizeof(int64_t))
        if self.memory == NULL:
            raise MemoryError
        t.n_rows, t.n_segments, t.n_columns, t.uniform_rows = n_rows, S, C, uniform_rows
        t.row_start = self.memory
        t.row_stop = t.row_start + S + ROW_START_PADDING
        t.base = <uint64_t *>(t.row_stop + S)
        t.itemsize = t.row_stop + S + C * S
        if S > 0:
            memcpy(t.row_start, &row_start[0], S * sizeof(int64_t))
            memcpy(t.row_stop, &row_stop[0], S * sizeof(int64_t))
        for s in range(ROW_START_PADDING):
            t.row_start[S + s] = 0x7fffffffffffffff
        if C > 0:
            memcpy(t.itemsize, &itemsize[0], C * sizeof(int64_t))
            if S > 0:
                memcpy(t.base, &base[0, 0], C * S * sizeof(int64_t))
        t.buckets = NULL
        t.rows_searched = 0

    @property
    def n_columns(self):
        return self.table.n_columns

    @property
    def n_segments(self):
        return self.table.n_segments

    @property
    def n_rows(self):
        return self.table.n_rows

    @property
    def uniform_rows(self):
        return self.table.uniform_rows

    def __reduce__(self):
        raise TypeError("a SegmentTable holds addresses of this process and cannot be pickled")

    def _capsule(self):
        """Lend the C table to other kernel modules, for as long as they hold on to this object."""
        return PyCapsule_New(&self.table, "colstore_io.segment_table", NULL)

    cdef int pick_route(self, const int64_t *indices, int64_t n, object forced) except -1:
        cdef segment_table *t = &self.table
        cdef int route
        if forced is not None:
            route = _ROUTES.get(forced, ROUTE_AUTO)
            if route == ROUTE_AUTO:
                raise ValueError(f"route must be one of {', '.join(_ROUTES)}, got {forced!r}")
            if route == ROUTE_AFFINE and t.n_segments > 1:
                raise ValueError("route 'affine' needs a table of one segment")
            if route == ROUTE_UNIFORM and t.uniform_rows == 0:
                raise ValueError("route 'uniform' needs a table with uniform_rows")
            return route
        if t.n_segments == 1:
            return ROUTE_AFFINE
        if n >= SAMPLER_MINIMUM and looks_sorted(indices, n):
            return ROUTE_CURSOR
        return route_of_few(t, n)

    def take(self, indices, out, *, threads=1, prefetch=-1, route=None, isa=None):
        cdef segment_table *t = &self.table
        cdef int team = check_threads(threads), way, instructions = pick_gather_isa(isa)
        cdef int64_t distance = prefetch, bad, n
        cdef const bucket_index *b = NULL
        cdef Py_buffer view
        cdef const int64_t *rows
        cdef _Targets targets = _Targets()
        if distance < 0:
            distance = DEFAULT_PREFETCH
        get_values(indices, &view, "lq", 8, "indices")
        try:
            n = view.shape[0]
            rows = <const int64_t *>view.buf
            targets.acquire(out, t, n)
            if n == 0:
                return -1
            if t.n_segments == 0:
                return 0  # no row is stored: the first index is as bad as any
            way = self.pick_route(rows, n, route)
            with nogil:
                if way == ROUTE_BUCKET:
                    b = get_buckets(t)
                    if b == NULL:
                        way = ROUTE_SEARCH
                bad = take_rows(t, b, instructions, way, rows, n, targets.pointers, distance, team)
            return bad
        finally:
            targets.release()
            PyBuffer_Release(&view)

    def copy_strided(self, start, step, count, out, *, threads=1):
        cdef segment_table *t = &self.table
        cdef int team = check_threads(threads), failed
        cdef _Targets targets = _Targets()
        cdef int64_t first, jump, n
        if count < 0 or step == 0:
            raise ValueError(f"count must not be negative and step not 0, got {count} and {step}")
        if count > 0 and not (0 <= start < t.n_rows and 0 <= start + (count - 1) * step < t.n_rows):
            raise ValueError(
                f"rows {start} + k*{step} for k < {count} do not all lie in [0, {t.n_rows})"
            )
        n = count
        targets.acquire(out, t, n)
        try:
            if n == 0:
                return
            first = start
            jump = step if n > 1 else 1  # a single row makes no step, which may be too big for an int64
            if t.n_segments == 0:
                raise ValueError("a row of the progression lies in no segment")
            with nogil:
                failed = copy_rows(t, first, jump, n, targets.pointers, team)
            if failed:
                raise ValueError("a row of the progression lies in no segment")
        finally:
            targets.release()

    def compress(self, mask, offsets, out, *, threads=1, route=None):
        cdef segment_table *t = &self.table
        cdef int team = check_threads(threads), isa = pick_isa(route), failed
        cdef _Targets targets = _Targets()
        cdef Py_buffer mask_view, offsets_view
        cdef int64_t n, chunks, k
        cdef const int64_t *prefix
        cdef const uint8_t *flags
        get_values(mask, &mask_view, "?Bb", 1, "mask")
        try:
            get_values(offsets, &offsets_view, "lq", 8, "offsets")
            try:
                n = mask_view.shape[0]
                flags = <const uint8_t *>mask_view.buf
                prefix = <const int64_t *>offsets_view.buf
                chunks = ceil_div(n, MASK_CHUNK_ROWS_C)
                if n != t.n_rows:
                    raise ValueError(f"mask must have {t.n_rows} rows, got {n}")
                if offsets_view.shape[0] != chunks + 1:
                    raise ValueError(f"offsets must have {chunks + 1} entries, got {offsets_view.shape[0]}")
                if prefix[0] != 0:
                    raise ValueError("offsets must start at 0")
                for k in range(chunks):
                    if not 0 <= prefix[k + 1] - prefix[k] <= MASK_CHUNK_ROWS_C:
                        raise ValueError("offsets must be the prefix counts of mask_offsets(mask)")
                targets.acquire(out, t, prefix[chunks])
                if prefix[chunks] == 0:
                    return
                failed = 0
                if t.n_segments == 0:
                    failed = 1
                with nogil:
                    if not failed and t.has_gaps:
                        failed = mask_hits_gap(t, best_isa, flags)
                    if not failed:
                        failed = 2 * compress_rows(t, isa, flags, n, prefix, targets.pointers, team)
                if failed == 1:
                    raise ValueError("the mask selects a row that lies in no segment")
                if failed:
                    raise ValueError("offsets do not belong to this mask")
            finally:
                targets.release()
                PyBuffer_Release(&offsets_view)
        finally:
            PyBuffer_Release(&mask_view)


def mask_offsets(mask, *, threads=1):
    cdef int team = check_threads(threads)
    cdef Py_buffer view
    cdef int64_t[::1] offsets
    cdef const uint8_t *flags
    cdef int64_t n
    get_values(mask, &view, "?Bb", 1, "mask")
    try:
        n = view.shape[0]
        flags = <const uint8_t *>view.buf
        result = _numpy.empty(ceil_div(n, MASK_CHUNK_ROWS_C) + 1, _numpy.int64)
        offsets = result
        with nogil:
            count_chunks(flags, n, &offsets[0], team)
    finally:
        PyBuffer_Release(&view)
    return result


def first_out_of_range(indices, n_rows, *, threads=1):
    cdef int team = check_threads(threads)
    cdef Py_buffer view
    cdef int64_t n, limit = n_rows, bad
    cdef const int64_t *rows
    if limit < 0:
        raise ValueError(f"n_rows must not be negative, got {n_rows}")
    get_values(indices, &view, "lq", 8, "indices")
    n = view.shape[0]
    rows = <const int64_t *>view.buf
    with nogil:
        bad = check_rows(rows, n, limit, team)
    PyBuffer_Release(&view)
    return bad


def openmp_enabled():
    return bool(openmp_compiled())


def instruction_sets():
    return ("avx512", "avx2", "portable")[2 - min(best_isa, <int>ISA_AVX512):]


def gather_instruction_sets():
    return ("avx512", "portable") if have_wide_gather() else ("portable",)


def _divide(n, d, *, portable=False):
    """Return ``n // d`` as the uniform route computes it; for tests of exactness."""
    cdef uint64_t dividend = n, divisor = d
    if not 0 < divisor < (<uint64_t>1 << 63) or dividend >= (<uint64_t>1 << 63):
        raise ValueError("0 <= n < 2^63 and 0 < d < 2^63 must hold")
    return divide_portable(dividend, reciprocal_of(divisor)) if portable else divide(dividend, reciprocal_of(divisor))
