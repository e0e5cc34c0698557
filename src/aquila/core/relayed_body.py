"""The body of a frame that passes on the replies of one round or more.

docs/wire-format-relayed.md specifies the layout.
"""

import math
import struct

import torch

from aquila.core.envelope import Flag, Frame, Kind, parse, require
from aquila.core.header import FIELD_LIMIT, HeaderReader, seal_varint
from aquila.core.packet import RelayedRound, RelayedUploads

_START = struct.Struct("<Id")
_WEIGHT = struct.Struct("<d")
_UPLOADS = (Kind.DENSE, Kind.FIXED, Kind.CODED, Kind.DITHERED)


def relayed_body(relayed: RelayedUploads) -> bytes:
    """Return the body of a frame; raise WireError if it would be invalid."""
    _check(relayed, trusted=True)
    parts = []
    for one in relayed.rounds:
        parts += [_START.pack(one.base, one.factor), seal_varint(len(one.frames))]
        for weight, frame in zip(one.weights, one.frames, strict=True):
            parts += [_WEIGHT.pack(weight), seal_varint(len(frame)), frame]
    return b"".join(parts)


def read_relayed(frame: Frame, trusted: bool = False) -> RelayedUploads:
    """Return the replies in a frame. They are checked like frames, but not decoded.

    `trusted` skips the checksums of the replies.
    """
    require(not frame.bucket, "a frame of relayed uploads must have bucket 0")
    reader = HeaderReader(bytes(frame.body), frame.body_bytes, start=0, part="body")
    rounds = []
    while reader.position < reader.end:
        rounds.append(_read_round(reader))
    dtype = torch.float64 if frame.flags & Flag.DOUBLE else torch.float32
    relayed = RelayedUploads(frame.dimension, dtype, tuple(rounds))
    _check(relayed, trusted)
    return relayed


def _read_round(reader: HeaderReader) -> RelayedRound:
    base, factor = _START.unpack(reader.take(_START.size))
    weights: list[float] = []
    frames: list[bytes] = []
    for _ in range(reader.varint()):
        weights += _WEIGHT.unpack(reader.take(_WEIGHT.size))
        frames.append(reader.take(reader.varint()))
    return RelayedRound(base, factor, tuple(weights), tuple(frames))


def _check(relayed: RelayedUploads, trusted: bool) -> None:
    require(len(relayed.rounds) > 0, "a frame of relayed uploads has no round")
    for one in relayed.rounds:
        finite = all(map(math.isfinite, (one.factor, *one.weights)))
        require(finite, "a factor of relayed uploads is not finite")
        require(0 < one.base < FIELD_LIMIT, f"relayed uploads have the base {one.base}")
        require(len(one.weights) == len(one.frames), "relayed uploads need a weight each")
        for frame in one.frames:
            reply = parse(frame, trusted)
            require(reply.kind in _UPLOADS, "a relayed reply has no upload")
            require(not reply.flags & Flag.REFUSED, "a refused frame must not contain a vector")
