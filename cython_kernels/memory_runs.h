/* Byte runs between absolute addresses, and columns into packed records. */
#ifndef COLSTORE_MEMORY_RUNS_H
#define COLSTORE_MEMORY_RUNS_H

#include "kernel_math.h"

/* Copies bytes [begin, end) of the concatenation of all runs. ends[r] = bytes of the runs 0..r. */
static inline void copy_runs_span(const uint64_t *source, const uint64_t *target, const int64_t *ends, int64_t n,
                                  int64_t begin, int64_t end) {
  int64_t low = 0, high = n; /* first run that ends after `begin` */
  while (low < high) {
    int64_t mid = low + ((high - low) >> 1);
    if (ends[mid] > begin)
      high = mid;
    else
      low = mid + 1;
  }
  for (int64_t r = low; r < n && begin < end; r++) {
    int64_t run_begin = r ? ends[r - 1] : 0, stop = min_i64(ends[r], end);
    if (stop <= begin) continue;
    memcpy((char *)(uintptr_t)target[r] + (begin - run_begin), (const char *)(uintptr_t)source[r] + (begin - run_begin),
           (size_t)(stop - begin));
    begin = stop;
  }
}

/* Rows per pass over the columns: the packed block stays in L2 while column after column is woven in. */
static inline int64_t interleave_block(int64_t record_bytes) {
  int64_t rows = 65536 / record_bytes;
  return rows < 16 ? 16 : rows;
}

static inline void interleave_span(const uint64_t *columns, const int64_t *itemsize, int64_t n_columns, char *out,
                                   int64_t record_bytes, int64_t begin, int64_t end) {
  int64_t block = interleave_block(record_bytes);
  for (int64_t i = begin; i < end; i += block) {
    int64_t m = min_i64(block, end - i);
    char *field = out + i * record_bytes;
    for (int64_t c = 0; c < n_columns; c++) {
      const char *source = (const char *)(uintptr_t)columns[c] + i * itemsize[c];
#define LOOP(w)                                                                                                \
  for (int64_t k = 0; k < m; k++) copy_item(field + k * record_bytes, source + k * (w), w);
      WITH_WIDTH(itemsize[c], LOOP)
#undef LOOP
      field += itemsize[c];
    }
  }
}

#endif
