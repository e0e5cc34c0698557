"""Batch norms: training ignores running statistics, and trained modules work in eval mode."""

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import aquila

GENERATOR = torch.Generator().manual_seed(0)
X = torch.randn(60, 5, generator=GENERATOR)
Y = (X[:, 0] > 0).long()
SHARDS = [(X[:20], Y[:20]), (X[20:] + 2, Y[20:])]
TEST = (X + 1, Y)
MODES = ["gathered", "averaged", "local"]


def network(tracks=True) -> nn.Module:
    torch.manual_seed(1)
    norm = nn.BatchNorm1d(6, track_running_stats=tracks)
    return nn.Sequential(nn.Linear(5, 6), norm, nn.ReLU(), nn.Linear(6, 2))


def problem(module, mode="gathered", shards=SHARDS):
    options = aquila.ProblemOptions(batch_norm=mode)
    return aquila.problem(module, shards, test=TEST, batch_size=10, options=options)


def train(made):
    method = aquila.create("fedavg", alpha=0.1)
    return aquila.simulate(method, made.theta0, made.devices, rounds=3, evaluate=made.evaluate)


def accuracy(module):
    assert not module.training
    return (module(TEST[0]).argmax(1) == TEST[1]).double().mean().item()


def test_running_statistics_do_not_influence_training():
    other = network()
    other[1].running_mean.fill_(7.0)
    other[1].running_var.fill_(9.0)
    before = copy.deepcopy(other.state_dict())
    runs = [train(problem(module)) for module in (network(False), network(), other)]
    for run in runs[1:]:
        assert torch.equal(run.theta, runs[0].theta)
        assert run.records[-1].metrics == runs[0].records[-1].metrics
    assert all(torch.equal(value, before[name]) for name, value in other.state_dict().items())


@pytest.mark.parametrize("tracks", [True, False])
@pytest.mark.parametrize("mode", MODES[:2])
def test_the_trained_module_works_in_eval_mode(mode, tracks):
    made = problem(network(tracks), mode)
    run = train(made)
    module = made.builder.module_for(run.theta)
    assert accuracy(module) == run.records[-1].metrics["test_accuracy"]
    assert module[1].momentum == 0.1
    loaded = network()
    loaded.load_state_dict(module.state_dict())
    assert accuracy(loaded.eval()) == accuracy(module)


def test_local_metrics_are_the_mean_over_devices():
    made = problem(network(), "local")
    run = train(made)
    own = [made.builder.module_for(run.theta, device) for device in range(2)]
    mean = (accuracy(own[0]) + accuracy(own[1])) / 2
    assert run.records[-1].metrics["test_accuracy"] == pytest.approx(mean)
    assert not torch.equal(own[0][1].running_mean, own[1][1].running_mean)


def test_statistics_of_each_mode():
    modules = {mode: problem(network(), mode).builder for mode in MODES}
    theta = problem(network()).theta0
    first = network()[0]
    hidden = [first(x).detach() for x, _ in SHARDS]

    def statistics(mode, device=None):
        norm = modules[mode].module_for(theta, device)[1]
        return norm.running_mean, norm.running_var

    pooled = torch.cat(hidden)
    torch.testing.assert_close(statistics("gathered"), (pooled.mean(0), pooled.var(0)))
    for device, own in enumerate(hidden):
        torch.testing.assert_close(statistics("local", device), (own.mean(0), own.var(0)))
        torch.testing.assert_close(statistics("averaged", device), statistics("averaged"))
    mean = (hidden[0].mean(0) + hidden[1].mean(0)) / 2
    between = sum((own.mean(0) - mean) ** 2 for own in hidden) / 2
    variance = sum(own.var(0) for own in hidden) / 2 + between
    torch.testing.assert_close(statistics("averaged"), (mean, variance))
    torch.testing.assert_close(statistics("local"), statistics("averaged"))


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**31), st.integers(2, 5))
def test_averaged_statistics_of_equal_devices_are_those_of_one(seed, devices):
    x = torch.randn(12, 5, generator=torch.Generator().manual_seed(seed))
    shard = x, torch.zeros(12).long()
    one, many = (problem(network(), "averaged", [shard] * count) for count in (1, devices))
    norms = [made.builder.module_for(made.theta0)[1] for made in (one, many)]
    torch.testing.assert_close(norms[0].running_mean, norms[1].running_mean)
    torch.testing.assert_close(norms[0].running_var, norms[1].running_var)


@pytest.mark.parametrize("mode", MODES)
def test_statistics_of_data_sets_are_those_of_their_tensors(mode):
    made = [problem(network(), mode, [form(pair) for pair in SHARDS]) for form in FORMS]
    for device in (None, 1):
        norms = [each.builder.module_for(each.theta0, device)[1] for each in made]
        for norm in norms[1:]:
            assert torch.equal(norm.running_mean, norms[0].running_mean)
            assert torch.equal(norm.running_var, norms[0].running_var)


FORMS = [tuple, lambda pair: TensorDataset(*pair)]


def test_images_of_data_sets_may_have_several_sizes():
    images = [torch.randn(8, 3, size, size, generator=GENERATOR) for size in (8, 12)]
    pairs = [(x, torch.arange(8) % 2) for x in images]
    layers = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    module = nn.Sequential(*layers, nn.Linear(4, 2))
    norms = [
        made.load(made.theta0)[1]
        for made in (aquila.problem(module, [form(pair) for pair in pairs]) for form in FORMS)
    ]
    assert torch.equal(norms[0].running_mean, norms[1].running_mean)


def test_statistics_of_a_loader_are_those_of_its_batches():
    loaders = [DataLoader(TensorDataset(*pair), batch_size=10) for pair in SHARDS]
    options = aquila.ProblemOptions(batch_norm="gathered")
    made = aquila.problem(network(), loaders, options=options)
    hidden = network()[0](torch.cat([x for x, _ in SHARDS])).detach().split(10)
    mean = torch.stack([part.mean(0) for part in hidden]).mean(0)
    torch.testing.assert_close(made.builder.module_for(made.theta0)[1].running_mean, mean)


def pretrained() -> nn.Module:
    """A backbone with statistics of other data, and a new head."""
    module = network()
    for _ in range(50):
        module(3 * X)
    module[:2].requires_grad_(False)
    return module


@pytest.mark.parametrize("mode", MODES)
def test_frozen_batch_norms_keep_their_statistics(mode):
    module = pretrained()
    made = problem(module, mode)
    run = train(made)
    trained = made.builder.module_for(run.theta)
    assert torch.equal(trained[1].running_mean, module[1].running_mean)
    assert torch.equal(trained[1].running_var, module[1].running_var)
    assert run.records[-1].metrics["test_accuracy"] == accuracy(trained)

    features = copy.deepcopy(module).eval()[:3]
    shards = [(features(x).detach(), y) for x, y in SHARDS]
    head = aquila.problem(copy.deepcopy(module)[3], shards, batch_size=10)
    alone = aquila.simulate(aquila.create("fedavg", alpha=0.1), head.theta0, head.devices, rounds=3)
    torch.testing.assert_close(run.theta, alone.theta)


def test_batch_norms_in_eval_mode_keep_their_statistics():
    module = pretrained().requires_grad_(True)
    module[1].eval()
    made = problem(module)
    trained = made.builder.module_for(train(made).theta)
    assert torch.equal(trained[1].running_mean, module[1].running_mean)
    assert not torch.equal(trained[1].weight, module[1].weight)


def test_a_loaded_module_in_eval_mode_trains_its_batch_norms():
    module = pretrained().requires_grad_(True).eval()
    made = problem(module)
    trained = made.builder.module_for(made.theta0)
    assert not torch.equal(trained[1].running_mean, module[1].running_mean)


def test_unknown_statistics_are_an_error():
    with pytest.raises(ValueError, match="batch_norm must be one of gathered, averaged, local"):
        aquila.ProblemOptions(batch_norm="running")


@pytest.mark.parametrize(("name", "batch_size"), [("fedavg", 2), ("fedsgd", 1)])
def test_minibatch_of_one_sample_names_the_device(name, batch_size):
    shards = [SHARDS[0], (SHARDS[1][0][:3], SHARDS[1][1][:3])]
    made = aquila.problem(pretrained().requires_grad_(True), shards, batch_size=batch_size)
    device = 1 if name == "fedavg" else 0
    with pytest.raises(
        ValueError, match=f"shard {device} has a minibatch of one sample, but batch"
    ):
        made.train(aquila.create(name), rounds=1)


def test_modules_of_narrow_devices_have_their_width():
    def net(hidden):
        norm = nn.BatchNorm1d(hidden)
        return nn.Sequential(nn.Linear(5, hidden), norm, nn.ReLU(), nn.Linear(hidden, 2))

    options = aquila.ProblemOptions(narrower=[net(3)], groups=[0, 1], batch_norm="local")
    made = aquila.problem(net(6), SHARDS, test=TEST, options=options)
    shapes = [made.builder.module_for(made.theta0, m)[0].weight.shape for m in (None, 0, 1)]
    assert shapes == [(6, 5), (6, 5), (3, 5)]
    assert 0 <= made.evaluate(made.theta0)["test_accuracy"] <= 1
