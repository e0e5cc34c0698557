"""Every method with models sent as coded differences: it needs no code for them."""

from dataclasses import replace

import pytest
import torch

import aquila
from aquila.core.packet import Codes, Dense
from aquila.core.wire import unpack
from aquila.runtime import model_downlink
from helpers import contract
from helpers.problems import ridge

PROBLEM = ridge(devices=5, dimension=30)
ROUNDS = 50

every_method = pytest.mark.parametrize("name", aquila.METHODS)
one_of_each_kind = pytest.mark.parametrize("name", contract.ONE_OF_EACH_KIND)


def create(name: str) -> aquila.Method:
    return contract.create(name, PROBLEM)


def theta0(dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.zeros(PROBLEM.dimension, dtype=dtype)


def gap(theta: torch.Tensor) -> float:
    return PROBLEM.loss(theta) - PROBLEM.loss(PROBLEM.optimum())


@one_of_each_kind
def test_trains_about_as_well_as_with_whole_models(name):
    whole, coded = (
        aquila.simulate(
            create(name),
            theta0(),
            PROBLEM.devices,
            ROUNDS,
            options=contract.run_options(
                name, uplink_loss=0.2, downlink_loss=0.1, downlink_error=error
            ),
        )
        for error in (0.0, 0.5)
    )
    assert gap(coded.theta) < max(1e-2 * gap(theta0()), 1.5 * gap(whole.theta))
    down = [sum(record.downlink_bytes for record in run.records) for run in (whole, coded)]
    assert down[1] < 0.9 * down[0]  # the rest is mostly control frames


@every_method
def test_devices_compute_at_the_servers_references(name):
    """With lost replies and orders, and with devices that hold different coordinates."""
    half = torch.arange(PROBLEM.dimension // 2)
    fleet = aquila.Fleet(PROBLEM.dimension, [0, 0, 0, 1, 1], [None, half])
    asked: dict[int, list[torch.Tensor]] = {m: [] for m in fleet.devices}

    def device(m):
        def local(part):
            asked[m].append(part.clone())
            theta = torch.zeros(PROBLEM.dimension, dtype=part.dtype)
            theta[: len(part)] = part
            loss, gradient = PROBLEM.local(m, theta)
            return loss, gradient[: len(part)]

        return local

    devices = [device(m) for m in fleet.devices]
    run = aquila.Simulation(
        create(name),
        theta0(),
        devices,
        seed=2,
        options=contract.run_options(
            name, fleet=fleet, uplink_loss=0.2, downlink_loss=0.2, downlink_error=0.5
        ),
    )
    differences = 0
    for _ in range(10):
        orders = run.server.open_round()
        frames = {id(o.model): o.model for o in orders.values()}.values()
        differences += sum(not isinstance(unpack(frame).vector, Dense) for frame in frames)
        run.advance()
        for m, thetas in asked.items():
            reference = run.server.references[fleet.groups[m]].theta
            # some methods also evaluate other models
            assert not thetas or any(torch.equal(theta, reference) for theta in thetas)
            thetas.clear()
    assert differences > 10


@one_of_each_kind
def test_interrupted_run_resumes_bit_for_bit(name, tmp_path):
    method, devices = create(name), PROBLEM.devices
    options = contract.run_options(name, uplink_loss=0.2, downlink_error=0.5)
    whole = aquila.simulate(method, theta0(), devices, rounds=9, options=options)
    options = replace(options, out=tmp_path, checkpoint_every=4)
    aquila.simulate(method, theta0(), devices, rounds=5, options=options)
    options = replace(options, resume=True)
    resumed = aquila.simulate(method, theta0(), devices, rounds=9, options=options)
    assert resumed.records == whole.records
    assert torch.equal(resumed.theta, whole.theta)


@pytest.mark.parametrize(("error", "a"), [(0.3, 0.86), (0.5, 0.61), (0.7, 0.34), (0.9, 0.1)])
def test_gradient_descent_converges_as_the_theorem_says(error, a):
    alpha, K = a / PROBLEM.smoothness(), 100
    method = aquila.create("fedsgd", alpha=alpha)
    run = aquila.Simulation(
        method, theta0(), PROBLEM.devices, options=aquila.RunOptions(downlink_error=error)
    )
    bound, smallest, before = 0.0, float("inf"), theta0()
    for _ in range(K):
        theta = run.theta
        run.advance()
        bound = error * (bound + float((theta - before).norm()))
        assert float((theta - run.server.references[0].theta).norm()) <= bound * (1 + 1e-9)
        gradients = [PROBLEM.local(m, theta)[1] for m in range(5)]
        smallest = min(smallest, float((sum(gradients) / 5).square().sum()))
        before = theta
    assert smallest <= 2 * gap(theta0()) / (alpha * K)
    assert gap(run.theta) < 0.1 * gap(theta0())


def test_sending_a_fraction_of_the_coordinates_would_diverge(monkeypatch):
    def largest_tenth(u, _):
        kept, fine = u.abs().topk(len(u) // 10), 2**20
        step = kept.values.max().clamp_min(1e-9).reshape(1) / fine
        codes = torch.full_like(u, fine, dtype=torch.int32)
        codes[kept.indices] += (u[kept.indices] / step).round().int()
        return Codes(codes, 22, -step * fine, step, len(u))

    method = aquila.create("fedsgd", alpha=0.6 / PROBLEM.smoothness())
    run = aquila.simulate(
        method, theta0(), PROBLEM.devices, 150, options=aquila.RunOptions(downlink_error=0.5)
    )
    assert gap(run.theta) < 1e-9
    monkeypatch.setattr(model_downlink, "quantize_within", largest_tenth)
    run = aquila.simulate(
        method, theta0(), PROBLEM.devices, 150, options=aquila.RunOptions(downlink_error=0.5)
    )
    assert gap(run.theta) > 10 * gap(theta0())
