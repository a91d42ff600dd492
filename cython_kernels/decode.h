/* Encoded streams of columns files to values (columns.md 4, 6 and 7.1). Every function gets lengths, and looks at no
 * byte past them. Functions that find a fault return a position or a code; none allocates. */
#ifndef COLSTORE_DECODE_H
#define COLSTORE_DECODE_H

#include <stdint.h>
#include <string.h>

#include "kernel_math.h"

KERNEL_INLINE uint32_t load_u32(const uint8_t *p) {
  return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

/* GCC makes one load of load_u32, but not of its like for 8 bytes. */
KERNEL_INLINE uint64_t load_u64(const uint8_t *p) {
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
  uint64_t v;
  memcpy(&v, p, 8);
  return v;
#else
  return (uint64_t)load_u32(p) | (uint64_t)load_u32(p + 4) << 32;
#endif
}

KERNEL_INLINE uint64_t load_u64_big(const uint8_t *p) {
  uint64_t v = load_u64(p);
#if defined(__GNUC__)
  return __builtin_bswap64(v);
#else
  uint64_t turned = 0;
  for (int i = 0; i < 8; i++) turned = turned << 8 | (v >> (8 * i) & 0xFF);
  return turned;
#endif
}

/* Copies `length` bytes; `room` bytes may be read and written at both ends, so short values go as whole words. */
KERNEL_INLINE void copy_value(uint8_t *target, const uint8_t *source, int64_t length, int64_t room) {
  if (LIKELY(length <= 32 && room >= 32)) {
    memcpy(target, source, 16);
    if (length > 16) memcpy(target + 16, source + 16, 16);
  } else {
    memcpy(target, source, (size_t)length);
  }
}

/* ---- Delta (6.3) ----------------------------------------------------------------------------------- */

/* The plain loop runs at the speed of memcpy from memory; adding in groups of four gained nothing. */
#define DELTA_LOOP(T)                                                  \
  for (int64_t i = 0; i < n; i++) {                                    \
    sum += load_u64(stream + 8 * i);                                   \
    T narrow = (T)sum;                                                 \
    memcpy(out + i * (int64_t)sizeof(T), &narrow, sizeof(T));          \
  }

static uint64_t delta_span(const uint8_t *stream, int64_t n, uint8_t *out, int64_t width, uint64_t sum) {
  switch (width) {
    case 1: DELTA_LOOP(uint8_t) break;
    case 2: DELTA_LOOP(uint16_t) break;
    case 4: DELTA_LOOP(uint32_t) break;
    default: DELTA_LOOP(uint64_t) break;
  }
  return sum;
}

/* ---- bits ------------------------------------------------------------------------------------------ */

/* Booleans of 8 bits at a time: `mask` has in byte k the bit that is value k. */
KERNEL_INLINE uint64_t spread_bits(uint8_t bits, uint64_t mask) {
  uint64_t chosen = (bits * UINT64_C(0x0101010101010101)) & mask;
  return ((chosen + UINT64_C(0x7F7F7F7F7F7F7F7F)) >> 7) & UINT64_C(0x0101010101010101);
}

KERNEL_INLINE void store_bools(uint8_t *out, uint64_t values, int64_t count) {
  for (int64_t k = 0; k < count; k++) out[k] = (uint8_t)(values >> (8 * k));
}

/* RLEBitpack (6.2): most significant bit first. */
static void bools_span(const uint8_t *stream, int64_t n, uint8_t *out) {
  int64_t whole = n / 8;
  for (int64_t i = 0; i < whole; i++) {
    uint64_t v = spread_bits(stream[i], UINT64_C(0x0102040810204080));
    store_bools(out + 8 * i, v, 8);
  }
  if (n % 8) store_bools(out + 8 * whole, spread_bits(stream[whole], UINT64_C(0x0102040810204080)), n % 8);
}

/* Null bitmap (4): least significant bit first, 1 = null; out = 1 where there is a value. */
static void validity_span(const uint8_t *bitmap, int64_t n, uint8_t *out) {
  int64_t whole = n / 8;
  for (int64_t i = 0; i < whole; i++) {
    uint64_t v = spread_bits((uint8_t)~bitmap[i], UINT64_C(0x8040201008040201));
    store_bools(out + 8 * i, v, 8);
  }
  if (n % 8)
    store_bools(out + 8 * whole, spread_bits((uint8_t)~bitmap[whole], UINT64_C(0x8040201008040201)), n % 8);
}

static int64_t ones_span(const uint8_t *bitmap, int64_t n_bytes) {
  int64_t count = 0;
  for (int64_t i = 0; i < n_bytes; i++) {
    uint8_t b = bitmap[i];
    b = (uint8_t)(b - ((b >> 1) & 0x55));
    b = (uint8_t)((b & 0x33) + ((b >> 2) & 0x33));
    count += (b + (b >> 4)) & 0x0F;
  }
  return count;
}

/* Where a stream of packed numbers stands between two of its blocks. */
typedef struct {
  int64_t skip;  /* bits still to be passed over */
  uint64_t bits; /* of a number that began in the block before, the lowest `held` ones */
  int64_t held;
} packed_state;

/* The numbers of `width` bits (1 to 32) that end in a block, at most `n`; cuts may fall anywhere. Returns how many. */
static int64_t packed_block(const uint8_t *block, int64_t n_bytes, packed_state *s, int64_t width, int64_t n,
                            uint32_t *out) {
  uint64_t mask = ((uint64_t)1 << width) - 1;
  int64_t bit = min_i64(s->skip, 8 * n_bytes), end = 8 * n_bytes, k = 0;
  s->skip -= bit;
  if (s->skip || n == 0) return 0;
  if (s->held) {
    while (s->held < width && bit < end) { /* bit by bit: once a block */
      s->bits = s->bits << 1 | (uint64_t)(block[bit >> 3] >> (7 - (bit & 7)) & 1);
      s->held++;
      bit++;
    }
    if (s->held < width) return 0;
    out[k++] = (uint32_t)(s->bits & mask);
    s->bits = 0;
    s->held = 0;
  }
  if (width == 8 && (bit & 7) == 0) {
    for (const uint8_t *p = block + (bit >> 3); k < n && bit < end; bit += 8) out[k++] = *p++;
    return k;
  }
  for (; k < n && (bit >> 3) + 8 <= n_bytes; bit += width)
    out[k++] = (uint32_t)(load_u64_big(block + (bit >> 3)) >> (64 - width - (bit & 7)) & mask);
  while (k < n && bit + width <= end) {
    uint64_t word = 0;
    for (int64_t i = 0; i < 8; i++) word = word << 8 | ((bit >> 3) + i < n_bytes ? block[(bit >> 3) + i] : 0);
    out[k++] = (uint32_t)(word >> (64 - width - (bit & 7)) & mask);
    bit += width;
  }
  if (k < n)
    for (; bit < end; bit++, s->held++) s->bits = s->bits << 1 | (uint64_t)(block[bit >> 3] >> (7 - (bit & 7)) & 1);
  return k;
}

/* The first of `n` numbers that is not below `limit`, or -1. */
static int64_t first_too_large(const uint32_t *numbers, int64_t n, uint64_t limit) {
  uint32_t worst = 0;
  for (int64_t i = 0; i < n; i++) worst = numbers[i] > worst ? numbers[i] : worst;
  if (n == 0 || worst < limit) return -1;
  for (int64_t i = 0; i < n; i++)
    if (numbers[i] >= limit) return i;
  return -1;
}

/* ---- nulls ----------------------------------------------------------------------------------------- */

/* The last `n_dense` of `n` items hold the values; move each to its row, zero under nulls. A value never moves up,
 * so the loop runs front to back in place. `bitmap` has exactly n - n_dense ones among its first n bits. */
#define EXPAND_LOOP(w)                                                                             \
  for (int64_t row = 0; row < n;) {                                                                \
    uint8_t nulls = bitmap[row >> 3];                                                              \
    if (nulls == 0 && row + 8 <= n) {                                                              \
      if (from != row) memmove(values + row * (w), values + from * (w), 8 * (size_t)(w));          \
      from += 8;                                                                                   \
      row += 8;                                                                                    \
      continue;                                                                                    \
    }                                                                                              \
    int64_t stop = row + 8 < n ? row + 8 : n;                                                      \
    for (; row < stop; row++, nulls >>= 1) {                                                       \
      if (nulls & 1) {                                                                             \
        memset(values + row * (w), 0, (size_t)(w));                                                \
      } else {                                                                                     \
        memmove(values + row * (w), values + from * (w), (size_t)(w));                             \
        from++;                                                                                    \
      }                                                                                            \
    }                                                                                              \
  }

static void expand_span(uint8_t *values, int64_t n, int64_t n_dense, int64_t width, const uint8_t *bitmap) {
  int64_t from = n - n_dense;
  switch (width) {
    case 1: EXPAND_LOOP(1) break;
    case 2: EXPAND_LOOP(2) break;
    case 4: EXPAND_LOOP(4) break;
    default: EXPAND_LOOP(8) break;
  }
}

/* ---- fixed-width entries ----------------------------------------------------------------------------- */

#define TAKE_LOOP(w) \
  for (int64_t i = 0; i < n; i++) memcpy(out + i * (w), entries + (int64_t)indices[i] * (w), (w));

static void take_entries_span(const uint32_t *indices, int64_t n, const uint8_t *entries, int64_t width, uint8_t *out) {
  switch (width) {
    case 1: TAKE_LOOP(1) break;
    case 2: TAKE_LOOP(2) break;
    case 4: TAKE_LOOP(4) break;
    default: TAKE_LOOP(8) break;
  }
}

/* ---- values of variable length ------------------------------------------------------------------------- */

/* Where a stream of length-prefixed values (6.1) stands between two of its blocks. */
typedef struct {
  int64_t value;     /* values begun so far */
  int64_t data;      /* bytes of values so far */
  int64_t remaining; /* bytes of the current value still to come */
  int64_t prefix;    /* bytes of the current length prefix that are there, 0..3 */
  int64_t length;    /* what these say */
} plain_state;

/* Offsets are int32 where these suffice; `wide` is a constant wherever this is compiled in. */
KERNEL_INLINE void store_offset(void *offsets, int wide, int64_t place, int64_t value) {
  if (wide) ((int64_t *)offsets)[place] = value;
  else ((int32_t *)offsets)[place] = (int32_t)value;
}

/* What every value has in front and behind (6.6); nothing of a plain stream (6.1). */
typedef struct {
  const uint8_t *prefix, *suffix;
  int64_t n_prefix, n_suffix;
} value_affixes;

/* Values of 4-byte length and bytes, a block at a time; cuts may fall anywhere. `offsets` has n + 1 places, of which
 * [value] is written when a value ends; `data` has `capacity` bytes. Returns 0; 1: more than n values; 2: a value longer
 * than what is left. A short prefix or suffix is copied as whole words from a padded place. */
KERNEL_INLINE int values_block(const uint8_t *block, int64_t n_bytes, plain_state *s, value_affixes affixes, void *offsets,
                               int wide, int64_t n, uint8_t *data, int64_t capacity) {
  const int64_t n_prefix = affixes.n_prefix, n_suffix = affixes.n_suffix;
  const uint8_t *prefix = affixes.prefix, *suffix = affixes.suffix;
  uint8_t before[32], after[32];
  int64_t pos = 0, value = s->value, at = s->data, length;
  if (n_prefix && n_prefix <= 32) {
    memset(before, 0, sizeof before);
    prefix = (const uint8_t *)memcpy(before, prefix, (size_t)n_prefix);
  }
  if (n_suffix && n_suffix <= 32) {
    memset(after, 0, sizeof after);
    suffix = (const uint8_t *)memcpy(after, suffix, (size_t)n_suffix);
  }
  if (s->remaining) {
    length = min_i64(s->remaining, n_bytes);
    memcpy(data + at, block, (size_t)length);
    at += length;
    pos = length;
    s->remaining -= length;
    if (s->remaining == 0) {
      if (n_suffix) copy_value(data + at, suffix, n_suffix, capacity - at);
      at += n_suffix;
      store_offset(offsets, wide, value, at);
    }
  }
  /* Bytes that the words of one value may write behind its begin. */
  const int64_t room = 32 + (n_prefix ? 32 : 0) + (n_suffix ? 32 : 0);
  while (pos < n_bytes) {
    if (s->prefix == 0 && n_prefix <= 32 && n_suffix <= 32) /* short values in the middle of both: one check */
      while (LIKELY(value < n && n_bytes - pos >= 36 && capacity - at >= room)) {
        length = load_u32(block + pos);
        if (UNLIKELY(length > 32)) break;
        if (n_prefix) {
          memcpy(data + at, prefix, 16);
          if (n_prefix > 16) memcpy(data + at + 16, prefix + 16, 16);
          at += n_prefix;
        }
        memcpy(data + at, block + pos + 4, 16);
        if (length > 16) memcpy(data + at + 16, block + pos + 20, 16);
        at += length;
        if (n_suffix) {
          memcpy(data + at, suffix, 16);
          if (n_suffix > 16) memcpy(data + at + 16, suffix + 16, 16);
          at += n_suffix;
        }
        pos += 4 + length;
        store_offset(offsets, wide, ++value, at);
      }
    if (UNLIKELY(pos == n_bytes)) break;
    if (UNLIKELY(s->prefix > 0 || n_bytes - pos < 4)) {
      s->length |= (int64_t)block[pos++] << (8 * s->prefix++);
      if (s->prefix < 4) continue;
      length = s->length;
      s->prefix = 0;
      s->length = 0;
    } else {
      length = load_u32(block + pos);
      pos += 4;
    }
    if (UNLIKELY(value >= n)) return 1;
    if (UNLIKELY(n_prefix + length + n_suffix > capacity - at)) return 2;
    value++;
    if (n_prefix) copy_value(data + at, prefix, n_prefix, capacity - at);
    at += n_prefix;
    if (LIKELY(length <= n_bytes - pos)) {
      copy_value(data + at, block + pos, length, min_i64(n_bytes - pos, capacity - at));
      at += length;
      pos += length;
      if (n_suffix) copy_value(data + at, suffix, n_suffix, capacity - at);
      at += n_suffix;
      store_offset(offsets, wide, value, at);
    } else {
      memcpy(data + at, block + pos, (size_t)(n_bytes - pos));
      at += n_bytes - pos;
      s->remaining = length - (n_bytes - pos);
      pos = n_bytes;
    }
  }
  s->value = value;
  s->data = at;
  return 0;
}

static int plain_values(const uint8_t *block, int64_t n_bytes, plain_state *s, void *offsets, int wide, int64_t n,
                        uint8_t *data, int64_t capacity) {
  const value_affixes none = {NULL, NULL, 0, 0};
  return wide ? values_block(block, n_bytes, s, none, offsets, 1, n, data, capacity)
              : values_block(block, n_bytes, s, none, offsets, 0, n, data, capacity);
}

static int affixed_values(const uint8_t *block, int64_t n_bytes, plain_state *s, value_affixes affixes, void *offsets,
                          int wide, int64_t n, uint8_t *data, int64_t capacity) {
  return wide ? values_block(block, n_bytes, s, affixes, offsets, 1, n, data, capacity)
              : values_block(block, n_bytes, s, affixes, offsets, 0, n, data, capacity);
}

/* Values of 4-byte length and bytes that lie whole in a block: where their bytes begin in it, and how many there are.
 * At most `n`. `used` is where the first one begins that is not told. */
static int64_t whole_values(const uint8_t *block, int64_t n_bytes, int64_t *starts, int64_t *lengths, int64_t n,
                            int64_t *used) {
  int64_t pos = 0, k = 0;
  while (k < n && n_bytes - pos >= 4) {
    int64_t length = load_u32(block + pos);
    if (length > n_bytes - pos - 4) break;
    starts[k] = pos + 4;
    lengths[k++] = length;
    pos += 4 + length;
  }
  *used = pos;
  return k;
}

/* Bytes that the chosen ones of `n` values of a block take, each with `n_affix` more; -1 if there is no such value, one
 * lies outside the block, or all of it is more than `limit`. */
static int64_t chosen_length(int64_t n_bytes, const int64_t *starts, const int64_t *lengths, int64_t n,
                             const int64_t *chosen, int64_t n_chosen, int64_t n_affix, int64_t limit) {
  int64_t total = 0;
  for (int64_t i = 0; i < n_chosen; i++) {
    int64_t k = chosen[i];
    if (UNLIKELY(k < 0 || k >= n)) return -1;
    if (UNLIKELY(starts[k] < 0 || starts[k] > n_bytes || lengths[k] < 0 || lengths[k] > n_bytes - starts[k])) return -1;
    total += n_affix + lengths[k]; /* each is below 2^42: looked at before there is an overflow */
    if (UNLIKELY(total > limit)) return -1;
  }
  return total;
}

/* Copies them, each between prefix and suffix, and says where each ends; `out` has room for all: see chosen_length. */
static void copy_chosen(const uint8_t *block, int64_t n_bytes, const int64_t *starts, const int64_t *lengths,
                        const int64_t *chosen, int64_t n_chosen, value_affixes affixes, int64_t *ends, uint8_t *out,
                        int64_t capacity) {
  int64_t at = 0;
  for (int64_t i = 0; i < n_chosen; i++) {
    int64_t start = starts[chosen[i]], length = lengths[chosen[i]];
    if (affixes.n_prefix) memcpy(out + at, affixes.prefix, (size_t)affixes.n_prefix);
    at += affixes.n_prefix;
    copy_value(out + at, block + start, length, min_i64(n_bytes - start, capacity - at));
    at += length;
    if (affixes.n_suffix) memcpy(out + at, affixes.suffix, (size_t)affixes.n_suffix);
    at += affixes.n_suffix;
    ends[i] = at;
  }
}

/* Offsets of n rows from those of the values alone, which stand at the end of `out`: a null is an empty value. An offset
 * never moves up, so the loop runs front to back in place. `bitmap` has `nulls` ones among its first n bits. */
#define SPREAD_OFFSETS(NAME, OFFSET)                                                          \
  static void NAME(OFFSET *out, int64_t n, int64_t nulls, const uint8_t *bitmap) {            \
    const OFFSET *from = out + nulls;                                                         \
    OFFSET last = out[0] = *from;                                                             \
    for (int64_t row = 0; row < n; row++) {                                                   \
      if (!(bitmap[row >> 3] >> (row & 7) & 1)) last = *++from;                               \
      out[row + 1] = last;                                                                    \
    }                                                                                         \
  }

SPREAD_OFFSETS(spread_offsets_32, int32_t)
SPREAD_OFFSETS(spread_offsets_64, int64_t)

/* OffsetBytes (6.5): n starts, then the end of the area. Returns -1 or the position of an offset that decreases or
 * lies outside. `table` may be the last 4 * n bytes before the end of `out`, or begin where `out` does if its offsets
 * have 4 bytes: each start is read before its place is written. */
#define OFFSET_TABLE(NAME, OFFSET)                                                            \
  static int64_t NAME(const uint8_t *table, int64_t n, int64_t area, OFFSET *out) {           \
    int64_t last = 0;                                                                         \
    for (int64_t i = 0; i < n; i++) {                                                         \
      int64_t start = load_u32(table + 4 * i);                                                \
      if (UNLIKELY(start < last || start > area)) return i;                                   \
      out[i] = (OFFSET)start;                                                                 \
      last = start;                                                                           \
    }                                                                                         \
    out[n] = (OFFSET)area;                                                                    \
    return -1;                                                                                \
  }

OFFSET_TABLE(offset_table_32, int32_t)
OFFSET_TABLE(offset_table_64, int64_t)

/* Bytes that the chosen entries have together; -1 when they pass `limit`. */
static int64_t entries_length(const uint32_t *indices, int64_t n, const uint32_t *bounds, int64_t limit) {
  int64_t total = 0;
  for (int64_t i = 0; i < n; i++) {
    /* n and entries are below 2^32: no overflow */
    total += bounds[(int64_t)indices[i] + 1] - bounds[indices[i]];
    if (UNLIKELY(total > limit)) return -1;
  }
  return total;
}

/* Indices and bounds were checked. `indices` may be memory of `offsets` itself: the last 4 * n bytes. Returns 1 if `data`
 * is full, 0 if the entries have another length. */
#define TAKE_VARIABLE(NAME, OFFSET)                                                                            \
  static int NAME(const uint32_t *indices, int64_t n, const uint32_t *bounds, const uint8_t *area,             \
                  int64_t n_area, OFFSET *offsets, uint8_t *data, int64_t capacity) {                          \
    int64_t at = 0;                                                                                            \
    offsets[0] = 0;                                                                                            \
    for (int64_t i = 0; i < n; i++) {                                                                          \
      uint32_t index;                                                                                          \
      memcpy(&index, indices + i, 4);                                                                          \
      int64_t start = bounds[index], length = bounds[(int64_t)index + 1] - start;                              \
      if (UNLIKELY(length > capacity - at)) return 0;                                                          \
      copy_value(data + at, area + start, length, min_i64(n_area - start, capacity - at));                     \
      at += length;                                                                                            \
      offsets[i + 1] = (OFFSET)at;                                                                             \
    }                                                                                                          \
    return at == capacity;                                                                                     \
  }

TAKE_VARIABLE(take_variable_32, int32_t)
TAKE_VARIABLE(take_variable_64, int64_t)

/* ---- UTF-8 ------------------------------------------------------------------------------------------- */

static int is_ascii_span(const uint8_t *data, int64_t n) {
  uint64_t any = 0;
  int64_t i = 0;
  for (; i + 4096 <= n; i += 4096) { /* in pieces, to stop early */
    uint8_t piece = 0;
    for (int64_t k = 0; k < 4096; k++) piece |= data[i + k];
    if (piece & 0x80) return 0;
  }
  for (; i + 8 <= n; i += 8) any |= load_u64(data + i);
  for (; i < n; i++) any |= data[i];
  return !(any & UINT64_C(0x8080808080808080));
}

static int is_utf8_span(const uint8_t *p, int64_t n) {
  int64_t i = 0;
  while (i < n) {
    uint8_t b = p[i];
    if (b < 0x80) {
      if (i + 8 <= n && !(load_u64(p + i) & UINT64_C(0x8080808080808080))) i += 8;
      else i++;
      continue;
    }
    int64_t more;
    uint8_t low = 0x80, high = 0xBF; /* of the second byte */
    if (b >= 0xC2 && b <= 0xDF) more = 1;
    else if (b >= 0xE0 && b <= 0xEF) {
      more = 2;
      if (b == 0xE0) low = 0xA0; /* overlong */
      if (b == 0xED) high = 0x9F; /* surrogates */
    } else if (b >= 0xF0 && b <= 0xF4) {
      more = 3;
      if (b == 0xF0) low = 0x90;
      if (b == 0xF4) high = 0x8F; /* above U+10FFFF */
    } else return 0;
    if (n - i <= more) return 0;
    if (p[i + 1] < low || p[i + 1] > high) return 0;
    for (int64_t k = 2; k <= more; k++)
      if ((p[i + k] & 0xC0) != 0x80) return 0;
    i += more + 1;
  }
  return 1;
}

#define FIRST_NOT_UTF8(NAME, OFFSET)                                                       \
  static int64_t NAME(const uint8_t *data, const OFFSET *offsets, int64_t n) {             \
    if (n == 0) return -1;                                                                 \
    if (is_ascii_span(data + offsets[0], offsets[n] - offsets[0])) return -1;              \
    for (int64_t i = 0; i < n; i++)                                                        \
      if (!is_utf8_span(data + offsets[i], offsets[i + 1] - offsets[i])) return i;         \
    return -1;                                                                             \
  }

FIRST_NOT_UTF8(first_not_utf8_32, int32_t)
FIRST_NOT_UTF8(first_not_utf8_64, int64_t)

/* ---- Lzw (7.1) ----------------------------------------------------------------------------------------- */

enum { LZW_TRUNCATED = -1, LZW_CODE = -2, LZW_LONG = -3 };

/* Returns the number of bytes written, or a negative code; LZW_LONG with the first `capacity` bytes written. A table
 * entry is the string before plus the byte after it: these stand together in the output already, so an entry is a place
 * and a length. */
static int64_t lzw_span(const uint8_t *source, int64_t n_source, uint8_t *out, int64_t capacity) {
  uint32_t start[4096], length[4096];
  uint64_t bits = 0;
  int64_t n_bits = 0, pos = 0, at = 0, previous = 0, n_previous = 0; /* n_previous 0: no previous code */
  int64_t width = 9, limit = 512, next = 258;
  for (;;) {
    while (n_bits < width) {
      if (pos >= n_source) return LZW_TRUNCATED;
      bits |= (uint64_t)source[pos++] << n_bits;
      n_bits += 8;
    }
    int64_t code = (int64_t)(bits & (((uint64_t)1 << width) - 1));
    bits >>= width;
    n_bits -= width;
    if (code == 256) {
      width = 9;
      limit = 512;
      next = 258;
      n_previous = 0;
      continue;
    }
    if (code == 257) return at;
    int64_t count, from;
    if (code < 256) {
      if (at >= capacity) return LZW_LONG;
      out[at] = (uint8_t)code;
      count = 1;
    } else {
      if (code < next) {
        from = start[code];
        count = length[code];
      } else if (code == next && n_previous) {
        from = previous;
        count = n_previous + 1;
      } else return LZW_CODE;
      int64_t fits = min_i64(count, capacity - at);
      for (int64_t k = 0; k < fits; k++) out[at + k] = out[from + k]; /* may overlap: byte by byte */
      if (fits < count) return LZW_LONG;
    }
    if (n_previous && next < 4096) {
      start[next] = (uint32_t)previous;
      length[next] = (uint32_t)(n_previous + 1);
      next++;
      if (next == limit && width < 12) {
        width++;
        limit *= 2;
      }
    }
    previous = at;
    n_previous = count;
    at += count;
  }
}

#endif
