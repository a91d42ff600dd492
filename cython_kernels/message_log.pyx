# cython: language_level=3
"""Frames of a log of messages: the walk from one to the next, and their checksums (message_log.h).

Access pattern: the walk touches the first bytes of every frame; opening reads all bytes once, for the checksum.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t

cdef extern from "message_log.h" nogil:
    void frame_crc_init()
    uint32_t frame_crc(uint32_t crc, const uint8_t *p, int64_t n)
    int walk_frames(const uint8_t *data, int64_t length, int64_t *at, int64_t base, int64_t capacity,
                    int64_t *offset, int64_t *size, int64_t *rows, int64_t *found)
    int open_frames(const uint8_t *data, int64_t length, int64_t base, int64_t n, const int64_t *offset,
                    const int64_t *size, const int64_t *rows, int64_t *start, int64_t *bytes, uint8_t *zstd,
                    int64_t *bad)
    int64_t last_sound_frame(const uint8_t *data, int64_t length, int64_t base, int64_t n, const int64_t *offset,
                             const int64_t *size, const int64_t *rows)

frame_crc_init()

MORE = 1
INVALID = 2
CRC = 3
CHANGED = 4


def crc32(const uint8_t[::1] data not None, uint32_t crc=0):
    cdef uint32_t result = crc
    if data.shape[0]:
        with nogil:
            result = frame_crc(crc, &data[0], data.shape[0])
    return result


def walk(const uint8_t[::1] data not None, int64_t at, int64_t base, int64_t[::1] offset not None,
         int64_t[::1] size not None, int64_t[::1] rows not None):
    cdef int64_t capacity = offset.shape[0], found = 0
    cdef int code
    if size.shape[0] != capacity or rows.shape[0] != capacity:
        raise ValueError("offset, size and rows must have the same length")
    if at < 0:
        raise ValueError("at must not be negative")
    if capacity == 0 or at >= data.shape[0]:
        return 0, at, 0
    with nogil:
        code = walk_frames(&data[0], data.shape[0], &at, base, capacity, &offset[0], &size[0], &rows[0], &found)
    return found, at, code


def open_all(const uint8_t[::1] data not None, int64_t base, const int64_t[::1] offset not None,
             const int64_t[::1] size not None, const int64_t[::1] rows not None, int64_t[::1] start not None,
             int64_t[::1] length not None, uint8_t[::1] zstd not None):
    cdef int64_t n = offset.shape[0], bad = 0
    cdef int code
    if not n == size.shape[0] == rows.shape[0] == start.shape[0] == length.shape[0] == zstd.shape[0]:
        raise ValueError("all arrays must have the same length")
    if n == 0:
        return 0, -1
    if data.shape[0] == 0:
        return CHANGED, 0
    with nogil:
        code = open_frames(&data[0], data.shape[0], base, n, &offset[0], &size[0], &rows[0], &start[0], &length[0],
                           &zstd[0], &bad)
    return code, (bad if code else -1)


def last_sound(const uint8_t[::1] data not None, int64_t base, const int64_t[::1] offset not None,
               const int64_t[::1] size not None, const int64_t[::1] rows not None):
    cdef int64_t n = offset.shape[0], last
    if not n == size.shape[0] == rows.shape[0]:
        raise ValueError("all arrays must have the same length")
    if n == 0 or data.shape[0] == 0:
        return -1
    with nogil:
        last = last_sound_frame(&data[0], data.shape[0], base, n, &offset[0], &size[0], &rows[0])
    return last
