# cython: language_level=3
"""The shortest road of a small read: ``table[rows, "x"].array()``; see ``shortcuts.pyi`` for the contract.

Access pattern: one column, at most some thousand rows of it, copied by the calling thread into a new array. What costs
time is everything around the copy, so the common keys never leave compiled code: no Python frame, no selection object,
no system call. Every other key, and everything in doubt, is handed on to methods in Python.
"""

from cpython.object cimport PyObject
from cpython.pycapsule cimport PyCapsule_GetPointer
from cpython.slice cimport PySlice_AdjustIndices, PySlice_Check, PySlice_Unpack
from libc.stdint cimport int64_t
from libc.string cimport memcpy

cdef extern from "array_shortcuts.h":
    int _import_array() except -1
    int64_t now_ns() nogil
    bint is_plain_array(object key)
    object new_array(object dtype, int64_t n)
    char *data_of(object array)
    const int64_t *int64_items(object key, int64_t *n)

cdef extern from "<unistd.h>" nogil:
    int64_t lseek(int fd, int64_t offset, int whence)
    enum:
        SEEK_END

cdef extern from "kernel_math.h" nogil:
    int64_t shared_load(const int64_t *cell)
    void shared_store(int64_t *cell, int64_t value)

cdef extern from "segment_table.h" nogil:
    ctypedef struct bucket_index:
        pass
    ctypedef struct segment_table:
        int64_t n_rows, n_segments, n_columns
        int has_gaps
        int64_t *itemsize
    enum:
        ROUTE_BUCKET
        ROUTE_SEARCH
    const bucket_index *get_buckets(segment_table *t)
    int route_of_few(segment_table *t, int64_t n)

cdef extern from "gather.h" nogil:
    int64_t take_span(const segment_table *t, const bucket_index *b, int isa, int route, const int64_t *indices,
                      int64_t begin, int64_t end, char *const *out, int64_t prefetch)
    int best_gather_isa()
    int strided_span(const segment_table *t, int64_t c, int64_t start, int64_t step, int64_t begin,
                     int64_t end, char *out)

_import_array()

cdef int gather_isa = best_gather_isa()
cdef double LONGEST_SECONDS = 1e9
# Letting other threads run costs as much as copying this much.
cdef int64_t HELD_BYTES = 1 << 12


cdef class QuickColumn:
    """Small reads of one column of one mapped file; see ``shortcuts.pyi`` for the contract."""

    cdef object owner, keep
    cdef segment_table *table
    cdef object dtype
    cdef int64_t end, most
    cdef int64_t known_until, warm_until
    cdef int fd

    def __cinit__(self, table not None, keep, dtype not None, int64_t end, int64_t most):
        cdef segment_table *t = <segment_table *>PyCapsule_GetPointer(table._capsule(), "colstore_io.segment_table")
        if t.n_columns != 1 or t.has_gaps or t.n_segments == 0 or t.itemsize[0] != dtype.itemsize or dtype.hasobject:
            raise ValueError("a quick column needs a table of one column of this dtype, with rows, without gaps")
        self.owner, self.table, self.keep, self.dtype, self.end, self.most = table, t, keep, dtype, end, most
        self.known_until = self.warm_until = 0
        self.fd = -1

    def __reduce__(self):
        raise TypeError("a QuickColumn holds addresses of this process and cannot be pickled")

    def look(self, int fd, double known_seconds, double warm_seconds):
        cdef int64_t now
        if lseek(fd, 0, SEEK_END) < self.end:
            shared_store(&self.known_until, 0)
            return False
        now = now_ns()
        self.fd = fd
        shared_store(&self.known_until, now + <int64_t>(max(0.0, min(known_seconds, LONGEST_SECONDS)) * 1e9))
        shared_store(&self.warm_until, now + <int64_t>(max(0.0, min(warm_seconds, LONGEST_SECONDS)) * 1e9))
        return True

    def rows(self, key):
        return self.read(key)

    cdef object read(self, object key):
        cdef Py_ssize_t start, stop, step, count
        cdef const int64_t *indices
        cdef int64_t n, now = now_ns()
        # A file that was cut since must not be touched where it was: asked before every read, which takes 0.3 us.
        if now >= shared_load(&self.known_until) or lseek(self.fd, 0, SEEK_END) < self.end:
            return None
        if PySlice_Check(key):
            PySlice_Unpack(key, &start, &stop, &step)
            if step != 1:
                return None
            count = PySlice_AdjustIndices(self.table.n_rows, &start, &stop, step)
            return self.range(start, count) if 0 < count <= self.most else None
        if not is_plain_array(key) or now >= shared_load(&self.warm_until):
            return None
        indices = int64_items(key, &n)
        return self.gather(indices, n) if indices != NULL and 0 < n <= self.most else None

    cdef object range(self, int64_t start, int64_t count):
        cdef object result = new_array(self.dtype, count)
        cdef char *out = data_of(result)
        cdef int failed
        if count * self.table.itemsize[0] <= HELD_BYTES:
            failed = strided_span(self.table, 0, start, 1, 0, count, out)
        else:
            with nogil:
                failed = strided_span(self.table, 0, start, 1, 0, count, out)
        return None if failed else result

    cdef object gather(self, const int64_t *indices, int64_t count):
        cdef object result = new_array(self.dtype, count)
        cdef const bucket_index *b = NULL
        cdef char *out = data_of(result)
        cdef int64_t bad
        cdef int route = route_of_few(self.table, count)
        with nogil:
            if route == ROUTE_BUCKET:
                b = get_buckets(self.table)
                if b == NULL:
                    route = ROUTE_SEARCH
            # No prefetches: so few rows are as fast without when they come from memory, faster from the caches.
            bad = take_span(self.table, b, gather_isa, route, indices, 0, count, &out, 0)
        return result if bad < 0 else None


cdef class ColumnShortcut:
    """Base of a lazy column; see ``shortcuts.pyi`` for the contract."""

    cdef readonly object _holder, _part, _chain

    # Set once, here: an assignment later would be seen half done by other threads where there is no global lock.
    def __cinit__(self, holder, part, rows, *):
        self._holder, self._part, self._chain = holder, part, rows

    def __getitem__(self, key):
        if self._chain is None and (PySlice_Check(key) or is_plain_array(key)):
            return type(self)(self._holder, self._part, key)
        return self._selected(key)

    def array(self, *, copy=True, out=None):
        """Return the values.

        Parameters
        ----------
        copy : bool, default True
            False returns a read-only view of the mapped file, or raises `ValueError`; never a silent copy.
        out : ndarray, optional
            C-contiguous target of the column's native dtype; untouched when a row is out of range.

        Returns
        -------
        ndarray, shape (rows,), or pyarrow.Array for a nullable column
            Owned by the caller unless ``copy=False``.
        """
        cdef object column, found
        if out is None and copy is True and isinstance(self._holder, TableShortcut) and not self._holder._closed:
            column = (<dict>self._holder._source.quick_columns).get(self._part)
            if column.__class__ is QuickColumn:
                found = (<QuickColumn>column).read(self._chain)
                if found is not None:
                    return found
        return self._array(copy, out)


cdef class TableShortcut:
    """Base of an open table; see ``shortcuts.pyi`` for the contract."""

    cdef public bint _holds_itself

    cdef inline object column(self, object part, object rows):
        return self._column_type(self if self._holds_itself else self._holder, part, rows)

    def __getitem__(self, key):
        cdef object rows, part
        cdef tuple pair
        if type(key) is tuple and len(<tuple>key) == 2:
            pair = <tuple>key
            if type(pair[1]) is str and (PySlice_Check(pair[0]) or is_plain_array(pair[0])):
                part = self._source.parts_by_name.get(pair[1])
                if part is not None:
                    return self.column(part, pair[0])
        elif type(key) is str:
            part = self._source.parts_by_name.get(key)
            if part is not None:
                return self.column(part, None)
        return self._selected(key)
