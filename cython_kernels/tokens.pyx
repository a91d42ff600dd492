# cython: language_level=3
"""Token ids to bytes and back (columns.md 6.7, 13.3, 13.4).

Access pattern: ids in order, each a load from a table of 16-byte entries that stays in the near caches; bytes in order,
each word looked up in a small cache of words, where most of a text is found. Values are independent of each other, so
blocks of them go to threads.
"""

from cython.parallel cimport prange
from cython.view cimport array
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memset

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
    void token_lengths(const token_table *t, const uint16_t *ids, int64_t n_ids, const int64_t *starts, int64_t begin,
                       int64_t end, int64_t max_bytes, int64_t *lengths, int64_t *escapes, int64_t *bad)
    int token_copy(const token_table *t, const uint16_t *ids, int64_t n_ids, const int64_t *starts,
                   const int64_t *offsets, int64_t n_out, int64_t begin, int64_t end, const uint8_t *escapes, int64_t e,
                   int64_t e_end, uint8_t *out)
    int c_remap_decode "remap_decode"(const uint8_t *s, int64_t size, const uint8_t *table, int64_t n_table,
                                      uint16_t *ids, int64_t n)
    int64_t c_remap_encode "remap_encode"(const uint16_t *ids, int64_t n, const uint16_t *positions, uint8_t *out,
                                          int64_t size)
    void c_bits_decode "bits_decode"(const uint8_t *s, int64_t size, int width, uint16_t *ids, int64_t begin,
                                     int64_t end)
    int c_bits_encode "bits_encode"(const uint16_t *ids, int64_t n, int width, uint8_t *out)
    int c_boundaries_decode "boundaries_decode"(const uint8_t *s, int64_t n, int kind, int64_t n_ids, int64_t *starts)

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

    def lengths(self, const uint16_t[::1] ids not None, const int64_t[::1] starts not None,
                const int64_t[::1] blocks not None, int64_t max_bytes, int64_t[::1] lengths not None,
                int64_t[::1] escapes not None, int threads):
        cdef int64_t n = starts.shape[0] - 1, n_blocks = blocks.shape[0] - 1, b, n_ids = ids.shape[0]
        cdef int64_t[::1] bad
        cdef const token_table *table = &self.table
        cdef const uint16_t *first = &ids[0] if n_ids else NULL
        cdef int64_t *lengths_at = &lengths[0] if lengths.shape[0] else NULL
        cdef int team = check_threads(threads)
        check_blocks(blocks, n)
        if lengths.shape[0] != n or escapes.shape[0] != n_blocks or max_bytes < 0 or max_bytes > 1 << 48:
            raise ValueError("lengths, escapes or max_bytes do not fit the values and blocks")
        if n_blocks == 0:
            return -1
        bad = _empty(n_blocks)
        for b in prange(n_blocks, nogil=True, num_threads=team, schedule="dynamic", use_threads_if=team > 1):
            token_lengths(table, first, n_ids, &starts[0], blocks[b], blocks[b + 1], max_bytes, lengths_at,
                          &escapes[b], &bad[b])
        for b in range(n_blocks):
            if bad[b] != -1:
                return bad[b]
        return -1

    def copy(self, const uint16_t[::1] ids not None, const int64_t[::1] starts not None,
             const int64_t[::1] blocks not None, const int64_t[::1] offsets not None,
             const uint8_t[::1] escapes not None, const int64_t[::1] escape_starts not None,
             uint8_t[::1] out not None, int threads):
        cdef int64_t n = starts.shape[0] - 1, n_blocks = blocks.shape[0] - 1, b, n_ids = ids.shape[0]
        cdef int64_t n_out = out.shape[0], good = 0
        cdef const token_table *table = &self.table
        cdef const uint16_t *first = &ids[0] if n_ids else NULL
        cdef uint8_t *out_at = &out[0] if n_out else NULL
        cdef const uint8_t *escapes_at = bytes_at(escapes)
        cdef int team = check_threads(threads)
        check_blocks(blocks, n)
        check_offsets(escape_starts, escapes.shape[0])
        check_offsets(offsets, n_out)
        if offsets.shape[0] != n + 1 or escape_starts.shape[0] != n_blocks + 1:
            raise ValueError("offsets or escape_starts do not fit the values and blocks")
        for b in prange(n_blocks, nogil=True, num_threads=team, schedule="dynamic", use_threads_if=team > 1):
            good += token_copy(table, first, n_ids, &starts[0], &offsets[0], n_out, blocks[b], blocks[b + 1],
                               escapes_at, escape_starts[b], escape_starts[b + 1], out_at)
        return good == n_blocks


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


def boundaries_decode(const uint8_t[::1] stream not None, int kind, int64_t n_ids, int64_t[::1] starts not None):
    cdef int64_t n = starts.shape[0] - 1
    cdef int code
    if n < 0 or stream.shape[0] != 4 * n or not 0 <= kind <= 2 or n_ids < 0:
        raise ValueError("the stream must have four bytes for each value")
    with nogil:
        code = c_boundaries_decode(&stream[0] if n else NULL, n, kind, n_ids, &starts[0])
    return code


def remap_decode(const uint8_t[::1] stream not None, const uint8_t[::1] table not None, uint16_t[::1] ids not None):
    cdef int code
    cdef int64_t n = ids.shape[0]
    with nogil:
        code = c_remap_decode(&stream[0] if stream.shape[0] else NULL, stream.shape[0],
                              &table[0] if table.shape[0] else NULL, table.shape[0] // 2, &ids[0] if n else NULL, n)
    return code


def remap_encode(const uint16_t[::1] ids not None, const uint16_t[::1] positions not None, uint8_t[::1] out not None):
    cdef int64_t written
    if positions.shape[0] != 65536:
        raise ValueError("positions must have an entry for each id")
    with nogil:
        written = c_remap_encode(&ids[0] if ids.shape[0] else NULL, ids.shape[0], &positions[0],
                                 &out[0] if out.shape[0] else NULL, out.shape[0])
    return written


def bits_decode(const uint8_t[::1] stream not None, int width, uint16_t[::1] ids not None, int threads):
    cdef int64_t n = ids.shape[0], chunk, chunks
    cdef int64_t size = stream.shape[0]
    cdef int team = check_threads(threads)
    if not 1 <= width <= 16 or size != (n * width + 7) // 8:
        raise ValueError("the stream must have the bits of all ids, of 1 to 16 bits")
    chunks = (n + 65535) // 65536
    for chunk in prange(chunks, nogil=True, num_threads=team, schedule="static", use_threads_if=team > 1):
        c_bits_decode(&stream[0], size, width, &ids[0], chunk * 65536, min(n, (chunk + 1) * 65536))


def bits_encode(const uint16_t[::1] ids not None, int width, uint8_t[::1] out not None):
    cdef int good
    if not 1 <= width <= 16 or out.shape[0] != (ids.shape[0] * width + 7) // 8:
        raise ValueError("out must have the bits of all ids, of 1 to 16 bits")
    if ids.shape[0] == 0:
        return True
    with nogil:
        good = c_bits_encode(&ids[0], ids.shape[0], width, &out[0])
    return bool(good)
