/* Sums of squares in the order that core/vector.py defines.
 *
 * Lane j adds the coordinates j, j + LANES, j + 2 LANES, ... Then the lanes are summed pairwise,
 * the upper half onto the lower half. CHUNK divides LANES, so consecutive coordinates of a chunk
 * use consecutive lanes.
 */
#ifndef AQUILA_LANES_H
#define AQUILA_LANES_H

#include "vectors.h"

enum { LANES = 65536 };

/* Lanes that a vector uses, rounded up to a power of two. Further lanes would only add zeros. */
static inline size_t lane_count(size_t count) {
    size_t lanes = 1;
    while (lanes < LANES && lanes < count) lanes *= 2;
    return lanes;
}

/* Static per thread: malloc would return a block of this size to the system after every call.
 * Only unused lanes are cleared. The first coordinate of a lane overwrites it, the others add. */
static inline double *thread_lanes(size_t count, int second) {
    static _Thread_local double lanes[2][LANES];
    size_t used = min_size(count, LANES);
    memset(lanes[second] + used, 0, (lane_count(count) - used) * sizeof **lanes);
    return lanes[second];
}

CPU_CLONES static double sum_lanes(double *lanes, size_t count) {
    for (size_t half = count / 2; half > 0; half /= 2)
        for (size_t i = 0; i < half; i++) lanes[i] += lanes[i + half];
    return lanes[0];
}

static inline double larger_or_nan(double a, double b) { return b > a || b != b ? b : a; }

/* A vector of zeros for passes without a memory. */
static const double zeros[CHUNK];

#endif
