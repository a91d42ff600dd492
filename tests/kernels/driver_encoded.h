/* The kernels of encoded formats, as driver.c runs them: streams made by our own encoders, a part of them per turn, and
 * the same streams damaged, each in memory of its exact size, so that a sanitizer sees a step outside. */
#ifndef COLSTORE_DRIVER_ENCODED_H
#define COLSTORE_DRIVER_ENCODED_H

#include "column_codec.h"
#include "decode.h"
#include "message_log.h"
#include "packed5.h"
#include "token_table.h"
#include "wire.h"
/* A translation unit of its own in the package: some helpers have the names of those of decode.h. */
#define load_u32 encode_load_u32
#define load_u64 encode_load_u64
#include "encode.h"
#undef load_u32
#undef load_u64

#define PARTS 8
#define VALUES 10000 /* of each part */
#define BIT_WIDTH 11
#define TOKENS 300
#define STREAM_ROOM (VALUES * 16 + 4096)
#define DAMAGED 400

typedef struct {
  int64_t *values;
  uint32_t *codes;
  uint16_t *ids;
  uint8_t *text; /* values of 0 to 9 bytes, one behind the other */
  int64_t *lengths, n_text;
  uint8_t *stream;
  int64_t n_stream;
  uint8_t *out;
  int64_t *offsets; /* VALUES + 1 */
} part;

typedef struct encoded_parts {
  part parts[PARTS];
  token_table tokens;
} encoded;

static void make_part(part *p, encoded *e, int number) {
  p->values = room(VALUES * 8);
  p->codes = room(VALUES * 4);
  p->ids = room(VALUES * 2);
  p->text = room(VALUES * 10);
  p->lengths = room(VALUES * 8);
  p->stream = room(STREAM_ROOM);
  p->out = room(STREAM_ROOM);
  p->offsets = room((VALUES + 1) * 8);
  for (int64_t i = 0, walk = number; i < VALUES; i++) {
    walk += (int64_t)(random64() % 201) - 90;
    p->values[i] = walk;
    p->codes[i] = (uint32_t)(random64() >> 20) & ((1u << BIT_WIDTH) - 1);
    p->ids[i] = (uint16_t)(random64() % TOKENS);
    p->lengths[i] = (int64_t)(random64() % 10);
    for (int64_t k = 0; k < p->lengths[i]; k++) p->text[p->n_text++] = (uint8_t)('a' + random64() % 26);
  }
  (void)e;
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
  for (int i = 0; i < PARTS; i++) make_part(&e->parts[i], e, i);
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
    if (packed_span(p->stream, p->n_stream, 0, VALUES, BIT_WIDTH, 1 << BIT_WIDTH, (uint32_t *)(void *)p->out) >= 0)
      shared_store(&w->bad, 0);
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

/* Each id is a value of its own; `lengths` of the part says how long its token is. */
static int64_t decode_tokens(const token_table *t, const part *p, uint8_t *out, int64_t capacity) {
  int64_t *starts = room((VALUES + 1) * 8), *ends = room((VALUES + 1) * 8), escapes, bad, written = -1;
  for (int64_t i = 0; i <= VALUES; i++) starts[i] = i;
  token_lengths(t, p->ids, VALUES, starts, 0, VALUES, capacity, ends + 1, &escapes, &bad);
  if (bad == -1) {
    for (int64_t i = 0; i < VALUES; i++) ends[i + 1] += ends[i];
    written = ends[VALUES];
    if (!token_copy(t, p->ids, VALUES, starts, ends, written, 0, VALUES, NULL, 0, 0, out)) written = -1;
  }
  free(starts);
  free(ends);
  return written;
}

static void tokens_run(work *w) {
  EACH_PART(w, p) {
    if (decode_tokens(&w->encoded->tokens, p, p->out, STREAM_ROOM) < 0) shared_store(&w->bad, 0);
  }
}

/* ---- streams, before anything is measured -------------------------------------------------------------------- */

static void delta_stream(part *p) { delta_encode(p->values, VALUES, 8, 1, (uint64_t *)(void *)p->stream); }

static void packed_stream(part *p) {
  pack_msb(p->codes, VALUES, BIT_WIDTH, p->stream);
  p->n_stream = ceil_div((int64_t)VALUES * BIT_WIDTH, 8);
}

static void prefixed_stream(part *p) {
  const uint8_t *text = p->text;
  for (int64_t i = 0; i < VALUES; text += p->lengths[i++]) {
    uint32_t length = (uint32_t)p->lengths[i];
    memcpy(p->stream + p->n_stream, &length, 4);
    memcpy(p->stream + p->n_stream + 4, text, length);
    p->n_stream += 4 + length;
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

/* ---- damage -------------------------------------------------------------------------------------------------- */

/* Two hundred values are enough here: what is read and written has no byte of slack. */
#define FEW 200

static void decode_damaged(work *w, const uint8_t *sound, int64_t n, int kind) {
  int64_t keep = n - (random64() % 4 == 0 ? (int64_t)(random64() % (uint64_t)(n + 1)) : 0), at = 0, found;
  int64_t lead = kind == 7 ? CB_LEAD : 0; /* what readers of messages may load in front */
  uint8_t *memory = calloc(1, (size_t)(lead + keep + !keep)), *data = memory + lead, *out = malloc(FEW * 8);
  int64_t *places = malloc((FEW + 1) * 8 * 6);
  uint8_t *flags = malloc(FEW);
  if (!memory || !out || !places || !flags) exit(2);
  memcpy(data, sound, (size_t)keep);
  for (uint64_t changes = random64() % 4; changes && keep; changes--) data[random64() % (uint64_t)keep] = (uint8_t)random64();
  int64_t *offset = places, *size = places + FEW, *rows = places + 2 * FEW, *start = places + 3 * FEW;
  int64_t *bytes = places + 4 * FEW;
  plain_state s = {0, 0, 0, 0, 0};
  const char *why = NULL;
  switch (kind) {
    case 0: (void)column_decode_as(codec_isa(w), COLUMN_I64, data, keep, FEW, out); break;
    case 1: (void)column_decode_as(codec_isa(w), COLUMN_U16, data, keep, FEW, out); break;
    case 2: (void)plain_values(data, keep, &s, places, 1, FEW, out, FEW * 8); break;
    case 3: (void)lzw_span(data, keep, out, FEW * 8); break;
    case 4: (void)packed5_decode(data, (long)keep, 0, out, FEW * 8); break;
    case 5: (void)is_utf8_span(data, keep); break;
    case 6:
      (void)walk_frames(data, keep, &at, 0, FEW, offset, size, rows, &found);
      if (found) (void)open_frames(data, keep, 0, found, offset, size, rows, start, bytes, flags, &at);
      if (found) (void)last_sound_frame(data, keep, 0, found, offset, size, rows);
      break;
    default:
      for (const uint8_t *p = data; p && p < data + keep;) p = cb_skip_k8(p, data + keep, &why);
      (void)is_utf8_span(data, keep);
  }
  free(memory);
  free(out);
  free(places);
  free(flags);
}

static void damaged_run(work *w) {
  EACH_PART(w, p) {
    if (turn_) continue; /* the random numbers belong to one thread */
    uint32_t *table = room(LZW_SLOTS * 4);
    uint8_t *stream = room(STREAM_ROOM);
    int upper;
    for (int i = 0; i < DAMAGED; i++)
      for (int kind = 0; kind < 8; kind++) {
        int64_t n = 1 + (int64_t)(random64() % 1000);
        if (kind < 2) n = column_encode(p->values, FEW, stream);
        else if (kind == 3) n = lzw_encode(p->text, n, table, stream);
        else if (kind == 4) n = packed5_encode(p->text, (long)n, stream, STREAM_ROOM, &upper);
        else if (kind == 6)
          for (int64_t at = n = 0; at < 20; at++) {
            uint32_t word = 3 | (at & 1 ? FRAME_ROWS : 0), crc;
            int64_t head = at & 1 ? 12 : 8;
            memset(stream + n, 7, 16);
            memcpy(stream + n, &word, 4);
            crc = frame_crc(frame_crc(0, stream + n, 4), stream + n + 8, head + 3 - 8);
            memcpy(stream + n + 4, &crc, 4);
            n += head + 3;
          }
        else if (kind == 7) memcpy(stream, p->codes, (size_t)n);
        else memcpy(stream, p->stream, (size_t)(n = min_i64(n, p->n_stream)));
        if (n > 0) decode_damaged(w, stream, n, kind);
      }
    free(table);
    free(stream);
  }
}

static int nothing_wrong(const work *w) { return w == NULL; }

#endif
