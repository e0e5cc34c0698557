#include "dithered.h"

#include "../dither.h"
#include "binary_coder.h"
#include "table.h"

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

static const uint32_t rise[LEVELS] = {
    5909,   8357,   11819,  16714,  23637,  33428,  47274,  66856,  94548,  133712, 189097,
    267423, 283645, 283645, 283645, 283645, 283645, 283645, 283645, 283645, 283645,
};
static const uint32_t fall[LEVELS] = {
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
/* log2(1 + m/16) in units of 1/16, at the middle of each interval. */
static const uint8_t log_of_mantissa[16] = {1, 2, 3, 5, 6, 7, 8, 9, 10, 11, 12, 13, 13, 14, 15, 16};

typedef struct {
    uint32_t seed, mixed_seed;
    uint32_t centre; /* the code of zero */
    int32_t initial, fast, slow;
    Context sent[TRENDS][LEVELS];
    Context listed[3]; /* after a block without and with listed coordinates, and within a block */
    bool listed_before;
    NumberContexts gaps, magnitudes;
} Model;

typedef struct {
    Context *context;
    unsigned fast_level, slow_level;
} Prediction;

/* The part of a vector that is processed at a time. */
typedef struct {
    size_t start, count, candidates;
    uint32_t limit; /* largest complement of a candidate */
    uint32_t complements[BLOCK], candidate[BLOCK];
} Block;

/* `sparsity` is -log2 of the mean size in steps, in units of 1/8. */
static void prepare_model(Model *model, uint32_t seed, unsigned sparsity, unsigned bits) {
    model->seed = seed;
    model->mixed_seed = mix_bits(seed);
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

static int32_t max_log(int32_t a, int32_t b) { return a > b ? a : b; }

/* Find the candidates of a block, given the estimates at its start. */
CPU_CLONES static void find_candidates(const Model *model, Block *block, size_t start,
                                       size_t total) {
    uint32_t seed = model->seed, mixed_seed = model->mixed_seed, *complements = block->complements;
    int32_t largest = max_log(model->initial, max_log(model->fast, model->slow));
    unsigned octave = (unsigned)(largest / UNIT) + CANDIDATE_OCTAVES;
    uint32_t limit = octave < 32 ? (UINT32_C(1) << octave) - 1 : UINT32_MAX;
    size_t count = total - start < BLOCK ? total - start : BLOCK, found = 0;
    for (uint32_t i = 0; i < BLOCK; i++)
        complements[i] = ~dither_word(seed, mixed_seed, (uint32_t)start + i);
    for (uint32_t i = 0; i < count; i++) {
        block->candidate[found] = i;
        found += complements[i] <= limit;
    }
    block->start = start;
    block->count = count;
    block->candidates = found;
    block->limit = limit;
}

static unsigned level_of(int32_t log, int32_t mean) {
    int32_t level = (log - mean + ZERO_LEVEL * (UNIT / 2) + UNIT / 4) >> 15;
    return level < 0 ? 0 : level < LEVELS ? (unsigned)level : LEVELS - 1;
}

static Prediction predict(Model *model, uint32_t complement) {
    complement |= complement == 0;
    unsigned zeros = leading_zeros(complement);
    uint32_t mantissa = complement << zeros >> 27 & 15;
    int32_t log = (int32_t)(31 - zeros) * UNIT + log_of_mantissa[mantissa] * (UNIT / 16);
    int32_t trend = (model->fast - model->slow + 3 * UNIT) >> 17;
    trend = trend < 0 ? 0 : trend < TRENDS ? trend : TRENDS - 1;
    unsigned slow_level = level_of(log, model->slow);
    return (Prediction){&model->sent[trend][slow_level], level_of(log, model->fast), slow_level};
}

static int32_t moved_log(int32_t log, unsigned level, unsigned shift, bool sent) {
    log += sent ? (int32_t)(rise[level] >> shift) : -(int32_t)(fall[level] >> shift);
    return log < 0 ? 0 : log < MAX_LOG ? log : MAX_LOG;
}

static void update_estimates(Model *model, Prediction prediction, bool sent) {
    model->fast = moved_log(model->fast, prediction.fast_level, FAST, sent);
    model->slow = moved_log(model->slow, prediction.slow_level, SLOW, sent);
}

/* The code is not zero, unless another thread changes the codes at the same time. */
static void encode_sent(BinaryEncoder *encoder, Model *model, uint32_t code) {
    bool negative = code < model->centre;
    encoder->failed |= code == model->centre;
    if (encoder->failed) return;
    encode_even_bit(encoder, negative);
    encode_number(encoder, &model->magnitudes,
                  (negative ? model->centre - code : code - model->centre) - 1);
}

static void encode_listed(BinaryEncoder *encoder, Model *model, const Source *source,
                          const Block *block, const Positions *sent) {
    Context *context = &model->listed[model->listed_before];
    size_t next = block->start;
    model->listed_before = false;
    for (size_t k = sent->next; k < sent->count; k++) {
        size_t position = (size_t)sent->at[k];
        if (position >= block->start + block->count) break;
        if (block->complements[position - block->start] <= block->limit) continue;
        encode_bit(encoder, context, true);
        encode_number(encoder, &model->gaps, (uint32_t)(position - next));
        encode_sent(encoder, model, get_code(source->codes, source->size, position));
        next = position + 1;
        model->listed_before = true;
        context = &model->listed[WITHIN];
    }
    encode_bit(encoder, context, false);
}

static void encode_candidates(BinaryEncoder *encoder, Model *model, const Source *source,
                              const Block *block) {
    for (size_t k = 0; k < block->candidates; k++) {
        uint32_t i = block->candidate[k];
        uint32_t code = get_code(source->codes, source->size, block->start + i);
        Prediction prediction = predict(model, block->complements[i]);
        bool sent = code != model->centre;
        encode_bit(encoder, prediction.context, sent);
        update_estimates(model, prediction, sent);
        if (sent) encode_sent(encoder, model, code);
    }
}

#define COUNT_SENT(size)                                                                           \
    for (size_t i = 0; i < count; i++) sent += get_code(codes, size, i) != centre

CPU_CLONES static size_t count_sent(const Source *source, uint32_t centre) {
    const void *codes = source->codes;
    size_t count = source->count, sent = 0;
    BY_SIZE(source->size, COUNT_SENT)
    return sent;
}

/* Store the positions of the sent coordinates; there is room for `room` of them. Eight narrow codes
 * are skipped at a time, which takes two fifths off the time of packing 11 million. */
static void find_sent(const Source *source, uint32_t centre, Positions *sent, size_t room) {
    bool narrow = source->size == 1;
    for (size_t i = 0; sent->count < room && i < source->count; i++) {
        if (narrow)
            while (i + 8 < source->count &&
                   load_eight((const uint8_t *)source->codes + i) == centre * EACH)
                i += 8;
        if (get_code(source->codes, source->size, i) != centre)
            sent->at[sent->count++] = (int64_t)i;
    }
}

/* 8 log2(count / sent), rounded down, as one byte. */
static unsigned sparsity_of(size_t count, size_t sent) {
    if (!sent) return UINT8_MAX;
    uint64_t log = log2_fixed((uint32_t)count) - log2_fixed((uint32_t)sent);
    return log >> (LOG_FRACTION_BITS - 3) < UINT8_MAX ? (unsigned)(log >> (LOG_FRACTION_BITS - 3))
                                                      : UINT8_MAX;
}

static void encode_blocks(BinaryEncoder *encoder, Model *model, const Source *source,
                          Positions *sent) {
    Block block;
    for (size_t start = 0; start < source->count; start += BLOCK) {
        find_candidates(model, &block, start, source->count);
        encode_listed(encoder, model, source, &block, sent);
        encode_candidates(encoder, model, source, &block);
        while (sent->next < sent->count && (size_t)sent->at[sent->next] < start + BLOCK)
            sent->next++;
    }
}

bool write_dithered(Bytes *out, Source *source) {
    Model model;
    BinaryEncoder encoder;
    uint32_t centre = code_mask(source->bits) >> 1;
    size_t room = count_sent(source, centre);
    unsigned sparsity = sparsity_of(source->count, room);
    Positions sent = {malloc((room + 1) * sizeof *sent.at), 0, 0, 0};
    if (!sent.at) return false;
    find_sent(source, centre, &sent, room);
    prepare_model(&model, source->seed, sparsity, source->bits);
    bool started = write_byte(out, (uint8_t)sparsity);
    if (started) {
        start_encoder(&encoder, out);
        encode_blocks(&encoder, &model, source, &sent);
    }
    free(sent.at);
    return started && finish_encoder(&encoder);
}

static bool add_position(Positions *sent, size_t position) {
    if (sent->count == sent->room) {
        size_t room = 2 * sent->room + 64;
        int64_t *at = realloc(sent->at, room * sizeof *at);
        if (!at) return false;
        sent->at = at;
        sent->room = room;
    }
    sent->at[sent->count++] = (int64_t)position;
    return true;
}

static Error decode_sent(BinaryDecoder *decoder, Model *model, const Target *target, size_t i,
                         Positions *sent) {
    uint32_t number;
    bool negative = decode_even_bit(decoder);
    TRY(decode_number(decoder, &model->magnitudes, &number));
    if (number > model->centre - negative) return CODE_TOO_WIDE;
    uint32_t code = negative ? model->centre - number - 1 : model->centre + number + 1;
    set_code(target->codes, target->size, i, code);
    return add_position(sent, i) ? NULL : NO_MEMORY;
}

static Error decode_listed(BinaryDecoder *decoder, Model *model, const Target *target,
                           const Block *block, Positions *sent) {
    Context *context = &model->listed[model->listed_before];
    uint64_t next = 0;
    model->listed_before = false;
    for (; decode_bit(decoder, context); context = &model->listed[WITHIN]) {
        uint32_t gap;
        TRY(decode_number(decoder, &model->gaps, &gap));
        uint64_t i = next + gap;
        if (i >= block->count) return "dithered body lists a coordinate after the end of its block";
        if (block->complements[i] <= block->limit)
            return "dithered body lists a coordinate that has a decision of its own";
        TRY(decode_sent(decoder, model, target, block->start + i, sent));
        next = i + 1;
        model->listed_before = true;
    }
    return NULL;
}

static int compare_positions(const void *a, const void *b) {
    int64_t left = *(const int64_t *)a, right = *(const int64_t *)b;
    return (left > right) - (left < right);
}

static Error decode_candidates(BinaryDecoder *decoder, Model *model, const Target *target,
                               const Block *block, Positions *sent) {
    for (size_t k = 0; k < block->candidates; k++) {
        uint32_t i = block->candidate[k];
        Prediction prediction = predict(model, block->complements[i]);
        bool is_sent = decode_bit(decoder, prediction.context);
        update_estimates(model, prediction, is_sent);
        if (is_sent) TRY(decode_sent(decoder, model, target, block->start + i, sent));
    }
    return NULL;
}

Error read_dithered(Cursor *in, const Target *target, Positions *sent) {
    Model model;
    BinaryDecoder decoder;
    Block block;
    const uint8_t *sparsity;
    TRY(read_bytes(in, 1, &sparsity));
    if (target->bits < 2) return "dithered body has codes of one bit";
    prepare_model(&model, target->seed, *sparsity, target->bits);
    fill_codes(target, model.centre);
    TRY(start_decoder(&decoder, in));
    for (size_t start = 0; start < target->count; start += BLOCK) {
        size_t before = sent->count;
        find_candidates(&model, &block, start, target->count);
        TRY(decode_listed(&decoder, &model, target, &block, sent));
        TRY(decode_candidates(&decoder, &model, target, &block, sent));
        if (model.listed_before)
            qsort(sent->at + before, sent->count - before, sizeof *sent->at, compare_positions);
    }
    return finish_decoder(&decoder);
}
