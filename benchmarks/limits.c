/* What this machine can do from memory to memory with all its cores: the yardstick `limit_c` of the benchmarks.
 * No file format, no checks, outputs that exist already. Compiled by limits.py with -O3 -march=native -fopenmp. */
#include <stdint.h>
#include <string.h>
#if defined(__AVX512F__) && defined(__AVX512BW__)
#include <immintrin.h>
#endif

#define AHEAD 96 /* rows between prefetch and load; 64 to 256 are alike */

void limit_copy(char *target, const char *source, int64_t bytes, int threads) {
  const int64_t piece = 1 << 20;
#pragma omp parallel for num_threads(threads) schedule(static)
  for (int64_t at = 0; at < bytes; at += piece)
    memcpy(target + at, source + at, (size_t)(bytes - at < piece ? bytes - at : piece));
}

/* Locality 2 prefetches into L2, where about twice as many misses can be under way as into L1. */
#define GATHER(type)                                                                                           \
  {                                                                                                            \
    const type *from = (const type *)source;                                                                   \
    type *to = (type *)target;                                                                                 \
    int64_t k = begin;                                                                                         \
    for (; k + AHEAD < end; k++) {                                                                             \
      __builtin_prefetch(from + rows[k + AHEAD], 0, 2);                                                        \
      to[k] = from[rows[k]];                                                                                   \
    }                                                                                                          \
    for (; k < end; k++) to[k] = from[rows[k]];                                                                \
  }

static void gather(char *target, const char *source, int width, const int64_t *rows, int64_t begin, int64_t end) {
  if (width == 8) GATHER(uint64_t)
  if (width == 4) GATHER(uint32_t)
  if (width == 2) GATHER(uint16_t)
}

/* Blocks of rows, column after column: the block of row numbers stays in the cache. */
void limit_gather(char **targets, const char **sources, const int *widths, int columns, const int64_t *rows, int64_t n,
                  int threads) {
  const int64_t block = 65536;
#pragma omp parallel for num_threads(threads) schedule(static)
  for (int64_t begin = 0; begin < n; begin += block)
    for (int c = 0; c < columns; c++)
      gather(targets[c], sources[c], widths[c], rows, begin, n - begin < block ? n : begin + block);
}

/* The same of items whose addresses are known: what is left of a gather when finding its rows costs nothing. */
void limit_gather_known(char *target, int width, const int64_t *addresses, int64_t n, int threads) {
#define KNOWN(type)                                                                                            \
  {                                                                                                            \
    for (; k + AHEAD < end; k++) {                                                                             \
      __builtin_prefetch((const char *)addresses[k + AHEAD], 0, 2);                                            \
      memcpy(target + k * sizeof(type), (const char *)addresses[k], sizeof(type));                             \
    }                                                                                                          \
    for (; k < end; k++) memcpy(target + k * sizeof(type), (const char *)addresses[k], sizeof(type));          \
  }
  const int64_t block = 65536;
#pragma omp parallel for num_threads(threads) schedule(static)
  for (int64_t begin = 0; begin < n; begin += block) {
    int64_t k = begin, end = n - begin < block ? n : begin + block;
    if (width == 8) KNOWN(uint64_t)
    if (width == 4) KNOWN(uint32_t)
    if (width == 2) KNOWN(uint16_t)
  }
}

static uint64_t word(const uint8_t *mask) { /* 64 mask bytes, each 0 or 1, as 64 bits */
#if defined(__AVX512F__) && defined(__AVX512BW__)
  __m512i bytes = _mm512_loadu_si512(mask);
  return _mm512_test_epi8_mask(bytes, bytes);
#else
  uint64_t bits = 0;
  for (int k = 0; k < 64; k++) bits |= (uint64_t)mask[k] << k;
  return bits;
#endif
}

static int64_t count(const uint8_t *mask, int64_t n) {
  int64_t total = 0, i = 0;
  for (; i + 64 <= n; i += 64) total += __builtin_popcountll(word(mask + i));
  for (; i < n; i++) total += mask[i];
  return total;
}

static void compress(uint64_t *to, uint64_t *stop, const uint64_t *from, const uint8_t *mask, int64_t n) {
  int64_t i = 0;
  for (; i + 64 <= n; i += 64) {
    uint64_t bits = word(mask + i);
#if defined(__AVX512F__) && defined(__AVX512BW__)
    if (__builtin_popcountll(bits) >= 10 && stop - to >= 72) {
      for (int j = 0; j < 64; j += 8) {
        __mmask8 eight = (__mmask8)(bits >> j);
        _mm512_storeu_si512(to, _mm512_maskz_compress_epi64(eight, _mm512_loadu_si512(from + i + j)));
        to += __builtin_popcount(eight);
      }
      continue;
    }
#endif
    for (; bits; bits &= bits - 1) *to++ = from[i + __builtin_ctzll(bits)];
  }
  for (; i < n; i++)
    if (mask[i]) *to++ = from[i];
  (void)stop;
}

/* Items of 8 bytes. `counts` has room for one number per chunk of 64 Ki rows, and one more. */
void limit_mask(uint64_t *target, const uint64_t *source, const uint8_t *mask, int64_t n, int64_t *counts,
                int threads) {
  const int64_t chunk = 65536, chunks = (n + chunk - 1) / chunk;
  counts[0] = 0;
#pragma omp parallel for num_threads(threads) schedule(static)
  for (int64_t k = 0; k < chunks; k++)
    counts[k + 1] = count(mask + k * chunk, k + 1 < chunks ? chunk : n - k * chunk);
  for (int64_t k = 0; k < chunks; k++) counts[k + 1] += counts[k];
#pragma omp parallel for num_threads(threads) schedule(static)
  for (int64_t k = 0; k < chunks; k++)
    compress(target + counts[k], target + counts[k + 1], source + k * chunk, mask + k * chunk,
             k + 1 < chunks ? chunk : n - k * chunk);
}
