/* The Python module. Every function releases the interpreter's lock while it works. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "body.h"
#include "dithered.h"
#include "exceptions.h"
#include "packed.h"

static bool valid_codes(const Py_buffer *codes, Py_ssize_t bits) {
    Py_ssize_t size = codes->itemsize, count = size ? codes->len / size : 0;
    bool fits =
        bits <= NARROW_BITS ? size == 1 : (size == 2 && bits <= 16) || size == 4 || size == 8;
    if (bits < 1 || bits > 32 || !fits || count < 1 || count > UINT32_MAX) {
        PyErr_Format(PyExc_ValueError, "cannot code %zd integers of %zd bytes at %zd bits", count,
                     size, bits);
        return false;
    }
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

typedef Error (*Reader)(Cursor *, const Target *, Positions *);

static Error read_whole_body(Cursor *in, const Target *target, Positions *sent) {
    (void)sent;
    return read_body(in, target);
}

static Error read_only_packed(Cursor *in, const Target *target, Positions *sent) {
    (void)sent;
    TRY(read_packed(in, target));
    return bytes_left(in) ? "packed codes have bytes left after the last code" : NULL;
}

static PyObject *read_with(Reader reader, PyObject *args, Positions *sent) {
    Py_buffer body, codes;
    Py_ssize_t bits;
    unsigned int seed = 0;
    if (!PyArg_ParseTuple(args, "y*w*n|I", &body, &codes, &bits, &seed)) return NULL;
    Error error = NULL;
    if (valid_codes(&codes, bits)) {
        Target target = {codes.buf, code_count(&codes), (unsigned)codes.itemsize, (unsigned)bits,
                         seed};
        Cursor in = {body.buf, (const uint8_t *)body.buf + body.len};
        Py_BEGIN_ALLOW_THREADS
            error = reader(&in, &target, sent);
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
    return read_with(read_whole_body, args, NULL);
}

static PyObject *unpack(PyObject *self, PyObject *args) {
    (void)self;
    return read_with(read_only_packed, args, NULL);
}

static PyObject *encode_dithered(PyObject *self, PyObject *args) {
    (void)self;
    return write_with(write_dithered, args);
}

static PyObject *decode_dithered(PyObject *self, PyObject *args) {
    (void)self;
    Positions sent = {NULL, 0, 0, 0};
    PyObject *done = read_with(read_dithered, args, &sent), *result = NULL;
    if (done)
        result = PyByteArray_FromStringAndSize((const char *)sent.at,
                                               (Py_ssize_t)(sent.count * sizeof *sent.at));
    Py_XDECREF(done);
    free(sent.at);
    return result;
}

static PyMethodDef methods[] = {
    {"encode", encode, METH_VARARGS, "encode(codes, bits): the codes as a coded body."},
    {"decode", decode, METH_VARARGS, "decode(body, codes, bits): read a coded body into codes."},
    {"encode_dithered", encode_dithered, METH_VARARGS,
     "encode_dithered(codes, bits, seed): the codes as a dithered body."},
    {"decode_dithered", decode_dithered, METH_VARARGS,
     "decode_dithered(body, codes, bits, seed): read a dithered body into codes; return the "
     "positions "
     "of the codes that are not zero, as integers of 64 bits."},
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
    return PyModule_Create(&definition);
}
