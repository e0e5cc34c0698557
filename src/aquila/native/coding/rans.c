#include "rans.h"

enum { STATES = 4, WORD_BITS = 16 };
static const uint32_t LOWEST_STATE = 1u << 15; /* LOWEST_STATE <= state < LOWEST_STATE << 16 */

static unsigned state_count(size_t count) { return count < FOUR_STATES_FROM ? 1 : STATES; }

/* Precomputed per symbol: division by its frequency becomes a multiplication. */
typedef struct {
    uint32_t limit; /* states from here on emit a word first */
    uint32_t reciprocal, bias;
    uint16_t complement, shift; /* complement = SCALE - frequency */
} EncoderSymbol;

static void prepare_encoder(EncoderSymbol prepared[SYMBOLS], const Table *table) {
    uint32_t start = 0;
    for (unsigned s = 0; s < table->symbols; s++) {
        uint32_t frequency = table->frequency[s];
        if (!frequency) continue;
        EncoderSymbol *symbol = &prepared[s];
        symbol->limit = frequency << (31 - SCALE_BITS);
        symbol->complement = (uint16_t)(SCALE - frequency);
        if (frequency == 1) { /* the quotient is one too small, and the bias corrects that */
            symbol->reciprocal = UINT32_MAX;
            symbol->shift = 32;
            symbol->bias = start + SCALE - 1;
        } else {
            unsigned bits = bit_length(frequency - 1);
            uint64_t dividend = (UINT64_C(1) << (bits + 31)) + frequency - 1;
            symbol->reciprocal = (uint32_t)(dividend / frequency);
            symbol->shift = (uint16_t)(bits + 31);
            symbol->bias = start;
        }
        start += frequency;
    }
}

/* Add one symbol to the state; words are stored downwards from `word`. */
static inline uint16_t *push(uint32_t *state, const EncoderSymbol *symbol, uint16_t *word) {
    uint32_t x = *state;
    unsigned full = x >= symbol->limit;
    word[-1] = (uint16_t)x;
    word -= full;
    x >>= full * WORD_BITS;
    uint32_t quotient = (uint32_t)((uint64_t)x * symbol->reciprocal >> symbol->shift);
    *state = x + symbol->bias + quotient * symbol->complement;
    return word;
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

/* Encode from the last symbol to the first, downwards from `end`; NULL if there is no room. */
CPU_CLONES static uint16_t *push_all(uint32_t state[STATES], const EncoderSymbol prepared[SYMBOLS],
                                     const uint8_t *symbols, size_t count, uint16_t *words,
                                     uint16_t *end) {
    unsigned states = state_count(count);
    uint16_t *word = end;
    size_t i = count;
    while (i % STATES || (i && states == 1)) {
        i--;
        word = push(&state[i % states], &prepared[symbols[i]], word);
    }
    while (i) {
        if (word - words < STATES) return NULL;
        i -= STATES;
        for (unsigned k = STATES; k-- > 0;) word = push(&state[k], &prepared[symbols[i + k]], word);
    }
    return word;
}

static bool write_words(Bytes *out, const uint32_t *state, unsigned states, const uint16_t *word,
                        size_t size) {
    if (!write_varint(out, (uint32_t)size) || !bytes_reserve(out, 4 * states + 2 * size))
        return false;
    memcpy(out->data + out->size, state, 4 * states);
    memcpy(out->data + out->size + 4 * states, word, 2 * size);
    out->size += 4 * states + 2 * size;
    return true;
}

bool write_symbols(Bytes *out, const uint8_t *symbols, size_t count,
                   const uint32_t counts[SYMBOLS]) {
    Table table;
    EncoderSymbol prepared[SYMBOLS];
    table_from_counts(&table, counts);
    prepare_encoder(prepared, &table);
    size_t always_enough = count + STATES, expected = expected_words(&table, counts);
    size_t room = expected < always_enough ? expected : always_enough;
    for (;; room = always_enough) {
        uint32_t state[STATES] = {LOWEST_STATE, LOWEST_STATE, LOWEST_STATE, LOWEST_STATE};
        uint16_t *words = malloc(room * sizeof *words), *end = words + room;
        if (!words) return false;
        uint16_t *word = push_all(state, prepared, symbols, count, words, end);
        bool written = word && write_table(out, &table) &&
                       write_words(out, state, state_count(count), word, (size_t)(end - word));
        free(words);
        if (word) return written;
    }
}

/* Per slot: symbol (8 bits), frequency - 1 (12 bits), slot - first slot of the symbol (12 bits). */
static void prepare_decoder(uint32_t slots[SCALE], const Table *table) {
    uint32_t *slot = slots;
    for (uint32_t s = 0; s < table->symbols; s++)
        for (uint32_t k = 0; k < table->frequency[s]; k++)
            *slot++ = s | (uint32_t)(table->frequency[s] - 1) << 8 | k << 20;
}

/* Take one symbol from the state; true if the state needs the next word. */
static inline bool pop(uint32_t *state, const uint32_t slots[SCALE], uint8_t *symbol) {
    uint32_t slot = slots[*state & (SCALE - 1)];
    *symbol = (uint8_t)slot;
    *state = ((slot >> 8 & (SCALE - 1)) + 1) * (*state >> SCALE_BITS) + (slot >> 20);
    return *state < LOWEST_STATE;
}

static inline uint16_t load_word(const uint8_t *at) {
    uint16_t word;
    memcpy(&word, at, 2);
    return word;
}

/* Decode all symbols; the stream must use up its words and end in the initial states. */
static Error pop_all(uint32_t state[STATES], const uint32_t slots[SCALE], uint8_t *symbols,
                     size_t count, const uint8_t *word, const uint8_t *end) {
    unsigned states = state_count(count);
    size_t i = 0;
    if (states == STATES)
        for (; i + STATES <= count && end - word >= 2 * STATES; i += STATES)
            for (unsigned k = 0; k < STATES; k++) {
                bool needs_word = pop(&state[k], slots, &symbols[i + k]);
                uint32_t filled = state[k] << WORD_BITS | load_word(word);
                state[k] = needs_word ? filled : state[k];
                word += 2 * needs_word;
            }
    for (; i < count; i++) {
        uint32_t *x = &state[i % states];
        if (!pop(x, slots, &symbols[i])) continue;
        if (word == end) return "coded body has too few words for its symbols";
        *x = *x << WORD_BITS | load_word(word);
        word += 2;
    }
    for (unsigned k = 0; k < STATES; k++)
        if (state[k] != LOWEST_STATE) return "coded body contains a stream with a wrong last state";
    return word == end ? NULL : "coded body has too many words for its symbols";
}

Error read_symbols(Cursor *in, uint8_t *symbols, size_t count) {
    Table table;
    uint32_t slots[SCALE], size;
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
    prepare_decoder(slots, &table);
    return pop_all(state, slots, symbols, count, words, words + 2 * (size_t)size);
}
