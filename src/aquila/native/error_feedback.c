/* The two fused passes of error feedback with a memory: see core/passes. */
#include "lanes.h"
#include "select.h"
#include "sparse.h"

typedef struct {
    double largest, squared, kth;
} Measures;

/* total = error + (gradient - memory). Magnitudes compare like the integers with the same bits. */
#define DEFINE_ACCUMULATE(REAL, UNSIGNED)                                                          \
    CPU_CLONES static double add_##REAL(const REAL *restrict error, const REAL *restrict gradient, \
                                        const REAL *restrict memory, REAL *restrict total,         \
                                        size_t count, double *restrict squares, int first) {       \
        UNSIGNED largest = 0;                                                                      \
        REAL result;                                                                               \
        for (size_t i = 0; i < count; i++) {                                                       \
            REAL v = error[i] + (gradient[i] - memory[i]);                                         \
            UNSIGNED magnitude;                                                                    \
            memcpy(&magnitude, &v, sizeof v);                                                      \
            magnitude &= ~(UNSIGNED)0 >> 1;                                                        \
            largest = magnitude > largest ? magnitude : largest;                                   \
            total[i] = v;                                                                          \
            double square = (double)v * (double)v;                                                 \
            squares[i] = first ? square : squares[i] + square;                                     \
        }                                                                                          \
        memcpy(&result, &largest, sizeof result);                                                  \
        return result;                                                                             \
    }                                                                                              \
                                                                                                   \
    static Measures accumulate_##REAL(const REAL *error, const REAL *gradient, const REAL *memory, \
                                      REAL *total, size_t count, size_t k, double *squares) {      \
        Collected collected = {0, NULL, 0, 0};                                                     \
        Measures measures = {0, 0, 0};                                                             \
        REAL *sample = is_sampled(count, k) ? malloc(SAMPLE * sizeof *sample) : NULL;              \
        for (size_t group = 0; sample && group < GROUPS; group++) {                                \
            size_t i = group_start(count, group);                                                  \
            add_##REAL(error + i, gradient + i, memory + i, sample + group * GROUP, GROUP,         \
                       squares, 1);                                                                \
        }                                                                                          \
        if (sample) collected = start_collecting_##REAL(sample, count, k);                         \
        free(sample);                                                                              \
        for (size_t i = 0; i < count; i += CHUNK) {                                                \
            size_t size = min_size(CHUNK, count - i);                                              \
            double largest = add_##REAL(error + i, gradient + i, memory + i, total + i, size,      \
                                        squares + i % LANES, i < LANES);                           \
            measures.largest = larger_or_nan(measures.largest, largest);                           \
            if (collected.room) collect_##REAL(&collected, total + i, size);                       \
        }                                                                                          \
        measures.squared = sum_lanes(squares, lane_count(count));                                  \
        measures.kth = finish_search_##REAL(&collected, total, count, k);                          \
        return measures;                                                                           \
    }

/* v becomes the part of v that the codes do not send. */
#define DEFINE_SUBTRACT(REAL)                                                                      \
    CPU_CLONES static void subtract_##REAL(                                                        \
        REAL *restrict v, const REAL *restrict memory, REAL *restrict new_memory,                  \
        const int32_t *restrict codes, size_t count, Grid grid, double memory_rate,                \
        double *restrict squares, int first) {                                                     \
        const REAL step = (REAL)grid.step, low = -(step * (REAL)grid.top);                         \
        const REAL rate = (REAL)memory_rate;                                                       \
        for (size_t i = 0; i < count; i++) {                                                       \
            REAL sent = (REAL)codes[i] * step + low;                                               \
            v[i] -= sent;                                                                          \
            new_memory[i] = memory[i] + rate * sent;                                               \
            double square = (double)v[i] * (double)v[i];                                           \
            squares[i] = first ? square : squares[i] + square;                                     \
        }                                                                                          \
    }

DEFINE_ACCUMULATE(float, uint32_t)
DEFINE_ACCUMULATE(double, uint64_t)
DEFINE_SUBTRACT(float)
DEFINE_SUBTRACT(double)

/* The same codes; v becomes the rest, and the memory follows what is sent. */
static void feed_back(char *v, const char *memory, char *new_memory, char *codes, size_t count,
                      size_t item, size_t code_item, Grid grid, double rate, double *squares) {
    int32_t wide[CHUNK];
    for (size_t i = 0; i < count; i += CHUNK) {
        void *chunk = v + i * item, *m = new_memory + i * item;
        const void *q = memory + i * item;
        double *lane = squares + i % LANES;
        size_t size = min_size(CHUNK, count - i);
        chunk_codes(chunk, wide, size, item, grid);
        if (item == sizeof(float))
            subtract_float(chunk, q, m, wide, size, grid, rate, lane, i < LANES);
        else
            subtract_double(chunk, q, m, wide, size, grid, rate, lane, i < LANES);
        store_codes(codes + i * code_item, wide, size, code_item);
    }
}

static PyObject *accumulate_buffers(const Py_buffer *in, Py_buffer *total, size_t k) {
    size_t count = vector_length(total);
    double *squares = thread_lanes(count, 0);
    Measures measures;
    Py_BEGIN_ALLOW_THREADS
        advise_output(total);
        measures =
            total->itemsize == sizeof(float)
                ? accumulate_float(in[0].buf, in[1].buf, in[2].buf, total->buf, count, k, squares)
                : accumulate_double(in[0].buf, in[1].buf, in[2].buf, total->buf, count, k, squares);
    Py_END_ALLOW_THREADS
    return Py_BuildValue("ddd", measures.largest, measures.squared, measures.kth);
}

static PyObject *py_accumulate(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *objects[4], *result = NULL;
    Py_buffer buffers[4];
    Py_ssize_t k;
    if (!PyArg_ParseTuple(args, "OOOOn", &objects[0], &objects[1], &objects[2], &objects[3], &k))
        return NULL;
    if (acquire_buffers(objects, buffers, 4, 3) < 0) return NULL;
    if (!same_type_and_length(buffers, 4))
        PyErr_SetString(PyExc_ValueError, "vectors must have one length and one float type");
    else if (k < 1 || (size_t)k > vector_length(buffers))
        PyErr_SetString(PyExc_ValueError, "k must be from 1 to the number of coordinates");
    else
        result = accumulate_buffers(buffers, &buffers[3], (size_t)k);
    release_buffers(buffers, 4);
    return result;
}

static PyObject *feed_back_buffers(Py_buffer *v, const Py_buffer *memory, Py_buffer *new_memory,
                                   Py_buffer *codes, Grid grid, double rate) {
    size_t count = vector_length(v);
    double *squares = thread_lanes(count, 0), squared;
    Py_BEGIN_ALLOW_THREADS
        advise_output(new_memory);
        advise_output(codes);
        feed_back(v->buf, memory->buf, new_memory->buf, codes->buf, count, v->itemsize,
                  codes->itemsize, grid, rate, squares);
        squared = sum_lanes(squares, lane_count(count));
    Py_END_ALLOW_THREADS
    return PyFloat_FromDouble(squared);
}

static PyObject *py_feed_back(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *objects[4], *result = NULL;
    Py_buffer buffers[4];
    Grid grid;
    double rate;
    if (!PyArg_ParseTuple(args, "OOOOdddid", &objects[0], &objects[1], &objects[2], &objects[3],
                          &grid.step, &grid.lift, &grid.threshold, &grid.top, &rate))
        return NULL;
    if (acquire_buffers(objects, buffers, 4, 1) < 0) return NULL;
    const char *problem = same_type_and_length(buffers, 3)
                              ? grid_problem(buffers, &buffers[3], grid)
                              : "vectors must have one length and one float type";
    if (problem)
        PyErr_SetString(PyExc_ValueError, problem);
    else
        result = feed_back_buffers(&buffers[1], &buffers[0], &buffers[2], &buffers[3], grid, rate);
    release_buffers(buffers, 4);
    return result;
}

static PyMethodDef methods[] = {
    {"accumulate", py_accumulate, METH_VARARGS, NULL},
    {"feed_back", py_feed_back, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT,
                                    "aquila.native.error_feedback",
                                    NULL,
                                    0,
                                    methods,
                                    NULL,
                                    NULL,
                                    NULL,
                                    NULL};

PyMODINIT_FUNC PyInit_error_feedback(void) { return PyModule_Create(&module); }
