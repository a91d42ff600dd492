/* Floats as JSON spells them (colbin.md 12), where few digits are enough.
 *
 * Any decimal of up to 15 digits (6 for f32) in the normal range is told from its neighbours by the nearest f64 (f32), so
 * when the value printed with that many digits reads back as itself, these digits without trailing zeros are the
 * shortest there are. All else is left to the caller. */
#ifndef COLSTORE_JSON_FLOAT_H
#define COLSTORE_JSON_FLOAT_H

#include <float.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { JSON_FLOAT_ROOM = 48 };

/* The reversed pattern of a float whose plain pattern is `bits`: columns hold plain ones (colbin.md 7). */
static inline uint64_t json_reversed(uint64_t bits, int single) {
  return single ? __builtin_bswap32((uint32_t)bits) : __builtin_bswap64(bits);
}

/* Write the value whose reversed pattern (colbin.md 1) is given to `out`; its length, or 0 when it takes more care. */
static inline int json_short_float(uint64_t reversed_bits, int single, char *out) {
  char text[40], digits[16], *end;
  double value;
  int wanted = single ? 6 : 15, n = 0, count, exponent, size, i, positional;
  if (single) {
    uint32_t bits = __builtin_bswap32((uint32_t)reversed_bits);
    float narrow;
    memcpy(&narrow, &bits, 4);
    value = narrow;
    if (!(fabs(value) >= FLT_MIN && fabs(value) <= FLT_MAX)) return 0;
  } else {
    uint64_t bits = __builtin_bswap64(reversed_bits);
    memcpy(&value, &bits, 8);
    if (!(fabs(value) >= DBL_MIN && fabs(value) <= DBL_MAX)) return 0;
  }
  if (snprintf(text, sizeof text, "%.*e", wanted - 1, fabs(value)) < wanted + 5) return 0;
  if (text[1] != '.' || text[wanted + 1] != 'e') return 0; /* another locale */
  if (single ? strtof(text, &end) != (float)fabs(value) : strtod(text, &end) != fabs(value)) return 0;
  exponent = atoi(text + wanted + 2);
  digits[0] = text[0];
  memcpy(digits + 1, text + 2, (size_t)wanted - 1);
  for (count = wanted; count > 1 && digits[count - 1] == '0'; count--) {
  }
  if (value < 0) out[n++] = '-';
  /* an f32 is measured against 1e-6 rounded to f32 */
  positional = fabs(value) >= (single ? (double)1e-6f : 1e-6) && fabs(value) < 1e21;
  if (!positional) {
    out[n++] = digits[0];
    if (count > 1) {
      out[n++] = '.';
      memcpy(out + n, digits + 1, (size_t)count - 1);
      n += count - 1;
    }
    size = exponent < 0 ? -exponent : exponent;
    n += snprintf(out + n, 8, exponent < 0 ? "e-%d" : "e+%02d", size);
    return n;
  }
  if (exponent < 0) { /* 0.00ddd */
    out[n++] = '0';
    out[n++] = '.';
    for (i = -1; i > exponent; i--) out[n++] = '0';
    memcpy(out + n, digits, (size_t)count);
    return n + count;
  }
  for (i = 0; i <= exponent; i++) out[n++] = i < count ? digits[i] : '0';
  if (count > exponent + 1) {
    out[n++] = '.';
    memcpy(out + n, digits + exponent + 1, (size_t)(count - exponent - 1));
    n += count - exponent - 1;
  }
  return n;
}

#endif
