/* Text of fixed width, padded with zeros, as UTF-8 without the padding: lengths of rows, then their bytes.
 * Rows are UCS-4 codes in native order, or bytes that are kept as they are. Plain C11. */
#ifndef COLSTORE_FIXED_TEXT_H
#define COLSTORE_FIXED_TEXT_H

#include <stdint.h>
#include <string.h>

#include "kernel_math.h"

KERNEL_INLINE int64_t codes_of_row(const uint32_t *row, int64_t width) {
  while (width > 0 && row[width - 1] == 0) width--;
  return width;
}

KERNEL_INLINE int64_t bytes_of_row(const uint8_t *row, int64_t width) {
  while (width > 0 && row[width - 1] == 0) width--;
  return width;
}

/* Bytes that a code takes in UTF-8; 0 for what it cannot hold (surrogates, codes above U+10FFFF). */
KERNEL_INLINE int64_t utf8_bytes(uint32_t code) {
  if (code < 0x80) return 1;
  if (code < 0x800) return 2;
  if (code < 0x10000) return (code & 0xf800) == 0xd800 ? 0 : 3;
  return code <= 0x10ffff ? 4 : 0;
}

/* The size of one row as UTF-8, -1 if it has none. */
KERNEL_INLINE int64_t text_size(const uint32_t *row, int64_t width) {
  int64_t n = codes_of_row(row, width), size = 0, i;
  uint32_t seen = 0;
  for (i = 0; i < n; i++) seen |= row[i];
  if (LIKELY(seen < 0x80)) return n;
  for (i = 0; i < n; i++) {
    int64_t bytes = utf8_bytes(row[i]);
    if (UNLIKELY(bytes == 0)) return -1;
    size += bytes;
  }
  return size;
}

KERNEL_INLINE uint8_t *put_code(uint8_t *out, uint32_t code) {
  if (code < 0x80) {
    *out++ = (uint8_t)code;
  } else if (code < 0x800) {
    *out++ = (uint8_t)(0xc0 | code >> 6);
    *out++ = (uint8_t)(0x80 | (code & 0x3f));
  } else if (code < 0x10000) {
    *out++ = (uint8_t)(0xe0 | code >> 12);
    *out++ = (uint8_t)(0x80 | (code >> 6 & 0x3f));
    *out++ = (uint8_t)(0x80 | (code & 0x3f));
  } else {
    *out++ = (uint8_t)(0xf0 | (code >> 18 & 7));
    *out++ = (uint8_t)(0x80 | (code >> 12 & 0x3f));
    *out++ = (uint8_t)(0x80 | (code >> 6 & 0x3f));
    *out++ = (uint8_t)(0x80 | (code & 0x3f));
  }
  return out;
}

/* Write a row whose size is `size`, and not a byte more, whatever the row holds by now. */
KERNEL_INLINE void put_text(uint8_t *out, int64_t size, const uint32_t *row, int64_t width) {
  uint8_t *end = out + size;
  int64_t i, plain = min_i64(size, width);
  uint32_t seen = 0;
  for (i = 0; i < plain; i++) seen |= row[i];
  if (LIKELY(seen < 0x80)) {
    for (i = 0; i < plain; i++) out[i] = (uint8_t)row[i];
    return;
  }
  for (i = 0; i < width && end - out >= 4; i++) out = put_code(out, row[i]);
  for (; i < width && out < end; i++) {
    uint8_t last[4];
    int64_t bytes = put_code(last, row[i]) - last;
    memcpy(out, last, (size_t)min_i64(bytes, end - out));
    out += bytes;
  }
}

#define DEFINE_SIZES(NAME, TYPE, SIZE)                                                                          \
  /* Sizes of rows [begin, end) into sizes[begin:end]; the first row that has none, -1 without one. */         \
  static int64_t NAME(const TYPE *rows, int64_t width, const uint8_t *present, int64_t begin, int64_t end,      \
                      int64_t *sizes) {                                                                         \
    for (int64_t i = begin; i < end; i++) {                                                                     \
      sizes[i] = present != NULL && present[i] == 0 ? 0 : SIZE(rows + i * width, width);                        \
      if (UNLIKELY(sizes[i] < 0)) return i;                                                                     \
    }                                                                                                           \
    return -1;                                                                                                  \
  }
DEFINE_SIZES(wide_sizes, uint32_t, text_size)
DEFINE_SIZES(narrow_sizes, uint8_t, bytes_of_row)

static void wide_rows(const uint32_t *rows, int64_t width, const int64_t *offsets, int64_t begin, int64_t end,
                      uint8_t *data) {
  for (int64_t i = begin; i < end; i++) put_text(data + offsets[i], offsets[i + 1] - offsets[i], rows + i * width, width);
}

static void narrow_rows(const uint8_t *rows, int64_t width, const int64_t *offsets, int64_t begin, int64_t end,
                        uint8_t *data) {
  for (int64_t i = begin; i < end; i++)
    memcpy(data + offsets[i], rows + i * width, (size_t)min_i64(offsets[i + 1] - offsets[i], width));
}

#endif
