/* What reader and writer of a dithered body both compute: see docs/wire-format-dithered.md. */
#ifndef AQUILA_DITHER_MODEL_H
#define AQUILA_DITHER_MODEL_H

#include "binary_coder.h"
#include "codes.h"

/* A coordinate is sent if its complement, the complement of its dither word, is below its size in
 * steps, as a fraction of 2^32. So the reader needs the mean size near a coordinate to know how
 * likely it is sent. Both sides estimate log2 of that mean from past decisions, in units of 2^-16.
 * The estimates follow tensors and rows, whose sizes differ. With a fixed scale, gradients of the
 * Transformer take 21 to 48 % more bytes, those of ResNet-18 take 2 % more, and vectors of equal
 * coordinates 1 % less (benchmarks/coder_modes.py). */
enum { UNIT = 1 << 16, MAX_LOG = 32 * UNIT };
/* Each step of an estimate is the gradient of the log likelihood of exponentially distributed
 * sizes, times 2^-FAST or 2^-SLOW. */
enum { FAST = 1, SLOW = 5 };
/* The level of a coordinate is log2(complement / mean) in half octaves, from -4 to 6 octaves. */
enum { LEVELS = 21, ZERO_LEVEL = 8 };
/* Contexts also depend on whether the fast estimate is below, near or above the slow one. Without
 * it, the Transformer takes 3 to 5 % more. */
enum { TRENDS = 4 };
/* Coordinates that share one set of candidates: those with a complement below 16 to 32 times the
 * largest estimate at its start. Each candidate has a decision of its own. Other sent coordinates
 * are listed. With a fourth of these candidates, the Transformer takes 4 to 6 % more bytes. */
enum { BLOCK = 1024, CANDIDATE_OCTAVES = 5, WITHIN = 2 };
enum { BLOCK_WORDS = BLOCK / 64, SPARE = 16 };

typedef struct {
    uint32_t seed, mixed_seed;
    uint32_t products[BLOCK], products_of; /* for AVX-512: see block_product */
    uint32_t centre;                       /* the code of zero */
    int32_t initial, fast, slow;
    Context sent[TRENDS][LEVELS];
    Context listed[3]; /* after a block without and with listed coordinates, and within a block */
    bool listed_before;
    NumberContexts gaps, magnitudes;
} Model;

/* The part of a vector that is processed at a time. */
typedef struct {
    size_t start, count, candidates;
    uint64_t marks[BLOCK_WORDS];         /* one bit per coordinate: whether it is a candidate */
    uint32_t complements[BLOCK + SPARE]; /* of the candidates, and unused entries */
} Block;

ALWAYS_INLINE bool is_candidate(const Block *block, size_t i) {
    return block->marks[i / 64] >> i % 64 & 1;
}

extern const uint32_t dither_rise[LEVELS], dither_fall[LEVELS];

/* `sparsity` is -log2 of the mean size in steps, in units of 1/8. */
void prepare_model(Model *model, uint32_t seed, unsigned sparsity, unsigned bits);

/* Find the candidates of a block, given the estimates at its start. */
void find_candidates(Model *model, Block *block, size_t start, size_t total);

/* log2 of a complement in units of 2^-16; 0 counts as 1. */
ALWAYS_INLINE int32_t log_of_complement(uint32_t complement) {
    complement |= complement == 0;
    unsigned zeros = leading_zeros(complement);
    uint32_t mantissa = complement << zeros >> 27 & 15;
    uint32_t sixteenths = mantissa + 1 + (mantissa - 3 < 9); /* log2(1 + mantissa/16) */
    return (int32_t)((31 - zeros) * UNIT + sixteenths * (UNIT / 16));
}

ALWAYS_INLINE unsigned level_of(int32_t log, int32_t mean) {
    int32_t level = (log - mean + ZERO_LEVEL * (UNIT / 2) + UNIT / 4) >> 15;
    return level < 0 ? 0 : level < LEVELS ? (unsigned)level : LEVELS - 1;
}

ALWAYS_INLINE unsigned trend_of(int32_t fast, int32_t slow) {
    int32_t trend = (fast - slow + 3 * UNIT) >> 17;
    return trend < 0 ? 0 : trend < TRENDS ? (unsigned)trend : TRENDS - 1;
}

ALWAYS_INLINE int32_t moved_log(int32_t log, unsigned level, unsigned shift, bool sent) {
    log += sent ? (int32_t)(dither_rise[level] >> shift) : -(int32_t)(dither_fall[level] >> shift);
    return log < 0 ? 0 : log < MAX_LOG ? log : MAX_LOG;
}

/* What a decision 0 does, by the difference of a complement's logarithm and an estimate in half
 * octaves. Tables over all differences need no limits of levels. All tables are one object, so that
 * a loop needs one register for their address. */
enum { MAX_DIFFERENCE = 2 * MAX_LOG / UNIT, DIFFERENCES = 2 * MAX_DIFFERENCE + 16 };
enum { MAX_TREND = MAX_LOG >> 17, TREND_OFFSETS = 2 * MAX_TREND + 4 };
typedef struct {
    struct {
        uint8_t level;
        int16_t slow_fall;
        int32_t fast_fall;
    } zero[DIFFERENCES];
    uint64_t reciprocals[SEEN_LIMIT + 1]; /* of contexts */
    uint8_t trend_offsets[TREND_OFFSETS]; /* of the contexts of a trend */
} DitherTables;
extern DitherTables dither_tables;

/* The decision on a candidate if it is 0. */
typedef struct {
    Context *context;
    uint32_t average;
    int32_t fast, slow; /* the estimates after it */
} ZeroDecision;

ALWAYS_INLINE ZeroDecision zero_decision(const DitherTables *tables, Context *contexts, int32_t log,
                                         int32_t fast, int32_t slow) {
    const int32_t offset = (MAX_DIFFERENCE + 1) * (UNIT / 2) - UNIT / 4;
    size_t by_fast = (uint32_t)(log - fast + offset) >> 15;
    size_t by_slow = (uint32_t)(log - slow + offset) >> 15;
    size_t trend = (uint32_t)(fast - slow + MAX_LOG + UNIT) >> 17;
    Context *context = contexts + tables->trend_offsets[trend] + tables->zero[by_slow].level;
    fast -= tables->zero[by_fast].fast_fall;
    slow -= tables->zero[by_slow].slow_fall;
    return (ZeroDecision){context, context->average, fast < 0 ? 0 : fast, slow < 0 ? 0 : slow};
}

/* Update the context after a decision 0. */
ALWAYS_INLINE void update_after_zero(const DitherTables *tables, const ZeroDecision *decision) {
    Context *context = decision->context;
    uint32_t average = decision->average, seen = context->seen;
    context->average = average - (uint32_t)(average * tables->reciprocals[seen] >> 41);
    context->seen = seen + (seen < SEEN_LIMIT);
}

/* Store the logarithms of the candidates' complements. */
void logs_of_candidates(int32_t *logs, const Block *block);

#endif
