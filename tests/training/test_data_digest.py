import numpy as np
import pytest
import torch

import aquila
from aquila.training.data_digest import MAX_BYTES, data_digest


def test_digest_depends_on_every_value_of_small_tensors():
    x, y = torch.randn(50, 3), torch.arange(50)
    first = data_digest((x, y))
    assert len(first) == 8
    assert data_digest((x.clone(), y.clone())) == first
    for changed in ((x + 1, y), (x, y + 1), (x[:49], y[:49]), (x.double(), y), (y, x)):
        assert data_digest(changed) != first
    last = x.clone()
    last[-1, -1] += 1
    assert data_digest((last, y)) != first


def test_digest_ignores_the_layout_in_memory():
    images = torch.randn(6, 3, 4, 4)
    assert data_digest(images.to(memory_format=torch.channels_last)) == data_digest(images)


@pytest.mark.parametrize("row", [0, -1])
def test_large_tensors_are_sampled_with_both_ends(row):
    large = torch.zeros(MAX_BYTES // 1024 * 3, 256)
    before = data_digest(large)
    large[row, 7] = 1
    assert data_digest(large) != before


def test_containers_arrays_and_other_types():
    x = torch.randn(5, 2)
    assert data_digest(x.numpy()) == data_digest(x)
    assert data_digest({"ids": x}) != data_digest({"mask": x})
    assert data_digest([x, x]) != data_digest([x])
    assert data_digest(x.bfloat16()) != data_digest(x.half())
    assert data_digest(torch.tensor(3.0)) != data_digest(torch.tensor(4.0))
    assert data_digest(np.zeros(3, bool)) != data_digest(np.ones(3, bool))


def test_data_that_is_loaded_on_demand_counts_by_its_length():
    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self):
            return iter([(torch.zeros(2), torch.tensor(0))] * 3)

    def digest(data, batch_size=None):
        module = torch.nn.Linear(2, 2)
        return aquila.problem(module, [data], batch_size=batch_size).devices[0].digest

    def loader(length):
        pairs = torch.utils.data.TensorDataset(torch.zeros(length, 2), torch.zeros(length).long())
        return torch.utils.data.DataLoader(pairs, batch_size=2)

    assert digest(loader(4)) == digest(loader(4)) != digest(loader(6))
    assert digest(Stream(), 2) == digest(Stream(), 2) != digest(loader(4))
