"""The reader of peaks refuses what is not an upload of a model, and takes little memory for it."""

import math
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
import torch

from aquila.core.bit_strings import from_bytes, to_bytes
from aquila.core.chunks import chunks_of
from aquila.core.packet import Dense, Packet, WireError
from aquila.core.peak_reader import PeakReader
from aquila.core.peaks import EXPONENTS
from helpers.peaks import ROUND, normal, quantized, tensors


def test_a_model_bounds_the_memory_that_a_frame_can_ask_for():
    dimensions = PeakReader().dimensions(tensors(1_000_000))
    assert max(dimensions) < 300_000


def test_a_hostile_frame_takes_little_memory():
    shapes = tensors(1_000_000)
    codes = quantized(normal(1_000_000), shapes, 320).to_codes()
    zeros = torch.zeros(max(PeakReader().dimensions(shapes)), dtype=torch.uint8)
    zeros[1] = 6
    hostile = Packet(ROUND, replace(codes, codes=zeros, bucket=len(zeros)))
    tracemalloc.start()
    with pytest.raises(WireError):
        PeakReader().read(hostile, shapes)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20 * len(zeros)


SHAPES, BLOCK = tensors(1000), 16
CHUNKS = len(chunks_of(SHAPES, 7).sizes)
START = 19


def upload_with(**parts):
    """Return the codes of a valid upload with other parts."""
    upload = quantized(normal(1000), SHAPES, BLOCK, seed=2)
    return replace(upload, **parts).to_codes()


def with_bits(change):
    """Return the codes of a valid upload whose bits a function changes."""
    codes = upload_with()
    changed = to_bytes(change(from_bytes(codes.codes.numpy())))
    return replace(codes, codes=torch.from_numpy(changed), bucket=len(changed))


def set_bits(first, last, value=1):
    def change(bits):
        bits[first:last] = value
        return bits

    return with_bits(change)


@pytest.mark.parametrize(
    ("codes", "message"),
    [
        (replace(upload_with(), bits=9), "has bytes, not 9 bits"),
        (with_bits(lambda bits: bits[:16]), "too short"),
        (set_bits(8, 13), r"chunks of 2\*\*31 coordinates"),
        (set_bits(8, 13, 0), r"chunks of 2\*\*0 coordinates"),
        (set_bits(START, None), f"ends before its {CHUNKS} numbers"),
        (upload_with(block_bits=np.full(CHUNKS, 9), exponents=np.zeros(0, np.int64)), "impossible"),
        (upload_with(block_bits=np.arange(CHUNKS) - 1), "impossible length"),
        (upload_with(block_bits=np.full(CHUNKS, 8), exponents=np.zeros(0, np.int64),
                     peaks=np.zeros(0, np.int64)), "has no peaks"),
        (upload_with(exponents=np.full(CHUNKS, EXPONENTS)), "exponents .* from 0 to 127"),
        (upload_with(exponents=np.full(CHUNKS, -1)), "exponents .* from 0 to 127"),
        (with_bits(lambda bits: bits[:-8]), r"must have \d+ peaks"),
        (with_bits(lambda bits: np.append(bits, np.zeros(8, np.uint8))), r"must have \d+ peaks"),
        (set_bits(-1, None), "last byte .* not filled with zeros"),
        (upload_with(scale=torch.zeros(1)), "above 0 and finite"),
        (upload_with(scale=torch.full((1,), math.inf)), "above 0 and finite"),
        (upload_with(scale=torch.full((1,), math.nan)), "above 0 and finite"),
        (upload_with(scale=torch.full((1,), 2e35)), "above 0 and finite"),
        (replace(upload_with(), low=torch.ones(1)), "another grid"),
        (replace(upload_with(), step=torch.ones(2), low=torch.zeros(2), bucket=50), "another grid"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_invalid_uploads_are_refused(codes, message):
    with pytest.raises(WireError, match=message):
        PeakReader().read(Packet(ROUND, codes), SHAPES)


def test_an_upload_without_codes_is_refused():
    with pytest.raises(WireError, match="must hold codes"):
        PeakReader().read(Packet(ROUND, Dense(torch.zeros(1000))), SHAPES)


@pytest.mark.parametrize("seed", range(200))
def test_damaged_uploads_are_refused_or_read(seed):
    """Whatever the bytes are, a reader raises WireError or returns a vector of the model."""
    generator = np.random.default_rng(seed)
    codes = upload_with()
    damaged = codes.codes.numpy().copy()
    for position in generator.integers(len(damaged), size=generator.integers(1, 5)):
        damaged[position] = generator.integers(256)
    damaged = damaged[: generator.integers(len(damaged) + 1)] if seed % 4 == 0 else damaged
    reply = Packet(ROUND, replace(codes, codes=torch.from_numpy(damaged), bucket=len(damaged)))
    try:
        upload = PeakReader().read(reply, SHAPES)
    except WireError:
        return
    assert torch.isfinite(upload.decode()).all()
    assert upload.decode().shape == (1000,)
