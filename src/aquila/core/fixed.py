"""Fixed-width packing: codes of 1 to 32 bits, least significant bit first, no gaps between them.

It runs where the codes are, so that a GPU hands over packed bytes and not codes.
"""

import torch

GROUP = 8
"""Eight codes of b bits fill exactly b bytes, so groups of eight are packed side by side."""


def packed_size(count: int, bits: int) -> int:
    """Bytes that `count` codes of this width take."""
    return (count * bits + 7) // 8


def pack_fixed(codes: torch.Tensor, bits: int) -> torch.Tensor:
    """Pack codes below 2**bits into bytes; the last one is filled up with zero bits."""
    count = len(codes)
    lanes = codes.new_zeros((-(-count // GROUP), GROUP), dtype=_lane_dtype(bits))
    lanes.view(-1)[:count] = codes
    packed = codes.new_zeros((len(lanes), bits), dtype=torch.uint8)
    for lane, byte, shift in _overlaps(bits):
        column = lanes[:, lane]
        part = column << shift if shift >= 0 else column >> -shift
        packed[:, byte] |= (part & 0xFF).to(torch.uint8)
    return packed.view(-1)[: packed_size(count, bits)]


def unpack_fixed(data: torch.Tensor, count: int, bits: int, dtype: torch.dtype) -> torch.Tensor:
    """Read back `count` codes as integers of the given type."""
    groups = -(-count // GROUP)
    packed = data.new_zeros((groups, bits))
    packed.view(-1)[: len(data)] = data
    lanes = data.new_zeros((groups, GROUP), dtype=_lane_dtype(bits))
    for lane, byte, shift in _overlaps(bits):
        column = packed[:, byte].to(lanes.dtype)
        lanes[:, lane] |= column >> shift if shift >= 0 else column << -shift
    lanes &= 2**bits - 1
    return lanes.view(-1)[:count].to(dtype)


def _overlaps(bits: int) -> list[tuple[int, int, int]]:
    """(lane, byte, shift) of every byte of a group that holds a part of a lane's code."""
    return [
        (lane, byte, lane * bits - 8 * byte)
        for lane in range(GROUP)
        for byte in range(lane * bits // 8, (lane * bits + bits - 1) // 8 + 1)
    ]


def _lane_dtype(bits: int) -> torch.dtype:
    # seven bits and a sign more than the code, so that shifting it into place drops nothing
    return torch.int16 if bits <= 8 else torch.int32 if bits <= 24 else torch.int64
