#include "packed.h"

#define PACK(size)                                                                                 \
    for (size_t i = 0; i < source->count; i++)                                                     \
    write_bits(&string, get_code(source->codes, size, i) & mask, bits)

bool write_packed(Bytes *out, const Source *source) {
    unsigned bits = source->bits;
    uint32_t mask = code_mask(bits);
    if (!bytes_reserve(out, bytes_of_bits((uint64_t)source->count * bits) + 4)) return false;
    BitWriter string = {out->data + out->size, 0, 0};
    BY_SIZE(source->size, PACK)
    out->size = (size_t)(finish_bits(&string) - out->data);
    return true;
}

#define UNPACK(size)                                                                               \
    for (size_t i = 0; i < count; i++) set_code(codes, size, i, read_bits(&string, bits))

Error read_packed(Cursor *in, const Target *target) {
    const uint8_t *start;
    void *codes = target->codes;
    size_t count = target->count;
    unsigned bits = target->bits;
    TRY(read_bit_string(in, (uint64_t)count * bits, &start));
    BitReader string = {start, in->at, 0, 0};
    BY_SIZE(target->size, UNPACK)
    return NULL;
}
