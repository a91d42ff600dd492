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

/* Four loops of two compares. One loop over closed bounds (the next float inwards) would go wrong where a process
 * flushes denormals to zero. */
#define FLOATS(type)                                                                                           \
  {                                                                                                            \
    const type lo = (type)r->lo.f, hi = (type)r->hi.f;                                                         \
    if (r->open_lo && r->open_hi) { FOR_EACH_ROW(type, (v > lo) & (v < hi)) }                                  \
    if (r->open_lo) { FOR_EACH_ROW(type, (v > lo) & (v <= hi)) }                                               \
    if (r->open_hi) { FOR_EACH_ROW(type, (v >= lo) & (v < hi)) }                                               \
    FOR_EACH_ROW(type, (v >= lo) & (v <= hi))                                                                  \
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
    case KIND_I8: INTEGERS(int64_t, i)
    case KIND_U1: INTEGERS(uint8_t, u)
    case KIND_U2: INTEGERS(uint16_t, u)
    case KIND_U4: INTEGERS(uint32_t, u)
    case KIND_U8: INTEGERS(uint64_t, u)
    case KIND_F4: FLOATS(float)
    case KIND_F8: FLOATS(double)
    default: memset(mask, 0, (size_t)n);
  }
}

#undef FOR_EACH_ROW
#undef INTEGERS
#undef FLOATS
