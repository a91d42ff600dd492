/* What ids stand for, and how they are written (columns.md 6.7 and 13.3). Little-endian machines only. */
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

#endif
