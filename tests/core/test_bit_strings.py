"""Bit strings: every number comes back, and no string is longer than it must be."""

import numpy as np
import pytest

from aquila.core.bit_strings import (
    best_rice_parameter,
    from_bytes,
    from_zigzag,
    read_fixed,
    read_rice,
    read_unary,
    to_bytes,
    write_fixed,
    write_rice,
    write_unary,
    zigzag,
)
from aquila.core.packet import WireError


@pytest.mark.parametrize("parameter", range(8))
@pytest.mark.parametrize("numbers", [[], [0], [3, 0, 0, 130], [255, 7, 8]])
def test_rice_codes_come_back(numbers, parameter):
    bits = write_rice(np.array(numbers, np.int64), parameter)
    read, used = read_rice(np.append(bits, np.ones(9, np.uint8)), len(numbers), parameter)
    assert (read.tolist(), used) == (numbers, len(bits))
    assert np.array_equal(from_bytes(to_bytes(bits))[: len(bits)], bits)


def test_bits_of_a_known_rice_code():
    """5 and 2 are the quotients 1 and 0 of 4, and the remainders 1 and 2."""
    assert write_rice(np.array([5, 2]), 2).tolist() == [1, 0, 0, 1, 0, 0, 1]


@pytest.mark.parametrize(("numbers", "best"), [([0, 0, 1], 0), ([3, 4, 5, 6], 2), ([900], 7)])
def test_the_best_parameter_has_the_shortest_code(numbers, best):
    numbers = np.array(numbers)
    sizes = [len(write_rice(numbers, parameter)) for parameter in range(8)]
    assert best_rice_parameter(numbers, 8) == best == sizes.index(min(sizes))


def test_a_rice_code_without_all_remainders_is_refused():
    with pytest.raises(WireError, match="ends before its 2 numbers"):
        read_rice(write_rice(np.array([5, 2]), 2)[:-1], 2, 2)


@pytest.mark.parametrize("numbers", [[], [0], [3, 0, 0, 1], [0, 62, 5]])
def test_unary_numbers_come_back(numbers):
    bits = write_unary(np.array(numbers, np.int64))
    read, used = read_unary(np.append(bits, np.ones(3, np.uint8)), len(numbers))
    assert read.tolist() == numbers
    assert used == len(bits) == sum(numbers) + len(numbers)


def test_a_unary_number_without_an_end_is_refused():
    with pytest.raises(WireError, match="ends before its 2 numbers"):
        read_unary(np.array([1, 0, 1, 1], np.uint8), 2)


def test_fixed_numbers_have_their_lowest_bit_first():
    bits = write_fixed(np.array([6, 1]), 3)
    assert bits.tolist() == [0, 1, 1, 1, 0, 0]
    assert read_fixed(bits, 3).tolist() == [6, 1]


def test_zigzag_orders_by_magnitude():
    numbers = np.arange(-3, 4)
    assert zigzag(numbers).tolist() == [5, 3, 1, 0, 2, 4, 6]
    assert np.array_equal(from_zigzag(zigzag(numbers)), numbers)
