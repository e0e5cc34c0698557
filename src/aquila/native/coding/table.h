/* The frequency table of a symbol stream: frequencies are in units of 1/4096. */
#ifndef AQUILA_TABLE_H
#define AQUILA_TABLE_H

#include "bytes.h"

enum { SYMBOLS = 256, SCALE_BITS = 12, SCALE = 1 << SCALE_BITS };

typedef struct {
    uint16_t frequency[SYMBOLS]; /* they sum to SCALE */
    unsigned symbols;            /* last symbol with a frequency, plus 1 */
} Table;

/* log2 of a positive number as a fixed-point integer, the same on every machine. */
enum { LOG_FRACTION_BITS = 24 };
uint64_t log2_fixed(uint32_t number);
void prepare_logs(void);

/* The frequencies closest to the counts. At least one count must not be 0. */
void table_from_counts(Table *table, const uint32_t counts[SYMBOLS]);

bool write_table(Bytes *out, const Table *table);
Error read_table(Cursor *in, Table *table);

#endif
