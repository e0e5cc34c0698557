#include "rans.h"

enum { STATES = 4, WORD_BITS = 16 };
static const uint32_t LOW = 1u << 15; /* a state is at least LOW and below LOW << WORD_BITS */

static unsigned states_of(size_t count) { return count < FOUR_STATES_FROM ? 1 : STATES; }

/* What encoding a symbol takes; the division by its share is a multiplication. */
typedef struct {
    uint32_t limit, reciprocal, bias;
    uint16_t rest, shift;
} Step;

static void prepare_steps(Step steps[SYMBOLS], const Table *table) {
    uint32_t start = 0;
    for (unsigned s = 0; s < table->symbols; s++) {
        uint32_t share = table->share[s];
        if (!share) continue;
        Step *step = &steps[s];
        step->limit = share << (31 - SCALE_BITS);
        step->rest = (uint16_t)(SCALE - share);
        if (share == 1) { /* the quotient comes out one too small, which the bias makes good */
            step->reciprocal = UINT32_MAX;
            step->shift = 32;
            step->bias = start + SCALE - 1;
        } else {
            unsigned up = width(share - 1);
            step->reciprocal = (uint32_t)(((UINT64_C(1) << (up + 31)) + share - 1) / share);
            step->shift = (uint16_t)(up + 31);
            step->bias = start;
        }
        start += share;
    }
}

/* Take one symbol in; words are stored downwards from `word`. */
static inline uint16_t *push(uint32_t *state, const Step *step, uint16_t *word) {
    uint32_t x = *state;
    unsigned spill = x >= step->limit;
    word[-1] = (uint16_t)x;
    word -= spill;
    x >>= spill * WORD_BITS;
    uint32_t quotient = (uint32_t)((uint64_t)x * step->reciprocal >> step->shift);
    *state = x + step->bias + quotient * step->rest;
    return word;
}

/* Words that a stream will take: its information, and some more for what rounding may lose. */
static size_t likely_words(const Table *table, const uint32_t counts[SYMBOLS]) {
    const uint64_t certain = log_of(SCALE);
    uint64_t bits = 0;
    for (unsigned s = 0; s < table->symbols; s++)
        if (counts[s]) bits += counts[s] * (certain - log_of(table->share[s])) >> LOG_UNIT;
    return (size_t)(bits / WORD_BITS + bits / 512) + SYMBOLS;
}

/* Encode from the last symbol to the first, downwards from `end`; NULL when the room ran out. */
VECTORISED static uint16_t *push_all(uint32_t state[STATES], const Step steps[SYMBOLS], const uint8_t *symbols,
                          size_t count, uint16_t *words, uint16_t *end) {
    unsigned states = states_of(count);
    uint16_t *word = end;
    size_t i = count;
    while (i % STATES || (i && states == 1)) {
        i--;
        word = push(&state[i % states], &steps[symbols[i]], word);
    }
    while (i) {
        if (word - words < STATES) return NULL;
        i -= STATES;
        for (unsigned k = STATES; k-- > 0;)
            word = push(&state[k], &steps[symbols[i + k]], word);
    }
    return word;
}

static bool write_words(Bytes *out, const uint32_t *state, unsigned states, const uint16_t *word,
                        size_t size) {
    if (!write_number(out, (uint32_t)size) || !bytes_reserve(out, 4 * states + 2 * size))
        return false;
    memcpy(out->data + out->size, state, 4 * states);
    memcpy(out->data + out->size + 4 * states, word, 2 * size);
    out->size += 4 * states + 2 * size;
    return true;
}

bool write_symbols(Bytes *out, const uint8_t *symbols, size_t count,
                   const uint32_t counts[SYMBOLS]) {
    Table table;
    Step steps[SYMBOLS];
    table_from_counts(&table, counts);
    prepare_steps(steps, &table);
    size_t certain = count + STATES, likely = likely_words(&table, counts);
    for (size_t room = likely < certain ? likely : certain;; room = certain) {
        uint32_t state[STATES] = {LOW, LOW, LOW, LOW};
        uint16_t *words = malloc(room * sizeof *words), *end = words + room;
        if (!words) return false;
        uint16_t *word = push_all(state, steps, symbols, count, words, end);
        bool written = word && write_table(out, &table) &&
                       write_words(out, state, states_of(count), word, (size_t)(end - word));
        free(words);
        if (word) return written;
    }
}

/* For each of the 4096 slots: symbol (8 bits), share - 1 (12), slot - start of the symbol (12). */
static void prepare_slots(uint32_t slots[SCALE], const Table *table) {
    uint32_t *slot = slots;
    for (uint32_t s = 0; s < table->symbols; s++)
        for (uint32_t k = 0; k < table->share[s]; k++)
            *slot++ = s | (uint32_t)(table->share[s] - 1) << 8 | k << 20;
}

/* Give one symbol out; true when the state wants the next word. */
static inline bool pop(uint32_t *state, const uint32_t slots[SCALE], uint8_t *symbol) {
    uint32_t slot = slots[*state & (SCALE - 1)];
    *symbol = (uint8_t)slot;
    *state = ((slot >> 8 & (SCALE - 1)) + 1) * (*state >> SCALE_BITS) + (slot >> 20);
    return *state < LOW;
}

static inline uint16_t word_at(const uint8_t *at) {
    uint16_t word;
    memcpy(&word, at, 2);
    return word;
}

Problem read_symbols(Cursor *in, uint8_t *symbols, size_t count) {
    Table table;
    uint32_t slots[SCALE], state[STATES] = {LOW, LOW, LOW, LOW}, size;
    unsigned states = states_of(count);
    const uint8_t *stored, *word;
    TRY(read_table(in, &table));
    TRY(read_number(in, &size));
    TRY(take(in, 4 * states, &stored));
    TRY(take(in, 2 * (size_t)size, &word));
    const uint8_t *end = word + 2 * (size_t)size;
    memcpy(state, stored, 4 * states);
    for (unsigned k = 0; k < states; k++)
        if (state[k] < LOW || state[k] >> 31) return "coded body holds a state out of range";
    prepare_slots(slots, &table);
    size_t i = 0;
    if (states == STATES)
        for (; i + STATES <= count && end - word >= 2 * STATES; i += STATES)
            for (unsigned k = 0; k < STATES; k++) {
                bool wants = pop(&state[k], slots, &symbols[i + k]);
                uint32_t filled = state[k] << WORD_BITS | word_at(word);
                state[k] = wants ? filled : state[k];
                word += 2 * wants;
            }
    for (; i < count; i++) {
        uint32_t *x = &state[i % states];
        if (!pop(x, slots, &symbols[i])) continue;
        if (word == end) return "coded body ends before its symbols";
        *x = *x << WORD_BITS | word_at(word);
        word += 2;
    }
    for (unsigned k = 0; k < STATES; k++)
        if (state[k] != LOW) return "coded body does not end as it must";
    return word == end ? NULL : "coded body goes on after its symbols";
}
