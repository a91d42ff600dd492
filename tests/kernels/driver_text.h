/* The kernels of text of fixed width, as driver.c runs them: UCS-4 rows to UTF-8, a run of rows per turn with offsets of
 * its own. Most rows are ASCII, some hold codes of two, three and four bytes, some are empty or full. */
#ifndef COLSTORE_DRIVER_TEXT_H
#define COLSTORE_DRIVER_TEXT_H

#include "fixed_text.h"

#define TEXT_ROWS 32768
#define TEXT_WIDTH 12
#define TEXT_TURN 2048
#define TEXT_TURNS (TEXT_ROWS / TEXT_TURN)

static const uint32_t TEXT_CODES[4] = {'z', 0xe9, 0x20ac, 0x1f600};

typedef struct text_parts {
  uint32_t *rows;
  int64_t *offsets; /* TEXT_TURN + 1 of each turn */
  uint8_t *data;    /* 4 bytes a code of each turn */
} text_parts;

static void make_text(work *w) {
  text_parts *t = w->text = room(sizeof *t);
  t->rows = room(sizeof(uint32_t) * TEXT_ROWS * TEXT_WIDTH);
  t->offsets = room(sizeof(int64_t) * TEXT_TURNS * (TEXT_TURN + 1));
  t->data = room((size_t)4 * TEXT_ROWS * TEXT_WIDTH);
  for (int64_t i = 0; i < TEXT_ROWS; i++)
    for (uint64_t k = 0, n = random64() % (TEXT_WIDTH + 1); k < n; k++)
      t->rows[i * TEXT_WIDTH + (int64_t)k] = i % 8 ? 'a' + (uint32_t)(random64() % 26) : TEXT_CODES[random64() % 4];
}

static void fixed_text_run(work *w) {
  text_parts *t = w->text;
  int64_t turn;
  while ((turn = next_turn(w, TEXT_TURNS)) >= 0) {
    const uint32_t *rows = t->rows + turn * TEXT_TURN * TEXT_WIDTH;
    int64_t *offsets = t->offsets + turn * (TEXT_TURN + 1);
    if (wide_sizes(rows, TEXT_WIDTH, NULL, 0, TEXT_TURN, offsets + 1) >= 0) shared_store(&w->bad, turn);
    for (int64_t i = 0; i < TEXT_TURN; i++) offsets[i + 1] += offsets[i];
    wide_rows(rows, TEXT_WIDTH, offsets, 0, TEXT_TURN, t->data + turn * TEXT_TURN * TEXT_WIDTH * 4);
  }
}

/* Decode what was written, and find the codes of the rows again. */
static int wrong_utf8(const work *w) {
  const text_parts *t = w->text;
  for (int64_t i = 0; i < TEXT_ROWS; i++) {
    int64_t turn = i / TEXT_TURN, k = 0;
    const int64_t *offsets = t->offsets + turn * (TEXT_TURN + 1) + i % TEXT_TURN;
    const uint8_t *data = t->data + turn * TEXT_TURN * TEXT_WIDTH * 4, *at = data + offsets[0], *end = data + offsets[1];
    while (at < end) {
      int more = *at < 0x80 ? 0 : *at < 0xe0 ? 1 : *at < 0xf0 ? 2 : 3;
      uint32_t code = more ? *at & (0x3fu >> more) : *at;
      for (at++; more > 0 && at < end; more--) code = code << 6 | (*at++ & 0x3fu);
      if (more || k == TEXT_WIDTH || t->rows[i * TEXT_WIDTH + k++] != code) return 1;
    }
    if (k < TEXT_WIDTH && t->rows[i * TEXT_WIDTH + k]) return 1;
  }
  return 0;
}

#endif
