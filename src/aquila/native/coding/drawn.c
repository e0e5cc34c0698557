#include "drawn.h"

#include "../lots.h"
#include "chances.h"

enum { BANDS = 32, MOST_RARITY = 31 };
/* Coordinates of this many bands below the rarity are not asked one by one: winners are listed. */
enum { ASKED = 4 };
/* Words that are drawn at a time, for the processor to do so side by side. */
enum { DRAWN = 1024 };

/* Of 4096: how often sizes about an exponential distribution win, from ASKED bands below the rarity
 * on; what has been seen before anything was. */
static const uint16_t first_chances[] = {1, 15, 249, 1011, 2034, 2886, 3438, 3753, 3920, 3973};
enum { FIRST_CHANCES = sizeof first_chances / sizeof *first_chances, FIRST_SEEN = 4 };

typedef struct {
    uint32_t seed, mixed_seed;
    uint32_t least; /* word from which on a coordinate is asked */
    uint32_t centre;
    Chance won[BANDS];
    NumberChances gaps, magnitudes;
} Draw;

/* The reach is how many ones a word must begin with for the coordinate to be asked. */
static unsigned reach_of(unsigned rarity) { return rarity > ASKED ? rarity - ASKED : 0; }

static void open_draw(Draw *draw, uint32_t seed, unsigned rarity, unsigned bits) {
    unsigned reach = reach_of(rarity);
    draw->seed = seed;
    draw->mixed_seed = mix_word(seed);
    draw->least = reach ? -(UINT32_C(1) << (32 - reach)) : 0;
    draw->centre = mask_of(bits) >> 1;
    for (unsigned band = 0; band < BANDS; band++) {
        unsigned above = band + ASKED > rarity ? band + ASKED - rarity : 0;
        uint32_t first = first_chances[above < FIRST_CHANCES ? above : FIRST_CHANCES - 1];
        first <<= CHANCE_BITS - 12;
        draw->won[band] = (Chance){first, first, FIRST_SEEN};
    }
    open_numbers(&draw->gaps);
    open_numbers(&draw->magnitudes);
}

static bool is_asked(const Draw *draw, uint32_t word) { return word >= draw->least; }

static uint32_t word_at(const Draw *draw, uint32_t i) {
    return lot_word(draw->seed, draw->mixed_seed, i);
}

static Chance *chance_of(Draw *draw, uint32_t word) {
    return &draw->won[~word > 1 ? __builtin_clz(~word) : BANDS - 1];
}

/* Places, from `start` on, of the coordinates that are asked, and their words; returns how many. */
VECTORISED static size_t find_asked(const Draw *draw, size_t start, size_t count, uint32_t *places,
                                    uint32_t *words) {
    uint32_t drawn[DRAWN], seed = draw->seed, mixed_seed = draw->mixed_seed;
    for (uint32_t i = 0; i < DRAWN; i++)
        drawn[i] = lot_word(seed, mixed_seed, (uint32_t)start + i);
    size_t found = 0;
    for (size_t i = 0; i < count; i++) {
        places[found] = (uint32_t)(start + i);
        words[found] = drawn[i];
        found += is_asked(draw, drawn[i]);
    }
    return found;
}

/* It is one, unless somebody has changed the codes meanwhile. */
static void write_winner(ChanceWriter *writer, Draw *draw, uint32_t code) {
    bool negative = code < draw->centre;
    writer->failed |= code == draw->centre;
    if (writer->failed) return;
    write_even(writer, negative);
    write_number_by_chance(writer, &draw->magnitudes,
                           (negative ? draw->centre - code : code - draw->centre) - 1);
}

static void write_listed_winners(ChanceWriter *writer, Draw *draw, const Source *source,
                                 const uint32_t *listed, size_t count) {
    uint32_t next = 0;
    for (size_t k = 0; k < count; k++) {
        write_number_by_chance(writer, &draw->gaps, listed[k] - next);
        write_winner(writer, draw, code_at(source->codes, source->size, listed[k]));
        next = listed[k] + 1;
    }
}

static void write_asked(ChanceWriter *writer, Draw *draw, const Source *source) {
    uint32_t places[DRAWN], words[DRAWN];
    for (size_t start = 0; start < source->count; start += DRAWN) {
        size_t count = source->count - start < DRAWN ? source->count - start : DRAWN;
        size_t asked = find_asked(draw, start, count, places, words);
        for (size_t k = 0; k < asked; k++) {
            uint32_t code = code_at(source->codes, source->size, places[k]);
            write_chance(writer, chance_of(draw, words[k]), code != draw->centre);
            if (code != draw->centre) write_winner(writer, draw, code);
        }
    }
}

#define COUNT_WINNERS(size) \
    for (size_t i = 0; i < count; i++) winners += code_at(codes, size, i) != centre

VECTORISED static size_t count_winners(const Source *source, uint32_t centre) {
    const void *codes = source->codes;
    size_t count = source->count, winners = 0;
    BY_SIZE(source->size, COUNT_WINNERS)
    return winners;
}

/* Places of the winners that are not asked, of which there are `winners` at most. */
static size_t find_listed(const Draw *draw, const Source *source, uint32_t *places,
                          size_t winners) {
    size_t listed = 0;
    for (size_t i = 0; winners && i < source->count; i++) {
        if (code_at(source->codes, source->size, i) == draw->centre) continue;
        places[listed] = (uint32_t)i;
        listed += !is_asked(draw, word_at(draw, (uint32_t)i));
        winners--;
    }
    return listed;
}

static unsigned rarity_of(size_t count, size_t winners) {
    unsigned rarity = 0;
    while (rarity < MOST_RARITY && winners << (rarity + 1) <= count) rarity++;
    return rarity;
}

bool write_drawn(Bytes *out, Source *source) {
    Draw draw;
    ChanceWriter writer;
    size_t winners = count_winners(source, mask_of(source->bits) >> 1);
    unsigned rarity = rarity_of(source->count, winners);
    uint32_t *places = malloc((winners + 1) * sizeof *places);
    if (!places) return false;
    open_draw(&draw, source->seed, rarity, source->bits);
    size_t listed = find_listed(&draw, source, places, winners);
    bool begun = write_byte(out, (uint8_t)rarity) && write_number(out, (uint32_t)listed);
    if (begun) {
        open_writer(&writer, out);
        write_listed_winners(&writer, &draw, source, places, listed);
        write_asked(&writer, &draw, source);
    }
    free(places);
    return begun && close_writer(&writer);
}

static Problem read_winner(ChanceReader *reader, Draw *draw, const Target *target, size_t i) {
    uint32_t number;
    bool negative = read_even(reader);
    TRY(read_number_by_chance(reader, &draw->magnitudes, &number));
    if (number > draw->centre - negative) return BEYOND_ITS_BITS;
    uint32_t code = negative ? draw->centre - number - 1 : draw->centre + number + 1;
    put_code(target->codes, target->size, i, code);
    return NULL;
}

static Problem read_listed_winners(ChanceReader *reader, Draw *draw, const Target *target,
                                   uint32_t listed) {
    uint64_t place = 0;
    for (uint32_t k = 0; k < listed; k++, place++) {
        uint32_t gap;
        TRY(read_number_by_chance(reader, &draw->gaps, &gap));
        place += gap;
        if (place >= target->count) return "drawn body lists a coordinate beyond its end";
        if (is_asked(draw, word_at(draw, (uint32_t)place)))
            return "drawn body lists a coordinate whose lot was high";
        TRY(read_winner(reader, draw, target, place));
    }
    return NULL;
}

static Problem read_asked(ChanceReader *reader, Draw *draw, const Target *target) {
    uint32_t places[DRAWN], words[DRAWN];
    for (size_t start = 0; start < target->count; start += DRAWN) {
        size_t count = target->count - start < DRAWN ? target->count - start : DRAWN;
        size_t asked = find_asked(draw, start, count, places, words);
        for (size_t k = 0; k < asked; k++)
            if (read_chance(reader, chance_of(draw, words[k])))
                TRY(read_winner(reader, draw, target, places[k]));
    }
    return NULL;
}

Problem read_drawn(Cursor *in, const Target *target) {
    Draw draw;
    ChanceReader reader;
    const uint8_t *first;
    uint32_t listed;
    TRY(take(in, 1, &first));
    unsigned rarity = *first;
    if (target->bits < 2) return "drawn body of one bit a code";
    if (rarity > MOST_RARITY) return "drawn body claims a rarity above 31";
    TRY(read_number(in, &listed));
    if (listed > target->count) return "drawn body lists more codes than there are";
    open_draw(&draw, target->seed, rarity, target->bits);
    fill_codes(target, draw.centre);
    TRY(open_reader(&reader, in));
    TRY(read_listed_winners(&reader, &draw, target, listed));
    TRY(read_asked(&reader, &draw, target));
    return close_reader(&reader);
}
