/* Record headers of a .cstore file (cstore.md 6): validation and the walk from one to the next. */
#ifndef COLSTORE_RECORD_WALK_H
#define COLSTORE_RECORD_WALK_H

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "kernel_math.h"

#define RECORD_HEADER_BYTES 32

enum {
  WALK_OK = 0,
  WALK_TRUNCATED = 1,
  WALK_MAGIC = 2,
  WALK_INDEX = 3,
  WALK_CRC = 4,
  WALK_ROWS = 5,
  WALK_BODY = 6,
  WALK_IO_ERROR = -1,
  WALK_NO_MEMORY = -2
};

/* CRC-32 as in zlib (reflected polynomial 0xEDB88320), four bytes a step: a header has 28 = 7 * 4 of them. */
static uint32_t crc_table[4][256];

static void crc_init(void) {
  for (uint32_t byte = 0; byte < 256; byte++) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320u : 0);
    crc_table[0][byte] = crc;
  }
  for (int slice = 1; slice < 4; slice++)
    for (int byte = 0; byte < 256; byte++) {
      uint32_t crc = crc_table[slice - 1][byte];
      crc_table[slice][byte] = crc >> 8 ^ crc_table[0][crc & 0xff];
    }
}

/* Little-endian loads, byte by byte in the source; the compiler makes one load of them where that is right. */
KERNEL_INLINE uint32_t load_u32(const unsigned char *p) {
  return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

KERNEL_INLINE int64_t load_i64(const unsigned char *p) {
  return (int64_t)((uint64_t)load_u32(p) | (uint64_t)load_u32(p + 4) << 32);
}

/* CRC of `n` bytes, n a multiple of 4. */
static inline uint32_t crc_words(const unsigned char *p, int64_t n) {
  uint32_t crc = 0xffffffffu;
  for (int64_t i = 0; i < n; i += 4) {
    crc ^= load_u32(p + i);
    crc = crc_table[3][crc & 0xff] ^ crc_table[2][crc >> 8 & 0xff] ^ crc_table[1][crc >> 16 & 0xff] ^
          crc_table[0][crc >> 24];
  }
  return ~crc;
}

/* Validates the header of record `index` in the order of cstore.md 11 (magic, index, CRC, rows) and finds the
 * bytes its body takes, padding included. */
static inline int parse_record(const unsigned char *header, int64_t index, int64_t row_bytes, int64_t *rows,
                               int64_t *stored_bytes) {
  if (memcmp(header, "REC\x01", 4) != 0) return WALK_MAGIC;
  if (load_i64(header + 4) != index) return WALK_INDEX;
  if (crc_words(header, 28) != load_u32(header + 28)) return WALK_CRC;
  int64_t n = load_i64(header + 12);
  /* INT64_MAX - 7: the padded size must be a number too. */
  if (n < 0 || (row_bytes > 0 && n > (INT64_MAX - 7) / row_bytes)) return WALK_ROWS;
  *rows = n;
  *stored_bytes = (n * row_bytes + 7) & ~(int64_t)7;
  return WALK_OK;
}

typedef struct {
  int fd;
  unsigned char *buffer; /* WALK_BUFFER_BYTES, allocated with the first long read */
  int64_t offset, length; /* file range that `buffer` holds */
  int error;              /* errno of a failed read */
} header_source;

/* Headers nearer to each other than this share a read; farther ones get 32 bytes each. A read of 32 bytes costs
 * about as much as copying 4 KiB out of the page cache. */
#define WALK_NEAR_BYTES 4096
#define WALK_BUFFER_BYTES (1 << 20)

/* Reads [offset, offset + length) as far as the file goes; bytes read or -1 with errno. */
static inline int64_t read_fully(int fd, unsigned char *target, int64_t length, int64_t offset) {
  int64_t done = 0;
  while (done < length) {
    ssize_t got = pread(fd, target + done, (size_t)(length - done), (off_t)(offset + done));
    if (got > 0)
      done += got;
    else if (got == 0)
      break;
    else if (errno != EINTR)
      return -1;
  }
  return done;
}

/* Points *header at the 32 bytes at `offset`; `room` receives short reads. */
static inline int fetch_header(header_source *f, int64_t offset, int64_t end, int near, unsigned char *room,
                               const unsigned char **header) {
  if (f->length > 0 && offset >= f->offset && offset + RECORD_HEADER_BYTES <= f->offset + f->length) {
    *header = f->buffer + (offset - f->offset);
    return WALK_OK;
  }
  if (near && !f->buffer && !(f->buffer = (unsigned char *)malloc(WALK_BUFFER_BYTES))) return WALK_NO_MEMORY;
  int64_t want = near ? min_i64(WALK_BUFFER_BYTES, end - offset) : RECORD_HEADER_BYTES;
  int64_t got = read_fully(f->fd, near ? f->buffer : room, want, offset);
  if (got < 0) {
    f->error = errno;
    return WALK_IO_ERROR;
  }
  if (near) {
    f->offset = offset;
    f->length = got;
  }
  *header = near ? f->buffer : room;
  return got < RECORD_HEADER_BYTES ? WALK_TRUNCATED : WALK_OK;
}

/* Walks `n` headers from `first_offset`; headers come from `memory` (bytes [0, available) of the file) or, when
 * it is NULL, from `f`. Fills rows and body_start, returns the number of good records, and the reason to stop
 * in *code. */
static inline int64_t walk_headers(const unsigned char *memory, int64_t available, header_source *f,
                                   int64_t first_offset, int64_t row_bytes, int64_t end, int64_t n, int64_t *rows,
                                   int64_t *body_start, int *code) {
  unsigned char room[RECORD_HEADER_BYTES];
  int64_t offset = first_offset, limit = memory ? min_i64(end, available) : end;
  int near = 0;
  for (int64_t r = 0; r < n; r++) {
    const unsigned char *header;
    int64_t stored;
    if (offset < 0 || offset > limit - RECORD_HEADER_BYTES) {
      *code = WALK_TRUNCATED;
      return r;
    }
    *code = WALK_OK;
    if (memory)
      header = memory + offset;
    else
      *code = fetch_header(f, offset, end, near, room, &header);
    if (*code == WALK_OK) *code = parse_record(header, r, row_bytes, rows + r, &stored);
    if (*code == WALK_OK && stored > end - offset - RECORD_HEADER_BYTES) *code = WALK_BODY;
    if (*code != WALK_OK) return r;
    body_start[r] = offset + RECORD_HEADER_BYTES;
    offset += RECORD_HEADER_BYTES + stored;
    near = RECORD_HEADER_BYTES + stored < WALK_NEAR_BYTES;
  }
  *code = WALK_OK;
  return n;
}

#endif
