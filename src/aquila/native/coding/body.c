#include "body.h"

#include "exceptions.h"
#include "packed.h"
#include "plan.h"
#include "zigzag.h"

/* A segment consists of whole chunks. A short vector has short layers, so its chunks are short:
 * with chunks of 8192 only, a CNN's codes take up to 12 % more bytes (benchmarks/coder_modes.py).
 */
enum { TARGET_CHUNKS = 256, MIN_CHUNK = 1 << 9, MAX_CHUNK = 1 << 13 };

static size_t chunk_size(size_t count) {
    size_t chunk = MIN_CHUNK;
    while (chunk < MAX_CHUNK && chunk * TARGET_CHUNKS < count) chunk *= 2;
    return chunk;
}

static bool write_segment(Bytes *out, const Source *whole, size_t start,
                          const Statistics *statistics) {
    Source source = source_part(whole, start, statistics->total);
    Choice choice = choose_mode(statistics, &source);
    if (!write_byte(out, (uint8_t)choice.mode) || !write_varint(out, statistics->total))
        return false;
    switch (choice.mode) {
    case PACKED: return write_packed(out, &source);
    case DIRECT: return write_symbols(out, source.symbols, source.count, statistics->counts);
    case ZIGZAG: return write_zigzag(out, &source, choice.centre);
    default:
        return write_exceptions(out, &source, choice.centre, choice.exceptions,
                                choice.mode == SIGNED_EXCEPTIONS);
    }
}

/* A chunk joins the segment before it unless a segment of its own needs fewer bits. Without
 * segments, all streams of benchmarks/coder_modes.py take 15 % more bytes, one takes 57 % more. */
static bool write_segments(Bytes *out, const Source *source) {
    Statistics segment = {{0}, 0, 0}, chunk, both;
    size_t start = 0, step = chunk_size(source->count);
    for (size_t at = 0, size; at < source->count; at += size) {
        size = source->count - at < step ? source->count - at : step;
        measure(&chunk, source, at, size);
        join(&both, &segment, &chunk, source->bits);
        if (at == 0 || both.cost <= segment.cost + chunk.cost) {
            segment = both;
            continue;
        }
        if (!write_segment(out, source, start, &segment)) return false;
        start = at;
        segment = chunk;
    }
    return write_segment(out, source, start, &segment);
}

bool write_body(Bytes *out, Source *source) {
    if (source->bits <= NARROW_BITS) return write_segments(out, source);
    uint8_t *symbols = malloc(source->count);
    if (!symbols) return false;
    source->centre = estimate_centre(source);
    source->symbols = symbols;
    zigzag_symbols(symbols, source, source->centre);
    bool written = write_segments(out, source);
    free(symbols);
    return written;
}

static Error read_direct(Cursor *in, const Target *target) {
    if (target->bits > NARROW_BITS) return "coded body uses mode direct for more than 8 bits";
    uint8_t *symbols = target->codes, all = 0;
    TRY(read_symbols(in, symbols, target->count));
    for (size_t i = 0; i < target->count; i++) all |= symbols[i];
    return all > code_mask(target->bits) ? CODE_TOO_WIDE : NULL;
}

static Error read_segment(Cursor *in, const Target *whole, size_t start, size_t *count) {
    const uint8_t *mode;
    uint32_t length;
    TRY(read_bytes(in, 1, &mode));
    TRY(read_varint(in, &length));
    if (!length || length > whole->count - start)
        return "coded body contains a segment with a wrong length";
    *count = length;
    Target target = target_part(whole, start, length);
    switch (*mode) {
    case PACKED: return read_packed(in, &target);
    case DIRECT: return read_direct(in, &target);
    case ZIGZAG: return read_zigzag(in, &target);
    case EXCEPTIONS: return read_exceptions(in, &target, false);
    case SIGNED_EXCEPTIONS: return read_exceptions(in, &target, true);
    default: return "coded body contains a segment with an unknown mode";
    }
}

Error read_body(Cursor *in, const Target *target) {
    for (size_t start = 0, count; start < target->count; start += count)
        TRY(read_segment(in, target, start, &count));
    return bytes_left(in) ? "coded body has bytes left after its last code" : NULL;
}
