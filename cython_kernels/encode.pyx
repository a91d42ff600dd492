# cython: language_level=3
"""Encoded streams of the columns format: what its writer computes for every value.

Access pattern: one pass over a column, front to back, from Arrow's buffers (offsets and data) or a NumPy array into a
buffer of the exact size. All entries release the GIL; a writer runs one column per thread. Offsets are checked against
each other and the data before anything is read through them.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc

cdef extern from "encode.h" nogil:
    int LZW_SLOTS
    void delta_encode(const uint8_t *values, int64_t n, int width, int is_signed, uint64_t *out)
    void pack_msb(const uint32_t *codes, int64_t n, int width, uint8_t *out)
    int64_t codes_fixed(const uint8_t *v, int64_t n, int width, int64_t limit, uint64_t seed, uint32_t *codes,
                        uint32_t *firsts)
    int64_t renumber_i64(const int64_t *old, int64_t n, int64_t k, uint32_t *number, uint32_t *codes, uint32_t *order)
    int64_t find_bytes(const uint8_t *data, int64_t n, const uint8_t *needle, int64_t k, int64_t begin)
    int64_t lzw_encode(const uint8_t *data, int64_t n, uint32_t *table, uint8_t *out)

    int64_t bad_offset_v32(const int32_t *off, int64_t n, int64_t data_length)
    int64_t longest_v32(const int32_t *off, int64_t n)
    void prefixed_v32(const int32_t *off, int64_t n, const uint8_t *data, int64_t prefix, int64_t suffix,
                      uint8_t *out, int64_t out_length)
    void affixes_v32(const int32_t *off, int64_t n, const uint8_t *data, int64_t *result)
    void bounds_v32(const int32_t *off, int64_t n, const uint8_t *data, int64_t skip, int64_t *result)
    void quirky_v32(const int32_t *off, int64_t n, const uint8_t *data, uint8_t *greatest, int64_t *result)
    int64_t codes_v32(const int32_t *off, int64_t n, const uint8_t *data, int64_t limit, uint64_t seed,
                      uint32_t *codes, uint32_t *firsts)
    int64_t rows_bytes_v32(const int32_t *off, const uint32_t *rows, int64_t k)
    void entries_v32(const int32_t *off, const uint8_t *data, const uint32_t *rows, int64_t k, uint8_t *out)

    int64_t bad_offset_v64(const int64_t *off, int64_t n, int64_t data_length)
    int64_t longest_v64(const int64_t *off, int64_t n)
    void prefixed_v64(const int64_t *off, int64_t n, const uint8_t *data, int64_t prefix, int64_t suffix,
                      uint8_t *out, int64_t out_length)
    void affixes_v64(const int64_t *off, int64_t n, const uint8_t *data, int64_t *result)
    void bounds_v64(const int64_t *off, int64_t n, const uint8_t *data, int64_t skip, int64_t *result)
    void quirky_v64(const int64_t *off, int64_t n, const uint8_t *data, uint8_t *greatest, int64_t *result)
    int64_t codes_v64(const int64_t *off, int64_t n, const uint8_t *data, int64_t limit, uint64_t seed,
                      uint32_t *codes, uint32_t *firsts)
    int64_t rows_bytes_v64(const int64_t *off, const uint32_t *rows, int64_t k)
    void entries_v64(const int64_t *off, const uint8_t *data, const uint32_t *rows, int64_t k, uint8_t *out)

ctypedef fused offset_t:
    int32_t
    int64_t

cdef int64_t LONGEST = 0xffffffff

# What the address of an empty view stands for: never read, never written.
cdef uint8_t[1] nothing


cdef inline const uint8_t *start(const uint8_t[::1] data) noexcept nogil:
    return &data[0] if data.shape[0] else nothing


cdef int64_t checked(const offset_t[::1] offsets, const uint8_t[::1] data) except -1:
    """Return the number of values; ValueError for offsets that lead out of the data."""
    cdef int64_t n = offsets.shape[0] - 1, bad
    if n < 0:
        raise ValueError("offsets must have at least one entry")
    with nogil:
        if offset_t is int32_t:
            bad = bad_offset_v32(&offsets[0], n, data.shape[0])
        else:
            bad = bad_offset_v64(&offsets[0], n, data.shape[0])
    if bad >= 0:
        raise ValueError(f"offset {bad} is {offsets[bad]}: offsets must not decrease, nor pass {data.shape[0]}")
    return n


cdef int check_room(int64_t n, const uint32_t[::1] codes, const uint32_t[::1] firsts, int64_t limit) except -1:
    if n > LONGEST:
        raise ValueError(f"{n} values: a dictionary has 32 bit codes")
    if limit < 0:
        raise ValueError(f"limit must not be negative, got {limit}")
    if codes.shape[0] != n or firsts.shape[0] < min(n, limit):
        raise ValueError(f"codes must have {n} entries and firsts {min(n, limit)}, got {codes.shape[0]} and "
                         f"{firsts.shape[0]}")
    return 0


cdef uint32_t unused_code


cdef inline uint32_t *entry(uint32_t[::1] array) noexcept nogil:
    return &array[0] if array.shape[0] else &unused_code


def delta(const uint8_t[::1] values not None, int width, bint is_signed, uint64_t[::1] out not None):
    cdef int64_t n = out.shape[0]
    if width not in (1, 2, 4, 8) or values.shape[0] != n * width:
        raise ValueError(f"{n} values of {width} bytes do not have {values.shape[0]} bytes")
    if n:
        with nogil:
            delta_encode(&values[0], n, width, is_signed, &out[0])


def pack_bits(const uint32_t[::1] codes not None, int width, uint8_t[::1] out not None):
    cdef int64_t n = codes.shape[0]
    if width < 0 or width > 32 or out.shape[0] != (n * width + 7) // 8:
        raise ValueError(f"{n} codes of {width} bits do not fill {out.shape[0]} bytes")
    if n and width:
        with nogil:
            pack_msb(&codes[0], n, width, &out[0])


def fixed_codes(const uint8_t[::1] values not None, int width, int64_t limit, uint64_t seed,
                uint32_t[::1] codes not None, uint32_t[::1] firsts not None):
    cdef int64_t n = codes.shape[0], entries
    if width not in (1, 2, 4, 8) or values.shape[0] != n * width:
        raise ValueError(f"{n} values of {width} bytes do not have {values.shape[0]} bytes")
    check_room(n, codes, firsts, limit)
    with nogil:
        entries = codes_fixed(start(values), n, width, limit, seed, entry(codes), entry(firsts))
    if entries == -2:
        raise MemoryError
    return entries


def variable_codes(const offset_t[::1] offsets not None, const uint8_t[::1] data not None, int64_t limit,
                   uint64_t seed, uint32_t[::1] codes not None, uint32_t[::1] firsts not None):
    cdef int64_t n = checked(offsets, data), entries
    check_room(n, codes, firsts, limit)
    with nogil:
        if offset_t is int32_t:
            entries = codes_v32(&offsets[0], n, start(data), limit, seed, entry(codes), entry(firsts))
        else:
            entries = codes_v64(&offsets[0], n, start(data), limit, seed, entry(codes), entry(firsts))
    if entries == -2:
        raise MemoryError
    return entries


def renumber(const int64_t[::1] old not None, uint32_t[::1] number not None, uint32_t[::1] codes not None,
             uint32_t[::1] order not None):
    cdef int64_t n = old.shape[0], k = number.shape[0], used = 0
    if codes.shape[0] != n or order.shape[0] != k or n > LONGEST:
        raise ValueError("codes must be as long as old, order as long as number")
    if n:
        with nogil:
            used = renumber_i64(&old[0], n, k, entry(number), &codes[0], entry(order))
    if used < 0:
        raise ValueError(f"a code lies outside the {k} entries of its dictionary")
    return used


def entry_bytes(const offset_t[::1] offsets not None, const uint8_t[::1] data not None,
                const uint32_t[::1] rows not None):
    cdef int64_t n = checked(offsets, data), k = rows.shape[0], i, total = 0
    for i in range(k):
        if rows[i] >= n:
            raise ValueError(f"row {rows[i]} of {n}")
    if k:
        with nogil:
            if offset_t is int32_t:
                total = rows_bytes_v32(&offsets[0], &rows[0], k)
            else:
                total = rows_bytes_v64(&offsets[0], &rows[0], k)
    return total


def put_entries(const offset_t[::1] offsets not None, const uint8_t[::1] data not None,
                const uint32_t[::1] rows not None, uint8_t[::1] out not None):
    cdef int64_t total = entry_bytes(offsets, data, rows), k = rows.shape[0]
    if total > LONGEST:
        raise ValueError(f"entries have {total} bytes, 32 bit offsets reach {LONGEST}")
    if out.shape[0] != 4 * k + total:
        raise ValueError(f"out must have {4 * k + total} bytes, got {out.shape[0]}")
    if k:
        with nogil:
            if offset_t is int32_t:
                entries_v32(&offsets[0], start(data), &rows[0], k, &out[0])
            else:
                entries_v64(&offsets[0], start(data), &rows[0], k, &out[0])


def longest(const offset_t[::1] offsets not None, const uint8_t[::1] data not None):
    cdef int64_t n = checked(offsets, data), result
    with nogil:
        if offset_t is int32_t:
            result = longest_v32(&offsets[0], n)
        else:
            result = longest_v64(&offsets[0], n)
    return result


def prefixed(const offset_t[::1] offsets not None, const uint8_t[::1] data not None, int64_t prefix, int64_t suffix,
             uint8_t[::1] out not None):
    cdef int64_t n = checked(offsets, data), i, cut = prefix + suffix, total
    cdef bint short_value = False
    if prefix < 0 or suffix < 0 or cut < 0:
        raise ValueError("prefix and suffix must not be negative")
    if longest(offsets, data) > LONGEST:
        raise ValueError(f"a value is longer than {LONGEST} bytes")
    total = offsets[n] - offsets[0] + n * (4 - cut)
    if out.shape[0] != total:
        raise ValueError(f"out must have {total} bytes, got {out.shape[0]}")
    if n == 0:
        return
    with nogil:
        if cut:
            for i in range(n):
                short_value |= offsets[i + 1] - offsets[i] < cut
        if not short_value:
            if offset_t is int32_t:
                prefixed_v32(&offsets[0], n, start(data), prefix, suffix, &out[0], total)
            else:
                prefixed_v64(&offsets[0], n, start(data), prefix, suffix, &out[0], total)
    if short_value:
        raise ValueError("a value is shorter than prefix and suffix")


def affixes(const offset_t[::1] offsets not None, const uint8_t[::1] data not None):
    cdef int64_t n = checked(offsets, data)
    cdef int64_t[3] result
    if n == 0:
        return 0, 0
    with nogil:
        if offset_t is int32_t:
            affixes_v32(&offsets[0], n, start(data), result)
        else:
            affixes_v64(&offsets[0], n, start(data), result)
        if result[0] + result[1] > result[2]:
            result[1] = max(0, result[2] - result[0])
    return result[0], result[1]


def bounds(const offset_t[::1] offsets not None, const uint8_t[::1] data not None, int64_t skip=0):
    cdef int64_t n = checked(offsets, data), i
    cdef int64_t[4] result
    cdef bint short_value = skip < 0
    if n == 0:
        raise ValueError("no values, no bounds")
    if skip > 0:
        for i in range(n):
            short_value |= offsets[i + 1] - offsets[i] < skip
    if short_value:
        raise ValueError(f"a value is shorter than the {skip} bytes to skip")
    with nogil:
        if offset_t is int32_t:
            bounds_v32(&offsets[0], n, start(data), skip, result)
        else:
            bounds_v64(&offsets[0], n, start(data), skip, result)
    return result[0], result[1], result[2], result[3]


def quirky_bounds(const offset_t[::1] offsets not None, const uint8_t[::1] data not None):
    cdef int64_t n = checked(offsets, data)
    cdef int64_t[4] result
    cdef uint8_t *greatest
    if n == 0:
        raise ValueError("no values, no bounds")
    greatest = <uint8_t *>malloc(max(1, offsets[n] - offsets[0]))
    if greatest == NULL:
        raise MemoryError
    try:
        with nogil:
            if offset_t is int32_t:
                quirky_v32(&offsets[0], n, start(data), greatest, result)
            else:
                quirky_v64(&offsets[0], n, start(data), greatest, result)
        return result[0], greatest[:result[1]], result[2], result[3]
    finally:
        free(greatest)


def find(const uint8_t[::1] data not None, const uint8_t[::1] needle not None, int64_t begin=0):
    cdef int64_t n = data.shape[0], k = needle.shape[0], place
    if k < 1 or begin < 0:
        raise ValueError("an empty needle, or a negative start")
    with nogil:
        place = find_bytes(start(data), n, &needle[0], k, begin)
    return place


def lzw(const uint8_t[::1] data not None, uint8_t[::1] out not None):
    cdef int64_t n = data.shape[0], length
    cdef uint32_t *table
    if out.shape[0] < 2 * n + 16:
        raise ValueError(f"out must have at least {2 * n + 16} bytes, got {out.shape[0]}")
    table = <uint32_t *>malloc(LZW_SLOTS * sizeof(uint32_t))
    if table == NULL:
        raise MemoryError
    with nogil:
        length = lzw_encode(start(data), n, table, &out[0])
        free(table)
    return length
