# cython: language_level=3
"""The walk over record headers when a file is opened (cstore.md 6).

Access pattern: 32 bytes here, 32 bytes there, each place known only from the header before it; through a mapping,
or by ``pread`` (faster when cold: a page fault for each header costs more than a call).
"""

from libc.stdint cimport int64_t
from libc.stdlib cimport free
from libc.string cimport memset

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
    void crc_init()
    int64_t walk_headers(const unsigned char *memory, int64_t available, header_source *f, int64_t first_offset,
                         int64_t row_bytes, int64_t end, int64_t n, int64_t *rows, int64_t *body_start, int *code)

crc_init()


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
