/* Where a segment ends, and which mode it is written in. */
#ifndef AQUILA_PLAN_H
#define AQUILA_PLAN_H

#include "codes.h"

/* The modes of docs/wire-format.md. */
typedef enum {
    PACKED = 0,
    DIRECT = 1,
    ZIGZAG = 2,
    EXCEPTIONS = 3,
    SIGNED_EXCEPTIONS = 4,
} Mode;

/* Symbol counts of a run of codes, and the bits that they need. */
typedef struct {
    uint32_t counts[SYMBOLS];
    uint32_t total;
    uint64_t cost;
} Statistics;

typedef struct {
    Mode mode;
    uint32_t centre, exceptions;
} Choice;

/* Count symbols below `alphabet`, a power of two. */
void count_symbols(uint32_t counts[SYMBOLS], const uint8_t *symbols, size_t count,
                   unsigned alphabet);
void measure(Statistics *result, const Source *source, size_t start, size_t count);
void join(Statistics *both, const Statistics *a, const Statistics *b, unsigned bits);
Choice choose_mode(const Statistics *statistics, const Source *source);

#endif
