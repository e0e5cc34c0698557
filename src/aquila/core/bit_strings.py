"""Numbers as strings of bits: unary numbers, numbers of fixed width, and digits in any base.

Bits are uint8 arrays of zeros and ones, lowest bit first. docs/our-methods-peak-format.md specifies
how an upload of AQUILA-Peak uses them.
"""

from functools import cache

import numpy as np
from numpy.typing import NDArray

from aquila.core.envelope import require

Bits = NDArray[np.uint8]
Integers = NDArray[np.int64]

WORD_BITS = 62
"""Longest word of digits. Sums of its parts fit in 64 bits with a sign."""


def to_bytes(bits: Bits) -> NDArray[np.uint8]:
    """Return bits as bytes; the last byte is filled with zeros."""
    return np.packbits(bits, bitorder="little")


def from_bytes(data: NDArray[np.uint8]) -> Bits:
    """Return all bits of bytes."""
    return np.unpackbits(data, bitorder="little")


def write_fixed(numbers: Integers, width: int) -> Bits:
    """Return each number as `width` bits."""
    places = np.arange(width, dtype=np.int64)
    return (numbers[:, None] >> places & 1).astype(np.uint8).reshape(-1)


def read_fixed(bits: Bits, width: int) -> Integers:
    """Invert `write_fixed`."""
    places = np.arange(width, dtype=np.int64)
    numbers: Integers = (bits.reshape(-1, width).astype(np.int64) << places).sum(1)
    return numbers


def write_unary(numbers: Integers) -> Bits:
    """Return each number as that many ones and a zero."""
    bits = np.ones(int(numbers.sum()) + len(numbers), np.uint8)
    bits[np.cumsum(numbers + 1) - 1] = 0
    return bits


def read_unary(bits: Bits, count: int) -> tuple[Integers, int]:
    """Return `count` unary numbers at the start of the bits, and how many bits they take."""
    ends = np.flatnonzero(bits == 0)[:count]
    require(len(ends) == count, f"an upload ends before its {count} levels")
    return np.diff(ends, prepend=-1) - 1, int(ends[-1]) + 1 if count else 0


@cache
def digits_per_word(base: int) -> tuple[int, int]:
    """Return how many digits make a word, and its bits.

    Of the words with the fewest bits per digit, this is the shortest.
    """
    words = ((count, (base**count - 1).bit_length()) for count in range(1, WORD_BITS + 1))
    return min(
        ((count, width) for count, width in words if width <= WORD_BITS),
        key=lambda word: (word[1] / word[0], word[0]),
    )


def write_digits(numbers: Integers, base: int) -> Bits:
    """Return numbers below `base` as bits; the last word is filled with zeros."""
    count, width = digits_per_word(base)
    padded = np.pad(numbers, (0, -len(numbers) % count)).reshape(-1, count)
    return write_fixed((padded * _powers(base, count)).sum(1), width)


def digits_size(count: int, base: int) -> int:
    """Return the bits of `count` numbers below `base`."""
    per_word, width = digits_per_word(base)
    return -(-count // per_word) * width


def read_digits(bits: Bits, count: int, base: int) -> Integers:
    """Invert `write_digits`; raise WireError if a word is too large or filled with other digits."""
    per_word, width = digits_per_word(base)
    words = read_fixed(bits, width)
    require(bool((words < base**per_word).all()), "a word of an upload is too large")
    numbers = (words[:, None] // _powers(base, per_word) % base).reshape(-1)
    require(not numbers[count:].any(), "the last word of an upload is not filled with zeros")
    return numbers[:count]


def zigzag(numbers: Integers) -> Integers:
    """Return 0, -1, 1, -2, 2, … as 0, 1, 2, 3, 4, …"""
    return np.where(numbers < 0, -2 * numbers - 1, 2 * numbers)


def from_zigzag(numbers: Integers) -> Integers:
    """Invert `zigzag`."""
    return np.where(numbers % 2 == 1, -(numbers + 1) // 2, numbers // 2)


def _powers(base: int, count: int) -> Integers:
    return np.array([base**place for place in range(count)], np.int64)
