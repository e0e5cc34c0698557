#include "table.h"

enum { LOG_STEPS = 1024 };
static uint32_t logs[LOG_STEPS + 1];

/* log2(1 + i/1024), one bit at a time: squaring a number doubles its logarithm. */
void prepare_logs(void) {
    for (unsigned i = 0; i < LOG_STEPS; i++) {
        uint64_t x = (uint64_t)(LOG_STEPS + i) << 21, log = 0; /* x = 2**31 (1 + i/1024) */
        for (unsigned bit = 0; bit < LOG_FRACTION_BITS; bit++) {
            x = x * x >> 31;
            log <<= 1;
            if (x >> 32) {
                x >>= 1;
                log |= 1;
            }
        }
        logs[i] = (uint32_t)log;
    }
    logs[LOG_STEPS] = 1u << LOG_FRACTION_BITS;
}

uint64_t log2_fixed(uint32_t number) {
    unsigned whole = bit_length(number) - 1;
    uint32_t mantissa = number << (31 - whole);
    unsigned i = mantissa >> 21 & (LOG_STEPS - 1);
    uint64_t rest = mantissa & ((1u << 21) - 1);
    return ((uint64_t)whole << LOG_FRACTION_BITS) + logs[i] +
           ((logs[i + 1] - logs[i]) * rest >> 21);
}

/* The symbol whose frequency can change by `change` (1 or -1) at the lowest cost in bits. The
 * derivative of the cost is about count / frequency; the exact midpoint uses twice the frequency.
 */
static unsigned cheapest_change(const Table *table, const uint32_t counts[SYMBOLS], int change) {
    unsigned best = SYMBOLS;
    uint64_t best_count = 0, best_frequency = 1;
    for (unsigned s = 0; s < table->symbols; s++) {
        if (table->frequency[s] < (change < 0 ? 2 : 1)) continue;
        uint64_t frequency = 2u * table->frequency[s] + (unsigned)change, count = counts[s];
        bool better = change < 0 ? count * best_frequency < best_count * frequency
                                 : count * best_frequency > best_count * frequency;
        if (best == SYMBOLS || better) {
            best = s;
            best_count = count;
            best_frequency = frequency;
        }
    }
    return best;
}

void table_from_counts(Table *table, const uint32_t counts[SYMBOLS]) {
    uint64_t total = 0;
    unsigned sum = 0;
    memset(table, 0, sizeof *table);
    for (unsigned s = 0; s < SYMBOLS; s++) total += counts[s];
    for (unsigned s = 0; s < SYMBOLS; s++) {
        if (!counts[s]) continue;
        uint64_t nearest = ((uint64_t)counts[s] * SCALE + total / 2) / total;
        table->frequency[s] = (uint16_t)(nearest ? nearest : 1);
        table->symbols = s + 1;
        sum += table->frequency[s];
    }
    for (; sum > SCALE; sum--) table->frequency[cheapest_change(table, counts, -1)]--;
    for (; sum < SCALE; sum++) table->frequency[cheapest_change(table, counts, +1)]++;
}

/* Order of the exponential Golomb code of the next frequency: neighbours have similar sizes. */
static unsigned order_after(unsigned frequency) {
    return frequency ? bit_length(frequency) - 1 : 0;
}

bool write_table(Bytes *out, const Table *table) {
    if (!bytes_reserve(out, 1 + 4 * SYMBOLS)) return false;
    out->data[out->size++] = (uint8_t)(table->symbols - 1);
    BitWriter bits = {out->data + out->size, 0, 0};
    for (unsigned s = 0, order = 0; s < table->symbols; s++) {
        unsigned frequency = table->frequency[s];
        uint32_t high = (frequency >> order) + 1;
        unsigned zeros = bit_length(high) - 1;
        write_bits(&bits, 0, zeros);
        write_bits(&bits, 1, 1);
        write_bits(&bits, high & ((1u << zeros) - 1), zeros);
        write_bits(&bits, frequency & ((1u << order) - 1), order);
        order = order_after(frequency);
    }
    out->size = (size_t)(finish_bits(&bits) - out->data);
    return true;
}

Error read_table(Cursor *in, Table *table) {
    static const Error invalid = "coded body contains an invalid frequency table";
    const uint8_t *last;
    TRY(read_bytes(in, 1, &last));
    memset(table, 0, sizeof *table);
    table->symbols = *last + 1u;
    BitReader bits = {in->at, in->end, 0, 0};
    uint64_t used = 0;
    unsigned sum = 0;
    for (unsigned s = 0, order = 0; s < table->symbols; s++) {
        unsigned zeros = 0;
        while (!read_bits(&bits, 1))
            if (++zeros > SCALE_BITS) return invalid;
        unsigned high = (1u << zeros | read_bits(&bits, zeros)) - 1;
        unsigned frequency = high << order | read_bits(&bits, order);
        if (frequency > SCALE - sum) return invalid;
        used += 2 * zeros + 1 + order;
        table->frequency[s] = (uint16_t)frequency;
        sum += frequency;
        order = order_after(frequency);
    }
    if (sum != SCALE || !table->frequency[*last]) return invalid;
    const uint8_t *string;
    TRY(read_bytes(in, bytes_of_bits(used), &string));
    return padding_is_zero(string, used) ? NULL : invalid;
}
