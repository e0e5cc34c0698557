"""Differential privacy: sensitivity, noise, the accountant, and what is refused."""

import math

import pytest
import torch

import aquila
from aquila import RunOptions
from aquila.core.random import Key
from aquila.runtime.privacy import GaussianNoise
from aquila.runtime.privacy_accountant import PrivacyAccountant
from aquila.runtime.server_session import ServerSession
from helpers.problems import ridge

dp_accounting = pytest.importorskip("dp_accounting", reason="pip install -e '.[privacy]'")

PROBLEM = ridge(devices=6, dimension=20)
PRIVATE = {"dp_clip": 0.5, "dp_noise": 2.0}


def run(name="fedsgd", rounds=4, devices=None, parameters=None, **options):
    method = aquila.create(name, **{"alpha": 0.05, **(parameters or {})})
    made = PROBLEM.devices if devices is None else devices
    given = RunOptions(**{**PRIVATE, **options})
    return aquila.simulate(method, torch.zeros(20), made, rounds, options=given)


def only_noise(name, devices, **options):
    """The step of one round with noise so small that only the clipped vectors count."""
    return run(name, 1, devices, **{"dp_noise": 1e-9, **options}).theta


@pytest.mark.parametrize("name", ["fedsgd", "qsgd", "topk", "powersgd"])
@pytest.mark.parametrize("replaced", [1e6, -1e6, 0.0, math.nan])
def test_one_device_moves_the_sum_by_at_most_twice_the_clip(name, replaced):
    """Numerical sensitivity: alpha / M times the distance of two clipped vectors."""
    other = [lambda theta: (1.0, torch.full((20,), replaced)), *PROBLEM.devices[1:]]
    moved = only_noise(name, other) - only_noise(name, PROBLEM.devices)
    bound = 0.05 / 6 * 2 * PRIVATE["dp_clip"]
    assert float(moved.norm()) <= bound * (1 + 1e-5)
    if abs(replaced) == 1e6:
        assert float(moved.norm()) > 0.2 * bound


@pytest.mark.parametrize("name", ["aquila_dither", "aquila_peak"])
def test_one_device_moves_the_sum_of_methods_without_memory_no_further(name):
    other = [lambda theta: (1.0, torch.full((20,), 1e6)), *PROBLEM.devices[1:]]
    stateless = {"parameters": {"memory": "none"}}
    moved = only_noise(name, other, **stateless) - only_noise(name, PROBLEM.devices, **stateless)
    assert 0 < float(moved.norm()) <= 0.05 / 6 * 2 * PRIVATE["dp_clip"] * (1 + 1e-5)


def test_a_device_that_fails_counts_as_zero_and_is_drawn_again():
    broken = [lambda theta: (math.nan, theta), *PROBLEM.devices[1:]]
    records = run(devices=broken, rounds=3).records
    assert [record.quarantined for record in records] == [None] * 3
    assert [record.lost for record in records] == [1] * 3


def test_clipped_vectors_are_within_the_bound():
    noise = GaussianNoise(0.3, 1.0)
    for seed in range(50):
        vector = Key((seed,)).normal(torch.zeros(1000)) * 10.0**seed / 1e20
        assert float(noise.clipped(vector).norm()) <= 0.3


def test_noise_has_the_stated_deviation_and_new_values_per_round():
    noise = GaussianNoise(0.5, 2.0)
    first, second = (noise.draw(torch.zeros(20_000), Key((0, n))) for n in range(2))
    assert float(first.std()) == pytest.approx(1.0, rel=0.03)
    assert float((first * second).mean()) == pytest.approx(0, abs=0.03)
    devices = [lambda theta: (0.0, torch.zeros(20))] * 4
    mean = noise.noisy_mean([torch.zeros(20_000)] * 4, 4, torch.zeros(20_000), Key((1,)))
    assert float(mean.std()) == pytest.approx(1.0 / 4, rel=0.03)
    thetas = [run(rounds=n, devices=devices).theta for n in (1, 2)]
    assert not torch.equal(thetas[0], thetas[1] - thetas[0])


def test_noise_of_devices_reaches_the_method():
    devices = [lambda theta: (0.0, torch.zeros_like(theta))] * 4
    method = aquila.create("fedsgd", alpha=1.0)
    options = RunOptions(**PRIVATE, dp_noise_by="devices")
    theta = aquila.simulate(method, torch.zeros(20_000), devices, 1, options=options).theta
    assert float(theta.std()) == pytest.approx(1.0 / 2, rel=0.03)  # the mean of four


@pytest.mark.parametrize("name", ["aquila", "ef21", "diana", "laq"])
def test_methods_with_memory_need_noise_from_devices(name):
    with pytest.raises(ValueError, match=r"remembers what devices sent.*dp_noise_by=devices"):
        run(name)
    records = run(name, dp_noise_by="devices").records
    assert records[-1].epsilon > records[0].epsilon > 0
    assert all(record.loss is None for record in records)


@pytest.mark.parametrize(
    ("name", "options", "reason"),
    [
        ("eden", {}, "its step does not depend on the uploads through their mean alone"),
        ("adaquantfl", {}, "its step does not depend on the uploads through their mean alone"),
        ("adaquantfl", {"dp_noise_by": "devices"}, "sends losses of the devices"),
        ("marina", {"dp_noise_by": "devices"}, "two gradients per round"),
        ("fedsgd", {"selection": "pow_d", "participation": 0.5}, "reads losses"),
        ("fedsgd", {"rows": "owners"}, "shows which classes"),
        ("fedsgd", {"rows": "owners", "dp_noise_by": "devices"}, "shows which classes"),
        ("fedsgd", {"dp_noise": 0.0}, "needs both dp_clip and dp_noise above 0"),
        ("fedsgd", {"dp_noise": 0.0, "dp_clip": 0.0, "dp_delta": 1e-6}, "dp_delta needs"),
    ],
)
def test_what_gives_no_bound_is_refused_in_one_sentence(name, options, reason):
    with pytest.raises(ValueError, match=reason):
        run(name, **options)


def test_sampling_by_the_method_itself_is_refused():
    with pytest.raises(ValueError, match="through their mean alone"):
        run("fedavg", parameters={"fraction": 0.5})


def test_weights_and_widths_need_noise_from_devices():
    method = aquila.create("fedsgd")
    weighted = aquila.Fleet.uniform(20, 6).with_weights([1, 2, 3, 4, 5, 6])
    halves = aquila.Fleet(20, [0, 1], (None, torch.arange(10)))
    for fleet, reason in ((weighted, "weights=uniform"), (halves, "several widths")):
        with pytest.raises(ValueError, match=reason):
            ServerSession(method, torch.zeros(20), fleet, 0, RunOptions(**PRIVATE))


def library_epsilon(event, rounds, delta=1e-5):
    relation = dp_accounting.NeighboringRelation.REPLACE_ONE
    accountant = dp_accounting.rdp.RdpAccountant(neighboring_relation=relation)
    accountant.compose(event, rounds)
    return accountant.get_epsilon(delta)


def test_accountant_agrees_with_the_library():
    """The sensitivity is twice the clip, so the library gets half of the noise."""
    gaussian = dp_accounting.GaussianDpEvent(4.0)
    sampled = dp_accounting.SampledWithoutReplacementDpEvent(100, 10, gaussian)
    noise = {"dp_clip": 1.0, "dp_noise": 8.0}
    for options, event in (
        (RunOptions(**noise), gaussian),
        (RunOptions(**noise, participation=0.1), sampled),
        (RunOptions(**noise, participation=0.1, selection="weighted"), gaussian),
        (RunOptions(**noise, participation=0.1, dp_noise_by="devices"), gaussian),
    ):
        ours, theirs = PrivacyAccountant(options, 100).epsilon(50), library_epsilon(event, 50)
        assert theirs * (1 - 1e-9) <= ours <= 1.02 * theirs


def test_known_value_of_one_gaussian():
    """Balle and Wang (2018): the exact epsilon of one Gaussian; Rényi bounds are a bit larger."""
    epsilon = PrivacyAccountant(RunOptions(dp_clip=1.0, dp_noise=2.0), 10).epsilon(1)

    def tail(t):
        return 0.5 * math.erfc(t / math.sqrt(2))

    delta = tail(epsilon - 0.5) - math.exp(epsilon) * tail(epsilon + 0.5)
    assert delta < 1e-5


def test_records_have_epsilon_and_delta(tmp_path):
    records = run(rounds=3, participation=0.5, out=tmp_path).records
    epsilons = [record.epsilon for record in records]
    assert epsilons == sorted(epsilons)
    assert {record.delta for record in records} == {1e-5}
    resumed = run(rounds=5, participation=0.5, out=tmp_path, resume=True).records
    assert [record.epsilon for record in resumed[:3]] == epsilons
    assert resumed == run(rounds=5, participation=0.5).records


def test_private_runs_still_train():
    records = run(rounds=60, dp_clip=5.0, dp_noise=0.5, parameters={"alpha": 0.1}).records
    assert records[-1].loss < 0.93 * records[0].loss
