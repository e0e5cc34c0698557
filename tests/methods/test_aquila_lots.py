"""AQUILA-Lots against a transcription of its equations, and what it is for."""

from importlib import import_module

import numpy as np
import pytest
import torch

import aquila
from aquila.core.fleet import Fleet
from aquila.core.packet import Dense, Packet, WireError
from aquila.core.passes import plain
from aquila.core.random import Key, Purpose
from aquila.methods.aquila_lots import LotsMemory
from problems import gradients, ridge, states


def lottery(v, share, lots):
    step = np.abs(v).sum() / (share * len(v))
    return step * np.sign(v) * np.floor(np.abs(v) / step + lots)


class Lots:
    """The method in numpy: one row a device."""

    def __init__(self, problem, theta0, alpha, share):
        self.gradients, self.devices = gradients(problem), problem.devices
        self.theta, self.alpha, self.share = theta0, alpha, share
        self.q = np.zeros_like(self.gradients(theta0))
        self.first = self.least = self.losses()
        self.shares = np.full(len(self.devices), share)

    def losses(self):
        return np.array([local(torch.from_numpy(self.theta))[0] for local in self.devices])

    def advance(self, lots):
        v = self.gradients(self.theta) - self.q
        shares = np.minimum(0.7, self.shares)
        u = np.stack([lottery(*told) for told in zip(v, shares, lots, strict=True)])
        rose = self.losses() - np.minimum(self.least, self.losses()) > 0.2 * self.first
        grown = np.minimum(2 * self.shares, 64 * self.share)
        self.shares = np.where(rose, grown, np.maximum(0.95 * self.shares, self.share))
        self.least = np.where(rose, self.losses(), np.minimum(self.least, self.losses()))
        self.theta = self.theta - self.alpha * (self.q + u).mean(axis=0)
        self.q = self.q + u / (1 + 1 / self.share)


@pytest.fixture(scope="module")
def problem():
    return ridge(devices=10, dimension=40, rows=60)


def start(problem, share, step=0.2, dtype=torch.float64, **options):
    """Return a run from zero with a step size of `step` / L."""
    method = aquila.create("aquila_lots", alpha=step / problem.smoothness(), share=share)
    theta0 = torch.zeros(problem.dimension, dtype=dtype)
    return aquila.Simulation(method, theta0, problem.devices, **options)


@pytest.mark.parametrize("share", [0.05, 0.25])
def test_follows_its_equations_round_by_round(problem, share):
    simulation = start(problem, share, seed=3)
    alpha = 0.2 / problem.smoothness()
    reference = Lots(problem, np.zeros(40), alpha, share)
    grew = False
    for k in range(40):
        lots = [
            plain.lots(Key((3, k, m, Purpose.DEVICE)).word(), simulation.theta) for m in range(10)
        ]
        reference.advance(np.stack(lots))
        simulation.advance()
        np.testing.assert_allclose(simulation.theta, reference.theta, rtol=1e-7, atol=1e-9)
        q = [state.q for state in states(simulation)]
        np.testing.assert_allclose(q, reference.q, rtol=1e-7, atol=1e-8)
        grew |= reference.shares.max() > share
    assert grew == (share == 0.05)  # where lots are noisy


def test_devices_that_disagree_reach_the_optimum_exactly(problem):
    """Drawing alone stays as noisy as the devices disagree; the memory takes that away."""
    simulation = start(problem, 0.25)
    optimum = problem.optimum()
    first = problem.loss(simulation.theta) - problem.loss(optimum)
    for _ in range(200):
        simulation.advance()
    assert problem.loss(simulation.theta) - problem.loss(optimum) < 1e-9 * first


def test_a_lost_reply_is_a_turn_that_never_happened(problem):
    simulation = start(problem, 0.5, link=aquila.Link(uplink_loss=0.4), seed=2)
    for _ in range(12):
        before = [s.q.clone() for s in states(simulation)]
        record = simulation.advance()
        assert 0 < record.uploads < 10
        for m, (state, q) in enumerate(zip(states(simulation), before, strict=True)):
            assert torch.equal(state.q, q) == (m not in record.levels)


def test_an_upload_costs_a_fraction_of_a_bit_a_coordinate():
    generator = torch.Generator().manual_seed(1)
    gradient = torch.randn(200_000, generator=generator)
    method = aquila.create("aquila_lots", alpha=0.1)
    run = aquila.simulate(method, torch.zeros(200_000), [lambda t: (0.0, gradient)] * 10, rounds=3)
    # 0.4 % of the coordinates: 0.038 bits a coordinate say which, 0.004 the signs
    assert all(r.uplink_bytes * 8 < 0.05 * 200_000 * 10 for r in run.records)


def test_nothing_new_is_a_skip():
    method = aquila.create("aquila_lots", alpha=0.1)
    zero = [lambda theta: (0.0, torch.zeros_like(theta))] * 2
    run = aquila.simulate(method, torch.zeros(20), zero, rounds=2)
    assert [r.skips for r in run.records] == [2, 2]


def narrow(wide, devices):
    """A fleet of which only some hold the second half of the model."""
    groups = [0] * wide + [1] * (devices - wide)
    return Fleet(100_000, groups, [None, torch.arange(50_000)])


@pytest.mark.parametrize(
    ("fleet", "share"),
    [
        (Fleet.uniform(1_000_000, 10), 0.004),
        (Fleet.uniform(1_000_000, 100), 0.004),
        (Fleet.uniform(1_000_000, 2), 0.02),
        (Fleet.uniform(1_000_000, 1), 0.04),
        (Fleet.uniform(1_000_000, 10).taking_part(0.2), 0.02),
        (Fleet.uniform(6_400, 10), 0.01),
        (Fleet.uniform(40, 10), 0.7),
        (narrow(5, 10), 0.004),
        (narrow(2, 10), 0.01),
    ],
)
def test_where_few_tell_of_a_coordinate_they_send_more(fleet, share):
    server = aquila.create("aquila_lots").server
    _, orders = server.orders(server.init(torch.zeros(fleet.dimension), fleet), fleet, 0, Key((0,)))
    assert {order.scalar("share") for order in orders.values()} == {share}


def test_the_share_goes_by_the_devices_of_a_round():
    problem = ridge(devices=10, dimension=2000, rows=5)
    for participation, share in [(1.0, 0.032), (0.1, 0.04)]:
        simulation = aquila.Simulation(
            aquila.create("aquila_lots"),
            torch.zeros(2000),
            problem.devices,
            participation=participation,
        )
        assert simulation.server.state.share == share


def test_a_run_keeps_the_share_that_it_began_with(monkeypatch):
    """The memory of a device is taken back at the rate at which it was learned."""
    fleet = Fleet.uniform(40, 10)
    server = aquila.create("aquila_lots").server
    state = server.init(torch.zeros(40), fleet)
    reply = Packet(0, Dense(torch.ones(40)))
    after = server.update(state, fleet, {0: reply})
    monkeypatch.setattr(import_module("aquila.methods.aquila_lots"), "MOST_SHARE", 0.1)
    forgotten = server.forget(after, fleet, 0, [reply])
    assert not forgotten.inner.q_bar.any()


@pytest.mark.parametrize("devices", [1, 2, 10])
def test_by_default_no_fleet_is_too_small(devices):
    """At 0.4 % the same runs diverge."""
    problem = ridge(devices=devices, dimension=40, rows=60)
    method = aquila.create("aquila_lots", alpha=0.5 / problem.smoothness())
    run = aquila.simulate(method, torch.zeros(40), problem.devices, rounds=60)
    best = problem.loss(problem.optimum())
    assert problem.loss(run.theta) - best < 0.01 * (problem.loss(torch.zeros(40)) - best)


@pytest.mark.parametrize("share", [0.0, -1.0, 0.8, float("nan")])
def test_an_order_for_an_impossible_share_is_refused(problem, share):
    device = aquila.create("aquila_lots").device
    order = Packet(4, Dense(torch.zeros(40)), {"share": share})
    with pytest.raises(WireError, match=r"order of round 4 asks for a share of .* at most 0\.7"):
        device.step(device.init(torch.zeros(40)), order, None, Key((0,)))


def test_a_device_whose_loss_rises_doubles_its_share():
    start = LotsMemory(torch.zeros(1))
    losses = [5.0, 4.0, 4.9, 5.1, 5.0, 6.2, 5.9]
    boosts = []
    for loss in losses:
        start = start.after(loss)
        boosts.append(start.boost)
    # a rise by more than a fifth of the first loss, since the share last grew
    assert boosts == pytest.approx([1, 1, 1, 2, 1.9, 3.8, 3.61])
    assert LotsMemory(torch.zeros(1)).after(-5.0).after(-4.5).boost == 1


def test_a_step_that_is_too_large_for_few_winners_does_not_diverge(problem):
    """At 0.4 % of 40 coordinates the same run without growth is at 1e18 times its first gap."""
    simulation = start(problem, 0.004, step=0.5)
    best = problem.loss(problem.optimum())
    first = problem.loss(simulation.theta) - best
    for _ in range(150):
        simulation.advance()
    assert problem.loss(simulation.theta) - best < 10 * first
    assert max(state.boost for state in states(simulation)) > 8


def test_the_share_grows_no_further_than_makes_sense():
    state = LotsMemory(torch.zeros(1))
    for loss in range(1, 20):
        state = state.after(float(loss))
    assert state.boost == 64


def test_a_lost_reply_does_not_hide_a_rise(problem):
    simulation = start(problem, 0.004, step=0.5, link=aquila.Link(uplink_loss=0.5))
    for _ in range(30):
        simulation.advance()
    assert max(state.boost for state in states(simulation)) > 2
