#include "rans.h"

enum { STATES = 4, WORD_BITS = 16 };
static const uint32_t LOWEST_STATE = 1u << 15; /* LOWEST_STATE <= state < LOWEST_STATE << 16 */

static unsigned state_count(size_t count) { return count < FOUR_STATES_FROM ? 1 : STATES; }

/* Precomputed per symbol: division by its frequency becomes a multiplication. */
typedef struct {
    uint32_t reciprocal, bias, complement, shift; /* complement = SCALE - frequency */
} EncoderSymbol;

static void prepare_encoder(EncoderSymbol prepared[SYMBOLS], const Table *table) {
    uint32_t start = 0;
    for (unsigned s = 0; s < table->symbols; s++) {
        uint32_t frequency = table->frequency[s], complement = SCALE - frequency;
        unsigned bits = bit_length(frequency - 1);
        if (!frequency) continue;
        if (frequency == 1) { /* the quotient is one too small, and the bias corrects that */
            prepared[s] = (EncoderSymbol){UINT32_MAX, start + SCALE - 1, complement, 32};
        } else {
            uint64_t dividend = (UINT64_C(1) << (bits + 31)) + frequency - 1;
            uint32_t reciprocal = (uint32_t)(dividend / frequency);
            prepared[s] = (EncoderSymbol){reciprocal, start, complement, bits + 31};
        }
        start += frequency;
    }
}

/* States from this one on emit a word before the symbol. */
ALWAYS_INLINE uint32_t limit_of(const EncoderSymbol *symbol) {
    return (SCALE - symbol->complement) << (31 - SCALE_BITS);
}

/* The state after one more symbol; the state before it is below the limit. */
ALWAYS_INLINE uint32_t push(uint32_t state, const EncoderSymbol *symbol) {
    uint32_t quotient = (uint32_t)((uint64_t)state * symbol->reciprocal >> symbol->shift);
    return state + symbol->bias + quotient * symbol->complement;
}

/* Symbols of a stream, and the memory for its words, which is filled from its end. */
typedef struct {
    const EncoderSymbol *prepared;
    const uint8_t *symbols;
    size_t count;
    uint16_t *words, *end;
} Encoding;

/* Encode `count` symbols, a multiple of four; NULL if there is no room.
 *
 * The word of a state is stored in any case, and kept if the state was too large. */
SCALAR_CLONES static uint16_t *push_fours(uint32_t state[STATES], const Encoding *stream,
                                          size_t count, uint16_t *word) {
    uint32_t x[STATES];
    memcpy(x, state, sizeof x);
    for (size_t i = count; i;) {
        size_t unused = 0;
        if (word - stream->words < STATES) return NULL;
        i -= STATES;
        for (unsigned k = STATES; k-- > 0;) {
            const EncoderSymbol *symbol = &stream->prepared[stream->symbols[i + k]];
            word[(ptrdiff_t)unused - (STATES - (ptrdiff_t)k)] = (uint16_t)x[k];
            x[k] = choose_below(x[k], limit_of(symbol), x[k], x[k] >> WORD_BITS, &unused);
            x[k] = push(x[k], symbol);
        }
        word -= STATES - unused;
    }
    memcpy(state, x, sizeof x);
    return word;
}

#ifdef AVX2
/* By which of four states emit a word: the indices of the words' bytes, at the end of eight. */
static const uint64_t emitted[1 << STATES] = {
    0x0000000000000000, 0x0100000000000000, 0x0504000000000000, 0x0504010000000000,
    0x0908000000000000, 0x0908010000000000, 0x0908050400000000, 0x0908050401000000,
    0x0d0c000000000000, 0x0d0c010000000000, 0x0d0c050400000000, 0x0d0c050401000000,
    0x0d0c090800000000, 0x0d0c090801000000, 0x0d0c090805040000, 0x0d0c090805040100,
};

AVX2 static inline __m128i load_symbol(const EncoderSymbol *symbol) {
    return _mm_loadu_si128((const __m128i *)symbol);
}

/* The same with one vector of the four states, in two thirds of the time. Products have 64 bits, so
 * states 0 and 2 and states 1 and 3 are multiplied apart. */
AVX2 static uint16_t *push_fours_avx2(uint32_t state[STATES], const Encoding *stream, size_t count,
                                      uint16_t *word) {
    const __m128i scale = _mm_set1_epi32(SCALE), low_half = _mm_set1_epi64x(UINT32_MAX);
    __m128i x = _mm_loadu_si128((const __m128i *)state);
    for (size_t i = count; i;) {
        if (word - stream->words < STATES) return NULL;
        i -= STATES;
        const uint8_t *four = stream->symbols + i;
        __m128i a = load_symbol(&stream->prepared[four[0]]);
        __m128i b = load_symbol(&stream->prepared[four[1]]);
        __m128i c = load_symbol(&stream->prepared[four[2]]);
        __m128i d = load_symbol(&stream->prepared[four[3]]);
        __m128i ab = _mm_unpacklo_epi32(a, b), cd = _mm_unpacklo_epi32(c, d);
        __m128i reciprocal = _mm_unpacklo_epi64(ab, cd), bias = _mm_unpackhi_epi64(ab, cd);
        ab = _mm_unpackhi_epi32(a, b);
        cd = _mm_unpackhi_epi32(c, d);
        __m128i complement = _mm_unpacklo_epi64(ab, cd), shift = _mm_unpackhi_epi64(ab, cd);
        __m128i limit = _mm_slli_epi32(_mm_sub_epi32(scale, complement), 31 - SCALE_BITS);
        __m128i full = _mm_cmpgt_epi32(x, _mm_add_epi32(limit, _mm_set1_epi32(-1)));
        unsigned which = (unsigned)_mm_movemask_ps(_mm_castsi128_ps(full));
        __m128i order = _mm_loadl_epi64((const __m128i *)&emitted[which]);
        _mm_storel_epi64((__m128i *)(word - STATES), _mm_shuffle_epi8(x, order));
        word -= one_bits_in(which);
        x = _mm_blendv_epi8(x, _mm_srli_epi32(x, WORD_BITS), full);
        __m128i even = _mm_srlv_epi64(_mm_mul_epu32(x, reciprocal), _mm_and_si128(shift, low_half));
        __m128i odd = _mm_mul_epu32(_mm_srli_epi64(x, 32), _mm_srli_epi64(reciprocal, 32));
        odd = _mm_srlv_epi64(odd, _mm_srli_epi64(shift, 32));
        even = _mm_mul_epu32(even, complement);
        odd = _mm_mul_epu32(odd, _mm_srli_epi64(complement, 32));
        __m128i product = _mm_blend_epi32(even, _mm_slli_epi64(odd, 32), 10);
        x = _mm_add_epi32(_mm_add_epi32(x, bias), product);
    }
    _mm_storeu_si128((__m128i *)state, x);
    return word;
}
#endif

/* Words that a stream needs according to its entropy, plus a margin for rounding. */
static size_t expected_words(const Table *table, const uint32_t counts[SYMBOLS]) {
    const uint64_t scale = log2_fixed(SCALE);
    uint64_t bits = 0;
    for (unsigned s = 0; s < table->symbols; s++)
        if (counts[s])
            bits += counts[s] * (scale - log2_fixed(table->frequency[s])) >> LOG_FRACTION_BITS;
    return (size_t)(bits / WORD_BITS + bits / 512) + SYMBOLS;
}

/* Encode from the last symbol to the first; NULL if there is no room. */
static uint16_t *push_all(uint32_t state[STATES], const Encoding *stream) {
    unsigned states = state_count(stream->count);
    uint16_t *word = stream->end;
    size_t i = stream->count;
    while (i % STATES || (i && states == 1)) {
        const EncoderSymbol *symbol = &stream->prepared[stream->symbols[--i]];
        uint32_t *x = &state[i % states];
        if (*x >= limit_of(symbol)) {
            *--word = (uint16_t)*x;
            *x >>= WORD_BITS;
        }
        *x = push(*x, symbol);
    }
#ifdef AVX2
    if (cpu_has_avx2()) return push_fours_avx2(state, stream, i, word);
#endif
    return push_fours(state, stream, i, word);
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
static bool write_stream(Bytes *out, const EncoderSymbol prepared[SYMBOLS], const uint8_t *symbols,
                         size_t count, size_t expected) {
    size_t always_enough = count + STATES;
    size_t room = expected < always_enough ? expected : always_enough;
    for (;; room = always_enough) {
        uint32_t state[STATES] = {LOWEST_STATE, LOWEST_STATE, LOWEST_STATE, LOWEST_STATE};
        size_t head = HEAD + out->size % 2; /* aligns the words */
        if (!bytes_reserve(out, head + 2 * room)) return false;
        uint16_t *words = (uint16_t *)(out->data + out->size + head), *end = words + room;
        uint16_t *word = push_all(state, &(Encoding){prepared, symbols, count, words, end});
        if (word) return write_words(out, state, state_count(count), word, (size_t)(end - word));
    }
}

bool write_symbols(Bytes *out, const uint8_t *symbols, size_t count,
                   const uint32_t counts[SYMBOLS]) {
    Table table;
    EncoderSymbol prepared[SYMBOLS];
    table_from_counts(&table, counts);
    prepare_encoder(prepared, &table);
    return write_table(out, &table) &&
           write_stream(out, prepared, symbols, count, expected_words(&table, counts));
}

bool write_mapped_symbols(Bytes *out, const uint8_t *bytes, size_t count,
                          const uint32_t counts[SYMBOLS], const uint8_t map[SYMBOLS]) {
    Table table;
    EncoderSymbol of_symbols[SYMBOLS], prepared[SYMBOLS];
    table_from_counts(&table, counts);
    prepare_encoder(of_symbols, &table);
    for (unsigned byte = 0; byte < SYMBOLS; byte++) prepared[byte] = of_symbols[map[byte]];
    return write_table(out, &table) &&
           write_stream(out, prepared, bytes, count, expected_words(&table, counts));
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
