/* Blocks of a chunk of fixed width straight to its values: inflated into their place, or summed up on the way.
 *
 * Blocks can be shared out to threads. Each has its place in the result; the sums of differences begin anew with each
 * block then, and what came before is added in the end. */
#ifndef COLSTORE_BLOCKS_H
#define COLSTORE_BLOCKS_H

#include <stdlib.h>

#include "decode.h"
#include "inflate.h"

typedef struct {
  const uint8_t *data;                     /* stored bytes, back to back */
  const int64_t *start, *stored, *raw, *at; /* of each block: where it is, its lengths, where its raw bytes belong */
  int64_t n_blocks, n_raw, largest;        /* raw bytes of all, and of the largest */
  int deflated, differences;
  int64_t width; /* of a value */
} fixed_blocks;

enum { BLOCKS_DONE = -1, BLOCKS_NO_MEMORY = -2 };

KERNEL_INLINE int64_t next_turn(int64_t *turn) {
#if defined(__GNUC__)
  return __atomic_fetch_add(turn, 1, __ATOMIC_RELAXED);
#else
  return (*turn)++; /* one thread at a time there: kernels without the builtins hold the global lock */
#endif
}

#define COPY_PIECE ((int64_t)1 << 17)

/* Where the values of a block begin, and how many bytes they have. */
KERNEL_INLINE int64_t values_at(const fixed_blocks *b, int64_t k) {
  return b->differences ? b->at[k] / 8 * b->width : b->at[k];
}

/* Room for a block of differences, and behind it, so that the loop without checks goes on to the end. */
static uint8_t *make_scratch(const fixed_blocks *b) {
  return b->differences ? (uint8_t *)malloc((size_t)b->largest + INFLATE_OUT_ROOM) : NULL;
}

/* One deflated block to its values. Returns 0 when it is damaged. Differences are added to `sum`. */
static int read_one_block(const fixed_blocks *b, int64_t k, uint8_t *out, uint8_t *scratch, uint64_t *sum) {
  const uint8_t *stored = b->data + b->start[k];
  int64_t raw = b->raw[k];
  uint8_t *values = out + values_at(b, k);
  if (!b->differences) return inflate_span(stored, b->stored[k], values, raw) == raw;
  if (inflate_span_into(stored, b->stored[k], scratch, raw, raw + INFLATE_OUT_ROOM) != raw) return 0;
  *sum = delta_span(scratch, raw / 8, values, b->width, *sum);
  return 1;
}

/* Reads deflated blocks until none is left. `cells`: how many somebody has taken, from 0; BLOCKS_DONE, or what became of
 * it; and for differences the sum of each block, which begins at 0: see `add_sums`. Any number of threads may do so for
 * the same cells. */
static void take_part_in_blocks(const fixed_blocks *b, uint8_t *out, int64_t *cells) {
  uint8_t *scratch = make_scratch(b);
  if (b->differences && !scratch) shared_store(cells + 1, BLOCKS_NO_MEMORY);
  for (;;) {
    int64_t k = next_turn(cells);
    uint64_t sum = 0;
    if (k >= b->n_blocks || shared_load(cells + 1) != BLOCKS_DONE) break;
    if (!read_one_block(b, k, out, scratch, &sum)) shared_store(cells + 1, k);
    if (b->differences) cells[2 + k] = (int64_t)sum;
  }
  free(scratch);
}

#define ADD_LOOP(T)                                       \
  for (int64_t i = 0; i < n; i++) {                       \
    T v;                                                  \
    memcpy(&v, values + i * (int64_t)sizeof(T), sizeof v); \
    v = (T)(v + (T)sum);                                  \
    memcpy(values + i * (int64_t)sizeof(T), &v, sizeof v); \
  }

/* Adds to each block what the blocks before it sum up to. */
static void add_sums(const fixed_blocks *b, uint8_t *out, const int64_t *cells) {
  uint64_t sum = 0;
  for (int64_t k = 0; k < b->n_blocks; k++) {
    uint8_t *values = out + values_at(b, k);
    int64_t n = b->raw[k] / 8;
    switch (b->width) {
      case 1: ADD_LOOP(uint8_t) break;
      case 2: ADD_LOOP(uint16_t) break;
      case 4: ADD_LOOP(uint32_t) break;
      default: ADD_LOOP(uint64_t) break;
    }
    sum += (uint64_t)cells[2 + k];
  }
}

/* Reads all blocks. Returns BLOCKS_DONE, BLOCKS_NO_MEMORY, or the number of a damaged block. `out` has the bytes of all
 * values. */
static int64_t read_fixed_blocks(const fixed_blocks *b, uint8_t *out, int threads) {
  int64_t bad = BLOCKS_DONE;
  uint64_t sum = 0;
  (void)threads;
  if (!b->deflated && b->differences) {
    delta_span(b->data, b->n_raw / 8, out, b->width, 0);
    return bad;
  }
  if (!b->deflated) {
    int64_t pieces = ceil_div(b->n_raw, COPY_PIECE);
#ifdef _OPENMP
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads) if (threads > 1)
#endif
    for (int64_t turn = 0; turn < pieces; turn++) {
      int64_t from = spread_chunk(turn, pieces, threads) * COPY_PIECE;
      memcpy(out + from, b->data + from, (size_t)min_i64(COPY_PIECE, b->n_raw - from));
    }
    return bad;
  }
  uint8_t *scratch = make_scratch(b);
  if (b->differences && !scratch) return BLOCKS_NO_MEMORY;
  for (int64_t k = 0; k < b->n_blocks && bad == BLOCKS_DONE; k++)
    if (!read_one_block(b, k, out, scratch, &sum)) bad = k;
  free(scratch);
  return bad;
}

#endif
