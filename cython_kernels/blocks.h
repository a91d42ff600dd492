/* Blocks of a chunk of fixed width straight to its values: inflated into their place, or summed up on the way.
 *
 * Blocks are shared out to threads. Those of Plain have their places in the result; differences are summed up in order,
 * while the other threads inflate what comes next. */
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

/* Inflates blocks of Plain into their places until none is left. `turn` counts those that somebody has taken, from 0;
 * `bad` becomes the number of a damaged one. Any number of threads may do so for the same cells. */
static void take_part_in_blocks(const fixed_blocks *b, uint8_t *out, int64_t *turn, int64_t *bad) {
  for (;;) {
    int64_t k = next_turn(turn);
    if (k >= b->n_blocks || shared_load(bad) != BLOCKS_DONE) return;
    if (inflate_span(b->data + b->start[k], b->stored[k], out + b->at[k], b->raw[k]) != b->raw[k]) shared_store(bad, k);
  }
}

/* Returns BLOCKS_DONE, BLOCKS_NO_MEMORY, or the number of a damaged block. `out` has the bytes of all values. */
static int64_t read_fixed_blocks(const fixed_blocks *b, uint8_t *out, int threads) {
  int64_t bad = BLOCKS_DONE;
  (void)threads;
  if (!b->deflated && !b->differences) {
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
  if (!b->deflated) {
    delta_span(b->data, b->n_raw / 8, out, b->width, 0);
    return bad;
  }
  if (!b->differences) {
    int64_t turn = 0;
    take_part_in_blocks(b, out, &turn, &bad);
    return bad;
  }
  uint64_t sum = 0;
#ifdef _OPENMP
#pragma omp parallel num_threads(threads) if (threads > 1)
#endif
  {
    /* With room behind it, so that the loop without checks goes on to the end. */
    uint8_t *scratch = (uint8_t *)malloc((size_t)b->largest + INFLATE_OUT_ROOM);
    if (!scratch) shared_store(&bad, BLOCKS_NO_MEMORY);
#ifdef _OPENMP
#pragma omp for ordered schedule(dynamic, 1)
#endif
    for (int64_t k = 0; k < b->n_blocks; k++) {
      int64_t written = -1;
      if (shared_load(&bad) == BLOCKS_DONE) {
        written = inflate_span_into(b->data + b->start[k], b->stored[k], scratch, b->raw[k], b->raw[k] + INFLATE_OUT_ROOM);
        if (written != b->raw[k]) shared_store(&bad, k);
      }
#ifdef _OPENMP
#pragma omp ordered
#endif
      if (shared_load(&bad) == BLOCKS_DONE)
        sum = delta_span(scratch, b->raw[k] / 8, out + b->at[k] / 8 * b->width, b->width, sum);
    }
    free(scratch);
  }
  return bad;
}

#endif
