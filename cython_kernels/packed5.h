/* packed5 strings (colbin.md 9): text as a stream of five-bit units, first unit in the lowest bits.
 *
 * Both directions take bytes and bounds, allocate nothing and never read or write outside what they are given. */
#ifndef COLSTORE_PACKED5_H
#define COLSTORE_PACKED5_H

#include <limits.h>
#include <stdint.h>
#include <string.h>

enum {
  PACKED5_NOT_SHORTER = -1, /* encode: the packed form would not be shorter; write the string raw */
  PACKED5_MALFORMED = -1,   /* decode: an operand runs off the end, or a reserved code */
  PACKED5_NO_ROOM = -2      /* both: `cap` is too small */
};

/* Upper bound of the bytes that n bytes of payload decode to: two units (10 bits) give three bytes at most (the euro
 * sign); three units give four at most (a number). n up to 2^59. */
#define PACKED5_MAX_DECODED(n) (((n) * 12 + 4) / 5)
/* Bytes that packed5_encode may write for n bytes of text. */
#define PACKED5_MAX_ENCODED(n) (n)

/* What an ASCII character is: class in the upper bits, operand in the lower five. */
enum {
  P5_NONE = 0x00,
  P5_LOWER = 0x20,
  P5_UPPER = 0x40,
  P5_SPACE = 0x60,
  P5_DIGIT = 0x80,
  P5_SYMBOL = 0xA0,
  P5_EXTENSION = 0xC0,
  P5_CLASS = 0xE0
};

enum { P5_UNIT_SPACE = 26, P5_UNIT_INVERT_ONE = 27, P5_UNIT_INVERT = 28, P5_UNIT_SYMBOL = 29, P5_UNIT_EXTENSION = 30,
       P5_UNIT_NUMBER = 31, P5_EXTENSIONS = 28, P5_ESCAPE = 31 };

static const uint8_t packed5_ascii[128] = {
    0, 0, 0, 0, 0, 0, 0, 0, 0, P5_EXTENSION | 25, P5_EXTENSION | 24, 0, 0, P5_EXTENSION | 26, 0, 0, /* TAB LF CR */
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    /* space ! " # $ % & ' ( ) * + , - . / */
    P5_SPACE, P5_SYMBOL | 23, P5_SYMBOL | 21, P5_SYMBOL | 20, P5_EXTENSION | 14, P5_SYMBOL | 19, P5_SYMBOL | 29,
    P5_SYMBOL | 22, P5_SYMBOL | 17, P5_SYMBOL | 18, P5_SYMBOL | 28, P5_SYMBOL | 27, P5_SYMBOL | 11, P5_SYMBOL | 12,
    P5_SYMBOL | 10, P5_SYMBOL | 13,
    P5_DIGIT | 0, P5_DIGIT | 1, P5_DIGIT | 2, P5_DIGIT | 3, P5_DIGIT | 4, P5_DIGIT | 5, P5_DIGIT | 6, P5_DIGIT | 7,
    P5_DIGIT | 8, P5_DIGIT | 9,
    /* : ; < = > ? @ */
    P5_SYMBOL | 14, P5_SYMBOL | 15, P5_SYMBOL | 30, P5_SYMBOL | 26, P5_SYMBOL | 31, P5_SYMBOL | 24, P5_SYMBOL | 25,
    P5_UPPER | 0, P5_UPPER | 1, P5_UPPER | 2, P5_UPPER | 3, P5_UPPER | 4, P5_UPPER | 5, P5_UPPER | 6, P5_UPPER | 7,
    P5_UPPER | 8, P5_UPPER | 9, P5_UPPER | 10, P5_UPPER | 11, P5_UPPER | 12, P5_UPPER | 13, P5_UPPER | 14,
    P5_UPPER | 15, P5_UPPER | 16, P5_UPPER | 17, P5_UPPER | 18, P5_UPPER | 19, P5_UPPER | 20, P5_UPPER | 21,
    P5_UPPER | 22, P5_UPPER | 23, P5_UPPER | 24, P5_UPPER | 25,
    /* [ \ ] ^ _ ` */
    P5_EXTENSION | 18, P5_EXTENSION | 17, P5_EXTENSION | 19, P5_EXTENSION | 20, P5_SYMBOL | 16, P5_EXTENSION | 16,
    P5_LOWER | 0, P5_LOWER | 1, P5_LOWER | 2, P5_LOWER | 3, P5_LOWER | 4, P5_LOWER | 5, P5_LOWER | 6, P5_LOWER | 7,
    P5_LOWER | 8, P5_LOWER | 9, P5_LOWER | 10, P5_LOWER | 11, P5_LOWER | 12, P5_LOWER | 13, P5_LOWER | 14,
    P5_LOWER | 15, P5_LOWER | 16, P5_LOWER | 17, P5_LOWER | 18, P5_LOWER | 19, P5_LOWER | 20, P5_LOWER | 21,
    P5_LOWER | 22, P5_LOWER | 23, P5_LOWER | 24, P5_LOWER | 25,
    /* { | } ~ DEL */
    P5_EXTENSION | 21, P5_EXTENSION | 23, P5_EXTENSION | 22, P5_EXTENSION | 15, 0};

static const uint8_t packed5_symbols[32] = {'0', '1', '2', '3', '4', '5', '6', '7', '8', '9', '.', ',', '-', '/', ':', ';',
                                            '_', '(', ')', '%', '#', '"', '\'', '!', '?', '@', '=', '+', '*', '&', '<', '>'};

typedef struct {
  uint8_t size, bytes[3];
} packed5_entry;

static const packed5_entry packed5_extensions[P5_EXTENSIONS] = {
    {2, {0xC3, 0xB1}}, {2, {0xC3, 0xA1}}, {2, {0xC3, 0xA9}}, {2, {0xC3, 0xAD}}, /* lower n~ a' e' i' */
    {2, {0xC3, 0xB3}}, {2, {0xC3, 0xBA}}, {2, {0xC3, 0xBC}},                    /* lower o' u' u: */
    {2, {0xC3, 0x91}}, {2, {0xC3, 0x81}}, {2, {0xC3, 0x89}}, {2, {0xC3, 0x8D}}, /* upper N~ A' E' I' */
    {2, {0xC3, 0x93}}, {2, {0xC3, 0x9A}},                                       /* upper O' U' */
    {3, {0xE2, 0x82, 0xAC}},                                                    /* euro */
    {1, {'$'}}, {1, {'~'}}, {1, {0x60}}, {1, {0x5C}}, {1, {'['}}, {1, {']'}}, {1, {'^'}},
    {1, {'{'}}, {1, {'}'}}, {1, {'|'}}, {1, {'\n'}}, {1, {'\t'}}, {1, {'\r'}},
    {2, {0xC2, 0xBF}} /* inverted question mark */};

/* Index of the extension that the bytes at `s` spell in two or three bytes, -1 if none; `size` gets its length. */
static inline int packed5_wide(const uint8_t *s, long left, int *size) {
  if (left >= 2 && (s[0] == 0xC3 || s[0] == 0xC2)) {
    *size = 2;
    if (s[0] == 0xC2) return s[1] == 0xBF ? 27 : -1;
    switch (s[1]) {
      case 0xB1: return 0;
      case 0xA1: return 1;
      case 0xA9: return 2;
      case 0xAD: return 3;
      case 0xB3: return 4;
      case 0xBA: return 5;
      case 0xBC: return 6;
      case 0x91: return 7;
      case 0x81: return 8;
      case 0x89: return 9;
      case 0x8D: return 10;
      case 0x93: return 11;
      case 0x9A: return 12;
      default: return -1;
    }
  }
  if (left >= 3 && s[0] == 0xE2 && s[1] == 0x82 && s[2] == 0xAC) {
    *size = 3;
    return 13;
  }
  return -1;
}

static inline int packed5_has_unit(const uint8_t *s, long left) {
  int size;
  return s[0] < 128 ? packed5_ascii[s[0]] != P5_NONE : packed5_wide(s, left, &size) >= 0;
}

/* Where units go: the low `bits` bits of `pending` wait for a full byte. */
typedef struct {
  uint8_t *to;
  long size, cap;
  uint64_t pending;
  int bits;
} packed5_sink;

/* Append `count` units (up to six), given in one number; 0 when there is no room. */
static inline int packed5_put(packed5_sink *s, uint32_t units, int count) {
  s->pending |= (uint64_t)units << s->bits;
  s->bits += 5 * count;
  while (s->bits >= 8) {
    if (s->size >= s->cap) return 0;
    s->to[s->size++] = (uint8_t)s->pending;
    s->pending >>= 8;
    s->bits -= 8;
  }
  return 1;
}

/* Pack `n` bytes of text (colbin.md 9.2: greedy, one result). Returns the payload's size, less than n, and sets `upper`
 * to the opening case; PACKED5_NOT_SHORTER when packing does not pay; PACKED5_NO_ROOM when cap < n - 1 and it mattered. */
static inline long packed5_encode(const uint8_t *src, long n, uint8_t *dst, long cap, int *upper) {
  packed5_sink sink = {dst, 0, cap < n - 1 ? cap : n - 1, 0, 0};
  long full = cap < n - 1 ? PACKED5_NO_ROOM : PACKED5_NOT_SHORTER;
  int in_upper = 0, size;
  *upper = 0;
  if (n <= 0) return PACKED5_NOT_SHORTER;
  for (long i = 0; i < n; i++) {
    uint8_t kind = src[i] < 128 ? packed5_ascii[src[i]] & P5_CLASS : 0;
    if (kind == P5_LOWER) break;
    if (kind == P5_UPPER) {
      in_upper = 1;
      break;
    }
  }
  *upper = in_upper;
  for (long i = 0; i < n;) {
    uint8_t what = src[i] < 128 ? packed5_ascii[src[i]] : P5_NONE;
    uint32_t operand = what & 31;
    switch (what & P5_CLASS) {
      case P5_LOWER:
      case P5_UPPER: {
        uint8_t other = in_upper ? P5_LOWER : P5_UPPER;
        if ((what & P5_CLASS) == other) {
          long run = i + 1;
          while (run < n && run < i + 3 && src[run] < 128 && (packed5_ascii[src[run]] & P5_CLASS) == other) run++;
          if (run - i >= 3) {
            in_upper = !in_upper;
            if (!packed5_put(&sink, P5_UNIT_INVERT | operand << 5, 2)) return full;
          } else if (!packed5_put(&sink, P5_UNIT_INVERT_ONE | operand << 5, 2))
            return full;
        } else if (!packed5_put(&sink, operand, 1))
          return full;
        i++;
        break;
      }
      case P5_SPACE:
        if (!packed5_put(&sink, P5_UNIT_SPACE, 1)) return full;
        i++;
        break;
      case P5_DIGIT: {
        uint32_t value = operand;
        long stop = i + 1;
        if (value != 0)
          while (stop < n && stop < i + 4 && src[stop] >= '0' && src[stop] <= '9' && value * 10 + (src[stop] - '0') <= 1023)
            value = value * 10 + (src[stop++] - '0');
        if (stop == i + 1) {
          if (!packed5_put(&sink, P5_UNIT_SYMBOL | operand << 5, 2)) return full;
        } else if (!packed5_put(&sink, P5_UNIT_NUMBER | value << 5, 3))
          return full;
        i = stop;
        break;
      }
      case P5_SYMBOL:
        if (!packed5_put(&sink, P5_UNIT_SYMBOL | operand << 5, 2)) return full;
        i++;
        break;
      case P5_EXTENSION:
        if (!packed5_put(&sink, P5_UNIT_EXTENSION | operand << 5, 2)) return full;
        i++;
        break;
      default: {
        int entry = src[i] < 128 ? -1 : packed5_wide(src + i, n - i, &size);
        long stop = i + 1;
        if (entry >= 0) {
          if (!packed5_put(&sink, P5_UNIT_EXTENSION | (uint32_t)entry << 5, 2)) return full;
          i += size;
          break;
        }
        while (stop < n && stop < i + 4 && !packed5_has_unit(src + stop, n - stop)) stop++;
        if (!packed5_put(&sink, P5_UNIT_EXTENSION | P5_ESCAPE << 5 | (uint32_t)(stop - i - 1) << 10, 3)) return full;
        for (; i < stop; i++)
          if (!packed5_put(&sink, src[i], 2)) return full; /* low five bits, high three */
      }
    }
  }
  if (sink.bits) { /* a whole unit of room left in the last byte is filled with a pad, which decodes to nothing */
    if (sink.size >= sink.cap) return full;
    if (8 - sink.bits >= 5) sink.pending |= (uint64_t)P5_UNIT_INVERT_ONE << sink.bits;
    dst[sink.size++] = (uint8_t)sink.pending;
  }
  return sink.size;
}

typedef struct {
  const uint8_t *from;
  long at, n, left; /* bytes taken, bytes there, units not yet taken */
  uint64_t ready;
  int bits;
} packed5_source;

/* The next unit; -1 at the end. */
static inline int packed5_next(packed5_source *s) {
  int unit;
  if (s->left <= 0) return -1;
  s->left--;
  if (s->bits < 5) {
    if (s->n - s->at >= 4) {
      const uint8_t *p = s->from + s->at;
      uint32_t four = p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
      s->ready |= (uint64_t)four << s->bits;
      s->at += 4;
      s->bits += 32;
    } else {
      s->ready |= (uint64_t)s->from[s->at++] << s->bits;
      s->bits += 8;
    }
  }
  unit = (int)(s->ready & 31);
  s->ready >>= 5;
  s->bits -= 5;
  return unit;
}

/* Unpack a payload of `n` bytes whose opening case is `upper`. Returns the text's size; PACKED5_MALFORMED;
 * PACKED5_NO_ROOM when `cap` is too small (PACKED5_MAX_DECODED(n) always suffices). */
static inline long packed5_decode(const uint8_t *src, long n, int upper, uint8_t *dst, long cap) {
  packed5_source source = {src, 0, n, 0, 0, 0};
  long size = 0;
  int in_upper = upper != 0, pending = 0;
  if (n < 0 || n > LONG_MAX / 16) return PACKED5_MALFORMED;
  source.left = n * 8 / 5;
  while (source.left > 0) {
    int unit = packed5_next(&source), a, b;
    if (unit < P5_UNIT_SPACE) {
      if (size >= cap) return PACKED5_NO_ROOM;
      dst[size++] = (uint8_t)((in_upper != pending ? 'A' : 'a') + unit);
      pending = 0;
    } else if (unit == P5_UNIT_SPACE) {
      if (size >= cap) return PACKED5_NO_ROOM;
      dst[size++] = ' ';
    } else if (unit == P5_UNIT_INVERT_ONE) {
      pending = 1;
    } else if (unit == P5_UNIT_INVERT) {
      in_upper = !in_upper;
    } else if (unit == P5_UNIT_SYMBOL) {
      if ((a = packed5_next(&source)) < 0) return PACKED5_MALFORMED;
      if (size >= cap) return PACKED5_NO_ROOM;
      dst[size++] = packed5_symbols[a];
    } else if (unit == P5_UNIT_NUMBER) {
      uint8_t text[4];
      int digits = 0, value;
      if ((a = packed5_next(&source)) < 0 || (b = packed5_next(&source)) < 0) return PACKED5_MALFORMED;
      value = a | b << 5;
      do {
        text[digits++] = (uint8_t)('0' + value % 10);
        value /= 10;
      } while (value);
      if (cap - size < digits) return PACKED5_NO_ROOM;
      while (digits) dst[size++] = text[--digits];
    } else { /* extension */
      if ((a = packed5_next(&source)) < 0) return PACKED5_MALFORMED;
      if (a < P5_EXTENSIONS) {
        const packed5_entry *entry = &packed5_extensions[a];
        if (cap - size < entry->size) return PACKED5_NO_ROOM;
        for (int i = 0; i < entry->size; i++) dst[size++] = entry->bytes[i];
      } else if (a == P5_ESCAPE) {
        int count = packed5_next(&source);
        if (count < 0 || count > 3) return PACKED5_MALFORMED;
        if (cap - size < count + 1) return PACKED5_NO_ROOM;
        for (int i = 0; i <= count; i++) {
          if ((a = packed5_next(&source)) < 0 || (b = packed5_next(&source)) < 0 || b > 7) return PACKED5_MALFORMED;
          dst[size++] = (uint8_t)(a | b << 5);
        }
      } else
        return PACKED5_MALFORMED;
    }
  }
  return size;
}

#endif
