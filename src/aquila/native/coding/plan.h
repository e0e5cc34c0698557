/* Where one stretch of codes ends and another begins, and how each is best written. */
#ifndef AQUILA_PLAN_H
#define AQUILA_PLAN_H

#include "source.h"

typedef enum { PACKED = 0, DIRECT = 1, FOLDED = 2, SPARSE = 3, SIGNED = 4 } Mode;

/* How often the symbols of a stretch come, and the bits that writing them takes. */
typedef struct {
    uint32_t counts[SYMBOLS];
    uint32_t total;
    uint64_t cost;
} Statistics;

typedef struct {
    Mode mode;
    uint32_t centre, exceptions;
} Choice;

/* Count symbols that are below `kinds`, a power of two. */
void count_symbols(uint32_t counts[SYMBOLS], const uint8_t *symbols, size_t count, unsigned kinds);
void measure(Statistics *found, const Source *source, size_t start, size_t count);
void join(Statistics *both, const Statistics *a, const Statistics *b, unsigned bits);
Choice choose(const Statistics *statistics, const Source *source);

#endif
