/* One column of integers to bytes and back: the column codec of colbin (colbin.md section 8), byte-exact.
 *
 * A column is a header byte, a base of eight bytes for three of the four transforms, and blocks of 128 residuals, each
 * packed to what its widest needs. Nothing here allocates: the encoder writes into column_capacity(n) bytes, the
 * decoder into n values. The element count is not in the bytes.
 *
 *   int64_t column_capacity(n)                                   bytes that column_encode may write
 *   int64_t column_encode(values, n, dst)                        bytes written
 *   int column_decode(src, len, n, out)                          COLUMN_OK or what is wrong with the bytes
 *   int64_t column_encode_as(isa, kind, source, n, dst, bounds)  the same from other element types
 *   int column_decode_as(isa, kind, src, len, n, out)            the same to other element types, checked
 *
 * The loops are in column_codec_isa.h, compiled once for each instruction set. */
#ifndef COLSTORE_COLUMN_CODEC_H
#define COLSTORE_COLUMN_CODEC_H

#include "kernel_math.h"

#define COLUMN_BLOCK 128

/* Transforms: bits 0 and 1 of the header. */
#define COLUMN_RAW 0
#define COLUMN_DELTA 1
#define COLUMN_FOR 2
#define COLUMN_CONSTANT 3
#define COLUMN_ZIGZAG 4

/* What is wrong with the bytes of a column. */
#define COLUMN_OK 0
#define COLUMN_TRUNCATED 1    /* a header, base or block runs past the end */
#define COLUMN_BAD_WIDTH 2    /* a block width above 64 */
#define COLUMN_TRAILING 3     /* bytes behind the last block */
#define COLUMN_OUT_OF_RANGE 4 /* a value that the element type cannot hold */

/* Element types in memory. A u64 and an f64 are taken for the i64, an f32 for the u32 of the same bits. */
#define COLUMN_I64 0
#define COLUMN_I32 1
#define COLUMN_I16 2
#define COLUMN_I8 3
#define COLUMN_U32 4
#define COLUMN_U16 5
#define COLUMN_U8 6
#define COLUMN_BOOL 7 /* one byte; any but 0 is true when encoded, only 0 and 1 are decoded */

#define COLUMN_PORTABLE 0
#define COLUMN_AVX2 1
#define COLUMN_AVX512 2

/* The smallest and the largest value of a column, as the i64 that the codec sees. */
typedef struct {
  int64_t minimum, maximum;
} column_bounds;

/* Bytes that encoding n values may touch: the worst case, and room for the whole group of eight that the last values
 * are packed with and for its last store of eight bytes. */
KERNEL_INLINE int64_t column_capacity(int64_t n) { return 9 + ceil_div(n, COLUMN_BLOCK) + 8 * n + 72; }

KERNEL_INLINE int64_t column_itemsize(int kind) {
  static const int8_t sizes[] = {8, 4, 2, 1, 4, 2, 1, 1};
  return sizes[kind];
}

KERNEL_INLINE uint64_t column_load64(const uint8_t *p) {
  uint64_t v;
  memcpy(&v, p, 8);
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
  v = __builtin_bswap64(v);
#endif
  return v;
}

KERNEL_INLINE void column_store64(uint8_t *p, uint64_t v) {
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
  v = __builtin_bswap64(v);
#endif
  memcpy(p, &v, 8);
}

KERNEL_INLINE uint64_t column_zigzag(int64_t v) { return ((uint64_t)v << 1) ^ (uint64_t)(v >> 63); }
KERNEL_INLINE int64_t column_unzigzag(uint64_t z) { return (int64_t)((z >> 1) ^ (0 - (z & 1))); }
KERNEL_INLINE int column_bits(uint64_t v) { return v ? 64 - __builtin_clzll(v) : 0; }

/* Bytes of a block of k residuals whose widest has `width` bits, its width byte included. */
KERNEL_INLINE int64_t column_block_bytes(int64_t k, int width) { return 1 + (k * width + 7) / 8; }

/* ---- packing: groups of eight values, w bytes each, in code of its own for every width --------------------- */

/* With w known, every shift is a constant: two or three instructions per value. The last store of a group may run
 * up to seven bytes past it; the next group, or the slack of column_capacity, takes them. */
KERNEL_INLINE void column_pack_groups(const uint64_t *restrict r, int64_t groups, uint8_t *restrict p, const int w) {
  for (int64_t g = 0; g < groups; g++, r += 8, p += w) {
    uint64_t word = 0;
    int fill = 0, at = 0;
#pragma GCC unroll 8
    for (int j = 0; j < 8; j++) {
      word |= r[j] << fill;
      fill += w;
      if (fill >= 64) {
        column_store64(p + at, word);
        at += 8;
        fill -= 64;
        word = fill ? r[j] >> (w - fill) : 0;
      }
    }
    if (fill) column_store64(p + at, word);
  }
}

/* Reads up to eight bytes past the last group. */
KERNEL_INLINE void column_unpack_groups(const uint8_t *restrict p, int64_t groups, uint64_t *restrict r, const int w) {
  const uint64_t mask = ~(uint64_t)0 >> (64 - w);
  for (int64_t g = 0; g < groups; g++, r += 8, p += w) {
#pragma GCC unroll 8
    for (int j = 0; j < 8; j++) {
      const int byte = j * w / 8, shift = j * w % 8;
      uint64_t v = column_load64(p + byte) >> shift;
      if (shift + w > 64) v |= (uint64_t)p[byte + 8] << (64 - shift);
      r[j] = v & mask;
    }
  }
}

#define COLUMN_EACH_WIDTH(CASE)                                                                                \
  CASE(1) CASE(2) CASE(3) CASE(4) CASE(5) CASE(6) CASE(7) CASE(8) CASE(9) CASE(10) CASE(11) CASE(12) CASE(13)  \
  CASE(14) CASE(15) CASE(16) CASE(17) CASE(18) CASE(19) CASE(20) CASE(21) CASE(22) CASE(23) CASE(24) CASE(25)  \
  CASE(26) CASE(27) CASE(28) CASE(29) CASE(30) CASE(31) CASE(32) CASE(33) CASE(34) CASE(35) CASE(36) CASE(37)  \
  CASE(38) CASE(39) CASE(40) CASE(41) CASE(42) CASE(43) CASE(44) CASE(45) CASE(46) CASE(47) CASE(48) CASE(49)  \
  CASE(50) CASE(51) CASE(52) CASE(53) CASE(54) CASE(55) CASE(56) CASE(57) CASE(58) CASE(59) CASE(60) CASE(61)  \
  CASE(62) CASE(63) CASE(64)

/* ---- versions ------------------------------------------------------------------------------------------- */

#define CODEC(name) name##_portable
#define CODEC_TARGET
#include "column_codec_isa.h"
#undef CODEC
#undef CODEC_TARGET

#if defined(__x86_64__) && defined(__GNUC__)
#define COLUMN_X86_VERSIONS 1

typedef uint64_t column_four __attribute__((vector_size(32)));

/* Widest values that are unpacked four at a time. */
#define CODEC_VECTORS 57

#define CODEC(name) name##_avx2
#define CODEC_TARGET __attribute__((target("avx2,bmi,bmi2,lzcnt")))
#include "column_codec_isa.h"
#undef CODEC
#undef CODEC_TARGET

#define CODEC(name) name##_avx512
#define CODEC_TARGET __attribute__((target("avx2,bmi,bmi2,lzcnt,avx512f,avx512bw,avx512dq,avx512vl")))
#include "column_codec_isa.h"
#undef CODEC
#undef CODEC_TARGET
#undef CODEC_VECTORS
#endif

/* The best version that this CPU and its operating system have; asked once per thread that races for it. */
static inline int column_best_isa(void) {
  static int known = -1;
  if (known >= 0) return known;
  int best = COLUMN_PORTABLE;
#ifdef COLUMN_X86_VERSIONS
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2")) {
    best = COLUMN_AVX2;
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
      best = COLUMN_AVX512;
  }
#endif
  return known = best;
}

/* Encode n values of `kind` into dst, which has column_capacity(n) bytes; returns the bytes of the column.
 *
 * `isa` must not be above column_best_isa(). `source` need not be aligned. `bounds` may be NULL; of an empty column
 * they are 0 and 0. */
static inline int64_t column_encode_as(int isa, int kind, const void *source, int64_t n, uint8_t *dst,
                                       column_bounds *bounds) {
#ifdef COLUMN_X86_VERSIONS
  if (isa >= COLUMN_AVX512) return column_encode_avx512(kind, (const char *)source, n, dst, bounds);
  if (isa >= COLUMN_AVX2) return column_encode_avx2(kind, (const char *)source, n, dst, bounds);
#endif
  return column_encode_portable(kind, (const char *)source, n, dst, bounds);
}

/* Decode exactly len bytes into n values of `kind`; COLUMN_OK, or what is wrong (out is then unspecified).
 *
 * Reads nothing outside [src, src + len). `out` need not be aligned. A constant column of any n costs nine bytes:
 * the caller bounds n. */
static inline int column_decode_as(int isa, int kind, const uint8_t *src, int64_t len, int64_t n, void *out) {
#ifdef COLUMN_X86_VERSIONS
  if (isa >= COLUMN_AVX512) return column_decode_avx512(kind, src, len, n, (char *)out);
  if (isa >= COLUMN_AVX2) return column_decode_avx2(kind, src, len, n, (char *)out);
#endif
  return column_decode_portable(kind, src, len, n, (char *)out);
}

static inline int64_t column_encode(const int64_t *values, int64_t n, uint8_t *dst) {
  return column_encode_as(column_best_isa(), COLUMN_I64, values, n, dst, NULL);
}

static inline int column_decode(const uint8_t *src, int64_t len, int64_t n, int64_t *out) {
  return column_decode_as(column_best_isa(), COLUMN_I64, src, len, n, out);
}

#endif
