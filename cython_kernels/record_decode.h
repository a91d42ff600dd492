/* From colbin messages to Python objects (colbin.md 5, 6, 7, 11, 13, 15).
 *
 * One pass over bytes that nobody has checked before. Every length is compared with the bytes that are there before
 * anything is read or allocated; what costs no bytes (rows of tables, absent fields) is paid from `cells`; the depth of
 * the recursion is bounded. Messages are bytes objects: nobody changes them meanwhile, and there is memory in front of
 * them (CB_LEAD). Functions return NULL or -1 with either `why` and `at` of the reader set (the bytes are bad)
 * or a Python exception. */
#ifndef COLSTORE_RECORD_DECODE_H
#define COLSTORE_RECORD_DECODE_H

#include "column_codec.h"
#include "packed5.h"
#include "record_plan.h"

#define CB_ROWS ((int64_t)1 << 22)  /* rows of one table, unless the caller allows others (14) */
#define CB_CELLS ((int64_t)1 << 24) /* and values that no byte stands for; eight more for each byte of the message */

typedef struct {
  const uint8_t *start;
  const char *why;
  const uint8_t *at;
  int64_t cells;       /* values that may still appear without bytes of their own */
  int64_t max_rows;
  int surrogates;      /* bytes that are no UTF-8 become lone surrogates */
  cb_plan **structs;   /* what a typed tag numbers (11) */
  Py_ssize_t n_structs;
  cb_path path;
} cb_reader;

KERNEL_NOINLINE int cb_fail(cb_reader *r, const uint8_t *at, const char *why) {
  if (!r->why) {
    r->why = why;
    r->at = at;
  }
  return -1;
}

KERNEL_NOINLINE PyObject *cb_fail_object(cb_reader *r, const uint8_t *at, const char *why) {
  cb_fail(r, at, why);
  return NULL;
}

static PyObject *cb_read_record(cb_reader *r, const cb_plan *plan, const uint8_t *p, const uint8_t *end, int k8, int depth);
static PyObject *cb_read_dynamic(cb_reader *r, const uint8_t **pp, const uint8_t *end, int depth);

/* Pay for values that no byte of the message stands for. */
KERNEL_INLINE int cb_pay(cb_reader *r, const uint8_t *at, int64_t cells) {
  if (UNLIKELY(cells > r->cells)) return cb_fail(r, at, "more values than the budget max_cells allows");
  r->cells -= cells;
  return 0;
}

static PyObject *cb_not_utf8(cb_reader *r, const uint8_t *p, uint64_t n) {
  if (PyErr_ExceptionMatches(PyExc_UnicodeDecodeError)) {
    PyErr_Clear();
    return cb_fail_object(r, p, "a string is not UTF-8 (errors=\"surrogateescape\" would read it)");
  }
  (void)n;
  return NULL;
}

KERNEL_NOINLINE PyObject *cb_other_text(cb_reader *r, const uint8_t *p, uint64_t n) {
  PyObject *text = PyUnicode_DecodeUTF8((const char *)p, (Py_ssize_t)n, r->surrogates ? "surrogateescape" : "strict");
  return text ? text : cb_not_utf8(r, p, n);
}

#if PY_VERSION_HEX < 0x030C0000 && !defined(Py_DEBUG) && !defined(Py_TRACE_REFS)
#define CB_OWN_TEXTS 1
#endif

/* A text of n > 1 ASCII characters that are not there yet, in memory for `room` >= n of them: PyUnicode_New for one kind,
 * without its questions. */
KERNEL_INLINE PyObject *cb_new_ascii(uint64_t n, uint64_t room) {
#ifdef CB_OWN_TEXTS
  if (UNLIKELY(room > PY_SSIZE_T_MAX - sizeof(PyASCIIObject) - 1)) return PyErr_NoMemory();
  PyASCIIObject *text = (PyASCIIObject *)PyObject_Malloc(sizeof(PyASCIIObject) + (size_t)room + 1);
  if (UNLIKELY(!text)) return PyErr_NoMemory();
  Py_SET_REFCNT(text, 1);
  Py_SET_TYPE(text, &PyUnicode_Type);
  text->length = (Py_ssize_t)n;
  text->hash = -1;
  memset(&text->state, 0, sizeof(text->state));
  text->state.kind = PyUnicode_1BYTE_KIND;
  text->state.compact = text->state.ascii = text->state.ready = 1;
  text->wstr = NULL;
  ((uint8_t *)(text + 1))[n] = 0;
  return (PyObject *)text;
#else
  (void)room;
  return PyUnicode_New((Py_ssize_t)n, 127);
#endif
}

/* Short texts are mostly codes of something, few and met again and again (countries, levels, units): the last one of
 * each place of a table is handed out again, which saves an allocation here and a deallocation later. A text that was
 * met twice stays for a few others that want its place. */
enum { CB_SHARED_BYTES = 8, CB_SHARED_TEXTS = 512, CB_STAYS = 3 };
#ifndef Py_GIL_DISABLED
typedef struct {
  uint64_t content; /* the bytes, zeros behind them */
  PyObject *text;   /* NULL: the place is free */
  int stays;
} cb_shared_text;
static cb_shared_text cb_shared_texts[CB_SHARED_TEXTS];
#endif

/* 2 to 8 bytes of ASCII. */
KERNEL_INLINE PyObject *cb_short_text(uint64_t content, uint64_t n) {
#ifndef Py_GIL_DISABLED
  cb_shared_text *known = &cb_shared_texts[(content + n) * 0x9e3779b97f4a7c15ull >> 55];
  if (LIKELY(known->content == content && known->text && (uint64_t)PyUnicode_GET_LENGTH(known->text) == n)) {
    known->stays = CB_STAYS;
    return Py_NewRef(known->text);
  }
#endif
  PyObject *text = cb_new_ascii(n, CB_SHARED_BYTES);
  if (UNLIKELY(!text)) return NULL;
#ifdef CB_OWN_TEXTS
  cb_store8(PyUnicode_1BYTE_DATA(text), content);
  PyUnicode_1BYTE_DATA(text)[CB_SHARED_BYTES] = 0;
#else
  for (uint64_t i = 0; i < n; i++) PyUnicode_1BYTE_DATA(text)[i] = (uint8_t)(content >> (8 * i));
#endif
#ifndef Py_GIL_DISABLED
  if (known->text && known->stays-- > 0) return text;
  known->content = content;
  known->stays = 0;
  Py_XSETREF(known->text, Py_NewRef(text));
#endif
  return text;
}

/* n bytes as text. Most texts are ASCII of at most 16 bytes: those of more than 8 are two loads, tested and stored again,
 * that overlap in the middle; neither side goes past its n bytes. */
KERNEL_INLINE PyObject *cb_text(cb_reader *r, const uint8_t *p, uint64_t n) {
  PyObject *text;
  if (n <= CB_SHARED_BYTES) {
    if (UNLIKELY(n == 0)) return PyUnicode_FromStringAndSize(NULL, 0);
    uint64_t content = cb_load(p, (int)n);
    if (UNLIKELY(content & 0x8080808080808080ull)) return cb_other_text(r, p, n);
    if (n == 1) return PyUnicode_DecodeASCII((const char *)p, 1, NULL); /* shared by the interpreter */
    return cb_short_text(content, n);
  }
  if (n <= 16) {
    uint64_t low, high;
    memcpy(&low, p, 8);
    memcpy(&high, p + n - 8, 8);
    if (UNLIKELY((low | high) & 0x8080808080808080ull)) return cb_other_text(r, p, n);
    if (UNLIKELY(!(text = cb_new_ascii(n, n)))) return NULL;
    memcpy(PyUnicode_1BYTE_DATA(text), &low, 8);
    memcpy(PyUnicode_1BYTE_DATA(text) + n - 8, &high, 8);
    return text;
  }
  if (UNLIKELY(!cb_is_ascii(p, n))) return cb_other_text(r, p, n);
  text = cb_new_ascii(n, n);
  if (LIKELY(text != NULL)) {
    uint8_t *to = PyUnicode_1BYTE_DATA(text);
    if (n <= 32) {
      memcpy(to, p, 16);
      memcpy(to + n - 16, p + n - 16, 16);
    } else {
      memcpy(to, p, (size_t)n);
    }
  }
  return text;
}

static PyObject *cb_packed_text(cb_reader *r, const uint8_t *p, uint64_t n, int packing) {
  uint8_t few[512 + CB_LEAD], *memory = few;
  uint64_t cap = PACKED5_MAX_DECODED(n);
  if (cap > 512 && !(memory = PyMem_Malloc((size_t)cap + CB_LEAD))) return PyErr_NoMemory();
  uint8_t *buffer = memory + CB_LEAD;
  memset(memory, 0, CB_LEAD);
  long size = packed5_decode(p, (long)n, packing == 2, buffer, (long)cap);
  PyObject *text = size < 0 ? cb_fail_object(r, p, "a packed string is malformed") : cb_text(r, buffer, (uint64_t)size);
  if (!text && r->why) r->at = p;
  if (memory != few) PyMem_Free(memory);
  return text;
}

/* What an absent key reads as; a new reference. `depth` is that of the record. */
static PyObject *cb_zero_value(cb_reader *r, const cb_field *f, int depth);

static PyObject *cb_zero_record(cb_reader *r, const cb_plan *plan, int depth) {
  if (depth > CB_MAX_DEPTH) return cb_fail_object(r, r->start, "nested deeper than 128 levels");
  if (cb_pay(r, r->start, plan->n + 1) < 0) return NULL;
  PyObject *object = cb_new_object(plan, plan->mode);
  if (!object && plan->mode != CB_MODE_ENVELOPE) return NULL;
  for (int i = 0; i < plan->n; i++) {
    if (plan->fields[i].left_out) continue;
    PyObject *value = cb_zero_value(r, &plan->fields[i], depth);
    if (!value || cb_set_value(plan, plan->mode, &plan->fields[i], &object, value) < 0) {
      Py_XDECREF(object);
      return NULL;
    }
  }
  if (cb_finish_object(plan, plan->mode, object) < 0) Py_CLEAR(object);
  return object;
}

static PyObject *cb_zero_value(cb_reader *r, const cb_field *f, int depth) {
  if (LIKELY(f->zero != NULL)) return Py_NewRef(f->zero);
  if (f->code == CB_RECORD) return cb_zero_record(r, f->child, depth + 1);
  return f->code == CB_MAP ? PyDict_New() : PyList_New(0);
}

/* A list of n integers of 1 << w bytes at p, which are there. */
static PyObject *cb_read_vec(cb_reader *r, const uint8_t *p, uint64_t n, int w, int positive, int element) {
  PyObject *list = PyList_New((Py_ssize_t)n);
  int width = 1 << w, shift = 64 - 8 * width, is_signed = cb_is_signed(element);
  if (!list) return NULL;
  for (uint64_t i = 0; i < n; i++, p += width) {
    uint64_t bits = cb_load(p, width);
    int good;
    if (positive) {
      good = bits <= cb_maximum[element];
    } else {
      int64_t v = (int64_t)(bits << shift) >> shift;
      bits = (uint64_t)v;
      good = element == CB_U64 || (v >= cb_minimum[element] && (v < 0 || (uint64_t)v <= cb_maximum[element]));
    }
    if (UNLIKELY(!good)) {
      Py_DECREF(list);
      cb_step(&r->path, NULL, (Py_ssize_t)i);
      return cb_fail_object(r, p, "an integer is outside the range of its type");
    }
    PyObject *item = is_signed || !(bits >> 63) ? cb_int_object((int64_t)bits) : PyLong_FromUnsignedLongLong(bits);
    if (UNLIKELY(!item)) {
      Py_DECREF(list);
      return NULL;
    }
    PyList_SET_ITEM(list, (Py_ssize_t)i, item);
  }
  return list;
}

/* n strings of LEN(size) and bytes; *pp moves behind them. */
static PyObject *cb_read_strings(cb_reader *r, const uint8_t **pp, const uint8_t *end, uint64_t n) {
  const uint8_t *p = *pp;
  if (n > (uint64_t)(end - p)) return cb_fail_object(r, p, "a list claims more strings than its bytes can hold");
  PyObject *list = PyList_New((Py_ssize_t)n);
  if (!list) return NULL;
  for (uint64_t i = 0; i < n; i++) {
    uint64_t size;
    const char *why = NULL;
    const uint8_t *text = cb_get_len(p, end, &size, &why);
    if (!text || size > (uint64_t)(end - text)) {
      cb_fail(r, p, why ? why : "a string runs past the end of its list");
      goto fail;
    }
    PyObject *item = cb_text(r, text, size);
    if (!item) goto fail;
    PyList_SET_ITEM(list, (Py_ssize_t)i, item);
    p = text + size;
    continue;
  fail:
    Py_DECREF(list);
    cb_step(&r->path, NULL, (Py_ssize_t)i);
    return NULL;
  }
  *pp = p;
  return list;
}

/* The header of a list of strings field; the body's bounds: *pp and *stop. K8 lists end where they say. */
static int cb_open_strings(cb_reader *r, const uint8_t **pp, const uint8_t *end, int k8, int head, uint64_t *n,
                           const uint8_t **stop) {
  const uint8_t *p = *pp;
  const char *why = NULL;
  uint64_t size;
  int packing;
  if (k8) {
    if ((head & 0xf8) != 0xc8)
      return cb_fail(r, p - 1, "another class of value than the field's type expects");
    if (!(p = cb_get_sized(p, end, head, &size, &why))) return cb_fail(r, *pp, why);
    *stop = p + size;
    if (!(*pp = cb_get_len(p, *stop, n, &why))) return cb_fail(r, p, why);
    return 0;
  }
  *stop = end;
  if (head >= 8) { /* the header is a blob's, with the count in place of the size */
    static const uint8_t widths[3] = {2, 4, 8};
    packing = head & 7;
    if (packing > 2) return cb_fail(r, p - 1, "an unassigned header of a list of strings");
    if (end - p < widths[packing]) return cb_fail(r, p, "a length runs past the end of its buffer");
    *n = cb_load(p, widths[packing]);
    *pp = p + widths[packing];
    return 0;
  }
  if (p >= end) return cb_fail(r, p, "a length runs past the end of its buffer");
  *n = (uint64_t)head << 8 | *p;
  *pp = p + 1;
  return 0;
}

static PyObject *cb_read_string_list(cb_reader *r, const uint8_t **pp, const uint8_t *end, int k8, int head) {
  const uint8_t *stop;
  uint64_t n;
  if (cb_open_strings(r, pp, end, k8, head, &n, &stop) < 0) return NULL;
  PyObject *list = cb_read_strings(r, pp, stop, n);
  if (list && k8 && *pp != stop) {
    Py_DECREF(list);
    return cb_fail_object(r, *pp, "bytes are left over behind the last string of a list");
  }
  return list;
}

/* Any scalar or string without a key: map entries (5.7, 6.7) and dynamic scalars. */
static PyObject *cb_read_element(cb_reader *r, const uint8_t **pp, const uint8_t *end, int k8, int code) {
  const uint8_t *p = *pp, *next;
  const char *why = NULL;
  uint64_t bits;
  if (p >= end) return cb_fail_object(r, p, "a map entry is missing");
  int head = *p++;
  if (code == CB_STR) {
    int packing = 0;
    next = k8 ? cb_get_k8_blob(p, end, head, &bits, &packing, &why) : cb_get_sized(p, end, head & 3, &bits, &why);
    if (!next) return cb_fail_object(r, *pp, why);
    if (packing) return cb_fail_object(r, *pp, "a packed string where none may be");
    if (!k8 && (head & 8)) return cb_fail_object(r, *pp, "an unassigned header of a string");
    *pp = next + bits;
    return cb_text(r, next, bits);
  }
  next = cb_get_scalar(p, end, k8, k8 ? head : head & 15, code, &bits, &why);
  if (!next) return cb_fail_object(r, *pp, why);
  *pp = next;
  return cb_object_of(bits, code);
}

/* The body of a map, all of p..end. `dynamic`: the keys carry their type. */
static PyObject *cb_read_map(cb_reader *r, const cb_field *f, const uint8_t *p, const uint8_t *end, int k8, int depth) {
  const char *why = NULL;
  uint64_t n;
  const uint8_t *body = cb_get_len(p, end, &n, &why);
  if (depth > CB_MAX_DEPTH) return cb_fail_object(r, p, "nested deeper than 128 levels");
  if (!body) return cb_fail_object(r, p, why);
  if (n > (uint64_t)(end - body) / 2) return cb_fail_object(r, p, "a map claims more entries than its bytes can hold");
  PyObject *dict = PyDict_New();
  if (!dict) return NULL;
  p = body;
  for (uint64_t i = 0; i < n; i++) {
    PyObject *key, *value;
    if (f) {
      key = cb_read_element(r, &p, end, k8, f->map_key);
    } else if (p < end && (*p < 0x90 || *p >= 0xf8)) { /* a dynamic key: an integer or a string */
      int is_negative = *p >= 0x80 && *p < 0x88;
      key = cb_read_element(r, &p, end, 1, is_negative ? CB_I64 : CB_U64);
    } else {
      key = cb_read_element(r, &p, end, 1, CB_STR);
    }
    if (!key) goto fail;
    value = !f || f->map_value == CB_ANY ? cb_read_dynamic(r, &p, end, depth)
                                         : cb_read_element(r, &p, end, k8, f->map_value);
    if (!value) {
      cb_step_key(&r->path, key);
      Py_DECREF(key);
      Py_DECREF(dict);
      return NULL;
    }
    int bad = PyDict_SetItem(dict, key, value);
    Py_DECREF(key);
    Py_DECREF(value);
    if (bad < 0) goto fail;
    continue;
  fail:
    Py_DECREF(dict);
    cb_step(&r->path, NULL, (Py_ssize_t)i);
    return NULL;
  }
  if (p != end) {
    Py_DECREF(dict);
    return cb_fail_object(r, p, "bytes are left over behind the last entry of a map");
  }
  return dict;
}

/* The rows of a list of records; p..end is the body. `k8`: each row has a STRUCT descriptor. */
static PyObject *cb_read_rows(cb_reader *r, const cb_plan *plan, const uint8_t *p, const uint8_t *end, int k8, int depth) {
  const char *why = NULL;
  uint64_t n, size;
  const uint8_t *body = cb_get_len(p, end, &n, &why);
  if (depth > CB_MAX_DEPTH) return cb_fail_object(r, p, "nested deeper than 128 levels");
  if (!body) return cb_fail_object(r, p, why);
  if (n > (uint64_t)(end - body) / (k8 ? 2 : 1)) return cb_fail_object(r, p, "a list claims more rows than its bytes can hold");
  PyObject *list = PyList_New((Py_ssize_t)n);
  if (!list) return NULL;
  p = body;
  for (uint64_t i = 0; i < n; i++) {
    const uint8_t *run;
    int row_k8 = plan->k8;
    if (k8) {
      if (p >= end || (*p & 0xf0) != 0xd0) {
        cb_fail(r, p, p >= end ? "a row is missing" : "a row is no record");
        goto fail;
      }
      row_k8 = *p >> 3 & 1;
      run = cb_get_sized(p + 1, end, *p, &size, &why);
    } else {
      run = cb_get_len(p, end, &size, &why);
      if (run && size > (uint64_t)(end - run)) {
        why = "a row runs past the end of its list";
        run = NULL;
      }
    }
    if (!run) {
      cb_fail(r, p, why);
      goto fail;
    }
    PyObject *row = cb_read_record(r, plan, run, run + size, row_k8, depth + 1);
    if (!row) goto fail;
    PyList_SET_ITEM(list, (Py_ssize_t)i, row);
    p = run + size;
    continue;
  fail:
    Py_DECREF(list);
    cb_step(&r->path, NULL, (Py_ssize_t)i);
    return NULL;
  }
  if (p != end) {
    Py_DECREF(list);
    return cb_fail_object(r, p, "bytes are left over behind the last row of a list");
  }
  return list;
}

/* One column of a table while its rows are made: int64 values, strings, or neither when it was absent. */
typedef struct {
  int64_t *values;
  PyObject *strings;
} cb_column;

static int cb_read_column(cb_reader *r, const cb_field *f, const uint8_t **pp, const uint8_t *end, int k8, uint64_t rows,
                          cb_column *column) {
  const uint8_t *p = *pp, *body, *stop;
  const char *why = NULL;
  uint64_t size;
  int head;
  if (k8) {
    if (p >= end) return cb_fail(r, p, "a value is missing");
    head = *p++;
  } else {
    head = p[-1] & 15;
  }
  if (f->code == CB_STR) {
    uint64_t n;
    if (cb_open_strings(r, &p, end, k8, head, &n, &stop) < 0) return -1;
    if (n != rows) return cb_fail(r, *pp, "a column of strings has another length than the table");
    column->strings = cb_read_strings(r, &p, stop, n);
    if (!column->strings) return -1;
    if (k8 && p != stop) return cb_fail(r, p, "bytes are left over behind the last string of a column");
    *pp = p;
    return 0;
  }
  if (!cb_is_column(f->code)) return cb_fail(r, *pp, "a field of this type cannot be a column");
  if (k8 ? (head & 0xf0) != 0xb0 : head >> 3) return cb_fail(r, *pp, "another class of value than a column");
  if (!(body = cb_get_sized(p, end, head, &size, &why))) return cb_fail(r, *pp, why);
  column->values = PyMem_Malloc((size_t)(rows ? rows : 1) * 8);
  if (!column->values) {
    PyErr_NoMemory();
    return -1;
  }
  switch (column_decode(body, (int64_t)size, (int64_t)rows, column->values)) {
  case COLUMN_OK: break;
  case COLUMN_TRUNCATED: return cb_fail(r, body, "a column is cut short");
  case COLUMN_BAD_WIDTH: return cb_fail(r, body, "a column has a block wider than 64 bits");
  case COLUMN_TRAILING: return cb_fail(r, body, "bytes are left over behind the last block of a column");
  default: return cb_fail(r, body, "a column is malformed");
  }
  if (f->code != CB_I64 && f->code != CB_U64 && f->code != CB_F64) {
    int64_t low = cb_minimum[f->code], high = (int64_t)cb_maximum[f->code];
    for (uint64_t i = 0; i < rows; i++)
      if (column->values[i] < low || column->values[i] > high) {
        cb_step(&r->path, NULL, (Py_ssize_t)i);
        return cb_fail(r, body, "a value of a column is outside the range of its type");
      }
  }
  *pp = body + size;
  return 0;
}

/* A table: LEN(rows) and columns in p..end; `k8`: the width of the column keys. */
static PyObject *cb_read_table(cb_reader *r, const cb_plan *plan, const uint8_t *p, const uint8_t *end, int k8, int depth) {
  const char *why = NULL;
  const uint8_t *start = p;
  uint64_t rows, seen[4] = {0, 0, 0, 0};
  PyObject *list = NULL;
  if (depth > CB_MAX_DEPTH) return cb_fail_object(r, p, "nested deeper than 128 levels");
  if (!(p = cb_get_len(p, end, &rows, &why))) return cb_fail_object(r, start, why);
  if (rows > (uint64_t)r->max_rows) return cb_fail_object(r, start, "a table has more rows than max_rows allows");
  if (cb_pay(r, start, (int64_t)rows * (plan->n + 1)) < 0) return NULL;
  cb_column *columns = PyMem_Calloc((size_t)plan->n + 1, sizeof(cb_column));
  if (!columns) return PyErr_NoMemory();
  while (p < end) {
    const uint8_t *field_start = p;
    int key = k8 ? *p : *p >> 4;
    p++;
    if (seen[key >> 6] >> (key & 63) & 1) {
      cb_fail(r, field_start, "a key occurs twice");
      goto done;
    }
    seen[key >> 6] |= 1ull << (key & 63);
    int place = plan->by_key[key];
    if (place < 0) {
      if (!k8) {
        cb_fail(r, field_start, "a four-bit key that the record type does not declare");
        goto done;
      }
      if (!(p = cb_skip_k8(p, end, &why))) {
        cb_fail(r, field_start, why);
        goto done;
      }
      continue;
    }
    if (cb_read_column(r, &plan->fields[place], &p, end, k8, rows, &columns[place]) < 0) {
      cb_step(&r->path, plan->fields[place].name, 0);
      goto done;
    }
  }
  if (!(list = PyList_New((Py_ssize_t)rows))) goto done;
  for (uint64_t i = 0; i < rows; i++) {
    PyObject *object = cb_new_object(plan, plan->mode);
    int bad = !object && plan->mode != CB_MODE_ENVELOPE;
    for (int c = 0; c < plan->n && !bad; c++) {
      const cb_field *f = &plan->fields[c];
      PyObject *value;
      if (columns[c].values) value = cb_object_of((uint64_t)columns[c].values[i], f->code);
      else if (columns[c].strings) value = Py_NewRef(PyList_GET_ITEM(columns[c].strings, (Py_ssize_t)i));
      else if (f->left_out) continue;
      else value = cb_zero_value(r, f, depth + 1);
      bad = !value || cb_set_value(plan, plan->mode, f, &object, value) < 0;
    }
    if (bad || cb_finish_object(plan, plan->mode, object) < 0) {
      Py_XDECREF(object);
      Py_CLEAR(list);
      goto done;
    }
    PyList_SET_ITEM(list, (Py_ssize_t)i, object);
  }
done:
  for (int c = 0; c < plan->n; c++) {
    PyMem_Free(columns[c].values);
    Py_XDECREF(columns[c].strings);
  }
  PyMem_Free(columns);
  return list;
}

/* Fields that are not scalars, strings or bytes. `head`: descriptor or K4 code; *pp is behind it. */
KERNEL_NOINLINE PyObject *cb_read_composite(cb_reader *r, const cb_field *f, const uint8_t **pp, const uint8_t *end,
                                            int k8, int head, int depth) {
  const uint8_t *p = *pp, *body;
  const char *why = NULL;
  uint64_t size;
  switch (f->code) {
  case CB_STRS: return cb_read_string_list(r, pp, end, k8, head);
  case CB_ANY:
    if (!k8) return cb_fail_object(r, p, "a dynamic value needs eight-bit keys");
    *pp = p - 1;
    return cb_read_dynamic(r, pp, end, depth);
  case CB_ANYS: {
    if (!k8) return cb_fail_object(r, p, "a dynamic value needs eight-bit keys");
    const uint8_t *tagged = p;
    if (head == 0xf7 && (tagged = cb_get_len(p, end, &size, &why)) && tagged < end) head = *tagged;
    if (head != 0xf0 && (head & 0xf8) != 0xc0 && !(tagged != p && (head & 0xf8) == 0xe8))
      return cb_fail_object(r, p - 1, "another class of value than a list");
    *pp = p - 1;
    PyObject *list = cb_read_dynamic(r, pp, end, depth);
    if (list == Py_None && !f->zero) { /* null where the type has no None */
      Py_DECREF(list);
      return PyList_New(0);
    }
    return list;
  }
  default: break;
  }
  if (f->code >= CB_VEC_I8 && f->code <= CB_VEC_U64) {
    int w, positive, is_long, element = cb_vec_element[f->code - CB_VEC_I8];
    if (k8) {
      if ((head & 0xf0) != 0xa0) return cb_fail_object(r, p - 1, "another class of value than the field's type expects");
      w = head >> 2 & 3;
      positive = head >> 1 & 1;
    } else {
      w = head >> 1 & 3;
      positive = head >> 3;
    }
    is_long = head & 1;
    if (end - p < (is_long ? 4 : 1)) return cb_fail_object(r, p, "a length runs past the end of its buffer");
    size = cb_load(p, is_long ? 4 : 1);
    body = p + (is_long ? 4 : 1);
    if (k8) {
      if (size & ((1ull << w) - 1)) return cb_fail_object(r, p, "the length of a list is no multiple of its element size");
    } else {
      size <<= w;
    }
    if (size > (uint64_t)(end - body)) return cb_fail_object(r, p, "a list runs past the end of its buffer");
    *pp = body + size;
    return cb_read_vec(r, body, size >> w, w, positive, element);
  }
  /* Records, lists of records, maps: a length and a body. */
  if (!(body = cb_get_sized(p, end, head, &size, &why))) return cb_fail_object(r, p, why);
  *pp = body + size;
  switch (f->code) {
  case CB_RECORD:
  case CB_OPTIONAL_RECORD:
    if (k8 && (head & 0xf0) != 0xd0) break;
    return cb_read_record(r, f->child, body, body + size, head >> 3 & 1, depth + 1);
  case CB_RECORDS:
    if (k8) {
      if ((head & 0xf8) == 0xc0) return cb_read_rows(r, f->child, body, body + size, 1, depth + 1);
      if ((head & 0xf8) == 0xe8) return cb_read_table(r, f->child, body, body + size, 1, depth + 1);
      break;
    }
    if (head & 8) return cb_read_table(r, f->child, body, body + size, f->child->k8, depth + 1);
    return cb_read_rows(r, f->child, body, body + size, 0, depth + 1);
  default: /* CB_MAP */
    if (f->map_value == CB_ANY && !k8) return cb_fail_object(r, p, "a dynamic value needs eight-bit keys");
    if (k8 ? (head & 0xf8) != 0xe0 : head >> 3) break;
    return cb_read_map(r, f, body, body + size, k8, depth + 1);
  }
  return cb_fail_object(r, p - 1, "another class of value than the field's type expects");
}

/* Fields whose type comes up seldom, or whose value is more than one scalar. */
KERNEL_NOINLINE PyObject *cb_read_other(cb_reader *r, const cb_field *f, const uint8_t **pp, const uint8_t *end, int k8,
                                        int head, int depth) {
  const uint8_t *p = *pp, *next;
  const char *why = NULL;
  uint64_t bits;
  int code = f->code == CB_OPTIONAL ? f->pointee : f->code, packing;
  if (code <= CB_F64) {
    next = cb_get_scalar(p, end, k8, head, code, &bits, &why);
    if (UNLIKELY(!next)) return cb_fail_object(r, p - 1, why);
    *pp = next;
    return cb_object_of(bits, code);
  }
  if (code > CB_BYTES) return cb_read_composite(r, f, pp, end, k8, head, depth);
  next = k8 ? cb_get_k8_blob(p, end, head, &bits, &packing, &why) : cb_get_k4_blob(p, end, head, &bits, &packing, &why);
  if (UNLIKELY(!next)) return cb_fail_object(r, p - 1, why);
  *pp = next + bits;
  if (code == CB_STR) return packing ? cb_packed_text(r, next, bits, packing) : cb_text(r, next, bits);
  if (packing) return cb_fail_object(r, p - 1, "packed bytes");
  return PyBytes_FromStringAndSize((const char *)next, (Py_ssize_t)bits);
}

/* The value of a field, a new reference. *pp is behind the key (K8), or behind the key-and-code byte (K4). */
KERNEL_INLINE PyObject *cb_read_field(cb_reader *r, const cb_field *f, const uint8_t **pp, const uint8_t *end, int k8,
                                      int head, int depth) {
  const uint8_t *p = *pp, *next;
  const char *why = NULL;
  uint64_t n;
  int64_t v;
  int packing;
  if (f->kind == CB_KIND_SIGNED) {
    next = k8 ? cb_get_k8_signed(p, end, head, &v, &why) : cb_get_k4_signed(p, end, head, &v, &why);
    if (UNLIKELY(!next)) return cb_fail_object(r, p - 1, why);
    if (UNLIKELY((uint64_t)v - f->low > f->span))
      return cb_fail_object(r, p - 1, "an integer is outside the range of its type");
    *pp = next;
    return cb_int_object(v);
  }
  if (f->kind == CB_KIND_UNSIGNED) {
    next = k8 ? cb_get_k8_unsigned(p, end, head, &n, &why) : cb_get_k4_unsigned(p, end, head, &n, &why);
    if (UNLIKELY(!next)) return cb_fail_object(r, p - 1, why);
    if (UNLIKELY(n > f->span)) return cb_fail_object(r, p - 1, "an integer is outside the range of its type");
    *pp = next;
    return cb_int_object((int64_t)n);
  }
  if (f->kind == CB_KIND_TEXT) {
    next = k8 ? cb_get_k8_blob(p, end, head, &n, &packing, &why) : cb_get_k4_blob(p, end, head, &n, &packing, &why);
    if (UNLIKELY(!next)) return cb_fail_object(r, p - 1, why);
    *pp = next + n;
    if (UNLIKELY(packing)) return cb_packed_text(r, next, n, packing);
    return cb_text(r, next, n);
  }
  const uint8_t *behind = p; /* of its own: *pp stays in a register */
  PyObject *value = cb_read_other(r, f, &behind, end, k8, head, depth);
  *pp = behind;
  return value;
}

/* A run of fields as an object of the plan's type. `k8` and `mode` are constants where this is compiled in. */
KERNEL_INLINE PyObject *cb_read_run(cb_reader *r, const cb_plan *plan, const uint8_t *p, const uint8_t *end, int k8,
                                    int mode, int depth) {
  uint64_t seen[4] = {0, 0, 0, 0}; /* four-bit keys need one word, and the compiler sees it */
  const char *why = NULL;
  const cb_field *f = NULL;
  PyObject *object = cb_new_object(plan, mode);
  if (UNLIKELY(!object && mode != CB_MODE_ENVELOPE)) return NULL;
  while (p < end) {
    const uint8_t *start = p;
    int key, head;
    if (k8) {
      key = *p++;
      if (UNLIKELY(p >= end)) {
        cb_fail(r, start, "a key without a value");
        goto fail;
      }
      head = *p;
    } else {
      key = *p >> 4;
      head = *p & 15;
    }
    int word = k8 ? key >> 6 : 0;
    if (UNLIKELY(seen[word] >> (key & 63) & 1)) {
      cb_fail(r, start, "a key occurs twice");
      goto fail;
    }
    seen[word] |= 1ull << (key & 63);
    int place = plan->by_key[key];
    if (UNLIKELY(place < 0)) {
      if (!k8) {
        cb_fail(r, start, "a four-bit key that the record type does not declare");
        goto fail;
      }
      if (!(p = cb_skip_k8(p, end, &why))) {
        cb_fail(r, start, why);
        goto fail;
      }
      continue;
    }
    f = &plan->fields[place];
    p++;
    PyObject *value = cb_read_field(r, f, &p, end, k8, head, depth);
    if (UNLIKELY(!value)) {
      if (mode != CB_MODE_ENVELOPE) cb_step(&r->path, f->name, 0);
      goto fail;
    }
    if (UNLIKELY(cb_set_value(plan, mode, f, &object, value) < 0)) goto fail;
  }
  uint64_t absent = plan->keys[0] & ~seen[0];
  if (k8 || UNLIKELY(plan->wide)) /* the root byte may say four bits of any type */
    absent |= (plan->keys[1] & ~seen[1]) | (plan->keys[2] & ~seen[2]) | (plan->keys[3] & ~seen[3]);
  if (absent) {
    for (int i = 0; i < plan->n; i++) {
      f = &plan->fields[i];
      if (seen[f->key >> 6] >> (f->key & 63) & 1) continue;
      if (UNLIKELY(cb_pay(r, end, 1) < 0)) goto fail;
      if (f->left_out) continue;
      PyObject *value = cb_zero_value(r, f, depth);
      if (!value || cb_set_value(plan, mode, f, &object, value) < 0) goto fail;
    }
  }
  if (UNLIKELY(cb_finish_object(plan, mode, object) < 0)) goto fail;
  return object;
fail:
  Py_XDECREF(object);
  return NULL;
}

static PyObject *cb_read_record(cb_reader *r, const cb_plan *plan, const uint8_t *p, const uint8_t *end, int k8, int depth) {
  if (UNLIKELY(depth > CB_MAX_DEPTH)) return cb_fail_object(r, p, "nested deeper than 128 levels");
  if (LIKELY(plan->mode == CB_MODE_SLOTS))
    return k8 ? cb_read_run(r, plan, p, end, 1, CB_MODE_SLOTS, depth) : cb_read_run(r, plan, p, end, 0, CB_MODE_SLOTS, depth);
  return cb_read_run(r, plan, p, end, k8, plan->mode, depth);
}

/* The record of a whole message; the usual kind is compiled into the caller, where small messages gain by it. */
KERNEL_INLINE PyObject *cb_read_root(cb_reader *r, const cb_plan *plan, const uint8_t *p, const uint8_t *end, int k8) {
  if (LIKELY(plan->mode == CB_MODE_SLOTS && !k8)) return cb_read_run(r, plan, p, end, 0, CB_MODE_SLOTS, 1);
  return cb_read_record(r, plan, p, end, k8, 1);
}

/* A dynamic value, classified by its descriptor at *pp (11). `depth` is that of what holds it. */
static PyObject *cb_read_dynamic(cb_reader *r, const uint8_t **pp, const uint8_t *end, int depth) {
  const uint8_t *start = *pp, *p = start, *next;
  const char *why = NULL;
  uint64_t size, bits;
  const cb_plan *tagged = NULL;
  if (p >= end) return cb_fail_object(r, p, "a dynamic value is missing");
  int head = *p;
  if (head < 0x90 || head >= 0xf8) {
    int negative = head >= 0x80 && head < 0x88;
    return cb_read_element(r, pp, end, 1, negative ? CB_I64 : CB_U64);
  }
  if (head < 0xa0) return cb_read_element(r, pp, end, 1, CB_STR);
  switch (head) {
  case 0xf0:
  case 0xf1:
  case 0xf2:
    *pp = p + 1;
    return Py_NewRef(head == 0xf0 ? Py_None : head == 0xf1 ? Py_True : Py_False);
  case 0xf3:
  case 0xf4: {
    int code = head == 0xf3 ? CB_F64 : CB_F32;
    if (p + 1 >= end) return cb_fail_object(r, start, "a dynamic value is missing");
    next = cb_get_scalar(p + 2, end, 1, p[1], code, &bits, &why);
    if (!next) return cb_fail_object(r, start, why);
    *pp = next;
    return cb_object_of(bits, code);
  }
  case 0xf5: {
    int packing;
    if (p + 1 >= end) return cb_fail_object(r, start, "a dynamic value is missing");
    next = cb_get_k8_blob(p + 2, end, p[1], &size, &packing, &why);
    if (!next) return cb_fail_object(r, start, why);
    if (packing) return cb_fail_object(r, start, "packed bytes");
    *pp = next + size;
    return PyBytes_FromStringAndSize((const char *)next, (Py_ssize_t)size);
  }
  case 0xf7:
    next = cb_get_len(p + 1, end, &bits, &why);
    if (!next) return cb_fail_object(r, start, why);
    if (bits >= (uint64_t)r->n_structs) return cb_fail_object(r, start, "a tag names a record type that the section does not have");
    tagged = r->structs[bits];
    p = next;
    if (p >= end) return cb_fail_object(r, start, "a tag without a value");
    head = *p;
    break;
  default: break;
  }
  int kind = head >> 4; /* C LIST, D STRUCT, E MAP; flag in bit 3 */
  if (kind < 0xc || kind > 0xe) return cb_fail_object(r, start, "a descriptor that no dynamic value has");
  next = cb_get_sized(p + 1, end, head, &size, &why);
  if (!next) return cb_fail_object(r, start, why);
  *pp = next + size;
  if (tagged) {
    if (kind == 0xd) return cb_read_record(r, tagged, next, next + size, head >> 3 & 1, depth + 1);
    if ((head & 0xf8) == 0xc0) return cb_read_rows(r, tagged, next, next + size, 1, depth + 1);
    if ((head & 0xf8) == 0xe8) return cb_read_table(r, tagged, next, next + size, 1, depth + 1);
    return cb_fail_object(r, start, "a tag in front of what is no record and no run of records");
  }
  if ((head & 0xf8) == 0xe0) return cb_read_map(r, NULL, next, next + size, 1, depth + 1);
  if ((head & 0xf8) != 0xc0) return cb_fail_object(r, start, "a record or a table without a tag");
  /* a list */
  if (depth + 1 > CB_MAX_DEPTH) return cb_fail_object(r, start, "nested deeper than 128 levels");
  const uint8_t *stop = next + size;
  p = cb_get_len(next, stop, &bits, &why);
  if (!p) return cb_fail_object(r, next, why);
  if (bits > (uint64_t)(stop - p)) return cb_fail_object(r, next, "a list claims more values than its bytes can hold");
  PyObject *list = PyList_New((Py_ssize_t)bits);
  if (!list) return NULL;
  for (uint64_t i = 0; i < bits; i++) {
    PyObject *item = cb_read_dynamic(r, &p, stop, depth + 1);
    if (!item) {
      Py_DECREF(list);
      cb_step(&r->path, NULL, (Py_ssize_t)i);
      return NULL;
    }
    PyList_SET_ITEM(list, (Py_ssize_t)i, item);
  }
  if (p != stop) {
    Py_DECREF(list);
    return cb_fail_object(r, p, "bytes are left over behind the last value of a list");
  }
  return list;
}

/* Ready for a message of n bytes that begins at p, under the default limits. */
KERNEL_INLINE void cb_reader_open(cb_reader *r, const uint8_t *p, Py_ssize_t n, cb_plan **structs, Py_ssize_t n_structs) {
  r->start = p;
  r->why = NULL;
  r->at = NULL;
  r->cells = CB_CELLS + 8 * (int64_t)n;
  r->max_rows = CB_ROWS;
  r->surrogates = 0;
  r->structs = structs;
  r->n_structs = n_structs;
  r->path.n = 0;
  r->path.tail = NULL;
}

#endif
