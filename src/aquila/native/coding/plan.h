/* Where a segment ends, and which mode it is written in. */
#ifndef AQUILA_PLAN_H
#define AQUILA_PLAN_H

#include "codes.h"

/* The modes of docs/wire-format-coded.md, and what each one gains over the next best mode. The
 * numbers come from benchmarks/coder_modes.py (results/coder_modes.jsonl; ratios of time with
 * --time). */
typedef enum {
    /* 0.02 to 0.2 % of a segment that does not compress. No recorded gradient has one; the mode
     * bounds the size of a body. */
    PACKED = 0,
    /* Speed: zigzag takes 1.6 times as long, for 0.04 % fewer bytes. */
    DIRECT = 1,
    /* The general mode of wide codes. Narrow codes with a long tail: up to 0.8 % of a stream. */
    ZIGZAG = 2,
    /* Direct takes 1.4 times as long to write, 7 times to read, and up to 0.8 % more bytes. */
    EXCEPTIONS = 3,
    /* Direct takes 1.3 times as long to write, 10 times to read, and up to 0.2 % more bytes. */
    SIGNED_EXCEPTIONS = 4,
} Mode;

/* A segment of at least so many codes lists its exceptions if it has one per 8 codes at most. */
enum { LONG_SEGMENT = 1 << 18 };

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
