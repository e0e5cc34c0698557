#include "body.h"

#include "exceptions.h"
#include "packed.h"
#include "plan.h"
#include "zigzag.h"

#define BYTES_LEFT "coded body has bytes left after its last code"

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
    case ZIGZAG: return write_zigzag(out, &source, choice.centre, statistics->counts);
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

/* Read mode and length of the segment that begins at `start`. */
static Error read_segment_head(Cursor *in, size_t codes, size_t start, uint8_t *mode,
                               size_t *count) {
    const uint8_t *byte;
    uint32_t length;
    TRY(read_bytes(in, 1, &byte));
    TRY(read_varint(in, &length));
    if (!length || length > codes - start)
        return "coded body contains a segment with a wrong length";
    *mode = *byte;
    *count = length;
    return NULL;
}

static Error read_mode(Cursor *in, const Target *target, uint8_t mode) {
    switch (mode) {
    case PACKED: return read_packed(in, target);
    case DIRECT: return read_direct(in, target);
    case ZIGZAG: return read_zigzag(in, target);
    case EXCEPTIONS: return read_exceptions(in, target, false);
    case SIGNED_EXCEPTIONS: return read_exceptions(in, target, true);
    default: return "coded body contains a segment with an unknown mode";
    }
}

Error read_body(Cursor *in, const Target *target) {
    for (size_t start = 0, count; start < target->count; start += count) {
        uint8_t mode;
        TRY(read_segment_head(in, target->count, start, &mode, &count));
        Target part = target_part(target, start, count);
        TRY(read_mode(in, &part, mode));
    }
    return bytes_left(in) ? BYTES_LEFT : NULL;
}

/* Read all codes of a segment, and append those other than `centre`, `limit` of them at most. */
static Error read_dense_segment(Cursor *in, SparseCodes *sparse, size_t start, size_t count,
                                uint8_t mode, uint32_t centre, size_t limit) {
    Target target = {malloc(count * sparse->size), count, sparse->size, sparse->bits};
    Error error = target.codes ? read_mode(in, &target, mode) : NO_MEMORY;
    for (size_t i = 0; !error && i < count && sparse->count <= limit; i++) {
        uint32_t code = get_code(target.codes, target.size, i);
        if (code == centre) continue;
        if (!sparse_reserve(sparse, 1)) error = NO_MEMORY;
        if (!error) sparse_append(sparse, start + i, code);
    }
    free(target.codes);
    return error;
}

/* Whether a segment lists the codes other than `centre`. */
static bool lists_others(Cursor in, uint8_t mode, unsigned bits, uint32_t centre) {
    uint32_t usual;
    return mode == EXCEPTIONS && !read_centre(&in, bits, &usual) && usual == centre;
}

/* Whether a segment that lists no codes has too many others for a sparse body. Then the writer
 * would have listed fewer. Reading such a segment twice would take twice as long. */
static bool has_many_others(size_t length, size_t count) {
    return length >= LONG_SEGMENT && length > count / 2;
}

Error read_sparse_body(Cursor *in, SparseCodes *sparse, size_t count, size_t limit, uint32_t centre,
                       bool *is_sparse) {
    *is_sparse = true;
    for (size_t start = 0, length; start < count && *is_sparse; start += length) {
        uint8_t mode;
        TRY(read_segment_head(in, count, start, &mode, &length));
        if (lists_others(*in, mode, sparse->bits, centre))
            TRY(read_sparse_exceptions(in, sparse, start, length));
        else if (has_many_others(length, count))
            *is_sparse = false;
        else
            TRY(read_dense_segment(in, sparse, start, length, mode, centre, limit));
        *is_sparse = *is_sparse && sparse->count <= limit;
    }
    return *is_sparse && bytes_left(in) ? BYTES_LEFT : NULL;
}
