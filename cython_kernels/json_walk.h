/* The walk that renders a message as JSON (colbin.md 12): records, lists, maps and dynamic values in wire order.
 *
 * Each byte of the message once, front to back. Every function returns 1, or 0 where the message is malformed or a bound
 * is reached; why, the twin says. What costs the message no bytes is paid for: cells of tables from `cells`, names and
 * zeros of absent fields from `text`. Tables are in json_table.h. */
#ifndef COLSTORE_JSON_WALK_H
#define COLSTORE_JSON_WALK_H

#include "json_float.h"
#include "json_text.h"
#include "packed5.h"
#include "wire.h"

/* Kinds of map keys and values (colbin.md 10). */
enum { KIND_STRING, KIND_SIGNED, KIND_UNSIGNED, KIND_F64, KIND_BOOL, KIND_F32, KIND_DYNAMIC };

/* One record type, and one field of it, as the caller's arrays have them. */
typedef struct {
  int32_t first, count; /* its fields */
  int32_t k8;
  int32_t name_chars; /* of all names, quotes and commas included */
} json_struct;

typedef struct {
  int32_t key, code;
  int32_t a, b; /* number of the record type; pointee; kinds of key and value */
  int32_t name_start, name_stop;
} json_field;

typedef struct {
  const uint8_t *at;
  const json_struct *structs;
  int64_t n_structs;
  const json_field *fields;
  const char *names;
  int64_t max_rows, cells, text;
  int (*spell_float)(void *context, json_text *out, uint64_t reversed_bits, int single); /* of many digits */
  void *context;
  const char *why; /* of the readers of the wire: not told */
  json_text out;
} json_walk;

static int json_record(json_walk *w, int s, int k8, const uint8_t *end, int depth, int bare);
static int json_dynamic(json_walk *w, int head, const uint8_t *end, int depth);
static int json_table(json_walk *w, int s, int k8, const uint8_t *stop, int depth);

/* ---- elements of the wire ------------------------------------------------------------------------------------- */

KERNEL_INLINE int json_byte(json_walk *w, const uint8_t *end, int *byte) {
  if (w->at >= end) return 0;
  *byte = *w->at++;
  return 1;
}

KERNEL_INLINE int json_len(json_walk *w, const uint8_t *end, uint64_t *n) {
  const uint8_t *p = cb_get_len(w->at, end, n, &w->why);
  if (!p) return 0;
  w->at = p;
  return 1;
}

/* The body behind a length of 1 << lw bytes ends at *stop. */
KERNEL_INLINE int json_sized(json_walk *w, int lw, const uint8_t *end, const uint8_t **stop) {
  uint64_t n;
  const uint8_t *p = cb_get_sized(w->at, end, lw, &n, &w->why);
  if (!p) return 0;
  w->at = p;
  *stop = p + n;
  return 1;
}

static int json_put_float(json_walk *w, uint64_t reversed_bits, int single) {
  if (reversed_bits == 0) return json_put_one(&w->out, '0');
  if (!json_ensure(&w->out, JSON_FLOAT_ROOM)) return 0;
  int size = json_short_float(reversed_bits, single, w->out.data + w->out.size);
  w->out.size += size;
  return size > 0 || w->spell_float(w->context, &w->out, reversed_bits, single);
}

/* A scalar of types 0 to 10 as the 64 bits that its type gives it. */
KERNEL_INLINE int json_put_scalar(json_walk *w, int code, uint64_t bits) {
  if (cb_is_signed(code)) return json_put_signed(&w->out, (int64_t)bits);
  if (code == CB_BOOL) return bits ? json_put(&w->out, "true", 4) : json_put(&w->out, "false", 5);
  if (code >= CB_F32) return json_put_float(w, json_reversed(bits, code == CB_F32), code == CB_F32);
  return json_put_unsigned(&w->out, bits);
}

KERNEL_INLINE int json_scalar(json_walk *w, int k8, int head, int code, const uint8_t *end) {
  uint64_t bits;
  const uint8_t *p = cb_get_scalar(w->at, end, k8, head, code, &bits, &w->why);
  if (!p) return 0;
  w->at = p;
  return json_put_scalar(w, code, bits);
}

static int json_packed(json_walk *w, const uint8_t *stop, int upper) {
  int64_t n = stop - w->at, size;
  uint8_t *text = malloc((size_t)PACKED5_MAX_DECODED(n) + 1);
  if (!text) return 0;
  size = packed5_decode(w->at, (long)n, upper, text, PACKED5_MAX_DECODED(n));
  int fine = size >= 0 && json_put_string(&w->out, text, size);
  free(text);
  w->at = stop;
  return fine;
}

/* The bytes up to `stop` as text or as base64. */
KERNEL_INLINE int json_content(json_walk *w, const uint8_t *stop, int is_text) {
  const uint8_t *start = w->at;
  w->at = stop;
  return is_text ? json_put_string(&w->out, start, stop - start) : json_put_base64(&w->out, start, stop - start);
}

static int json_blob(json_walk *w, int k8, int head, const uint8_t *end, int is_text, int packable) {
  uint64_t n;
  int packing;
  const uint8_t *p = k8 ? cb_get_k8_blob(w->at, end, head, &n, &packing, &w->why)
                        : cb_get_k4_blob(w->at, end, head, &n, &packing, &w->why);
  if (!p || (packing && !packable)) return 0;
  w->at = p;
  return packing ? json_packed(w, p + n, packing == 2) : json_content(w, p + n, is_text);
}

/* The integers up to `stop`, of 1 << lw bytes each (5.4). */
static int json_integers(json_walk *w, const uint8_t *stop, int lw, int positive, int code) {
  static const uint8_t element_of[] = {CB_I8, CB_I16, CB_I32, CB_I64, CB_U16, CB_U32, CB_U64};
  int element = element_of[code - CB_VEC_I8], size = 1 << lw, shift = 64 - 8 * size;
  if (!json_put_one(&w->out, '[')) return 0;
  for (int first = 1; w->at < stop; first = 0, w->at += size) {
    uint64_t bits = cb_load(w->at, size);
    int64_t v = positive ? (int64_t)bits : (int64_t)(bits << shift) >> shift;
    if (positive ? bits > cb_maximum[element]
                 : element != CB_U64 && (v < cb_minimum[element] || (v > 0 && (uint64_t)v > cb_maximum[element])))
      return 0;
    if (!((first || json_put_one(&w->out, ',')) && json_put_scalar(w, element, (uint64_t)v))) return 0;
  }
  return json_put_one(&w->out, ']');
}

static int json_strings(json_walk *w, uint64_t count, const uint8_t *end) {
  uint64_t size;
  if (count > (uint64_t)(end - w->at) || !json_put_one(&w->out, '[')) return 0;
  for (uint64_t i = 0; i < count; i++) {
    if (i && !json_put_one(&w->out, ',')) return 0;
    if (!json_len(w, end, &size) || size > (uint64_t)(end - w->at) || !json_content(w, w->at + size, 1)) return 0;
  }
  return json_put_one(&w->out, ']');
}

/* How many strings a list of them has, and where they end at the latest; `exact`: they must end there. */
static int json_open_strings(json_walk *w, int k8, int head, const uint8_t *end, uint64_t *count, const uint8_t **stop) {
  int low;
  *stop = end;
  if (k8) return (head & 0xF8) == 0xC8 && json_sized(w, head & 3, end, stop) && json_len(w, *stop, count);
  if (head < 8) {
    if (!json_byte(w, end, &low)) return 0;
    *count = (uint64_t)(head << 8 | low);
    return 1;
  }
  int width = 1 << (head - 7);
  if (head > 10 || end - w->at < width) return 0;
  *count = cb_load(w->at, width);
  w->at += width;
  return 1;
}

/* ---- records -------------------------------------------------------------------------------------------------- */

KERNEL_INLINE int json_spend(json_walk *w, int64_t chars) {
  w->text -= chars;
  return w->text >= 0;
}

KERNEL_INLINE int json_name(json_walk *w, const json_field *f) {
  return json_put(&w->out, w->names + f->name_start, f->name_stop - f->name_start);
}

/* What an absent field reads as (3). */
static int json_zero(json_walk *w, const json_field *f, int depth) {
  if (f->code == CB_RECORD) {
    const json_struct *s = w->structs + f->a;
    if (depth >= CB_MAX_DEPTH || !json_spend(w, s->name_chars) || !json_put_one(&w->out, '{')) return 0;
    for (int i = 0; i < s->count; i++) {
      const json_field *inner = w->fields + s->first + i;
      if (!((!i || json_put_one(&w->out, ',')) && json_name(w, inner) && json_zero(w, inner, depth + 1))) return 0;
    }
    return json_put_one(&w->out, '}');
  }
  if (f->code == CB_BOOL) return json_spend(w, 5) && json_put(&w->out, "false", 5);
  if (f->code < CB_STR) return json_spend(w, 1) && json_put_one(&w->out, '0');
  if (f->code == CB_STR) return json_spend(w, 2) && json_put(&w->out, "\"\"", 2);
  return json_spend(w, 4) && json_put(&w->out, "null", 4);
}

/* The rows of a list of records, up to `stop`. `k8`: each has a descriptor. */
static int json_rows(json_walk *w, int s, int k8, const uint8_t *stop, int depth) {
  uint64_t count, size;
  int head = w->structs[s].k8 << 3;
  const uint8_t *end;
  depth++;
  if (depth > CB_MAX_DEPTH || !json_len(w, stop, &count)) return 0;
  if (count && (depth >= CB_MAX_DEPTH || count > (uint64_t)(stop - w->at) / (k8 ? 2 : 1))) return 0;
  if (!json_put_one(&w->out, '[')) return 0;
  for (uint64_t i = 0; i < count; i++) {
    if (i && !json_put_one(&w->out, ',')) return 0;
    if (k8) {
      if (!json_byte(w, stop, &head) || head >> 4 != 13 || !json_sized(w, head & 3, stop, &end)) return 0;
    } else {
      if (!json_len(w, stop, &size) || size > (uint64_t)(stop - w->at)) return 0;
      end = w->at + size;
    }
    if (!json_record(w, s, head >> 3 & 1, end, depth + 1, 0)) return 0;
  }
  return w->at == stop && json_put_one(&w->out, ']');
}

static int json_rows_or_table_k8(json_walk *w, int s, int head, const uint8_t *end, int depth) {
  const uint8_t *stop;
  if ((head & 0xF8) == 0xC0) return json_sized(w, head & 3, end, &stop) && json_rows(w, s, 1, stop, depth);
  if ((head & 0xF8) == 0xE8) return json_sized(w, head & 3, end, &stop) && json_table(w, s, 1, stop, depth);
  return 0;
}

/* A map's key or value without a field around it (5.7, 6.7). */
static int json_element(json_walk *w, int kind, int k8, const uint8_t *stop, int depth) {
  static const uint8_t code_of[] = {CB_STR, CB_I64, CB_U64, CB_F64, CB_BOOL, CB_F32};
  const uint8_t *end;
  int head;
  if (!json_byte(w, stop, &head)) return 0;
  if (!k8) head &= 15;
  if (kind == KIND_DYNAMIC) return json_dynamic(w, head, stop, depth);
  if (kind != KIND_STRING) return json_scalar(w, k8, head, code_of[kind], stop);
  if (k8) return json_blob(w, 1, head, stop, 1, 0);
  return json_sized(w, head & 3, stop, &end) && json_content(w, end, 1);
}

static int json_map(json_walk *w, const json_field *f, int k8, const uint8_t *stop, int depth) {
  uint64_t count;
  int quoted = f->a != KIND_STRING;
  json_text *out = &w->out;
  depth++;
  if (depth > CB_MAX_DEPTH || !json_len(w, stop, &count)) return 0;
  if (count > (uint64_t)(stop - w->at) / 2 || !json_put_one(out, '{')) return 0;
  for (uint64_t i = 0; i < count; i++) {
    if (!((!i || json_put_one(out, ',')) && (!quoted || json_put_one(out, '"')) && json_element(w, f->a, k8, stop, depth) &&
          (!quoted || json_put_one(out, '"')) && json_put_one(out, ':') && json_element(w, f->b, k8, stop, depth)))
      return 0;
  }
  return w->at == stop && json_put_one(out, '}');
}

/* A field of code 26: null, a list, or a run of records behind a tag. */
static int json_dynamics(json_walk *w, int head, const uint8_t *end, int depth) {
  const uint8_t *start = w->at;
  uint64_t ignored;
  if (head == 0xF7) {
    if (!json_len(w, end, &ignored) || w->at >= end || *w->at >> 4 == 13) return 0;
    w->at = start;
  } else if (head != 0xF0 && (head & 0xF8) != 0xC0) {
    return 0;
  }
  return json_dynamic(w, head, end, depth);
}

/* The value of a field behind its key and code (K4) or descriptor (K8), which is `head`. */
KERNEL_INLINE int json_value(json_walk *w, const json_field *f, int k8, int head, const uint8_t *end, int depth) {
  int code = f->code == CB_OPTIONAL ? f->a : f->code;
  const uint8_t *stop;
  uint64_t n;
  if (code < CB_STR) return json_scalar(w, k8, head, code, end);
  if (code <= CB_BYTES) return json_blob(w, k8, head, end, code == CB_STR, code == CB_STR);
  if (code < CB_STRS) {
    int lw = k8 ? head >> 2 & 3 : head >> 1 & 3, width = head & 1 ? 4 : 1;
    if ((k8 && head >> 4 != 10) || end - w->at < width) return 0;
    n = cb_load(w->at, width);
    w->at += width;
    if (!k8) n <<= lw;
    else if (n & ((1u << lw) - 1)) return 0;
    if (n > (uint64_t)(end - w->at)) return 0;
    return json_integers(w, w->at + n, lw, k8 ? head >> 1 & 1 : head >> 3, code);
  }
  if (code == CB_STRS)
    return json_open_strings(w, k8, head, end, &n, &stop) && json_strings(w, n, stop) && (!k8 || w->at == stop);
  if (code == CB_ANY) return k8 && json_dynamic(w, head, end, depth);
  if (code == CB_ANYS) return k8 && json_dynamics(w, head, end, depth);
  if (code == CB_MAP) {
    if (k8 ? (head & 0xF8) != 0xE0 : head >> 3 || f->b == KIND_DYNAMIC) return 0;
    return json_sized(w, head & 3, end, &stop) && json_map(w, f, k8, stop, depth);
  }
  if (code == CB_RECORDS) {
    if (k8) return json_rows_or_table_k8(w, f->a, head, end, depth);
    if (!json_sized(w, head & 3, end, &stop)) return 0;
    return head & 8 ? json_table(w, f->a, w->structs[f->a].k8, stop, depth) : json_rows(w, f->a, 0, stop, depth);
  }
  return (!k8 || head >> 4 == 13) && json_sized(w, head & 3, end, &stop) && depth < CB_MAX_DEPTH &&
         json_record(w, f->a, head >> 3 & 1, stop, depth + 1, 0);
}

/* A run up to `end` as an object, or as its one value alone (`bare`). */
static int json_record(json_walk *w, int number, int k8, const uint8_t *end, int depth, int bare) {
  const json_struct *s = w->structs + number;
  const json_field *fields = w->fields + s->first;
  uint64_t seen[4] = {0, 0, 0, 0};
  int count = s->count, next = 0, comma = 0;
  if (!bare && !json_put_one(&w->out, '{')) return 0;
  while (w->at < end) {
    int head = *w->at++, key = k8 ? head : head >> 4, tries = 0;
    if (seen[key >> 6] >> (key & 63) & 1) return 0;
    seen[key >> 6] |= 1ull << (key & 63);
    if (k8 && w->at >= end) return 0;
    for (; tries < count; tries++, next++) { /* fields come in their order, mostly */
      if (next >= count) next = 0;
      if (fields[next].key == key) break;
    }
    if (tries == count) {
      const uint8_t *behind = k8 ? cb_skip_k8(w->at, end, &w->why) : NULL;
      if (!behind) return 0;
      w->at = behind;
      continue;
    }
    const json_field *f = fields + next++;
    if (!bare && !((!comma || json_put_one(&w->out, ',')) && json_name(w, f))) return 0;
    comma = 1;
    if (k8 ? !json_value(w, f, 1, *w->at++, end, depth) : !json_value(w, f, 0, head & 15, end, depth)) return 0;
  }
  if (bare) return comma || json_zero(w, fields, depth);
  for (int i = 0; i < count; i++) {
    int key = fields[i].key;
    if (seen[key >> 6] >> (key & 63) & 1) continue;
    if (!((!comma || json_put_one(&w->out, ',')) && json_name(w, fields + i) && json_zero(w, fields + i, depth))) return 0;
    comma = 1;
  }
  return json_spend(w, s->name_chars) && json_put_one(&w->out, '}');
}

/* ---- dynamic values (11) ---------------------------------------------------------------------------------------- */

KERNEL_INLINE int json_dynamic_integer(json_walk *w, int head, const uint8_t *end) {
  return json_scalar(w, 1, head, head >= 0x80 && head < 0x88 ? CB_I64 : CB_U64, end);
}

static int json_dynamic_list(json_walk *w, const uint8_t *stop, int depth) {
  uint64_t count;
  int head;
  if (depth > CB_MAX_DEPTH || !json_len(w, stop, &count)) return 0;
  if (count > (uint64_t)(stop - w->at) || !json_put_one(&w->out, '[')) return 0;
  for (uint64_t i = 0; i < count; i++)
    if (!((!i || json_put_one(&w->out, ',')) && json_byte(w, stop, &head) && json_dynamic(w, head, stop, depth))) return 0;
  return w->at == stop && json_put_one(&w->out, ']');
}

static int json_dynamic_map(json_walk *w, const uint8_t *stop, int depth) {
  uint64_t count;
  int head;
  json_text *out = &w->out;
  if (depth > CB_MAX_DEPTH || !json_len(w, stop, &count)) return 0;
  if (count > (uint64_t)(stop - w->at) / 2 || !json_put_one(out, '{')) return 0;
  for (uint64_t i = 0; i < count; i++) {
    if (!((!i || json_put_one(out, ',')) && json_byte(w, stop, &head))) return 0;
    if (head < 0x90 || head >= 0xF8) {
      if (!(json_put_one(out, '"') && json_dynamic_integer(w, head, stop) && json_put_one(out, '"'))) return 0;
    } else if (!json_blob(w, 1, head, stop, 1, 0)) {
      return 0;
    }
    if (!(json_put_one(out, ':') && json_byte(w, stop, &head) && json_dynamic(w, head, stop, depth))) return 0;
  }
  return w->at == stop && json_put_one(out, '}');
}

/* What is behind a tag: a record, or a run of records. */
static int json_typed(json_walk *w, const uint8_t *end, int depth) {
  uint64_t number;
  const uint8_t *stop;
  int head;
  if (!json_len(w, end, &number) || number >= (uint64_t)w->n_structs || !json_byte(w, end, &head)) return 0;
  if (head >> 4 != 13) return json_rows_or_table_k8(w, (int)number, head, end, depth);
  return depth < CB_MAX_DEPTH && json_sized(w, head & 3, end, &stop) &&
         json_record(w, (int)number, head >> 3 & 1, stop, depth + 1, 0);
}

static int json_dynamic(json_walk *w, int head, const uint8_t *end, int depth) {
  const uint8_t *stop;
  int inner;
  if (head < 0x90 || head >= 0xF8) return json_dynamic_integer(w, head, end);
  if (head < 0xA0) return json_blob(w, 1, head, end, 1, 0);
  if ((head & 0xF8) == 0xC0) return json_sized(w, head & 3, end, &stop) && json_dynamic_list(w, stop, depth + 1);
  if ((head & 0xF8) == 0xE0) return json_sized(w, head & 3, end, &stop) && json_dynamic_map(w, stop, depth + 1);
  switch (head) {
    case 0xF0: return json_put(&w->out, "null", 4);
    case 0xF1: return json_put(&w->out, "true", 4);
    case 0xF2: return json_put(&w->out, "false", 5);
    case 0xF3: return json_byte(w, end, &inner) && json_scalar(w, 1, inner, CB_F64, end);
    case 0xF4: return json_byte(w, end, &inner) && json_scalar(w, 1, inner, CB_F32, end);
    case 0xF5: return json_byte(w, end, &inner) && json_blob(w, 1, inner, end, 0, 0);
    case 0xF7: return json_typed(w, end, depth);
    default: return 0;
  }
}

#endif
