"""Uploads of the peak quantizer for tests."""

import torch

from aquila.core.packet import Packet
from aquila.core.peaks import quantize_peaks
from aquila.core.random import Key
from aquila.core.wire import pack, unpack

ROUND = 7


def normal(dimension, seed=0, dtype=torch.float32):
    return torch.randn(dimension, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def tensors(*sizes):
    return tuple(torch.Size([size]) for size in sizes)


def quantized_with_error(v, shapes=None, block=8, seed=0):
    return quantize_peaks(v, shapes or tensors(v.numel()), block, Key((seed,)), ROUND)


def quantized(v, shapes=None, block=8, seed=0):
    return quantized_with_error(v, shapes, block, seed)[0]


def sent(upload):
    """Return the reply as the server unpacks it."""
    return unpack(pack(Packet(ROUND, upload.to_codes())))
