/* The two passes from gradient and memory to codes and new memory: see core/passes. */
#include "lanes.h"

typedef struct {
    double largest, step, last;
} Grid;

/* Magnitudes compare like the integers with the same bits, and NaN is larger than all of them.
 *
 * With two rows, coordinates of the second row are added to their lanes after those of the first.
 * The lanes are then read and written half as often, which takes a third off the time. */
#define DEFINE_MEASURE(REAL, UNSIGNED)                                                             \
    ALWAYS_INLINE UNSIGNED magnitude_bits_##REAL(REAL v) {                                         \
        UNSIGNED bits;                                                                             \
        memcpy(&bits, &v, sizeof v);                                                               \
        return bits & ~(UNSIGNED)0 >> 1;                                                           \
    }                                                                                              \
                                                                                                   \
    CPU_CLONES static double measure_##REAL(const REAL *restrict gradient,                         \
                                            const REAL *restrict memory, size_t count,             \
                                            double *restrict squares, int first) {                 \
        UNSIGNED largest = 0;                                                                      \
        REAL result;                                                                               \
        for (size_t i = 0; i < count; i++) {                                                       \
            REAL v = gradient[i] - memory[i];                                                      \
            UNSIGNED magnitude = magnitude_bits_##REAL(v);                                         \
            largest = magnitude > largest ? magnitude : largest;                                   \
            double square = (double)v * (double)v;                                                 \
            squares[i] = first ? square : squares[i] + square;                                     \
        }                                                                                          \
        memcpy(&result, &largest, sizeof result);                                                  \
        return result;                                                                             \
    }                                                                                              \
                                                                                                   \
    CPU_CLONES static double measure_two_##REAL(                                                   \
        const REAL *restrict gradient, const REAL *restrict memory,                                \
        const REAL *restrict next_gradient, const REAL *restrict next_memory, size_t count,        \
        double *restrict squares, int first) {                                                     \
        UNSIGNED largest = 0;                                                                      \
        REAL result;                                                                               \
        for (size_t i = 0; i < count; i++) {                                                       \
            REAL v = gradient[i] - memory[i], w = next_gradient[i] - next_memory[i];               \
            UNSIGNED a = magnitude_bits_##REAL(v), b = magnitude_bits_##REAL(w);                   \
            a = a > b ? a : b;                                                                     \
            largest = a > largest ? a : largest;                                                   \
            double square = (double)v * (double)v, next_square = (double)w * (double)w;            \
            squares[i] = (first ? square : squares[i] + square) + next_square;                     \
        }                                                                                          \
        memcpy(&result, &largest, sizeof result);                                                  \
        return result;                                                                             \
    }

#define DEFINE_MAX_ABS(REAL, UNSIGNED)                                                             \
    CPU_CLONES static double max_abs_##REAL(const REAL *vector, size_t count) {                    \
        UNSIGNED largest = 0;                                                                      \
        REAL result;                                                                               \
        for (size_t i = 0; i < count; i++) {                                                       \
            UNSIGNED magnitude = magnitude_bits_##REAL(vector[i]);                                 \
            largest = magnitude > largest ? magnitude : largest;                                   \
        }                                                                                          \
        memcpy(&result, &largest, sizeof result);                                                  \
        return result;                                                                             \
    }

/* psi is not negative, so a cast rounds it down. NaN becomes code 0. */
#define DEFINE_QUANTIZE(REAL)                                                                      \
    CPU_CLONES static void quantize_##REAL(                                                        \
        const REAL *restrict gradient, const REAL *restrict memory, REAL *restrict new_memory,     \
        int32_t *restrict codes, size_t count, Grid grid, double *restrict sent,                   \
        double *restrict error, int first) {                                                       \
        const REAL R = (REAL)grid.largest, step = (REAL)grid.step, last = (REAL)grid.last;         \
        for (size_t i = 0; i < count; i++) {                                                       \
            REAL v = gradient[i] - memory[i];                                                      \
            REAL psi = (v + R) / step + (REAL)0.5;                                                 \
            psi = psi > 0 ? psi : 0;                                                               \
            psi = psi < last ? psi : last;                                                         \
            codes[i] = (int32_t)psi;                                                               \
            REAL dq = (REAL)codes[i] * step - R;                                                   \
            REAL remaining = v - dq;                                                               \
            new_memory[i] = memory[i] + dq;                                                        \
            double dq_squared = (double)dq * (double)dq,                                           \
                   remaining_squared = (double)remaining * (double)remaining;                      \
            sent[i] = first ? dq_squared : sent[i] + dq_squared;                                   \
            error[i] = first ? remaining_squared : error[i] + remaining_squared;                   \
        }                                                                                          \
    }

DEFINE_MEASURE(float, uint32_t)
DEFINE_MEASURE(double, uint64_t)
DEFINE_MAX_ABS(float, uint32_t)
DEFINE_MAX_ABS(double, uint64_t)
DEFINE_QUANTIZE(float)
DEFINE_QUANTIZE(double)

/* Part of a vector; without a memory, the gradient itself is measured. */
static const void *part(const char *vector, size_t start, size_t item) {
    return vector ? (const void *)(vector + start * item) : zeros;
}

static double measure_chunk(const char *gradient, const char *memory, size_t start, size_t size,
                            size_t item, double *squares) {
    const void *g = part(gradient, start, item), *q = part(memory, start, item);
    double *lane = squares + start % LANES;
    return item == sizeof(float) ? measure_float(g, q, size, lane, start < LANES)
                                 : measure_double(g, q, size, lane, start < LANES);
}

static double measure_two_chunks(const char *gradient, const char *memory, size_t start,
                                 size_t item, double *squares) {
    const void *g = part(gradient, start, item), *q = part(memory, start, item);
    const void *h = part(gradient, start + LANES, item), *r = part(memory, start + LANES, item);
    double *lane = squares + start % LANES;
    return item == sizeof(float) ? measure_two_float(g, q, h, r, CHUNK, lane, start < LANES)
                                 : measure_two_double(g, q, h, r, CHUNK, lane, start < LANES);
}

static double measure(const char *gradient, const char *memory, size_t count, size_t item,
                      double *squares) {
    double largest = 0;
    for (size_t row = 0; row < count; row += 2 * LANES)
        for (size_t i = row; i < min_size(count, row + LANES); i += CHUNK) {
            size_t next = i + LANES;
            bool both = next + CHUNK <= count;
            double chunk = both ? measure_two_chunks(gradient, memory, i, item, squares)
                                : measure_chunk(gradient, memory, i, min_size(CHUNK, count - i),
                                                item, squares);
            largest = larger_or_nan(largest, chunk);
            if (both || next >= count) continue;
            chunk = measure_chunk(gradient, memory, next, count - next, item, squares);
            largest = larger_or_nan(largest, chunk);
        }
    return largest;
}

static void quantize(const char *gradient, const char *memory, char *new_memory, char *codes,
                     size_t count, size_t item, size_t code_item, Grid grid, double *sent,
                     double *error) {
    int32_t wide[CHUNK];
    for (size_t i = 0; i < count; i += CHUNK) {
        const void *g = gradient + i * item, *q = memory + i * item;
        void *m = new_memory + i * item, *c = codes + i * code_item;
        size_t size = min_size(CHUNK, count - i), lane = i % LANES;
        if (item == sizeof(float))
            quantize_float(g, q, m, wide, size, grid, sent + lane, error + lane, i < LANES);
        else
            quantize_double(g, q, m, wide, size, grid, sent + lane, error + lane, i < LANES);
        store_codes(c, wide, size, code_item);
    }
}

/* Largest code that a cast from the vector's type can give. As a float, 2**31 - 1 becomes 2**31. */
static double largest_code(const Py_buffer *vector) {
    return vector->itemsize == sizeof(float) ? INT32_MAX - 127 : INT32_MAX;
}

static PyObject *measure_buffers(const Py_buffer *gradient, const Py_buffer *memory) {
    size_t count = vector_length(gradient), lanes = lane_count(count);
    double *squares = thread_lanes(count, 0), largest, squared;
    PyThreadState *state = unlock_for(count);
    largest =
        measure(gradient->buf, memory ? memory->buf : NULL, count, gradient->itemsize, squares);
    squared = sum_lanes(squares, lanes);
    lock_again(state);
    return Py_BuildValue("dd", largest, squared);
}

static PyObject *py_measure(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *objects[2], *result = NULL;
    Py_buffer buffers[2];
    if (!PyArg_ParseTuple(args, "OO", &objects[0], &objects[1])) return NULL;
    int count = objects[1] == Py_None ? 1 : 2;
    if (acquire_buffers(objects, buffers, count, count) < 0) return NULL;
    if (!same_type_and_length(buffers, count))
        PyErr_SetString(PyExc_ValueError, "vectors must have one length and one float type");
    else
        result = measure_buffers(&buffers[0], count == 2 ? &buffers[1] : NULL);
    release_buffers(buffers, count);
    return result;
}

static PyObject *py_max_abs(PyObject *self, PyObject *object) {
    (void)self;
    Py_buffer vector;
    double largest = -1;
    if (acquire_buffers(&object, &vector, 1, 1) < 0) return NULL;
    size_t count = vector_length(&vector);
    PyThreadState *state = unlock_for(count);
    if (has_format(&vector, "f")) largest = max_abs_float(vector.buf, count);
    if (has_format(&vector, "d")) largest = max_abs_double(vector.buf, count);
    lock_again(state);
    release_buffers(&vector, 1);
    if (largest != -1) return PyFloat_FromDouble(largest);
    PyErr_SetString(PyExc_ValueError, "a vector of floats is needed");
    return NULL;
}

static PyObject *quantize_buffers(const Py_buffer *gradient, const Py_buffer *memory,
                                  Py_buffer *new_memory, Py_buffer *codes, Grid grid) {
    size_t count = vector_length(gradient), lanes = lane_count(count);
    double *sent = thread_lanes(count, 0), *error = thread_lanes(count, 1), sums[2];
    PyThreadState *state = unlock_for(count);
    advise_output(new_memory);
    advise_output(codes);
    quantize(gradient->buf, memory->buf, new_memory->buf, codes->buf, count, gradient->itemsize,
             codes->itemsize, grid, sent, error);
    sums[0] = sum_lanes(sent, lanes);
    sums[1] = sum_lanes(error, lanes);
    lock_again(state);
    return Py_BuildValue("dd", sums[0], sums[1]);
}

static PyObject *py_quantize(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *objects[4], *result = NULL;
    Py_buffer buffers[4], *gradient = buffers, *codes = buffers + 3;
    Grid grid;
    if (!PyArg_ParseTuple(args, "OOOOddd", &objects[0], &objects[1], &objects[2], &objects[3],
                          &grid.largest, &grid.step, &grid.last))
        return NULL;
    if (acquire_buffers(objects, buffers, 4, 2) < 0) return NULL;
    if (!same_type_and_length(buffers, 3))
        PyErr_SetString(PyExc_ValueError, "vectors must have one length and one float type");
    else if (!codes_match_vector(codes, gradient))
        PyErr_SetString(PyExc_ValueError,
                        "codes must have one code of 1, 2 or 4 bytes per coordinate");
    else if (!(grid.last >= 0 && grid.last <= largest_code(gradient)))
        PyErr_SetString(PyExc_ValueError,
                        "the last code must be from 0 to the largest code of 31 bits");
    else
        result = quantize_buffers(gradient, &buffers[1], &buffers[2], codes, grid);
    release_buffers(buffers, 4);
    return result;
}

static PyMethodDef methods[] = {
    {"max_abs", py_max_abs, METH_O, NULL},
    {"measure", py_measure, METH_VARARGS, NULL},
    {"quantize", py_quantize, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "aquila.native.passes", NULL, 0, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit_passes(void) { return PyModule_Create(&module); }
