"""signSGD with majority vote against numbers computed by hand."""

import pytest
import torch

import aquila
from aquila.core.envelope import parse
from aquila.core.packet import Dense, Packet
from aquila.core.random import Key
from aquila.core.wire import pack
from aquila.sim.oracle import FunctionOracle


def constant(*gradient):
    """A device whose gradient is the same everywhere."""
    return lambda theta: (1.0, torch.tensor(gradient, dtype=theta.dtype))


def run(devices, rounds=1, alpha=0.5, dimension=4, seed=0, **options):
    method = aquila.create("signsgd", alpha=alpha)
    given = aquila.RunOptions(**options)
    return aquila.simulate(method, torch.zeros(dimension), devices, rounds, seed, options=given)


def test_server_steps_against_the_majority():
    """Votes: 3 of 3, 2 of 3 (against one large value), 1 of 3, 0 of 3."""
    devices = [constant(1, 0.1, 2, -1), constant(5, 0.1, -1, -2), constant(0.01, -99, -3, -9)]
    assert run(devices).theta.tolist() == [-0.5, -0.5, 0.5, 0.5]
    assert run(devices, rounds=3).theta.tolist() == [-1.5, -1.5, 1.5, 1.5]


def test_tied_coordinate_does_not_move():
    devices = [constant(1, 1, -1, -1), constant(1, -1, 1, -1)]
    assert run(devices).theta.tolist() == [-0.5, 0, 0, 0.5]


def test_zero_gradient_does_not_vote():
    devices = [constant(1, -1, 1, -1), constant(0, 0, 0, 0), constant(0, 0, 0, 0)]
    result = run(devices)
    assert result.theta.tolist() == [-0.5, 0.5, -0.5, 0.5]
    assert (result.records[0].uploads, result.records[0].skips) == (1, 2)


def test_zero_coordinate_sends_a_random_sign():
    device = aquila.create("signsgd").device
    theta = torch.zeros(20_000)
    gradient = torch.cat([theta[:10_000], torch.ones(10_000)])
    oracle = FunctionOracle(lambda at: (1.0, gradient))
    order = Packet(0, Dense(theta))
    sent, again, other = (
        device.step(device.init(theta), order, oracle, Key((seed,))).reply.vector.decode()
        for seed in (0, 0, 1)
    )
    assert set(sent.tolist()) == {-1, 1}
    assert abs(float(sent[:10_000].mean())) < 0.04  # four standard errors
    assert (sent[10_000:] == 1).all()
    assert torch.equal(sent, again)
    assert not torch.equal(sent, other)


def test_lost_reply_is_missing_from_the_vote():
    devices = [constant(1, 1, 1, 1), constant(-1, -1, -1, -1), constant(-1, -1, -1, -1)]
    result = run(devices, rounds=8, alpha=1.0, uplink_loss=0.6, seed=2)
    step = 0
    for record in result.records:
        votes = [1 if m == 0 else -1 for m in record.levels]
        step += (sum(votes) > 0) - (sum(votes) < 0)
    assert {record.lost for record in result.records} >= {0, 1, 2}
    assert result.theta.tolist() == [-step] * 4


def test_coordinate_is_voted_on_by_its_holders():
    fleet = aquila.Fleet(4, [0, 1, 1], [None, torch.tensor([0, 1])])
    devices = [constant(1, 1, 1, 1), constant(-1, -1), constant(-1, 1)]
    assert run(devices, fleet=fleet).theta.tolist() == [0.5, -0.5, -0.5, -0.5]


def test_upload_takes_one_bit_per_coordinate():
    generator = torch.Generator().manual_seed(0)
    gradient = torch.randn(80_000, generator=generator)
    device = aquila.create("signsgd").device
    theta = torch.zeros(80_000)
    oracle = FunctionOracle(lambda at: (1.0, gradient))
    reply = device.step(device.init(theta), Packet(0, Dense(theta)), oracle, Key((0,))).reply
    frame = pack(reply)
    assert parse(frame).paper_bits == 80_000
    assert 10_000 <= len(frame) < 10_100  # random signs cannot be compressed
    assert torch.equal(reply.vector.decode(), gradient.sign())


@pytest.mark.parametrize("alpha", [0.3, 0.03])
def test_model_stays_within_a_ball_of_size_alpha(alpha):
    devices = [lambda theta: (float(theta @ theta), theta - 1)] * 3
    result = run(devices, rounds=120, alpha=alpha, dimension=8)
    distance = (result.theta - 1).abs().max()
    assert 0 < distance <= alpha
