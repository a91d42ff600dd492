/* Loops of the writers of encoded columns: hash dictionaries, length-prefixed values, affixes, bounds, LZW.
 *
 * All arguments are checked by the callers (encode.pyx): offsets never decrease and lie inside the data, outputs have
 * the sizes that the comments name. */
#ifndef COLSTORE_ENCODE_H
#define COLSTORE_ENCODE_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------------------------------------- small helpers */

static inline void put_u32(uint8_t *out, uint32_t value) {
    out[0] = (uint8_t)value;
    out[1] = (uint8_t)(value >> 8);
    out[2] = (uint8_t)(value >> 16);
    out[3] = (uint8_t)(value >> 24);
}

static inline uint64_t load_u64(const uint8_t *p) {
    uint64_t v;
    memcpy(&v, p, 8);
    return v;
}

static inline uint32_t load_u32(const uint8_t *p) {
    uint32_t v;
    memcpy(&v, p, 4);
    return v;
}

/* All of n <= 8 bytes in one word, without reading a byte beyond them: two overlapping loads. */
static inline uint64_t load_few(const uint8_t *p, int64_t n) {
    if (n >= 4) return (uint64_t)load_u32(p) << 32 | load_u32(p + n - 4);
    if (n == 0) return 0;
    return (uint64_t)p[0] << 16 | (uint64_t)p[n >> 1] << 8 | p[n - 1];
}

static inline int same_bytes(const uint8_t *a, const uint8_t *b, int64_t n) {
    if (n <= 8) return load_few(a, n) == load_few(b, n);
    for (int64_t i = 0; i + 8 < n; i += 8)
        if (load_u64(a + i) != load_u64(b + i)) return 0;
    return load_u64(a + n - 8) == load_u64(b + n - 8);
}

static inline uint64_t mix64(uint64_t a, uint64_t b) {
    __uint128_t product = (__uint128_t)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static inline uint64_t hash_bytes(const uint8_t *p, int64_t n, uint64_t seed) {
    uint64_t h = seed ^ ((uint64_t)n * 0x9e3779b97f4a7c15ULL);
    if (n <= 8) return mix64(h ^ load_few(p, n), 0xa0761d6478bd642fULL);
    for (int64_t i = 0; i + 8 < n; i += 8) h = mix64(h ^ load_u64(p + i), 0xd6e8feb86659fd93ULL);
    return mix64(h ^ load_u64(p + n - 8), 0xa0761d6478bd642fULL);
}

/* A copy of few bytes; values of columns are mostly short, and a call of memcpy costs more than they do. `room` is
 * the number of bytes that may be written at `out`, `have` the number that may be read at `p`. */
static inline void copy_short(uint8_t *out, const uint8_t *p, int64_t n, int64_t room, int64_t have) {
    if (n <= 16 && room >= 16 && have >= 16) {
        memcpy(out, p, 16);
    } else if (n <= 32 && room >= 32 && have >= 32) {
        memcpy(out, p, 32);
    } else {
        memcpy(out, p, (size_t)n);
    }
}

/* ------------------------------------------------------------------------------------------------------- Delta */

/* Columns of a caller need not be aligned. */
#define LOADER(T)                                                    \
    static inline T load_##T(const uint8_t *values, int64_t i) {     \
        T value;                                                     \
        memcpy(&value, values + i * (int64_t)sizeof(T), sizeof(T));  \
        return value;                                                \
    }
LOADER(int8_t)
LOADER(int16_t)
LOADER(int32_t)
LOADER(int64_t)
LOADER(uint8_t)
LOADER(uint16_t)
LOADER(uint32_t)
LOADER(uint64_t)
#undef LOADER

#define DELTA(T, NAME)                                                                                           \
    static void delta_##NAME(const uint8_t *values, int64_t n, uint64_t *out) {                                  \
        if (n == 0) return;                                                                                      \
        out[0] = (uint64_t)(int64_t)load_##T(values, 0);                                                         \
        for (int64_t i = 1; i < n; i++)                                                                          \
            out[i] = (uint64_t)(int64_t)load_##T(values, i) - (uint64_t)(int64_t)load_##T(values, i - 1);        \
    }
DELTA(int8_t, i8)
DELTA(int16_t, i16)
DELTA(int32_t, i32)
DELTA(int64_t, i64)
DELTA(uint8_t, u8)
DELTA(uint16_t, u16)
DELTA(uint32_t, u32)
#undef DELTA

static void delta_encode(const uint8_t *values, int64_t n, int width, int is_signed, uint64_t *out) {
    switch (width * 2 + is_signed) {
    case 3: delta_i8(values, n, out); break;
    case 5: delta_i16(values, n, out); break;
    case 9: delta_i32(values, n, out); break;
    case 2: delta_u8(values, n, out); break;
    case 4: delta_u16(values, n, out); break;
    case 8: delta_u32(values, n, out); break;
    default: delta_i64(values, n, out); break; /* uint64 has the same bits */
    }
}

/* ----------------------------------------------------------------------------------------------- bit packing */

/* `codes` at `width` bits (1..32) each, first value in the highest bits; out has ceil(n * width / 8) bytes. */
static void pack_msb(const uint32_t *codes, int64_t n, int width, uint8_t *out) {
    uint64_t acc = 0;
    int bits = 0;
    for (int64_t i = 0; i < n; i++) {
        acc = (acc << width) | codes[i];
        bits += width;
        if (bits >= 32) {
            uint32_t word = (uint32_t)(acc >> (bits - 32));
            out[0] = (uint8_t)(word >> 24);
            out[1] = (uint8_t)(word >> 16);
            out[2] = (uint8_t)(word >> 8);
            out[3] = (uint8_t)word;
            out += 4;
            bits -= 32;
        }
    }
    while (bits > 0) {
        *out++ = bits >= 8 ? (uint8_t)(acc >> (bits - 8)) : (uint8_t)(acc << (8 - bits));
        bits -= 8;
    }
}

/* ------------------------------------------------------------------------------------------- hash dictionaries */

typedef struct {
    uint32_t *slots;  /* code + 1, 0 = free */
    uint32_t *hashes; /* of each code: most unequal keys are told apart without a look at them */
    int64_t mask;
    int64_t entries;
    int64_t room; /* length of hashes */
} code_table;

static int code_table_init(code_table *t, int64_t slots) {
    t->slots = (uint32_t *)calloc((size_t)slots, sizeof(uint32_t));
    t->hashes = (uint32_t *)malloc((size_t)(slots / 2) * sizeof(uint32_t));
    t->mask = slots - 1;
    t->entries = 0;
    t->room = slots / 2;
    return t->slots != NULL && t->hashes != NULL;
}

static void code_table_free(code_table *t) {
    free(t->slots);
    free(t->hashes);
}

static int code_table_grow(code_table *t) {
    int64_t slots = (t->mask + 1) * 4;
    uint32_t *grown = (uint32_t *)calloc((size_t)slots, sizeof(uint32_t));
    uint32_t *hashes = (uint32_t *)realloc(t->hashes, (size_t)(slots / 2) * sizeof(uint32_t));
    if (hashes != NULL) t->hashes = hashes;
    if (grown == NULL || hashes == NULL) {
        free(grown);
        return 0;
    }
    for (int64_t code = 0; code < t->entries; code++) {
        int64_t at = t->hashes[code] & (slots - 1);
        while (grown[at]) at = (at + 1) & (slots - 1);
        grown[at] = (uint32_t)code + 1;
    }
    free(t->slots);
    t->slots = grown;
    t->mask = slots - 1;
    t->room = slots / 2;
    return 1;
}

/* The loop of both dictionaries. HASH: 64 bits of row i. SAME(f): whether row i equals row f. Codes and first rows go
 * to `codes` (n) and `firsts` (min(n, limit)). Returns the entries, -1 when they pass `limit`, -2 without memory. */
#define BUILD_CODES(HASH, SAME)                                                                                  \
    code_table t;                                                                                                \
    if (!code_table_init(&t, 4096)) {                                                                            \
        code_table_free(&t);                                                                                     \
        return -2;                                                                                               \
    }                                                                                                            \
    int64_t result = 0;                                                                                          \
    for (int64_t i = 0; i < n; i++) {                                                                            \
        uint64_t full = (HASH);                                                                                  \
        uint32_t hash = (uint32_t)(full ^ (full >> 32));                                                         \
        int64_t at = hash & t.mask;                                                                              \
        uint32_t found;                                                                                          \
        while ((found = t.slots[at]) != 0) {                                                                     \
            if (t.hashes[found - 1] == hash) {                                                                   \
                int64_t f = firsts[found - 1];                                                                   \
                if (SAME) break;                                                                                 \
            }                                                                                                    \
            at = (at + 1) & t.mask;                                                                              \
        }                                                                                                        \
        if (found) {                                                                                             \
            codes[i] = found - 1;                                                                                \
            continue;                                                                                            \
        }                                                                                                        \
        if (t.entries >= limit) {                                                                                \
            result = -1;                                                                                         \
            break;                                                                                               \
        }                                                                                                        \
        if (t.entries >= t.room) {                                                                               \
            if (!code_table_grow(&t)) {                                                                          \
                result = -2;                                                                                     \
                break;                                                                                           \
            }                                                                                                    \
            at = hash & t.mask;                                                                                  \
            while (t.slots[at]) at = (at + 1) & t.mask;                                                          \
        }                                                                                                        \
        codes[i] = (uint32_t)t.entries;                                                                          \
        firsts[t.entries] = (uint32_t)i;                                                                         \
        t.hashes[t.entries] = hash;                                                                              \
        t.slots[at] = (uint32_t)++t.entries;                                                                     \
    }                                                                                                            \
    if (result == 0) result = t.entries;                                                                         \
    code_table_free(&t);                                                                                         \
    return result;

static int64_t codes_u64(const uint8_t *v, int64_t n, int64_t limit, uint64_t seed, uint32_t *codes,
                         uint32_t *firsts) {
    BUILD_CODES(mix64(load_uint64_t(v, i) ^ seed, 0x9e3779b97f4a7c15ULL),
                load_uint64_t(v, f) == load_uint64_t(v, i))
}

static int64_t codes_u32(const uint8_t *v, int64_t n, int64_t limit, uint64_t seed, uint32_t *codes,
                         uint32_t *firsts) {
    BUILD_CODES(mix64(load_uint32_t(v, i) ^ seed, 0x9e3779b97f4a7c15ULL),
                load_uint32_t(v, f) == load_uint32_t(v, i))
}

/* Of few values of two bytes: a table of all 65536 would take longer to clear. */
static int64_t codes_few_u16(const uint8_t *v, int64_t n, int64_t limit, uint64_t seed, uint32_t *codes,
                             uint32_t *firsts) {
    BUILD_CODES(mix64(load_uint16_t(v, i) ^ seed, 0x9e3779b97f4a7c15ULL),
                load_uint16_t(v, f) == load_uint16_t(v, i))
}

#define DIRECT_CODES(T, COUNT, NAME)                                                                             \
    static int64_t codes_##NAME(const uint8_t *v, int64_t n, int64_t limit, uint32_t *codes, uint32_t *firsts) { \
        uint32_t *of = (uint32_t *)calloc(COUNT, sizeof(uint32_t));                                              \
        int64_t entries = 0;                                                                                     \
        if (of == NULL) return -2;                                                                               \
        for (int64_t i = 0; i < n; i++) {                                                                        \
            T value = load_##T(v, i);                                                                            \
            uint32_t code = of[value];                                                                           \
            if (code == 0) {                                                                                     \
                if (entries >= limit) {                                                                          \
                    entries = -1;                                                                                \
                    break;                                                                                       \
                }                                                                                                \
                firsts[entries] = (uint32_t)i;                                                                   \
                of[value] = code = (uint32_t)++entries;                                                          \
            }                                                                                                    \
            codes[i] = code - 1;                                                                                 \
        }                                                                                                        \
        free(of);                                                                                                \
        return entries;                                                                                          \
    }
DIRECT_CODES(uint8_t, 256, u8)
DIRECT_CODES(uint16_t, 65536, u16)
#undef DIRECT_CODES

static int64_t codes_fixed(const uint8_t *v, int64_t n, int width, int64_t limit, uint64_t seed, uint32_t *codes,
                           uint32_t *firsts) {
    switch (width) {
    case 1: return codes_u8(v, n, limit, codes, firsts);
    case 2: return n < 8192 ? codes_few_u16(v, n, limit, seed, codes, firsts) : codes_u16(v, n, limit, codes, firsts);
    case 4: return codes_u32(v, n, limit, seed, codes, firsts);
    default: return codes_u64(v, n, limit, seed, codes, firsts);
    }
}

/* New numbers for the codes of a ready dictionary of `k` entries, in order of first appearance. `number` (k) starts
 * as zeros and ends as new code + 1 of each entry in use; `order` (k) holds the old codes in new order. Returns the
 * entries in use, -1 for a code outside 0..k-1. */
#define RENUMBER(T, NAME)                                                                                        \
    static int64_t renumber_##NAME(const T *old, int64_t n, int64_t k, uint32_t *number, uint32_t *codes,        \
                                   uint32_t *order) {                                                            \
        int64_t used = 0;                                                                                        \
        for (int64_t i = 0; i < n; i++) {                                                                        \
            if ((int64_t)old[i] < 0 || (int64_t)old[i] >= k) return -1;                                          \
            uint32_t code = number[old[i]];                                                                      \
            if (code == 0) {                                                                                     \
                order[used] = (uint32_t)old[i];                                                                  \
                number[old[i]] = code = (uint32_t)++used;                                                        \
            }                                                                                                    \
            codes[i] = code - 1;                                                                                 \
        }                                                                                                        \
        return used;                                                                                             \
    }
RENUMBER(int64_t, i64)
#undef RENUMBER

/* -------------------------------------------------------------------------------- values of variable length */

/* A number that orders values as their first eight bytes do; of shorter ones, as if zeros followed. `end` is where
 * the memory ends. */
static inline uint64_t sort_key(const uint8_t *p, int64_t n, const uint8_t *end) {
    if (n >= 8) return __builtin_bswap64(load_u64(p));
    if (n <= 0) return 0;
    if (end - p >= 8) return __builtin_bswap64(load_u64(p)) & (UINT64_MAX << (64 - 8 * n));
    uint64_t key = 0;
    for (int64_t i = 0; i < n; i++) key |= (uint64_t)p[i] << (56 - 8 * i);
    return key;
}

/* The same loops for 32 and 64 bit offsets. `off` has n + 1 entries, value i is data[off[i] .. off[i+1]). */
#define VARIABLE_KERNELS(O, NAME)                                                                                \
    /* The number of the first bad offset, or -1. */                                                             \
    static int64_t bad_offset_##NAME(const O *off, int64_t n, int64_t data_length) {                             \
        if (off[0] < 0) return 0;                                                                                \
        for (int64_t i = 0; i < n; i++)                                                                          \
            if (off[i + 1] < off[i]) return i + 1;                                                               \
        return (int64_t)off[n] > data_length ? n : -1;                                                           \
    }                                                                                                            \
    static int64_t longest_##NAME(const O *off, int64_t n) {                                                     \
        int64_t longest = 0;                                                                                     \
        for (int64_t i = 0; i < n; i++) {                                                                        \
            int64_t length = (int64_t)off[i + 1] - (int64_t)off[i];                                              \
            longest = length > longest ? length : longest;                                                       \
        }                                                                                                        \
        return longest;                                                                                          \
    }                                                                                                            \
    /* u32 length and bytes of each value without its first `prefix` and last `suffix` bytes. */                 \
    static void prefixed_##NAME(const O *off, int64_t n, const uint8_t *data, int64_t prefix, int64_t suffix,    \
                                uint8_t *out, int64_t out_length) {                                              \
        const uint8_t *end = data + off[n];                                                                      \
        uint8_t *out_end = out + out_length;                                                                     \
        for (int64_t i = 0; i < n; i++) {                                                                        \
            const uint8_t *p = data + off[i] + prefix;                                                           \
            int64_t length = (int64_t)off[i + 1] - (int64_t)off[i] - prefix - suffix;                            \
            put_u32(out, (uint32_t)length);                                                                      \
            out += 4;                                                                                            \
            copy_short(out, p, length, out_end - out, end - p);                                                  \
            out += length;                                                                                       \
        }                                                                                                        \
    }                                                                                                            \
    /* Bytes that begin and end all of n >= 1 values, and the shortest length: result[0..2]. */                  \
    static void affixes_##NAME(const O *off, int64_t n, const uint8_t *data, int64_t *result) {                  \
        const uint8_t *first = data + off[0];                                                                    \
        int64_t length0 = (int64_t)off[1] - (int64_t)off[0];                                                     \
        const uint8_t *first_end = first + length0;                                                              \
        int64_t prefix = length0, suffix = length0, shortest = length0;                                          \
        for (int64_t i = 1; i < n; i++) {                                                                        \
            const uint8_t *p = data + off[i], *p_end = data + off[i + 1];                                        \
            int64_t length = p_end - p, k;                                                                       \
            if (length < shortest) shortest = length;                                                            \
            if (prefix > length) prefix = length;                                                                \
            if (suffix > length) suffix = length;                                                                \
            for (k = 0; k < prefix && p[k] == first[k]; k++) {                                                   \
            }                                                                                                    \
            prefix = k;                                                                                          \
            for (k = 0; k < suffix && p_end[-1 - k] == first_end[-1 - k]; k++) {                                 \
            }                                                                                                    \
            suffix = k;                                                                                          \
            if (prefix == 0 && suffix == 0) break; /* the shortest length does not matter then */              \
        }                                                                                                        \
        result[0] = prefix;                                                                                      \
        result[1] = suffix;                                                                                      \
        result[2] = shortest;                                                                                    \
    }                                                                                                            \
    static int compare_##NAME(const O *off, const uint8_t *data, int64_t i, int64_t j) {                         \
        int64_t a = (int64_t)off[i + 1] - (int64_t)off[i], b = (int64_t)off[j + 1] - (int64_t)off[j];            \
        int order = memcmp(data + off[i], data + off[j], (size_t)(a < b ? a : b));                               \
        return order != 0 ? order : (a > b) - (a < b);                                                           \
    }                                                                                                            \
    /* Rows of the bytewise least and greatest of n >= 1 values, shortest and longest length: result[0..3]. Most \
     * values are told apart from both by their first eight bytes behind the bytes that all begin with (`skip`). */ \
    static void bounds_##NAME(const O *off, int64_t n, const uint8_t *data, int64_t skip, int64_t *result) {     \
        int64_t least = 0, greatest = 0, shortest = (int64_t)off[1] - (int64_t)off[0], longest = shortest;       \
        const uint8_t *end = data + off[n];                                                                      \
        uint64_t low = sort_key(data + off[0] + skip, shortest - skip, end), high = low;                         \
        for (int64_t i = 1; i < n; i++) {                                                                        \
            int64_t length = (int64_t)off[i + 1] - (int64_t)off[i];                                              \
            uint64_t key = sort_key(data + off[i] + skip, length - skip, end);                                   \
            if (length < shortest) shortest = length;                                                            \
            if (length > longest) longest = length;                                                              \
            if (key > low && key < high) continue;                                                               \
            if (key > high || (key == high && compare_##NAME(off, data, i, greatest) > 0)) {                     \
                greatest = i;                                                                                    \
                high = key;                                                                                      \
            }                                                                                                    \
            if (key < low || (key == low && compare_##NAME(off, data, i, least) < 0)) {                          \
                least = i;                                                                                       \
                low = key;                                                                                       \
            }                                                                                                    \
        }                                                                                                        \
        result[0] = least;                                                                                       \
        result[1] = greatest;                                                                                    \
        result[2] = shortest;                                                                                    \
        result[3] = longest;                                                                                     \
    }                                                                                                            \
    /* The rule of columns.md 9 for bytes columns, empty values included. The greatest value is built in         \
     * `greatest`, which has room for all bytes of the column. result: row of the least, length of the greatest, \
     * shortest, longest. */                                                                                     \
    static void quirky_##NAME(const O *off, int64_t n, const uint8_t *data, uint8_t *greatest,                   \
                              int64_t *result) {                                                                 \
        int64_t least = -1, least_length = 0, great = 0, shortest = 0, longest = 0;                              \
        for (int64_t i = 0; i < n; i++) {                                                                        \
            const uint8_t *p = data + off[i];                                                                    \
            int64_t length = (int64_t)off[i + 1] - (int64_t)off[i];                                              \
            if (least_length == 0) {                                                                             \
                memcpy(greatest + great, p, (size_t)length);                                                     \
                great += length;                                                                                 \
                least = i;                                                                                       \
                least_length = shortest = longest = length;                                                      \
                continue;                                                                                        \
            }                                                                                                    \
            if (compare_##NAME(off, data, i, least) < 0) {                                                       \
                least = i;                                                                                       \
                least_length = length;                                                                           \
            }                                                                                                    \
            int order = memcmp(p, greatest, (size_t)(length < great ? length : great));                          \
            if (order > 0 || (order == 0 && length > great)) {                                                   \
                memcpy(greatest, p, (size_t)length);                                                             \
                great = length;                                                                                  \
            }                                                                                                    \
            if (length < shortest) shortest = length;                                                            \
            if (length > longest) longest = length;                                                              \
        }                                                                                                        \
        result[0] = least;                                                                                       \
        result[1] = great;                                                                                       \
        result[2] = shortest;                                                                                    \
        result[3] = longest;                                                                                     \
    }                                                                                                            \
    static int64_t codes_##NAME(const O *off, int64_t n, const uint8_t *data, int64_t limit, uint64_t seed,      \
                                uint32_t *codes, uint32_t *firsts) {                                             \
        BUILD_CODES(hash_bytes(data + off[i], (int64_t)off[i + 1] - (int64_t)off[i], seed),                      \
                    off[i + 1] - off[i] == off[f + 1] - off[f] &&                                                \
                        same_bytes(data + off[i], data + off[f], (int64_t)off[i + 1] - (int64_t)off[i]))         \
    }                                                                                                            \
    static int64_t rows_bytes_##NAME(const O *off, const uint32_t *rows, int64_t k) {                            \
        int64_t total = 0;                                                                                       \
        for (int64_t i = 0; i < k; i++) total += (int64_t)off[rows[i] + 1] - (int64_t)off[rows[i]];              \
        return total;                                                                                            \
    }                                                                                                            \
    /* Start offsets (k of 4 bytes) and then the bytes of the values of `rows`. */                               \
    static void entries_##NAME(const O *off, const uint8_t *data, const uint32_t *rows, int64_t k,               \
                               uint8_t *out) {                                                                   \
        uint8_t *area = out + 4 * k, *p = area;                                                                  \
        for (int64_t i = 0; i < k; i++) {                                                                        \
            int64_t length = (int64_t)off[rows[i] + 1] - (int64_t)off[rows[i]];                                  \
            put_u32(out + 4 * i, (uint32_t)(p - area));                                                          \
            memcpy(p, data + off[rows[i]], (size_t)length);                                                      \
            p += length;                                                                                         \
        }                                                                                                        \
    }
VARIABLE_KERNELS(int32_t, v32)
VARIABLE_KERNELS(int64_t, v64)
#undef VARIABLE_KERNELS

/* ----------------------------------------------------------------------------------------------------- searching */

/* Where the k >= 1 bytes of `needle` stand next, at `from` or later; -1 where they do not. */
static int64_t find_bytes(const uint8_t *data, int64_t n, const uint8_t *needle, int64_t k, int64_t from) {
    while (from + k <= n) {
        const uint8_t *found = (const uint8_t *)memchr(data + from, needle[0], (size_t)(n - k + 1 - from));
        if (found == NULL) return -1;
        if (memcmp(found, needle, (size_t)k) == 0) return found - data;
        from = found - data + 1;
    }
    return -1;
}

/* -------------------------------------------------------------------------------------------------------- LZW */

#define LZW_SLOTS 16384

typedef struct {
    uint8_t *out;
    uint64_t acc;
    int bits;
} bit_sink;

static inline void lzw_emit(bit_sink *sink, uint32_t code, int width) {
    sink->acc |= (uint64_t)code << sink->bits;
    sink->bits += width;
    while (sink->bits >= 8) {
        *sink->out++ = (uint8_t)sink->acc;
        sink->acc >>= 8;
        sink->bits -= 8;
    }
}

/* Compress n bytes (columns.md 7.1); out has room for 2 * n + 16 bytes: 12 bits per byte, and a clear code per 3838
 * codes. `table` has LZW_SLOTS entries: key (20 bits: code, byte) and value (12 bits), 0 = free (no value is 0).
 * Returns the length. */
static int64_t lzw_encode(const uint8_t *data, int64_t n, uint32_t *table, uint8_t *out) {
    bit_sink sink = {out, 0, 0};
    uint32_t hi = 257, limit = 512, code;
    int width = 9;
    memset(table, 0, LZW_SLOTS * sizeof(uint32_t));
    lzw_emit(&sink, 256, 9);
    if (n > 0) {
        code = data[0];
        for (int64_t i = 1; i <= n; i++) {
            uint32_t x = 0, key = 0, slot = 0, entry;
            if (i < n) {
                x = data[i];
                key = (code << 8) | x;
                slot = (key * 2654435761u) >> 18;
                while ((entry = table[slot]) != 0 && (entry >> 12) != key) slot = (slot + 1) & (LZW_SLOTS - 1);
                if (entry != 0) {
                    code = entry & 0xfff;
                    continue;
                }
            }
            lzw_emit(&sink, code, width);
            hi++;
            if (hi == limit) {
                width++;
                limit <<= 1;
            }
            if (hi == 4095) {
                lzw_emit(&sink, 256, width);
                width = 9;
                hi = 257;
                limit = 512;
                memset(table, 0, LZW_SLOTS * sizeof(uint32_t));
            } else if (i < n) {
                table[slot] = (key << 12) | hi;
            }
            code = x;
        }
    }
    lzw_emit(&sink, 257, width);
    if (sink.bits > 0) *sink.out++ = (uint8_t)sink.acc;
    return sink.out - out;
}

#endif
