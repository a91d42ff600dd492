/* Loops of the column codec that are compiled once for each instruction set; no include guard on purpose.
 *
 * The includer defines CODEC(name), which appends the set's suffix, and CODEC_TARGET, the attribute that lets the
 * compiler use the set. Plain C throughout: what gains is 64-bit comparison and arithmetic shift, which the x86-64
 * baseline does not have for vectors. */

/* ---- elements in memory to i64 and back ------------------------------------------------------------------- */

#define WIDEN(type, value)                                                                                     \
  for (int64_t i = 0; i < k; i++) {                                                                            \
    type v;                                                                                                    \
    memcpy(&v, source + i * (int64_t)sizeof v, sizeof v);                                                      \
    room[i] = (int64_t)(value);                                                                                \
  }                                                                                                            \
  return room;

/* Values [at, at + k) as i64: where they are, or widened into `room`. */
static inline CODEC_TARGET const int64_t *CODEC(column_block)(int kind, const char *source, int64_t at, int64_t k,
                                                              int64_t *restrict room) {
  source += at * column_itemsize(kind);
  switch (kind) {
    case COLUMN_I32: WIDEN(int32_t, v)
    case COLUMN_I16: WIDEN(int16_t, v)
    case COLUMN_I8: WIDEN(int8_t, v)
    case COLUMN_U32: WIDEN(uint32_t, v)
    case COLUMN_U16: WIDEN(uint16_t, v)
    case COLUMN_U8: WIDEN(uint8_t, v)
    case COLUMN_BOOL: WIDEN(uint8_t, v != 0)
    default: break;
  }
  if (((uintptr_t)source & 7) == 0) return (const int64_t *)(const void *)source;
  memcpy(room, source, (size_t)k * 8);
  return room;
}

#define NARROW(type)                                                                                           \
  {                                                                                                            \
    int64_t wrong = 0;                                                                                         \
    for (int64_t i = 0; i < k; i++) {                                                                          \
      type v = (type)values[i];                                                                                \
      wrong |= values[i] ^ (int64_t)v;                                                                         \
      memcpy(out + i * (int64_t)sizeof v, &v, sizeof v);                                                       \
    }                                                                                                          \
    return wrong != 0;                                                                                         \
  }

/* Put k values at `out`; returns whether one does not fit its type. */
static inline CODEC_TARGET int CODEC(column_put)(int kind, const int64_t *restrict values, int64_t k,
                                                 char *restrict out) {
  switch (kind) {
    case COLUMN_I32: NARROW(int32_t)
    case COLUMN_I16: NARROW(int16_t)
    case COLUMN_I8: NARROW(int8_t)
    case COLUMN_U32: NARROW(uint32_t)
    case COLUMN_U16: NARROW(uint16_t)
    case COLUMN_U8: NARROW(uint8_t)
    case COLUMN_BOOL: {
      int64_t wrong = 0;
      for (int64_t i = 0; i < k; i++) {
        wrong |= values[i] & ~(int64_t)1;
        out[i] = (char)(values[i] & 1);
      }
      return wrong != 0;
    }
    default: memcpy(out, values, (size_t)k * 8); return 0;
  }
}

#define FILL(type)                                                                                             \
  {                                                                                                            \
    type v = (type)value;                                                                                      \
    if ((int64_t)v != value) return 1;                                                                         \
    for (int64_t i = 0; i < n; i++) memcpy(out + i * (int64_t)sizeof v, &v, sizeof v);                         \
    return 0;                                                                                                  \
  }

/* Put one value n times at `out`; returns whether it does not fit its type. Stores alone: copying a block of the value
 * again and again took 1.4 times as long for a million values, and four times for a thousand. */
static CODEC_TARGET int CODEC(column_fill)(int kind, int64_t value, int64_t n, char *restrict out) {
  switch (kind) {
    case COLUMN_I32: FILL(int32_t)
    case COLUMN_I16: FILL(int16_t)
    case COLUMN_I8: FILL(int8_t)
    case COLUMN_U32: FILL(uint32_t)
    case COLUMN_U16: FILL(uint16_t)
    case COLUMN_BOOL:
      if (value & ~(int64_t)1) return 1; /* fall through */
    case COLUMN_U8: FILL(uint8_t)
    default: FILL(int64_t)
  }
}

/* ---- scans -------------------------------------------------------------------------------------------- */

static inline CODEC_TARGET void CODEC(column_block_bounds)(const int64_t *v, int64_t k, int64_t *minimum,
                                                           int64_t *maximum) {
  int64_t low = v[0], high = v[0];
  for (int64_t i = 0; i < k; i++) {
    low = v[i] < low ? v[i] : low;
    high = v[i] > high ? v[i] : high;
  }
  *minimum = low;
  *maximum = high;
}

/* The OR of the zigzag of k differences (v has k + 1 values); *overflow gets its sign bit set when one overflows. */
static inline CODEC_TARGET uint64_t CODEC(column_delta_or)(const int64_t *v, int64_t k, int64_t *overflow) {
  uint64_t all = 0;
  int64_t over = 0;
  for (int64_t i = 0; i < k; i++) {
    int64_t d = (int64_t)((uint64_t)v[i + 1] - (uint64_t)v[i]);
    over |= (v[i + 1] ^ v[i]) & (v[i + 1] ^ d);
    all |= column_zigzag(d);
  }
  *overflow |= over;
  return all;
}

/* ---- packing ------------------------------------------------------------------------------------------ */

static CODEC_TARGET void CODEC(column_pack)(const uint64_t *r, int64_t groups, uint8_t *p, int width) {
  switch (width) {
#define PACK_CASE(w)                                                                                           \
  case w: column_pack_groups(r, groups, p, w); break;
    COLUMN_EACH_WIDTH(PACK_CASE)
#undef PACK_CASE
    default: break;
  }
}

#ifdef CODEC_VECTORS
/* Four values at a time: one load for as many of them as lie within its 64 bits, then a shift of its own for each.
 * Best of 60 decodes of 16 Ki values on a busy machine, against one value at a time: 7 bits 0.35 and 0.57 ns per value,
 * 20 bits 0.34 and 0.49, 40 bits 0.37 and 0.42. */
KERNEL_INLINE CODEC_TARGET void CODEC(column_unpack_fours)(const uint8_t *restrict p, int64_t groups,
                                                           uint64_t *restrict r, const int w) {
  const uint64_t mask = ~(uint64_t)0 >> (64 - w);
  const column_four masks = {mask, mask, mask, mask};
  for (int64_t g = 0; g < groups; g++, r += 8, p += w) {
#pragma GCC unroll 2
    for (int half = 0; half < 8; half += 4) {
      const int bit = half * w, s0 = bit & 7, s1 = (bit + w) & 7, s2 = (bit + 2 * w) & 7, s3 = (bit + 3 * w) & 7;
      column_four v;
      if (w <= 15) { /* s0 is 0 or 4: all four in one load */
        const uint64_t q = column_load64(p + bit / 8);
        v = (column_four){q, q, q, q} >> (column_four){s0, s0 + w, s0 + 2 * w, s0 + 3 * w};
      } else if (w <= 28) {
        const uint64_t q = column_load64(p + bit / 8), t = column_load64(p + (bit + 2 * w) / 8);
        v = (column_four){q, q, t, t} >> (column_four){s0, s0 + w, s2, s2 + w};
      } else {
        v = (column_four){column_load64(p + bit / 8), column_load64(p + (bit + w) / 8),
                          column_load64(p + (bit + 2 * w) / 8), column_load64(p + (bit + 3 * w) / 8)} >>
            (column_four){s0, s1, s2, s3};
      }
      v &= masks;
      memcpy(r + half, &v, sizeof v);
    }
  }
}
/* Wider values take a ninth byte; what the compiler makes of that with vectors is slower than without (63 bits: 1.57
 * and 0.94 ns). */
#define UNPACK_GROUPS(p, groups, r, w)                                                                         \
  if (w <= CODEC_VECTORS)                                                                                      \
    CODEC(column_unpack_fours)(p, groups, r, w);                                                               \
  else                                                                                                         \
    column_unpack_portable(p, groups, r, w)
#else
#define UNPACK_GROUPS(p, groups, r, w) column_unpack_groups(p, groups, r, w)
#endif

static CODEC_TARGET void CODEC(column_unpack)(const uint8_t *p, int64_t groups, uint64_t *r, int width) {
  switch (width) {
#define UNPACK_CASE(w)                                                                                         \
  case w: UNPACK_GROUPS(p, groups, r, w); break;
    COLUMN_EACH_WIDTH(UNPACK_CASE)
#undef UNPACK_CASE
#undef UNPACK_GROUPS
    default: break;
  }
}

/* ---- encoding ----------------------------------------------------------------------------------------- */

/* One block: the width byte, then k residuals, which `r` holds with zeros up to a multiple of eight. */
static inline CODEC_TARGET uint8_t *CODEC(column_write_block)(const uint64_t *r, int64_t k, uint64_t all,
                                                              uint8_t *p) {
  int width = column_bits(all);
  *p = (uint8_t)width;
  CODEC(column_pack)(r, ceil_div(k, 8), p + 1, width);
  return p + column_block_bytes(k, width);
}

static CODEC_TARGET int64_t CODEC(column_encode)(int kind, const char *source, int64_t n, uint8_t *dst,
                                                 column_bounds *bounds) {
  int64_t room[COLUMN_BLOCK + 1];
  uint64_t residuals[COLUMN_BLOCK];
  int64_t low = 0, high = 0, plain = 0, folded = 0;
  if (n == 0) {
    if (bounds) bounds->minimum = bounds->maximum = 0;
    dst[0] = COLUMN_RAW;
    return 1;
  }
  /* First scan: each block's bounds. The widest residual of a block is its largest value under raw (or the zigzag of
   * one of its bounds) and its largest value less the column's minimum under FOR, whose maxima wait in dst meanwhile. */
  for (int64_t at = 0, b = 0; at < n; at += COLUMN_BLOCK, b++) {
    int64_t k = min_i64(COLUMN_BLOCK, n - at), block_low, block_high;
    const int64_t *v = CODEC(column_block)(kind, source, at, k, room);
    CODEC(column_block_bounds)(v, k, &block_low, &block_high);
    if (b == 0 || block_low < low) low = block_low;
    if (b == 0 || block_high > high) high = block_high;
    plain += column_block_bytes(k, column_bits((uint64_t)block_high));
    folded += column_block_bytes(k, column_bits(column_zigzag(block_low) | column_zigzag(block_high)));
    memcpy(dst + 9 + 8 * b, &block_high, 8);
  }
  if (bounds) {
    bounds->minimum = low;
    bounds->maximum = high;
  }
  int transform = COLUMN_RAW;
  int64_t best = low < 0 ? folded : plain, blocks = ceil_div(n, COLUMN_BLOCK);
  /* Any transform but raw costs the base and a byte per block at least. Under a constant column FOR and delta cost
   * more than the eight bytes of "constant", so neither can win there. */
  if (low == high) {
    if (best > 8) transform = COLUMN_CONSTANT;
  } else if (best > 8 + blocks) {
    int64_t cost = 8;
    for (int64_t at = 0, b = 0; at < n; at += COLUMN_BLOCK, b++) {
      int64_t block_high;
      memcpy(&block_high, dst + 9 + 8 * b, 8);
      cost += column_block_bytes(min_i64(COLUMN_BLOCK, n - at), column_bits((uint64_t)block_high - (uint64_t)low));
    }
    if (cost < best) {
      best = cost;
      transform = COLUMN_FOR;
    }
    int64_t overflow = 0;
    cost = 8;
    for (int64_t at = 0; at < n - 1 && cost < best; at += COLUMN_BLOCK) {
      int64_t k = min_i64(COLUMN_BLOCK, n - 1 - at);
      const int64_t *v = CODEC(column_block)(kind, source, at, k + 1, room);
      cost += column_block_bytes(k, column_bits(CODEC(column_delta_or)(v, k, &overflow)));
      if (overflow < 0) break;
    }
    if (cost < best && overflow >= 0) transform = COLUMN_DELTA;
  }
  /* Second scan: residuals of one block at a time, packed while they are in the cache. */
  uint8_t *p = dst + 1;
  int zigzag = transform == COLUMN_DELTA || (transform == COLUMN_RAW && low < 0);
  dst[0] = (uint8_t)(transform | (zigzag ? COLUMN_ZIGZAG : 0));
  if (transform != COLUMN_RAW) {
    int64_t base = transform == COLUMN_DELTA ? *CODEC(column_block)(kind, source, 0, 1, room) : low;
    column_store64(p, column_zigzag(base));
    p += 8;
  }
  if (transform == COLUMN_CONSTANT) return 9;
  int64_t count = transform == COLUMN_DELTA ? n - 1 : n;
  for (int64_t at = 0; at < count; at += COLUMN_BLOCK) {
    int64_t k = min_i64(COLUMN_BLOCK, count - at);
    uint64_t all = 0;
    const int64_t *v = CODEC(column_block)(kind, source, at, transform == COLUMN_DELTA ? k + 1 : k, room);
    if (transform == COLUMN_DELTA) {
      for (int64_t i = 0; i < k; i++) {
        residuals[i] = column_zigzag((int64_t)((uint64_t)v[i + 1] - (uint64_t)v[i]));
        all |= residuals[i];
      }
    } else if (transform == COLUMN_FOR) {
      for (int64_t i = 0; i < k; i++) {
        residuals[i] = (uint64_t)v[i] - (uint64_t)low;
        all |= residuals[i];
      }
    } else if (zigzag) {
      for (int64_t i = 0; i < k; i++) {
        residuals[i] = column_zigzag(v[i]);
        all |= residuals[i];
      }
    } else {
      for (int64_t i = 0; i < k; i++) {
        residuals[i] = (uint64_t)v[i];
        all |= residuals[i];
      }
    }
    for (int64_t i = k; i & 7; i++) residuals[i] = 0;
    p = CODEC(column_write_block)(residuals, k, all, p);
  }
  return p - dst;
}

/* ---- decoding ----------------------------------------------------------------------------------------- */

static CODEC_TARGET int CODEC(column_decode)(int kind, const uint8_t *src, int64_t len, int64_t n, char *out) {
  const uint8_t *p = src, *end = src + len;
  int64_t room[COLUMN_BLOCK], itemsize = column_itemsize(kind);
  uint8_t tail[8 * COLUMN_BLOCK + 80];
  if (len < 1) return COLUMN_TRUNCATED;
  int header = *p++, transform = header & 3, wrong = 0;
  int64_t base = 0, count = n;
  if (transform != COLUMN_RAW) {
    if (end - p < 8) return COLUMN_TRUNCATED;
    base = column_unzigzag(column_load64(p));
    p += 8;
  }
  if (transform == COLUMN_CONSTANT) {
    if (p != end) return COLUMN_TRAILING;
    return n && CODEC(column_fill)(kind, base, n, out) ? COLUMN_OUT_OF_RANGE : COLUMN_OK;
  }
  if (transform == COLUMN_DELTA && n > 0) {
    wrong |= CODEC(column_put)(kind, &base, 1, out);
    out += itemsize;
    count = n - 1;
  }
  for (int64_t at = 0; at < count; at += COLUMN_BLOCK) {
    int64_t k = min_i64(COLUMN_BLOCK, count - at);
    if (p == end) return COLUMN_TRUNCATED;
    int width = *p++;
    if (width > 64) return COLUMN_BAD_WIDTH;
    int64_t bytes = (k * width + 7) / 8;
    if (end - p < bytes) return COLUMN_TRUNCATED;
    char *place = out + at * itemsize;
    /* Where the values may stand as they are, they are unpacked there and transformed in place. */
    int64_t *values = kind == COLUMN_I64 && k == COLUMN_BLOCK && ((uintptr_t)place & 7) == 0
                          ? (int64_t *)(void *)place
                          : room;
    uint64_t *residuals = (uint64_t *)values;
    if (width == 0) {
      memset(residuals, 0, COLUMN_BLOCK * sizeof *residuals);
    } else if (k == COLUMN_BLOCK && end - p >= bytes + 8) {
      CODEC(column_unpack)(p, COLUMN_BLOCK / 8, residuals, width);
    } else { /* the loads of the last values run past the block: not past the end of the bytes */
      memcpy(tail, p, (size_t)bytes);
      memset(tail + bytes, 0, 80);
      CODEC(column_unpack)(tail, ceil_div(k, 8), residuals, width);
    }
    p += bytes;
    if (transform == COLUMN_DELTA) {
      uint64_t sum = (uint64_t)base;
      for (int64_t i = 0; i < k; i++) values[i] = column_unzigzag(residuals[i]); /* apart: this one is vectorised */
      for (int64_t i = 0; i < k; i++) {
        sum += (uint64_t)values[i];
        values[i] = (int64_t)sum;
      }
      base = (int64_t)sum;
    } else if (transform == COLUMN_FOR) {
      for (int64_t i = 0; i < k; i++) values[i] = (int64_t)((uint64_t)base + residuals[i]);
    } else if (header & COLUMN_ZIGZAG) {
      for (int64_t i = 0; i < k; i++) values[i] = column_unzigzag(residuals[i]);
    }
    if (values == room) wrong |= CODEC(column_put)(kind, room, k, place);
  }
  if (p != end) return COLUMN_TRAILING;
  return wrong ? COLUMN_OUT_OF_RANGE : COLUMN_OK;
}

#undef WIDEN
#undef NARROW
#undef FILL
