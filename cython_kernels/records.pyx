# cython: language_level=3
"""The walk over record headers when a file is opened, and small records as bytes (cstore.md 6).

Access pattern: 32 bytes here, 32 bytes there, each place known only from the header before it; through a mapping,
or by ``pread`` (faster when cold: a page fault for each header costs more than a call).
"""

from cpython.buffer cimport PyBUF_C_CONTIGUOUS, PyBUF_ND, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memcpy, memset

import numpy as _numpy

cdef extern from "record_walk.h" nogil:
    ctypedef struct header_source:
        int fd
        unsigned char *buffer
        int64_t offset
        int64_t length
        int error
    enum:
        WALK_IO_ERROR
        WALK_NO_MEMORY
        RECORD_HEADER_BYTES
    void crc_init()
    uint32_t crc_words(const unsigned char *p, int64_t n)
    int64_t walk_headers(const unsigned char *memory, int64_t available, header_source *f, int64_t first_offset,
                         int64_t row_bytes, int64_t end, int64_t n, int64_t *rows, int64_t *body_start, int *code)

crc_init()

cdef type _array = _numpy.ndarray

cdef enum:
    MOST_COLUMNS = 64


cdef int check_arguments(int64_t first_offset, int64_t row_bytes, int64_t[::1] rows, int64_t[::1] body_start) except -1:
    if rows.shape[0] != body_start.shape[0]:
        raise ValueError("rows and body_start must have the same length")
    if first_offset < 0 or row_bytes < 0:
        raise ValueError("first_offset and row_bytes must not be negative")
    return 0


def walk_records(const unsigned char[::1] buffer not None, int64_t first_offset, int64_t row_bytes, int64_t end,
                 int64_t[::1] rows not None, int64_t[::1] body_start not None):
    cdef int64_t good
    cdef int code = 0
    cdef const unsigned char *memory
    check_arguments(first_offset, row_bytes, rows, body_start)
    if rows.shape[0] == 0:
        return 0, 0
    if buffer.shape[0] == 0:
        return 0, 1
    memory = &buffer[0]
    with nogil:
        good = walk_headers(memory, buffer.shape[0], NULL, first_offset, row_bytes, end, rows.shape[0], &rows[0],
                            &body_start[0], &code)
    return good, code


def walk_records_fd(int fd, int64_t first_offset, int64_t row_bytes, int64_t end, int64_t[::1] rows not None,
                    int64_t[::1] body_start not None):
    cdef int64_t good
    cdef int code = 0
    cdef header_source source
    check_arguments(first_offset, row_bytes, rows, body_start)
    if rows.shape[0] == 0:
        return 0, 0
    memset(&source, 0, sizeof(source))
    source.fd = fd
    with nogil:
        good = walk_headers(NULL, 0, &source, first_offset, row_bytes, end, rows.shape[0], &rows[0], &body_start[0],
                            &code)
        free(source.buffer)
    if code == WALK_NO_MEMORY:
        raise MemoryError
    if code == WALK_IO_ERROR:
        import os

        raise OSError(source.error, os.strerror(source.error))
    return good, code


cdef void store_number(unsigned char *at, uint64_t value, int nbytes) noexcept:
    cdef int k
    for k in range(nbytes):
        at[k] = <unsigned char>(value >> (8 * k))


cdef void fill_header(unsigned char *at, int64_t index, int64_t n_rows) noexcept:
    memcpy(at, b"REC\x01", 4)
    store_number(at + 4, index, 8)
    store_number(at + 12, n_rows, 8)
    store_number(at + 20, 0, 8)
    store_number(at + 28, crc_words(at, 28), 4)


def encode_record(list arrays not None, list dtypes not None, int64_t index, int64_t most):
    cdef Py_buffer views[MOST_COLUMNS]
    cdef Py_ssize_t held = 0, k
    cdef int64_t n_rows = -1, size = RECORD_HEADER_BYTES, padding
    cdef unsigned char *at
    cdef object array, dtype, stored
    if len(arrays) != len(dtypes) or not 0 < len(arrays) <= MOST_COLUMNS:
        return None
    try:
        for k in range(len(arrays)):
            array, dtype = arrays[k], dtypes[k]
            if type(array) is not _array:
                return None
            stored = array.dtype
            if stored is not dtype and stored != dtype:
                return None
            try:
                PyObject_GetBuffer(array, &views[k], PyBUF_ND | PyBUF_C_CONTIGUOUS)
            except (ValueError, BufferError):
                return None
            held += 1
            if views[k].ndim != 1 or (k > 0 and views[k].shape[0] != n_rows):
                return None
            n_rows = views[k].shape[0]
            size += views[k].len
            if size > most:
                return None
        padding = (8 - size % 8) % 8  # the header has 32 bytes: the same as of the body alone
        record = PyBytes_FromStringAndSize(NULL, size + padding)
        at = <unsigned char *>PyBytes_AS_STRING(record)
        fill_header(at, index, n_rows)
        at += RECORD_HEADER_BYTES
        for k in range(held):
            memcpy(at, views[k].buf, views[k].len)
            at += views[k].len
        memset(at, 0, padding)
        return record
    finally:
        while held > 0:
            held -= 1
            PyBuffer_Release(&views[held])
