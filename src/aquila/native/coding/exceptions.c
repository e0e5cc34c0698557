#include "exceptions.h"

#include "zigzag.h"

#define EXCEPTION_AFTER_END "coded body has an exception after its segment's end"

/* Indices of the one bits of each byte; entries after them are unused. */
static uint8_t one_bits[256][8];

void prepare_exceptions(void) {
    for (unsigned byte = 0; byte < 256; byte++)
        for (unsigned bit = 0, found = 0; bit < 8; bit++)
            if (byte >> bit & 1) one_bits[byte][found++] = (uint8_t)bit;
}

/* Find the positions of all symbols other than the usual one (with signs: the usual two).
 *
 * Each step stores eight positions, however many are exceptions, because that is cheaper than
 * branches. So `positions` has room for SPARE more than `limit`. More than `limit` exist only if
 * another thread changes the codes at the same time.
 */
enum { SPARE = 8 };
static size_t find_exceptions(uint32_t *positions, size_t limit, const Source *source,
                              uint32_t centre, unsigned sign) {
    bool is_zigzag = source->bits > NARROW_BITS;
    uint64_t usual = is_zigzag ? 0 : (centre - sign) & 255;
    uint64_t mask = (is_zigzag ? 255 : code_mask(source->bits)) & ~sign;
    size_t found = 0, i = 0;
    for (; i + 8 <= source->count && found <= limit; i += 8) {
        uint64_t distances = subtract_each(load_eight(source->symbols + i), usual * EACH);
        uint64_t exceptions = nonzero_each(distances & mask * EACH);
        const uint8_t *bits = one_bits[gather_ones(exceptions)];
        for (unsigned k = 0; k < 8; k++) positions[found + k] = (uint32_t)i + bits[k];
        found += exceptions * EACH >> 56;
    }
    for (; i < source->count && found <= limit; i++) {
        positions[found] = (uint32_t)i;
        found += ((source->symbols[i] - usual) & mask) != 0;
    }
    return found;
}

/* Turn positions into gaps, and look up the value of each exception. */
static void to_gaps_and_values(uint32_t *positions, uint32_t *values, size_t exceptions,
                               const Source *source, uint32_t centre, unsigned sign) {
    uint32_t next = 0;
    for (size_t k = 0; k < exceptions; k++) {
        uint32_t position = positions[k], code = get_code(source->codes, source->size, position);
        values[k] = (to_zigzag(code, centre, source->bits) >> sign) - 1;
        positions[k] = position - next;
        next = position + 1;
    }
}

static bool write_list(Bytes *out, const Source *source, uint32_t centre, uint32_t exceptions,
                       unsigned sign) {
    if (!write_varint(out, exceptions)) return false;
    if (!exceptions) return true;
    uint32_t *positions = malloc(((size_t)exceptions + SPARE) * sizeof *positions);
    uint32_t *values = malloc((size_t)exceptions * sizeof *values);
    bool written = positions && values &&
                   find_exceptions(positions, exceptions, source, centre, sign) == exceptions;
    if (written) {
        to_gaps_and_values(positions, values, exceptions, source, centre, sign);
        written =
            write_numbers(out, positions, exceptions) && write_numbers(out, values, exceptions);
    }
    free(positions);
    free(values);
    return written;
}

static bool write_signs(Bytes *out, const Source *source, uint32_t centre) {
    size_t size = bytes_of_bits(source->count), i = 0;
    if (!bytes_reserve(out, size)) return false;
    uint8_t *signs = out->data + out->size;
    if (source->size == 1)
        for (const uint8_t *codes = source->codes; i + 8 <= source->count; i += 8) {
            uint64_t distances = subtract_each(load_eight(codes + i), centre * EACH);
            signs[i / 8] = gather_ones(distances >> (source->bits - 1) & EACH);
        }
    memset(signs + i / 8, 0, size - i / 8);
    for (; i < source->count; i++) {
        uint32_t code = get_code(source->codes, source->size, i);
        signs[i / 8] |= (uint8_t)((to_zigzag(code, centre, source->bits) & 1) << i % 8);
    }
    out->size += size;
    return true;
}

bool write_exceptions(Bytes *out, const Source *source, uint32_t centre, uint32_t exceptions,
                      bool with_signs) {
    return write_varint(out, centre) && (!with_signs || write_signs(out, source, centre)) &&
           write_list(out, source, centre, exceptions, with_signs);
}

ALWAYS_INLINE uint32_t sign_at(const uint8_t *signs, size_t i) { return signs[i / 8] >> i % 8 & 1; }

static void fill_from_signs(const Target *target, uint32_t centre, const uint8_t *signs) {
    size_t i = 0;
    if (target->size == 1 && centre)
        for (uint8_t *codes = target->codes; i + 8 <= target->count; i += 8) {
            uint64_t eight = centre * EACH - spread_ones(signs[i / 8]);
            memcpy(codes + i, &eight, 8);
        }
    for (; i < target->count; i++) {
        uint32_t code = from_zigzag(sign_at(signs, i), centre, target->bits);
        set_code(target->codes, target->size, i, code);
    }
}

/* Store the exceptions at their positions; `signs` is NULL in mode exceptions. */
static Error store_exceptions(const Target *target, uint32_t centre, const uint8_t *signs,
                              const uint32_t *gaps, const uint32_t *values, size_t exceptions) {
    uint32_t sign = signs != NULL, limit = code_mask(target->bits) >> sign;
    uint64_t next = 0;
    for (size_t k = 0; k < exceptions; k++) {
        uint64_t position = next + gaps[k];
        if (position >= target->count) return EXCEPTION_AFTER_END;
        if (values[k] >= limit) return CODE_TOO_WIDE;
        uint32_t zigzag = (values[k] + 1) << sign | (sign ? sign_at(signs, position) : 0);
        set_code(target->codes, target->size, position, from_zigzag(zigzag, centre, target->bits));
        next = position + 1;
    }
    return NULL;
}

/* Gaps and values of a list of exceptions. The caller frees `gaps`; `values` is a part of it. */
typedef struct {
    uint32_t *gaps, *values, count;
} List;

static Error read_list(Cursor *in, size_t codes, List *list) {
    TRY(read_varint(in, &list->count));
    if (list->count > codes) return "coded body has more exceptions than codes";
    if (!list->count) return NULL;
    list->gaps = malloc(2 * (size_t)list->count * sizeof *list->gaps);
    list->values = list->gaps + list->count;
    uint8_t *scratch = malloc(list->count);
    Error error = list->gaps && scratch ? NULL : NO_MEMORY;
    if (!error) error = read_numbers(in, list->gaps, list->count, scratch);
    if (!error) error = read_numbers(in, list->values, list->count, scratch);
    free(scratch);
    return error;
}

Error read_exceptions(Cursor *in, const Target *target, bool with_signs) {
    uint32_t centre;
    const uint8_t *signs = NULL;
    List list = {NULL, NULL, 0};
    TRY(read_centre(in, target->bits, &centre));
    if (with_signs) {
        TRY(read_bit_string(in, target->count, &signs));
        fill_from_signs(target, centre, signs);
    } else {
        fill_codes(target, centre);
    }
    Error error = read_list(in, target->count, &list);
    if (!error) error = store_exceptions(target, centre, signs, list.gaps, list.values, list.count);
    free(list.gaps);
    return error;
}

/* Append the exceptions of a segment that begins at `start` and has `count` codes. */
static Error append_exceptions(SparseCodes *sparse, uint32_t centre, const List *list, size_t start,
                               size_t count) {
    uint32_t limit = code_mask(sparse->bits);
    uint64_t next = 0;
    if (!sparse_reserve(sparse, list->count)) return NO_MEMORY;
    for (size_t k = 0; k < list->count; k++) {
        uint64_t position = next + list->gaps[k];
        if (position >= count) return EXCEPTION_AFTER_END;
        if (list->values[k] >= limit) return CODE_TOO_WIDE;
        uint32_t code = from_zigzag(list->values[k] + 1, centre, sparse->bits);
        sparse_append(sparse, start + position, code);
        next = position + 1;
    }
    return NULL;
}

Error read_sparse_exceptions(Cursor *in, SparseCodes *sparse, size_t start, size_t count) {
    uint32_t centre;
    List list = {NULL, NULL, 0};
    TRY(read_centre(in, sparse->bits, &centre));
    Error error = read_list(in, count, &list);
    if (!error) error = append_exceptions(sparse, centre, &list, start, count);
    free(list.gaps);
    return error;
}
