/* Adds uploads to a float64 sum, and computes their norms, without decoding them first.
 *
 * The results have the bits of the operations on whole vectors: see core/packet.py, core/vector.py.
 */
#include <stdlib.h>

#include "lanes.h"

/* Coordinates ahead of the current one whose part of the sum is loaded into the cache. */
enum { AHEAD = 24 };

static bool positions_are_valid(const int64_t *positions, size_t count, size_t length) {
    uint64_t largest = 0; /* a negative position is a large one */
    for (size_t k = 0; k < count; k++) {
        uint64_t position = (uint64_t)positions[k];
        largest = position > largest ? position : largest;
    }
    return !count || largest < length;
}

#define DEFINE_SPARSE(FLOAT)                                                                       \
    static void add_sparse_##FLOAT(double *total, const int64_t *positions, const FLOAT *values,   \
                                   size_t count) {                                                 \
        for (size_t k = 0; k < count; k++) {                                                       \
            if (k + AHEAD < count) PREFETCH(total + positions[k + AHEAD]);                         \
            total[positions[k]] += (double)values[k];                                              \
        }                                                                                          \
    }

#define DEFINE_DENSE(FLOAT, CODE)                                                                  \
    CPU_CLONES static void add_##FLOAT##_##CODE(                                                   \
        double *restrict total, const CODE *restrict codes, size_t count, FLOAT low, FLOAT step) { \
        for (size_t i = 0; i < count; i++) total[i] += (double)(low + step * (FLOAT)codes[i]);     \
    }                                                                                              \
    CPU_CLONES static void square_##FLOAT##_##CODE(                                                \
        double *restrict lanes, const CODE *restrict codes, size_t count, FLOAT low, FLOAT step) { \
        for (size_t i = 0; i < count; i++) {                                                       \
            double value = (double)(low + step * (FLOAT)codes[i]);                                 \
            lanes[i] += value * value;                                                             \
        }                                                                                          \
    }

#define DEFINE(FLOAT)                                                                              \
    DEFINE_SPARSE(FLOAT)                                                                           \
    DEFINE_DENSE(FLOAT, uint8_t)                                                                   \
    DEFINE_DENSE(FLOAT, int16_t)                                                                   \
    DEFINE_DENSE(FLOAT, int32_t)

DEFINE(float)
DEFINE(double)

typedef struct {
    const void *codes;
    size_t count, item;
    bool is_double;
    double low, step;
} Codes;

#define APPLY(name, FLOAT, out, codes, start, size)                                                \
    do {                                                                                           \
        const char *part = (const char *)(codes)->codes + (start) * (codes)->item;                 \
        FLOAT low = (FLOAT)(codes)->low, step = (FLOAT)(codes)->step;                              \
        if ((codes)->item == 1)                                                                    \
            name##_##FLOAT##_uint8_t(out, (const void *)part, size, low, step);                    \
        if ((codes)->item == 2)                                                                    \
            name##_##FLOAT##_int16_t(out, (const void *)part, size, low, step);                    \
        if ((codes)->item == 4)                                                                    \
            name##_##FLOAT##_int32_t(out, (const void *)part, size, low, step);                    \
    } while (0)

static void add_all(double *total, const Codes *codes) {
    if (codes->is_double)
        APPLY(add, double, total, codes, 0, codes->count);
    else
        APPLY(add, float, total, codes, 0, codes->count);
}

/* The square of coordinate i goes to lane i modulo the number of lanes. */
static void square_all(double *lanes, size_t lane_count, const Codes *codes) {
    for (size_t i = 0; i < codes->count; i += lane_count) {
        size_t size = min_size(lane_count, codes->count - i);
        if (codes->is_double)
            APPLY(square, double, lanes, codes, i, size);
        else
            APPLY(square, float, lanes, codes, i, size);
    }
}

/* Sum of the squares of values at increasing positions, in the order of core/vector.py; negative if
 * there is not enough memory. Lanes above the last position are zero, so fewer are enough. */
static double sparse_squared_norm(const int64_t *positions, const Py_buffer *values) {
    size_t count = vector_length(values), lanes = 1;
    if (!count) return 0;
    while (lanes < LANES && lanes <= (size_t)positions[count - 1]) lanes *= 2;
    double *sums = calloc(lanes, sizeof *sums), result = -1;
    if (!sums) return result;
    for (size_t k = 0; k < count; k++) {
        double value = values->itemsize == sizeof(float) ? (double)((const float *)values->buf)[k]
                                                         : ((const double *)values->buf)[k];
        sums[(size_t)positions[k] % lanes] += value * value;
    }
    result = sum_lanes(sums, lanes);
    free(sums);
    return result;
}

/* Sum of the squares of decoded codes in the same order; negative if there is not enough memory. */
static double codes_squared_norm(const Codes *codes) {
    size_t lanes = lane_count(codes->count);
    double *sums = calloc(lanes, sizeof *sums), result = -1;
    if (!sums) return result;
    square_all(sums, lanes, codes);
    result = sum_lanes(sums, lanes);
    free(sums);
    return result;
}

static bool valid_sparse(const Py_buffer *total, const Py_buffer *positions,
                         const Py_buffer *values) {
    if ((total && !has_format(total, "d")) || positions->itemsize != sizeof(int64_t) ||
        !(has_format(values, "f") || has_format(values, "d")) ||
        vector_length(positions) != vector_length(values)) {
        PyErr_SetString(PyExc_ValueError, "a sum of doubles, and one position of 64 bits per float "
                                          "value are needed");
        return false;
    }
    return true;
}

static PyObject *py_add_sparse(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *objects[3];
    Py_buffer buffers[3], *positions = buffers, *values = buffers + 1, *total = buffers + 2;
    bool valid = false;
    if (!PyArg_ParseTuple(args, "OOO", &objects[2], &objects[0], &objects[1])) return NULL;
    if (acquire_buffers(objects, buffers, 3, 2) < 0) return NULL;
    if (valid_sparse(total, positions, values)) {
        size_t count = vector_length(values), length = vector_length(total);
        Py_BEGIN_ALLOW_THREADS
            valid = positions_are_valid(positions->buf, count, length);
            if (valid && values->itemsize == sizeof(float))
                add_sparse_float(total->buf, positions->buf, values->buf, count);
            else if (valid)
                add_sparse_double(total->buf, positions->buf, values->buf, count);
        Py_END_ALLOW_THREADS
        if (!valid) PyErr_SetString(PyExc_ValueError, "a position is outside of the sum");
    }
    release_buffers(buffers, 3);
    return valid ? Py_NewRef(Py_None) : NULL;
}

static PyObject *py_squared_norm(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *objects[2];
    Py_buffer buffers[2], *positions = buffers, *values = buffers + 1;
    double result = -1;
    if (!PyArg_ParseTuple(args, "OO", &objects[0], &objects[1])) return NULL;
    if (acquire_buffers(objects, buffers, 2, 2) < 0) return NULL;
    bool valid = valid_sparse(NULL, positions, values);
    if (valid) {
        Py_BEGIN_ALLOW_THREADS
            result = sparse_squared_norm(positions->buf, values);
        Py_END_ALLOW_THREADS
        if (result < 0) PyErr_NoMemory();
    }
    release_buffers(buffers, 2);
    return PyErr_Occurred() ? NULL : PyFloat_FromDouble(result);
}

/* Fill the description of codes from buffers; on failure set an exception. */
static bool valid_codes(Codes *source, const Py_buffer *codes, const Py_buffer *total) {
    source->codes = codes->buf;
    source->item = (size_t)codes->itemsize;
    bool valid = source->item == 1 || source->item == 2 || source->item == 4;
    if (valid) source->count = vector_length(codes);
    valid = valid && (!total || (has_format(total, "d") && vector_length(total) == source->count));
    if (!valid)
        PyErr_SetString(PyExc_ValueError, "doubles, and codes of 1, 2 or 4 bytes are needed");
    return valid;
}

static PyObject *py_add_codes(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *objects[2];
    Py_buffer buffers[2], *codes = buffers, *total = buffers + 1;
    int is_double;
    Codes source = {NULL, 0, 0, false, 0, 0};
    if (!PyArg_ParseTuple(args, "OOddp", &objects[1], &objects[0], &source.low, &source.step,
                          &is_double))
        return NULL;
    if (acquire_buffers(objects, buffers, 2, 1) < 0) return NULL;
    source.is_double = is_double;
    bool valid = valid_codes(&source, codes, total);
    if (valid) {
        PyThreadState *state = unlock_for(source.count);
        add_all(total->buf, &source);
        lock_again(state);
    }
    release_buffers(buffers, 2);
    return valid ? Py_NewRef(Py_None) : NULL;
}

static PyObject *py_squared_norm_of_codes(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *object;
    Py_buffer codes;
    int is_double;
    double result = -1;
    Codes source = {NULL, 0, 0, false, 0, 0};
    if (!PyArg_ParseTuple(args, "Oddp", &object, &source.low, &source.step, &is_double))
        return NULL;
    if (acquire_buffers(&object, &codes, 1, 1) < 0) return NULL;
    source.is_double = is_double;
    if (valid_codes(&source, &codes, NULL)) {
        PyThreadState *state = unlock_for(source.count);
        result = codes_squared_norm(&source);
        lock_again(state);
        if (result < 0) PyErr_NoMemory();
    }
    release_buffers(&codes, 1);
    return PyErr_Occurred() ? NULL : PyFloat_FromDouble(result);
}

static PyMethodDef methods[] = {
    {"add_sparse", py_add_sparse, METH_VARARGS, NULL},
    {"squared_norm", py_squared_norm, METH_VARARGS, NULL},
    {"add_codes", py_add_codes, METH_VARARGS, NULL},
    {"squared_norm_of_codes", py_squared_norm_of_codes, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "aquila.native.accumulate", NULL, 0, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit_accumulate(void) { return PyModule_Create(&module); }
