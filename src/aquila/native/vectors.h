/* Vectors passed in from Python, and codes in integers of 1, 2 or 4 bytes. */
#ifndef AQUILA_VECTORS_H
#define AQUILA_VECTORS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdint.h>
#include <string.h>

#include "cpu.h"

/* Coordinates processed at a time, so that intermediate results stay in the cache. */
enum { CHUNK = 1024 };

/* Coordinates from which on a pass releases the interpreter lock. A shorter pass ends before
 * another thread could use the lock, and would then wait for it. */
enum { MIN_UNLOCKED = 32768 };

/* Release the interpreter lock for a pass over so many coordinates; NULL if it stays locked. */
static inline PyThreadState *unlock_for(size_t count) {
    return count < MIN_UNLOCKED ? NULL : PyEval_SaveThread();
}

static inline void lock_again(PyThreadState *state) {
    if (state) PyEval_RestoreThread(state);
}

static inline size_t min_size(size_t a, size_t b) { return a < b ? a : b; }

#define DEFINE_NARROW(CODE)                                                                        \
    CPU_CLONES static void narrow_##CODE(CODE *restrict narrow, const int32_t *restrict codes,     \
                                         size_t count) {                                           \
        for (size_t i = 0; i < count; i++) narrow[i] = (CODE)codes[i];                             \
    }

DEFINE_NARROW(uint8_t)
DEFINE_NARROW(uint16_t)

/* Store codes as integers of `item` bytes: 1, 2 or 4. */
static inline void store_codes(void *stored, const int32_t *codes, size_t count, size_t item) {
    if (item == 1) narrow_uint8_t(stored, codes, count);
    if (item == 2) narrow_uint16_t(stored, codes, count);
    if (item == 4) memcpy(stored, codes, count * sizeof *codes);
}

static inline size_t vector_length(const Py_buffer *vector) {
    return (size_t)(vector->len / vector->itemsize);
}

static inline int has_format(const Py_buffer *vector, const char *format) {
    return vector->format != NULL && strcmp(vector->format, format) == 0;
}

static inline int same_type_and_length(const Py_buffer *vectors, int count) {
    const char *format = has_format(vectors, "f") ? "f" : "d";
    for (int i = 0; i < count; i++)
        if (!has_format(&vectors[i], format) || vectors[i].len != vectors[0].len) return 0;
    return 1;
}

static inline int codes_match_vector(const Py_buffer *codes, const Py_buffer *vector) {
    Py_ssize_t item = codes->itemsize;
    return (item == 1 || item == 2 || item == 4) && vector_length(codes) == vector_length(vector);
}

/* Largest magnitude of codes around a centre, so that float32 and the type of the codes represent
 * every code exactly. */
static inline int largest_magnitude(const Py_buffer *codes) {
    int largest = codes->itemsize == 1 ? UINT8_MAX : codes->itemsize == 2 ? INT16_MAX : 1 << 24;
    return largest / 2;
}

/* Prepare a vector that a pass fills. */
static inline void advise_output(const Py_buffer *vector) {
    advise_huge_pages(vector->buf, (size_t)vector->len);
}

static inline void release_buffers(Py_buffer *buffers, int count) {
    while (count-- > 0) PyBuffer_Release(&buffers[count]);
}

/* Acquire the buffers of all objects; on failure set an exception and acquire none.
 * Buffers from index `first_written` on must be writable. */
static inline int acquire_buffers(PyObject **objects, Py_buffer *buffers, int count,
                                  int first_written) {
    for (int i = 0; i < count; i++) {
        int flags = PyBUF_C_CONTIGUOUS | PyBUF_FORMAT | (i < first_written ? 0 : PyBUF_WRITABLE);
        if (PyObject_GetBuffer(objects[i], &buffers[i], flags) < 0) {
            release_buffers(buffers, i);
            return -1;
        }
    }
    return 0;
}

#endif
