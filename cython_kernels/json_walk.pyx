# cython: language_level=3
"""Messages as JSON text: the walk of colbin.md 12 over flat tables of types, appending to one buffer.

Access pattern: each byte of the message once, front to back. Floats of many digits are spelled by
a callback; whatever is malformed ends the walk without a reason: the twin, `colstore_io.formats.colbin.walk_twin`, finds
it again and names it.
"""

from cpython.bytes cimport PyBytes_AS_STRING
from cpython.unicode cimport PyUnicode_AsUTF8AndSize, PyUnicode_DecodeUTF8
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy, memset

cdef extern from "packed5.h" nogil:
    long packed5_decode(const uint8_t *src, long n, int upper, uint8_t *dst, long cap)
    long PACKED5_MAX_DECODED(long n)

cdef extern from "json_float.h" nogil:
    enum:
        JSON_FLOAT_ROOM
    int json_short_float(uint64_t reversed_bits, int single, char *out)
    uint64_t json_reversed(uint64_t bits, int single)

cdef extern from "column_codec.h" nogil:
    int column_decode(const uint8_t *src, int64_t length, int64_t n, int64_t *out)

# type codes and map kinds (colbin.md 3, 10)
cdef enum:
    BOOL = 0
    I8 = 1
    I64 = 4
    U8 = 5
    U64 = 8
    F32 = 9
    F64 = 10
    STRING = 11
    BYTES = 12
    LIST_I8 = 13
    LIST_I64 = 16
    LIST_U64 = 19
    STRINGS = 20
    RECORD = 21
    RECORDS = 22
    MAP = 23
    OPTIONAL = 24
    DYNAMIC = 25
    DYNAMICS = 26
    OPTIONAL_RECORD = 27
    KIND_STRING = 0
    KIND_SIGNED = 1
    KIND_DYNAMIC = 6
    MAX_NESTING = 128

# columns of the tables of types
cdef enum:
    FIRST = 0
    COUNT = 1
    K8 = 2
    NAME_CHARS = 3
    KEY = 0
    CODE = 1
    A = 2
    B = 3
    NAME_START = 4
    NAME_STOP = 5

cdef const char *HEX = b"0123456789abcdef"
cdef const char *BASE64 = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
cdef int KIND_CODE[6]
KIND_CODE[:] = [STRING, I64, U64, F64, BOOL, F32]


cdef class Walk:
    """One walk. Every method returns 0 where the message is malformed or a bound is reached."""

    cdef const uint8_t *data
    cdef int64_t at
    cdef const int32_t[:, ::1] structs
    cdef const int32_t[:, ::1] fields
    cdef const char *names
    cdef object spell_float
    cdef int64_t max_rows, cells, text
    cdef char *out
    cdef int64_t size, room

    def __dealloc__(self):
        free(self.out)

    # the buffer

    cdef int ensure(self, int64_t more) noexcept nogil:
        cdef char *larger
        cdef int64_t room
        if self.room - self.size >= more:
            return 1
        room = self.room * 2 + more
        larger = <char *>realloc(self.out, room)
        if larger == NULL:
            return 0
        self.out = larger
        self.room = room
        return 1

    cdef inline int put(self, const char *text, int64_t n) noexcept nogil:
        if not self.ensure(n):
            return 0
        memcpy(self.out + self.size, text, n)
        self.size += n
        return 1

    cdef inline int put_one(self, char c) noexcept nogil:
        if self.size >= self.room and not self.ensure(64):
            return 0
        self.out[self.size] = c
        self.size += 1
        return 1

    cdef int put_unsigned(self, uint64_t value) noexcept nogil:
        cdef char digits[20]
        cdef int place = 20
        while True:
            place -= 1
            digits[place] = <char>(48 + value % 10)
            value //= 10
            if value == 0:
                break
        return self.put(&digits[place], 20 - place)

    cdef int put_signed(self, int64_t value) noexcept nogil:
        if value >= 0:
            return self.put_unsigned(<uint64_t>value)
        return self.put_one(c'-') and self.put_unsigned(0 - <uint64_t>value)

    cdef int put_float(self, uint64_t reversed_bits, bint single) noexcept with gil:
        cdef Py_ssize_t n
        cdef const char *text
        try:
            spelled = self.spell_float(reversed_bits, single)
            text = PyUnicode_AsUTF8AndSize(spelled, &n)
            return self.put(text, n)
        except Exception:
            return 0

    cdef int put_escape(self, int code) noexcept nogil:
        cdef char text[6]
        text[0] = c'\\'
        text[1] = c'u'
        text[2] = HEX[code >> 12 & 15]
        text[3] = HEX[code >> 8 & 15]
        text[4] = HEX[code >> 4 & 15]
        text[5] = HEX[code & 15]
        return self.put(text, 6)

    cdef int put_string(self, const uint8_t *s, int64_t n) noexcept nogil:
        """Append bytes as a JSON string (colbin.md 12): escapes; each byte of invalid UTF-8 as \\ufffd."""
        cdef int64_t i = 0, start = 0
        cdef int c, width
        if not (self.ensure(n + 2) and self.put_one(c'"')):
            return 0
        while i < n:
            c = s[i]
            if 0x20 <= c < 0x80 and c != c'"' and c != c'\\' and c != c'<' and c != c'>' and c != c'&':
                i += 1
                continue
            width = 0
            if c >= 0x80:
                width = utf8_width(s + i, n - i)
                if width and not (width == 3 and c == 0xE2 and s[i + 1] == 0x80 and s[i + 2] >> 1 == 0x54):
                    i += width
                    continue
            if not self.put(<const char *>s + start, i - start):
                return 0
            if width:
                if not self.put_escape(0x2028 | (s[i + 2] & 1)):
                    return 0
                i += 3
            else:
                if c == c'"' or c == c'\\':
                    if not (self.put_one(c'\\') and self.put_one(c)):
                        return 0
                elif c == c'\n' or c == c'\r' or c == c'\t':
                    if not (self.put_one(c'\\') and self.put_one(c'n' if c == c'\n' else c'r' if c == c'\r' else c't')):
                        return 0
                elif not self.put_escape(0xFFFD if c >= 0x80 else c):
                    return 0
                i += 1
            start = i
        return self.put(<const char *>s + start, n - start) and self.put_one(c'"')

    cdef int put_base64(self, const uint8_t *s, int64_t n) noexcept nogil:
        cdef int64_t i = 0
        cdef uint64_t three
        cdef char *to
        if not self.ensure((n + 2) // 3 * 4 + 2):
            return 0
        to = self.out + self.size
        to[0] = c'"'
        to += 1
        while i < n:
            three = <uint64_t>s[i] << 16
            if i + 1 < n:
                three |= <uint64_t>s[i + 1] << 8
            if i + 2 < n:
                three |= s[i + 2]
            to[0] = BASE64[three >> 18]
            to[1] = BASE64[three >> 12 & 63]
            to[2] = BASE64[three >> 6 & 63] if i + 1 < n else c'='
            to[3] = BASE64[three & 63] if i + 2 < n else c'='
            to += 4
            i += 3
        to[0] = c'"'
        self.size = to + 1 - self.out
        return 1

    # elements of the wire

    cdef inline int number(self, int size, int64_t end, uint64_t *value) noexcept nogil:
        cdef int i
        cdef uint64_t found = 0
        if size > end - self.at:
            return 0
        for i in range(size):
            found |= <uint64_t>self.data[self.at + i] << (8 * i)
        self.at += size
        value[0] = found
        return 1

    cdef inline int length(self, int64_t end, int64_t *value) noexcept nogil:
        cdef uint64_t wide
        if self.at >= end:
            return 0
        value[0] = self.data[self.at]
        self.at += 1
        if value[0] == 255:
            if not self.number(4, end, &wide):
                return 0
            value[0] = <int64_t>wide
        return 1

    cdef inline int span(self, uint64_t size, int64_t end, int64_t *stop) noexcept nogil:
        if size > <uint64_t>(end - self.at):
            return 0
        stop[0] = self.at + <int64_t>size
        return 1

    cdef inline int sized(self, int lw, int64_t end, int64_t *stop) noexcept nogil:
        cdef uint64_t size
        return self.number(1 << lw, end, &size) and self.span(size, end, stop)

    cdef inline int unsigned4(self, int code, int64_t end, uint64_t *value) noexcept nogil:
        if code < 8:
            value[0] = code
            return 1
        return self.number(code - 7, end, value)

    cdef inline int signed_code(self, int code, int64_t end, int64_t *value) noexcept nogil:
        cdef int size = code & 7
        cdef uint64_t magnitude = 1
        if size and not self.number(8 if size == 7 else size, end, &magnitude):
            return 0
        if code & 8:
            value[0] = <int64_t>magnitude
            return magnitude >> 63 == 0
        value[0] = <int64_t>(0 - magnitude)
        return magnitude <= <uint64_t>1 << 63

    cdef int varint(self, int desc, int64_t end, uint64_t *value) noexcept nogil:
        cdef uint64_t found = desc & 7
        cdef int shift = 3, i, byte
        for i in range(10):
            if self.at >= end:
                return 0
            byte = self.data[self.at]
            self.at += 1
            if shift < 64:
                if shift > 57 and (byte & 127) >> (64 - shift):
                    return 0
                found |= <uint64_t>(byte & 127) << shift
            elif byte & 127:
                return 0
            shift += 7
            if byte < 128:
                value[0] = found
                return 1
        return 0

    cdef inline int unsigned8(self, int desc, int64_t end, uint64_t *value) noexcept nogil:
        cdef int size
        if desc < 0x80:
            value[0] = desc
            return 1
        if desc < 0x90:
            if not desc & 8:
                return 0
            size = desc & 7
            value[0] = 1
            return size == 0 or self.number(8 if size == 7 else size, end, value)
        return desc >= 0xF8 and self.varint(desc, end, value)

    cdef inline int signed8(self, int desc, int64_t end, int64_t *value) noexcept nogil:
        cdef uint64_t folded
        if desc < 0x80:
            value[0] = desc
            return 1
        if desc < 0x90:
            return self.signed_code(desc & 15, end, value)
        if desc < 0xF8 or not self.varint(desc, end, &folded):
            return 0
        value[0] = <int64_t>(folded >> 1 ^ (0 - (folded & 1)))
        return 1

    cdef int scalar_unsigned(self, int code, uint64_t value) noexcept nogil:
        cdef int size
        if code == BOOL:
            if value > 1:
                return 0
            return self.put(b"true", 4) if value else self.put(b"false", 5)
        if code >= F32:
            if code == F32 and value >> 32:
                return 0
            if value == 0:
                return self.put_one(c'0')
            if not self.ensure(JSON_FLOAT_ROOM):
                return 0
            size = json_short_float(value, code == F32, self.out + self.size)
            self.size += size
            return size > 0 or self.put_float(value, code == F32)
        if code < U64 and value >> (8 << (code - U8)):
            return 0
        return self.put_unsigned(value)

    cdef int scalar_signed(self, int code, int64_t value) noexcept nogil:
        cdef int bits = 8 << (code - I8)
        if bits < 64 and (value >= <int64_t>1 << (bits - 1) or value < -(<int64_t>1 << (bits - 1))):
            return 0
        return self.put_signed(value)

    cdef int packed(self, int64_t stop, bint upper) noexcept nogil:
        cdef int64_t n = stop - self.at, size
        cdef uint8_t *text = <uint8_t *>malloc(PACKED5_MAX_DECODED(n) + 1)
        cdef int fine = 0
        if text == NULL:
            return 0
        size = packed5_decode(self.data + self.at, n, upper, text, PACKED5_MAX_DECODED(n))
        if size >= 0:
            fine = self.put_string(text, size)
        free(text)
        self.at = stop
        return fine

    cdef int text_or_bytes(self, int64_t stop, bint is_text) noexcept nogil:
        cdef int64_t start = self.at
        self.at = stop
        if is_text:
            return self.put_string(self.data + start, stop - start)
        return self.put_base64(self.data + start, stop - start)

    cdef int blob4(self, int code, int64_t end, bint is_text) noexcept nogil:
        cdef int64_t stop
        cdef uint64_t size
        if code < 8:
            if self.at >= end:
                return 0
            size = code << 8 | self.data[self.at]
            self.at += 1
            return self.span(size, end, &stop) and self.text_or_bytes(stop, is_text)
        if code < 11:
            return self.sized(code - 7, end, &stop) and self.text_or_bytes(stop, is_text)
        if code == 15 or not is_text or not self.number(4 if code >= 13 else 1, end, &size):
            return 0
        if (code >= 13 and size < 256) or not self.span(size, end, &stop):
            return 0
        return self.packed(stop, code == 12 or code == 14)

    cdef int blob8(self, int desc, int64_t end, bint is_text, bint packable) noexcept nogil:
        cdef int64_t stop
        cdef int encoding = desc >> 2 & 3
        if desc >> 4 != 9 or (encoding and (not packable or encoding == 2)) or not self.sized(desc & 3, end, &stop):
            return 0
        if encoding:
            return self.packed(stop, encoding == 3)
        return self.text_or_bytes(stop, is_text)

    cdef int integers(self, int64_t stop, int w, bint positive, int kind) noexcept nogil:
        cdef uint64_t value
        cdef int64_t signed
        cdef int size = 1 << w, bits
        cdef bint first = True
        if not self.put_one(c'['):
            return 0
        while self.at < stop:
            if not first and not self.put_one(c','):
                return 0
            first = False
            self.number(size, stop, &value)
            if kind == LIST_U64:
                if not positive and w < 3:
                    value = <uint64_t>(<int64_t>(value << (64 - 8 * size)) >> (64 - 8 * size))
                if not self.put_unsigned(value):
                    return 0
                continue
            if positive:
                if value >> 63:
                    return 0
                signed = <int64_t>value
            else:
                signed = <int64_t>(value << (64 - 8 * size)) >> (64 - 8 * size)
            if kind <= LIST_I64:
                if not self.scalar_signed(kind - LIST_I8 + I8, signed):
                    return 0
            else:  # lists of u16, u32
                bits = 16 << (kind - LIST_I64 - 1)
                if signed < 0 or signed >> bits or not self.put_signed(signed):
                    return 0
        return self.put_one(c']')

    cdef int strings(self, int64_t count, int64_t end) noexcept nogil:
        cdef int64_t i, size, stop
        if count > end - self.at or not self.put_one(c'['):
            return 0
        for i in range(count):
            if i and not self.put_one(c','):
                return 0
            if not (self.length(end, &size) and self.span(size, end, &stop) and self.text_or_bytes(stop, True)):
                return 0
        return self.put_one(c']')

    cdef int skip8(self, int64_t end) noexcept nogil:
        cdef int desc, kind
        cdef int64_t ignored
        cdef uint64_t size
        while True:
            if self.at >= end:
                return 0
            desc = self.data[self.at]
            self.at += 1
            if desc < 0x80:
                return 1
            kind = desc >> 4
            if kind == 8:
                size = desc & 7
                return self.span(8 if size == 7 else size, end, &self.at)
            if kind == 10:
                return self.number(4 if desc & 1 else 1, end, &size) and self.span(size, end, &self.at)
            if kind < 15:
                return self.sized(desc & 3, end, &self.at)
            if desc >= 0xF8:
                return self.varint(desc, end, &size)
            if desc == 0xF6:
                return 0
            if desc == 0xF7:
                if not self.length(end, &ignored):
                    return 0
            elif desc < 0xF3:
                return 1

    # records

    cdef int spend(self, int64_t chars) noexcept nogil:
        self.text -= chars
        return self.text >= 0

    cdef int put_name(self, int f) noexcept nogil:
        return self.put(self.names + self.fields[f, NAME_START], self.fields[f, NAME_STOP] - self.fields[f, NAME_START])

    cdef int zero(self, int f, int depth) noexcept nogil:
        cdef int code = self.fields[f, CODE]
        cdef int s, i
        if code == RECORD:
            s = self.fields[f, A]
            if depth >= MAX_NESTING or not self.spend(self.structs[s, NAME_CHARS]) or not self.put_one(c'{'):
                return 0
            for i in range(self.structs[s, COUNT]):
                if i and not self.put_one(c','):
                    return 0
                if not (self.put_name(self.structs[s, FIRST] + i) and self.zero(self.structs[s, FIRST] + i, depth + 1)):
                    return 0
            return self.put_one(c'}')
        if code == BOOL:
            return self.spend(5) and self.put(b"false", 5)
        if code < STRING:
            return self.spend(1) and self.put_one(c'0')
        if code == STRING:
            return self.spend(2) and self.put(b'""', 2)
        return self.spend(4) and self.put(b"null", 4)

    cdef int record(self, int s, bint k8, int64_t end, int depth, bint bare) noexcept nogil:
        """Append a run up to `end` as an object, or as its one value alone (`bare`)."""
        cdef uint64_t seen[4]
        cdef int first = self.structs[s, FIRST], count = self.structs[s, COUNT]
        cdef int hint = 0, key, head, i, f
        cdef bint comma = False
        memset(seen, 0, sizeof(seen))
        if not bare and not self.put_one(c'{'):
            return 0
        while self.at < end:
            head = self.data[self.at]
            self.at += 1
            key = head if k8 else head >> 4
            if seen[key >> 6] >> (key & 63) & 1:
                return 0
            seen[key >> 6] |= <uint64_t>1 << (key & 63)
            if k8 and self.at >= end:
                return 0
            f = -1
            for i in range(count):
                if hint >= count:
                    hint = 0
                if self.fields[first + hint, KEY] == key:
                    f = first + hint
                    hint += 1
                    break
                hint += 1
            if f < 0:
                if not k8 or not self.skip8(end):
                    return 0
                continue
            if not bare and not ((not comma or self.put_one(c',')) and self.put_name(f)):
                return 0
            comma = True
            if k8:
                if not self.field8(f, end, depth):
                    return 0
            elif not self.field4(f, head & 15, end, depth):
                return 0
        if bare:
            return comma or self.zero(first, depth)
        for i in range(count):
            key = self.fields[first + i, KEY]
            if seen[key >> 6] >> (key & 63) & 1:
                continue
            if not ((not comma or self.put_one(c',')) and self.put_name(first + i) and self.zero(first + i, depth)):
                return 0
            comma = True
        return self.spend(self.structs[s, NAME_CHARS]) and self.put_one(c'}')

    cdef int field4(self, int f, int code, int64_t end, int depth) noexcept nogil:
        cdef int what = self.fields[f, CODE], w
        cdef uint64_t u
        cdef int64_t i, stop
        if what == OPTIONAL:
            what = self.fields[f, A]
        if what < STRING:
            if I8 <= what <= I64:
                return self.signed_code(code, end, &i) and self.scalar_signed(what, i)
            return self.unsigned4(code, end, &u) and self.scalar_unsigned(what, u)
        if what <= BYTES:
            return self.blob4(code, end, what == STRING)
        if what < STRINGS:
            w = code >> 1 & 3
            return (self.number(4 if code & 1 else 1, end, &u) and self.span(u << w, end, &stop)
                    and self.integers(stop, w, code & 8, what))
        if what == STRINGS:
            if code < 8:
                if self.at >= end:
                    return 0
                i = code << 8 | self.data[self.at]
                self.at += 1
                return self.strings(i, end)
            if code >= 11 or not self.number(1 << (code - 7), end, &u) or u >> 62:
                return 0
            return self.strings(<int64_t>u, end)
        if what == DYNAMIC or what == DYNAMICS or not self.sized(code & 3, end, &stop):
            return 0
        if what == MAP:
            if code & 8 or self.fields[f, B] == KIND_DYNAMIC:
                return 0
            return self.map(f, False, stop, depth)
        f = self.fields[f, A]
        if what != RECORDS:
            return depth < MAX_NESTING and self.record(f, code & 8, stop, depth + 1, False)
        if code & 8:
            return self.table(f, self.structs[f, K8], stop, depth)
        return self.rows(f, False, stop, depth)

    cdef int field8(self, int f, int64_t end, int depth) noexcept nogil:
        cdef int what = self.fields[f, CODE], w, desc = self.data[self.at]
        cdef uint64_t u
        cdef int64_t i, stop
        self.at += 1
        if what == OPTIONAL:
            what = self.fields[f, A]
        if what < STRING:
            if I8 <= what <= I64:
                return self.signed8(desc, end, &i) and self.scalar_signed(what, i)
            return self.unsigned8(desc, end, &u) and self.scalar_unsigned(what, u)
        if what <= BYTES:
            return self.blob8(desc, end, what == STRING, what == STRING)
        if what < STRINGS:
            w = desc >> 2 & 3
            return (desc >> 4 == 10 and self.number(4 if desc & 1 else 1, end, &u) and u & ((1 << w) - 1) == 0
                    and self.span(u, end, &stop) and self.integers(stop, w, desc & 2, what))
        if what == STRINGS:
            return (desc & 0xF8 == 0xC8 and self.sized(desc & 3, end, &stop) and self.length(stop, &i)
                    and self.strings(i, stop) and self.at == stop)
        if what == DYNAMIC:
            return self.dynamic(desc, end, depth)
        if what == DYNAMICS:
            return self.dynamics(desc, end, depth)
        if what == MAP:
            return desc & 0xF8 == 0xE0 and self.sized(desc & 3, end, &stop) and self.map(f, True, stop, depth)
        f = self.fields[f, A]
        if what == RECORDS:
            return self.rows_or_table8(f, desc, end, depth)
        return (desc >> 4 == 13 and self.sized(desc & 3, end, &stop) and depth < MAX_NESTING
                and self.record(f, desc & 8, stop, depth + 1, False))

    cdef int rows_or_table8(self, int s, int desc, int64_t end, int depth) noexcept nogil:
        cdef int64_t stop
        if desc & 0xF8 == 0xC0:
            return self.sized(desc & 3, end, &stop) and self.rows(s, True, stop, depth)
        if desc & 0xF8 == 0xE8:
            return self.sized(desc & 3, end, &stop) and self.table(s, True, stop, depth)
        return 0

    cdef int rows(self, int s, bint k8, int64_t stop, int depth) noexcept nogil:
        cdef int64_t count, i, size, end
        cdef int desc = self.structs[s, K8] << 3
        depth += 1
        if depth > MAX_NESTING or not self.length(stop, &count):
            return 0
        if count and (depth >= MAX_NESTING or count > (stop - self.at) // (2 if k8 else 1)):
            return 0
        if not self.put_one(c'['):
            return 0
        for i in range(count):
            if i and not self.put_one(c','):
                return 0
            if k8:
                if self.at >= stop or self.data[self.at] >> 4 != 13:
                    return 0
                desc = self.data[self.at]
                self.at += 1
                if not self.sized(desc & 3, stop, &end):
                    return 0
            elif not (self.length(stop, &size) and self.span(size, stop, &end)):
                return 0
            if not self.record(s, desc & 8, end, depth + 1, False):
                return 0
        return self.at == stop and self.put_one(c']')

    cdef int table(self, int s, bint k8, int64_t stop, int depth) noexcept nogil:
        """Append a table as an array of objects (colbin.md 7)."""
        cdef int64_t *values[256]
        cdef int64_t texts[256]
        cdef int64_t rows
        cdef int first = self.structs[s, FIRST], count = self.structs[s, COUNT], i, fine
        if depth >= MAX_NESTING or not self.length(stop, &rows) or rows > self.max_rows:
            return 0
        self.cells -= rows * (count if count else 1)
        if self.cells < 0 or count > 256:
            return 0
        for i in range(count):
            if self.fields[first + i, CODE] > STRING:
                return 0
            values[i] = NULL
            texts[i] = -1
        fine = self.columns(s, k8, rows, stop, values, texts) and self.table_rows(s, rows, stop, values, texts)
        for i in range(count):
            free(values[i])
        self.at = stop
        return fine

    cdef int columns(self, int s, bint k8, int64_t rows, int64_t stop, int64_t **values, int64_t *texts) noexcept nogil:
        """Find the columns of a table: integers decoded to `values`, of texts the place of the first in `texts`."""
        cdef uint64_t seen[4]
        cdef uint64_t n
        cdef int64_t end
        cdef int first = self.structs[s, FIRST], count = self.structs[s, COUNT], absent = count
        cdef int head, code, key, i
        memset(seen, 0, sizeof(seen))
        while self.at < stop:
            head = self.data[self.at]
            self.at += 1
            key = head if k8 else head >> 4
            code = head & 15
            if seen[key >> 6] >> (key & 63) & 1:
                return 0
            seen[key >> 6] |= <uint64_t>1 << (key & 63)
            if k8:
                if self.at >= stop:
                    return 0
                code = self.data[self.at]
            i = 0
            while i < count and self.fields[first + i, KEY] != key:
                i += 1
            if i == count:
                if not k8 or not self.skip8(stop):
                    return 0
                continue
            self.at += k8
            absent -= 1
            if self.fields[first + i, CODE] == STRING:
                end = stop
                if k8:
                    if code & 0xF8 != 0xC8 or not self.sized(code & 3, stop, &end) or not self.length(end, <int64_t *>&n):
                        return 0
                elif code < 8:
                    if self.at >= stop:
                        return 0
                    n = code << 8 | self.data[self.at]
                    self.at += 1
                elif code >= 11 or not self.number(1 << (code - 7), stop, &n):
                    return 0
                if n != <uint64_t>rows:
                    return 0
                texts[i] = self.at
                if not self.skip_texts(rows, end) or (k8 and self.at != end):
                    return 0
                continue
            if (k8 and code >> 4 != 11) or (not k8 and code & 8 != 0) or not self.sized(code & 3, stop, &end):
                return 0
            values[i] = <int64_t *>malloc(8 * rows + 8)
            if values[i] == NULL or column_decode(self.data + self.at, end - self.at, rows, values[i]):
                return 0
            self.at = end
        return self.spend(rows * (self.structs[s, NAME_CHARS] + 5 * absent))

    cdef int skip_texts(self, int64_t count, int64_t end) noexcept nogil:
        cdef int64_t i, size
        for i in range(count):
            if not (self.length(end, &size) and self.span(size, end, &self.at)):
                return 0
        return 1

    cdef int table_rows(self, int s, int64_t rows, int64_t stop, int64_t **values, int64_t *texts) noexcept nogil:
        cdef int first = self.structs[s, FIRST], count = self.structs[s, COUNT], i, code
        cdef int64_t row, size, end, value
        if not self.put_one(c'['):
            return 0
        for row in range(rows):
            if (row and not self.put_one(c',')) or not self.put_one(c'{'):
                return 0
            for i in range(count):
                if (i and not self.put_one(c',')) or not self.put_name(first + i):
                    return 0
                code = self.fields[first + i, CODE]
                if code == STRING:
                    if texts[i] < 0:
                        if not self.put(b'""', 2):
                            return 0
                        continue
                    self.at = texts[i]
                    if not (self.length(stop, &size) and self.span(size, stop, &end) and self.text_or_bytes(end, True)):
                        return 0
                    texts[i] = end
                    continue
                value = values[i][row] if values[i] != NULL else 0
                if I8 <= code <= I64:
                    if not self.scalar_signed(code, value):
                        return 0
                elif code == F32 or code == F64:
                    if (code == F32 and value >> 32) or not self.scalar_unsigned(
                            code, json_reversed(<uint64_t>value, code == F32)):
                        return 0
                elif (value < 0 and code != U64) or not self.scalar_unsigned(code, <uint64_t>value):
                    return 0
            if not self.put_one(c'}'):
                return 0
        return self.put_one(c']')

    # maps and dynamic values

    cdef int map(self, int f, bint k8, int64_t stop, int depth) noexcept nogil:
        cdef int64_t count, i
        cdef int key_kind = self.fields[f, A], value_kind = self.fields[f, B]
        cdef bint quoted = key_kind != KIND_STRING
        depth += 1
        if depth > MAX_NESTING or not self.length(stop, &count) or count > (stop - self.at) // 2 or not self.put_one(c'{'):
            return 0
        for i in range(count):
            if i and not self.put_one(c','):
                return 0
            if quoted and not self.put_one(c'"'):
                return 0
            if not self.element(key_kind, k8, stop, depth):
                return 0
            if quoted and not self.put_one(c'"'):
                return 0
            if not (self.put_one(c':') and self.element(value_kind, k8, stop, depth)):
                return 0
        return self.at == stop and self.put_one(c'}')

    cdef int element(self, int kind, bint k8, int64_t stop, int depth) noexcept nogil:
        cdef int head
        cdef uint64_t u
        cdef int64_t i, end
        if self.at >= stop:
            return 0
        head = self.data[self.at]
        self.at += 1
        if not k8:
            head &= 15
        if kind == KIND_STRING:
            if k8:
                return self.blob8(head, stop, True, False)
            return self.sized(head & 3, stop, &end) and self.text_or_bytes(end, True)
        if kind == KIND_DYNAMIC:
            return self.dynamic(head, stop, depth)
        if kind == KIND_SIGNED:
            if not (self.signed8(head, stop, &i) if k8 else self.signed_code(head, stop, &i)):
                return 0
            return self.put_signed(i)
        if not (self.unsigned8(head, stop, &u) if k8 else self.unsigned4(head, stop, &u)):
            return 0
        return self.scalar_unsigned(KIND_CODE[kind], u)

    cdef int dynamic_integer(self, int desc, int64_t end) noexcept nogil:
        cdef uint64_t u
        cdef int64_t i
        if 0x80 <= desc < 0x88:
            return self.signed8(desc, end, &i) and self.put_signed(i)
        return self.unsigned8(desc, end, &u) and self.put_unsigned(u)

    cdef int dynamic(self, int desc, int64_t end, int depth) noexcept nogil:
        cdef int64_t stop
        cdef uint64_t u
        if desc < 0x90 or desc >= 0xF8:
            return self.dynamic_integer(desc, end)
        if desc < 0xA0:
            return self.blob8(desc, end, True, False)
        if desc & 0xF8 == 0xC0:
            return self.sized(desc & 3, end, &stop) and self.dynamic_list(stop, depth + 1)
        if desc & 0xF8 == 0xE0:
            return self.sized(desc & 3, end, &stop) and self.dynamic_map(stop, depth + 1)
        if desc == 0xF0:
            return self.put(b"null", 4)
        if desc == 0xF1:
            return self.put(b"true", 4)
        if desc == 0xF2:
            return self.put(b"false", 5)
        if desc < 0xF0 or desc == 0xF6 or self.at >= end:
            return 0
        if desc == 0xF7:
            return self.typed(end, depth)
        self.at += 1
        if desc == 0xF5:
            return self.blob8(self.data[self.at - 1], end, False, False)
        if not self.unsigned8(self.data[self.at - 1], end, &u):
            return 0
        return self.scalar_unsigned(F64 if desc == 0xF3 else F32, u)

    cdef int dynamic_list(self, int64_t stop, int depth) noexcept nogil:
        cdef int64_t count, i
        if depth > MAX_NESTING or not self.length(stop, &count) or count > stop - self.at or not self.put_one(c'['):
            return 0
        for i in range(count):
            if (i and not self.put_one(c',')) or self.at >= stop:
                return 0
            self.at += 1
            if not self.dynamic(self.data[self.at - 1], stop, depth):
                return 0
        return self.at == stop and self.put_one(c']')

    cdef int dynamic_map(self, int64_t stop, int depth) noexcept nogil:
        cdef int64_t count, i
        cdef int desc
        if depth > MAX_NESTING or not self.length(stop, &count) or count > (stop - self.at) // 2 or not self.put_one(c'{'):
            return 0
        for i in range(count):
            if (i and not self.put_one(c',')) or self.at >= stop:
                return 0
            desc = self.data[self.at]
            self.at += 1
            if desc < 0x90 or desc >= 0xF8:
                if not (self.put_one(c'"') and self.dynamic_integer(desc, stop) and self.put_one(c'"')):
                    return 0
            elif not self.blob8(desc, stop, True, False):
                return 0
            if not self.put_one(c':') or self.at >= stop:
                return 0
            self.at += 1
            if not self.dynamic(self.data[self.at - 1], stop, depth):
                return 0
        return self.at == stop and self.put_one(c'}')

    cdef int typed(self, int64_t end, int depth) noexcept nogil:
        cdef int64_t index, stop
        cdef int desc
        if not self.length(end, &index) or index >= self.structs.shape[0] or self.at >= end:
            return 0
        desc = self.data[self.at]
        self.at += 1
        if desc >> 4 == 13:
            return (depth < MAX_NESTING and self.sized(desc & 3, end, &stop)
                    and self.record(<int>index, desc & 8, stop, depth + 1, False))
        return self.rows_or_table8(<int>index, desc, end, depth)

    cdef int dynamics(self, int desc, int64_t end, int depth) noexcept nogil:
        cdef int64_t start = self.at, ignored
        if desc == 0xF7:
            if not self.length(end, &ignored) or self.at >= end or self.data[self.at] >> 4 == 13:
                return 0
            self.at = start
        elif desc != 0xF0 and desc & 0xF8 != 0xC0:
            return 0
        return self.dynamic(desc, end, depth)


cdef int utf8_width(const uint8_t *s, int64_t n) noexcept nogil:
    """Bytes of the character at `s`, 0 where there is none: no overlong forms, no surrogates, up to U+10FFFF."""
    cdef int c = s[0]
    if 0xC2 <= c < 0xE0:
        return 2 if n >= 2 and s[1] >> 6 == 2 else 0
    if 0xE0 <= c < 0xF0:
        if n < 3 or s[1] >> 6 != 2 or s[2] >> 6 != 2:
            return 0
        return 0 if (c == 0xE0 and s[1] < 0xA0) or (c == 0xED and s[1] >= 0xA0) else 3
    if 0xF0 <= c < 0xF5:
        if n < 4 or s[1] >> 6 != 2 or s[2] >> 6 != 2 or s[3] >> 6 != 2:
            return 0
        return 0 if (c == 0xF0 and s[1] < 0x90) or (c == 0xF4 and s[1] >= 0x90) else 4
    return 0


def render(bytes message not None, int64_t start, bint k8, bint bare, const int32_t[:, ::1] structs not None,
           const int32_t[:, ::1] fields not None, bytes names not None, spell_float, int64_t max_rows,
           int64_t max_cells, int64_t max_text):
    cdef Walk walk = Walk()
    cdef int64_t end = len(message)
    cdef int fine
    if structs.shape[0] == 0 or structs.shape[1] != 4 or fields.shape[1] != 6 or start < 0 or start > end:
        raise ValueError("tables of types do not have the right shape")
    walk.data = <const uint8_t *>PyBytes_AS_STRING(message)
    walk.at = start
    walk.structs = structs
    walk.fields = fields
    walk.names = PyBytes_AS_STRING(names)
    walk.spell_float = spell_float
    walk.max_rows = max_rows
    walk.cells = max_cells
    walk.text = max_text
    walk.room = 4 * (end - start) + 256
    walk.out = <char *>malloc(walk.room)
    if walk.out == NULL:
        raise MemoryError
    with nogil:
        fine = walk.record(0, k8, end, 1, bare)
    if not fine and walk.text < 0:
        return walk.at
    return PyUnicode_DecodeUTF8(walk.out, walk.size, NULL) if fine else None
