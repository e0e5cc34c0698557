#include "codes.h"

enum { SAMPLE = 511, FREQUENT = 8 }; /* a frequent code is at least 1 of 8 in the sample */

#define COLLECT(type)                                                                              \
    for (size_t i = 0; i < source->count; i++) all |= ((const type *)source->codes)[i]

CPU_CLONES bool codes_fit(const Source *source) {
    uint64_t all = 0;
    if (source->bits == 8 * source->size) return true;
    switch (source->size) {
    case 1: COLLECT(uint8_t); break;
    case 2: COLLECT(uint16_t); break;
    case 4: COLLECT(uint32_t); break;
    default: COLLECT(uint64_t); break;
    }
    return all <= code_mask(source->bits);
}

#define CLAMPED_ZIGZAG(size)                                                                       \
    for (size_t i = 0; i < count; i++) {                                                           \
        uint32_t zigzag = to_zigzag(get_code(codes, size, i), centre, bits);                       \
        symbols[i] = (uint8_t)(zigzag < 255 ? zigzag : 255);                                       \
    }

#define REPLACE_LARGE(size)                                                                        \
    for (size_t i = from; i < to; i++)                                                             \
        if (symbols[i] >= SMALL)                                                                   \
    symbols[i] = number_symbol(to_zigzag(get_code(codes, size, i), centre, bits))

/* Nearly all zigzag numbers are small and are their own symbols. The first loop assumes that, and
 * the compiler vectorises it. The second loop corrects groups of eight that hold a large number. */
CPU_CLONES void zigzag_symbols(uint8_t *symbols, const Source *source, uint32_t centre) {
    const void *codes = source->codes; /* local copies, because symbols may alias *source */
    size_t count = source->count;
    unsigned bits = source->bits;
    BY_SIZE(source->size, CLAMPED_ZIGZAG)
    for (size_t from = 0, to; from < count; from = to) {
        to = from + 8 < count ? from + 8 : count;
        if (to - from == 8 && are_small(symbols + from)) continue;
        BY_SIZE(source->size, REPLACE_LARGE)
    }
}

static int compare_ascending(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static size_t count_equal(const uint32_t *sample, size_t size, uint32_t code) {
    size_t equal = 0;
    for (size_t k = 0; k < size; k++) equal += sample[k] == code;
    return equal;
}

uint32_t estimate_centre(const Source *source) {
    uint32_t sample[SAMPLE], mode = 0;
    size_t size = source->count < SAMPLE ? source->count : SAMPLE, mode_count = 0;
    for (size_t k = 0; k < size; k++)
        sample[k] = get_code(source->codes, source->size, k * (source->count / size));
    qsort(sample, size, sizeof *sample, compare_ascending);
    for (size_t start = 0, end; start < size; start = end) {
        for (end = start; end < size && sample[end] == sample[start]; end++) {
        }
        if (end - start > mode_count) {
            mode_count = end - start;
            mode = sample[start];
        }
    }
    if (FREQUENT * mode_count < size) return sample[size / 2];
    size_t above = count_equal(sample, size, mode + 1), below = count_equal(sample, size, mode - 1);
    /* Two frequent neighbours: with the upper one as the centre, their zigzag numbers are 0 and 1,
     * as signed exceptions need. Compared with mode zigzag, wide codes of a grid without a zero are
     * then read in half the time, with up to 0.3 % more bytes. No recorded stream has such codes.
     */
    return 2 * above > mode_count && 2 * below < above ? mode + 1 : mode;
}

#define FILL(size)                                                                                 \
    for (size_t i = 0; i < count; i++) set_code(codes, size, i, code)

void fill_codes(const Target *target, uint32_t code) {
    void *codes = target->codes;
    size_t count = target->count;
    BY_SIZE(target->size, FILL)
}
