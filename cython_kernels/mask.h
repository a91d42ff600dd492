/* Boolean masks: counting, and copying the rows where a mask is true (mask compaction). */
#ifndef COLSTORE_MASK_H
#define COLSTORE_MASK_H

#include "segment_table.h"

/* Rows whose selected count one entry of mask_offsets accounts for, and one unit of parallel work. */
#define MASK_CHUNK_ROWS 16384

static inline int64_t count_true(const uint8_t *mask, int64_t n) {
  int64_t total = 0;
  for (int64_t i = 0; i < n; i++) total += mask[i] != 0;
  return total;
}

/* Appends the selected items of one run to [q, stop). NULL when they do not fit: the mask has changed since it
 * was counted. */
static inline char *compress_run(char *q, char *stop, const char *source, const uint8_t *mask, int64_t n,
                                 int64_t width) {
  for (int64_t i = 0; i < n; i++) {
    if (!mask[i]) continue;
    if (stop - q < width) return NULL;
    memcpy(q, source + i * width, (size_t)width);
    q += width;
  }
  return q;
}

/* Rows [begin, end) of column c into exactly [q, stop). Returns 0, or 1 when mask and offsets disagree. */
static inline int compress_span(const segment_table *t, int64_t c, const uint8_t *mask, int64_t begin, int64_t end,
                                char *q, char *stop) {
  const uint64_t *base = t->base + c * t->n_segments;
  int64_t width = t->itemsize[c];
  int64_t row = begin;
  for (int64_t s = search_segment(t, begin); s < t->n_segments && row < end; s++) {
    int64_t from = row > t->row_start[s] ? row : t->row_start[s], to = min_i64(end, t->row_stop[s]);
    if (from >= to) continue;
    q = compress_run(q, stop, (const char *)(uintptr_t)(base[s] + (uint64_t)from * (uint64_t)width), mask + from,
                     to - from, width);
    if (!q) return 1;
    row = to;
  }
  return q != stop;
}

/* True when the mask selects a row that no segment holds. */
static inline int mask_hits_gap(const segment_table *t, const uint8_t *mask) {
  int64_t row = 0;
  for (int64_t s = 0; s <= t->n_segments; s++) {
    int64_t stop = s < t->n_segments ? t->row_start[s] : t->n_rows;
    if (stop > row && count_true(mask + row, stop - row)) return 1;
    if (s < t->n_segments && t->row_stop[s] > row) row = t->row_stop[s];
  }
  return 0;
}

#endif
