/* JSON text under construction: a buffer that grows, and how strings, bytes and integers are spelled (colbin.md 12).
 *
 * Functions return 0 when there is no memory, else 1. */
#ifndef COLSTORE_JSON_TEXT_H
#define COLSTORE_JSON_TEXT_H

#include <stdlib.h>

#include "kernel_math.h"

typedef struct {
  char *data;
  int64_t size, room;
} json_text;

KERNEL_NOINLINE int json_grow(json_text *t, int64_t more) {
  int64_t room = t->room * 2 + more;
  char *larger = realloc(t->data, (size_t)room);
  if (!larger) return 0;
  t->data = larger;
  t->room = room;
  return 1;
}

KERNEL_INLINE int json_ensure(json_text *t, int64_t more) { return LIKELY(t->room - t->size >= more) || json_grow(t, more); }

KERNEL_INLINE int json_put(json_text *t, const void *text, int64_t n) {
  if (!json_ensure(t, n)) return 0;
  memcpy(t->data + t->size, text, (size_t)n);
  t->size += n;
  return 1;
}

KERNEL_INLINE int json_put_one(json_text *t, char c) {
  if (!json_ensure(t, 1)) return 0;
  t->data[t->size++] = c;
  return 1;
}

static int json_put_unsigned(json_text *t, uint64_t value) {
  char digits[20];
  int place = 20;
  do digits[--place] = (char)('0' + value % 10);
  while (value /= 10);
  return json_put(t, digits + place, 20 - place);
}

static int json_put_signed(json_text *t, int64_t value) {
  if (value >= 0) return json_put_unsigned(t, (uint64_t)value);
  return json_put_one(t, '-') && json_put_unsigned(t, 0 - (uint64_t)value);
}

static int json_put_escape(json_text *t, int code) {
  static const char hex[] = "0123456789abcdef";
  const char text[6] = {'\\', 'u', hex[code >> 12 & 15], hex[code >> 8 & 15], hex[code >> 4 & 15], hex[code & 15]};
  return json_put(t, text, 6);
}

/* Bytes of the character at `s`, which is not ASCII; 0 where there is none: no overlong forms, no surrogates, up to
 * U+10FFFF. */
static int json_utf8_width(const uint8_t *s, int64_t n) {
  int c = s[0];
  if (c >= 0xC2 && c < 0xE0) return n >= 2 && s[1] >> 6 == 2 ? 2 : 0;
  if (c >= 0xE0 && c < 0xF0) {
    if (n < 3 || s[1] >> 6 != 2 || s[2] >> 6 != 2) return 0;
    return (c == 0xE0 && s[1] < 0xA0) || (c == 0xED && s[1] >= 0xA0) ? 0 : 3;
  }
  if (c >= 0xF0 && c < 0xF5) {
    if (n < 4 || s[1] >> 6 != 2 || s[2] >> 6 != 2 || s[3] >> 6 != 2) return 0;
    return (c == 0xF0 && s[1] < 0x90) || (c == 0xF4 && s[1] >= 0x90) ? 0 : 4;
  }
  return 0;
}

/* What goes out for the byte c, which is not the beginning of a character that stays as it is. */
static int json_put_special(json_text *t, int c) {
  switch (c) {
    case '"': return json_put(t, "\\\"", 2);
    case '\\': return json_put(t, "\\\\", 2);
    case '\n': return json_put(t, "\\n", 2);
    case '\r': return json_put(t, "\\r", 2);
    case '\t': return json_put(t, "\\t", 2);
    default: return json_put_escape(t, c >= 0x80 ? 0xFFFD : c);
  }
}

/* Bytes as a JSON string: each byte that is no UTF-8 as \ufffd. */
static int json_put_string(json_text *t, const uint8_t *s, int64_t n) {
  int64_t i = 0, start = 0;
  if (!(json_ensure(t, n + 2) && json_put_one(t, '"'))) return 0;
  while (i < n) {
    int c = s[i], width = 0;
    if (c >= 0x20 && c < 0x80 && c != '"' && c != '\\' && c != '<' && c != '>' && c != '&') {
      i++;
      continue;
    }
    if (c >= 0x80) {
      width = json_utf8_width(s + i, n - i);
      int separator = width == 3 && c == 0xE2 && s[i + 1] == 0x80 && s[i + 2] >> 1 == 0x54; /* U+2028, U+2029 */
      if (width && !separator) {
        i += width;
        continue;
      }
    }
    if (!json_put(t, s + start, i - start)) return 0;
    if (!(width ? json_put_escape(t, 0x2028 | (s[i + 2] & 1)) : json_put_special(t, c))) return 0;
    i += width ? 3 : 1;
    start = i;
  }
  return json_put(t, s + start, n - start) && json_put_one(t, '"');
}

/* Bytes in base64, standard alphabet, padded, as a JSON string. */
static int json_put_base64(json_text *t, const uint8_t *s, int64_t n) {
  static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  if (!json_ensure(t, (n + 2) / 3 * 4 + 2)) return 0;
  char *to = t->data + t->size;
  *to++ = '"';
  for (int64_t i = 0; i < n; i += 3, to += 4) {
    uint32_t three = (uint32_t)s[i] << 16;
    if (i + 1 < n) three |= (uint32_t)s[i + 1] << 8;
    if (i + 2 < n) three |= s[i + 2];
    to[0] = alphabet[three >> 18];
    to[1] = alphabet[three >> 12 & 63];
    to[2] = i + 1 < n ? alphabet[three >> 6 & 63] : '=';
    to[3] = i + 2 < n ? alphabet[three & 63] : '=';
  }
  *to++ = '"';
  t->size = to - t->data;
  return 1;
}

#endif
