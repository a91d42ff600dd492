# cython: language_level=3
"""The shortest road of a small read: ``table[rows, "x"].array()``; see ``shortcuts.pyi`` for the contract.

Access pattern: a few columns, at most some thousand rows of them, copied by the calling thread into new arrays. What costs
time is everything around the copy, so the common keys never leave compiled code: no Python frame, no selection object,
no system call. Every other key, and everything in doubt, is handed on to methods in Python.
"""

from cpython.object cimport PyObject
from cpython.pycapsule cimport PyCapsule_GetPointer
from cpython.slice cimport PySlice_AdjustIndices, PySlice_Check, PySlice_Unpack
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport free, malloc
from weakref import ref

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
    int64_t search_segment(const segment_table *t, int64_t row)

cdef extern from "gather.h" nogil:
    int64_t take_span(const segment_table *t, const bucket_index *b, int isa, int route, const int64_t *indices,
                      int64_t begin, int64_t end, char *const *out, int64_t prefetch)
    int best_gather_isa()
    int strided_span(const segment_table *t, int64_t c, int64_t start, int64_t step, int64_t begin,
                     int64_t end, char *out)

_import_array()

cdef int gather_isa = best_gather_isa()
cdef double LONGEST_SECONDS = 1e9
# Letting other threads run costs as much as copying half of this.
cdef int64_t HELD_BYTES = 1 << 14

cdef enum:
    MOST_COLUMNS = 32


cdef class QuickRows:
    """Small reads of some columns of mapped files; see ``shortcuts.pyi`` for the contract."""

    cdef object owner, keep
    cdef tuple held
    cdef segment_table *table
    cdef tuple dtypes
    cdef int64_t most, n_files, row_bytes
    cdef int64_t *end
    cdef int32_t *file
    cdef int64_t known_until, warm_until

    def __cinit__(self, table not None, keep, tuple dtypes not None, const int64_t[::1] ends not None,
                  const int32_t[::1] file_of_segment not None, int64_t most):
        cdef segment_table *t = <segment_table *>PyCapsule_GetPointer(table._capsule(), "colstore_io.segment_table")
        cdef int64_t c, s, f, n = ends.shape[0]
        self.end = NULL
        if t.n_columns != len(dtypes) or t.has_gaps or t.n_segments == 0 or file_of_segment.shape[0] != t.n_segments:
            raise ValueError("quick rows need a table of these columns and segments, with rows, without gaps")
        if not 0 < t.n_columns <= MOST_COLUMNS:
            raise ValueError(f"quick rows are of 1 to {MOST_COLUMNS} columns, got {t.n_columns}")
        self.row_bytes = 0
        for c in range(t.n_columns):
            if t.itemsize[c] != dtypes[c].itemsize or dtypes[c].hasobject:
                raise ValueError(f"column {c} of the table has no items of dtype {dtypes[c]}")
            self.row_bytes += t.itemsize[c]
        for s in range(t.n_segments):
            if not 0 <= file_of_segment[s] < n or (s > 0 and file_of_segment[s] < file_of_segment[s - 1]):
                raise ValueError(f"segments are in the order of {n} files, got file {file_of_segment[s]}")
        self.end = <int64_t *>malloc(n * sizeof(int64_t) + t.n_segments * sizeof(int32_t))
        if self.end == NULL:
            raise MemoryError
        self.file = <int32_t *>(self.end + n)
        for f in range(n):
            self.end[f] = ends[f]
        for s in range(t.n_segments):
            self.file[s] = file_of_segment[s]
        self.owner, self.table, self.keep, self.dtypes, self.most, self.n_files = table, t, keep, dtypes, most, n
        self.held = (None,) * n
        self.known_until = self.warm_until = 0

    def __dealloc__(self):
        free(self.end)

    def __reduce__(self):
        raise TypeError("QuickRows hold addresses of this process and cannot be pickled")

    def look(self, descriptors, double known_seconds, double warm_seconds):
        cdef int64_t now
        if len(descriptors) != self.n_files:
            raise ValueError(f"{self.n_files} descriptors are needed, got {len(descriptors)}")
        self.held = tuple([None if descriptor is None else ref(descriptor) for descriptor in descriptors])
        now = now_ns()
        if self.n_files == 1 and not self.whole(0, 1):
            shared_store(&self.known_until, 0)
            return False
        shared_store(&self.known_until, now + <int64_t>(max(0.0, min(known_seconds, LONGEST_SECONDS)) * 1e9))
        shared_store(&self.warm_until, now + <int64_t>(max(0.0, min(warm_seconds, LONGEST_SECONDS)) * 1e9))
        return True

    def rows(self, key):
        return self.read(key)

    cdef int whole(self, int64_t low, int64_t high) except -1:
        """Ask whether files [low, high) still have what they must.

        Each descriptor is held while its file is asked: its number may be that of another file a moment later.
        """
        cdef int64_t f
        cdef tuple held = self.held
        cdef object descriptor
        for f in range(low, high):
            if held[f] is None:
                return False
            descriptor = held[f]()
            if descriptor is None or lseek(descriptor.fd, 0, SEEK_END) < self.end[f]:
                return False
        return True

    cdef object read(self, object key):
        cdef Py_ssize_t start, stop, step, count
        cdef const int64_t *indices
        cdef int64_t n, now = now_ns(), low = 0, high = self.n_files
        if now >= shared_load(&self.known_until):
            return None
        if PySlice_Check(key):
            PySlice_Unpack(key, &start, &stop, &step)
            if step != 1:
                return None
            count = PySlice_AdjustIndices(self.table.n_rows, &start, &stop, step)
            if not 0 < count <= self.most:
                return None
            if high > 1:
                low = self.file[search_segment(self.table, start)]
                high = self.file[search_segment(self.table, start + count - 1)] + 1
            # A file that was cut since must not be touched where it was: asked before every read, which takes 0.3 us.
            return self.range(start, count) if self.whole(low, high) else None
        if not is_plain_array(key) or now >= shared_load(&self.warm_until):
            return None
        indices = int64_items(key, &n)
        if indices == NULL or not 0 < n <= self.most or not self.whole(low, high):
            return None
        return self.gather(indices, n)

    cdef object targets(self, int64_t count, char **out):
        """Return a new array, or a list of them when there are several columns, and their addresses."""
        cdef object made
        cdef list several
        cdef int64_t c
        if self.table.n_columns == 1:
            made = new_array(self.dtypes[0], count)
            out[0] = data_of(made)
            return made
        several = []
        for c in range(self.table.n_columns):
            made = new_array(self.dtypes[c], count)
            out[c] = data_of(made)
            several.append(made)
        return several

    cdef int copy_range(self, int64_t start, int64_t count, char **out) noexcept nogil:
        cdef int64_t c
        cdef int failed = 0
        for c in range(self.table.n_columns):
            failed |= strided_span(self.table, c, start, 1, 0, count, out[c])
        return failed

    cdef object range(self, int64_t start, int64_t count):
        cdef char *out[MOST_COLUMNS]
        cdef object result = self.targets(count, out)
        cdef int failed
        if count * self.row_bytes <= HELD_BYTES:
            failed = self.copy_range(start, count, out)
        else:
            with nogil:
                failed = self.copy_range(start, count, out)
        return None if failed else result

    cdef object gather(self, const int64_t *indices, int64_t count):
        cdef char *out[MOST_COLUMNS]
        cdef object result = self.targets(count, out)
        cdef const bucket_index *b = NULL
        cdef int64_t bad
        cdef int route = route_of_few(self.table, count)
        with nogil:
            if route == ROUTE_BUCKET:
                b = get_buckets(self.table)
                if b == NULL:
                    route = ROUTE_SEARCH
            # No prefetches: so few rows are as fast without when they come from memory, faster from the caches.
            bad = take_span(self.table, b, gather_isa, route, indices, 0, count, out, 0)
        return result if bad < 0 else None


cdef class TableShortcut:
    """Base of an open table; see ``shortcuts.pyi`` for the contract."""

    cdef public bint _holds_itself, _closed
    cdef public object _source

    cdef inline object column(self, object part, object rows):
        return self._column_type(self if self._holds_itself else self._pinned_type(self, self._source), part, rows)

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


cdef class PinnedShortcut:
    """Base of what views see of a table at one moment; see ``shortcuts.pyi`` for the contract."""

    cdef readonly TableShortcut table
    cdef readonly object source

    def __cinit__(self, TableShortcut table not None, source):
        self.table, self.source = table, source


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
        cdef object column = None, source, found
        cdef TableShortcut table = None
        if out is None and copy is True:
            if isinstance(self._holder, TableShortcut):
                table = <TableShortcut>self._holder
                source = table._source
            elif isinstance(self._holder, PinnedShortcut):
                table = (<PinnedShortcut>self._holder).table
                source = (<PinnedShortcut>self._holder).source
            if table is not None and not table._closed:
                column = (<dict>source.quick_columns).get(self._part)
            if column.__class__ is QuickRows:
                found = (<QuickRows>column).read(self._chain)
                if found is not None:
                    return found
        return self._array(copy, out)
