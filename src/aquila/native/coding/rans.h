/* Symbol streams at their entropy: range asymmetric numeral systems, rANS (Duda 2013).
 *
 * A state has 31 bits and is renormalised by words of 16 bits. Four interleaved states let the
 * processor work on four symbols at a time. Encoding runs backwards, decoding forwards.
 */
#ifndef AQUILA_RANS_H
#define AQUILA_RANS_H

#include "table.h"

/* Shorter streams use one state, which saves 12 bytes per stream. Longer ones use four: encoding is
 * about 2 times faster and decoding 4 times, for 0.13 % more bytes (benchmarks/coder_modes.py). */
enum { FOUR_STATES_FROM = 256 };

/* Write a stream of symbols that occur so many times. */
bool write_symbols(Bytes *out, const uint8_t *symbols, size_t count,
                   const uint32_t counts[SYMBOLS]);
/* The same for bytes that a map turns into symbols; `counts` are those of the symbols. */
bool write_mapped_symbols(Bytes *out, const uint8_t *bytes, size_t count,
                          const uint32_t counts[SYMBOLS], const uint8_t map[SYMBOLS]);
Error read_symbols(Cursor *in, uint8_t *symbols, size_t count);

#endif
