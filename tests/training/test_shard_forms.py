"""The same samples give the same run in every form: tensors, arrays, data sets, loaders."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    SubsetRandomSampler,
    TensorDataset,
)

import aquila
from aquila.core.random import Key

X = torch.randn(36, 5, generator=torch.Generator().manual_seed(0))
Y = torch.arange(36) % 3
PAIRS = [(X[m::3], Y[m::3]) for m in range(3)]


def network(*extra: nn.Module) -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(5, 7), *extra, nn.Tanh(), nn.Linear(7, 3))


class Listed:
    """A map-style data set that does not inherit from torch's."""

    def __init__(self, x, y):
        self.x, self.y = x, y

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        return self.x[index], self.y[index]


FORMS = {
    "tensors": lambda x, y: (x, y),
    "list": lambda x, y: [x, y],
    "arrays": lambda x, y: (x.numpy(), y.numpy()),
    "double arrays": lambda x, y: (x.double().numpy(), y.numpy().astype(np.int32)),
    "data set": TensorDataset,
    "data set of numbers": lambda x, y: Listed(x, y.tolist()),
    "data set of arrays": lambda x, y: Listed(x.double().numpy(), y.numpy()),
}


def train(shards, work="epochs", options=aquila.RunOptions(), module=None, **arguments):
    made = aquila.problem(module or network(), shards, **{"batch_size": 5, **arguments})
    method = aquila.create("qsgd", alpha=0.1, work=work)
    return aquila.simulate(method, made.theta0, made.devices, rounds=3, options=options)


@pytest.mark.parametrize("work", ["gradient", "epochs"])
@pytest.mark.parametrize("batch_size", [5, None])
@pytest.mark.parametrize("form", list(FORMS)[1:])
def test_every_form_gives_the_same_bits(form, batch_size, work):
    options = aquila.RunOptions(executor="sequential")
    shards = [FORMS[form](*pair) for pair in PAIRS]
    expected = train(PAIRS, work, options, batch_size=batch_size)
    found = train(shards, work, options, batch_size=batch_size)
    assert torch.equal(found.theta, expected.theta)
    assert [record.loss for record in found.records] == [r.loss for r in expected.records]


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 9), st.integers(0, 2**30), st.integers(1, 12))
def test_a_data_set_has_the_minibatches_of_its_tensors(size, seed, samples):
    pair = X[:samples], Y[:samples]
    batches = [
        list(
            aquila.problem(network(), [shard], batch_size=size)
            .devices[0].oracle(Key((seed, 1, 0))).batches(0)
        )
        for shard in (pair, TensorDataset(*pair))
    ]  # fmt: skip
    for (x, y), (other_x, other_y) in zip(*batches, strict=True):
        assert torch.equal(x, other_x)
        assert torch.equal(y, other_y)


@pytest.mark.parametrize("form", FORMS)
def test_test_samples_may_have_every_form(form):
    made = aquila.problem(network(), PAIRS, test=FORMS[form](X, Y))
    expected = aquila.problem(network(), PAIRS, test=(X, Y)).evaluate(made.theta0)
    assert made.evaluate(made.theta0) == pytest.approx(expected, rel=1e-6)


class Counting(Dataset):
    """Counts the samples that are read."""

    def __init__(self, samples):
        self.samples, self.read = samples, 0

    def __len__(self):
        return self.samples

    def __getitem__(self, index):
        self.read += 1
        return X[index % 36], int(Y[index % 36])


def test_samples_of_a_data_set_are_read_when_they_are_needed():
    data = Counting(100_000)
    made = aquila.problem(network(), [data], batch_size=4)
    before = data.read
    made.devices[0].oracle(Key((0, 0, 0))).gradient(made.theta0)
    assert before <= 2
    assert data.read == before + 4


def batches_of(problem, key, epoch=0):
    return [x.tolist() for x, _ in problem.devices[0].oracle(Key(key)).batches(epoch)]


def shuffling(**options):
    return DataLoader(TensorDataset(X, Y), batch_size=8, shuffle=True, **options)


@pytest.mark.parametrize("with_generator", [False, True])
def test_the_key_determines_the_order_of_a_loader(with_generator):
    generator = torch.Generator() if with_generator else None
    made = aquila.problem(network(), [shuffling(generator=generator)])
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    first = batches_of(made, (1, 0, 0))
    assert torch.equal(torch.rand(1), expected)
    assert batches_of(made, (1, 0, 0)) == first
    assert batches_of(made, (1, 1, 0)) != first
    assert batches_of(made, (1, 0, 0), epoch=1) != first
    assert sorted(sample for batch in first for sample in batch) == sorted(X.tolist())


def test_an_epoch_of_a_loader_is_one_pass_over_its_batches():
    loader = DataLoader(TensorDataset(X, Y), batch_size=8)
    found = train([loader], batch_size=None, epochs=2)
    module = network()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    for x, y in [*loader, *loader]:
        optimizer.zero_grad()
        nn.functional.cross_entropy(module(x), y).backward()
        optimizer.step()
    made = aquila.problem(network(), [loader], epochs=2)
    oracle = made.devices[0].oracle(Key((0, 0, 0)))
    local = made.theta0 - 0.1 * oracle.train(made.theta0, 0.1)[1]
    expected = nn.utils.parameters_to_vector(module.parameters())
    torch.testing.assert_close(local, expected.detach(), rtol=1e-5, atol=1e-6)
    assert len(found.records) == 3


def test_the_gradient_of_a_loader_is_that_of_its_first_batch():
    made = aquila.problem(network(), [DataLoader(TensorDataset(X, Y), batch_size=8)])
    first = aquila.problem(network(), [(X[:8], Y[:8])])
    gradients = [p.devices[0].oracle(Key((0,))).gradient(p.theta0)[1] for p in (made, first)]
    assert torch.equal(*gradients)


class Stream(IterableDataset):
    """Yields samples without a known length."""

    def __init__(self, count=20):
        self.count = count

    def __iter__(self):
        return ((X[n % 36], Y[n % 36]) for n in range(self.count))


def test_streams_train_but_have_no_number_of_samples():
    made = aquila.problem(network(), [DataLoader(Stream(), batch_size=4), DataLoader(Stream(9))])
    shard = made.devices[0]
    assert shard.samples is None
    with pytest.raises(ValueError, match="shard 0 is a stream without a length"):
        shard.oracle(Key((0,))).samples  # noqa: B018
    method = aquila.create("qsgd", alpha=0.1, work="epochs")
    run = aquila.simulate(method, made.theta0, made.devices, rounds=2)
    assert run.theta.isfinite().all()
    assert repr(made) == "Problem(66 parameters, 2 devices)"


def test_an_iterable_data_set_uses_the_batch_size():
    direct = train([Stream()], batch_size=4)
    loader = train([DataLoader(Stream(), batch_size=4)], batch_size=None)
    assert torch.equal(direct.theta, loader.theta)
    with pytest.raises(ValueError, match="shard 0 is an IterableDataset, which needs a batch_size"):
        aquila.problem(network(), [Stream()])


def test_samples_are_the_length_of_the_data():
    forms = [PAIRS[0], TensorDataset(X, Y), DataLoader(TensorDataset(X, Y), batch_size=5)]
    made = aquila.problem(network(), forms, batch_size=4)
    assert [shard.samples for shard in made.devices] == [12, 36, 36]
    assert [shard.oracle(Key((0,))).samples for shard in made.devices] == [12, 36, 36]


LOADERS = {
    "sampler": ({"batch_size": 5, "sampler": SubsetRandomSampler(range(7))}, 7),
    "incomplete batch left out": ({"batch_size": 5, "drop_last": True}, 35),
    "batch sampler": ({"batch_sampler": BatchSampler(range(11), 4, drop_last=True)}, 8),
    "list of batches": ({"batch_sampler": [[0, 1], [2, 3, 4]]}, None),
}


@pytest.mark.parametrize(("arguments", "samples"), LOADERS.values(), ids=LOADERS)
def test_samples_of_a_loader_are_those_that_it_yields(arguments, samples):
    made = aquila.problem(network(), [DataLoader(TensorDataset(X, Y), **arguments)])
    assert made.devices[0].samples == samples
    read = sum(len(y) for _, y in made.devices[0].oracle(Key((0, 0, 0))).batches(0))
    assert read == (samples or 5)


def test_ignored_test_targets_do_not_count_in_any_form():
    y = torch.where(torch.arange(36) < 20, -100, Y)
    loader = DataLoader(TensorDataset(X, y), batch_size=16)  # the first batch is all ignored
    expected, found = (
        made.evaluate(made.theta0)
        for made in (aquila.problem(network(), PAIRS, test=test) for test in ((X, y), loader))
    )
    assert found == pytest.approx(expected, rel=1e-6)


class Noisy(TensorDataset):
    """Adds noise from torch's generator, as transforms do."""

    def __getitem__(self, index):
        x, y = super().__getitem__(index)
        return x + torch.randn(5), y


@pytest.mark.parametrize("extra", [(), (nn.Dropout(0.5),)])
def test_random_transforms_depend_on_the_key(extra):
    made = aquila.problem(network(*extra), [Noisy(X, Y)], batch_size=4)
    shard = made.devices[0]
    gradients = [shard.oracle(Key((k, 0, 0))).train(made.theta0, 0.1)[1] for k in (1, 1, 2)]
    assert torch.equal(gradients[0], gradients[1])
    assert not torch.equal(gradients[0], gradients[2])


def test_batches_of_workers_depend_on_the_key():
    loader = DataLoader(Noisy(X, Y), batch_size=8, shuffle=True, num_workers=1)
    made = aquila.problem(network(), [loader])
    first, again, other = (batches_of(made, (key, 0, 0)) for key in (1, 1, 2))
    assert first == again
    assert first != other


def test_data_sets_do_not_run_on_threads():
    made = aquila.problem(network(), [TensorDataset(X, Y)] * 2, batch_size=4)
    assert not made.devices[0].thread_safe
    with pytest.raises(ValueError, match="Dataset or DataLoader"):
        aquila.Simulation(
            aquila.create("fedsgd"), made.theta0, made.devices,
            options=aquila.RunOptions(executor="threads", workers=2),
        )  # fmt: skip


def test_data_of_another_length_does_not_resume_a_run(tmp_path):
    options = aquila.RunOptions(out=tmp_path)
    train([TensorDataset(X, Y)], options=options)
    with pytest.raises(ValueError, match="other data"):
        train([TensorDataset(X[1:], Y[1:])], options=aquila.RunOptions(out=tmp_path, resume=True))


def test_a_problem_prints_one_line():
    made = aquila.problem(network(), PAIRS, test=(X, Y))
    assert repr(made) == "Problem(66 parameters, 3 devices with 36 samples, 36 test samples)"
    assert repr(aquila.problem(network(), PAIRS[:1])) == (
        "Problem(66 parameters, 1 device with 12 samples)"
    )
