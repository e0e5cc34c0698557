/* Codes where they are, and the fold that makes the frequent ones small. */
#ifndef AQUILA_SOURCE_H
#define AQUILA_SOURCE_H

#include "numbers.h"

/* Codes this narrow are symbols as they are; wider ones are folded and written as numbers. */
enum { NARROW = 8 };

/* A run of codes of `bits` bits, each in an integer of `size` bytes: 1 for narrow codes, or 2, 4, 8. */
typedef struct {
    const void *codes;
    size_t count;
    unsigned size, bits;
    const uint8_t *symbols; /* narrow: the codes; wide: their folds about the centre */
    uint32_t centre;        /* of wide codes */
    uint32_t seed;          /* of the lots of drawn codes */
} Source;

/* Where a run of codes is read to. */
typedef struct {
    void *codes;
    size_t count;
    unsigned size, bits;
    uint32_t seed; /* of the lots of drawn codes */
} Target;

static inline Source source_part(const Source *whole, size_t start, size_t count) {
    Source part = *whole;
    part.codes = (const uint8_t *)whole->codes + start * whole->size;
    part.symbols = whole->symbols + start;
    part.count = count;
    return part;
}

static inline Target target_part(const Target *whole, size_t start, size_t count) {
    Target part = *whole;
    part.codes = (uint8_t *)whole->codes + start * whole->size;
    part.count = count;
    return part;
}

/* Loops over codes are macros of the item size, written out once for each: they have no branch. */
#define INLINE static inline __attribute__((always_inline))
#define BY_SIZE(size, loop)             \
    switch (size) {                     \
    case 1: loop(1); break;             \
    case 2: loop(2); break;             \
    case 4: loop(4); break;             \
    default: loop(8); break;            \
    }

INLINE uint32_t code_at(const void *codes, unsigned size, size_t i) {
    if (size == 1) return ((const uint8_t *)codes)[i];
    if (size == 2) return ((const uint16_t *)codes)[i];
    if (size == 4) return ((const uint32_t *)codes)[i];
    return (uint32_t)((const uint64_t *)codes)[i];
}

INLINE void put_code(void *codes, unsigned size, size_t i, uint32_t code) {
    if (size == 1) ((uint8_t *)codes)[i] = (uint8_t)code;
    else if (size == 2) ((uint16_t *)codes)[i] = (uint16_t)code;
    else if (size == 4) ((uint32_t *)codes)[i] = code;
    else ((uint64_t *)codes)[i] = code;
}

INLINE uint32_t mask_of(unsigned bits) { return UINT32_MAX >> (32 - bits); }

/* Distance from the centre, modulo 2**bits: 0, -1, 1, -2, 2, ... become 0, 1, 2, 3, 4, ... */
INLINE uint32_t fold(uint32_t code, uint32_t centre, unsigned bits) {
    int32_t distance = (int32_t)((code - centre) << (32 - bits)) >> (32 - bits);
    return (uint32_t)distance << 1 ^ (uint32_t)(distance >> 31);
}

INLINE uint32_t unfold(uint32_t folded, uint32_t centre, unsigned bits) {
    uint32_t distance = folded >> 1 ^ -(folded & 1);
    return (centre + distance) & mask_of(bits);
}

/* Whether every code is below 2**bits. */
bool codes_fit(const Source *source);

/* Make all codes the same. */
void fill_codes(const Target *target, uint32_t code);

/* Symbols of the folds of all codes. */
void fold_symbols(uint8_t *symbols, const Source *source, uint32_t centre);

/* Code in the middle of the frequent ones, guessed from a sample. */
uint32_t guess_centre(const Source *source);

#endif
