#include "plan.h"

/* Lists of exceptions are written for at most one in this many codes: from there on coding every
 * symbol is as fast. */
enum { RARE = 8 };
/* Nor for few in a short stretch, unless it is a handful: the table of their gaps would take more
 * than coding every symbol. */
enum { HANDFUL = 8, FEW = 1 << 11, SHORT = 1 << 18 };
enum { TABLE_BITS = 6, STREAM_BITS = 200 };

static uint64_t information(uint64_t count) { return count ? count * log_of((uint32_t)count) : 0; }

/* Bits that tell the symbols of a stretch apart; rounding must not take them below zero. */
static uint64_t entropy(uint32_t total, uint64_t known) {
    uint64_t all = information(total);
    return all > known ? (all - known) >> LOG_UNIT : 0;
}

/* How many symbols codes can be: themselves, or those of their folded numbers. */
static unsigned kinds_of(unsigned bits) {
    return bits <= NARROW ? 1u << bits : NUMBER_SYMBOLS;
}

static uint64_t cost_of(const Statistics *s, unsigned bits) {
    uint64_t known = 0, beside = STREAM_BITS;
    for (unsigned symbol = 0; symbol < kinds_of(bits); symbol++) {
        uint32_t count = s->counts[symbol];
        if (!count) continue;
        known += information(count);
        beside += TABLE_BITS;
        if (bits > NARROW) beside += (uint64_t)count * open_bits[symbol];
    }
    uint64_t coded = entropy(s->total, known) + beside;
    uint64_t packed = (uint64_t)s->total * bits;
    return coded < packed ? coded : packed;
}

/* Eight counters a symbol, so that a run of equal symbols does not wait for itself. */
enum { LANES = 8 };

void count_symbols(uint32_t counts[SYMBOLS], const uint8_t *symbols, size_t count, unsigned kinds) {
    uint32_t lanes[LANES][SYMBOLS];
    size_t i = 0;
    for (unsigned k = 0; k < LANES; k++) memset(lanes[k], 0, kinds * sizeof *lanes[k]);
    for (; i + LANES <= count; i += LANES) {
        uint64_t eight = eight_at(symbols + i);
        for (unsigned k = 0; k < LANES; k++) lanes[k][eight >> 8 * k & (kinds - 1)]++;
    }
    for (; i < count; i++) lanes[0][symbols[i] & (kinds - 1)]++;
    memset(counts, 0, SYMBOLS * sizeof *counts);
    for (unsigned k = 0; k < LANES; k++)
        for (unsigned s = 0; s < kinds; s++) counts[s] += lanes[k][s];
}

void measure(Statistics *found, const Source *source, size_t start, size_t count) {
    count_symbols(found->counts, source->symbols + start, count, kinds_of(source->bits));
    found->total = (uint32_t)count;
    found->cost = cost_of(found, source->bits);
}

void join(Statistics *both, const Statistics *a, const Statistics *b, unsigned bits) {
    for (unsigned s = 0; s < SYMBOLS; s++) both->counts[s] = a->counts[s] + b->counts[s];
    both->total = a->total + b->total;
    both->cost = cost_of(both, bits);
}

/* Counts of folded codes: narrow ones by fold, wide ones are folded already. */
static void folded_counts(uint32_t folded[SYMBOLS], const Statistics *s, unsigned bits,
                          uint32_t centre) {
    if (bits > NARROW) {
        memcpy(folded, s->counts, sizeof s->counts);
        return;
    }
    memset(folded, 0, sizeof s->counts);
    for (uint32_t code = 0; code <= mask_of(bits); code++)
        folded[fold(code, centre, bits)] = s->counts[code];
}

/* Bits for a plane of signs and a list of the magnitudes that are not zero. */
static uint64_t signed_cost(const uint32_t folded[SYMBOLS], uint32_t total, unsigned bits) {
    uint64_t known = 0, beside = 2 * STREAM_BITS + total;
    for (unsigned s = 0; s < SYMBOLS; s += 2) {
        bool shared = bits > NARROW && s >= SMALL; /* here a symbol stands for both signs */
        uint64_t pair = (uint64_t)folded[s] + folded[s + 1];
        if (!pair) continue;
        known += shared ? information(folded[s]) + information(folded[s + 1]) : information(pair);
        beside += TABLE_BITS;
        if (shared) beside += pair * (open_bits[s] - 1);
    }
    return entropy(total, known) + beside;
}

static uint32_t most_frequent(const Statistics *s) {
    uint32_t best = 0;
    for (uint32_t symbol = 1; symbol < SYMBOLS; symbol++)
        if (s->counts[symbol] > s->counts[best]) best = symbol;
    return best;
}

/* A symbol has at least one share, which is too much for one that hardly ever comes. Many of them
 * are better folded to numbers, where they share symbols. */
static bool has_long_tail(const Statistics *s) {
    uint64_t rare = 0;
    for (unsigned symbol = 0; symbol < SYMBOLS; symbol++)
        rare += s->counts[symbol] && (uint64_t)s->counts[symbol] * SCALE < s->total;
    return rare * s->total / SCALE > s->cost / 128;
}

Choice choose(const Statistics *s, const Source *source) {
    uint32_t folded[SYMBOLS], rare = s->total / RARE, centre = source->centre;
    unsigned bits = source->bits;
    if (s->cost >= (uint64_t)s->total * bits) return (Choice){PACKED, 0, 0};
    if (bits <= NARROW) centre = most_frequent(s);
    folded_counts(folded, s, bits, centre);
    uint32_t others = s->total - folded[0];
    bool few = bits <= NARROW && others >= HANDFUL && others < FEW && s->total < SHORT;
    if (others <= rare && !few) return (Choice){SPARSE, centre, others};
    if (bits <= NARROW && folded[2] > folded[1]) {
        centre = (centre + 1) & mask_of(bits);
        folded_counts(folded, s, bits, centre);
    }
    uint32_t exceptions = s->total - folded[0] - folded[1];
    if (exceptions <= rare && signed_cost(folded, s->total, bits) <= s->cost + s->cost / 200)
        return (Choice){SIGNED, centre, exceptions};
    return (Choice){bits > NARROW || has_long_tail(s) ? FOLDED : DIRECT, centre, 0};
}
