#include "zigzag.h"

#include "plan.h"

#define WRITE_EXTRA_BITS(size)                                                                     \
    for (size_t i = 0; i < source->count; i++)                                                     \
        if (symbols[i] >= SMALL) {                                                                 \
            uint32_t zigzag = to_zigzag(get_code(source->codes, size, i), centre, bits);           \
            uint8_t symbol = symbols[i];                                                           \
            write_bits(&string, zigzag - smallest_number[symbol], extra_bits[symbol]);             \
        }

static bool write_zigzag_symbols(Bytes *out, const Source *source, uint32_t centre,
                                 const uint8_t *symbols) {
    uint32_t counts[SYMBOLS];
    unsigned bits = source->bits;
    count_symbols(counts, symbols, source->count, NUMBER_SYMBOLS);
    uint64_t extra = extra_bits_of_counts(counts);
    if (!write_varint(out, centre) || !write_symbols(out, symbols, source->count, counts) ||
        !bytes_reserve(out, bytes_of_bits(extra) + 4))
        return false;
    BitWriter string = {out->data + out->size, 0, 0};
    if (extra) BY_SIZE(source->size, WRITE_EXTRA_BITS)
    out->size = (size_t)(finish_bits(&string) - out->data);
    return true;
}

bool write_zigzag(Bytes *out, const Source *source, uint32_t centre) {
    if (source->bits > NARROW_BITS)
        return write_zigzag_symbols(out, source, centre, source->symbols);
    uint8_t *symbols = malloc(source->count);
    if (!symbols) return false;
    zigzag_symbols(symbols, source, centre);
    bool written = write_zigzag_symbols(out, source, centre, symbols);
    free(symbols);
    return written;
}

#define SET_FROM_ZIGZAG(size)                                                                      \
    for (size_t i = 0; i < target->count; i++) {                                                   \
        uint32_t zigzag = symbols[i];                                                              \
        if (zigzag >= SMALL)                                                                       \
            zigzag = smallest_number[zigzag] + read_bits(&string, extra_bits[zigzag]);             \
        all |= zigzag;                                                                             \
        set_code(codes, size, i, from_zigzag(zigzag, centre, bits));                               \
    }

static Error read_zigzag_symbols(Cursor *in, const Target *target, uint32_t centre,
                                 uint8_t *symbols) {
    uint64_t extra;
    const uint8_t *start;
    TRY(read_symbols(in, symbols, target->count));
    TRY(count_extra_bits(symbols, target->count, &extra));
    TRY(read_bit_string(in, extra, &start));
    BitReader string = {start, in->at, 0, 0};
    void *codes = target->codes;
    unsigned bits = target->bits;
    uint32_t all = 0;
    BY_SIZE(target->size, SET_FROM_ZIGZAG)
    return all > code_mask(bits) ? CODE_TOO_WIDE : NULL;
}

Error read_centre(Cursor *in, unsigned bits, uint32_t *centre) {
    TRY(read_varint(in, centre));
    return *centre > code_mask(bits)
               ? "coded body contains a centre that does not fit its bit width"
               : NULL;
}

Error read_zigzag(Cursor *in, const Target *target) {
    uint32_t centre;
    TRY(read_centre(in, target->bits, &centre));
    uint8_t *symbols = malloc(target->count);
    if (!symbols) return NO_MEMORY;
    Error error = read_zigzag_symbols(in, target, centre, symbols);
    free(symbols);
    return error;
}
