/* Adaptive binary range coder: codes bits with probabilities that it learns.
 *
 * Unlike a symbol stream (rans.h) it needs no table, so it pays even for a few dozen bits. It takes
 * several times as long per decision.
 */
#ifndef AQUILA_BINARY_CODER_H
#define AQUILA_BINARY_CODER_H

#include "bytes.h"

enum { PROBABILITY_BITS = 22, SEEN_LIMIT = 510, NUMBER_CONTEXTS = 32 };

/* The estimated probability of a 1, as a moving average in units of 2^-PROBABILITY_BITS. */
typedef struct {
    uint32_t average, seen;
} Context;

/* One context per bit of a number's length. */
typedef struct {
    Context of_bit[NUMBER_CONTEXTS];
} NumberContexts;

static inline void update_context(Context *context, bool bit) {
    uint32_t one = UINT32_C(1) << PROBABILITY_BITS, divisor = 2 * context->seen + 3;
    context->average += bit ? 2 * (one - context->average) / divisor : 0;
    context->average -= bit ? 0 : 2 * context->average / divisor;
    context->seen += context->seen < SEEN_LIMIT;
}

/* The probability of a 1 in units of 2^-16. It is never 0, and the limit keeps it below 1. */
static inline uint32_t probability_of_one(const Context *context) {
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

Error start_decoder(BinaryDecoder *decoder, Cursor *in);
bool decode_bit(BinaryDecoder *decoder, Context *context);
bool decode_even_bit(BinaryDecoder *decoder);
Error decode_number(BinaryDecoder *decoder, NumberContexts *contexts, uint32_t *number);
Error finish_decoder(const BinaryDecoder *decoder);

#endif
