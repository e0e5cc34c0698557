"""Wrong data raises one sentence that names the shard."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

import aquila
from aquila.core.random import Key

X = torch.randn(8, 5, generator=torch.Generator().manual_seed(0))
Y = torch.arange(8) % 3
RIGHT = (X, Y)


class Samples(Dataset):
    """Returns the same sample for every index."""

    def __init__(self, sample, samples=4):
        self.sample, self.samples = sample, samples

    def __len__(self):
        return self.samples

    def __getitem__(self, index):
        return self.sample


class Ragged(Samples):
    def __getitem__(self, index):
        return torch.zeros(index + 1), 0


class Empty(IterableDataset):
    def __iter__(self):
        return iter(())


class NoLength:
    def __getitem__(self, index):
        return X[0], 0


@pytest.mark.parametrize(
    ("shard", "problem"),
    [
        (X, "shard 1 must be a pair of tensors, .* not a Tensor"),
        ((X, Y, Y), "shard 1 must be a pair of tensors, .* not a tuple of 3"),
        ("data", "shard 1 must be a pair of tensors, .* not a str"),
        (NoLength(), "shard 1 must be .* but a NoLength has no length"),
        ((X[:0], Y[:0]), "shard 1 has 0 inputs and 0 targets; each device needs at least one"),
        ((X, Y[:7]), "shard 1 has 8 inputs and 7 targets"),
        ((X, Y.tolist()), "shard 1 has targets of type list; they must be tensors or NumPy"),
        ((np.array(["a"]), np.array([0])), "shard 1 has inputs of NumPy type <U1, which torch"),
        (({}, Y), "shard 1 has an empty dict of inputs"),
        (((X, X), Y), "shard 1 has a tuple of 2 as inputs, but shard 0 has a Tensor"),
        (({"x": X}, Y), "shard 1 has a dict of x as inputs, but shard 0 has a Tensor"),
        ({"x": X}, "shard 1 has no targets, but shard 0 has targets"),
        ((X.double(), Y), "shard 1 has float64 inputs, but shard 0 has float32"),
        ((X.to("meta"), Y), "shard 1 has inputs on meta, but shard 0 has inputs on cpu"),
        ((X, Y.to("meta")), "shard 1 has targets on meta, but shard 0 has inputs on cpu"),
        ((X, Y + 1), "shard 1 has target 3, but the module has outputs for the classes 0 to 2"),
        (TensorDataset(X[:0], Y[:0]), "shard 1 is a Dataset without samples"),
        (Samples(X[0]), "shard 1 is a Dataset whose samples must be pairs, .* not a Tensor"),
        (Samples((X[0], 0, 0)), "shard 1 is a Dataset whose .* not a tuple of 3"),
        (Samples((X[0], 3)), "shard 1 has target 3"),
        (Samples((object(), 0)), "shard 1 is a Dataset whose samples do not stack to a batch"),
        (Ragged(None), "shard 1 is a Dataset whose samples do not stack to a batch"),
        (DataLoader(Empty()), "shard 1 is a DataLoader that yields no batch"),
        (DataLoader(Samples(X[0])), "shard 1 must be a pair of tensors"),
        (DataLoader(Samples((X[0], 3))), "shard 1 has target 3"),
    ],
)
def test_errors_name_the_shard(shard, problem):
    with pytest.raises(ValueError, match=problem):
        aquila.problem(nn.Linear(5, 3), [RIGHT, shard], batch_size=4)


def test_errors_name_the_test_samples():
    with pytest.raises(ValueError, match="test is a Dataset without samples"):
        aquila.problem(nn.Linear(5, 3), [RIGHT], test=TensorDataset(X[:0], Y[:0]))


def test_a_wrong_target_is_found_when_it_is_read():
    y = Y.clone()
    y[7] = 9
    made = aquila.problem(nn.Linear(5, 3), [RIGHT, TensorDataset(X, y)], batch_size=4)
    with pytest.raises(ValueError, match="shard 1 has target 9, but the module has outputs"):
        made.devices[1].oracle(Key((0, 0, 1))).train(made.theta0, 0.1)


def test_a_loader_has_its_own_batch_size():
    with pytest.raises(ValueError, match="batch_size must be None if all shards are DataLoaders"):
        aquila.problem(nn.Linear(5, 3), [DataLoader(TensorDataset(X, Y))], batch_size=2)


def test_masks_of_classes_need_tensors():
    options = aquila.ProblemOptions(classes=3)
    with pytest.raises(ValueError, match="shard 0 must be a pair of tensors if classes is set"):
        aquila.problem(nn.Linear(5, 3), [TensorDataset(X, Y)], options=options)


def test_samples_without_targets_need_a_loss_of_the_module():
    class Named(nn.Linear):
        def forward(self, x):
            return {"logits": super().forward(x)}

    with pytest.raises(ValueError, match="the outputs of the module have no loss; add labels"):
        aquila.problem(Named(5, 3), [{"x": X}])
