/* zlib's CRC-32 at memory speed.
 *
 * With carry-less multiplication it takes 64 bytes at a time (Gopal et al., Fast CRC Computation
 * Using PCLMULQDQ, Intel 2009). Without it, it takes eight bytes at a time from tables. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

#include "cpu.h"

/* Bytes from which on the interpreter lock is released. Fewer take less time than to get it back.
 */
enum { MIN_UNLOCKED = 65536 };

static uint32_t tables[8][256];

static void prepare_tables(void) {
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320u : 0);
        tables[0][byte] = crc;
    }
    for (uint32_t byte = 0; byte < 256; byte++)
        for (int k = 1; k < 8; k++)
            tables[k][byte] = tables[k - 1][byte] >> 8 ^ tables[0][tables[k - 1][byte] & 255];
}

static uint32_t update_by_tables(uint32_t crc, const uint8_t *data, size_t size) {
    for (; size >= 8; size -= 8, data += 8) {
        uint32_t low = crc ^ (data[0] | (uint32_t)data[1] << 8 | (uint32_t)data[2] << 16 |
                              (uint32_t)data[3] << 24);
        crc = tables[7][low & 255] ^ tables[6][low >> 8 & 255] ^ tables[5][low >> 16 & 255] ^
              tables[4][low >> 24] ^ tables[3][data[4]] ^ tables[2][data[5]] ^ tables[1][data[6]] ^
              tables[0][data[7]];
    }
    while (size--) crc = crc >> 8 ^ tables[0][(crc ^ *data++) & 255];
    return crc;
}

#if defined(CLMUL)

/* Powers of x modulo the polynomial, bit-reflected: they move a lane on by 64 or 16 bytes. */
static const uint64_t FOLD_64[2] = {0x0154442bd4, 0x01c6e41596};
static const uint64_t FOLD_16[2] = {0x01751997d0, 0x00ccaa009e};

CLMUL static inline __m128i load(const void *at) { return _mm_loadu_si128(at); }

/* Fold a lane into the 16 bytes that replace it. */
CLMUL static inline __m128i fold(__m128i lane, __m128i powers, __m128i next) {
    __m128i low = _mm_clmulepi64_si128(lane, powers, 0x00);
    __m128i high = _mm_clmulepi64_si128(lane, powers, 0x11);
    return _mm_xor_si128(_mm_xor_si128(low, high), next);
}

/* `size` is a multiple of 16 and at least 64. Folding ends with 16 bytes that have the same CRC. */
CLMUL static uint32_t update_by_folding(uint32_t crc, const uint8_t *data, size_t size) {
    __m128i fold_64 = load(FOLD_64), fold_16 = load(FOLD_16), lanes[4];
    for (int k = 0; k < 4; k++) lanes[k] = load(data + 16 * k);
    lanes[0] = _mm_xor_si128(lanes[0], _mm_cvtsi32_si128((int)crc));
    for (data += 64, size -= 64; size >= 64; data += 64, size -= 64)
        for (int k = 0; k < 4; k++) lanes[k] = fold(lanes[k], fold_64, load(data + 16 * k));
    __m128i lane = lanes[0];
    for (int k = 1; k < 4; k++) lane = fold(lane, fold_16, lanes[k]);
    for (; size >= 16; data += 16, size -= 16) lane = fold(lane, fold_16, load(data));
    uint8_t rest[16];
    memcpy(rest, &lane, sizeof rest);
    return update_by_tables(0, rest, sizeof rest);
}

static uint32_t update(uint32_t crc, const uint8_t *data, size_t size) {
    size_t folded = size & ~(size_t)15;
    if (folded < 64 || !cpu_has_clmul()) folded = 0;
    if (folded) crc = update_by_folding(crc, data, folded);
    return update_by_tables(crc, data + folded, size - folded);
}

#else

static uint32_t update(uint32_t crc, const uint8_t *data, size_t size) {
    return update_by_tables(crc, data, size);
}

#endif

static PyObject *crc32(PyObject *self, PyObject *args) {
    (void)self;
    Py_buffer data;
    unsigned int start = 0;
    if (!PyArg_ParseTuple(args, "y*|I", &data, &start)) return NULL;
    PyThreadState *state = data.len < MIN_UNLOCKED ? NULL : PyEval_SaveThread();
    uint32_t crc = ~update(~(uint32_t)start, data.buf, (size_t)data.len);
    if (state) PyEval_RestoreThread(state);
    PyBuffer_Release(&data);
    return PyLong_FromUnsignedLong(crc);
}

static PyMethodDef methods[] = {
    {"crc32", crc32, METH_VARARGS, "crc32(data, start=0): as zlib.crc32, faster."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "aquila.native.checksum", NULL, 0, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit_checksum(void) {
    prepare_tables();
    return PyModule_Create(&definition);
}
