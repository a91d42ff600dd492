/* Where rows live: the C side of SegmentTable, and the ways from a row number to its segment.
 *
 * Row i of column c is at base[c*S + s] + i*itemsize[c] with the global i (cstore.md 14), s being the last
 * segment whose row_start is <= i. Sums wrap modulo 2^64: a base may stand for a negative number. */
#ifndef COLSTORE_SEGMENT_TABLE_H
#define COLSTORE_SEGMENT_TABLE_H

#include <stdlib.h>

#include "kernel_math.h"

/* Sentinels after the row starts: fixed-step searches probe up to 2^FIXED_STEPS - 1 places ahead. */
#define ROW_START_PADDING 8
#define FIXED_STEPS 3

/* row >> shift -> range of segments. Segment of row i lies in [first[i >> shift], first[(i >> shift) + 1]]. */
typedef struct {
  int shift;
  int steps; /* halvings that the widest bucket needs */
  int64_t n_buckets;
  int32_t first[]; /* n_buckets + 1 */
} bucket_index;

typedef struct {
  int64_t n_rows, n_segments, n_columns;
  int64_t uniform_rows; /* 0: not uniform */
  int has_gaps;         /* some row in [0, n_rows) belongs to no segment */
  int64_t *row_start;   /* [S + ROW_START_PADDING], the last ones INT64_MAX */
  int64_t *row_stop;    /* [S] */
  uint64_t *base;       /* [C * S] */
  int64_t *itemsize;    /* [C] */
  reciprocal by_uniform;
  bucket_index *buckets; /* NULL until gathers have searched about as many rows as the table has segments */
  int64_t rows_searched;
} segment_table;

enum { ROUTE_AUTO, ROUTE_AFFINE, ROUTE_UNIFORM, ROUTE_BUCKET, ROUTE_SEARCH, ROUTE_CURSOR };

/* Last segment with row_start <= row, among `n` >= 1 segments from `first`, of which the first qualifies. */
KERNEL_INLINE int64_t search_range(const int64_t *row_start, int64_t first, int64_t n, int64_t row) {
  const int64_t *at = row_start + first;
  while (n > 1) {
    int64_t half = n >> 1;
    at = at[half] <= row ? at + half : at; /* a conditional move: the outcome is a coin toss, a branch would stall */
    n -= half;
  }
  return at - row_start;
}

KERNEL_INLINE int64_t search_segment(const segment_table *t, int64_t row) {
  return search_range(t->row_start, 0, t->n_segments, row);
}

KERNEL_INLINE int row_is_stored(const segment_table *t, int64_t segment, int64_t row) {
  return row >= t->row_start[segment] && row < t->row_stop[segment];
}

/* Builds the bucket table: two to four buckets a segment, O(S) memory. NULL when memory is short. */
static inline bucket_index *build_buckets(const segment_table *t) {
  int shift = 0;
  while (shift < 62 && ((t->n_rows - 1) >> shift) + 1 > 4 * t->n_segments) shift++;
  int64_t n = t->n_rows > 0 ? ((t->n_rows - 1) >> shift) + 1 : 0;
  bucket_index *b = (bucket_index *)malloc(sizeof *b + (size_t)(n + 1) * sizeof(int32_t));
  if (!b) return NULL;
  b->shift = shift;
  b->n_buckets = n;
  int64_t s = 0, widest = 1;
  for (int64_t k = 0; k <= n; k++) {
    /* The end of the last bucket may lie past 2^63 only in theory; n_rows <= 2^62 keeps the product in range. */
    int64_t row = k << shift;
    while (s + 1 < t->n_segments && t->row_start[s + 1] <= row) s++;
    b->first[k] = (int32_t)s;
    if (k > 0 && s - b->first[k - 1] + 1 > widest) widest = s - b->first[k - 1] + 1;
  }
  b->steps = 0;
  while (((int64_t)1 << b->steps) < widest) b->steps++;
  return b;
}

/* The bucket table, built on first use; safe when several threads come at once (one result is kept). */
static inline const bucket_index *get_buckets(segment_table *t) {
#if defined(__GNUC__)
  bucket_index *have = __atomic_load_n(&t->buckets, __ATOMIC_ACQUIRE);
  if (have) return have;
  bucket_index *mine = build_buckets(t);
  if (!mine) return NULL;
  if (__atomic_compare_exchange_n(&t->buckets, &have, mine, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) return mine;
  free(mine);
  return have;
#else
  if (!t->buckets) t->buckets = build_buckets(t);
  return t->buckets;
#endif
}

/* Segments of a block of `m` rows, one level of the search for all rows before the next level: the loads of a level
 * do not depend on each other, so their cache misses overlap. */
KERNEL_INLINE void search_block(const segment_table *t, const int64_t *rows, int64_t m, int32_t *found) {
  const int64_t *row_start = t->row_start;
  for (int64_t k = 0; k < m; k++) found[k] = 0;
  for (int64_t n = t->n_segments; n > 1; n -= n >> 1) {
    int32_t half = (int32_t)(n >> 1);
    /* Arithmetic, not a branch: the outcome is a coin toss. */
    for (int64_t k = 0; k < m; k++) found[k] += half & -(int32_t)(row_start[found[k] + half] <= rows[k]);
  }
}

/* The same by buckets. As many steps for every row of a table: a loop that ends when this bucket is done would be
 * mispredicted again and again. Probes may leave the bucket; what they find there starts after the row. */
KERNEL_INLINE void bucket_block(const segment_table *t, const bucket_index *b, const int64_t *rows, int64_t m,
                                int32_t *found) {
  const int64_t *row_start = t->row_start;
  const int32_t *first = b->first;
  int shift = b->shift;
#define STEP(ahead) s += ahead * (row_start[s + ahead] <= row);
#define LOOP(steps)                                                                                            \
  for (int64_t k = 0; k < m; k++) {                                                                            \
    int64_t row = rows[k];                                                                                     \
    int32_t s = first[row >> shift];                                                                           \
    steps found[k] = s;                                                                                        \
  }
  switch (b->steps) {
    case 0:
    case 1: LOOP(STEP(1)) return;
    case 2: LOOP(STEP(2) STEP(1)) return;
    case FIXED_STEPS: LOOP(STEP(4) STEP(2) STEP(1)) return;
    default: break;
  }
#undef STEP
#undef LOOP
  for (int64_t k = 0; k < m; k++) {
    int64_t bucket = rows[k] >> shift;
    found[k] = (int32_t)search_range(row_start, first[bucket], first[bucket + 1] - first[bucket] + 1, rows[k]);
  }
}

/* Sorted input: stay, step a little, else search again; a backward step is only slower, never wrong. */
KERNEL_INLINE int64_t cursor_segment(const segment_table *t, int64_t cursor, int64_t row) {
  if (LIKELY(row >= t->row_start[cursor])) {
    for (int step = 0; step < 8; step++) {
      if (LIKELY(row < t->row_start[cursor + 1])) return cursor; /* row_start[S] is INT64_MAX */
      cursor++;
    }
  }
  return search_segment(t, row);
}

KERNEL_INLINE int64_t uniform_segment(const segment_table *t, int64_t row) {
  return min_i64((int64_t)divide((uint64_t)row, t->by_uniform), t->n_segments - 1);
}

/* Way of `n` rows that are not known to be sorted. Gathers of few rows do without the bucket table until together
 * they have searched about as many rows as there are segments. */
static inline int route_of_few(segment_table *t, int64_t n) {
  if (t->n_segments == 1) return ROUTE_AFFINE;
  if (t->uniform_rows > 0) return ROUTE_UNIFORM;
  int64_t searched = shared_load(&t->rows_searched);
  if (searched + n >= t->n_segments) return ROUTE_BUCKET;
  shared_store(&t->rows_searched, searched + n);
  return ROUTE_SEARCH;
}

/* 16 pairs spread over the input, used only to reject (cstore-behaviour.md 13.1). */
static inline int looks_sorted(const int64_t *indices, int64_t n) {
  if (n < 2) return 1;
  for (int k = 0; k < 16; k++) {
    int64_t at = (int64_t)((double)k / 15.0 * (double)(n - 2));
    if (indices[at] > indices[at + 1]) return 0;
  }
  return 1;
}

#endif
