/* The passes of the sparse quantizer: see core/passes. */
#include "sparse.h"
#include "select.h"

#define DEFINE_KTH_LARGEST(REAL)                                                                   \
    static double kth_largest_##REAL(const REAL *v, size_t count, size_t k) {                      \
        Collected collected = {0, NULL, 0, 0};                                                     \
        REAL *sample = is_sampled(count, k) ? malloc(SAMPLE * sizeof *sample) : NULL;              \
        for (size_t group = 0; sample && group < GROUPS; group++)                                  \
            memcpy(sample + group * GROUP, v + group_start(count, group), GROUP * sizeof *v);      \
        if (sample) collected = start_collecting_##REAL(sample, count, k);                         \
        free(sample);                                                                              \
        for (size_t i = 0; collected.room && i < count; i += CHUNK)                                \
            collect_##REAL(&collected, v + i, min_size(CHUNK, count - i));                         \
        return finish_search_##REAL(&collected, v, count, k);                                      \
    }

DEFINE_KTH_LARGEST(float)
DEFINE_KTH_LARGEST(double)

static void write_codes(const char *v, char *codes, size_t count, size_t item, size_t code_item,
                        Grid grid) {
    int32_t wide[CHUNK];
    for (size_t i = 0; i < count; i += CHUNK) {
        size_t size = min_size(CHUNK, count - i);
        chunk_codes(v + i * item, wide, size, item, grid);
        store_codes(codes + i * code_item, wide, size, code_item);
    }
}

static const char NOT_FLOAT[] = "the vector must have a float type";

static int is_float_vector(const Py_buffer *v) { return has_format(v, "f") || has_format(v, "d"); }

static PyObject *kth_largest_of_buffer(const Py_buffer *v, size_t k) {
    size_t count = vector_length(v);
    double kth;
    Py_BEGIN_ALLOW_THREADS
        kth = v->itemsize == sizeof(float) ? kth_largest_float(v->buf, count, k)
                                           : kth_largest_double(v->buf, count, k);
    Py_END_ALLOW_THREADS
    return PyFloat_FromDouble(kth);
}

static PyObject *py_kth_largest(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *object, *result = NULL;
    Py_buffer v;
    Py_ssize_t k;
    if (!PyArg_ParseTuple(args, "On", &object, &k)) return NULL;
    if (acquire_buffers(&object, &v, 1, 1) < 0) return NULL;
    if (!is_float_vector(&v))
        PyErr_SetString(PyExc_ValueError, NOT_FLOAT);
    else if (k < 1 || (size_t)k > vector_length(&v))
        PyErr_SetString(PyExc_ValueError, "k must be from 1 to the number of coordinates");
    else
        result = kth_largest_of_buffer(&v, k);
    release_buffers(&v, 1);
    return result;
}

static PyObject *codes_of_buffers(const Py_buffer *v, Py_buffer *codes, Grid grid) {
    Py_BEGIN_ALLOW_THREADS
        advise_output(codes);
        write_codes(v->buf, codes->buf, vector_length(v), v->itemsize, codes->itemsize, grid);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

static PyObject *py_codes(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *objects[2], *result = NULL;
    Py_buffer buffers[2], *v = buffers, *codes = buffers + 1;
    Grid grid;
    if (!PyArg_ParseTuple(args, "OOdddi", &objects[0], &objects[1], &grid.step, &grid.lift,
                          &grid.threshold, &grid.top))
        return NULL;
    if (acquire_buffers(objects, buffers, 2, 1) < 0) return NULL;
    const char *problem = is_float_vector(v) ? grid_problem(v, codes, grid) : NOT_FLOAT;
    if (problem)
        PyErr_SetString(PyExc_ValueError, problem);
    else
        result = codes_of_buffers(v, codes, grid);
    release_buffers(buffers, 2);
    return result;
}

static PyMethodDef methods[] = {
    {"kth_largest", py_kth_largest, METH_VARARGS, NULL},
    {"codes", py_codes, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "aquila.native.sparse", NULL, 0, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit_sparse(void) { return PyModule_Create(&module); }
