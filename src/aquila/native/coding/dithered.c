#include "dithered.h"

#include "dither_model.h"
#include "table.h"

/* Positions of sent coordinates, increasing. */
typedef struct {
    int64_t *at;
    size_t count, next;
} Positions;

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
        if (is_candidate(block, position - block->start)) continue;
        encode_bit(encoder, context, true);
        encode_number(encoder, &model->gaps, (uint32_t)(position - next));
        encode_sent(encoder, model, get_code(source->codes, source->size, position));
        next = position + 1;
        model->listed_before = true;
        context = &model->listed[WITHIN];
    }
    encode_bit(encoder, context, false);
}

/* Encode decisions 0 on the candidates from `k` to before `end`. Encoder and estimates stay in
 * registers. `low` has 64 bits: the compiler would keep two numbers of 32 bits in one vector, whose
 * arithmetic takes twice as long. */
SCALAR_CLONES static void encode_zeros(BinaryEncoder *encoder, Model *model, const int32_t *logs,
                                       size_t k, size_t end) {
    const DitherTables *tables = &dither_tables;
    Context *contexts = &model->sent[0][0];
    uint64_t low = encoder->low;
    uint32_t range = encoder->range;
    int32_t fast = model->fast, slow = model->slow;
    for (; k < end; k++) {
        ZeroDecision zero = zero_decision(tables, contexts, logs[k], fast, slow);
        uint32_t bound = (range >> 16) * probability_of_one(zero.context);
        update_after_zero(tables, &zero);
        fast = zero.fast;
        slow = zero.slow;
        range -= bound;
        low += bound;
        if (low >> 32) propagate_carry(encoder);
        low = (uint32_t)low;
        if (range < MIN_RANGE) {
            encoder->range = range;
            encoder->low = (uint32_t)low;
            shift_out_bytes(encoder);
            range = encoder->range;
            low = encoder->low;
        }
    }
    encoder->range = range;
    encoder->low = (uint32_t)low;
    model->fast = fast;
    model->slow = slow;
}

static void encode_candidates(BinaryEncoder *encoder, Model *model, const Source *source,
                              const Block *block, Positions *sent) {
    int32_t logs[BLOCK];
    size_t k = 0, before = 0, word = 0; /* candidates before a word of marks */
    logs_of_candidates(logs, block);
    for (; sent->next < sent->count; sent->next++) {
        size_t i = (size_t)sent->at[sent->next] - block->start;
        if (i >= block->count) break;
        if (!is_candidate(block, i)) continue;
        for (; word < i / 64; word++) before += one_bits_in(block->marks[word]);
        size_t number = before + one_bits_in(block->marks[word] & ((UINT64_C(1) << i % 64) - 1));
        encode_zeros(encoder, model, logs, k, number);
        int32_t log = logs[number];
        unsigned level = level_of(log, model->slow), trend = trend_of(model->fast, model->slow);
        encode_bit(encoder, &model->sent[trend][level], true);
        model->fast = moved_log(model->fast, level_of(log, model->fast), FAST, true);
        model->slow = moved_log(model->slow, level, SLOW, true);
        encode_sent(encoder, model, get_code(source->codes, source->size, block->start + i));
        k = number + 1;
    }
    encode_zeros(encoder, model, logs, k, block->candidates);
}

#define MARK_SENT(size)                                                                            \
    for (size_t i = 0; i < count; i++) marks[i] = get_code(codes, size, start + i) != centre

/* Mark the sent coordinates of a block with 1, the others with 0. */
CPU_CLONES static void mark_sent(const Source *source, uint32_t centre, size_t start, size_t count,
                                 uint8_t *restrict marks) {
    const void *codes = source->codes;
    BY_SIZE(source->size, MARK_SENT)
}

/* Store the positions of the sent coordinates; false if there is not enough memory. */
static bool find_sent(const Source *source, uint32_t centre, Positions *sent) {
    size_t room = 0;
    for (size_t start = 0; start < source->count; start += BLOCK) {
        uint8_t marks[BLOCK];
        size_t count = source->count - start < BLOCK ? source->count - start : BLOCK;
        mark_sent(source, centre, start, count, marks);
        memset(marks + count, 0, BLOCK - count);
        if (room < sent->count + BLOCK) {
            room = 2 * room + BLOCK;
            int64_t *at = realloc(sent->at, room * sizeof *at);
            if (!at) return false;
            sent->at = at;
        }
        for (size_t i = 0; i < BLOCK; i += 8)
            for (uint64_t eight = load_eight(marks + i); eight; eight &= eight - 1)
                sent->at[sent->count++] = (int64_t)(start + i + trailing_zeros(eight) / 8);
    }
    return true;
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
        encode_candidates(encoder, model, source, &block, sent);
    }
}

static bool encode_positions(Bytes *out, const Source *source, uint32_t centre, Positions *sent) {
    Model model;
    BinaryEncoder encoder;
    if (!find_sent(source, centre, sent)) return false;
    unsigned sparsity = sparsity_of(source->count, sent->count);
    prepare_model(&model, source->seed, sparsity, source->bits);
    if (!write_byte(out, (uint8_t)sparsity)) return false;
    start_encoder(&encoder, out);
    encode_blocks(&encoder, &model, source, sent);
    return finish_encoder(&encoder);
}

bool write_dithered(Bytes *out, Source *source) {
    Positions sent = {NULL, 0, 0};
    bool written = encode_positions(out, source, code_mask(source->bits) >> 1, &sent);
    free(sent.at);
    return written;
}
