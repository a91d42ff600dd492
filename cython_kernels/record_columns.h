/* Runs of flat colbin records to columns, and columns to runs (colbin.md 5, 6, 7).
 *
 * "Flat" is scalars, optional scalars, bytes, lists of integers or strings, and records inside records, whose fields are
 * columns of their own. Reading has two passes. The first walks every record once: it checks the bytes, stores
 * fixed-width values in their column, and notes for each value of variable length where it stands and how large it
 * is. The second copies those into Arrow's layout. Every length is checked against its enclosing bytes first. */
#ifndef COLSTORE_RECORD_COLUMNS_H
#define COLSTORE_RECORD_COLUMNS_H

#include "column_codec.h"
#include "packed5.h"

/* Type codes (colbin.md 3). */
#define TYPE_BOOL 0
#define TYPE_I8 1
#define TYPE_I64 4
#define TYPE_U8 5
#define TYPE_U64 8
#define TYPE_F32 9
#define TYPE_F64 10
#define TYPE_STRING 11
#define TYPE_BYTES 12
#define TYPE_LIST_I8 13
#define TYPE_LIST_U64 19
#define TYPE_STRINGS 20
#define TYPE_RECORD 21
#define TYPE_SKIPPED 22 /* 22 to 27: stepped over */

/* What is wrong with the bytes of a record. */
enum {
  RECORD_OK,
  RECORD_TRUNCATED,
  RECORD_UNKNOWN_KEY,
  RECORD_DUPLICATE_KEY,
  RECORD_WRONG_CLASS,
  RECORD_OUT_OF_RANGE,
  RECORD_BAD_BLOB,
  RECORD_BAD_LIST,
  RECORD_BAD_VARINT,
  RECORD_BAD_MAGNITUDE,
  RECORD_LEFT_OVER,
  RECORD_BAD_TEXT,
  RECORD_TOO_DEEP,
  RECORD_ROWS,
  RECORD_BAD_ROOT,
};

#define RECORD_MAX_DEPTH 120

/* One field of a record type. A field of code TYPE_RECORD has a child node; any other has a column. */
typedef struct {
  uint8_t key, code, optional;
  int32_t target; /* column; node of a nested record; -1 when the field is only checked and stepped over */
} layout_field;

/* One record type: a slice of the fields, and the place in it of each key (-1: none). */
typedef struct {
  int k8;
  int32_t first, count;
  int16_t by_key[256];
} layout_node;

/* Where a column's values are or go, by row. Reading: fixed-width memory and validity start as zeros, which is what
 * an absent field means. `place` is 2 * (offset of the value's code or descriptor) + k8, 0 when absent. */
typedef struct {
  char *values;
  uint8_t *validity; /* NULL: not optional, or (writing) no nulls */
  int64_t *place;
  int64_t *size; /* bytes of text, elements of a list */
} column_target;

typedef struct {
  const uint8_t *data; /* start of the buffer, which offsets count from */
  const layout_node *nodes;
  const layout_field *fields;
  const column_target *columns;
  const uint8_t *at; /* where an error was found */
} record_reader;

static const uint8_t record_itemsize[] = {1, 1, 2, 4, 8, 1, 2, 4, 8, 4, 8};

KERNEL_INLINE uint64_t load_le(const uint8_t *p, int n) {
  uint64_t v = 0;
  for (int i = 0; i < n; i++) v |= (uint64_t)p[i] << 8 * i;
  return v;
}

KERNEL_INLINE uint64_t reversed64(uint64_t v) {
#if defined(__GNUC__)
  return __builtin_bswap64(v);
#else
  uint64_t r = 0;
  for (int i = 0; i < 8; i++) r |= (v >> 8 * i & 0xff) << (56 - 8 * i);
  return r;
#endif
}

/* ---- lengths -------------------------------------------------------------------------------------------- */

/* LEN(n): one byte, or FF and a u32. */
KERNEL_INLINE int read_len(const uint8_t **p, const uint8_t *end, uint64_t *n) {
  if (*p >= end) return RECORD_TRUNCATED;
  if (**p < 255) {
    *n = *(*p)++;
    return RECORD_OK;
  }
  if (end - *p < 5) return RECORD_TRUNCATED;
  *n = load_le(*p + 1, 4);
  *p += 5;
  return RECORD_OK;
}

/* A length of 1 << lw bytes, and that so many bytes follow it. */
KERNEL_INLINE int read_body(const uint8_t **p, const uint8_t *end, int lw, uint64_t *n) {
  int bytes = 1 << lw;
  if (end - *p < bytes) return RECORD_TRUNCATED;
  *n = load_le(*p, bytes);
  *p += bytes;
  return *n > (uint64_t)(end - *p) ? RECORD_TRUNCATED : RECORD_OK;
}

/* ---- scalars -------------------------------------------------------------------------------------------- */

/* Low three bits `low`, then groups of seven (6.3). At most 64 bits and ten bytes. */
static int read_varint(const uint8_t **p, const uint8_t *end, int low, uint64_t *v) {
  uint64_t value = (uint64_t)low;
  int shift = 3;
  for (int i = 0; i < 10; i++, shift += 7) {
    if (*p >= end) return RECORD_TRUNCATED;
    uint8_t byte = *(*p)++;
    uint64_t bits = byte & 0x7f;
    if (bits && (shift > 63 || bits << shift >> shift != bits)) return RECORD_BAD_VARINT;
    if (shift <= 63) value |= bits << shift;
    if (!(byte & 0x80)) {
      *v = value;
      return RECORD_OK;
    }
  }
  return RECORD_BAD_VARINT;
}

KERNEL_INLINE int signed_of(uint64_t magnitude, int positive, int64_t *v) {
  if (magnitude > 0x7fffffffffffffffu + (uint64_t)!positive) return RECORD_BAD_MAGNITUDE;
  *v = positive ? (int64_t)magnitude : (int64_t)(0 - magnitude);
  return RECORD_OK;
}

/* The integer behind a K4 code (5.1, 5.2) or a K8 descriptor (6.1, 6.2); of the signed family as its bit pattern. */
KERNEL_INLINE int read_integer(const uint8_t **p, const uint8_t *end, int k8, int code, int is_signed, uint64_t *v) {
  int n;
  uint64_t magnitude;
  if (k8) {
    if (code < 0x80) {
      *v = (uint64_t)code;
      return RECORD_OK;
    }
    if (code >= 0xf8) {
      int wrong = read_varint(p, end, code & 7, v);
      if (is_signed && !wrong) *v = (uint64_t)column_unzigzag(*v);
      return wrong;
    }
    if (code >= 0x90) return RECORD_WRONG_CLASS;
    if (!is_signed && !(code & 8)) return RECORD_BAD_MAGNITUDE;
  } else if (!is_signed) {
    if (code < 8) {
      *v = (uint64_t)code;
      return RECORD_OK;
    }
    n = code - 7;
    if (end - *p < n) return RECORD_TRUNCATED;
    *v = load_le(*p, n);
    *p += n;
    return RECORD_OK;
  }
  n = code & 7;
  if (n == 7) n = 8;
  if (end - *p < n) return RECORD_TRUNCATED;
  magnitude = n ? load_le(*p, n) : 1;
  *p += n;
  if (!is_signed) {
    *v = magnitude;
    return RECORD_OK;
  }
  return signed_of(magnitude, code & 8, (int64_t *)v);
}

#define KEEP(type, low, high)                                                                                  \
  {                                                                                                            \
    type value = (type)v;                                                                                      \
    if ((int64_t)v < (low) || (int64_t)v > (high)) return RECORD_OUT_OF_RANGE;                                 \
    memcpy(out, &value, sizeof value);                                                                         \
    return RECORD_OK;                                                                                          \
  }
#define KEEP_UNSIGNED(type, high)                                                                              \
  {                                                                                                            \
    type value = (type)v;                                                                                      \
    if (v > (high)) return RECORD_OUT_OF_RANGE;                                                                \
    memcpy(out, &value, sizeof value);                                                                         \
    return RECORD_OK;                                                                                          \
  }

/* Put the integer of a scalar field of type `code` into its column. */
KERNEL_INLINE int keep_scalar(int code, uint64_t v, char *out) {
  switch (code) {
    case TYPE_BOOL: KEEP_UNSIGNED(uint8_t, 1)
    case 1: KEEP(int8_t, -128, 127)
    case 2: KEEP(int16_t, -32768, 32767)
    case 3: KEEP(int32_t, -2147483648LL, 2147483647)
    case 5: KEEP_UNSIGNED(uint8_t, 0xff)
    case 6: KEEP_UNSIGNED(uint16_t, 0xffff)
    case 7: KEEP_UNSIGNED(uint32_t, 0xffffffffu)
    case TYPE_F32: {
      uint32_t pattern = (uint32_t)(reversed64(v) >> 32);
      if (v > 0xffffffffu) return RECORD_OUT_OF_RANGE;
      memcpy(out, &pattern, 4);
      return RECORD_OK;
    }
    case TYPE_F64: v = reversed64(v); break;
    default: break;
  }
  memcpy(out, &v, 8);
  return RECORD_OK;
}

/* ---- values of variable length -------------------------------------------------------------------------- */

typedef struct {
  const uint8_t *start; /* content: bytes, elements */
  uint64_t size;        /* bytes of the content */
  uint64_t count;       /* elements of a list; bytes of text, of packed text a bound that unpacking does not pass */
  int packed;           /* 0 raw, 1 packed5 that opens in lower case, 2 in upper */
  int width, positive;  /* of list elements */
} variable;

/* The size of a K4 blob, or the count of a K4 list of strings (5.3, 5.5): u64 at most. `p` is behind the code. */
KERNEL_INLINE int read_k4_size(const uint8_t **p, const uint8_t *end, int code, uint64_t *n, int *packed) {
  int x = code & 7, bytes;
  *packed = 0;
  if (!(code & 8)) {
    if (*p >= end) return RECORD_TRUNCATED;
    *n = (uint64_t)x << 8 | *(*p)++;
    return RECORD_OK;
  }
  if (x == 7) return RECORD_BAD_BLOB;
  if (x >= 3) *packed = x == 4 || x == 6 ? 2 : 1;
  bytes = x < 3 ? 2 << x : x < 5 ? 1 : 4;
  if (end - *p < bytes) return RECORD_TRUNCATED;
  *n = load_le(*p, bytes);
  *p += bytes;
  return x >= 5 && *n < 256 ? RECORD_BAD_BLOB : RECORD_OK;
}

/* Elements of a list of strings: each LEN and bytes. Sums the bytes of the elements; *p ends behind the last. */
static int walk_strings(const uint8_t **p, const uint8_t *end, uint64_t count, uint64_t *total) {
  uint64_t size;
  *total = 0;
  if (count > (uint64_t)(end - *p)) return RECORD_BAD_LIST; /* an element takes a byte at least */
  for (uint64_t i = 0; i < count; i++) {
    int wrong = read_len(p, end, &size);
    if (wrong) return wrong;
    if (size > (uint64_t)(end - *p)) return RECORD_TRUNCATED;
    *p += size;
    *total += size;
  }
  return RECORD_OK;
}

/* The header of a list of strings (5.5, 6.5), `p` behind its code or descriptor: how many, and where the elements end;
 * with four-bit keys nothing but the elements says that, and *stop is `end`. */
KERNEL_INLINE int open_strings(const uint8_t **p, const uint8_t *end, int k8, int code, uint64_t *count,
                               const uint8_t **stop) {
  int wrong, packed;
  uint64_t size;
  if (!k8) {
    *stop = end;
    wrong = read_k4_size(p, end, code, count, &packed);
    return wrong ? wrong : (code & 8) && (code & 7) > 2 ? RECORD_BAD_BLOB : RECORD_OK;
  }
  if (code < 0xc8 || code > 0xcf) return RECORD_WRONG_CLASS; /* LIST, uniform */
  wrong = read_body(p, end, code & 3, &size);
  if (wrong) return wrong;
  *stop = *p + size;
  return read_len(p, *stop, count);
}

/* Text, bytes or a list, at the code or descriptor `code`, whose payload begins at *p. */
static int read_variable(const uint8_t **p, const uint8_t *end, int k8, int code, int type, variable *v) {
  int wrong;
  v->packed = 0;
  if (type == TYPE_STRING || type == TYPE_BYTES) {
    if (!k8) {
      wrong = read_k4_size(p, end, code, &v->size, &v->packed);
      if (wrong) return wrong;
      if (v->size > (uint64_t)(end - *p)) return RECORD_TRUNCATED;
    } else {
      if (code < 0x90 || code > 0x9f) return RECORD_WRONG_CLASS;
      v->packed = code >> 2 & 3;
      if (v->packed == 2) return RECORD_BAD_BLOB;
      if (v->packed == 3) v->packed = 2;
      wrong = read_body(p, end, code & 3, &v->size);
      if (wrong) return wrong;
    }
    if (v->packed && type == TYPE_BYTES) return RECORD_BAD_BLOB;
    v->start = *p;
    *p += v->size;
    v->count = v->packed ? (uint64_t)PACKED5_MAX_DECODED(v->size) : v->size;
    return RECORD_OK;
  }
  if (type == TYPE_STRINGS) {
    const uint8_t *stop;
    uint64_t total = 0;
    wrong = open_strings(p, end, k8, code, &v->count, &stop);
    if (wrong) return wrong;
    v->start = *p;
    wrong = walk_strings(p, stop, v->count, &total);
    if (!wrong && k8 && *p != stop) return RECORD_LEFT_OVER;
    v->size = total;
    return wrong;
  }
  if (!k8) { /* list of integers, 5.4 */
    int bytes = code & 1 ? 4 : 1;
    v->positive = code >> 3 & 1;
    v->width = code >> 1 & 3;
    if (end - *p < bytes) return RECORD_TRUNCATED;
    v->count = load_le(*p, bytes);
    *p += bytes;
    v->size = v->count << v->width;
    if (v->size > (uint64_t)(end - *p)) return RECORD_TRUNCATED;
  } else {
    if (code < 0xa0 || code > 0xaf) return RECORD_WRONG_CLASS;
    v->width = code >> 2 & 3;
    v->positive = code >> 1 & 1;
    wrong = read_body(p, end, code & 1 ? 2 : 0, &v->size);
    if (wrong) return wrong;
    if (v->size & (((uint64_t)1 << v->width) - 1)) return RECORD_BAD_LIST;
    v->count = v->size >> v->width;
  }
  v->start = *p;
  *p += v->size;
  return RECORD_OK;
}

/* Step over the K8 value whose descriptor is at *p (colbin.md 13); no recursion. */
static int skip_value(const uint8_t **p, const uint8_t *end) {
  for (;;) {
    uint64_t n;
    int wrong, code;
    if (*p >= end) return RECORD_TRUNCATED;
    code = *(*p)++;
    if (code < 0x80) return RECORD_OK;
    if (code < 0x90) {
      n = (uint64_t)(code & 7);
      if (n == 7) n = 8;
      if (n > (uint64_t)(end - *p)) return RECORD_TRUNCATED;
      *p += n;
      return RECORD_OK;
    }
    if (code < 0xf0) {
      int is_vector = code >= 0xa0 && code < 0xb0;
      wrong = read_body(p, end, is_vector ? (code & 1 ? 2 : 0) : code & 3, &n);
      *p += wrong ? 0 : n;
      return wrong;
    }
    if (code < 0xf3) return RECORD_OK;
    if (code >= 0xf8) return read_varint(p, end, code & 7, &n);
    if (code == 0xf6) return RECORD_WRONG_CLASS;
    if (code == 0xf7) {
      wrong = read_len(p, end, &n);
      if (wrong) return wrong;
    } /* F3, F4, F5, F7: the value is behind */
  }
}

/* Step over a field that is no column, its code or descriptor read already (and at p[-1]). */
static int skip_field(const uint8_t **p, const uint8_t *end, int k8, int code, const layout_field *field) {
  uint64_t v;
  variable content;
  if (k8) {
    *p -= 1;
    return skip_value(p, end);
  }
  if (field->code < TYPE_STRING) return read_integer(p, end, 0, code, field->code >= 1 && field->code <= 4, &v);
  if (field->code < TYPE_RECORD) return read_variable(p, end, 0, code, field->code, &content);
  if (field->code == 25 || field->code == 26) return RECORD_WRONG_CLASS; /* dynamic values need eight-bit keys */
  int wrong = read_body(p, end, code & 3, &v);
  *p += wrong ? 0 : v;
  return wrong;
}

/* ---- pass one ------------------------------------------------------------------------------------------- */

/* The run of one record, [p, end), into row `row` of the columns. */
static int read_run(record_reader *r, int32_t number, int k8, const uint8_t *p, const uint8_t *end, int64_t row,
                    int depth) {
  const layout_node *node = r->nodes + number;
  uint64_t seen[4] = {0, 0, 0, 0};
  if (depth > RECORD_MAX_DEPTH) return RECORD_TOO_DEEP;
  while (p < end) {
    const uint8_t *begin = p;
    int key, code, wrong, place;
    r->at = p;
    if (k8) {
      key = *p++;
      if (p == end) return RECORD_TRUNCATED;
      code = *p;
    } else {
      key = *p >> 4;
      code = *p & 15;
    }
    place = node->by_key[key];
    if (seen[key >> 6] >> (key & 63) & 1) return RECORD_DUPLICATE_KEY;
    seen[key >> 6] |= (uint64_t)1 << (key & 63);
    if (place < 0) {
      if (!k8) return RECORD_UNKNOWN_KEY;
      wrong = skip_value(&p, end);
      if (wrong) return wrong;
      continue;
    }
    p++;
    const layout_field *field = r->fields + node->first + place;
    if (field->target < 0) {
      wrong = skip_field(&p, end, k8, code, field);
      if (wrong) return wrong;
    } else if (field->code < TYPE_STRING) {
      const column_target *column = r->columns + field->target;
      uint64_t v;
      wrong = read_integer(&p, end, k8, code, field->code >= TYPE_I8 && field->code <= TYPE_I64, &v);
      if (!wrong) wrong = keep_scalar(field->code, v, column->values + row * record_itemsize[field->code]);
      if (wrong) return wrong;
      if (field->optional) column->validity[row] = 1;
    } else if (field->code == TYPE_RECORD) {
      uint64_t size;
      int inner;
      if (k8) {
        if (code < 0xd0 || code > 0xdf) return RECORD_WRONG_CLASS;
      }
      inner = code >> 3 & 1;
      wrong = read_body(&p, end, code & 3, &size);
      if (!wrong) wrong = read_run(r, field->target, inner, p, p + size, row, depth + 1);
      if (wrong) return wrong;
      p += size;
    } else {
      const column_target *column = r->columns + field->target;
      variable v;
      wrong = read_variable(&p, end, k8, code, field->code, &v);
      if (wrong) return wrong;
      column->place[row] = 2 * (begin + k8 - r->data) + k8;
      column->size[row] = (int64_t)v.count;
      if (field->optional) column->validity[row] = 1;
    }
  }
  return RECORD_OK;
}

/* The body of a list of records without its count, [p, end), into rows [first, stop). */
static int read_rows(record_reader *r, int k8, const uint8_t *p, const uint8_t *end, int64_t first, int64_t stop) {
  for (int64_t row = first; row < stop; row++) {
    uint64_t size;
    int wrong, inner = r->nodes[0].k8;
    r->at = p;
    if (k8) { /* K8 elements carry a STRUCT descriptor */
      if (p == end) return RECORD_TRUNCATED;
      if (*p < 0xd0 || *p > 0xdf) return RECORD_WRONG_CLASS;
      inner = *p >> 3 & 1;
      p++;
      wrong = read_body(&p, end, p[-1] & 3, &size);
    } else {
      wrong = read_len(&p, end, &size);
      if (!wrong && size > (uint64_t)(end - p)) wrong = RECORD_TRUNCATED;
    }
    if (!wrong) wrong = read_run(r, 0, inner, p, p + size, row, 0);
    if (wrong) return wrong;
    p += size;
  }
  r->at = p;
  return p == end ? RECORD_OK : RECORD_LEFT_OVER;
}

/* Whole messages elsewhere in the buffer, one per row: root byte D0 or D8, and a run. */
static int read_messages(record_reader *r, const int64_t *start, const int64_t *length, int64_t rows) {
  for (int64_t row = 0; row < rows; row++) {
    const uint8_t *p = r->data + start[row];
    int wrong;
    r->at = p;
    if (length[row] < 1) return RECORD_TRUNCATED;
    if (*p != 0xd0 && *p != 0xd8) return RECORD_BAD_ROOT;
    wrong = read_run(r, 0, *p == 0xd8, p + 1, p + length[row], row, 0);
    if (wrong) return wrong;
  }
  return RECORD_OK;
}

/* Find the field `key` in a run whose record type is node 0; *code is -1 when it is absent. The whole run is checked
 * as far as finding the next field takes, and for keys that occur twice. */
static int find_field(record_reader *r, int k8, const uint8_t *p, const uint8_t *end, int wanted, int *code,
                      const uint8_t **start, const uint8_t **stop) {
  uint64_t seen[4] = {0, 0, 0, 0};
  *code = -1;
  while (p < end) {
    int key, descriptor, place, wrong;
    r->at = p;
    if (k8) {
      key = *p++;
      if (p == end) return RECORD_TRUNCATED;
      descriptor = *p++;
    } else {
      key = *p >> 4;
      descriptor = *p++ & 15;
    }
    if (seen[key >> 6] >> (key & 63) & 1) return RECORD_DUPLICATE_KEY;
    seen[key >> 6] |= (uint64_t)1 << (key & 63);
    place = r->nodes[0].by_key[key];
    if (place < 0 && !k8) return RECORD_UNKNOWN_KEY;
    if (key == wanted) {
      uint64_t size;
      wrong = read_body(&p, end, descriptor & 3, &size);
      if (wrong) return wrong;
      *code = descriptor;
      *start = p;
      p += size;
      *stop = p;
      continue;
    }
    if (place < 0) {
      p -= 1;
      wrong = skip_value(&p, end);
    } else {
      wrong = skip_field(&p, end, k8, descriptor, r->fields + r->nodes[0].first + place);
    }
    if (wrong) return wrong;
  }
  return RECORD_OK;
}

/* ---- the columns of a table ----------------------------------------------------------------------------- */

/* Where the text columns of a table go, in Arrow's layout. */
typedef struct {
  char *const *offsets; /* by field: room for rows + 1 offsets, of which the first is there; NULL: not wanted */
  int wide;             /* offsets are int64, else int32 */
  uint8_t *text;        /* room for as many bytes as the table has; columns lie one behind the other */
} text_target;

/* Copy n bytes that are mostly few. `room` is what may be read and written behind both: then short values are blocks
 * of fixed size, which costs less than a call that finds out how many bytes there are. */
KERNEL_INLINE void copy_short(uint8_t *restrict to, const uint8_t *restrict from, uint64_t n, int64_t room) {
  if (LIKELY(n <= 256 && room >= 256 + 64)) {
    memcpy(to, from, 16);
    if (n > 16) {
      memcpy(to + 16, from + 16, 16);
      if (n > 32) {
        memcpy(to + 32, from + 32, 32);
        for (uint64_t done = 64; done < n; done += 64) memcpy(to + done, from + done, 64);
      }
    }
    return;
  }
  memcpy(to, from, n);
}

KERNEL_INLINE void keep_offset(char *offsets, int wide, uint64_t place, int64_t value) {
  if (wide) ((int64_t *)(void *)offsets)[place] = value;
  else ((int32_t *)(void *)offsets)[place] = (int32_t)value;
}

#define TEXT_RUN 64 /* texts of one length after which more of it are expected */

/* As many of the `count` elements at `from` as have the length `size`, at most 32, in groups of four; returns how many.
 * Where the next lengths are is known then, and none of the copies waits for another. */
KERNEL_INLINE uint64_t take_equal_strings(const uint8_t *restrict from, const uint8_t *end, uint64_t count, int64_t size,
                                          int wide, char *restrict offsets, uint8_t *restrict text, int64_t at) {
  const int64_t step = size + 1;
  uint64_t taken = 0;
  while (count - taken >= 4 && end - from >= 4 * step + 32) {
    if (from[0] != size || from[step] != size || from[2 * step] != size || from[3 * step] != size) break;
#pragma GCC unroll 4
    for (int k = 0; k < 4; k++) {
      memcpy(text + at + k * size, from + 1 + k * step, 16);
      if (size > 16) memcpy(text + at + k * size + 16, from + 17 + k * step, 16);
      keep_offset(offsets, wide, taken + (uint64_t)k, at + (k + 1) * size);
    }
    from += 4 * step;
    at += 4 * size;
    taken += 4;
  }
  return taken;
}

/* `count` elements of a list of strings, copied while they are found: only reading one element tells where the next
 * is, and the copy fits into that wait. The first offset is 0; `text` has room for end - *p bytes. After every few of
 * them one look tells whether they were of one length (codes, dates, numbers), as more may be then; a look at each would
 * be mispredicted where lengths vary, for half of the time of the copy. */
KERNEL_INLINE int take_strings_into(const uint8_t **p, const uint8_t *end, uint64_t count, int wide, char *offsets,
                                    uint8_t *text, int64_t *written) {
  const uint8_t *from = *p;
  int64_t at = 0;
  for (uint64_t i = 0; i < count;) {
    const uint64_t stop = count - i > TEXT_RUN ? i + TEXT_RUN : count;
    const int64_t begun = at;
    uint64_t size = 0;
    while (i < stop) {
      if (LIKELY(from < end && *from < 255)) {
        size = *from++;
      } else {
        int wrong = read_len(&from, end, &size);
        if (wrong) return wrong;
      }
      if (UNLIKELY(size > (uint64_t)(end - from))) return RECORD_TRUNCATED;
      copy_short(text + at, from, size, end - from);
      from += size;
      at += (int64_t)size;
      keep_offset(offsets, wide, ++i, at);
    }
    if (size <= 32 && at - begun == TEXT_RUN * (int64_t)size) {
      uint64_t taken = take_equal_strings(from, end, count - i, (int64_t)size, wide,
                                          offsets + (i + 1) * (wide ? 8 : 4), text, at);
      from += taken * (size + 1);
      at += (int64_t)(taken * size);
      i += taken;
    }
  }
  *p = from;
  *written = at;
  return RECORD_OK;
}

static int take_strings(const uint8_t **p, const uint8_t *end, uint64_t count, int wide, char *offsets, uint8_t *text,
                        int64_t *written) {
  if (count > (uint64_t)(end - *p)) return RECORD_BAD_LIST; /* an element takes a byte at least */
  return wide ? take_strings_into(p, end, count, 1, offsets, text, written)
              : take_strings_into(p, end, count, 0, offsets, text, written);
}

/* Find the columns of a table body behind its row count (colbin.md 7): start and length of the bytes of the column
 * codec; start -1 when absent. Text columns go to `texts` if there is one and it wants them, and `start` and `length`
 * say where in its text; else they are stepped over. */
static int find_columns(record_reader *r, int k8, const uint8_t *p, const uint8_t *end, int64_t rows, int64_t *start,
                        int64_t *length, const text_target *texts) {
  const layout_node *node = r->nodes;
  int64_t used = 0;
  for (int32_t c = 0; c < node->count; c++) start[c] = -1;
  while (p < end) {
    int key, code, place, wrong;
    uint64_t size;
    r->at = p;
    if (k8) {
      key = *p++;
      if (p == end) return RECORD_TRUNCATED;
      code = *p;
    } else {
      key = *p >> 4;
      code = *p & 15;
    }
    place = node->by_key[key];
    if (place < 0) {
      if (!k8) return RECORD_UNKNOWN_KEY;
      wrong = skip_value(&p, end);
      if (wrong) return wrong;
      continue;
    }
    if (start[place] >= 0) return RECORD_DUPLICATE_KEY;
    p++;
    if (r->fields[node->first + place].code == TYPE_STRING) {
      const uint8_t *stop;
      uint64_t count;
      int64_t written = 0;
      wrong = open_strings(&p, end, k8, code, &count, &stop);
      if (wrong) return wrong;
      if (count != (uint64_t)rows) return RECORD_ROWS;
      if (texts && texts->offsets[place])
        wrong = take_strings(&p, stop, count, texts->wide, texts->offsets[place], texts->text + used, &written);
      else
        wrong = walk_strings(&p, stop, count, &size);
      if (wrong) return wrong;
      if (k8 && p != stop) return RECORD_LEFT_OVER;
      start[place] = used;
      length[place] = written;
      used += written;
    } else {
      if (k8 && (code < 0xb0 || code > 0xbf)) return RECORD_WRONG_CLASS;
      wrong = read_body(&p, end, code & 3, &size);
      if (wrong) return wrong;
      start[place] = p - r->data;
      length[place] = (int64_t)size;
      p += size;
    }
  }
  return RECORD_OK;
}

/* ---- pass two ------------------------------------------------------------------------------------------- */

/* The value at `place` again. Pass one found it sound; it is checked once more, because the bytes may be those of a mapped
 * file, or of a buffer that another thread writes to. */
static int read_again(const uint8_t *data, int64_t length, int64_t place, int type, variable *v) {
  const uint8_t *p = data + (place >> 1);
  int k8 = place & 1, code;
  if (place < 0 || place >> 1 >= length) return RECORD_TRUNCATED;
  code = k8 ? *p : *p & 15;
  p++;
  return read_variable(&p, data + length, k8, code, type, v);
}

/* Text of all rows, one behind the other; returns the bytes. `out` has room for the sum of `size`, where the size of
 * packed text is a bound that becomes exact here. -1 and the row when packed text is malformed, or a value is no longer
 * what pass one found. */
static int64_t copy_texts(const uint8_t *data, int64_t length, const int64_t *place, int64_t *size, int64_t rows,
                          int type, uint8_t *out, int64_t *bad) {
  uint8_t *to = out;
  for (int64_t row = 0; row < rows; row++) {
    variable v;
    if (!place[row]) continue;
    *bad = row;
    if (read_again(data, length, place[row], type, &v)) return -1;
    if (v.packed) {
      size[row] = packed5_decode(v.start, (long)v.size, v.packed == 2, to, (long)size[row]);
      if (size[row] < 0) return -1;
    } else {
      if (v.size != (uint64_t)size[row]) return -1;
      memcpy(to, v.start, v.size);
    }
    to += size[row];
  }
  return to - out;
}

/* Elements of lists of integers into `out`, of the element type of `type`; RECORD_OUT_OF_RANGE and the row. */
static int copy_lists(const uint8_t *data, int64_t length, const int64_t *place, const int64_t *size, int64_t rows,
                      int type, char *out, int64_t *bad) {
  static const uint8_t scalar[] = {1, 2, 3, 4, 6, 7, 8}; /* type codes of the elements of 13..19 */
  int element = scalar[type - TYPE_LIST_I8];
  for (int64_t row = 0; row < rows; row++) {
    variable v;
    if (!place[row]) continue;
    if (read_again(data, length, place[row], type, &v) || v.count != (uint64_t)size[row]) {
      *bad = row;
      return RECORD_BAD_LIST;
    }
    const uint8_t *p = v.start;
    for (uint64_t i = 0; i < v.count; i++, p += 1 << v.width, out += record_itemsize[element]) {
      uint64_t value = load_le(p, 1 << v.width);
      if (!v.positive && v.width < 3) {
        int shift = 64 - (8 << v.width);
        value = (uint64_t)((int64_t)(value << shift) >> shift);
      }
      /* A positive list of eight bytes may hold 2^63 and more: no i64. A negative one may hold a u64's pattern. */
      if (v.positive && element <= TYPE_I64 && (int64_t)value < 0) {
        *bad = row;
        return RECORD_OUT_OF_RANGE;
      }
      if (keep_scalar(element, value, out)) {
        *bad = row;
        return RECORD_OUT_OF_RANGE;
      }
    }
  }
  return RECORD_OK;
}

/* Bytes of all elements of the lists of strings: what copy_string_lists writes. */
static int64_t string_list_bytes(const uint8_t *data, int64_t length, const int64_t *place, int64_t rows) {
  int64_t total = 0;
  for (int64_t row = 0; row < rows; row++) {
    variable v;
    if (!place[row]) continue;
    if (!read_again(data, length, place[row], TYPE_STRINGS, &v)) total += (int64_t)v.size;
  }
  return total;
}

/* Elements of lists of strings: where each ends (`offsets` begins with a 0 of the caller's), and their bytes, of which
 * there is room for `capacity`. -1, or the row where the bytes are no longer those that were measured. */
static int64_t copy_string_lists(const uint8_t *data, int64_t length, const int64_t *place, const int64_t *sizes,
                                 int64_t rows, int64_t *offsets, uint8_t *out, int64_t capacity) {
  int64_t at = 0, elements = 0;
  const uint8_t *end = data + length;
  for (int64_t row = 0; row < rows; row++) {
    variable v;
    if (!place[row]) continue;
    if (read_again(data, length, place[row], TYPE_STRINGS, &v) || v.count != (uint64_t)sizes[row]) return row;
    const uint8_t *p = v.start;
    for (uint64_t i = 0; i < v.count; i++) {
      uint64_t size = 0;
      if (read_len(&p, end, &size) || size > (uint64_t)(end - p) || size > (uint64_t)(capacity - at)) return row;
      if (size) memcpy(out + at, p, size);
      p += size;
      at += (int64_t)size;
      offsets[++elements] = at;
    }
  }
  return -1;
}

/* ---- writing -------------------------------------------------------------------------------------------- */

/* A column to write from. Fixed width: `values`. Text and bytes: `offsets` into `bytes`. Lists of integers: `offsets`
 * into `values`. Lists of strings: `offsets` into `inner`, whose entries point into `bytes`. */
typedef struct {
  const char *values;
  const uint8_t *validity; /* NULL: no nulls */
  const int64_t *offsets, *inner;
  const uint8_t *bytes;
} column_source;

typedef struct {
  const layout_node *nodes;
  const layout_field *fields;
  const column_source *columns;
} record_writer;

KERNEL_INLINE int width_of(uint64_t v) { return (column_bits(v) + 7) / 8; }

KERNEL_INLINE uint8_t *write_le(uint8_t *p, uint64_t v, int n) {
  for (int i = 0; i < n; i++) p[i] = (uint8_t)(v >> 8 * i);
  return p + n;
}

KERNEL_INLINE uint8_t *write_len(uint8_t *p, uint64_t n) {
  if (n < 255) {
    *p = (uint8_t)n;
    return p + 1;
  }
  *p = 255;
  return write_le(p + 1, n, 4);
}

/* The value of a scalar as its family writes it: unsigned (floats reversed), or the bits of a signed one. */
KERNEL_INLINE uint64_t scalar_at(int code, const char *values, int64_t row) {
  switch (code) {
    case TYPE_BOOL: return values[row] != 0;
    case 1: return (uint64_t)(int64_t)((const int8_t *)values)[row];
    case 5: return ((const uint8_t *)values)[row];
    default: break;
  }
  values += row * record_itemsize[code];
  switch (code) {
    case 2: { int16_t v; memcpy(&v, values, 2); return (uint64_t)(int64_t)v; }
    case 3: { int32_t v; memcpy(&v, values, 4); return (uint64_t)(int64_t)v; }
    case 6: { uint16_t v; memcpy(&v, values, 2); return v; }
    case 7: { uint32_t v; memcpy(&v, values, 4); return v; }
    case TYPE_F32: { uint32_t v; memcpy(&v, values, 4); return reversed64((uint64_t)v << 32); }
    default: break;
  }
  uint64_t v;
  memcpy(&v, values, 8);
  return code == TYPE_F64 ? reversed64(v) : v;
}

/* Varint payload bytes, and whether it is shorter than m magnitude bytes (6.1). */
KERNEL_INLINE uint8_t *write_varint(uint8_t *p, uint64_t v) {
  *p++ = (uint8_t)(0xf8 | (v & 7));
  v >>= 3;
  while (v > 0x7f) {
    *p++ = (uint8_t)(v | 0x80);
    v >>= 7;
  }
  *p++ = (uint8_t)v;
  return p;
}

KERNEL_INLINE int varint_bytes(uint64_t v) {
  int bits = column_bits(v) - 3;
  return bits <= 7 ? 1 : (bits + 6) / 7;
}

KERNEL_INLINE uint8_t *write_scalar(uint8_t *p, int k8, int key, int code, int optional, uint64_t v) {
  int is_signed = code >= TYPE_I8 && code <= TYPE_I64, n;
  if (optional && ((code == TYPE_F64 && v == 0x80) || (code == TYPE_F32 && v == 0x80))) v = 0; /* -0.0, 5.8 */
  if (v == 0) {
    if (!optional) return p;
    if (k8) {
      *p++ = (uint8_t)key;
      *p++ = 0;
    } else if (is_signed) {
      *p++ = (uint8_t)(key << 4 | 9);
      *p++ = 0;
    } else {
      *p++ = (uint8_t)(key << 4);
    }
    return p;
  }
  int positive = !is_signed || (int64_t)v > 0;
  uint64_t magnitude = positive ? v : 0 - v;
  n = width_of(magnitude);
  if (k8) {
    *p++ = (uint8_t)key;
    if (positive && v < 128) {
      *p++ = (uint8_t)v;
      return p;
    }
    if (n == 7) n = 8;
    uint64_t folded = is_signed ? column_zigzag((int64_t)v) : v;
    if (varint_bytes(folded) < n) return write_varint(p, folded);
    *p++ = (uint8_t)(0x80 | positive << 3 | (n == 8 ? 7 : n));
    return write_le(p, magnitude, n);
  }
  if (!is_signed) {
    if (v < 8) {
      *p++ = (uint8_t)(key << 4 | (int)v);
      return p;
    }
    *p++ = (uint8_t)(key << 4 | (n + 7));
    return write_le(p, v, n);
  }
  if (!positive && magnitude == 1) {
    *p++ = (uint8_t)(key << 4);
    return p;
  }
  if (n == 7) n = 8;
  *p++ = (uint8_t)(key << 4 | positive << 3 | (n == 8 ? 7 : n));
  return write_le(p, magnitude, n);
}

/* K4 size of a blob, or count of a list of strings. */
KERNEL_INLINE uint8_t *write_k4_size(uint8_t *p, int key, uint64_t n) {
  if (n <= 2047) {
    *p++ = (uint8_t)(key << 4 | (int)(n >> 8));
    *p++ = (uint8_t)n;
    return p;
  }
  int x = n <= 0xffff ? 0 : n <= 0xffffffffu ? 1 : 2;
  *p++ = (uint8_t)(key << 4 | 8 | x);
  return write_le(p, n, 2 << x);
}

/* K8 descriptor and size in the smallest of four widths. */
KERNEL_INLINE uint8_t *write_k8_size(uint8_t *p, int key, int descriptor, uint64_t n) {
  int lw = n <= 0xff ? 0 : n <= 0xffff ? 1 : n <= 0xffffffffu ? 2 : 3;
  *p++ = (uint8_t)key;
  *p++ = (uint8_t)(descriptor | lw);
  return write_le(p, n, 1 << lw);
}

/* The caller has room for all elements, so that what is left of their bytes is there in both memories. */
KERNEL_INLINE uint8_t *write_elements(uint8_t *p, const int64_t *inner, const uint8_t *bytes, int64_t begin,
                                      int64_t end) {
  for (int64_t i = begin; i < end; i++) {
    int64_t size = inner[i + 1] - inner[i];
    p = write_len(p, (uint64_t)size);
    if (size) copy_short(p, bytes + inner[i], (uint64_t)size, inner[end] - inner[i]); /* no text, maybe no memory */
    p += size;
  }
  return p;
}

static uint8_t *write_strings(uint8_t *p, int k8, int key, const column_source *c, int64_t begin, int64_t end) {
  uint64_t count = (uint64_t)(end - begin);
  if (!k8) return write_elements(write_k4_size(p, key, count), c->inner, c->bytes, begin, end);
  uint64_t body = count < 255 ? 1 : 5;
  for (int64_t i = begin; i < end; i++) {
    int64_t size = c->inner[i + 1] - c->inner[i];
    body += (uint64_t)size + (size < 255 ? 1 : 5);
  }
  p = write_len(write_k8_size(p, key, 0xc8, body), count);
  return write_elements(p, c->inner, c->bytes, begin, end);
}

static uint8_t *write_integers(uint8_t *p, int k8, int key, int type, const char *values, int64_t begin, int64_t end) {
  static const uint8_t scalar[] = {1, 2, 3, 4, 6, 7, 8};
  int element = scalar[type - TYPE_LIST_I8], negative = 0, w;
  uint64_t widest = 0, count = (uint64_t)(end - begin);
  for (int64_t i = begin; i < end; i++) {
    int64_t v = (int64_t)scalar_at(element, values, i);
    uint64_t magnitude = v < 0 ? 0 - (uint64_t)v : (uint64_t)v;
    negative |= v < 0;
    if (magnitude > widest) widest = magnitude;
  }
  if (negative) widest = widest > (uint64_t)1 << 62 ? ~(uint64_t)0 : 2 * widest;
  w = widest <= 0xff ? 0 : widest <= 0xffff ? 1 : widest <= 0xffffffffu ? 2 : 3;
  if (k8) {
    uint64_t bytes = count << w;
    int is_long = bytes > 255;
    *p++ = (uint8_t)key;
    *p++ = (uint8_t)(0xa0 | w << 2 | !negative << 1 | is_long);
    p = write_le(p, bytes, is_long ? 4 : 1);
  } else {
    int more = count > 255;
    *p++ = (uint8_t)(key << 4 | !negative << 3 | w << 1 | more);
    p = write_le(p, count, more ? 4 : 1);
  }
  for (int64_t i = begin; i < end; i++) p = write_le(p, scalar_at(element, values, i), 1 << w);
  return p;
}

/* Fill in the length of a body that began one byte behind `length`, and has been written up to p: one byte, or FF and
 * a u32, or (with `lw`, the byte that carries a width code) a plain u32. */
KERNEL_INLINE uint8_t *close_body(uint8_t *length, uint8_t *lw, uint8_t *p) {
  uint64_t size = (uint64_t)(p - length - 1);
  int more = lw ? 3 : 4;
  if (size < 255) {
    *length = (uint8_t)size;
    return p;
  }
  memmove(length + 1 + more, length + 1, size);
  if (lw)
    *lw |= 2;
  else
    *length++ = 255;
  write_le(length, size, 4);
  return p + more;
}

static uint8_t *write_run(const record_writer *w, int32_t number, int64_t row, uint8_t *p) {
  const layout_node *node = w->nodes + number;
  const layout_field *field = w->fields + node->first;
  int k8 = node->k8;
  for (int32_t f = 0; f < node->count; f++, field++) {
    int key = field->key;
    if (field->code == TYPE_RECORD) {
      uint8_t *head = p, *length;
      int inner = w->nodes[field->target].k8;
      if (k8) {
        *p++ = (uint8_t)key;
        head = p;
        *p++ = (uint8_t)(0xd0 | inner << 3);
      } else {
        *p++ = (uint8_t)(key << 4 | inner << 3);
      }
      length = p++;
      p = close_body(length, head, write_run(w, field->target, row, p));
      continue;
    }
    const column_source *c = w->columns + field->target;
    if (c->validity && !c->validity[row]) continue;
    if (field->code < TYPE_STRING) {
      p = write_scalar(p, k8, key, field->code, field->optional, scalar_at(field->code, c->values, row));
      continue;
    }
    int64_t begin = c->offsets[row], end = c->offsets[row + 1];
    if (begin == end && !field->optional) continue;
    if (field->code == TYPE_STRINGS) {
      p = write_strings(p, k8, key, c, begin, end);
    } else if (field->code >= TYPE_LIST_I8) {
      p = write_integers(p, k8, key, field->code, c->values, begin, end);
    } else {
      uint64_t size = (uint64_t)(end - begin);
      p = k8 ? write_k8_size(p, key, 0x90, size) : write_k4_size(p, key, size);
      if (size) memcpy(p, c->bytes + begin, size);
      p += size;
    }
  }
  return p;
}

/* The most bytes that the runs of `rows` rows take besides their text and list elements: keys, descriptors, sizes. */
static int64_t run_overhead(const record_writer *w, int32_t number, int64_t rows) {
  const layout_node *node = w->nodes + number;
  const layout_field *field = w->fields + node->first;
  int64_t total = 0;
  for (int32_t f = 0; f < node->count; f++, field++) {
    if (field->code == TYPE_RECORD) total += 7 * rows + run_overhead(w, field->target, rows);
    else total += (field->code == TYPE_STRINGS ? 15 : 10) * rows;
  }
  return total;
}

/* Rows [begin, end) as the elements of a K4 list: LEN and run. */
static uint8_t *write_rows(const record_writer *w, int64_t begin, int64_t end, uint8_t *p) {
  for (int64_t row = begin; row < end; row++) {
    uint8_t *length = p;
    p = close_body(length, NULL, write_run(w, 0, row, p + 1));
  }
  return p;
}

/* Rows [begin, end) as messages of their own: the root byte and the run (2). `stop[i]` gets the end of the i-th. */
static uint8_t *write_messages(const record_writer *w, int64_t begin, int64_t end, int64_t *stop, uint8_t *p) {
  const uint8_t *start = p;
  for (int64_t row = begin; row < end; row++) {
    *p = w->nodes[0].k8 ? 0xd8 : 0xd0;
    p = write_run(w, 0, row, p + 1);
    stop[row - begin] = p - start;
  }
  return p;
}

#endif
