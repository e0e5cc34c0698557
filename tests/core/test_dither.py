"""The dither that both sides derive from a seed: same bits everywhere, and good statistics."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from aquila.core.packet import Packet
from aquila.core.passes import cpu, passes_for, plain
from aquila.core.quantize import shared_dither, stochastic_sparse
from aquila.core.random import Key
from aquila.core.wire import pack
from aquila.native import dither as native

FLOATS = [torch.float32, torch.float64]
SEEDS = [0, 1, 12345, 2**31, 2**32 - 1]


def mix(x):
    for shift, factor in ((16, 0x21F0AAAD), (15, 0xD35A2D97)):
        x = ((x ^ x >> shift) * factor) % 2**32
    return x ^ x >> 15


def word(seed, i):
    return mix((mix(i ^ mix(seed)) + seed) % 2**32)


@pytest.mark.parametrize("seed", SEEDS)
def test_dither_is_computed_as_documented(seed):
    words = [word(seed, i) for i in range(3000)]
    for dither in (plain.dither, cpu.dither):
        assert dither(seed, torch.empty(3000, dtype=torch.float64)).tolist() == [
            w / 2**32 for w in words
        ]
        assert dither(seed, torch.empty(3000)).tolist() == [(w >> 8) / 2**24 for w in words]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
@pytest.mark.parametrize("dtype", FLOATS)
def test_dither_on_a_gpu_has_the_same_bits(dtype):
    there = torch.empty(100_003, dtype=dtype, device="cuda")
    for seed in SEEDS:
        dither = passes_for(there).dither(seed, there)
        assert torch.equal(dither.cpu(), cpu.dither(seed, torch.empty(100_003, dtype=dtype)))


def test_dither_is_uniform():
    for seed in SEEDS:
        dither = cpu.dither(seed, torch.empty(1 << 16, dtype=torch.float64)).numpy()
        counts, _ = np.histogram(dither, bins=64, range=(0, 1))
        assert ((counts - 1024) ** 2 / 1024).sum() < 120  # 63 on average, 120 once in 50,000
        assert dither.max() < 1


def test_dithers_of_two_seeds_and_of_neighbours_are_uncorrelated():
    n, like = 1 << 16, torch.empty(1 << 16, dtype=torch.float64)
    rows = torch.stack([cpu.dither(seed, like) for seed in (7, 8, 9, 7 + 2**16)])
    shifted = torch.cat([rows, rows[:1].roll(1, dims=1), rows[:1].roll(256, dims=1)])
    correlation = torch.corrcoef(shifted) - torch.eye(len(shifted), dtype=torch.float64)
    assert float(correlation.abs().max()) < 5 / n**0.5
    large = (rows > 0.99).double()
    assert float(large.prod(dim=0).sum()) == 0
    both = float((large[0] * large[1]).sum())
    assert both < 20  # 6.6 on average


@pytest.mark.parametrize("dtype", FLOATS)
def test_shared_dither_gives_stochastic_sparse_codes_in_a_third_of_the_bytes(dtype):
    generator = torch.Generator().manual_seed(0)
    v = torch.randn(200_000, generator=generator, dtype=dtype)
    codes = shared_dither(v, 0.004, Key((5,)))
    assert codes.dither_seed == Key((5,)).uint32()
    expected = stochastic_sparse(v, 0.004, plain.dither(codes.dither_seed, v))
    assert torch.equal(codes.codes, expected.codes)
    assert len(pack(Packet(0, codes))) < 0.36 * len(
        pack(Packet(0, replace(codes, dither_seed=None)))
    )


def test_zero_vector_has_no_codes():
    assert shared_dither(torch.zeros(10), 0.1, Key((5,))) is None


def test_dither_refuses_other_types():
    for wrong in (np.zeros(3, dtype=np.int32), np.zeros(3, dtype=np.float16)):
        with pytest.raises(ValueError, match="float32 or float64"):
            native.fill(wrong, 1)
