#include "dither_model.h"
#include "dithered.h"

/* Read sign and magnitude of a sent coordinate. */
static Error decode_sent(BinaryDecoder *decoder, Model *model, size_t i, SparseCodes *sent) {
    uint32_t number;
    bool negative = decode_even_bit(decoder);
    TRY(decode_number(decoder, &model->magnitudes, &number));
    if (number > model->centre - negative) return CODE_TOO_WIDE;
    sparse_append(sent, i, negative ? model->centre - number - 1 : model->centre + number + 1);
    return NULL;
}

static Error decode_listed(BinaryDecoder *decoder, Model *model, const Block *block,
                           SparseCodes *sent) {
    Context *context = &model->listed[model->listed_before];
    uint64_t next = 0;
    model->listed_before = false;
    for (; decode_bit(decoder, context); context = &model->listed[WITHIN]) {
        uint32_t gap;
        TRY(decode_number(decoder, &model->gaps, &gap));
        uint64_t i = next + gap;
        if (i >= block->count) return "dithered body lists a coordinate after the end of its block";
        if (is_candidate(block, i))
            return "dithered body lists a coordinate that has a decision of its own";
        TRY(decode_sent(decoder, model, block->start + i, sent));
        next = i + 1;
        model->listed_before = true;
    }
    return NULL;
}

/* Decode the decisions on candidates from `k` on until one is sent. Returns its number, or the
 * number of candidates.
 *
 * Most decisions are 0. That they are is a branch, which the processor predicts, so that the next
 * decision does not wait for the arithmetic of this one. Decoder and estimates stay in registers.
 */
SCALAR_CLONES static size_t next_sent(BinaryDecoder *decoder, Model *model, const int32_t *logs,
                                      size_t k, size_t candidates) {
    const DitherTables *tables = &dither_tables;
    Context *contexts = &model->sent[0][0];
    uint32_t range = decoder->range, value = decoder->value;
    int32_t fast = model->fast, slow = model->slow;
    for (; k < candidates; k++) {
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

/* Index of the one bit with this number among 64; it exists. */
static unsigned find_one(uint64_t word, size_t number) {
    for (; number; number--) word &= word - 1;
    return trailing_zeros(word);
}

SCALAR_CLONES static Error decode_candidates(BinaryDecoder *decoder, Model *model,
                                             const Block *block, SparseCodes *sent) {
    int32_t logs[BLOCK];
    size_t k = 0, before = 0, word = 0; /* candidates before a word of marks */
    logs_of_candidates(logs, block);
    while ((k = next_sent(decoder, model, logs, k, block->candidates)) < block->candidates) {
        unsigned level = level_of(logs[k], model->slow), trend = trend_of(model->fast, model->slow);
        decode_bit(decoder, &model->sent[trend][level]);
        model->fast = moved_log(model->fast, level_of(logs[k], model->fast), FAST, true);
        model->slow = moved_log(model->slow, level, SLOW, true);
        for (size_t count; (count = one_bits_in(block->marks[word])) <= k - before; word++)
            before += count;
        size_t i = 64 * word + find_one(block->marks[word], k++ - before);
        TRY(decode_sent(decoder, model, block->start + i, sent));
    }
    return NULL;
}

/* Merge the listed coordinates of a block, `first` to `middle`, with the candidates after them. */
static void merge_listed(SparseCodes *sent, size_t first, size_t middle) {
    int64_t positions[BLOCK];
    uint32_t codes[BLOCK];
    size_t listed = middle - first, end = sent->count;
    for (size_t k = 0; k < listed; k++) {
        positions[k] = sent->positions[first + k];
        codes[k] = get_code(sent->codes, sent->size, first + k);
    }
    sent->count = first;
    for (size_t k = 0; k < listed || middle < end;) {
        bool take_listed = k < listed && (middle == end || positions[k] < sent->positions[middle]);
        size_t from = take_listed ? k++ : middle++;
        if (take_listed)
            sparse_append(sent, (size_t)positions[from], codes[from]);
        else
            sparse_append(sent, (size_t)sent->positions[from],
                          get_code(sent->codes, sent->size, from));
    }
}

Error read_dithered(Cursor *in, SparseCodes *sent, size_t count, uint32_t seed) {
    Model model;
    BinaryDecoder decoder;
    Block block;
    const uint8_t *sparsity;
    TRY(read_bytes(in, 1, &sparsity));
    if (sent->bits < 2) return "dithered body has codes of one bit";
    prepare_model(&model, seed, *sparsity, sent->bits);
    TRY(start_decoder(&decoder, in));
    for (size_t start = 0; start < count; start += BLOCK) {
        size_t first = sent->count;
        if (!sparse_reserve(sent, BLOCK)) return NO_MEMORY;
        find_candidates(&model, &block, start, count);
        TRY(decode_listed(&decoder, &model, &block, sent));
        size_t middle = sent->count;
        TRY(decode_candidates(&decoder, &model, &block, sent));
        if (middle > first) merge_listed(sent, first, middle);
    }
    return finish_decoder(&decoder);
}
