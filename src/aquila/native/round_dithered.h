/* Rounds a vector with a dither: the fused pass from gradient and memory to codes. See core/passes.
 *
 * Nearly all coordinates become zero. Only coordinates with a high dither and large ones are
 * rounded one by one.
 */
#ifndef AQUILA_ROUND_DITHERED_H
#define AQUILA_ROUND_DITHERED_H

#include "dither.h"
#include "lanes.h"

typedef struct {
    double step, rate;
    Dither dither;
    int centre; /* the code of zero, and the largest number of steps */
} Grid;

/* `memory` and `new_memory` may be NULL. */
typedef struct {
    const char *gradient, *memory;
    char *new_memory, *codes;
    size_t count, item, code_item;
} Vectors;

/* The ranks of a block that are rounded one by one. Coordinates of other ranks become zero unless
 * they are large. Blocks of aquila_dither have about 2 / density to 4 / density coordinates, so
 * large ones exceed 8 to 16 times the root mean square. */
enum { LISTED_RANKS = 32 };
#define MISSING UINT32_MAX /* no complement of these ranks */

typedef struct {
    uint32_t places[LISTED_RANKS], complements[LISTED_RANKS];
    uint8_t marks[LISTED_RANKS];
} Listed;

/* Words lose the bits that the type cannot hold, so that no number is rounded up to 1. A word of 24
 * bits is converted as a signed integer, because every processor can do that for whole vectors. */
#define DITHER_UNIT_float (1.0f / (1 << 24))
#define DITHER_UNIT_double (1.0 / (UINT64_C(1) << 32))
#define DITHER_OF_float(word) ((float)(int32_t)((word) >> 8) * DITHER_UNIT_float)
#define DITHER_OF_double(word) ((double)(word) * DITHER_UNIT_double)

/* More than the error of a product that underflows. */
#define SUBNORMAL_float 0x1p-147f
#define SUBNORMAL_double 0x1p-1072

/* Sizes from which a coordinate of any rank may be nonzero, with a margin for rounding. */
static double least_large(Grid grid) {
    return grid.step * (LISTED_RANKS * 0.99) / (double)(1 << grid.dither.block_bits);
}

/* Round all coordinates of a chunk to zero: compute the new memory and the squared errors. Returns
 * whether a coordinate is large. */
#define DEFINE_CLEAR(REAL)                                                                         \
    CPU_CLONES static int clear_##REAL(const REAL *restrict gradient, const REAL *restrict memory, \
                                       REAL *restrict new_memory, size_t count, Grid grid,         \
                                       double *restrict squares) {                                 \
        const REAL step = (REAL)grid.step, least = (REAL)least_large(grid);                        \
        const REAL sent = (REAL)grid.centre * step + -(step * (REAL)grid.centre);                  \
        const REAL change = (REAL)grid.rate * sent;                                                \
        int large = 0;                                                                             \
        for (size_t i = 0; i < count; i++) {                                                       \
            REAL v = gradient[i] - memory[i], remaining = v - sent;                                \
            new_memory[i] = memory[i] + change;                                                    \
            squares[i] = (double)remaining * (double)remaining;                                    \
            large |= (v < 0 ? -v : v) + SUBNORMAL_##REAL >= least;                                 \
        }                                                                                          \
        return large;                                                                              \
    }

/* Round a coordinate, and store what follows if it is not zero. Returns its number of steps, at
 * most centre + 1. NaN becomes 0. */
#define DEFINE_ROUND(REAL)                                                                         \
    static int32_t round_##REAL(const Vectors *in, size_t i, uint32_t complement, Grid grid,       \
                                double *square) {                                                  \
        const REAL step = (REAL)grid.step, limit = (REAL)(grid.centre + 1);                        \
        REAL q = in->memory ? ((const REAL *)in->memory)[i] : 0;                                   \
        REAL v = ((const REAL *)in->gradient)[i] - q, size = v < 0 ? -v : v;                       \
        REAL steps = size / step + DITHER_OF_##REAL(~complement);                                  \
        steps = steps > 0 ? steps : 0;                                                             \
        int32_t whole = (int32_t)(steps < limit ? steps : limit);                                  \
        if (!whole) return 0;                                                                      \
        int32_t code = grid.centre + (v < 0 ? -whole : whole);                                     \
        REAL sent = (REAL)code * step + -(step * (REAL)grid.centre), remaining = v - sent;         \
        if (in->memory) ((REAL *)in->new_memory)[i] = q + (REAL)grid.rate * sent;                  \
        *square = (double)remaining * (double)remaining;                                           \
        store_codes(in->codes + i * in->code_item, &code, 1, in->code_item);                       \
        return whole;                                                                              \
    }

/* Mark the ranks whose coordinates may be nonzero, with a margin for rounding. */
#define DEFINE_MARK_LISTED(REAL)                                                                   \
    CPU_CLONES static void mark_listed_##REAL(const REAL *restrict gradient,                       \
                                              const REAL *restrict memory, Listed *restrict list,  \
                                              double step) {                                       \
        for (uint32_t rank = 0; rank < LISTED_RANKS; rank++) {                                     \
            REAL v = gradient[list->places[rank]];                                                 \
            if (memory) v -= memory[list->places[rank]];                                           \
            REAL share = (REAL)(int32_t)(list->complements[rank] >> 1) * (REAL)(0.999 * 0x1p-31);  \
            REAL size = (v < 0 ? -v : v) + SUBNORMAL_##REAL;                                       \
            list->marks[rank] = size >= (REAL)step * (share - (REAL)0x1p-21);                      \
        }                                                                                          \
    }

DEFINE_MARK_LISTED(float)
DEFINE_MARK_LISTED(double)
DEFINE_CLEAR(float)
DEFINE_CLEAR(double)
DEFINE_ROUND(float)
DEFINE_ROUND(double)

static const void *memory_from(const Vectors *in, size_t i) {
    return in->memory ? (const void *)(in->memory + i * in->item) : zeros;
}

/* Keys of the block of a coordinate. */
typedef struct {
    uint32_t block;
    BlockKeys keys;
} CachedKeys;

static int32_t larger(int32_t a, int32_t b) { return a > b ? a : b; }

static double coordinate(const char *vector, size_t i, size_t item) {
    if (!vector) return 0;
    return item == sizeof(float) ? (double)((const float *)vector)[i] : ((const double *)vector)[i];
}

static int32_t round_coordinate(const Vectors *in, size_t i, uint32_t complement, Grid grid,
                                double *square) {
    return in->item == sizeof(float) ? round_float(in, i, complement, grid, square)
                                     : round_double(in, i, complement, grid, square);
}

CPU_CLONES static void list_ranks(Listed *restrict list, Dither dither, uint32_t block) {
    BlockKeys keys = block_keys(dither, block);
    for (uint32_t rank = 0; rank < LISTED_RANKS; rank++) {
        list->places[rank] = place_of_rank(&keys, dither.block_bits, rank);
        list->complements[rank] = slot_complement(dither, (block << dither.block_bits) + rank);
    }
}

/* Mark ranks without a coordinate as missing. */
static void drop_missing(Listed *list, size_t count) {
    for (unsigned rank = 0; rank < LISTED_RANKS; rank++)
        if (list->places[rank] >= count) {
            list->places[rank] = 0;
            list->complements[rank] = MISSING;
        }
}

/* Round the coordinates of a block with the highest dithers. Returns their most steps. */
static int32_t round_listed(const Vectors *in, uint32_t block, Grid grid, double *squares) {
    Listed list;
    size_t start = (size_t)block << grid.dither.block_bits, count = in->count - start;
    const void *g = in->gradient + start * in->item;
    const void *q = in->memory ? in->memory + start * in->item : NULL;
    int32_t top = 0;
    list_ranks(&list, grid.dither, block);
    if (count >> grid.dither.block_bits == 0) drop_missing(&list, count);
    if (in->item == sizeof(float))
        mark_listed_float(g, q, &list, grid.step);
    else
        mark_listed_double(g, q, &list, grid.step);
    for (unsigned eight = 0; eight < LISTED_RANKS; eight += 8) {
        uint64_t marks;
        memcpy(&marks, list.marks + eight, sizeof marks);
        for (; marks; marks &= marks - 1) {
            unsigned rank = eight + trailing_zeros(marks) / 8;
            uint32_t place = list.places[rank], complement = list.complements[rank];
            if (complement == MISSING) continue;
            int32_t steps = round_coordinate(in, start + place, complement, grid, squares + place);
            top = larger(top, steps);
        }
    }
    return top;
}

static uint32_t complement_of(size_t i, Dither dither, CachedKeys *cached) {
    uint32_t block = (uint32_t)(i >> dither.block_bits), start = block << dither.block_bits;
    if (cached->block != block) {
        *cached = (CachedKeys){block, block_keys(dither, block)};
        invert_keys(&cached->keys);
    }
    uint32_t rank = rank_of_place(&cached->keys, dither.block_bits, (uint32_t)i - start);
    return slot_complement(dither, start + rank);
}

/* Round the large coordinates of a chunk, which may be nonzero with any rank. */
static int32_t round_large(const Vectors *in, size_t start, size_t count, Grid grid,
                           double *squares) {
    CachedKeys cached = {UINT32_MAX, {{0}, {0}}};
    double least = 0.999 * least_large(grid);
    int32_t top = 0;
    for (size_t k = 0; k < count; k++) {
        double v = coordinate(in->gradient, start + k, in->item) -
                   coordinate(in->memory, start + k, in->item);
        if ((v < 0 ? -v : v) < least) continue;
        uint32_t complement = complement_of(start + k, grid.dither, &cached);
        top = larger(top, round_coordinate(in, start + k, complement, grid, squares + k));
    }
    return top;
}

/* Set codes of `item` bytes. */
static void fill_codes(void *codes, size_t count, size_t item, int32_t code) {
    if (item == 1) memset(codes, code, count);
    for (size_t i = 0; item > 1 && i < count; i++) {
        if (item == 2) ((uint16_t *)codes)[i] = (uint16_t)code;
        if (item == 4) ((int32_t *)codes)[i] = code;
    }
}

/* Load the next chunk into the cache while this one is processed: processors do not predict that,
 * because a chunk of float32 is a page of memory. */
static void prefetch_chunk(const char *vector, size_t start, const Vectors *in) {
    const char *first = vector + start * in->item;
    size_t size = start < in->count ? min_size(CHUNK, in->count - start) * in->item : 0;
    for (size_t i = 0; vector && i < size; i += 64) PREFETCH_READ(first + i);
}

/* Round the coordinates of a chunk to zero, except for the large ones. Returns their most steps. */
static int32_t round_chunk(const Vectors *in, size_t start, size_t count, Grid grid,
                           double *squares) {
    const void *g = in->gradient + start * in->item, *q = memory_from(in, start);
    double unused[CHUNK];
    void *m = in->memory ? (void *)(in->new_memory + start * in->item) : unused;
    prefetch_chunk(in->gradient, start + CHUNK, in);
    prefetch_chunk(in->memory, start + CHUNK, in);
    fill_codes(in->codes + start * in->code_item, count, in->code_item, grid.centre);
    int large = in->item == sizeof(float) ? clear_float(g, q, m, count, grid, squares)
                                          : clear_double(g, q, m, count, grid, squares);
    return large ? round_large(in, start, count, grid, squares) : 0;
}

CPU_CLONES static void add_squares(double *restrict lanes, const double *restrict squares,
                                   size_t count, int first) {
    for (size_t i = 0; i < count; i++) lanes[i] = first ? squares[i] : lanes[i] + squares[i];
}

/* Coordinates that are processed at a time: whole blocks and whole chunks. */
static size_t group_size(Grid grid) {
    size_t block = (size_t)1 << grid.dither.block_bits;
    return block > CHUNK ? block : CHUNK;
}

/* Return the largest number of steps. End early if it exceeds the grid. `squares` has room for a
 * group. */
static int32_t write_codes(const Vectors *in, Grid grid, double *squares, double *error) {
    size_t block = (size_t)1 << grid.dither.block_bits, group = group_size(grid);
    int32_t top = 0;
    for (size_t start = 0; start < in->count && top <= grid.centre; start += group) {
        size_t count = min_size(group, in->count - start);
        for (size_t k = 0; k < count; k += CHUNK)
            top = larger(top,
                         round_chunk(in, start + k, min_size(CHUNK, count - k), grid, squares + k));
        for (size_t k = 0; k < count; k += block)
            top = larger(top, round_listed(in, (uint32_t)((start + k) / block), grid, squares + k));
        for (size_t k = 0; k < count; k += CHUNK)
            add_squares(error + (start + k) % LANES, squares + k, min_size(CHUNK, count - k),
                        start + k < LANES);
    }
    return top;
}

#endif
