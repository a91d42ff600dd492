/* Raw DEFLATE (RFC 1951) into memory of known size: the blocks of columns files (columns.md 7).
 *
 * Bits are taken from a word that is filled by eight bytes at a time. One look into a table of 2^11 entries tells a
 * literal, or a length with its extra bits; one into a table of 2^8 a distance. Longer codes go on in second tables
 * behind these. As long as both sides have room for the longest step nothing is checked but distances; the last bytes
 * take a loop that checks everything. Nothing is allocated; hostile input ends in a code. */
#ifndef COLSTORE_INFLATE_H
#define COLSTORE_INFLATE_H

#include <stdint.h>
#include <string.h>

#include "kernel_math.h"

enum { INFLATE_TRUNCATED = -1, INFLATE_DAMAGED = -2, INFLATE_LONG = -3 };

#define LITERAL_BITS 11
#define DISTANCE_BITS 8
#define HEADER_BITS 7
/* Entries of first and second tables: at most 2342 for 288 codes and 402 for 32; building one checks it again. */
#define LITERAL_SLOTS 2368
#define DISTANCE_SLOTS 416

/* Entries. Low byte: bits that the step takes in all. Of a length or a distance: bits 8-11 how many of these are the
 * word, before the extra bits; upper half its base. Of a literal: the byte in the upper half. */
#define ENTRY_LITERAL UINT32_C(0x8000)
#define ENTRY_SPECIAL UINT32_C(0x4000) /* a second table (upper half: its start; bits 8-11: its bits), or: */
#define ENTRY_END UINT32_C(0x2000)     /* with SPECIAL: the end of the block */
#define ENTRY_NONE UINT32_C(0x1000)    /* with SPECIAL: no code */

typedef struct {
  uint32_t literal[LITERAL_SLOTS];
  uint32_t distance[DISTANCE_SLOTS];
  int fixed; /* whether they are those of the fixed code */
} inflate_tables;

typedef struct {
  const uint8_t *in, *end;
  uint64_t word; /* the lowest `bits` bits are to be taken; those above may be there already */
  int bits;
} bit_source;

KERNEL_INLINE uint64_t inflate_load(const uint8_t *p) {
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
  uint64_t v;
  memcpy(&v, p, 8);
  return v;
#else
  uint64_t v = 0;
  for (int i = 0; i < 8; i++) v |= (uint64_t)p[i] << (8 * i);
  return v;
#endif
}

/* At least 56 bits; eight bytes must be there. */
KERNEL_INLINE void fill_fast(bit_source *s) {
  s->word |= inflate_load(s->in) << s->bits;
  s->in += (63 - s->bits) >> 3;
  s->bits |= 56;
}

/* As many of 56 bits as there are; zeros behind the end. */
KERNEL_INLINE void fill_slow(bit_source *s) {
  if (s->end - s->in >= 8) {
    fill_fast(s);
    return;
  }
  while (s->bits <= 55 && s->in < s->end) {
    s->word |= (uint64_t)*s->in++ << s->bits;
    s->bits += 8;
  }
}

KERNEL_INLINE void take_bits(bit_source *s, int count) {
  s->word >>= count;
  s->bits -= count;
}

/* Takes up to 16 bits; -1 when they are not there. */
static int64_t next_bits(bit_source *s, int count) {
  if (s->bits < count) fill_slow(s);
  if (s->bits < count) return -1;
  int64_t value = (int64_t)(s->word & (((uint64_t)1 << count) - 1));
  take_bits(s, count);
  return value;
}

KERNEL_INLINE uint32_t reversed_bits(uint32_t code, int length) {
  code = (code & 0x5555) << 1 | (code >> 1 & 0x5555);
  code = (code & 0x3333) << 2 | (code >> 2 & 0x3333);
  code = (code & 0x0F0F) << 4 | (code >> 4 & 0x0F0F);
  code = (code & 0x00FF) << 8 | code >> 8;
  return code >> (16 - length);
}

/* Makes the table of a canonical code. `lengths[i]` bits (0: none, at most 15) say entry `entries[i]`. Returns 0 for what
 * is no code: one that promises too much, or too little, unless it has one word of one bit, or none. */
static int build_table(uint32_t *table, int root, int slots, const uint8_t *lengths, const uint32_t *entries, int n) {
  int count[16] = {0}, first[16], longest = 15, root_size = 1 << root;
  uint16_t order[288];
  for (int i = 0; i < n; i++) count[lengths[i]]++;
  count[0] = 0;
  while (longest && !count[longest]) longest--;
  int left = 1, used = 0;
  for (int length = 1; length <= 15; length++) {
    left = 2 * left - count[length];
    if (left < 0) return 0;
    used += count[length];
  }
  if (left > 0 && !(used == 0 || (used == 1 && longest == 1))) return 0;
  for (int i = 0; left > 0 && i < root_size; i++) table[i] = ENTRY_SPECIAL | ENTRY_NONE;
  if (left > 0 && used) { /* one word of one bit */
    for (int i = 0; i < n; i++)
      if (lengths[i])
        for (int slot = 0; slot < root_size; slot += 2) table[slot] = entries[i] + 0x101;
  }
  if (left > 0) return 1;
  first[1] = 0;
  for (int length = 1; length < 15; length++) first[length + 1] = first[length] + count[length];
  for (int i = 0; i < n; i++)
    if (lengths[i]) order[first[lengths[i]]++] = (uint16_t)i;
  uint32_t code = 0;
  int at = 0, size = 1; /* of the table so far: it is doubled for each bit that the words grow by */
  for (int length = 1; length <= root; length++, code <<= 1) {
    memcpy(table + size, table, (size_t)size * sizeof(uint32_t));
    size *= 2;
    for (int k = 0; k < count[length]; k++, code++)
      table[reversed_bits(code, length)] = entries[order[at++]] + (uint32_t)length * 0x101;
  }
  uint32_t prefix = ~(uint32_t)0; /* of the second table that is being filled */
  int next = root_size, start = 0, sub_bits = 0;
  for (int length = root + 1; length <= longest; length++, code <<= 1) {
    for (int k = 0; k < count[length]; k++, code++) {
      uint32_t turned = reversed_bits(code, length), entry = entries[order[at++]] + (uint32_t)(length - root) * 0x101;
      if ((turned & (uint32_t)(root_size - 1)) != prefix) {
        prefix = turned & (uint32_t)(root_size - 1);
        sub_bits = length - root; /* of the longest word with this prefix: until the words fill the table */
        int room = (1 << sub_bits) - (count[length] - k);
        while (room > 0 && root + sub_bits < longest) {
          sub_bits++;
          room = 2 * room - count[root + sub_bits];
        }
        start = next;
        next += 1 << sub_bits;
        if (next > slots) return 0;
        table[prefix] = ENTRY_SPECIAL | (uint32_t)start << 16 | (uint32_t)sub_bits << 8 | (uint32_t)root;
      }
      for (int slot = (int)(turned >> root); slot < 1 << sub_bits; slot += 1 << (length - root))
        table[start + slot] = entry;
    }
  }
  return 1;
}

/* Entry of a length or distance: base, number of extra bits; the length of its word is added later. */
#define VALUE_ENTRY(base, extra) ((uint32_t)(base) << 16 | (uint32_t)(extra))
#define NO_CODE (ENTRY_SPECIAL | ENTRY_NONE)

static int build_codes(inflate_tables *t, const uint8_t *lengths, int n_literal, int n_distance) {
  uint32_t entries[288];
  for (int i = 0; i < 256; i++) entries[i] = ENTRY_LITERAL | (uint32_t)i << 16;
  entries[256] = ENTRY_SPECIAL | ENTRY_END;
  int base = 3;
  for (int i = 0; i < 28; i++) { /* 257 to 284 */
    int extra = i < 8 ? 0 : (i - 4) / 4;
    entries[257 + i] = VALUE_ENTRY(base, extra);
    base += 1 << extra;
  }
  entries[285] = VALUE_ENTRY(258, 0);
  entries[286] = entries[287] = NO_CODE;
  if (!build_table(t->literal, LITERAL_BITS, LITERAL_SLOTS, lengths, entries, n_literal)) return 0;
  base = 1;
  for (int i = 0; i < 30; i++) {
    int extra = i < 4 ? 0 : (i - 2) / 2;
    entries[i] = VALUE_ENTRY(base, extra);
    base += 1 << extra;
  }
  entries[30] = entries[31] = NO_CODE;
  return build_table(t->distance, DISTANCE_BITS, DISTANCE_SLOTS, lengths + n_literal, entries, n_distance);
}

static int fixed_codes_of_deflate(inflate_tables *t) {
  uint8_t lengths[320];
  if (t->fixed) return 1;
  memset(lengths, 8, 144);
  memset(lengths + 144, 9, 112);
  memset(lengths + 256, 7, 24);
  memset(lengths + 280, 8, 8);
  memset(lengths + 288, 5, 32);
  t->fixed = build_codes(t, lengths, 288, 32);
  return t->fixed;
}

/* Reads the header of a block with codes of its own (RFC 1951 3.2.7). Returns 0 or a code. */
static int read_codes(inflate_tables *t, bit_source *s) {
  static const uint8_t order[19] = {16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15};
  uint8_t header[19] = {0}, lengths[320];
  uint32_t entries[19], table[1 << HEADER_BITS];
  int64_t n_literal = next_bits(s, 5), n_distance = next_bits(s, 5), n_header = next_bits(s, 4);
  if (n_literal < 0 || n_distance < 0 || n_header < 0) return INFLATE_TRUNCATED;
  n_literal += 257;
  n_distance += 1;
  if (n_literal > 286 || n_distance > 30) return INFLATE_DAMAGED;
  for (int i = 0; i < n_header + 4; i++) {
    int64_t length = next_bits(s, 3);
    if (length < 0) return INFLATE_TRUNCATED;
    header[order[i]] = (uint8_t)length;
  }
  for (uint32_t i = 0; i < 19; i++) entries[i] = i << 16;
  if (!build_table(table, HEADER_BITS, 1 << HEADER_BITS, header, entries, 19)) return INFLATE_DAMAGED;
  int n = (int)(n_literal + n_distance);
  for (int i = 0; i < n;) {
    fill_slow(s);
    uint32_t entry = table[s->word & ((1 << HEADER_BITS) - 1)];
    if (entry & ENTRY_SPECIAL) return INFLATE_DAMAGED;
    int bits = (int)(entry & 0xFF), symbol = (int)(entry >> 16), extra;
    if (bits > s->bits) return INFLATE_TRUNCATED;
    take_bits(s, bits);
    if (symbol < 16) {
      lengths[i++] = (uint8_t)symbol;
      continue;
    }
    uint8_t value = 0;
    if (symbol == 16) {
      if (i == 0) return INFLATE_DAMAGED;
      value = lengths[i - 1];
    }
    extra = symbol == 16 ? 2 : symbol == 17 ? 3 : 7;
    int64_t more = next_bits(s, extra);
    if (more < 0) return INFLATE_TRUNCATED;
    int times = (int)more + (symbol == 18 ? 11 : 3);
    if (times > n - i) return INFLATE_DAMAGED;
    memset(lengths + i, value, (size_t)times);
    i += times;
  }
  t->fixed = 0;
  return build_codes(t, lengths, (int)n_literal, (int)n_distance) ? 0 : INFLATE_DAMAGED;
}

/* Copies a match; up to 32 bytes behind its end may be written. */
KERNEL_INLINE void copy_match(uint8_t *out, int64_t distance, int64_t length) {
  const uint8_t *from = out - distance;
  uint8_t *stop = out + length;
  if (LIKELY(distance >= 16)) {
    if (UNLIKELY(length >= 128 && distance >= length)) { /* the widest registers that there are */
      memcpy(out, from, (size_t)length);
      return;
    }
    do {
      memcpy(out, from, 16);
      out += 16;
      from += 16;
    } while (out < stop);
    return;
  }
  uint64_t word;
  if (distance == 1 || distance == 2 || distance == 4 || distance == 8) { /* a word again and again */
    memcpy(&word, from, 8); /* of which `distance` bytes count */
    if (distance == 1) word = (word & 0xFF) * UINT64_C(0x0101010101010101);
    uint8_t pattern[8];
    if (distance == 2 || distance == 4) {
      for (int i = 0; i < 8; i++) pattern[i] = from[i % distance];
      memcpy(&word, pattern, 8);
    }
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
    if (distance == 1) memset(&word, from[0], 8);
#endif
    item16 pair = {word, word};
    do {
      memcpy(out, &pair, 16);
      memcpy(out + 16, &pair, 16);
      out += 32;
    } while (out < stop);
    return;
  }
  while (distance < 8) { /* what is right grows by `distance` bytes a step */
    memcpy(&word, from, 8);
    memcpy(out, &word, 8);
    out += distance;
    distance *= 2;
    if (out >= stop) return;
  }
  do {
    memcpy(&word, out - distance, 8);
    memcpy(out, &word, 8);
    out += 8;
  } while (out < stop);
}

#define INFLATE_IN_ROOM 32   /* bytes that a step of the fast loop may take */
#define INFLATE_OUT_ROOM 320 /* bytes that it may write, with what a match writes too many */

#define EXTENDED(entry, word)     \
  ((int64_t)((entry) >> 16) + \
   (int64_t)(((word) & (((uint64_t)1 << ((entry) & 63)) - 1)) >> ((entry) >> 8 & 0xF)))

#define FILL()                             \
  word |= inflate_load(in) << (bits & 63); \
  in += 7 - (bits >> 3 & 7);               \
  bits |= 56
#define TAKE(entry)      \
  word >>= (entry) & 63; \
  bits -= (entry)

/* Decodes the codes of one block. Returns 1 at its end, or a negative code. The entry of the next code is looked up
 * before the bytes of the last one are written: looking up takes longer than writing. */
KERNEL_INLINE int inflate_codes_of(const inflate_tables *t, bit_source *source, uint8_t *start, uint8_t **place,
                                   uint8_t *stop) {
  const uint32_t *literal = t->literal, *distances = t->distance;
  const uint64_t literal_mask = (1 << LITERAL_BITS) - 1, distance_mask = (1 << DISTANCE_BITS) - 1;
  bit_source s = *source;
  uint8_t *out = *place;
  int code = 1, ended = 0;
  const uint8_t *fast_end = s.end - s.in > INFLATE_IN_ROOM ? s.end - INFLATE_IN_ROOM : s.in;
  uint8_t *fast_stop = stop - out > INFLATE_OUT_ROOM ? stop - INFLATE_OUT_ROOM : out;
  if (s.in < fast_end && out < fast_stop) {
    uint32_t entry, value, bits = (uint32_t)s.bits; /* its lowest byte counts: whole entries are taken off */
    uint64_t word = s.word, before;
    const uint8_t *in = s.in;
    FILL();
    entry = literal[word & literal_mask];
    do {
      /* There are 56 bits or more, and `entry` is that of the next code. Its bits go before it is known what it is. */
      before = word;
      TAKE(entry);
      if (entry & ENTRY_LITERAL) {
        value = entry >> 16;
        entry = literal[word & literal_mask];
        before = word;
        TAKE(entry);
        *out++ = (uint8_t)value;
        if (entry & ENTRY_LITERAL) {
          value = entry >> 16;
          entry = literal[word & literal_mask];
          before = word;
          TAKE(entry);
          *out++ = (uint8_t)value;
          if (entry & ENTRY_LITERAL) { /* 23 bits are left: for two more, if they are literals */
            value = entry >> 16;
            entry = literal[word & literal_mask];
            *out++ = (uint8_t)value;
            if (entry & ENTRY_LITERAL) {
              TAKE(entry);
              value = entry >> 16;
              entry = literal[word & literal_mask];
              *out++ = (uint8_t)value;
              if (entry & ENTRY_LITERAL) {
                TAKE(entry);
                value = entry >> 16;
                FILL();
                entry = literal[word & literal_mask];
                *out++ = (uint8_t)value;
                continue;
              }
            }
            FILL();
            continue;
          }
        }
      }
      if (UNLIKELY(entry & ENTRY_SPECIAL)) {
        if (entry & (ENTRY_END | ENTRY_NONE)) {
          if (entry & ENTRY_NONE) code = INFLATE_DAMAGED;
          ended = 1;
          break;
        }
        FILL();
        before = word;
        entry = literal[(entry >> 16) + (word & (((uint64_t)1 << (entry >> 8 & 0xF)) - 1))];
        TAKE(entry);
        if (entry & ENTRY_LITERAL) {
          value = entry >> 16;
          FILL();
          entry = literal[word & literal_mask];
          *out++ = (uint8_t)value;
          continue;
        }
        if (UNLIKELY(entry & ENTRY_SPECIAL)) {
          if (entry & ENTRY_NONE) code = INFLATE_DAMAGED;
          ended = 1;
          break;
        }
      }
      /* Two literals and a length take 42 bits at most, a distance 28. */
      int64_t length = EXTENDED(entry, before);
      if (UNLIKELY((bits & 0xFF) < 28)) {
        FILL();
      }
      entry = distances[word & distance_mask];
      if (UNLIKELY(entry & ENTRY_SPECIAL)) {
        if (entry & ENTRY_NONE) {
          code = INFLATE_DAMAGED;
          ended = 1;
          break;
        }
        TAKE(DISTANCE_BITS);
        entry = distances[(entry >> 16) + (word & (((uint64_t)1 << (entry >> 8 & 0xF)) - 1))];
        if (UNLIKELY(entry & ENTRY_SPECIAL)) {
          code = INFLATE_DAMAGED;
          ended = 1;
          break;
        }
      }
      int64_t distance = EXTENDED(entry, word);
      TAKE(entry);
      if (UNLIKELY(distance > out - start)) {
        code = INFLATE_DAMAGED;
        ended = 1;
        break;
      }
      FILL();
      entry = literal[word & literal_mask];
      copy_match(out, distance, length);
      out += length;
    } while (in < fast_end && out < fast_stop);
    s.word = word;
    s.in = in;
    s.bits = (int)(bits & 0xFF);
    if (ended) goto done;
  }
  for (;;) { /* the last bytes of either side: everything is checked */
    fill_slow(&s);
    uint32_t entry = literal[s.word & literal_mask];
    int taken = 0;
    if ((entry & (ENTRY_LITERAL | ENTRY_SPECIAL | ENTRY_END | ENTRY_NONE)) == ENTRY_SPECIAL) {
      taken = LITERAL_BITS;
      entry = literal[(entry >> 16) + (s.word >> LITERAL_BITS & (((uint64_t)1 << (entry >> 8 & 0xF)) - 1))];
    }
    if (taken + (int)(entry & 0xFF) > s.bits) {
      code = INFLATE_TRUNCATED;
      break;
    }
    if (!(entry & ENTRY_LITERAL) && entry & ENTRY_SPECIAL && entry & ENTRY_NONE) {
      code = INFLATE_DAMAGED;
      break;
    }
    take_bits(&s, taken);
    if (entry & ENTRY_LITERAL) {
      take_bits(&s, (int)(entry & 0xFF));
      if (out == stop) {
        code = INFLATE_LONG;
        break;
      }
      *out++ = (uint8_t)(entry >> 16);
      continue;
    }
    if (entry & ENTRY_SPECIAL) { /* the end */
      take_bits(&s, (int)(entry & 0xFF));
      break;
    }
    int64_t length = EXTENDED(entry, s.word);
    take_bits(&s, (int)(entry & 0xFF));
    fill_slow(&s);
    entry = distances[s.word & distance_mask];
    taken = 0;
    if ((entry & (ENTRY_SPECIAL | ENTRY_NONE)) == ENTRY_SPECIAL) {
      taken = DISTANCE_BITS;
      entry = distances[(entry >> 16) + (s.word >> DISTANCE_BITS & (((uint64_t)1 << (entry >> 8 & 0xF)) - 1))];
    }
    if (entry & ENTRY_SPECIAL) {
      code = s.bits < 15 && s.in >= s.end ? INFLATE_TRUNCATED : INFLATE_DAMAGED;
      break;
    }
    if (taken + (int)(entry & 0xFF) > s.bits) {
      code = INFLATE_TRUNCATED;
      break;
    }
    take_bits(&s, taken);
    int64_t distance = EXTENDED(entry, s.word);
    take_bits(&s, (int)(entry & 0xFF));
    if (distance > out - start) {
      code = INFLATE_DAMAGED;
      break;
    }
    int64_t room = min_i64(length, stop - out);
    for (int64_t k = 0; k < room; k++) out[k] = out[k - distance];
    out += room;
    if (room < length) {
      code = INFLATE_LONG;
      break;
    }
  }
done:
  *source = s;
  *place = out;
  return code;
}

#if defined(__GNUC__) && !defined(__clang__)
#define INFLATE_O2 __attribute__((optimize("O2"))) /* a tenth faster on text than what -O3 makes of it (GCC 12) */
#else
#define INFLATE_O2
#endif

#if defined(__GNUC__) && defined(__x86_64__) && !defined(__BMI2__)
#define INFLATE_BMI2 1
/* Shifts by a variable without its detour over a register of flags. */
__attribute__((target("bmi2"))) INFLATE_O2 static int inflate_codes_bmi2(
    const inflate_tables *t, bit_source *source, uint8_t *start, uint8_t **place, uint8_t *stop) {
  return inflate_codes_of(t, source, start, place, stop);
}
#endif

INFLATE_O2 KERNEL_NOINLINE int inflate_codes_plain(
    const inflate_tables *t, bit_source *source, uint8_t *start, uint8_t **place, uint8_t *stop) {
  return inflate_codes_of(t, source, start, place, stop);
}

KERNEL_INLINE int inflate_codes(const inflate_tables *t, bit_source *source, uint8_t *start, uint8_t **place,
                                uint8_t *stop) {
#ifdef INFLATE_BMI2
  if (__builtin_cpu_supports("bmi2")) return inflate_codes_bmi2(t, source, start, place, stop);
#endif
  return inflate_codes_plain(t, source, start, place, stop);
}

/* Inflates one stream into `out`, which has room for `room` bytes, `capacity` or more of them. Returns the number of
 * bytes written, or a negative code: the stream is cut short, damaged, or has more than `capacity` bytes (of which the
 * first `capacity` were written then). What follows its last block is not looked at. Memory of `source` may change
 * meanwhile: the result is garbage then, never an access outside. */
static int64_t inflate_span_into(const uint8_t *source, int64_t n_source, uint8_t *out, int64_t capacity,
                                 int64_t room) {
  inflate_tables tables;
  bit_source s = {source, source + n_source, 0, 0};
  uint8_t *at = out, *stop = out + room;
  tables.fixed = 0;
  for (;;) {
    int64_t last = next_bits(&s, 1), kind = next_bits(&s, 2);
    int code;
    if (last < 0 || kind < 0) return INFLATE_TRUNCATED;
    if (kind == 0) { /* stored: from the next whole byte on */
      take_bits(&s, s.bits & 7);
      s.in -= s.bits >> 3;
      s.word = 0;
      s.bits = 0;
      if (s.end - s.in < 4) return INFLATE_TRUNCATED;
      int64_t length = s.in[0] | s.in[1] << 8, check = s.in[2] | s.in[3] << 8;
      s.in += 4;
      if (length != (check ^ 0xFFFF)) return INFLATE_DAMAGED;
      if (length > s.end - s.in) return INFLATE_TRUNCATED;
      int64_t fits = min_i64(length, stop - at);
      memcpy(at, s.in, (size_t)fits);
      at += fits;
      s.in += length;
      if (fits < length) return INFLATE_LONG;
    } else {
      if (kind == 1)
        code = fixed_codes_of_deflate(&tables) ? 0 : INFLATE_DAMAGED;
      else
        code = kind == 2 ? read_codes(&tables, &s) : INFLATE_DAMAGED;
      if (code < 0) return code;
      code = inflate_codes(&tables, &s, out, &at, stop);
      if (code < 0) return code;
    }
    if (at - out > capacity) return INFLATE_LONG;
    if (last) return at - out;
  }
}

static int64_t inflate_span(const uint8_t *source, int64_t n_source, uint8_t *out, int64_t capacity) {
  return inflate_span_into(source, n_source, out, capacity, capacity);
}

#endif
