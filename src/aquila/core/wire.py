"""The lossless half of an upload: packet -> bytes -> the same packet.

docs/wire-format.md specifies the layout. A new encoding of bodies needs a new `Kind`, and an
encoder and a decoder in this file; no method changes.
"""

import math
import sys
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from aquila.core.envelope import Flag, Frame, Kind, parse, require, require_dimension, seal
from aquila.core.grids import require_grid
from aquila.core.packet import (
    MAX_BITS,
    Codes,
    Dense,
    Packet,
    RelayedUploads,
    SparseCodes,
    WireError,
    code_dtype,
)
from aquila.core.relayed_body import read_relayed, relayed_body
from aquila.core.sparse_reader import read_dithered, read_sparse
from aquila.core.vector import Vector, max_norm
from aquila.native import coder
from aquila.native.checksum import crc32

__all__ = ["WireError", "checksum_of_vector", "pack", "unpack"]

_SEED_BYTES = 4
"""Size of the seed of the dither."""


def pack(packet: Packet) -> bytes:
    """Return a packet as the bytes of one frame; raise WireError if it does not fit the format."""
    vector = packet.vector
    if isinstance(vector, SparseCodes):
        vector = vector.to_codes()
    kind, bits, bucket, dimension, floats = Kind.EMPTY, 0, 0, 0, torch.float32
    body: bytes | memoryview = b""
    if vector is not None:
        require(not packet.refused, "a refused packet must not contain a vector")
        bits, dimension = vector.bits, vector.dimension
        if isinstance(vector, Dense):
            kind, floats, body = Kind.DENSE, vector.values.dtype, _dense_body(vector)
        elif isinstance(vector, Codes):
            floats, (kind, body) = vector.low.dtype, _codes_body(vector)
            bucket = 0 if vector.bucket >= dimension else vector.bucket
        elif isinstance(vector, RelayedUploads):
            kind, floats, body = Kind.RELAYED, vector.dtype, relayed_body(vector)
        else:
            raise WireError(f"a frame holds Dense or Codes, not {type(vector).__name__}")
        if floats not in (torch.float32, torch.float64):
            raise WireError(f"a frame holds float32 or float64, not {floats}")
    flags = (
        Flag.DOUBLE * (floats == torch.float64)
        + Flag.REFUSED * packet.refused
        + Flag.FRESH * packet.fresh
    )
    return seal(
        Frame(
            kind, flags, bits, packet.round, packet.ack, packet.refers_to, dimension, bucket,
            packet.scalars, body,
        )
    )  # fmt: skip


def unpack(
    data: bytes,
    dimension: int | range | None = None,
    device: torch.device | str = "cpu",
    trusted: bool = False,
) -> Packet:
    """Return the packet of a frame; raise WireError if the frame is invalid.

    Args:
        data: the bytes of the frame.
        dimension: the expected dimension, or a range of them. A vector of another dimension is
            refused before decoding.
        device: the torch device for the vector.
        trusted: skip the checksum. Use it only for a frame that this process has sealed.
    """
    frame = parse(data, trusted)
    require_dimension(frame, dimension)
    refused, fresh = frame.flags & Flag.REFUSED > 0, frame.flags & Flag.FRESH > 0
    without_vector = frame.kind is Kind.EMPTY
    require(without_vector or not refused, "a refused frame must not contain a vector")
    is_relayed = frame.kind is Kind.RELAYED
    vector = read_relayed(frame, trusted) if is_relayed else _DECODERS[frame.kind](frame, device)
    return Packet(frame.round, vector, frame.scalars, frame.ack, refused, frame.refers_to, fresh)


def checksum_of_vector(vector: Vector) -> int:
    """Return the CRC-32 of a vector's bytes in the layout of a dense body."""
    return crc32(_little_endian(_array(vector)))


def _dense_body(vector: Dense) -> memoryview:
    _require_finite(vector.values)
    return _little_endian(_array(vector.values))


def _codes_body(vector: Codes) -> tuple[Kind, bytes]:
    """Return kind and body of codes: dithered if they have a seed, else the shorter kind.

    Codes whose low and step are both -0 decode to -0. A dithered body would make that +0, because
    its reader computes low as -(step * centre). So they are not dithered.
    """
    _require_width(vector.bits)
    require(vector.dimension > 0 and vector.bucket > 0, "codes without coordinates or buckets")
    low, step = _array(vector.low), _array(vector.step)
    require_grid(low, step, vector.dimension, vector.bucket, vector.bits)
    codes = _array(_narrow_codes(vector))
    try:
        if vector.dither_seed is not None:
            _require_dithered(vector, vector.dither_seed)
            both_negative_zero = np.signbit(low[0]) and np.signbit(step[0])  # no step is below 0
            if not both_negative_zero:
                return Kind.DITHERED, _dithered_body(codes, vector, vector.dither_seed)
        kind, body = Kind.CODED, coder.encode(codes, vector.bits)
    except ValueError as problem:
        raise WireError(str(problem)) from None
    if len(body) >= packed_size(vector.dimension, vector.bits):
        kind, body = Kind.FIXED, coder.pack(codes, vector.bits)
    return kind, b"".join((_little_endian(low), _little_endian(step), body))


def _require_dithered(vector: Codes, seed: int) -> None:
    require(0 <= seed < 2**32, "the seed of a dither must be an integer of 32 bits")
    require(vector.bits >= 2 and len(vector.step) == 1, "dithered codes need two bits and one grid")
    is_centered = bool(vector.low == _centered_low(vector.step, vector.bits))
    require(is_centered, "the middle of the grid of dithered codes must be zero")


def _dithered_body(codes: NDArray[Any], vector: Codes, seed: int) -> bytes:
    """Return the body of codes on a grid around zero that were rounded with a shared dither."""
    body = coder.encode_dithered(codes, vector.bits, seed)
    return b"".join(
        (_little_endian(_array(vector.step)), seed.to_bytes(_SEED_BYTES, "little"), body)
    )


def _centered_low(step: Vector, bits: int) -> Vector:
    """Return the low end of the grid on which the code 2**(bits - 1) - 1 is exactly zero."""
    centre: int = 2 ** (bits - 1) - 1
    return -(step * centre)


def _narrow_codes(vector: Codes) -> torch.Tensor:
    """Return the codes in the smallest type that holds their width."""
    dtype = code_dtype(vector.bits)
    if vector.codes.dtype == dtype:
        return vector.codes
    codes = vector.codes.to(dtype)
    require(bool((codes == vector.codes).all()), f"codes do not fit {vector.bits} bits")
    return codes


def _decode_empty(frame: Frame, device: torch.device | str) -> None:
    described = frame.bits, frame.dimension, frame.bucket, frame.flags & Flag.DOUBLE, frame.body
    require(not any(described), "a frame without a vector must not describe one")


def _decode_dense(frame: Frame, device: torch.device | str) -> Dense:
    size = _float_bytes(frame)
    require(frame.bucket == 0, "a dense frame must have bucket 0")
    _require_size(frame, frame.dimension * size)
    values = _host_tensor(frame.dimension, torch.float64 if size == 8 else torch.float32, device)
    np.copyto(values.numpy(), np.frombuffer(frame.body, f"<f{size}", frame.dimension))
    values = values.to(device, non_blocking=True)
    _require_finite(values)
    return Dense(values)


def _decode_dithered(frame: Frame, device: torch.device | str) -> Codes | SparseCodes:
    count, bits, start = frame.dimension, frame.bits, _float_bytes(frame)
    _require_width(bits)
    require(
        bits >= 2 and count > 0 and not frame.bucket, "dithered codes need two bits and one grid"
    )
    require(
        frame.body_bytes > start + _SEED_BYTES, "step or seed of the dithered codes is cut short"
    )
    step = torch.from_numpy(_read_floats(frame, 1))
    low = _centered_low(step, bits)
    require_grid(low.numpy(), step.numpy(), count, count, bits)
    body = memoryview(frame.body)[start:]
    seed = int.from_bytes(body[:_SEED_BYTES], "little")
    try:
        read = read_dithered(body[_SEED_BYTES:], count, bits, low, step, seed)
    except ValueError as problem:
        raise WireError(str(problem)) from None
    if _is_cpu(device):
        return read
    codes = _host_tensor(count, code_dtype(bits), device).copy_(read.codes)
    codes = codes.to(device, non_blocking=True)
    return Codes(codes, bits, low.to(device), step.to(device), count, seed)


def _decode_codes(frame: Frame, device: torch.device | str) -> Codes | SparseCodes:
    count, bits = frame.dimension, frame.bits
    _require_width(bits)
    if frame.bucket >= count:
        raise WireError(f"bucket of {frame.bucket} for {count} coordinates; it must be smaller")
    bucket = frame.bucket or count
    grids = -(-count // bucket)
    grid_bytes = 2 * grids * _float_bytes(frame)
    if frame.kind is Kind.FIXED:
        _require_size(frame, grid_bytes + packed_size(count, bits))
    require(frame.body_bytes >= grid_bytes, "grids of the codes are cut short")
    low, step = _read_floats(frame, 2 * grids).reshape(2, grids)
    require_grid(low, step, count, bucket, bits)
    grid = torch.from_numpy(low), torch.from_numpy(step)
    body = memoryview(frame.body)[grid_bytes:]
    try:
        if frame.kind is Kind.CODED and grids == 1 and _is_cpu(device):
            sparse = read_sparse(body, count, bits, *grid)
            if sparse is not None:
                return sparse
        codes = _host_tensor(count, code_dtype(bits), device)
        read = coder.decode if frame.kind is Kind.CODED else coder.unpack
        read(body, codes.numpy(), bits)
    except ValueError as problem:
        raise WireError(str(problem)) from None
    low_end, steps = (part.to(device) for part in grid)
    return Codes(codes.to(device, non_blocking=True), bits, low_end, steps, bucket)


_DECODERS = {
    Kind.EMPTY: _decode_empty,
    Kind.DENSE: _decode_dense,
    Kind.FIXED: _decode_codes,
    Kind.CODED: _decode_codes,
    Kind.DITHERED: _decode_dithered,
}


def packed_size(count: int, bits: int) -> int:
    """Return the bytes of `count` codes of this width without entropy coding."""
    return (count * bits + 7) // 8


def _array(values: torch.Tensor) -> NDArray[Any]:
    if values.is_cuda:
        values = _host_tensor(values.numel(), values.dtype, values.device).copy_(values)
    if values.requires_grad or not values.is_contiguous():
        values = values.detach().contiguous()
    return values.numpy()


def _is_cpu(device: torch.device | str) -> bool:
    return device == "cpu" or torch.device(device).type == "cpu"


def _host_tensor(count: int, dtype: torch.dtype, device: torch.device | str) -> torch.Tensor:
    """Allocate host memory; pinned for a GPU, because it copies faster and torch caches it."""
    pinned = device != "cpu" and torch.device(device).type == "cuda"
    return torch.empty(count, dtype=dtype, pin_memory=pinned)


def _little_endian(array: NDArray[Any]) -> memoryview:
    return (array if sys.byteorder == "little" else array.byteswap()).data.cast("B")


def _require_width(bits: int) -> None:
    if not 1 <= bits <= MAX_BITS:
        raise WireError(f"codes of {bits} bits; 1 to {MAX_BITS} are allowed")


def _float_bytes(frame: Frame) -> int:
    return 8 if frame.flags & Flag.DOUBLE else 4


def _read_floats(frame: Frame, count: int) -> NDArray[Any]:
    """Return a copy of the first `count` floats of a body."""
    array = np.frombuffer(frame.body, np.float64 if _float_bytes(frame) == 8 else np.float32, count)
    return array.copy() if sys.byteorder == "little" else array.byteswap()


def _require_size(frame: Frame, expected: int) -> None:
    if frame.body_bytes != expected:
        raise WireError(
            f"body of {frame.body_bytes} bytes; {frame.dimension} coordinates of {frame.bits} bits "
            f"need {expected}"
        )


def _require_finite(values: Vector) -> None:
    require(math.isfinite(max_norm(values)), "the vector contains NaN or infinite numbers")
