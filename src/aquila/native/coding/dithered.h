/* Codes that were rounded with a dither the reader also knows: see docs/wire-format-dithered.md.
 *
 * A code is not zero if the coordinate's dither was high enough for its size. So the dither tells
 * which coordinates are likely to be sent. That takes 2 to 4 times fewer bytes than a coded body
 * (results/dithered.jsonl).
 */
#ifndef AQUILA_DITHERED_H
#define AQUILA_DITHERED_H

#include "sparse_codes.h"

void prepare_dithered(void);

bool write_dithered(Bytes *out, Source *source);

/* Read the sent coordinates of `count` ones, rounded with the dither of a seed. */
Error read_dithered(Cursor *in, SparseCodes *sent, size_t count, uint32_t seed);

#endif
