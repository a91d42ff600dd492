/* Bytes to ids: specials, words, byte pair encoding (columns.md 13.4).
 *
 * A value is walked once for its specials and once for its words, and never copied: words and pieces are ranges of its
 * own bytes, because the byte-level alphabet maps byte to character one to one. Ids and escapes go to the place of the
 * value's bytes, at most one per byte.
 */
#ifndef COLSTORE_TOKEN_PIECES_H
#define COLSTORE_TOKEN_PIECES_H

#include "token_table.h"
#include "unicode_classes.h"

#define CLASS_WIDE 15
#define NO_MERGE 0xFFFFFFFFu
#define CACHED_BYTES 16
#define SCANNED_PIECE 64 /* symbols up to which rescanning all pairs is faster than a heap */

typedef struct {
  uint32_t pair; /* left id << 16 | right id; both 65535 in an empty slot, which no id is */
  uint16_t rank, result;
} merge_slot;

typedef struct {
  uint32_t hash;
  int32_t token; /* -1: empty */
} piece_slot;

/* Two words that, with the length, are the bytes of a piece of 2 to 16 bytes: they compare without a loop. */
typedef struct {
  uint64_t low, high;
} piece_key;

typedef struct {
  piece_key key;
  uint8_t length, n_ids; /* length 0: empty */
  uint16_t ids[CACHED_BYTES];
} cache_slot;

typedef struct {
  const token_table *tokens; /* what the ids mean, to verify with */
  int32_t byte_ids[256];     /* id of the token of one byte, -1 where there is none */
  merge_slot *merges;
  int merge_shift;
  piece_slot *pieces; /* tokens by their bytes */
  uint32_t piece_mask;
  const int64_t *piece_offsets;
  const uint8_t *piece_bytes;
  const uint16_t *piece_ids;
  int64_t longest_piece;
  const int64_t *special_offsets; /* specials in ascending order of their bytes, each once */
  const uint8_t *special_bytes;
  const uint16_t *special_ids;
  const int32_t *special_parents; /* longest other special that is a prefix, -1 where there is none */
  int64_t n_specials;
  uint8_t special_first[256];
  uint8_t byte_classes[256]; /* CLASS_WIDE for bytes that do not decide alone */
} bpe_model;

/* Scratch memory of one block of values. */
typedef struct {
  cache_slot *cache; /* NULL: none */
  uint32_t cache_mask;
  int32_t *symbols, *next, *previous;
  uint32_t *ranks;
  uint64_t *heap;
  int64_t room; /* symbols */
  int failed;   /* out of memory */
} bpe_scratch;

typedef struct {
  uint16_t *ids;
  uint8_t *escapes;
  int64_t n_ids, n_escapes;
} id_sink;

static inline piece_key key_of(const uint8_t *p, int64_t n) {
  piece_key key = {0, 0};
  if (n >= 8) {
    memcpy(&key.low, p, 8);
    memcpy(&key.high, p + n - 8, 8);
  } else if (n >= 4) {
    uint32_t low, high;
    memcpy(&low, p, 4);
    memcpy(&high, p + n - 4, 4);
    key.low = (uint64_t)high << 32 | low;
  } else {
    key.low = (uint64_t)p[0] | (uint64_t)p[n >> 1] << 8 | (uint64_t)p[n - 1] << 16;
  }
  return key;
}

static inline uint64_t hash_key(piece_key key, int64_t n) {
  uint64_t h = (key.low ^ (uint64_t)n * 0x9E3779B97F4A7C15u) * 0xD6E8FEB86659FD93u;
  h = (h ^ h >> 32 ^ key.high) * 0xD6E8FEB86659FD93u;
  return h ^ h >> 32;
}

/* n >= 1. */
static inline uint64_t hash_bytes(const uint8_t *p, int64_t n) {
  uint64_t h = 0;
  int64_t left = n;
  for (; left > CACHED_BYTES; p += 8, left -= 8) {
    uint64_t word;
    memcpy(&word, p, 8);
    h = (h ^ word) * 0x9FB21C651E98DF25u;
    h ^= h >> 29;
  }
  return h ^ hash_key(key_of(p, left), n);
}

static inline uint32_t merge_home(const bpe_model *m, uint32_t pair) {
  return (uint32_t)((uint64_t)pair * 0x9E3779B97F4A7C15u >> m->merge_shift);
}

/* rank << 16 | result of the merge of two symbols, or NO_MERGE. A result is below 65535, so the value is never that. */
static inline uint32_t find_merge(const bpe_model *m, int32_t left, int32_t right) {
  if ((left | right) < 0) return NO_MERGE;
  uint32_t pair = (uint32_t)left << 16 | (uint32_t)right, mask = (uint32_t)((1ull << (64 - m->merge_shift)) - 1);
  for (uint32_t at = merge_home(m, pair);; at = (at + 1) & mask) {
    const merge_slot *slot = &m->merges[at];
    if (slot->pair == pair) return (uint32_t)slot->rank << 16 | slot->result;
    if (slot->pair == NO_MERGE) return NO_MERGE;
  }
}

/* A later merge of the same pair replaces an earlier one. */
static inline void add_merge(bpe_model *m, uint16_t left, uint16_t right, uint16_t rank, uint16_t result) {
  uint32_t pair = (uint32_t)left << 16 | right, mask = (uint32_t)((1ull << (64 - m->merge_shift)) - 1);
  uint32_t at = merge_home(m, pair);
  while (m->merges[at].pair != NO_MERGE && m->merges[at].pair != pair) at = (at + 1) & mask;
  m->merges[at].pair = pair;
  m->merges[at].rank = rank;
  m->merges[at].result = result;
}

static inline int32_t find_piece(const bpe_model *m, const uint8_t *p, int64_t n, uint32_t hash) {
  for (uint32_t at = hash & m->piece_mask;; at = (at + 1) & m->piece_mask) {
    const piece_slot *slot = &m->pieces[at];
    if (slot->token < 0) return -1;
    if (slot->hash == hash) {
      int64_t start = m->piece_offsets[slot->token], length = m->piece_offsets[slot->token + 1] - start;
      if (length == n && memcmp(m->piece_bytes + start, p, (size_t)n) == 0) return slot->token;
    }
  }
}

static inline void add_piece(bpe_model *m, int32_t token) {
  int64_t start = m->piece_offsets[token], length = m->piece_offsets[token + 1] - start;
  uint32_t hash = (uint32_t)hash_bytes(m->piece_bytes + start, length), at = hash & m->piece_mask;
  while (m->pieces[at].token >= 0) at = (at + 1) & m->piece_mask;
  m->pieces[at].hash = hash;
  m->pieces[at].token = token;
  if (length > m->longest_piece) m->longest_piece = length;
}

/* --- byte pair encoding of one piece -------------------------------------------------------------------------- */

static inline int scratch_grow(bpe_scratch *w, int64_t n) {
  if (n <= w->room) return 1;
  free(w->symbols), free(w->next), free(w->previous), free(w->ranks), free(w->heap);
  int64_t room = n < (1 << 20) ? 2 * n : n;
  w->symbols = (int32_t *)malloc((size_t)room * 4);
  w->next = (int32_t *)malloc((size_t)room * 4);
  w->previous = (int32_t *)malloc((size_t)room * 4);
  w->ranks = (uint32_t *)malloc((size_t)room * 4);
  w->heap = (uint64_t *)malloc((size_t)room * 24); /* every merge adds at most two pairs to the n - 1 first ones */
  w->room = room;
  if (w->symbols && w->next && w->previous && w->ranks && w->heap) return 1;
  w->room = 0;
  w->failed = 1;
  return 0;
}

static inline void scratch_free(bpe_scratch *w) {
  free(w->cache), free(w->symbols), free(w->next), free(w->previous), free(w->ranks), free(w->heap);
}

static inline void emit_symbol(const bpe_model *m, id_sink *sink, int32_t symbol, uint8_t byte) {
  if (symbol < 0) {
    sink->ids[sink->n_ids++] = (uint16_t)m->tokens->escape;
    sink->escapes[sink->n_escapes++] = byte;
  } else {
    sink->ids[sink->n_ids++] = (uint16_t)symbol;
  }
}

/* Few symbols: look at all pairs, merge the best, move the rest up. */
static inline void merge_scanning(const bpe_model *m, const uint8_t *p, int64_t n, id_sink *sink) {
  int32_t symbols[SCANNED_PIECE];
  uint32_t ranks[SCANNED_PIECE];
  uint8_t bytes[SCANNED_PIECE]; /* of unmergeable symbols */
  for (int64_t i = 0; i < n; i++) symbols[i] = m->byte_ids[p[i]], bytes[i] = p[i];
  for (int64_t i = 0; i + 1 < n; i++) ranks[i] = find_merge(m, symbols[i], symbols[i + 1]);
  while (n > 1) {
    int64_t best = 0;
    /* Equal ranks (positions 65536 apart) go to the leftmost, so only the upper halves are compared. */
    for (int64_t i = 1; i + 1 < n; i++)
      if (ranks[i] >> 16 < ranks[best] >> 16 || (ranks[best] == NO_MERGE && ranks[i] != NO_MERGE)) best = i;
    if (ranks[best] == NO_MERGE) break;
    symbols[best] = (int32_t)(ranks[best] & 0xFFFF);
    n--;
    memmove(symbols + best + 1, symbols + best + 2, (size_t)(n - best - 1) * sizeof *symbols);
    memmove(bytes + best + 1, bytes + best + 2, (size_t)(n - best - 1));
    if (best + 1 < n) memmove(ranks + best + 1, ranks + best + 2, (size_t)(n - best - 2) * sizeof *ranks);
    if (best > 0) ranks[best - 1] = find_merge(m, symbols[best - 1], symbols[best]);
    if (best + 1 < n) ranks[best] = find_merge(m, symbols[best], symbols[best + 1]);
  }
  for (int64_t i = 0; i < n; i++) emit_symbol(m, sink, symbols[i], bytes[i]);
}

static inline void heap_down(uint64_t *heap, int64_t size, int64_t at) {
  uint64_t item = heap[at];
  for (;;) {
    int64_t child = 2 * at + 1;
    if (child >= size) break;
    if (child + 1 < size && heap[child + 1] < heap[child]) child++;
    if (heap[child] >= item) break;
    heap[at] = heap[child];
    at = child;
  }
  heap[at] = item;
}

static inline void heap_push(uint64_t *heap, int64_t *size, uint64_t item) {
  int64_t at = (*size)++;
  while (at > 0) {
    int64_t parent = (at - 1) / 2;
    if (heap[parent] <= item) break;
    heap[at] = heap[parent];
    at = parent;
  }
  heap[at] = item;
}

/* Many symbols: a heap of (rank, position) over a linked list. An entry counts only while the pair at its position
 * still has that rank; what the pair became instead has an entry of its own. */
static inline void merge_heaped(const bpe_model *m, bpe_scratch *w, const uint8_t *p, int64_t n, id_sink *sink) {
  if (!scratch_grow(w, n)) return;
  int32_t *symbols = w->symbols, *next = w->next, *previous = w->previous;
  uint32_t *ranks = w->ranks;
  uint64_t *heap = w->heap;
  int64_t size = 0;
  for (int64_t i = 0; i < n; i++) {
    symbols[i] = m->byte_ids[p[i]];
    next[i] = i + 1 < n ? (int32_t)(i + 1) : -1;
    previous[i] = (int32_t)(i - 1);
  }
  for (int64_t i = 0; i < n; i++) {
    ranks[i] = i + 1 < n ? find_merge(m, symbols[i], symbols[i + 1]) : NO_MERGE;
    if (ranks[i] != NO_MERGE) heap[size++] = (uint64_t)(ranks[i] >> 16) << 32 | (uint64_t)i;
  }
  for (int64_t i = size / 2 - 1; i >= 0; i--) heap_down(heap, size, i);
  while (size > 0) {
    uint64_t top = heap[0];
    heap[0] = heap[--size];
    if (size > 0) heap_down(heap, size, 0);
    int32_t at = (int32_t)(top & 0xFFFFFFFFu);
    if (ranks[at] == NO_MERGE || ranks[at] >> 16 != top >> 32) continue;
    int32_t gone = next[at], after = next[gone], before = previous[at];
    symbols[at] = (int32_t)(ranks[at] & 0xFFFF);
    next[at] = after;
    ranks[gone] = NO_MERGE;
    ranks[at] = NO_MERGE;
    if (after >= 0) {
      previous[after] = at;
      ranks[at] = find_merge(m, symbols[at], symbols[after]);
      if (ranks[at] != NO_MERGE) heap_push(heap, &size, (uint64_t)(ranks[at] >> 16) << 32 | (uint64_t)at);
    }
    if (before >= 0) {
      ranks[before] = find_merge(m, symbols[before], symbols[at]);
      if (ranks[before] != NO_MERGE) heap_push(heap, &size, (uint64_t)(ranks[before] >> 16) << 32 | (uint64_t)before);
    }
  }
  for (int32_t i = 0; i >= 0; i = next[i]) emit_symbol(m, sink, symbols[i], p[i]);
}

/* A piece that is not in the cache of words. */
static __attribute__((noinline)) void encode_new_piece(const bpe_model *m, bpe_scratch *w, const uint8_t *p,
                                                       int64_t n, uint64_t hash, id_sink *sink) {
  int32_t token = n <= m->longest_piece ? find_piece(m, p, n, (uint32_t)hash) : -1;
  if (token >= 0)
    sink->ids[sink->n_ids++] = m->piece_ids[token];
  else if (n <= SCANNED_PIECE)
    merge_scanning(m, p, n, sink);
  else
    merge_heaped(m, w, p, n, sink);
}

static inline void encode_piece(const bpe_model *m, bpe_scratch *w, const uint8_t *p, int64_t n, id_sink *sink) {
  if (n == 1) {
    emit_symbol(m, sink, m->byte_ids[p[0]], p[0]);
    return;
  }
  if (n > CACHED_BYTES || w->cache == NULL) {
    encode_new_piece(m, w, p, n, n <= m->longest_piece ? hash_bytes(p, n) : 0, sink);
    return;
  }
  piece_key key = key_of(p, n);
  uint64_t hash = hash_key(key, n);
  cache_slot *slot = &w->cache[hash >> 32 & w->cache_mask];
  uint16_t *ids = sink->ids + sink->n_ids;
  if (slot->key.low == key.low && slot->key.high == key.high && slot->length == n) {
    ids[0] = slot->ids[0];
    for (int i = 1; i < slot->n_ids; i++) ids[i] = slot->ids[i];
    sink->n_ids += slot->n_ids;
    return;
  }
  int64_t first = sink->n_ids, escapes = sink->n_escapes;
  encode_new_piece(m, w, p, n, hash, sink);
  int64_t found = sink->n_ids - first;
  if (sink->n_escapes == escapes) {
    slot->key = key;
    slot->length = (uint8_t)n;
    slot->n_ids = (uint8_t)found;
    memcpy(slot->ids, ids, (size_t)found * 2);
  }
}

/* --- words ---------------------------------------------------------------------------------------------------- */

static inline int wide_or_ascii_class(const uint8_t *p, const uint8_t *end, int *size);

/* Class of the character at p, which lies before `end`; *size is its number of bytes (columns.md 13.4, step 2). Not
 * `nested`: a sequence that punctuation breaks off counts as incomplete. Either way is the same to step 3, which only
 * asks for punctuation, so one walk serves both steps. */
static __attribute__((noinline)) int wide_class(const uint8_t *p, const uint8_t *end, int *size, int nested) {
  uint32_t lead = p[0], low = 0x80, high = 0xBF, code;
  int64_t there = end - p;
  int length;
  *size = 1;
  if (lead < 0xC2 || lead > 0xF4) return CLASS_OTHER; /* U+FFFD, as for every byte that fits nowhere */
  if (lead < 0xE0) {
    length = 2;
    code = lead & 31;
  } else if (lead < 0xF0) {
    length = 3;
    code = lead & 15;
    if (lead == 0xE0) low = 0xA0;
    if (lead == 0xED) high = 0x9F;
  } else {
    length = 4;
    code = lead & 7;
    if (lead == 0xF0) low = 0x90;
    if (lead == 0xF4) high = 0x8F;
  }
  for (int k = 1; k < length; k++) {
    /* The input ends inside a character: its first byte counts as the character of the same number, U+00C2..U+00F4.
     * These are letters, all but the sign of multiplication. */
    if (k >= there) return lead == 0xD7 ? CLASS_OTHER : CLASS_LETTER;
    if (p[k] < low || p[k] > high) {
      /* So it does where a run ends before punctuation, because step 4 decodes runs by themselves. */
      int ignored;
      if (!nested && wide_or_ascii_class(p + k, end, &ignored) == CLASS_PUNCTUATION)
        return lead == 0xD7 ? CLASS_OTHER : CLASS_LETTER;
      return CLASS_OTHER;
    }
    low = 0x80, high = 0xBF;
    code = code << 6 | (p[k] & 63);
  }
  *size = length;
  return class_of(code);
}

static inline int wide_or_ascii_class(const uint8_t *p, const uint8_t *end, int *size) {
  *size = 1;
  return p[0] < 0x80 ? class_of(p[0]) : wide_class(p, end, size, 1);
}

static inline int next_class(const bpe_model *m, const uint8_t *p, const uint8_t *end, int *size) {
  *size = 1;
  int kind = m->byte_classes[p[0]];
  return kind != CLASS_WIDE ? kind : wide_class(p, end, size, 0);
}

static inline int is_digit(uint8_t byte) { return (uint8_t)(byte - '0') < 10; }

/* Step 5: ASCII digits in threes from the left, everything else in runs. */
static inline void encode_word(const bpe_model *m, bpe_scratch *w, const uint8_t *p, const uint8_t *end,
                               id_sink *sink) {
  while (p < end) {
    const uint8_t *q = p + 1;
    if (is_digit(*p)) {
      while (q < end && q < p + 3 && is_digit(*q)) q++;
    } else {
      while (q < end && !is_digit(*q)) q++;
    }
    encode_piece(m, w, p, q - p, sink);
    p = q;
  }
}

/* Where the run of characters of class `kind` that goes on at p ends. */
static inline const uint8_t *run_end(const bpe_model *m, const uint8_t *p, const uint8_t *end, int kind) {
  for (;;) {
    while (p < end && m->byte_classes[*p] == kind) p++;
    int size;
    if (p == end || m->byte_classes[*p] != CLASS_WIDE || wide_class(p, end, &size, 0) != kind) return p;
    p += size;
  }
}

/* Steps 2 to 4 on what lies between specials. Words end at punctuation, and a run of it is one word, so step 3 needs no
 * walk of its own. The contractions of rule a never apply: the apostrophe is punctuation. */
static inline void encode_stretch(const bpe_model *m, bpe_scratch *w, const uint8_t *p, const uint8_t *end,
                                  id_sink *sink) {
  while (p < end) {
    int size, kind = next_class(m, p, end, &size), other;
    const uint8_t *q = p + size;
    if (kind == CLASS_SPACE) {
      other = q < end ? next_class(m, q, end, &size) : CLASS_PUNCTUATION;
      if (*p == ' ' && other != CLASS_SPACE && other != CLASS_PUNCTUATION) {
        kind = other;
        q += size;
      } else {
        const uint8_t *last = p;
        while (other == CLASS_SPACE) {
          last = q;
          q += size;
          other = q < end ? next_class(m, q, end, &size) : CLASS_PUNCTUATION;
        }
        if (other != CLASS_PUNCTUATION && last > p) q = last;
        encode_piece(m, w, p, q - p, sink);
        p = q;
        continue;
      }
    }
    q = run_end(m, q, end, kind);
    if (kind == CLASS_NUMBER)
      encode_word(m, w, p, q, sink);
    else
      encode_piece(m, w, p, q - p, sink); /* no digit in it */
    p = q;
  }
}

/* The longest special that begins at p, -1 where there is none. The last special that is not above the text, or
 * one of its prefixes, is the longest prefix of the text. */
static inline int64_t find_special(const bpe_model *m, const uint8_t *p, int64_t n) {
  int64_t low = 0, high = m->n_specials; /* first special above the text */
  while (low < high) {
    int64_t mid = low + (high - low) / 2, start = m->special_offsets[mid];
    int64_t length = m->special_offsets[mid + 1] - start;
    int order = memcmp(m->special_bytes + start, p, (size_t)(length < n ? length : n));
    if (order > 0 || (order == 0 && length > n))
      high = mid;
    else
      low = mid + 1;
  }
  for (int64_t s = low - 1; s >= 0; s = m->special_parents[s]) {
    int64_t start = m->special_offsets[s], length = m->special_offsets[s + 1] - start;
    if (length <= n && memcmp(m->special_bytes + start, p, (size_t)length) == 0) return s;
  }
  return -1;
}

static inline void encode_value(const bpe_model *m, bpe_scratch *w, const uint8_t *value, int64_t n, id_sink *sink) {
  const uint8_t *p = value, *end = value + n, *from = value;
  if (m->n_specials > 0) {
    while (p < end) {
      if (!m->special_first[*p]) {
        p++;
        continue;
      }
      int64_t s = find_special(m, p, end - p);
      if (s < 0) {
        p++;
        continue;
      }
      encode_stretch(m, w, from, p, sink);
      sink->ids[sink->n_ids++] = m->special_ids[s];
      p += m->special_offsets[s + 1] - m->special_offsets[s];
      from = p;
    }
  }
  encode_stretch(m, w, from, end, sink);
}

/* Encodes the values [begin, end); their ids and escapes begin at the place of their first byte. Returns -1, or the
 * value that does not decode to its own bytes, or -2 when memory ran out. */
static inline int64_t encode_block(const bpe_model *m, const int64_t *offsets, const uint8_t *data, int64_t begin,
                                   int64_t end, int verify, uint16_t *ids, uint8_t *escapes, int64_t *counts,
                                   int64_t *n_ids, int64_t *n_escapes) {
  bpe_scratch w;
  id_sink sink;
  int64_t base = offsets[begin], bytes = offsets[end] - base, bad = -1, slots = 256;
  memset(&w, 0, sizeof w);
  while (slots < 8192 && slots * 16 < bytes) slots *= 2;
  w.cache = (cache_slot *)calloc((size_t)slots, sizeof *w.cache); /* NULL: slower, still right */
  w.cache_mask = (uint32_t)(slots - 1);
  sink.ids = ids + (base - offsets[0]);
  sink.escapes = escapes + (base - offsets[0]);
  sink.n_ids = sink.n_escapes = 0;
  for (int64_t v = begin; v < end; v++) {
    const uint8_t *value = data + offsets[v];
    int64_t n = offsets[v + 1] - offsets[v], first = sink.n_ids, first_escape = sink.n_escapes;
    encode_value(m, &w, value, n, &sink);
    if (w.failed) {
      bad = -2;
      break;
    }
    counts[v] = sink.n_ids - first;
    if (verify && !token_equal(m->tokens, sink.ids + first, sink.n_ids - first, sink.escapes + first_escape,
                               sink.n_escapes - first_escape, value, n)) {
      bad = v;
      break;
    }
  }
  *n_ids = sink.n_ids;
  *n_escapes = sink.n_escapes;
  scratch_free(&w);
  return bad;
}

#endif
