/* The dither: one pseudorandom word per coordinate, derived from a seed by both sides. */
#ifndef AQUILA_DITHER_H
#define AQUILA_DITHER_H

#include <stdint.h>

/* Every bit of the result depends on every bit of x. The constants come from Chris Wellons's
 * hash-prospector. */
static inline uint32_t mix_bits(uint32_t x) {
    x ^= x >> 16;
    x *= UINT32_C(0x21f0aaad);
    x ^= x >> 15;
    x *= UINT32_C(0xd35a2d97);
    return x ^ x >> 15;
}

/* The seed enters twice. If it entered once, two seeds would give the same words in another order.
 */
static inline uint32_t dither_word(uint32_t seed, uint32_t mixed_seed, uint32_t i) {
    return mix_bits(mix_bits(i ^ mixed_seed) + seed);
}

#endif
