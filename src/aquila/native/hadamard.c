/* The Walsh-Hadamard transform in place, without its scale, what a rotation does before it, and
 * sums of squares of its parts. */
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
    }                                                                                              \
                                                                                                   \
    /* Squares are added in pairs: the first half of the sums and the second, and so on. */        \
    CPU_CLONES static REAL squares_##REAL(const REAL *restrict v, REAL *restrict sums,             \
                                          size_t count) {                                          \
        for (size_t i = 0; i < count; i++) sums[i] = v[i] * v[i];                                  \
        for (size_t half = count / 2; half > 0; half /= 2)                                         \
            for (size_t i = 0; i < half; i++) sums[i] += sums[half + i];                           \
        return sums[0];                                                                            \
    }

DEFINE_TRANSFORM(float)
DEFINE_TRANSFORM(double)

/* Rows and columns of a block that is read by columns while it is in the cache. */
enum { TILE = 32 };

/* Flip the sign of the numbers whose bit is set, highest bit of each byte first. WORD has the size
 * of a number, and LAST is its highest bit. */
#define DEFINE_PASSES(WORD, LAST)                                                                  \
    CPU_CLONES static void flip_##WORD(WORD *restrict v, const uint8_t *restrict bits,             \
                                       size_t count) {                                             \
        for (size_t byte = 0; byte < count / 8; byte++)                                            \
            for (int i = 0; i < 8; i++)                                                            \
                v[8 * byte + i] ^= (WORD)((WORD)bits[byte] >> (7 - i)) << LAST;                    \
        for (size_t i = count / 8 * 8; i < count; i++)                                             \
            v[i] ^= (WORD)((WORD)bits[i / 8] >> (7 - i % 8)) << LAST;                              \
    }                                                                                              \
                                                                                                   \
    CPU_CLONES static void columns_##WORD(const WORD *restrict rows, WORD *restrict columns,       \
                                          size_t side) {                                           \
        for (size_t top = 0; top < side; top += TILE)                                              \
            for (size_t left = 0; left < side; left += TILE)                                       \
                for (size_t j = left; j < min_size(left + TILE, side); j++)                        \
                    for (size_t i = top; i < min_size(top + TILE, side); i++)                      \
                        columns[j * side + i] = rows[i * side + j];                                \
    }

DEFINE_PASSES(uint32_t, 31)
DEFINE_PASSES(uint64_t, 63)

static PyObject *transform_buffer(const Py_buffer *v, size_t length) {
    size_t count = vector_length(v);
    if (length == 0 || (length & (length - 1)) != 0 || count % length != 0) {
        PyErr_SetString(PyExc_ValueError, "the length of a part must be a power of two");
        return NULL;
    }
    if (!has_format(v, "f") && !has_format(v, "d")) {
        PyErr_SetString(PyExc_ValueError, "the vector must be float32 or float64");
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
        for (size_t start = 0; start < count; start += length) {
            if (has_format(v, "f"))
                transform_float((float *)v->buf + start, length);
            else
                transform_double((double *)v->buf + start, length);
        }
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

static PyObject *py_transform(PyObject *self, PyObject *args) {
    PyObject *array;
    Py_buffer v;
    Py_ssize_t length;
    (void)self;
    if (!PyArg_ParseTuple(args, "On", &array, &length)) return NULL;
    if (PyObject_GetBuffer(array, &v, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE | PyBUF_FORMAT) < 0)
        return NULL;
    PyObject *result = transform_buffer(&v, (size_t)length);
    PyBuffer_Release(&v);
    return result;
}

static PyObject *squares_of_buffers(const Py_buffer *vectors) {
    const Py_buffer *v = &vectors[0], *sums = &vectors[1];
    size_t count = vector_length(v), parts = vector_length(sums);
    size_t length = parts ? count / parts : 0;
    const char *format = has_format(v, "f") ? "f" : "d";
    if (!has_format(v, format) || !has_format(sums, format) || length == 0 ||
        parts * length != count || (length & (length - 1)) != 0) {
        PyErr_SetString(PyExc_ValueError,
                        "squares takes floats and a sum per part, whose length is a power of two");
        return NULL;
    }
    void *work = malloc(length * (size_t)v->itemsize);
    if (!work) return PyErr_NoMemory();
    Py_BEGIN_ALLOW_THREADS
        for (size_t part = 0; part < parts; part++) {
            if (has_format(v, "f"))
                ((float *)sums->buf)[part] =
                    squares_float((const float *)v->buf + part * length, work, length);
            else
                ((double *)sums->buf)[part] =
                    squares_double((const double *)v->buf + part * length, work, length);
        }
    Py_END_ALLOW_THREADS
    free(work);
    Py_RETURN_NONE;
}

static PyObject *py_squares(PyObject *self, PyObject *args) {
    PyObject *objects[2];
    Py_buffer buffers[2];
    (void)self;
    if (!PyArg_ParseTuple(args, "OO", &objects[0], &objects[1])) return NULL;
    if (acquire_buffers(objects, buffers, 2, 1) < 0) return NULL;
    PyObject *result = squares_of_buffers(buffers);
    release_buffers(buffers, 2);
    return result;
}

static PyObject *flip_buffers(const Py_buffer *bits, const Py_buffer *v) {
    size_t count = vector_length(v);
    if (!same_type_and_length(v, 1) || bits->itemsize != 1 || (size_t)bits->len < (count + 7) / 8) {
        PyErr_SetString(PyExc_ValueError, "flip_signs takes bytes with a bit per float");
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
        if (v->itemsize == 4)
            flip_uint32_t(v->buf, bits->buf, count);
        else
            flip_uint64_t(v->buf, bits->buf, count);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

static PyObject *columns_of_buffers(const Py_buffer *vectors, size_t side) {
    const Py_buffer *rows = &vectors[0], *columns = &vectors[1];
    size_t count = vector_length(rows), square = side * side * (size_t)rows->itemsize;
    int fits = side == 0 || side <= count / side;
    if (!same_type_and_length(vectors, 2) || !fits || rows->buf == columns->buf) {
        PyErr_SetString(PyExc_ValueError, "by_columns takes two vectors that contain the square");
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
        advise_output(columns);
        if (rows->itemsize == 4)
            columns_uint32_t(rows->buf, columns->buf, side);
        else
            columns_uint64_t(rows->buf, columns->buf, side);
        memcpy((char *)columns->buf + square, (char *)rows->buf + square,
               (size_t)rows->len - square);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

static PyObject *py_flip_signs(PyObject *self, PyObject *args) {
    PyObject *objects[2];
    Py_buffer buffers[2];
    (void)self;
    if (!PyArg_ParseTuple(args, "OO", &objects[1], &objects[0])) return NULL;
    if (acquire_buffers(objects, buffers, 2, 1) < 0) return NULL;
    PyObject *result = flip_buffers(&buffers[0], &buffers[1]);
    release_buffers(buffers, 2);
    return result;
}

static PyObject *py_by_columns(PyObject *self, PyObject *args) {
    PyObject *objects[2];
    Py_buffer buffers[2];
    Py_ssize_t side;
    (void)self;
    if (!PyArg_ParseTuple(args, "OOn", &objects[0], &objects[1], &side)) return NULL;
    if (acquire_buffers(objects, buffers, 2, 1) < 0) return NULL;
    PyObject *result = columns_of_buffers(buffers, (size_t)side);
    release_buffers(buffers, 2);
    return result;
}

static PyMethodDef methods[] = {
    {"transform", py_transform, METH_VARARGS, NULL},
    {"squares", py_squares, METH_VARARGS, NULL},
    {"flip_signs", py_flip_signs, METH_VARARGS, NULL},
    {"by_columns", py_by_columns, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "hadamard",
    .m_size = -1,
    .m_methods = methods,
};

PyMODINIT_FUNC PyInit_hadamard(void) { return PyModule_Create(&module); }
