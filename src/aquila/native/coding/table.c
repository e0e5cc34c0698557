#include "table.h"

enum { LOG_STEPS = 1024 };
static uint32_t logs[LOG_STEPS + 1];

/* log2(1 + i/1024), bit by bit: squaring a number doubles its logarithm. */
void prepare_logs(void) {
    for (unsigned i = 0; i < LOG_STEPS; i++) {
        uint64_t x = (uint64_t)(LOG_STEPS + i) << 21, log = 0; /* x = 2**31 (1 + i/1024) */
        for (unsigned bit = 0; bit < LOG_UNIT; bit++) {
            x = x * x >> 31;
            log <<= 1;
            if (x >> 32) {
                x >>= 1;
                log |= 1;
            }
        }
        logs[i] = (uint32_t)log;
    }
    logs[LOG_STEPS] = 1u << LOG_UNIT;
}

uint64_t log_of(uint32_t number) {
    unsigned whole = width(number) - 1;
    uint32_t mantissa = number << (31 - whole);
    unsigned i = mantissa >> 21 & (LOG_STEPS - 1);
    uint64_t rest = mantissa & ((1u << 21) - 1);
    return ((uint64_t)whole << LOG_UNIT) + logs[i] + ((logs[i + 1] - logs[i]) * rest >> 21);
}

/* The symbol whose share can move by one at the least loss: `counts / share` is what one costs. */
static unsigned cheapest(const Table *table, const uint32_t counts[SYMBOLS], int move) {
    unsigned best = SYMBOLS;
    uint64_t best_count = 0, best_share = 1;
    for (unsigned s = 0; s < table->symbols; s++) {
        if (table->share[s] < (move < 0 ? 2 : 1)) continue;
        uint64_t share = 2u * table->share[s] + (unsigned)move, count = counts[s];
        bool better = move < 0 ? count * best_share < best_count * share
                               : count * best_share > best_count * share;
        if (best == SYMBOLS || better) best = s, best_count = count, best_share = share;
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
        table->share[s] = (uint16_t)(nearest ? nearest : 1);
        table->symbols = s + 1;
        sum += table->share[s];
    }
    for (; sum > SCALE; sum--) table->share[cheapest(table, counts, -1)]--;
    for (; sum < SCALE; sum++) table->share[cheapest(table, counts, +1)]++;
}

/* Exponential Golomb code of an order that follows the share before it: neighbours are alike. */
static unsigned order_after(unsigned share) { return share ? width(share) - 1 : 0; }

bool write_table(Bytes *out, const Table *table) {
    if (!bytes_reserve(out, 1 + 4 * SYMBOLS)) return false;
    out->data[out->size++] = (uint8_t)(table->symbols - 1);
    BitWriter bits = {out->data + out->size, 0, 0};
    for (unsigned s = 0, order = 0; s < table->symbols; s++) {
        unsigned share = table->share[s];
        uint32_t high = (share >> order) + 1;
        write_bits(&bits, 0, width(high) - 1);
        write_bits(&bits, 1, 1);
        write_bits(&bits, high & ((1u << (width(high) - 1)) - 1), width(high) - 1);
        write_bits(&bits, share & ((1u << order) - 1), order);
        order = order_after(share);
    }
    out->size = (size_t)(finish_bits(&bits) - out->data);
    return true;
}

Problem read_table(Cursor *in, Table *table) {
    static const Problem unsound = "coded body holds a table whose shares are not sound";
    const uint8_t *last;
    TRY(take(in, 1, &last));
    memset(table, 0, sizeof *table);
    table->symbols = *last + 1u;
    BitReader bits = {in->at, in->end, 0, 0};
    uint64_t used = 0;
    unsigned sum = 0;
    for (unsigned s = 0, order = 0; s < table->symbols; s++) {
        unsigned zeros = 0;
        while (!read_bits(&bits, 1))
            if (++zeros > SCALE_BITS) return unsound;
        unsigned high = (1u << zeros | read_bits(&bits, zeros)) - 1;
        unsigned share = high << order | read_bits(&bits, order);
        if (share > SCALE - sum) return unsound;
        used += 2 * zeros + 1 + order;
        table->share[s] = (uint16_t)share;
        sum += share;
        order = order_after(share);
    }
    if (sum != SCALE || !table->share[*last]) return unsound;
    const uint8_t *string;
    TRY(take(in, bytes_of_bits(used), &string));
    return spare_is_zero(string, used) ? NULL : unsound;
}
