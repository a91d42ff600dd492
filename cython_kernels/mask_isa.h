/* Loops that are compiled once for each instruction set (function multi-versioning); no include guard on purpose.
 *
 * The includer defines ISA(name), which appends the set's suffix, ISA_TARGET, the attribute that lets the compiler
 * use the set, and ISA_LEVEL. Everything here is static; mask.h picks a version at run time. */

/* ---- counting and checking: plain C, vectorised by the compiler --------------------------------------- */

static ISA_TARGET int64_t ISA(count_true)(const uint8_t *mask, int64_t n) {
  int64_t total = 0, i = 0;
  /* Byte counters for at most 255 turns, so that the inner loop stays in bytes. */
  while (i + 64 <= n) {
    uint8_t lanes[64] = {0};
    int64_t turns = min_i64((n - i) / 64, 255);
    for (int64_t k = 0; k < turns; k++, i += 64)
      for (int j = 0; j < 64; j++) lanes[j] = (uint8_t)(lanes[j] + (mask[i + j] != 0));
    for (int j = 0; j < 64; j++) total += lanes[j];
  }
  for (; i < n; i++) total += mask[i] != 0;
  return total;
}

/* ---- one word: 64 mask bytes as 64 bits, the first row in the lowest ------------------------------------ */

static inline ISA_TARGET uint64_t ISA(word_bits)(const uint8_t *mask, int64_t rows) {
#if ISA_LEVEL >= ISA_AVX512
  __mmask64 present = rows >= 64 ? ~(__mmask64)0 : ((__mmask64)1 << rows) - 1;
  __m512i bytes = _mm512_maskz_loadu_epi8(present, mask); /* bytes that are not `present` are not read */
  return _mm512_test_epi8_mask(bytes, bytes);
#else
  uint8_t copy[64];
  if (rows < 64) {
    memset(copy, 0, sizeof copy);
    memcpy(copy, mask, (size_t)rows);
    mask = copy;
  }
#if ISA_LEVEL == ISA_AVX2
  __m256i zero = _mm256_setzero_si256();
  uint32_t low = (uint32_t)_mm256_movemask_epi8(_mm256_cmpeq_epi8(_mm256_loadu_si256((const __m256i *)mask), zero));
  uint32_t high =
      (uint32_t)_mm256_movemask_epi8(_mm256_cmpeq_epi8(_mm256_loadu_si256((const __m256i *)(mask + 32)), zero));
  return ~((uint64_t)low | (uint64_t)high << 32);
#else
  uint64_t any[8], bits = 0;
  memcpy(any, mask, sizeof any);
  if (!(any[0] | any[1] | any[2] | any[3] | any[4] | any[5] | any[6] | any[7])) return 0;
  for (int j = 0; j < 64; j += 8) {
    uint64_t eight = 0;
    for (int k = 0; k < 8; k++) eight |= (uint64_t)mask[j + k] << 8 * k; /* one load on little-endian machines */
    /* The high bit of each byte says whether it is not 0; the product gathers the eight high bits in one byte. */
    eight = (((eight & 0x7f7f7f7f7f7f7f7fu) + 0x7f7f7f7f7f7f7f7fu) | eight) & 0x8080808080808080u;
    bits |= ((eight >> 7) * 0x0102040810204080u >> 56) << j;
  }
  return bits;
#endif
#endif
}

/* ---- one word of items -------------------------------------------------------------------------------- */

/* Appends the items of `bits`, one by one. */
static inline __attribute__((always_inline)) ISA_TARGET char *ISA(emit_bits)(char *q, const char *source,
                                                                            uint64_t bits, int64_t width) {
  while (bits) {
    copy_item(q, source + __builtin_ctzll(bits) * width, width);
    q += width;
    bits &= bits - 1;
  }
  return q;
}

/* Appends the items of `bits` run by run, for widths without a typed path. */
static inline ISA_TARGET char *ISA(emit_runs)(char *q, const char *source, uint64_t bits, int64_t width) {
  while (bits) {
    int first = __builtin_ctzll(bits);
    uint64_t rest = ~(bits >> first);
    int length = rest ? __builtin_ctzll(rest) : 64;
    memcpy(q, source + first * width, (size_t)(length * width));
    q += length * width;
    if (first + length >= 64) break;
    bits &= ~(uint64_t)0 << (first + length);
  }
  return q;
}

/* Appends the items of `bits` of a word of 64 rows of which many are selected. `roomy`: 64 items and a vector
 * more may be written from q on; otherwise not a byte after the selected items is. */
static inline __attribute__((always_inline)) ISA_TARGET char *ISA(emit_dense)(char *q, const char *source,
                                                                             uint64_t bits, int64_t width, int roomy) {
#if ISA_LEVEL >= ISA_AVX512
  /* Compress in a register and store all of it: compressing straight to memory is microcoded on some machines.
   * Masked loads and stores do not touch the bytes of lanes that are off. */
#define COMPRESS(lanes, item, mask_type, lane_bits, load, compress, store)                                     \
  for (int j = 0; j < 64; j += lanes) {                                                                        \
    mask_type chosen = (mask_type)(bits >> j);                                                                 \
    int count = __builtin_popcountll(chosen);                                                                  \
    __m512i items = compress(chosen, load(chosen, source + j * item));                                         \
    if (roomy)                                                                                                 \
      _mm512_storeu_si512(q, items);                                                                           \
    else                                                                                                       \
      store(q, (mask_type)(count >= lanes ? ~(uint64_t)0 : ((uint64_t)1 << count) - 1), items);                \
    q += count * item;                                                                                         \
  }                                                                                                            \
  return q;
  if (width == 8) {
    COMPRESS(8, 8, __mmask8, 8, _mm512_maskz_loadu_epi64, _mm512_maskz_compress_epi64, _mm512_mask_storeu_epi64)
  }
  if (width == 4) {
    COMPRESS(16, 4, __mmask16, 16, _mm512_maskz_loadu_epi32, _mm512_maskz_compress_epi32, _mm512_mask_storeu_epi32)
  }
  if (width == 16) {
    /* Four items of two lanes each: every bit of the mask twice. */
    static const uint8_t doubled[16] = {0x00, 0x03, 0x0c, 0x0f, 0x30, 0x33, 0x3c, 0x3f,
                                        0xc0, 0xc3, 0xcc, 0xcf, 0xf0, 0xf3, 0xfc, 0xff};
    for (int j = 0; j < 64; j += 4) {
      __mmask8 chosen = doubled[bits >> j & 15];
      int count = __builtin_popcount(chosen);
      __m512i items = _mm512_maskz_compress_epi64(chosen, _mm512_maskz_loadu_epi64(chosen, source + j * 16));
      if (roomy)
        _mm512_storeu_si512(q, items);
      else
        _mm512_mask_storeu_epi64(q, (__mmask8)((1u << count) - 1), items);
      q += count * 8;
    }
    return q;
  }
#if ISA_LEVEL >= ISA_AVX512_VBMI2
  if (width == 2) {
    COMPRESS(32, 2, __mmask32, 32, _mm512_maskz_loadu_epi16, _mm512_maskz_compress_epi16, _mm512_mask_storeu_epi16)
  }
  if (width == 1) {
    COMPRESS(64, 1, __mmask64, 64, _mm512_maskz_loadu_epi8, _mm512_maskz_compress_epi8, _mm512_mask_storeu_epi8)
  }
#endif
#undef COMPRESS
#elif ISA_LEVEL == ISA_AVX2
  /* Shuffle the selected lanes to the front by a table of lane numbers. */
  if (roomy && width == 8) {
    for (int j = 0; j < 64; j += 4) {
      unsigned chosen = bits >> j & 15;
      __m256i items = _mm256_loadu_si256((const __m256i *)(source + j * 8));
      __m256i lanes = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)lanes_of_pairs[chosen]));
      _mm256_storeu_si256((__m256i *)q, _mm256_permutevar8x32_epi32(items, lanes));
      q += __builtin_popcount(chosen) * 8;
    }
    return q;
  }
  if (roomy && width == 4) {
    for (int j = 0; j < 64; j += 8) {
      unsigned chosen = bits >> j & 255;
      __m256i items = _mm256_loadu_si256((const __m256i *)(source + j * 4));
      __m256i lanes = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)lanes_of[chosen]));
      _mm256_storeu_si256((__m256i *)q, _mm256_permutevar8x32_epi32(items, lanes));
      q += __builtin_popcount(chosen) * 4;
    }
    return q;
  }
  if (roomy && width == 2) {
    for (int j = 0; j < 64; j += 8) {
      unsigned chosen = bits >> j & 255;
      __m128i items = _mm_loadu_si128((const __m128i *)(source + j * 2));
      __m128i lanes = _mm_cvtepu8_epi16(_mm_loadl_epi64((const __m128i *)lanes_of[chosen]));
      /* lane k -> bytes 2k and 2k + 1 */
      __m128i bytes = _mm_add_epi16(_mm_mullo_epi16(lanes, _mm_set1_epi16(0x0202)), _mm_set1_epi16(0x0100));
      _mm_storeu_si128((__m128i *)q, _mm_shuffle_epi8(items, bytes));
      q += __builtin_popcount(chosen) * 2;
    }
    return q;
  }
  if (roomy && width == 1) {
    for (int j = 0; j < 64; j += 8) {
      unsigned chosen = bits >> j & 255;
      __m128i items = _mm_loadl_epi64((const __m128i *)(source + j));
      _mm_storel_epi64((__m128i *)q, _mm_shuffle_epi8(items, _mm_loadl_epi64((const __m128i *)lanes_of[chosen])));
      q += __builtin_popcount(chosen);
    }
    return q;
  }
#endif
  if (roomy) { /* copy every item, keep the place only of the selected: no branch to mispredict */
    for (int j = 0; j < 64; j++) {
      copy_item(q, source + j * width, width);
      q += (int64_t)(bits >> j & 1) * width;
    }
    return q;
  }
  return ISA(emit_bits)(q, source, bits, width);
}

/* ---- a run of rows -------------------------------------------------------------------------------------- */

/* Appends the selected items of `n` rows to [q, stop); NULL when they do not fit, which means that the mask has
 * changed since it was counted. `typed` and, when it is set, `width` are constants. */
static inline __attribute__((always_inline)) ISA_TARGET char *ISA(compress_width)(char *q, char *stop,
                                                                                 const char *source,
                                                                                 const uint8_t *mask, int64_t n,
                                                                                 int64_t width, int typed) {
  for (int64_t i = 0; i < n; i += 64) {
    int64_t rows = min_i64(64, n - i);
    uint64_t bits = ISA(word_bits)(mask + i, rows);
    if (!bits) continue;
    int64_t count = __builtin_popcountll(bits);
    const char *items = source + i * width;
    if (UNLIKELY(stop - q < count * width)) return NULL;
    if (count == 64) {
      int64_t more = i + 64; /* one copy for a run of full words */
      while (more + 64 <= n && stop - q >= (more + 64 - i) * width && ISA(word_bits)(mask + more, 64) == ~(uint64_t)0)
        more += 64;
      memcpy(q, items, (size_t)((more - i) * width));
      q += (more - i) * width;
      i = more - 64;
    } else if (!typed)
      q = ISA(emit_runs)(q, items, bits, width);
    else if (count < SPARSE_BITS || (rows < 64 && ISA_LEVEL < ISA_AVX512))
      q = ISA(emit_bits)(q, items, bits, width);
    else if (stop - q >= 64 * width + 64)
      q = ISA(emit_dense)(q, items, bits, width, 1);
    else
      q = ISA(emit_dense)(q, items, bits, width, 0);
  }
  return q;
}

static ISA_TARGET char *ISA(compress_run)(char *q, char *stop, const char *source, const uint8_t *mask, int64_t n,
                                          int64_t width) {
  switch (width) {
    case 1: return ISA(compress_width)(q, stop, source, mask, n, 1, 1);
    case 2: return ISA(compress_width)(q, stop, source, mask, n, 2, 1);
    case 4: return ISA(compress_width)(q, stop, source, mask, n, 4, 1);
    case 8: return ISA(compress_width)(q, stop, source, mask, n, 8, 1);
    case 16: return ISA(compress_width)(q, stop, source, mask, n, 16, 1);
    default: return ISA(compress_width)(q, stop, source, mask, n, width, 0);
  }
}
