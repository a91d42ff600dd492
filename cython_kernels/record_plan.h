/* What the record codec of colbin knows about a type, and the Python values it takes from objects and puts in them.
 *
 * A plan is made once per record type; encoding and decoding walk its C array of fields and look nothing up by name
 * where an object has slots. The memory of a plan, and every Python object in it, belongs to the extension type Plan. */
#ifndef COLSTORE_RECORD_PLAN_H
#define COLSTORE_RECORD_PLAN_H

#include <Python.h>
#include <structmember.h>

#include "wire.h"

/* How the fields of a record object are reached. */
enum {
  CB_MODE_SLOTS,    /* members at fixed offsets; fields without one by name */
  CB_MODE_ATTRIBUTES,
  CB_MODE_TUPLE,    /* by position */
  CB_MODE_DICT,     /* a mapping: missing keys are zero */
  CB_MODE_ENVELOPE  /* the object itself is the only field (colbin.md 2) */
};

typedef struct cb_plan cb_plan;

/* What the decoder of a field has code of its own for. */
enum { CB_KIND_OTHER, CB_KIND_SIGNED, CB_KIND_UNSIGNED, CB_KIND_TEXT };

typedef struct {
  uint8_t kind;
  uint8_t code;        /* type code */
  uint8_t key;
  uint8_t pointee;     /* of an optional */
  uint8_t map_key;     /* exact type codes of map entries */
  uint8_t map_value;
  uint8_t left_out;    /* a mapping goes without this key when the message does (NotRequired) */
  Py_ssize_t offset;   /* of the slot, or position in the tuple; -1: by name */
  PyObject *name;      /* attribute or key */
  PyObject *wire_name;
  PyObject *zero;      /* what an absent key reads as, when objects may share it; else NULL */
  cb_plan *child;      /* of records */
  uint64_t low, span;  /* of kinds SIGNED and UNSIGNED, which leaves out u64: smallest value, largest less smallest */
} cb_field;

static void cb_settle_field(cb_field *f) {
  f->kind = cb_is_signed(f->code)                             ? CB_KIND_SIGNED
            : f->code >= CB_U8 && f->code <= CB_U32 ? CB_KIND_UNSIGNED
            : f->code == CB_STR                     ? CB_KIND_TEXT
                                                    : CB_KIND_OTHER;
  if (f->code > CB_U32) return;
  f->low = (uint64_t)cb_minimum[f->code];
  f->span = cb_maximum[f->code] - f->low;
}

struct cb_plan {
  int mode;
  int k8;
  int n;
  int tabular;         /* every field can be a column */
  int flat;            /* strings may be packed in a K4 root (9) */
  int has_dynamic;
  int untracked;       /* objects may be allocated without the collector's list and join it when they are whole */
  PyTypeObject *type;  /* NULL for dicts and envelopes */
  PyObject *post;      /* called with a decoded object, or NULL */
  PyObject *owner;     /* the Plan object, borrowed */
  cb_field *fields;
  int16_t by_key[256]; /* position of a key, -1 unknown */
  uint64_t keys[4];    /* which keys there are */
  int wide;            /* some are above 63 */
};

/* Where in a value an error was: collected from the inside out while the calls return. */
typedef struct {
  int n;
  PyObject *tail;      /* text of what is inside the steps, from the key of a map on; owned, or NULL */
  struct {
    PyObject *name;    /* borrowed from the plan, NULL for a position in a list */
    Py_ssize_t index;
  } steps[2 * CB_MAX_DEPTH + 8];
} cb_path;

static void cb_step(cb_path *path, PyObject *name, Py_ssize_t index) {
  if (path->n < (int)(sizeof(path->steps) / sizeof(path->steps[0]))) {
    path->steps[path->n].name = name;
    path->steps[path->n].index = index;
    path->n++;
  }
}

/* "lines[3].price['net']", "" at the root; a new reference. */
static PyObject *cb_path_text(const cb_path *path) {
  PyObject *text = PyUnicode_FromString("");
  for (int i = path->n - 1; text && i >= 0; i--) {
    PyObject *next;
    if (!path->steps[i].name) next = PyUnicode_FromFormat("%U[%zd]", text, path->steps[i].index);
    else if (PyUnicode_GET_LENGTH(text)) next = PyUnicode_FromFormat("%U.%U", text, path->steps[i].name);
    else next = PyUnicode_FromFormat("%U", path->steps[i].name);
    Py_DECREF(text);
    text = next;
  }
  if (text && path->tail) {
    PyObject *whole = PyUnicode_Concat(text, path->tail);
    Py_DECREF(text);
    text = whole;
  }
  return text;
}

enum { CB_KEY_SHOWN = 64 }; /* characters of a key in messages */

/* The step through the key of a map, which does not outlive the map: turned into text at once. */
static void cb_step_key(cb_path *path, PyObject *key) {
  PyObject *type, *value, *traceback;
  const char *dot = path->n && path->steps[path->n - 1].name ? "." : "";
  PyErr_Fetch(&type, &value, &traceback);
  PyObject *name = PyObject_Repr(key), *inner = name ? cb_path_text(path) : NULL;
  PyObject *tail = !inner ? NULL
                   : PyUnicode_GET_LENGTH(name) > CB_KEY_SHOWN
                       ? PyUnicode_FromFormat("[%.60U...]%s%U", name, dot, inner)
                       : PyUnicode_FromFormat("[%U]%s%U", name, dot, inner);
  Py_XDECREF(name);
  Py_XDECREF(inner);
  if (tail) {
    Py_XSETREF(path->tail, tail);
    path->n = 0;
  }
  PyErr_Clear();
  PyErr_Restore(type, value, traceback);
}

/* The value of a field, a new reference. NULL without an exception: a mapping does not have it. */
KERNEL_INLINE PyObject *cb_get_value(const cb_plan *plan, const cb_field *f, PyObject *object) {
  PyObject *v;
  switch (plan->mode) {
  case CB_MODE_SLOTS:
    if (LIKELY(f->offset >= 0)) {
      v = *(PyObject **)((char *)object + f->offset);
      if (UNLIKELY(!v)) {
        PyErr_SetString(PyExc_ValueError, "the field is not set");
        return NULL;
      }
      return Py_NewRef(v);
    }
    return PyObject_GetAttr(object, f->name);
  case CB_MODE_ATTRIBUTES: return PyObject_GetAttr(object, f->name);
  case CB_MODE_TUPLE: return Py_NewRef(PyTuple_GET_ITEM(object, f->offset));
  case CB_MODE_DICT:
    v = PyDict_GetItemWithError(object, f->name);
    return Py_XNewRef(v);
  default: return Py_NewRef(object);
  }
}

/* Give a field of a new object its value; steals `value`. `mode` is the plan's, a constant where it is known. */
KERNEL_INLINE int cb_set_value(const cb_plan *plan, int mode, const cb_field *f, PyObject **object, PyObject *value) {
  int code;
  switch (mode) {
  case CB_MODE_SLOTS:
    if (LIKELY(f->offset >= 0)) {
      *(PyObject **)((char *)*object + f->offset) = value;
      return 0;
    }
    /* fall through */
  case CB_MODE_ATTRIBUTES:
    code = PyObject_GenericSetAttr(*object, f->name, value); /* frozen classes forbid setattr only */
    Py_DECREF(value);
    return code;
  case CB_MODE_TUPLE: PyTuple_SET_ITEM(*object, f->offset, value); return 0;
  case CB_MODE_DICT:
    code = PyDict_SetItem(*object, f->name, value);
    Py_DECREF(value);
    return code;
  default: *object = value; return 0;
  }
}

/* Whether objects of the class are a collector's header, an object's header and slots, all allocated by the default
 * allocator: then cb_new_object may do that itself. */
static int cb_is_plain(PyTypeObject *type) {
#if PY_VERSION_HEX >= 0x030C0000
  (void)type;
  return 0; /* headers in front of objects have changed with every version since */
#else
  return type->tp_alloc == PyType_GenericAlloc && PyType_IS_GC(type) && type->tp_itemsize == 0 &&
         type->tp_dictoffset == 0 && type->tp_basicsize % 8 == 0;
#endif
}

/* An object whose fields are not set yet. An envelope has none: NULL without an exception. One of an `untracked` plan
 * joins the collector's list by cb_finish_object: nobody can see it before, and the list is touched once. */
KERNEL_INLINE PyObject *cb_new_object(const cb_plan *plan, int mode) {
  switch (mode) {
  case CB_MODE_TUPLE: return plan->type->tp_alloc(plan->type, plan->n);
  case CB_MODE_DICT: return PyDict_New();
  case CB_MODE_ENVELOPE: return NULL;
  default:
    if (LIKELY(plan->untracked)) {
      PyObject *object = PyObject_GC_New(PyObject, plan->type);
      if (UNLIKELY(!object)) return NULL;
      char *slot = (char *)(object + 1);
      Py_ssize_t bytes = plan->type->tp_basicsize - (Py_ssize_t)sizeof(PyObject);
      for (; bytes >= 32; bytes -= 32, slot += 32) memset(slot, 0, 32); /* in words: a call of memset costs more */
      if (bytes & 16) memset(slot, 0, 16), slot += 16;
      if (bytes & 8) memset(slot, 0, 8);
      return object;
    }
    return plan->type->tp_alloc(plan->type, 0);
  }
}

/* All fields are set; `post` runs. 0, or -1 with an exception. */
KERNEL_INLINE int cb_finish_object(const cb_plan *plan, int mode, PyObject *object) {
  if (mode <= CB_MODE_ATTRIBUTES && LIKELY(plan->untracked)) PyObject_GC_Track(object);
  if (UNLIKELY(plan->post != NULL)) {
    PyObject *done = PyObject_CallOneArg(plan->post, object);
    if (!done) return -1;
    Py_DECREF(done);
  }
  return 0;
}

static int cb_wrong_type(const char *expected, PyObject *v) {
  PyErr_Format(PyExc_TypeError, "expected %s, got %.100s", expected, Py_TYPE(v)->tp_name);
  return -1;
}

static const char *const cb_type_names[12] = {"bool", "i8", "i16", "i32", "i64", "u8",
                                              "u16", "u32", "u64", "f32", "f64", "str"};

/* What the lists of integers hold, by code - CB_VEC_I8. */
static const uint8_t cb_vec_element[7] = {CB_I8, CB_I16, CB_I32, CB_I64, CB_U16, CB_U32, CB_U64};

static int cb_out_of_range(PyObject *v, int code) {
  PyErr_Format(PyExc_OverflowError, "%R is outside the range of %s", v, cb_type_names[code]);
  return -1;
}

/* An int of at most two digits (60 bits) without a call; 0 when it is longer. */
KERNEL_INLINE int cb_short_int(PyObject *v, int64_t *out) {
#if PY_VERSION_HEX >= 0x030C0000
  if (PyUnstable_Long_IsCompact((PyLongObject *)v)) {
    *out = PyUnstable_Long_CompactValue((PyLongObject *)v);
    return 1;
  }
  return 0;
#else
  const PyLongObject *number = (const PyLongObject *)v;
  Py_ssize_t size = Py_SIZE(v);
  if (LIKELY(size >= -1 && size <= 1)) { /* a product, because values differ in sign and a jump would be mispredicted */
    *out = (int64_t)size * (int64_t)number->ob_digit[0];
    return 1;
  }
  if (size != 2 && size != -2) return 0;
  *out = (int64_t)number->ob_digit[0] | (int64_t)number->ob_digit[1] << PyLong_SHIFT;
  if (size < 0) *out = -*out;
  return 1;
#endif
}

/* An integer that is no exact int, or a long one. */
static int cb_long_int(PyObject *v, int code, uint64_t *bits) {
  PyObject *number;
  int overflow;
  if (PyFloat_Check(v) || PyUnicode_Check(v) || v == Py_None || !PyIndex_Check(v)) return cb_wrong_type("int", v);
  if (!(number = PyNumber_Index(v))) return -1;
  if (code == CB_U64) {
    *bits = PyLong_AsUnsignedLongLong(number);
    if (*bits == (uint64_t)-1 && PyErr_Occurred()) {
      PyErr_Clear();
      cb_out_of_range(number, code);
      Py_DECREF(number);
      return -1;
    }
    Py_DECREF(number);
    return 0;
  }
  int64_t value = PyLong_AsLongLongAndOverflow(number, &overflow);
  if (overflow || value < cb_minimum[code] || value > (int64_t)cb_maximum[code]) {
    cb_out_of_range(number, code);
    Py_DECREF(number);
    return -1;
  }
  Py_DECREF(number);
  *bits = (uint64_t)value;
  return 0;
}

static int cb_not_bool(PyObject *v, uint64_t *bits) {
  /* numpy.bool_ has no public check without NumPy's headers; its name is as good */
  const char *name = Py_TYPE(v)->tp_name;
  if (!strcmp(name, "numpy.bool") || !strcmp(name, "numpy.bool_")) {
    int truth = PyObject_IsTrue(v);
    *bits = (uint64_t)(truth > 0);
    return truth < 0 ? -1 : 0;
  }
  return cb_wrong_type("bool", v);
}

/* A scalar of types 0..10 as 64 bits: two's complement, or the IEEE-754 pattern. */
KERNEL_INLINE int cb_bits_of(PyObject *v, int code, uint64_t *bits) {
  if (code >= CB_F32) {
    double number;
    if (LIKELY(PyFloat_CheckExact(v))) {
      number = PyFloat_AS_DOUBLE(v);
    } else {
      if (PyUnicode_Check(v) || PyBool_Check(v)) return cb_wrong_type("float", v);
      number = PyFloat_AsDouble(v);
      if (number == -1.0 && PyErr_Occurred()) {
        if (PyErr_ExceptionMatches(PyExc_TypeError)) {
          PyErr_Clear();
          return cb_wrong_type("float", v);
        }
        return -1;
      }
    }
    if (code == CB_F32) {
      float single;
      uint32_t pattern;
      if (number != number) { /* keep the sign and the payload that fit */
        uint64_t wide;
        memcpy(&wide, &number, 8);
        pattern = (uint32_t)(wide >> 32 & 0x80000000u) | 0x7f800000u | (uint32_t)(wide >> 29 & 0x7fffffu);
        if (!(pattern & 0x7fffffu)) pattern |= 0x400000u;
      } else {
        single = (float)number;
        memcpy(&pattern, &single, 4);
        if ((pattern & 0x7fffffffu) == 0x7f800000u && number - number == 0) return cb_out_of_range(v, code);
      }
      *bits = pattern;
      return 0;
    }
    memcpy(bits, &number, 8);
    return 0;
  }
  if (code == CB_BOOL) {
    if (v == Py_True) *bits = 1;
    else if (v == Py_False) *bits = 0;
    else return cb_not_bool(v, bits);
    return 0;
  }
  int64_t value;
  if (LIKELY(PyLong_CheckExact(v) && cb_short_int(v, &value))) {
    if (UNLIKELY(value < cb_minimum[code] || (value > 0 && (uint64_t)value > cb_maximum[code])))
      return cb_out_of_range(v, code);
    *bits = (uint64_t)value;
    return 0;
  }
  return cb_long_int(v, code, bits);
}

/* Small integers are shared, like the interpreter's own, which end at 256: prices, quantities and years do not. */
enum { CB_SHARED_LOW = -8, CB_SHARED_STOP = 2048 };
#ifndef Py_GIL_DISABLED /* counting references to shared objects is what threads would wait for */
static PyObject *cb_shared_ints[CB_SHARED_STOP - CB_SHARED_LOW];
#endif

static int cb_share_ints(void) {
#ifndef Py_GIL_DISABLED
  for (int i = 0; i < CB_SHARED_STOP - CB_SHARED_LOW; i++)
    if (!cb_shared_ints[i] && !(cb_shared_ints[i] = PyLong_FromLong(i + CB_SHARED_LOW))) return -1;
#endif
  return 0;
}

/* An int; a new reference. */
KERNEL_INLINE PyObject *cb_int_object(int64_t v) {
#ifndef Py_GIL_DISABLED
  uint64_t place = (uint64_t)v - (uint64_t)(int64_t)CB_SHARED_LOW;
  if (place < CB_SHARED_STOP - CB_SHARED_LOW) return Py_NewRef(cb_shared_ints[place]);
#endif
#if PY_VERSION_HEX < 0x030C0000 && PYLONG_BITS_IN_DIGIT == 30 && !defined(Py_DEBUG) && !defined(Py_TRACE_REFS)
  if (LIKELY(v > -(1ll << 60) && v < 1ll << 60)) { /* one digit or two, without the loops that count and fill them */
    PyLongObject *number = (PyLongObject *)PyObject_Malloc(offsetof(PyLongObject, ob_digit) + 2 * sizeof(digit));
    if (UNLIKELY(!number)) return PyErr_NoMemory();
    uint64_t magnitude = cb_magnitude(v);
    Py_ssize_t digits = 1 + (magnitude >> PyLong_SHIFT != 0);
    Py_SET_TYPE(number, &PyLong_Type);
    Py_SET_SIZE(number, v < 0 ? -digits : digits);
    Py_SET_REFCNT(number, 1); /* all that _Py_NewReference does in such a build */
    number->ob_digit[0] = (digit)(magnitude & PyLong_MASK);
    number->ob_digit[1] = (digit)(magnitude >> PyLong_SHIFT);
    return (PyObject *)number;
  }
#endif
  return PyLong_FromLongLong((long long)v);
}

/* The Python value of a scalar of types 0..10; a new reference. */
KERNEL_INLINE PyObject *cb_object_of(uint64_t bits, int code) {
  switch (code) {
  case CB_BOOL: return Py_NewRef(bits ? Py_True : Py_False);
  case CB_U64: return UNLIKELY(bits >> 63) ? PyLong_FromUnsignedLongLong(bits) : cb_int_object((int64_t)bits);
  case CB_F32: {
    uint32_t pattern = (uint32_t)bits;
    if ((pattern & 0x7f800000u) == 0x7f800000u && (pattern & 0x7fffffu)) { /* a NaN: no conversion may quieten it */
      uint64_t wide = (uint64_t)(pattern & 0x80000000u) << 32 | 0x7ffull << 52 | (uint64_t)(pattern & 0x7fffffu) << 29;
      double number;
      memcpy(&number, &wide, 8);
      return PyFloat_FromDouble(number);
    }
    float single;
    memcpy(&single, &pattern, 4);
    return PyFloat_FromDouble((double)single);
  }
  case CB_F64: {
    double number;
    memcpy(&number, &bits, 8);
    return PyFloat_FromDouble(number);
  }
  default: return cb_int_object((int64_t)bits);
  }
}

KERNEL_INLINE int cb_is_ascii(const uint8_t *p, uint64_t n) {
  uint64_t any = 0;
  while (n >= 8) {
    any |= cb_load8(p);
    p += 8;
    n -= 8;
  }
  while (n--) any |= (uint64_t)*p++;
  return !(any & 0x8080808080808080ull);
}

/* Put the way to the field in front of the message of the exception that is set. Always -1; the path is used up. */
static int cb_locate(cb_path *path) {
  PyObject *type, *value, *traceback, *text;
  if (!path->n && !path->tail) return -1;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  if ((type == PyExc_TypeError || type == PyExc_ValueError || type == PyExc_OverflowError) && value &&
      (text = cb_path_text(path))) {
    PyErr_Format(type, "%U: %S", text, value);
    Py_DECREF(text);
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(traceback);
  } else {
    PyErr_Restore(type, value, traceback);
  }
  Py_CLEAR(path->tail);
  return -1;
}

/* For callers that must hand on an exception which C code has set. */
static int cb_pending(void) { return -1; }

/* The offset of the slot that a class keeps in the attribute `descriptor`, -1 when it is none. */
static Py_ssize_t cb_slot_offset(PyTypeObject *type, PyObject *descriptor) {
#ifdef Py_GIL_DISABLED
  return -1; /* another thread may take the value away between the load and the reference: go by name */
#endif
  if (!Py_IS_TYPE(descriptor, &PyMemberDescr_Type)) return -1;
  PyMemberDescrObject *member = (PyMemberDescrObject *)descriptor;
  if (!PyType_IsSubtype(type, PyDescr_TYPE(member)) || member->d_member->type != T_OBJECT_EX) return -1;
  if (member->d_member->offset < (Py_ssize_t)sizeof(PyObject) ||
      member->d_member->offset + (Py_ssize_t)sizeof(PyObject *) > type->tp_basicsize)
    return -1;
  return member->d_member->offset;
}

#endif
