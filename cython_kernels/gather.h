/* Inner loops of take and copy_strided. Each call does one chunk of rows for all columns and touches no shared
 * state but the table, so any thread may do any chunk. */
#ifndef COLSTORE_GATHER_H
#define COLSTORE_GATHER_H

#include "segment_table.h"

#define MAX_BLOCK 256

/* Checks and folds a block of indices into rows; 0 when one lies outside [-n_rows, n_rows).
 * i + n and n - 1 - i are both >= 0 exactly for the good ones; where one wraps (n_rows <= 2^62), the other is
 * negative. Sign bits are collected by OR, which vectorises on every machine. */
KERNEL_INLINE int fold_rows(const int64_t *indices, int64_t m, int64_t n_rows, int64_t *rows) {
  uint64_t bad = 0, n = (uint64_t)n_rows;
  for (int64_t k = 0; k < m; k++) {
    uint64_t i = (uint64_t)indices[k];
    bad |= (i + n) | (n - 1 - i);
    rows[k] = (int64_t)(i + (n & (uint64_t)(indices[k] >> 63)));
  }
  return !(bad >> 63);
}

static inline int64_t first_bad(const int64_t *indices, int64_t begin, int64_t end, int64_t n_rows) {
  for (int64_t k = begin; k < end; k++)
    if (indices[k] >= n_rows || indices[k] < -n_rows) return k;
  return -1;
}

/* Scans [begin, end) in blocks that stop at the first bad one. */
static inline int64_t check_span(const int64_t *indices, int64_t begin, int64_t end, int64_t n_rows) {
  for (int64_t i = begin; i < end; i += 1024) {
    int64_t stop = min_i64(i + 1024, end);
    int bad = 0;
    for (int64_t k = i; k < stop; k++) bad |= (indices[k] >= n_rows) | (indices[k] < -n_rows);
    if (bad) return first_bad(indices, i, stop, n_rows);
  }
  return -1;
}

/* Segment of every row of a block; returns it when all rows lie in one, else -1 and fills `segments`. */
KERNEL_INLINE int64_t locate_block(const segment_table *t, const bucket_index *b, int route, const int64_t *rows,
                                   int64_t m, int32_t *segments, int64_t *cursor) {
  switch (route) {
    case ROUTE_AFFINE: return 0;
    case ROUTE_UNIFORM:
      for (int64_t k = 0; k < m; k++) segments[k] = (int32_t)uniform_segment(t, rows[k]);
      return -1;
    case ROUTE_BUCKET:
      for (int64_t k = 0; k < m; k++) segments[k] = (int32_t)bucket_segment(t, b, rows[k]);
      return -1;
    case ROUTE_CURSOR: {
      uint64_t backward = 0;
      for (int64_t k = 1; k < m; k++) backward |= (uint64_t)(rows[k] - rows[k - 1]);
      int64_t s = cursor_segment(t, *cursor, rows[0]);
      *cursor = s;
      if (!(backward >> 63) && rows[m - 1] < t->row_start[s + 1]) return s;
      for (int64_t k = 0; k < m; k++) {
        s = cursor_segment(t, s, rows[k]);
        segments[k] = (int32_t)s;
      }
      *cursor = s;
      return -1;
    }
    default:
      for (int64_t k = 0; k < m; k++) segments[k] = (int32_t)search_segment(t, rows[k]);
      return -1;
  }
}

static inline int64_t first_unstored(const segment_table *t, const int64_t *rows, int64_t m, int64_t one,
                                     const int32_t *segments) {
  for (int64_t k = 0; k < m; k++)
    if (!row_is_stored(t, one >= 0 ? one : segments[k], rows[k])) return k;
  return -1;
}

KERNEL_INLINE void load_items(char *target, const uint64_t *addresses, int64_t m, int64_t width) {
#define LOOP(w)                                                                                                \
  for (int64_t k = 0; k < m; k++) copy_item(target + k * (w), (const char *)(uintptr_t)addresses[k], w);
  WITH_WIDTH(width, LOOP)
#undef LOOP
}

/* Gathers rows indices[begin:end) of all columns. Returns -1, or the position of a bad index.
 *
 * Software pipeline over stages (block, column): a stage computes its addresses and prefetches them, then the
 * stage before it is loaded, whose lines have arrived by then. Segments are found once a block for all
 * columns. No address is formed before its block has passed the check. */
static inline int64_t take_span(const segment_table *t, const bucket_index *b, int route, const int64_t *indices,
                                int64_t begin, int64_t end, char *const *out, int64_t prefetch) {
  int64_t rows[MAX_BLOCK];
  int32_t segments[MAX_BLOCK];
  uint64_t addresses[2][MAX_BLOCK];
  int64_t block = prefetch <= 0 ? 128 : min_i64(prefetch, MAX_BLOCK);
  int64_t cursor = 0, pending = 0, pending_width = 0;
  char *pending_target = NULL;
  int turn = 0;
  for (int64_t i = begin; i < end; i += block) {
    int64_t m = min_i64(block, end - i);
    if (UNLIKELY(!fold_rows(indices + i, m, t->n_rows, rows))) return first_bad(indices, i, i + m, t->n_rows);
    int64_t one = locate_block(t, b, route, rows, m, segments, &cursor);
    if (UNLIKELY(t->has_gaps)) {
      int64_t k = first_unstored(t, rows, m, one, segments);
      if (k >= 0) return i + k;
    }
    for (int64_t c = 0; c < t->n_columns; c++) {
      uint64_t *next = addresses[turn];
      const uint64_t *base = t->base + c * t->n_segments;
      uint64_t width = (uint64_t)t->itemsize[c];
      if (one >= 0) {
        uint64_t from = base[one];
        for (int64_t k = 0; k < m; k++) next[k] = from + (uint64_t)rows[k] * width;
      } else {
        for (int64_t k = 0; k < m; k++) next[k] = base[segments[k]] + (uint64_t)rows[k] * width;
      }
      if (prefetch > 0)
        for (int64_t k = 0; k < m; k++) PREFETCH_L2(next[k]);
      load_items(pending_target, addresses[turn ^ 1], pending, pending_width);
      pending_target = out[c] + i * (int64_t)width;
      pending = m;
      pending_width = (int64_t)width;
      turn ^= 1;
    }
  }
  load_items(pending_target, addresses[turn ^ 1], pending, pending_width);
  return -1;
}

/* ---- arithmetic progressions of rows ---------------------------------------------------------------- */

KERNEL_INLINE void strided_items(char *target, const char *source, int64_t m, int64_t jump, int64_t width) {
#define LOOP(w)                                                                                                \
  for (int64_t k = 0; k < m; k++) copy_item(target + k * (w), source + k * jump, w);
  WITH_WIDTH(width, LOOP)
#undef LOOP
}

/* Rows start + k*step for k in [begin, end) of column c. Returns 0, or 1 on a row that no segment holds. */
static inline int strided_span(const segment_table *t, int64_t c, int64_t start, int64_t step, int64_t begin,
                               int64_t end, char *out) {
  const uint64_t *base = t->base + c * t->n_segments;
  int64_t width = t->itemsize[c];
  int64_t k = begin, row = start + begin * step;
  if (k >= end) return 0;
  int64_t s = search_segment(t, row);
  char *target = out + begin * width;
  while (k < end) {
    while (row >= t->row_start[s + 1]) s++;
    while (s > 0 && row < t->row_start[s]) s--;
    if (!row_is_stored(t, s, row)) return 1;
    int64_t room = step > 0 ? (t->row_stop[s] - 1 - row) / step : (row - t->row_start[s]) / -step;
    int64_t m = min_i64(room + 1, end - k);
    const char *source = (const char *)(uintptr_t)(base[s] + (uint64_t)row * (uint64_t)width);
    if (step == 1)
      memcpy(target, source, (size_t)(m * width));
    else
      strided_items(target, source, m, step * width, width);
    target += m * width;
    k += m;
    if (k < end) row += m * step;
  }
  return 0;
}

#endif
