#include "source.h"

enum { SAMPLE = 511, STANDS_OUT = 8 };

#define COLLECT(type) \
    for (size_t i = 0; i < source->count; i++) all |= ((const type *)source->codes)[i]

VECTORISED bool codes_fit(const Source *source) {
    uint64_t all = 0;
    switch (source->size) {
    case 1: COLLECT(uint8_t); break;
    case 2: COLLECT(uint16_t); break;
    case 4: COLLECT(uint32_t); break;
    default: COLLECT(uint64_t); break;
    }
    return all <= mask_of(source->bits);
}

#define FOLD(size)                                                                  \
    for (size_t i = 0; i < count; i++) {                                            \
        uint32_t folded = fold(code_at(codes, size, i), centre, bits);              \
        symbols[i] = (uint8_t)(folded < 255 ? folded : 255);                        \
    }

#define REFINE(size)                                                                \
    for (size_t i = from; i < to; i++)                                              \
        if (symbols[i] >= SMALL)                                                    \
            symbols[i] = symbol_of(fold(code_at(codes, size, i), centre, bits))

/* Nearly all folds are small and are their own symbols: one loop for these that the compiler can
 * vectorise, and a second look at the eights that hold another. */
VECTORISED void fold_symbols(uint8_t *symbols, const Source *source, uint32_t centre) {
    const void *codes = source->codes; /* what the loops need is copied: symbols might alias it */
    size_t count = source->count;
    unsigned bits = source->bits;
    BY_SIZE(source->size, FOLD)
    for (size_t from = 0, to; from < count; from = to) {
        to = from + 8 < count ? from + 8 : count;
        if (to - from == 8 && !(eight_at(symbols + from) & EACH * (256 - SMALL))) continue;
        BY_SIZE(source->size, REFINE)
    }
}

static int ascending(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static size_t seen(const uint32_t *sample, size_t size, uint32_t code) {
    size_t times = 0;
    for (size_t k = 0; k < size; k++) times += sample[k] == code;
    return times;
}

uint32_t guess_centre(const Source *source) {
    uint32_t sample[SAMPLE], best = 0;
    size_t size = source->count < SAMPLE ? source->count : SAMPLE, most = 0;
    for (size_t k = 0; k < size; k++)
        sample[k] = code_at(source->codes, source->size, k * (source->count / size));
    qsort(sample, size, sizeof *sample, ascending);
    for (size_t start = 0, end; start < size; start = end) {
        for (end = start; end < size && sample[end] == sample[start]; end++) {}
        if (end - start > most) most = end - start, best = sample[start];
    }
    if (STANDS_OUT * most < size) return sample[size / 2];
    size_t above = seen(sample, size, best + 1), below = seen(sample, size, best - 1);
    /* of two codes that stand out together the upper one, so that they fold to 0 and 1 */
    return 2 * above > most && 2 * below < above ? best + 1 : best;
}

#define FILL(size) \
    for (size_t i = 0; i < count; i++) put_code(codes, size, i, code)

void fill_codes(const Target *target, uint32_t code) {
    void *codes = target->codes;
    size_t count = target->count;
    BY_SIZE(target->size, FILL)
}
