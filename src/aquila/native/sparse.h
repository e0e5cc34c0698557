/* Codes on a sparse grid: see SparseGrid in core/passes/grid.py. */
#ifndef AQUILA_SPARSE_H
#define AQUILA_SPARSE_H

#include "vectors.h"

typedef struct {
    double step, lift, threshold;
    int top;
} Grid;

/* The magnitude is not negative, so a cast rounds it down. NaN becomes zero. */
#define DEFINE_CODES(REAL)                                                                         \
    CPU_CLONES static void codes_##REAL(const REAL *restrict v, int32_t *restrict codes,           \
                                        size_t count, Grid grid) {                                 \
        const REAL step = (REAL)grid.step, lift = (REAL)grid.lift, top = (REAL)grid.top;           \
        const REAL threshold = (REAL)grid.threshold;                                               \
        for (size_t i = 0; i < count; i++) {                                                       \
            REAL size = v[i] < 0 ? -v[i] : v[i];                                                   \
            REAL magnitude = size / step + lift;                                                   \
            magnitude = magnitude > 0 ? magnitude : 0;                                             \
            magnitude = magnitude < top ? magnitude : top;                                         \
            int32_t whole = size == threshold ? 1 : (int32_t)magnitude;                            \
            int32_t signed_whole = v[i] < 0 ? -whole : v[i] > 0 ? whole : 0;                       \
            codes[i] = grid.top + signed_whole;                                                    \
        }                                                                                          \
    }

DEFINE_CODES(float)
DEFINE_CODES(double)

static inline void chunk_codes(const void *v, int32_t *wide, size_t count, size_t item, Grid grid) {
    if (item == sizeof(float))
        codes_float(v, wide, count, grid);
    else
        codes_double(v, wide, count, grid);
}

/* Return what is wrong with the arguments, NULL if nothing is. */
static inline const char *grid_problem(const Py_buffer *v, const Py_buffer *codes, Grid grid) {
    if (!codes_match_vector(codes, v))
        return "codes must have one code of 1, 2 or 4 bytes per coordinate";
    if (grid.top < 1 || grid.top > largest_magnitude(codes))
        return "the largest magnitude must fit the type of the codes";
    return NULL;
}

#endif
