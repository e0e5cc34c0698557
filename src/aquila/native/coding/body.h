/* A coded body: segments of codes that are alike, each in the mode that suits it.
 *
 * docs/wire-format.md has the layout.
 */
#ifndef AQUILA_BODY_H
#define AQUILA_BODY_H

#include "source.h"

/* Write all codes; false when there is not enough memory. */
bool write_body(Bytes *out, Source *source);
Problem read_body(Cursor *in, const Target *target);

#endif
