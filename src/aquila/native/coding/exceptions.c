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

/* Set eight codes per byte of signs; the codes are one below the centre where the sign is 1. */
CPU_CLONES static void fill_eights(uint8_t *restrict codes, const uint8_t *restrict signs,
                                   size_t bytes, uint32_t centre) {
    for (size_t i = 0; i < bytes; i++) {
        uint64_t eight = centre * EACH - spread_ones(signs[i]);
        memcpy(codes + 8 * i, &eight, 8);
    }
}

static void fill_from_signs(const Target *target, uint32_t centre, const uint8_t *signs) {
    size_t i = 0;
    if (target->size == 1 && centre) {
        i = target->count / 8 * 8;
        fill_eights(target->codes, signs, i / 8, centre);
    }
    for (; i < target->count; i++) {
        uint32_t code = from_zigzag(sign_at(signs, i), centre, target->bits);
        set_code(target->codes, target->size, i, code);
    }
}

/* The exceptions of a segment. The caller frees `symbols`. */
typedef struct {
    NumberReader gaps, values;
    uint8_t *symbols;
    uint32_t count;
} List;

static Error read_list(Cursor *in, size_t codes, List *list) {
    *list = (List){0};
    TRY(read_varint(in, &list->count));
    if (list->count > codes) return "coded body has more exceptions than codes";
    if (!list->count) return NULL;
    list->symbols = malloc(2 * (size_t)list->count);
    if (!list->symbols) return NO_MEMORY;
    TRY(start_numbers(in, &list->gaps, list->count, list->symbols));
    return start_numbers(in, &list->values, list->count, list->symbols + list->count);
}

/* Exceptions that are processed at a time: gaps and values each stay in registers that way. */
enum { PART = 512 };
typedef struct {
    uint64_t next; /* the smallest possible position */
    size_t count;
    uint32_t positions[PART], values[PART];
} Part;

/* Take the next exceptions of a list. Those of a segment of `codes` codes are valid. */
static Error take_part(List *list, Part *part, size_t codes, uint32_t limit) {
    uint64_t next = part->next;
    uint32_t largest = 0;
    part->count = list->count < PART ? list->count : PART;
    list->count -= (uint32_t)part->count;
    next_numbers(&list->gaps, part->positions, part->count);
    next_numbers(&list->values, part->values, part->count);
    for (size_t k = 0; k < part->count; k++) {
        uint64_t position = next + part->positions[k];
        part->positions[k] = (uint32_t)position;
        largest = part->values[k] > largest ? part->values[k] : largest;
        next = position + 1;
    }
    part->next = next;
    if (part->count && next > codes) return EXCEPTION_AFTER_END;
    return largest < limit ? NULL : CODE_TOO_WIDE;
}

#define STORE_UNSIGNED(size)                                                                       \
    for (size_t k = 0; k < part->count; k++)                                                       \
    set_code(codes, size, part->positions[k], from_zigzag(part->values[k] + 1, centre, bits))

#define STORE_SIGNED(size)                                                                         \
    for (size_t k = 0; k < part->count; k++) {                                                     \
        uint32_t position = part->positions[k], zigzag = (part->values[k] + 1) << 1;               \
        zigzag |= sign_at(signs, position);                                                        \
        set_code(codes, size, position, from_zigzag(zigzag, centre, bits));                        \
    }

/* Store exceptions at their positions; `signs` is NULL in mode exceptions. */
SCALAR_CLONES static void store_part(const Target *target, const Part *part, uint32_t centre,
                                     const uint8_t *signs) {
    void *codes = target->codes;
    unsigned bits = target->bits;
    if (signs)
        BY_SIZE(target->size, STORE_SIGNED)
    else
        BY_SIZE(target->size, STORE_UNSIGNED)
}

static Error store_exceptions(const Target *target, uint32_t centre, const uint8_t *signs,
                              List *list) {
    uint32_t limit = code_mask(target->bits) >> (signs != NULL);
    Part part = {.next = 0};
    while (list->count) {
        TRY(take_part(list, &part, target->count, limit));
        store_part(target, &part, centre, signs);
    }
    return NULL;
}

Error read_exceptions(Cursor *in, const Target *target, bool with_signs) {
    uint32_t centre;
    const uint8_t *signs = NULL;
    List list;
    TRY(read_centre(in, target->bits, &centre));
    if (with_signs) {
        TRY(read_bit_string(in, target->count, &signs));
        fill_from_signs(target, centre, signs);
    } else {
        fill_codes(target, centre);
    }
    Error error = read_list(in, target->count, &list);
    if (!error) error = store_exceptions(target, centre, signs, &list);
    free(list.symbols);
    return error;
}

/* Append the exceptions of a segment that begins at `start` and has `count` codes. */
static Error append_exceptions(SparseCodes *sparse, uint32_t centre, List *list, size_t start,
                               size_t count) {
    uint32_t limit = code_mask(sparse->bits);
    Part part = {.next = 0};
    if (!sparse_reserve(sparse, list->count)) return NO_MEMORY;
    while (list->count) {
        TRY(take_part(list, &part, count, limit));
        for (size_t k = 0; k < part.count; k++)
            sparse_append(sparse, start + part.positions[k],
                          from_zigzag(part.values[k] + 1, centre, sparse->bits));
    }
    return NULL;
}

Error read_sparse_exceptions(Cursor *in, SparseCodes *sparse, size_t start, size_t count) {
    uint32_t centre;
    List list;
    TRY(read_centre(in, sparse->bits, &centre));
    Error error = read_list(in, count, &list);
    if (!error) error = append_exceptions(sparse, centre, &list, start, count);
    free(list.symbols);
    return error;
}
