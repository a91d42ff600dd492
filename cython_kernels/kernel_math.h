/* Arithmetic and memory access that several kernels share: exact division by a constant, unaligned loads,
 * prefetching, the order in which threads take chunks. Plain C11 with two GCC/Clang builtins behind macros. */
#ifndef COLSTORE_KERNEL_MATH_H
#define COLSTORE_KERNEL_MATH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__GNUC__)
#define KERNEL_INLINE static inline __attribute__((always_inline))
#define KERNEL_NOINLINE static __attribute__((noinline, unused))
#define KERNEL_ALIGNED(bytes) __attribute__((aligned(bytes)))
#define LIKELY(x) __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)
/* Into L2 (locality 2 is prefetcht1): an L2 prefetch leaves the few L1 fill buffers free, so about twice as
 * many misses are in flight as with a prefetch into L1 (4.65 against 7.8 ns a row in a random gather). */
#define PREFETCH_L2(address) __builtin_prefetch((const void *)(uintptr_t)(address), 0, 2)
#else
#define KERNEL_INLINE static inline
#define KERNEL_NOINLINE static
#define KERNEL_ALIGNED(bytes)
#define LIKELY(x) (x)
#define UNLIKELY(x) (x)
#define PREFETCH_L2(address) ((void)(address))
#endif

/* Loops that are compiled for several instruction sets; which ones a kernel has, its header says. */
#define ISA_PORTABLE 0
#define ISA_AVX2 1
#define ISA_AVX512 2
#define ISA_AVX512_VBMI2 3

#if defined(__x86_64__) && defined(__GNUC__)
#define HAVE_X86_VERSIONS 1
#include <immintrin.h>
#endif

KERNEL_INLINE int64_t min_i64(int64_t a, int64_t b) { return a < b ? a : b; }

KERNEL_INLINE int64_t ceil_div(int64_t n, int64_t d) { return n / d + (n % d != 0); }

/* ---- division by a constant ----------------------------------------------------------------------- */

/* floor(n / d) for 0 <= n < 2^63 and 1 <= d < 2^63 as one multiplication.
 *
 * With L = ceil(log2 d) and magic = ceil(2^(63+L) / d) the error magic*d - 2^(63+L) is below d <= 2^L, which is
 * the condition under which floor(magic*n / 2^(63+L)) is exact for all n < 2^63; magic fits 64 bits because
 * d > 2^(L-1). Writing the product as magic * 2n moves the cut to a whole word: high word, then >> L. */
typedef struct {
  uint64_t magic;
  int shift;
} reciprocal;

KERNEL_INLINE uint64_t multiply_high_portable(uint64_t a, uint64_t b) {
  uint64_t a0 = (uint32_t)a, a1 = a >> 32, b0 = (uint32_t)b, b1 = b >> 32;
  uint64_t low = a0 * b0, mid = a1 * b0 + (low >> 32);
  uint64_t other = a0 * b1 + (uint32_t)mid;
  return a1 * b1 + (mid >> 32) + (other >> 32);
}

KERNEL_INLINE uint64_t multiply_high(uint64_t a, uint64_t b) {
#if defined(__SIZEOF_INT128__)
  return (uint64_t)(((unsigned __int128)a * b) >> 64);
#else
  return multiply_high_portable(a, b);
#endif
}

static inline reciprocal reciprocal_of(uint64_t d) {
  reciprocal r = {0, 0};
  while (((uint64_t)1 << r.shift) < d) r.shift++;
  /* 2^(63+L) / d, bit by bit: the first 64 quotient bits after the leading 2^L / d, which is 0 or (d = 2^L) 1. */
  uint64_t rest = (uint64_t)1 << r.shift, quotient = 0;
  if (rest >= d) {
    rest -= d;
    quotient = 1;
  }
  for (int bit = 0; bit < 63; bit++) {
    int carry = rest >= d - rest; /* 2*rest >= d without overflow; rest < d always holds */
    rest = carry ? rest - (d - rest) : rest + rest;
    quotient = quotient << 1 | (uint64_t)carry;
  }
  r.magic = quotient + (rest != 0);
  return r;
}

KERNEL_INLINE uint64_t divide(uint64_t n, reciprocal r) { return multiply_high(r.magic, n << 1) >> r.shift; }

KERNEL_INLINE uint64_t divide_portable(uint64_t n, reciprocal r) {
  return multiply_high_portable(r.magic, n << 1) >> r.shift;
}

/* ---- unaligned items ------------------------------------------------------------------------------- */

typedef struct {
  uint64_t low, high;
} item16;

/* Copies one item; with a constant `width` the compiler makes it one load and one store. */
KERNEL_INLINE void copy_item(char *target, const char *source, int64_t width) {
  memcpy(target, source, (size_t)width);
}

/* Runs `LOOP(w)` with a compile-time width where the kernels have a typed path, else with the variable. */
#define WITH_WIDTH(width, LOOP)                                                                                \
  switch (width) {                                                                                             \
    case 1: LOOP(1) break;                                                                                     \
    case 2: LOOP(2) break;                                                                                     \
    case 4: LOOP(4) break;                                                                                     \
    case 8: LOOP(8) break;                                                                                     \
    case 16: LOOP(16) break;                                                                                   \
    default: LOOP(width) break;                                                                                \
  }

/* ---- chunks ---------------------------------------------------------------------------------------- */

/* The chunk that the k-th turn works on: turns 0..threads-1 start at equal distances, so that threads running
 * side by side never first-touch the same huge page of a fresh output. A permutation of 0..n-1 for any
 * number of threads, and no thread id in it: a smaller team than asked for does the same work. */
KERNEL_INLINE int64_t spread_chunk(int64_t turn, int64_t n, int64_t threads) {
  int64_t share = n / threads, lane = turn % threads, step = turn / threads;
  if (step >= share) return share * threads + lane; /* the last, incomplete round: the tail chunks in order */
  return lane * share + step;
}

/* One bad position seen by any thread; -1 while there is none. */
KERNEL_INLINE int64_t shared_load(const int64_t *cell) {
#if defined(__GNUC__)
  return __atomic_load_n(cell, __ATOMIC_RELAXED);
#else
  return *(const volatile int64_t *)cell;
#endif
}

KERNEL_INLINE void shared_store(int64_t *cell, int64_t value) {
#if defined(__GNUC__)
  __atomic_store_n(cell, value, __ATOMIC_RELAXED);
#else
  *(volatile int64_t *)cell = value;
#endif
}

#endif
