"""Numbers as strings of bits: unary numbers, numbers of fixed width, and Rice codes.

Bits are uint8 arrays of zeros and ones, lowest bit first. docs/our-methods-peak-format.md specifies
how an upload of AQUILA-Peak uses them.
"""

import numpy as np
from numpy.typing import NDArray

from aquila.core.envelope import require

Bits = NDArray[np.uint8]
Integers = NDArray[np.int64]


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
    packed = np.packbits(bits.reshape(-1, width), axis=1, bitorder="little")
    numbers = np.zeros(len(packed), np.int64)
    for place in range(packed.shape[1]):
        numbers |= packed[:, place].astype(np.int64) << 8 * place
    return numbers


def write_unary(numbers: Integers) -> Bits:
    """Return each number as that many ones and a zero."""
    bits = np.ones(int(numbers.sum()) + len(numbers), np.uint8)
    bits[np.cumsum(numbers + 1) - 1] = 0
    return bits


def read_unary(bits: Bits, count: int) -> tuple[Integers, int]:
    """Return `count` unary numbers at the start of the bits, and how many bits they take."""
    ends = np.flatnonzero(bits == 0)[:count]
    require(len(ends) == count, f"an upload ends before its {count} numbers")
    return np.diff(ends, prepend=-1) - 1, int(ends[-1]) + 1 if count else 0


def write_rice(numbers: Integers, parameter: int) -> Bits:
    """Return numbers in a Rice code: all quotients by 2**parameter, then all remainders."""
    remainders = numbers & ((1 << parameter) - 1)
    return np.concatenate((write_unary(numbers >> parameter), write_fixed(remainders, parameter)))


def read_rice(bits: Bits, count: int, parameter: int) -> tuple[Integers, int]:
    """Return `count` numbers at the start of the bits, and how many bits they take."""
    quotients, used = read_unary(bits, count)
    end = used + count * parameter
    require(end <= len(bits), f"an upload ends before its {count} numbers")
    if parameter:
        quotients = (quotients << parameter) + read_fixed(bits[used:end], parameter)
    return quotients, end


def best_rice_parameter(numbers: Integers, limit: int) -> int:
    """Return the parameter below the limit whose code of these numbers is the shortest."""
    sizes = [int((numbers >> k).sum()) + k * len(numbers) for k in range(limit)]
    return sizes.index(min(sizes))


def zigzag(numbers: Integers) -> Integers:
    """Return 0, -1, 1, -2, 2, … as 0, 1, 2, 3, 4, …"""
    return np.where(numbers < 0, -2 * numbers - 1, 2 * numbers)


def from_zigzag(numbers: Integers) -> Integers:
    """Invert `zigzag`."""
    return np.where(numbers % 2 == 1, -(numbers + 1) // 2, numbers // 2)
