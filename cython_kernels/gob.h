/* Go's gob encoding, as far as the footer of a columns file needs it (columns.md 8): one pass over a value message
 * into flat records. Every count and length is compared with the bytes that are left before it is used; nesting is
 * bounded; what is allocated stays within a constant factor of the message. */
#ifndef COLSTORE_GOB_H
#define COLSTORE_GOB_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "kernel_math.h"

enum {
  GOB_OK = 0,
  GOB_TRUNCATED = 1,  /* the message ends inside a value */
  GOB_WIDE = 2,       /* an integer of more than 8 bytes */
  GOB_FIELD = 3,      /* a field number past the field list */
  GOB_RANGE = 4,      /* a number that its field cannot hold */
  GOB_COUNT = 5,      /* a length or count above what is left */
  GOB_DEPTH = 6,      /* values nested too deep */
  GOB_INTERFACE = 7,  /* an interface value in an unknown field */
  GOB_ARRAY = 8,      /* an array whose count is not its length */
  GOB_MEMORY = 9
};

enum { GOB_MAX_DEPTH = 64 };

/* Kinds of types: 1..8 are gob's own ids. */
enum { KIND_COMPLEX = 7, KIND_INTERFACE = 8, KIND_SLICE = 9, KIND_ARRAY = 10, KIND_STRUCT = 11, KIND_MAP = 12,
       KIND_OPAQUE = 13 };

/* The structs of the footer whose fields are known. */
enum { ROLE_FOOTER = 0, ROLE_COLUMN = 1, ROLE_GROUP = 2, ROLE_CHUNK = 3 };

typedef struct {
  uint32_t name_start, name_bytes; /* position in the footer */
  uint8_t type, nullable;
  uint16_t unused;
} gob_column;

typedef struct {
  int64_t byte_offset, n_columns;
  uint32_t n_rows, unused;
} gob_group;

typedef struct {
  int64_t byte_length, tokenizer;
  uint32_t null_count, min_start, min_bytes, max_start, max_bytes, min_len, max_len;
  uint8_t encoding, codec;
  uint16_t unused;
} gob_chunk;

typedef struct {
  char *items;
  int64_t count, capacity, size;
} gob_list;

typedef struct {
  const uint8_t *data; /* the whole footer; positions count from here */
  int64_t pos, end;
  const int32_t *kind;     /* per type */
  const int64_t *first;    /* slice, array: element; map: key; struct: first of its fields in `field_type` */
  const int64_t *second;   /* array: length; map: element; struct: number of fields */
  const int32_t *field_type;
  const int32_t *action[4]; /* per role: what to do with each field of its struct; 0 skips it */
  const int64_t *role_type; /* per role: its struct */
  gob_list columns, groups, chunks;
  int64_t schema_start, schema_end; /* the value of the columns' field */
} gob_reader;

static int gob_uint(gob_reader *g, uint64_t *value) {
  if (UNLIKELY(g->pos >= g->end)) return GOB_TRUNCATED;
  uint8_t head = g->data[g->pos++];
  if (LIKELY(head < 128)) {
    *value = head;
    return GOB_OK;
  }
  int64_t count = 256 - (int64_t)head;
  if (count > 8) return GOB_WIDE;
  if (g->end - g->pos < count) return GOB_TRUNCATED;
  uint64_t v = 0;
  for (int64_t i = 0; i < count; i++) v = v << 8 | g->data[g->pos + i];
  g->pos += count;
  *value = v;
  return GOB_OK;
}

static int gob_int(gob_reader *g, int64_t *value) {
  uint64_t v = 0;
  int code = gob_uint(g, &v);
  *value = (int64_t)((v >> 1) ^ (0 - (v & 1)));
  return code;
}

static int gob_bounded(gob_reader *g, uint64_t limit, uint32_t *value) {
  uint64_t v = 0;
  int code = gob_uint(g, &v);
  if (UNLIKELY(code)) return code;
  if (UNLIKELY(v > limit)) return GOB_RANGE;
  *value = (uint32_t)v;
  return GOB_OK;
}

static int gob_byte(gob_reader *g, uint8_t *value) {
  uint32_t v = 0;
  int code = gob_bounded(g, 255, &v);
  *value = (uint8_t)v;
  return code;
}

/* A number of elements or bytes: never above the bytes that are left, each takes at least one. */
static int gob_count(gob_reader *g, int64_t *count) {
  uint64_t v = 0;
  int code = gob_uint(g, &v);
  if (UNLIKELY(code)) return code;
  if (UNLIKELY(v > (uint64_t)(g->end - g->pos))) return GOB_COUNT;
  *count = (int64_t)v;
  return GOB_OK;
}

static int gob_bytes(gob_reader *g, uint32_t *start, uint32_t *length) {
  int64_t count = 0;
  int code = gob_count(g, &count);
  if (UNLIKELY(code)) return code;
  *start = (uint32_t)g->pos; /* a footer is shorter than 4 GiB */
  *length = (uint32_t)count;
  g->pos += count;
  return GOB_OK;
}

/* The next field of a struct, -1 at its end. A struct may also end with its message (columns.md 8.4). */
static int gob_next_field(gob_reader *g, int64_t n_fields, int64_t *field) {
  uint64_t step = 0;
  if (UNLIKELY(g->pos >= g->end)) {
    *field = -1;
    return GOB_OK;
  }
  int code = gob_uint(g, &step);
  if (UNLIKELY(code)) return code;
  if (step == 0) {
    *field = -1;
    return GOB_OK;
  }
  if (UNLIKELY(step > (uint64_t)(n_fields - 1 - *field))) return GOB_FIELD;
  *field += (int64_t)step;
  return GOB_OK;
}

static int gob_skip(gob_reader *g, int64_t type, int depth) {
  uint64_t v;
  int64_t count, field;
  int code;
  if (depth > GOB_MAX_DEPTH) return GOB_DEPTH;
  switch (g->kind[type]) {
    case 5: case 6: case KIND_OPAQUE:
      code = gob_count(g, &count);
      if (!code) g->pos += count;
      return code;
    case KIND_COMPLEX:
      code = gob_uint(g, &v);
      return code ? code : gob_uint(g, &v);
    case KIND_INTERFACE:
      return GOB_INTERFACE;
    case KIND_SLICE: case KIND_ARRAY:
      code = gob_count(g, &count);
      if (code) return code;
      if (g->kind[type] == KIND_ARRAY && count != g->second[type]) return GOB_ARRAY;
      for (int64_t i = 0; i < count; i++)
        if ((code = gob_skip(g, g->first[type], depth + 1))) return code;
      return GOB_OK;
    case KIND_MAP:
      code = gob_count(g, &count);
      if (code) return code;
      for (int64_t i = 0; i < count; i++) {
        if ((code = gob_skip(g, g->first[type], depth + 1))) return code;
        if ((code = gob_skip(g, g->second[type], depth + 1))) return code;
      }
      return GOB_OK;
    case KIND_STRUCT:
      for (field = -1;;) {
        code = gob_next_field(g, g->second[type], &field);
        if (code || field < 0) return code;
        if ((code = gob_skip(g, g->field_type[g->first[type] + field], depth + 1))) return code;
      }
    default: /* bool, int, uint, float */
      return gob_uint(g, &v);
  }
}

/* Returns a new zeroed record, or NULL. `hint` is how many more will follow at most. */
static void *gob_push(gob_list *list, int64_t hint) {
  if (list->count == list->capacity) {
    int64_t capacity = list->capacity * 2 + 16;
    /* A believable hint saves the doublings; counts are bounded by bytes, but not worth a record each. */
    if (hint > 0 && hint < 4096 && capacity < list->count + hint) capacity = list->count + hint;
    if (capacity > INT64_MAX / list->size) return NULL;
    char *items = (char *)realloc(list->items, (size_t)(capacity * list->size));
    if (items == NULL) return NULL;
    list->items = items;
    list->capacity = capacity;
  }
  char *item = list->items + list->count++ * list->size;
  memset(item, 0, (size_t)list->size);
  return item;
}

/* Fields of a struct in a role: `FIELDS { case 1: ...; }` sets `code`. */
#define GOB_EACH_FIELD(role, cases)                                                      \
  int64_t type = g->role_type[role], field = -1;                                         \
  for (;;) {                                                                             \
    int code = gob_next_field(g, g->second[type], &field);                               \
    if (UNLIKELY(code)) return code;                                                     \
    if (field < 0) return GOB_OK;                                                        \
    switch (g->action[role][field]) {                                                    \
      cases                                                                              \
      default: code = gob_skip(g, g->field_type[g->first[type] + field], 1);             \
    }                                                                                    \
    if (UNLIKELY(code)) return code;                                                     \
  }

static int gob_read_column(gob_reader *g, gob_column *c) {
  uint64_t flag = 0;
  GOB_EACH_FIELD(ROLE_COLUMN,
    case 1: code = gob_bytes(g, &c->name_start, &c->name_bytes); break;
    case 2: code = gob_byte(g, &c->type); break;
    case 3: code = gob_uint(g, &flag); c->nullable = flag != 0; break;
  )
}

static int gob_read_chunk(gob_reader *g, gob_chunk *c) {
  GOB_EACH_FIELD(ROLE_CHUNK,
    case 1: code = gob_int(g, &c->byte_length); break;
    case 2: code = gob_bounded(g, UINT32_MAX, &c->null_count); break;
    case 3: code = gob_bytes(g, &c->min_start, &c->min_bytes); break;
    case 4: code = gob_bytes(g, &c->max_start, &c->max_bytes); break;
    case 5: code = gob_bounded(g, UINT32_MAX, &c->min_len); break;
    case 6: code = gob_bounded(g, UINT32_MAX, &c->max_len); break;
    case 7: code = gob_byte(g, &c->encoding); break;
    case 8: code = gob_byte(g, &c->codec); break;
    case 9: code = gob_int(g, &c->tokenizer); break;
  )
}

static int gob_read_chunks(gob_reader *g, int64_t *n_columns) {
  int64_t count = 0;
  int code = gob_count(g, &count);
  if (code) return code;
  *n_columns = count;
  for (int64_t i = 0; i < count; i++) {
    gob_chunk *chunk = (gob_chunk *)gob_push(&g->chunks, count - i);
    if (chunk == NULL) return GOB_MEMORY;
    if ((code = gob_read_chunk(g, chunk))) return code;
  }
  return GOB_OK;
}

static int gob_read_group(gob_reader *g, gob_group *r) {
  GOB_EACH_FIELD(ROLE_GROUP,
    case 1: code = gob_bounded(g, UINT32_MAX, &r->n_rows); break;
    case 2: code = gob_int(g, &r->byte_offset); break;
    case 3: code = gob_read_chunks(g, &r->n_columns); break;
  )
}

static int gob_read_columns(gob_reader *g) {
  int64_t count = 0;
  int code = gob_count(g, &count);
  for (int64_t i = 0; !code && i < count; i++) {
    gob_column *column = (gob_column *)gob_push(&g->columns, count - i);
    if (column == NULL) return GOB_MEMORY;
    code = gob_read_column(g, column);
  }
  return code;
}

static int gob_read_groups(gob_reader *g) {
  int64_t count = 0;
  int code = gob_count(g, &count);
  for (int64_t i = 0; !code && i < count; i++) {
    gob_group *group = (gob_group *)gob_push(&g->groups, count - i);
    if (group == NULL) return GOB_MEMORY;
    code = gob_read_group(g, group);
  }
  return code;
}

static int gob_read_footer(gob_reader *g) {
  GOB_EACH_FIELD(ROLE_FOOTER,
    case 1:
      g->schema_start = g->pos;
      code = gob_read_columns(g);
      g->schema_end = g->pos;
      break;
    case 2: code = gob_read_groups(g); break;
  )
}

/* ---- checks of 12.2 that a footer alone allows -------------------------------------------------------------- */

enum {
  PLACE_OK = 0,
  PLACE_COLUMNS = 1,   /* a row group with another number of chunks than the schema has columns */
  PLACE_SHORT = 2,     /* a chunk shorter than its header */
  PLACE_OUTSIDE = 3,   /* a row group that leaves [low, high) */
  PLACE_NULLS = 4,     /* more nulls than rows, or nulls where none may be */
  PLACE_TOKENIZER = 5, /* a tokenizer that the file does not list */
  PLACE_ROWS = 6,      /* more rows than allowed */
  PLACE_ORDER = 7      /* not an error: a row group begins before the end of the one before it */
};

/* Whether there is a chunk for every column of every group: before they are looked at. `group` is the first without. */
static int columns_fit(const gob_group *groups, int64_t n_groups, int64_t n_columns, int64_t n_chunks, int64_t *group) {
  for (int64_t r = 0; r < n_groups; r++) {
    if (groups[r].n_columns != n_columns) {
      *group = r;
      return 0;
    }
  }
  return n_groups * n_columns == n_chunks;
}

/* Checks the groups and writes the file offset of each chunk to `start`. On a code above 0, `group` and `column` say
 * where. `end` holds the end of each group. */
static int place_chunks(const gob_group *groups, int64_t n_groups, const gob_chunk *chunks, const uint8_t *nullable,
                        int64_t n_columns, int64_t low, int64_t high, int64_t n_tokenizers, int64_t max_rows,
                        int64_t *start, int64_t *end, int64_t *group, int64_t *column) {
  int order = PLACE_OK;
  int64_t last = low;
  *column = -1;
  for (int64_t r = 0; r < n_groups; r++) {
    const gob_group *g = groups + r;
    *group = r;
    if (g->n_columns != n_columns) return PLACE_COLUMNS;
    if ((int64_t)g->n_rows > (n_columns ? max_rows : 0)) return PLACE_ROWS;
    int64_t at = g->byte_offset;
    end[r] = at;
    if (n_columns == 0) continue; /* its offset places nothing */
    if (at < low || at > high) return PLACE_OUTSIDE;
    for (int64_t c = 0; c < n_columns; c++) {
      const gob_chunk *chunk = chunks + r * n_columns + c;
      *column = c;
      if (chunk->byte_length < 18) return PLACE_SHORT;
      if (chunk->byte_length > high - at) return PLACE_OUTSIDE;
      if (chunk->null_count > (nullable[c] ? g->n_rows : 0)) return PLACE_NULLS;
      if (chunk->tokenizer < 0 || chunk->tokenizer > n_tokenizers) return PLACE_TOKENIZER;
      start[r * n_columns + c] = at;
      at += chunk->byte_length;
    }
    *column = -1;
    if (g->byte_offset < last) order = PLACE_ORDER;
    last = end[r] = at;
  }
  return order;
}

#endif
