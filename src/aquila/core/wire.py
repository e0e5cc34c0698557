"""Lossless half of an upload: packet -> bytes -> the same packet.

The layout is written down in docs/wire-format.md. A new way to code a body is a new `Kind`, one
encoder and one decoder here, and no method changes.
"""

import numpy as np
import torch

from aquila.core.envelope import Flag, Frame, Kind, demand, parse, seal
from aquila.core.fixed import pack_fixed, packed_size, unpack_fixed
from aquila.core.packet import MAX_BITS, Codes, Dense, Packet, WireError, code_dtype
from aquila.core.vector import Vector

__all__ = ["WireError", "pack", "unpack"]


def pack(packet: Packet) -> bytes:
    """Turn a packet into the bytes of one frame."""
    vector = packet.vector
    kind, bits, bucket, floats = Kind.EMPTY, 0, 0, torch.float32
    body: bytes | memoryview = b""
    if isinstance(vector, Dense):
        kind, bits, floats, body = Kind.DENSE, vector.bits, vector.values.dtype, _dense(vector)
    elif isinstance(vector, Codes):
        kind, bits, floats, body = Kind.FIXED, vector.bits, vector.low.dtype, _fixed(vector)
        bucket = 0 if vector.bucket >= vector.dimension else vector.bucket
    demand(floats in (torch.float32, torch.float64), f"a frame cannot hold {floats}")
    flags = (Flag.DOUBLE if floats == torch.float64 else Flag(0)) | (
        Flag.REFUSED if packet.refused else Flag(0)
    )
    demand(not (packet.refused and vector), "packet both refuses to upload and uploads")
    dimension = 0 if vector is None else vector.dimension
    return seal(
        Frame(kind, flags, bits, packet.round, packet.ack, dimension, bucket, packet.scalars, body)
    )


def unpack(
    data: bytes,
    dimension: int | None = None,
    device: torch.device | str = "cpu",
    trusted: bool = False,
) -> Packet:
    """Turn a frame back into the packet it was made from, or raise WireError.

    With `dimension`, a vector of any other length is refused before anything is decoded. The
    vector is unpacked on, and placed on, the given torch device. A frame that was sealed in this
    process may be `trusted` to match its checksum.
    """
    frame = parse(data, trusted)
    if dimension is not None and frame.kind is not Kind.EMPTY:
        demand(
            frame.dimension == dimension,
            f"frame holds {frame.dimension} coordinates where {dimension} are expected",
        )
    vector = _DECODERS[frame.kind](frame, device)
    refused = bool(frame.flags & Flag.REFUSED)
    demand(not (refused and vector), "frame both refuses to upload and uploads")
    return Packet(frame.round, vector, frame.scalars, frame.ack, refused)


def _dense(vector: Dense) -> memoryview:
    _demand_finite(vector.values)
    return _float_bytes(vector.values)


def _fixed(vector: Codes) -> bytes:
    demand(1 <= vector.bits <= MAX_BITS, f"codes of {vector.bits} bits; 1 to 32 are allowed")
    demand(vector.dimension > 0 and vector.bucket > 0, "codes without coordinates or buckets")
    _demand_grid(vector)
    least, most = (int(end) for end in vector.codes.aminmax())
    fits = least >= 0 and most < 2**vector.bits
    demand(fits, f"codes from {least} to {most} do not fit {vector.bits} bits")
    packed = pack_fixed(vector.codes, vector.bits).cpu().numpy()
    return b"".join((_float_bytes(vector.low), _float_bytes(vector.step), packed.data))


def _decode_empty(frame: Frame, device: torch.device | str) -> None:
    described = frame.bits, frame.dimension, frame.bucket, frame.flags & Flag.DOUBLE, frame.body
    demand(not any(described), "frame without a vector describes one")


def _decode_dense(frame: Frame, device: torch.device | str) -> Dense:
    width = _float_width(frame)
    demand(frame.bits == 8 * width, f"dense frame claims {frame.bits} bits a coordinate")
    demand(frame.bucket == 0, "dense frame claims buckets")
    _demand_size(frame, frame.dimension * width)
    values = _floats(frame, 0, frame.dimension).to(device)
    _demand_finite(values)
    return Dense(values)


def _decode_fixed(frame: Frame, device: torch.device | str) -> Codes:
    count, bits = frame.dimension, frame.bits
    demand(1 <= bits <= MAX_BITS, f"codes of {bits} bits; 1 to 32 are allowed")
    demand(frame.bucket < count, f"buckets of {frame.bucket} for {count} coordinates")
    bucket = frame.bucket or count
    grids, width = -(-count // bucket), _float_width(frame)
    _demand_size(frame, 2 * grids * width + packed_size(count, bits))
    spare = -count * bits % 8
    demand(
        spare == 0 or frame.body[-1] >> (8 - spare) == 0, "bits after the last code are not zero"
    )
    packed = np.frombuffer(frame.body, np.uint8, offset=2 * grids * width).copy()
    codes = unpack_fixed(torch.from_numpy(packed).to(device), count, bits, code_dtype(bits))
    low, step = _floats(frame, 0, grids), _floats(frame, grids * width, grids)
    vector = Codes(codes, bits, low.to(device), step.to(device), bucket)
    _demand_grid(vector)
    return vector


_DECODERS = {Kind.EMPTY: _decode_empty, Kind.DENSE: _decode_dense, Kind.FIXED: _decode_fixed}


def _float_bytes(values: Vector) -> memoryview:
    array = values.detach().cpu().contiguous().numpy()
    little = array.astype(array.dtype.newbyteorder("<"), copy=False)
    return little.view(np.uint8).data


def _float_width(frame: Frame) -> int:
    return 8 if frame.flags & Flag.DOUBLE else 4


def _floats(frame: Frame, offset: int, count: int) -> Vector:
    array = np.frombuffer(frame.body, f"<f{_float_width(frame)}", count, offset)
    return torch.from_numpy(array.astype(array.dtype.newbyteorder("="), copy=True))


def _demand_size(frame: Frame, expected: int) -> None:
    demand(
        frame.body_bytes == expected,
        f"body of {frame.body_bytes} bytes where {frame.dimension} coordinates of {frame.bits} bits"
        f" take {expected}",
    )


def _demand_finite(values: Vector) -> None:
    demand(bool(torch.isfinite(values).all()), "vector holds NaN or infinite numbers")


def _demand_grid(vector: Codes) -> None:
    """Every code of the grid must stand for a finite number."""
    grids = -(-vector.dimension // vector.bucket)
    demand(len(vector.low) == len(vector.step) == grids, f"not one grid a bucket ({grids})")
    top = vector.low + vector.step * (2.0**vector.bits - 1)
    sound = torch.isfinite(vector.low) & torch.isfinite(top) & (vector.step >= 0)
    demand(bool(sound.all()), "grid of the codes is not finite or runs backwards")
