#include "listed.h"

#include "folded.h"

/* For each byte, which of its bits are set; what follows them is of no use. */
static uint8_t set_bits[256][8];

void prepare_listed(void) {
    for (unsigned byte = 0; byte < 256; byte++)
        for (unsigned bit = 0, found = 0; bit < 8; bit++)
            if (byte >> bit & 1) set_bits[byte][found++] = (uint8_t)bit;
}

/* Places of the symbols that are not the usual one, nor (with signs) the other of the pair.
 *
 * Eight places are written at a time, however many exceptions there are: cheaper than branches. So
 * `places` has room for SPARE more than `most`. There are more only if somebody changes the codes
 * meanwhile.
 */
enum { SPARE = 8 };
static size_t find_exceptions(uint32_t *places, size_t most, const Source *source, uint32_t centre,
                              unsigned sign) {
    bool folded = source->bits > NARROW;
    uint64_t least = folded ? 0 : (centre - sign) & 255;
    uint64_t telling = (folded ? 255 : mask_of(source->bits)) & ~sign;
    size_t found = 0, i = 0;
    for (; i + 8 <= source->count && found <= most; i += 8) {
        uint64_t distances = subtract_each(eight_at(source->symbols + i), least * EACH);
        uint64_t others = nonzero_each(distances & telling * EACH);
        const uint8_t *bits = set_bits[gather_ones(others)];
        for (unsigned k = 0; k < 8; k++) places[found + k] = (uint32_t)i + bits[k];
        found += others * EACH >> 56;
    }
    for (; i < source->count && found <= most; i++) {
        places[found] = (uint32_t)i;
        found += ((source->symbols[i] - least) & telling) != 0;
    }
    return found;
}

/* Places become gaps, and the values that go with them are looked up. */
static void describe(uint32_t *places, uint32_t *values, size_t exceptions, const Source *source,
                     uint32_t centre, unsigned sign) {
    uint32_t next = 0;
    for (size_t k = 0; k < exceptions; k++) {
        uint32_t place = places[k], code = code_at(source->codes, source->size, place);
        values[k] = (fold(code, centre, source->bits) >> sign) - 1;
        places[k] = place - next;
        next = place + 1;
    }
}

static bool write_exceptions(Bytes *out, const Source *source, uint32_t centre,
                             uint32_t exceptions, unsigned sign) {
    if (!write_number(out, exceptions)) return false;
    if (!exceptions) return true;
    uint32_t *places = malloc(((size_t)exceptions + SPARE) * sizeof *places);
    uint32_t *values = malloc((size_t)exceptions * sizeof *values);
    bool written = places && values &&
                   find_exceptions(places, exceptions, source, centre, sign) == exceptions;
    if (written) {
        describe(places, values, exceptions, source, centre, sign);
        written = write_numbers(out, places, exceptions) && write_numbers(out, values, exceptions);
    }
    free(places);
    free(values);
    return written;
}

static bool write_signs(Bytes *out, const Source *source, uint32_t centre) {
    size_t size = bytes_of_bits(source->count), i = 0;
    if (!bytes_reserve(out, size)) return false;
    uint8_t *plane = out->data + out->size;
    if (source->size == 1)
        for (const uint8_t *codes = source->codes; i + 8 <= source->count; i += 8) {
            uint64_t distances = subtract_each(eight_at(codes + i), centre * EACH);
            plane[i / 8] = gather_ones(distances >> (source->bits - 1) & EACH);
        }
    memset(plane + i / 8, 0, size - i / 8);
    for (; i < source->count; i++) {
        uint32_t code = code_at(source->codes, source->size, i);
        plane[i / 8] |= (uint8_t)((fold(code, centre, source->bits) & 1) << i % 8);
    }
    out->size += size;
    return true;
}

bool write_listed(Bytes *out, const Source *source, uint32_t centre, uint32_t exceptions,
                  bool with_signs) {
    return write_number(out, centre) && (!with_signs || write_signs(out, source, centre)) &&
           write_exceptions(out, source, centre, exceptions, with_signs);
}

INLINE uint32_t sign_at(const uint8_t *plane, size_t i) { return plane[i / 8] >> i % 8 & 1; }

static void fill_by_signs(const Target *target, uint32_t centre, const uint8_t *plane) {
    size_t i = 0;
    if (target->size == 1 && centre)
        for (uint8_t *codes = target->codes; i + 8 <= target->count; i += 8) {
            uint64_t eight = centre * EACH - spread_ones(plane[i / 8]);
            memcpy(codes + i, &eight, 8);
        }
    for (; i < target->count; i++)
        put_code(target->codes, target->size, i, unfold(sign_at(plane, i), centre, target->bits));
}

/* Put the exceptions where they belong; `plane` holds their signs, or is NULL. */
static Problem put_exceptions(const Target *target, uint32_t centre, const uint8_t *plane,
                              const uint32_t *gaps, const uint32_t *values, size_t exceptions) {
    uint32_t sign = plane != NULL, most = mask_of(target->bits) >> sign;
    uint64_t next = 0;
    for (size_t k = 0; k < exceptions; k++) {
        uint64_t place = next + gaps[k];
        if (place >= target->count) return "coded body holds an exception beyond its end";
        if (values[k] >= most) return BEYOND_ITS_BITS;
        uint32_t folded = (values[k] + 1) << sign | (sign ? sign_at(plane, place) : 0);
        put_code(target->codes, target->size, place, unfold(folded, centre, target->bits));
        next = place + 1;
    }
    return NULL;
}

static Problem read_exceptions(Cursor *in, const Target *target, uint32_t centre,
                               const uint8_t *plane) {
    uint32_t exceptions;
    TRY(read_number(in, &exceptions));
    if (exceptions > target->count) return "coded body holds more exceptions than codes";
    if (!exceptions) return NULL;
    uint32_t *gaps = malloc(2 * (size_t)exceptions * sizeof *gaps), *values = gaps + exceptions;
    uint8_t *scratch = malloc(exceptions);
    Problem problem = gaps && scratch ? NULL : NO_MEMORY;
    if (!problem) problem = read_numbers(in, gaps, exceptions, scratch);
    if (!problem) problem = read_numbers(in, values, exceptions, scratch);
    if (!problem) problem = put_exceptions(target, centre, plane, gaps, values, exceptions);
    free(gaps);
    free(scratch);
    return problem;
}

Problem read_listed(Cursor *in, const Target *target, bool with_signs) {
    uint32_t centre;
    const uint8_t *plane = NULL;
    TRY(read_centre(in, target->bits, &centre));
    if (with_signs) {
        TRY(take_bits(in, target->count, &plane));
        fill_by_signs(target, centre, plane);
    } else {
        fill_codes(target, centre);
    }
    return read_exceptions(in, target, centre, plane);
}
