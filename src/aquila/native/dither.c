/* The dither, and the fused pass from gradient and memory to dithered codes: see core/passes. */
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

/* Words lose the bits that the type cannot hold, so that no number is rounded up to 1. A word of 24
 * bits is converted as a signed integer, because every processor can do that for whole vectors. */
#define DITHER_UNIT_float (1.0f / (1 << 24))
#define DITHER_UNIT_double (1.0 / (UINT64_C(1) << 32))
#define DITHER_OF_float(word) ((float)(int32_t)((word) >> 8) * DITHER_UNIT_float)
#define DITHER_OF_double(word) ((double)(word) * DITHER_UNIT_double)

/* Fill a part of a block that starts with the block. */
#define DEFINE_DITHER(REAL)                                                                        \
    CPU_CLONES static void dither_##REAL(REAL *restrict numbers, uint32_t start, uint32_t count,   \
                                         Dither dither, const BlockKeys *inverted) {               \
        for (uint32_t place = 0; place < count; place++) {                                         \
            uint32_t rank = rank_of_place(inverted, dither.block_bits, place);                     \
            numbers[place] = DITHER_OF_##REAL(~slot_complement(dither, start + rank));             \
        }                                                                                          \
    }

/* The number of steps of a coordinate, at most centre + 1. NaN becomes 0. */
#define DEFINE_STEPS(REAL)                                                                         \
    ALWAYS_INLINE int32_t steps_##REAL(REAL v, uint32_t complement, Grid grid) {                   \
        REAL size = v < 0 ? -v : v, limit = (REAL)(grid.centre + 1);                               \
        REAL steps = size / (REAL)grid.step + DITHER_OF_##REAL(~complement);                       \
        steps = steps > 0 ? steps : 0;                                                             \
        return (int32_t)(steps < limit ? steps : limit);                                           \
    }

/* Mark the coordinates of at least this size. */
#define DEFINE_MARK_LARGE(REAL)                                                                    \
    CPU_CLONES static void mark_large_##REAL(const REAL *restrict gradient,                        \
                                             const REAL *restrict memory, uint8_t *restrict marks, \
                                             size_t count, double least) {                         \
        for (size_t i = 0; i < count; i++) {                                                       \
            REAL v = gradient[i] - memory[i];                                                      \
            marks[i] = (v < 0 ? -v : v) >= (REAL)least;                                            \
        }                                                                                          \
    }

/* Compute the new memory and the squares of what the codes leave out. */
#define DEFINE_FINISH(REAL)                                                                        \
    CPU_CLONES static void finish_##REAL(const REAL *restrict gradient,                            \
                                         const REAL *restrict memory, REAL *restrict new_memory,   \
                                         const int32_t *restrict codes, size_t count, Grid grid,   \
                                         double *restrict error, int first) {                      \
        const REAL step = (REAL)grid.step, rate = (REAL)grid.rate;                                 \
        const REAL low = -(step * (REAL)grid.centre);                                              \
        for (size_t i = 0; i < count; i++) {                                                       \
            REAL v = gradient[i] - memory[i];                                                      \
            REAL sent = (REAL)codes[i] * step + low, remaining = v - sent;                         \
            new_memory[i] = memory[i] + rate * sent;                                               \
            double square = (double)remaining * (double)remaining;                                 \
            error[i] = first ? square : error[i] + square;                                         \
        }                                                                                          \
    }

DEFINE_DITHER(float)
DEFINE_DITHER(double)
DEFINE_STEPS(float)
DEFINE_STEPS(double)
DEFINE_MARK_LARGE(float)
DEFINE_MARK_LARGE(double)
DEFINE_FINISH(float)
DEFINE_FINISH(double)

#define DEFINE_WIDEN(CODE)                                                                         \
    CPU_CLONES static void widen_##CODE(int32_t *restrict codes, const CODE *restrict narrow,      \
                                        size_t count) {                                            \
        for (size_t i = 0; i < count; i++) codes[i] = (int32_t)narrow[i];                          \
    }

DEFINE_WIDEN(uint8_t)
DEFINE_WIDEN(uint16_t)

/* Load codes from integers of `item` bytes: 1, 2 or 4. */
static void load_codes(int32_t *codes, const void *stored, size_t count, size_t item) {
    if (item == 1) widen_uint8_t(codes, stored, count);
    if (item == 2) widen_uint16_t(codes, stored, count);
    if (item == 4) memcpy(codes, stored, count * sizeof *codes);
}

static const void *memory_from(const Vectors *in, size_t i) {
    return in->memory ? (const void *)(in->memory + i * in->item) : zeros;
}

/* The ranks of a block that are rounded one by one. Coordinates of other ranks become zero unless
 * they are large. Blocks of aquila_dither have 2 to 4 coordinates per density, so large ones exceed
 * 4 to 8 times the root mean square. */
enum { LISTED_RANKS = 16 };

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

/* Round a coordinate. Returns its number of steps, and stores its code if that is not 0. The
 * difference of two float32 in float64, rounded to float32, is their difference in float32. */
static int32_t round_coordinate(const Vectors *in, size_t i, uint32_t complement, Grid grid) {
    double v = coordinate(in->gradient, i, in->item) - coordinate(in->memory, i, in->item);
    double least = grid.step * (complement * (0.999 * DITHER_UNIT_double) - 0x1p-22);
    if ((v < 0 ? -v : v) < least) return 0;
    int32_t steps = in->item == sizeof(float) ? steps_float((float)v, complement, grid)
                                              : steps_double(v, complement, grid);
    int32_t code = grid.centre + (v < 0 ? -steps : steps);
    if (steps) store_codes(in->codes + i * in->code_item, &code, 1, in->code_item);
    return steps;
}

CPU_CLONES static void list_ranks(uint32_t *restrict places, uint32_t *restrict complements,
                                  Dither dither, uint32_t block) {
    BlockKeys keys = block_keys(dither, block);
    for (uint32_t rank = 0; rank < LISTED_RANKS; rank++) {
        places[rank] = place_of_rank(&keys, dither.block_bits, rank);
        complements[rank] = slot_complement(dither, (block << dither.block_bits) + rank);
    }
}

/* Round the coordinates of a block with the highest dithers. Returns their most steps. */
static int32_t round_listed(const Vectors *in, uint32_t block, Grid grid) {
    uint32_t places[LISTED_RANKS], complements[LISTED_RANKS];
    int32_t top = 0;
    size_t start = (size_t)block << grid.dither.block_bits;
    list_ranks(places, complements, grid.dither, block);
    for (unsigned rank = 0; rank < LISTED_RANKS; rank++)
        if (start + places[rank] < in->count)
            top = larger(top, round_coordinate(in, start + places[rank], complements[rank], grid));
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

/* Round the large coordinates of a chunk, which may be nonzero with any rank. The least size has a
 * margin for rounding. */
static int32_t round_large(const Vectors *in, size_t start, size_t count, Grid grid) {
    const void *g = in->gradient + start * in->item, *q = memory_from(in, start);
    double least = grid.step * (LISTED_RANKS * 0.99) / (double)(1 << grid.dither.block_bits);
    uint8_t marks[CHUNK] = {0};
    CachedKeys cached = {UINT32_MAX, {{0}, {0}}};
    int32_t top = 0;
    if (in->item == sizeof(float))
        mark_large_float(g, q, marks, count, least);
    else
        mark_large_double(g, q, marks, count, least);
    for (size_t k = 0; k < count; k++) {
        uint64_t eight;
        memcpy(&eight, marks + (k & ~(size_t)7), sizeof eight);
        if (!eight) k |= 7;
        if (!marks[k]) continue;
        uint32_t complement = complement_of(start + k, grid.dither, &cached);
        top = larger(top, round_coordinate(in, start + k, complement, grid));
    }
    return top;
}

static void finish_chunk(const Vectors *in, size_t start, size_t count, Grid grid, double *error) {
    const void *g = in->gradient + start * in->item, *q = memory_from(in, start);
    int32_t wide[CHUNK];
    double unused[CHUNK], *lane = error + start % LANES;
    void *m = in->memory ? (void *)(in->new_memory + start * in->item) : unused;
    load_codes(wide, in->codes + start * in->code_item, count, in->code_item);
    if (in->item == sizeof(float))
        finish_float(g, q, m, wide, count, grid, lane, start < LANES);
    else
        finish_double(g, q, m, wide, count, grid, lane, start < LANES);
}

static void clear_codes(const Vectors *in, size_t start, size_t end, int centre) {
    int32_t wide[CHUNK];
    for (size_t k = 0; k < CHUNK; k++) wide[k] = centre;
    for (size_t i = start; i < end; i += CHUNK)
        store_codes(in->codes + i * in->code_item, wide, min_size(CHUNK, end - i), in->code_item);
}

/* Return the largest number of steps. End early if it exceeds the grid. A group of whole blocks and
 * chunks is processed at a time. */
static int32_t write_codes(const Vectors *in, Grid grid, double *error) {
    size_t block = (size_t)1 << grid.dither.block_bits, group = block > CHUNK ? block : CHUNK;
    int32_t top = 0;
    for (size_t start = 0; start < in->count && top <= grid.centre; start += group) {
        size_t end = min_size(start + group, in->count);
        clear_codes(in, start, end, grid.centre);
        for (size_t i = start; i < end; i += block)
            top = larger(top, round_listed(in, (uint32_t)(i / block), grid));
        for (size_t i = start; i < end; i += CHUNK)
            top = larger(top, round_large(in, i, min_size(CHUNK, end - i), grid));
        for (size_t i = start; i < end; i += CHUNK)
            finish_chunk(in, i, min_size(CHUNK, end - i), grid, error);
    }
    return top;
}

/* Fill a vector with the dither. */
static void fill_dither(const Py_buffer *numbers, Dither dither) {
    size_t count = vector_length(numbers), block = (size_t)1 << dither.block_bits;
    for (size_t start = 0; start < count; start += block) {
        BlockKeys keys = block_keys(dither, (uint32_t)(start / block));
        invert_keys(&keys);
        uint32_t size = (uint32_t)min_size(block, count - start);
        if (numbers->itemsize == sizeof(float))
            dither_float((float *)numbers->buf + start, (uint32_t)start, size, dither, &keys);
        else
            dither_double((double *)numbers->buf + start, (uint32_t)start, size, dither, &keys);
    }
}

static PyObject *codes_of_vectors(const Vectors *vectors, Grid grid) {
    double *error = thread_lanes(vectors->count, 0), error_squared;
    int32_t top;
    Py_BEGIN_ALLOW_THREADS
        top = write_codes(vectors, grid, error);
        error_squared = sum_lanes(error, lane_count(vectors->count));
    Py_END_ALLOW_THREADS
    return Py_BuildValue("id", (int)top, error_squared);
}

/* The buffers are gradient, memory, new_memory and codes, or gradient and codes. */
static PyObject *codes_of_buffers(const Py_buffer *buffers, int count, Grid grid) {
    const Py_buffer *gradient = buffers, *codes = &buffers[count - 1];
    if (!same_type_and_length(buffers, count - 1)) {
        PyErr_SetString(PyExc_ValueError, "vectors must have one length and one float type");
        return NULL;
    }
    if (!codes_match_vector(codes, gradient)) {
        PyErr_SetString(PyExc_ValueError,
                        "codes must have one code of 1, 2 or 4 bytes per coordinate");
        return NULL;
    }
    if (grid.centre < 1 || grid.centre > largest_magnitude(codes)) {
        PyErr_SetString(PyExc_ValueError, "the largest magnitude must fit the type of the codes");
        return NULL;
    }
    Vectors vectors = {gradient->buf, NULL, NULL, codes->buf, vector_length(gradient), 0, 0};
    vectors.item = (size_t)gradient->itemsize;
    vectors.code_item = (size_t)codes->itemsize;
    advise_output(codes);
    if (count == 4) {
        vectors.memory = buffers[1].buf;
        vectors.new_memory = buffers[2].buf;
        advise_output(&buffers[2]);
    }
    return codes_of_vectors(&vectors, grid);
}

static PyObject *py_codes(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *objects[4];
    Py_buffer buffers[4];
    Grid grid;
    unsigned int seed;
    if (!PyArg_ParseTuple(args, "OOOOdIid", &objects[0], &objects[1], &objects[2], &objects[3],
                          &grid.step, &seed, &grid.centre, &grid.rate))
        return NULL;
    grid.dither = dither_of_seed(seed);
    int count = objects[1] == Py_None ? 2 : 4;
    if (count == 2) objects[1] = objects[3];
    if (acquire_buffers(objects, buffers, count, count / 2) < 0) return NULL;
    PyObject *result = codes_of_buffers(buffers, count, grid);
    release_buffers(buffers, count);
    return result;
}

static PyObject *py_fill(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *object;
    Py_buffer dither;
    unsigned int seed;
    if (!PyArg_ParseTuple(args, "OI", &object, &seed)) return NULL;
    if (acquire_buffers(&object, &dither, 1, 0) < 0) return NULL;
    if (!same_type_and_length(&dither, 1)) {
        PyErr_SetString(PyExc_ValueError, "the dither must be a float32 or float64 vector");
    } else {
        Py_BEGIN_ALLOW_THREADS
            fill_dither(&dither, dither_of_seed(seed));
        Py_END_ALLOW_THREADS
    }
    release_buffers(&dither, 1);
    return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
}

static PyMethodDef methods[] = {
    {"fill", py_fill, METH_VARARGS, NULL},
    {"codes", py_codes, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "aquila.native.dither", NULL, 0, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit_dither(void) { return PyModule_Create(&module); }
