from typing import Any

from numpy.typing import NDArray

def encode(codes: NDArray[Any], bits: int, /) -> bytes:
    """Return a coded body: the codes at about their entropy."""

def decode(body: bytes | memoryview, codes: NDArray[Any], bits: int, /) -> None:
    """Read a coded body into codes, or raise ValueError."""

def encode_dithered(codes: NDArray[Any], bits: int, seed: int, /) -> bytes:
    """Return a dithered body: the codes, given the dither that follows from the seed."""

def decode_dithered(
    body: bytes | memoryview, codes: NDArray[Any], bits: int, seed: int, /
) -> bytearray:
    """Read a dithered body into codes, or raise ValueError.

    Returns the positions of the codes that are not zero, increasing, as integers of 64 bits.
    """

def pack(codes: NDArray[Any], bits: int, /) -> bytes:
    """Return the codes at fixed width, least significant bit first, without gaps."""

def unpack(body: bytes | memoryview, codes: NDArray[Any], bits: int, /) -> None:
    """Read packed codes, or raise ValueError."""
