/* From Python objects to colbin messages (colbin.md 5, 6, 7, 11).
 *
 * Values go to a buffer of the caller's stack first, which moves to the heap when it is too small: a failing call has
 * touched nothing that anybody else sees. Functions return -1 with a Python exception set; the way to the field that
 * caused it is in `path`. */
#ifndef COLSTORE_RECORD_ENCODE_H
#define COLSTORE_RECORD_ENCODE_H

#include "column_codec.h"
#include "packed5.h"
#include "record_plan.h"

#define CB_INLINE_BYTES 1024

typedef struct {
  uint8_t *data;
  Py_ssize_t pos, cap;
  int packed5;        /* strings may be packed */
  int packed_root;    /* ... in the K4 root too */
  int surrogates;     /* lone surrogates stand for the bytes they were read from */
  PyObject *session;  /* numbers record types while the section is open, else NULL (11) */
  PyObject *run_type; /* the class of typed runs, with attributes `cls` and `rows` */
  PyObject *plan_of;  /* callable: record class -> Plan, None when the class is no record */
  cb_plan *(*plan_pointer)(PyObject *plan);
  cb_path path;
  uint8_t first[CB_INLINE_BYTES];
} cb_writer;

static void cb_writer_open(cb_writer *w) {
  w->data = w->first;
  w->pos = 0;
  w->cap = CB_INLINE_BYTES;
  w->packed5 = w->packed_root = w->surrogates = 0;
  w->session = w->run_type = w->plan_of = NULL;
  w->path.n = 0;
  w->path.tail = NULL;
}

static void cb_writer_close(cb_writer *w) {
  if (w->data != w->first) PyMem_Free(w->data);
}

KERNEL_NOINLINE int cb_grow(cb_writer *w, uint64_t extra) {
  if (extra > (uint64_t)(PY_SSIZE_T_MAX - w->pos) / 2 - CB_PUT_ROOM) {
    PyErr_NoMemory();
    return -1;
  }
  Py_ssize_t need = w->pos + (Py_ssize_t)extra + CB_PUT_ROOM, cap = w->cap + w->cap / 2;
  if (cap < need) cap = need;
  uint8_t *data = w->data == w->first ? PyMem_Malloc((size_t)cap) : PyMem_Realloc(w->data, (size_t)cap);
  if (!data) {
    PyErr_NoMemory();
    return -1;
  }
  if (w->data == w->first) memcpy(data, w->first, (size_t)w->pos);
  w->data = data;
  w->cap = cap;
  return 0;
}

/* Room for n bytes and the slack of one primitive. */
#define CB_ROOM(w, n) \
  if (UNLIKELY((uint64_t)((w)->cap - (w)->pos) < (uint64_t)(n) + CB_PUT_ROOM) && cb_grow(w, (uint64_t)(n)) < 0) return -1

static int cb_too_long(void) {
  PyErr_SetString(PyExc_OverflowError, "more than 2^32 - 1 bytes or elements");
  return -1;
}

static int cb_too_deep(void) {
  PyErr_SetString(PyExc_ValueError, "nested deeper than 128 levels");
  return -1;
}

/* The length of the body behind `mark`, where one byte waits for it: composites of both key widths (5.6). */
static int cb_finish(cb_writer *w, Py_ssize_t mark) {
  Py_ssize_t n = w->pos - mark - 1;
  if (n <= 254) {
    w->data[mark] = (uint8_t)n;
    return 0;
  }
  if ((uint64_t)n > UINT32_MAX) return cb_too_long();
  CB_ROOM(w, 8);
  memmove(w->data + mark + 4, w->data + mark + 1, (size_t)n);
  for (int i = 0; i < 4; i++) w->data[mark + i] = (uint8_t)((uint64_t)n >> (8 * i));
  w->data[mark - 1] |= 2;
  w->pos += 3;
  return 0;
}

/* The same for a row of a K4 list, whose length is LEN. */
static int cb_finish_len(cb_writer *w, Py_ssize_t mark) {
  Py_ssize_t n = w->pos - mark - 1;
  if (n <= 254) {
    w->data[mark] = (uint8_t)n;
    return 0;
  }
  if ((uint64_t)n > UINT32_MAX) return cb_too_long();
  CB_ROOM(w, 8);
  memmove(w->data + mark + 5, w->data + mark + 1, (size_t)n);
  w->data[mark] = 0xff;
  for (int i = 0; i < 4; i++) w->data[mark + 1 + i] = (uint8_t)((uint64_t)n >> (8 * i));
  w->pos += 4;
  return 0;
}

/* The same for a K8 list of strings, whose length takes the smallest of all four widths (6.5). */
static int cb_finish_sized(cb_writer *w, Py_ssize_t mark) {
  uint64_t n = (uint64_t)(w->pos - mark - 1);
  int lw = n <= 0xff ? 0 : n <= 0xffff ? 1 : n <= UINT32_MAX ? 2 : 3, width = 1 << lw;
  CB_ROOM(w, 8);
  if (lw) memmove(w->data + mark + width, w->data + mark + 1, (size_t)n);
  for (int i = 0; i < width; i++) w->data[mark + i] = (uint8_t)(n >> (8 * i));
  w->data[mark - 1] |= (uint8_t)lw;
  w->pos += width - 1;
  return 0;
}

/* The UTF-8 bytes of a string. *keep owns them when the string itself does not. */
static int cb_utf8(cb_writer *w, PyObject *v, const char **data, Py_ssize_t *n, PyObject **keep) {
  *keep = NULL;
  if (UNLIKELY(!PyUnicode_Check(v))) return cb_wrong_type("str", v);
  if (LIKELY(PyUnicode_IS_COMPACT_ASCII(v))) {
    *data = (const char *)PyUnicode_DATA(v);
    *n = PyUnicode_GET_LENGTH(v);
    return 0;
  }
  *data = PyUnicode_AsUTF8AndSize(v, n);
  if (LIKELY(*data != NULL)) return 0;
  if (!PyErr_ExceptionMatches(PyExc_UnicodeEncodeError)) return -1;
  PyErr_Clear();
  if (w->surrogates) {
    *keep = PyUnicode_AsEncodedString(v, "utf-8", "surrogateescape");
    if (*keep) {
      *data = PyBytes_AS_STRING(*keep);
      *n = PyBytes_GET_SIZE(*keep);
      return 0;
    }
    PyErr_Clear();
  }
  PyErr_SetString(PyExc_ValueError, "the string has a lone surrogate, which UTF-8 cannot carry");
  return -1;
}

static int cb_append(cb_writer *w, const char *data, Py_ssize_t n) {
  CB_ROOM(w, n);
  memcpy(w->data + w->pos, data, (size_t)n);
  w->pos += n;
  return 0;
}

/* A string or bytes field; `packable` when the setting and the place allow packing (9). */
static int cb_write_blob(cb_writer *w, int k8, int key, const char *data, Py_ssize_t n, int packable) {
  uint8_t *p;
  CB_ROOM(w, n);
  if (packable && n > 1) {
    /* The payload is written where it would go behind the shortest header and moved behind a longer one. */
    int upper = 0;
    int64_t packed = packed5_encode((const uint8_t *)data, n, w->data + w->pos + 3, n - 1, &upper);
    if (packed >= 0) {
      p = w->data + w->pos;
      uint64_t size = (uint64_t)packed;
      int header = k8 ? 2 + (size <= 0xff ? 1 : size <= 0xffff ? 2 : size <= UINT32_MAX ? 4 : 8) : size <= 0xff ? 2 : 5;
      uint8_t head[24];
      if (header != 3) memmove(p + header, p + 3, (size_t)size);
      if (k8) {
        head[0] = (uint8_t)key;
        cb_put_sized(head + 1, upper ? 0x9c : 0x94, size);
      } else {
        head[0] = (uint8_t)(key << 4 | 8 | ((size <= 0xff ? 3 : 5) + upper));
        cb_store8(head + 1, size);
      }
      memcpy(p, head, (size_t)header);
      w->pos += header + packed;
      return 0;
    }
  }
  p = w->data + w->pos;
  if (k8) {
    *p = (uint8_t)key;
    p = cb_put_sized(p + 1, 0x90, (uint64_t)n);
  } else {
    p = cb_put_k4_blob(p, key << 4, (uint64_t)n);
  }
  memcpy(p, data, (size_t)n);
  w->pos = p - w->data + n;
  return 0;
}

/* A list or tuple of the values of a list field; anything iterable but strings and mappings is listed. */
static PyObject *cb_sequence(PyObject *v, const char *expected) {
  if (PyList_Check(v) || PyTuple_Check(v)) return Py_NewRef(v);
  if (PyUnicode_Check(v) || PyBytes_Check(v) || PyDict_Check(v)) {
    cb_wrong_type(expected, v);
    return NULL;
  }
  PyObject *list = PySequence_List(v);
  if (!list && PyErr_ExceptionMatches(PyExc_TypeError)) {
    PyErr_Clear();
    cb_wrong_type(expected, v);
  }
  return list;
}

/* Item i of such a sequence, a new reference. A list may shrink while conversions of its items run. */
static PyObject *cb_item(PyObject *sequence, Py_ssize_t i) {
  if (PySequence_Fast_GET_SIZE(sequence) <= i) {
    PyErr_SetString(PyExc_ValueError, "the list changed while it was encoded");
    return NULL;
  }
#ifdef Py_GIL_DISABLED
  if (PyList_Check(sequence)) return PyList_GetItemRef(sequence, i);
#endif
  return Py_NewRef(PySequence_Fast_GET_ITEM(sequence, i));
}

static int cb_write_vec(cb_writer *w, const cb_field *f, PyObject *v, int k8) {
  int element = cb_vec_element[f->code - CB_VEC_I8], positive, code = -1;
  PyObject *items = cb_sequence(v, "a list of int");
  if (!items) return -1;
  Py_ssize_t n = PySequence_Fast_GET_SIZE(items);
  int64_t few[128], *values = few, smallest = INT64_MAX, largest = INT64_MIN;
  if (n == 0) {
    Py_DECREF(items);
    return 0;
  }
  if ((uint64_t)n > UINT32_MAX >> 3) {
    Py_DECREF(items);
    return cb_too_long();
  }
  if (n > 128 && !(values = PyMem_Malloc((size_t)n * 8))) {
    PyErr_NoMemory();
    Py_DECREF(items);
    return -1;
  }
  for (Py_ssize_t i = 0; i < n; i++) {
    PyObject *item = cb_item(items, i);
    uint64_t bits;
    if (!item || cb_bits_of(item, element, &bits) < 0) {
      Py_XDECREF(item);
      cb_step(&w->path, NULL, i);
      goto done;
    }
    Py_DECREF(item);
    values[i] = (int64_t)bits;
    if (values[i] < smallest) smallest = values[i];
    if (values[i] > largest) largest = values[i];
  }
  int width = cb_vec_width(smallest, largest, &positive);
  if (UNLIKELY((uint64_t)(w->cap - w->pos) < (uint64_t)(n << width) + 2 * CB_PUT_ROOM) &&
      cb_grow(w, (uint64_t)(n << width) + CB_PUT_ROOM) < 0)
    goto done;
  uint8_t *p = cb_put_vec(w->data + w->pos, k8, f->key, width, positive, (uint64_t)n);
  for (Py_ssize_t i = 0; i < n; i++) cb_store8(p + (i << width), (uint64_t)values[i]);
  w->pos = p - w->data + (n << width);
  code = 0;
done:
  if (values != few) PyMem_Free(values);
  Py_DECREF(items);
  return code;
}

/* LEN(size) and the bytes of a string in a list. */
static int cb_write_len_string(cb_writer *w, PyObject *item) {
  const char *data;
  Py_ssize_t n;
  PyObject *keep;
  if (cb_utf8(w, item, &data, &n, &keep) < 0) return -1;
  if ((uint64_t)n > UINT32_MAX) {
    Py_XDECREF(keep);
    return cb_too_long();
  }
  if (UNLIKELY((uint64_t)(w->cap - w->pos) < (uint64_t)n + CB_PUT_ROOM) && cb_grow(w, (uint64_t)n) < 0) {
    Py_XDECREF(keep);
    return -1;
  }
  uint8_t *p = cb_put_len(w->data + w->pos, (uint64_t)n);
  memcpy(p, data, (size_t)n);
  w->pos = p - w->data + n;
  Py_XDECREF(keep);
  return 0;
}

/* The header of a list of n strings; *mark is where a K8 list's length goes. */
static int cb_begin_strings(cb_writer *w, int k8, int key, Py_ssize_t n, Py_ssize_t *mark) {
  if ((uint64_t)n > UINT32_MAX) return cb_too_long();
  CB_ROOM(w, CB_PUT_ROOM);
  uint8_t *p = w->data + w->pos;
  if (k8) {
    *p++ = (uint8_t)key;
    *p++ = 0xc8;
    *mark = p++ - w->data;
    p = cb_put_len(p, (uint64_t)n);
  } else {
    p = cb_put_k4_blob(p, key << 4, (uint64_t)n);
  }
  w->pos = p - w->data;
  return 0;
}

static int cb_write_strings(cb_writer *w, int k8, int key, PyObject *v) {
  PyObject *items = cb_sequence(v, "a list of str");
  if (!items) return -1;
  Py_ssize_t n = PySequence_Fast_GET_SIZE(items), mark = 0;
  int code = -1;
  if (n) {
    if (cb_begin_strings(w, k8, key, n, &mark) < 0) goto done;
    for (Py_ssize_t i = 0; i < n; i++) {
      PyObject *item = cb_item(items, i);
      if (!item || cb_write_len_string(w, item) < 0) {
        Py_XDECREF(item);
        cb_step(&w->path, NULL, i);
        goto done;
      }
      Py_DECREF(item);
    }
    if (k8 && cb_finish_sized(w, mark) < 0) goto done;
  }
  code = 0;
done:
  Py_DECREF(items);
  return code;
}

static int cb_write_record(cb_writer *w, const cb_plan *plan, PyObject *object, int depth);
static int cb_write_dynamic(cb_writer *w, PyObject *v, int depth);
static int cb_write_dynamics(cb_writer *w, PyObject *items, int depth);

/* A map entry or dynamic scalar of types 0..11: no key (5.7, 6.7). */
static int cb_write_element(cb_writer *w, int k8, int code, PyObject *v) {
  CB_ROOM(w, CB_PUT_ROOM);
  uint8_t *p = w->data + w->pos;
  uint64_t bits;
  if (code == CB_STR) {
    const char *data;
    Py_ssize_t n;
    PyObject *keep;
    if (cb_utf8(w, v, &data, &n, &keep) < 0) return -1;
    p = cb_put_sized(p, k8 ? 0x90 : 0, (uint64_t)n);
    w->pos = p - w->data;
    int done = cb_append(w, data, n);
    Py_XDECREF(keep);
    return done;
  }
  if (cb_bits_of(v, code, &bits) < 0) return -1;
  if (code >= CB_F32) bits = cb_reverse(bits, code == CB_F32);
  if (cb_is_signed(code))
    p = k8 ? cb_put_k8_signed(p, (int64_t)bits, 1) : cb_put_k4_signed_element(p, (int64_t)bits);
  else if (k8)
    p = cb_put_k8_unsigned(p, bits, 1);
  else if (bits)
    p = cb_put_k4_unsigned(p, 0, bits);
  else
    *p++ = 0;
  w->pos = p - w->data;
  return 0;
}

/* Map entries in the order they are written in (5.7). */
typedef struct {
  int kind; /* 0 integer, 1 string: integers first where a dynamic map has both */
  int negative;
  uint64_t number;
  const char *data;
  Py_ssize_t n;
  PyObject *keep;
  PyObject *key, *value; /* borrowed from the list of items */
} cb_entry;

static int cb_compare_entries(const void *left, const void *right) {
  const cb_entry *a = left, *b = right;
  if (a->kind != b->kind) return a->kind - b->kind;
  if (a->kind) {
    int order = memcmp(a->data, b->data, (size_t)(a->n < b->n ? a->n : b->n));
    return order ? order : (a->n > b->n) - (a->n < b->n);
  }
  if (a->negative != b->negative) return b->negative - a->negative;
  return (a->number > b->number) - (a->number < b->number);
}

/* Sorted entries of a mapping, in memory of PyMem; *items owns what they borrow. */
static cb_entry *cb_sorted_entries(cb_writer *w, PyObject *v, int key_code, PyObject **items, Py_ssize_t *count) {
  *items = NULL;
  if (!PyDict_Check(v) && !PyMapping_Check(v)) {
    cb_wrong_type("a mapping", v);
    return NULL;
  }
  *items = PyDict_Check(v) ? PyDict_Items(v) : PyMapping_Items(v);
  if (!*items) return NULL;
  Py_ssize_t n = *count = PyList_GET_SIZE(*items), i = 0;
  if ((uint64_t)n > UINT32_MAX) {
    cb_too_long();
    return NULL;
  }
  cb_entry *entries = PyMem_Calloc((size_t)n + 1, sizeof(cb_entry));
  if (!entries) {
    PyErr_NoMemory();
    return NULL;
  }
  for (; i < n; i++) {
    cb_entry *e = &entries[i];
    PyObject *item = PyList_GET_ITEM(*items, i);
    if (!PyTuple_Check(item) || PyTuple_GET_SIZE(item) != 2) {
      PyErr_SetString(PyExc_TypeError, "the items of a mapping are pairs");
      goto fail;
    }
    e->key = PyTuple_GET_ITEM(item, 0);
    e->value = PyTuple_GET_ITEM(item, 1);
    int code = key_code;
    if (code == CB_ANY) {
      if (PyUnicode_Check(e->key)) {
        code = CB_STR;
      } else if (PyBool_Check(e->key) || !PyIndex_Check(e->key)) {
        cb_wrong_type("str or int as the key of a map", e->key);
        goto fail;
      } else {
        PyObject *zero = PyLong_FromLong(0);
        int positive = zero ? PyObject_RichCompareBool(e->key, zero, Py_GE) : -1;
        Py_XDECREF(zero);
        if (positive < 0) goto fail;
        code = positive ? CB_U64 : CB_I64;
      }
    }
    if (code == CB_STR) {
      e->kind = 1;
      if (cb_utf8(w, e->key, &e->data, &e->n, &e->keep) < 0) goto fail;
    } else {
      if (cb_bits_of(e->key, code, &e->number) < 0) goto fail;
      e->negative = cb_is_signed(code) && (int64_t)e->number < 0;
    }
  }
  if (n) qsort(entries, (size_t)n, sizeof(cb_entry), cb_compare_entries);
  return entries;
fail:
  for (Py_ssize_t j = 0; j <= i; j++) Py_XDECREF(entries[j].keep);
  PyMem_Free(entries);
  return NULL;
}

static void cb_free_entries(cb_entry *entries, Py_ssize_t n, PyObject *items) {
  for (Py_ssize_t i = 0; entries && i < n; i++) Py_XDECREF(entries[i].keep);
  PyMem_Free(entries);
  Py_XDECREF(items);
}

static int cb_write_entry_key(cb_writer *w, int k8, int is_signed, const cb_entry *e) {
  CB_ROOM(w, e->n + CB_PUT_ROOM);
  uint8_t *p = w->data + w->pos;
  if (e->kind) {
    p = cb_put_sized(p, k8 ? 0x90 : 0, (uint64_t)e->n);
    memcpy(p, e->data, (size_t)e->n);
    p += e->n;
  } else if (k8) {
    p = e->negative ? cb_put_k8_signed(p, (int64_t)e->number, 1) : cb_put_k8_unsigned(p, e->number, 1);
  } else if (is_signed) {
    p = cb_put_k4_signed_element(p, (int64_t)e->number);
  } else if (e->number) {
    p = cb_put_k4_unsigned(p, 0, e->number);
  } else {
    *p++ = 0;
  }
  w->pos = p - w->data;
  return 0;
}

/* Values of a type inside a dynamic value: bools, floats and so on carry their own type there (11). */
static int cb_write_dynamic_of(cb_writer *w, int code, const cb_field *f, PyObject *v, int depth);

/* The body of a map: LEN(count), key, value, ... `as_dynamic`: values are dynamic values of their type. */
static int cb_write_map_body(cb_writer *w, int k8, int key_code, int value_code, int as_dynamic, PyObject *v,
                             int depth, Py_ssize_t *count) {
  PyObject *items;
  cb_entry *entries = cb_sorted_entries(w, v, key_code, &items, count);
  int code = -1;
  if (!entries) goto done;
  if (UNLIKELY(w->cap - w->pos < 2 * CB_PUT_ROOM) && cb_grow(w, CB_PUT_ROOM) < 0) goto done;
  w->pos = cb_put_len(w->data + w->pos, (uint64_t)*count) - w->data;
  for (Py_ssize_t i = 0; i < *count; i++) {
    if (cb_write_entry_key(w, k8, cb_is_signed(key_code), &entries[i]) < 0) goto done;
    int bad = value_code == CB_ANY ? cb_write_dynamic(w, entries[i].value, depth)
              : as_dynamic ? cb_write_dynamic_of(w, value_code, NULL, entries[i].value, depth)
                           : cb_write_element(w, k8, value_code, entries[i].value);
    if (bad < 0) {
      cb_step_key(&w->path, entries[i].key);
      goto done;
    }
  }
  code = 0;
done:
  cb_free_entries(entries, entries ? *count : 0, items);
  return code;
}

/* Start a composite field; key < 0: no key (K8 only). Returns where its length goes, -1 without memory. */
static Py_ssize_t cb_begin(cb_writer *w, int k8, int key, int k4_flag, int k8_desc) {
  CB_ROOM(w, CB_PUT_ROOM);
  uint8_t *p = w->data + w->pos;
  if (k8) {
    if (key >= 0) *p++ = (uint8_t)key;
    *p++ = (uint8_t)k8_desc;
  } else {
    *p++ = (uint8_t)(key << 4 | k4_flag << 3);
  }
  w->pos = p - w->data + 1;
  return w->pos - 1;
}

KERNEL_INLINE int cb_check_object(const cb_plan *plan, PyObject *object) {
  if (plan->type) {
    if (LIKELY(Py_TYPE(object) == plan->type && plan->mode != CB_MODE_TUPLE)) return 0;
    if (PyType_IsSubtype(Py_TYPE(object), plan->type)) {
      if (plan->mode == CB_MODE_TUPLE && PyTuple_GET_SIZE(object) != plan->n) {
        PyErr_Format(PyExc_ValueError, "expected %d fields, got %zd", plan->n, PyTuple_GET_SIZE(object));
        return -1;
      }
      return 0;
    }
    return cb_wrong_type(plan->type->tp_name, object);
  }
  if (plan->mode == CB_MODE_DICT && !PyDict_Check(object)) return cb_wrong_type("dict", object);
  return 0;
}

/* Say which key of a dict the record type does not have. */
static int cb_unknown_name(const cb_plan *plan, PyObject *dict) {
  PyObject *key, *value;
  Py_ssize_t place = 0;
  while (PyDict_Next(dict, &place, &key, &value)) {
    int known = 0;
    for (int i = 0; i < plan->n && !known; i++) {
      known = PyObject_RichCompareBool(key, plan->fields[i].name, Py_EQ);
      if (known < 0) return -1;
    }
    if (!known) {
      PyErr_Format(PyExc_ValueError, "the record has no field %R", key);
      return -1;
    }
  }
  return 0;
}

/* A list of records as columns (7); the composite is open. */
static int cb_write_table_body(cb_writer *w, const cb_plan *plan, PyObject *items, Py_ssize_t n, int k8) {
  int64_t *values = PyMem_Malloc((size_t)n * 8);
  Py_ssize_t given = 0, found = 0;
  int code = -1, slots = plan->mode == CB_MODE_SLOTS;
  if (!values) {
    PyErr_NoMemory();
    return -1;
  }
  if (UNLIKELY(w->cap - w->pos < 2 * CB_PUT_ROOM) && cb_grow(w, CB_PUT_ROOM) < 0) goto done;
  w->pos = cb_put_len(w->data + w->pos, (uint64_t)n) - w->data;
  for (Py_ssize_t i = 0; i < n; i++) {
    PyObject *item = cb_item(items, i);
    int bad = !item || (item != Py_None || plan->mode != CB_MODE_DICT ? cb_check_object(plan, item) : 0) < 0;
    if (bad) {
      Py_XDECREF(item);
      cb_step(&w->path, NULL, i);
      goto done;
    }
    if (plan->mode == CB_MODE_DICT && item != Py_None) given += PyDict_GET_SIZE(item);
    Py_DECREF(item);
  }
  for (int c = 0; c < plan->n; c++) {
    const cb_field *f = &plan->fields[c];
    Py_ssize_t mark = 0, start = w->pos;
    uint64_t any = 0;
    if (f->code == CB_STR && cb_begin_strings(w, k8, f->key, n, &mark) < 0) goto done;
    for (Py_ssize_t i = 0; i < n; i++) {
      if (slots && f->code <= CB_F64 && LIKELY(i < PySequence_Fast_GET_SIZE(items))) {
        /* borrowed references do, as long as no Python code can run: exact types only */
        PyObject *row = PySequence_Fast_GET_ITEM(items, i), *v;
        uint64_t bits = 0;
        if (LIKELY(Py_TYPE(row) == plan->type) && f->offset >= 0 &&
            LIKELY((v = *(PyObject **)((char *)row + f->offset)) != NULL) &&
            LIKELY(PyLong_CheckExact(v) || PyFloat_CheckExact(v) || PyBool_Check(v))) {
          if (UNLIKELY(cb_bits_of(v, f->code, &bits) < 0)) {
            cb_step(&w->path, f->name, 0);
            cb_step(&w->path, NULL, i);
            goto done;
          }
          values[i] = (int64_t)bits;
          any |= bits;
          continue;
        }
      }
      PyObject *item = cb_item(items, i), *value = NULL;
      int bad = 0;
      if (!item || cb_check_object(plan, item) < 0) {
        bad = !item || item != Py_None || plan->mode != CB_MODE_DICT;
        if (!bad) PyErr_Clear();
      } else {
        value = cb_get_value(plan, f, item);
        bad = !value && PyErr_Occurred();
      }
      if (value) found++;
      if (f->code == CB_STR) {
        if (!bad && value) {
          const char *data;
          Py_ssize_t size;
          PyObject *keep;
          bad = cb_utf8(w, value, &data, &size, &keep) < 0;
          if (!bad) {
            any |= (uint64_t)size;
            Py_XDECREF(keep);
            bad = cb_write_len_string(w, value) < 0;
          }
        } else if (!bad) {
          bad = cb_append(w, "", 1) < 0; /* LEN(0) */
        }
      } else {
        uint64_t bits = 0;
        if (!bad && value) bad = cb_bits_of(value, f->code, &bits) < 0;
        values[i] = (int64_t)bits;
        any |= bits;
      }
      Py_XDECREF(value);
      Py_XDECREF(item);
      if (bad) {
        cb_step(&w->path, f->name, 0);
        cb_step(&w->path, NULL, i);
        goto done;
      }
    }
    if (f->code == CB_STR) {
      if (k8 && !any) w->pos = start; /* K4 writes a column of empty strings, K8 does not */
      else if (k8 && cb_finish_sized(w, mark) < 0) goto done;
    } else if (any) {
      mark = cb_begin(w, k8, f->key, 0, 0xb0);
      if (mark < 0) goto done;
      uint64_t bound = (uint64_t)column_capacity(n);
      if (UNLIKELY((uint64_t)(w->cap - w->pos) < bound + CB_PUT_ROOM) && cb_grow(w, bound) < 0) goto done;
      w->pos += column_encode(values, n, w->data + w->pos);
      if (cb_finish(w, mark) < 0) goto done;
    }
  }
  if (found != given && plan->mode == CB_MODE_DICT)
    for (Py_ssize_t i = 0; i < n; i++) {
      PyObject *item = cb_item(items, i);
      int bad = !item || (item != Py_None && cb_unknown_name(plan, item) < 0);
      Py_XDECREF(item);
      if (bad) {
        cb_step(&w->path, NULL, i);
        goto done;
      }
    }
  code = 0;
done:
  PyMem_Free(values);
  return code;
}

/* A list of records as a field (key >= 0) or behind a typed tag (key < 0, k8); `depth` is that of the list. */
static int cb_write_records(cb_writer *w, const cb_plan *plan, PyObject *items, int k8, int key, int depth) {
  Py_ssize_t n = PySequence_Fast_GET_SIZE(items);
  int table = n >= CB_TABLE_ROWS && plan->tabular;
  if (depth > CB_MAX_DEPTH) return cb_too_deep();
  if ((uint64_t)n > UINT32_MAX) return cb_too_long();
  Py_ssize_t mark = cb_begin(w, k8, key, table, table ? 0xe8 : 0xc0);
  if (mark < 0) return -1;
  if (table) {
    if (cb_write_table_body(w, plan, items, n, k8 || plan->k8) < 0) return -1;
    return cb_finish(w, mark);
  }
  CB_ROOM(w, CB_PUT_ROOM);
  w->pos = cb_put_len(w->data + w->pos, (uint64_t)n) - w->data;
  for (Py_ssize_t i = 0; i < n; i++) {
    PyObject *item = cb_item(items, i);
    if (!item) return -1;
    CB_ROOM(w, CB_PUT_ROOM);
    if (k8) w->data[w->pos++] = (uint8_t)(0xd0 | plan->k8 << 3);
    Py_ssize_t row = w->pos++;
    int bad = 0;
    if (item != Py_None || plan->mode != CB_MODE_DICT) bad = cb_write_record(w, plan, item, depth + 1);
    Py_DECREF(item);
    if (bad < 0 || (k8 ? cb_finish(w, row) : cb_finish_len(w, row)) < 0) {
      cb_step(&w->path, NULL, i);
      return -1;
    }
  }
  return cb_finish(w, mark);
}

/* A record that no mapping gave: all zeros, but the records in it are written (5.6). */
static int cb_write_zero_record(cb_writer *w, const cb_plan *plan, int depth) {
  if (depth > CB_MAX_DEPTH) return cb_too_deep();
  for (int i = 0; i < plan->n; i++)
    if (plan->fields[i].code == CB_RECORD) {
      const cb_field *f = &plan->fields[i];
      Py_ssize_t mark = cb_begin(w, plan->k8, f->key, f->child->k8, 0xd0 | f->child->k8 << 3);
      if (mark < 0 || cb_write_zero_record(w, f->child, depth + 1) < 0 || cb_finish(w, mark) < 0) return -1;
    }
  return 0;
}

/* Fields that are not scalars, strings or bytes. */
KERNEL_NOINLINE int cb_write_composite(cb_writer *w, const cb_field *f, PyObject *v, int k8, int depth) {
  Py_ssize_t mark, count, start = w->pos;
  PyObject *items;
  int code;
  switch (f->code) {
  case CB_STRS: return v == Py_None ? 0 : cb_write_strings(w, k8, f->key, v);
  case CB_OPTIONAL_RECORD:
    if (v == Py_None) return 0;
    /* fall through */
  case CB_RECORD:
    mark = cb_begin(w, k8, f->key, f->child->k8, 0xd0 | f->child->k8 << 3);
    if (mark < 0 || cb_write_record(w, f->child, v, depth + 1) < 0) return -1;
    return cb_finish(w, mark);
  case CB_RECORDS:
    if (v == Py_None) return 0;
    if (!(items = cb_sequence(v, "a list of records"))) return -1;
    code = PySequence_Fast_GET_SIZE(items) ? cb_write_records(w, f->child, items, k8, f->key, depth + 1) : 0;
    Py_DECREF(items);
    return code;
  case CB_MAP:
    if (v == Py_None) return 0;
    if (depth + 1 > CB_MAX_DEPTH) return cb_too_deep();
    mark = cb_begin(w, k8, f->key, 0, 0xe0);
    if (mark < 0 || cb_write_map_body(w, k8, f->map_key, f->map_value, 0, v, depth + 1, &count) < 0) return -1;
    if (!count) {
      w->pos = start;
      return 0;
    }
    return cb_finish(w, mark);
  case CB_ANY:
    if (v == Py_None) return 0;
    CB_ROOM(w, 1);
    w->data[w->pos++] = f->key;
    return cb_write_dynamic(w, v, depth);
  case CB_ANYS:
    if (v == Py_None) return 0;
    if (!(items = cb_sequence(v, "a list"))) return -1;
    code = 0;
    if (PySequence_Fast_GET_SIZE(items)) {
      if (UNLIKELY(w->cap - w->pos < CB_PUT_ROOM) && cb_grow(w, CB_PUT_ROOM) < 0) code = -1;
      else {
        w->data[w->pos++] = f->key;
        code = cb_write_dynamics(w, items, depth + 1);
      }
    }
    Py_DECREF(items);
    return code;
  default: return v == Py_None ? 0 : cb_write_vec(w, f, v, k8);
  }
}

KERNEL_NOINLINE int cb_write_field(cb_writer *w, const cb_field *f, PyObject *v, int k8, int depth) {
  int code = f->code, optional = 0;
  if (UNLIKELY(code == CB_OPTIONAL)) {
    if (v == Py_None) return 0;
    code = f->pointee;
    optional = 1;
  }
  if (code <= CB_F64) {
    uint64_t bits;
    if (UNLIKELY(cb_bits_of(v, code, &bits) < 0)) return -1;
    CB_ROOM(w, CB_PUT_ROOM);
    uint8_t *p = w->data + w->pos;
    if (optional) {
      if (!k8 && ((code == CB_F64 && bits == 1ull << 63) || (code == CB_F32 && bits == 1ull << 31))) bits = 0;
      if (!bits) { /* a zero that is there (5.8, 6.8) */
        if (k8) {
          p[0] = f->key;
          p[1] = 0;
          w->pos += 2;
        } else if (cb_is_signed(code)) {
          p[0] = (uint8_t)(f->key << 4 | 9);
          p[1] = 0;
          w->pos += 2;
        } else {
          p[0] = (uint8_t)(f->key << 4);
          w->pos += 1;
        }
        return 0;
      }
    }
    if (!bits) return 0;
    if (code >= CB_F32) bits = cb_reverse(bits, code == CB_F32);
    if (k8) {
      *p++ = f->key;
      p = cb_is_signed(code) ? cb_put_k8_signed(p, (int64_t)bits, 0) : cb_put_k8_unsigned(p, bits, 0);
    } else {
      p = cb_is_signed(code) ? cb_put_k4_signed(p, f->key << 4, (int64_t)bits)
                             : cb_put_k4_unsigned(p, f->key << 4, bits);
    }
    w->pos = p - w->data;
    return 0;
  }
  if (code == CB_STR) {
    const char *data;
    Py_ssize_t n;
    PyObject *keep;
    if (UNLIKELY(cb_utf8(w, v, &data, &n, &keep) < 0)) return -1;
    int done = 0;
    if (n || optional)
      done = cb_write_blob(w, k8, f->key, data, n, w->packed5 && (k8 || (depth == 1 && w->packed_root && !optional)));
    Py_XDECREF(keep);
    return done;
  }
  if (code == CB_BYTES) {
    if (LIKELY(PyBytes_CheckExact(v)))
      return PyBytes_GET_SIZE(v) ? cb_write_blob(w, k8, f->key, PyBytes_AS_STRING(v), PyBytes_GET_SIZE(v), 0) : 0;
    if (v == Py_None) return 0;
    Py_buffer view;
    if (!PyObject_CheckBuffer(v)) return cb_wrong_type("bytes", v);
    if (PyObject_GetBuffer(v, &view, PyBUF_C_CONTIGUOUS) < 0) return -1;
    int done = view.len ? cb_write_blob(w, k8, f->key, view.buf, view.len, 0) : 0;
    PyBuffer_Release(&view);
    return done;
  }
  return cb_write_composite(w, f, v, k8, depth);
}

/* The run of an object with slots: exact ints and ASCII strings, most of all values, go out without a call and without
 * touching a reference count; nothing in between can run Python code that might take the value away. */
KERNEL_INLINE int cb_write_slots(cb_writer *w, const cb_plan *plan, PyObject *object, const int k8, int depth) {
  uint8_t *p = w->data + w->pos;
  for (int i = 0; i < plan->n; i++) {
    const cb_field *f = &plan->fields[i];
    const int code = f->code;
    PyObject *v;
    int bad;
    if (LIKELY(f->offset >= 0) && LIKELY((v = *(PyObject **)((char *)object + f->offset)) != NULL)) {
      if (UNLIKELY(w->data + w->cap - p < 2 * CB_PUT_ROOM)) {
        w->pos = p - w->data;
        if (cb_grow(w, 2 * CB_PUT_ROOM) < 0) return -1;
        p = w->data + w->pos;
      }
      int64_t value;
      if (code >= CB_I8 && code <= CB_U64 && LIKELY(PyLong_CheckExact(v)) && LIKELY(cb_short_int(v, &value))) {
        if (value == 0) continue;
        if (LIKELY(value >= cb_minimum[code] && (value < 0 || (uint64_t)value <= cb_maximum[code]))) {
          if (k8) {
            *p++ = f->key;
            p = code <= CB_I64 ? cb_put_k8_signed(p, value, 0) : cb_put_k8_unsigned(p, (uint64_t)value, 0);
          } else {
            p = code <= CB_I64 ? cb_put_k4_signed(p, f->key << 4, value)
                               : cb_put_k4_unsigned(p, f->key << 4, (uint64_t)value);
          }
          continue;
        }
      } else if (code == CB_STR && LIKELY(PyUnicode_CheckExact(v)) && LIKELY(PyUnicode_IS_COMPACT_ASCII(v)) &&
                 !w->packed5) {
        Py_ssize_t n = PyUnicode_GET_LENGTH(v);
        if (n == 0) continue;
        if (LIKELY(w->data + w->cap - p >= n + CB_PUT_ROOM)) {
          if (k8) {
            *p = f->key;
            p = cb_put_sized(p + 1, 0x90, (uint64_t)n);
          } else {
            p = cb_put_k4_blob(p, f->key << 4, (uint64_t)n);
          }
          memcpy(p, PyUnicode_DATA(v), (size_t)n);
          p += n;
          continue;
        }
      } else if (code == CB_BOOL && LIKELY(PyBool_Check(v))) {
        if (v == Py_True) {
          if (k8) {
            p[0] = f->key;
            p[1] = 1;
            p += 2;
          } else {
            *p++ = (uint8_t)(f->key << 4 | 1);
          }
        }
        continue;
      }
    }
    w->pos = p - w->data;
    v = cb_get_value(plan, f, object);
    bad = v ? cb_write_field(w, f, v, k8, depth) : -1;
    Py_XDECREF(v);
    if (UNLIKELY(bad < 0)) {
      cb_step(&w->path, f->name, 0);
      return -1;
    }
    p = w->data + w->pos;
  }
  w->pos = p - w->data;
  return 0;
}

static int cb_write_slots_k4(cb_writer *w, const cb_plan *plan, PyObject *object, int depth) {
  return cb_write_slots(w, plan, object, 0, depth);
}

static int cb_write_slots_k8(cb_writer *w, const cb_plan *plan, PyObject *object, int depth) {
  return cb_write_slots(w, plan, object, 1, depth);
}

/* The run of a record, whose own level is `depth`. */
static int cb_write_record(cb_writer *w, const cb_plan *plan, PyObject *object, int depth) {
  Py_ssize_t found = 0;
  if (UNLIKELY(depth > CB_MAX_DEPTH)) return cb_too_deep();
  if (UNLIKELY(cb_check_object(plan, object) < 0)) return -1;
  int k8 = plan->k8;
  if (LIKELY(plan->mode == CB_MODE_SLOTS))
    return k8 ? cb_write_slots_k8(w, plan, object, depth) : cb_write_slots_k4(w, plan, object, depth);
  for (int i = 0; i < plan->n; i++) {
    const cb_field *f = &plan->fields[i];
    PyObject *v = cb_get_value(plan, f, object);
    int bad;
    if (UNLIKELY(!v)) {
      if (PyErr_Occurred()) {
        bad = -1;
      } else if (f->code == CB_RECORD) {
        Py_ssize_t mark = cb_begin(w, k8, f->key, f->child->k8, 0xd0 | f->child->k8 << 3);
        bad = mark < 0 || cb_write_zero_record(w, f->child, depth + 1) < 0 || cb_finish(w, mark) < 0 ? -1 : 0;
      } else {
        continue;
      }
    } else if (UNLIKELY(plan->mode == CB_MODE_DICT)) {
      found++;
      /* None is how a mapping spells a value that is not there */
      bad = v == Py_None && f->code != CB_ANY ? 0 : cb_write_field(w, f, v, k8, depth);
      Py_DECREF(v);
    } else {
      bad = cb_write_field(w, f, v, k8, depth);
      Py_DECREF(v);
    }
    if (UNLIKELY(bad < 0)) {
      if (plan->mode != CB_MODE_ENVELOPE) cb_step(&w->path, f->name, 0);
      return -1;
    }
  }
  if (UNLIKELY(plan->mode == CB_MODE_DICT && found != PyDict_GET_SIZE(object))) return cb_unknown_name(plan, object);
  return 0;
}

/* ---- dynamic values (11) ------------------------------------------------------------------------------------- */

static int cb_write_byte(cb_writer *w, int byte) {
  CB_ROOM(w, 1);
  w->data[w->pos++] = (uint8_t)byte;
  return 0;
}

static int cb_write_dynamic_float(cb_writer *w, int code, PyObject *v) {
  if (cb_write_byte(w, code == CB_F32 ? 0xf4 : 0xf3) < 0) return -1;
  return cb_write_element(w, 1, code, v);
}

static int cb_write_dynamic_bytes(cb_writer *w, PyObject *v) {
  Py_buffer view;
  if (PyObject_GetBuffer(v, &view, PyBUF_C_CONTIGUOUS) < 0) return -1;
  int bad = UNLIKELY((uint64_t)(w->cap - w->pos) < (uint64_t)view.len + 2 * CB_PUT_ROOM) &&
            cb_grow(w, (uint64_t)view.len + CB_PUT_ROOM) < 0;
  if (!bad) {
    uint8_t *p = w->data + w->pos;
    *p++ = 0xf5;
    p = cb_put_sized(p, 0x90, (uint64_t)view.len);
    memcpy(p, view.buf, (size_t)view.len);
    w->pos = p - w->data + view.len;
  }
  PyBuffer_Release(&view);
  return bad ? -1 : 0;
}

/* The plan of a record class; *plan NULL when the class is no record. 0, or -1 with an exception. */
static int cb_find_plan(cb_writer *w, PyObject *type, cb_plan **plan, PyObject **keep) {
  *plan = NULL;
  *keep = PyObject_CallOneArg(w->plan_of, type);
  if (!*keep) return -1;
  if (*keep == Py_None) Py_CLEAR(*keep);
  else *plan = w->plan_pointer(*keep);
  return 0;
}

/* F7 and the number of a record type in the open section. */
static int cb_write_tag(cb_writer *w, const cb_plan *plan) {
  PyObject *number = PyObject_CallOneArg(w->session, plan->owner);
  if (!number) return -1;
  uint64_t index = PyLong_AsUnsignedLongLong(number);
  Py_DECREF(number);
  if (PyErr_Occurred()) return -1;
  CB_ROOM(w, CB_PUT_ROOM);
  w->data[w->pos++] = 0xf7;
  w->pos = cb_put_len(w->data + w->pos, index) - w->data;
  return 0;
}

/* A record as a map of names (no section), or behind its tag. */
static int cb_write_dynamic_record(cb_writer *w, const cb_plan *plan, PyObject *v, int depth) {
  Py_ssize_t mark;
  if (depth > CB_MAX_DEPTH) return cb_too_deep();
  if (w->session) {
    if (cb_write_tag(w, plan) < 0) return -1;
    mark = cb_begin(w, 1, -1, 0, 0xd0 | plan->k8 << 3);
    if (mark < 0 || cb_write_record(w, plan, v, depth) < 0) return -1;
    return cb_finish(w, mark);
  }
  if (cb_check_object(plan, v) < 0) return -1;
  if ((mark = cb_begin(w, 1, -1, 0, 0xe0)) < 0) return -1;
  CB_ROOM(w, CB_PUT_ROOM);
  w->pos = cb_put_len(w->data + w->pos, (uint64_t)plan->n) - w->data;
  for (int i = 0; i < plan->n; i++) {
    const cb_field *f = &plan->fields[i];
    if (cb_write_element(w, 1, CB_STR, f->wire_name) < 0) return -1;
    PyObject *value = cb_get_value(plan, f, v);
    if (!value) {
      if (PyErr_Occurred()) return -1;
      value = f->zero ? Py_NewRef(f->zero) : Py_NewRef(Py_None);
    }
    int bad = cb_write_dynamic_of(w, f->code, f, value, depth);
    Py_DECREF(value);
    if (bad < 0) {
      cb_step(&w->path, f->name, 0);
      return -1;
    }
  }
  return cb_finish(w, mark);
}

/* A typed run of records; `depth` is that of the list. */
static int cb_write_dynamic_records(cb_writer *w, const cb_plan *plan, PyObject *items, int depth) {
  if (depth > CB_MAX_DEPTH) return cb_too_deep();
  if (w->session) {
    if (cb_write_tag(w, plan) < 0) return -1;
    return cb_write_records(w, plan, items, 1, -1, depth);
  }
  Py_ssize_t n = PySequence_Fast_GET_SIZE(items), mark = cb_begin(w, 1, -1, 0, 0xc0);
  if (mark < 0) return -1;
  CB_ROOM(w, CB_PUT_ROOM);
  w->pos = cb_put_len(w->data + w->pos, (uint64_t)n) - w->data;
  for (Py_ssize_t i = 0; i < n; i++) {
    PyObject *item = cb_item(items, i);
    int bad = !item || cb_write_dynamic_record(w, plan, item, depth + 1) < 0;
    Py_XDECREF(item);
    if (bad) {
      cb_step(&w->path, NULL, i);
      return -1;
    }
  }
  return cb_finish(w, mark);
}

/* A list of dynamic values; promoted to a typed run where the section is open and all are records of one type. */
static int cb_write_dynamics(cb_writer *w, PyObject *items, int depth) {
  Py_ssize_t n = PySequence_Fast_GET_SIZE(items);
  if (depth > CB_MAX_DEPTH) return cb_too_deep();
  if ((uint64_t)n > UINT32_MAX) return cb_too_long();
  if (w->session && n) {
    PyTypeObject *type = Py_TYPE(PySequence_Fast_GET_ITEM(items, 0));
    Py_ssize_t same = 1;
    while (same < n && Py_TYPE(PySequence_Fast_GET_ITEM(items, same)) == type) same++;
    if (same == n && type != &PyLong_Type && type != &PyUnicode_Type && type != &PyFloat_Type && type != &PyDict_Type &&
        type != &PyList_Type) {
      cb_plan *plan;
      PyObject *keep;
      if (cb_find_plan(w, (PyObject *)type, &plan, &keep) < 0) return -1;
      if (plan) {
        int bad = cb_write_dynamic_records(w, plan, items, depth);
        Py_DECREF(keep);
        return bad;
      }
    }
  }
  Py_ssize_t mark = cb_begin(w, 1, -1, 0, 0xc0);
  if (mark < 0) return -1;
  CB_ROOM(w, CB_PUT_ROOM);
  w->pos = cb_put_len(w->data + w->pos, (uint64_t)n) - w->data;
  for (Py_ssize_t i = 0; i < n; i++) {
    PyObject *item = cb_item(items, i);
    int bad = !item || cb_write_dynamic(w, item, depth) < 0;
    Py_XDECREF(item);
    if (bad) {
      cb_step(&w->path, NULL, i);
      return -1;
    }
  }
  return cb_finish(w, mark);
}

static int cb_write_dynamic_map(cb_writer *w, int key_code, int value_code, PyObject *v, int depth) {
  Py_ssize_t mark, count;
  if (depth > CB_MAX_DEPTH) return cb_too_deep();
  mark = cb_begin(w, 1, -1, 0, 0xe0);
  if (mark < 0 || cb_write_map_body(w, 1, key_code, value_code, 1, v, depth, &count) < 0) return -1;
  return cb_finish(w, mark);
}

static int cb_write_dynamic_of(cb_writer *w, int code, const cb_field *f, PyObject *v, int depth) {
  PyObject *items;
  int done;
  if (code == CB_OPTIONAL) {
    if (v == Py_None) return cb_write_byte(w, 0xf0);
    code = f->pointee;
  }
  switch (code) {
  case CB_BOOL: {
    uint64_t bits;
    if (cb_bits_of(v, code, &bits) < 0) return -1;
    return cb_write_byte(w, bits ? 0xf1 : 0xf2);
  }
  case CB_F32:
  case CB_F64: return cb_write_dynamic_float(w, code, v);
  case CB_ANY: return cb_write_dynamic(w, v, depth);
  default: break;
  }
  if (code <= CB_STR) return cb_write_element(w, 1, code, v);
  if (v == Py_None) return cb_write_byte(w, 0xf0);
  switch (code) {
  case CB_BYTES:
    if (!PyObject_CheckBuffer(v)) return cb_wrong_type("bytes", v);
    return cb_write_dynamic_bytes(w, v);
  case CB_RECORD:
  case CB_OPTIONAL_RECORD: return cb_write_dynamic_record(w, f->child, v, depth + 1);
  case CB_MAP: return cb_write_dynamic_map(w, f->map_key, f->map_value, v, depth + 1);
  default: break;
  }
  if (!(items = cb_sequence(v, "a list"))) return -1;
  if (code == CB_RECORDS) {
    done = cb_write_dynamic_records(w, f->child, items, depth + 1);
  } else if (code == CB_ANYS) {
    done = cb_write_dynamics(w, items, depth + 1);
  } else { /* integers and strings: a plain list of elements */
    Py_ssize_t n = PySequence_Fast_GET_SIZE(items), mark;
    int element = code == CB_STRS ? CB_STR : cb_vec_element[code - CB_VEC_I8];
    done = -1;
    if (depth + 1 > CB_MAX_DEPTH) {
      cb_too_deep();
    } else if ((mark = cb_begin(w, 1, -1, 0, 0xc0)) >= 0) {
      uint8_t head[32];
      done = cb_append(w, (const char *)head, cb_put_len(head, (uint64_t)n) - head);
      for (Py_ssize_t i = 0; i < n && done == 0; i++) {
        PyObject *item = cb_item(items, i);
        done = item ? cb_write_element(w, 1, element, item) : -1;
        Py_XDECREF(item);
        if (done < 0) cb_step(&w->path, NULL, i);
      }
      if (done == 0) done = cb_finish(w, mark);
    }
  }
  Py_DECREF(items);
  return done;
}

static int cb_write_dynamic(cb_writer *w, PyObject *v, int depth) {
  if (v == Py_None) return cb_write_byte(w, 0xf0);
  if (PyBool_Check(v)) return cb_write_byte(w, v == Py_True ? 0xf1 : 0xf2);
  if (PyLong_Check(v)) {
    int64_t small;
    uint64_t bits;
    int negative;
    if (PyLong_CheckExact(v) && cb_short_int(v, &small)) negative = small < 0;
    else {
      int overflow;
      small = PyLong_AsLongLongAndOverflow(v, &overflow);
      negative = overflow ? overflow < 0 : small < 0;
      if (overflow < 0) {
        PyErr_Format(PyExc_OverflowError, "%R is outside the range of a dynamic integer", v);
        return -1;
      }
    }
    int code = negative ? CB_I64 : CB_U64;
    if (cb_bits_of(v, code, &bits) < 0) return -1;
    CB_ROOM(w, CB_PUT_ROOM);
    uint8_t *p = w->data + w->pos;
    p = negative ? cb_put_k8_signed(p, (int64_t)bits, 1) : cb_put_k8_unsigned(p, bits, 1);
    w->pos = p - w->data;
    return 0;
  }
  if (PyUnicode_Check(v)) return cb_write_element(w, 1, CB_STR, v);
  if (PyFloat_Check(v)) return cb_write_dynamic_float(w, CB_F64, v);
  if (PyBytes_Check(v) || PyByteArray_Check(v) || PyMemoryView_Check(v)) return cb_write_dynamic_bytes(w, v);
  if (PyDict_Check(v)) return cb_write_dynamic_map(w, CB_ANY, CB_ANY, v, depth + 1);
  if (PyList_Check(v) || Py_TYPE(v) == &PyTuple_Type) return cb_write_dynamics(w, v, depth + 1);
  cb_plan *plan;
  PyObject *keep;
  if ((PyObject *)Py_TYPE(v) == w->run_type) {
    PyObject *type = PyObject_GetAttrString(v, "cls"), *items = type ? PyObject_GetAttrString(v, "rows") : NULL;
    PyObject *list = items ? cb_sequence(items, "a list of records") : NULL;
    int done = -1;
    if (list && cb_find_plan(w, type, &plan, &keep) == 0) {
      if (plan) done = cb_write_dynamic_records(w, plan, list, depth + 1);
      else PyErr_Format(PyExc_TypeError, "%R is no record type", type);
      Py_XDECREF(keep);
    }
    Py_XDECREF(type);
    Py_XDECREF(items);
    Py_XDECREF(list);
    return done;
  }
  if (cb_find_plan(w, (PyObject *)Py_TYPE(v), &plan, &keep) < 0) return -1;
  if (plan) {
    int done = cb_write_dynamic_record(w, plan, v, depth + 1);
    Py_DECREF(keep);
    return done;
  }
  if (!strcmp(Py_TYPE(v)->tp_name, "numpy.float32")) return cb_write_dynamic_float(w, CB_F32, v);
  if (!strncmp(Py_TYPE(v)->tp_name, "numpy.bool", 10)) {
    uint64_t bits;
    if (cb_not_bool(v, &bits) < 0) return -1;
    return cb_write_byte(w, bits ? 0xf1 : 0xf2);
  }
  if (PyIndex_Check(v)) {
    PyObject *number = PyNumber_Index(v);
    int done = number ? cb_write_dynamic(w, number, depth) : -1;
    Py_XDECREF(number);
    return done;
  }
  PyErr_Format(PyExc_TypeError,
               "values of type %.100s have no form in dynamic values, which are None, bool, int of 64 bits, float, str, "
               "bytes, lists, dicts with str or int keys, and records",
               Py_TYPE(v)->tp_name);
  return -1;
}

#endif
