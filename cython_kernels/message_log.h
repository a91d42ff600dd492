/* Frames of a log of messages (format-colbin-log.md): the walk from one to the next, and their checksums.
 *
 *   word u32    bits 0-27 payload bytes, 28 zstd, 29 a row count follows, 30 and 31 zero
 *   crc  u32    CRC-32 of the other bytes of the frame
 *   rows u32    only with bit 29
 *   payload */
#ifndef COLSTORE_MESSAGE_LOG_H
#define COLSTORE_MESSAGE_LOG_H

#include "kernel_math.h"

#define FRAME_LENGTH 0x0fffffffu
#define FRAME_ZSTD 0x10000000u
#define FRAME_ROWS 0x20000000u
#define FRAME_RESERVED 0xc0000000u

enum {
  FRAMES_OK = 0,
  FRAMES_MORE = 1,    /* the window ends inside a frame's header */
  FRAMES_INVALID = 2, /* no frame begins here */
  FRAMES_CRC = 3,
  FRAMES_CHANGED = 4, /* the frame is not the one of the index */
};

/* CRC-32 as in zlib (reflected polynomial 0xEDB88320), eight bytes a step. */
static uint32_t frame_crc_table[8][256];

static void frame_crc_init(void) {
  for (uint32_t byte = 0; byte < 256; byte++) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320u : 0);
    frame_crc_table[0][byte] = crc;
  }
  for (int slice = 1; slice < 8; slice++)
    for (int byte = 0; byte < 256; byte++) {
      uint32_t crc = frame_crc_table[slice - 1][byte];
      frame_crc_table[slice][byte] = crc >> 8 ^ frame_crc_table[0][crc & 0xff];
    }
}

KERNEL_INLINE uint32_t frame_u32(const uint8_t *p) {
  return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

/* `crc` is 0 at first, then what this returned: parts may follow each other. */
static uint32_t frame_crc(uint32_t crc, const uint8_t *p, int64_t n) {
  crc = ~crc;
  for (; n >= 8; n -= 8, p += 8) {
    uint32_t low = crc ^ frame_u32(p), high = frame_u32(p + 4);
    crc = frame_crc_table[7][low & 0xff] ^ frame_crc_table[6][low >> 8 & 0xff] ^
          frame_crc_table[5][low >> 16 & 0xff] ^ frame_crc_table[4][low >> 24] ^ frame_crc_table[3][high & 0xff] ^
          frame_crc_table[2][high >> 8 & 0xff] ^ frame_crc_table[1][high >> 16 & 0xff] ^
          frame_crc_table[0][high >> 24];
  }
  for (; n > 0; n--, p++) crc = crc >> 8 ^ frame_crc_table[0][(crc ^ *p) & 0xff];
  return ~crc;
}

/* Frames from data[*at] on: offset, size and rows of each, until `capacity` are found or the window ends. *at ends behind
 * the last frame, which may be behind the window. Payloads are not looked at. */
static int walk_frames(const uint8_t *data, int64_t length, int64_t *at, int64_t base, int64_t capacity,
                       int64_t *offset, int64_t *size, int64_t *rows, int64_t *found) {
  int64_t n = 0;
  int code = FRAMES_OK;
  while (n < capacity && *at < length) {
    const uint8_t *p = data + *at;
    int64_t left = length - *at;
    uint32_t word;
    if (left < 8) {
      code = FRAMES_MORE;
      break;
    }
    word = frame_u32(p);
    if ((word & FRAME_RESERVED) || !(word & FRAME_LENGTH)) {
      code = FRAMES_INVALID;
      break;
    }
    if ((word & FRAME_ROWS) && left < 12) {
      code = FRAMES_MORE;
      break;
    }
    offset[n] = base + *at;
    rows[n] = word & FRAME_ROWS ? (int64_t)frame_u32(p + 8) : 1;
    size[n] = (word & FRAME_LENGTH) + (word & FRAME_ROWS ? 12 : 8);
    *at += size[n++];
  }
  *found = n;
  return code;
}

/* Check frames that an index or a walk found, data[0] being offset `base` of the file; where their payloads are. */
static int open_frames(const uint8_t *data, int64_t length, int64_t base, int64_t n, const int64_t *offset,
                       const int64_t *size, const int64_t *rows, int64_t *start, int64_t *bytes, uint8_t *zstd,
                       int64_t *bad) {
  for (int64_t i = 0; i < n; i++) {
    const uint8_t *p;
    int64_t at;
    uint32_t word, crc;
    int head;
    *bad = i;
    if (offset[i] < base || size[i] < 9 || offset[i] - base > length) return FRAMES_CHANGED;
    at = offset[i] - base;
    if (size[i] > length - at) return FRAMES_CHANGED;
    p = data + at;
    word = frame_u32(p);
    head = word & FRAME_ROWS ? 12 : 8;
    if ((word & FRAME_RESERVED) || (int64_t)(word & FRAME_LENGTH) + head != size[i]) return FRAMES_CHANGED;
    if ((word & FRAME_ROWS ? (int64_t)frame_u32(p + 8) : 1) != rows[i]) return FRAMES_CHANGED;
    crc = frame_crc(frame_crc(0, p, 4), p + 8, size[i] - 8);
    if (crc != frame_u32(p + 4)) return FRAMES_CRC;
    start[i] = at + head;
    bytes[i] = size[i] - head;
    zstd[i] = (word & FRAME_ZSTD) != 0;
  }
  return FRAMES_OK;
}

/* The last of n frames that is sound; -1 when none is. */
static int64_t last_sound_frame(const uint8_t *data, int64_t length, int64_t base, int64_t n, const int64_t *offset,
                                const int64_t *size, const int64_t *rows) {
  int64_t start, bytes, bad;
  uint8_t zstd;
  while (n-- > 0)
    if (open_frames(data, length, base, 1, offset + n, size + n, rows + n, &start, &bytes, &zstd, &bad) == FRAMES_OK)
      return n;
  return -1;
}

#endif
