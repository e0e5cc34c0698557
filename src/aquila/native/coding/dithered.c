#include "dithered.h"

#include "../dither.h"
#include "binary_coder.h"

/* The band of a coordinate is the number of one bits that its dither word starts with. The sparsity
 * of a body is about log2 of the coordinates per sent one. */
enum { BANDS = 32, MAX_SPARSITY = 31 };
/* Candidates are the coordinates of the bands from sparsity - CANDIDATE_BANDS on. Each candidate
 * has a decision of its own, sent or not. The few sent coordinates of lower bands are listed.
 * Benchmark (benchmarks/coder_modes.py): 3 bands take 4.6 % more bytes. With all coordinates as
 * candidates, encoding and decoding take about 6 times as long. */
enum { CANDIDATE_BANDS = 4 };
/* Dither words computed at a time, so that the compiler can vectorise. */
enum { BLOCK = 1024 };

/* Initial probability of being sent, in units of 1/4096, by band from sparsity - CANDIDATE_BANDS
 * on: what exponentially distributed magnitudes give. It counts as INITIAL_SEEN decisions. Against
 * 1/2 it saves up to 12 bytes per body, 0.2 % of all (benchmarks/coder_modes.py). */
static const uint16_t initial_probability[] = {1,    15,   249,  1011, 2034,
                                               2886, 3438, 3753, 3920, 3973};
enum {
    INITIAL_BANDS = sizeof initial_probability / sizeof *initial_probability,
    INITIAL_SEEN = 4,
};

typedef struct {
    uint32_t seed, mixed_seed;
    uint32_t lowest_candidate; /* smallest dither word of a candidate */
    uint32_t centre;           /* the code of zero */
    Context sent[BANDS];
    NumberContexts gaps, magnitudes;
} Model;

static void prepare_model(Model *model, uint32_t seed, unsigned sparsity, unsigned bits) {
    unsigned lowest_band = sparsity > CANDIDATE_BANDS ? sparsity - CANDIDATE_BANDS : 0;
    model->seed = seed;
    model->mixed_seed = mix_bits(seed);
    model->lowest_candidate = lowest_band ? -(UINT32_C(1) << (32 - lowest_band)) : 0;
    model->centre = code_mask(bits) >> 1;
    for (unsigned band = 0; band < BANDS; band++) {
        unsigned i = band + CANDIDATE_BANDS > sparsity ? band + CANDIDATE_BANDS - sparsity : 0;
        uint32_t initial = initial_probability[i < INITIAL_BANDS ? i : INITIAL_BANDS - 1];
        initial <<= PROBABILITY_BITS - 12;
        model->sent[band] = (Context){initial, initial, INITIAL_SEEN};
    }
    reset_number_contexts(&model->gaps);
    reset_number_contexts(&model->magnitudes);
}

static bool is_candidate(const Model *model, uint32_t word) {
    return word >= model->lowest_candidate;
}

static uint32_t word_at(const Model *model, uint32_t i) {
    return dither_word(model->seed, model->mixed_seed, i);
}

static Context *band_context(Model *model, uint32_t word) {
    return &model->sent[~word > 1 ? leading_zeros(~word) : BANDS - 1];
}

/* Find the candidates from `start` on, and their dither words; return their number. */
CPU_CLONES static size_t find_candidates(const Model *model, size_t start, size_t count,
                                         uint32_t *positions, uint32_t *words) {
    uint32_t block[BLOCK], seed = model->seed, mixed_seed = model->mixed_seed;
    for (uint32_t i = 0; i < BLOCK; i++)
        block[i] = dither_word(seed, mixed_seed, (uint32_t)start + i);
    size_t found = 0;
    for (size_t i = 0; i < count; i++) {
        positions[found] = (uint32_t)(start + i);
        words[found] = block[i];
        found += is_candidate(model, block[i]);
    }
    return found;
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
                          const uint32_t *positions, size_t listed) {
    uint32_t next = 0;
    for (size_t k = 0; k < listed; k++) {
        encode_number(encoder, &model->gaps, positions[k] - next);
        encode_sent(encoder, model, get_code(source->codes, source->size, positions[k]));
        next = positions[k] + 1;
    }
}

static void encode_candidates(BinaryEncoder *encoder, Model *model, const Source *source) {
    uint32_t positions[BLOCK], words[BLOCK];
    for (size_t start = 0; start < source->count; start += BLOCK) {
        size_t count = source->count - start < BLOCK ? source->count - start : BLOCK;
        size_t candidates = find_candidates(model, start, count, positions, words);
        for (size_t k = 0; k < candidates; k++) {
            uint32_t code = get_code(source->codes, source->size, positions[k]);
            encode_bit(encoder, band_context(model, words[k]), code != model->centre);
            if (code != model->centre) encode_sent(encoder, model, code);
        }
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

/* Positions of the sent coordinates that are not candidates; at most `sent` coordinates are sent.
 */
static size_t find_listed(const Model *model, const Source *source, uint32_t *positions,
                          size_t sent) {
    size_t listed = 0;
    for (size_t i = 0; sent && i < source->count; i++) {
        if (get_code(source->codes, source->size, i) == model->centre) continue;
        positions[listed] = (uint32_t)i;
        listed += !is_candidate(model, word_at(model, (uint32_t)i));
        sent--;
    }
    return listed;
}

/* floor(log2(count / sent)), or MAX_SPARSITY if nothing is sent. */
static unsigned sparsity_of(size_t count, size_t sent) {
    unsigned sparsity = 0;
    while (sparsity < MAX_SPARSITY && sent << (sparsity + 1) <= count) sparsity++;
    return sparsity;
}

bool write_dithered(Bytes *out, Source *source) {
    Model model;
    BinaryEncoder encoder;
    size_t sent = count_sent(source, code_mask(source->bits) >> 1);
    unsigned sparsity = sparsity_of(source->count, sent);
    uint32_t *positions = malloc((sent + 1) * sizeof *positions);
    if (!positions) return false;
    prepare_model(&model, source->seed, sparsity, source->bits);
    size_t listed = find_listed(&model, source, positions, sent);
    bool started = write_byte(out, (uint8_t)sparsity) && write_varint(out, (uint32_t)listed);
    if (started) {
        start_encoder(&encoder, out);
        encode_listed(&encoder, &model, source, positions, listed);
        encode_candidates(&encoder, &model, source);
    }
    free(positions);
    return started && finish_encoder(&encoder);
}

static Error decode_sent(BinaryDecoder *decoder, Model *model, const Target *target, size_t i) {
    uint32_t number;
    bool negative = decode_even_bit(decoder);
    TRY(decode_number(decoder, &model->magnitudes, &number));
    if (number > model->centre - negative) return CODE_TOO_WIDE;
    uint32_t code = negative ? model->centre - number - 1 : model->centre + number + 1;
    set_code(target->codes, target->size, i, code);
    return NULL;
}

static Error decode_listed(BinaryDecoder *decoder, Model *model, const Target *target,
                           uint32_t listed) {
    uint64_t position = 0;
    for (uint32_t k = 0; k < listed; k++, position++) {
        uint32_t gap;
        TRY(decode_number(decoder, &model->gaps, &gap));
        position += gap;
        if (position >= target->count) return "dithered body lists a coordinate after its end";
        if (is_candidate(model, word_at(model, (uint32_t)position)))
            return "dithered body lists a coordinate that has a decision of its own";
        TRY(decode_sent(decoder, model, target, position));
    }
    return NULL;
}

static Error decode_candidates(BinaryDecoder *decoder, Model *model, const Target *target) {
    uint32_t positions[BLOCK], words[BLOCK];
    for (size_t start = 0; start < target->count; start += BLOCK) {
        size_t count = target->count - start < BLOCK ? target->count - start : BLOCK;
        size_t candidates = find_candidates(model, start, count, positions, words);
        for (size_t k = 0; k < candidates; k++)
            if (decode_bit(decoder, band_context(model, words[k])))
                TRY(decode_sent(decoder, model, target, positions[k]));
    }
    return NULL;
}

Error read_dithered(Cursor *in, const Target *target) {
    Model model;
    BinaryDecoder decoder;
    const uint8_t *sparsity;
    uint32_t listed;
    TRY(read_bytes(in, 1, &sparsity));
    if (target->bits < 2) return "dithered body has codes of one bit";
    if (*sparsity > MAX_SPARSITY) return "dithered body has a sparsity above 31";
    TRY(read_varint(in, &listed));
    if (listed > target->count) return "dithered body lists more coordinates than it has";
    prepare_model(&model, target->seed, *sparsity, target->bits);
    fill_codes(target, model.centre);
    TRY(start_decoder(&decoder, in));
    TRY(decode_listed(&decoder, &model, target, listed));
    TRY(decode_candidates(&decoder, &model, target));
    return finish_decoder(&decoder);
}
