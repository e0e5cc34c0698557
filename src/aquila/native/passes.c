/* The two passes from gradient and memory to codes and new memory, and lots: see core/passes.
 *
 * Sums of squares follow the order that core/vector.py defines: lane j adds the coordinates
 * j, j + LANES, j + 2 LANES, ... and the lanes are then folded by halves. A chunk of consecutive
 * coordinates meets a chunk of consecutive lanes, as CHUNK divides LANES.
 */
#include "lots.h"
#include "vectors.h"

enum { LANES = 65536 };

typedef struct {
    double largest, step, last;
} Grid;

/* Magnitudes compare as the integers with the same bits do, and NaN is above all of them. */
#define DEFINE_MEASURE(REAL, UNSIGNED)                                                            \
    FOR_EACH_CPU static double measure_##REAL(const REAL *restrict gradient,                      \
                                              const REAL *restrict memory, size_t count,          \
                                              double *restrict squares, int first)                \
    {                                                                                             \
        UNSIGNED largest = 0;                                                                     \
        REAL result;                                                                              \
        for (size_t i = 0; i < count; i++) {                                                      \
            REAL v = gradient[i] - memory[i];                                                     \
            UNSIGNED magnitude;                                                                   \
            memcpy(&magnitude, &v, sizeof v);                                                     \
            magnitude &= (UNSIGNED)-1 >> 1;                                                       \
            largest = magnitude > largest ? magnitude : largest;                                  \
            double square = (double)v * (double)v;                                                \
            squares[i] = first ? square : squares[i] + square;                                    \
        }                                                                                         \
        memcpy(&result, &largest, sizeof result);                                                 \
        return result;                                                                            \
    }

/* psi is at least 1/2, so that casting it rounds it down. NaN becomes code 0. */
#define DEFINE_QUANTIZE(REAL)                                                                     \
    FOR_EACH_CPU static void quantize_##REAL(                                                     \
        const REAL *restrict gradient, const REAL *restrict memory, REAL *restrict moved,         \
        int32_t *restrict codes, size_t count, Grid grid, double *restrict sent,                  \
        double *restrict error, int first)                                                        \
    {                                                                                             \
        const REAL R = (REAL)grid.largest, step = (REAL)grid.step, last = (REAL)grid.last;        \
        for (size_t i = 0; i < count; i++) {                                                      \
            REAL v = gradient[i] - memory[i];                                                     \
            REAL psi = (v + R) / step + (REAL)0.5;                                                \
            psi = psi > 0 ? psi : 0;                                                              \
            psi = psi < last ? psi : last;                                                        \
            codes[i] = (int32_t)psi;                                                              \
            REAL dq = (REAL)codes[i] * step - R;                                                  \
            REAL left = v - dq;                                                                   \
            moved[i] = memory[i] + dq;                                                            \
            double dq2 = (double)dq * (double)dq, left2 = (double)left * (double)left;            \
            sent[i] = first ? dq2 : sent[i] + dq2;                                                \
            error[i] = first ? left2 : error[i] + left2;                                          \
        }                                                                                         \
    }

DEFINE_MEASURE(float, uint32_t)
DEFINE_MEASURE(double, uint64_t)
DEFINE_QUANTIZE(float)
DEFINE_QUANTIZE(double)

/* Lanes that a vector fills, rounded up to a power of two; the others would only add zeros. */
static size_t lanes_of(size_t count)
{
    size_t lanes = 1;
    while (lanes < LANES && lanes < count) lanes *= 2;
    return lanes;
}

/* Kept by each thread: the allocator would give so large a piece back to the system every time.
 * Only lanes that no coordinate reaches are cleared; the others are first written, then added to. */
static double *lanes_for(size_t count, int second)
{
    static _Thread_local double lanes[2][LANES];
    size_t used = smaller(count, LANES);
    memset(lanes[second] + used, 0, (lanes_of(count) - used) * sizeof **lanes);
    return lanes[second];
}

FOR_EACH_CPU static double fold(double *lanes, size_t count)
{
    for (size_t half = count / 2; half > 0; half /= 2)
        for (size_t i = 0; i < half; i++) lanes[i] += lanes[i + half];
    return lanes[0];
}

static double larger_or_nan(double a, double b) { return b > a || b != b ? b : a; }

/* A vector without memory is measured against zeros. */
static double measure(const char *gradient, const char *memory, size_t count, size_t item,
                      double *squares)
{
    static const double zeros[CHUNK];
    double largest = 0;
    for (size_t i = 0; i < count; i += CHUNK) {
        const void *g = gradient + i * item;
        const void *q = memory ? (const void *)(memory + i * item) : zeros;
        size_t some = smaller(CHUNK, count - i);
        double *lane = squares + i % LANES;
        double here = item == sizeof(float) ? measure_float(g, q, some, lane, i < LANES)
                                            : measure_double(g, q, some, lane, i < LANES);
        largest = larger_or_nan(largest, here);
    }
    return largest;
}

static void quantize(const char *gradient, const char *memory, char *moved, char *codes,
                     size_t count, size_t item, size_t code_item, Grid grid, double *sent,
                     double *error)
{
    int32_t wide[CHUNK];
    for (size_t i = 0; i < count; i += CHUNK) {
        const void *g = gradient + i * item, *q = memory + i * item;
        void *m = moved + i * item, *c = codes + i * code_item;
        size_t some = smaller(CHUNK, count - i), lane = i % LANES;
        if (item == sizeof(float))
            quantize_float(g, q, m, wide, some, grid, sent + lane, error + lane, i < LANES);
        else
            quantize_double(g, q, m, wide, some, grid, sent + lane, error + lane, i < LANES);
        store_codes(c, wide, some, code_item);
    }
}

static int are_alike(const Py_buffer *vectors, int count)
{
    const char *format = holds(vectors, "f") ? "f" : "d";
    for (int i = 0; i < count; i++)
        if (!holds(&vectors[i], format) || vectors[i].len != vectors[0].len) return 0;
    return 1;
}

/* Largest code that a cast from the vector's type can give: float rounds 2**31 - 1 up to 2**31. */
static double most(const Py_buffer *vector)
{
    return vector->itemsize == sizeof(float) ? INT32_MAX - 127 : INT32_MAX;
}

static PyObject *measured(const Py_buffer *gradient, const Py_buffer *memory)
{
    size_t count = gradient->len / gradient->itemsize, lanes = lanes_of(count);
    double *squares = lanes_for(count, 0), largest, squared;
    Py_BEGIN_ALLOW_THREADS
    largest = measure(gradient->buf, memory ? memory->buf : NULL, count, gradient->itemsize,
                      squares);
    squared = fold(squares, lanes);
    Py_END_ALLOW_THREADS
    return Py_BuildValue("dd", largest, squared);
}

static PyObject *py_measure(PyObject *self, PyObject *args)
{
    (void)self;
    PyObject *objects[2], *result = NULL;
    Py_buffer buffers[2];
    if (!PyArg_ParseTuple(args, "OO", &objects[0], &objects[1])) return NULL;
    int count = objects[1] == Py_None ? 1 : 2;
    if (acquire(objects, buffers, count, count) < 0) return NULL;
    if (!are_alike(buffers, count))
        PyErr_SetString(PyExc_ValueError, "vectors must be of one length and one float type");
    else
        result = measured(&buffers[0], count == 2 ? &buffers[1] : NULL);
    release(buffers, count);
    return result;
}

static PyObject *quantized(const Py_buffer *gradient, const Py_buffer *memory, Py_buffer *moved,
                           Py_buffer *codes, Grid grid)
{
    size_t count = gradient->len / gradient->itemsize, lanes = lanes_of(count);
    double *sent = lanes_for(count, 0), *error = lanes_for(count, 1), sums[2];
    Py_BEGIN_ALLOW_THREADS
    quantize(gradient->buf, memory->buf, moved->buf, codes->buf, count, gradient->itemsize,
             codes->itemsize, grid, sent, error);
    sums[0] = fold(sent, lanes);
    sums[1] = fold(error, lanes);
    Py_END_ALLOW_THREADS
    return Py_BuildValue("dd", sums[0], sums[1]);
}

static PyObject *py_quantize(PyObject *self, PyObject *args)
{
    (void)self;
    PyObject *objects[4], *result = NULL;
    Py_buffer buffers[4], *gradient = buffers, *codes = buffers + 3;
    Grid grid;
    if (!PyArg_ParseTuple(args, "OOOOddd", &objects[0], &objects[1], &objects[2], &objects[3],
                          &grid.largest, &grid.step, &grid.last))
        return NULL;
    if (acquire(objects, buffers, 4, 2) < 0) return NULL;
    if (!are_alike(buffers, 3))
        PyErr_SetString(PyExc_ValueError, "vectors must be of one length and one float type");
    else if (!are_codes_of(codes, gradient))
        PyErr_SetString(PyExc_ValueError, "there must be one code of 1, 2 or 4 bytes a coordinate");
    else if (!(grid.last >= 0 && grid.last <= most(gradient)))
        PyErr_SetString(PyExc_ValueError, "the last code must be a number of at most 31 bits");
    else
        result = quantized(gradient, &buffers[1], &buffers[2], codes, grid);
    release(buffers, 4);
    return result;
}

/* As many bits as the type holds below one, so that no lot is rounded up to it. */
#define DEFINE_LOTS(REAL, DROPPED)                                                                \
    FOR_EACH_CPU static void lots_##REAL(REAL *restrict lots, size_t count, uint32_t seed)        \
    {                                                                                             \
        const uint32_t mixed_seed = mix_word(seed);                                               \
        const REAL unit = (REAL)1 / ((UINT64_C(1) << 32) >> DROPPED);                             \
        for (size_t i = 0; i < count; i++)                                                        \
            lots[i] = (REAL)(lot_word(seed, mixed_seed, (uint32_t)i) >> DROPPED) * unit;          \
    }

DEFINE_LOTS(float, 8)
DEFINE_LOTS(double, 0)

static PyObject *py_lots(PyObject *self, PyObject *args)
{
    (void)self;
    PyObject *object;
    Py_buffer lots;
    unsigned int seed;
    if (!PyArg_ParseTuple(args, "OI", &object, &seed)) return NULL;
    if (acquire(&object, &lots, 1, 0) < 0) return NULL;
    if (!are_alike(&lots, 1)) {
        PyErr_SetString(PyExc_ValueError, "lots must be a float32 or float64 vector");
    } else {
        size_t count = lots.len / lots.itemsize;
        Py_BEGIN_ALLOW_THREADS
        if (lots.itemsize == sizeof(float)) lots_float(lots.buf, count, seed);
        else lots_double(lots.buf, count, seed);
        Py_END_ALLOW_THREADS
    }
    release(&lots, 1);
    return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
}

static PyMethodDef methods[] = {
    {"measure", py_measure, METH_VARARGS, NULL},
    {"quantize", py_quantize, METH_VARARGS, NULL},
    {"lots", py_lots, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "aquila.native.passes", NULL, 0, methods,
                                    NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit_passes(void) { return PyModule_Create(&module); }
