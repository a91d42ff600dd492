/* Values of an N-D array that is stored in chunks: scattered points, and sub-boxes. A chunk is a run of values in C
 * order; `bases` holds the address of each chunk of a box of the chunk grid, in C order of the box. */
#ifndef COLSTORE_GRID_H
#define COLSTORE_GRID_H

#include "kernel_math.h"

#define GRID_MAX_DIMS 64
#define GRID_BLOCK 512 /* points whose addresses are worked out before the first value is fetched */

typedef struct {
  int64_t ndim;
  const uint64_t *bases;
  const int64_t *counts;      /* chunks of the box along each dimension */
  const int64_t *edges;       /* dimension after dimension: counts[d] + 1 first indices, the last one the end */
  const int64_t *uniform;     /* length of all chunks but the last along each dimension; 0: search the edges */
  const uint64_t *index;      /* address of the index array of each dimension */
  const int64_t *index_step;  /* bytes from one index to the next; 0 for an index that all points share */
  int64_t itemsize;
  char *out;
} grid_points;

/* Takes points [begin, end). Returns -1, or the position of a point outside the box (its block is not written). */
static int64_t grid_take(const grid_points *g, int64_t begin, int64_t end) {
  int64_t chunk[GRID_BLOCK], offset[GRID_BLOCK];
  for (int64_t start = begin; start < end; start += GRID_BLOCK) {
    int64_t n = min_i64(GRID_BLOCK, end - start);
    const int64_t *edges = g->edges;
    for (int64_t p = 0; p < n; p++) chunk[p] = offset[p] = 0;
    for (int64_t d = 0; d < g->ndim; d++) {
      int64_t count = g->counts[d], low = edges[0], high = edges[count], step = g->index_step[d];
      const char *source = (const char *)(uintptr_t)g->index[d] + start * step;
      if (count == 1) {
        int64_t length = high - low;
        for (int64_t p = 0; p < n; p++) {
          int64_t i;
          memcpy(&i, source + p * step, 8);
          if (UNLIKELY(i < low || i >= high)) return start + p;
          offset[p] = offset[p] * length + (i - low);
        }
      } else if (g->uniform[d] > 0) {
        int64_t length = g->uniform[d], last = count - 1, rest = high - edges[last];
        reciprocal by = reciprocal_of((uint64_t)length);
        for (int64_t p = 0; p < n; p++) {
          int64_t i;
          memcpy(&i, source + p * step, 8);
          if (UNLIKELY(i < low || i >= high)) return start + p;
          int64_t c = (int64_t)divide((uint64_t)(i - low), by);
          offset[p] = offset[p] * (c == last ? rest : length) + (i - low - c * length);
          chunk[p] = chunk[p] * count + c;
        }
      } else {
        for (int64_t p = 0; p < n; p++) {
          int64_t i, a = 0, b = count;
          memcpy(&i, source + p * step, 8);
          if (UNLIKELY(i < low || i >= high)) return start + p;
          while (b - a > 1) { /* edges[a] <= i < edges[b] */
            int64_t mid = a + ((b - a) >> 1);
            if (edges[mid] <= i)
              a = mid;
            else
              b = mid;
          }
          offset[p] = offset[p] * (edges[a + 1] - edges[a]) + (i - edges[a]);
          chunk[p] = chunk[p] * count + a;
        }
      }
      edges += count + 1;
    }
    const uint64_t *bases = g->bases;
    char *out = g->out + start * g->itemsize;
    for (int64_t p = 0; p < n; p++) {
      offset[p] = (int64_t)(bases[chunk[p]] + (uint64_t)(offset[p] * g->itemsize));
      PREFETCH_L2(offset[p]);
    }
#define LOOP(w) \
  for (int64_t p = 0; p < n; p++) copy_item(out + p * (w), (const char *)(uintptr_t)(uint64_t)offset[p], w);
    WITH_WIDTH(g->itemsize, LOOP)
#undef LOOP
  }
  return -1;
}

/* One run of a selection along one dimension: `count` indices of one chunk, `step` apart, that land side by side. */
typedef struct {
  int64_t out_start, count, chunk, local_start, step;
} grid_run;

typedef struct {
  int64_t ndim;
  const uint64_t *bases;
  const int64_t *counts;
  const int64_t *lengths;     /* of the chunks of the box, dimension after dimension */
  const int64_t *length_at;   /* where each dimension begins in `lengths` */
  const grid_run *runs;       /* dimension after dimension */
  const int64_t *run_counts;
  const int64_t *run_at;
  const int64_t *out_shape;
  int64_t itemsize;
  char *out;
} grid_slab;

/* Copies the block that is combination number `which` of one run per dimension. */
static void grid_copy_block(const grid_slab *g, int64_t which) {
  int64_t count[GRID_MAX_DIMS], from[GRID_MAX_DIMS], to[GRID_MAX_DIMS], at[GRID_MAX_DIMS];
  int64_t chunk = 0, chunk_stride = 1, stride = g->itemsize, out_stride = g->itemsize, source_offset = 0, n = 0;
  char *target = g->out;
  /* From the last dimension to the first; a dimension that continues the one behind it on both sides joins it. */
  for (int64_t d = g->ndim - 1; d >= 0; d--) {
    const grid_run *run = g->runs + g->run_at[d] + which % g->run_counts[d];
    which /= g->run_counts[d];
    chunk += run->chunk * chunk_stride;
    chunk_stride *= g->counts[d];
    source_offset += run->local_start * stride;
    target += run->out_start * out_stride;
    if (run->count > 1) { /* the step of a single index may be any number */
      int64_t step = run->step * stride;
      if (n && step == from[n - 1] * count[n - 1] && out_stride == to[n - 1] * count[n - 1]) {
        count[n - 1] *= run->count;
      } else {
        count[n] = run->count;
        from[n] = step;
        to[n] = out_stride;
        n++;
      }
    }
    stride *= g->lengths[g->length_at[d] + run->chunk];
    out_stride *= g->out_shape[d];
  }
  const char *source = (const char *)(uintptr_t)(g->bases[chunk] + (uint64_t)source_offset);
  int64_t width = g->itemsize, inner = 1, inner_step = width, first = 0;
  if (n && to[0] == g->itemsize) {
    if (from[0] == g->itemsize) {
      width *= count[0]; /* contiguous on both sides: one copy */
      inner_step = width;
    } else {
      inner = count[0];
      inner_step = from[0];
    }
    first = 1;
  }
  for (int64_t d = first; d < n; d++) at[d] = 0;
  for (;;) {
    if (inner == 1) {
      memcpy(target, source, (size_t)width);
    } else {
#define LOOP(w) \
  for (int64_t k = 0; k < inner; k++) copy_item(target + k * (w), source + k * inner_step, w);
      WITH_WIDTH(width, LOOP)
#undef LOOP
    }
    int64_t d = first;
    for (; d < n; d++) {
      source += from[d];
      target += to[d];
      if (++at[d] < count[d]) break;
      source -= from[d] * count[d];
      target -= to[d] * count[d];
      at[d] = 0;
    }
    if (d == n) return;
  }
}

#endif
