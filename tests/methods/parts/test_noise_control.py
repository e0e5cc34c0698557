"""How AQUILA-Dither measures noise and signal, and chooses the density from them."""

import math
import random
from dataclasses import replace

import numpy as np
import pytest
import torch

import aquila
from aquila.core.fleet import Fleet
from aquila.core.packet import Codes, Dense, Packet
from aquila.core.quantize import stochastic_sparse
from aquila.core.random import Key
from aquila.core.vector import squared_norm
from aquila.methods.aquila_dither import DitherDeviceState
from aquila.methods.parts.noise_control import (
    DensityLimits,
    NoiseEstimate,
    UploadStats,
    record_norms,
)
from aquila.runtime.model_downlink import add_models
from aquila.sim.oracle import FunctionOracle

WIDE = DensityLimits(minimum=1e-9, initial=0.1, maximum=0.7, max_noise_ratio=2.0)


def normal(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def measure_uploads(fleet, vectors, densities, seed):
    """Return the measured statistics of dithered uploads of these vectors, and their mean."""
    key = Key((seed,))
    replies = {
        m: Packet(0, stochastic_sparse(v, densities[m], key.child(m).uniform(v)))
        for m, v in vectors.items()
    }
    squared_uploads = {}
    decoded = ((m, reply.vector.decode()) for m, reply in replies.items())
    mean = fleet.mean(record_norms(decoded, squared_uploads), dict.fromkeys(replies, 1.0))
    return UploadStats.measure(fleet, replies, squared_uploads, densities), mean


def variance(v, density):
    """Variance of one upload per coordinate: step² f (1 - f), f the fraction of a step."""
    step = float(v.square().mean().sqrt()) / density
    part = (v.abs() / step) % 1
    return step**2 * part * (1 - part)


def assert_average(values, expected):
    """The average of independent values is as expected, within four standard errors."""
    error = np.std(values, ddof=1) / math.sqrt(len(values))
    assert error < 0.15 * abs(expected)
    assert np.mean(values) == pytest.approx(expected, abs=4 * error)


FLEETS = {
    "uniform": Fleet.uniform(120, 4),
    "slices": Fleet(120, [0, 0, 1, 1], [None, torch.arange(0, 120, 3)]),
}


@pytest.mark.parametrize("name", FLEETS)
def test_noise_of_the_mean_is_measured_from_the_uploads(name):
    """Magnitudes are equal within a device, so the noise is the same in all slices."""
    fleet = FLEETS[name]
    densities = {0: 0.1, 1: 0.1, 2: 0.2, 3: 0.4}
    vectors = {m: (m + 1) * normal(fleet.dimension_of(m), seed=m).sign() for m in densities}
    weights = dict.fromkeys(vectors, 1.0)

    def squared_mean_of(m, vector):
        return squared_norm(fleet.mean([(m, vector)], weights))

    noise = {m: squared_mean_of(m, variance(v, densities[m]).sqrt()) for m, v in vectors.items()}
    true = fleet.mean(vectors.items(), weights)
    measured = [measure_uploads(fleet, vectors, densities, seed) for seed in range(150)]
    assert_average([squared_norm(mean - true) for _, mean in measured], sum(noise.values()))
    assert_average([stats.noise for stats, _ in measured], sum(noise.values()))
    at_full_density = sum(densities[m] * own for m, own in noise.items())
    assert_average([stats.noise_at_full_density for stats, _ in measured], at_full_density)
    assert measured[0][0].squared_innovations == pytest.approx(
        sum(squared_mean_of(m, v) for m, v in vectors.items())
    )


@pytest.mark.parametrize("replies", [8, 6, 2])
@pytest.mark.parametrize("differ", [0.0, 2.0], ids=["alike", "different"])
def test_signal_is_that_of_all_devices_for_any_set_of_replies(replies, differ):
    """The memory points elsewhere. It is part of the step but not of the uploads."""
    gradients = normal(200, seed=1) + differ * normal(8, 200, seed=2)
    memories = -0.5 * normal(200, seed=1) + 0.5 * normal(8, 200, seed=3)
    fleet, densities = Fleet.uniform(200, 8), dict.fromkeys(range(8), 0.4)
    signals = []
    for seed in range(300):
        chosen = random.Random(seed).sample(range(8), replies)
        vectors = {m: gradients[m] - memories[m] for m in chosen}
        stats, mean = measure_uploads(fleet, vectors, densities, seed)
        step = squared_norm(memories.mean(0) + mean)
        signals.append(stats.signal(step, squared_norm(mean), replies, 8))
    assert_average(signals, squared_norm(gradients.mean(0)))


def test_signal_is_unknown_after_one_reply_of_several():
    stats = UploadStats(noise=2.0, noise_at_full_density=1.0, squared_innovations=5.0)
    assert math.isnan(stats.signal(9.0, 9.0, 1, 10))
    assert stats.signal(9.0, 9.0, 1, 1) == 7


def test_signal_by_hand():
    """Two of four replied. The spread is (2 · 5 - (8 - 2)) / 1 = 4; half of it is subtracted."""
    stats = UploadStats(noise=2.0, noise_at_full_density=1.0, squared_innovations=5.0)
    assert stats.signal(9.0, 8.0, 2, 4) == 5
    assert stats.signal(9.0, 8.0, 2, 2) == 7


def test_dense_uploads_have_no_noise():
    fleet, v = Fleet.uniform(50, 3), normal(50)
    codes = stochastic_sparse(v, 0.3, Key((1,)).uniform(v))
    uploaded = squared_norm(codes.decode())
    replies = {0: Packet(0, codes), 1: Packet(0, Dense(v)), 2: Packet(0)}
    stats = UploadStats.measure(fleet, replies, {0: uploaded, 1: squared_norm(v)}, {0: 0.3, 1: 0.3})
    assert stats.noise == pytest.approx((uploaded - squared_norm(v)) / 9)
    assert stats.noise_at_full_density == pytest.approx(0.3 * stats.noise)
    assert stats.squared_innovations == pytest.approx(squared_norm(v) / 9)


def test_huge_grid_step_leaves_the_estimate_unchanged():
    grid = torch.tensor([1e300], dtype=torch.float64)
    reply = Packet(0, Codes(torch.tensor([0, 1, 2]), 2, -grid, grid, 3))
    server, fleet = aquila.create("aquila_dither").server, Fleet.uniform(3, 2)
    state = server.init(torch.zeros(3, dtype=torch.float64), fleet)
    assert server.update(state, fleet, {0: reply})[0].estimate == state.estimate
    assert server.update(state, fleet, {0: reply, 1: reply})[0].estimate == state.estimate


def test_zero_upload_on_a_huge_grid_has_no_innovation():
    step = torch.tensor([1e30])
    nothing = Packet(0, Codes(torch.full((50,), 1), 2, -step, step, 50))
    replies = {
        0: nothing,
        1: Packet(0, stochastic_sparse(normal(50), 0.3, Key((1,)).uniform(normal(50)))),
    }
    squared_uploads = {m: squared_norm(reply.vector.decode()) for m, reply in replies.items()}
    stats = UploadStats.measure(Fleet.uniform(50, 3), replies, squared_uploads, {0: 0.3, 1: 0.3})
    assert stats.squared_innovations == pytest.approx(squared_norm(normal(50)) / 4)


def test_averages_start_as_plain_means_and_then_follow_slowly():
    estimate, means = NoiseEstimate(0.1), []
    for noise in (6.0, 2.0, 1.0, 3.0, 3.0, 8.0, 3.0):
        estimate = estimate.update(noise, 10 * noise, WIDE)
        means.append(estimate.noise_at_full_density)
        assert estimate.signal == pytest.approx(10 * estimate.noise_at_full_density)
    assert means == pytest.approx([6, 4, 3, 3, 3, 4, 3.8])
    assert estimate.rounds == 7


@pytest.mark.parametrize(
    ("noise", "signal", "density"),
    [
        (0.24, 1.0, 0.12),
        (0.16, 1.0, 0.08),
        (1.0, 1.0, 0.15),
        (0.02, 1.0, 0.1 / 1.5),
        (0.0, 1.0, 0.1 / 1.5),
        (1.0, 0.0, 0.15),
        (1.0, -3.0, 0.15),
    ],
)
def test_density_moves_towards_the_noise_budget_by_a_limited_factor(noise, signal, density):
    assert NoiseEstimate(0.1).update(noise, signal, WIDE).density == pytest.approx(density)


def test_tiny_signal_does_not_overflow():
    assert NoiseEstimate(0.1).update(
        1.0, 5e-324, replace(WIDE, max_noise_ratio=0.17)
    ).density == pytest.approx(0.15)


def test_density_stays_within_its_limits():
    limits = DensityLimits(minimum=0.09, initial=0.1, maximum=0.11, max_noise_ratio=2.0)
    assert NoiseEstimate(0.1).update(9.0, 1.0, limits).density == 0.11
    assert NoiseEstimate(0.1).update(0.0, 1.0, limits).density == 0.09
    fixed = DensityLimits.for_fleet(Fleet.uniform(10_000, 10), 0.25)
    assert NoiseEstimate(0.25).update(9.0, 1.0, fixed).density == 0.25


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf])
def test_round_that_is_not_finite_changes_nothing(wrong):
    estimate = NoiseEstimate(0.1, 2.0, 3.0, 5)
    assert estimate.update(wrong, 1.0, WIDE) is estimate
    assert estimate.update(1.0, wrong, WIDE) is estimate


@pytest.mark.parametrize(
    ("fleet", "densities"),
    [
        (Fleet.uniform(1_000_000, 100), (0.0003, 0.0006, 0.003)),
        (Fleet.uniform(1_000_000, 100).with_participation(0.1), (0.003, 0.006, 0.03)),
        (Fleet.uniform(1_000_000, 1).with_participation(0.3), (0.03, 0.06, 0.3)),
        (Fleet.uniform(4_800, 10), (0.01, 0.01, 0.03)),
        (Fleet.uniform(48, 10), (0.7, 0.7, 0.7)),
        (Fleet(10_000, [0, 1, 1], [None, torch.arange(5_000)]), (0.03, 0.06, 0.3)),
    ],
)
def test_limits_depend_on_the_holders_per_round(fleet, densities):
    limits = DensityLimits.for_fleet(fleet, 0.0)
    assert (limits.minimum, limits.initial, limits.maximum) == pytest.approx(densities)
    assert limits.max_noise_ratio == pytest.approx(0.17 * math.sqrt(fleet.dimension))


DIMENSION = 4000


def random_devices(devices, agree):
    """Devices with new random gradients in every round, so that no memory helps."""

    def device(seed):
        generator = torch.Generator().manual_seed(seed)
        return lambda theta: (1.0, torch.randn(DIMENSION, generator=generator))

    return [device(0 if agree else m) for m in range(devices)]


def densities_of(devices, rounds, density=0.0, **options):
    method = aquila.create("aquila_dither", alpha=0.001, density=density)
    simulation = aquila.Simulation(
        method, torch.zeros(DIMENSION), devices, options=aquila.RunOptions(**options)
    )
    densities = []
    for _ in range(rounds):
        simulation.advance()
        densities.append(simulation.server.state.estimate.density)
    return densities


@pytest.mark.parametrize("agree", [True, False], ids=["agree", "differ"])
def test_run_settles_at_the_noise_budget(agree):
    """Noise is √(2/π) ||g||² / (3 density); devices that differ have a third of the signal."""
    densities = densities_of(random_devices(3, agree), rounds=45)[15:]
    signal = 1 if agree else 1 / 3
    wanted = math.sqrt(2 / math.pi) / 3 / signal / (0.17 * math.sqrt(DIMENSION))
    assert 0.012 < min(densities) < max(densities) < 0.1  # neither limit binds
    assert np.mean(densities) == pytest.approx(wanted, rel=0.15)


def test_fixed_density_stays():
    assert set(densities_of(random_devices(3, agree=False), rounds=5, density=0.05)) == {0.05}


def test_density_adapts_despite_lost_replies_and_skips():
    silent = [lambda theta: (0.0, torch.zeros_like(theta))]
    densities = densities_of(random_devices(3, agree=True) + silent, rounds=12, uplink_loss=0.3)
    assert len(set(densities)) > 6
    assert densities_of(silent * 2, rounds=2) == pytest.approx([0.03, 0.03])


def test_boost_of_one_device_does_not_bias_the_estimate():
    """Its upload is less noisy than uploads at the common density."""
    method, fleet = aquila.create("aquila_dither"), Fleet.uniform(DIMENSION, 3)
    oracle = FunctionOracle(lambda theta: (1.0, theta))
    theta = normal(DIMENSION)

    def after(boost, reported):
        state = method.server.init(theta, fleet)
        _, orders = method.server.orders(state, fleet, 0, Key((0,)))
        replies = {}
        for m, order in add_models(orders, theta, fleet, 0).items():
            memory = DitherDeviceState(torch.zeros_like(theta), 1.0, 1.0, boost if m == 0 else 1.0)
            replies[m] = method.device.step(memory, order, oracle, Key((m,))).reply
        if not reported:
            replies[0] = replace(replies[0], scalars={})
        return method.server.update(state, fleet, replies)[0].estimate

    calm = after(1.0, reported=True)
    assert after(8.0, reported=True).noise_at_full_density == pytest.approx(
        calm.noise_at_full_density, rel=0.1
    )
    assert after(8.0, reported=False).noise_at_full_density < 0.85 * calm.noise_at_full_density


def test_update_accepts_dense_uploads_and_skips():
    server, fleet = aquila.create("aquila_dither").server, Fleet.uniform(DIMENSION, 3)
    state = server.init(torch.zeros(DIMENSION), fleet)
    v = normal(DIMENSION).float()
    codes = stochastic_sparse(v, state.estimate.density, Key((0,)).uniform(v))
    replies = {0: Packet(0, codes), 1: Packet(0, Dense(v)), 2: Packet(0)}
    mixed, _ = server.update(state, fleet, replies)
    assert mixed.estimate.rounds == 1
    assert mixed.estimate.noise_at_full_density > 0
    assert server.update(state, fleet, {0: Packet(0), 1: Packet(0)})[0].estimate == state.estimate
    assert server.update(state, fleet, {})[0].estimate == state.estimate


def test_interrupted_run_continues_with_the_same_densities(tmp_path):
    """Gradients depend on the model alone, so they are the same in both runs."""

    def device(m):
        kept = normal(DIMENSION, seed=m).float()
        return lambda theta: (1.0, theta - kept)

    devices = [device(m) for m in range(3)]
    method, theta0 = aquila.create("aquila_dither", alpha=0.5), torch.zeros(DIMENSION)
    assert len(set(densities_of(devices, rounds=8))) > 4
    whole = aquila.simulate(method, theta0, devices, rounds=8)
    aquila.simulate(
        method,
        theta0,
        devices,
        rounds=5,
        options=aquila.RunOptions(out=tmp_path, checkpoint_every=2),
    )
    resumed = aquila.simulate(
        method, theta0, devices, rounds=8, options=aquila.RunOptions(out=tmp_path, resume=True)
    )
    assert resumed.records == whole.records
    assert torch.equal(resumed.theta, whole.theta)
