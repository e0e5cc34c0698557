import torch

from aquila.tasks.digits import load_digits


def test_all_digits_are_loaded():
    data = load_digits()
    (x, y), (test_x, test_y) = data.train, data.test
    assert x.shape == (1437, 64)
    assert test_x.shape == (360, 64)
    assert x.min() == 0
    assert x.max() == 1
    counts = torch.bincount(torch.cat([y, test_y]))
    assert counts.tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]


def test_seed_chooses_test_images():
    first, again, other = load_digits(0), load_digits(0), load_digits(1)
    assert torch.equal(first.test[0], again.test[0])
    assert not torch.equal(first.test[0], other.test[0])
