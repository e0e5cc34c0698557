/* The dither: one pseudorandom number per coordinate, derived from a seed by both sides.
 *
 * Coordinates form blocks. In each block the dithers are ranked, and the coordinate of each rank
 * follows from the seed. So a reader finds the coordinates with the highest dithers without those
 * of the others: see docs/wire-format-dithered.md.
 */
#ifndef AQUILA_DITHER_H
#define AQUILA_DITHER_H

#include "cpu.h"

/* The lowest bits of a seed are log2 of the coordinates per block, minus MIN_BLOCK_BITS. A block
 * has less than twice the coordinates of the vector, or the minimum. */
enum { MIN_BLOCK_BITS = 6, BLOCK_BITS_MASK = 15 };
/* Rounds of the permutation of a block. With 4, pairs of coordinates in blocks of 64 are visibly
 * dependent in 33 million coordinates. */
enum { ROUNDS = 6, KEYS_PER_BLOCK = 8 };

typedef struct {
    uint32_t seed, mixed_seed;
    unsigned block_bits;
} Dither;

/* What each round of the permutation adds, and the odd factor that it multiplies with. */
typedef struct {
    uint32_t added[ROUNDS], factor[ROUNDS];
} BlockKeys;

/* Every bit of the result depends on every bit of x. The constants come from Chris Wellons's
 * hash-prospector. */
ALWAYS_INLINE uint32_t mix_bits(uint32_t x) {
    x ^= x >> 16;
    x *= UINT32_C(0x21f0aaad);
    x ^= x >> 15;
    x *= UINT32_C(0xd35a2d97);
    return x ^ x >> 15;
}

/* The dither of a vector with this many coordinates. */
static inline Dither dither_of_seed(uint32_t seed, size_t count) {
    unsigned block_bits = MIN_BLOCK_BITS + (seed & BLOCK_BITS_MASK);
    while (block_bits > MIN_BLOCK_BITS && count <= (size_t)1 << (block_bits - 1)) block_bits--;
    return (Dither){seed, mix_bits(seed), block_bits};
}

/* The seed enters twice. If it entered once, two seeds would give the same words in another order.
 */
ALWAYS_INLINE uint32_t dither_word(Dither dither, uint32_t i) {
    return mix_bits(mix_bits(i ^ dither.mixed_seed) + dither.seed);
}

/* The complement of the dither of a rank: the rank, and bits that follow from the word of its slot.
 * The slot is the first coordinate of the block plus the rank. */
ALWAYS_INLINE uint32_t slot_complement(Dither dither, uint32_t slot) {
    return slot << (32 - dither.block_bits) | dither_word(dither, slot) >> dither.block_bits;
}

ALWAYS_INLINE BlockKeys block_keys(Dither dither, uint32_t block) {
    BlockKeys keys;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        uint32_t key = dither_word(dither, ~(KEYS_PER_BLOCK * block + round));
        keys.added[round] = key;
        keys.factor[round] = key >> 11 | 1;
    }
    return keys;
}

/* The place in its block of the coordinate with this rank. */
ALWAYS_INLINE uint32_t place_of_rank(const BlockKeys *keys, unsigned block_bits, uint32_t rank) {
    uint32_t mask = (UINT32_C(1) << block_bits) - 1, place = rank;
    unsigned shift = (block_bits + 1) / 2;
    for (unsigned round = 0; round < ROUNDS; round++) {
        place = (place + keys->added[round]) * keys->factor[round] & mask;
        place ^= place >> shift;
    }
    return place;
}

/* Replace the factors by their inverses modulo 2^32, for rank_of_place. */
static inline void invert_keys(BlockKeys *keys) {
    for (unsigned round = 0; round < ROUNDS; round++) {
        uint32_t factor = keys->factor[round], inverse = factor; /* correct to 3 bits */
        for (unsigned step = 0; step < 4; step++) inverse *= 2 - factor * inverse;
        keys->factor[round] = inverse;
    }
}

/* The rank of the coordinate at this place, with inverted keys. */
ALWAYS_INLINE uint32_t rank_of_place(const BlockKeys *keys, unsigned block_bits, uint32_t place) {
    uint32_t mask = (UINT32_C(1) << block_bits) - 1, rank = place;
    unsigned shift = (block_bits + 1) / 2;
    for (unsigned round = ROUNDS; round-- > 0;) {
        rank ^= rank >> shift;
        rank = (rank * keys->factor[round] - keys->added[round]) & mask;
    }
    return rank;
}

#endif
