# cython: language_level=3
"""Encoded streams of columns files to values.

Access pattern: one sequential pass over a stream (a block of it at a time where values are told apart on the way), one
over the output. Bound by memory bandwidth for fixed widths, by instructions per value for text. Single-threaded: a
caller decodes several columns and blocks side by side.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

cdef extern from "decode.h" nogil:
    ctypedef struct plain_state:
        int64_t value
        int64_t data
        int64_t remaining
        int64_t prefix
        int64_t length
    uint64_t delta_span(const uint8_t *stream, int64_t n, uint8_t *out, int64_t width, uint64_t sum)
    void bools_span(const uint8_t *stream, int64_t n, uint8_t *out)
    void validity_span(const uint8_t *bitmap, int64_t n, uint8_t *out)
    int64_t ones_span(const uint8_t *bitmap, int64_t n_bytes)
    ctypedef struct packed_state:
        int64_t skip
        uint64_t bits
        int64_t held
    int64_t packed_block(const uint8_t *block, int64_t n_bytes, packed_state *s, int64_t width, int64_t n, uint32_t *out)
    int64_t first_too_large(const uint32_t *numbers, int64_t n, uint64_t limit)
    void expand_span(uint8_t *values, int64_t n, int64_t n_dense, int64_t width, const uint8_t *bitmap)
    void take_entries_span(const uint32_t *indices, int64_t n, const uint8_t *entries, int64_t width, uint8_t *out)
    ctypedef struct value_affixes:
        const uint8_t *prefix
        const uint8_t *suffix
        int64_t n_prefix
        int64_t n_suffix
    int plain_values(const uint8_t *block, int64_t n_bytes, plain_state *s, void *offsets, int wide, int64_t n,
                     uint8_t *data, int64_t capacity)
    int affixed_values(const uint8_t *block, int64_t n_bytes, plain_state *s, value_affixes affixes, void *offsets,
                       int wide, int64_t n, uint8_t *data, int64_t capacity)
    int64_t whole_values(const uint8_t *block, int64_t n_bytes, int64_t *starts, int64_t *lengths, int64_t n,
                         int64_t *used)
    int64_t chosen_length(int64_t n_bytes, const int64_t *starts, const int64_t *lengths, int64_t n,
                          const int64_t *chosen, int64_t n_chosen, int64_t n_affix, int64_t limit)
    void copy_chosen(const uint8_t *block, int64_t n_bytes, const int64_t *starts, const int64_t *lengths,
                     const int64_t *chosen, int64_t n_chosen, value_affixes affixes, int64_t *ends, uint8_t *out,
                     int64_t capacity)
    void spread_offsets_32(int32_t *out, int64_t n, int64_t nulls, const uint8_t *bitmap)
    void spread_offsets_64(int64_t *out, int64_t n, int64_t nulls, const uint8_t *bitmap)
    int64_t offset_table_32(const uint8_t *table, int64_t n, int64_t area, int32_t *out)
    int64_t offset_table_64(const uint8_t *table, int64_t n, int64_t area, int64_t *out)
    int64_t entries_length(const uint32_t *indices, int64_t n, const uint32_t *bounds, int64_t limit)
    int take_variable_32(const uint32_t *indices, int64_t n, const uint32_t *bounds, const uint8_t *area,
                          int64_t n_area, int32_t *offsets, uint8_t *data, int64_t capacity)
    int take_variable_64(const uint32_t *indices, int64_t n, const uint32_t *bounds, const uint8_t *area,
                          int64_t n_area, int64_t *offsets, uint8_t *data, int64_t capacity)
    int is_ascii_span(const uint8_t *data, int64_t n)
    int64_t first_not_utf8_32(const uint8_t *data, const int32_t *offsets, int64_t n)
    int64_t first_not_utf8_64(const uint8_t *data, const int64_t *offsets, int64_t n)
    int64_t lzw_span(const uint8_t *source, int64_t n_source, uint8_t *out, int64_t capacity)

ctypedef fused offset_t:
    int32_t
    int64_t


cdef inline int64_t bitmap_bytes(int64_t n) noexcept nogil:
    return n // 8 + (n % 8 != 0)


cdef int check_width(int64_t width) except -1:
    if width != 1 and width != 2 and width != 4 and width != 8:
        raise ValueError(f"width must be 1, 2, 4 or 8, got {width}")
    return 0


cdef int check_bitmap(const uint8_t[::1] bitmap, int64_t n) except -1:
    if bitmap.shape[0] != bitmap_bytes(n):
        raise ValueError(f"a bitmap of {n} rows has {bitmap_bytes(n)} bytes, got {bitmap.shape[0]}")
    return 0


# ---- fixed width


def delta(const uint8_t[::1] stream not None, uint8_t[::1] out not None, int64_t width, uint64_t carry=0):
    cdef int64_t n = stream.shape[0] // 8
    check_width(width)
    if stream.shape[0] != 8 * n or out.shape[0] != n * width:
        raise ValueError("out must hold one value for every 8 bytes of the stream")
    if n:
        with nogil:
            carry = delta_span(&stream[0], n, &out[0], width, carry)
    return carry


def bools(const uint8_t[::1] stream not None, uint8_t[::1] out not None):
    cdef int64_t n = out.shape[0]
    check_bitmap(stream, n)
    if n:
        with nogil:
            bools_span(&stream[0], n, &out[0])


def validity(const uint8_t[::1] bitmap not None, uint8_t[::1] out not None):
    cdef int64_t n = out.shape[0]
    check_bitmap(bitmap, n)
    if n:
        with nogil:
            validity_span(&bitmap[0], n, &out[0])


def count_nulls(const uint8_t[::1] bitmap not None, int64_t n):
    cdef int64_t ones
    check_bitmap(bitmap, n)
    if n == 0:
        return 0
    if n % 8 and bitmap[n // 8] >> (n % 8):
        return -1
    with nogil:
        ones = ones_span(&bitmap[0], bitmap.shape[0])
    return ones


def expand(uint8_t[::1] values not None, int64_t width, const uint8_t[::1] bitmap not None):
    cdef int64_t n = values.shape[0] // width if width > 0 else 0, nulls
    check_width(width)
    if values.shape[0] != n * width:
        raise ValueError("values must be whole items")
    nulls = count_nulls(bitmap, n)
    if nulls < 0 or nulls > n:
        raise ValueError("the bitmap has bits past its last row")
    if n:
        with nogil:
            expand_span(&values[0], n, n - nulls, width, &bitmap[0])


cdef enum:
    WINDOW = 2048  # numbers at a time: they stay in the first cache


cdef class PackedReader:
    cdef packed_state state
    cdef int64_t width, item, n, done
    cdef uint64_t limit
    cdef uint8_t[::1] out
    cdef const uint8_t[::1] entries

    def __init__(self, int64_t width, uint64_t limit, uint8_t[::1] out not None, int64_t skip=0,
                 const uint8_t[::1] entries=None, int64_t item=4):
        if not 0 <= width <= 32 or not 0 <= skip <= (1 << 40) or limit > 0xffffffff:
            raise ValueError("width must be 0 to 32, and positions and limit believable")
        check_width(item)
        if out.shape[0] % item or (entries is None and item != 4) \
                or (entries is not None and <uint64_t>entries.shape[0] < limit * <uint64_t>item):
            raise ValueError("entries and out must be whole items")
        self.width, self.limit, self.out, self.entries, self.item = width, limit, out, entries, item
        self.n = out.shape[0] // item
        self.state = packed_state(skip, 0, 0)
        if entries is None and self.n and <size_t>&out[0] % sizeof(uint32_t):
            raise ValueError("numbers need aligned memory")

    @property
    def numbers(self):
        return self.done

    def feed(self, const uint8_t[::1] block not None):
        cdef int64_t bad = -1
        if self.width == 0 or block.shape[0] == 0 or self.done == self.n:
            return -1
        with nogil:
            bad = self.some(&block[0], block.shape[0])
        return bad

    def zeros(self):
        """All numbers of no bits."""
        cdef int64_t k, bad = -1
        cdef uint32_t[WINDOW] numbers
        if self.width:
            raise ValueError("numbers of some bits come from the stream")
        memset(numbers, 0, sizeof(numbers))
        with nogil:
            while self.done < self.n and bad < 0:
                k = min(<int64_t>WINDOW, self.n - self.done)
                bad = self.put(numbers, k)
        return bad

    cdef int64_t put(self, const uint32_t *numbers, int64_t k) noexcept nogil:
        cdef int64_t bad = first_too_large(numbers, k, self.limit)
        cdef uint8_t *target = &self.out[0] + self.done * self.item
        if bad >= 0:
            return self.done + bad
        if self.entries is None:
            memcpy(target, numbers, 4 * k)
        else:
            take_entries_span(numbers, k, &self.entries[0], self.item, target)
        self.done += k
        return -1

    cdef int64_t some(self, const uint8_t *block, int64_t n_bytes) noexcept nogil:
        cdef uint32_t[WINDOW] numbers
        cdef int64_t at = 0, step, k, bad
        cdef int64_t window = (WINDOW - 8) * self.width // 8  # bytes that hold less than WINDOW numbers
        if self.state.skip:
            step = min(self.state.skip // 8, n_bytes)
            self.state.skip -= 8 * step
            at = step
        while at < n_bytes and self.done < self.n:
            step = min(window, n_bytes - at)
            k = packed_block(block + at, step, &self.state, self.width, min(<int64_t>WINDOW, self.n - self.done), numbers)
            at += step
            if k:
                bad = self.put(numbers, k)
                if bad >= 0:
                    return bad
        return -1


# ---- variable length


cdef class PlainReader:
    cdef plain_state state
    cdef object offsets
    cdef uint8_t[::1] data
    cdef int32_t[::1] offsets_32
    cdef int64_t[::1] offsets_64
    cdef const uint8_t[::1] prefix
    cdef const uint8_t[::1] suffix
    cdef bint wide, affixes, only_ascii
    cdef int64_t n

    def __init__(self, offsets, uint8_t[::1] data not None, const uint8_t[::1] prefix not None=b"",
                 const uint8_t[::1] suffix not None=b""):
        self.prefix, self.suffix = prefix, suffix
        self.affixes = prefix.shape[0] > 0 or suffix.shape[0] > 0
        if prefix.shape[0] > (1 << 40) or suffix.shape[0] > (1 << 40):
            raise ValueError("a prefix or suffix of more bytes than any length can tell")
        self.only_ascii = (prefix.shape[0] == 0 or is_ascii_span(&prefix[0], prefix.shape[0])) \
            and (suffix.shape[0] == 0 or is_ascii_span(&suffix[0], suffix.shape[0]))
        self.state = plain_state(0, 0, 0, 0, 0)
        self.wide = offsets.dtype.itemsize == 8
        if self.wide:
            self.offsets_64 = offsets
            self.n = self.offsets_64.shape[0] - 1
        else:
            self.offsets_32 = offsets
            self.n = self.offsets_32.shape[0] - 1
            if data.shape[0] > 0x7fffffff:
                raise ValueError("32-bit offsets do not reach over that many bytes")
        if self.n < 0:
            raise ValueError("offsets has one place more than there are values")
        self.data = data
        offsets[0] = 0

    def feed(self, const uint8_t[::1] block not None):
        cdef int code
        cdef int64_t n_bytes = block.shape[0]
        cdef value_affixes affixes
        cdef void *offsets = <void *>&self.offsets_64[0] if self.wide else <void *>&self.offsets_32[0]
        if n_bytes == 0:
            return 0
        affixes.prefix, affixes.n_prefix = &self.prefix[0], self.prefix.shape[0]
        affixes.suffix, affixes.n_suffix = &self.suffix[0], self.suffix.shape[0]
        with nogil:
            if self.only_ascii:
                self.only_ascii = is_ascii_span(&block[0], n_bytes)
            if self.affixes:
                code = affixed_values(&block[0], n_bytes, &self.state, affixes, offsets, self.wide, self.n, &self.data[0],
                                      self.data.shape[0])
            else:
                code = plain_values(&block[0], n_bytes, &self.state, offsets, self.wide, self.n, &self.data[0],
                                    self.data.shape[0])
        return code

    @property
    def values(self):
        return self.state.value

    @property
    def ascii(self):
        return bool(self.only_ascii)

    @property
    def complete(self):
        return (self.state.value == self.n and self.state.remaining == 0 and self.state.prefix == 0
                and self.state.data == self.data.shape[0])


def plain_spans(const uint8_t[::1] block not None, int64_t[::1] starts not None, int64_t[::1] lengths not None):
    cdef int64_t found = 0, used = 0, n = starts.shape[0]
    if lengths.shape[0] != n:
        raise ValueError("each value has a start and a length")
    if n and block.shape[0]:
        with nogil:
            found = whole_values(&block[0], block.shape[0], &starts[0], &lengths[0], n, &used)
    return found, used


def measure_chosen(int64_t n_bytes, const int64_t[::1] starts not None, const int64_t[::1] lengths not None,
                   const int64_t[::1] chosen not None, int64_t n_affix, int64_t limit):
    cdef int64_t n = starts.shape[0], n_chosen = chosen.shape[0], total = 0
    if lengths.shape[0] != n:
        raise ValueError("each value has a start and a length")
    if not 0 <= n_bytes <= (1 << 41) or not 0 <= n_affix <= (1 << 41) or not 0 <= limit <= (1 << 62):
        raise ValueError("numbers of bytes that cannot be")
    if n_chosen:
        with nogil:
            total = chosen_length(n_bytes, &starts[0], &lengths[0], n, &chosen[0], n_chosen, n_affix, limit)
    return total


def copy_values(const uint8_t[::1] block not None, const int64_t[::1] starts not None,
                const int64_t[::1] lengths not None, const int64_t[::1] chosen not None, int64_t[::1] ends not None,
                uint8_t[::1] out not None, const uint8_t[::1] prefix not None=b"",
                const uint8_t[::1] suffix not None=b""):
    cdef int64_t n_chosen = chosen.shape[0], total
    cdef value_affixes affixes
    total = measure_chosen(block.shape[0], starts, lengths, chosen, prefix.shape[0] + suffix.shape[0], out.shape[0])
    if total != out.shape[0] or ends.shape[0] != n_chosen:
        raise ValueError("out must have exactly the bytes of the chosen values, and ends a place for each")
    if n_chosen == 0:
        return
    affixes.prefix, affixes.n_prefix = &prefix[0], prefix.shape[0]
    affixes.suffix, affixes.n_suffix = &suffix[0], suffix.shape[0]
    with nogil:
        copy_chosen(&block[0], block.shape[0], &starts[0], &lengths[0], &chosen[0], n_chosen, affixes, &ends[0],
                    &out[0], out.shape[0])


cdef int check_offsets(int64_t n_places, int64_t n) except -1:
    if n < 0 or n_places != n + 1:
        raise ValueError("offsets has one place more than there are values")
    return 0


def spread_offsets(offset_t[::1] offsets not None, const uint8_t[::1] bitmap not None):
    cdef int64_t n = offsets.shape[0] - 1, nulls
    if n < 0:
        raise ValueError("offsets has one place more than there are rows")
    nulls = count_nulls(bitmap, n)
    if nulls < 0:
        raise ValueError("the bitmap has bits past its last row")
    if n == 0:
        return
    with nogil:
        if offset_t is int32_t:
            spread_offsets_32(&offsets[0], n, nulls, &bitmap[0])
        else:
            spread_offsets_64(&offsets[0], n, nulls, &bitmap[0])


def offset_table(const uint8_t[::1] table not None, int64_t area, offset_t[::1] out not None):
    cdef int64_t n = out.shape[0] - 1, bad
    if n < 0 or table.shape[0] != 4 * n or area < 0:
        raise ValueError("the table has 4 bytes for every value")
    if offset_t is int32_t:
        if area > 0x7fffffff:
            raise ValueError("32-bit offsets do not reach over that many bytes")
    with nogil:
        if offset_t is int32_t:
            bad = offset_table_32(&table[0], n, area, &out[0])
        else:
            bad = offset_table_64(&table[0], n, area, &out[0])
    return bad


cdef int check_entries(const uint32_t[::1] indices, const uint32_t[::1] bounds, int64_t area) except -1:
    cdef int64_t count = bounds.shape[0] - 1, i
    cdef uint32_t worst = 0
    cdef bint sound = count >= 0 and bounds[count] <= area
    with nogil:
        for i in range(count):
            sound = sound and bounds[i] <= bounds[i + 1]
        for i in range(indices.shape[0]):
            worst = max(worst, indices[i])
    if not sound or (indices.shape[0] and worst >= count):
        raise ValueError("an index or a bound of an entry lies outside")
    return 0


def measure_entries(const uint32_t[::1] indices not None, const uint32_t[::1] bounds not None, int64_t limit):
    cdef int64_t total
    check_entries(indices, bounds, 0x7fffffffffffffff)
    if indices.shape[0] == 0:
        return 0
    with nogil:
        total = entries_length(&indices[0], indices.shape[0], &bounds[0], limit)
    return total


def take_variable(const uint32_t[::1] indices not None, const uint32_t[::1] bounds not None,
                  const uint8_t[::1] area not None, offset_t[::1] offsets not None, uint8_t[::1] data not None):
    cdef int64_t n = indices.shape[0]
    cdef int full
    check_offsets(offsets.shape[0], n)
    check_entries(indices, bounds, area.shape[0])
    if offset_t is int32_t:
        if data.shape[0] > 0x7fffffff:
            raise ValueError("32-bit offsets do not reach over that many bytes")
    with nogil:
        full = n == 0 or entries_length(&indices[0], n, &bounds[0], data.shape[0]) == data.shape[0]
        if full:
            if offset_t is int32_t:
                full = take_variable_32(&indices[0], n, &bounds[0], &area[0], area.shape[0], &offsets[0], &data[0],
                                        data.shape[0])
            else:
                full = take_variable_64(&indices[0], n, &bounds[0], &area[0], area.shape[0], &offsets[0], &data[0],
                                        data.shape[0])
    if not full:
        raise ValueError("data must have exactly the bytes of the chosen entries")


def first_not_utf8(const uint8_t[::1] data not None, const offset_t[::1] offsets not None):
    cdef int64_t n = offsets.shape[0] - 1, bad, i
    cdef bint sound = n >= 0 and offsets[0] >= 0 and offsets[n] <= data.shape[0]
    with nogil:
        for i in range(n):
            sound = sound and offsets[i] <= offsets[i + 1]
    if not sound:
        raise ValueError("offsets must not decrease or leave the data")
    with nogil:
        if offset_t is int32_t:
            bad = first_not_utf8_32(&data[0], &offsets[0], n)
        else:
            bad = first_not_utf8_64(&data[0], &offsets[0], n)
    return bad


def lzw(const uint8_t[::1] source not None, uint8_t[::1] out not None):
    cdef int64_t written
    with nogil:
        written = lzw_span(&source[0], source.shape[0], &out[0], out.shape[0])
    return written
