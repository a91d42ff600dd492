/* A local columns file opened and looked at in one go (columns.md 12.1): descriptor, size, prologue, trailer, footer and
 * its checks. Only what is ordinary in every way is taken; whatever is not, damage first of all, is for the caller to open
 * step by step, which finds the words for it. */
#ifndef COLSTORE_FOOTER_FILE_H
#define COLSTORE_FOOTER_FILE_H

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>

#include "gob.h"
#include "record_walk.h"

#if defined(__APPLE__)
#define FOOTER_FILE_MTIME(state) (state).st_mtimespec
#else
#define FOOTER_FILE_MTIME(state) (state).st_mtim
#endif

enum {
  FOOTER_TAIL = 4096,     /* last bytes that are read at once: the footers of most files, and many files whole */
  FOOTER_PROLOGUE = 5,    /* magic and version; version 2 has more, and is not looked at here */
  FOOTER_TRAILER = 8,     /* length of the footer, magic */
  FOOTER_LAST_TYPE = 13,
  FOOTER_MESSAGE = 11     /* bytes of a length, and of the type id behind it, at most */
};

typedef struct {
  int fd;
  int64_t size, mtime_ns, start, n_bytes; /* of the file; where its footer begins, and how long it is */
  uint64_t inode;
  int64_t requests, bytes_read, nanoseconds;
  uint8_t *data;                    /* the footer */
  int64_t schema_start, schema_end; /* what it says of the columns */
  int64_t n_rows;
  gob_list columns, groups, chunks;
  int64_t *places; /* rows of each group, offsets, ends, offsets of chunks: 3 R + R C */
} footer_file;

/* Every open has a descriptor until the file is closed or handed over; so many at most. */
enum { FOOTER_FILES = 64 };
static int64_t footer_files_open = 0;

static inline void footer_file_close(footer_file *f) {
  int fd = __atomic_exchange_n(&f->fd, -1, __ATOMIC_ACQ_REL);
  if (fd < 0) return;
  close(fd);
  __atomic_sub_fetch(&footer_files_open, 1, __ATOMIC_RELAXED);
}

/* Hands the descriptor over, -1 if there is none any more. */
static inline int footer_file_take(footer_file *f) {
  int fd = __atomic_exchange_n(&f->fd, -1, __ATOMIC_ACQ_REL);
  if (fd >= 0) __atomic_sub_fetch(&footer_files_open, 1, __ATOMIC_RELAXED);
  return fd;
}

static inline void footer_file_free(footer_file *f) {
  footer_file_close(f);
  free(f->data);
  free(f->columns.items);
  free(f->groups.items);
  free(f->chunks.items);
  free(f->places);
}

static inline int64_t footer_now(void) {
  struct timespec now;
  return clock_gettime(CLOCK_MONOTONIC, &now) ? 0 : (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Opens the file and brings its footer into memory; 0 when something is out of the ordinary. */
static inline int footer_file_load(footer_file *f, const char *path) {
  static const uint8_t magic[4] = {'A', 'B', 'C', 'D'};
  uint8_t tail[FOOTER_TAIL], head[FOOTER_PROLOGUE];
  struct stat found;
  f->fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (f->fd < 0) return 0;
  __atomic_add_fetch(&footer_files_open, 1, __ATOMIC_RELAXED);
  if (fstat(f->fd, &found) != 0 || !S_ISREG(found.st_mode)) return 0;
  f->size = (int64_t)found.st_size;
  f->mtime_ns = (int64_t)FOOTER_FILE_MTIME(found).tv_sec * 1000000000 + (int64_t)FOOTER_FILE_MTIME(found).tv_nsec;
  f->inode = (uint64_t)found.st_ino;
  if (f->size < FOOTER_PROLOGUE + FOOTER_TRAILER) return 0;
  int64_t n = f->size < FOOTER_TAIL ? f->size : FOOTER_TAIL;
  if (read_fully(f->fd, tail, n, f->size - n) != n) return 0;
  f->requests = 1, f->bytes_read = n;
  const uint8_t *trailer = tail + n - FOOTER_TRAILER, *begin = tail;
  if (n < f->size) {
    if (read_fully(f->fd, head, FOOTER_PROLOGUE, 0) != FOOTER_PROLOGUE) return 0;
    begin = head;
    f->requests++, f->bytes_read += FOOTER_PROLOGUE;
  }
  if (memcmp(begin, magic, 4) != 0 || begin[4] != 1 || memcmp(trailer + 4, magic, 4) != 0) return 0;
  f->n_bytes = (int64_t)trailer[0] | (int64_t)trailer[1] << 8 | (int64_t)trailer[2] << 16 | (int64_t)trailer[3] << 24;
  f->start = f->size - FOOTER_TRAILER - f->n_bytes;
  if (f->start < FOOTER_PROLOGUE || f->n_bytes == 0) return 0;
  f->data = (uint8_t *)malloc((size_t)f->n_bytes);
  if (f->data == NULL) return 0;
  if (f->n_bytes + FOOTER_TRAILER <= n) {
    memcpy(f->data, trailer - f->n_bytes, (size_t)f->n_bytes);
    return 1;
  }
  f->requests++, f->bytes_read += f->n_bytes;
  return read_fully(f->fd, f->data, f->n_bytes, f->start) == f->n_bytes;
}

/* Reads the footer by the tables of the usual definitions, which are `prefix`, and checks it; 0 for anything else. */
static inline int footer_file_parse(footer_file *f, gob_reader g, const uint8_t *prefix, int64_t n_prefix,
                                    int64_t max_rows) {
  const uint8_t *data = f->data;
  int64_t at = n_prefix + 1, length;
  if (f->n_bytes < n_prefix + FOOTER_MESSAGE || memcmp(data, prefix, (size_t)n_prefix) != 0) return 0;
  length = data[n_prefix];
  if (length >= 128) {
    int64_t count = 256 - length;
    if (count > 4) return 0;
    length = 0;
    for (int64_t i = 0; i < count; i++) length = length << 8 | data[at + i];
    at += count;
  }
  if (length < 2 || length > f->n_bytes - at || data[at] != 0xff || data[at + 1] != 0x80) return 0; /* type 64 */
  g.data = data, g.pos = at + 2, g.end = at + length;
  g.schema_start = g.schema_end = 0;
  g.columns = (gob_list){NULL, 0, 0, sizeof(gob_column)};
  g.groups = (gob_list){NULL, 0, 0, sizeof(gob_group)};
  g.chunks = (gob_list){NULL, 0, 0, sizeof(gob_chunk)};
  int code = gob_read_footer(&g);
  f->columns = g.columns, f->groups = g.groups, f->chunks = g.chunks; /* what there is, to be freed */
  if (code != GOB_OK) return 0;
  f->schema_start = g.schema_start, f->schema_end = g.schema_end;
  int64_t n_columns = g.columns.count, n_groups = g.groups.count, group, column;
  const gob_column *columns = (const gob_column *)g.columns.items;
  const gob_group *groups = (const gob_group *)g.groups.items;
  for (int64_t c = 0; c < n_columns; c++)
    if (columns[c].type < 1 || columns[c].type > FOOTER_LAST_TYPE) return 0;
  if (!columns_fit(groups, n_groups, n_columns, g.chunks.count, &group)) return 0;
  f->places = (int64_t *)malloc(sizeof(int64_t) * (size_t)(3 * n_groups + g.chunks.count + 1));
  uint8_t *nullable = (uint8_t *)malloc((size_t)(n_columns + 1));
  if (f->places == NULL || nullable == NULL) {
    free(nullable);
    return 0;
  }
  for (int64_t c = 0; c < n_columns; c++) nullable[c] = columns[c].nullable;
  for (int64_t r = 0; r < n_groups; r++) {
    f->places[r] = groups[r].n_rows, f->places[n_groups + r] = groups[r].byte_offset;
    f->n_rows += groups[r].n_rows;
  }
  code = place_chunks(groups, n_groups, (const gob_chunk *)g.chunks.items, nullable, n_columns, FOOTER_PROLOGUE,
                      f->start, 0, max_rows, f->places + 3 * n_groups, f->places + 2 * n_groups, &group, &column);
  free(nullable);
  return code == PLACE_OK;
}

/* Returns 1 when the file is open and its footer sound. Else `f` is empty, and nothing is open. */
static inline int footer_file_open(footer_file *f, const char *path, const gob_reader *tables, const uint8_t *prefix,
                                   int64_t n_prefix, int64_t max_rows) {
  int64_t begin = footer_now();
  memset(f, 0, sizeof *f);
  f->fd = -1;
  if (__atomic_load_n(&footer_files_open, __ATOMIC_RELAXED) < FOOTER_FILES && footer_file_load(f, path)) {
    f->nanoseconds = footer_now() - begin;
    if (footer_file_parse(f, *tables, prefix, n_prefix, max_rows)) return 1;
  }
  footer_file_free(f);
  memset(f, 0, sizeof *f);
  f->fd = -1;
  return 0;
}

#endif
