/* Byte buffers, bit strings (least significant bit first), and eight bytes in one register. */
#ifndef AQUILA_BYTES_H
#define AQUILA_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "../cpu.h"

/* What is wrong with a frame, as one sentence, or NULL if nothing is wrong. */
typedef const char *Error;

#define NO_MEMORY "out of memory while reading the coded body"
#define CODE_TOO_WIDE "coded body contains a code that does not fit its bit width"

/* Return from the calling function if `expression` gives an error. */
#define TRY(expression)                                                                            \
    do {                                                                                           \
        Error error_ = (expression);                                                               \
        if (error_) return error_;                                                                 \
    } while (0)

/* A growing output buffer. */
typedef struct {
    uint8_t *data;
    size_t size, capacity;
} Bytes;

/* Make room for `extra` more bytes; false if there is not enough memory. */
static inline bool bytes_reserve(Bytes *out, size_t extra) {
    if (out->capacity - out->size >= extra) return true;
    size_t capacity = out->size + extra + out->size / 4;
    uint8_t *data = realloc(out->data, capacity);
    if (!data) return false;
    out->data = data;
    out->capacity = capacity;
    return true;
}

static inline bool write_byte(Bytes *out, uint8_t byte) {
    if (!bytes_reserve(out, 1)) return false;
    out->data[out->size++] = byte;
    return true;
}

/* Seven bits per byte, least significant first; the high bit is set if another byte follows. */
static inline bool write_varint(Bytes *out, uint32_t number) {
    for (; number >= 128; number >>= 7)
        if (!write_byte(out, (uint8_t)(number | 128))) return false;
    return write_byte(out, (uint8_t)number);
}

/* The part of a body that is not read yet. */
typedef struct {
    const uint8_t *at, *end;
} Cursor;

static inline size_t bytes_left(const Cursor *in) { return (size_t)(in->end - in->at); }

static inline Error read_bytes(Cursor *in, size_t size, const uint8_t **start) {
    if (bytes_left(in) < size) return "coded body is truncated";
    *start = in->at;
    in->at += size;
    return NULL;
}

static inline Error read_varint(Cursor *in, uint32_t *number) {
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 35; shift += 7) {
        const uint8_t *byte;
        TRY(read_bytes(in, 1, &byte));
        value |= (uint64_t)(*byte & 127) << shift;
        if (*byte < 128) {
            if ((*byte == 0 && shift) || value > UINT32_MAX) break;
            *number = (uint32_t)value;
            return NULL;
        }
    }
    return "coded body contains a varint that is longer than needed or above 32 bits";
}

/* Writes a bit string. The caller has reserved room for all of it. */
typedef struct {
    uint8_t *at;
    uint64_t pending;
    unsigned count; /* of pending bits, below 32 */
} BitWriter;

static inline void write_bits(BitWriter *out, uint32_t value, unsigned bits) {
    out->pending |= (uint64_t)value << out->count;
    out->count += bits;
    if (out->count >= 32) {
        uint32_t word = (uint32_t)out->pending;
        memcpy(out->at, &word, 4);
        out->at += 4;
        out->pending >>= 32;
        out->count -= 32;
    }
}

/* Write the pending bits, padded with zero bits to whole bytes. */
static inline uint8_t *finish_bits(BitWriter *out) {
    for (; out->count; out->count -= out->count < 8 ? out->count : 8) {
        *out->at++ = (uint8_t)out->pending;
        out->pending >>= 8;
    }
    return out->at;
}

/* Reads a bit string; after its end it returns zeros. */
typedef struct {
    const uint8_t *at, *end;
    uint64_t pending;
    unsigned count; /* of pending bits */
} BitReader;

static inline uint32_t read_bits(BitReader *in, unsigned bits) {
    if (in->count < bits) {
        uint32_t word = 0;
        if (in->end - in->at >= 4) {
            memcpy(&word, in->at, 4);
            in->at += 4;
        } else {
            for (unsigned shift = 0; in->at < in->end; shift += 8)
                word |= (uint32_t)*in->at++ << shift;
        }
        in->pending |= (uint64_t)word << in->count;
        in->count += 32;
    }
    uint32_t value = (uint32_t)(in->pending & ((UINT64_C(1) << bits) - 1));
    in->pending >>= bits;
    in->count -= bits;
    return value;
}

static inline size_t bytes_of_bits(uint64_t bits) { return (size_t)((bits + 7) / 8); }

/* Whether the padding after the first `bits` bits of a string is zero. */
static inline bool padding_is_zero(const uint8_t *string, uint64_t bits) {
    return bits % 8 == 0 || string[bits / 8] >> bits % 8 == 0;
}

/* Take a bit string with its padding out of a body. */
static inline Error read_bit_string(Cursor *in, uint64_t bits, const uint8_t **string) {
    TRY(read_bytes(in, bytes_of_bits(bits), string));
    return padding_is_zero(*string, bits) ? NULL
                                          : "coded body contains padding bits that are not 0";
}

/* 1 in each of eight bytes. */
static const uint64_t EACH = UINT64_C(0x0101010101010101);

static inline uint64_t load_eight(const uint8_t *bytes) {
    uint64_t eight;
    memcpy(&eight, bytes, 8);
    return eight;
}

/* 1 in every byte that is not zero. */
static inline uint64_t nonzero_each(uint64_t eight) {
    const uint64_t high = EACH << 7;
    return (((eight & ~high) + high - EACH) | eight) >> 7 & EACH;
}

static inline uint64_t subtract_each(uint64_t a, uint64_t b) {
    const uint64_t high = EACH << 7;
    return ((a | high) - (b & ~high)) ^ ((a ^ ~b) & high);
}

/* The lowest bits of eight bytes as one byte; the other bits of `ones` are zero. */
static inline uint8_t gather_ones(uint64_t ones) {
    return (uint8_t)(ones * UINT64_C(0x0102040810204080) >> 56);
}

/* The inverse of gather_ones. */
static inline uint64_t spread_ones(uint8_t bits) {
    return nonzero_each(bits * EACH & UINT64_C(0x8040201008040201));
}

static inline unsigned bit_length(uint32_t number) {
    return number ? 32 - leading_zeros(number) : 0;
}

#endif
