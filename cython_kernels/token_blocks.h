/* A stream of token ids to the bytes of its values, a block at a time (columns.md 6.7, 13.3). Ids come in windows that
 * stay in the first cache: once through for what they mean and how long they get, once to copy. What grows is the result
 * alone; the escape bytes, which the stream has last, wait at the end of its memory until their ids come.
 * Little-endian machines only. */
#ifndef COLSTORE_TOKEN_BLOCKS_H
#define COLSTORE_TOKEN_BLOCKS_H

#include <stdint.h>
#include <string.h>

#include "token_table.h"

enum { TOKEN_WINDOW = 1024 };

enum { IDS_RAW = 0, IDS_REMAP = 1, IDS_BITS = 2 };

/* What a step ended with. Above 0 is an error in the stream. */
enum {
  TOKENS_DONE = 0,     /* the block is used up */
  TOKENS_POSITION = 1, /* a position outside the table of remap */
  TOKENS_SURPLUS = 2,  /* bytes after the last id */
  TOKENS_BAD_ID = 3,   /* neither in the vocabulary nor the escape id */
  TOKENS_TOO_LARGE = 4,
  TOKENS_ESCAPES = 5,  /* more escape ids than escape bytes */
  TOKENS_ROOM = -1,    /* `needed` bytes of output are needed */
  TOKENS_WIDE = -2     /* 32-bit offsets do not reach any more */
};

typedef struct {
  const token_table *tokens;
  int representation, width;
  const uint8_t *table; /* of remap: 2 bytes each */
  int64_t n_table, n_ids, n_values, n_escapes, max_bytes;

  int64_t ids;     /* read from the stream so far */
  uint64_t bits;   /* begun but not used: of packed ids, of a varint, of two bytes */
  int held, begun; /* bits of these; whether a varint is begun */

  uint16_t window[TOKEN_WINDOW];
  int64_t filled, window_bytes, window_escapes; /* what is still to be copied */

  int64_t value, left; /* where the next id belongs, and how many more it has */
  int64_t written, escapes; /* bytes so far; escape bytes used */
  int64_t needed;
  uint16_t bad_id;
} token_reader;

/* Turns boundaries that stand in counts[0..n) into numbers of ids, in place. Returns 0, or 1 they do not sum up to
 * n_ids, 2 decreasing or negative, 3 the first is not zero. */
static inline int token_counts(uint32_t *counts, int64_t n, int kind, int64_t n_ids) {
  int64_t position = 0, count = 0;
  for (int64_t v = 0; v < n; v++) {
    if (kind == 1) {
      int64_t next = v + 1 < n ? counts[v + 1] : n_ids;
      if (v == 0 && counts[0] != 0) return 3;
      if (next < counts[v]) return v + 1 < n ? 2 : 1;
      count = next - counts[v];
    } else if (kind == 0) {
      count = counts[v];
    } else {
      count += counts[v] & 1 ? -(int64_t)(counts[v] >> 1) - 1 : (int64_t)(counts[v] >> 1);
      if (count < 0) return 2;
    }
    if (count > n_ids - position) return 1;
    counts[v] = (uint32_t)count;
    position += count;
  }
  return position != n_ids;
}

static inline int64_t token_count_of(const void *offsets, int wide, int64_t v) {
  return wide ? ((const int64_t *)offsets)[v + 1] : (int64_t)((const uint32_t *)offsets)[v + 1];
}

static inline void token_offset_to(void *offsets, int wide, int64_t place, int64_t at) {
  if (wide)
    ((int64_t *)offsets)[place] = at;
  else
    ((int32_t *)offsets)[place] = (int32_t)at;
}

/* Ends values that have no more ids, up to one that has. */
static inline void token_next_value(token_reader *r, void *offsets, int wide) {
  while (r->left == 0 && r->value < r->n_values) {
    token_offset_to(offsets, wide, r->value + 1, r->written);
    r->value++;
    r->left = r->value < r->n_values ? token_count_of(offsets, wide, r->value) : 0;
  }
}

static inline void token_begin(token_reader *r, void *offsets, int wide) {
  token_offset_to(offsets, wide, 0, 0);
  r->left = r->n_values ? token_count_of(offsets, wide, 0) : 0;
  token_next_value(r, offsets, wide);
}

/* ---- ids of a block into the window; *p moves on */

static inline int fill_raw(token_reader *r, const uint8_t *s, int64_t size, int64_t *p) {
  if (r->held && *p < size && r->filled < TOKEN_WINDOW && r->ids < r->n_ids) {
    r->window[r->filled++] = (uint16_t)(r->bits | (uint64_t)s[(*p)++] << 8);
    r->ids++, r->held = 0;
  }
  int64_t k = (size - *p) / 2;
  if (k > TOKEN_WINDOW - r->filled) k = TOKEN_WINDOW - r->filled;
  if (k > r->n_ids - r->ids) k = r->n_ids - r->ids;
  if (k > 0) memcpy(r->window + r->filled, s + *p, (size_t)(2 * k));
  r->filled += k, r->ids += k, *p += 2 * k;
  if (size - *p == 1 && r->filled < TOKEN_WINDOW && r->ids < r->n_ids) {
    r->bits = s[(*p)++];
    r->held = 8;
  }
  return TOKENS_DONE;
}

static inline int fill_bits(token_reader *r, const uint8_t *s, int64_t size, int64_t *at) {
  int width = r->width, held = r->held;
  uint64_t bits = r->bits, mask = ((uint64_t)1 << width) - 1;
  int64_t p = *at, filled = r->filled, stop = filled + (r->n_ids - r->ids);
  if (stop > TOKEN_WINDOW) stop = TOKEN_WINDOW;
  int64_t begin = filled;
  while (filled < stop) {
    if (held < width) {
      if (size - p >= 4) {
        uint32_t word;
        memcpy(&word, s + p, 4);
        bits = bits << 32 | __builtin_bswap32(word);
        held += 32, p += 4;
      } else if (p < size) {
        bits = bits << 8 | s[p++];
        held += 8;
        continue;
      } else {
        break;
      }
    }
    held -= width;
    r->window[filled++] = (uint16_t)(bits >> held & mask);
  }
  r->ids += filled - begin;
  r->bits = bits, r->held = held, r->filled = filled, *at = p;
  return TOKENS_DONE;
}

static inline int fill_remap(token_reader *r, const uint8_t *s, int64_t size, int64_t *at) {
  int64_t p = *at, filled = r->filled, stop = filled + (r->n_ids - r->ids), begin = filled;
  if (stop > TOKEN_WINDOW) stop = TOKEN_WINDOW;
  uint64_t value = r->bits;
  int shift = r->held, begun = r->begun, code = TOKENS_DONE;
  while (filled < stop && p < size) {
    uint64_t next = s[p++];
    if (begun) {
      if (shift > 63 || (shift == 63 && (next & 127) > 1)) {
        code = TOKENS_POSITION;
        break;
      }
      value |= (next & 127) << shift;
      shift += 7;
    } else {
      value = next & 127;
      shift = 7;
    }
    begun = next >= 128;
    if (begun) continue;
    if (value >= (uint64_t)r->n_table) {
      code = TOKENS_POSITION;
      break;
    }
    memcpy(&r->window[filled++], r->table + 2 * value, 2);
  }
  r->ids += filled - begin;
  r->bits = value, r->held = shift, r->begun = begun, r->filled = filled, *at = p;
  return code;
}

/* What the ids of the window, from its start, are and take. */
static inline int token_measure(token_reader *r) {
  const token_table *t = r->tokens;
  int64_t total = 0, escapes = 0;
  for (int64_t k = 0; k < r->filled; k++) {
    uint16_t id = r->window[k];
    if (id == t->escape) {
      escapes++, total++;
      continue;
    }
    if (id >= t->n_tokens) {
      r->bad_id = id;
      return TOKENS_BAD_ID;
    }
    int64_t one = t->entries[id].length;
    if (one == LONG_TOKEN) one = t->offsets[id + 1] - t->offsets[id];
    total += one;
    if (total > r->max_bytes) return TOKENS_TOO_LARGE;
  }
  if (total > r->max_bytes - r->written) return TOKENS_TOO_LARGE;
  if (escapes > r->n_escapes - r->escapes) return TOKENS_ESCAPES;
  r->window_bytes = total, r->window_escapes = escapes;
  return TOKENS_DONE;
}

/* Copies the window. `out` has room for it and for all escape bytes that are still to come, which are its last ones. */
static inline void token_put(token_reader *r, void *offsets, int wide, uint8_t *out, int64_t capacity) {
  const token_table *t = r->tokens;
  const token_entry *entries = t->entries; /* not to be loaded again after each store */
  const uint16_t escape_id = (uint16_t)t->escape;
  int64_t o = r->written, waiting = capacity - (r->n_escapes - r->escapes), k = 0;
  while (k < r->filled && r->value < r->n_values) {
    int64_t stop = k + (r->left < r->filled - k ? r->left : r->filled - k);
    r->left -= stop - k;
    for (; k < stop; k++) {
      uint16_t id = r->window[k];
      if (id == escape_id) {
        out[o++] = out[waiting++];
        continue;
      }
      const token_entry *entry = &entries[id];
      int64_t length = entry->length;
      if (length != LONG_TOKEN && o + 16 <= waiting) {
        memcpy(out + o, entry, 16); /* what is too much is overwritten by the next token, or cut off */
      } else {
        length = t->offsets[id + 1] - t->offsets[id];
        if (length > 0) memcpy(out + o, t->bytes + t->offsets[id], (size_t)length);
      }
      o += length;
    }
    r->written = o;
    token_next_value(r, offsets, wide);
  }
  r->escapes += r->window_escapes;
  r->filled = r->window_bytes = r->window_escapes = 0;
}

/* Takes bytes of the id stream from *p on, as far as `out` has room. */
static inline int token_step(token_reader *r, const uint8_t *s, int64_t size, int64_t *p, void *offsets, int wide,
                             uint8_t *out, int64_t capacity) {
  for (;;) {
    if (r->filled == 0) { /* else a window is waiting for room */
      int code = r->representation == IDS_RAW    ? fill_raw(r, s, size, p)
                 : r->representation == IDS_BITS ? fill_bits(r, s, size, p)
                                                 : fill_remap(r, s, size, p);
      if (code) return code;
      if (r->filled == 0) return *p < size ? TOKENS_SURPLUS : TOKENS_DONE;
      if ((code = token_measure(r))) return code;
    }
    r->needed = r->written + r->window_bytes + (r->n_escapes - r->escapes - r->window_escapes);
    if (!wide && r->written + r->window_bytes > INT32_MAX) return TOKENS_WIDE;
    if (r->needed > capacity) return TOKENS_ROOM;
    token_put(r, offsets, wide, out, capacity);
  }
}

/* Values of ids of no bits: all of them are token 0. `out` has counts * length bytes. */
static inline void token_zeros(token_reader *r, void *offsets, int wide, uint8_t *out) {
  const token_table *t = r->tokens;
  int64_t length = t->offsets[1] - t->offsets[0], o = 0, total = r->n_ids * length;
  const uint8_t *token = t->bytes + t->offsets[0];
  token_offset_to(offsets, wide, 0, 0);
  for (int64_t v = 0; v < r->n_values; v++) {
    o += token_count_of(offsets, wide, v) * length;
    token_offset_to(offsets, wide, v + 1, o);
  }
  if (length == 1) {
    memset(out, token[0], (size_t)total);
  } else {
    for (int64_t i = 0; length && i < total; i += length) memcpy(out + i, token, (size_t)length);
  }
  r->value = r->n_values, r->ids = r->n_ids, r->written = total;
}

#endif
