#include "zigzag.h"

/* Narrow codes are their own symbols. Whether eight of them are close to the centre. */
static bool are_close(const uint8_t *codes, uint32_t centre, unsigned bits) {
    uint64_t above = subtract_each(load_eight(codes), ((centre - SMALL / 2) & 255) * EACH);
    return !(above & (code_mask(bits) & (256 - SMALL)) * EACH);
}

#define WRITE_EXTRA_BITS(size)                                                                     \
    for (size_t i = from; i < to; i++) {                                                           \
        uint32_t zigzag = to_zigzag(get_code(source->codes, size, i), centre, bits);               \
        uint8_t symbol = number_symbol(zigzag);                                                    \
        write_bits(&string, zigzag - smallest_number[symbol], extra_bits[symbol]);                 \
    }

/* Append the extra bits of all codes. Most groups of eight have none. */
static bool write_extra_bits(Bytes *out, const Source *source, uint32_t centre, uint64_t extra) {
    unsigned bits = source->bits;
    const uint8_t *symbols = source->symbols;
    if (!bytes_reserve(out, bytes_of_bits(extra) + 4)) return false;
    BitWriter string = {out->data + out->size, 0, 0};
    for (size_t from = 0, to; extra && from < source->count; from = to) {
        to = from + 8 < source->count ? from + 8 : source->count;
        if (to - from == 8 && (bits > NARROW_BITS ? are_small(symbols + from)
                                                  : are_close(symbols + from, centre, bits)))
            continue;
        BY_SIZE(source->size, WRITE_EXTRA_BITS)
    }
    out->size = (size_t)(finish_bits(&string) - out->data);
    return true;
}

bool write_zigzag(Bytes *out, const Source *source, uint32_t centre,
                  const uint32_t counts[SYMBOLS]) {
    uint32_t mapped[SYMBOLS] = {0};
    uint8_t map[SYMBOLS] = {0};
    if (!write_varint(out, centre)) return false;
    if (source->bits > NARROW_BITS)
        return write_symbols(out, source->symbols, source->count, counts) &&
               write_extra_bits(out, source, centre, extra_bits_of_counts(counts));
    for (uint32_t code = 0; code <= code_mask(source->bits); code++) {
        map[code] = number_symbol(to_zigzag(code, centre, source->bits));
        mapped[map[code]] += counts[code];
    }
    return write_mapped_symbols(out, source->symbols, source->count, mapped, map) &&
           write_extra_bits(out, source, centre, extra_bits_of_counts(mapped));
}

#define SET_SMALL(size)                                                                            \
    for (size_t i = 0; i < count; i++)                                                             \
    set_code(codes, size, i, from_zigzag(symbols[i], centre, bits))

/* Set all codes as if no number had extra bits. The compiler vectorises this. */
CPU_CLONES static void set_small(const Target *target, uint32_t centre,
                                 const uint8_t *restrict symbols) {
    void *restrict codes = target->codes;
    size_t count = target->count;
    unsigned bits = target->bits;
    BY_SIZE(target->size, SET_SMALL)
}

static Error read_zigzag_symbols(Cursor *in, const Target *target, uint32_t centre,
                                 uint8_t *symbols) {
    uint64_t extra;
    const uint8_t *start;
    TRY(read_symbols(in, symbols, target->count));
    TRY(count_extra_bits(symbols, target->count, &extra));
    TRY(read_bit_string(in, extra, &start));
    BitReader string = {start, in->at, 0, 0};
    uint64_t small = 0;
    uint32_t all = 0;
    set_small(target, centre, symbols);
    for (size_t from = 0, to; from < target->count; from = to) {
        to = from + 8 < target->count ? from + 8 : target->count;
        if (to - from == 8 && are_small(symbols + from)) {
            small |= load_eight(symbols + from);
            continue;
        }
        for (size_t i = from; i < to; i++) {
            uint8_t symbol = symbols[i];
            uint32_t zigzag = smallest_number[symbol] + read_bits(&string, extra_bits[symbol]);
            all |= zigzag;
            set_code(target->codes, target->size, i, from_zigzag(zigzag, centre, target->bits));
        }
    }
    for (; small; small >>= 8) all |= small & 255;
    return all > code_mask(target->bits) ? CODE_TOO_WIDE : NULL;
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
