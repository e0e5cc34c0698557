/* Codes of a vector in which nearly all codes are the same: positions and codes of the others. */
#ifndef AQUILA_SPARSE_CODES_H
#define AQUILA_SPARSE_CODES_H

#include "codes.h"

/* Positions increase. Each code has `bits` bits and is stored in `size` bytes. The caller frees
 * `positions` and `codes`. */
typedef struct {
    int64_t *positions;
    uint8_t *codes;
    size_t count, room;
    unsigned size, bits;
} SparseCodes;

/* Make room for `extra` more codes; false if there is not enough memory. */
static inline bool sparse_reserve(SparseCodes *sparse, size_t extra) {
    if (sparse->room - sparse->count >= extra) return true;
    size_t room = sparse->count + extra + sparse->count / 2;
    int64_t *positions = realloc(sparse->positions, room * sizeof *positions);
    if (positions) sparse->positions = positions;
    uint8_t *codes = realloc(sparse->codes, room * sparse->size);
    if (codes) sparse->codes = codes;
    if (positions && codes) sparse->room = room;
    return positions && codes;
}

/* Append a code. There is room for it. */
static inline void sparse_append(SparseCodes *sparse, size_t position, uint32_t code) {
    sparse->positions[sparse->count] = (int64_t)position;
    set_code(sparse->codes, sparse->size, sparse->count++, code);
}

#endif
