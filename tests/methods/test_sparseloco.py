"""SparseLoCo against numbers computed by hand and a numpy implementation."""

import numpy as np
import pytest
import torch

import aquila
from aquila.core.packet import Packet
from aquila.core.wire import pack, unpack
from aquila.methods.sparseloco import ChunkTopK
from aquila.sim.oracle import FunctionOracle
from helpers.problems import all_gradients, device_states, ridge


def quantized(chunk, density):
    """The top k of a chunk on the grid {±s, ±2s}, with loops instead of tensors."""
    k = max(1, round(density * len(chunk)))
    kept = np.argsort(-np.abs(chunk))[:k]
    sizes = np.abs(chunk[kept])
    step = sizes.mean()
    for _ in range(2):
        levels = np.array([2 if size > 1.5 * step else 1 for size in sizes])
        step = np.dot(levels, sizes) / np.dot(levels, levels)
    sent = np.zeros_like(chunk)
    sent[kept] = step * levels * np.sign(chunk[kept])
    return sent


def test_one_chunk_by_hand():
    """Kept: 8, -4, 3. The mean is 5, and only 8 is above 7.5: s = (2·8 + 4 + 3) / 6 = 23/6.

    Again, 8 is above 1.5 s = 5.75, so s stays.
    """
    v = torch.tensor([1.0, 8, 0, -4, 2, 3, -1, 0.5], dtype=torch.float64)
    sent = ChunkTopK(density=3 / 8, chunk=8)(v).decode()
    s = 23 / 6
    assert sent.tolist() == pytest.approx([0, 2 * s, 0, -s, 0, s, 0, 0])


def test_each_chunk_has_its_own_scale_and_share():
    v = torch.tensor([100.0, 1, 1, 1, 0.01, 0, 0, 0, 0, 0, 0, 0, -5, 6], dtype=torch.float64)
    codes = ChunkTopK(density=0.25, chunk=4)(v)
    assert codes.bits == 3
    assert codes.decode().tolist() == pytest.approx([100, 0, 0, 0, 0.01, *[0] * 8, 6])


@pytest.mark.parametrize("steps", [1, 4])
def test_follows_its_equations_round_by_round(steps):
    problem, beta, density, chunk = ridge(devices=4, dimension=20), 0.9, 0.25, 8
    alpha = 0.1 / problem.smoothness()
    devices = [FunctionOracle(local, 1, steps) for local in problem.devices]
    method = aquila.create("sparseloco", alpha=alpha, beta=beta, density=density, chunk=chunk)
    simulation = aquila.Simulation(method, torch.zeros(20, dtype=torch.float64), devices)
    gradients, theta, e = all_gradients(problem), np.zeros(20), np.zeros((4, 20))
    for _ in range(20):
        local = np.tile(theta, (4, 1))
        for _ in range(steps):
            local -= alpha * np.stack([gradients(model)[m] for m, model in enumerate(local)])
        e = beta * e + (theta - local) / alpha
        pieces = [[quantized(row[i : i + chunk], density) for i in (0, 8, 16)] for row in e]
        sent = np.stack([np.concatenate(row) for row in pieces])
        e, theta = e - sent, theta - alpha * sent.mean(0)
        simulation.advance()
        np.testing.assert_allclose(simulation.theta, theta, rtol=1e-7, atol=1e-9)
        np.testing.assert_allclose([s.e for s in device_states(simulation)], e, atol=1e-8)


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
def test_sending_reduces_the_error(scale):
    v = scale * torch.randn(10_000, generator=torch.Generator().manual_seed(2))
    sent = ChunkTopK(0.02, 4096)(v).decode()
    error = float((v.double() - sent.double()).square().sum() / v.double().square().sum())
    assert error < 0.93  # the largest 2 % of a normal sample hold 12.5 % of its square
    assert 200 <= int((sent != 0).sum()) <= 203


def test_frame_takes_the_papers_bytes():
    """Two bits and a position of log2(50) + 1.4 bits per coordinate, and 8 bytes per chunk."""
    v = torch.randn(2**20, generator=torch.Generator().manual_seed(3))
    frame = pack(Packet(0, ChunkTopK(0.02, 4096)(v)))
    sent = 0.02 * 2**20
    assert len(frame) < 1.02 * (sent * (2 + 7.1) / 8 + 8 * 2**20 / 4096)
    assert torch.equal(unpack(frame).vector.decode(), ChunkTopK(0.02, 4096)(v).decode())


def test_zero_vector_has_nothing_to_send():
    assert ChunkTopK(0.1, 4)(torch.zeros(10)) is None
