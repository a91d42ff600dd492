/* Comparison loops that are compiled once for each instruction set; no include guard on purpose (see mask_isa.h).
 *
 * Plain C: one load, two compares and a narrowing to bytes, which compilers vectorise; memcpy loads, because chunks
 * of a file need not be aligned. Comparing 64 rows into a word with AVX-512 intrinsics took 10 to 30 % less time on
 * values in the cache, none on values from memory (10 M rows), which is where columns are. */

#define FOR_EACH_ROW(type, condition)                                                                          \
  if (first) {                                                                                                 \
    for (int64_t i = 0; i < n; i++) {                                                                          \
      type v;                                                                                                  \
      memcpy(&v, source + i * (int64_t)sizeof v, sizeof v);                                                    \
      mask[i] = (uint8_t)(condition);                                                                          \
    }                                                                                                          \
  } else {                                                                                                     \
    for (int64_t i = 0; i < n; i++) {                                                                          \
      type v;                                                                                                  \
      memcpy(&v, source + i * (int64_t)sizeof v, sizeof v);                                                    \
      mask[i] &= (uint8_t)(condition);                                                                         \
    }                                                                                                          \
  }                                                                                                            \
  return;

#define INTEGERS(type, member)                                                                                 \
  {                                                                                                            \
    const type lo = (type)r->lo.member, hi = (type)r->hi.member;                                               \
    FOR_EACH_ROW(type, (v >= lo) & (v <= hi))                                                                  \
  }

/* 8-byte values where no wide registers are known of: compilers narrow those to bytes one by one. Integers do with
 * one compare, of the distance from the lower bound. Doubles are compared in pairs of SSE2, which every x86-64 has; said
 * in vectors of C, GCC 12 took the pairs apart again. Counts of instructions: benchmarks/instructions.json. */
#ifdef ISA_IS_PORTABLE
#define LONG_INTEGERS(type, member)                                                                            \
  {                                                                                                            \
    const uint64_t lo = (uint64_t)r->lo.member, span = (uint64_t)r->hi.member - lo;                            \
    if (r->lo.member > r->hi.member) {                                                                         \
      memset(mask, 0, (size_t)n);                                                                              \
      return;                                                                                                  \
    }                                                                                                          \
    FOR_EACH_ROW(uint64_t, v - lo <= span)                                                                     \
  }
#else
#define LONG_INTEGERS INTEGERS
#endif

#if defined(ISA_IS_PORTABLE) && defined(__SSE2__)
#define PAIR(k, above, below)                                                                                  \
  pair = _mm_loadu_pd((const double *)(const void *)(source + i * (int64_t)sizeof(double)) + 2 * (k));         \
  bits |= (uint64_t)_mm_movemask_pd(_mm_and_pd(above(pair, low), below(pair, high))) << (2 * (k));
#define FOR_EACH_DOUBLE(condition, above, below)                                                               \
  {                                                                                                            \
    const int64_t whole = n & ~(int64_t)7;                                                                     \
    const __m128d low = _mm_set1_pd(lo), high = _mm_set1_pd(hi);                                               \
    for (int64_t i = 0; i < whole; i += 8) {                                                                   \
      __m128d pair;                                                                                            \
      uint64_t bits = 0, before = UINT64_MAX;                                                                  \
      PAIR(0, above, below) PAIR(1, above, below) PAIR(2, above, below) PAIR(3, above, below)                  \
      if (!first) memcpy(&before, mask + i, sizeof before);                                                    \
      bits = spread_flags(bits) & before;                                                                     \
      memcpy(mask + i, &bits, sizeof bits);                                                                    \
    }                                                                                                          \
    source += whole * (int64_t)sizeof(double);                                                                 \
    mask += whole;                                                                                             \
    n -= whole;                                                                                                \
    FOR_EACH_ROW(double, condition)                                                                            \
  }
#else
#define FOR_EACH_DOUBLE(condition, above, below) FOR_EACH_ROW(double, condition)
#endif

/* Four loops of two compares. One loop over closed bounds (the next float inwards) would go wrong where a process
 * flushes denormals to zero. */
#define SINGLES(condition, above, below) FOR_EACH_ROW(float, condition)
#define FLOATS(type, for_each)                                                                                 \
  {                                                                                                            \
    const type lo = (type)r->lo.f, hi = (type)r->hi.f;                                                         \
    if (r->open_lo && r->open_hi) { for_each((v > lo) & (v < hi), _mm_cmpgt_pd, _mm_cmplt_pd) }                \
    if (r->open_lo) { for_each((v > lo) & (v <= hi), _mm_cmpgt_pd, _mm_cmple_pd) }                             \
    if (r->open_hi) { for_each((v >= lo) & (v < hi), _mm_cmpge_pd, _mm_cmplt_pd) }                             \
    for_each((v >= lo) & (v <= hi), _mm_cmpge_pd, _mm_cmple_pd)                                                \
  }

/* mask[i] = (or &=, unless `first`) whether row i of `n` at `source` lies in the range. */
static ISA_TARGET void ISA(test_rows)(const range_test *r, const char *restrict source, int64_t n, int first,
                                      uint8_t *restrict mask) {
  switch (r->kind) {
    case KIND_B1: {
      const uint8_t if_false = r->lo.u == 0, if_true = r->hi.u >= 1;
      FOR_EACH_ROW(uint8_t, v ? if_true : if_false)
    }
    case KIND_I1: INTEGERS(int8_t, i)
    case KIND_I2: INTEGERS(int16_t, i)
    case KIND_I4: INTEGERS(int32_t, i)
    case KIND_I8: LONG_INTEGERS(int64_t, i)
    case KIND_U1: INTEGERS(uint8_t, u)
    case KIND_U2: INTEGERS(uint16_t, u)
    case KIND_U4: INTEGERS(uint32_t, u)
    case KIND_U8: LONG_INTEGERS(uint64_t, u)
    case KIND_F4: FLOATS(float, SINGLES)
    case KIND_F8: FLOATS(double, FOR_EACH_DOUBLE)
    default: memset(mask, 0, (size_t)n);
  }
}

#undef FOR_EACH_ROW
#undef FOR_EACH_DOUBLE
#undef INTEGERS
#undef LONG_INTEGERS
#undef FLOATS
#undef SINGLES
#undef PAIR
