/* Primitives of colbin's wire format (colbin.md 1, 5, 6): integers, lengths and headers, read and written.
 *
 * Plain C without Python. Readers get the end of their buffer and never look past it; they may load, and ignore, the
 * CB_LEAD bytes before its beginning. On bad bytes they return NULL and name the reason. Writers need the room that their comment states, eight bytes of slack included: an integer of any
 * width is one eight-byte store, of which the cursor keeps what counts. */
#ifndef COLSTORE_WIRE_H
#define COLSTORE_WIRE_H

#include <stdint.h>
#include <string.h>

#include "kernel_math.h"

/* Type codes of fields (colbin.md 3). */
enum {
  CB_BOOL, CB_I8, CB_I16, CB_I32, CB_I64, CB_U8, CB_U16, CB_U32, CB_U64, CB_F32, CB_F64, CB_STR, CB_BYTES,
  CB_VEC_I8, CB_VEC_I16, CB_VEC_I32, CB_VEC_I64, CB_VEC_U16, CB_VEC_U32, CB_VEC_U64,
  CB_STRS, CB_RECORD, CB_RECORDS, CB_MAP, CB_OPTIONAL, CB_ANY, CB_ANYS, CB_OPTIONAL_RECORD
};

#define CB_MAX_DEPTH 128
#define CB_TABLE_ROWS 8   /* lists of records of at least this length become tables (colbin.md 7) */
#define CB_LEAD 7         /* readable bytes in front of what readers get: a bytes object has its hash there */
#define CB_PUT_ROOM 24    /* enough for any key, descriptor, integer or length, slack included */

/* Bounds of the scalar types 0..10: integers must lie in [minimum, maximum]. Floats are their bit pattern. */
static const int64_t cb_minimum[11] = {0, INT8_MIN, INT16_MIN, INT32_MIN, INT64_MIN, 0, 0, 0, 0, 0, 0};
static const uint64_t cb_maximum[11] = {1, INT8_MAX, INT16_MAX, INT32_MAX, INT64_MAX, UINT8_MAX,
                                        UINT16_MAX, UINT32_MAX, UINT64_MAX, UINT32_MAX, UINT64_MAX};

KERNEL_INLINE int cb_is_signed(int code) { return code >= CB_I8 && code <= CB_I64; }
KERNEL_INLINE int cb_is_column(int code) { return code <= CB_STR; }

KERNEL_INLINE int cb_bits(uint64_t v) { return v ? 64 - __builtin_clzll(v) : 0; }
KERNEL_INLINE int cb_width(uint64_t v) { return (cb_bits(v) + 7) >> 3; }
/* The width of a magnitude: seven bytes are stored as eight (colbin.md 5.2, 6.1). */
KERNEL_INLINE int cb_magnitude_width(uint64_t v) {
  int width = cb_width(v);
  return width == 7 ? 8 : width;
}

KERNEL_INLINE uint64_t cb_little(uint64_t v) {
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
  return __builtin_bswap64(v);
#else
  return v;
#endif
}

/* Eight bytes at p, wherever it points. */
KERNEL_INLINE uint64_t cb_load8(const uint8_t *p) {
  uint64_t v;
  memcpy(&v, p, 8);
  return cb_little(v);
}

KERNEL_INLINE void cb_store8(uint8_t *p, uint64_t v) {
  v = cb_little(v);
  memcpy(p, &v, 8);
}

/* The n bytes at p, 1 <= n <= 8, all of which are there: the eight bytes that end where they end, without a jump that
 * depends on n or on how near the end of the message is. The bytes before p are those of the message, and before its
 * first one the CB_LEAD bytes that every reader has been promised. */
KERNEL_INLINE uint64_t cb_load(const uint8_t *p, int n) { return cb_load8(p + n - 8) >> ((0u - 8u * (unsigned)n) & 63); }

/* Floats travel as their bit pattern with the bytes reversed (colbin.md 1). */
KERNEL_INLINE uint64_t cb_reverse(uint64_t bits, int is_f32) {
  return is_f32 ? __builtin_bswap32((uint32_t)bits) : __builtin_bswap64(bits);
}

KERNEL_INLINE uint64_t cb_zigzag(int64_t v) { return ((uint64_t)v << 1) ^ (uint64_t)(v >> 63); }
KERNEL_INLINE int64_t cb_unzigzag(uint64_t v) { return (int64_t)(v >> 1) ^ -(int64_t)(v & 1); }
KERNEL_INLINE uint64_t cb_magnitude(int64_t v) { return v < 0 ? 0 - (uint64_t)v : (uint64_t)v; }

/* ---- writing ------------------------------------------------------------------------------------------------- */

/* LEN(n), n < 2^32: at most 5 bytes. */
KERNEL_INLINE uint8_t *cb_put_len(uint8_t *p, uint64_t n) {
  if (n < 255) {
    *p = (uint8_t)n;
    return p + 1;
  }
  *p = 0xff;
  cb_store8(p + 1, n);
  return p + 5;
}

/* A K4 field of the unsigned family, v > 0 (5.1). `head` is the key in the high nibble. */
KERNEL_INLINE uint8_t *cb_put_k4_unsigned(uint8_t *p, int head, uint64_t v) {
  if (v < 8) {
    *p = (uint8_t)(head | (int)v);
    return p + 1;
  }
  int width = cb_width(v);
  *p = (uint8_t)(head | (width + 7));
  cb_store8(p + 1, v);
  return p + 1 + width;
}

/* A K4 field of the signed family, v != 0 (5.2). */
KERNEL_INLINE uint8_t *cb_put_k4_signed(uint8_t *p, int head, int64_t v) {
  if (v == -1) {
    *p = (uint8_t)head;
    return p + 1;
  }
  uint64_t magnitude = cb_magnitude(v);
  int width = cb_magnitude_width(magnitude);
  *p = (uint8_t)(head | (v > 0) << 3 | (width == 8 ? 7 : width));
  cb_store8(p + 1, magnitude);
  return p + 1 + width;
}

/* A signed K4 element (5.7): 0 is `09 00`, and the magnitude is always spelled out. */
KERNEL_INLINE uint8_t *cb_put_k4_signed_element(uint8_t *p, int64_t v) {
  if (v == 0) {
    p[0] = 9;
    p[1] = 0;
    return p + 2;
  }
  uint64_t magnitude = cb_magnitude(v);
  int width = cb_magnitude_width(magnitude);
  *p = (uint8_t)((v > 0) << 3 | (width == 8 ? 7 : width));
  cb_store8(p + 1, magnitude);
  return p + 1 + width;
}

/* The magnitude form of a K8 integer. */
KERNEL_INLINE uint8_t *cb_put_k8_magnitude(uint8_t *p, int positive, uint64_t magnitude) {
  int width = cb_magnitude_width(magnitude);
  *p = (uint8_t)(0x80 | positive << 3 | (width == 8 ? 7 : width));
  cb_store8(p + 1, magnitude);
  return p + 1 + width;
}

KERNEL_INLINE uint8_t *cb_put_varint(uint8_t *p, uint64_t v) {
  *p++ = (uint8_t)(0xf8 | (v & 7));
  v >>= 3;
  while (v > 127) {
    *p++ = (uint8_t)(v | 0x80);
    v >>= 7;
  }
  *p++ = (uint8_t)v;
  return p;
}

/* Payload bytes of the varint form of v. */
KERNEL_INLINE int cb_varint_bytes(uint64_t v) {
  int bits = cb_bits(v);
  return bits <= 10 ? 1 : (bits - 3 + 6) / 7;
}

/* The descriptor and payload of a K8 field of the unsigned family (6.1); of an element when `element` (6.7). */
KERNEL_INLINE uint8_t *cb_put_k8_unsigned(uint8_t *p, uint64_t v, int element) {
  if (v < 128) {
    *p = (uint8_t)v;
    return p + 1;
  }
  if (!element && cb_varint_bytes(v) < cb_magnitude_width(v)) return cb_put_varint(p, v);
  return cb_put_k8_magnitude(p, 1, v);
}

/* The same of the signed family (6.2). */
KERNEL_INLINE uint8_t *cb_put_k8_signed(uint8_t *p, int64_t v, int element) {
  if (v >= 0 && v < 128) {
    *p = (uint8_t)v;
    return p + 1;
  }
  uint64_t magnitude = cb_magnitude(v);
  if (!element && cb_varint_bytes(cb_zigzag(v)) < cb_magnitude_width(magnitude)) return cb_put_varint(p, cb_zigzag(v));
  return cb_put_k8_magnitude(p, v > 0, magnitude);
}

/* The size after a header whose low two bits say its width: the smallest that holds it. Returns the width code. */
KERNEL_INLINE uint8_t *cb_put_sized(uint8_t *p, int head, uint64_t size) {
  int lw = size <= 0xff ? 0 : size <= 0xffff ? 1 : size <= 0xffffffff ? 2 : 3;
  *p = (uint8_t)(head | lw);
  cb_store8(p + 1, size);
  return p + 1 + (1 << lw);
}

/* The header of a K4 blob or of a K4 list of strings (5.3, 5.5). */
KERNEL_INLINE uint8_t *cb_put_k4_blob(uint8_t *p, int head, uint64_t size) {
  if (size <= 2047) {
    p[0] = (uint8_t)(head | (int)(size >> 8));
    p[1] = (uint8_t)size;
    return p + 2;
  }
  int x = size <= 0xffff ? 0 : size <= 0xffffffff ? 1 : 2;
  *p = (uint8_t)(head | 8 | x);
  cb_store8(p + 1, size);
  return p + 1 + (2 << x);
}

/* The header of a list of `count` integers of 1 << w bytes under either key width (5.4, 6.5). */
KERNEL_INLINE uint8_t *cb_put_vec(uint8_t *p, int k8, int key, int w, int positive, uint64_t count) {
  uint64_t length = k8 ? count << w : count;
  int wide = length > 255;
  if (k8) {
    *p++ = (uint8_t)key;
    *p++ = (uint8_t)(0xa0 | w << 2 | positive << 1 | wide);
  } else {
    *p++ = (uint8_t)(key << 4 | positive << 3 | w << 1 | wide);
  }
  cb_store8(p, length);
  return p + (wide ? 4 : 1);
}

/* Of a list's smallest and largest element: the width code of all, and whether they are unsigned (5.4). */
KERNEL_INLINE int cb_vec_width(int64_t smallest, int64_t largest, int *positive) {
  if (smallest >= 0) {
    *positive = 1;
    return largest <= 0xff ? 0 : largest <= 0xffff ? 1 : largest <= 0xffffffffll ? 2 : 3;
  }
  uint64_t magnitude = cb_magnitude(smallest), other = cb_magnitude(largest);
  if (other > magnitude) magnitude = other;
  *positive = 0;
  if (magnitude > 1ull << 62) return 3;
  magnitude *= 2;
  return magnitude <= 0xff ? 0 : magnitude <= 0xffff ? 1 : magnitude <= 0xffffffffull ? 2 : 3;
}

/* ---- reading ------------------------------------------------------------------------------------------------- */

/* Every reader returns the position behind what it read, or NULL with *why set; `why` is a constant text. */

KERNEL_INLINE const uint8_t *cb_get_len(const uint8_t *p, const uint8_t *end, uint64_t *n, const char **why) {
  if (p < end) {
    if (*p != 0xff) {
      *n = *p;
      return p + 1;
    }
    if (end - p >= 5) {
      *n = cb_load(p + 1, 4);
      return p + 5;
    }
  }
  *why = "a length runs past the end of its buffer";
  return NULL;
}

/* A length of 1, 2, 4 or 8 bytes, and the check that as many bytes follow. */
KERNEL_INLINE const uint8_t *cb_get_sized(const uint8_t *p, const uint8_t *end, int lw, uint64_t *n, const char **why) {
  int width = 1 << (lw & 3);
  if (end - p >= width) {
    *n = cb_load(p, width);
    p += width;
    if (*n <= (uint64_t)(end - p)) return p;
    *why = "a size runs past the end of its buffer";
    return NULL;
  }
  *why = "a length runs past the end of its buffer";
  return NULL;
}

/* Reads what a K4 code of the unsigned family announces. */
KERNEL_INLINE const uint8_t *cb_get_k4_unsigned(const uint8_t *p, const uint8_t *end, int code, uint64_t *v,
                                                const char **why) {
  if (code < 8) {
    *v = (uint64_t)code;
    return p;
  }
  int width = code - 7;
  if (end - p < width) {
    *why = "an integer runs past the end of its buffer";
    return NULL;
  }
  *v = cb_load(p, width);
  return p + width;
}

KERNEL_INLINE int cb_signed_of(uint64_t magnitude, int positive, int64_t *v) {
  uint64_t negative = (uint64_t)!positive;
  if (UNLIKELY(magnitude > (uint64_t)INT64_MAX + negative)) return 0;
  *v = (int64_t)((magnitude ^ (0 - negative)) + negative); /* signs are mixed: no jump for them */
  return 1;
}

/* A sign bit and a width code n of a magnitude: K4 signed fields, K8 INT. */
KERNEL_INLINE const uint8_t *cb_get_magnitude(const uint8_t *p, const uint8_t *end, int n, uint64_t *magnitude,
                                              const char **why) {
  int width = n == 7 ? 8 : n;
  if (end - p < width) {
    *why = "an integer runs past the end of its buffer";
    return NULL;
  }
  *magnitude = LIKELY(n) ? cb_load(p, width) : 1;
  return p + width;
}

KERNEL_INLINE const uint8_t *cb_get_k4_signed(const uint8_t *p, const uint8_t *end, int code, int64_t *v,
                                              const char **why) {
  uint64_t magnitude;
  unsigned n = (unsigned)code & 7;
  if (LIKELY(n - 1 < 6) && LIKELY(end - p >= (int64_t)n)) { /* 1 to 6 bytes, which cannot be too large */
    uint64_t negative = (uint64_t)(~code >> 3 & 1);
    *v = (int64_t)((cb_load(p, (int)n) ^ (0 - negative)) + negative);
    return p + n;
  }
  p = cb_get_magnitude(p, end, (int)n, &magnitude, why);
  if (p && !cb_signed_of(magnitude, code >> 3 & 1, v)) {
    *why = "an integer is outside the 64-bit range";
    return NULL;
  }
  return p;
}

/* The groups of a varint behind its descriptor; at most ten bytes and 64 bits (15). */
KERNEL_INLINE const uint8_t *cb_get_varint(const uint8_t *p, const uint8_t *end, int desc, uint64_t *v,
                                           const char **why) {
  uint64_t high = 0;
  for (int i = 0; i < 10; i++) {
    if (p + i >= end) {
      *why = "an integer runs past the end of its buffer";
      return NULL;
    }
    uint64_t group = p[i] & 0x7f;
    /* `high` may have 61 bits, the descriptor has the other three. */
    if (group && (7 * i >= 61 || (group << (7 * i) >> (7 * i)) != group || group << (7 * i) >> 61)) {
      *why = "a varint does not fit 64 bits";
      return NULL;
    }
    if (group) high |= group << (7 * i);
    if (!(p[i] & 0x80)) {
      *v = high << 3 | (uint64_t)(desc & 7);
      return p + i + 1;
    }
  }
  *why = "a varint is longer than ten bytes";
  return NULL;
}

/* A K8 integer of the unsigned family; p is behind the descriptor. */
KERNEL_INLINE const uint8_t *cb_get_k8_unsigned(const uint8_t *p, const uint8_t *end, int desc, uint64_t *v,
                                                const char **why) {
  if (desc < 0x80) {
    *v = (uint64_t)desc;
    return p;
  }
  if (desc < 0x90) {
    if (!(desc & 8)) {
      *why = "a negative integer in an unsigned field";
      return NULL;
    }
    return cb_get_magnitude(p, end, desc & 7, v, why);
  }
  if (desc >= 0xf8) return cb_get_varint(p, end, desc, v, why);
  *why = "another class of value than the field's type expects";
  return NULL;
}

KERNEL_INLINE const uint8_t *cb_get_k8_signed(const uint8_t *p, const uint8_t *end, int desc, int64_t *v,
                                              const char **why) {
  uint64_t magnitude;
  if (desc < 0x80) {
    *v = desc;
    return p;
  }
  if (desc < 0x90) {
    p = cb_get_magnitude(p, end, desc & 7, &magnitude, why);
    if (p && !cb_signed_of(magnitude, desc >> 3 & 1, v)) {
      *why = "an integer is outside the 64-bit range";
      return NULL;
    }
    return p;
  }
  if (desc >= 0xf8) {
    p = cb_get_varint(p, end, desc, &magnitude, why);
    if (p) *v = cb_unzigzag(magnitude);
    return p;
  }
  *why = "another class of value than the field's type expects";
  return NULL;
}

/* Any scalar of the types 0..10 as the 64 bits that its type gives them: two's complement, or the IEEE-754 pattern.
 * `k8`: head is a descriptor, else a K4 code. The value is checked against its type. */
KERNEL_INLINE const uint8_t *cb_get_scalar(const uint8_t *p, const uint8_t *end, int k8, int head, int code,
                                           uint64_t *bits, const char **why) {
  if (cb_is_signed(code)) {
    int64_t v;
    p = k8 ? cb_get_k8_signed(p, end, head, &v, why) : cb_get_k4_signed(p, end, head, &v, why);
    if (p && (v < cb_minimum[code] || v > (int64_t)cb_maximum[code])) {
      *why = "an integer is outside the range of its type";
      return NULL;
    }
    if (p) *bits = (uint64_t)v;
    return p;
  }
  p = k8 ? cb_get_k8_unsigned(p, end, head, bits, why) : cb_get_k4_unsigned(p, end, head, bits, why);
  if (!p) return NULL;
  if (*bits > cb_maximum[code]) {
    *why = code == CB_BOOL ? "a bool is neither 0 nor 1" : "an integer is outside the range of its type";
    return NULL;
  }
  if (code >= CB_F32) *bits = cb_reverse(*bits, code == CB_F32);
  return p;
}

/* What a blob header announces (5.3, 6.4): packing 0 raw, 1 lower, 2 upper. p is behind the header byte. */
KERNEL_INLINE const uint8_t *cb_get_k4_blob(const uint8_t *p, const uint8_t *end, int code, uint64_t *size,
                                            int *packing, const char **why) {
  static const uint8_t widths[8] = {2, 4, 8, 1, 1, 4, 4, 0};
  *packing = 0;
  if (code < 8) {
    if (p < end) {
      *size = (uint64_t)code << 8 | *p;
      p++;
      if (*size <= (uint64_t)(end - p)) return p;
      *why = "a string or bytes value runs past the end of its buffer";
      return NULL;
    }
    *why = "a length runs past the end of its buffer";
    return NULL;
  }
  int x = code & 7;
  if (x == 7) {
    *why = "an unassigned blob header";
    return NULL;
  }
  if (end - p < widths[x]) {
    *why = "a length runs past the end of its buffer";
    return NULL;
  }
  *size = cb_load(p, widths[x]);
  p += widths[x];
  if (x >= 3) *packing = 1 + !(x & 1);
  if (x >= 5 && *size < 256) {
    *why = "a packed string of less than 256 bytes with a four-byte size";
    return NULL;
  }
  if (*size > (uint64_t)(end - p)) {
    *why = "a string or bytes value runs past the end of its buffer";
    return NULL;
  }
  return p;
}

KERNEL_INLINE const uint8_t *cb_get_k8_blob(const uint8_t *p, const uint8_t *end, int desc, uint64_t *size,
                                            int *packing, const char **why) {
  if (desc >> 4 != 9) {
    *why = "another class of value than the field's type expects";
    return NULL;
  }
  int encoding = desc >> 2 & 3;
  if (encoding == 2) {
    *why = "a reserved string encoding";
    return NULL;
  }
  *packing = encoding == 3 ? 2 : encoding;
  return cb_get_sized(p, end, desc, size, why);
}

/* Steps over one K8 value, descriptor included, without recursion (13). */
static const uint8_t *cb_skip_k8(const uint8_t *p, const uint8_t *end, const char **why) {
  uint64_t n;
  for (;;) {
    if (p >= end) {
      *why = "a value is missing";
      return NULL;
    }
    int desc = *p++;
    if (desc < 0x80) return p;
    switch (desc >> 4 & 7) {
    case 0: return cb_get_magnitude(p, end, desc & 7, &n, why);
    case 2: {
      int width = desc & 1 ? 4 : 1;
      if (end - p < width) {
        *why = "a length runs past the end of its buffer";
        return NULL;
      }
      n = cb_load(p, width);
      p += width;
      if (n > (uint64_t)(end - p)) {
        *why = "a size runs past the end of its buffer";
        return NULL;
      }
      return p + n;
    }
    case 7:
      if (desc >= 0xf8) return cb_get_varint(p, end, desc, &n, why);
      if (desc <= 0xf2) return p;
      if (desc == 0xf6) {
        *why = "an unassigned descriptor";
        return NULL;
      }
      if (desc == 0xf7 && !(p = cb_get_len(p, end, &n, why))) return NULL;
      break; /* F3, F4, F5, F7: the value behind */
    default:
      p = cb_get_sized(p, end, desc, &n, why);
      return p ? p + n : NULL;
    }
  }
}

#endif
