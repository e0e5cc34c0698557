"""Server optimizers against torch.optim and an independent transcription of FedOpt."""

import numpy as np
import pytest
import torch

import aquila
from aquila.core.method import LR_FACTOR
from aquila.core.packet import NEVER, Dense, Packet, WireError
from aquila.core.wire import pack
from aquila.runtime.device_session import DeviceSession
from aquila.runtime.messages import Order
from aquila.runtime.persist import restore_server, server_to_bytes
from aquila.runtime.server_session import ServerSession
from aquila.sim.oracle import FunctionOracle, as_shard
from helpers.contract import ONE_OF_EACH_KIND, find_row
from helpers.contract_runs import PROBLEM, create, theta0
from helpers.problems import all_gradients

ROUNDS = 12
ALPHA = 0.3 / PROBLEM.smoothness()
RECIPES = {
    "momentum": {"server_optimizer": "momentum"},
    "nesterov": {"server_optimizer": "nesterov", "server_momentum": 0.8, "server_lr": 0.5},
    "adam": {"server_optimizer": "adam", "server_lr": 0.05},
    "yogi": {"server_optimizer": "yogi", "server_lr": 0.05, "server_beta2": 0.95},
    "cosine": {"schedule": "cosine"},
    "average": {"model_average": 0.8},
    "everything": {
        "server_optimizer": "adam", "server_lr": 0.05, "schedule": "warmup:3+cosine",
        "server_schedule": "steps:6:0.5",
    },
}  # fmt: skip
every_recipe = pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES)


def run(method, rounds=ROUNDS, devices=None, on_record=None, **options):
    return aquila.simulate(
        method,
        theta0(torch.float64),
        devices or PROBLEM.devices,
        rounds,
        on_record=on_record,
        options=aquila.RunOptions(**options),
    )


@pytest.mark.parametrize("nesterov", [False, True])
@pytest.mark.parametrize("schedule", ["constant", "cosine"])
def test_momentum_equals_torch_on_the_mean_gradient(nesterov, schedule):
    """The schedule applies to the server's rate, as in torch."""
    parameter = torch.nn.Parameter(theta0(torch.float64))
    optimizer = torch.optim.SGD([parameter], lr=ALPHA, momentum=0.9, nesterov=nesterov)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=ROUNDS)
    for _ in range(ROUNDS):
        gradients = [local(parameter.detach())[1] for local in PROBLEM.devices]
        parameter.grad = sum(gradients) / len(gradients)
        optimizer.step()
        if schedule == "cosine":
            scheduler.step()
    name = "nesterov" if nesterov else "momentum"
    trained = run(
        aquila.create("fedsgd", alpha=ALPHA), server_optimizer=name, server_schedule=schedule
    )
    torch.testing.assert_close(trained.theta, parameter.detach(), rtol=1e-10, atol=1e-12)


def fed_opt(name, rounds, rate, beta1=0.9, beta2=0.99, tau=1e-3):
    """Reddi et al. (2021), Algorithm 2, with one gradient step per client, in NumPy."""
    x, gradients = np.zeros(PROBLEM.dimension), all_gradients(PROBLEM)
    m, v = np.zeros_like(x), np.full_like(x, tau**2)
    for _ in range(rounds):
        client_models = x - ALPHA * gradients(x)
        delta = np.mean(client_models - x, axis=0)
        m = beta1 * m + (1 - beta1) * delta
        if name == "adam":
            v = beta2 * v + (1 - beta2) * delta**2
        else:
            v = v - (1 - beta2) * delta**2 * np.sign(v - delta**2)
        x = x + rate * m / (np.sqrt(v) + tau)
    return x


@pytest.mark.parametrize("name", ["adam", "yogi"])
@pytest.mark.parametrize("method", ["fedsgd", "fedavg"])
def test_adaptive_optimizers_equal_a_transcription(name, method):
    trained = run(aquila.create(method, alpha=ALPHA), server_optimizer=name, server_lr=0.05)
    np.testing.assert_allclose(trained.theta.numpy(), fed_opt(name, ROUNDS, 0.05), rtol=1e-9)


def test_plain_rate_scales_the_step():
    half = run(aquila.create("fedsgd", alpha=ALPHA), server_lr=0.5)
    same = run(aquila.create("fedsgd", alpha=ALPHA / 2))
    torch.testing.assert_close(half.theta, same.theta, rtol=1e-12, atol=1e-15)


def test_schedule_scales_local_and_server_steps():
    """With FedAvg and a rate of 1, the server averages local models in every round."""
    method = aquila.create("fedavg", alpha=ALPHA)
    devices = [FunctionOracle(local, local_steps=3) for local in PROBLEM.devices]
    trained = run(method, rounds=4, devices=devices, schedule="linear")
    theta = theta0(torch.float64)
    for factor in (1.0, 0.75, 0.5, 0.25):
        models = []
        for local in PROBLEM.devices:
            model = theta
            for _ in range(3):
                model = model - factor * ALPHA * local(model)[1]
            models.append(model)
        theta = sum(models) / len(models)
    torch.testing.assert_close(trained.theta, theta, rtol=1e-12, atol=1e-14)


RESUMED = [
    pytest.param(find_row(method), RECIPES[recipe], id=f"{method}-{recipe}")
    for method, recipe in [
        *((method, "everything") for method in ONE_OF_EACH_KIND),
        *(("aquila", recipe) for recipe in RECIPES if recipe != "everything"),
    ]
]


@pytest.mark.parametrize(("row", "recipe"), RESUMED)
def test_interrupted_run_resumes_with_the_same_bits(row, recipe, tmp_path):
    given = {**row.options, **recipe}
    whole = run(create(row), **given)

    def interrupt(record):
        if record.round == 6:
            raise KeyboardInterrupt

    folder = {"out": tmp_path / "run", **given}
    with pytest.raises(KeyboardInterrupt):
        run(create(row), on_record=interrupt, **folder)
    resumed = run(create(row), resume=True, **folder)
    assert torch.equal(resumed.theta, whole.theta)
    assert resumed.records == whole.records


@every_recipe
def test_server_file_restores_model_and_moments(recipe):
    method, fleet = create_session_method()
    options = aquila.RunOptions(**recipe).for_rounds(ROUNDS)
    server = ServerSession(method, theta0(torch.float64), fleet, 0, options)
    simulation = aquila.Simulation(method, theta0(torch.float64), PROBLEM.devices, 0, options)
    for _ in range(3):
        simulation.advance()
    restore_server(server, server_to_bytes(simulation.server))
    assert torch.equal(server.theta, simulation.server.theta)
    step = torch.ones_like(server.theta)
    ours, theirs = (
        s._descent.apply(s.moments, s.theta, step, s.round)[1] for s in (server, simulation.server)
    )
    assert torch.equal(ours, theirs)


def create_session_method():
    method = aquila.create("aquila", alpha=ALPHA)
    return method, aquila.Fleet.uniform(PROBLEM.dimension, len(PROBLEM.devices))


@pytest.mark.parametrize(
    ("saved", "requested", "difference"),
    [
        ({"server_optimizer": "adam"}, {}, r"no server_optimizer \(saved: server_optimizer adam\)"),
        ({}, {"server_lr": 0.5}, r"server_lr 0.5 \(saved: none\)"),
        ({"schedule": "cosine"}, {"schedule": "linear"}, r"linear:6 \(saved: schedule cosine:4\)"),
    ],
)
def test_run_with_another_recipe_is_not_resumed(tmp_path, saved, requested, difference):
    method = aquila.create("aquila", alpha=ALPHA)
    run(method, rounds=4, out=tmp_path, **saved)
    with pytest.raises(ValueError, match=difference):
        run(method, rounds=6, out=tmp_path, resume=True, **requested)


def test_run_with_a_fixed_schedule_can_be_continued(tmp_path):
    method, whole = aquila.create("aquila", alpha=ALPHA), {"schedule": "cosine:10"}
    run(method, rounds=4, out=tmp_path, **whole)
    continued = run(method, rounds=10, out=tmp_path, resume=True, **whole)
    assert torch.equal(continued.theta, run(method, rounds=10, schedule="cosine").theta)


STEP_ALONG_MEMORY = ("aquila", "lag", "laq", "ladaq", "ef21")


@pytest.mark.parametrize("name", STEP_ALONG_MEMORY)
@every_recipe
def test_drift_is_the_squared_step_of_plain_descent(name, recipe):
    """So skip rules do not depend on the optimizer, the server's rate or the schedule."""
    method = aquila.create(name, alpha=ALPHA)
    options = aquila.RunOptions(**recipe).for_rounds(ROUNDS)
    simulation = aquila.Simulation(method, theta0(torch.float64), PROBLEM.devices, 0, options)
    for _ in range(4):
        simulation.advance()
        state = simulation.server.state
        memory = getattr(state, "inner", state)
        squared = float(memory.q_bar @ memory.q_bar)
        assert memory.drifts[0][0] == pytest.approx(ALPHA**2 * squared, rel=1e-12)


class RateRecorder(FunctionOracle):
    """Records the rates of local training."""

    def train(self, theta, alpha):
        self.rates.append(alpha)
        return super().train(theta, alpha)


def test_device_trains_at_the_rate_of_the_round():
    devices = [RateRecorder(local) for local in PROBLEM.devices]
    for device in devices:
        object.__setattr__(device, "rates", [])
    method = aquila.create("aquila", alpha=ALPHA, work="epochs")
    run(method, rounds=3, devices=devices, schedule="linear:4")
    for device in devices:
        assert device.rates == pytest.approx([ALPHA, 0.75 * ALPHA, 0.5 * ALPHA])


def test_constant_rate_costs_no_bytes():
    method = aquila.create("aquila", alpha=ALPHA)
    plain, steps = (run(method, rounds=4, schedule=s).records for s in ("constant", "steps:2"))
    extra = [s.downlink_bytes - p.downlink_bytes for s, p in zip(steps, plain, strict=True)]
    assert extra[:2] == [0, 0]
    assert 0 < extra[2] == extra[3] <= 32 * len(PROBLEM.devices)


@pytest.mark.parametrize("factor", [0.0, -1.0])
def test_order_with_an_invalid_factor_is_refused(factor):
    method, _ = create_session_method()
    device = DeviceSession(method, 0, as_shard(PROBLEM.devices[0]), theta0(), seed=0)
    scalars = {"drift": 0.0, LR_FACTOR: factor}
    order = Order(pack(Packet(0, Dense(theta0()))), pack(Packet(0, None, scalars)))
    with pytest.raises(WireError, match=f"the order has lr_factor = {factor}; it must be above 0"):
        device.handle(order)
    assert device.last_round == NEVER
