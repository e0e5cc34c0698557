/* The dither, and codes that are rounded with it: see core/passes. */
#include "round_dithered.h"

/* Fill a part of a block that starts with the block. */
#define DEFINE_DITHER(REAL)                                                                        \
    CPU_CLONES static void dither_##REAL(REAL *restrict numbers, uint32_t start, uint32_t count,   \
                                         Dither dither, const BlockKeys *inverted) {               \
        for (uint32_t place = 0; place < count; place++) {                                         \
            uint32_t rank = rank_of_place(inverted, dither.block_bits, place);                     \
            numbers[place] = DITHER_OF_##REAL(~slot_complement(dither, start + rank));             \
        }                                                                                          \
    }

DEFINE_DITHER(float)
DEFINE_DITHER(double)

/* Fill a vector with the dither. */
static void fill_dither(const Py_buffer *numbers, Dither dither) {
    size_t count = vector_length(numbers), block = (size_t)1 << dither.block_bits;
    for (size_t start = 0; start < count; start += block) {
        BlockKeys keys = block_keys(dither, (uint32_t)(start / block));
        invert_keys(&keys);
        uint32_t size = (uint32_t)min_size(block, count - start);
        if (numbers->itemsize == sizeof(float))
            dither_float((float *)numbers->buf + start, (uint32_t)start, size, dither, &keys);
        else
            dither_double((double *)numbers->buf + start, (uint32_t)start, size, dither, &keys);
    }
}

static PyObject *codes_of_vectors(const Vectors *vectors, Grid grid) {
    double *error = thread_lanes(vectors->count, 0), error_squared;
    double *squares = malloc(group_size(grid) * sizeof *squares);
    int32_t top;
    if (!squares) return PyErr_NoMemory();
    Py_BEGIN_ALLOW_THREADS
        top = write_codes(vectors, grid, squares, error);
        error_squared = sum_lanes(error, lane_count(vectors->count));
    Py_END_ALLOW_THREADS
    free(squares);
    return Py_BuildValue("id", (int)top, error_squared);
}

/* The buffers are gradient, memory, new_memory and codes, or gradient and codes. */
static PyObject *codes_of_buffers(const Py_buffer *buffers, int count, Grid grid) {
    const Py_buffer *gradient = buffers, *codes = &buffers[count - 1];
    if (!same_type_and_length(buffers, count - 1)) {
        PyErr_SetString(PyExc_ValueError, "vectors must have one length and one float type");
        return NULL;
    }
    if (!codes_match_vector(codes, gradient)) {
        PyErr_SetString(PyExc_ValueError,
                        "codes must have one code of 1, 2 or 4 bytes per coordinate");
        return NULL;
    }
    if (grid.centre < 1 || grid.centre > largest_magnitude(codes)) {
        PyErr_SetString(PyExc_ValueError, "the largest magnitude must fit the type of the codes");
        return NULL;
    }
    Vectors vectors = {gradient->buf, NULL, NULL, codes->buf, vector_length(gradient), 0, 0};
    vectors.item = (size_t)gradient->itemsize;
    vectors.code_item = (size_t)codes->itemsize;
    grid.dither = dither_of_seed(grid.dither.seed, vectors.count);
    advise_output(codes);
    if (count == 4) {
        vectors.memory = buffers[1].buf;
        vectors.new_memory = buffers[2].buf;
        advise_output(&buffers[2]);
    }
    return codes_of_vectors(&vectors, grid);
}

static PyObject *py_codes(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *objects[4];
    Py_buffer buffers[4];
    Grid grid;
    unsigned int seed;
    if (!PyArg_ParseTuple(args, "OOOOdIid", &objects[0], &objects[1], &objects[2], &objects[3],
                          &grid.step, &seed, &grid.centre, &grid.rate))
        return NULL;
    grid.dither.seed = seed;
    int count = objects[1] == Py_None ? 2 : 4;
    if (count == 2) objects[1] = objects[3];
    if (acquire_buffers(objects, buffers, count, count / 2) < 0) return NULL;
    PyObject *result = codes_of_buffers(buffers, count, grid);
    release_buffers(buffers, count);
    return result;
}

static PyObject *py_fill(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *object;
    Py_buffer dither;
    unsigned int seed;
    if (!PyArg_ParseTuple(args, "OI", &object, &seed)) return NULL;
    if (acquire_buffers(&object, &dither, 1, 0) < 0) return NULL;
    if (!same_type_and_length(&dither, 1)) {
        PyErr_SetString(PyExc_ValueError, "the dither must be a float32 or float64 vector");
    } else {
        Py_BEGIN_ALLOW_THREADS
            fill_dither(&dither, dither_of_seed(seed, vector_length(&dither)));
        Py_END_ALLOW_THREADS
    }
    release_buffers(&dither, 1);
    return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
}

static PyMethodDef methods[] = {
    {"fill", py_fill, METH_VARARGS, NULL},
    {"codes", py_codes, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "aquila.native.dither", NULL, 0, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit_dither(void) { return PyModule_Create(&module); }
