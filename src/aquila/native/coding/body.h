/* A coded body: segments of similar codes, each in the mode that suits it.
 *
 * docs/wire-format-coded.md describes the layout.
 */
#ifndef AQUILA_BODY_H
#define AQUILA_BODY_H

#include "codes.h"

/* Write all codes; false if there is not enough memory. */
bool write_body(Bytes *out, Source *source);
Error read_body(Cursor *in, const Target *target);

#endif
