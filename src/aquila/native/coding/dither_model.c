#include "dither_model.h"

#include "../dither.h"
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
 * 1/2, a vector with 200 sent coordinates takes 81 % more, one with 7,600 takes 3 % more. */
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

void prepare_model(Model *model, uint32_t seed, unsigned sparsity, unsigned bits) {
    model->seed = seed;
    model->mixed_seed = mix_bits(seed);
    model->products_of = BLOCK; /* no number of lower bits */
    model->centre = code_mask(bits) >> 1;
    model->initial = model->fast = model->slow = MAX_LOG - (int32_t)sparsity * (UNIT / 8);
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

/* Find the coordinates of a block with a complement up to the limit. */
CPU_CLONES static void scan_block(Block *block, uint32_t limit, uint32_t seed,
                                  uint32_t mixed_seed) {
    uint32_t start = (uint32_t)block->start, complements[BLOCK];
    uint8_t marks[BLOCK];
    size_t found = 0;
    for (uint32_t i = 0; i < BLOCK; i++) complements[i] = ~dither_word(seed, mixed_seed, start + i);
    for (uint32_t i = 0; i < BLOCK; i++) marks[i] = complements[i] <= limit;
    for (uint32_t i = 0; i < BLOCK; i++) {
        block->complements[found] = complements[i];
        found += marks[i];
    }
    for (uint32_t i = 0; i < BLOCK; i += 8) {
        uint8_t eight = gather_ones(load_eight(marks + i));
        memcpy((uint8_t *)block->marks + i / 8, &eight, 1);
    }
    block->candidates = found;
}

#ifdef AVX512
/* The last step of the hash leaves this many upper bits as they are. They decide which coordinates
 * are candidates, unless very few are. */
enum { KEPT_BITS = 15, MIN_FAST_LIMIT = 1 << (32 - KEPT_BITS) };

/* A block does not cross a multiple of 2^16. So the first step of the hash changes only a constant,
 * and the first product is a sum of two: one for the block, and one for the place in it. The second
 * one depends on the lower bits of the constant, which are the same for 64 blocks. */
static uint32_t block_product(Model *model, uint32_t start) {
    const uint32_t factor = UINT32_C(0x21f0aaad);
    uint32_t constant = model->mixed_seed ^ (start ^ model->mixed_seed) >> 16;
    uint32_t low = constant & (BLOCK - 1);
    if (model->products_of != low)
        for (uint32_t i = 0; i < BLOCK; i++) model->products[i] = (i ^ low) * factor;
    model->products_of = low;
    return ((start ^ constant) & ~(uint32_t)(BLOCK - 1)) * factor;
}

/* The same, 16 coordinates at a time, in a third of the time. */
AVX512 static void scan_block_avx512(Block *block, uint32_t limit, Model *model) {
    __m512i first_factor = _mm512_set1_epi32((int32_t)UINT32_C(0x21f0aaad));
    __m512i second_factor = _mm512_set1_epi32((int32_t)UINT32_C(0xd35a2d97));
    __m512i seeds = _mm512_set1_epi32((int32_t)model->seed), ones = _mm512_set1_epi32(-1);
    __m512i product = _mm512_set1_epi32((int32_t)block_product(model, (uint32_t)block->start));
    __m512i lowest = _mm512_set1_epi32((int32_t)~limit);
    size_t found = 0;
    for (uint32_t i = 0; i < BLOCK; i += 16) {
        __m512i x = _mm512_add_epi32(_mm512_loadu_si512(model->products + i), product);
        x = _mm512_xor_si512(x, _mm512_srli_epi32(x, 15));
        x = _mm512_mullo_epi32(x, second_factor);
        x = _mm512_xor_si512(x, _mm512_srli_epi32(x, 15));
        x = _mm512_add_epi32(x, seeds);
        x = _mm512_xor_si512(x, _mm512_srli_epi32(x, 16));
        x = _mm512_mullo_epi32(x, first_factor);
        x = _mm512_xor_si512(x, _mm512_srli_epi32(x, 15));
        x = _mm512_mullo_epi32(x, second_factor);
        uint16_t marks = _mm512_cmpge_epu32_mask(x, lowest);
        _mm512_storeu_si512(block->complements + found, _mm512_maskz_compress_epi32(marks, x));
        memcpy((uint8_t *)block->marks + i / 8, &marks, 2);
        found += one_bits_in(marks);
    }
    for (size_t k = 0; k < found; k += 16) {
        __m512i x = _mm512_loadu_si512(block->complements + k);
        x = _mm512_ternarylogic_epi32(x, _mm512_srli_epi32(x, KEPT_BITS), ones, 0xc3);
        _mm512_storeu_si512(block->complements + k, x);
    }
    block->candidates = found;
}
#endif

/* Drop candidates after the end of the vector. */
static void drop_candidates_from(Block *block, size_t count) {
    block->candidates = 0;
    for (size_t word = 0; word < BLOCK_WORDS; word++) {
        uint64_t kept = word < count / 64 ? UINT64_MAX : (UINT64_C(1) << count % 64) - 1;
        block->marks[word] &= word > count / 64 ? 0 : kept;
        block->candidates += one_bits_in(block->marks[word]);
    }
}

static int32_t max_log(int32_t a, int32_t b) { return a > b ? a : b; }

void find_candidates(Model *model, Block *block, size_t start, size_t total) {
    int32_t largest = max_log(model->initial, max_log(model->fast, model->slow));
    unsigned octave = (unsigned)(largest / UNIT) + CANDIDATE_OCTAVES;
    block->start = start;
    block->count = total - start < BLOCK ? total - start : BLOCK;
    uint32_t limit = octave < 32 ? (UINT32_C(1) << octave) - 1 : UINT32_MAX;
#ifdef AVX512
    if (cpu_has_avx512() && limit >= MIN_FAST_LIMIT - 1)
        scan_block_avx512(block, limit, model);
    else
#endif
        scan_block(block, limit, model->seed, model->mixed_seed);
    if (block->count < BLOCK) drop_candidates_from(block, block->count);
}

CPU_CLONES static void logs_of(int32_t *restrict logs, const uint32_t *restrict complements,
                               size_t count) {
    for (size_t k = 0; k < count; k++) logs[k] = log_of_complement(complements[k]);
}

void logs_of_candidates(int32_t *logs, const Block *block) {
    logs_of(logs, block->complements, block->candidates);
}
