# cython: language_level=3
"""Footers of columns files to flat records, and whole files opened by one call.

Access pattern: one pass over some hundred bytes (megabytes at most) that were just read. Single-threaded. Unlike other
kernels this one is given names of files: that an open costs three system calls and one object is its point.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport strlen

cdef extern from "Python.h":
    bytes PyUnicode_EncodeFSDefault(object text)

cdef extern from "gob.h" nogil:
    ctypedef struct gob_list:
        char *items
        int64_t count
        int64_t capacity
        int64_t size
    ctypedef struct gob_column:
        uint32_t name_start
        uint32_t name_bytes
        uint8_t type
        uint8_t nullable
    ctypedef struct gob_group:
        int64_t byte_offset
        int64_t n_columns
        uint32_t n_rows
    ctypedef struct gob_chunk:
        pass
    ctypedef struct gob_reader:
        const uint8_t *data
        int64_t pos
        int64_t end
        const int32_t *kind
        const int64_t *first
        const int64_t *second
        const int32_t *field_type
        const int32_t *action[4]
        const int64_t *role_type
        int64_t schema_start
        int64_t schema_end
        gob_list columns
        gob_list groups
        gob_list chunks
    int gob_read_footer(gob_reader *g)
    int columns_fit(const gob_group *groups, int64_t n_groups, int64_t n_columns, int64_t n_chunks, int64_t *group)
    int c_place_chunks "place_chunks"(
        const gob_group *groups, int64_t n_groups, const gob_chunk *chunks, const uint8_t *nullable, int64_t n_columns,
        int64_t low, int64_t high, int64_t n_tokenizers, int64_t max_rows, int64_t *start, int64_t *end,
        int64_t *group, int64_t *column)

cdef extern from "footer_file.h" nogil:
    ctypedef struct footer_file:
        int fd
        int64_t size
        int64_t mtime_ns
        int64_t start
        int64_t n_bytes
        uint64_t inode
        int64_t requests
        int64_t bytes_read
        int64_t nanoseconds
        uint8_t *data
        int64_t schema_start
        int64_t schema_end
        int64_t n_rows
        gob_list columns
        gob_list groups
        gob_list chunks
        int64_t *places
    int footer_file_open(footer_file *f, const char *path, const gob_reader *tables, const uint8_t *prefix,
                         int64_t n_prefix, int64_t max_rows)
    int footer_file_take(footer_file *f)
    void footer_file_close(footer_file *f)
    void footer_file_free(footer_file *f)


cdef class FooterTypes:
    """The tables of a footer's types, checked once and kept; see ``decode.pyi``."""

    cdef gob_reader tables
    cdef tuple arrays

    def __init__(self, const int32_t[::1] kind not None, const int64_t[::1] first not None,
                 const int64_t[::1] second not None, const int32_t[::1] field_type not None,
                 const int32_t[::1] actions not None, const int64_t[::1] action_start not None,
                 const int64_t[::1] role_type not None):
        cdef int role
        if action_start.shape[0] != 4 or role_type.shape[0] != 4 or kind.shape[0] != first.shape[0] \
                or kind.shape[0] != second.shape[0]:
            raise ValueError("tables of types do not fit together")
        self.arrays = (kind, first, second, field_type, actions, role_type)  # alive as long as the pointers are
        self.tables.kind, self.tables.first, self.tables.second = &kind[0], &first[0], &second[0]
        self.tables.field_type, self.tables.role_type = &field_type[0], &role_type[0]
        for role in range(4):
            self.tables.action[role] = &actions[0] + action_start[role]


cdef tuple described(const gob_list *columns, const uint8_t *data):
    """Return names, types and flags of columns; `data` is the footer that their names stand in."""
    cdef int64_t n = columns.count, i
    cdef const gob_column *column
    cdef bytearray kinds = bytearray(n), flags = bytearray(n)
    cdef list names = []
    for i in range(n):
        column = <const gob_column *>columns.items + i
        names.append(PyBytes_FromStringAndSize(<const char *>data + column.name_start, column.name_bytes))
        kinds[i], flags[i] = column.type, column.nullable
    return tuple(names), bytes(kinds), bytes(flags)


def parse_footer(const uint8_t[::1] data not None, int64_t start, int64_t end, FooterTypes types not None):
    cdef gob_reader g = types.tables
    cdef int code
    if not 0 <= start <= end <= data.shape[0]:
        raise ValueError("the message must lie inside the footer")
    g.data, g.pos, g.end = &data[0], start, end
    g.schema_start = g.schema_end = 0
    g.columns = gob_list(NULL, 0, 0, sizeof(gob_column))
    g.groups = gob_list(NULL, 0, 0, sizeof(gob_group))
    g.chunks = gob_list(NULL, 0, 0, sizeof(gob_chunk))
    with nogil:
        code = gob_read_footer(&g)
    try:
        if code:
            g.columns.count = 0
        names, kinds, flags = described(&g.columns, &data[0])
        return (code, g.pos, names, kinds, flags,
                bytearray(g.groups.items[:g.groups.count * g.groups.size]),
                bytearray(g.chunks.items[:g.chunks.count * g.chunks.size]))
    finally:
        free(g.columns.items)
        free(g.groups.items)
        free(g.chunks.items)


def place_chunks(const uint8_t[::1] groups not None, const uint8_t[::1] chunks not None,
                 const uint8_t[::1] nullable not None, int64_t low, int64_t high, int64_t n_tokenizers,
                 int64_t max_rows, int64_t[::1] out not None):
    cdef int64_t n_groups = groups.shape[0] // <int64_t>sizeof(gob_group), group = -1, column = -1, r
    cdef int64_t n_chunks = chunks.shape[0] // <int64_t>sizeof(gob_chunk)
    cdef const gob_group *table = <const gob_group *>&groups[0]
    cdef int code
    if groups.shape[0] != n_groups * <int64_t>sizeof(gob_group) \
            or chunks.shape[0] != n_chunks * <int64_t>sizeof(gob_chunk) or out.shape[0] != 3 * n_groups + n_chunks:
        raise ValueError("records of groups or chunks have another size")
    if not 0 <= low <= high:
        raise ValueError("low must not be above high")
    with nogil:
        code = 0 if columns_fit(table, n_groups, nullable.shape[0], n_chunks, &group) else 1
        if code == 0:
            for r in range(n_groups):
                out[r], out[n_groups + r] = table[r].n_rows, table[r].byte_offset
            code = c_place_chunks(table, n_groups, <const gob_chunk *>&chunks[0], &nullable[0], nullable.shape[0],
                                  low, high, n_tokenizers, max_rows, &out[0] + 3 * n_groups, &out[0] + 2 * n_groups,
                                  &group, &column)
    return code, group, column


# ---- files


cdef class FooterFile:
    """An open file whose footer was read and found sound; see ``footers.pyi`` for the contract."""

    cdef footer_file file
    cdef readonly bytes columns

    def __cinit__(self):
        self.file.fd = -1

    def __dealloc__(self):
        footer_file_free(&self.file)

    def __reduce__(self):
        raise TypeError("a FooterFile holds a descriptor of this process and cannot be pickled")

    @property
    def n_rows(self):
        return self.file.n_rows

    @property
    def state(self):
        return self.file.size, self.file.mtime_ns, self.file.inode

    @property
    def read(self):
        return self.file.requests, self.file.bytes_read, self.file.nanoseconds * 1e-9

    @property
    def span(self):
        return self.file.start, self.file.n_bytes

    def take_descriptor(self):
        return footer_file_take(&self.file)

    def close(self):
        footer_file_close(&self.file)

    def parts(self):
        cdef footer_file *f = &self.file
        cdef int64_t n_groups = f.groups.count, n_chunks = f.chunks.count
        names, kinds, flags = described(&f.columns, f.data)
        return (PyBytes_FromStringAndSize(<const char *>f.data, f.n_bytes), names, kinds, flags, n_groups,
                bytearray(f.chunks.items[:n_chunks * f.chunks.size]),
                bytearray((<char *>f.places)[:(3 * n_groups + n_chunks) * 8]))


def open_footer(path not None, FooterTypes types not None, bytes prefix not None, int64_t max_rows):
    cdef bytes name = PyUnicode_EncodeFSDefault(path)
    cdef const char *c_name = PyBytes_AS_STRING(name)
    cdef const uint8_t *expected = <const uint8_t *>PyBytes_AS_STRING(prefix)
    cdef int64_t n_expected = PyBytes_GET_SIZE(prefix)
    cdef FooterFile opened
    cdef footer_file *f
    cdef int good
    if <Py_ssize_t>strlen(c_name) != PyBytes_GET_SIZE(name):
        return None
    opened = FooterFile.__new__(FooterFile)
    f = &opened.file
    with nogil:
        good = footer_file_open(f, c_name, &types.tables, expected, n_expected, max_rows)
    if not good:
        return None
    opened.columns = PyBytes_FromStringAndSize(<const char *>f.data + f.schema_start, f.schema_end - f.schema_start)
    return opened
