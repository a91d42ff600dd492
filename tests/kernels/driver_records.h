/* The kernels of headers, frames, footers and records, as driver.c runs them: what they read is made here. */
#ifndef COLSTORE_DRIVER_RECORDS_H
#define COLSTORE_DRIVER_RECORDS_H

#include "gob.h"
#include "message_log.h"
/* Translation units of their own in the package: some helpers have the same names. */
#define copy_short record_copy_short
#include "record_columns.h"
#undef copy_short
#define load_u32 heads_load_u32
#define load_i64 heads_load_i64
#include "heads.h"
#undef load_u32
#undef load_i64

static void put_le(uint8_t *at, uint64_t value, int nbytes) {
  for (int k = 0; k < nbytes; k++) at[k] = (uint8_t)(value >> 8 * k);
}

/* ---- record headers, and heads of files that look alike -------------------------------------------------------- */

#define HEADERS 400
#define HEAD_ROOM 512
#define TEXT_END 200
#define RECORD_AT 200

static void put_record_header(uint8_t *at, int64_t index, int64_t rows) {
  memcpy(at, "REC\x01", 4);
  put_le(at + 4, (uint64_t)index, 8);
  put_le(at + 12, (uint64_t)rows, 8);
  put_le(at + 20, 0, 8);
  put_le(at + 28, crc_words(at, 28), 4);
}

/* `stream` gets a file of small records. */
static void records_stream(part *p) {
  for (int64_t i = 0; i < HEADERS; i++) {
    put_record_header(p->stream + p->n_stream, i, i % 7);
    p->n_stream += RECORD_HEADER_BYTES + 8 * (i % 7);
  }
}

static void walk_run(work *w) {
  EACH_PART(w, p) {
    int code;
    p->result[0] = walk_headers(p->stream, p->n_stream, NULL, 0, 8, p->n_stream, HEADERS, p->offsets,
                                p->offsets + HEADERS, &code);
    if (code) shared_store(&w->bad, 0);
  }
}

static int wrong_walk(const work *w) {
  for (int i = 0; i < PARTS; i++) {
    const int64_t *rows = w->encoded->parts[i].offsets;
    for (int64_t k = 0, at = 0; k < HEADERS; at += 32 + 8 * rows[k++])
      if (rows[k] != k % 7 || rows[HEADERS + k] != at + 32) return 1;
  }
  return 0;
}

/* Heads of files in `stream`, and in `values` what is known of each. Every fifth has another manifest. */
static void heads_stream(part *p) {
  int64_t n = STREAM_ROOM / HEAD_ROOM;
  memset(p->values, 0, VALUES * 8);
  for (int64_t i = 0; i < n; i++) {
    uint8_t *head = p->stream + i * HEAD_ROOM;
    memcpy(head, "CSTORE\0\x01", 8);
    put_le(head + COUNTERS_AT, 1, 8);
    put_le(head + COUNTERS_AT + 8, (uint64_t)i, 8);
    put_le(head + COUNTERS_AT + COUNTERS_CHECKED, crc_words(head + COUNTERS_AT, COUNTERS_CHECKED), 4);
    memset(head + MANIFEST_LENGTH_AT, i % 5 == 4 ? 'y' : 'x', TEXT_END - MANIFEST_LENGTH_AT);
    put_record_header(head + RECORD_AT, 0, i);
    p->values[i * HEAD_FIELDS + HEAD_LENGTH] = HEAD_ROOM;
    p->values[i * HEAD_FIELDS + HEAD_SIZE] = RECORD_AT + RECORD_HEADER_BYTES + 8 * i;
  }
}

static void heads_run(work *w) {
  EACH_PART(w, p) {
    for (int64_t i = 0; i < STREAM_ROOM / HEAD_ROOM; i++)
      p->offsets[i] = alike_rows(p->stream, p->stream + i * HEAD_ROOM, p->values + i * HEAD_FIELDS, TEXT_END, RECORD_AT, 8);
  }
}

static int wrong_heads(const work *w) {
  for (int i = 0; i < PARTS; i++)
    for (int64_t k = 0; k < STREAM_ROOM / HEAD_ROOM; k++)
      if (w->encoded->parts[i].offsets[k] != (k % 5 == 4 ? -1 : k)) return 1;
  return 0;
}

/* ---- frames of a log -------------------------------------------------------------------------------------------- */

#define FRAMES 500

static void frames_stream(part *p) {
  for (int64_t i = 0; i < FRAMES; i++) {
    uint8_t *at = p->stream + p->n_stream;
    int64_t bytes = 1 + (int64_t)(random64() % 200), head = i & 1 ? 12 : 8;
    put_le(at, (uint64_t)bytes | (i & 1 ? FRAME_ROWS : 0), 4);
    put_le(at + 8, (uint64_t)i, 4);
    memcpy(at + head, p->text + i, (size_t)bytes);
    put_le(at + 4, frame_crc(frame_crc(0, at, 4), at + 8, head + bytes - 8), 4);
    p->n_stream += head + bytes;
  }
}

static void frames_run(work *w) {
  EACH_PART(w, p) {
    int64_t *of = p->offsets, at = 0, found, bad;
    if (walk_frames(p->stream, p->n_stream, &at, 0, FRAMES, of, of + FRAMES, of + 2 * FRAMES, &found) ||
        open_frames(p->stream, p->n_stream, 0, found, of, of + FRAMES, of + 2 * FRAMES, of + 3 * FRAMES,
                    of + 4 * FRAMES, p->out, &bad))
      shared_store(&w->bad, 0);
    p->result[0] = found;
  }
}

static int wrong_frames(const work *w) {
  for (int i = 0; i < PARTS; i++) {
    const part *p = &w->encoded->parts[i];
    if (p->result[0] != FRAMES) return 1;
    for (int64_t k = 0; k < FRAMES; k++)
      if (memcmp(p->stream + p->offsets[3 * FRAMES + k], p->text + k, (size_t)p->offsets[4 * FRAMES + k])) return 1;
  }
  return 0;
}

/* ---- the footer of a columns file --------------------------------------------------------------------------------- */

#define FOOTER_COLUMNS 30
#define FOOTER_GROUPS 20

/* Types 0 to 8 are gob's own; then the structs of the four roles, their slices, and one that only newer writers know. */
enum { T_FOOTER = 9, T_COLUMN, T_GROUP, T_CHUNK, T_COLUMNS, T_GROUPS, T_CHUNKS, T_NUMBERS, GOB_TYPES };
static const int32_t GOB_KIND[GOB_TYPES] = {0, 1, 2, 3, 4, 5, 6, 7, 8, KIND_STRUCT, KIND_STRUCT, KIND_STRUCT,
                                            KIND_STRUCT, KIND_SLICE, KIND_SLICE, KIND_SLICE, KIND_SLICE};
static const int64_t GOB_FIRST[GOB_TYPES] = {[T_FOOTER] = 0, [T_COLUMN] = 2, [T_GROUP] = 5, [T_CHUNK] = 8,
                                             [T_COLUMNS] = T_COLUMN, [T_GROUPS] = T_GROUP, [T_CHUNKS] = T_CHUNK,
                                             [T_NUMBERS] = 3};
static const int64_t GOB_SECOND[GOB_TYPES] = {[T_FOOTER] = 2, [T_COLUMN] = 3, [T_GROUP] = 3, [T_CHUNK] = 4};
static const int32_t GOB_FIELDS[12] = {T_COLUMNS, T_GROUPS, 6, 3, 1, 3, 2, T_CHUNKS, 2, 5, 3, T_NUMBERS};
static const int32_t GOB_ACTIONS[12] = {1, 2, 1, 2, 3, 1, 2, 3, 1, 3, 7, 0};
static const int64_t GOB_ROLES[4] = {T_FOOTER, T_COLUMN, T_GROUP, T_CHUNK};

static int64_t put_gob(uint8_t *at, uint64_t value) {
  int n = 0;
  if (value < 128) {
    *at = (uint8_t)value;
    return 1;
  }
  while (n < 8 && value >> 8 * n) n++;
  *at = (uint8_t)(256 - n);
  for (int k = 0; k < n; k++) at[1 + k] = (uint8_t)(value >> 8 * (n - 1 - k));
  return 1 + n;
}

static void footer_stream(part *p) {
  uint8_t *at = p->stream;
  at += put_gob(at, 1); /* the first field */
  at += put_gob(at, FOOTER_COLUMNS);
  for (int c = 0; c < FOOTER_COLUMNS; c++) {
    memcpy(at, "\x01\x04name\x01\x02\x01\x01\x00", 11);
    at += 11;
  }
  at += put_gob(at, 1);
  at += put_gob(at, FOOTER_GROUPS);
  for (uint64_t g = 0; g < FOOTER_GROUPS; g++) {
    at += put_gob(at, 1);
    at += put_gob(at, 1000);
    at += put_gob(at, 1);
    at += put_gob(at, 2 * 1000000 * g); /* signed numbers have their sign in bit 0 */
    at += put_gob(at, 1);
    at += put_gob(at, FOOTER_COLUMNS);
    for (int c = 0; c < FOOTER_COLUMNS; c++) {
      at += put_gob(at, 1);
      at += put_gob(at, 2 * 30000);
      memcpy(at, "\x01\x03min\x01\x02\x01\x02\x05\x06\x00", 12);
      at += 12;
    }
    *at++ = 0;
  }
  *at++ = 0;
  p->n_stream = at - p->stream;
}

static gob_reader footer_reader(const uint8_t *data, int64_t n) {
  static const int64_t starts[4] = {0, 2, 5, 8};
  gob_reader g;
  memset(&g, 0, sizeof g);
  g.data = data;
  g.end = n;
  g.kind = GOB_KIND;
  g.first = GOB_FIRST;
  g.second = GOB_SECOND;
  g.field_type = GOB_FIELDS;
  g.role_type = GOB_ROLES;
  for (int role = 0; role < 4; role++) g.action[role] = GOB_ACTIONS + starts[role];
  g.columns.size = sizeof(gob_column);
  g.groups.size = sizeof(gob_group);
  g.chunks.size = sizeof(gob_chunk);
  return g;
}

static void free_footer(gob_reader *g) {
  free(g->columns.items);
  free(g->groups.items);
  free(g->chunks.items);
}

static void footer_run(work *w) {
  static const uint8_t nullable[FOOTER_COLUMNS] = {0};
  EACH_PART(w, p) {
    gob_reader g = footer_reader(p->stream, p->n_stream);
    int64_t group, column, ends[FOOTER_GROUPS];
    if (gob_read_footer(&g) || g.pos != p->n_stream || g.columns.count != FOOTER_COLUMNS ||
        g.groups.count != FOOTER_GROUPS || g.chunks.count != FOOTER_GROUPS * FOOTER_COLUMNS ||
        place_chunks((const gob_group *)(const void *)g.groups.items, FOOTER_GROUPS,
                     (const gob_chunk *)(const void *)g.chunks.items, nullable, FOOTER_COLUMNS, 0, 1 << 30, 0, 1 << 20,
                     p->offsets, ends, &group, &column))
      shared_store(&w->bad, 0);
    free_footer(&g);
  }
}

static int wrong_footer(const work *w) {
  for (int i = 0; i < PARTS; i++)
    for (int64_t g = 0; g < FOOTER_GROUPS; g++)
      for (int64_t c = 0; c < FOOTER_COLUMNS; c++)
        if (w->encoded->parts[i].offsets[g * FOOTER_COLUMNS + c] != 1000000 * g + 30000 * c) return 1;
  return 0;
}

/* ---- records as columns ------------------------------------------------------------------------------------------- */

#define RECORDS 1000
#define RECORD_COLUMNS 9

static const layout_field RECORD_FIELDS[11] = {
    {1, TYPE_I64, 0, 0},        {2, 7, 0, 1},           {3, TYPE_F64, 0, 2},  {4, TYPE_BOOL, 1, 3},
    {5, TYPE_STRING, 0, 4},     {6, 15, 0, 5},          {7, TYPE_STRINGS, 0, 6}, {8, TYPE_RECORD, 0, 1},
    {1, 2, 0, 7},               {2, TYPE_STRING, 0, 8}, {9, TYPE_STRING, 0, 4},
};

typedef struct {
  layout_node nodes[2];
  column_source sources[RECORD_COLUMNS];
  column_target targets[RECORD_COLUMNS];
  int64_t *list_offsets; /* RECORDS + 1: elements of the lists */
  int64_t *string_ends;
  uint8_t *copied;
  int64_t written, read;
} record_part;

static void make_node(layout_node *node, int k8, int32_t first, int32_t count, const layout_field *fields) {
  node->k8 = k8;
  node->first = first;
  node->count = count;
  memset(node->by_key, 255, sizeof node->by_key);
  for (int32_t f = 0; f < count; f++) node->by_key[fields[first + f].key] = (int16_t)f;
}

static const int RECORD_CODES[RECORD_COLUMNS] = {TYPE_I64, 7, TYPE_F64, TYPE_BOOL, TYPE_STRING, 15, TYPE_STRINGS, 2, TYPE_STRING};

static void make_targets(record_part *o, int64_t rows) {
  for (int c = 0; c < RECORD_COLUMNS; c++) {
    o->targets[c].values = room((size_t)rows * 8);
    o->targets[c].validity = RECORD_CODES[c] == TYPE_BOOL ? room((size_t)rows) : NULL;
    o->targets[c].place = room((size_t)rows * 8);
    o->targets[c].size = room((size_t)rows * 8);
  }
}

static void make_records(part *p, int k8) {
  record_part *o = p->own = room(sizeof *o);
  uint8_t *valid = room(RECORDS);
  make_node(&o->nodes[0], k8, 0, 8, RECORD_FIELDS);
  make_node(&o->nodes[1], k8, 8, 2, RECORD_FIELDS);
  o->list_offsets = room((RECORDS + 1) * 8);
  o->string_ends = room((VALUES + 1) * 8);
  o->copied = room(STREAM_ROOM);
  for (int64_t i = 0; i < RECORDS; i++) {
    o->list_offsets[i + 1] = o->list_offsets[i] + (int64_t)(random64() % 4);
    valid[i] = random64() % 4 != 0;
  }
  for (int c = 0; c < RECORD_COLUMNS; c++) {
    o->sources[c].values = (const char *)(c == 0 ? (const void *)p->values : (const void *)p->codes);
    o->sources[c].bytes = p->text;
    o->sources[c].offsets = c == 5 || c == 6 ? o->list_offsets : p->text_offsets + c;
    o->sources[c].inner = p->text_offsets;
  }
  o->sources[3].values = (const char *)valid;
  o->sources[3].validity = valid;
  make_targets(o, RECORDS);
}

static void write_records(part *p) {
  record_part *o = p->own;
  record_writer writer = {o->nodes, RECORD_FIELDS, o->sources};
  if (o->nodes[0].k8)
    p->n_stream = write_messages(&writer, 0, RECORDS, p->offsets + 1, p->stream) - p->stream;
  else
    p->n_stream = write_rows(&writer, 0, RECORDS, p->stream) - p->stream;
}

/* Both passes; -1, or a row whose values are malformed. */
static int64_t read_columns(record_part *o, const uint8_t *data, int64_t n, int64_t rows, const int64_t *starts,
                            const int64_t *lengths, uint8_t *out) {
  record_reader reader = {data, o->nodes, RECORD_FIELDS, o->targets, data};
  int64_t bad = -1;
  o->read = 0;
  if (starts ? read_messages(&reader, starts, lengths, rows) : read_rows(&reader, 0, data, data + n, 0, rows)) return 0;
  for (int c = 4; c < RECORD_COLUMNS; c++) {
    column_target *t = &o->targets[c];
    if (RECORD_CODES[c] == TYPE_STRING) {
      int64_t copied = copy_texts(data, n, t->place, t->size, rows, TYPE_STRING, out, &bad);
      if (copied < 0) return bad;
      o->read += copied;
    } else if (RECORD_CODES[c] == 15) {
      if (copy_lists(data, n, t->place, t->size, rows, 15, (char *)out, &bad)) return bad;
    } else if (RECORD_CODES[c] == TYPE_STRINGS) {
      int64_t bytes = string_list_bytes(data, n, t->place, rows);
      o->read += bytes;
      bad = copy_string_lists(data, n, t->place, t->size, rows, o->string_ends, out, bytes);
      if (bad >= 0) return bad;
    }
  }
  return -1;
}

static void rows_stream(part *p) {
  make_records(p, 0);
  write_records(p);
}

static void messages_stream(part *p) {
  make_records(p, 1);
  write_records(p);
  for (int64_t i = 0; i < RECORDS; i++) p->values[i + RECORDS] = p->offsets[i + 1] - p->offsets[i];
}

static void k4_records(part *p) { make_records(p, 0); }
static void k8_records(part *p) { make_records(p, 1); }

static void record_write_run(work *w) {
  EACH_PART(w, p) write_records(p);
}

static void record_read_run(work *w) {
  EACH_PART(w, p) {
    record_part *o = p->own;
    if (read_columns(o, p->stream, p->n_stream, RECORDS, o->nodes[0].k8 ? p->offsets : NULL, p->values + RECORDS,
                     o->copied) >= 0)
      shared_store(&w->bad, 0);
  }
}

static int same_columns(const part *p) {
  const record_part *o = p->own;
  int64_t texts = 0;
  for (int64_t i = 0; i < RECORDS; i++) {
    const uint8_t *valid = o->sources[3].validity;
    int64_t number;
    memcpy(&number, o->targets[0].values + 8 * i, 8);
    if (number != p->values[i] || memcmp(o->targets[1].values + 4 * i, p->codes + i, 4) ||
        memcmp(o->targets[2].values + 8 * i, (const char *)p->codes + 8 * i, 8) ||
        memcmp(o->targets[7].values + 2 * i, (const char *)p->codes + 2 * i, 2) ||
        o->targets[3].validity[i] != valid[i] || o->targets[3].values[i] != valid[i] ||
        o->targets[5].size[i] != o->list_offsets[i + 1] - o->list_offsets[i])
      return 0;
    texts += p->lengths[i + 4] + p->lengths[i + 8];
    for (int64_t k = o->list_offsets[i]; k < o->list_offsets[i + 1]; k++) texts += p->lengths[k];
  }
  /* The text that was copied last is that of the last column. */
  return o->read == texts && !memcmp(o->copied, p->text + p->text_offsets[8],
                                     (size_t)(p->text_offsets[8 + RECORDS] - p->text_offsets[8]));
}

static int wrong_rows(const work *w) {
  for (int i = 0; i < PARTS; i++) {
    part *p = &w->encoded->parts[i];
    record_part *o = p->own;
    int64_t lengths[RECORDS];
    for (int64_t k = 0; k < RECORDS; k++) lengths[k] = p->offsets[k + 1] - p->offsets[k];
    if (read_columns(o, p->stream, p->n_stream, RECORDS, o->nodes[0].k8 ? p->offsets : NULL, lengths, o->copied) >= 0 ||
        !same_columns(p))
      return 1;
  }
  return 0;
}

static int wrong_columns_read(const work *w) {
  for (int i = 0; i < PARTS; i++)
    if (!same_columns(&w->encoded->parts[i])) return 1;
  return 0;
}

/* One column of text of a table, to bytes and back. */
static void table_text_run(work *w) {
  EACH_PART(w, p) {
    record_part *o = p->own;
    column_source source = {NULL, NULL, NULL, p->text_offsets, p->text};
    record_reader reader = {p->stream, o->nodes, RECORD_FIELDS, NULL, p->stream};
    char *offsets = (char *)p->offsets;
    text_target texts = {&offsets, 1, p->out};
    int64_t start, length;
    make_node(&o->nodes[0], 0, 10, 1, RECORD_FIELDS);
    p->n_stream = write_strings(p->stream, 0, 9, &source, 0, VALUES) - p->stream;
    if (find_columns(&reader, 0, p->stream, p->stream + p->n_stream, VALUES, &start, &length, &texts) ||
        length != p->n_text)
      shared_store(&w->bad, 0);
  }
}

/* ---- damage -------------------------------------------------------------------------------------------------------- */

#define DAMAGED_RECORDS 50

static void damage(uint8_t *data, int64_t n) {
  for (uint64_t changes = random64() % 4; changes && n; changes--) data[random64() % (uint64_t)n] = (uint8_t)random64();
}

static void read_damaged(const part *p, int k8) {
  record_part *sound = p->own, o = *sound;
  record_writer writer = {o.nodes, RECORD_FIELDS, o.sources};
  int64_t ends[DAMAGED_RECORDS], lengths[DAMAGED_RECORDS], starts[DAMAGED_RECORDS], n, room_for = 0;
  uint8_t *bytes = room(STREAM_ROOM), *data, *out;
  make_node(&o.nodes[0], k8, 0, 8, RECORD_FIELDS);
  n = (k8 ? write_messages(&writer, 0, DAMAGED_RECORDS, ends, bytes) : write_rows(&writer, 0, DAMAGED_RECORDS, bytes)) - bytes;
  damage(bytes, n);
  if (!k8 && random64() % 4 == 0) n = (int64_t)(random64() % (uint64_t)(n + 1));
  data = room((size_t)n);
  memcpy(data, bytes, (size_t)n);
  for (int i = 0; i < DAMAGED_RECORDS; i++) {
    starts[i] = i ? ends[i - 1] : 0;
    lengths[i] = k8 ? ends[i] - starts[i] : 0;
  }
  make_targets(&o, DAMAGED_RECORDS);
  record_reader reader = {data, o.nodes, RECORD_FIELDS, o.targets, data};
  int wrong = k8 ? read_messages(&reader, starts, lengths, DAMAGED_RECORDS)
                 : read_rows(&reader, 0, data, data + n, 0, DAMAGED_RECORDS);
  if (!wrong) { /* as the callers do: outputs of what pass one said */
    for (int c = 4; c < RECORD_COLUMNS; c++) {
      int64_t bad, sum = 0, *size = o.targets[c].size;
      if (RECORD_CODES[c] < TYPE_STRING) continue;
      for (int i = 0; i < DAMAGED_RECORDS; i++) sum += size[i];
      room_for = RECORD_CODES[c] == TYPE_STRINGS ? string_list_bytes(data, n, o.targets[c].place, DAMAGED_RECORDS)
                 : RECORD_CODES[c] == 15         ? 4 * sum
                                                 : sum;
      out = room((size_t)room_for);
      if (RECORD_CODES[c] == TYPE_STRING) {
        (void)copy_texts(data, n, o.targets[c].place, size, DAMAGED_RECORDS, TYPE_STRING, out, &bad);
      } else if (RECORD_CODES[c] == 15) {
        (void)copy_lists(data, n, o.targets[c].place, size, DAMAGED_RECORDS, 15, (char *)out, &bad);
      } else {
        int64_t *ends_of = room((size_t)(sum + 1) * 8);
        (void)copy_string_lists(data, n, o.targets[c].place, size, DAMAGED_RECORDS, ends_of, out, room_for);
        free(ends_of);
      }
      free(out);
    }
  }
  for (int c = 0; c < RECORD_COLUMNS; c++) {
    free(o.targets[c].values);
    free(o.targets[c].validity);
    free(o.targets[c].place);
    free(o.targets[c].size);
  }
  free(bytes);
  free(data);
}

static void damaged_records_run(work *w) {
  EACH_PART(w, p) {
    if (turn_) continue; /* the random numbers belong to one thread */
    part q = *p;
    footer_stream(&q);
    for (int i = 0; i < 600; i++) {
      int64_t n = q.n_stream - (random64() % 4 == 0 ? (int64_t)(random64() % (uint64_t)q.n_stream) : 0);
      uint8_t *data = room((size_t)n);
      memcpy(data, q.stream, (size_t)n);
      damage(data, n);
      gob_reader g = footer_reader(data, n);
      (void)gob_read_footer(&g);
      free_footer(&g);
      free(data);
      read_damaged(p, i & 1);
    }
  }
}

PREPARED(records_stream)
PREPARED(heads_stream)
PREPARED(frames_stream)
PREPARED(footer_stream)
PREPARED(rows_stream)
PREPARED(messages_stream)
PREPARED(k4_records)
PREPARED(k8_records)

#endif
