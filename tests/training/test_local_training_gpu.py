"""Local training on a CUDA GPU: graphs take the steps of plain calls, and agree with the CPU."""

import pytest
import torch
from torch import nn

import aquila
from aquila.core.random import Key
from aquila.sim.hardware import configure_torch
from aquila.training.flat_module import FlatModule
from aquila.training.local_training import LocalTraining

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")

RECIPES = {
    "plain": LocalTraining(),
    "momentum": LocalTraining(momentum=0.9),
    "nesterov": LocalTraining(momentum=0.9, nesterov=True, weight_decay=0.01),
    "adam": LocalTraining(local_optimizer="adam", weight_decay=0.01),
    "adamw": LocalTraining(local_optimizer="adamw", weight_decay=0.1),
    "clip": LocalTraining(clip=0.1, momentum=0.9),
    "prox": LocalTraining(prox=2.0, momentum=0.9),
    "factory": LocalTraining(local_optimizer=torch.optim.RMSprop),
}


@pytest.fixture(autouse=True)
def deterministic_hardware():
    configure_torch("cuda", "float32", deterministic=True)
    yield
    configure_torch("cuda", "float32", deterministic=False)


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 3))


def batches(device: str):
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(20, 6, generator=generator).to(device)
    y = torch.randint(0, 3, (20,), generator=generator).to(device)
    return [(x[:8], y[:8]), (x[8:16], y[8:16]), (x[16:], y[16:])] * 2  # two shapes


def flat_module(training: LocalTraining, device: str = "cuda") -> FlatModule:
    return FlatModule(network(), nn.functional.cross_entropy, device, training=training)


@pytest.mark.parametrize("recipe", RECIPES)
def test_graphs_take_the_same_steps_as_plain_calls(recipe):
    graphed, plain = flat_module(RECIPES[recipe]), flat_module(RECIPES[recipe])
    plain._graphs = None
    assert (graphed._graphs is None) == (recipe == "factory")
    theta = graphed.theta.clone()
    expected = plain.train(theta, batches("cuda"), 0.01, Key((1,)))
    for _ in range(2):  # the first turn captures, the second only replays, with a fresh optimizer
        loss, local = graphed.train(theta, batches("cuda"), 0.01, Key((1,)))
        assert loss == pytest.approx(expected[0], rel=1e-5)
        torch.testing.assert_close(local, expected[1], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("recipe", RECIPES)
def test_local_training_agrees_with_the_cpu(recipe):
    results = {}
    for device in ("cpu", "cuda"):
        model = flat_module(RECIPES[recipe], device)
        theta = model.theta.clone()
        results[device] = model.train(theta, batches(device), 0.01, Key((1,)))[1].cpu()
    torch.testing.assert_close(results["cuda"], results["cpu"], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("recipe", RECIPES)
def test_any_number_of_workers_gives_the_same_bits(recipe):
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(120, 6, generator=generator)
    y = torch.randint(0, 3, (120,), generator=generator)
    runs = []
    for workers in (1, 3):
        made = aquila.problem(
            nn.Sequential(network(), nn.Dropout(0.2)),
            [(x[m::6], y[m::6]) for m in range(6)],
            batch_size=8,
            training=RECIPES[recipe],
            options=aquila.ProblemOptions(device="cuda"),
        )
        method = aquila.create("aquila", alpha=0.01, work="epochs")
        options = aquila.RunOptions(fleet=made.fleet, workers=workers)
        runs.append(aquila.simulate(method, made.theta0, made.devices, 3, options=options))
    assert torch.equal(runs[0].theta, runs[1].theta)
