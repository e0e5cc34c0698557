#include "folded.h"

#include "plan.h"

#define WRITE_OPEN(size)                                                              \
    for (size_t i = 0; i < source->count; i++)                                        \
        if (symbols[i] >= SMALL) {                                                    \
            uint32_t folded = fold(code_at(source->codes, size, i), centre, bits);    \
            write_bits(&string, folded - least_number[symbols[i]], open_bits[symbols[i]]); \
        }

static bool write_symbols_and_rest(Bytes *out, const Source *source, uint32_t centre,
                                   const uint8_t *symbols) {
    uint32_t counts[SYMBOLS];
    unsigned bits = source->bits;
    count_symbols(counts, symbols, source->count, NUMBER_SYMBOLS);
    uint64_t open = open_in(counts);
    if (!write_number(out, centre) || !write_symbols(out, symbols, source->count, counts) ||
        !bytes_reserve(out, bytes_of_bits(open) + 4))
        return false;
    BitWriter string = {out->data + out->size, 0, 0};
    if (open) BY_SIZE(source->size, WRITE_OPEN)
    out->size = (size_t)(finish_bits(&string) - out->data);
    return true;
}

bool write_folded(Bytes *out, const Source *source, uint32_t centre) {
    if (source->bits > NARROW)
        return write_symbols_and_rest(out, source, centre, source->symbols);
    uint8_t *symbols = malloc(source->count);
    if (!symbols) return false;
    fold_symbols(symbols, source, centre);
    bool written = write_symbols_and_rest(out, source, centre, symbols);
    free(symbols);
    return written;
}

#define PUT_FOLDED(size)                                                                  \
    for (size_t i = 0; i < target->count; i++) {                                          \
        uint32_t folded = symbols[i];                                                     \
        if (folded >= SMALL)                                                              \
            folded = least_number[folded] + read_bits(&string, open_bits[folded]);        \
        all |= folded;                                                                    \
        put_code(codes, size, i, unfold(folded, centre, bits));                           \
    }

static Problem put_folded(Cursor *in, const Target *target, uint32_t centre, uint8_t *symbols) {
    uint64_t open;
    const uint8_t *start;
    TRY(read_symbols(in, symbols, target->count));
    TRY(count_open(symbols, target->count, &open));
    TRY(take_bits(in, open, &start));
    BitReader string = {start, in->at, 0, 0};
    void *codes = target->codes;
    unsigned bits = target->bits;
    uint32_t all = 0;
    BY_SIZE(target->size, PUT_FOLDED)
    return all > mask_of(bits) ? BEYOND_ITS_BITS : NULL;
}

Problem read_centre(Cursor *in, unsigned bits, uint32_t *centre) {
    TRY(read_number(in, centre));
    return *centre > mask_of(bits) ? "coded body has its centre beyond its bits" : NULL;
}

Problem read_folded(Cursor *in, const Target *target) {
    uint32_t centre;
    TRY(read_centre(in, target->bits, &centre));
    uint8_t *symbols = malloc(target->count);
    if (!symbols) return NO_MEMORY;
    Problem problem = put_folded(in, target, centre, symbols);
    free(symbols);
    return problem;
}
