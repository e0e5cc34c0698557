"""Reading of bits, bytes, varints and floats from the front of a body."""

import math
import struct


class FrameError(ValueError):
    """The frame breaks a rule of the format."""


def check(condition, message):
    if not condition:
        raise FrameError(message)


class Source:
    """Bytes that are read from the front, by bits or by whole bytes."""

    def __init__(self, data):
        self.data = data
        self.position = 0  # in bits

    @property
    def bits_left(self):
        return 8 * len(self.data) - self.position

    def bits(self, n):
        """Return a field of n bits."""
        end = self.position + n
        check(n <= self.bits_left, "the body is truncated")
        touched = self.data[self.position // 8 : -(-end // 8)]
        field = int.from_bytes(touched, "little") >> self.position % 8 & (1 << n) - 1
        self.position = end
        return field

    def end_bit_string(self):
        """Skip the padding of a bit string."""
        check(self.bits(-self.position % 8) == 0, "a padding bit is not 0")

    def bytes(self, n):
        start = self.position // 8
        check(start + n <= len(self.data), "the body is truncated")
        self.position += 8 * n
        return self.data[start : start + n]

    def byte(self):
        return self.bytes(1)[0]

    def rest(self):
        return self.bytes(len(self.data) - self.position // 8)

    def varint(self):
        number = 0
        for i in range(5):
            byte = self.byte()
            number |= (byte & 127) << 7 * i
            if byte < 128:
                check(byte > 0 or i == 0, "a varint is longer than necessary")
                check(number < 2**32, "a varint has more than 32 bits")
                return number
        raise FrameError("a varint has more than 5 bytes")

    def floats(self, n, float_code):
        """Return n finite floats; `float_code` is that of the struct module."""
        data = self.bytes(n * struct.calcsize(float_code))
        values = list(struct.unpack(f"<{n}{float_code}", data))
        check(all(map(math.isfinite, values)), "a float is NaN or infinite")
        return values


def rounded(number, float_code):
    """Round to the frame's floats.

    A float32 product or sum is rounded twice, first to float64. That gives the correct bits,
    because float64 has more than twice the digits of float32.
    """
    try:
        return struct.unpack("<" + float_code, struct.pack("<" + float_code, number))[0]
    except OverflowError:
        return math.inf
