#include "dithered.h"

#include "dither_model.h"
#include "entries.h"
#include "table.h"

/* Codes that are searched at a time. */
enum { SEARCHED = 1024 };

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

/* Encode decisions 0 on the candidates before a rank. Returns it, or the first rank that is no
 * candidate. Encoder and estimates stay in registers. `low` has 64 bits: the compiler would keep
 * two numbers of 32 bits in one vector, whose arithmetic takes twice as long. */
SCALAR_CLONES static uint32_t encode_zeros(BinaryEncoder *encoder, Model *model, Block *block,
                                           uint32_t rank, uint32_t end) {
    const DitherTables *tables = &dither_tables;
    Context *contexts = &model->sent[0][0];
    uint64_t low = encoder->low;
    uint32_t range = encoder->range;
    int32_t fast = model->fast, slow = model->slow;
    for (; rank < end; rank++) {
        if (rank - block->first_rank >= RANKS) load_logs(block, model, rank);
        int32_t log = block->logs[rank - block->first_rank];
        if (log < 0) continue;
        if (!is_candidate(log, fast, slow)) break;
        ZeroDecision zero = zero_decision(tables, contexts, log, fast, slow);
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
    return rank;
}

/* Encode that a candidate is sent; false if the rank is no candidate. */
static bool encode_candidate(BinaryEncoder *encoder, Model *model, Block *block, uint32_t rank) {
    if (rank - block->first_rank >= RANKS) load_logs(block, model, rank);
    int32_t log = block->logs[rank - block->first_rank];
    if (!is_candidate(log, model->fast, model->slow)) return false;
    encode_bit(encoder, sent_context(model, log), true);
    update_after_one(model, log);
    return true;
}

/* Encode a block whose sent ranks increase. */
static void encode_block(BinaryEncoder *encoder, Model *model, const Source *source, Block *block,
                         const Entries *sent) {
    Context *context = &model->listed[model->listed_before];
    uint32_t rank = 0;
    model->listed_before = false;
    for (size_t k = 0; k < sent->count; k++) {
        uint32_t code = get_code(source->codes, source->size, block->start + (uint32_t)sent->at[k]);
        uint32_t at = (uint32_t)(sent->at[k] >> 32);
        rank = encode_zeros(encoder, model, block, rank, at);
        if (rank == at && encode_candidate(encoder, model, block, at)) {
            encode_sent(encoder, model, code);
        } else {
            encode_bit(encoder, context, true);
            encode_number(encoder, &model->gaps, at - rank);
            encode_sent(encoder, model, code);
            update_after_listed(model, (uint32_t)block->start + at);
            context = &model->listed[WITHIN];
            model->listed_before = true;
        }
        rank = at + 1;
    }
    rank = encode_zeros(encoder, model, block, rank, block->size);
    if (rank < block->size) encode_bit(encoder, context, false);
}

#define MARK_SENT(size)                                                                            \
    for (size_t i = 0; i < count; i++) marks[i] = get_code(codes, size, start + i) != centre

/* Mark the sent coordinates among `count` codes with 1, the others with 0. */
CPU_CLONES static void mark_sent(const Source *source, uint32_t centre, size_t start, size_t count,
                                 uint8_t *restrict marks) {
    const void *codes = source->codes;
    BY_SIZE(source->size, MARK_SENT)
}

/* Store the positions of the sent coordinates; false if there is not enough memory. */
static bool find_sent(const Source *source, uint32_t centre, Positions *sent) {
    size_t room = 0;
    for (size_t start = 0; start < source->count; start += SEARCHED) {
        uint8_t marks[SEARCHED];
        size_t count = source->count - start < SEARCHED ? source->count - start : SEARCHED;
        mark_sent(source, centre, start, count, marks);
        memset(marks + count, 0, SEARCHED - count);
        if (room < sent->count + SEARCHED) {
            room = 2 * room + SEARCHED;
            int64_t *at = realloc(sent->at, room * sizeof *at);
            if (!at) return false;
            sent->at = at;
        }
        for (size_t i = 0; i < SEARCHED; i += 8)
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

/* Store the sent coordinates of a block in the order of their ranks, as places in it. */
static bool rank_sent(Entries *ranked, const Model *model, const Block *block, Positions *sent) {
    BlockKeys keys = block->keys;
    ranked->count = 0;
    if (sent->next == sent->count) return true;
    invert_keys(&keys);
    for (; sent->next < sent->count; sent->next++) {
        size_t place = (size_t)sent->at[sent->next] - block->start;
        if (place >= block->size) break;
        uint32_t rank = rank_of_place(&keys, model->dither.block_bits, (uint32_t)place);
        if (!append_entry(ranked, rank, (uint32_t)place)) return false;
    }
    sort_entries(ranked);
    return true;
}

static bool encode_blocks(BinaryEncoder *encoder, Model *model, const Source *source,
                          Positions *sent) {
    Block block;
    Entries ranked = {NULL, 0, 0};
    bool stored = true;
    size_t last = (source->count - 1) >> model->dither.block_bits;
    for (size_t number = 0; number <= last && stored; number++) {
        start_block(&block, model, (uint32_t)number);
        stored = rank_sent(&ranked, model, &block, sent);
        if (stored) encode_block(encoder, model, source, &block, &ranked);
    }
    free(ranked.at);
    return stored;
}

static bool encode_positions(Bytes *out, const Source *source, uint32_t centre, Positions *sent) {
    Model model;
    BinaryEncoder encoder;
    if (!find_sent(source, centre, sent)) return false;
    unsigned sparsity = sparsity_of(source->count, sent->count);
    prepare_model(&model, source->seed, sparsity, source->count, source->bits);
    if (!write_byte(out, (uint8_t)sparsity)) return false;
    start_encoder(&encoder, out);
    return encode_blocks(&encoder, &model, source, sent) && finish_encoder(&encoder);
}

bool write_dithered(Bytes *out, Source *source) {
    Positions sent = {NULL, 0, 0};
    bool written = encode_positions(out, source, code_mask(source->bits) >> 1, &sent);
    free(sent.at);
    return written;
}
