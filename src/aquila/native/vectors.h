/* Vectors that Python hands over, and codes in the type it wants them in. */
#ifndef AQUILA_VECTORS_H
#define AQUILA_VECTORS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdint.h>
#include <string.h>

/* Coordinates worked on at a time: what is between two loops over them stays in the cache. */
enum { CHUNK = 1024 };

#if defined(__x86_64__) && defined(__GLIBC__) && !defined(__clang__) && __GNUC__ >= 12
#define FOR_EACH_CPU __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define FOR_EACH_CPU
#endif

static inline size_t smaller(size_t a, size_t b) { return a < b ? a : b; }

#define DEFINE_NARROW(CODE)                                                                       \
    FOR_EACH_CPU static void narrow_##CODE(CODE *restrict narrow, const int32_t *restrict codes,  \
                                           size_t count)                                          \
    {                                                                                             \
        for (size_t i = 0; i < count; i++) narrow[i] = (CODE)codes[i];                            \
    }

DEFINE_NARROW(uint8_t)
DEFINE_NARROW(uint16_t)

/* Codes in the smallest type that holds them, of 1, 2 or 4 bytes. */
static inline void store_codes(void *stored, const int32_t *codes, size_t count, size_t item)
{
    if (item == 1) narrow_uint8_t(stored, codes, count);
    if (item == 2) narrow_uint16_t(stored, codes, count);
    if (item == 4) memcpy(stored, codes, count * sizeof *codes);
}

static inline int holds(const Py_buffer *vector, const char *format)
{
    return vector->format != NULL && strcmp(vector->format, format) == 0;
}

static inline int are_codes_of(const Py_buffer *codes, const Py_buffer *vector)
{
    Py_ssize_t item = codes->itemsize;
    return (item == 1 || item == 2 || item == 4) &&
           codes->len / item == vector->len / vector->itemsize;
}

static inline void release(Py_buffer *buffers, int count)
{
    while (count-- > 0) PyBuffer_Release(&buffers[count]);
}

/* Takes the buffers of all objects or, with an exception set, of none. */
static inline int acquire(PyObject **objects, Py_buffer *buffers, int count, int first_written)
{
    for (int i = 0; i < count; i++) {
        int flags = PyBUF_C_CONTIGUOUS | PyBUF_FORMAT | (i < first_written ? 0 : PyBUF_WRITABLE);
        if (PyObject_GetBuffer(objects[i], &buffers[i], flags) < 0) {
            release(buffers, i);
            return -1;
        }
    }
    return 0;
}

#endif
