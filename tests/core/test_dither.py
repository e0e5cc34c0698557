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
from helpers.frame_reader import Dither

FLOATS = [torch.float32, torch.float64]
SEEDS = [0, 1, 12345, 2**31 + 4, 2**32 - 1]  # blocks of 64, 128, 2^15, 2^10 and 2^21


def documented_words(seed, d):
    """Return the dither of docs/wire-format-dithered.md in units of 2^-32."""
    dither = Dither(seed, d)
    slots = range(-(-d // dither.block_size) * dither.block_size)
    words = {dither.coordinate(slot): 2**32 - 1 - dither.complement(slot) for slot in slots}
    return [words[i] for i in range(d)]


@pytest.mark.parametrize("seed", SEEDS)
def test_dither_is_computed_as_documented(seed):
    for d in (1, 64, 65, 3000):
        words = documented_words(seed, d)
        for dither in (plain.dither, cpu.dither):
            double, single = (dither(seed, torch.empty(d, dtype=dtype)) for dtype in FLOATS[::-1])
            assert double.tolist() == [word / 2**32 for word in words]
            assert single.tolist() == [(word >> 8) / 2**24 for word in words]


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


def test_each_rank_occurs_once_per_block():
    for seed in SEEDS[:2]:
        size = 2 ** plain.dither_block_bits(seed, 10_000)
        dither = cpu.dither(seed, torch.empty(100 * size, dtype=torch.float64))
        ranks = (dither * size).floor().reshape(100, size).sort(dim=1).values
        assert torch.equal(ranks, torch.arange(size, dtype=torch.float64).expand(100, size))


@pytest.mark.parametrize("block_bits", [6, 7, 10])
def test_pairs_of_coordinates_in_a_block_are_independent(block_bits):
    size, blocks = 2**block_bits, 2 ** (22 - block_bits)
    dither = cpu.dither(16 + block_bits - 6, torch.empty(size * blocks)).reshape(blocks, size)
    for share in (0.5, 0.125):
        large = dither >= 1 - share
        expected = blocks * share * (share * size - 1) / (size - 1)
        for distance in (1, 2, 3, 4, 8, size // 2):
            both = (large & large.roll(distance, dims=1)).sum(dim=0)
            chi_square = float(((both - expected) ** 2).sum() / expected / size)
            assert chi_square < 1 + 6 * (2 / size) ** 0.5


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
    assert codes.dither_seed >> 4 == Key((5,)).uint32() >> 4
    assert plain.dither_block_bits(codes.dither_seed, 200_000) == 9  # 4 / 0.004 is below 1024
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
