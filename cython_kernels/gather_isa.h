/* The loop of a gather, compiled once for each instruction set; no include guard on purpose (see mask_isa.h).
 *
 * Rows go through it in groups of LANES. Wide registers find the addresses of a group at once: 64-bit gathers read the
 * bucket table and the bases. The items themselves are loaded one by one. 1 M random rows of 8 bytes from 10,000
 * segments took one thread 11.9 ms so, 13.5 by the portable version, 10.3 where all addresses were known beforehand. */

/* Segments and rows of a group of checked indices. `stored` has the segments for ROUTE_STORED. */
KERNEL_INLINE ISA_TARGET void ISA(locate)(int route, const segment_table *t, const bucket_index *b,
                                          const int64_t *checked, const int32_t *stored, int64_t *cursor,
                                          row_group *at) {
#if ISA_LEVEL >= ISA_AVX512
  __m512i index = _mm512_loadu_si512(checked);
  __m512i row =
      _mm512_mask_add_epi64(index, _mm512_movepi64_mask(index), index, _mm512_set1_epi64(t->n_rows));
  _mm512_store_si512(at->row, row);
  if (route == ROUTE_STORED) {
    _mm512_store_si512(at->segment, _mm512_cvtepi32_epi64(_mm256_loadu_si256((const __m256i *)(const void *)stored)));
  } else if (route == ROUTE_UNIFORM) {
    /* Rows are below 2^31 here, and so is the upper half of the reciprocal enough: the same proof with 31 for 63. */
    uint64_t magic = (t->by_uniform.magic >> 32) + ((uint32_t)t->by_uniform.magic != 0);
    __m512i quotient = _mm512_srl_epi64(_mm512_mul_epu32(row, _mm512_set1_epi64((int64_t)magic)),
                                        _mm_cvtsi32_si128(31 + t->by_uniform.shift));
    _mm512_store_si512(at->segment, _mm512_min_epi64(quotient, _mm512_set1_epi64(t->n_segments - 1)));
  } else if (route == ROUTE_BUCKET) {
    __m512i within = _mm512_and_si512(row, _mm512_set1_epi64(((int64_t)1 << b->shift) - 1));
    __m512i entry = _mm512_i64gather_epi64(_mm512_srl_epi64(row, _mm_cvtsi32_si128(b->shift)), b->entry, 8);
    __mmask8 after = _mm512_cmpge_epu64_mask(within, _mm512_srli_epi64(entry, 32));
    unsigned crowded = _mm512_test_epi64_mask(entry, _mm512_set1_epi64((int64_t)1 << 31));
    __m512i first = _mm512_and_si512(entry, _mm512_set1_epi64(UINT32_MAX));
    _mm512_store_si512(at->segment, _mm512_mask_add_epi64(first, after, first, _mm512_set1_epi64(1)));
    for (; UNLIKELY(crowded); crowded &= crowded - 1) {
      int k = __builtin_ctz(crowded);
      at->segment[k] = crowded_segment(t, b, at->row[k]);
    }
  }
  (void)cursor;
#else
  for (int k = 0; k < LANES; k++) {
    int64_t row = at->row[k] = fold(checked[k], t->n_rows);
    if (route == ROUTE_STORED)
      at->segment[k] = stored[k];
    else if (route != ROUTE_AFFINE)
      at->segment[k] = route == ROUTE_BUCKET ? bucket_segment(t, b, row) : segment_by(route, t, cursor, row);
  }
#endif
}

KERNEL_INLINE ISA_TARGET void ISA(addresses)(int route, const uint64_t *base, int64_t width, const row_group *at,
                                             uint64_t *address) {
#if ISA_LEVEL >= ISA_AVX512
  __m512i from = route == ROUTE_AFFINE ? _mm512_set1_epi64((int64_t)base[0])
                                       : _mm512_i64gather_epi64(_mm512_load_si512(at->segment), base, 8);
  __m512i offset = _mm512_mullo_epi64(_mm512_load_si512(at->row), _mm512_set1_epi64(width));
  _mm512_storeu_si512(address, _mm512_add_epi64(from, offset));
#else
  for (int k = 0; k < LANES; k++)
    address[k] = base[route == ROUTE_AFFINE ? 0 : at->segment[k]] + (uint64_t)at->row[k] * (uint64_t)width;
#endif
}

/* Both in one, of a column that goes alone: nothing is kept of where its rows are. */
KERNEL_INLINE ISA_TARGET void ISA(addresses_alone)(int route, const segment_table *t, const bucket_index *b,
                                                   const uint64_t *base, int64_t width, const int64_t *checked,
                                                   const int32_t *stored, int64_t *cursor, uint64_t *address) {
#if ISA_LEVEL >= ISA_AVX512
  KERNEL_ALIGNED(64) row_group at;
  ISA(locate)(route, t, b, checked, stored, cursor, &at);
  ISA(addresses)(route, base, width, &at, address);
#else
  for (int k = 0; k < LANES; k++) {
    int64_t row = fold(checked[k], t->n_rows);
    int64_t s = route == ROUTE_AFFINE   ? 0
                : route == ROUTE_STORED ? stored[k]
                : route == ROUTE_BUCKET ? bucket_segment(t, b, row)
                                        : segment_by(route, t, cursor, row);
    address[k] = base[s] + (uint64_t)row * (uint64_t)width;
    PREFETCH_L2(address[k]);
  }
#endif
}

/* Gathers `m` rows of the columns of `set`: finds the addresses of a group of rows in all columns, prefetches them, and
 * loads the group whose addresses were found `depth` turns ago. Returns -1, or the position of a bad index.
 *
 * With `check`, indices are read once, into `own`, and checked there: into all of it for the columns that follow, or
 * (NULL) into a block on the stack. Without, `indices` is what an earlier set left in `own`. `segments` likewise.
 *
 * One loop and not two (first all addresses of a block, then all loads): bursts of prefetches fill the miss queues and
 * then leave them empty, 27 against 17 ms for 2 M random rows of 8 bytes. */
KERNEL_INLINE ISA_TARGET int64_t ISA(gather_loop)(int route, const segment_table *t, const bucket_index *b,
                                                  const column_set *set, const int64_t *indices, int64_t m,
                                                  int64_t *own, int32_t *segments, int64_t depth, int check) {
  KERNEL_ALIGNED(64) uint64_t ring[ABREAST][RING];
  int64_t few[CHECK_ROWS];
  int32_t found[CHECK_ROWS];
  KERNEL_ALIGNED(64) row_group at;
  const uint64_t *base = set->base[0];
  int64_t width = set->width[0];
  char *out = set->out[0];
  int alone = set->n == 1 && depth > 0 && !(check && segments && route != ROUTE_STORED);
  int64_t n_columns = set->n, cursor = 0, ahead = 0, loaded = 0, slot = 0, turn = LANES * depth;
  for (int64_t i = 0; i < m; i += CHECK_ROWS) {
    int64_t n = min_i64(CHECK_ROWS, m - i);
    const int64_t *checked = indices + i;
    const int32_t *stored = segments ? segments + i : found;
    if (check) {
      int64_t *mine = own ? own + i : few;
      own_indices(mine, indices + i, n);
      if (UNLIKELY(block_is_bad(mine, n, t->n_rows))) return i + first_bad(mine, 0, n, t->n_rows);
      if (UNLIKELY(t->has_gaps)) {
        int64_t unstored = first_unstored(t, mine, n);
        if (unstored >= 0) return i + unstored;
      }
      for (int64_t k = n; k % LANES; k++) mine[k] = mine[0]; /* the last group is a whole one too */
      checked = mine;
      if (route == ROUTE_STORED) search_group(t, mine, (n + LANES - 1) / LANES * LANES, segments ? segments + i : found);
    }
    for (int64_t j = 0; j < n; j += LANES) {
      int64_t lanes = min_i64(LANES, n - j);
      if (alone) {
        uint64_t *address = ring[0] + slot;
        if (ahead == turn) load_group(out + loaded * width, address, LANES, width);
        ISA(addresses_alone)(route, t, b, base, width, checked + j, stored + j, &cursor, address);
#if ISA_LEVEL >= ISA_AVX512
        for (int k = 0; k < LANES; k++) PREFETCH_L2(address[k]);
#endif
        if (ahead == turn)
          loaded += LANES;
        else
          ahead += LANES;
        slot = slot + LANES == turn ? 0 : slot + LANES;
        continue;
      }
      ISA(locate)(route, t, b, checked + j, stored + j, &cursor, &at);
      if (check && segments && route != ROUTE_STORED)
        for (int k = 0; k < LANES; k++) segments[i + j + k] = (int32_t)at.segment[k];
      if (depth == 0) {
        for (int64_t c = 0; c < n_columns; c++) {
          int64_t width = set->width[c];
          uint64_t address[LANES];
          ISA(addresses)(route, set->base[c], width, &at, address);
          load_group(set->out[c] + (i + j) * width, address, lanes, width);
        }
        continue;
      }
      for (int64_t c = 0; c < n_columns; c++) {
        int64_t width = set->width[c];
        uint64_t *address = ring[c] + slot;
        if (ahead == turn) load_group(set->out[c] + loaded * width, address, LANES, width);
        ISA(addresses)(route, set->base[c], width, &at, address);
        for (int k = 0; k < LANES; k++) PREFETCH_L2(address[k]);
      }
      if (ahead == turn)
        loaded += LANES;
      else
        ahead += LANES;
      slot = slot + LANES == turn ? 0 : slot + LANES;
    }
  }
  if (depth == 0) return -1;
  if (ahead < turn) slot = 0; /* the ring has not been filled once */
  for (; loaded < m; loaded += LANES) {
    int64_t lanes = min_i64(LANES, m - loaded);
    for (int64_t c = 0; c < n_columns; c++)
      load_group(set->out[c] + loaded * set->width[c], ring[c] + slot, lanes, set->width[c]);
    slot = slot + LANES == turn ? 0 : slot + LANES;
  }
  return -1;
}

/* One instance of the loop for each route. */
#define GATHER_BY(route)                                                                                       \
  case route: return ISA(gather_loop)(route, t, b, set, indices, m, own, segments, depth, check);

static ISA_TARGET int64_t ISA(gather_rows)(int route, const segment_table *t, const bucket_index *b,
                                           const column_set *set, const int64_t *indices, int64_t m, int64_t *own,
                                           int32_t *segments, int64_t depth, int check) {
  switch (route) {
    GATHER_BY(ROUTE_AFFINE)
    GATHER_BY(ROUTE_UNIFORM)
    GATHER_BY(ROUTE_BUCKET)
#if ISA_LEVEL == ISA_PORTABLE
    GATHER_BY(ROUTE_CURSOR)
#endif
    default: return ISA(gather_loop)(ROUTE_STORED, t, b, set, indices, m, own, segments, depth, check);
  }
}
#undef GATHER_BY
