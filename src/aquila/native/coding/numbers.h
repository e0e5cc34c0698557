/* Whole numbers of any size as symbols and a few bits beside them.
 *
 * A number below 16 is a symbol of its own. From there on four symbols share each power of two, and
 * what they leave open follows as plain bits: near enough for tails, which are smooth.
 */
#ifndef AQUILA_NUMBERS_H
#define AQUILA_NUMBERS_H

#include "rans.h"

enum { SMALL = 16, SMALL_BITS = 4, PARTS_BITS = 2, PARTS = 1 << PARTS_BITS };

enum { NUMBER_SYMBOLS = 128 };

/* For each symbol its least number and the bits it leaves open. Tables, and not branches: whether a
 * number is small is as good as random. */
extern uint32_t least_number[SYMBOLS];
extern uint8_t open_bits[SYMBOLS];
void prepare_numbers(void);

static inline uint8_t symbol_of(uint32_t number) {
    unsigned high = width(number | SMALL) - 1;
    unsigned large = (high << PARTS_BITS) + (number >> (high - PARTS_BITS)) + SMALL - (SMALL_BITS + 1) * PARTS;
    unsigned is_small = -(unsigned)(number < SMALL);
    return (uint8_t)((number & is_small) | (large & ~is_small));
}

/* Bits that symbols leave open together. */
uint64_t open_in(const uint32_t counts[SYMBOLS]);
Problem count_open(const uint8_t *symbols, size_t count, uint64_t *open);

bool write_numbers(Bytes *out, const uint32_t *numbers, size_t count);

/* Read `count` numbers; `scratch` holds as many bytes. */
Problem read_numbers(Cursor *in, uint32_t *numbers, size_t count, uint8_t *scratch);

#endif
