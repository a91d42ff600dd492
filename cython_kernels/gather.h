/* Inner loops of take and copy_strided. Each call does one chunk of rows for all columns and touches no shared
 * state but the table, so any thread may do any chunk. */
#ifndef COLSTORE_GATHER_H
#define COLSTORE_GATHER_H

#include "segment_table.h"

/* Indices checked at a time. Short, so that the processor overlaps the check of one block with the cache misses of
 * the block before: 64 rows 16.6, 512 rows 17.7, 4096 rows 18.3 ms for 2 M random rows of 8 bytes. */
#define CHECK_ROWS 64
/* With several columns, rows gathered column after column: long stretches of one column, so that its page tables
 * stay in the cache; bounded by the indices and segment numbers kept for the other columns (192 KiB, or 512 without segments). */
#define BLOCK_ROWS 16384
#define AFFINE_BLOCK_ROWS 65536
/* The same where there is no memory for more: these are on the stack. */
#define SCARCE_ROWS 1024
/* Addresses in flight between prefetch and load; a power of two above every prefetch distance. */
#define RING 256

/* Whether some index lies outside [-n_rows, n_rows). i + n and n - 1 - i are both >= 0 exactly for the good ones;
 * where one of them wraps (n_rows <= 2^62), the other is negative. Collecting sign bits by OR vectorises on every
 * machine; comparing 64-bit integers does not (SSE2 cannot). */
KERNEL_INLINE int block_is_bad(const int64_t *indices, int64_t m, int64_t n_rows) {
  uint64_t bad = 0, n = (uint64_t)n_rows;
  for (int64_t k = 0; k < m; k++) {
    uint64_t i = (uint64_t)indices[k];
    bad |= (i + n) | (n - 1 - i);
  }
  return (int)(bad >> 63);
}

/* Copies indices to where no other thread writes, so that what is checked is what is used: a caller's array may
 * change meanwhile. Each index is read once; the compiler is kept from reading the caller's memory again. */
KERNEL_INLINE void own_indices(int64_t *own, const int64_t *indices, int64_t m) {
  memcpy(own, indices, (size_t)m * sizeof *own);
#if defined(__GNUC__)
  __asm__ volatile("" : : "r"(own) : "memory");
#endif
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
    if (UNLIKELY(block_is_bad(indices + i, stop - i, n_rows))) return first_bad(indices, i, stop, n_rows);
  }
  return -1;
}

enum { ROUTE_STORED = ROUTE_CURSOR + 1 }; /* segments were written by the first column */

/* Segment of a row. `route` is a constant wherever this is inlined. */
KERNEL_INLINE int64_t segment_by(int route, const segment_table *t, int64_t *cursor, int64_t row) {
  switch (route) {
    case ROUTE_UNIFORM: return uniform_segment(t, row);
    case ROUTE_CURSOR:
      if (UNLIKELY(row < t->row_start[*cursor] || row >= t->row_start[*cursor + 1]))
        *cursor = cursor_segment(t, *cursor, row);
      return *cursor;
    default: return search_segment(t, row);
  }
}

/* First of `m` checked indices whose row lies in a gap, or -1. Only tables over fetched ranges have gaps, and pay
 * for finding each segment twice. */
static inline int64_t first_unstored(const segment_table *t, const int64_t *indices, int64_t m) {
  int64_t cursor = 0;
  for (int64_t k = 0; k < m; k++) {
    int64_t row = fold(indices[k], t->n_rows);
    if (!row_is_stored(t, segment_by(ROUTE_CURSOR, t, &cursor, row), row)) return k;
  }
  return -1;
}

/* Gathers `m` rows of one column in one software-pipelined loop: each turn finds the address of an item, prefetches
 * it, and loads the item whose address was found `distance` turns ago. Returns -1, or the position of a bad index.
 *
 * With `check`, indices are read once, into `own`, and checked there: into all of it for the columns that follow, or
 * (NULL) into a block on the stack. Without, `indices` is what an earlier column left in `own`.
 *
 * One loop and not two (first all addresses of a block, then all loads): bursts of prefetches fill the miss
 * queues and then leave them empty, 27 against 17 ms for 2 M random rows of 8 bytes. */
KERNEL_INLINE int64_t gather_loop(int route, int64_t width, const segment_table *t, const bucket_index *b,
                                  const uint64_t *base, const int64_t *indices, int64_t m, char *out,
                                  int64_t *own, int32_t *segments, int64_t distance, int check) {
  uint64_t ring[RING], only = base[0];
  int32_t block[CHECK_ROWS], *found = block;
  int64_t few[CHECK_ROWS];
  int64_t n_rows = t->n_rows, cursor = 0, pushed = 0, loaded = 0;
#define ADDRESS(k)                                                                                             \
  int64_t row = fold(checked[(k) - i], n_rows), s = 0;                                                         \
  if (route == ROUTE_STORED || route == ROUTE_BUCKET || route == ROUTE_SEARCH)                                 \
    s = found[(k) - i];                                                                                        \
  else if (route != ROUTE_AFFINE) {                                                                            \
    s = segment_by(route, t, &cursor, row);                                                                 \
    if (segments) segments[k] = (int32_t)s;                                                                    \
  }                                                                                                            \
  uint64_t address = (route == ROUTE_AFFINE ? only : base[s]) + (uint64_t)row * (uint64_t)width;
#define PUSH                                                                                                   \
  {                                                                                                            \
    ADDRESS(pushed)                                                                                            \
    PREFETCH_L2(address);                                                                                      \
    ring[pushed % RING] = address;                                                                             \
    pushed++;                                                                                                  \
  }
#define LOAD                                                                                                   \
  {                                                                                                            \
    copy_item(out + loaded * width, (const char *)(uintptr_t)ring[loaded % RING], width);                      \
    loaded++;                                                                                                  \
  }
  for (int64_t i = 0; i < m; i += CHECK_ROWS) {
    int64_t end = min_i64(i + CHECK_ROWS, m);
    const int64_t *checked = indices + i;
    if (check) {
      int64_t *mine = own ? own + i : few;
      own_indices(mine, indices + i, end - i);
      if (UNLIKELY(block_is_bad(mine, end - i, n_rows))) return i + first_bad(mine, 0, end - i, n_rows);
      if (UNLIKELY(t->has_gaps)) {
        int64_t unstored = first_unstored(t, mine, end - i);
        if (unstored >= 0) return i + unstored;
      }
      checked = mine;
    }
    if (segments) found = segments + i;
    if (route == ROUTE_BUCKET || route == ROUTE_SEARCH) {
      int64_t rows[CHECK_ROWS];
      for (int64_t k = i; k < end; k++) rows[k - i] = fold(checked[k - i], n_rows);
      if (route == ROUTE_BUCKET)
        bucket_block(t, b, rows, end - i, found);
      else
        search_block(t, rows, end - i, found);
    }
    if (distance == 0) { /* not through the ring: a load that waits for the store before it doubles the time */
      for (int64_t k = i; k < end; k++) {
        ADDRESS(k)
        copy_item(out + k * width, (const char *)(uintptr_t)address, width);
      }
      continue;
    }
    int64_t start = min_i64(end, loaded + distance);
    while (pushed < start) PUSH
    while (pushed < end) {
      PUSH
      LOAD
    }
  }
  if (distance > 0)
    while (loaded < m) LOAD
#undef ADDRESS
#undef PUSH
#undef LOAD
  return -1;
}

/* One instance of the loop for each route and typed width; the first column checks, later ones do not. */
#define GATHER_BY(name, route, check)                                                                          \
  static int64_t name(int64_t width, const segment_table *t, const bucket_index *b, const uint64_t *base,      \
                      const int64_t *indices, int64_t m, char *out, int64_t *own, int32_t *segments,           \
                      int64_t distance) {                                                                      \
    switch (width) {                                                                                           \
      case 1: return gather_loop(route, 1, t, b, base, indices, m, out, own, segments, distance, check);      \
      case 2: return gather_loop(route, 2, t, b, base, indices, m, out, own, segments, distance, check);      \
      case 4: return gather_loop(route, 4, t, b, base, indices, m, out, own, segments, distance, check);      \
      case 8: return gather_loop(route, 8, t, b, base, indices, m, out, own, segments, distance, check);      \
      case 16: return gather_loop(route, 16, t, b, base, indices, m, out, own, segments, distance, check);     \
      default: return gather_loop(route, width, t, b, base, indices, m, out, own, segments, distance, check);  \
    }                                                                                                          \
  }
GATHER_BY(gather_affine, ROUTE_AFFINE, 1)
GATHER_BY(gather_affine_checked, ROUTE_AFFINE, 0)
GATHER_BY(gather_uniform, ROUTE_UNIFORM, 1)
GATHER_BY(gather_bucket, ROUTE_BUCKET, 1)
GATHER_BY(gather_search, ROUTE_SEARCH, 1)
GATHER_BY(gather_cursor, ROUTE_CURSOR, 1)
GATHER_BY(gather_stored, ROUTE_STORED, 0)

typedef int64_t (*gather_function)(int64_t, const segment_table *, const bucket_index *, const uint64_t *,
                                   const int64_t *, int64_t, char *, int64_t *, int32_t *, int64_t);

static inline gather_function gather_by(int route, int first) {
  if (route == ROUTE_AFFINE) return first ? gather_affine : gather_affine_checked;
  if (!first) return gather_stored;
  switch (route) {
    case ROUTE_UNIFORM: return gather_uniform;
    case ROUTE_BUCKET: return gather_bucket;
    case ROUTE_CURSOR: return gather_cursor;
    default: return gather_search;
  }
}

/* Gathers rows indices[begin:end) of all columns. Returns -1, or the position of a bad index. No address is formed
 * from an index that has not been checked, and none is read a second time after its check. */
static inline int64_t take_span(const segment_table *t, const bucket_index *b, int route, const int64_t *indices,
                                int64_t begin, int64_t end, char *const *out, int64_t prefetch) {
  int64_t distance = prefetch < 0 ? 0 : min_i64(prefetch, RING - 1);
  if (UNLIKELY(t->n_columns == 0)) return check_span(indices, begin, end, t->n_rows);
  if (t->n_columns == 1) {
    int64_t bad = gather_by(route, 1)(t->itemsize[0], t, b, t->base, indices + begin, end - begin,
                                      out[0] + begin * t->itemsize[0], NULL, NULL, distance);
    return bad < 0 ? -1 : begin + bad;
  }
  int64_t few[SCARCE_ROWS], *own = few, bad = -1;
  int32_t few_segments[SCARCE_ROWS], *segments = route == ROUTE_AFFINE ? NULL : few_segments;
  int64_t block = min_i64(route == ROUTE_AFFINE ? AFFINE_BLOCK_ROWS : BLOCK_ROWS, end - begin);
  void *scratch = NULL;
  if (block > SCARCE_ROWS) {
    scratch = malloc((size_t)block * (sizeof *own + (segments ? sizeof *segments : 0)));
    if (scratch) {
      own = (int64_t *)scratch;
      if (segments) segments = (int32_t *)(own + block);
    } else {
      block = SCARCE_ROWS;
    }
  }
  for (int64_t i = begin; i < end && bad < 0; i += block) {
    int64_t m = min_i64(block, end - i);
    for (int64_t c = 0; c < t->n_columns; c++) {
      int64_t width = t->itemsize[c];
      bad = gather_by(route, c == 0)(width, t, b, t->base + c * t->n_segments, c == 0 ? indices + i : own, m,
                                     out[c] + i * width, own, segments, distance);
      if (UNLIKELY(bad >= 0)) { /* only the first column checks */
        bad += i;
        break;
      }
    }
  }
  free(scratch);
  return bad;
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
