/* Tables in JSON (colbin.md 7, 12): an array of objects that have all columns, in the order of the definition. */
#ifndef COLSTORE_JSON_TABLE_H
#define COLSTORE_JSON_TABLE_H

#include "column_codec.h"
#include "json_walk.h"

/* One column of a table: its integers decoded; or where the next of its texts begins; neither when it is absent. */
typedef struct {
  int64_t *values;
  const uint8_t *text;
} json_column;

static int json_skip_texts(json_walk *w, uint64_t count, const uint8_t *end) {
  uint64_t size;
  if (count > (uint64_t)(end - w->at)) return 0;
  for (uint64_t i = 0; i < count; i++) {
    if (!json_len(w, end, &size) || size > (uint64_t)(end - w->at)) return 0;
    w->at += size;
  }
  return 1;
}

/* Find and decode the columns that are there. */
static int json_columns(json_walk *w, const json_struct *s, int k8, int64_t rows, const uint8_t *stop,
                        json_column *columns) {
  const json_field *fields = w->fields + s->first;
  uint64_t seen[4] = {0, 0, 0, 0}, n;
  int absent = s->count;
  while (w->at < stop) {
    int head = *w->at++, key = k8 ? head : head >> 4, place = 0;
    const uint8_t *end;
    if (seen[key >> 6] >> (key & 63) & 1) return 0;
    seen[key >> 6] |= 1ull << (key & 63);
    if (k8 && w->at >= stop) return 0;
    while (place < s->count && fields[place].key != key) place++;
    if (place == s->count) {
      const uint8_t *behind = k8 ? cb_skip_k8(w->at, stop, &w->why) : NULL;
      if (!behind) return 0;
      w->at = behind;
      continue;
    }
    head = k8 ? *w->at++ : head & 15;
    absent--;
    if (fields[place].code == CB_STR) {
      if (!json_open_strings(w, k8, head, stop, &n, &end) || n != (uint64_t)rows) return 0;
      columns[place].text = w->at;
      if (!json_skip_texts(w, n, end) || (k8 && w->at != end)) return 0;
      continue;
    }
    if ((k8 ? head >> 4 != 11 : head >> 3) || !json_sized(w, head & 3, stop, &end)) return 0;
    columns[place].values = malloc(8 * (size_t)rows + 8);
    if (!columns[place].values || column_decode(w->at, end - w->at, rows, columns[place].values)) return 0;
    w->at = end;
  }
  return json_spend(w, rows * (s->name_chars + 5 * (int64_t)absent));
}

/* A value of an integer column, which holds plain patterns of floats, in the range of its type? */
KERNEL_INLINE int json_fits(int code, int64_t value) {
  if (code == CB_U64 || code == CB_F64) return 1;
  return value >= cb_minimum[code] && (value < 0 || (uint64_t)value <= cb_maximum[code]);
}

static int json_table_rows(json_walk *w, const json_struct *s, int64_t rows, const uint8_t *stop, json_column *columns) {
  const json_field *fields = w->fields + s->first;
  uint64_t size;
  if (!json_put_one(&w->out, '[')) return 0;
  for (int64_t row = 0; row < rows; row++) {
    if ((row && !json_put_one(&w->out, ',')) || !json_put_one(&w->out, '{')) return 0;
    for (int i = 0; i < s->count; i++) {
      int code = fields[i].code;
      if ((i && !json_put_one(&w->out, ',')) || !json_name(w, fields + i)) return 0;
      if (code != CB_STR) {
        int64_t value = columns[i].values ? columns[i].values[row] : 0;
        if (!json_fits(code, value) || !json_put_scalar(w, code, (uint64_t)value)) return 0;
      } else if (!columns[i].text) {
        if (!json_put(&w->out, "\"\"", 2)) return 0;
      } else {
        w->at = columns[i].text;
        if (!json_len(w, stop, &size) || size > (uint64_t)(stop - w->at) || !json_content(w, w->at + size, 1)) return 0;
        columns[i].text = w->at;
      }
    }
    if (!json_put_one(&w->out, '}')) return 0;
  }
  return json_put_one(&w->out, ']');
}

/* A table up to `stop`. */
static int json_table(json_walk *w, int number, int k8, const uint8_t *stop, int depth) {
  const json_struct *s = w->structs + number;
  json_column columns[256];
  uint64_t rows;
  if (depth >= CB_MAX_DEPTH || s->count > 256 || !json_len(w, stop, &rows) || rows > (uint64_t)w->max_rows) return 0;
  w->cells -= (int64_t)rows * (s->count ? s->count : 1);
  if (w->cells < 0) return 0;
  for (int i = 0; i < s->count; i++) {
    if (!cb_is_column(w->fields[s->first + i].code)) return 0;
    columns[i] = (json_column){NULL, NULL};
  }
  int fine = json_columns(w, s, k8, (int64_t)rows, stop, columns) && json_table_rows(w, s, (int64_t)rows, stop, columns);
  for (int i = 0; i < s->count; i++) free(columns[i].values);
  w->at = stop;
  return fine;
}

#endif
