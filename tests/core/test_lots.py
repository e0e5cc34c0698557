"""Lots that both ends of the wire draw: the same bits everywhere, and good lots."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from aquila.core.packet import Packet
from aquila.core.passes import cpu, passes_for, plain
from aquila.core.quantize import lottery, shared_lottery
from aquila.core.random import Key
from aquila.core.wire import pack
from aquila.native import passes as native

FLOATS = [torch.float32, torch.float64]
SEEDS = [0, 1, 12345, 2**31, 2**32 - 1]


def mixed(x):
    for shift, factor in ((16, 0x21F0AAAD), (15, 0xD35A2D97)):
        x = ((x ^ x >> shift) * factor) % 2**32
    return x ^ x >> 15


def word(seed, i):
    return mixed((mixed(i ^ mixed(seed)) + seed) % 2**32)


@pytest.mark.parametrize("seed", SEEDS)
def test_lots_are_the_words_of_the_format(seed):
    words = [word(seed, i) for i in range(3000)]
    for lots in (plain.lots, cpu.lots):
        assert lots(seed, torch.empty(3000, dtype=torch.float64)).tolist() == [
            w / 2**32 for w in words
        ]
        assert lots(seed, torch.empty(3000)).tolist() == [(w >> 8) / 2**24 for w in words]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
@pytest.mark.parametrize("dtype", FLOATS)
def test_lots_on_a_gpu_have_the_same_bits(dtype):
    there = torch.empty(100_003, dtype=dtype, device="cuda")
    for seed in SEEDS:
        lots = passes_for(there).lots(seed, there)
        assert torch.equal(lots.cpu(), cpu.lots(seed, torch.empty(100_003, dtype=dtype)))


def test_lots_fill_the_unit_interval_evenly():
    for seed in SEEDS:
        lots = cpu.lots(seed, torch.empty(1 << 16, dtype=torch.float64)).numpy()
        counts, _ = np.histogram(lots, bins=64, range=(0, 1))
        assert ((counts - 1024) ** 2 / 1024).sum() < 120  # 63 on average, 120 once in 50,000
        assert lots.max() < 1


def test_lots_of_two_seeds_or_neighbours_have_nothing_to_do_with_each_other():
    n, like = 1 << 16, torch.empty(1 << 16, dtype=torch.float64)
    rows = torch.stack([cpu.lots(seed, like) for seed in (7, 8, 9, 7 + 2**16)])
    shifted = torch.cat([rows, rows[:1].roll(1, dims=1), rows[:1].roll(256, dims=1)])
    correlation = torch.corrcoef(shifted) - torch.eye(len(shifted), dtype=torch.float64)
    assert float(correlation.abs().max()) < 5 / n**0.5
    winners = (rows > 0.99).double()
    assert float(winners.prod(dim=0).sum()) == 0
    both = float((winners[0] * winners[1]).sum())
    assert both < 20  # 6.6 on average


@pytest.mark.parametrize("dtype", FLOATS)
def test_a_shared_lottery_is_a_lottery_that_takes_a_third_of_the_bytes(dtype):
    generator = torch.Generator().manual_seed(0)
    v = torch.randn(200_000, generator=generator, dtype=dtype)
    codes = shared_lottery(v, 0.004, Key((5,)))
    assert codes.lots == Key((5,)).word()
    drawn = lottery(v, 0.004, plain.lots(codes.lots, v))
    assert torch.equal(codes.codes, drawn.codes)
    assert len(pack(Packet(0, codes))) < 0.36 * len(pack(Packet(0, replace(codes, lots=None))))


def test_the_zero_vector_draws_for_nothing():
    assert shared_lottery(torch.zeros(10), 0.1, Key((5,))) is None


def test_lots_need_a_vector_of_floats():
    for wrong in (np.zeros(3, dtype=np.int32), np.zeros(3, dtype=np.float16)):
        with pytest.raises(ValueError, match="float32 or float64"):
            native.dither(wrong, 1)
