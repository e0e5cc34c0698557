from typing import Any

from numpy.typing import NDArray

def encode(codes: NDArray[Any], bits: int, /) -> bytes:
    """Return a coded body: the codes near their information content."""

def decode(body: bytes | memoryview, codes: NDArray[Any], bits: int, /) -> None:
    """Read a coded body into codes, or raise ValueError."""

def encode_drawn(codes: NDArray[Any], bits: int, seed: int, /) -> bytes:
    """Return the codes as a drawn body: what the lots of the seed do not tell already."""

def decode_drawn(body: bytes | memoryview, codes: NDArray[Any], bits: int, seed: int, /) -> None:
    """Read a drawn body into codes, or raise ValueError."""

def pack(codes: NDArray[Any], bits: int, /) -> bytes:
    """Return the codes at fixed width, least significant bit first, without gaps."""

def unpack(body: bytes | memoryview, codes: NDArray[Any], bits: int, /) -> None:
    """Read packed codes, or raise ValueError."""
