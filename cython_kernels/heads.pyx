# cython: language_level=3
"""The heads of many files at once: opened, read, looked at and closed without an object for each.

Access pattern: thousands of small files, one system call after the other: 3.6 us a file. In one thread, since two
took four times as long (they share one table of descriptors). Unlike other kernels this one is given names: that a
thousand files cost no thousand Python calls is its point.
"""

from libc.stdint cimport int64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memchr

cdef extern from "heads.h" nogil:
    enum:
        HEAD_FIELDS_C "HEAD_FIELDS"
        MANIFEST_LENGTH_AT
        RECORD_HEADER_BYTES
    void crc_init()
    void read_head(const char *path, unsigned char *head, int64_t room, int64_t *state)
    int64_t alike_rows(const unsigned char *model, const unsigned char *head, const int64_t *state, int64_t text_end,
                       int64_t record, int64_t row_bytes)

crc_init()

HEAD_FIELDS = HEAD_FIELDS_C


cdef int64_t split_names(const char *names, int64_t length, int64_t n, const char **starts) noexcept nogil:
    """Find the starts of `n` names, each ended by a zero byte; how many there are, at most `n`."""
    cdef int64_t found = 0
    cdef const char *at = names
    cdef const char *stop = names + length
    cdef const char *end
    while found < n and at < stop:
        end = <const char *>memchr(at, 0, stop - at)
        if end == NULL:
            break
        starts[found] = at
        found += 1
        at = end + 1
    return found


def read_heads(const unsigned char[::1] names not None, unsigned char[:, ::1] heads not None,
               int64_t[:, ::1] states not None):
    cdef int64_t n = heads.shape[0], room = heads.shape[1], i
    cdef const char **starts
    cdef unsigned char *head
    cdef int64_t *state
    if states.shape[0] != n or states.shape[1] != HEAD_FIELDS_C:
        raise ValueError(f"states must have shape ({n}, {HEAD_FIELDS_C})")
    if n == 0:
        return
    if room == 0 or names.shape[0] == 0:
        raise ValueError("there must be names, and room for heads")
    starts = <const char **>malloc(n * sizeof(char *))
    if starts == NULL:
        raise MemoryError
    try:
        if split_names(<const char *>&names[0], names.shape[0], n, starts) != n:
            raise ValueError(f"there must be {n} names, each ended by a zero byte")
        head = &heads[0, 0]
        state = &states[0, 0]
        with nogil:
            for i in range(n):
                read_head(starts[i], head + i * room, room, state + i * HEAD_FIELDS_C)
    finally:
        free(starts)


def alike(const unsigned char[:, ::1] heads not None, const int64_t[:, ::1] states not None, int64_t text_end,
          int64_t record, int64_t row_bytes, int64_t[::1] rows not None):
    cdef int64_t n = heads.shape[0], room = heads.shape[1], i, good = 0
    if states.shape[0] != n or states.shape[1] != HEAD_FIELDS_C or rows.shape[0] != n:
        raise ValueError(f"states and rows must have {n} entries")
    if not MANIFEST_LENGTH_AT <= text_end <= record <= room - RECORD_HEADER_BYTES or row_bytes < 1:
        raise ValueError("the first header does not fit into its head")
    if n == 0:
        return 0
    with nogil:
        for i in range(n):
            rows[i] = alike_rows(&heads[0, 0], &heads[i, 0], &states[i, 0], text_end, record, row_bytes)
            good += rows[i] >= 0
    return good
