/* Lots that both ends of the wire can draw: a word for every coordinate that follows from a seed. */
#ifndef AQUILA_LOTS_H
#define AQUILA_LOTS_H

#include <stdint.h>

/* Every bit of the result depends on every bit of x; the multipliers are Wellons's. */
static inline uint32_t mix_word(uint32_t x) {
    x ^= x >> 16;
    x *= UINT32_C(0x21f0aaad);
    x ^= x >> 15;
    x *= UINT32_C(0xd35a2d97);
    return x ^ x >> 15;
}

/* `seed` goes in twice, so that two seeds do not give the same words in another order. */
static inline uint32_t lot_word(uint32_t seed, uint32_t mixed_seed, uint32_t i) {
    return mix_word(mix_word(i ^ mixed_seed) + seed);
}

#endif
