/* Mode packed: codes at their fixed width, least significant bit first, without gaps. */
#ifndef AQUILA_PACKED_H
#define AQUILA_PACKED_H

#include "codes.h"

bool write_packed(Bytes *out, const Source *source);
Error read_packed(Cursor *in, const Target *target);

#endif
