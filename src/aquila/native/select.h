/* The k-th largest magnitude of a vector.
 *
 * Magnitudes compare like the integers with the same bits. A sample gives a bound that is likely a
 * little below the k-th largest one. One pass collects the magnitudes above the bound, and a radix
 * search among these few finds the result. If the bound was too high or too low, the radix search
 * runs on the whole vector. So the result does not depend on the sample.
 */
#ifndef AQUILA_SELECT_H
#define AQUILA_SELECT_H

#include <stdlib.h>

#include "vectors.h"

enum { DIGIT_BITS = 11, BINS = 1 << DIGIT_BITS };
/* The sample has GROUPS groups of GROUP consecutive coordinates, which share a cache line. */
enum { GROUP = 16, GROUPS = 2048, SAMPLE = GROUP * GROUPS };
/* For shorter vectors, or more than one coordinate in MIN_RATIO, a sample does not pay. */
enum { MIN_SAMPLED_COUNT = 4 * SAMPLE, MIN_RATIO = 16 };

/* Magnitudes of at least `bound`; `room` is 0 if none are collected. */
typedef struct {
    uint64_t bound; /* as an integer with the same bits */
    void *values;
    size_t count, room;
} Collected;

static inline bool is_sampled(size_t count, size_t k) {
    return count >= MIN_SAMPLED_COUNT && k <= count / MIN_RATIO;
}

static inline size_t group_start(size_t count, size_t group) { return count / GROUPS * group; }

/* Return a rank in the sample that is likely beyond rank k of the vector. Coordinates of a group
 * resemble each other, so ranks vary more than those of independent coordinates. */
static inline size_t sample_rank(size_t count, size_t k) {
    size_t expected = k * SAMPLE / count;
    return min_size(SAMPLE, expected + expected / 2 + 32);
}

/* The radix search finds one digit per pass from the highest digit on. Each pass counts the next
 * digit of the magnitudes that match the digits found so far. The last digit may overlap the one
 * before it. The search ends at bin 0 even if another thread writes to the vector at the same time.
 */
#define DEFINE_SELECT(REAL, UNSIGNED)                                                              \
    static double radix_search_##REAL(const REAL *v, size_t count, size_t k) {                     \
        UNSIGNED found = 0, known = 0;                                                             \
        REAL result;                                                                               \
        for (int shift = 8 * sizeof(REAL) - 1; shift > 0;) {                                       \
            size_t bins[BINS] = {0}, bin = BINS - 1;                                               \
            shift = shift > DIGIT_BITS ? shift - DIGIT_BITS : 0;                                   \
            for (size_t i = 0; i < count; i++) {                                                   \
                UNSIGNED bits;                                                                     \
                memcpy(&bits, &v[i], sizeof bits);                                                 \
                if ((bits & known) == found) bins[bits >> shift & (BINS - 1)]++;                   \
            }                                                                                      \
            while (bin > 0 && bins[bin] < k) k -= bins[bin--];                                     \
            found |= (UNSIGNED)bin << shift;                                                       \
            known |= (UNSIGNED)(BINS - 1) << shift;                                                \
        }                                                                                          \
        memcpy(&result, &found, sizeof result);                                                    \
        return result;                                                                             \
    }                                                                                              \
                                                                                                   \
    CPU_CLONES static void mark_##REAL(const REAL *restrict v, uint8_t *restrict marks,            \
                                       size_t count, UNSIGNED bound) {                             \
        for (size_t i = 0; i < count; i++) {                                                       \
            UNSIGNED bits;                                                                         \
            memcpy(&bits, &v[i], sizeof bits);                                                     \
            marks[i] = (bits & ~(UNSIGNED)0 >> 1) >= bound;                                        \
        }                                                                                          \
    }                                                                                              \
                                                                                                   \
    /* Start to collect, with room for twice as many magnitudes as the bound should leave. */      \
    static Collected start_collecting_##REAL(const REAL *sample, size_t count, size_t k) {         \
        Collected collected = {0, NULL, 0, 0};                                                     \
        size_t rank = sample_rank(count, k), room = count / SAMPLE * rank * 2 + CHUNK;             \
        REAL bound = (REAL)radix_search_##REAL(sample, SAMPLE, rank);                              \
        memcpy(&collected.bound, &bound, sizeof bound);                                            \
        if (bound > 0) collected.values = malloc(room * sizeof bound);                             \
        collected.room = collected.values ? room : 0;                                              \
        return collected;                                                                          \
    }                                                                                              \
                                                                                                   \
    /* Collect from at most CHUNK coordinates. Without enough room, give up. */                    \
    static void collect_##REAL(Collected *collected, const REAL *v, size_t count) {                \
        uint8_t marks[CHUNK];                                                                      \
        REAL *values = collected->values;                                                          \
        if (collected->room - collected->count < count) {                                          \
            collected->room = collected->count = 0;                                                \
            return;                                                                                \
        }                                                                                          \
        mark_##REAL(v, marks, count, (UNSIGNED)collected->bound);                                  \
        memset(marks + count, 0, CHUNK - count);                                                   \
        for (size_t i = 0; i < count; i += sizeof(uint64_t)) {                                     \
            uint64_t eight;                                                                        \
            for (memcpy(&eight, marks + i, sizeof eight); eight; eight &= eight - 1)               \
                values[collected->count++] = v[i + trailing_zeros(eight) / 8];                     \
        }                                                                                          \
    }                                                                                              \
                                                                                                   \
    /* Free what was collected, and return the k-th largest magnitude. */                          \
    static double finish_search_##REAL(Collected *collected, const REAL *v, size_t count,          \
                                       size_t k) {                                                 \
        double kth = collected->count < k                                                          \
                         ? radix_search_##REAL(v, count, k)                                        \
                         : radix_search_##REAL(collected->values, collected->count, k);            \
        free(collected->values);                                                                   \
        return kth;                                                                                \
    }

DEFINE_SELECT(float, uint32_t)
DEFINE_SELECT(double, uint64_t)

#endif
