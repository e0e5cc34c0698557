/* A coded body: segments of similar codes, each in the mode that suits it.
 *
 * docs/wire-format-coded.md describes the layout.
 */
#ifndef AQUILA_BODY_H
#define AQUILA_BODY_H

#include "sparse_codes.h"

/* Write all codes; false if there is not enough memory. */
bool write_body(Bytes *out, Source *source);
Error read_body(Cursor *in, const Target *target);

/* Read the codes other than `centre`. If there are more than `limit`, set `is_sparse` to false;
 * then `sparse` has only some of them. */
Error read_sparse_body(Cursor *in, SparseCodes *sparse, size_t count, size_t limit, uint32_t centre,
                       bool *is_sparse);

#endif
