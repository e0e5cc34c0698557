#include "chances.h"

enum { EVEN = 1 << 15 };
#define LEAST_RANGE (UINT32_C(1) << 24)

void open_numbers(NumberChances *chances) {
    for (unsigned bit = 0; bit < NUMBER_CHANCES; bit++)
        chances->of_bit[bit] = (Chance){1u << (CHANCE_BITS - 1), 1u << (CHANCE_BITS - 1), 0};
}

void open_writer(ChanceWriter *writer, Bytes *out) {
    *writer = (ChanceWriter){out, out->size, 0, UINT32_MAX, false};
}

/* There is always a byte to carry into: what is written stays below one. */
static void carry(ChanceWriter *writer) {
    uint8_t *byte = writer->out->data + writer->out->size;
    while (++*--byte == 0) {}
}

static void write_decision(ChanceWriter *writer, uint32_t share, bool yes) {
    uint32_t bound = (writer->range >> 16) * share;
    if (yes) {
        writer->range = bound;
    } else {
        writer->low += bound;
        writer->range -= bound;
        if (writer->low < bound && !writer->failed) carry(writer);
    }
    for (; writer->range < LEAST_RANGE; writer->range <<= 8, writer->low <<= 8)
        writer->failed |= writer->failed || !write_byte(writer->out, writer->low >> 24);
}

void write_chance(ChanceWriter *writer, Chance *chance, bool yes) {
    write_decision(writer, probability(chance), yes);
    learn(chance, yes);
}

void write_even(ChanceWriter *writer, bool yes) { write_decision(writer, EVEN, yes); }

void write_number_by_chance(ChanceWriter *writer, NumberChances *chances, uint32_t number) {
    unsigned length = width(number + 1) - 1;
    for (unsigned bit = 0; bit <= length; bit++)
        write_chance(writer, &chances->of_bit[bit], bit == length);
    for (unsigned bit = length; bit-- > 0;) write_even(writer, (number + 1) >> bit & 1);
}

/* The shortest number in the interval: its zeros at the end need not be written. */
bool close_writer(ChanceWriter *writer) {
    if (writer->failed) return false;
    for (unsigned kept = 0; kept <= 4; kept++) {
        uint64_t below = UINT32_MAX >> 4 * kept >> 4 * kept, low = writer->low;
        uint64_t number = (low + below) & ~below;
        if (number - low >= writer->range) continue;
        if (number >> 32) carry(writer);
        for (unsigned byte = 0; byte < kept; byte++)
            if (!write_byte(writer->out, (uint8_t)(number >> (24 - 8 * byte)))) return false;
        break;
    }
    Bytes *out = writer->out;
    while (out->size > writer->start && !out->data[out->size - 1]) out->size--;
    return true;
}

static void shift_in(ChanceReader *reader) {
    uint8_t byte = reader->at < reader->end ? *reader->at++ : 0;
    reader->value = reader->value << 8 | byte;
}

Problem open_reader(ChanceReader *reader, Cursor *in) {
    *reader = (ChanceReader){in->at, in->end, 0, UINT32_MAX};
    in->at = in->end;
    if (reader->end > reader->at && !reader->end[-1]) return "drawn body ends with a zero";
    for (unsigned byte = 0; byte < 4; byte++) shift_in(reader);
    return reader->value < reader->range ? NULL : "drawn body begins beyond its range";
}

static bool read_decision(ChanceReader *reader, uint32_t share) {
    uint32_t bound = (reader->range >> 16) * share;
    bool yes = reader->value < bound;
    reader->range = yes ? bound : reader->range - bound;
    reader->value -= yes ? 0 : bound;
    for (; reader->range < LEAST_RANGE; reader->range <<= 8) shift_in(reader);
    return yes;
}

bool read_chance(ChanceReader *reader, Chance *chance) {
    bool yes = read_decision(reader, probability(chance));
    learn(chance, yes);
    return yes;
}

bool read_even(ChanceReader *reader) { return read_decision(reader, EVEN); }

Problem read_number_by_chance(ChanceReader *reader, NumberChances *chances, uint32_t *number) {
    unsigned length = 0;
    while (!read_chance(reader, &chances->of_bit[length]))
        if (++length == NUMBER_CHANCES) return "drawn body holds a number of more than 32 bits";
    uint32_t value = 1;
    for (unsigned bit = 0; bit < length; bit++) value = value << 1 | read_even(reader);
    *number = value - 1;
    return NULL;
}

Problem close_reader(const ChanceReader *reader) {
    return reader->at < reader->end ? "drawn body goes on after its codes" : NULL;
}
