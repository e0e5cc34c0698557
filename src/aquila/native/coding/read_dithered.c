#include "dither_model.h"
#include "dithered.h"
#include "entries.h"

/* Read sign and magnitude of a sent coordinate. Nearly all magnitudes are 1. */
ALWAYS_INLINE Error decode_code(BinaryDecoder *decoder, Model *model, uint32_t *code) {
    uint32_t number = 0;
    bool negative = decode_even_bit(decoder);
    if (!decode_bit(decoder, &model->magnitudes.of_bit[0])) {
        BinaryDecoder rest = *decoder;
        TRY(decode_rest_of_number(&rest, &model->magnitudes, &number));
        *decoder = rest;
    }
    if (number > model->centre - negative) return CODE_TOO_WIDE;
    *code = negative ? model->centre - number - 1 : model->centre + number + 1;
    return NULL;
}

/* Decode the decisions on candidates of the loaded ranks from `rank` on. Afterwards `rank` is the
 * first one that is no candidate, or the first one after the loaded ranks.
 *
 * Most decisions are 0. That they are is a branch, which the processor predicts, so that the next
 * decision does not wait for the arithmetic of this one. Decoder and estimates stay in registers.
 */
SCALAR_CLONES static Error decode_candidates(BinaryDecoder *shared, Model *model,
                                             const Block *block, uint32_t *rank, Entries *sent) {
    const DitherTables *tables = &dither_tables;
    Context *contexts = &model->sent[0][0];
    BinaryDecoder decoder = *shared;
    int32_t fast = model->fast, slow = model->slow;
    uint32_t k = *rank - block->first_rank;
    for (; k < RANKS; k++) {
        int32_t log = block->logs[k];
        if (log < 0) continue;
        if (!is_candidate(log, fast, slow)) break;
        ZeroDecision zero = zero_decision(tables, contexts, log, fast, slow);
        uint32_t bound = (decoder.range >> 16) * probability_of_one(zero.context);
        if (decoder.value < bound) {
            uint32_t code;
            decode_bit(&decoder, zero.context);
            fast = moved_log(fast, level_of(log, fast), FAST, true);
            slow = moved_log(slow, level_of(log, slow), SLOW, true);
            TRY(decode_code(&decoder, model, &code));
            if (!append_entry(sent, block->first_rank + k, code)) return NO_MEMORY;
            continue;
        }
        update_after_zero(tables, &zero);
        fast = zero.fast;
        slow = zero.slow;
        decoder.range -= bound;
        decoder.value -= bound;
        for (; decoder.range < MIN_RANGE; decoder.range <<= 8)
            decoder.value = decoder.value << 8 | next_byte(&decoder);
    }
    *shared = decoder;
    model->fast = fast;
    model->slow = slow;
    *rank = block->first_rank + k;
    return NULL;
}

static Error decode_block(BinaryDecoder *decoder, Model *model, Block *block, Entries *sent) {
    Context *context = &model->listed[model->listed_before];
    uint32_t rank = 0, gap, code;
    model->listed_before = false;
    for (;; context = &model->listed[WITHIN]) {
        for (; rank < block->size; load_logs(block, model, rank)) {
            TRY(decode_candidates(decoder, model, block, &rank, sent));
            if (rank < block->first_rank + RANKS) break;
        }
        if (rank == block->size || !decode_bit(decoder, context)) return NULL;
        TRY(decode_number(decoder, &model->gaps, &gap));
        if (gap >= block->size - rank) return "dithered body lists a rank after the last one";
        rank += gap;
        TRY(decode_code(decoder, model, &code));
        if (!append_entry(sent, rank, code)) return NO_MEMORY;
        update_after_listed(model, (uint32_t)block->start + rank++);
        model->listed_before = true;
        if (rank - block->first_rank >= RANKS && rank < block->size) load_logs(block, model, rank);
    }
}

/* Append the sent coordinates of a block in the order of their positions. */
static Error append_block(SparseCodes *sparse, const Model *model, const Block *block,
                          Entries *sent) {
    for (size_t k = 0; k < sent->count; k++) {
        uint64_t position = position_of_rank(block, model, (uint32_t)(sent->at[k] >> 32));
        if (position >= model->count) return "dithered body sends a coordinate after the last one";
        sent->at[k] = position << 32 | (uint32_t)sent->at[k];
    }
    if (!sparse_reserve(sparse, sent->count)) return NO_MEMORY;
    bool many = sent->count > FEW_ENTRIES;
    if (many) sort_entries(sent);
    for (size_t k = 0; k < sent->count; k++) {
        size_t place = sparse->count + (many ? k : smaller_entries(sent, sent->at[k]));
        sparse->positions[place] = (int64_t)(sent->at[k] >> 32);
        set_code(sparse->codes, sparse->size, place, (uint32_t)sent->at[k]);
    }
    sparse->count += sent->count;
    sent->count = 0;
    return NULL;
}

static Error decode_blocks(BinaryDecoder *decoder, Model *model, Entries *sent,
                           SparseCodes *sparse) {
    Block block;
    size_t last = (model->count - 1) >> model->dither.block_bits;
    for (size_t number = 0; number <= last; number++) {
        start_block(&block, model, (uint32_t)number);
        TRY(decode_block(decoder, model, &block, sent));
        TRY(append_block(sparse, model, &block, sent));
    }
    return finish_decoder(decoder);
}

Error read_dithered(Cursor *in, SparseCodes *sparse, size_t count, uint32_t seed) {
    Model model;
    BinaryDecoder decoder;
    Entries sent = {NULL, 0, 0};
    const uint8_t *sparsity;
    TRY(read_bytes(in, 1, &sparsity));
    if (sparse->bits < 2) return "dithered body has codes of one bit";
    prepare_model(&model, seed, *sparsity, count, sparse->bits);
    TRY(start_decoder(&decoder, in));
    Error error = decode_blocks(&decoder, &model, &sent, sparse);
    free(sent.at);
    return error;
}
