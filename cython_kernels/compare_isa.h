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
 * one compare, of the distance from the lower bound; doubles are compared in pairs, whose results are cut down to the
 * byte of their row and come together in a word. Counts of instructions: see benchmarks/instructions.json. */
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

#if defined(ISA_IS_PORTABLE) && defined(HAVE_PAIRS)
#define PAIR(j, condition)                                                                                     \
  {                                                                                                            \
    f8_pair v;                                                                                                 \
    memcpy(&v, source + (i + 8 * k + 2 * (j)) * (int64_t)sizeof(double), sizeof v);                            \
    bits |= (i8_pair)(condition) & (i8_pair){(int64_t)1 << (16 * (j)), (int64_t)1 << (16 * (j) + 8)};          \
  }
/* The halves of a pair meet in memory: where they would meet in a register, GCC takes the whole of it apart. */
#define FOR_EACH_DOUBLE(condition)                                                                             \
  {                                                                                                            \
    const int64_t whole = n & ~(int64_t)7;                                                                     \
    {                                                                                                          \
      const f8_pair lo = {r->lo.f, r->lo.f}, hi = {r->hi.f, r->hi.f};                                          \
      uint64_t halves[2 * PAIRED_WORDS], word;                                                                 \
      for (int64_t i = 0; i < whole; i += 8 * PAIRED_WORDS) {                                                  \
        const int64_t words = min_i64(PAIRED_WORDS, (whole - i) / 8);                                          \
        for (int64_t k = 0; k < words; k++) {                                                                  \
          i8_pair bits = {0, 0};                                                                               \
          PAIR(0, condition) PAIR(1, condition) PAIR(2, condition) PAIR(3, condition)                          \
          memcpy(halves + 2 * k, &bits, sizeof bits);                                                          \
        }                                                                                                      \
        for (int64_t k = 0; k < words; k++) {                                                                  \
          word = UINT64_MAX;                                                                                   \
          if (!first) memcpy(&word, mask + i + 8 * k, sizeof word);                                            \
          word &= halves[2 * k] | halves[2 * k + 1];                                                           \
          memcpy(mask + i + 8 * k, &word, sizeof word);                                                        \
        }                                                                                                      \
      }                                                                                                        \
    }                                                                                                          \
    source += whole * (int64_t)sizeof(double);                                                                 \
    mask += whole;                                                                                             \
    n -= whole;                                                                                                \
    FOR_EACH_ROW(double, condition)                                                                            \
  }
#else
#define FOR_EACH_DOUBLE(condition) FOR_EACH_ROW(double, condition)
#endif

/* Four loops of two compares. One loop over closed bounds (the next float inwards) would go wrong where a process
 * flushes denormals to zero. */
#define SINGLES(condition) FOR_EACH_ROW(float, condition)
#define FLOATS(type, for_each)                                                                                 \
  {                                                                                                            \
    const type lo = (type)r->lo.f, hi = (type)r->hi.f;                                                         \
    if (r->open_lo && r->open_hi) { for_each((v > lo) & (v < hi)) }                                            \
    if (r->open_lo) { for_each((v > lo) & (v <= hi)) }                                                         \
    if (r->open_hi) { for_each((v >= lo) & (v < hi)) }                                                         \
    for_each((v >= lo) & (v <= hi))                                                                            \
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
