#include "body.h"

#include "folded.h"
#include "listed.h"
#include "packed.h"
#include "plan.h"

/* Codes whose statistics are taken together before anything is decided about them: fewer in a short
 * vector, whose layers and rows are short too. */
enum { CHUNKS = 256, LEAST_CHUNK = 1 << 9, MOST_CHUNK = 1 << 13 };

static size_t chunk_of(size_t count) {
    size_t chunk = LEAST_CHUNK;
    while (chunk < MOST_CHUNK && chunk * CHUNKS < count) chunk *= 2;
    return chunk;
}

static bool write_segment(Bytes *out, const Source *whole, size_t start,
                          const Statistics *statistics) {
    Source source = source_part(whole, start, statistics->total);
    Choice choice = choose(statistics, &source);
    if (!write_byte(out, (uint8_t)choice.mode) || !write_number(out, statistics->total))
        return false;
    switch (choice.mode) {
    case PACKED: return write_packed(out, &source);
    case DIRECT: return write_symbols(out, source.symbols, source.count, statistics->counts);
    case FOLDED: return write_folded(out, &source, choice.centre);
    default:
        return write_listed(out, &source, choice.centre, choice.exceptions,
                            choice.mode == SIGNED);
    }
}

/* A chunk joins the segment before it unless it is cheaper apart. */
static bool write_segments(Bytes *out, const Source *source) {
    Statistics segment = {{0}, 0, 0}, chunk, both;
    size_t start = 0, step = chunk_of(source->count);
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
    if (source->bits <= NARROW) return write_segments(out, source);
    uint8_t *symbols = malloc(source->count);
    if (!symbols) return false;
    source->centre = guess_centre(source);
    source->symbols = symbols;
    fold_symbols(symbols, source, source->centre);
    bool written = write_segments(out, source);
    free(symbols);
    return written;
}

static Problem read_direct(Cursor *in, const Target *target) {
    if (target->bits > NARROW) return "coded body holds wide codes as symbols";
    uint8_t *symbols = target->codes, all = 0;
    TRY(read_symbols(in, symbols, target->count));
    for (size_t i = 0; i < target->count; i++) all |= symbols[i];
    return all > mask_of(target->bits) ? BEYOND_ITS_BITS : NULL;
}

static Problem read_segment(Cursor *in, const Target *whole, size_t start, size_t *count) {
    const uint8_t *mode;
    uint32_t length;
    TRY(take(in, 1, &mode));
    TRY(read_number(in, &length));
    if (!length || length > whole->count - start) return "coded body holds a segment of a wrong length";
    *count = length;
    Target target = target_part(whole, start, length);
    switch (*mode) {
    case PACKED: return read_packed(in, &target);
    case DIRECT: return read_direct(in, &target);
    case FOLDED: return read_folded(in, &target);
    case SPARSE: return read_listed(in, &target, false);
    case SIGNED: return read_listed(in, &target, true);
    default: return "coded body holds a segment of an unknown mode";
    }
}

Problem read_body(Cursor *in, const Target *target) {
    for (size_t start = 0, count; start < target->count; start += count)
        TRY(read_segment(in, target, start, &count));
    return left(in) ? "coded body goes on after its codes" : NULL;
}
