/* The Walsh-Hadamard transform in place, without its scale. */
#include "vectors.h"

#define DEFINE_TRANSFORM(REAL)                                                                     \
    CPU_CLONES static void transform_##REAL(REAL *v, size_t count) {                               \
        for (size_t half = 1; half < count; half *= 2)                                             \
            for (size_t start = 0; start < count; start += 2 * half) {                             \
                REAL *restrict low = v + start, *restrict high = v + start + half;                 \
                for (size_t i = 0; i < half; i++) {                                                \
                    REAL sum = low[i] + high[i], difference = low[i] - high[i];                    \
                    low[i] = sum;                                                                  \
                    high[i] = difference;                                                          \
                }                                                                                  \
            }                                                                                      \
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
