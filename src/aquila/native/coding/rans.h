/* Symbols to bytes at their information content: range asymmetric numeral systems (Duda 2013).
 *
 * A state of 31 bits swallows symbols and spills words of 16 bits. Four states take turns, so that
 * the processor works on four symbols at a time. Encoding runs backwards, decoding forwards.
 */
#ifndef AQUILA_RANS_H
#define AQUILA_RANS_H

#include "table.h"

/* Streams shorter than this have one state: three more would cost 12 bytes. */
enum { FOUR_STATES_FROM = 256 };

bool write_symbols(Bytes *out, const uint8_t *symbols, size_t count,
                   const uint32_t counts[SYMBOLS]);
Problem read_symbols(Cursor *in, uint8_t *symbols, size_t count);

#endif
