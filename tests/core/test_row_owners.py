"""Averages over the owners of rows, against numbers computed by hand and a slow loop."""

import numpy as np
import pytest
import torch

from aquila.core.fleet import Fleet

# one hidden tensor of two numbers, then an output layer of three classes with two inputs
SHAPES = [torch.Size([2]), torch.Size([3, 2]), torch.Size([3])]
OWNED = [[True, True, False], [False, True, False]]


def rows(mask):
    mask = torch.tensor(mask)
    return {1: mask, 2: mask}


@pytest.fixture
def fleet():
    return Fleet(11, [0, 0], shapes=[SHAPES]).with_owned_rows([rows(mask) for mask in OWNED])


def vectors(*values):
    return {m: torch.full((11,), value) for m, value in enumerate(values)}


def test_mean_by_hand(fleet):
    """Device 0 sends ones and owns classes 0 and 1. Device 1 sends threes and owns class 1."""
    mean = fleet.mean(vectors(1.0, 3.0).items(), fleet.devices)
    # hidden: 2 and 2; class 0: device 0 alone; class 1: both; class 2: nobody
    assert mean.tolist() == [2, 2, 1, 1, 2, 2, 0, 0, 1, 2, 0]
    one = fleet.mean(vectors(1.0, 3.0).items(), [0, 1])
    assert torch.equal(one, fleet.mean_over_holders(vectors(1.0, 3.0).items()))


def test_device_that_skips_counts_only_for_its_own_rows(fleet):
    sent = {0: torch.full((11,), 1.0)}
    mean = fleet.mean(sent.items(), [0, 1])
    assert mean.tolist() == [0.5, 0.5, 1, 1, 0.5, 0.5, 0, 0, 1, 0.5, 0]
    alone = fleet.mean(sent.items(), [0])
    assert alone.tolist() == [1, 1, 1, 1, 1, 1, 0, 0, 1, 1, 0]


def test_weights_apply_to_the_owners(fleet):
    weighted = fleet.with_weights([1.0, 3.0]).mean(vectors(1.0, 5.0).items(), [0, 1])
    assert weighted.tolist() == [4, 4, 1, 1, 4, 4, 0, 0, 1, 4, 0]


def test_holders_by_hand(fleet):
    held = [1, 1, 1, 1, 1, 1, 0, 0, 1, 1, 0]
    assert fleet.coordinate_mask([0, 1]).int().tolist() == held
    assert fleet.coordinate_mask([1]).int().tolist() == [1, 1, 0, 0, 1, 1, 0, 0, 0, 1, 0]


def test_narrow_devices_own_rows_of_their_own_columns():
    """The narrow device holds the first hidden number and the first column of the output layer."""
    slices = [None, torch.tensor([0, 2, 4, 6, 8, 9, 10])]
    narrow = [torch.Size([1]), torch.Size([3, 1]), torch.Size([3])]
    fleet = Fleet(11, [0, 1, 1], slices, shapes=[SHAPES, narrow])
    masks = [[True, False, True], [True, True, False], [False, True, True]]
    fleet = fleet.with_owned_rows([rows(mask) for mask in masks])
    generator = np.random.default_rng(3)
    sent = {m: generator.normal(size=fleet.dimension_of(m)) for m in fleet.devices}
    total, count = np.zeros(11), np.zeros(11)
    for m, vector in sent.items():
        held = range(11) if m == 0 else slices[1].tolist()
        for value, coordinate in zip(vector, held, strict=True):
            row = (coordinate - 2) // 2 if coordinate < 8 else coordinate - 8
            if coordinate < 2 or masks[m][row]:
                total[coordinate] += value
                count[coordinate] += 1
    assert set(count) == {0, 1, 2, 3}
    mean = fleet.mean_over_holders((m, torch.from_numpy(v)) for m, v in sent.items())
    np.testing.assert_allclose(mean, total / np.maximum(count, 1), rtol=1e-12)


def test_owners_are_identified(fleet):
    other = fleet.with_owned_rows([rows(OWNED[1]), rows(OWNED[0])])
    assert fleet.owners.digest != other.owners.digest
    assert fleet.with_weights([1, 2]).owners is fleet.owners


@pytest.mark.parametrize(
    ("owned", "message"),
    [
        ([rows(OWNED[0])], "1 devices own rows, but the fleet has 2"),
        ([rows(OWNED[0]), {1: torch.tensor(OWNED[1])}], r"device 1 owns rows of the tensors \[1\]"),
        ([{}, {}], "at least one"),
        ([{7: torch.tensor(OWNED[0])}] * 2, "the fleet states 3 tensors; pass RunOptions"),
        ([{1: torch.tensor([True])}] * 2, r"must be \(3,\) bool, not \(1,\)"),
        ([{1: torch.ones(3)}] * 2, r"must be \(3,\) bool, not \(3,\) torch.float32"),
    ],
)
def test_wrong_rows_are_refused(owned, message):
    with pytest.raises(ValueError, match=message):
        Fleet(11, [0, 0], shapes=[SHAPES]).with_owned_rows(owned)
