/* Boolean masks: counting, and copying the rows where a mask is true (mask compaction).
 *
 * Two passes with a quota: the mask is counted in chunks of MASK_CHUNK_ROWS, the prefix sums give every chunk its
 * place in the output, and the chunks are compacted in any order by any thread. No index array is made. */
#ifndef COLSTORE_MASK_H
#define COLSTORE_MASK_H

#include "segment_table.h"

/* Rows that one entry of mask_offsets accounts for, and one unit of parallel work. */
#define MASK_CHUNK_ROWS 16384

/* Below this many selected rows in a word of 64, picking them bit by bit beats moving the whole word. */
#define SPARSE_BITS 10

#define ISA(name) name##_portable
#define ISA_TARGET
#define ISA_LEVEL ISA_PORTABLE
#include "mask_isa.h"
#undef ISA
#undef ISA_TARGET
#undef ISA_LEVEL

#ifdef HAVE_X86_VERSIONS
/* lanes_of[m]: numbers of the bits set in m, ascending. lanes_of_pairs[m]: the same for lanes of two, m < 16. */
static uint8_t lanes_of[256][8], lanes_of_pairs[16][8];

static void mask_tables_init(void) {
  for (int m = 0; m < 256; m++) {
    int at = 0;
    for (int bit = 0; bit < 8; bit++)
      if (m >> bit & 1) lanes_of[m][at++] = (uint8_t)bit;
  }
  for (int m = 0; m < 16; m++)
    for (int k = 0; k < 4; k++) {
      lanes_of_pairs[m][2 * k] = (uint8_t)(2 * lanes_of[m][k]);
      lanes_of_pairs[m][2 * k + 1] = (uint8_t)(2 * lanes_of[m][k] + 1);
    }
}

#define ISA(name) name##_avx2
#define ISA_TARGET __attribute__((target("avx2,bmi,popcnt")))
#define ISA_LEVEL ISA_AVX2
#include "mask_isa.h"
#undef ISA
#undef ISA_TARGET
#undef ISA_LEVEL

#define ISA(name) name##_avx512
#define ISA_TARGET __attribute__((target("avx2,bmi,popcnt,avx512f,avx512bw,avx512vl")))
#define ISA_LEVEL ISA_AVX512
#include "mask_isa.h"
#undef ISA
#undef ISA_TARGET
#undef ISA_LEVEL

#define ISA(name) name##_avx512_vbmi2
#define ISA_TARGET __attribute__((target("avx2,bmi,popcnt,avx512f,avx512bw,avx512vl,avx512vbmi2")))
#define ISA_LEVEL ISA_AVX512_VBMI2
#include "mask_isa.h"
#undef ISA
#undef ISA_TARGET
#undef ISA_LEVEL
#endif

/* The best level that this CPU and its operating system have. */
static int detect_isa(void) {
#ifdef HAVE_X86_VERSIONS
  mask_tables_init();
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("bmi") || !__builtin_cpu_supports("popcnt"))
    return ISA_PORTABLE;
  if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
      !__builtin_cpu_supports("avx512vl"))
    return ISA_AVX2;
  return __builtin_cpu_supports("avx512vbmi2") ? ISA_AVX512_VBMI2 : ISA_AVX512;
#else
  return ISA_PORTABLE;
#endif
}

typedef char *(*compress_function)(char *, char *, const char *, const uint8_t *, int64_t, int64_t);

/* The version for `isa`, which must not be above detect_isa(). */
static inline compress_function compress_by(int isa, int64_t width) {
#ifdef HAVE_X86_VERSIONS
  if (isa >= ISA_AVX512_VBMI2) return compress_run_avx512_vbmi2;
  if (isa == ISA_AVX512) return width < 4 ? compress_run_avx2 : compress_run_avx512; /* no byte compress there */
  if (isa == ISA_AVX2) return compress_run_avx2;
#endif
  return compress_run_portable;
}

static inline int64_t count_true(int isa, const uint8_t *mask, int64_t n) {
#ifdef HAVE_X86_VERSIONS
  if (isa >= ISA_AVX512) return count_true_avx512(mask, n);
  if (isa == ISA_AVX2) return count_true_avx2(mask, n);
#endif
  return count_true_portable(mask, n);
}

/* Rows [begin, end) of column c into exactly [q, stop). Returns 0, or 1 when mask and offsets disagree. */
static inline int compress_span(const segment_table *t, int isa, int64_t c, const uint8_t *mask, int64_t begin,
                                int64_t end, char *q, char *stop) {
  const uint64_t *base = t->base + c * t->n_segments;
  int64_t width = t->itemsize[c];
  compress_function compress_run = compress_by(isa, width);
  for (int64_t s = search_segment(t, begin); s < t->n_segments && t->row_start[s] < end; s++) {
    int64_t from = begin > t->row_start[s] ? begin : t->row_start[s], to = min_i64(end, t->row_stop[s]);
    if (from >= to) continue;
    q = compress_run(q, stop, (const char *)(uintptr_t)(base[s] + (uint64_t)from * (uint64_t)width), mask + from,
                     to - from, width);
    if (!q) return 1;
  }
  return q != stop;
}

/* True when the mask selects a row that no segment holds. */
static inline int mask_hits_gap(const segment_table *t, int isa, const uint8_t *mask) {
  int64_t row = 0;
  for (int64_t s = 0; s <= t->n_segments; s++) {
    int64_t stop = s < t->n_segments ? t->row_start[s] : t->n_rows;
    if (stop > row && count_true(isa, mask + row, stop - row)) return 1;
    if (s < t->n_segments && t->row_stop[s] > row) row = t->row_stop[s];
  }
  return 0;
}

#endif
