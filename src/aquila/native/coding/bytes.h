/* Bytes being written, bytes being read, and bit strings, least significant bit first. */
#ifndef AQUILA_BYTES_H
#define AQUILA_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the coder stores whole words and is written for little-endian machines"
#endif

/* Compiled once for each generation of x86 vectors; the loader picks the one that fits. */
#if defined(__x86_64__) && defined(__linux__) && defined(__GNUC__) && !defined(__clang__)
#define VECTORISED \
    __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define VECTORISED
#endif

/* What a decoder finds wrong with a frame: one sentence, or NULL when all is well. */
typedef const char *Problem;

#define NO_MEMORY "not enough memory to read the coded body"
#define BEYOND_ITS_BITS "coded body holds a code beyond its bits"

#define TRY(problem)                            \
    do {                                        \
        Problem found = (problem);              \
        if (found) return found;                \
    } while (0)

typedef struct {
    uint8_t *data;
    size_t size, capacity;
} Bytes;

/* Make room for `extra` more bytes; false when there is no memory. */
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

/* Seven bits a byte, least significant first; the high bit says that more follow. */
static inline bool write_number(Bytes *out, uint32_t number) {
    for (; number >= 128; number >>= 7)
        if (!write_byte(out, (uint8_t)(number | 128))) return false;
    return write_byte(out, (uint8_t)number);
}

typedef struct {
    const uint8_t *at, *end;
} Cursor;

static inline size_t left(const Cursor *in) { return (size_t)(in->end - in->at); }

static inline Problem take(Cursor *in, size_t size, const uint8_t **start) {
    if (left(in) < size) return "coded body is cut short";
    *start = in->at;
    in->at += size;
    return NULL;
}

static inline Problem read_number(Cursor *in, uint32_t *number) {
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 35; shift += 7) {
        const uint8_t *byte;
        TRY(take(in, 1, &byte));
        value |= (uint64_t)(*byte & 127) << shift;
        if (*byte < 128) {
            if ((*byte == 0 && shift) || value > UINT32_MAX) break;
            *number = (uint32_t)value;
            return NULL;
        }
    }
    return "coded body holds a number that is not written as it must be";
}

/* A bit string on its way out. Room for all of it must have been reserved. */
typedef struct {
    uint8_t *at;
    uint64_t held;
    unsigned count;
} BitWriter;

static inline void write_bits(BitWriter *out, uint32_t value, unsigned bits) {
    out->held |= (uint64_t)value << out->count;
    out->count += bits;
    if (out->count >= 32) {
        uint32_t word = (uint32_t)out->held;
        memcpy(out->at, &word, 4);
        out->at += 4;
        out->held >>= 32;
        out->count -= 32;
    }
}

/* Write what is held back, filled up with zero bits to whole bytes. */
static inline uint8_t *finish_bits(BitWriter *out) {
    for (; out->count; out->count -= out->count < 8 ? out->count : 8) {
        *out->at++ = (uint8_t)out->held;
        out->held >>= 8;
    }
    return out->at;
}

/* A bit string on its way in; past its end come zeros. */
typedef struct {
    const uint8_t *at, *end;
    uint64_t held;
    unsigned count;
} BitReader;

static inline uint32_t read_bits(BitReader *in, unsigned bits) {
    while (in->count < bits) {
        uint32_t word = 0;
        size_t size = in->end - in->at >= 4 ? 4 : (size_t)(in->end - in->at);
        memcpy(&word, in->at, size);
        in->at += size;
        in->held |= (uint64_t)word << in->count;
        in->count += 32;
    }
    uint32_t value = (uint32_t)(in->held & ((UINT64_C(1) << bits) - 1));
    in->held >>= bits;
    in->count -= bits;
    return value;
}

static inline size_t bytes_of_bits(uint64_t bits) { return (size_t)((bits + 7) / 8); }

/* True when the bits after the first `bits` of a string are zero. */
static inline bool spare_is_zero(const uint8_t *string, uint64_t bits) {
    return bits % 8 == 0 || string[bits / 8] >> bits % 8 == 0;
}

/* Eight bytes at once, in one register. */
static const uint64_t EACH = UINT64_C(0x0101010101010101);

static inline uint64_t eight_at(const uint8_t *bytes) {
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

/* Lowest bits of eight bytes as one byte, and back; the other bits of `ones` are zero. */
static inline uint8_t gather_ones(uint64_t ones) {
    return (uint8_t)(ones * UINT64_C(0x0102040810204080) >> 56);
}

static inline uint64_t spread_ones(uint8_t bits) {
    return nonzero_each(bits * EACH & UINT64_C(0x8040201008040201));
}

/* Take a string of bits, filled up with zero bits to whole bytes. */
static inline Problem take_bits(Cursor *in, uint64_t bits, const uint8_t **string) {
    TRY(take(in, bytes_of_bits(bits), string));
    return spare_is_zero(*string, bits) ? NULL : "coded body holds bits after the end of a string";
}

static inline unsigned width(uint32_t number) {
    return number ? 32 - (unsigned)__builtin_clz(number) : 0;
}

#endif
