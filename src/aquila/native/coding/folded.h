/* Every code as a number, which is small if the code is near the centre. */
#ifndef AQUILA_FOLDED_H
#define AQUILA_FOLDED_H

#include "source.h"

bool write_folded(Bytes *out, const Source *source, uint32_t centre);
Problem read_folded(Cursor *in, const Target *target);

/* The centre of a segment, which is a code itself. */
Problem read_centre(Cursor *in, unsigned bits, uint32_t *centre);

#endif
