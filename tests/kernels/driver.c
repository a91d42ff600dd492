/* Runs the inline kernels without Python: driver KERNEL PATH THREADS [repeats].
 *
 * One thread under callgrind counts instructions (tools/count_instructions.py), several plain threads under
 * ThreadSanitizer look for races (tools/sanitize.py): under libgomp, whose barriers that sanitizer does not see, it
 * reports races that are none. The threads take chunks as segments.pyx and copy.pyx hand them out. Results are compared
 * with plain loops; the exit status is 1 where one is wrong. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "compare.h"
#include "gather.h"
#include "memory_runs.h"

#define ROWS 100000
#define PICKS 32768
#define TAKE_CHUNK 2048 /* shorter than in segments.pyx, so that few rows make many chunks */
#define COPY_CHUNK 2000
#define STEP 3
#define DISTANCE 96
#define COLUMNS 3

static const int64_t WIDTHS[COLUMNS] = {8, 4, 2};

typedef struct {
  segment_table table;
  char *column[COLUMNS];
  int64_t *picks;  /* random rows, or sorted ones for the cursor */
  uint8_t *mask;   /* about half of it true */
  int64_t *offsets;
  char *out[COLUMNS];
  int64_t n_columns, bad, turn;
  int threads, isa, failed;
  struct encoded_parts *encoded; /* of kernels of encoded formats */
  struct grid_parts *grid;
  struct text_parts *text;
} work;

static uint64_t seed = 88172645463325252u;

static uint64_t random64(void) {
  seed ^= seed << 13;
  seed ^= seed >> 7;
  return seed ^= seed << 17;
}

static void *room(size_t n) {
  void *p = calloc(n ? n : 1, 1);
  if (!p) exit(2);
  return p;
}

static int64_t next_turn(work *w, int64_t chunks) {
  int64_t turn = __atomic_fetch_add(&w->turn, 1, __ATOMIC_RELAXED);
  return turn < chunks ? spread_chunk(turn, chunks, w->threads) : -1;
}

/* ---- one function per kernel: all the chunks that this thread gets ------------------------------------------- */

static void take(work *w, int route) {
  int64_t chunks = ceil_div(PICKS, TAKE_CHUNK), chunk;
  const bucket_index *b = route == ROUTE_BUCKET ? get_buckets(&w->table) : NULL;
  while ((chunk = next_turn(w, chunks)) >= 0) {
    if (shared_load(&w->bad) >= 0) continue;
    int64_t begin = chunk * TAKE_CHUNK;
    int64_t found = take_span(&w->table, b, w->isa, route, w->picks, begin, min_i64(begin + TAKE_CHUNK, PICKS), w->out, DISTANCE);
    if (found >= 0) shared_store(&w->bad, found);
  }
}

static void gather_affine_rows(work *w) { take(w, ROUTE_AFFINE); }
static void gather_uniform_rows(work *w) { take(w, ROUTE_UNIFORM); }
static void gather_bucket_rows(work *w) { take(w, ROUTE_BUCKET); }
static void gather_search_rows(work *w) { take(w, ROUTE_SEARCH); }
static void gather_cursor_rows(work *w) { take(w, ROUTE_CURSOR); }
static void gather_abreast_rows(work *w) { take(w, ROUTE_BUCKET); } /* several columns of short segments */

static void mask_offsets(work *w) {
  int64_t chunks = ceil_div(ROWS, MASK_CHUNK_ROWS), chunk;
  while ((chunk = next_turn(w, chunks)) >= 0) {
    int64_t begin = chunk * MASK_CHUNK_ROWS;
    w->offsets[chunk + 1] = count_true(w->isa, w->mask + begin, min_i64(MASK_CHUNK_ROWS, ROWS - begin));
  }
}

static void mask_compress(work *w) {
  int64_t chunks = ceil_div(ROWS, MASK_CHUNK_ROWS), chunk;
  while ((chunk = next_turn(w, chunks)) >= 0) {
    int64_t begin = chunk * MASK_CHUNK_ROWS, end = min_i64(begin + MASK_CHUNK_ROWS, ROWS);
    for (int64_t c = 0; c < w->n_columns; c++)
      if (compress_span(&w->table, w->isa, c, w->mask, begin, end, w->out[c] + w->offsets[chunk] * WIDTHS[c],
                        w->out[c] + w->offsets[chunk + 1] * WIDTHS[c]))
        shared_store(&w->bad, begin);
  }
}

/* Bits that are equally often on both sides of zero; NaN is among the doubles. */
static const range_test TESTS[2][COLUMNS] = {
    {{KIND_F8, {.f = 0}, {.f = 1e300}, 1, 0},
     {KIND_I4, {.i = -2000000000}, {.i = 2000000000}, 0, 0},
     {KIND_U2, {.u = 0}, {.u = 60000}, 0, 0}},
    {{KIND_I8, {.i = 0}, {.i = INT64_MAX}, 0, 0},
     {KIND_F4, {.f = -1e38}, {.f = 1e38}, 0, 1},
     {KIND_I2, {.i = -30000}, {.i = 30000}, 0, 0}},
};

static void compare(work *w, int tests) {
  int64_t chunks = ceil_div(ROWS, MASK_CHUNK_ROWS), chunk;
  while ((chunk = next_turn(w, chunks)) >= 0) {
    int64_t begin = chunk * MASK_CHUNK_ROWS;
    w->offsets[chunk + 1] = test_span(&w->table, w->isa, TESTS[tests], NULL, begin,
                                      min_i64(begin + MASK_CHUNK_ROWS, ROWS), (uint8_t *)w->out[0]);
  }
}

static void compare_floats(work *w) { compare(w, 0); }
static void compare_integers(work *w) { compare(w, 1); }

static void copy_strided(work *w) {
  int64_t n = ceil_div(ROWS, STEP), chunks = ceil_div(n, COPY_CHUNK), chunk;
  while ((chunk = next_turn(w, chunks)) >= 0)
    for (int64_t c = 0; c < w->n_columns; c++)
      if (strided_span(&w->table, c, 0, STEP, chunk * COPY_CHUNK, min_i64((chunk + 1) * COPY_CHUNK, n), w->out[c]))
        shared_store(&w->bad, chunk);
}

static void copy_reversed(work *w) {
  int64_t chunks = ceil_div(ROWS, COPY_CHUNK), chunk;
  while ((chunk = next_turn(w, chunks)) >= 0)
    for (int64_t c = 0; c < w->n_columns; c++)
      if (strided_span(&w->table, c, ROWS - 1, -1, chunk * COPY_CHUNK, min_i64((chunk + 1) * COPY_CHUNK, ROWS), w->out[c]))
        shared_store(&w->bad, chunk);
}

static void copy_runs(work *w) { /* each column is one run */
  uint64_t source[COLUMNS], target[COLUMNS];
  int64_t ends[COLUMNS], total = 0, chunk;
  for (int c = 0; c < COLUMNS; c++) {
    source[c] = (uint64_t)(uintptr_t)w->column[c];
    target[c] = (uint64_t)(uintptr_t)w->out[c];
    ends[c] = total += ROWS * WIDTHS[c];
  }
  int64_t bytes = 4 * COPY_CHUNK, chunks = ceil_div(total, bytes);
  while ((chunk = next_turn(w, chunks)) >= 0)
    copy_runs_span(source, target, ends, COLUMNS, chunk * bytes, min_i64((chunk + 1) * bytes, total));
}

static void interleave(work *w) {
  uint64_t columns[COLUMNS];
  int64_t record = 0, chunks = ceil_div(ROWS, COPY_CHUNK), chunk;
  for (int c = 0; c < COLUMNS; c++) {
    columns[c] = (uint64_t)(uintptr_t)w->column[c];
    record += WIDTHS[c];
  }
  while ((chunk = next_turn(w, chunks)) >= 0)
    interleave_span(columns, WIDTHS, COLUMNS, w->out[0], record, chunk * COPY_CHUNK,
                    min_i64((chunk + 1) * COPY_CHUNK, ROWS));
}

/* ---- what must come out ---------------------------------------------------------------------------------- */

static int differs(const work *w, int64_t c, int64_t k, int64_t row) {
  return memcmp(w->out[c] + k * WIDTHS[c], w->column[c] + row * WIDTHS[c], (size_t)WIDTHS[c]) != 0;
}

static int wrong_picks(const work *w) {
  for (int64_t c = 0; c < w->n_columns; c++)
    for (int64_t k = 0; k < PICKS; k++)
      if (differs(w, c, k, fold(w->picks[k], ROWS))) return 1;
  return 0;
}

static int wrong_offsets(const work *w) {
  for (int64_t chunk = 0; chunk * MASK_CHUNK_ROWS < ROWS; chunk++) {
    int64_t count = 0;
    for (int64_t i = chunk * MASK_CHUNK_ROWS; i < min_i64((chunk + 1) * MASK_CHUNK_ROWS, ROWS); i++)
      count += w->mask[i] != 0;
    if (w->offsets[chunk + 1] != count) return 1;
  }
  return 0;
}

static int wrong_selection(const work *w) {
  for (int64_t c = 0; c < w->n_columns; c++)
    for (int64_t i = 0, k = 0; i < ROWS; i++)
      if (w->mask[i] && differs(w, c, k++, i)) return 1;
  return 0;
}

#define WITHIN(type, member)                                                                                   \
  {                                                                                                            \
    type v;                                                                                                    \
    memcpy(&v, at, sizeof v);                                                                                  \
    return (r->open_lo ? v > (type)r->lo.member : v >= (type)r->lo.member) &&                                  \
           (r->open_hi ? v < (type)r->hi.member : v <= (type)r->hi.member);                                    \
  }

static int within(const range_test *r, const char *at) {
  switch (r->kind) {
    case KIND_F8: WITHIN(double, f)
    case KIND_F4: WITHIN(float, f)
    case KIND_I8: WITHIN(int64_t, i)
    case KIND_I4: WITHIN(int32_t, i)
    case KIND_I2: WITHIN(int16_t, i)
    default: WITHIN(uint16_t, u)
  }
}

static int wrong_comparison(const work *w, int tests) {
  int64_t count = 0;
  for (int64_t i = 0; i < ROWS; i++) {
    int all = 1;
    for (int64_t c = 0; c < w->n_columns; c++) all &= within(&TESTS[tests][c], w->column[c] + i * WIDTHS[c]);
    if (w->out[0][i] != all) return 1;
    count += all;
    if (i + 1 == ROWS || (i + 1) % MASK_CHUNK_ROWS == 0) {
      if (w->offsets[i / MASK_CHUNK_ROWS + 1] != count) return 1;
      count = 0;
    }
  }
  return 0;
}

static int wrong_floats(const work *w) { return wrong_comparison(w, 0); }
static int wrong_integers(const work *w) { return wrong_comparison(w, 1); }

static int wrong_steps(const work *w) {
  for (int64_t c = 0; c < w->n_columns; c++)
    for (int64_t k = 0; k * STEP < ROWS; k++)
      if (differs(w, c, k, k * STEP)) return 1;
  return 0;
}

static int wrong_order(const work *w) {
  for (int64_t c = 0; c < w->n_columns; c++)
    for (int64_t k = 0; k < ROWS; k++)
      if (differs(w, c, k, ROWS - 1 - k)) return 1;
  return 0;
}

static int wrong_copies(const work *w) {
  for (int c = 0; c < COLUMNS; c++)
    if (memcmp(w->out[c], w->column[c], (size_t)(ROWS * WIDTHS[c]))) return 1;
  return 0;
}

static int wrong_records(const work *w) {
  const char *field = w->out[0];
  for (int64_t i = 0; i < ROWS; i++)
    for (int c = 0; c < COLUMNS; field += WIDTHS[c++])
      if (memcmp(field, w->column[c] + i * WIDTHS[c], (size_t)WIDTHS[c])) return 1;
  return 0;
}

#include "driver_encoded.h"
#include "driver_grid.h"
#include "driver_records.h"
#include "driver_text.h"
/* After the kernels that it damages. */
#include "driver_damaged.h"

/* ---- which kernels there are ------------------------------------------------------------------------------ */

typedef struct {
  const char *name;
  int64_t segment_rows; /* about so many rows a segment; 0: all rows in one */
  int uniform, sorted;
  void (*run)(work *);
  int (*wrong)(const work *);
  void (*prepare)(work *); /* instead of columns and masks: what formats and grids work on */
} kernel;

static const kernel KERNELS[] = {
    {"gather_affine", 0, 0, 0, gather_affine_rows, wrong_picks, NULL},
    {"gather_uniform", 500, 1, 0, gather_uniform_rows, wrong_picks, NULL},
    {"gather_bucket", 500, 0, 0, gather_bucket_rows, wrong_picks, NULL},
    {"gather_search", 500, 0, 0, gather_search_rows, wrong_picks, NULL},
    {"gather_cursor", 500, 0, 1, gather_cursor_rows, wrong_picks, NULL},
    {"gather_abreast", 500, 0, 0, gather_abreast_rows, wrong_picks, NULL},
    {"mask_offsets", 0, 0, 0, mask_offsets, wrong_offsets, NULL},
    {"mask_compress", 500, 0, 0, mask_compress, wrong_selection, NULL},
    {"compare_floats", 500, 0, 0, compare_floats, wrong_floats, NULL},
    {"compare_integers", 500, 0, 0, compare_integers, wrong_integers, NULL},
    {"copy_strided", 500, 0, 0, copy_strided, wrong_steps, NULL},
    {"copy_reversed", 0, 0, 0, copy_reversed, wrong_order, NULL},
    {"copy_runs", 0, 0, 0, copy_runs, wrong_copies, NULL},
    {"interleave", 0, 0, 0, interleave, wrong_records, NULL},
    {"delta_decode", 0, 0, 0, delta_decode_run, wrong_values, delta_stream_of_parts},
    {"delta_encode", 0, 0, 0, delta_encode_run, wrong_deltas, no_stream_of_parts},
    {"bit_unpack", 0, 0, 0, unpack_run, wrong_codes, packed_stream_of_parts},
    {"bit_pack", 0, 0, 0, pack_run, wrong_packing, no_stream_of_parts},
    {"dictionary", 0, 0, 0, dictionary_run, wrong_words, no_stream_of_parts},
    {"dictionary_fixed", 0, 0, 0, fixed_dictionary_run, wrong_numbers, no_stream_of_parts},
    {"dictionary_decode", 0, 0, 0, entries_run, wrong_entries, entries_stream_of_parts},
    {"prefixed_decode", 0, 0, 0, prefix_run, wrong_texts, prefixed_stream_of_parts},
    {"prefixed_encode", 0, 0, 0, prefixed_run, wrong_prefixes, no_stream_of_parts},
    {"affix_decode", 0, 0, 0, affix_run, wrong_affixes, prefixed_stream_of_parts},
    {"text_bounds", 0, 0, 0, text_bounds_run, wrong_bounds, no_stream_of_parts},
    {"utf8", 0, 0, 0, utf8_run, nothing_wrong, utf8_stream_of_parts},
    {"nulls", 0, 0, 0, nulls_run, wrong_nulls, nulls_stream_of_parts},
    {"lzw_encode", 0, 0, 0, lzw_encode_run, wrong_lzw_streams, no_stream_of_parts},
    {"lzw_decode", 0, 0, 0, lzw_decode_run, wrong_lzw, lzw_stream_of_parts},
    {"packed5", 0, 0, 0, packed5_run, wrong_packed_texts, no_stream_of_parts},
    {"column_encode", 0, 0, 0, column_encode_run, wrong_columns, no_stream_of_parts},
    {"column_decode", 0, 0, 0, column_decode_run, wrong_values, column_stream_of_parts},
    {"token_decode", 0, 0, 0, tokens_run, wrong_tokens, no_stream_of_parts},
    {"token_encode", 0, 0, 0, token_encode_run, wrong_pieces, no_stream_of_parts},
    {"token_ids", 0, 0, 0, token_ids_run, wrong_tokens, no_stream_of_parts},
    {"record_walk", 0, 0, 0, walk_run, wrong_walk, records_stream_of_parts},
    {"heads", 0, 0, 0, heads_run, wrong_heads, heads_stream_of_parts},
    {"log_frames", 0, 0, 0, frames_run, wrong_frames, frames_stream_of_parts},
    {"footer", 0, 0, 0, footer_run, wrong_footer, footer_stream_of_parts},
    {"rows_read", 0, 0, 0, record_read_run, wrong_columns_read, rows_stream_of_parts},
    {"rows_write", 0, 0, 0, record_write_run, wrong_rows, k4_records_of_parts},
    {"messages_read", 0, 0, 0, record_read_run, wrong_columns_read, messages_stream_of_parts},
    {"messages_write", 0, 0, 0, record_write_run, wrong_rows, k8_records_of_parts},
    {"table_text", 0, 0, 0, table_text_run, wrong_texts, k4_records_of_parts},
    {"grid_points", 0, 0, 0, grid_points_run, wrong_points, make_grid},
    {"grid_boxes", 0, 0, 0, grid_boxes_run, wrong_boxes, make_grid},
    {"fixed_text", 0, 0, 0, fixed_text_run, wrong_utf8, make_text},
    {"damaged", 0, 0, 0, damaged_run, nothing_wrong, prefixed_stream_of_parts},
    {"damaged_records", 0, 0, 0, damaged_records_run, nothing_wrong, k4_records_of_parts},
};

static int by_value(const void *a, const void *b) {
  int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x > y) - (x < y);
}

static void make_segments(work *w, const kernel *k) {
  segment_table *t = &w->table;
  int64_t most = k->segment_rows ? 2 * ROWS / k->segment_rows + 2 : 1, s = 0;
  t->n_rows = ROWS;
  t->n_columns = w->n_columns;
  t->row_start = room((size_t)(most + ROW_START_PADDING) * sizeof(int64_t));
  t->row_stop = room((size_t)most * sizeof(int64_t));
  for (int64_t row = 0, rows; row < ROWS; row += rows, s++) {
    rows = !k->segment_rows ? ROWS
           : k->uniform     ? k->segment_rows
                            : k->segment_rows / 2 + (int64_t)(random64() % (uint64_t)k->segment_rows);
    rows = min_i64(rows, ROWS - row);
    t->row_start[s] = row;
    t->row_stop[s] = row + rows;
  }
  t->n_segments = s;
  for (int i = 0; i < ROW_START_PADDING; i++) t->row_start[s + i] = INT64_MAX;
  if (k->uniform) {
    t->uniform_rows = k->segment_rows;
    t->by_uniform = reciprocal_of((uint64_t)k->segment_rows);
  }
  t->base = room((size_t)(w->n_columns * s) * sizeof(uint64_t));
  for (int64_t c = 0; c < w->n_columns; c++)
    for (int64_t i = 0; i < s; i++) t->base[c * s + i] = (uint64_t)(uintptr_t)w->column[c];
  t->itemsize = (int64_t *)WIDTHS;
}

static work *make_work(const kernel *k, int threads, int isa) {
  work *w = room(sizeof *w);
  w->threads = threads;
  w->isa = isa;
  w->bad = -1;
  if (k->prepare) {
    k->prepare(w);
    return w;
  }
  w->n_columns = threads > 1 || k->run == gather_abreast_rows ? COLUMNS : 1; /* counts are of one column of 8 bytes */
  for (int c = 0; c < COLUMNS; c++) {
    /* One byte off: items of a file are not aligned. Never freed: the process ends soon. */
    w->column[c] = (char *)room((size_t)(ROWS * WIDTHS[c] + 1)) + 1;
    for (int64_t i = 0; i < ROWS * WIDTHS[c]; i++) w->column[c][i] = (char)random64();
    w->out[c] = room((size_t)ROWS * 16);
  }
  make_segments(w, k);
  w->picks = room(PICKS * sizeof(int64_t));
  for (int64_t i = 0; i < PICKS; i++) w->picks[i] = (int64_t)(random64() % ROWS);
  if (k->sorted)
    qsort(w->picks, PICKS, sizeof(int64_t), by_value);
  else
    for (int64_t i = 0; i < PICKS; i += 7) w->picks[i] -= ROWS;
  w->mask = room(ROWS);
  for (int64_t i = 0; i < ROWS; i++) w->mask[i] = (uint8_t)(random64() >> 40 & 1);
  w->offsets = room((size_t)(ROWS / MASK_CHUNK_ROWS + 2) * sizeof(int64_t));
  if (k->run == mask_compress)
    for (int64_t i = 0, sum = 0; i < ROWS; i++) {
      sum += w->mask[i];
      w->offsets[i / MASK_CHUNK_ROWS + 1] = sum;
    }
  return w;
}

/* What callgrind counts (--toggle-collect=measured). */
__attribute__((noinline)) void measured(const kernel *k, work *w) { k->run(w); }

typedef struct {
  const kernel *kernel;
  work *work;
} job;

static void *run_thread(void *argument) {
  job *j = argument;
  j->kernel->run(j->work);
  return NULL;
}

static int run_kernel(const kernel *k, int threads, int isa) {
  work *w = make_work(k, threads, isa);
  if (threads == 1) {
    measured(k, w);
  } else {
    job j = {k, w};
    pthread_t team[64];
    for (int t = 0; t < threads; t++)
      if (pthread_create(&team[t], NULL, run_thread, &j)) exit(2);
    for (int t = 0; t < threads; t++) pthread_join(team[t], NULL);
  }
  int wrong = w->bad >= 0 || k->wrong(w);
  if (wrong) printf("%s: wrong result\n", k->name);
  return wrong;
}

int main(int n, char **arguments) {
  crc_init();
  frame_crc_init();
  int paths = detect_isa() >= ISA_AVX2 ? 2 : 1, failed = 0, found = 0;
  const char *names[2] = {"portable", "avx2"};
  int threads = n > 3 ? atoi(arguments[3]) : 0;
  if (threads < 1 || threads > 64) {
    printf("usage: driver KERNEL|all portable|avx2|all THREADS\n");
    return 2;
  }
  for (int isa = 0; isa < paths; isa++)
    for (size_t k = 0; k < sizeof KERNELS / sizeof *KERNELS; k++) {
      if (strcmp(arguments[1], "all") && strcmp(arguments[1], KERNELS[k].name)) continue;
      if (strcmp(arguments[2], "all") && strcmp(arguments[2], names[isa])) continue;
      found++;
      failed += run_kernel(&KERNELS[k], threads, isa ? ISA_AVX2 : ISA_PORTABLE);
    }
  if (!found) return 3; /* no such kernel, or a path that this machine has not */
  printf("%d of %d right\n", found - failed, found);
  return failed > 0;
}
