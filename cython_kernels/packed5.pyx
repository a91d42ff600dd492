# cython: language_level=3
"""packed5 strings by themselves (colbin.md 9). Records are packed by the codec's own kernel, from the same header.

Access pattern: one pass over the bytes of one short string, a few bits of state.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport uint8_t
from libc.stdlib cimport free, malloc

cdef extern from "packed5.h" nogil:
    enum:
        PACKED5_NOT_SHORTER
        PACKED5_MALFORMED
        PACKED5_NO_ROOM
    long packed5_encode(const uint8_t *src, long n, uint8_t *dst, long cap, int *upper)
    long packed5_decode(const uint8_t *src, long n, int upper, uint8_t *dst, long cap)
    long PACKED5_MAX_DECODED(long n)


def encode(const uint8_t[::1] text not None):
    cdef long n = text.shape[0], size
    cdef int upper = 0
    cdef uint8_t *packed
    if n < 2:
        return None
    packed = <uint8_t *>malloc(n)
    if packed == NULL:
        raise MemoryError
    try:
        with nogil:
            size = packed5_encode(&text[0], n, packed, n, &upper)
        if size < 0:
            return None
        return PyBytes_FromStringAndSize(<char *>packed, size), bool(upper)
    finally:
        free(packed)


def decode(const uint8_t[::1] payload not None, bint upper, long max_bytes=-1):
    cdef long n = payload.shape[0], size, cap
    cdef uint8_t *text
    if n == 0:
        return b""
    if n > 1 << 56:
        raise ValueError("the payload is too long")
    cap = PACKED5_MAX_DECODED(n)
    if 0 <= max_bytes < cap:
        cap = max_bytes
    text = <uint8_t *>malloc(cap + 1)
    if text == NULL:
        raise MemoryError
    try:
        with nogil:
            size = packed5_decode(&payload[0], n, upper, text, cap)
        if size == PACKED5_NO_ROOM:
            raise ValueError("the text is longer than allowed")
        if size < 0:
            raise ValueError("the packed text is malformed")
        return PyBytes_FromStringAndSize(<char *>text, size)
    finally:
        free(text)


def encode_frame(const uint8_t[::1] text not None):
    packed = encode(text)
    payload, flags = (bytes(text), 0) if packed is None else (packed[0], 1 | packed[1] << 1)
    size = len(payload)
    if size <= 30:
        return bytes([flags | size << 3]) + payload
    header = bytearray([flags | 31 << 3])
    while size > 127:
        header.append(size & 127 | 128)
        size >>= 7
    header.append(size)
    return bytes(header) + payload


def decode_frame(const uint8_t[::1] frame not None):
    cdef long n = frame.shape[0], at = 1
    if n == 0:
        raise ValueError("the frame is empty")
    flags = frame[0]
    size = flags >> 3
    if size == 31:
        size = 0
        shift = 0
        while True:
            if at >= n or at > 9:
                raise ValueError("the size of the frame is malformed")
            size |= (frame[at] & 127) << shift
            shift += 7
            at += 1
            if frame[at - 1] < 128:
                break
    if size != n - at or flags & 4 or flags & 3 == 2:
        raise ValueError("the frame is malformed")
    payload = bytes(frame[at:])
    return decode(payload, flags & 2) if flags & 1 else payload
