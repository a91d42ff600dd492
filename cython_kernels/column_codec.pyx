# cython: language_level=3
"""The column codec of colbin between NumPy arrays and bytes (colbin.md section 8); loops in column_codec.h.

Access pattern: two or three passes over the values when encoding, one when decoding, a block of 128 values at a time
in the first-level cache. Columns are independent, so threads share them out one by one.
"""

from cpython.buffer cimport PyBUF_C_CONTIGUOUS, PyBUF_FORMAT, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cython.parallel cimport prange
from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport free, malloc

cdef extern from "column_codec.h" nogil:
    ctypedef struct column_bounds:
        int64_t minimum
        int64_t maximum
    enum:
        COLUMN_I64, COLUMN_I32, COLUMN_I16, COLUMN_I8, COLUMN_U32, COLUMN_U16, COLUMN_U8, COLUMN_BOOL
        COLUMN_PORTABLE
    int64_t column_capacity(int64_t n)
    int column_best_isa()
    int64_t column_encode_as(int isa, int kind, const void *source, int64_t n, uint8_t *dst, column_bounds *bounds)
    int column_decode_as(int isa, int kind, const uint8_t *src, int64_t length, int64_t n, void *out)

cdef int BEST_ISA = column_best_isa()

WRONG = (
    "",
    "the column is cut short: a header, base or block runs past its end",
    "a block says that its values have more than 64 bits",
    "bytes are left over behind the last block",
    "a value is outside the range of the column's type",
)

# Values that a second thread must have to be worth waking.
cdef int64_t PARALLEL_VALUES = 1 << 16


cdef int kind_of(const char *format, Py_ssize_t itemsize) except -1:
    cdef char letter = format[0] if format != NULL else 66  # bytes have no format: "B"
    if letter in (60, 61, 64):  # '<' '=' '@': native here
        letter = format[1]
    if letter == 63:  # '?'
        return COLUMN_BOOL
    if letter in (98, 104, 105, 108, 113):  # b h i l q
        return {8: COLUMN_I64, 4: COLUMN_I32, 2: COLUMN_I16, 1: COLUMN_I8}[itemsize]
    if letter in (66, 72, 73, 76, 81):  # B H I L Q
        return {8: COLUMN_I64, 4: COLUMN_U32, 2: COLUMN_U16, 1: COLUMN_U8}[itemsize]
    if letter == 102:  # 'f'
        return COLUMN_U32
    if letter == 100:  # 'd'
        return COLUMN_I64
    raise ValueError(f"columns hold booleans, integers, float32 or float64, not buffers of format {format!r}")


cdef int pick_isa(object forced) except -1:
    cdef int isa
    if forced is None:
        return BEST_ISA
    isa = forced
    if not COLUMN_PORTABLE <= isa <= BEST_ISA:
        raise ValueError(f"isa must be from {COLUMN_PORTABLE} to {BEST_ISA} on this machine, got {forced}")
    return isa


cdef class Columns:
    """Buffers of several arrays, held while a kernel works on them."""
    cdef Py_buffer *views
    cdef int *kinds
    cdef Py_ssize_t held

    def __cinit__(self, arrays, bint writable):
        cdef Py_ssize_t count = len(arrays), c
        cdef int flags = PyBUF_C_CONTIGUOUS | PyBUF_FORMAT
        if writable:
            flags |= PyBUF_WRITABLE
        self.views = <Py_buffer *>malloc((count + 1) * sizeof(Py_buffer))
        self.kinds = <int *>malloc((count + 1) * sizeof(int))
        if self.views == NULL or self.kinds == NULL:
            raise MemoryError
        for c in range(count):
            PyObject_GetBuffer(arrays[c], &self.views[c], flags)
            self.held = c + 1
            if self.views[c].ndim != 1:
                raise ValueError(f"column {c} has {self.views[c].ndim} dimensions, not 1")
            self.kinds[c] = kind_of(self.views[c].format,
                                    self.views[c].itemsize)

    def __dealloc__(self):
        cdef Py_ssize_t c
        for c in range(self.held):
            PyBuffer_Release(&self.views[c])
        free(self.views)
        free(self.kinds)


def best_isa():
    return BEST_ISA


def encode(values not None, *, isa=None):
    cdef Py_buffer view
    cdef int kind, version = pick_isa(isa)
    cdef int64_t n, size
    cdef uint8_t *room
    PyObject_GetBuffer(values, &view, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT)
    try:
        if view.ndim != 1:
            raise ValueError(f"values has {view.ndim} dimensions, not 1")
        kind = kind_of(view.format, view.itemsize)
        n = view.shape[0]
        room = <uint8_t *>malloc(column_capacity(n))
        if room == NULL:
            raise MemoryError
        try:
            with nogil:
                size = column_encode_as(version, kind, view.buf, n, room, NULL)
            return PyBytes_FromStringAndSize(<char *>room, size)
        finally:
            free(room)
    finally:
        PyBuffer_Release(&view)


def decode(const uint8_t[::1] data not None, out not None, *, isa=None):
    cdef Py_buffer view
    cdef int kind, code, version = pick_isa(isa)
    cdef int64_t length = data.shape[0]
    cdef const uint8_t *start = &data[0] if length else NULL
    PyObject_GetBuffer(out, &view, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT | PyBUF_WRITABLE)
    try:
        if view.ndim != 1:
            raise ValueError(f"out has {view.ndim} dimensions, not 1")
        kind = kind_of(view.format, view.itemsize)
        with nogil:
            code = column_decode_as(version, kind, start, length, view.shape[0], view.buf)
    finally:
        PyBuffer_Release(&view)
    return code


cdef void encode_all(int isa, Py_buffer *views, const int *kinds, int64_t count, uint8_t *room, const int64_t *place,
                     int64_t *size, column_bounds *bounds, int threads) noexcept nogil:
    cdef int64_t c
    if threads == 1:
        for c in range(count):
            size[c] = column_encode_as(isa, kinds[c], views[c].buf, views[c].shape[0], room + place[c], bounds + c)
        return
    for c in prange(count, schedule="dynamic", num_threads=threads):
        size[c] = column_encode_as(isa, kinds[c], views[c].buf, views[c].shape[0], room + place[c], bounds + c)


def encode_columns(arrays not None, int64_t[:, ::1] bounds=None, *, threads=1, isa=None):
    cdef Columns columns = Columns(arrays, False)
    cdef int version = pick_isa(isa), team = min(threads, 1024)
    cdef int64_t count = columns.held, c, total = 0, values = 0
    cdef uint8_t *room = NULL
    cdef int64_t *place = NULL
    cdef column_bounds *seen = NULL
    if team < 1:
        raise ValueError(f"threads must be at least 1, got {threads}")
    if bounds is not None and (bounds.shape[0] != count or bounds.shape[1] != 2):
        raise ValueError(f"bounds must have shape ({count}, 2)")
    place = <int64_t *>malloc((2 * count + 1) * sizeof(int64_t))
    seen = <column_bounds *>malloc((count + 1) * sizeof(column_bounds))
    try:
        if place == NULL or seen == NULL:
            raise MemoryError
        for c in range(count):
            place[c] = total
            total += column_capacity(columns.views[c].shape[0])
            values += columns.views[c].shape[0]
        room = <uint8_t *>malloc(total + 1)
        if room == NULL:
            raise MemoryError
        if values < PARALLEL_VALUES:
            team = 1
        with nogil:
            encode_all(version, columns.views, columns.kinds, count, room, place, place + count, seen, team)
        if bounds is not None:
            for c in range(count):
                bounds[c, 0] = seen[c].minimum
                bounds[c, 1] = seen[c].maximum
        return [PyBytes_FromStringAndSize(<char *>room + place[c], place[count + c]) for c in range(count)]
    finally:
        free(place)
        free(seen)
        free(room)


cdef int64_t decode_all(int isa, const uint8_t *data, const int64_t *start, const int64_t *length, Py_buffer *views,
                        const int *kinds, int64_t count, int *codes, int threads) noexcept nogil:
    cdef int64_t c
    if threads == 1:
        for c in range(count):
            codes[c] = column_decode_as(isa, kinds[c], data + start[c], length[c], views[c].shape[0], views[c].buf)
    else:
        for c in prange(count, schedule="dynamic", num_threads=threads):
            codes[c] = column_decode_as(isa, kinds[c], data + start[c], length[c], views[c].shape[0], views[c].buf)
    for c in range(count):
        if codes[c]:
            return c
    return -1


def decode_columns(const uint8_t[::1] data not None, const int64_t[::1] start not None,
                   const int64_t[::1] length not None, outs not None, *, threads=1, isa=None):
    cdef Columns columns = Columns(outs, True)
    cdef int version = pick_isa(isa), team = min(threads, 1024)
    cdef int64_t count = columns.held, c, values = 0, bad
    cdef int *codes
    if team < 1:
        raise ValueError(f"threads must be at least 1, got {threads}")
    if start.shape[0] != count or length.shape[0] != count:
        raise ValueError("start, length and outs must have the same length")
    for c in range(count):
        if start[c] < 0 or length[c] < 0 or start[c] > data.shape[0] or length[c] > data.shape[0] - start[c]:
            raise ValueError(f"column {c} lies outside the data")
        values += columns.views[c].shape[0]
    if count == 0:
        return -1, 0
    codes = <int *>malloc(count * sizeof(int))
    if codes == NULL:
        raise MemoryError
    try:
        if values < PARALLEL_VALUES:
            team = 1
        with nogil:
            bad = decode_all(version, &data[0] if data.shape[0] else NULL, &start[0], &length[0], columns.views,
                             columns.kinds, count, codes, team)
        return bad, (codes[bad] if bad >= 0 else 0)
    finally:
        free(codes)
