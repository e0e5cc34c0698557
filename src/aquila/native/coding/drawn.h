/* Codes that were drawn by lots the reader knows too: see docs/wire-format.md, kind 4.
 *
 * A code is not zero where the coordinate's lot was high enough for its size. So lots tell where
 * that is likely, and what is left to say takes two or three bits where a place takes nine.
 */
#ifndef AQUILA_DRAWN_H
#define AQUILA_DRAWN_H

#include "source.h"

bool write_drawn(Bytes *out, Source *source);
Problem read_drawn(Cursor *in, const Target *target);

#endif
