from typing import Any

from numpy.typing import NDArray

def encode(codes: NDArray[Any], bits: int, /) -> bytes:
    """Return a coded body: the codes at about their entropy."""

def decode(body: bytes | memoryview, codes: NDArray[Any], bits: int, /) -> None:
    """Read a coded body into codes, or raise ValueError."""

def encode_dithered(codes: NDArray[Any], bits: int, seed: int, /) -> bytes:
    """Return a dithered body: the codes, given the dither that follows from the seed."""

def decode_dithered(
    body: bytes | memoryview, count: int, size: int, bits: int, seed: int, /
) -> tuple[bytearray, bytearray]:
    """Return positions and codes of the sent coordinates of a dithered body, or raise ValueError.

    Args:
        body: the body from its sparsity on.
        count: number of coordinates.
        size: bytes per code in the result. Positions are integers of 64 bits and increase.
        bits: width of the codes.
        seed: the seed of the dither.
    """

def decode_sparse(
    body: bytes | memoryview, count: int, size: int, bits: int, centre: int, limit: int, /
) -> tuple[bytearray, bytearray] | None:
    """Return positions and codes other than `centre` of a coded body, or raise ValueError.

    None if there are more than `limit`.
    """

def pack(codes: NDArray[Any], bits: int, /) -> bytes:
    """Return the codes at fixed width, least significant bit first, without gaps."""

def unpack(body: bytes | memoryview, codes: NDArray[Any], bits: int, /) -> None:
    """Read packed codes, or raise ValueError."""
