/* Yes or no, coded by a probability that learns: a binary range coder.
 *
 * Unlike the symbols of rans.h these decisions need no table ahead of them, so that a few dozen of
 * them are worth coding; and each takes several times as long.
 */
#ifndef AQUILA_CHANCES_H
#define AQUILA_CHANCES_H

#include "bytes.h"

enum { CHANCE_BITS = 22, FAST_MEMORY = 30, SLOW_MEMORY = 254, NUMBER_CHANCES = 32 };

/* How often the answer is yes: as of late and in the long run, in units of 2^-CHANCE_BITS. */
typedef struct {
    uint32_t fast, slow, seen;
} Chance;

typedef struct {
    Chance of_bit[NUMBER_CHANCES];
} NumberChances;

static inline uint32_t moved(uint32_t chance, uint32_t seen, bool yes) {
    uint32_t whole = UINT32_C(1) << CHANCE_BITS, pace = 2 * seen + 3;
    return yes ? chance + 2 * (whole - chance) / pace : chance - 2 * chance / pace;
}

static inline void learn(Chance *chance, bool yes) {
    uint32_t seen = chance->seen;
    chance->fast = moved(chance->fast, seen < FAST_MEMORY ? seen : FAST_MEMORY, yes);
    chance->slow = moved(chance->slow, seen, yes);
    chance->seen += seen < SLOW_MEMORY;
}

/* In units of 2^-16, and never certain: neither average comes closer to one than its memory lets it. */
static inline uint32_t probability(const Chance *chance) {
    uint32_t mean = (chance->fast + chance->slow) >> (CHANCE_BITS + 1 - 16);
    return mean < 1 ? 1 : mean;
}

void open_numbers(NumberChances *chances);

/* What is written lies in [low, low + range); a carry goes back into the bytes already out. */
typedef struct {
    Bytes *out;
    size_t start;
    uint32_t low, range;
    bool failed;
} ChanceWriter;

void open_writer(ChanceWriter *writer, Bytes *out);
void write_chance(ChanceWriter *writer, Chance *chance, bool yes);
void write_even(ChanceWriter *writer, bool yes);
void write_number_by_chance(ChanceWriter *writer, NumberChances *chances, uint32_t number);
/* False when there was no memory for all of it. */
bool close_writer(ChanceWriter *writer);

/* `value` is what was written less `low`. Past the end come zeros. */
typedef struct {
    const uint8_t *at, *end;
    uint32_t value, range;
} ChanceReader;

Problem open_reader(ChanceReader *reader, Cursor *in);
bool read_chance(ChanceReader *reader, Chance *chance);
bool read_even(ChanceReader *reader);
Problem read_number_by_chance(ChanceReader *reader, NumberChances *chances, uint32_t *number);
Problem close_reader(const ChanceReader *reader);

#endif
