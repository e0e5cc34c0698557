"""Fixed-width packing: codes of 1 to 32 bits, least significant bit first, no gaps between them."""

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
Integers = npt.NDArray[np.integer]

GROUP = 8
"""Eight codes of b bits fill exactly b bytes, so groups of eight are packed side by side."""


def packed_size(count: int, bits: int) -> int:
    """Bytes that `count` codes of this width take."""
    return (count * bits + 7) // 8


def pack_fixed(codes: Integers, bits: int) -> bytes:
    """Pack codes below 2**bits; the last byte is filled up with zero bits."""
    lanes = np.zeros((-(-len(codes) // GROUP), GROUP), dtype=_lane_dtype(bits))
    lanes.reshape(-1)[: len(codes)] = codes
    packed = np.zeros((len(lanes), bits), dtype=np.uint8)
    for lane, byte, shift in _overlaps(bits):
        column = lanes[:, lane]
        part = column << shift if shift >= 0 else column >> -shift
        packed[:, byte] |= (part & 0xFF).astype(np.uint8)
    return packed.tobytes()[: packed_size(len(codes), bits)]


def unpack_fixed(data: Bytes, count: int, bits: int, dtype: npt.DTypeLike) -> Integers:
    """Read back `count` codes as integers of the given type."""
    groups = -(-count // GROUP)
    packed = np.zeros((groups, bits), dtype=np.uint8)
    packed.reshape(-1)[: len(data)] = data
    lanes = np.zeros((groups, GROUP), dtype=_lane_dtype(bits))
    for lane, byte, shift in _overlaps(bits):
        column = packed[:, byte].astype(lanes.dtype)
        lanes[:, lane] |= column >> shift if shift >= 0 else column << -shift
    lanes &= lanes.dtype.type(2**bits - 1)
    codes: Integers = lanes.reshape(-1)[:count].astype(dtype)
    return codes


def _overlaps(bits: int) -> list[tuple[int, int, int]]:
    """(lane, byte, shift) of every byte of a group that holds a part of a lane's code."""
    return [
        (lane, byte, lane * bits - 8 * byte)
        for lane in range(GROUP)
        for byte in range(lane * bits // 8, (lane * bits + bits - 1) // 8 + 1)
    ]


def _lane_dtype(bits: int) -> type[np.unsignedinteger]:
    # seven bits more than the code, so that shifting it into place drops nothing
    return np.uint16 if bits <= 9 else np.uint32 if bits <= 25 else np.uint64
