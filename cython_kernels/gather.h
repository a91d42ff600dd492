/* Inner loops of take and copy_strided. Each call does one chunk of rows for all columns and touches no shared
 * state but the table, so any thread may do any chunk. */
#ifndef COLSTORE_GATHER_H
#define COLSTORE_GATHER_H

#include "segment_table.h"

/* Indices checked at a time. Short, so that the processor overlaps the check of one block with the cache misses of
 * the block before: 64 rows 16.6, 512 rows 17.7, 4096 rows 18.3 ms for 2 M random rows of 8 bytes. */
#define CHECK_ROWS 64
/* With several sets of columns, rows gathered set after set: long stretches of one column, so that its page tables
 * stay in the cache; bounded by the indices and segment numbers kept for the other sets (192 KiB, or 512 without
 * segments). */
#define BLOCK_ROWS 16384
#define AFFINE_BLOCK_ROWS 65536
/* The same where there is no memory for more: these are on the stack. */
#define SCARCE_ROWS 1024
/* Rows that go through the loop together: 64-bit lanes of the widest registers. */
#define LANES 8
/* Addresses in flight between prefetch and load, of each column; a multiple of LANES. */
#define RING 256
/* Columns whose items of a row are read together, where segments are short. */
#define ABREAST 8
/* Bytes of a segment's rows up to which the items of a row are near each other: their pages are found through the same
 * few lines of page tables, and often they are in one huge page. Eight columns of 10,000 records of 25 KB, 1 M random
 * rows: 78 against 99 ms column after column (pages of 2 MiB), 83 against 104 (small pages); of 64 files of 4 MB 115
 * against 94. */
#define NEAR_BYTES (128 << 10)

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

enum { ROUTE_STORED = ROUTE_CURSOR + 1 }; /* segments were written before: by a search, or for an earlier set */

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

/* Writes the segments of `m` checked indices. */
static void search_group(const segment_table *t, const int64_t *indices, int64_t m, int32_t *found) {
  int64_t rows[CHECK_ROWS];
  for (int64_t k = 0; k < m; k++) rows[k] = fold(indices[k], t->n_rows);
  search_block(t, rows, m, found);
}

/* Where the rows of a group are. */
typedef struct {
  int64_t row[LANES], segment[LANES];
} row_group;

/* Columns that are gathered together. */
typedef struct {
  int64_t n;
  const uint64_t *base[ABREAST];
  int64_t width[ABREAST];
  char *out[ABREAST];
} column_set;

/* Copies the items at `lanes` <= LANES addresses; all of them in the common case. */
KERNEL_INLINE void load_group(char *out, const uint64_t *address, int64_t lanes, int64_t width) {
#define LOOP(w)                                                                                                \
  if (LIKELY(lanes == LANES))                                                                                  \
    for (int k = 0; k < LANES; k++) copy_item(out + k * (w), (const char *)(uintptr_t)address[k], w);          \
  else                                                                                                         \
    for (int64_t k = 0; k < lanes; k++) copy_item(out + k * (w), (const char *)(uintptr_t)address[k], w);
  WITH_WIDTH(width, LOOP)
#undef LOOP
}

#define ISA(name) name##_portable
#define ISA_TARGET
#define ISA_LEVEL ISA_PORTABLE
#include "gather_isa.h"
#undef ISA
#undef ISA_TARGET
#undef ISA_LEVEL

#ifdef HAVE_X86_VERSIONS
#define ISA(name) name##_avx512
#define ISA_TARGET __attribute__((target("avx2,bmi,avx512f,avx512bw,avx512dq,avx512vl")))
#define ISA_LEVEL ISA_AVX512
#include "gather_isa.h"
#undef ISA
#undef ISA_TARGET
#undef ISA_LEVEL
#endif

/* Whether this machine has what the wide version needs. */
static inline int have_wide_gather(void) {
#ifdef HAVE_X86_VERSIONS
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi") && __builtin_cpu_supports("avx512f") &&
         __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vl");
#else
  return 0;
#endif
}

/* The version that is used when none is asked for. Intel's cores before Sapphire Rapids run the gather instruction many
 * times slower since a fix of their microcode ("gather data sampling"): there scalar loads are better. Both of these sets
 * of instructions together have Sapphire Rapids, Zen 4, and what came after them. */
static inline int best_gather_isa(void) {
#ifdef HAVE_X86_VERSIONS
  if (have_wide_gather() && __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512vbmi2"))
    return ISA_AVX512;
#endif
  return ISA_PORTABLE;
}

/* How many columns go abreast through the loop. */
static inline int64_t columns_abreast(const segment_table *t) {
  int64_t row_bytes = 0;
  if (t->n_segments <= 1) return 1;
  for (int64_t c = 0; c < t->n_columns; c++) row_bytes += t->itemsize[c];
  if (t->n_rows / t->n_segments > NEAR_BYTES / row_bytes) return 1;
  return ceil_div(t->n_columns, ceil_div(t->n_columns, ABREAST)); /* sets of about the same size */
}

/* Gathers rows indices[begin:end) of all columns. Returns -1, or the position of a bad index. No address is formed
 * from an index that has not been checked, and none is read a second time after its check. */
static inline int64_t take_span(const segment_table *t, const bucket_index *b, int isa, int route,
                                const int64_t *indices, int64_t begin, int64_t end, char *const *out,
                                int64_t prefetch) {
  int64_t groups = prefetch <= 0 ? 0 : ceil_div(min_i64(prefetch, RING), LANES);
  if (UNLIKELY(t->n_columns == 0)) return check_span(indices, begin, end, t->n_rows);
  int64_t abreast = t->n_columns == 1 ? 1 : columns_abreast(t), many = t->n_columns > abreast, bad = -1;
  int64_t few[SCARCE_ROWS], *own = many ? few : NULL;
  int32_t few_segments[SCARCE_ROWS], *segments = many && route != ROUTE_AFFINE ? few_segments : NULL;
  int64_t block = end - begin;
  void *scratch = NULL;
  if (many && block > SCARCE_ROWS) {
    block = min_i64(route == ROUTE_AFFINE ? AFFINE_BLOCK_ROWS : BLOCK_ROWS, block + (LANES - 1)) / LANES * LANES;
    scratch = malloc((size_t)block * (sizeof *own + (segments ? sizeof *segments : 0)));
    if (scratch) {
      own = (int64_t *)scratch;
      if (segments) segments = (int32_t *)(own + block);
    } else {
      block = SCARCE_ROWS;
    }
  }
#ifdef HAVE_X86_VERSIONS
  int wide = isa >= ISA_AVX512 && route != ROUTE_CURSOR && (route != ROUTE_UNIFORM || t->n_rows <= INT32_MAX);
#else
  (void)isa;
#endif
  for (int64_t i = begin; i < end && bad < 0; i += block) {
    int64_t m = min_i64(block, end - i);
    for (int64_t first = 0; first < t->n_columns; first += abreast) {
      column_set set = {min_i64(abreast, t->n_columns - first), {NULL}, {0}, {NULL}};
      for (int64_t c = 0; c < set.n; c++) {
        set.width[c] = t->itemsize[first + c];
        set.base[c] = t->base + (first + c) * t->n_segments;
        set.out[c] = out[first + c] + i * set.width[c];
      }
      int64_t depth = groups > 1 ? 1 + (groups - 1) / set.n : groups;
      int check = first == 0, way = check || route == ROUTE_AFFINE ? route : ROUTE_STORED;
      const int64_t *from = check ? indices + i : own;
#ifdef HAVE_X86_VERSIONS
      if (wide)
        bad = gather_rows_avx512(way, t, b, &set, from, m, own, segments, depth, check);
      else
#endif
        bad = gather_rows_portable(way, t, b, &set, from, m, own, segments, depth, check);
      if (UNLIKELY(bad >= 0)) { /* only the first set checks */
        bad += i;
        break;
      }
    }
  }
  free(scratch);
  return bad;
}

/* ---- arithmetic progressions of rows ---------------------------------------------------------------- */

#if defined(__SSE2__) && defined(__GNUC__)
#include <emmintrin.h>
#define HAVE_REVERSED_STREAM 1

/* Bytes of output from which reversed rows go past the caches: they would not stay there, and reading lines only to
 * overwrite them is a third of the traffic. 40 MB: 2.5 against 5.0 ms in one thread. */
#define STREAM_BYTES (1 << 20)

KERNEL_INLINE __m128i reversed_items(__m128i v, int width) {
  switch (width) {
    case 1: v = _mm_or_si128(_mm_slli_epi16(v, 8), _mm_srli_epi16(v, 8)); /* fall through */
    case 2: v = _mm_shufflehi_epi16(_mm_shufflelo_epi16(v, 0x1b), 0x1b); return _mm_shuffle_epi32(v, 0x4e);
    case 4: return _mm_shuffle_epi32(v, 0x1b);
    case 8: return _mm_shuffle_epi32(v, 0x4e);
    default: return v;
  }
}

/* Copies `m` items in descending order from `source` on; returns how many it did: all, or none where the target cannot
 * be aligned by whole items. */
KERNEL_INLINE int64_t stream_reversed(char *target, const char *source, int64_t m, int width) {
  int64_t k = 0, each = 16 / width;
  if ((uintptr_t)target % (uintptr_t)width) return 0;
  for (; k < m && (uintptr_t)(target + k * width) % 64; k++)
    copy_item(target + k * width, source - k * width, width);
  for (; k + 4 * each <= m; k += 4 * each)
    for (int j = 0; j < 4; j++) {
      const char *from = source - (k + (j + 1) * each - 1) * width;
      __m128i v = _mm_loadu_si128((const __m128i *)(const void *)from);
      _mm_stream_si128((__m128i *)(void *)(target + (k + j * each) * width), reversed_items(v, width));
    }
  _mm_sfence(); /* other threads see these stores before what is stored after them */
  for (; k < m; k++) copy_item(target + k * width, source - k * width, width);
  return m;
}
#endif

/* Copies `m` items in descending order: a constant step, so that compilers turn whole registers round. */
KERNEL_NOINLINE void reverse_items(char *target, const char *source, int64_t m, int64_t width) {
#ifdef HAVE_REVERSED_STREAM
  if (m * width >= STREAM_BYTES) {
    int64_t done = 0;
    switch (width) {
      case 1: done = stream_reversed(target, source, m, 1); break;
      case 2: done = stream_reversed(target, source, m, 2); break;
      case 4: done = stream_reversed(target, source, m, 4); break;
      case 8: done = stream_reversed(target, source, m, 8); break;
      case 16: done = stream_reversed(target, source, m, 16); break;
      default: break;
    }
    if (done == m) return;
  }
#endif
#define LOOP(w)                                                                                                \
  for (int64_t k = 0; k < m; k++) copy_item(target + k * (w), source - k * (w), w);
  WITH_WIDTH(width, LOOP)
#undef LOOP
}

KERNEL_INLINE void strided_items(char *target, const char *source, int64_t m, int64_t jump, int64_t width) {
  if (jump == -width) {
    reverse_items(target, source, m, width);
    return;
  }
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
