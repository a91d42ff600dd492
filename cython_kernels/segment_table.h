/* Where rows live: the C side of SegmentTable, and the ways from a row number to its segment.
 *
 * Row i of column c is at base[c*S + s] + i*itemsize[c] with the global i (cstore.md 14), s being the last
 * segment whose row_start is <= i. Sums wrap modulo 2^64: a base may stand for a negative number. */
#ifndef COLSTORE_SEGMENT_TABLE_H
#define COLSTORE_SEGMENT_TABLE_H

#include <stdlib.h>

#include "kernel_math.h"

/* Sentinels after the row starts: a cursor looks one segment ahead. */
#define ROW_START_PADDING 8

/* What is known of the rows of one bucket, those with the same row >> shift. Rows before `split`, counted from the
 * bucket's first, are in segment `first`, the others in the one after it. A bucket with more boundaries is crowded:
 * `first` is the complement of its first segment then, and its rows are searched for. */
typedef struct {
  int32_t first;
  uint32_t split; /* NO_SPLIT: all rows are in `first` */
} bucket;

#define NO_SPLIT UINT32_MAX
/* Rows within a bucket are below this, so that they fit beside NO_SPLIT. */
#define MAX_BUCKET_SHIFT 31

typedef struct {
  int shift;
  int64_t n_buckets;
  bucket entry[]; /* n_buckets + 1 */
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

/* Builds the bucket table: two to four buckets a segment, O(S) memory. NULL when memory is short, or when segments
 * are so long (2^31 rows or more) that a bucket would not say where in it one ends. */
static inline bucket_index *build_buckets(const segment_table *t) {
  int shift = 0;
  while (shift < 62 && ((t->n_rows - 1) >> shift) + 1 > 4 * t->n_segments) shift++;
  if (shift > MAX_BUCKET_SHIFT) return NULL;
  int64_t n = t->n_rows > 0 ? ((t->n_rows - 1) >> shift) + 1 : 0;
  bucket_index *b = (bucket_index *)malloc(sizeof *b + (size_t)(n + 1) * sizeof(bucket));
  if (!b) return NULL;
  b->shift = shift;
  b->n_buckets = n;
  int64_t s = 0;
  while (s + 1 < t->n_segments && t->row_start[s + 1] <= 0) s++;
  for (int64_t k = 0; k <= n; k++) {
    int64_t first = s, stop = (k + 1) << shift; /* below 2^63: n_rows <= 2^62 */
    while (s + 1 < t->n_segments && t->row_start[s + 1] < stop) s++;
    b->entry[k].first = s - first > 1 ? ~(int32_t)first : (int32_t)first;
    b->entry[k].split = s - first == 1 ? (uint32_t)(t->row_start[s] - (k << shift)) : NO_SPLIT;
    while (s + 1 < t->n_segments && t->row_start[s + 1] <= stop) s++; /* those that start with the next bucket */
  }
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

KERNEL_NOINLINE int64_t crowded_segment(const segment_table *t, const bucket_index *b, int64_t row) {
  int64_t at = row >> b->shift, first = ~b->entry[at].first, next = b->entry[at + 1].first;
  if (next < 0) next = ~next;
  return search_range(t->row_start, first, next - first + 1, row);
}

/* At most a quarter of the buckets can be crowded, of random segments one in twenty: a branch that is rarely taken
 * costs less than a search of as many steps for every row. */
KERNEL_INLINE int64_t bucket_segment(const segment_table *t, const bucket_index *b, int64_t row) {
  bucket e = b->entry[row >> b->shift];
  if (UNLIKELY(e.first < 0)) return crowded_segment(t, b, row);
  return e.first + (((uint64_t)row & (((uint64_t)1 << b->shift) - 1)) >= e.split);
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
