/* The Python module. Every function releases the interpreter's lock while it works. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "binary_coder.h"
#include "body.h"
#include "dithered.h"
#include "exceptions.h"
#include "packed.h"

static bool valid_shape(Py_ssize_t count, Py_ssize_t size, Py_ssize_t bits) {
    bool fits =
        bits <= NARROW_BITS ? size == 1 : (size == 2 && bits <= 16) || size == 4 || size == 8;
    if (bits >= 1 && bits <= 32 && fits && count >= 1 && count <= UINT32_MAX) return true;
    PyErr_Format(PyExc_ValueError, "cannot code %zd integers of %zd bytes at %zd bits", count, size,
                 bits);
    return false;
}

static bool valid_codes(const Py_buffer *codes, Py_ssize_t bits) {
    Py_ssize_t size = codes->itemsize;
    if (!valid_shape(size ? codes->len / size : 0, size, bits)) return false;
    if ((uintptr_t)codes->buf % (uintptr_t)size) {
        PyErr_Format(PyExc_ValueError, "integers of %zd bytes are not aligned", size);
        return false;
    }
    return true;
}

static size_t code_count(const Py_buffer *codes) { return (size_t)(codes->len / codes->itemsize); }

typedef bool (*Writer)(Bytes *, Source *);

static bool write_only_packed(Bytes *out, Source *source) { return write_packed(out, source); }

static PyObject *write_with(Writer writer, PyObject *args) {
    Py_buffer codes;
    Py_ssize_t bits;
    unsigned int seed = 0;
    if (!PyArg_ParseTuple(args, "y*n|I", &codes, &bits, &seed)) return NULL;
    PyObject *result = NULL;
    if (valid_codes(&codes, bits)) {
        Source source = {
            codes.buf, code_count(&codes), (unsigned)codes.itemsize, (unsigned)bits, codes.buf, 0,
            seed};
        Bytes out = {NULL, 0, 0};
        bool fit, written;
        Py_BEGIN_ALLOW_THREADS
            fit = codes_fit(&source);
            written = fit && writer(&out, &source);
        Py_END_ALLOW_THREADS
        if (written)
            result = PyBytes_FromStringAndSize((const char *)out.data, (Py_ssize_t)out.size);
        else if (fit)
            PyErr_NoMemory();
        else
            PyErr_Format(PyExc_ValueError, "codes do not fit %zd bits", bits);
        free(out.data);
    }
    PyBuffer_Release(&codes);
    return result;
}

typedef Error (*Reader)(Cursor *, const Target *);

static Error read_only_packed(Cursor *in, const Target *target) {
    TRY(read_packed(in, target));
    return bytes_left(in) ? "packed codes have bytes left after the last code" : NULL;
}

static PyObject *read_with(Reader reader, PyObject *args) {
    Py_buffer body, codes;
    Py_ssize_t bits;
    if (!PyArg_ParseTuple(args, "y*w*n", &body, &codes, &bits)) return NULL;
    Error error = NULL;
    if (valid_codes(&codes, bits)) {
        Target target = {codes.buf, code_count(&codes), (unsigned)codes.itemsize, (unsigned)bits};
        Cursor in = {body.buf, (const uint8_t *)body.buf + body.len};
        advise_huge_pages(codes.buf, (size_t)codes.len);
        Py_BEGIN_ALLOW_THREADS
            error = reader(&in, &target);
        Py_END_ALLOW_THREADS
        if (error) PyErr_SetString(PyExc_ValueError, error);
    }
    PyBuffer_Release(&body);
    PyBuffer_Release(&codes);
    return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
}

static PyObject *encode(PyObject *self, PyObject *args) {
    (void)self;
    return write_with(write_body, args);
}

static PyObject *pack(PyObject *self, PyObject *args) {
    (void)self;
    return write_with(write_only_packed, args);
}

static PyObject *decode(PyObject *self, PyObject *args) {
    (void)self;
    return read_with(read_body, args);
}

static PyObject *unpack(PyObject *self, PyObject *args) {
    (void)self;
    return read_with(read_only_packed, args);
}

static PyObject *encode_dithered(PyObject *self, PyObject *args) {
    (void)self;
    return write_with(write_dithered, args);
}

/* Positions and codes as two byte arrays, and free them. */
static PyObject *take_sparse(SparseCodes *sparse) {
    PyObject *result = NULL;
    if (!PyErr_Occurred())
        result = Py_BuildValue(
            "NN",
            PyByteArray_FromStringAndSize((const char *)sparse->positions,
                                          (Py_ssize_t)(sparse->count * sizeof *sparse->positions)),
            PyByteArray_FromStringAndSize((const char *)sparse->codes,
                                          (Py_ssize_t)(sparse->count * sparse->size)));
    free(sparse->positions);
    free(sparse->codes);
    return result;
}

static PyObject *decode_dithered(PyObject *self, PyObject *args) {
    (void)self;
    Py_buffer body;
    Py_ssize_t count, size, bits;
    unsigned int seed;
    if (!PyArg_ParseTuple(args, "y*nnnI", &body, &count, &size, &bits, &seed)) return NULL;
    SparseCodes sent = {NULL, NULL, 0, 0, (unsigned)size, (unsigned)bits};
    if (valid_shape(count, size, bits)) {
        Cursor in = {body.buf, (const uint8_t *)body.buf + body.len};
        Error error;
        Py_BEGIN_ALLOW_THREADS
            error = read_dithered(&in, &sent, (size_t)count, seed);
        Py_END_ALLOW_THREADS
        if (error) PyErr_SetString(PyExc_ValueError, error);
    }
    PyBuffer_Release(&body);
    return take_sparse(&sent);
}

static PyObject *decode_sparse(PyObject *self, PyObject *args) {
    (void)self;
    Py_buffer body;
    Py_ssize_t count, size, bits, limit;
    unsigned int centre;
    if (!PyArg_ParseTuple(args, "y*nnnIn", &body, &count, &size, &bits, &centre, &limit))
        return NULL;
    SparseCodes sparse = {NULL, NULL, 0, 0, (unsigned)size, (unsigned)bits};
    bool is_sparse = false;
    if (valid_shape(count, size, bits)) {
        Cursor in = {body.buf, (const uint8_t *)body.buf + body.len};
        Error error;
        Py_BEGIN_ALLOW_THREADS
            error = read_sparse_body(&in, &sparse, (size_t)count, limit < 0 ? 0 : (size_t)limit,
                                     centre, &is_sparse);
        Py_END_ALLOW_THREADS
        if (error) PyErr_SetString(PyExc_ValueError, error);
    }
    PyBuffer_Release(&body);
    PyObject *result = take_sparse(&sparse);
    if (!result || is_sparse) return result;
    Py_DECREF(result);
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"encode", encode, METH_VARARGS, "encode(codes, bits): the codes as a coded body."},
    {"decode", decode, METH_VARARGS, "decode(body, codes, bits): read a coded body into codes."},
    {"encode_dithered", encode_dithered, METH_VARARGS,
     "encode_dithered(codes, bits, seed): the codes as a dithered body."},
    {"decode_dithered", decode_dithered, METH_VARARGS,
     "decode_dithered(body, count, size, bits, seed): positions and codes of sent coordinates."},
    {"decode_sparse", decode_sparse, METH_VARARGS,
     "decode_sparse(body, count, size, bits, centre, limit): positions and codes other than "
     "centre."},
    {"pack", pack, METH_VARARGS, "pack(codes, bits): the codes at fixed width, without gaps."},
    {"unpack", unpack, METH_VARARGS, "unpack(body, codes, bits): read packed codes."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "aquila.native.coder", NULL, 0, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit_coder(void) {
    prepare_logs();
    prepare_numbers();
    prepare_exceptions();
    prepare_contexts();
    prepare_dithered();
    return PyModule_Create(&definition);
}
