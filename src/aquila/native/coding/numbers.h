/* Integers of up to 32 bits as a symbol and extra bits.
 *
 * A number below 16 is its own symbol. Above, four symbols share each power of two, and the
 * remaining bits follow uncoded as extra bits. The tails of the codes are smooth enough for that.
 */
#ifndef AQUILA_NUMBERS_H
#define AQUILA_NUMBERS_H

#include "rans.h"

enum { SMALL_BITS = 4, SMALL = 1 << SMALL_BITS }; /* numbers that are their own symbols */
enum { PARTS_BITS = 2, PARTS = 1 << PARTS_BITS }; /* symbols per power of two */
enum { NUMBER_SYMBOLS = SMALL + (32 - SMALL_BITS) * PARTS };

/* Smallest number and number of extra bits per symbol. Tables avoid branches that the processor
 * could not predict. */
extern uint32_t smallest_number[SYMBOLS];
extern uint8_t extra_bits[SYMBOLS];
void prepare_numbers(void);

static inline uint8_t number_symbol(uint32_t number) {
    unsigned exponent = bit_length(number | SMALL) - 1;
    unsigned leading = number >> (exponent - PARTS_BITS); /* PARTS to 2 PARTS - 1 */
    unsigned large = SMALL + (exponent - SMALL_BITS) * PARTS + leading - PARTS;
    unsigned is_small = -(unsigned)(number < SMALL);
    return (uint8_t)((number & is_small) | (large & ~is_small));
}

/* Whether eight symbols have no extra bits. */
static inline bool are_small(const uint8_t *symbols) {
    return !(load_eight(symbols) & EACH * (256 - SMALL));
}

/* Total extra bits of a stream, from the counts of its symbols or from the symbols. */
uint64_t extra_bits_of_counts(const uint32_t counts[SYMBOLS]);
Error count_extra_bits(const uint8_t *symbols, size_t count, uint64_t *total);

bool write_numbers(Bytes *out, const uint32_t *numbers, size_t count);

/* Numbers that are read one after another. */
typedef struct {
    const uint8_t *symbols;
    BitReader extra;
} NumberReader;

/* Start to read `count` numbers; `symbols` has room for as many bytes. */
Error start_numbers(Cursor *in, NumberReader *numbers, size_t count, uint8_t *symbols);

/* Read the next numbers. */
void next_numbers(NumberReader *numbers, uint32_t *next, size_t count);

#endif
