/* The Walsh-Hadamard transform in place, without its scale. */
#include "vectors.h"

/* Coordinates of a block that fits in the first-level cache. */
enum { CACHED = 1 << 12 };

/* One step of the transform joins coordinates i and i + half to their sum and difference. Three
 * steps are done at a time, so that a long vector is read a third as often. The bits are those of
 * single steps. */
#define DEFINE_TRANSFORM(REAL)                                                                     \
    CPU_CLONES static void one_step_##REAL(REAL *v, size_t count, size_t half) {                   \
        for (size_t start = 0; start < count; start += 2 * half) {                                 \
            REAL *restrict low = v + start, *restrict high = v + start + half;                     \
            for (size_t i = 0; i < half; i++) {                                                    \
                REAL sum = low[i] + high[i], difference = low[i] - high[i];                        \
                low[i] = sum;                                                                      \
                high[i] = difference;                                                              \
            }                                                                                      \
        }                                                                                          \
    }                                                                                              \
                                                                                                   \
    CPU_CLONES static void three_steps_##REAL(REAL *v, size_t count, size_t half) {                \
        for (size_t start = 0; start < count; start += 8 * half) {                                 \
            REAL *restrict p0 = v + start, *restrict p1 = p0 + half, *restrict p2 = p1 + half;     \
            REAL *restrict p3 = p2 + half, *restrict p4 = p3 + half, *restrict p5 = p4 + half;     \
            REAL *restrict p6 = p5 + half, *restrict p7 = p6 + half;                               \
            for (size_t i = 0; i < half; i++) {                                                    \
                REAL a0 = p0[i] + p1[i], a1 = p0[i] - p1[i], a2 = p2[i] + p3[i];                   \
                REAL a3 = p2[i] - p3[i], a4 = p4[i] + p5[i], a5 = p4[i] - p5[i];                   \
                REAL a6 = p6[i] + p7[i], a7 = p6[i] - p7[i];                                       \
                REAL b0 = a0 + a2, b1 = a1 + a3, b2 = a0 - a2, b3 = a1 - a3;                       \
                REAL b4 = a4 + a6, b5 = a5 + a7, b6 = a4 - a6, b7 = a5 - a7;                       \
                p0[i] = b0 + b4;                                                                   \
                p1[i] = b1 + b5;                                                                   \
                p2[i] = b2 + b6;                                                                   \
                p3[i] = b3 + b7;                                                                   \
                p4[i] = b0 - b4;                                                                   \
                p5[i] = b1 - b5;                                                                   \
                p6[i] = b2 - b6;                                                                   \
                p7[i] = b3 - b7;                                                                   \
            }                                                                                      \
        }                                                                                          \
    }                                                                                              \
                                                                                                   \
    static void steps_##REAL(REAL *v, size_t count, size_t half) {                                 \
        for (; 8 * half <= count; half *= 8) three_steps_##REAL(v, count, half);                   \
        for (; half < count; half *= 2) one_step_##REAL(v, count, half);                           \
    }                                                                                              \
                                                                                                   \
    static void transform_##REAL(REAL *v, size_t count) {                                          \
        size_t cached = count < CACHED ? count : CACHED;                                           \
        for (size_t start = 0; start < count; start += cached) steps_##REAL(v + start, cached, 1); \
        steps_##REAL(v, count, cached);                                                            \
    }

DEFINE_TRANSFORM(float)
DEFINE_TRANSFORM(double)

static PyObject *transform_buffer(const Py_buffer *v) {
    size_t count = vector_length(v);
    if (count == 0 || (count & (count - 1)) != 0) {
        PyErr_SetString(PyExc_ValueError, "the length of the vector must be a power of two");
        return NULL;
    }
    if (!has_format(v, "f") && !has_format(v, "d")) {
        PyErr_SetString(PyExc_ValueError, "the vector must be float32 or float64");
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
        if (has_format(v, "f"))
            transform_float(v->buf, count);
        else
            transform_double(v->buf, count);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

static PyObject *py_transform(PyObject *self, PyObject *array) {
    Py_buffer v;
    (void)self;
    if (PyObject_GetBuffer(array, &v, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE | PyBUF_FORMAT) < 0)
        return NULL;
    PyObject *result = transform_buffer(&v);
    PyBuffer_Release(&v);
    return result;
}

static PyMethodDef methods[] = {
    {"transform", py_transform, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "hadamard",
    .m_size = -1,
    .m_methods = methods,
};

PyMODINIT_FUNC PyInit_hadamard(void) { return PyModule_Create(&module); }
