"""The outer loop on real processes that are connected by gloo."""

import json
import re
from dataclasses import replace

import pytest
import torch
import torch.distributed as dist
from torch import nn

import aquila
from aquila.distributed import Exchange, ExchangeError, Outer
from aquila.distributed.buffers import FlatBuffers
from aquila.methods.marina import MarinaDevice
from helpers.rank_training import local_step, make_model, train, weights
from helpers.ranks import run_ranks

ROUNDS = 4
METHODS = ("aquila_topk", "qsgd:bits=4", "sparseloco", "fedavg", "aquila", "powersgd", "eden")


def all_methods():
    results = {}
    for method in METHODS:
        model = make_model()
        outer = Outer(model, method, every=5, server_optimizer="nesterov", server_lr=0.7)
        loss = train(outer, model, 5 * ROUNDS)
        lines = [json.dumps(record.to_dict()) for record in outer.records]
        results[method] = weights(model).numpy(), loss, outer.bytes_sent, lines
    return results


def test_ranks_stay_equal_with_every_kind_of_method(tmp_path):
    first, second = run_ranks(tmp_path, all_methods)
    start = weights(make_model())
    for method in METHODS:
        ours, theirs = torch.tensor(first[method][0]), torch.tensor(second[method][0])
        assert torch.equal(ours, theirs), method
        assert not torch.equal(ours, start), method
        records = [json.loads(line) for line in first[method][3]]
        assert [record["round"] for record in records] == list(range(ROUNDS))
        assert sum(record["bytes_sent"] for record in records) == first[method][2]
        others = [json.loads(line)["bytes_sent"] for line in second[method][3]]
        assert [record["bytes_received"] for record in records] == others
    dense = first["fedavg"]
    assert dense[2] > ROUNDS * 4 * start.numel()
    assert first["aquila_topk"][2] < dense[2] / 4
    assert first["qsgd:bits=4"][1] < 1.0


def dense_average():
    model, alone = make_model(), make_model()
    outer = Outer(model, "fedavg", every=3)
    train(outer, model, 3)
    for step in range(3):
        local_step(alone, step)
    mean = weights(alone)
    dist.all_reduce(mean)
    return weights(model).numpy(), (mean / 2).numpy()


def test_dense_frames_average_the_models(tmp_path):
    for ours, mean in run_ranks(tmp_path, dense_average):
        assert torch.allclose(torch.tensor(ours), torch.tensor(mean), atol=1e-6)


class Tied(nn.Module):
    """Has a tied, a frozen and a narrow parameter, and a batch norm."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(6, 6)
        self.second = nn.Linear(6, 6)
        self.second.weight = self.first.weight
        self.norm = nn.BatchNorm1d(6)
        self.frozen = nn.Linear(6, 3).requires_grad_(False)
        self.scale = nn.Parameter(torch.ones(6, dtype=torch.bfloat16))

    def forward(self, x):
        return self.frozen(self.norm(self.second(self.first(x))) * self.scale.float())


def unusual_module():
    torch.manual_seed(0)
    model = Tied()
    frozen = model.frozen.weight.clone()
    outer = Outer(model, "qsgd:bits=8", every=2)
    train(outer, model, 3)
    assert outer.finish() is not None
    assert outer.finish() is None
    equal = torch.equal(model.frozen.weight, frozen)
    means = [model.norm.running_mean.clone()]
    outer.average_buffers()
    means.append(model.norm.running_mean.clone())
    dtype = model.scale.dtype == torch.bfloat16
    tied = model.first.weight is model.second.weight
    parts = [weights(model).numpy(), *(mean.numpy() for mean in means)]
    return equal, dtype, tied, len(outer.records), parts


def test_tied_frozen_and_narrow_parameters_and_buffers(tmp_path):
    first, second = run_ranks(tmp_path, unusual_module)
    assert first[:4] == second[:4] == (True, True, True, 2)
    (ours, own_mean, mean), (theirs, other_mean, same_mean) = first[4], second[4]
    assert (ours == theirs).all()
    assert (own_mean != other_mean).any()
    assert (mean == same_mean).all()
    assert torch.allclose(torch.tensor(mean), torch.tensor((own_mean + other_mean) / 2))


def average_wide_buffers():
    model = nn.BatchNorm1d(4)
    fine = torch.tensor([1 / 3, 1 + dist.get_rank() * 2**-40], dtype=torch.float64)
    model.register_buffer("fine", fine)
    model.running_mean += dist.get_rank()
    outer = Outer(model, "fedavg")
    outer.average_buffers()
    return model.fine.tolist(), model.running_mean.tolist(), outer.bytes_sent


def test_float64_buffers_keep_their_precision(tmp_path):
    for fine, mean, sent in run_ranks(tmp_path, average_wide_buffers):
        assert fine == [1 / 3, 1 + 2**-41]
        assert mean == [0.5] * 4
        assert sent > 8 * (2 + 2 * 4)


class DamagingExchange(Exchange):
    """Damages what rank 1 sends, on rank 0."""

    def gather_bodies(self, body, lengths):
        bodies = super().gather_bodies(body, lengths)
        if self.rank == 0:
            bodies[1] = bodies[1][:-1] + bytes([bodies[1][-1] ^ 1])
        return bodies


def average_damaged_buffers():
    model = nn.BatchNorm1d(4)
    model.running_mean += dist.get_rank()
    with pytest.raises(ExchangeError) as error:
        Outer(model, "fedavg", exchange=DamagingExchange()).average_buffers()
    return str(error.value), model.running_mean[0].item()


def test_damaged_buffers_are_refused_by_all_ranks(tmp_path):
    message = "the buffers of ranks [1] are damaged"
    assert run_ranks(tmp_path, average_damaged_buffers) == [(message, 0.0), (message, 1.0)]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
def test_buffers_on_two_devices():
    model = nn.BatchNorm1d(4)
    model.register_buffer("other", torch.full((2,), 3.0, device="cuda"))
    buffers = FlatBuffers(model)
    buffers.write(buffers.read() + 1)
    assert model.running_mean.tolist() == [1.0] * 4
    assert model.other.is_cuda
    assert model.other.tolist() == [4.0] * 2


def raised_by(folder, function, *arguments):
    """Return what a function raises in a world of one rank."""
    (error,) = run_ranks(folder, function, *arguments, ranks=1)
    assert isinstance(error, ValueError | RuntimeError), error
    return str(error)


def test_outer_needs_an_initialized_process_group():
    with pytest.raises(RuntimeError, match=r"init_process_group\(\) first"):
        Outer(make_model(), "fedavg")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"method": "qsdg"}, "there is no method 'qsdg'; did you mean 'qsgd'"),
        ({"method": "qsgd:bits"}, "'bits' is not of the form parameter=value"),
        ({"method": "qsgd:alpha=0.1"}, "alpha is 0.1, but leave alpha out or set it to 1; use"),
        ({"method": "aqed"}, "aqed needs a link model, which only the simulator has"),
        ({"method": "marina:p=0.01"}, "marina: the method needs gradients or losses at other"),
        ({"method": "adagq"}, "adagq: the method needs gradients or losses at other models"),
        ({"method": "fedavg", "every": 0}, "every must be a whole number >= 1, not 0"),
        ({"method": "fedavg", "seed": -1}, "seed must be a whole number >= 0"),
        ({"method": "fedavg", "server_rl": 1.0}, "no option 'server_rl'; did you mean 'server_lr'"),
        ({"method": "fedavg", "schedule": "cosine:3"}, "no option 'schedule'"),
    ],
)
def test_invalid_arguments(tmp_path, arguments, sentence):
    assert re.search(sentence, raised_by(tmp_path, make_outer, arguments))


def make_outer(arguments):
    Outer(make_model(), **arguments)


def make_outer_of(kind):
    if kind == "frozen":
        model = make_model().requires_grad_(False)
    elif kind == "mixed":
        model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2, device="meta"))
    else:
        model = nn.Module()
        model.weight = nn.Parameter(torch.ones(2, dtype=torch.complex64))
    Outer(model, "fedavg")


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        ("frozen", "no parameters to train"),
        ("mixed", "are on cpu and meta; they must be on one device"),
        ("complex", "a trained parameter is torch.complex64"),
    ],
)
def test_modules_that_cannot_be_trained(tmp_path, kind, sentence):
    assert sentence in raised_by(tmp_path, make_outer_of, kind)


def test_outer_needs_a_module():
    with pytest.raises(TypeError, match=r"model must be a torch\.nn\.Module, not str"):
        Outer("model", "fedavg")


def make_exchange(arguments):
    Exchange(**arguments)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"timeout": float("inf")}, "timeout must be a finite number of seconds above 0, not inf"),
        ({"bandwidth": -1}, "bandwidth must be at least 0 bits per second, not -1"),
    ],
)
def test_invalid_exchange(tmp_path, arguments, sentence):
    assert raised_by(tmp_path, make_exchange, arguments) == sentence


def step_once(loss):
    record = Outer(make_model(), "adaquantfl", every=1).step(loss)
    return record.loss


def test_method_that_needs_the_loss(tmp_path):
    assert "sends the loss; call outer.step(loss)" in raised_by(tmp_path, step_once, None)
    assert run_ranks(tmp_path, step_once, 0.5, ranks=1) == [0.5]


class Undeclared(MarinaDevice):
    """Does not say that it needs other models."""

    needs_other_models = False


def train_undeclared():
    model, made = make_model(), aquila.create("marina", alpha=1)
    device = Undeclared(**vars(made.device))
    train(Outer(model, replace(made, device=device), every=1), model, 5)


def test_method_that_does_not_declare_that_it_needs_two_models(tmp_path):
    message = raised_by(tmp_path, train_undeclared)
    assert "marina: the method needs gradients or losses at other models" in message


def freeze_later():
    model = make_model()
    outer = Outer(model, "fedavg", every=1)
    model[0].bias.requires_grad_(False)
    outer.step()


def test_trained_parameters_must_not_change(tmp_path):
    message = raised_by(tmp_path, freeze_later)
    assert "other parameters require gradients than at the start" in message
