#include "dither_model.h"

#include "dithered.h"

const uint32_t dither_rise[LEVELS] = {
    5909,   8357,   11819,  16714,  23637,  33428,  47274,  66856,  94548,  133712, 189097,
    267423, 283645, 283645, 283645, 283645, 283645, 283645, 283645, 283645, 283645,
};
const uint32_t dither_fall[LEVELS] = {
    91625, 90432, 88762, 86438, 83222, 78817, 72873, 65028, 55025, 42949, 29597,
    16799, 7056,  1875,  254,   13,    0,     0,     0,     0,     0,
};
/* Initial probability of being sent, in units of 1/4096; it counts as INITIAL_SEEN decisions. With
 * 1/2, all streams of benchmarks/coder_modes.py take 0.6 % more. */
static const uint16_t initial_probability[LEVELS] = {
    3848, 3750, 3615, 3432, 3190, 2876, 2484, 2020, 1507, 996, 554,
    242,  75,   14,   1,    1,    1,    1,    1,    1,    1,
};
enum { INITIAL_SEEN = 12, RARE = 1 << (PROBABILITY_BITS - 8), EVEN = 1 << (PROBABILITY_BITS - 1) };

DitherTables dither_tables;

void prepare_dithered(void) {
    DitherTables *tables = &dither_tables;
    for (int32_t k = 0; k < DIFFERENCES; k++) {
        unsigned level = level_of((k - MAX_DIFFERENCE) * (UNIT / 2), 0);
        tables->zero[k].level = (uint8_t)level;
        tables->zero[k].slow_fall = (int16_t)(dither_fall[level] >> SLOW);
        tables->zero[k].fast_fall = (int32_t)(dither_fall[level] >> FAST);
    }
    for (int32_t k = 0; k < TREND_OFFSETS; k++)
        tables->trend_offsets[k] = (uint8_t)(LEVELS * trend_of((k - MAX_TREND) * (1 << 17), 0));
    memcpy(tables->reciprocals, context_reciprocals, sizeof context_reciprocals);
}

void prepare_model(Model *model, uint32_t seed, unsigned sparsity, size_t count, unsigned bits) {
    model->dither = dither_of_seed(seed, count);
    model->count = count;
    model->centre = code_mask(bits) >> 1;
    model->fast = model->slow = MAX_LOG - (int32_t)sparsity * (UNIT / 8);
    for (unsigned level = 0; level < LEVELS; level++)
        for (unsigned trend = 0; trend < TRENDS; trend++)
            model->sent[trend][level] = (Context){
                (uint32_t)initial_probability[level] << (PROBABILITY_BITS - 12), INITIAL_SEEN};
    model->listed[0] = (Context){RARE, INITIAL_SEEN};
    model->listed[1] = model->listed[WITHIN] = (Context){EVEN, 0};
    model->listed_before = false;
    reset_number_contexts(&model->gaps);
    reset_number_contexts(&model->magnitudes);
}

CPU_CLONES static void logs_of_slots(int32_t *restrict logs, Dither dither, uint32_t first) {
    for (uint32_t k = 0; k < RANKS; k++)
        logs[k] = log_of_complement(slot_complement(dither, first + k));
}

/* Mark the ranks whose coordinates lie after the end of the vector. */
static void mark_missing(Block *block, const Model *model) {
    for (uint32_t k = 0; k < RANKS; k++)
        if (position_of_rank(block, model, block->first_rank + k) >= model->count)
            block->logs[k] = -1;
}

void load_logs(Block *block, const Model *model, uint32_t rank) {
    block->first_rank = rank - rank % RANKS;
    logs_of_slots(block->logs, model->dither, (uint32_t)block->start + block->first_rank);
    if (block->start + block->size > model->count) mark_missing(block, model);
}

CPU_CLONES static void make_keys(BlockKeys *restrict keys, Dither dither, uint32_t number) {
    *keys = block_keys(dither, number);
}

void start_block(Block *block, const Model *model, uint32_t number) {
    block->start = (size_t)number << model->dither.block_bits;
    block->size = UINT32_C(1) << model->dither.block_bits;
    make_keys(&block->keys, model->dither, number);
    load_logs(block, model, 0);
}
