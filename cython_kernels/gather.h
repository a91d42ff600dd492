/* Inner loops of take and copy_strided. Each call does one chunk of rows for all columns and touches no shared
 * state but the table, so any thread may do any chunk. */
#ifndef COLSTORE_GATHER_H
#define COLSTORE_GATHER_H

#include "segment_table.h"

/* Rows checked ahead, and gathered column after column: their row numbers (32 KiB) and segment numbers (16 KiB)
 * stay in L1/L2 for all columns. */
#define BLOCK_ROWS 4096
/* With one segment there are no segment numbers to keep, and long stretches of one column are better: their page
 * tables stay in the cache. */
#ifndef AFFINE_BLOCK_ROWS
#define AFFINE_BLOCK_ROWS 65536
#endif
/* Addresses in flight between prefetch and load; a power of two above every prefetch distance. */
#define RING 256

enum { SCAN_BAD = 1, SCAN_NEGATIVE = 2 };

/* SCAN_BAD when some index lies outside [-n_rows, n_rows), SCAN_NEGATIVE when some is negative. i + n and n - 1 - i
 * are both >= 0 exactly for the good ones; where one of them wraps (n_rows <= 2^62), the other is negative.
 * Collecting sign bits by OR vectorises on every machine; comparing 64-bit integers does not (SSE2 cannot). */
KERNEL_INLINE int scan_block(const int64_t *indices, int64_t begin, int64_t end, int64_t n_rows) {
  uint64_t bad = 0, negative = 0, n = (uint64_t)n_rows;
  for (int64_t k = begin; k < end; k++) {
    uint64_t i = (uint64_t)indices[k];
    bad |= (i + n) | (n - 1 - i);
    negative |= i;
  }
  return (int)(bad >> 63) * SCAN_BAD | (int)(negative >> 63) * SCAN_NEGATIVE;
}

KERNEL_INLINE int64_t fold(int64_t index, int64_t n_rows) { return index + (n_rows & (index >> 63)); }

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

typedef struct {
  uint64_t ring[RING];
  int64_t cursor; /* segment of the row before, for ROUTE_CURSOR; goes on from block to block */
} pipeline;

enum { ROUTE_STORED = ROUTE_CURSOR + 1 }; /* segments were written by the first column */

/* Segment of a row. `route` is a constant wherever this is inlined. */
KERNEL_INLINE int64_t segment_by(int route, const segment_table *t, const bucket_index *b, int64_t *cursor,
                                 int64_t row) {
  switch (route) {
    case ROUTE_UNIFORM: return uniform_segment(t, row);
    case ROUTE_BUCKET: return bucket_segment(t, b, row);
    case ROUTE_CURSOR:
      if (UNLIKELY(row < t->row_start[*cursor] || row >= t->row_start[*cursor + 1]))
        *cursor = cursor_segment(t, *cursor, row);
      return *cursor;
    default: return search_segment(t, row);
  }
}

/* Gathers `m` rows of one column in one segment. Few instructions an item matter: the reorder window then reaches
 * further ahead, which is what hides memory latency in sorted input. */
KERNEL_INLINE void affine_loop(int64_t width, uint64_t base, const int64_t *rows, int64_t m, char *out,
                               int64_t distance) {
#define AT(k) (base + (uint64_t)rows[k] * (uint64_t)width)
  int64_t k = 0;
  if (distance > 0)
    for (; k < m - distance; k++) {
      PREFETCH_L2(AT(k + distance));
      copy_item(out + k * width, (const char *)(uintptr_t)AT(k), width);
    }
  for (; k < m; k++) copy_item(out + k * width, (const char *)(uintptr_t)AT(k), width);
#undef AT
}

static void gather_affine(int64_t width, uint64_t base, const int64_t *rows, int64_t m, char *out, int64_t distance) {
#define LOOP(w) affine_loop(w, base, rows, m, out, distance);
  WITH_WIDTH(width, LOOP)
#undef LOOP
}

/* Gathers `m` rows of one column over many segments in one software-pipelined loop: each turn finds the address
 * of an item, prefetches it, and loads the item whose address was found `distance` turns ago.
 *
 * One loop and not two (first all addresses of a block, then all loads): bursts of prefetches fill the miss
 * queues and then leave them empty, 27 against 19 ms for 2 M random rows of 8 bytes. */
KERNEL_INLINE void gather_loop(int route, int64_t width, const segment_table *t, const bucket_index *b,
                               const uint64_t *base, const int64_t *rows, int64_t m, char *out, int32_t *segments,
                               int64_t distance, pipeline *p) {
  int64_t cursor = p->cursor, pushed = 0, loaded = 0;
#define ADDRESS(k)                                                                                             \
  int64_t row = rows[k], s;                                                                                    \
  if (route == ROUTE_STORED)                                                                                   \
    s = segments[k];                                                                                           \
  else {                                                                                                       \
    s = segment_by(route, t, b, &cursor, row);                                                                 \
    if (segments) segments[k] = (int32_t)s;                                                                    \
  }                                                                                                            \
  uint64_t address = base[s] + (uint64_t)row * (uint64_t)width;
#define PUSH                                                                                                   \
  {                                                                                                            \
    ADDRESS(pushed)                                                                                            \
    PREFETCH_L2(address);                                                                                      \
    p->ring[pushed % RING] = address;                                                                          \
    pushed++;                                                                                                  \
  }
#define LOAD                                                                                                   \
  {                                                                                                            \
    copy_item(out + loaded * width, (const char *)(uintptr_t)p->ring[loaded % RING], width);                   \
    loaded++;                                                                                                  \
  }
  if (distance == 0) { /* not through the ring: a load that waits for the store before it doubles the time */
    for (int64_t k = 0; k < m; k++) {
      ADDRESS(k)
      copy_item(out + k * width, (const char *)(uintptr_t)address, width);
    }
  } else {
    int64_t start = min_i64(m, distance);
    while (pushed < start) PUSH
    while (pushed < m) {
      PUSH
      LOAD
    }
    while (loaded < m) LOAD
  }
#undef ADDRESS
#undef PUSH
#undef LOAD
  p->cursor = cursor;
}

/* One instance of the loop for each pair of route and typed width. */
#define GATHER_BY(route)                                                                                       \
  static void gather_##route(int64_t width, const segment_table *t, const bucket_index *b, const uint64_t *base, \
                             const int64_t *rows, int64_t m, char *out, int32_t *segments, int64_t distance,   \
                             pipeline *p) {                                                                    \
    WITH_WIDTH(width, GATHER_##route)                                                                          \
  }
#define GATHER_LOOP(route, w) \
  gather_loop(route, w, t, b, base, rows, m, out, segments, distance, p);
#define GATHER_ROUTE_UNIFORM(w) GATHER_LOOP(ROUTE_UNIFORM, w)
#define GATHER_ROUTE_BUCKET(w) GATHER_LOOP(ROUTE_BUCKET, w)
#define GATHER_ROUTE_SEARCH(w) GATHER_LOOP(ROUTE_SEARCH, w)
#define GATHER_ROUTE_CURSOR(w) GATHER_LOOP(ROUTE_CURSOR, w)
#define GATHER_ROUTE_STORED(w) GATHER_LOOP(ROUTE_STORED, w)
GATHER_BY(ROUTE_UNIFORM)
GATHER_BY(ROUTE_BUCKET)
GATHER_BY(ROUTE_SEARCH)
GATHER_BY(ROUTE_CURSOR)
GATHER_BY(ROUTE_STORED)

typedef void (*gather_function)(int64_t, const segment_table *, const bucket_index *, const uint64_t *,
                                const int64_t *, int64_t, char *, int32_t *, int64_t, pipeline *);

KERNEL_INLINE gather_function gather_by(int route) {
  switch (route) {
    case ROUTE_UNIFORM: return gather_ROUTE_UNIFORM;
    case ROUTE_BUCKET: return gather_ROUTE_BUCKET;
    case ROUTE_CURSOR: return gather_ROUTE_CURSOR;
    case ROUTE_STORED: return gather_ROUTE_STORED;
    default: return gather_ROUTE_SEARCH;
  }
}

/* First of `m` rows that lies in a gap, or -1. Only tables over fetched ranges have gaps, and pay for finding each
 * segment twice. */
static inline int64_t first_unstored(const segment_table *t, const int64_t *rows, int64_t m) {
  int64_t cursor = 0;
  for (int64_t k = 0; k < m; k++)
    if (!row_is_stored(t, segment_by(ROUTE_CURSOR, t, NULL, &cursor, rows[k]), rows[k])) return k;
  return -1;
}

/* Gathers rows indices[begin:end) of all columns. Returns -1, or the position of a bad index. Every block is
 * checked before the first address is formed from it. */
static inline int64_t take_span(const segment_table *t, const bucket_index *b, int route, const int64_t *indices,
                                int64_t begin, int64_t end, char *const *out, int64_t prefetch) {
  pipeline p;
  int64_t folded[BLOCK_ROWS];
  int32_t segments[BLOCK_ROWS];
  int64_t distance = prefetch < 0 ? 0 : min_i64(prefetch, RING - 1);
  int64_t block = route == ROUTE_AFFINE ? AFFINE_BLOCK_ROWS : BLOCK_ROWS;
  p.cursor = 0;
  for (int64_t i = begin, stop; i < end; i = stop) {
    stop = min_i64(i + block, end);
    int found = scan_block(indices, i, stop, t->n_rows);
    if (UNLIKELY(found & SCAN_BAD)) return first_bad(indices, i, stop, t->n_rows);
    const int64_t *rows = indices + i;
    if (UNLIKELY(found & SCAN_NEGATIVE)) {
      stop = min_i64(i + BLOCK_ROWS, end);
      for (int64_t k = i; k < stop; k++) folded[k - i] = fold(indices[k], t->n_rows);
      rows = folded;
    }
    int64_t m = stop - i;
    if (UNLIKELY(t->has_gaps)) {
      int64_t k = first_unstored(t, rows, m);
      if (k >= 0) return i + k;
    }
    for (int64_t c = 0; c < t->n_columns; c++) {
      int64_t width = t->itemsize[c];
      const uint64_t *base = t->base + c * t->n_segments;
      if (route == ROUTE_AFFINE)
        gather_affine(width, base[0], rows, m, out[c] + i * width, distance);
      else
        gather_by(c == 0 ? route : ROUTE_STORED)(width, t, b, base, rows, m, out[c] + i * width,
                                                 t->n_columns > 1 ? segments : NULL, distance, &p);
    }
  }
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
