#include "numbers.h"

uint32_t smallest_number[SYMBOLS];
uint8_t extra_bits[SYMBOLS];

void prepare_numbers(void) {
    for (unsigned s = 0; s < SMALL; s++) smallest_number[s] = s;
    for (unsigned s = SMALL; s < NUMBER_SYMBOLS; s++) {
        extra_bits[s] = (uint8_t)((s - SMALL) / PARTS + SMALL_BITS - PARTS_BITS);
        smallest_number[s] = (PARTS + s % PARTS) << extra_bits[s];
    }
}

uint64_t extra_bits_of_counts(const uint32_t counts[SYMBOLS]) {
    uint64_t total = 0;
    for (unsigned s = 0; s < NUMBER_SYMBOLS; s++) total += (uint64_t)counts[s] * extra_bits[s];
    return total;
}

/* The same as a sum over extra_bits, in arithmetic that the compiler vectorises. */
CPU_CLONES Error count_extra_bits(const uint8_t *symbols, size_t count, uint64_t *total) {
    enum { PART = 1 << 12 };
    uint8_t largest = 0;
    *total = 0;
    for (size_t start = 0; start < count; start += PART) {
        size_t size = count - start < PART ? count - start : PART;
        uint32_t sum = 0;
        for (const uint8_t *s = symbols + start; s < symbols + start + size; s++) {
            largest = *s > largest ? *s : largest;
            sum += *s >= SMALL ? *s / PARTS - SMALL / PARTS + SMALL_BITS - PARTS_BITS : 0;
        }
        *total += sum;
    }
    return largest < NUMBER_SYMBOLS ? NULL : "coded body contains a number of more than 32 bits";
}

bool write_numbers(Bytes *out, const uint32_t *numbers, size_t count) {
    uint32_t counts[SYMBOLS] = {0};
    uint8_t *symbols = malloc(count);
    if (!symbols) return false;
    for (size_t i = 0; i < count; i++) counts[symbols[i] = number_symbol(numbers[i])]++;
    uint64_t extra = extra_bits_of_counts(counts);
    bool written =
        write_symbols(out, symbols, count, counts) && bytes_reserve(out, bytes_of_bits(extra) + 4);
    if (written) {
        BitWriter bits = {out->data + out->size, 0, 0};
        for (size_t i = 0; extra && i < count; i++)
            write_bits(&bits, numbers[i] - smallest_number[symbols[i]], extra_bits[symbols[i]]);
        out->size = (size_t)(finish_bits(&bits) - out->data);
    }
    free(symbols);
    return written;
}

Error start_numbers(Cursor *in, NumberReader *numbers, size_t count, uint8_t *symbols) {
    uint64_t extra;
    const uint8_t *string;
    TRY(read_symbols(in, symbols, count));
    TRY(count_extra_bits(symbols, count, &extra));
    TRY(read_bit_string(in, extra, &string));
    *numbers = (NumberReader){symbols, {string, in->at, 0, 0}};
    return NULL;
}

SCALAR_CLONES static void add_extra_bits(NumberReader *numbers, uint32_t *next, size_t count) {
    const uint32_t *smallest = smallest_number;
    const uint8_t *symbols = numbers->symbols, *extra = extra_bits;
    BitReader bits = numbers->extra;
    for (size_t i = 0; i < count; i++)
        next[i] = smallest[symbols[i]] + read_bits(&bits, extra[symbols[i]]);
    numbers->extra = bits;
}

void next_numbers(NumberReader *numbers, uint32_t *next, size_t count) {
    bool has_extra_bits = numbers->extra.count || numbers->extra.at < numbers->extra.end;
    if (has_extra_bits)
        add_extra_bits(numbers, next, count);
    else
        for (size_t i = 0; i < count; i++) next[i] = numbers->symbols[i];
    numbers->symbols += count;
}
