/* The passes of the sparse quantizer: see core/passes. */
#include "vectors.h"

enum { DIGIT = 11, BINS = 1 << DIGIT };

typedef struct {
    double step, lift, threshold;
    int top;
} Grid;

/* Magnitudes compare as the integers with the same bits do. The k-th is found a digit at a time,
 * from the top: each pass counts the next digits of those magnitudes that begin like it. The last
 * digit may overlap the one before, whose bits they all share. Bin 0 ends the search even if another
 * thread wrote to the vector meanwhile. */
#define DEFINE_SELECT(REAL, UNSIGNED)                                                             \
    static double kth_largest_##REAL(const REAL *v, size_t count, size_t k)                       \
    {                                                                                             \
        UNSIGNED found = 0, known = 0;                                                            \
        REAL result;                                                                              \
        for (int shift = 8 * sizeof(REAL) - 1; shift > 0;) {                                      \
            size_t bins[BINS] = {0}, bin = BINS - 1;                                              \
            shift = shift > DIGIT ? shift - DIGIT : 0;                                            \
            for (size_t i = 0; i < count; i++) {                                                  \
                UNSIGNED bits;                                                                    \
                memcpy(&bits, &v[i], sizeof bits);                                                \
                if ((bits & known) == found) bins[bits >> shift & (BINS - 1)]++;                  \
            }                                                                                     \
            while (bin > 0 && bins[bin] < k) k -= bins[bin--];                                    \
            found |= (UNSIGNED)bin << shift;                                                      \
            known |= (UNSIGNED)(BINS - 1) << shift;                                               \
        }                                                                                         \
        memcpy(&result, &found, sizeof result);                                                   \
        return result;                                                                            \
    }

/* The magnitude is not negative, so that casting it rounds it down. NaN becomes zero. */
#define DEFINE_CODES(REAL)                                                                        \
    FOR_EACH_CPU static void codes_##REAL(const REAL *restrict v, int32_t *restrict codes,        \
                                          size_t count, Grid grid)                                \
    {                                                                                             \
        const REAL step = (REAL)grid.step, lift = (REAL)grid.lift, top = (REAL)grid.top;          \
        const REAL threshold = (REAL)grid.threshold;                                              \
        for (size_t i = 0; i < count; i++) {                                                      \
            REAL size = v[i] < 0 ? -v[i] : v[i];                                                  \
            REAL magnitude = size / step + lift;                                                  \
            magnitude = magnitude > 0 ? magnitude : 0;                                            \
            magnitude = magnitude < top ? magnitude : top;                                        \
            int32_t whole = size == threshold ? 1 : (int32_t)magnitude;                           \
            int32_t signed_whole = v[i] < 0 ? -whole : v[i] > 0 ? whole : 0;                      \
            codes[i] = grid.top + signed_whole;                                                   \
        }                                                                                         \
    }

DEFINE_SELECT(float, uint32_t)
DEFINE_SELECT(double, uint64_t)
DEFINE_CODES(float)
DEFINE_CODES(double)

static void write_codes(const char *v, char *codes, size_t count, size_t item, size_t code_item,
                        Grid grid)
{
    int32_t wide[CHUNK];
    for (size_t i = 0; i < count; i += CHUNK) {
        const void *here = v + i * item;
        size_t some = smaller(CHUNK, count - i);
        if (item == sizeof(float))
            codes_float(here, wide, some, grid);
        else
            codes_double(here, wide, some, grid);
        store_codes(codes + i * code_item, wide, some, code_item);
    }
}

static int is_real(const Py_buffer *v) { return holds(v, "f") || holds(v, "d"); }

/* Largest code that the type holds, and that float counts up to. */
static int most(const Py_buffer *codes)
{
    return codes->itemsize == 1 ? UINT8_MAX : codes->itemsize == 2 ? INT16_MAX : 1 << 24;
}

static PyObject *kth_largest(const Py_buffer *v, size_t k)
{
    size_t count = v->len / v->itemsize;
    double kth;
    Py_BEGIN_ALLOW_THREADS
    kth = v->itemsize == sizeof(float) ? kth_largest_float(v->buf, count, k)
                                       : kth_largest_double(v->buf, count, k);
    Py_END_ALLOW_THREADS
    return PyFloat_FromDouble(kth);
}

static PyObject *py_kth_largest(PyObject *self, PyObject *args)
{
    (void)self;
    PyObject *object, *result = NULL;
    Py_buffer v;
    Py_ssize_t k;
    if (!PyArg_ParseTuple(args, "On", &object, &k)) return NULL;
    if (acquire(&object, &v, 1, 1) < 0) return NULL;
    if (!is_real(&v))
        PyErr_SetString(PyExc_ValueError, "the vector must be of a float type");
    else if (k < 1 || k > v.len / v.itemsize)
        PyErr_SetString(PyExc_ValueError, "k must be from 1 to the number of coordinates");
    else
        result = kth_largest(&v, k);
    release(&v, 1);
    return result;
}

static PyObject *written(const Py_buffer *v, Py_buffer *codes, Grid grid)
{
    Py_BEGIN_ALLOW_THREADS
    write_codes(v->buf, codes->buf, v->len / v->itemsize, v->itemsize, codes->itemsize, grid);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

static PyObject *py_codes(PyObject *self, PyObject *args)
{
    (void)self;
    PyObject *objects[2], *result = NULL;
    Py_buffer buffers[2], *v = buffers, *codes = buffers + 1;
    Grid grid;
    if (!PyArg_ParseTuple(args, "OOdddi", &objects[0], &objects[1], &grid.step, &grid.lift,
                          &grid.threshold, &grid.top))
        return NULL;
    if (acquire(objects, buffers, 2, 1) < 0) return NULL;
    if (!is_real(v))
        PyErr_SetString(PyExc_ValueError, "the vector must be of a float type");
    else if (!are_codes_of(codes, v))
        PyErr_SetString(PyExc_ValueError, "there must be one code of 1, 2 or 4 bytes a coordinate");
    else if (grid.top < 1 || grid.top > most(codes) / 2)
        PyErr_SetString(PyExc_ValueError, "the largest magnitude must fit the type of the codes");
    else
        result = written(v, codes, grid);
    release(buffers, 2);
    return result;
}

static PyMethodDef methods[] = {
    {"kth_largest", py_kth_largest, METH_VARARGS, NULL},
    {"codes", py_codes, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "aquila.native.sparse", NULL, 0, methods,
                                    NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit_sparse(void) { return PyModule_Create(&module); }
