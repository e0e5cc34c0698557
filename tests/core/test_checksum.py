"""The CRC-32 of frames against that of zlib."""

import random
import zlib

import pytest

from aquila.native.checksum import crc32

LENGTHS = [*range(200), 255, 256, 257, 1000, 4095, 4096, 65_537, 1_000_003]


@pytest.mark.parametrize("offset", [0, 1, 7])
def test_crc32_equals_that_of_zlib(offset):
    source = random.Random(offset)
    for length in LENGTHS:
        data = memoryview(source.randbytes(offset + length))[offset:]
        start = source.getrandbits(32)
        assert crc32(data) == zlib.crc32(data)
        assert crc32(data, start) == zlib.crc32(data, start)


def test_crc32_of_parts_is_that_of_the_whole():
    data = random.Random(1).randbytes(10_000)
    for cut in (0, 1, 63, 64, 5000, 10_000):
        assert crc32(data[cut:], crc32(data[:cut])) == zlib.crc32(data)


def test_crc32_refuses_text():
    with pytest.raises(TypeError):
        crc32("text")
