/* Modes exceptions and signed exceptions: one or two usual codes, and a list of all others.
 *
 * In mode exceptions the usual code is the centre. In mode signed exceptions the usual codes are
 * the centre and the code below it, as on a grid without a zero. There a bit string of signs tells
 * the two apart and also holds the signs of the exceptions.
 */
#ifndef AQUILA_EXCEPTIONS_H
#define AQUILA_EXCEPTIONS_H

#include "sparse_codes.h"

void prepare_exceptions(void);

bool write_exceptions(Bytes *out, const Source *source, uint32_t centre, uint32_t exceptions,
                      bool with_signs);
Error read_exceptions(Cursor *in, const Target *target, bool with_signs);

/* Read a segment in mode exceptions as the codes other than its centre. */
Error read_sparse_exceptions(Cursor *in, SparseCodes *sparse, size_t start, size_t count);

#endif
