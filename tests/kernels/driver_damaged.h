/* Decoders over damaged streams, each in memory of its exact size, so that a sanitizer sees a step outside. */
#ifndef COLSTORE_DRIVER_DAMAGED_H
#define COLSTORE_DRIVER_DAMAGED_H

#include "wire.h"

#define DAMAGED 400

/* Two hundred values are enough here: what is read and written has no byte of slack. */
#define FEW 200

static void decode_damaged(work *w, const uint8_t *sound, int64_t n, int kind) {
  int64_t keep = n - (random64() % 4 == 0 ? (int64_t)(random64() % (uint64_t)(n + 1)) : 0), at = 0, found;
  int64_t lead = kind == 7 ? CB_LEAD : 0; /* what readers of messages may load in front */
  uint8_t *memory = calloc(1, (size_t)(lead + keep + !keep)), *data = memory + lead, *out = malloc(FEW * 8);
  int64_t *places = malloc((FEW + 1) * 8 * 6);
  uint8_t *flags = malloc(FEW);
  if (!memory || !out || !places || !flags) exit(2);
  memcpy(data, sound, (size_t)keep);
  for (uint64_t changes = random64() % 4; changes && keep; changes--) data[random64() % (uint64_t)keep] = (uint8_t)random64();
  int64_t *offset = places, *size = places + FEW, *rows = places + 2 * FEW, *start = places + 3 * FEW;
  int64_t *bytes = places + 4 * FEW;
  plain_state s = {0, 0, 0, 0, 0};
  const char *why = NULL;
  switch (kind) {
    case 0: (void)column_decode_as(codec_isa(w), COLUMN_I64, data, keep, FEW, out); break;
    case 1: (void)column_decode_as(codec_isa(w), COLUMN_U16, data, keep, FEW, out); break;
    case 2: (void)plain_values(data, keep, &s, places, 1, FEW, out, FEW * 8); break;
    case 3: (void)lzw_span(data, keep, out, FEW * 8); break;
    case 4: (void)packed5_decode(data, (long)keep, 0, out, FEW * 8); break;
    case 5: (void)is_utf8_span(data, keep); break;
    case 6:
      (void)walk_frames(data, keep, &at, 0, FEW, offset, size, rows, &found);
      if (found) (void)open_frames(data, keep, 0, found, offset, size, rows, start, bytes, flags, &at);
      if (found) (void)last_sound_frame(data, keep, 0, found, offset, size, rows);
      break;
    default:
      for (const uint8_t *p = data; p && p < data + keep;) p = cb_skip_k8(p, data + keep, &why);
      (void)is_utf8_span(data, keep);
  }
  free(memory);
  free(out);
  free(places);
  free(flags);
}

static void damaged_run(work *w) {
  EACH_PART(w, p) {
    if (turn_) continue; /* the random numbers belong to one thread */
    uint32_t *table = room(LZW_SLOTS * 4);
    uint8_t *stream = room(STREAM_ROOM);
    int upper;
    for (int i = 0; i < DAMAGED; i++)
      for (int kind = 0; kind < 8; kind++) {
        int64_t n = 1 + (int64_t)(random64() % 1000);
        if (kind < 2) n = column_encode(p->values, FEW, stream);
        else if (kind == 3) n = lzw_encode(p->text, n, table, stream);
        else if (kind == 4) n = packed5_encode(p->text, (long)n, stream, STREAM_ROOM, &upper);
        else if (kind == 6)
          for (int64_t at = n = 0; at < 20; at++) {
            uint32_t word = 3 | (at & 1 ? FRAME_ROWS : 0), crc;
            int64_t head = at & 1 ? 12 : 8;
            memset(stream + n, 7, 16);
            memcpy(stream + n, &word, 4);
            crc = frame_crc(frame_crc(0, stream + n, 4), stream + n + 8, head + 3 - 8);
            memcpy(stream + n + 4, &crc, 4);
            n += head + 3;
          }
        else if (kind == 7) memcpy(stream, p->codes, (size_t)n);
        else memcpy(stream, p->stream, (size_t)(n = min_i64(n, p->n_stream)));
        if (n > 0) decode_damaged(w, stream, n, kind);
      }
    free(table);
    free(stream);
  }
}

#endif
