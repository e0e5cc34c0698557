"""Reads bodies of frames in which nearly all coordinates are zero, without a dense vector."""

import numpy as np
import torch

from aquila.core.packet import Codes, SparseCodes, code_dtype
from aquila.core.vector import Vector
from aquila.native import coder

SPARSE_RATIO = 16
"""Codes are sparse if at most one coordinate in this many is nonzero."""
_ROUNDING = 2.0**-20
"""Larger relative errors do not come from rounding a low end to float32."""
SMALL_BODY = 1024
"""Bytes of a body that is always tried as a sparse one, because of its tables."""


def read_dithered(
    body: memoryview, count: int, bits: int, low: Vector, step: Vector, seed: int
) -> Codes | SparseCodes:
    """Return the codes of a dithered body; raise ValueError if it is invalid.

    Args:
        body: the body, from its field for the sparsity on.
        count: number of coordinates.
        bits: width of the codes.
        low: low end of the grid.
        step: step of the grid.
        seed: the seed of the dither.
    """
    found = coder.decode_dithered(body, count, code_dtype(bits).itemsize, bits, seed)
    sparse = _sparse_codes(found, 2 ** (bits - 1) - 1, count, bits, low, step, seed)
    is_sparse = SPARSE_RATIO * sparse.positions.numel() <= count
    return sparse if is_sparse else sparse.to_codes()


def read_sparse(
    body: memoryview, count: int, bits: int, low: Vector, step: Vector
) -> SparseCodes | None:
    """Return the codes of a coded body, or None if many coordinates are not zero.

    Raises ValueError if the body is invalid. Arguments are those of `read_dithered`.
    """
    centre = _code_of_zero(low, step, bits)
    if centre is None or len(body) > _largest_sparse_body(count, bits):
        return None
    size, limit = code_dtype(bits).itemsize, count // SPARSE_RATIO
    found = coder.decode_sparse(body, count, size, bits, centre, limit)
    return None if found is None else _sparse_codes(found, centre, count, bits, low, step)


def _sparse_codes(
    found: tuple[bytearray, bytearray],
    centre: int,
    count: int,
    bits: int,
    low: Vector,
    step: Vector,
    seed: int | None = None,
) -> SparseCodes:
    """Return positions and codes that the coder has found as tensors."""
    positions, codes = (torch.from_numpy(np.frombuffer(part, np.uint8)) for part in found)
    nonzero = codes.view(code_dtype(bits))
    return SparseCodes(positions.view(torch.int64), nonzero, centre, count, bits, low, step, seed)


def _largest_sparse_body(count: int, bits: int) -> int:
    """Return the bytes of a body that is worth a try: larger ones have too many nonzero codes."""
    return SMALL_BODY + count * (SPARSE_RATIO + 2 * bits) // (16 * SPARSE_RATIO)


def _code_of_zero(low: Vector, step: Vector, bits: int) -> int | None:
    """Return the code that decodes to exactly zero, None if no code does."""
    lowest, spacing = float(low), float(step)
    ratio = -lowest / spacing if spacing > 0 else -1.0
    if not 0 <= ratio < 2**bits - 0.5:
        return None
    centre = round(ratio)
    if abs(ratio - centre) > _ROUNDING * ratio:
        return None
    return centre if float(low + step * centre) == 0 else None
