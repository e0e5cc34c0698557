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

Error count_extra_bits(const uint8_t *symbols, size_t count, uint64_t *total) {
    uint8_t largest = 0;
    *total = 0;
    for (size_t i = 0; i < count;) {
        if (count - i >= 8 && are_small(symbols + i)) {
            i += 8;
            continue;
        }
        for (size_t end = count - i < 8 ? count : i + 8; i < end; i++) {
            largest = symbols[i] > largest ? symbols[i] : largest;
            *total += extra_bits[symbols[i]];
        }
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

Error read_numbers(Cursor *in, uint32_t *numbers, size_t count, uint8_t *scratch) {
    uint64_t extra;
    const uint8_t *string;
    TRY(read_symbols(in, scratch, count));
    TRY(count_extra_bits(scratch, count, &extra));
    TRY(read_bit_string(in, extra, &string));
    BitReader bits = {string, in->at, 0, 0};
    for (size_t i = 0; i < count; i++)
        numbers[i] = smallest_number[scratch[i]] + read_bits(&bits, extra_bits[scratch[i]]);
    return NULL;
}
