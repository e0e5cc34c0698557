/* What reader and writer of a dithered body both compute: see docs/wire-format-dithered.md. */
#ifndef AQUILA_DITHER_MODEL_H
#define AQUILA_DITHER_MODEL_H

#include "../dither.h"
#include "binary_coder.h"
#include "codes.h"

/* A coordinate is sent if the complement of its dither is below its size in steps, as a fraction of
 * 2^32. So the reader needs the mean size near a coordinate to know how likely it is sent. Both
 * sides estimate log2 of that mean from past decisions, in units of 2^-16. The estimates follow
 * tensors and rows, whose sizes differ. With a fixed scale, gradients of the Transformer take 19 %
 * more bytes, and vectors of equal coordinates 1 % less (benchmarks/coder_modes.py). */
enum { UNIT = 1 << 16, MAX_LOG = 32 * UNIT };
/* Each step of an estimate is the gradient of the log likelihood of exponentially distributed
 * sizes, times 2^-FAST or 2^-SLOW. */
enum { FAST = 1, SLOW = 5 };
/* The level of a coordinate is log2(complement / mean) in half octaves, from -4 to 6 octaves. */
enum { LEVELS = 21, ZERO_LEVEL = 8 };
/* Contexts also depend on whether the fast estimate is below, near or above the slow one. Without
 * it, the Transformer takes 3 % more. */
enum { TRENDS = 4 };
/* Ranks of a block are decided one by one while the complement is below 2^(3/2) times the larger
 * estimate. Sent coordinates of higher ranks are listed. With twice the estimate all streams take
 * 0.4 % more bytes, with 4 times 0.3 % less and more time. */
enum { CANDIDATE_LIMIT = 3 * UNIT / 2 };
/* Context of the decisions after the first listed coordinate of a block. */
enum { WITHIN = 2 };
/* Ranks whose complements are computed at a time. */
enum { RANKS = 16 };

typedef struct {
    Dither dither;
    size_t count;    /* of coordinates */
    uint32_t centre; /* the code of zero */
    int32_t fast, slow;
    Context sent[TRENDS][LEVELS];
    Context listed[3]; /* after a block without and with listed coordinates, and within a block */
    bool listed_before;
    NumberContexts gaps, magnitudes;
} Model;

/* A block of coordinates, and the logarithms of the complements of a few ranks. */
typedef struct {
    size_t start;
    uint32_t size;
    BlockKeys keys;
    uint32_t first_rank; /* of the logarithms */
    int32_t logs[RANKS]; /* negative: the rank has no coordinate */
} Block;

extern const uint32_t dither_rise[LEVELS], dither_fall[LEVELS];

/* `sparsity` is -log2 of the mean size in steps, in units of 1/8. */
void prepare_model(Model *model, uint32_t seed, unsigned sparsity, size_t count, unsigned bits);

/* Start the block of this number. */
void start_block(Block *block, const Model *model, uint32_t number);

/* Compute the logarithms of the ranks around this one. */
void load_logs(Block *block, const Model *model, uint32_t rank);

ALWAYS_INLINE size_t position_of_rank(const Block *block, const Model *model, uint32_t rank) {
    return block->start + place_of_rank(&block->keys, model->dither.block_bits, rank);
}

/* log2 of a complement in units of 2^-16; 0 counts as 1. */
ALWAYS_INLINE int32_t log_of_complement(uint32_t complement) {
    complement |= complement == 0;
    unsigned zeros = leading_zeros(complement);
    uint32_t mantissa = complement << zeros >> 27 & 15;
    uint32_t sixteenths = mantissa + 1 + (mantissa - 3 < 9); /* log2(1 + mantissa/16) */
    return (int32_t)((31 - zeros) * UNIT + sixteenths * (UNIT / 16));
}

ALWAYS_INLINE bool is_candidate(int32_t log, int32_t fast, int32_t slow) {
    return log - (fast > slow ? fast : slow) < CANDIDATE_LIMIT;
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

/* The context of a decision on a candidate. */
ALWAYS_INLINE Context *sent_context(Model *model, int32_t log) {
    return &model->sent[trend_of(model->fast, model->slow)][level_of(log, model->slow)];
}

/* Update both estimates after a decision 1. */
ALWAYS_INLINE void update_after_one(Model *model, int32_t log) {
    model->fast = moved_log(model->fast, level_of(log, model->fast), FAST, true);
    model->slow = moved_log(model->slow, level_of(log, model->slow), SLOW, true);
}

/* Update the slow estimate after a listed coordinate, which is often only an outlier. */
ALWAYS_INLINE void update_after_listed(Model *model, uint32_t slot) {
    int32_t log = log_of_complement(slot_complement(model->dither, slot));
    model->slow = moved_log(model->slow, level_of(log, model->slow), SLOW, true);
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

#endif
