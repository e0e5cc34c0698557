/* The passes of the sparse quantizer: see core/passes. */
#include "vectors.h"

enum { DIGIT_BITS = 11, BINS = 1 << DIGIT_BITS };

typedef struct {
    double step, lift, threshold;
    int top;
} Grid;

/* Magnitudes compare like the integers with the same bits. A radix search finds the k-th largest,
 * one digit per pass from the highest digit on. Each pass counts the next digit of the magnitudes
 * that match the digits found so far. The last digit may overlap the one before it. The search ends
 * at bin 0 even if another thread writes to the vector at the same time. */
#define DEFINE_SELECT(REAL, UNSIGNED)                                                              \
    static double kth_largest_##REAL(const REAL *v, size_t count, size_t k) {                      \
        UNSIGNED found = 0, known = 0;                                                             \
        REAL result;                                                                               \
        for (int shift = 8 * sizeof(REAL) - 1; shift > 0;) {                                       \
            size_t bins[BINS] = {0}, bin = BINS - 1;                                               \
            shift = shift > DIGIT_BITS ? shift - DIGIT_BITS : 0;                                   \
            for (size_t i = 0; i < count; i++) {                                                   \
                UNSIGNED bits;                                                                     \
                memcpy(&bits, &v[i], sizeof bits);                                                 \
                if ((bits & known) == found) bins[bits >> shift & (BINS - 1)]++;                   \
            }                                                                                      \
            while (bin > 0 && bins[bin] < k) k -= bins[bin--];                                     \
            found |= (UNSIGNED)bin << shift;                                                       \
            known |= (UNSIGNED)(BINS - 1) << shift;                                                \
        }                                                                                          \
        memcpy(&result, &found, sizeof result);                                                    \
        return result;                                                                             \
    }

/* The magnitude is not negative, so a cast rounds it down. NaN becomes zero. */
#define DEFINE_CODES(REAL)                                                                         \
    CPU_CLONES static void codes_##REAL(const REAL *restrict v, int32_t *restrict codes,           \
                                        size_t count, Grid grid) {                                 \
        const REAL step = (REAL)grid.step, lift = (REAL)grid.lift, top = (REAL)grid.top;           \
        const REAL threshold = (REAL)grid.threshold;                                               \
        for (size_t i = 0; i < count; i++) {                                                       \
            REAL size = v[i] < 0 ? -v[i] : v[i];                                                   \
            REAL magnitude = size / step + lift;                                                   \
            magnitude = magnitude > 0 ? magnitude : 0;                                             \
            magnitude = magnitude < top ? magnitude : top;                                         \
            int32_t whole = size == threshold ? 1 : (int32_t)magnitude;                            \
            int32_t signed_whole = v[i] < 0 ? -whole : v[i] > 0 ? whole : 0;                       \
            codes[i] = grid.top + signed_whole;                                                    \
        }                                                                                          \
    }

DEFINE_SELECT(float, uint32_t)
DEFINE_SELECT(double, uint64_t)
DEFINE_CODES(float)
DEFINE_CODES(double)

static void write_codes(const char *v, char *codes, size_t count, size_t item, size_t code_item,
                        Grid grid) {
    int32_t wide[CHUNK];
    for (size_t i = 0; i < count; i += CHUNK) {
        const void *chunk = v + i * item;
        size_t size = min_size(CHUNK, count - i);
        if (item == sizeof(float))
            codes_float(chunk, wide, size, grid);
        else
            codes_double(chunk, wide, size, grid);
        store_codes(codes + i * code_item, wide, size, code_item);
    }
}

static int is_float_vector(const Py_buffer *v) { return has_format(v, "f") || has_format(v, "d"); }

/* Largest code that both the code's type and float32 represent exactly. */
static int largest_code(const Py_buffer *codes) {
    return codes->itemsize == 1 ? UINT8_MAX : codes->itemsize == 2 ? INT16_MAX : 1 << 24;
}

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
        PyErr_SetString(PyExc_ValueError, "the vector must have a float type");
    else if (k < 1 || (size_t)k > vector_length(&v))
        PyErr_SetString(PyExc_ValueError, "k must be from 1 to the number of coordinates");
    else
        result = kth_largest_of_buffer(&v, k);
    release_buffers(&v, 1);
    return result;
}

static PyObject *codes_of_buffers(const Py_buffer *v, Py_buffer *codes, Grid grid) {
    Py_BEGIN_ALLOW_THREADS
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
    if (!is_float_vector(v))
        PyErr_SetString(PyExc_ValueError, "the vector must have a float type");
    else if (!codes_match_vector(codes, v))
        PyErr_SetString(PyExc_ValueError,
                        "codes must have one code of 1, 2 or 4 bytes per coordinate");
    else if (grid.top < 1 || grid.top > largest_code(codes) / 2)
        PyErr_SetString(PyExc_ValueError, "the largest magnitude must fit the type of the codes");
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
