/* CRC-32 of zlib at the speed of memory: 64 bytes at a time by carry-less multiplication where the
 * processor has it (Gopal et al., Fast CRC Computation Using PCLMULQDQ, Intel 2009), else eight
 * bytes at a time by tables. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

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

static uint32_t by_tables(uint32_t crc, const uint8_t *data, size_t size) {
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

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>

#define FOLDING __attribute__((target("pclmul,sse4.1")))

/* Powers of x modulo the polynomial, bit-reflected: how far a lane is carried by one fold. */
static const uint64_t OVER_64[2] = {0x0154442bd4, 0x01c6e41596};
static const uint64_t OVER_16[2] = {0x01751997d0, 0x00ccaa009e};

FOLDING static inline __m128i load(const void *at) { return _mm_loadu_si128(at); }

/* Carry a lane over to the bytes that take its place. */
FOLDING static inline __m128i fold(__m128i lane, __m128i powers, __m128i next) {
    __m128i low = _mm_clmulepi64_si128(lane, powers, 0x00);
    __m128i high = _mm_clmulepi64_si128(lane, powers, 0x11);
    return _mm_xor_si128(_mm_xor_si128(low, high), next);
}

/* A multiple of 16 bytes, at least 64; what is left of them are 16 bytes with the same CRC. */
FOLDING static uint32_t by_folding(uint32_t crc, const uint8_t *data, size_t size) {
    __m128i far = load(OVER_64), near = load(OVER_16), lanes[4];
    for (int k = 0; k < 4; k++) lanes[k] = load(data + 16 * k);
    lanes[0] = _mm_xor_si128(lanes[0], _mm_cvtsi32_si128((int)crc));
    for (data += 64, size -= 64; size >= 64; data += 64, size -= 64)
        for (int k = 0; k < 4; k++) lanes[k] = fold(lanes[k], far, load(data + 16 * k));
    __m128i lane = lanes[0];
    for (int k = 1; k < 4; k++) lane = fold(lane, near, lanes[k]);
    for (; size >= 16; data += 16, size -= 16) lane = fold(lane, near, load(data));
    uint8_t rest[16];
    memcpy(rest, &lane, sizeof rest);
    return by_tables(0, rest, sizeof rest);
}

static uint32_t update(uint32_t crc, const uint8_t *data, size_t size) {
    size_t whole = size & ~(size_t)15;
    if (whole < 64 || !__builtin_cpu_supports("pclmul") || !__builtin_cpu_supports("sse4.1"))
        whole = 0;
    if (whole) crc = by_folding(crc, data, whole);
    return by_tables(crc, data + whole, size - whole);
}
#else
static uint32_t update(uint32_t crc, const uint8_t *data, size_t size) {
    return by_tables(crc, data, size);
}
#endif

static PyObject *crc32(PyObject *self, PyObject *args) {
    (void)self;
    Py_buffer data;
    unsigned int start = 0;
    if (!PyArg_ParseTuple(args, "y*|I", &data, &start)) return NULL;
    uint32_t crc;
    Py_BEGIN_ALLOW_THREADS
    crc = ~update(~(uint32_t)start, data.buf, (size_t)data.len);
    Py_END_ALLOW_THREADS
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
