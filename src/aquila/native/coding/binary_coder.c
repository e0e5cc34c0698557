#include "binary_coder.h"

uint64_t context_reciprocals[SEEN_LIMIT + 1];

void prepare_contexts(void) {
    for (uint64_t seen = 0; seen <= SEEN_LIMIT; seen++)
        context_reciprocals[seen] = (UINT64_C(1) << 42) / (2 * seen + 3) + 1;
}

void reset_number_contexts(NumberContexts *contexts) {
    const uint32_t half = 1u << (PROBABILITY_BITS - 1);
    for (unsigned bit = 0; bit < NUMBER_CONTEXTS; bit++) contexts->of_bit[bit] = (Context){half, 0};
}

void start_encoder(BinaryEncoder *encoder, Bytes *out) {
    *encoder = (BinaryEncoder){out, out->size, 0, UINT32_MAX, false};
}

/* A byte that can take the carry always exists, because the output as a fraction is below 1. */
void propagate_carry(BinaryEncoder *encoder) {
    if (encoder->failed) return;
    uint8_t *byte = encoder->out->data + encoder->out->size;
    while (++*--byte == 0) {
    }
}

void shift_out_bytes(BinaryEncoder *encoder) {
    for (; encoder->range < MIN_RANGE; encoder->range <<= 8, encoder->low <<= 8)
        encoder->failed |= encoder->failed || !write_byte(encoder->out, encoder->low >> 24);
}

static void encode_with(BinaryEncoder *encoder, uint32_t probability, bool bit) {
    uint32_t bound = (encoder->range >> 16) * probability;
    if (bit) {
        encoder->range = bound;
    } else {
        encoder->low += bound;
        encoder->range -= bound;
        if (encoder->low < bound) propagate_carry(encoder);
    }
    shift_out_bytes(encoder);
}

void encode_bit(BinaryEncoder *encoder, Context *context, bool bit) {
    encode_with(encoder, probability_of_one(context), bit);
    update_context(context, bit);
}

void encode_even_bit(BinaryEncoder *encoder, bool bit) { encode_with(encoder, HALF, bit); }

void encode_number(BinaryEncoder *encoder, NumberContexts *contexts, uint32_t number) {
    unsigned length = bit_length(number + 1) - 1;
    for (unsigned bit = 0; bit <= length; bit++)
        encode_bit(encoder, &contexts->of_bit[bit], bit == length);
    for (unsigned bit = length; bit-- > 0;) encode_even_bit(encoder, (number + 1) >> bit & 1);
}

/* Write the shortest number in the interval; zero bytes at its end are left out. */
bool finish_encoder(BinaryEncoder *encoder) {
    if (encoder->failed) return false;
    for (unsigned kept = 0; kept <= 4; kept++) {
        uint64_t below = UINT32_MAX >> 4 * kept >> 4 * kept, low = encoder->low;
        uint64_t number = (low + below) & ~below;
        if (number - low >= encoder->range) continue;
        if (number >> 32) propagate_carry(encoder);
        for (unsigned byte = 0; byte < kept; byte++)
            if (!write_byte(encoder->out, (uint8_t)(number >> (24 - 8 * byte)))) return false;
        break;
    }
    Bytes *out = encoder->out;
    while (out->size > encoder->start && !out->data[out->size - 1]) out->size--;
    return true;
}

Error start_decoder(BinaryDecoder *decoder, Cursor *in) {
    *decoder = (BinaryDecoder){in->at, in->end, 0, UINT32_MAX};
    in->at = in->end;
    if (decoder->end > decoder->at && !decoder->end[-1])
        return "dithered body ends with a zero byte";
    for (unsigned byte = 0; byte < 4; byte++)
        decoder->value = decoder->value << 8 | next_byte(decoder);
    return decoder->value < decoder->range ? NULL : "dithered body starts with an invalid value";
}

Error decode_rest_of_number(BinaryDecoder *decoder, NumberContexts *contexts, uint32_t *number) {
    unsigned length = 1;
    while (!decode_bit(decoder, &contexts->of_bit[length]))
        if (++length == NUMBER_CONTEXTS)
            return "dithered body contains a number of more than 32 bits";
    uint32_t value = 1;
    for (unsigned bit = 0; bit < length; bit++) value = value << 1 | decode_even_bit(decoder);
    *number = value - 1;
    return NULL;
}

Error decode_number(BinaryDecoder *decoder, NumberContexts *contexts, uint32_t *number) {
    *number = 0;
    if (decode_bit(decoder, &contexts->of_bit[0])) return NULL;
    return decode_rest_of_number(decoder, contexts, number);
}

Error finish_decoder(const BinaryDecoder *decoder) {
    return decoder->at < decoder->end ? "dithered body has bytes left after its last code" : NULL;
}
