/* Conjunctions of ranges over the columns of a segment table, as a byte mask with its counts.
 *
 * Access pattern: every predicate column is read once, in order, a block of rows at a time; the mask of a block stays
 * in the first-level cache while the other columns are compared and it is counted. */
#ifndef COLSTORE_COMPARE_H
#define COLSTORE_COMPARE_H

#if defined(__GNUC__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function" /* of mask.h, counting and detect_isa are used here */
#endif
#include "mask.h"
#if defined(__GNUC__)
#pragma GCC diagnostic pop
#endif

/* Rows compared before the next column's turn: a column is not read where no row of the block is left. */
#define COMPARE_BLOCK_ROWS 4096

enum { KIND_B1, KIND_I1, KIND_I2, KIND_I4, KIND_I8, KIND_U1, KIND_U2, KIND_U4, KIND_U8, KIND_F4, KIND_F8 };

typedef union {
  int64_t i;
  uint64_t u;
  double f;
} bound;

/* lo <= value <= hi, in the type of the kind; NaN is outside. An open end excludes its bound (floats only). */
typedef struct {
  int kind;
  bound lo, hi;
  int open_lo, open_hi;
} range_test;

#ifdef __SSE2__
#include <emmintrin.h>
/* Bit k of eight becomes byte k: copied to all bytes, picked out, and moved to the lowest bit. */
KERNEL_INLINE uint64_t spread_flags(uint64_t bits) {
  uint64_t picked = (bits * 0x0101010101010101u) & 0x8040201008040201u;
  return ((picked + 0x7f7f7f7f7f7f7f7fu) >> 7) & 0x0101010101010101u;
}
#endif

#define ISA(name) name##_portable
#define ISA_TARGET
#define ISA_IS_PORTABLE 1
#include "compare_isa.h"
#undef ISA
#undef ISA_TARGET
#undef ISA_IS_PORTABLE

#ifdef HAVE_X86_VERSIONS
#define ISA(name) name##_avx2
#define ISA_TARGET __attribute__((target("avx2")))
#include "compare_isa.h"
#undef ISA
#undef ISA_TARGET

#define ISA(name) name##_avx512
#define ISA_TARGET __attribute__((target("avx2,avx512f,avx512bw,avx512vl")))
#include "compare_isa.h"
#undef ISA
#undef ISA_TARGET
#endif

typedef void (*test_function)(const range_test *, const char *restrict, int64_t, int, uint8_t *restrict);

/* The version for `isa`, which must not be above detect_isa(). */
static inline test_function test_by(int isa) {
#ifdef HAVE_X86_VERSIONS
  if (isa >= ISA_AVX512) return test_rows_avx512;
  if (isa >= ISA_AVX2) return test_rows_avx2;
#endif
  return test_rows_portable;
}

/* Fills mask[begin, end) and returns how many rows are true. Rows of segments that are not `wanted` (NULL: all are)
 * and rows of no segment are false, and not read. */
static inline int64_t test_span(const segment_table *t, int isa, const range_test *tests, const uint8_t *wanted,
                                int64_t begin, int64_t end, uint8_t *mask) {
  test_function test_rows = test_by(isa);
  int64_t total = 0, done = begin;
  for (int64_t s = search_segment(t, begin); s < t->n_segments && t->row_start[s] < end; s++) {
    int64_t row = begin > t->row_start[s] ? begin : t->row_start[s], stop = min_i64(end, t->row_stop[s]);
    if (row >= stop || (wanted && !wanted[s])) continue;
    memset(mask + done, 0, (size_t)(row - done));
    done = stop;
    for (; row < stop; row += COMPARE_BLOCK_ROWS) {
      int64_t n = min_i64(COMPARE_BLOCK_ROWS, stop - row), left = n;
      for (int64_t c = 0; c < t->n_columns && left > 0; c++) {
        uint64_t address = t->base[c * t->n_segments + s] + (uint64_t)row * (uint64_t)t->itemsize[c];
        test_rows(&tests[c], (const char *)(uintptr_t)address, n, c == 0, mask + row);
        left = count_true(isa, mask + row, n);
      }
      total += left;
    }
  }
  memset(mask + done, 0, (size_t)(end - done));
  return total;
}

#endif
