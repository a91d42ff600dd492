/* The kernels of grids, as driver.c runs them: an array of three dimensions whose chunks have equal lengths along one,
 * unequal ones along another, and one chunk along the last. */
#ifndef COLSTORE_DRIVER_GRID_H
#define COLSTORE_DRIVER_GRID_H

#include "grid.h"

#define POINT_TURN 512

static const int64_t GRID_SHAPE[3] = {40, 50, 60};
static const int64_t GRID_COUNTS[3] = {3, 2, 1};
static const int64_t GRID_EDGES[] = {0, 16, 32, 40, 0, 7, 50, 0, 60};
static const int64_t GRID_LENGTHS[] = {16, 16, 8, 7, 43, 60};
static const int64_t GRID_LENGTH_AT[3] = {0, 3, 5};
static const int64_t GRID_UNIFORM[3] = {16, 0, 0};
static const int64_t GRID_STEPS[3] = {8, 8, 8};

/* Rows 1, 4, 7, 10, 13, 16 and 32 to 39; of these columns 0 to 6 and every second from 7; of these every value, then
 * every third. */
static const grid_run GRID_RUNS[] = {
    {0, 5, 0, 1, 3}, {5, 1, 1, 0, 1}, {6, 8, 2, 0, 1}, {0, 7, 0, 0, 1}, {7, 22, 1, 0, 2}, {0, 30, 0, 0, 1}, {30, 10, 0, 30, 3},
};
static const int64_t GRID_RUN_COUNTS[3] = {3, 2, 2};
static const int64_t GRID_RUN_AT[3] = {0, 3, 5};
static const int64_t GRID_OUT_SHAPE[3] = {14, 29, 40};
#define GRID_BLOCKS 12

typedef struct grid_parts {
  uint64_t bases[6];
  int64_t *index[3]; /* PICKS each */
  uint64_t index_at[3];
} grid_parts;

static void make_grid(work *w) {
  grid_parts *g = w->grid = room(sizeof *g);
  for (int64_t a = 0; a < 3; a++)
    for (int64_t b = 0; b < 2; b++) {
      int64_t n = GRID_LENGTHS[a] * GRID_LENGTHS[3 + b] * 60, *chunk = room((size_t)n * 8), at = 0;
      for (int64_t i = GRID_EDGES[a]; i < GRID_EDGES[a + 1]; i++)
        for (int64_t j = GRID_EDGES[4 + b]; j < GRID_EDGES[5 + b]; j++)
          for (int64_t k = 0; k < 60; k++) chunk[at++] = (i * 50 + j) * 60 + k;
      g->bases[2 * a + b] = (uint64_t)(uintptr_t)chunk;
    }
  for (int d = 0; d < 3; d++) {
    g->index[d] = room(PICKS * 8);
    g->index_at[d] = (uint64_t)(uintptr_t)g->index[d];
    for (int64_t i = 0; i < PICKS; i++) g->index[d][i] = (int64_t)(random64() % (uint64_t)GRID_SHAPE[d]);
  }
  w->out[0] = room(PICKS * 8);
}

static void grid_points_run(work *w) {
  grid_points g = {3, w->grid->bases, GRID_COUNTS, GRID_EDGES, GRID_UNIFORM, w->grid->index_at, GRID_STEPS, 8, w->out[0]};
  int64_t turn;
  while ((turn = next_turn(w, ceil_div(PICKS, POINT_TURN))) >= 0) {
    int64_t found = grid_take(&g, turn * POINT_TURN, min_i64((turn + 1) * POINT_TURN, PICKS));
    if (found >= 0) shared_store(&w->bad, found);
  }
}

static void grid_boxes_run(work *w) {
  grid_slab g = {3, w->grid->bases, GRID_COUNTS, GRID_LENGTHS, GRID_LENGTH_AT, GRID_RUNS, GRID_RUN_COUNTS, GRID_RUN_AT,
                 GRID_OUT_SHAPE, 8, w->out[0]};
  int64_t turn;
  while ((turn = next_turn(w, GRID_BLOCKS)) >= 0) grid_copy_block(&g, turn);
}

static int wrong_points(const work *w) {
  const grid_parts *g = w->grid;
  for (int64_t i = 0; i < PICKS; i++)
    if (((const int64_t *)(const void *)w->out[0])[i] != (g->index[0][i] * 50 + g->index[1][i]) * 60 + g->index[2][i])
      return 1;
  return 0;
}

static int wrong_boxes(const work *w) {
  const int64_t *found = (const int64_t *)(const void *)w->out[0];
  for (int64_t a = 0; a < 14; a++)
    for (int64_t b = 0; b < 29; b++)
      for (int64_t c = 0; c < 40; c++) {
        int64_t i = a < 6 ? 1 + 3 * a : 26 + a, j = b < 7 ? b : 7 + 2 * (b - 7), k = c < 30 ? c : 30 + 3 * (c - 30);
        if (*found++ != (i * 50 + j) * 60 + k) return 1;
      }
  return 0;
}

#endif
