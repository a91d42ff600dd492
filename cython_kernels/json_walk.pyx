# cython: language_level=3
"""Messages as JSON text: the walk of colbin.md 12 over flat tables of types, in json_walk.h and json_table.h.

Access pattern: each byte of the message once, front to back, into one buffer that grows. Floats of many digits are spelled
by a callback; whatever is malformed ends the walk without a reason: the twin, `colstore_io.formats.colbin.walk_twin`,
finds it again and names it.
"""

from cpython.bytes cimport PyBytes_AS_STRING
from cpython.unicode cimport PyUnicode_AsUTF8AndSize, PyUnicode_DecodeUTF8
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, malloc

cdef extern from "json_table.h" nogil:
    ctypedef struct json_text:
        char *data
        int64_t size, room
    ctypedef struct json_struct:
        pass
    ctypedef struct json_field:
        pass
    ctypedef struct json_walk:
        const uint8_t *at
        const json_struct *structs
        int64_t n_structs
        const json_field *fields
        const char *names
        int64_t max_rows, cells, text
        int (*spell_float)(void *context, json_text *out, uint64_t reversed_bits, int single) noexcept
        void *context
        json_text out
    int json_put(json_text *t, const void *text, int64_t n)
    int json_record(json_walk *w, int s, int k8, const uint8_t *end, int depth, int bare)


cdef int spell(void *context, json_text *out, uint64_t reversed_bits, int single) noexcept with gil:
    cdef Py_ssize_t n
    cdef const char *text
    try:
        spelled = (<object>context)(reversed_bits, bool(single))
        text = PyUnicode_AsUTF8AndSize(spelled, &n)
        return json_put(out, text, n)
    except Exception:
        return 0


def render(bytes message not None, int64_t start, bint k8, bint bare, const int32_t[:, ::1] structs not None,
           const int32_t[:, ::1] fields not None, bytes names not None, spell_float, int64_t max_rows,
           int64_t max_cells, int64_t max_text):
    cdef json_walk walk
    cdef int64_t length = len(message)
    cdef const uint8_t *data = <const uint8_t *>PyBytes_AS_STRING(message)
    cdef int fine
    if structs.shape[0] == 0 or structs.shape[1] != 4 or fields.shape[1] != 6 or start < 1 or start > length:
        raise ValueError("tables of types do not have the right shape")
    walk.at = data + start
    walk.structs = <const json_struct *>&structs[0, 0]
    walk.n_structs = structs.shape[0]
    walk.fields = <const json_field *>&fields[0, 0] if fields.shape[0] else NULL
    walk.names = PyBytes_AS_STRING(names)
    walk.spell_float = spell
    walk.context = <void *>spell_float
    walk.max_rows = max_rows
    walk.cells = max_cells
    walk.text = max_text
    walk.out.size = 0
    walk.out.room = 4 * (length - start) + 256
    walk.out.data = <char *>malloc(walk.out.room)
    if walk.out.data == NULL:
        raise MemoryError
    try:
        with nogil:
            fine = json_record(&walk, 0, k8, data + length, 1, bare)
        if fine:
            return PyUnicode_DecodeUTF8(walk.out.data, walk.out.size, NULL)
        return walk.at - data if walk.text < 0 else None
    finally:
        free(walk.out.data)
