#include "plan.h"

/* At most one exception per this many codes. With 4 instead of 8, bodies are 0.12 % shorter, but
 * encoding takes 1.4 times as long. With 16 they are 0.05 % longer. */
enum { CODES_PER_EXCEPTION = 8 };
/* Exceptions of narrow codes are listed if they are FEW, or MANY, or in a LONG segment. Otherwise
 * the table of their gaps is larger than what the list saves: without these limits, streams of
 * 100,000 codes are up to 15 % longer, although all streams together are 0.09 % shorter. MANY alone
 * saves 0.09 %. Listing 2 to 7 exceptions costs 5 to 20 bytes per segment, which is negligible. */
enum { FEW_EXCEPTIONS = 7, MANY_EXCEPTIONS = 1 << 11 };
/* Estimated overhead in bits, per symbol in a table and per stream. */
enum { TABLE_BITS = 6, STREAM_BITS = 200 };

static uint64_t count_times_log(uint64_t count) {
    return count ? count * log2_fixed((uint32_t)count) : 0;
}

/* Entropy in bits of `total` symbols; `counted` is the sum of count_times_log over all symbols.
 * Rounding could make the difference negative. */
static uint64_t entropy(uint32_t total, uint64_t counted) {
    uint64_t all = count_times_log(total);
    return all > counted ? (all - counted) >> LOG_FRACTION_BITS : 0;
}

/* Number of possible symbols: the codes, or the symbols of zigzag numbers. */
static unsigned alphabet_of(unsigned bits) {
    return bits <= NARROW_BITS ? 1u << bits : NUMBER_SYMBOLS;
}

static uint64_t cost_of(const Statistics *s, unsigned bits) {
    uint64_t counted = 0, overhead = STREAM_BITS;
    for (unsigned symbol = 0; symbol < alphabet_of(bits); symbol++) {
        uint32_t count = s->counts[symbol];
        if (!count) continue;
        counted += count_times_log(count);
        overhead += TABLE_BITS;
        if (bits > NARROW_BITS) overhead += (uint64_t)count * extra_bits[symbol];
    }
    uint64_t coded = entropy(s->total, counted) + overhead;
    uint64_t packed = (uint64_t)s->total * bits;
    return coded < packed ? coded : packed;
}

/* Several counters per symbol, because a run of equal symbols would wait for its own counter. */
enum { LANES = 8, PAIR_LANES = 4, PAIR_BITS = 4 };

/* Count pairs of symbols below 16, in half the time. */
static size_t count_pairs(uint32_t counts[SYMBOLS], const uint8_t *symbols, size_t count,
                          unsigned alphabet) {
    const uint64_t low_bits = (alphabet - 1) * UINT64_C(0x0001000100010001);
    uint32_t lanes[PAIR_LANES][1 << 2 * PAIR_BITS];
    size_t i = 0;
    memset(lanes, 0, sizeof lanes);
    for (; i + 2 * PAIR_LANES <= count; i += 2 * PAIR_LANES) {
        uint64_t eight = load_eight(symbols + i);
        uint64_t pairs = (eight & low_bits) | (eight >> (8 - PAIR_BITS) & low_bits << PAIR_BITS);
        for (unsigned k = 0; k < PAIR_LANES; k++) lanes[k][pairs >> 16 * k & 255]++;
    }
    for (unsigned pair = 0; pair < 1 << 2 * PAIR_BITS; pair++) {
        uint32_t both = 0;
        for (unsigned k = 0; k < PAIR_LANES; k++) both += lanes[k][pair];
        counts[pair >> PAIR_BITS] += both;
        counts[pair & ((1 << PAIR_BITS) - 1)] += both;
    }
    return i;
}

void count_symbols(uint32_t counts[SYMBOLS], const uint8_t *symbols, size_t count,
                   unsigned alphabet) {
    uint32_t lanes[LANES][SYMBOLS];
    memset(counts, 0, SYMBOLS * sizeof *counts);
    size_t i = alphabet <= 1 << PAIR_BITS ? count_pairs(counts, symbols, count, alphabet) : 0;
    for (unsigned k = 0; k < LANES; k++) memset(lanes[k], 0, alphabet * sizeof *lanes[k]);
    for (; i + LANES <= count; i += LANES) {
        uint64_t eight = load_eight(symbols + i);
        for (unsigned k = 0; k < LANES; k++) lanes[k][eight >> 8 * k & (alphabet - 1)]++;
    }
    for (; i < count; i++) lanes[0][symbols[i] & (alphabet - 1)]++;
    for (unsigned k = 0; k < LANES; k++)
        for (unsigned s = 0; s < alphabet; s++) counts[s] += lanes[k][s];
}

void measure(Statistics *result, const Source *source, size_t start, size_t count) {
    count_symbols(result->counts, source->symbols + start, count, alphabet_of(source->bits));
    result->total = (uint32_t)count;
    result->cost = cost_of(result, source->bits);
}

void join(Statistics *both, const Statistics *a, const Statistics *b, unsigned bits) {
    for (unsigned s = 0; s < SYMBOLS; s++) both->counts[s] = a->counts[s] + b->counts[s];
    both->total = a->total + b->total;
    both->cost = cost_of(both, bits);
}

/* Counts per zigzag number of narrow codes, or per symbol of wide codes, which are zigzag already.
 */
static void count_zigzag(uint32_t zigzag[SYMBOLS], const Statistics *s, unsigned bits,
                         uint32_t centre) {
    if (bits > NARROW_BITS) {
        memcpy(zigzag, s->counts, sizeof s->counts);
        return;
    }
    memset(zigzag, 0, sizeof s->counts);
    for (uint32_t code = 0; code <= code_mask(bits); code++)
        zigzag[to_zigzag(code, centre, bits)] = s->counts[code];
}

/* Bits for the signs, and for the list of the magnitudes that are not zero. */
static uint64_t signed_cost(const uint32_t zigzag[SYMBOLS], uint32_t total, unsigned bits) {
    uint64_t counted = 0, overhead = 2 * STREAM_BITS + total;
    for (unsigned s = 0; s < SYMBOLS; s += 2) {
        bool both_signs = bits > NARROW_BITS && s >= SMALL; /* each symbol covers both signs */
        uint64_t pair = (uint64_t)zigzag[s] + zigzag[s + 1];
        if (!pair) continue;
        counted += both_signs ? count_times_log(zigzag[s]) + count_times_log(zigzag[s + 1])
                              : count_times_log(pair);
        overhead += TABLE_BITS;
        if (both_signs) overhead += pair * (extra_bits[s] - 1);
    }
    return entropy(total, counted) + overhead;
}

static uint32_t most_frequent(const Statistics *s) {
    uint32_t best = 0;
    for (uint32_t symbol = 1; symbol < SYMBOLS; symbol++)
        if (s->counts[symbol] > s->counts[best]) best = symbol;
    return best;
}

static bool lists_exceptions(uint32_t exceptions, uint32_t total, unsigned bits) {
    if (exceptions > total / CODES_PER_EXCEPTION) return false;
    return bits > NARROW_BITS || exceptions <= FEW_EXCEPTIONS || exceptions >= MANY_EXCEPTIONS ||
           total >= LONG_SEGMENT;
}

/* A table gives every symbol a frequency of at least 1/4096, which is too much for rare symbols.
 * If there are many of them, zigzag is shorter, because there rare codes share symbols. */
static bool has_long_tail(const Statistics *s) {
    uint64_t rare = 0;
    for (unsigned symbol = 0; symbol < SYMBOLS; symbol++)
        rare += s->counts[symbol] && (uint64_t)s->counts[symbol] * SCALE < s->total;
    return rare * s->total / SCALE > s->cost / 128;
}

Choice choose_mode(const Statistics *s, const Source *source) {
    uint32_t zigzag[SYMBOLS], centre = source->centre;
    unsigned bits = source->bits;
    if (s->cost >= (uint64_t)s->total * bits) return (Choice){PACKED, 0, 0};
    if (bits <= NARROW_BITS) centre = most_frequent(s);
    count_zigzag(zigzag, s, bits, centre);
    uint32_t exceptions = s->total - zigzag[0];
    if (lists_exceptions(exceptions, s->total, bits))
        return (Choice){EXCEPTIONS, centre, exceptions};
    if (bits <= NARROW_BITS && zigzag[2] > zigzag[1]) {
        centre = (centre + 1) & code_mask(bits);
        count_zigzag(zigzag, s, bits, centre);
    }
    exceptions = s->total - zigzag[0] - zigzag[1];
    /* The mode is accepted at up to 0.5 % more bits, because it is faster. */
    if (exceptions <= s->total / CODES_PER_EXCEPTION &&
        signed_cost(zigzag, s->total, bits) <= s->cost + s->cost / 200)
        return (Choice){SIGNED_EXCEPTIONS, centre, exceptions};
    return (Choice){bits > NARROW_BITS || has_long_tail(s) ? ZIGZAG : DIRECT, centre, 0};
}
