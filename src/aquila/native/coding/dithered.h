/* Codes that were rounded with a dither the reader also knows: see docs/wire-format-dithered.md.
 *
 * A code is not zero if the coordinate's dither was high enough for its size. So the dither tells
 * which coordinates are likely to be sent. That takes 2 to 4 times fewer bytes than a coded body
 * (results/dithered.jsonl).
 */
#ifndef AQUILA_DITHERED_H
#define AQUILA_DITHERED_H

#include "codes.h"

/* Positions of sent coordinates, increasing. The caller frees `at`. */
typedef struct {
    int64_t *at;
    size_t count, room, next;
} Positions;

bool write_dithered(Bytes *out, Source *source);
Error read_dithered(Cursor *in, const Target *target, Positions *sent);

#endif
