#include "numbers.h"

uint32_t least_number[SYMBOLS];
uint8_t open_bits[SYMBOLS];

void prepare_numbers(void) {
    for (unsigned s = 0; s < SMALL; s++) least_number[s] = s;
    for (unsigned s = SMALL; s < NUMBER_SYMBOLS; s++) {
        open_bits[s] = (uint8_t)((s - SMALL) / PARTS + SMALL_BITS - PARTS_BITS);
        least_number[s] = (PARTS + s % PARTS) << open_bits[s];
    }
}

uint64_t open_in(const uint32_t counts[SYMBOLS]) {
    uint64_t open = 0;
    for (unsigned s = 0; s < NUMBER_SYMBOLS; s++) open += (uint64_t)counts[s] * open_bits[s];
    return open;
}

Problem count_open(const uint8_t *symbols, size_t count, uint64_t *open) {
    uint8_t most = 0;
    *open = 0;
    for (size_t i = 0; i < count; i++) {
        most = symbols[i] > most ? symbols[i] : most;
        *open += open_bits[symbols[i]];
    }
    return most < NUMBER_SYMBOLS ? NULL : "coded body holds a number beyond 32 bits";
}

bool write_numbers(Bytes *out, const uint32_t *numbers, size_t count) {
    uint32_t counts[SYMBOLS] = {0};
    uint8_t *symbols = malloc(count);
    if (!symbols) return false;
    for (size_t i = 0; i < count; i++) counts[symbols[i] = symbol_of(numbers[i])]++;
    uint64_t open = open_in(counts);
    bool written = write_symbols(out, symbols, count, counts) &&
                   bytes_reserve(out, bytes_of_bits(open) + 4);
    if (written) {
        BitWriter bits = {out->data + out->size, 0, 0};
        for (size_t i = 0; open && i < count; i++)
            write_bits(&bits, numbers[i] - least_number[symbols[i]], open_bits[symbols[i]]);
        out->size = (size_t)(finish_bits(&bits) - out->data);
    }
    free(symbols);
    return written;
}

Problem read_numbers(Cursor *in, uint32_t *numbers, size_t count, uint8_t *scratch) {
    uint64_t open;
    const uint8_t *string;
    TRY(read_symbols(in, scratch, count));
    TRY(count_open(scratch, count, &open));
    TRY(take_bits(in, open, &string));
    BitReader bits = {string, in->at, 0, 0};
    for (size_t i = 0; i < count; i++)
        numbers[i] = least_number[scratch[i]] + read_bits(&bits, open_bits[scratch[i]]);
    return NULL;
}
