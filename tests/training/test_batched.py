from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn

import aquila
from aquila.sim.problem import Problem
from aquila.training.batched import BatchedGradients
from aquila.training.flat_module import FlatModule
from aquila.training.inputs import channels_last

SHAPES = {"one size": [20] * 9, "two sizes": [12, 7] * 5, "one of its size": [12] * 4 + [5]}


def made(sizes, module=None, **options) -> Problem:
    draw = torch.Generator().manual_seed(1)
    shards = [
        (torch.randn(n, 64, generator=draw), torch.randint(0, 3, (n,), generator=draw))
        for n in sizes
    ]
    torch.manual_seed(0)
    return aquila.problem(module or nn.Linear(64, 3), shards, **options)


def run(problem, method="aquila", rounds=4):
    created = aquila.create(method, alpha=0.1)
    return aquila.simulate(
        created,
        problem.theta0,
        problem.devices,
        rounds=rounds,
        options=aquila.RunOptions(fleet=problem.fleet, workers=1),
    )


@pytest.fixture(autouse=True)
def trial_in_first_round(monkeypatch):
    monkeypatch.setattr("aquila.training.batched.MIN_GRADIENTS", 0)


@pytest.fixture
def passes(monkeypatch):
    """Number of devices in each pass."""
    counts, one_pass = [], BatchedGradients._one_pass

    def counted(self, devices, theta):
        counts.append(len(devices))
        return one_pass(self, devices, theta)

    monkeypatch.setattr(BatchedGradients, "_one_pass", counted)
    monkeypatch.setattr("aquila.training.batched.time", Clock())
    return counts


class Clock:
    """A clock on which separate passes take two seconds and one pass takes one."""

    def __init__(self):
        self.readings = 0

    def thread_time(self):
        self.readings += 1
        return {1: 0.0, 2: 2.0, 0: 3.0}[self.readings % 3]


@pytest.fixture
def unbatched(monkeypatch):
    """Let devices compute separately."""
    monkeypatch.setattr(BatchedGradients, "gradient", lambda self, device, theta: None)


@pytest.mark.parametrize("sizes", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("method", ["aquila", "marina", "fedsgd", "fedavg"])
def test_run_has_the_same_bits_as_separate_passes(request, passes, method, sizes):
    run_batched = run(made(sizes), method)
    request.getfixturevalue("unbatched")
    run_unbatched = run(made(sizes), method)
    assert run_batched.theta.equal(run_unbatched.theta)
    assert [r.loss for r in run_batched.records] == [r.loss for r in run_unbatched.records]
    assert bool(passes) == (method != "fedavg")  # local epochs cannot be batched


def test_each_device_gets_its_own_loss():
    loss = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 5.0, 20.0]))
    problem, module = made([12] * 5, loss=loss), nn.Linear(64, 3)
    nn.utils.vector_to_parameters(problem.theta0, module.parameters())
    batched = BatchedGradients(problem.devices[0].models.original)
    joint = batched._one_pass(problem.devices, problem.theta0)
    for device, found in zip(problem.devices, joint, strict=True):
        x, y = device.tensors
        value = loss(module(x), y)
        expected = torch.autograd.grad(value, list(module.parameters()))
        assert found.loss == pytest.approx(float(value.detach()))
        flat = torch.cat([part.flatten() for part in expected])
        torch.testing.assert_close(found.gradient, flat)


@pytest.mark.parametrize("rounds", [3, 4])
def test_a_trial_is_made_once_it_pays(passes, monkeypatch, rounds):
    monkeypatch.setattr("aquila.training.batched.MIN_GRADIENTS", 36)
    run(made([12] * 9), rounds=rounds)
    assert bool(passes) == (rounds == 4)


@pytest.fixture
def any_rounding(monkeypatch):
    """Use passes even where the processor's arithmetic rounds them differently."""
    monkeypatch.setattr("aquila.training.batched._same_bits", lambda one, other: True)


@pytest.mark.usefixtures("any_rounding")
def test_devices_of_one_shape_share_a_pass(passes):
    problem = made([12] * 5 + [7] * 3)
    run(problem)
    passes.clear()  # passes of the trial
    run(problem, rounds=2)
    assert passes == [5, 3, 5, 3]


@pytest.mark.usefixtures("any_rounding")
def test_passes_are_nearly_equal_and_bounded(passes, monkeypatch):
    monkeypatch.setattr("aquila.training.batched.MAX_PASS_DEVICES", 4)
    problem = made([12] * 9)
    run(problem)
    passes.clear()
    run(problem, rounds=1)
    assert passes == [3, 3, 3]


def test_passes_that_round_differently_are_not_used(passes, unbatched, monkeypatch):
    expected = run(made([12] * 9)).theta
    monkeypatch.undo()

    one_pass = BatchedGradients._one_pass

    def nearly(self, devices, theta):
        joint = one_pass(self, devices, theta)
        return [found._replace(gradient=found.gradient * 1.0000001) for found in joint]

    monkeypatch.setattr(BatchedGradients, "_one_pass", nearly)
    monkeypatch.setattr("aquila.training.batched.time", Clock())
    assert run(made([12] * 9)).theta.equal(expected)


class BranchesOnNumbers(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(64, 3)

    def forward(self, x):
        return self.layer(x) if x.sum() > 0 else self.layer(x) * 2


class CallsALayerTwice(BranchesOnNumbers):
    def forward(self, x):
        return self.layer(x) + self.layer(2 * x)


class MixesSamples(BranchesOnNumbers):
    def forward(self, x):
        return self.layer(x - x.mean(0))


class HasAnotherParameter(BranchesOnNumbers):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(3))

    def forward(self, x):
        return self.layer(x) * self.scale


@pytest.mark.parametrize(
    "module", [BranchesOnNumbers, CallsALayerTwice, MixesSamples, HasAnotherParameter]
)
def test_other_modules_compute_separately(request, passes, module):
    torch.manual_seed(2)
    chosen = module()
    problem = made([12] * 6, chosen)
    found = run(problem, rounds=2).theta
    assert not any(problem.devices[0].batched._worth_batching.values())
    request.getfixturevalue("unbatched")
    assert found.equal(run(made([12] * 6, chosen), rounds=2).theta)


def test_deep_networks_are_batched(request, passes):
    torch.manual_seed(2)
    deep = nn.Sequential(nn.Linear(64, 16), nn.Tanh(), nn.Linear(16, 8, bias=False), nn.ReLU())
    deep.append(nn.Linear(8, 3))
    problem = made([12] * 6, deep)
    found = run(problem, rounds=2).theta
    assert passes
    request.getfixturevalue("unbatched")
    assert found.equal(run(made([12] * 6, deep), rounds=2).theta)


@pytest.mark.parametrize(
    "options",
    [
        {"batch_size": 4},
        {"options": aquila.ProblemOptions(classes=3)},
        {"options": aquila.ProblemOptions(precision="bf16")},
    ],
    ids=str,
)
def test_only_full_gradients_in_float32_are_batched(passes, options):
    run(made([12] * 6, **options), rounds=2)
    assert passes == []


def test_module_with_dropout_is_not_batched(passes):
    run(made([12] * 6, nn.Sequential(nn.Linear(64, 3), nn.Dropout(0.1))), rounds=2)
    assert passes == []


def test_last_minibatch_accuracy_belongs_to_the_last_device(request, passes):
    test = torch.randn(5, 64), torch.randint(0, 3, (5,))
    accuracies = []
    for _ in range(2):
        problem = made([12] * 6, test=test)
        run(problem)
        accuracies.append(problem.evaluate(problem.theta0))
        request.getfixturevalue("unbatched")
    assert accuracies[0] == accuracies[1]


def test_large_batch_is_split_into_passes_that_fit_the_cache():
    cnn = aquila.tasks.build_model("cnn")
    flat = FlatModule(cnn, nn.functional.cross_entropy)
    x, y = channels_last(torch.randn(300, 1, 28, 28)), torch.randint(0, 10, (300,))
    key = aquila.core.random.Key((0,))
    whole = flat.gradient(flat.theta.clone(), (x, y), key)
    flat.probe(x[:2])
    seen = []
    flat.module.register_forward_hook(lambda module, given, out: seen.append(len(out)))
    in_parts = flat.gradient(flat.theta.clone(), (x, y), key)
    assert seen == [100, 100, 100]
    assert in_parts[0] == pytest.approx(whole[0], rel=1e-5)
    torch.testing.assert_close(in_parts[1], whole[1], rtol=1e-3, atol=1e-6)


def test_run_continues_after_an_interrupt(passes, monkeypatch):
    problem, submit, calls = made([12] * 9), ThreadPoolExecutor.submit, []

    def interrupted_once(self, *work):
        calls.append(work)
        if len(calls) == 1:
            raise KeyboardInterrupt
        return submit(self, *work)

    monkeypatch.setattr(ThreadPoolExecutor, "submit", interrupted_once)
    with pytest.raises(KeyboardInterrupt):
        run(problem)
    assert run(problem).theta.equal(run(made([12] * 9)).theta)
    assert passes
