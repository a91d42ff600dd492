/* The kernels of encoded columns, as driver.c runs them: streams made by our own encoders, a part of them per turn. */
#ifndef COLSTORE_DRIVER_ENCODED_H
#define COLSTORE_DRIVER_ENCODED_H

#include "column_codec.h"
#include "packed5.h"
#include "token_blocks.h"
#include "token_pieces.h"
/* Translation units of their own in the package: some helpers have the same names. */
#define load_u32 decode_load_u32
#include "decode.h"
#undef load_u32
#define load_u32 encode_load_u32
#define load_u64 encode_load_u64
#define hash_bytes encode_hash_bytes
#define copy_short encode_copy_short
#include "encode.h"
#undef load_u32
#undef load_u64
#undef hash_bytes
#undef copy_short

#define PARTS 8
#define VALUES 10000 /* of each part */
#define BIT_WIDTH 11
#define TOKENS 300
#define MERGES 200
#define STREAM_ROOM (VALUES * 16 + 4096)

typedef struct {
  int64_t *values;
  uint32_t *codes;
  uint16_t *ids;
  uint8_t *text; /* values of 0 to 9 bytes, one behind the other */
  int64_t *lengths, n_text;
  int64_t *text_offsets; /* VALUES + 1 */
  uint8_t *words;        /* the tokens of `ids`: few different values */
  int64_t *word_offsets, n_words;
  uint8_t *stream;
  int64_t n_stream;
  uint8_t *out;
  int64_t *offsets; /* VALUES + 1 */
  uint32_t *found, *firsts, *table;
  int64_t result[4];
  void *own; /* of kernels in other files */
} part;

typedef struct encoded_parts {
  part parts[PARTS];
  token_table tokens;
  uint32_t *entry_bounds; /* of the tokens: as a dictionary has them */
  bpe_model model; /* pairs of letters */
} encoded;

static void make_part(part *p, encoded *e, int number) {
  p->values = room(VALUES * 8);
  p->codes = room(VALUES * 4);
  p->ids = room(VALUES * 2);
  p->text = room(VALUES * 10);
  p->lengths = room(VALUES * 8);
  p->text_offsets = room((VALUES + 1) * 8);
  p->words = room(VALUES * 20);
  p->word_offsets = room((VALUES + 1) * 8);
  p->stream = room(STREAM_ROOM);
  p->out = room(STREAM_ROOM);
  p->offsets = room((VALUES + 1) * 8);
  p->found = room(VALUES * 4);
  p->firsts = room(VALUES * 4);
  p->table = room(LZW_SLOTS * 4);
  for (int64_t i = 0, walk = number; i < VALUES; i++) {
    walk += (int64_t)(random64() % 201) - 90;
    p->values[i] = walk;
    p->codes[i] = (uint32_t)(random64() >> 20) & ((1u << BIT_WIDTH) - 1);
    p->ids[i] = (uint16_t)(random64() % TOKENS);
    p->lengths[i] = (int64_t)(random64() % 10);
    for (int64_t k = 0; k < p->lengths[i]; k++) p->text[p->n_text++] = (uint8_t)('a' + random64() % 26);
    p->text_offsets[i + 1] = p->n_text;
    int64_t length = token_length(&e->tokens, p->ids[i]);
    memcpy(p->words + p->n_words, e->tokens.bytes + e->tokens.offsets[p->ids[i]], (size_t)length);
    p->word_offsets[i + 1] = p->n_words += length;
  }
}

/* A model whose tokens are the bytes, and pairs of letters; its table of tokens is its own. */
static void make_model(bpe_model *m) {
  int64_t n = 256 + MERGES, *offsets = room((size_t)(n + 1) * 8);
  uint8_t *bytes = room((size_t)n * 2);
  token_table *t = room(sizeof *t);
  uint16_t *ids = room((size_t)n * 2);
  for (int64_t i = 0; i < n; i++) {
    uint64_t pair = (uint64_t)(i - 256) * 3;
    ids[i] = (uint16_t)i;
    offsets[i + 1] = offsets[i] + (i < 256 ? 1 : 2);
    if (i < 256) {
      bytes[offsets[i]] = (uint8_t)i;
      m->byte_ids[i] = (int32_t)i;
      m->byte_classes[i] = i < 128 ? (uint8_t)class_of((uint32_t)i) : CLASS_WIDE;
    } else {
      bytes[offsets[i]] = (uint8_t)('a' + pair / 26);
      bytes[offsets[i] + 1] = (uint8_t)('a' + pair % 26);
    }
  }
  *t = (token_table){room((size_t)n * sizeof(token_entry)), offsets, bytes, n, 65535};
  for (int64_t i = 0; i < n; i++) {
    t->entries[i].length = (uint8_t)(offsets[i + 1] - offsets[i]);
    memcpy(t->entries[i].bytes, bytes + offsets[i], t->entries[i].length);
  }
  m->tokens = t;
  m->merge_shift = 64 - 10;
  m->merges = room(1024 * sizeof(merge_slot));
  memset(m->merges, 255, 1024 * sizeof(merge_slot));
  m->piece_mask = 1023;
  m->pieces = room(1024 * sizeof(piece_slot));
  memset(m->pieces, 255, 1024 * sizeof(piece_slot));
  m->piece_offsets = offsets;
  m->piece_bytes = bytes;
  m->piece_ids = ids;
  for (int64_t i = 0; i < n; i++) add_piece(m, (int32_t)i);
  for (int64_t i = 256; i < n; i++)
    add_merge(m, bytes[offsets[i]], bytes[offsets[i] + 1], (uint16_t)(i - 256), (uint16_t)i);
}

static encoded *make_encoded(void) {
  encoded *e = room(sizeof *e);
  int64_t *offsets = room((TOKENS + 1) * 8);
  uint8_t *bytes = room(TOKENS * 20);
  e->tokens = (token_table){room(TOKENS * sizeof(token_entry)), offsets, bytes, TOKENS, TOKENS};
  for (int64_t t = 0, at = 0; t < TOKENS; t++) {
    int64_t length = 1 + t % 6 + (t % 50 == 0) * 12;
    for (int64_t k = 0; k < length; k++) bytes[at + k] = (uint8_t)('a' + (t + k) % 26);
    memcpy(e->tokens.entries[t].bytes, bytes + at, (size_t)min_i64(length, SHORT_TOKEN));
    e->tokens.entries[t].length = length <= SHORT_TOKEN ? (uint8_t)length : LONG_TOKEN;
    offsets[t + 1] = at += length;
  }
  e->entry_bounds = room((TOKENS + 1) * 4);
  for (int64_t t = 0; t <= TOKENS; t++) e->entry_bounds[t] = (uint32_t)offsets[t];
  for (int i = 0; i < PARTS; i++) make_part(&e->parts[i], e, i);
  make_model(&e->model);
  return e;
}

static int codec_isa(const work *w) { return w->isa >= ISA_AVX2 ? COLUMN_AVX2 : COLUMN_PORTABLE; }

#define EACH_PART(w, p)                                   \
  for (int64_t turn_; (turn_ = next_turn(w, PARTS)) >= 0;) \
    for (part *p = &(w)->encoded->parts[turn_], *once_ = p; once_; once_ = NULL)

/* ---- what is measured -------------------------------------------------------------------------------------- */

static void delta_decode_run(work *w) {
  EACH_PART(w, p) delta_span(p->stream, VALUES, p->out, 8, 0);
}

static void unpack_run(work *w) {
  EACH_PART(w, p) {
    packed_state s = {0, 0, 0};
    uint32_t *out = (uint32_t *)(void *)p->out;
    int64_t done = 0;
    for (int64_t at = 0; at < p->n_stream; at += 4001) /* blocks are cut anywhere */
      done += packed_block(p->stream + at, min_i64(4001, p->n_stream - at), &s, BIT_WIDTH, VALUES - done, out + done);
    if (done != VALUES || first_too_large(out, VALUES, 1 << BIT_WIDTH) >= 0) shared_store(&w->bad, 0);
  }
}

static void prefix_run(work *w) {
  EACH_PART(w, p) {
    plain_state s = {0, 0, 0, 0, 0};
    for (int64_t at = 0; at < p->n_stream; at += 4001) /* blocks are cut anywhere */
      if (plain_values(p->stream + at, min_i64(4001, p->n_stream - at), &s, p->offsets, 1, VALUES, p->out, p->n_text))
        shared_store(&w->bad, at);
  }
}

static void column_encode_run(work *w) {
  EACH_PART(w, p) p->n_stream = column_encode_as(codec_isa(w), COLUMN_I64, p->values, VALUES, p->stream, NULL);
}

static void column_decode_run(work *w) {
  EACH_PART(w, p) {
    if (column_decode_as(codec_isa(w), COLUMN_I64, p->stream, p->n_stream, VALUES, p->out)) shared_store(&w->bad, 0);
  }
}

/* Ids of `size` bytes, in blocks, each of them a value of its own; the bytes written, or -1. */
static int64_t decode_tokens(const token_table *t, token_reader r, const uint8_t *ids, int64_t size, part *p) {
  r.tokens = t, r.n_ids = r.n_values = VALUES, r.max_bytes = STREAM_ROOM;
  for (int64_t i = 0; i < VALUES; i++) p->offsets[i + 1] = 1;
  token_begin(&r, p->offsets, 1);
  for (int64_t at = 0; at < size; at += 4001) {
    int64_t used = 0, n = min_i64(4001, size - at);
    if (token_step(&r, ids + at, n, &used, p->offsets, 1, p->out, STREAM_ROOM) != TOKENS_DONE) return -1;
  }
  return r.ids == VALUES && r.value == VALUES ? r.written : -1;
}

static void tokens_run(work *w) {
  EACH_PART(w, p) {
    token_reader r = {0};
    if (decode_tokens(&w->encoded->tokens, r, (const uint8_t *)p->ids, 2 * VALUES, p) != p->n_words)
      shared_store(&w->bad, 0);
  }
}

static void delta_encode_run(work *w) {
  EACH_PART(w, p) delta_encode((const uint8_t *)p->values, VALUES, 8, 1, (uint64_t *)(void *)p->stream);
}

static void pack_run(work *w) {
  EACH_PART(w, p) pack_msb(p->codes, VALUES, BIT_WIDTH, p->stream);
}

static void dictionary_run(work *w) {
  EACH_PART(w, p) p->result[0] = codes_v64(p->word_offsets, VALUES, p->words, VALUES, 7, p->found, p->firsts);
}

static void fixed_dictionary_run(work *w) {
  EACH_PART(w, p) p->result[0] = codes_fixed((const uint8_t *)p->codes, VALUES, 4, VALUES, 7, p->found, p->firsts);
}

static void prefixed_run(work *w) {
  EACH_PART(w, p) prefixed_v64(p->text_offsets, VALUES, p->text, 0, 0, p->stream, p->n_text + 4 * VALUES);
}

static void text_bounds_run(work *w) {
  EACH_PART(w, p) bounds_v64(p->text_offsets, VALUES, p->text, 0, p->result);
}

static void affix_run(work *w) {
  const value_affixes affixes = {(const uint8_t *)"id-", (const uint8_t *)".x", 3, 2};
  EACH_PART(w, p) {
    plain_state s = {0, 0, 0, 0, 0};
    for (int64_t at = 0; at < p->n_stream; at += 4001)
      if (affixed_values(p->stream + at, min_i64(4001, p->n_stream - at), &s, affixes, p->offsets, 1, VALUES, p->out,
                         p->n_text + 5 * VALUES))
        shared_store(&w->bad, at);
  }
}

static void entries_run(work *w) {
  const token_table *t = &w->encoded->tokens;
  EACH_PART(w, p) {
    const uint32_t *bounds = w->encoded->entry_bounds;
    if (entries_length(p->found, VALUES, bounds, STREAM_ROOM) != p->n_words ||
        !take_variable_64(p->found, VALUES, bounds, t->bytes, bounds[TOKENS], p->offsets, p->out, p->n_words))
      shared_store(&w->bad, 0);
  }
}

static void nulls_run(work *w) {
  EACH_PART(w, p) {
    validity_span(p->stream, VALUES, (uint8_t *)(void *)p->found);
    expand_span(p->out, VALUES, p->result[0], 8, p->stream);
  }
}

static void utf8_run(work *w) {
  EACH_PART(w, p) {
    if (first_not_utf8_64(p->out, p->offsets, VALUES) != -1) shared_store(&w->bad, 0);
  }
}

static void lzw_encode_run(work *w) {
  EACH_PART(w, p) p->n_stream = lzw_encode(p->text, p->n_text, p->table, p->stream);
}

static void lzw_decode_run(work *w) {
  EACH_PART(w, p) p->result[0] = lzw_span(p->stream, p->n_stream, p->out, p->n_text);
}

static void packed5_run(work *w) {
  EACH_PART(w, p) {
    int64_t at = 0;
    for (int64_t i = 0; i < VALUES; i++) {
      int upper;
      const uint8_t *value = p->text + p->text_offsets[i];
      long length = (long)p->lengths[i], size = packed5_encode(value, length, p->stream, length, &upper);
      if (size < 0)
        memcpy(p->out + at, value, (size_t)length);
      else if (packed5_decode(p->stream, size, upper, p->out + at, length) != length)
        shared_store(&w->bad, i);
      at += length;
    }
  }
}

static void token_encode_run(work *w) {
  const bpe_model *m = &w->encoded->model;
  EACH_PART(w, p) {
    if (encode_block(m, p->text_offsets, p->text, 0, VALUES, 1, (uint16_t *)(void *)p->out, p->stream, p->offsets,
                     &p->result[0], &p->result[1]) != -1)
      shared_store(&w->bad, 0);
  }
}

/* Ids in nine bits, then as varints of their places in a table. */
static void token_ids_run(work *w) {
  const token_table *t = &w->encoded->tokens;
  EACH_PART(w, p) {
    uint16_t places[TOKENS];
    token_reader packed = {.representation = IDS_BITS, .width = 9};
    token_reader mapped = {.representation = IDS_REMAP, .table = (const uint8_t *)places, .n_table = TOKENS};
    int64_t size = ceil_div(9 * (int64_t)VALUES, 8);
    for (int64_t i = 0; i < TOKENS; i++) places[i] = (uint16_t)(TOKENS - 1 - i);
    if (!bits_encode(p->ids, VALUES, 9, p->stream) || decode_tokens(t, packed, p->stream, size, p) != p->n_words)
      shared_store(&w->bad, 0);
    size = remap_encode(p->ids, VALUES, places, p->stream, STREAM_ROOM);
    if (decode_tokens(t, mapped, p->stream, size, p) != p->n_words) shared_store(&w->bad, 0);
  }
}

/* ---- streams, before anything is measured -------------------------------------------------------------------- */

static void delta_stream(part *p) { delta_encode((const uint8_t *)p->values, VALUES, 8, 1, (uint64_t *)(void *)p->stream); }

static void packed_stream(part *p) {
  pack_msb(p->codes, VALUES, BIT_WIDTH, p->stream);
  p->n_stream = ceil_div((int64_t)VALUES * BIT_WIDTH, 8);
}

static int64_t put_prefixed(const part *p, uint8_t *target) {
  const uint8_t *text = p->text;
  int64_t at = 0;
  for (int64_t i = 0; i < VALUES; text += p->lengths[i++]) {
    uint32_t length = (uint32_t)p->lengths[i];
    memcpy(target + at, &length, 4);
    memcpy(target + at + 4, text, length);
    at += 4 + length;
  }
  return at;
}

static void prefixed_stream(part *p) { p->n_stream = put_prefixed(p, p->stream); }

static void lzw_stream(part *p) { p->n_stream = lzw_encode(p->text, p->n_text, p->table, p->stream); }

static void entries_stream(part *p) {
  for (int64_t i = 0; i < VALUES; i++) p->found[i] = p->ids[i];
}

/* A bitmap where one value in eight is null, and the others at the end of the output. */
static void nulls_stream(part *p) {
  int64_t dense = 0;
  for (int64_t i = 0; i < VALUES; i++)
    if (random64() % 8 == 0) p->stream[i >> 3] |= (uint8_t)(1 << (i & 7));
    else dense++;
  p->result[0] = dense;
  for (int64_t i = 0, k = VALUES - dense; i < VALUES; i++)
    if (!(p->stream[i >> 3] >> (i & 7) & 1)) memcpy(p->out + 8 * k++, p->values + i, 8);
}

/* The texts with a vowel of two bytes. */
static void utf8_stream(part *p) {
  int64_t at = 0, from = 0;
  for (int64_t i = 0; i < VALUES; i++) {
    for (int64_t k = 0; k < p->lengths[i]; k++, from++)
      if (p->text[from] == 'a') {
        p->out[at++] = 0xC3;
        p->out[at++] = 0xA4;
      } else {
        p->out[at++] = p->text[from];
      }
    p->offsets[i + 1] = at;
  }
}

static void column_stream(part *p) { p->n_stream = column_encode(p->values, VALUES, p->stream); }

static void no_stream(part *p) { (void)p; }

/* ---- what must come out -------------------------------------------------------------------------------------- */

static int wrong_values(const work *w) {
  for (int i = 0; i < PARTS; i++)
    if (memcmp(w->encoded->parts[i].out, w->encoded->parts[i].values, VALUES * 8)) return 1;
  return 0;
}

static int wrong_codes(const work *w) {
  for (int i = 0; i < PARTS; i++)
    if (memcmp(w->encoded->parts[i].out, w->encoded->parts[i].codes, VALUES * 4)) return 1;
  return 0;
}

static int wrong_texts(const work *w) {
  for (int i = 0; i < PARTS; i++) {
    const part *p = &w->encoded->parts[i];
    if (memcmp(p->out, p->text, (size_t)p->n_text) || p->offsets[VALUES] != p->n_text) return 1;
    for (int64_t k = 0; k < VALUES; k++)
      if (p->offsets[k + 1] - p->offsets[k] != p->lengths[k]) return 1;
  }
  return 0;
}

static int wrong_columns(const work *w) {
  for (int i = 0; i < PARTS; i++) {
    part *p = &w->encoded->parts[i];
    if (column_decode(p->stream, p->n_stream, VALUES, (int64_t *)(void *)p->out)) return 1;
  }
  return wrong_values(w);
}

static int wrong_tokens(const work *w) {
  const token_table *t = &w->encoded->tokens;
  for (int i = 0; i < PARTS; i++) {
    const part *p = &w->encoded->parts[i];
    const uint8_t *at = p->out;
    for (int64_t k = 0; k < VALUES; k++) {
      int64_t length = token_length(t, p->ids[k]);
      if (memcmp(at, t->bytes + t->offsets[p->ids[k]], (size_t)length)) return 1;
      at += length;
    }
  }
  return 0;
}

static int wrong_deltas(const work *w) {
  for (int i = 0; i < PARTS; i++) {
    const part *p = &w->encoded->parts[i];
    uint64_t sum = 0, step;
    for (int64_t k = 0; k < VALUES; k++) {
      memcpy(&step, p->stream + 8 * k, 8);
      sum += step;
      if ((int64_t)sum != p->values[k]) return 1;
    }
  }
  return 0;
}

static int wrong_packing(const work *w) {
  for (int i = 0; i < PARTS; i++) {
    const part *p = &w->encoded->parts[i];
    for (int64_t bit = 0; bit < (int64_t)VALUES * BIT_WIDTH; bit++)
      if ((p->stream[bit >> 3] >> (7 - (bit & 7)) & 1) !=
          (p->codes[bit / BIT_WIDTH] >> (BIT_WIDTH - 1 - bit % BIT_WIDTH) & 1))
        return 1;
  }
  return 0;
}

/* Codes count up where they first appear, and stand for the row that they name. */
static int wrong_dictionary(const work *w, int fixed) {
  for (int i = 0; i < PARTS; i++) {
    const part *p = &w->encoded->parts[i];
    uint32_t next = 0;
    for (int64_t k = 0; k < VALUES; k++) {
      if (p->found[k] > next || (p->found[k] == next && p->firsts[next++] != k)) return 1;
      int64_t f = p->firsts[p->found[k]], length = p->word_offsets[k + 1] - p->word_offsets[k];
      if (fixed ? p->codes[f] != p->codes[k]
                : p->word_offsets[f + 1] - p->word_offsets[f] != length ||
                      memcmp(p->words + p->word_offsets[f], p->words + p->word_offsets[k], (size_t)length))
        return 1;
    }
    if (p->result[0] != next || next > (fixed ? 1u << BIT_WIDTH : (uint32_t)TOKENS)) return 1;
  }
  return 0;
}

static int wrong_words(const work *w) { return wrong_dictionary(w, 0); }
static int wrong_numbers(const work *w) { return wrong_dictionary(w, 1); }

static int wrong_prefixes(const work *w) {
  for (int i = 0; i < PARTS; i++) {
    const part *p = &w->encoded->parts[i];
    if (put_prefixed(p, p->out) != p->n_text + 4 * VALUES || memcmp(p->out, p->stream, (size_t)(p->n_text + 4 * VALUES)))
      return 1;
  }
  return 0;
}

static int order_of(const part *p, int64_t i, int64_t k) {
  int order = memcmp(p->text + p->text_offsets[i], p->text + p->text_offsets[k],
                     (size_t)min_i64(p->lengths[i], p->lengths[k]));
  return order ? order : (p->lengths[i] > p->lengths[k]) - (p->lengths[i] < p->lengths[k]);
}

static int wrong_bounds(const work *w) {
  for (int i = 0; i < PARTS; i++) {
    const part *p = &w->encoded->parts[i];
    for (int64_t k = 0; k < VALUES; k++)
      if (order_of(p, k, p->result[0]) < 0 || order_of(p, k, p->result[1]) > 0 || p->lengths[k] < p->result[2] ||
          p->lengths[k] > p->result[3])
        return 1;
  }
  return 0;
}

static int wrong_affixes(const work *w) {
  for (int i = 0; i < PARTS; i++) {
    const part *p = &w->encoded->parts[i];
    for (int64_t k = 0, at = 0; k < VALUES; at = p->offsets[++k]) {
      int64_t n = p->lengths[k];
      if (p->offsets[k + 1] - at != n + 5 || memcmp(p->out + at, "id-", 3) ||
          memcmp(p->out + at + 3, p->text + p->text_offsets[k], (size_t)n) || memcmp(p->out + at + 3 + n, ".x", 2))
        return 1;
    }
  }
  return 0;
}

static int wrong_entries(const work *w) {
  for (int i = 0; i < PARTS; i++) {
    const part *p = &w->encoded->parts[i];
    if (memcmp(p->out, p->words, (size_t)p->n_words) || memcmp(p->offsets, p->word_offsets, (VALUES + 1) * 8)) return 1;
  }
  return 0;
}

static int wrong_nulls(const work *w) {
  for (int i = 0; i < PARTS; i++) {
    const part *p = &w->encoded->parts[i];
    for (int64_t k = 0; k < VALUES; k++) {
      int64_t found, valid = !(p->stream[k >> 3] >> (k & 7) & 1);
      memcpy(&found, p->out + 8 * k, 8);
      if (found != (valid ? p->values[k] : 0) || ((const uint8_t *)p->found)[k] != valid) return 1;
    }
  }
  return 0;
}

static int wrong_lzw(const work *w) {
  for (int i = 0; i < PARTS; i++) {
    const part *p = &w->encoded->parts[i];
    if (p->result[0] != p->n_text || memcmp(p->out, p->text, (size_t)p->n_text)) return 1;
  }
  return 0;
}

static int wrong_lzw_streams(const work *w) {
  for (int i = 0; i < PARTS; i++) {
    const part *p = &w->encoded->parts[i];
    if (lzw_span(p->stream, p->n_stream, p->out, p->n_text) != p->n_text ||
        memcmp(p->out, p->text, (size_t)p->n_text))
      return 1;
  }
  return 0;
}

static int wrong_packed_texts(const work *w) {
  for (int i = 0; i < PARTS; i++)
    if (memcmp(w->encoded->parts[i].out, w->encoded->parts[i].text, (size_t)w->encoded->parts[i].n_text)) return 1;
  return 0;
}

static int wrong_pieces(const work *w) {
  const token_table *t = w->encoded->model.tokens;
  for (int i = 0; i < PARTS; i++) {
    const part *p = &w->encoded->parts[i];
    const uint16_t *id = (const uint16_t *)(const void *)p->out;
    int64_t at = 0;
    for (int64_t k = 0; k < p->result[0]; k++, id++) {
      int64_t length = token_length(t, *id);
      if (memcmp(p->text + at, t->bytes + t->offsets[*id], (size_t)length)) return 1;
      at += length;
    }
    if (at != p->n_text || p->result[0] == at || p->result[1]) return 1;
  }
  return 0;
}

static int nothing_wrong(const work *w) { return w == NULL; }

/* Makes the streams of all parts by one of the functions above. */
#define PREPARED(stream)                                                                     \
  static void stream##_of_parts(work *w) {                                                   \
    w->encoded = make_encoded();                                                             \
    for (int i = 0; i < PARTS; i++) stream(&w->encoded->parts[i]);                           \
  }
PREPARED(no_stream)
PREPARED(delta_stream)
PREPARED(packed_stream)
PREPARED(prefixed_stream)
PREPARED(column_stream)
PREPARED(lzw_stream)
PREPARED(entries_stream)
PREPARED(nulls_stream)
PREPARED(utf8_stream)

#endif
