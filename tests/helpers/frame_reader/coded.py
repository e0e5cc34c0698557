"""Segments of coded bodies: docs/wire-format-coded.md and docs/wire-format-rans.md."""

import struct
from itertools import accumulate

from helpers.frame_reader.source import check

PACKED, DIRECT, ZIGZAG, EXCEPTIONS, SIGNED_EXCEPTIONS = range(5)
SCALE = 4096  # sum of the frequencies of a table
LOWEST_STATE, HIGHEST_STATE = 2**15, 2**31 - 1


def read_segments(source, d, bits):
    """Return d codes, and the mode and length of each segment."""
    codes, segments = [], []
    while len(codes) < d:
        mode, n = source.byte(), source.varint()
        segments.append((mode, n))
        check(1 <= n <= d - len(codes), "the length of a segment is wrong")
        check(mode <= SIGNED_EXCEPTIONS, "unknown mode")
        if mode == PACKED:
            codes += read_packed(source, n, bits)
        elif mode == DIRECT:
            check(bits <= 8, "mode direct with more than 8 bits")
            codes += read_symbols(source, n, 2**bits)
        else:
            centre = source.varint()
            check(centre < 2**bits, "the centre does not fit the bits")
            zigzags = READ_ZIGZAG[mode](source, n)
            check(max(zigzags) < 2**bits, "a zigzag number does not fit the bits")
            codes += [from_zigzag(centre, zigzag) % 2**bits for zigzag in zigzags]
    return codes, segments


def read_packed(source, n, bits):
    check(bits * n <= source.bits_left, "the body is truncated")
    codes = [source.bits(bits) for _ in range(n)]
    source.end_bit_string()
    return codes


def from_zigzag(centre, zigzag):
    return centre - (zigzag + 1) // 2 if zigzag % 2 else centre + zigzag // 2


def read_signed_exceptions(source, n):
    signs = read_packed(source, n, 1)
    magnitudes = read_exceptions(source, n)
    return [2 * magnitude + sign for magnitude, sign in zip(magnitudes, signs, strict=True)]


def read_exceptions(source, n):
    """Return n numbers: 0, except for the listed ones."""
    count = source.varint()
    check(count <= n, "more exceptions than codes")
    numbers, position = [0] * n, -1
    if count > 0:
        gaps, values = read_numbers(source, count), read_numbers(source, count)
        for gap, value in zip(gaps, values, strict=True):
            position += gap + 1
            check(position < n, "an exception after the end of its segment")
            numbers[position] = value + 1
    return numbers


def read_numbers(source, n):
    numbers = []
    for symbol in read_symbols(source, n, 128):
        if symbol < 16:
            numbers.append(symbol)
        else:
            extra_bits = symbol // 4 - 2
            numbers.append((4 + symbol % 4 << extra_bits) + source.bits(extra_bits))
    source.end_bit_string()
    return numbers


def read_symbols(source, n, limit):
    """Return n symbols below a limit."""
    frequencies = read_table(source)
    starts = [0, *accumulate(frequencies)]
    slots = [symbol for symbol, count in enumerate(frequencies) for _ in range(count)]
    word_count = source.varint()
    states = list(struct.unpack("<I" if n < 256 else "<4I", source.bytes(4 if n < 256 else 16)))
    check(all(LOWEST_STATE <= x <= HIGHEST_STATE for x in states), "a state is out of range")
    words = iter(struct.unpack(f"<{word_count}H", source.bytes(2 * word_count)))
    symbols = []
    for i in range(n):
        x = states[i % len(states)]
        symbol = slots[x % SCALE]
        x = frequencies[symbol] * (x // SCALE) + x % SCALE - starts[symbol]
        if x < LOWEST_STATE:
            word = next(words, None)
            check(word is not None, "too few words")
            x = 65536 * x + word
        states[i % len(states)] = x
        symbols.append(symbol)
    check(all(x == LOWEST_STATE for x in states), "a state does not end at its initial value")
    check(next(words, None) is None, "too many words")
    check(max(symbols) < limit, "a symbol is too large")
    return symbols


def read_table(source):
    """Return the frequencies of the symbols."""
    size = source.byte() + 1
    frequencies, k = [], 0
    for _ in range(size):
        zeros = 0
        while source.bits(1) == 0:
            zeros += 1
            check(zeros <= 12, "a frequency is too large")
        high = 2**zeros - 1 + source.bits(zeros)
        frequency = (high << k) + source.bits(k)
        check(frequency <= SCALE, "a frequency is too large")
        frequencies.append(frequency)
        k = max(frequency.bit_length() - 1, 0)
    source.end_bit_string()
    valid = sum(frequencies) == SCALE and frequencies[-1] > 0
    check(valid, "the frequencies do not add up, or the last one is 0")
    return frequencies


READ_ZIGZAG = {
    ZIGZAG: read_numbers,
    EXCEPTIONS: read_exceptions,
    SIGNED_EXCEPTIONS: read_signed_exceptions,
}
