#include "rans.h"

enum { STATES = 4, WORD_BITS = 16 };
static const uint32_t LOWEST_STATE = 1u << 15; /* LOWEST_STATE <= state < LOWEST_STATE << 16 */

static unsigned state_count(size_t count) { return count < FOUR_STATES_FROM ? 1 : STATES; }

/* Precomputed per symbol: division by its frequency becomes a multiplication. Entries of 8 bytes
 * need no arithmetic for their addresses. */
typedef struct {
    struct {
        uint32_t limit, reciprocal; /* states from the limit on emit a word first */
    } division[SYMBOLS];
    struct {
        uint32_t bias;
        uint16_t complement, shift; /* complement = SCALE - frequency */
    } sum[SYMBOLS];
} Encoder;

static void prepare_encoder(Encoder *encoder, const Table *table) {
    uint32_t start = 0;
    for (unsigned s = 0; s < table->symbols; s++) {
        uint32_t frequency = table->frequency[s];
        if (!frequency) continue;
        encoder->division[s].limit = frequency << (31 - SCALE_BITS);
        encoder->sum[s].complement = (uint16_t)(SCALE - frequency);
        if (frequency == 1) { /* the quotient is one too small, and the bias corrects that */
            encoder->division[s].reciprocal = UINT32_MAX;
            encoder->sum[s].shift = 32;
            encoder->sum[s].bias = start + SCALE - 1;
        } else {
            unsigned bits = bit_length(frequency - 1);
            uint64_t dividend = (UINT64_C(1) << (bits + 31)) + frequency - 1;
            encoder->division[s].reciprocal = (uint32_t)(dividend / frequency);
            encoder->sum[s].shift = (uint16_t)(bits + 31);
            encoder->sum[s].bias = start;
        }
        start += frequency;
    }
}

/* The state after one more symbol. States from the symbol's limit on have emitted a word. */
ALWAYS_INLINE uint32_t push(uint32_t state, const Encoder *encoder, uint8_t symbol) {
    uint64_t product = (uint64_t)state * encoder->division[symbol].reciprocal;
    uint32_t quotient = (uint32_t)(product >> encoder->sum[symbol].shift);
    return state + encoder->sum[symbol].bias + quotient * encoder->sum[symbol].complement;
}

/* Words that a stream needs according to its entropy, plus a margin for rounding. */
static size_t expected_words(const Table *table, const uint32_t counts[SYMBOLS]) {
    const uint64_t scale = log2_fixed(SCALE);
    uint64_t bits = 0;
    for (unsigned s = 0; s < table->symbols; s++)
        if (counts[s])
            bits += counts[s] * (scale - log2_fixed(table->frequency[s])) >> LOG_FRACTION_BITS;
    return (size_t)(bits / WORD_BITS + bits / 512) + SYMBOLS;
}

/* Encode from the last symbol to the first, downwards from `end`; NULL if there is no room.
 *
 * The word of a state is stored in any case, and kept if the state was too large. */
SCALAR_CLONES static uint16_t *push_all(uint32_t state[STATES],
                                            const Encoder *encoder,
                                            const uint8_t *restrict symbols, size_t count,
                                            uint16_t *words, uint16_t *end) {
    unsigned states = state_count(count);
    uint16_t *word = end;
    uint32_t x[STATES];
    size_t i = count;
    while (i % STATES || (i && states == 1)) {
        uint8_t symbol = symbols[--i];
        uint32_t *one = &state[i % states];
        if (*one >= encoder->division[symbol].limit) {
            *--word = (uint16_t)*one;
            *one >>= WORD_BITS;
        }
        *one = push(*one, encoder, symbol);
    }
    memcpy(x, state, sizeof x);
    while (i) {
        size_t kept = 0;
        if (word - words < STATES) return NULL;
        i -= STATES;
        for (unsigned k = STATES; k-- > 0;) {
            uint8_t symbol = symbols[i + k];
            uint32_t limit = encoder->division[symbol].limit;
            word[(ptrdiff_t)kept - (STATES - (ptrdiff_t)k)] = (uint16_t)x[k];
            x[k] = choose_below(x[k], limit, x[k], x[k] >> WORD_BITS, &kept);
            x[k] = push(x[k], encoder, symbol);
        }
        word -= STATES - kept;
    }
    memcpy(state, x, sizeof x);
    return word;
}

/* Append states and words. The words lie in memory that `out` has reserved, behind their place. */
static bool write_words(Bytes *out, const uint32_t *state, unsigned states, const uint16_t *word,
                        size_t size) {
    if (!write_varint(out, (uint32_t)size)) return false;
    memcpy(out->data + out->size, state, 4 * states);
    memmove(out->data + out->size + 4 * states, word, 2 * size);
    out->size += 4 * states + 2 * size;
    return true;
}

enum { HEAD = 6 + 4 * STATES }; /* an even bound of a varint and the states */
bool write_symbols(Bytes *out, const uint8_t *symbols, size_t count,
                   const uint32_t counts[SYMBOLS]) {
    Table table;
    Encoder encoder;
    table_from_counts(&table, counts);
    prepare_encoder(&encoder, &table);
    if (!write_table(out, &table)) return false;
    size_t always_enough = count + STATES, expected = expected_words(&table, counts);
    size_t room = expected < always_enough ? expected : always_enough;
    for (;; room = always_enough) {
        uint32_t state[STATES] = {LOWEST_STATE, LOWEST_STATE, LOWEST_STATE, LOWEST_STATE};
        size_t head = HEAD + out->size % 2; /* aligns the words */
        if (!bytes_reserve(out, head + 2 * room)) return false;
        uint16_t *words = (uint16_t *)(out->data + out->size + head), *end = words + room;
        uint16_t *word = push_all(state, &encoder, symbols, count, words, end);
        if (word) return write_words(out, state, state_count(count), word, (size_t)(end - word));
    }
}

/* Per slot of a table: its symbol, and how the state continues after it. */
typedef struct {
    struct {
        uint16_t frequency, offset; /* slot - first slot of the symbol */
    } steps[SCALE];
    uint8_t symbols[SCALE];
} Slots;

static void prepare_decoder(Slots *slots, const Table *table) {
    size_t slot = 0;
    for (uint32_t s = 0; s < table->symbols; s++)
        for (uint32_t k = 0; k < table->frequency[s]; k++, slot++) {
            slots->symbols[slot] = (uint8_t)s;
            slots->steps[slot].frequency = table->frequency[s];
            slots->steps[slot].offset = (uint16_t)k;
        }
}

/* Take one symbol from a state, and return the state before it is filled with the next word. */
ALWAYS_INLINE uint32_t pop(uint32_t state, const Slots *slots, uint8_t *symbol) {
    uint32_t slot = state & (SCALE - 1);
    *symbol = slots->symbols[slot];
    return slots->steps[slot].frequency * (state >> SCALE_BITS) + slots->steps[slot].offset;
}

ALWAYS_INLINE uint32_t fill(uint32_t state, const uint8_t *word) {
    uint16_t next;
    memcpy(&next, word, 2);
    return state << WORD_BITS | next;
}

/* Decode four symbols at a time while four words are left, and return how many. */
SCALAR_CLONES static size_t pop_fours(uint32_t state[STATES], const Slots *slots,
                                          uint8_t *restrict symbols, size_t count,
                                          const uint8_t **words, const uint8_t *end) {
    const uint8_t *word = *words;
    uint32_t x[STATES];
    size_t i = 0;
    memcpy(x, state, sizeof x);
    for (; i + STATES <= count && end - word >= 2 * STATES; i += STATES) {
        size_t used = 0;
        uint32_t four = 0; /* stored at once, because each store may delay loads that follow */
        for (unsigned k = 0; k < STATES; k++) {
            uint8_t symbol;
            uint32_t rest = pop(x[k], slots, &symbol);
            x[k] = choose_below(rest, LOWEST_STATE, fill(rest, word + 2 * used), rest, &used);
            four |= (uint32_t)symbol << 8 * k;
        }
        memcpy(symbols + i, &four, sizeof four);
        word += 2 * used;
    }
    memcpy(state, x, sizeof x);
    *words = word;
    return i;
}

/* Decode all symbols; the stream must use up its words and end in the initial states. */
static Error pop_all(uint32_t state[STATES], const Slots *slots, uint8_t *symbols, size_t count,
                     const uint8_t *word, const uint8_t *end) {
    unsigned states = state_count(count);
    size_t i = states == STATES ? pop_fours(state, slots, symbols, count, &word, end) : 0;
    for (; i < count; i++) {
        uint32_t *x = &state[i % states];
        *x = pop(*x, slots, &symbols[i]);
        if (*x >= LOWEST_STATE) continue;
        if (word == end) return "coded body has too few words for its symbols";
        *x = fill(*x, word);
        word += 2;
    }
    for (unsigned k = 0; k < STATES; k++)
        if (state[k] != LOWEST_STATE) return "coded body contains a stream with a wrong last state";
    return word == end ? NULL : "coded body has too many words for its symbols";
}

Error read_symbols(Cursor *in, uint8_t *symbols, size_t count) {
    Table table;
    Slots slots;
    uint32_t size;
    uint32_t state[STATES] = {LOWEST_STATE, LOWEST_STATE, LOWEST_STATE, LOWEST_STATE};
    unsigned states = state_count(count);
    const uint8_t *stored, *words;
    TRY(read_table(in, &table));
    TRY(read_varint(in, &size));
    TRY(read_bytes(in, 4 * states, &stored));
    TRY(read_bytes(in, 2 * (size_t)size, &words));
    memcpy(state, stored, 4 * states);
    for (unsigned k = 0; k < states; k++)
        if (state[k] < LOWEST_STATE || state[k] >> 31)
            return "coded body contains a state out of range";
    prepare_decoder(&slots, &table);
    return pop_all(state, &slots, symbols, count, words, words + 2 * (size_t)size);
}
