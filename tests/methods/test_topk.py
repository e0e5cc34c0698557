"""Top-k with error feedback against numbers computed by hand."""

import numpy as np
import pytest
import torch

import aquila
from aquila.core.envelope import parse
from aquila.core.packet import Packet
from aquila.core.wire import pack
from aquila.methods.topk import top_k
from helpers.problems import all_gradients, device_states, ridge


def test_three_rounds_by_hand():
    """k = 1, alpha = 1, and g = (3, -2, 1, 0) in every round.

    round  e + g            sent    error after
    0      ( 3, -2,  1, 0)  3 at 0  ( 0, -2, 1, 0)
    1      ( 3, -4,  2, 0) -4 at 1  ( 3,  0, 2, 0)
    2      ( 6, -2,  3, 0)  6 at 0  ( 0, -2, 3, 0)
    """
    gradient = torch.tensor([3.0, -2, 1, 0], dtype=torch.float64)
    method = aquila.create("topk", alpha=1.0, density=0.25)
    theta0 = torch.zeros(4, dtype=torch.float64)
    simulation = aquila.Simulation(method, theta0, [lambda theta: (0.0, gradient)])
    expected = [
        ([-3, 0, 0, 0], [0, -2, 1, 0]),
        ([-3, 4, 0, 0], [3, 0, 2, 0]),
        ([-9, 4, 0, 0], [0, -2, 3, 0]),
    ]
    for theta, error in expected:
        simulation.advance()
        assert simulation.theta.tolist() == pytest.approx(theta, abs=1e-8)
        assert device_states(simulation)[0].e.tolist() == pytest.approx(error, abs=1e-8)


def test_follows_its_equations_round_by_round():
    problem = ridge(devices=4, dimension=20)
    alpha = 0.2 / problem.smoothness()
    method = aquila.create("topk", alpha=alpha, density=0.25)
    simulation = aquila.Simulation(method, torch.zeros(20, dtype=torch.float64), problem.devices)
    gradients, theta, e = all_gradients(problem), np.zeros(20), np.zeros((4, 20))
    for _ in range(30):
        accumulated = e + gradients(theta)
        u = np.zeros_like(accumulated)
        for m, row in enumerate(accumulated):
            largest = np.argsort(-np.abs(row))[:5]
            u[m, largest] = row[largest]
        e, theta = accumulated - u, theta - alpha * u.mean(0)
        simulation.advance()
        np.testing.assert_allclose(simulation.theta, theta, rtol=1e-6, atol=1e-8)
        np.testing.assert_allclose([s.e for s in device_states(simulation)], e, atol=1e-7)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_sent_values_are_almost_exact_and_others_zero(dtype):
    v = torch.tensor([1e-3, -7, 5, 0, 4.999], dtype=dtype)
    sent = top_k(v, 2).decode()
    assert sent[[0, 3, 4]].tolist() == [0, 0, 0]
    torch.testing.assert_close(sent[[1, 2]], v[[1, 2]], rtol=1e-6, atol=0)


def test_equal_magnitudes_are_sent_together():
    assert top_k(torch.tensor([2.0, -2, 2, 1]), 1).decode().tolist() == [2, -2, 2, 0]


@pytest.mark.parametrize("v", [[0.0, 0, 0], [1e-45, 0, 0]])
def test_vector_without_levels_is_a_skip(v):
    assert top_k(torch.tensor(v), 1) is None


def test_lost_reply_rolls_the_error_back():
    problem = ridge(devices=6, dimension=20)
    method = aquila.create("topk", alpha=0.1, density=0.1)
    options = aquila.RunOptions(uplink_loss=0.4)
    simulation = aquila.Simulation(method, torch.zeros(20), problem.devices, 2, options)
    lost = 0
    for _ in range(10):
        before = [state.e.clone() for state in device_states(simulation)]
        record = simulation.advance()
        for m, (state, e) in enumerate(zip(device_states(simulation), before, strict=True)):
            assert torch.equal(state.e, e) == (m not in record.levels)
        lost += record.lost
    assert lost > 5


def test_frame_is_smaller_than_the_papers_count():
    """31 bits × d by the codes; the papers count 32 + log2 d bits per sent coordinate."""
    generator = torch.Generator().manual_seed(1)
    v = torch.randn(200_000, generator=generator)
    frame = pack(Packet(0, top_k(v, 2000)))
    assert parse(frame).paper_bits == 31 * 200_000
    assert len(frame) * 8 < 2000 * 40
