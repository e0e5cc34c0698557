/* Arrays of codes, and the zigzag map that makes frequent codes small numbers. */
#ifndef AQUILA_CODES_H
#define AQUILA_CODES_H

#include "numbers.h"

/* Codes of up to this many bits are narrow: they are symbols themselves. Wider codes are mapped to
 * zigzag numbers first. */
enum { NARROW_BITS = 8 };

/* Codes to write. Each has `bits` bits and is stored in `size` bytes: 1 if narrow, else 2, 4 or 8.
 */
typedef struct {
    const void *codes;
    size_t count;
    unsigned size, bits;
    const uint8_t *symbols; /* narrow: the codes; wide: symbols of their zigzag numbers */
    uint32_t centre;        /* of the zigzag numbers of wide codes */
    uint32_t seed;          /* of the dither, in a dithered body */
} Source;

/* Memory that codes are read into. */
typedef struct {
    void *codes;
    size_t count;
    unsigned size, bits;
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

/* Expand a loop macro once per integer size, so that the loop itself has no branch on the size. */
#define BY_SIZE(size, loop)                                                                        \
    switch (size) {                                                                                \
    case 1: loop(1); break;                                                                        \
    case 2: loop(2); break;                                                                        \
    case 4: loop(4); break;                                                                        \
    default: loop(8); break;                                                                       \
    }

ALWAYS_INLINE uint32_t get_code(const void *codes, unsigned size, size_t i) {
    if (size == 1) return ((const uint8_t *)codes)[i];
    if (size == 2) return ((const uint16_t *)codes)[i];
    if (size == 4) return ((const uint32_t *)codes)[i];
    return (uint32_t)((const uint64_t *)codes)[i];
}

ALWAYS_INLINE void set_code(void *codes, unsigned size, size_t i, uint32_t code) {
    if (size == 1)
        ((uint8_t *)codes)[i] = (uint8_t)code;
    else if (size == 2)
        ((uint16_t *)codes)[i] = (uint16_t)code;
    else if (size == 4)
        ((uint32_t *)codes)[i] = code;
    else
        ((uint64_t *)codes)[i] = code;
}

/* The largest code. */
ALWAYS_INLINE uint32_t code_mask(unsigned bits) { return UINT32_MAX >> (32 - bits); }

/* Distance from the centre modulo 2**bits: 0, -1, 1, -2, 2, ... become 0, 1, 2, 3, 4, ... */
ALWAYS_INLINE uint32_t to_zigzag(uint32_t code, uint32_t centre, unsigned bits) {
    int32_t distance = (int32_t)((code - centre) << (32 - bits)) >> (32 - bits);
    return (uint32_t)distance << 1 ^ (uint32_t)(distance >> 31);
}

ALWAYS_INLINE uint32_t from_zigzag(uint32_t zigzag, uint32_t centre, unsigned bits) {
    uint32_t distance = zigzag >> 1 ^ -(zigzag & 1);
    return (centre + distance) & code_mask(bits);
}

/* Whether every code is below 2**bits. */
bool codes_fit(const Source *source);

/* Set all codes to the same code. */
void fill_codes(const Target *target, uint32_t code);

/* Symbols of the zigzag numbers of all codes. */
void zigzag_symbols(uint8_t *symbols, const Source *source, uint32_t centre);

/* A code in the middle of the frequent codes, estimated from a sample. */
uint32_t estimate_centre(const Source *source);

#endif
