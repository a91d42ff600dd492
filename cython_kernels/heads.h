/* The first bytes of many files, and whether they say the same as those of the first one. */
#ifndef COLSTORE_HEADS_H
#define COLSTORE_HEADS_H

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "record_walk.h"

/* What is known of a file after `read_head`, in this order, int64 each. */
enum { HEAD_ERROR, HEAD_LENGTH, HEAD_SIZE, HEAD_MTIME_NS, HEAD_INODE, HEAD_FIELDS };

#define HEAD_UNUSUAL (-1) /* not a regular file, or cut short meanwhile: for somebody else to look at */

#if defined(__APPLE__)
#define MTIME_OF(state) (state).st_mtimespec
#else
#define MTIME_OF(state) (state).st_mtim
#endif

/* Opens a file, reads up to `room` bytes, asks for its state *after* that (what a commit in between has put into the
 * head must not lie behind the end that is believed in), closes it. O_NONBLOCK: a named pipe would wait for a writer. */
static inline void read_head(const char *path, unsigned char *head, int64_t room, int64_t *state) {
  struct stat found;
  int fd;
  memset(state, 0, HEAD_FIELDS * sizeof *state);
  do fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  while (fd < 0 && errno == EINTR);
  if (fd < 0) {
    state[HEAD_ERROR] = errno;
    return;
  }
  int64_t length = read_fully(fd, head, room, 0);
  if (length < 0 || fstat(fd, &found) != 0 || !S_ISREG(found.st_mode)) {
    state[HEAD_ERROR] = HEAD_UNUSUAL;
  } else {
    state[HEAD_LENGTH] = length;
    state[HEAD_SIZE] = (int64_t)found.st_size;
    state[HEAD_MTIME_NS] = (int64_t)MTIME_OF(found).tv_sec * 1000000000 + (int64_t)MTIME_OF(found).tv_nsec;
    state[HEAD_INODE] = (int64_t)found.st_ino;
    if (length != min_i64(room, state[HEAD_SIZE])) state[HEAD_ERROR] = HEAD_UNUSUAL;
  }
  close(fd);
}

/* Layout C (cstore.md 1 and 2): magic, counters, length and text of the manifest. */
#define MAGIC_BYTES 8
#define COUNTERS_AT 8
#define COUNTERS_CHECKED 24
#define MANIFEST_LENGTH_AT 72

/* Rows of a file whose head has the manifest of `model`, which ends at `text_end`, and whose one record begins at
 * `record`; -1 where anything is otherwise or unsound. */
static inline int64_t alike_rows(const unsigned char *model, const unsigned char *head, const int64_t *state,
                                 int64_t text_end, int64_t record, int64_t row_bytes) {
  int64_t body = record + RECORD_HEADER_BYTES, rows, stored;
  if (state[HEAD_ERROR] != 0 || state[HEAD_LENGTH] < body) return -1;
  if (memcmp(head, model, MAGIC_BYTES) != 0) return -1;
  if (memcmp(head + MANIFEST_LENGTH_AT, model + MANIFEST_LENGTH_AT, (size_t)(text_end - MANIFEST_LENGTH_AT)) != 0)
    return -1;
  if (crc_words(head + COUNTERS_AT, COUNTERS_CHECKED) != load_u32(head + COUNTERS_AT + COUNTERS_CHECKED)) return -1;
  if (load_i64(head + COUNTERS_AT) != 1) return -1;
  if (parse_record(head + record, 0, row_bytes, &rows, &stored) != WALK_OK) return -1;
  if (rows != load_i64(head + COUNTERS_AT + 8) || stored > state[HEAD_SIZE] - body) return -1;
  return rows;
}

#endif
