# cython: language_level=3
"""Token ids to bytes and back (columns.md 6.7, 13.3, 13.4).

Access pattern: ids in order, each a load from a table of 16-byte entries that stays in the near caches; bytes in order,
each word looked up in a small cache of words, where most of a text is found. Values are independent of each other, so
blocks of them are tokenized by several threads.
"""

from cpython.buffer cimport PyBuffer_FillInfo
from cpython.mem cimport PyMem_RawFree, PyMem_RawRealloc
from cython.parallel cimport prange
from cython.view cimport array
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memmove, memset

cdef extern from "omp_shim.h" nogil:
    pass

cdef extern from "token_table.h" nogil:
    enum:
        SHORT_TOKEN
        LONG_TOKEN
    ctypedef struct token_entry:
        uint8_t bytes[15]
        uint8_t length
    ctypedef struct token_table:
        token_entry *entries
        const int64_t *offsets
        const uint8_t *bytes
        int64_t n_tokens
        int64_t escape
    int64_t c_remap_encode "remap_encode"(const uint16_t *ids, int64_t n, const uint16_t *positions, uint8_t *out,
                                          int64_t size)
    int c_bits_encode "bits_encode"(const uint16_t *ids, int64_t n, int width, uint8_t *out)

cdef extern from "token_blocks.h" nogil:
    enum:
        TOKENS_ROOM
    ctypedef struct token_reader:
        const token_table *tokens
        int representation
        int width
        const uint8_t *table
        int64_t n_table
        int64_t n_ids
        int64_t n_values
        int64_t n_escapes
        int64_t max_bytes
        int64_t ids
        int64_t value
        int64_t written
        int64_t window_bytes
        int64_t escapes
        int64_t needed
        uint16_t bad_id
    int c_token_counts "token_counts"(uint32_t *counts, int64_t n, int kind, int64_t n_ids)
    void token_begin(token_reader *r, void *offsets, int wide)
    int token_step(token_reader *r, const uint8_t *s, int64_t size, int64_t *p, void *offsets, int wide, uint8_t *out,
                   int64_t capacity)
    void token_zeros(token_reader *r, void *offsets, int wide, uint8_t *out)

cdef extern from "token_pieces.h" nogil:
    enum:
        CLASS_WIDE
    const char *UNICODE_CLASSES_VERSION
    ctypedef struct merge_slot:
        uint32_t pair
        uint16_t rank
        uint16_t result
    ctypedef struct piece_slot:
        uint32_t hash
        int32_t token
    ctypedef struct bpe_model:
        const token_table *tokens
        int32_t byte_ids[256]
        merge_slot *merges
        int merge_shift
        piece_slot *pieces
        uint32_t piece_mask
        const int64_t *piece_offsets
        const uint8_t *piece_bytes
        const uint16_t *piece_ids
        int64_t longest_piece
        const int64_t *special_offsets
        const uint8_t *special_bytes
        const uint16_t *special_ids
        const int32_t *special_parents
        int64_t n_specials
        uint8_t special_first[256]
        uint8_t byte_classes[256]
    void add_merge(bpe_model *m, uint16_t left, uint16_t right, uint16_t rank, uint16_t result)
    void add_piece(bpe_model *m, int32_t token)
    int64_t encode_block(const bpe_model *m, const int64_t *offsets, const uint8_t *data, int64_t begin, int64_t end,
                         int verify, uint16_t *ids, uint8_t *escapes, int64_t *counts, int64_t *n_ids,
                         int64_t *n_escapes)
    int c_class_of "class_of"(uint32_t code)

ctypedef fused offset_t:
    int32_t
    int64_t

UNICODE_VERSION = (<bytes>UNICODE_CLASSES_VERSION).decode("ascii")


cdef const uint8_t *bytes_at(const uint8_t[::1] view) noexcept:
    return &view[0] if view.shape[0] else NULL


cdef int check_offsets(const int64_t[::1] offsets, int64_t size) except -1:
    """Offsets of n values begin at 0, do not decrease, and end at `size`."""
    cdef int64_t i
    if offsets.shape[0] < 1 or offsets[0] != 0 or offsets[offsets.shape[0] - 1] != size:
        raise ValueError("offsets must run from 0 to the number of bytes")
    for i in range(1, offsets.shape[0]):
        if offsets[i] < offsets[i - 1]:
            raise ValueError("offsets must not decrease")
    return 0


cdef int check_blocks(const int64_t[::1] blocks, int64_t n_values) except -1:
    cdef int64_t b
    if blocks.shape[0] < 1 or blocks[0] != 0 or blocks[blocks.shape[0] - 1] != n_values:
        raise ValueError("blocks must run from 0 to the number of values")
    for b in range(1, blocks.shape[0]):
        if blocks[b] < blocks[b - 1]:
            raise ValueError("blocks must not decrease")
    return 0


cdef int check_threads(int threads) except -1:
    if threads < 1:
        raise ValueError(f"threads must be at least 1, got {threads}")
    return min(threads, 1024)


def char_class(uint32_t code):
    return c_class_of(code) if code < 0x110000 else -1


cdef class TokenTable:
    cdef token_table table
    cdef object kept  # the views that the pointers of `table` point into
    cdef readonly int64_t n_tokens
    cdef readonly int64_t escape

    def __cinit__(self, const int64_t[::1] offsets not None, const uint8_t[::1] data not None, int64_t escape):
        cdef int64_t i, length, n
        check_offsets(offsets, data.shape[0])
        n = offsets.shape[0] - 1
        if n > 65536 or escape < 0 or escape > 65535:
            raise ValueError("at most 65536 tokens, and an escape id of 16 bits")
        memset(&self.table, 0, sizeof(token_table))
        self.table.entries = <token_entry *> calloc(n + 1, sizeof(token_entry))
        if self.table.entries == NULL:
            raise MemoryError
        self.kept = (offsets, data)
        self.table.offsets = &offsets[0]
        self.table.bytes = bytes_at(data)
        self.table.n_tokens = self.n_tokens = n
        self.table.escape = self.escape = escape
        for i in range(n):
            length = offsets[i + 1] - offsets[i]
            if length <= SHORT_TOKEN:
                if length:
                    memcpy(self.table.entries[i].bytes, &data[offsets[i]], length)
                self.table.entries[i].length = length
            else:
                self.table.entries[i].length = LONG_TOKEN

    def __dealloc__(self):
        free(self.table.entries)


cdef int64_t with_slack(int64_t needed, double expected) noexcept nogil:
    """What to take where `needed` bytes are needed and `expected` seem to be coming: a quarter more at most."""
    cdef int64_t more = needed // 4
    if expected < <double> (needed + more):
        more = max(<int64_t> 0, <int64_t> expected - needed)
    return needed + more


cdef class GrownBytes:
    """Memory that grows, as a writable buffer; see ``tokens.pyi`` for the contract."""

    cdef uint8_t *data
    cdef Py_ssize_t size, capacity, exports
    cdef list left  # blocks that were looked at when they would have been moved

    def __dealloc__(self):
        PyMem_RawFree(self.data)

    def __len__(self):
        return self.size

    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(view, self, self.data if self.data != NULL else <uint8_t *> self.nothing(), self.size, 0, flags)
        self.exports += 1

    def __releasebuffer__(self, Py_buffer *view):
        self.exports -= 1

    cdef void *nothing(self):
        return &self.size

    cdef int resize(self, Py_ssize_t capacity) except -1:
        cdef uint8_t *moved
        cdef GrownBytes old
        if self.exports and self.data != NULL:
            old = GrownBytes.__new__(GrownBytes)
            moved = <uint8_t *> PyMem_RawRealloc(NULL, capacity if capacity else 1)
            if moved == NULL:
                raise MemoryError
            memcpy(moved, self.data, min(self.size, capacity))
            old.data = self.data
            self.left = [old] if self.left is None else self.left + [old]
        else:
            moved = <uint8_t *> PyMem_RawRealloc(self.data, capacity if capacity else 1)
            if moved == NULL:
                raise MemoryError
        self.data, self.capacity = moved, capacity
        return 0

    def extend(self, Py_ssize_t more, double ahead=1.0):
        if more < 0 or more > (1 << 48):
            raise ValueError("more must be a number of bytes")
        if self.size + more > self.capacity:
            self.resize(with_slack(self.size + more, 1.02 * ahead * <double> (self.size + more)))
        self.size += more

    def fit(self):
        if self.size < self.capacity and not self.exports:
            self.resize(self.size)


def token_counts(uint32_t[::1] counts not None, int kind, int64_t n_ids):
    cdef int code
    if not 0 <= kind <= 2 or n_ids < 0:
        raise ValueError("there are three kinds of boundaries")
    with nogil:
        code = c_token_counts(&counts[0] if counts.shape[0] else NULL, counts.shape[0], kind, n_ids)
    return code


cdef class TokenReader:
    cdef token_reader reader
    cdef TokenTable tokens
    cdef const uint8_t[::1] table
    cdef uint8_t *data
    cdef GrownBytes grown
    cdef int64_t base, capacity
    cdef double ahead
    cdef bint begun
    cdef readonly int64_t position

    def __init__(self, TokenTable tokens not None, int representation, const uint8_t[::1] table not None,
                 int64_t n_values, int64_t n_ids, int64_t n_escapes, int64_t max_bytes, GrownBytes grown=None,
                 double ahead=1.0):
        cdef token_reader *r = &self.reader
        if not 0 <= representation <= 2 or not 0 <= n_values <= (1 << 40) or not 0 <= n_ids <= (1 << 40) or not 0 <= max_bytes <= (1 << 48) \
                or not 0 <= n_escapes <= max_bytes or self.data != NULL:
            raise ValueError("a layout that there is not, or numbers that are out of bounds")
        self.tokens, self.table = tokens, table
        r.tokens, r.representation = &tokens.table, representation
        r.table, r.n_table = bytes_at(table), table.shape[0] // 2
        r.n_values, r.n_ids, r.n_escapes, r.max_bytes = n_values, n_ids, n_escapes, max_bytes
        self.grown, self.ahead = GrownBytes() if grown is None else grown, ahead
        self.base = self.grown.size
        if self.base + n_escapes > self.grown.capacity or self.grown.data == NULL or self.grown.exports:
            self.grown.resize(self.base + n_escapes)
        # Ours until it is given back: nobody can look at it meanwhile.
        self.data, self.capacity = self.grown.data, self.grown.capacity - self.base
        self.grown.data, self.grown.size, self.grown.capacity = NULL, 0, 0
        if n_escapes:
            memset(self.data + self.base + self.capacity - n_escapes, 0, n_escapes)

    def __dealloc__(self):
        PyMem_RawFree(self.data)

    @property
    def ids(self):
        return self.reader.ids

    @property
    def escapes(self):
        return self.reader.escapes

    @property
    def bad_id(self):
        return self.reader.bad_id

    @property
    def values(self):
        return self.reader.value

    def put_escapes(self, const uint8_t[::1] part not None, int64_t at):
        cdef int64_t n = part.shape[0]
        if self.data == NULL or self.begun or not 0 <= at <= self.reader.n_escapes - n:
            raise ValueError("escape bytes come before the ids, each at its place")
        if n:
            memcpy(self.data + self.base + self.capacity - self.reader.n_escapes + at, &part[0], n)

    cdef int offsets_at(self, offset_t[::1] offsets) except -1:
        if self.data == NULL or offsets.shape[0] != self.reader.n_values + 1:
            raise ValueError("offsets has one place more than there are values, and a reader gives its bytes once")
        return 0

    def begin(self, offset_t[::1] offsets not None, int width):
        self.offsets_at(offsets)
        if self.begun or not 0 <= width <= 16 or (self.reader.representation == 2) != (width > 0):
            raise ValueError("a reader begins once, and packed ids have 1 to 16 bits")
        self.begun, self.reader.width = True, width
        with nogil:
            token_begin(&self.reader, &offsets[0], offset_t is int64_t)

    def feed(self, const uint8_t[::1] block not None, offset_t[::1] offsets not None):
        cdef int code = 0
        cdef int64_t n = block.shape[0], at = 0
        self.offsets_at(offsets)
        if not self.begun:
            raise ValueError("a reader must have begun")
        with nogil:
            while True:
                code = token_step(&self.reader, &block[0] if n else NULL, n, &at, &offsets[0], offset_t is int64_t,
                                  self.data + self.base, self.capacity)
                if code != TOKENS_ROOM or not self.grow():
                    break
        self.position = at
        if code == TOKENS_ROOM:
            raise MemoryError
        return code

    cdef int grow(self) noexcept nogil:
        """Make room for what is needed, and some more if that many bytes seem to be coming."""
        cdef token_reader *r = &self.reader
        cdef int64_t waiting = r.n_escapes - r.escapes, room
        cdef double expected = <double> (r.written + r.window_bytes) * <double> r.n_ids / <double> max(r.ids, 1)
        cdef uint8_t *grown
        room = with_slack(self.base + r.needed, 1.02 * self.ahead * (expected + <double> self.base)) - self.base
        grown = <uint8_t *> PyMem_RawRealloc(self.data, self.base + room if self.base + room else 1)
        if grown == NULL:
            return 0
        if waiting:
            memmove(grown + self.base + room - waiting, grown + self.base + self.capacity - waiting, waiting)
        self.data, self.capacity = grown, room
        return 1

    def zeros(self, offset_t[::1] offsets not None):
        cdef token_reader *r = &self.reader
        cdef int64_t length, size
        cdef uint8_t *grown
        self.offsets_at(offsets)
        if r.tokens.n_tokens == 0 or r.n_escapes or self.begun:
            raise ValueError("ids of no bits are all token 0, and nothing else")
        length = r.tokens.offsets[1] - r.tokens.offsets[0]
        if r.n_ids and length > r.max_bytes // r.n_ids:
            raise ValueError("more bytes than allowed")
        size = r.n_ids * length
        if offset_t is int32_t:
            if size > 0x7fffffff:
                raise ValueError("32-bit offsets do not reach over that many bytes")
        grown = <uint8_t *> PyMem_RawRealloc(self.data, self.base + size if self.base + size else 1)
        if grown == NULL:
            raise MemoryError
        self.data, self.capacity, self.begun = grown, size, True
        with nogil:
            token_zeros(r, &offsets[0], offset_t is int64_t, self.data + self.base)

    def take(self):
        cdef GrownBytes grown = self.grown
        if self.data == NULL:
            raise ValueError("a reader gives its bytes once")
        if grown.data != NULL:
            raise ValueError("the memory that was handed in is in use again")
        grown.data, grown.size, grown.capacity = self.data, self.base + self.reader.written, self.base + self.capacity
        self.data, self.grown, self.capacity = NULL, None, 0
        return grown


cdef class BpeModel:
    cdef bpe_model model
    cdef TokenTable tokens
    cdef object kept  # the views that the pointers of `model` point into

    def __cinit__(self, TokenTable tokens not None, const int32_t[::1] byte_ids not None,
                  const int64_t[::1] piece_offsets not None, const uint8_t[::1] piece_bytes not None,
                  const uint16_t[::1] piece_ids not None, const uint16_t[:, ::1] merges not None,
                  const int64_t[::1] special_offsets not None, const uint8_t[::1] special_bytes not None,
                  const uint16_t[::1] special_ids not None, const int32_t[::1] special_parents not None):
        cdef int64_t i, n_pieces = piece_offsets.shape[0] - 1, n_specials = special_offsets.shape[0] - 1
        cdef int64_t n_merges = merges.shape[0]
        cdef int bits = 4
        memset(&self.model, 0, sizeof(bpe_model))
        check_offsets(piece_offsets, piece_bytes.shape[0])
        check_offsets(special_offsets, special_bytes.shape[0])
        if (byte_ids.shape[0] != 256 or merges.shape[1] != 4 or piece_ids.shape[0] != n_pieces or n_pieces > 65536
                or special_ids.shape[0] != n_specials or special_parents.shape[0] != n_specials):
            raise ValueError("the parts of the model do not fit together")
        for i in range(n_specials):
            if special_offsets[i + 1] == special_offsets[i] or not -1 <= special_parents[i] < i:
                raise ValueError("specials must not be empty, and a parent comes before its child")
            self.model.special_first[special_bytes[special_offsets[i]]] = 1
        for i in range(256):
            if not -1 <= byte_ids[i] < 65535:
                raise ValueError("ids of bytes must be below 65535")
            self.model.byte_ids[i] = byte_ids[i]
            self.model.byte_classes[i] = c_class_of(i) if i < 128 else CLASS_WIDE
        for i in range(n_merges):
            if merges[i, 0] == 65535 or merges[i, 1] == 65535 or merges[i, 3] == 65535:
                raise ValueError("ids of merges must be below 65535")
        self.tokens = tokens
        self.kept = (piece_offsets, piece_bytes, piece_ids, special_offsets, special_bytes, special_ids,
                     special_parents)
        self.model.tokens = &tokens.table
        while (<int64_t> 1 << bits) < 2 * n_merges:
            bits += 1
        self.model.merge_shift = 64 - bits
        self.model.merges = <merge_slot *> malloc((<size_t> 1 << bits) * sizeof(merge_slot))
        if self.model.merges == NULL:
            raise MemoryError
        memset(self.model.merges, 255, (<size_t> 1 << bits) * sizeof(merge_slot))
        for i in range(n_merges):
            add_merge(&self.model, merges[i, 0], merges[i, 1], merges[i, 2], merges[i, 3])
        bits = 4
        while (<int64_t> 1 << bits) < 2 * n_pieces:
            bits += 1
        self.model.piece_mask = (<uint32_t> 1 << bits) - 1
        self.model.pieces = <piece_slot *> malloc((<size_t> 1 << bits) * sizeof(piece_slot))
        if self.model.pieces == NULL:
            raise MemoryError
        memset(self.model.pieces, 255, (<size_t> 1 << bits) * sizeof(piece_slot))
        self.model.piece_offsets = &piece_offsets[0]
        self.model.piece_bytes = bytes_at(piece_bytes)
        self.model.piece_ids = &piece_ids[0] if n_pieces else NULL
        for i in range(n_pieces):
            if piece_offsets[i + 1] > piece_offsets[i]:
                add_piece(&self.model, i)
        self.model.special_offsets = &special_offsets[0]
        self.model.special_bytes = bytes_at(special_bytes)
        self.model.special_ids = &special_ids[0] if n_specials else NULL
        self.model.special_parents = &special_parents[0] if n_specials else NULL
        self.model.n_specials = n_specials

    def __dealloc__(self):
        free(self.model.merges)
        free(self.model.pieces)

    def encode(self, const int64_t[::1] offsets not None, const uint8_t[::1] data not None,
               const int64_t[::1] blocks not None, uint16_t[::1] ids not None, uint8_t[::1] escapes not None,
               int64_t[::1] counts not None, int64_t[::1] block_ids not None, int64_t[::1] block_escapes not None,
               bint verify, int threads):
        cdef int64_t n = offsets.shape[0] - 1, n_blocks = blocks.shape[0] - 1, b
        cdef int64_t[::1] bad
        cdef const bpe_model *model = &self.model
        cdef const uint8_t *data_at = bytes_at(data)
        cdef uint16_t *ids_at = &ids[0] if ids.shape[0] else NULL
        cdef uint8_t *escapes_at = &escapes[0] if escapes.shape[0] else NULL
        cdef int64_t *counts_at = &counts[0] if counts.shape[0] else NULL
        cdef int team = check_threads(threads)
        check_offsets(offsets, data.shape[0])
        check_blocks(blocks, n)
        for b in range(n):
            if offsets[b + 1] - offsets[b] > 0x7FFFFFFF:
                raise ValueError("a value of 2 GiB or more cannot be tokenized")
        if (ids.shape[0] < data.shape[0] or escapes.shape[0] < data.shape[0] or counts.shape[0] != n
                or block_ids.shape[0] != n_blocks or block_escapes.shape[0] != n_blocks):
            raise ValueError("an output is too short")
        if n_blocks == 0:
            return -1
        bad = _empty(n_blocks)
        for b in prange(n_blocks, nogil=True, num_threads=team, schedule="dynamic", use_threads_if=team > 1):
            bad[b] = encode_block(model, &offsets[0], data_at, blocks[b], blocks[b + 1], verify, ids_at, escapes_at,
                                  counts_at, &block_ids[b], &block_escapes[b])
        for b in range(n_blocks):
            if bad[b] == -2:
                raise MemoryError
            if bad[b] >= 0:
                return bad[b]
        return -1


cdef int64_t[::1] _empty(int64_t n):
    return array(shape=(n,), itemsize=sizeof(int64_t), format="q")


def remap_encode(const uint16_t[::1] ids not None, const uint16_t[::1] positions not None, uint8_t[::1] out not None):
    cdef int64_t written
    if positions.shape[0] != 65536:
        raise ValueError("positions must have an entry for each id")
    with nogil:
        written = c_remap_encode(&ids[0] if ids.shape[0] else NULL, ids.shape[0], &positions[0],
                                 &out[0] if out.shape[0] else NULL, out.shape[0])
    return written


def bits_encode(const uint16_t[::1] ids not None, int width, uint8_t[::1] out not None):
    cdef int good
    if not 1 <= width <= 16 or out.shape[0] != (ids.shape[0] * width + 7) // 8:
        raise ValueError("out must have the bits of all ids, of 1 to 16 bits")
    if ids.shape[0] == 0:
        return True
    with nogil:
        good = c_bits_encode(&ids[0], ids.shape[0], width, &out[0])
    return bool(good)
