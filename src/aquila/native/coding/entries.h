/* The sent coordinates of a block as numbers of 64 bits, whose upper half is the order. */
#ifndef AQUILA_ENTRIES_H
#define AQUILA_ENTRIES_H

#include <stdlib.h>

#include "../cpu.h"

/* The caller frees `at`. */
typedef struct {
    uint64_t *at;
    size_t count, room;
} Entries;

enum { FEW_ENTRIES = 32 };

/* Append an entry; false if there is not enough memory. */
ALWAYS_INLINE bool append_entry(Entries *entries, uint64_t order, uint32_t value) {
    if (entries->count == entries->room) {
        size_t room = 2 * entries->room + FEW_ENTRIES;
        uint64_t *at = realloc(entries->at, room * sizeof *at);
        if (!at) return false;
        entries->at = at;
        entries->room = room;
    }
    entries->at[entries->count++] = order << 32 | value;
    return true;
}

static inline int compare_entries(const void *left, const void *right) {
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return a < b ? -1 : a > b;
}

static inline void sort_entries(Entries *entries) {
    if (entries->count > FEW_ENTRIES) {
        qsort(entries->at, entries->count, sizeof *entries->at, compare_entries);
        return;
    }
    for (size_t i = 1; i < entries->count; i++) {
        uint64_t entry = entries->at[i];
        size_t k = i;
        for (; k > 0 && entries->at[k - 1] > entry; k--) entries->at[k] = entries->at[k - 1];
        entries->at[k] = entry;
    }
}

/* The number of smaller entries. The place of each of a few entries is found faster in this way
 * than by sorting, because the processor has nothing to predict. */
ALWAYS_INLINE size_t smaller_entries(const Entries *entries, uint64_t entry) {
    size_t smaller = 0;
    for (size_t i = 0; i < entries->count; i++) smaller += entries->at[i] < entry;
    return smaller;
}

#endif
