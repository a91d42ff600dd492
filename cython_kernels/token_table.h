/* Ids to bytes, and the id streams of tokenized columns (columns.md 6.7 and 13.3). Little-endian machines only. */
#ifndef COLSTORE_TOKEN_TABLE_H
#define COLSTORE_TOKEN_TABLE_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define SHORT_TOKEN 15
#define LONG_TOKEN 255

/* A token of at most 15 bytes with its length: one load tells both, and is copied whole where there is room. */
typedef struct {
  uint8_t bytes[SHORT_TOKEN];
  uint8_t length;
} token_entry;

typedef struct {
  token_entry *entries;     /* n_tokens */
  const int64_t *offsets;   /* n_tokens + 1, into `bytes` */
  const uint8_t *bytes;
  int64_t n_tokens;
  int64_t escape;           /* the id that stands for a byte of the escape stream; wins over a token of that id */
} token_table;

/* -1 for an id that means nothing. */
static inline int64_t token_length(const token_table *t, uint16_t id) {
  if (id == t->escape) return 1;
  if (id >= t->n_tokens) return -1;
  return t->offsets[id + 1] - t->offsets[id];
}

/* Lengths of the values [begin, end). Stops with the position of a bad id in *bad, or with *bad = -2 when the
 * values have more than max_bytes bytes together, or -3 when starts are no positions of ids. *escapes: escape ids. */
static inline void token_lengths(const token_table *t, const uint16_t *ids, int64_t n_ids, const int64_t *starts,
                                 int64_t begin, int64_t end, int64_t max_bytes, int64_t *lengths, int64_t *escapes,
                                 int64_t *bad) {
  int64_t total = 0, escaped = 0;
  *bad = -1;
  *escapes = 0;
  for (int64_t v = begin; v < end; v++) {
    int64_t i = starts[v], stop = starts[v + 1], length = 0;
    if (i < 0 || stop < i || stop > n_ids) {
      *bad = -3;
      return;
    }
    for (; i < stop; i++) {
      int64_t one;
      uint16_t id = ids[i];
      if (id == t->escape) {
        escaped++;
        one = 1;
      } else if (id >= t->n_tokens) {
        *bad = i;
        return;
      } else {
        one = t->entries[id].length;
        if (one == LONG_TOKEN) {
          one = t->offsets[id + 1] - t->offsets[id];
          if (one > max_bytes) {
            *bad = -2;
            return;
          }
        }
      }
      length += one;
      if (length > max_bytes) {
        *bad = -2;
        return;
      }
    }
    lengths[v] = length;
    total += length;
    if (total > max_bytes) {
      *bad = -2;
      return;
    }
  }
  *escapes = escaped;
}

/* Copies the bytes of the values [begin, end) to out[offsets[v]..offsets[v + 1]). Returns 0 when the ids do not fill
 * exactly that, or need other than the escape bytes [e, e_end). Writes nothing outside these values. */
static inline int token_copy(const token_table *t, const uint16_t *ids, int64_t n_ids, const int64_t *starts,
                             const int64_t *offsets, int64_t n_out, int64_t begin, int64_t end, const uint8_t *escapes,
                             int64_t e, int64_t e_end, uint8_t *out) {
  if (begin == end) return e == e_end;
  int64_t limit = offsets[end], o = offsets[begin];
  if (o < 0 || limit < o || limit > n_out) return 0;
  for (int64_t v = begin; v < end; v++) {
    int64_t i = starts[v], stop = starts[v + 1], value_end = offsets[v + 1];
    if (i < 0 || stop < i || stop > n_ids || offsets[v] != o || value_end > limit) return 0;
    for (; i < stop; i++) {
      uint16_t id = ids[i];
      if (id == t->escape) {
        if (e >= e_end || o >= value_end) return 0;
        out[o++] = escapes[e++];
        continue;
      }
      if (id >= t->n_tokens) return 0;
      const token_entry *entry = &t->entries[id];
      int64_t length = entry->length;
      if (length != LONG_TOKEN && o + 16 <= limit) {
        memcpy(out + o, entry, 16); /* what is too much is overwritten by the next token of this block */
      } else {
        length = t->offsets[id + 1] - t->offsets[id];
        if (length > value_end - o) return 0;
        if (length > 0) memcpy(out + o, t->bytes + t->offsets[id], (size_t)length); /* there may be no `out` */
      }
      o += length;
      if (o > value_end) return 0;
    }
    if (o != value_end) return 0;
  }
  return e == e_end;
}

/* Whether ids and escapes stand for exactly `value`. */
static inline int token_equal(const token_table *t, const uint16_t *ids, int64_t n_ids, const uint8_t *escapes,
                              int64_t n_escapes, const uint8_t *value, int64_t n) {
  int64_t o = 0, e = 0;
  for (int64_t i = 0; i < n_ids; i++) {
    uint16_t id = ids[i];
    if (id == t->escape) {
      if (e >= n_escapes || o >= n || value[o] != escapes[e]) return 0;
      o++, e++;
      continue;
    }
    if (id >= t->n_tokens) return 0;
    const token_entry *entry = &t->entries[id];
    int64_t length = entry->length;
    if (length <= 8 && o + 8 <= n) {
      uint64_t found, wanted;
      memcpy(&found, value + o, 8);
      memcpy(&wanted, entry->bytes, 8);
      if (length && (found ^ wanted) << (64 - 8 * length)) return 0;
    } else {
      length = t->offsets[id + 1] - t->offsets[id];
      if (length > n - o) return 0;
      if (length > 0 && memcmp(value + o, t->bytes + t->offsets[id], (size_t)length) != 0) return 0;
    }
    o += length;
  }
  return o == n && e == n_escapes;
}

/* --- id streams ----------------------------------------------------------------------------------------------- */

/* n table positions as LEB128 varints, filling exactly [0, size). Returns 0, or 1 too short, 2 position outside the
 * table (or a varint of more than ten bytes), 3 bytes left over. */
static inline int remap_decode(const uint8_t *s, int64_t size, const uint8_t *table, int64_t n_table, uint16_t *ids,
                               int64_t n) {
  int64_t p = 0;
  for (int64_t i = 0; i < n; i++) {
    if (p >= size) return 1;
    uint64_t value = s[p++];
    if (value >= 128) {
      int shift = 7;
      value &= 127;
      for (;;) {
        if (p >= size) return 1;
        uint64_t next = s[p++];
        if (shift > 63 || (shift == 63 && (next & 127) > 1)) return 2;
        value |= (next & 127) << shift;
        shift += 7;
        if (next < 128) break;
      }
    }
    if (value >= (uint64_t)n_table) return 2;
    memcpy(&ids[i], table + 2 * value, 2);
  }
  return p == size ? 0 : 3;
}

/* Writes the varints of positions[ids[i]]; returns their bytes, or -1 when they do not fit into `size`. */
static inline int64_t remap_encode(const uint16_t *ids, int64_t n, const uint16_t *positions, uint8_t *out,
                                   int64_t size) {
  int64_t p = 0;
  for (int64_t i = 0; i < n; i++) {
    uint32_t value = positions[ids[i]];
    while (value >= 128) {
      if (p >= size) return -1;
      out[p++] = (uint8_t)(value | 128);
      value >>= 7;
    }
    if (p >= size) return -1;
    out[p++] = (uint8_t)value;
  }
  return p;
}

/* Ids [begin, end) of `width` bits each, MSB first; 1 <= width <= 16; the stream holds them all. */
static inline void bits_decode(const uint8_t *s, int64_t size, int width, uint16_t *ids, int64_t begin, int64_t end) {
  uint32_t mask = (1u << width) - 1;
  int64_t i = begin;
  for (; i < end; i++) {
    int64_t bit = i * width, at = bit >> 3;
    if (at + 4 > size) break;
    uint32_t word;
    memcpy(&word, s + at, 4);
    ids[i] = (uint16_t)(__builtin_bswap32(word) >> (32 - width - (int)(bit & 7)) & mask);
  }
  for (; i < end; i++) {
    int64_t bit = i * width, at = bit >> 3;
    uint32_t word = 0;
    for (int k = 0; k < 4; k++) word = word << 8 | (at + k < size ? s[at + k] : 0);
    ids[i] = (uint16_t)(word >> (32 - width - (int)(bit & 7)) & mask);
  }
}

/* Packs n ids; `out` has exactly ceil(n * width / 8) bytes. Returns 0 when an id does not fit into `width` bits. */
static inline int bits_encode(const uint16_t *ids, int64_t n, int width, uint8_t *out) {
  uint64_t bits = 0;
  int held = 0;
  int64_t p = 0;
  for (int64_t i = 0; i < n; i++) {
    if (ids[i] >> width) return 0;
    bits = bits << width | ids[i];
    held += width;
    if (held >= 32) {
      uint32_t word = __builtin_bswap32((uint32_t)(bits >> (held - 32)));
      memcpy(out + p, &word, 4);
      p += 4;
      held -= 32;
    }
  }
  while (held > 0) {
    out[p++] = (uint8_t)(held >= 8 ? bits >> (held - 8) : bits << (8 - held));
    held -= 8;
  }
  return 1;
}

/* Boundaries as starts[0..n]. Returns 0, or 1 wrong number of ids, 2 decreasing or negative, 3 first not zero. */
static inline int boundaries_decode(const uint8_t *s, int64_t n, int kind, int64_t n_ids, int64_t *starts) {
  int64_t position = 0, count = 0;
  for (int64_t v = 0; v < n; v++) {
    uint32_t word;
    memcpy(&word, s + 4 * v, 4);
    if (kind == 1) {
      if (v == 0 && word != 0) return 3;
      if (word < position) return 2;
      position = word;
      starts[v] = position;
      if (position > n_ids) return 1;
      continue;
    }
    starts[v] = position;
    if (kind == 0) {
      count = word;
    } else {
      count += word & 1 ? -(int64_t)(word >> 1) - 1 : (int64_t)(word >> 1);
      if (count < 0) return 2;
    }
    if (count > n_ids - position) return 1;
    position += count;
  }
  starts[n] = n_ids;
  if (kind == 1) return n == 0 && n_ids != 0;
  return position != n_ids;
}

#endif
