#include "dither_model.h"
#include "dithered.h"
#include "entries.h"

/* Read sign and magnitude of the sent coordinate with this rank. */
static Error decode_sent(BinaryDecoder *decoder, Model *model, const Block *block, uint32_t rank,
                         Entries *sent) {
    uint32_t number;
    size_t position = position_of_rank(block, model, rank);
    bool negative = decode_even_bit(decoder);
    TRY(decode_number(decoder, &model->magnitudes, &number));
    if (number > model->centre - negative) return CODE_TOO_WIDE;
    if (position >= model->count) return "dithered body sends a coordinate after the last one";
    uint32_t code = negative ? model->centre - number - 1 : model->centre + number + 1;
    return append_entry(sent, position, code) ? NULL : NO_MEMORY;
}

/* Decode the decisions on candidates from number `k` of the loaded ranks on. Returns the number of
 * the first one that is sent or no candidate, or RANKS.
 *
 * Most decisions are 0. That they are is a branch, which the processor predicts, so that the next
 * decision does not wait for the arithmetic of this one. Decoder and estimates stay in registers.
 */
SCALAR_CLONES static uint32_t skip_zeros(BinaryDecoder *decoder, Model *model, const int32_t *logs,
                                         uint32_t k) {
    const DitherTables *tables = &dither_tables;
    Context *contexts = &model->sent[0][0];
    uint32_t range = decoder->range, value = decoder->value;
    int32_t fast = model->fast, slow = model->slow;
    for (; k < RANKS; k++) {
        if (logs[k] < 0) continue;
        if (!is_candidate(logs[k], fast, slow)) break;
        ZeroDecision zero = zero_decision(tables, contexts, logs[k], fast, slow);
        uint32_t bound = (range >> 16) * probability_of_one(zero.context);
        if (value < bound) break;
        update_after_zero(tables, &zero);
        fast = zero.fast;
        slow = zero.slow;
        range -= bound;
        value -= bound;
        for (; range < MIN_RANGE; range <<= 8) value = value << 8 | next_byte(decoder);
    }
    decoder->range = range;
    decoder->value = value;
    model->fast = fast;
    model->slow = slow;
    return k;
}

/* Decode the decisions on candidates from a rank on. Afterwards `rank` is the first one that is no
 * candidate, or the size of the block. */
static Error decode_candidates(BinaryDecoder *decoder, Model *model, Block *block, uint32_t *rank,
                               Entries *sent) {
    while (*rank < block->size) {
        if (*rank - block->first_rank >= RANKS) load_logs(block, model, *rank);
        uint32_t k = skip_zeros(decoder, model, block->logs, *rank - block->first_rank);
        *rank = block->first_rank + k;
        if (k == RANKS) continue;
        int32_t log = block->logs[k];
        if (!is_candidate(log, model->fast, model->slow)) break;
        decode_bit(decoder, sent_context(model, log));
        update_after_one(model, log);
        TRY(decode_sent(decoder, model, block, (*rank)++, sent));
    }
    return NULL;
}

static Error decode_block(BinaryDecoder *decoder, Model *model, Block *block, Entries *sent) {
    Context *context = &model->listed[model->listed_before];
    uint32_t rank = 0, gap;
    model->listed_before = false;
    for (;; context = &model->listed[WITHIN]) {
        TRY(decode_candidates(decoder, model, block, &rank, sent));
        if (rank == block->size || !decode_bit(decoder, context)) return NULL;
        TRY(decode_number(decoder, &model->gaps, &gap));
        if (gap >= block->size - rank) return "dithered body lists a rank after the last one";
        rank += gap;
        TRY(decode_sent(decoder, model, block, rank, sent));
        update_after_listed(model, (uint32_t)block->start + rank++);
        model->listed_before = true;
    }
}

/* Append the sent coordinates of a block in the order of their positions. */
static bool append_block(SparseCodes *sparse, Entries *sent) {
    if (!sparse_reserve(sparse, sent->count)) return false;
    sort_entries(sent);
    for (size_t k = 0; k < sent->count; k++)
        sparse_append(sparse, sent->at[k] >> 32, (uint32_t)sent->at[k]);
    sent->count = 0;
    return true;
}

static Error decode_blocks(BinaryDecoder *decoder, Model *model, Entries *sent,
                           SparseCodes *sparse) {
    Block block;
    size_t last = (model->count - 1) >> model->dither.block_bits;
    for (size_t number = 0; number <= last; number++) {
        start_block(&block, model, (uint32_t)number);
        TRY(decode_block(decoder, model, &block, sent));
        if (!append_block(sparse, sent)) return NO_MEMORY;
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
