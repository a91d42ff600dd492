# cython: language_level=3
"""Runs of flat colbin records, and tables, to columns and back (colbin.md 5 to 7); loops in record_columns.h.

Access pattern: one sequential pass over the records that scatters into the columns, a second one over the values of
variable length alone. Nothing here allocates in proportion to what the bytes claim: outputs are the caller's.
"""

from cpython.buffer cimport PyBUF_C_CONTIGUOUS, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t, uintptr_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memset

cdef extern from "record_columns.h" nogil:
    ctypedef struct layout_field:
        uint8_t key
        uint8_t code
        uint8_t optional
        int32_t target
    ctypedef struct layout_node:
        int k8
        int32_t first
        int32_t count
        short by_key[256]
    ctypedef struct column_target:
        char *values
        uint8_t *validity
        int64_t *place
        int64_t *size
    ctypedef struct record_reader:
        const uint8_t *data
        const layout_node *nodes
        const layout_field *fields
        const column_target *columns
        const uint8_t *at
    ctypedef struct column_source:
        const char *values
        const uint8_t *validity
        const int64_t *offsets
        const int64_t *inner
        const uint8_t *bytes
    ctypedef struct record_writer:
        const layout_node *nodes
        const layout_field *fields
        const column_source *columns
    int TYPE_RECORD, TYPE_STRING, TYPE_LIST_I8, TYPE_STRINGS
    const uint8_t *record_itemsize
    int COLUMN_I64, COLUMN_I32, COLUMN_I16, COLUMN_I8, COLUMN_U32, COLUMN_U16, COLUMN_U8, COLUMN_BOOL
    int64_t column_itemsize(int kind)
    int column_best_isa()
    int column_decode_as(int isa, int kind, const uint8_t *src, int64_t length, int64_t n, void *out)
    int read_rows(record_reader *r, int k8, const uint8_t *p, const uint8_t *end, int64_t first, int64_t stop)
    int read_messages(record_reader *r, const int64_t *start, const int64_t *length, int64_t rows)
    ctypedef struct text_target:
        char **offsets
        int wide
        uint8_t *text
    int find_columns(record_reader *r, int k8, const uint8_t *p, const uint8_t *end, int64_t rows, int64_t *start,
                     int64_t *length, const text_target *texts)
    int find_field(record_reader *r, int k8, const uint8_t *p, const uint8_t *end, int wanted, int *code,
                   const uint8_t **start, const uint8_t **stop)
    int64_t copy_texts(const uint8_t *data, int64_t length, const int64_t *place, int64_t *size, int64_t rows,
                       int type, uint8_t *out, int64_t *bad)
    int copy_lists(const uint8_t *data, int64_t length, const int64_t *place, const int64_t *size, int64_t rows,
                   int type, char *out, int64_t *bad)
    int64_t string_list_bytes(const uint8_t *data, int64_t length, const int64_t *place, int64_t rows)
    int64_t copy_string_lists(const uint8_t *data, int64_t length, const int64_t *place, const int64_t *sizes,
                              int64_t rows, int64_t *offsets, uint8_t *out, int64_t capacity)
    int64_t run_overhead(const record_writer *w, int32_t number, int64_t rows)
    uint8_t *write_rows(const record_writer *w, int64_t begin, int64_t end, uint8_t *p)
    uint8_t *write_messages(const record_writer *w, int64_t begin, int64_t end, int64_t *stop, uint8_t *p)
    uint8_t *write_strings(uint8_t *p, int k8, int key, const column_source *c, int64_t begin, int64_t end)

cdef int BEST_ISA = column_best_isa()

# How the column codec puts the scalars of type codes 0 to 10 into memory.
cdef int[11] KIND_OF
KIND_OF[:] = [COLUMN_BOOL, COLUMN_I8, COLUMN_I16, COLUMN_I32, COLUMN_I64, COLUMN_U8, COLUMN_U16, COLUMN_U32, COLUMN_I64,
              COLUMN_U32, COLUMN_I64]

WRONG = (
    "",
    "a field, length or element runs past the end of its enclosing bytes",
    "a key that the record type does not declare; four-bit runs cannot be stepped over",
    "a key occurs twice in one record",
    "a value's class does not fit the field's type",
    "a value is outside the range of the field's type",
    "a text or bytes header that is reserved or does not fit the field",
    "a list's length does not fit its elements",
    "a varint is too long, or does not fit 64 bits",
    "a magnitude is outside the range of its sign, or negative in an unsigned field",
    "bytes are left over behind the last element",
    "packed text is malformed",
    "records are nested too deep",
    "a column of text has another number of elements than the table has rows",
    "a message does not begin with D0 or D8",
)


cdef class Layout:
    cdef layout_node *nodes
    cdef layout_field *fields
    cdef uint8_t *codes  # by column: the type, 255 where no field has it
    cdef uint8_t *optional
    cdef bint skips
    cdef readonly int n_columns
    cdef readonly int n_fields

    def __cinit__(self, record_types not None):
        cdef int count = len(record_types), total = sum(len(fields) for _, fields in record_types), at = 0, n, f
        self.nodes = <layout_node *>malloc((count + 1) * sizeof(layout_node))
        self.fields = <layout_field *>malloc((total + 1) * sizeof(layout_field))
        self.codes = <uint8_t *>malloc(total + 1)
        self.optional = <uint8_t *>malloc(total + 1)
        if self.nodes == NULL or self.fields == NULL or self.codes == NULL or self.optional == NULL:
            raise MemoryError
        memset(self.codes, 255, total + 1)
        self.n_fields = len(record_types[0][1])
        for n in range(count):
            k8, fields = record_types[n]
            self.nodes[n].k8 = bool(k8)
            self.nodes[n].first = at
            self.nodes[n].count = len(fields)
            memset(self.nodes[n].by_key, 255, sizeof(self.nodes[n].by_key))
            for f, (key, code, optional, target) in enumerate(fields):
                if code == TYPE_RECORD and target >= 0:
                    if target <= n or target >= count:
                        raise ValueError("a nested record's number is above its parent's, and below the count")
                elif target >= 0:
                    if target >= total or code > TYPE_RECORD or self.codes[<int>target] != 255:
                        raise ValueError("columns are counted from 0, each is one field, and has the type of a column")
                    self.n_columns = max(self.n_columns, target + 1)
                    self.codes[<int>target] = code
                    self.optional[<int>target] = bool(optional)
                else:
                    self.skips = True
                self.fields[at].key = key
                self.fields[at].code = code
                self.fields[at].optional = bool(optional)
                self.fields[at].target = target
                self.nodes[n].by_key[<int>key] = f
                at += 1

    def __dealloc__(self):
        free(self.nodes)
        free(self.fields)
        free(self.codes)
        free(self.optional)


cdef class Targets:
    """Pointers of the columns that a reader fills; keeps their arrays alive."""
    cdef column_target *columns
    cdef object kept
    cdef int64_t rows

    def __cinit__(self, Layout layout, columns, int64_t rows):
        cdef int c, count = len(columns)
        cdef uint8_t[::1] values
        cdef int64_t[::1] numbers
        if count != layout.n_columns:
            raise ValueError(f"{layout.n_columns} columns are read, targets of {count} were given")
        self.kept = columns
        self.columns = <column_target *>malloc((count + 1) * sizeof(column_target))
        if self.columns == NULL:
            raise MemoryError
        memset(self.columns, 0, (count + 1) * sizeof(column_target))
        if rows == 0:
            return
        for c, (data, validity, place, size) in enumerate(columns):
            if layout.codes[c] == 255:
                continue
            if layout.codes[c] < TYPE_STRING:
                values = data
                if values is None or values.shape[0] // record_itemsize[layout.codes[c]] < rows:
                    raise ValueError(f"column {c} has no room for {rows} rows")
                self.columns[c].values = <char *>&values[0]
            else:
                numbers = place
                if numbers is None or numbers.shape[0] < rows:
                    raise ValueError(f"column {c} has no room for {rows} rows")
                self.columns[c].place = &numbers[0]
                numbers = size
                if numbers is None or numbers.shape[0] < rows:
                    raise ValueError(f"column {c} has no room for {rows} rows")
                self.columns[c].size = &numbers[0]
            if layout.optional[c]:
                values = validity
                if values is None or values.shape[0] < rows:
                    raise ValueError(f"the validity of column {c} has no room for {rows} rows")
                self.columns[c].validity = &values[0]

    def __dealloc__(self):
        free(self.columns)


cdef int check_span(int64_t begin, int64_t end, int64_t length) except -1:
    if not 0 <= begin <= end <= length:
        raise ValueError(f"[{begin}, {end}) is not within the {length} bytes")
    return 0


cdef record_reader reader_of(Layout layout, const uint8_t *data) noexcept:
    cdef record_reader reader
    reader.data = data
    reader.at = data
    reader.nodes = layout.nodes
    reader.fields = layout.fields
    reader.columns = NULL
    return reader


def read_list(Layout layout not None, const uint8_t[::1] data not None, int64_t begin, int64_t end, int64_t first,
              int64_t stop, int k8, columns not None):
    cdef record_reader reader
    cdef Targets targets
    cdef int wrong
    check_span(begin, end, data.shape[0])
    check_span(first, stop, stop)
    targets = Targets(layout, columns, stop)
    reader = reader_of(layout, &data[0] if data.shape[0] else NULL)
    reader.columns = targets.columns
    with nogil:
        wrong = read_rows(&reader, k8, reader.data + begin, reader.data + end, first, stop)
    return wrong, reader.at - reader.data


def read_records(Layout layout not None, const uint8_t[::1] data not None, const int64_t[::1] start not None,
                 const int64_t[::1] length not None, columns not None):
    cdef record_reader reader
    cdef Targets targets
    cdef int64_t rows = start.shape[0], row
    cdef int wrong
    if length.shape[0] != rows:
        raise ValueError("start and length must have the same length")
    for row in range(rows):
        if start[row] < 0 or length[row] < 0 or start[row] > data.shape[0] - length[row]:
            raise ValueError(f"message {row} lies outside the data")
    if rows == 0:
        return 0, 0
    targets = Targets(layout, columns, rows)
    reader = reader_of(layout, &data[0] if data.shape[0] else NULL)
    reader.columns = targets.columns
    with nogil:
        wrong = read_messages(&reader, &start[0], &length[0], rows)
    return wrong, reader.at - reader.data


cdef class Texts:
    """Memory for the text columns of a table: of `outs`, what belongs to fields of text."""
    cdef text_target target
    cdef char **offsets
    cdef object kept

    def __cinit__(self, Layout layout, outs, text, int64_t rows, int64_t room):
        cdef int c
        cdef int32_t[::1] narrow
        cdef int64_t[::1] broad
        cdef uint8_t[::1] to = text
        if rows < 0 or len(outs) < layout.n_fields:
            raise ValueError(f"outs needs room for {layout.n_fields} columns of a number of rows")
        self.kept = [text]
        self.offsets = <char **>calloc(layout.n_fields + 1, sizeof(char *))
        if self.offsets == NULL:
            raise MemoryError
        self.target.offsets = self.offsets
        self.target.wide = room > 0x7fffffff
        if text is not None:
            if to.shape[0] < room:
                raise ValueError(f"text needs room for {room} bytes")
            self.target.text = &to[0] if to.shape[0] else NULL
        for c in range(layout.n_fields):
            if layout.fields[c].code != TYPE_STRING or outs[c] is None:
                continue
            if text is None:
                raise ValueError("text columns need memory for their text")
            if self.target.wide:
                broad = outs[c]
                if broad.shape[0] != rows + 1:
                    raise ValueError("offsets are one number more than there are rows")
                broad[0] = 0
                self.offsets[c] = <char *>&broad[0]
            else:
                narrow = outs[c]
                if narrow.shape[0] != rows + 1:
                    raise ValueError("offsets are one number more than there are rows")
                narrow[0] = 0
                self.offsets[c] = <char *>&narrow[0]
            self.kept.append(outs[c])

    def __dealloc__(self):
        free(self.offsets)


def table_columns(Layout layout not None, const uint8_t[::1] data not None, int64_t begin, int64_t end, int64_t rows,
                  int k8, outs not None, text, int64_t[::1] start not None, int64_t[::1] length not None):
    cdef record_reader reader
    cdef Texts texts
    cdef int wrong
    check_span(begin, end, data.shape[0])
    if start.shape[0] < layout.n_fields or length.shape[0] < layout.n_fields:
        raise ValueError(f"start and length need room for {layout.n_fields} columns")
    texts = Texts(layout, outs, text, rows, end - begin)
    reader = reader_of(layout, &data[0] if data.shape[0] else NULL)
    with nogil:
        wrong = find_columns(&reader, k8, reader.data + begin, reader.data + end, rows, &start[0], &length[0],
                             &texts.target)
    return wrong, reader.at - reader.data


def read_table(Layout layout not None, const uint8_t[::1] data not None, int64_t begin, int64_t end, int64_t rows,
               int k8, outs not None, text, int64_t[::1] start not None, int64_t[::1] length not None):
    cdef Py_buffer view
    cdef int wrong, c, code, kind
    cdef const uint8_t *bytes_ = &data[0] if data.shape[0] else NULL
    wrong, at = table_columns(layout, data, begin, end, rows, k8, outs, text, start, length)
    if wrong:
        return wrong, at, -1
    for c in range(layout.n_fields):
        out = outs[c]
        code = layout.fields[c].code
        if out is None or code == TYPE_STRING:
            continue
        if code > TYPE_STRING:
            raise ValueError(f"column {c} has no fixed width")
        kind = KIND_OF[code]
        PyObject_GetBuffer(out, &view, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE)
        try:
            if view.len != rows * column_itemsize(kind):
                raise ValueError(f"the memory of column {c} does not have {rows} rows")
            with nogil:
                if start[c] < 0:
                    memset(view.buf, 0, view.len)
                else:
                    wrong = column_decode_as(BEST_ISA, kind, bytes_ + start[c], length[c], rows, view.buf)
        finally:
            PyBuffer_Release(&view)
        if wrong:
            return wrong, start[c], c
    return 0, 0, -1


def locate(Layout layout not None, const uint8_t[::1] data not None, int64_t begin, int64_t end, int k8, int key):
    cdef record_reader reader
    cdef int wrong, code
    cdef const uint8_t *start
    cdef const uint8_t *stop
    check_span(begin, end, data.shape[0])
    reader = reader_of(layout, &data[0] if data.shape[0] else NULL)
    start = stop = reader.data
    with nogil:
        wrong = find_field(&reader, k8, reader.data + begin, reader.data + end, key, &code, &start, &stop)
    if wrong:
        return wrong, reader.at - reader.data, 0, 0
    return 0, code, start - reader.data, stop - reader.data


cdef int64_t sum_of_sizes(const int64_t[::1] place, const int64_t[::1] size) except -1:
    """Sum what pass one found to copy; ValueError for what it cannot have found."""
    cdef int64_t row, total = 0
    if place.shape[0] != size.shape[0]:
        raise ValueError("place and size must have the same length")
    for row in range(size.shape[0]):
        if size[row] < 0 or size[row] > 0x7fffffffffffffff - total:
            raise ValueError(f"row {row} has an impossible size: {size[row]}")
        total += size[row]
    return total


def texts(const uint8_t[::1] data not None, const int64_t[::1] place not None, int64_t[::1] size not None, int code,
          uint8_t[::1] out not None):
    cdef int64_t bad = 0, total, rows = place.shape[0]
    if code != TYPE_STRING and code != TYPE_STRING + 1:
        raise ValueError(f"type {code} is no text")
    total = sum_of_sizes(place, size)
    if out.shape[0] < total:
        raise ValueError("out is too small for the texts")
    if rows:
        with nogil:
            total = copy_texts(&data[0], data.shape[0], &place[0], &size[0], rows, code,
                               &out[0] if out.shape[0] else <uint8_t *>&bad, &bad)
    return total, (bad if total < 0 else -1)


def integer_lists(const uint8_t[::1] data not None, const int64_t[::1] place not None, const int64_t[::1] size not None,
                  int code, out not None):
    cdef int64_t bad = -1, total, rows = place.shape[0]
    cdef uint8_t[::1] to = out
    if not TYPE_LIST_I8 <= code < TYPE_STRINGS:
        raise ValueError(f"type {code} is no list of integers")
    total = sum_of_sizes(place, size)
    if to.shape[0] // <int64_t>[1, 2, 4, 8, 2, 4, 8][code - TYPE_LIST_I8] < total:
        raise ValueError("out is too small for the elements")
    if total:
        with nogil:
            copy_lists(&data[0], data.shape[0], &place[0], &size[0], rows, code, <char *>&to[0], &bad)
    return bad


def string_lists_bytes(const uint8_t[::1] data not None, const int64_t[::1] place not None):
    cdef int64_t total = 0
    if place.shape[0]:
        with nogil:
            total = string_list_bytes(&data[0], data.shape[0], &place[0], place.shape[0])
    return total


def string_lists(const uint8_t[::1] data not None, const int64_t[::1] place not None, const int64_t[::1] size not None,
                 int64_t[::1] offsets not None, uint8_t[::1] out not None):
    cdef int64_t total = sum_of_sizes(place, size), bad = -1
    cdef uint8_t nothing
    if offsets.shape[0] - 1 != total:
        raise ValueError("offsets must have one entry more than there are elements")
    offsets[0] = 0
    if total:
        with nogil:
            bad = copy_string_lists(&data[0], data.shape[0], &place[0], &size[0], place.shape[0], &offsets[0],
                                    &out[0] if out.shape[0] else &nothing, out.shape[0])
    return bad


cdef int64_t spanned(const int64_t[::1] offsets, int64_t begin, int64_t end, int64_t length) except -1:
    """Return what offsets [begin, end] span; ValueError unless they do not decrease and lie in [0, length]."""
    cdef int64_t i
    cdef bint sound
    if offsets is None or offsets.shape[0] <= end:
        raise ValueError(f"there must be {end + 1} offsets")
    sound = offsets[begin] >= 0 and offsets[end] <= length
    for i in range(begin, end):
        sound = sound and offsets[i] <= offsets[i + 1]
    if not sound:
        raise ValueError(f"offsets must not decrease, nor pass {length}")
    return offsets[end] - offsets[begin]


cdef class Sources:
    """Pointers of the columns that a writer reads; keeps their arrays alive. `room`: bytes that rows may take."""
    cdef column_source *columns
    cdef object kept
    cdef int64_t room

    def __cinit__(self, Layout layout, columns, int64_t begin, int64_t end):
        cdef int c, code, count = len(columns)
        cdef int64_t items, length, rows = end - begin
        cdef const uint8_t[::1] raw
        cdef const int64_t[::1] numbers
        cdef record_writer writer
        if count != layout.n_columns:
            raise ValueError(f"{layout.n_columns} columns are written, {count} were given")
        if begin < 0 or end > 1 << 40 or layout.skips:
            raise ValueError("rows are counted from 0, and written whole")
        self.kept = columns
        self.columns = <column_source *>malloc((count + 1) * sizeof(column_source))
        if self.columns == NULL:
            raise MemoryError
        memset(self.columns, 0, (count + 1) * sizeof(column_source))
        if rows <= 0:
            return
        writer.nodes, writer.fields, writer.columns = layout.nodes, layout.fields, self.columns
        self.room = 5 * rows + run_overhead(&writer, 0, rows)
        for c, (values, validity, offsets, inner, data) in enumerate(columns):
            code = layout.codes[c]
            if code == 255:
                continue
            if validity is not None and len(validity):
                raw = validity
                if raw.shape[0] < end:
                    raise ValueError(f"the validity of column {c} has no {end} rows")
                self.columns[c].validity = &raw[0]
            raw = values if values is not None and len(values) else None
            if raw is not None:
                self.columns[c].values = <const char *>&raw[0]
            length = 0 if raw is None else raw.shape[0]
            if code < TYPE_STRING:
                if length // record_itemsize[code] < end:
                    raise ValueError(f"column {c} has no {end} rows")
                continue
            raw = data if data is not None and len(data) else None
            if raw is not None:
                self.columns[c].bytes = &raw[0]
            if TYPE_LIST_I8 <= code < TYPE_STRINGS:
                length //= <int64_t>[1, 2, 4, 8, 2, 4, 8][code - TYPE_LIST_I8]
            else:
                length = 0 if raw is None else raw.shape[0]
            if code == TYPE_STRINGS:
                numbers = inner
                if numbers is None or numbers.shape[0] < 1:
                    raise ValueError(f"the lists of column {c} need offsets of their elements")
                self.columns[c].inner = &numbers[0]
                numbers = offsets
                items = spanned(numbers, begin, end, self.kept[c][3].shape[0] - 1)
                self.columns[c].offsets = &numbers[0]
                self.room += 5 * items
                if items:
                    self.room += spanned(self.kept[c][3], numbers[begin], numbers[end], length)
                continue
            numbers = offsets
            items = spanned(numbers, begin, end, length)
            self.columns[c].offsets = &numbers[0]
            self.room += items if code < TYPE_LIST_I8 else 8 * items

    def __dealloc__(self):
        free(self.columns)


def write_list(Layout layout not None, columns not None, int64_t begin, int64_t end, uint8_t[::1] out not None):
    cdef record_writer writer
    cdef Sources sources = Sources(layout, columns, begin, end)
    cdef uint8_t *stop
    if begin >= end:
        return 0
    if out.shape[0] < sources.room:
        raise ValueError(f"out must have room for {sources.room} bytes, got {out.shape[0]}")
    writer.nodes = layout.nodes
    writer.fields = layout.fields
    writer.columns = sources.columns
    with nogil:
        stop = write_rows(&writer, begin, end, &out[0])
    return stop - &out[0]


def write_records(Layout layout not None, columns not None, int64_t begin, int64_t end, int64_t[::1] stop not None,
                  uint8_t[::1] out not None):
    cdef record_writer writer
    cdef Sources sources = Sources(layout, columns, begin, end)
    cdef uint8_t *last
    if begin >= end:
        return 0
    if stop.shape[0] != end - begin:
        raise ValueError("stop must have one element per row")
    if out.shape[0] < sources.room:
        raise ValueError(f"out must have room for {sources.room} bytes, got {out.shape[0]}")
    writer.nodes = layout.nodes
    writer.fields = layout.fields
    writer.columns = sources.columns
    with nogil:
        last = write_messages(&writer, begin, end, &stop[0], &out[0])
    return last - &out[0]


def write_string_column(int k8, int key, const int64_t[::1] offsets not None, const uint8_t[::1] data not None,
                        uint8_t[::1] out not None):
    cdef column_source source
    cdef int64_t rows = offsets.shape[0] - 1, size
    cdef uint8_t *stop
    memset(&source, 0, sizeof(source))
    if rows < 0:
        raise ValueError("offsets must have one entry more than there are rows")
    size = spanned(offsets, 0, rows, data.shape[0])
    source.inner = &offsets[0]
    source.bytes = &data[0] if data.shape[0] else NULL
    if out.shape[0] < size + 5 * rows + 16:
        raise ValueError("out is too small for the column")
    with nogil:
        stop = write_strings(&out[0], k8, key, &source, 0, rows)
    return stop - &out[0]
