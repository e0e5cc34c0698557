/* What most codes are, and a list of the exceptions.
 *
 * Most codes are the centre or, with signs, the centre and the code below it, as on a grid without
 * a zero. Then a plane of bits tells the two apart and gives the exceptions their signs.
 */
#ifndef AQUILA_LISTED_H
#define AQUILA_LISTED_H

#include "source.h"

void prepare_listed(void);

bool write_listed(Bytes *out, const Source *source, uint32_t centre, uint32_t exceptions,
                  bool with_signs);
Problem read_listed(Cursor *in, const Target *target, bool with_signs);

#endif
