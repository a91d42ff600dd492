# cython: language_level=3
"""The record codec of colbin: Python objects to messages and back (colbin.md 2 to 7, 11).

Access pattern: one record at a time, its fields in declaration order; objects with slots are read and written at fixed
offsets. The loops are in record_encode.h and record_decode.h, the primitives of the wire in wire.h.
"""

cimport cython
from cpython.buffer cimport PyBUF_C_CONTIGUOUS, PyBuffer_Release, PyObject_CheckBuffer, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE, PyByteArray_Resize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Calloc, PyMem_Free
from cpython.object cimport PyObject, PyTypeObject
from libc.stdint cimport int16_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy, memset

from colstore_io.arguments import check_integer
from colstore_io.errors import FormatError

cdef extern from "record_encode.h":
    enum:
        CB_MODE_SLOTS
        CB_MODE_ATTRIBUTES
        CB_MODE_TUPLE
        CB_MODE_DICT
        CB_MODE_ENVELOPE
    ctypedef struct cb_field:
        uint8_t code, key, pointee, map_key, map_value, left_out
        Py_ssize_t offset
        PyObject *name
        PyObject *wire_name
        PyObject *zero
        cb_plan *child
    ctypedef struct cb_plan:
        int mode, k8, n, tabular, flat, has_dynamic, untracked
        PyTypeObject *type
        PyObject *post
        PyObject *owner
        cb_field *fields
        int16_t by_key[256]
        uint64_t keys[4]
        int wide
    ctypedef struct cb_path:
        int n
        PyObject *tail
    ctypedef cb_plan *(*cb_plan_pointer)(PyObject *)
    ctypedef struct cb_writer:
        uint8_t *data
        Py_ssize_t pos
        int packed5, packed_root, surrogates
        PyObject *session
        PyObject *run_type
        PyObject *plan_of
        cb_plan_pointer plan_pointer
        uint8_t first[1]
        cb_path path
    void cb_writer_open(cb_writer *w)
    void cb_writer_close(cb_writer *w)
    int cb_write_record(cb_writer *w, const cb_plan *plan, PyObject *object, int depth)
    int cb_locate(cb_path *path) except -1
    object cb_path_text(const cb_path *path)
    int cb_pending() except -1
    Py_ssize_t cb_slot_offset(PyTypeObject *type, PyObject *descriptor)
    int cb_is_plain(PyTypeObject *type)
    void cb_settle_field(cb_field *f)
    int cb_share_ints() except -1

cdef extern from "record_decode.h":
    ctypedef struct cb_reader:
        const uint8_t *start
        const char *why
        const uint8_t *at
        int64_t cells, max_rows
        int surrogates
        cb_plan **structs
        Py_ssize_t n_structs
        cb_path path
    void cb_reader_open(cb_reader *r, const uint8_t *p, Py_ssize_t n, cb_plan **structs, Py_ssize_t n_structs)
    PyObject *cb_read_root(cb_reader *r, const cb_plan *plan, const uint8_t *p, const uint8_t *end, int k8)
    PyObject *cb_read_record(cb_reader *r, const cb_plan *plan, const uint8_t *p, const uint8_t *end, int k8, int depth)

cdef extern from "method_entry.h":
    ctypedef PyObject *(*method_entry)(PyObject *codec, PyObject *const *args, Py_ssize_t n_args, PyObject *names) except NULL
    method_entry method_entry_put(PyTypeObject *type, const char *name, method_entry entry)

cdef extern from "Python.h":
    void decref "Py_DECREF"(PyObject *)
    void clear "Py_CLEAR"(PyObject *)
    bint is_bytes "PyBytes_CheckExact"(PyObject *)
    const uint8_t *bytes_of "(const unsigned char *)PyBytes_AS_STRING"(PyObject *)
    Py_ssize_t size_of "PyBytes_GET_SIZE"(PyObject *)
    PyObject *new_bytes "PyBytes_FromStringAndSize"(const char *, Py_ssize_t)

SLOTS = CB_MODE_SLOTS
ATTRIBUTES = CB_MODE_ATTRIBUTES
TUPLE = CB_MODE_TUPLE
DICT = CB_MODE_DICT
ENVELOPE = CB_MODE_ENVELOPE

cb_share_ints()


def slot_offset(cls, descriptor):
    """Offset of the slot behind `descriptor` in instances of `cls`, -1 when it is no slot."""
    if not isinstance(cls, type):
        raise TypeError("cls must be a class")
    return cb_slot_offset(<PyTypeObject *>cls, <PyObject *>descriptor)


cdef class Plan:
    cdef cb_plan plan
    cdef readonly object cls
    cdef list kept

    def __cinit__(self):
        memset(&self.plan, 0, sizeof(self.plan))

    def __init__(self, int mode, cls, *, bint k8, post=None):
        if self.plan.fields != NULL:
            raise RuntimeError("a plan is made once")
        if (mode == CB_MODE_DICT or mode == CB_MODE_ENVELOPE) != (cls is None):
            raise ValueError("plans of objects have a class, others have none")
        if not CB_MODE_SLOTS <= mode <= CB_MODE_ENVELOPE:
            raise ValueError("unknown mode")
        if cls is not None and not isinstance(cls, type):
            raise TypeError("cls must be a class")
        if mode == CB_MODE_TUPLE and not issubclass(cls, tuple):
            raise TypeError("cls must be a tuple class")
        if cls is not None and mode != CB_MODE_TUPLE and issubclass(cls, (tuple, int, str, bytes)):
            raise TypeError("records are no tuples, numbers or strings")
        self.cls = cls
        self.kept = [post]
        self.plan.mode = mode
        self.plan.k8 = k8
        self.plan.type = NULL if cls is None else <PyTypeObject *>cls
        self.plan.untracked = mode == CB_MODE_SLOTS and cb_is_plain(self.plan.type)
        self.plan.post = NULL if post is None else <PyObject *>post
        self.plan.owner = <PyObject *>self
        for key in range(256):
            self.plan.by_key[key] = -1

    def define(self, list fields not None):
        cdef Py_ssize_t n = len(fields)
        cdef cb_field *f
        cdef Plan child
        if self.plan.fields != NULL:
            raise RuntimeError("a plan is defined once")
        if n > 256:
            raise ValueError("a record has at most 256 fields")
        if self.plan.mode == CB_MODE_ENVELOPE and n != 1:
            raise ValueError("an envelope has one field")
        self.plan.fields = <cb_field *>PyMem_Calloc(n + 1, sizeof(cb_field))
        if self.plan.fields == NULL:
            raise MemoryError
        self.plan.tabular = self.plan.flat = 1
        for key, code, pointee, map_key, map_value, left_out, offset, name, wire_name, shares_zero, zero, child in fields:
            f = &self.plan.fields[self.plan.n]
            if not 0 <= code <= 27 or not 0 <= pointee <= 11:
                raise ValueError("no such type code")
            if (code in (21, 22, 27)) != (child is not None):
                raise ValueError("records, and only they, have plans of their own")
            if not (0 <= map_key <= 11 and map_key not in (0, 9, 10) and (0 <= map_value <= 11 or map_value == 25)):
                raise ValueError("no such map")
            if self.plan.by_key[<uint8_t>key] >= 0:
                raise ValueError("two fields have the same key")
            if self.plan.mode == CB_MODE_TUPLE and not 0 <= offset < n:
                raise ValueError("a field is outside the tuple")
            if left_out and self.plan.mode != CB_MODE_DICT:
                raise ValueError("only mappings go without keys")
            if self.plan.mode == CB_MODE_SLOTS and offset >= 0 and offset + sizeof(void *) > self.plan.type.tp_basicsize:
                raise ValueError("a slot is outside the object")
            self.kept.append((name, wire_name, zero, child))
            f.code, f.key, f.pointee, f.map_key, f.map_value, f.left_out = code, key, pointee, map_key, map_value, left_out
            f.offset = offset
            if not (isinstance(name, str) and isinstance(wire_name, str)):
                raise TypeError("names are strings")
            f.name = <PyObject *>name
            f.wire_name = <PyObject *>wire_name
            f.zero = <PyObject *>zero if shares_zero else NULL
            f.child = NULL if child is None else &child.plan
            cb_settle_field(f)
            self.plan.keys[f.key >> 6] |= <uint64_t>1 << (f.key & 63)
            self.plan.wide |= f.key > 63
            self.plan.by_key[f.key] = self.plan.n
            self.plan.tabular &= code <= 11
            self.plan.flat &= code not in (21, 22, 23, 24, 25, 26, 27)
            self.plan.has_dynamic |= code == 25 or code == 26 or (code == 23 and map_value == 25)
            self.plan.n += 1

    @property
    def has_dynamic(self):
        return bool(self.plan.has_dynamic)

    def __dealloc__(self):
        PyMem_Free(self.plan.fields)


cdef cb_plan *plan_pointer(PyObject *plan) noexcept:
    return &(<Plan>plan).plan


cdef int surrogates_of(errors) except -1:
    if errors == "strict":
        return 0
    if errors == "surrogateescape":
        return 1
    raise ValueError(f"errors must be 'strict' or 'surrogateescape', not {errors!r}")


cdef inline bytes message_of(cb_writer *w):
    if w.data == w.first:
        return PyBytes_FromStringAndSize(<char *>w.data, w.pos)
    try:
        return PyBytes_FromStringAndSize(<char *>w.data, w.pos)
    finally:
        cb_writer_close(w)


cdef class RecordCodec:
    cdef Plan root
    cdef object plan_of
    cdef object run_type
    cdef tuple structs_kept
    cdef cb_plan **structs
    cdef Py_ssize_t n_structs

    def __cinit__(self):
        self.structs = NULL

    def __init__(self, Plan root not None, plan_of, run_type, tuple structs not None):
        self.root = root
        self.plan_of = plan_of
        self.run_type = run_type
        self.structs_kept = structs
        if self.structs != NULL:
            raise RuntimeError("a codec is made once")
        self.structs = table_of(structs)
        self.n_structs = len(structs)

    def __dealloc__(self):
        PyMem_Free(self.structs)

    cdef int write(self, cb_writer *w, value, bint packed5, errors, session) except -1:
        if self.structs == NULL:
            raise RuntimeError("the codec was not made")
        cb_writer_open(w)
        w.packed5 = packed5
        w.packed_root = packed5 and self.root.plan.flat and session is not False
        if errors is not None and errors != "strict":
            w.surrogates = surrogates_of(errors)
        w.session = NULL if session is None or session is False else <PyObject *>session
        w.run_type = <PyObject *>self.run_type
        w.plan_of = <PyObject *>self.plan_of
        w.plan_pointer = plan_pointer
        w.data[0] = 0xd8 if self.root.plan.k8 else 0xd0
        w.pos = 1
        if cb_write_record(w, &self.root.plan, <PyObject *>value, 1) < 0:
            cb_writer_close(w)
            cb_locate(&w.path)
        return 0

    @cython.binding(False)  # a plain method is called 10 ns faster
    def encode(self, value, *, bint packed5=False, errors=None):
        cdef cb_writer w
        self.write(&w, value, packed5, errors, None)
        return message_of(&w)

    @cython.binding(False)  # a plain method is called 10 ns faster
    def encode_into(self, bytearray buffer not None, value, *, Py_ssize_t offset=0, bint packed5=False, errors=None):
        cdef cb_writer w
        if not 0 <= offset <= PyByteArray_GET_SIZE(buffer):
            raise ValueError("offset is outside the buffer")
        self.write(&w, value, packed5, errors, None)
        try:
            if PyByteArray_GET_SIZE(buffer) < offset + w.pos:
                PyByteArray_Resize(buffer, offset + w.pos)
            memcpy(PyByteArray_AS_STRING(buffer) + offset, w.data, w.pos)
            return w.pos
        finally:
            cb_writer_close(&w)

    def _encode_described(self, value, bint packed5, errors, session):
        """The message as it is behind a section; `session` numbers record types, False when the section is not open."""
        cdef cb_writer w
        self.write(&w, value, packed5, errors, session)
        return message_of(&w)

    @cython.binding(False)  # a plain method is called 10 ns faster
    def decode(self, data, *, max_rows=None, errors=None, max_cells=None):
        cdef Py_buffer view
        cdef bytes message
        if PyBytes_CheckExact(data):
            return self.read(data, max_rows, errors, max_cells)
        if not PyObject_CheckBuffer(data):
            raise TypeError(f"a message is bytes, not {type(data).__name__}")
        PyObject_GetBuffer(data, &view, PyBUF_C_CONTIGUOUS)
        try:
            message = PyBytes_FromStringAndSize(<const char *>view.buf, view.len)
        finally:
            PyBuffer_Release(&view)
        return self.read(message, max_rows, errors, max_cells)

    cdef read(self, bytes data, max_rows, errors, max_cells):
        cdef cb_reader r
        cdef PyObject *result
        cdef Py_ssize_t body = 1, n = PyBytes_GET_SIZE(data)
        cdef const uint8_t *p = <const uint8_t *>PyBytes_AS_STRING(data)
        cdef int64_t limit
        cdef cb_plan **structs = NULL
        if self.structs == NULL:
            raise RuntimeError("the codec was not made")
        if n == 0:
            raise FormatError("the message is empty", offset=0)
        if p[0] & 0xf3 != 0xd0:
            raise FormatError(f"a message begins with D0, D4, D8 or DC, not {p[0]:02X}", offset=0)
        cb_reader_open(&r, p, n, self.structs, self.n_structs)
        if errors is not None:
            r.surrogates = surrogates_of(errors)
        if max_rows is not None:
            limit = check_integer("max_rows", max_rows)
            if not 0 <= limit < 1 << 40:
                raise ValueError("max_rows must be in 0 .. 2^40")
            r.max_rows = limit
        if max_cells is not None:
            limit = check_integer("max_cells", max_cells)
            if limit < 0:
                raise ValueError("max_cells must not be negative")
            r.cells = limit
        kept = None
        if p[0] & 4:
            body, kept = self._read_section(data)
            if not 1 <= body <= n:
                raise RuntimeError("the body is outside the message")
            if kept is not None:
                structs = table_of(kept)
                r.structs = structs
                r.n_structs = len(kept)
        result = cb_read_record(&r, &self.root.plan, p + body, p + n, p[0] >> 3 & 1, 1)
        if structs != NULL:
            PyMem_Free(structs)
        if result == NULL:
            refuse(&r)
        value = <object>result
        decref(result)
        return value

    def _read_section(self, data):
        raise NotImplementedError


cdef int refuse(cb_reader *r) except -1:
    """Raise what the reader has found, or hand on the exception that is set."""
    if r.why == NULL:
        clear(r.path.tail)
        cb_pending()
    section = cb_path_text(&r.path) or None
    clear(r.path.tail)
    raise FormatError(r.why.decode(), offset=r.at - r.start, section=section)


# What is in front of `decode` and `encode`: see method_entry.h.

cdef method_entry decode_behind = NULL
cdef method_entry encode_behind = NULL


cdef PyObject *decode_in_front(PyObject *codec, PyObject *const *args, Py_ssize_t n_args, PyObject *names) except NULL:
    cdef cb_reader r
    cdef PyObject *result
    cdef const uint8_t *p
    cdef Py_ssize_t n
    if names == NULL and n_args == 1 and is_bytes(args[0]):
        p = bytes_of(args[0])
        n = size_of(args[0])
        if n > 0 and (p[0] == 0xd0 or p[0] == 0xd8) and (<RecordCodec>codec).structs != NULL:
            cb_reader_open(&r, p, n, (<RecordCodec>codec).structs, (<RecordCodec>codec).n_structs)
            result = cb_read_root(&r, &(<RecordCodec>codec).root.plan, p + 1, p + n, p[0] >> 3 & 1)
            if result == NULL:
                refuse(&r)
            return result
    return decode_behind(codec, args, n_args, names)


cdef PyObject *encode_in_front(PyObject *codec, PyObject *const *args, Py_ssize_t n_args, PyObject *names) except NULL:
    cdef cb_writer w
    cdef PyObject *message
    if names != NULL or n_args != 1 or (<RecordCodec>codec).structs == NULL:
        return encode_behind(codec, args, n_args, names)
    cb_writer_open(&w)
    w.run_type = <PyObject *>(<RecordCodec>codec).run_type
    w.plan_of = <PyObject *>(<RecordCodec>codec).plan_of
    w.plan_pointer = plan_pointer
    w.data[0] = 0xd8 if (<RecordCodec>codec).root.plan.k8 else 0xd0
    w.pos = 1
    if cb_write_record(&w, &(<RecordCodec>codec).root.plan, args[0], 1) < 0:
        cb_writer_close(&w)
        cb_locate(&w.path)
    message = new_bytes(<char *>w.data, w.pos)
    cb_writer_close(&w)
    return message


decode_behind = method_entry_put(<PyTypeObject *>RecordCodec, b"decode", decode_in_front)
encode_behind = method_entry_put(<PyTypeObject *>RecordCodec, b"encode", encode_in_front)


cdef cb_plan **table_of(tuple plans) except NULL:
    cdef cb_plan **table = <cb_plan **>PyMem_Calloc(len(plans) + 1, sizeof(cb_plan *))
    cdef Py_ssize_t i
    if table == NULL:
        raise MemoryError
    for i in range(len(plans)):
        if not isinstance(plans[i], Plan):
            PyMem_Free(table)
            raise TypeError("a plan was expected")
        table[i] = &(<Plan>plans[i]).plan
    return table


def join(messages, int64_t[::1] offsets not None):
    """The messages, bytes objects in a list or tuple, one behind the other; `offsets` gets where each begins and ends."""
    cdef Py_ssize_t n = len(messages), i, size
    cdef int64_t total = 0
    cdef char *target
    cdef bytes joined
    cdef list items = messages if type(messages) is list else list(messages)
    if offsets.shape[0] != n + 1 or len(items) != n:
        raise ValueError("offsets must have one element more than there are messages")
    offsets[0] = 0
    for i in range(n):
        if not PyBytes_CheckExact(items[i]):
            raise TypeError("messages are bytes objects here")
        total += PyBytes_GET_SIZE(items[i])
        offsets[i + 1] = total
    joined = PyBytes_FromStringAndSize(NULL, total)
    target = PyBytes_AS_STRING(joined)
    for i in range(n):
        # the list may have changed in another thread of a build without a global lock
        item = items[i]
        size = offsets[i + 1] - offsets[i]
        if not PyBytes_CheckExact(item) or PyBytes_GET_SIZE(item) != size:
            raise ValueError("the messages changed while they were read")
        memcpy(target + offsets[i], PyBytes_AS_STRING(item), size)
    return joined
