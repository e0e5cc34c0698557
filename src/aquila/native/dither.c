/* The dither, and the fused pass from gradient and memory to dithered codes: see core/passes. */
#include "dither.h"
#include "lanes.h"

typedef struct {
    double step, rate;
    uint32_t seed;
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

#define DEFINE_DITHER(REAL)                                                                        \
    CPU_CLONES static void dither_##REAL(REAL *restrict dither, size_t count, uint32_t seed) {     \
        const uint32_t mixed_seed = mix_bits(seed);                                                \
        for (size_t i = 0; i < count; i++)                                                         \
            dither[i] = DITHER_OF_##REAL(dither_word(seed, mixed_seed, (uint32_t)i));              \
    }

/* Return the largest number of steps, at most centre + 1. NaN becomes the code of zero. */
#define DEFINE_CODES(REAL)                                                                         \
    CPU_CLONES static int32_t codes_##REAL(                                                        \
        const REAL *restrict gradient, const REAL *restrict memory, REAL *restrict new_memory,     \
        int32_t *restrict codes, uint32_t start, uint32_t count, Grid grid,                        \
        double *restrict error, int first) {                                                       \
        const REAL step = (REAL)grid.step, rate = (REAL)grid.rate;                                 \
        const REAL low = -(step * (REAL)grid.centre), limit = (REAL)(grid.centre + 1);             \
        const uint32_t seed = grid.seed, mixed_seed = mix_bits(seed);                              \
        int32_t top = 0;                                                                           \
        for (uint32_t i = 0; i < count; i++) {                                                     \
            REAL v = gradient[i] - memory[i], size = v < 0 ? -v : v;                               \
            REAL dither = DITHER_OF_##REAL(dither_word(seed, mixed_seed, start + i));              \
            REAL steps = size / step + dither;                                                     \
            steps = steps > 0 ? steps : 0;                                                         \
            steps = steps < limit ? steps : limit;                                                 \
            int32_t whole = (int32_t)steps;                                                        \
            top = whole > top ? whole : top;                                                       \
            codes[i] = grid.centre + (v < 0 ? -whole : whole);                                     \
            REAL sent = (REAL)codes[i] * step + low, remaining = v - sent;                         \
            new_memory[i] = memory[i] + rate * sent;                                               \
            double square = (double)remaining * (double)remaining;                                 \
            error[i] = first ? square : error[i] + square;                                         \
        }                                                                                          \
        return top;                                                                                \
    }

DEFINE_DITHER(float)
DEFINE_DITHER(double)
DEFINE_CODES(float)
DEFINE_CODES(double)

/* Return the largest number of steps. End early if it exceeds the grid. */
static int32_t write_codes(const Vectors *in, Grid grid, double *error) {
    int32_t wide[CHUNK], top = 0;
    double unused[CHUNK];
    for (size_t i = 0; i < in->count && top <= grid.centre; i += CHUNK) {
        const void *g = in->gradient + i * in->item;
        const void *q = in->memory ? (const void *)(in->memory + i * in->item) : zeros;
        void *m = in->memory ? (void *)(in->new_memory + i * in->item) : unused;
        uint32_t start = (uint32_t)i, size = (uint32_t)min_size(CHUNK, in->count - i);
        double *lane = error + i % LANES;
        int32_t chunk_top = in->item == sizeof(float)
                                ? codes_float(g, q, m, wide, start, size, grid, lane, i < LANES)
                                : codes_double(g, q, m, wide, start, size, grid, lane, i < LANES);
        top = chunk_top > top ? chunk_top : top;
        store_codes(in->codes + i * in->code_item, wide, size, in->code_item);
    }
    return top;
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
    grid.seed = seed;
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
        size_t count = vector_length(&dither);
        Py_BEGIN_ALLOW_THREADS
            if (dither.itemsize == sizeof(float))
                dither_float(dither.buf, count, seed);
            else
                dither_double(dither.buf, count, seed);
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
