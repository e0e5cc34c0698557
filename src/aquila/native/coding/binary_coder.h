/* Adaptive binary range coder: codes bits with probabilities that it learns.
 *
 * Unlike a symbol stream (rans.h) it needs no table, so it pays even for a few dozen bits. It takes
 * several times as long per decision.
 */
#ifndef AQUILA_BINARY_CODER_H
#define AQUILA_BINARY_CODER_H

#include "bytes.h"

enum { HALF = 1 << 15 }; /* probability 1/2 in units of 2^-16 */
enum { PROBABILITY_BITS = 22, SEEN_LIMIT = 510, NUMBER_CONTEXTS = 32 };

/* The estimated probability of a 1, as a moving average in units of 2^-PROBABILITY_BITS. */
typedef struct {
    uint32_t average, seen;
} Context;

/* One context per bit of a number's length. */
typedef struct {
    Context of_bit[NUMBER_CONTEXTS];
} NumberContexts;

/* 2^42 / (2 seen + 3), rounded up. A product with it is the exact quotient of numbers below 2^32,
 * in a fraction of the time of a division. Shifted by one bit less, it is that of twice the number.
 */
extern uint64_t context_reciprocals[SEEN_LIMIT + 1];
void prepare_contexts(void);

ALWAYS_INLINE void update_context(Context *context, bool bit) {
    uint32_t one = UINT32_C(1) << PROBABILITY_BITS, average = context->average;
    uint64_t distance = bit ? one - average : average;
    uint32_t change = (uint32_t)(distance * context_reciprocals[context->seen] >> 41);
    context->average = bit ? average + change : average - change;
    context->seen += context->seen < SEEN_LIMIT;
}

/* The probability of a 1 in units of 2^-16. It is never 0, and the limit keeps it below 1. */
ALWAYS_INLINE uint32_t probability_of_one(const Context *context) {
    uint32_t probability = context->average >> (PROBABILITY_BITS - 16);
    return probability < 1 ? 1 : probability;
}

void reset_number_contexts(NumberContexts *contexts);

/* The output lies in [low, low + range); a carry propagates into bytes already written. */
typedef struct {
    Bytes *out;
    size_t start;
    uint32_t low, range;
    bool failed;
} BinaryEncoder;

void start_encoder(BinaryEncoder *encoder, Bytes *out);
/* Add a carry to the bytes already written. */
void propagate_carry(BinaryEncoder *encoder);
/* Write the leading bytes of `low` until the range is large enough again. */
void shift_out_bytes(BinaryEncoder *encoder);
void encode_bit(BinaryEncoder *encoder, Context *context, bool bit);
/* A bit with probability 1/2, without a context. */
void encode_even_bit(BinaryEncoder *encoder, bool bit);
void encode_number(BinaryEncoder *encoder, NumberContexts *contexts, uint32_t number);
/* False if there was not enough memory. */
bool finish_encoder(BinaryEncoder *encoder);

/* `value` is the encoder's output minus its `low`. After the end of the input follow zero bytes. */
typedef struct {
    const uint8_t *at, *end;
    uint32_t value, range;
} BinaryDecoder;

#define MIN_RANGE (UINT32_C(1) << 24)

/* The next byte of the stream, 0 after its end. */
ALWAYS_INLINE uint8_t next_byte(BinaryDecoder *decoder) {
    return decoder->at < decoder->end ? *decoder->at++ : 0;
}

/* Decode a bit that is 1 with this probability, in units of 2^-16. */
ALWAYS_INLINE bool decode_with(BinaryDecoder *decoder, uint32_t probability) {
    uint32_t bound = (decoder->range >> 16) * probability;
    bool bit = decoder->value < bound;
    decoder->range = bit ? bound : decoder->range - bound;
    decoder->value -= bit ? 0 : bound;
    for (; decoder->range < MIN_RANGE; decoder->range <<= 8)
        decoder->value = decoder->value << 8 | next_byte(decoder);
    return bit;
}

ALWAYS_INLINE bool decode_bit(BinaryDecoder *decoder, Context *context) {
    bool bit = decode_with(decoder, probability_of_one(context));
    update_context(context, bit);
    return bit;
}

ALWAYS_INLINE bool decode_even_bit(BinaryDecoder *decoder) { return decode_with(decoder, HALF); }

Error start_decoder(BinaryDecoder *decoder, Cursor *in);
/* Decode a number whose first decision was 0. */
Error decode_rest_of_number(BinaryDecoder *decoder, NumberContexts *contexts, uint32_t *number);
Error decode_number(BinaryDecoder *decoder, NumberContexts *contexts, uint32_t *number);
Error finish_decoder(const BinaryDecoder *decoder);

#endif
