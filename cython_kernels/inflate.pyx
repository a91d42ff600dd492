# cython: language_level=3
"""Raw DEFLATE, and whole chunks of fixed width; see ``inflate.pyi`` for the contract.

Access pattern: one pass over the stored bytes of a block, front to back, and one over its raw bytes, which stay in the
second cache until they are used. Bound by the decoding of codes. `FixedBlocks` shares blocks out to threads.
"""

from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport free, malloc

cdef extern from "blocks.h" nogil:
    ctypedef struct fixed_blocks:
        const uint8_t *data
        const int64_t *start
        const int64_t *stored
        const int64_t *raw
        const int64_t *at
        int64_t n_blocks, n_raw, largest
        int deflated, differences
        int64_t width
    int64_t inflate_span(const uint8_t *source, int64_t n_source, uint8_t *out, int64_t capacity)
    void take_part_in_blocks(const fixed_blocks *b, uint8_t *out, int64_t *cells)
    void add_sums(const fixed_blocks *b, uint8_t *out, const int64_t *cells)
    int64_t read_fixed_blocks(const fixed_blocks *b, uint8_t *out, int threads)

# What the address of an empty view stands for: never read, never written.
cdef uint8_t[1] nothing


def inflate(const uint8_t[::1] source not None, uint8_t[::1] out not None):
    cdef int64_t written, n = source.shape[0], capacity = out.shape[0]
    cdef const uint8_t *begin = nothing
    cdef uint8_t *target = nothing
    if n:
        begin = &source[0]
    if capacity:
        target = &out[0]
    with nogil:
        written = inflate_span(begin, n, target, capacity)
    return written


cdef class FixedBlocks:
    cdef fixed_blocks blocks
    cdef const uint8_t[::1] data
    cdef int64_t *numbers
    cdef readonly int64_t n_values
    cdef readonly int64_t raw_bytes

    def __cinit__(self, const uint8_t[::1] data not None, const int64_t[::1] stored not None,
                  const int64_t[::1] raw not None, int64_t width, bint deflated, bint differences):
        cdef int64_t n = stored.shape[0], k, start = 0, at = 0, largest = 0
        cdef const uint8_t *begin = nothing
        if raw.shape[0] != n or not 0 < n < (1 << 40) or width not in (1, 2, 4, 8):
            raise ValueError("blocks need lengths before and after, and values a width of 1, 2, 4 or 8")
        self.numbers = <int64_t *>malloc(4 * n * sizeof(int64_t))
        if self.numbers == NULL:
            raise MemoryError
        for k in range(n):
            if stored[k] < 0 or raw[k] < 0 or stored[k] > data.shape[0] - start or raw[k] > (1 << 40) - at:
                raise ValueError(f"block {k} does not fit into the data")
            if (differences and raw[k] % 8) or (not deflated and raw[k] != stored[k]):
                raise ValueError(f"block {k} has no such length")
            self.numbers[k], self.numbers[n + k], self.numbers[2 * n + k] = start, stored[k], raw[k]
            self.numbers[3 * n + k] = at
            start += stored[k]
            at += raw[k]
            largest = max(largest, raw[k])
        if not differences and at % width:
            raise ValueError("the blocks hold no whole number of values")
        if data.shape[0]:
            begin = &data[0]
        self.data = data
        self.raw_bytes = at
        self.n_values = at // 8 if differences else at // width
        self.blocks = fixed_blocks(begin, self.numbers, self.numbers + n,
                                   self.numbers + 2 * n, self.numbers + 3 * n, n, at, largest, deflated, differences,
                                   width)

    def __dealloc__(self):
        free(self.numbers)

    def __reduce__(self):
        raise TypeError("FixedBlocks hold addresses of this process and cannot be pickled")

    def read(self, uint8_t[::1] out not None, int threads):
        cdef int64_t bad
        if out.shape[0] != self.n_values * self.blocks.width:
            raise ValueError(f"out must have {self.n_values * self.blocks.width} bytes, got {out.shape[0]}")
        if self.n_values == 0:
            return -1
        threads = max(1, min(threads, 256))
        with nogil:
            bad = read_fixed_blocks(&self.blocks, &out[0], threads)
        if bad == -2:
            raise MemoryError
        return bad

    cdef int check(self, const uint8_t[::1] out, const int64_t[::1] cells) except -1:
        if not self.blocks.deflated or out.shape[0] != self.n_values * self.blocks.width \
                or cells.shape[0] != 2 + self.blocks.n_blocks or cells[0] < 0:
            raise ValueError("taking part is for deflated blocks, with memory of all values and the cells of all blocks")
        return 0

    def take_part(self, uint8_t[::1] out not None, int64_t[::1] cells not None):
        self.check(out, cells)
        if self.n_values:
            with nogil:
                take_part_in_blocks(&self.blocks, &out[0], &cells[0])

    def end(self, uint8_t[::1] out not None, int64_t[::1] cells not None):
        self.check(out, cells)
        if cells[1] == -2:
            raise MemoryError
        if self.n_values and cells[1] == -1 and self.blocks.differences:
            with nogil:
                add_sums(&self.blocks, &out[0], &cells[0])
        return cells[1]

    @property
    def n_blocks(self):
        return self.blocks.n_blocks

    @property
    def deflated_bytes(self):
        return self.numbers[self.blocks.n_blocks - 1] + self.numbers[2 * self.blocks.n_blocks - 1] \
            if self.blocks.deflated else 0
