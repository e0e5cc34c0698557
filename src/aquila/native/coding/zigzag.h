/* Mode zigzag: every code as a number that is small if the code is close to the centre. */
#ifndef AQUILA_ZIGZAG_H
#define AQUILA_ZIGZAG_H

#include "codes.h"

/* `counts` are those of the source's symbols. */
bool write_zigzag(Bytes *out, const Source *source, uint32_t centre,
                  const uint32_t counts[SYMBOLS]);
Error read_zigzag(Cursor *in, const Target *target);

/* The centre of a segment, which is a code. */
Error read_centre(Cursor *in, unsigned bits, uint32_t *centre);

#endif
