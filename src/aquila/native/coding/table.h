/* How often each symbol comes, as 4096ths: what encoder and decoder of a stream share. */
#ifndef AQUILA_TABLE_H
#define AQUILA_TABLE_H

#include "bytes.h"

enum { SYMBOLS = 256, SCALE_BITS = 12, SCALE = 1 << SCALE_BITS };

typedef struct {
    uint16_t share[SYMBOLS]; /* sums up to SCALE */
    unsigned symbols;        /* one more than the last symbol with a share */
} Table;

/* log2 of a positive number in units of 2**-LOG_UNIT bits, the same on every machine. */
enum { LOG_UNIT = 24 };
uint64_t log_of(uint32_t number);
void prepare_logs(void);

/* Shares that stand for the counts as well as 4096ths can; at least one symbol must be there. */
void table_from_counts(Table *table, const uint32_t counts[SYMBOLS]);

bool write_table(Bytes *out, const Table *table);
Problem read_table(Cursor *in, Table *table);

#endif
