"""`aquila.split` cuts a user's samples into shards."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import IterableDataset, TensorDataset

import aquila
from aquila.core.random import Key, Purpose
from aquila.tasks.dataset import Dataset
from aquila.tasks.partition import split as split_dataset

X = torch.arange(120.0)[:, None]
Y = torch.arange(120) % 4
SPECS = ["iid", "classes:2", "dirichlet:0.5", "unequal:1", "blocks:20"]


@pytest.mark.parametrize("spec", SPECS)
def test_shards_are_those_of_the_partition(spec):
    data = Dataset((X, Y), (X, Y), 4)
    parts = split_dataset(spec, data, 6, Key((3, Purpose.SPLIT)))
    shards = aquila.split(X, Y, 6, spec, seed=3)
    assert len(shards) == 6
    for part, (x, y) in zip(parts, shards, strict=True):
        assert torch.equal(x, X[part])
        assert torch.equal(y, Y[part])


@given(st.sampled_from(SPECS), st.integers(2, 6).map(lambda n: 2 * n), st.integers(0, 2**40))
def test_every_sample_goes_to_one_device_in_every_form(spec, devices, seed):
    tensors = aquila.split(X, Y, devices, spec, seed=seed)
    assert sorted(torch.cat([x for x, _ in tensors]).flatten().tolist()) == list(range(120))
    arrays = aquila.split(X.numpy(), Y.tolist(), devices, spec, seed=seed)
    subsets = aquila.split(TensorDataset(X, Y), Y, devices, spec, seed=seed)
    dicts = aquila.split({"x": X, "labels": Y}, None, devices, spec, seed=seed)
    for (x, y), (array, classes), subset, batch in zip(
        tensors, arrays, subsets, dicts, strict=True
    ):
        assert isinstance(array, np.ndarray)
        assert x.tolist() == array.tolist() == batch["x"].tolist()
        assert y.tolist() == classes.tolist() == batch["labels"].tolist()
        assert [float(sample) for sample, _ in subset] == x.flatten().tolist()


def test_tuples_of_inputs_are_split():
    for (a, b), y in aquila.split((X, 2 * X), Y, 3):
        assert torch.equal(b, 2 * a)
        assert len(a) == len(y)


def test_classes_may_be_any_integers():
    shards = aquila.split(X, 10 * Y - 7, 4, "classes:1")
    assert sorted(int(y.unique()) for _, y in shards) == [-7, 3, 13, 23]


def test_targets_of_a_data_set_are_found():
    data = TensorDataset(X, Y)
    data.targets = Y.tolist()
    assert sum(map(len, aquila.split(data, None, 5, "dirichlet:1"))) == 120


def test_targets_may_be_a_tuple():
    shards = aquila.split(X, tuple(Y.tolist()), 4)
    expected = aquila.split(X, Y, 4)
    assert all(y.equal(other) for (_, y), (_, other) in zip(shards, expected, strict=True))


class Stream(IterableDataset):
    def __iter__(self):
        yield 0


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ((X, Y, 0), "devices must be a whole number >= 1, not 0"),
        ((X, Y, 121), "120 samples cannot be split among 121 devices"),
        ((X, Y, 4, "dirichlet:-1"), "alpha must be > 0 and <= 1e[+]06, not -1"),
        ((X, Y, 4, "classes:-1"), "classes per device must be from 1 to 4, not -1"),
        ((X, Y, 4, "random"), "there is no split 'random'"),
        ((X, Y[1:], 4), "split got 120 inputs and 119 targets"),
        (({"x": X, "mask": X[1:]}, Y[1:], 4), "split got inputs of the lengths 120, 119"),
        ((X, X, 4, "classes:2"), "needs one class per sample"),
        ((X, X[:, 0], 4, "dirichlet:1"), "needs classes, but the targets are torch.float32"),
        ((TensorDataset(X, Y), None, 4), "a TensorDataset has no targets"),
        (({"x": X}, None, 4), "a dict has no labels"),
    ],
)
def test_invalid_splits_are_errors(arguments, problem):
    with pytest.raises(ValueError, match=problem):
        aquila.split(*arguments)


def test_streams_cannot_be_split():
    with pytest.raises(TypeError, match="a map-style Dataset, not a Stream"):
        aquila.split(Stream(), None, 4)


def test_spec_must_be_text():
    with pytest.raises(TypeError, match="spec must be text such as dirichlet"):
        aquila.split(torch.zeros(4, 2), torch.zeros(4, dtype=torch.int64), 2, 2)


def test_targets_must_be_numbers():
    with pytest.raises(TypeError, match="split needs targets that are numbers"):
        aquila.split(torch.zeros(2, 2), ["cat", "dog"], 2, "classes:1")
