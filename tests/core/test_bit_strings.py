"""Bit strings: every number comes back, and no string is longer than it must be."""

import math

import numpy as np
import pytest

from aquila.core.bit_strings import (
    WORD_BITS,
    digits_per_word,
    digits_size,
    from_bytes,
    from_zigzag,
    read_digits,
    read_fixed,
    read_unary,
    to_bytes,
    write_digits,
    write_fixed,
    write_unary,
    zigzag,
)
from aquila.core.packet import WireError

BASES = [2, 3, 10, 148, 256, 257, 640, 2**16]


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("count", [0, 1, 5, 100])
def test_digits_come_back(base, count):
    numbers = np.random.default_rng(base).integers(base, size=count)
    bits = write_digits(numbers, base)
    assert len(bits) == digits_size(count, base)
    assert np.array_equal(
        read_digits(from_bytes(to_bytes(bits))[: len(bits)], count, base), numbers
    )


@pytest.mark.parametrize("base", BASES)
def test_words_are_nearly_as_short_as_possible(base):
    count, width = digits_per_word(base)
    assert width <= WORD_BITS
    assert math.log2(base) <= width / count < 1.02 * math.log2(base)


def test_digits_of_a_known_word():
    # 2 + 0·3 + 1·9 = 11, and the other 26 digits of the word are zero
    assert digits_per_word(3) == (29, 46)
    bits = write_digits(np.array([2, 0, 1]), 3)
    assert bits[:5].tolist() == [1, 1, 0, 1, 0]
    assert not bits[5:].any()


def test_a_word_that_is_too_large_is_refused():
    bits = np.ones(digits_size(5, 3), np.uint8)
    with pytest.raises(WireError, match="too large"):
        read_digits(bits, 5, 3)


def test_a_last_word_with_more_digits_is_refused():
    with pytest.raises(WireError, match="not filled with zeros"):
        read_digits(write_digits(np.array([1, 2, 1]), 3), 2, 3)


@pytest.mark.parametrize("numbers", [[], [0], [3, 0, 0, 1], [0, 62, 5]])
def test_unary_numbers_come_back(numbers):
    bits = write_unary(np.array(numbers, np.int64))
    read, used = read_unary(np.append(bits, np.ones(3, np.uint8)), len(numbers))
    assert read.tolist() == numbers
    assert used == len(bits) == sum(numbers) + len(numbers)


def test_a_unary_number_without_an_end_is_refused():
    with pytest.raises(WireError, match="ends before its 2 levels"):
        read_unary(np.array([1, 0, 1, 1], np.uint8), 2)


def test_fixed_numbers_have_their_lowest_bit_first():
    bits = write_fixed(np.array([6, 1]), 3)
    assert bits.tolist() == [0, 1, 1, 1, 0, 0]
    assert read_fixed(bits, 3).tolist() == [6, 1]


def test_zigzag_orders_by_magnitude():
    numbers = np.arange(-3, 4)
    assert zigzag(numbers).tolist() == [5, 3, 1, 0, 2, 4, 6]
    assert np.array_equal(from_zigzag(zigzag(numbers)), numbers)
