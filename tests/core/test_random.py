"""Keys: equal paths give equal streams, different paths give different streams."""

from itertools import product

import pytest
import torch

from aquila.core.random import Key, Purpose

# every short key over small integers, including keys that differ by a trailing zero
KEYS = [Key(path) for length in range(1, 5) for path in product(range(3), repeat=length)]


def numbers(key):
    return tuple(key.numpy().integers(0, 2**63, 4).tolist())


def torch_numbers(key):
    return tuple(torch.rand(4, generator=key.torch(), dtype=torch.float64).tolist())


@pytest.mark.parametrize("draw", [numbers, torch_numbers])
def test_different_paths_give_different_streams(draw):
    assert len({draw(key) for key in KEYS}) == len(KEYS)


@pytest.mark.parametrize("draw", [numbers, torch_numbers])
def test_equal_paths_give_equal_streams(draw):
    key = Key((7, 3, 2))
    assert draw(key) == draw(key) == draw(Key((7, 3, 2)))


def test_server_and_device_have_different_streams():
    device = Key((7, 3, int(Purpose.SERVER))).child(Purpose.DEVICE)
    assert numbers(Key((7, 3, Purpose.SERVER))) != numbers(device)


def test_child_extends_the_path():
    assert Key((1, 2)).child(3, 4) == Key((1, 2, 3, 4))


def test_purposes_have_different_streams():
    assert len({numbers(Key((1, 2, 3, purpose))) for purpose in Purpose}) == len(Purpose)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_uniform_numbers_are_uniform_in_0_to_1(dtype):
    like = torch.zeros(100_000, dtype=dtype)
    u = Key((1,)).uniform(like)
    assert (u.shape, u.dtype) == (like.shape, dtype)
    assert u.min() >= 0
    assert u.max() < 1
    # five standard deviations of the mean, and of the fraction below 1/4
    assert abs(float(u.mean()) - 0.5) < 5 * (1 / 12 / 100_000) ** 0.5
    assert abs(float((u < 0.25).double().mean()) - 0.25) < 5 * (0.25 * 0.75 / 100_000) ** 0.5
    assert torch.equal(u, Key((1,)).uniform(like))


def test_bernoulli_has_the_given_probability():
    heads = sum(Key((1, i)).bernoulli(0.3) for i in range(2000))
    assert abs(heads - 600) < 5 * (2000 * 0.3 * 0.7) ** 0.5
    assert not any(Key((1, i)).bernoulli(0.0) for i in range(100))
    assert all(Key((1, i)).bernoulli(1.0) for i in range(100))


@pytest.mark.parametrize("count", [0, 1, 4, 10])
def test_sample_is_distinct_and_in_order(count):
    items = [3, 5, 8, 13, 21, 34, 55, 89, 144, 233]
    for i in range(50):
        chosen = Key((i,)).sample(items, count)
        assert len(set(chosen)) == count
        assert list(chosen) == sorted(chosen)
        assert set(chosen) <= set(items)
        assert chosen == Key((i,)).sample(items, count)


def test_sample_keeps_the_order_of_its_items():
    assert Key((1,)).sample([9, 1, 5], 3) == (9, 1, 5)


def test_items_are_sampled_equally_often():
    drawn = [item for i in range(1500) for item in Key((i,)).sample(range(5), 2)]
    for item in range(5):
        assert abs(drawn.count(item) - 600) < 5 * (1500 * 0.4 * 0.6) ** 0.5


def test_sample_larger_than_the_items_is_refused():
    with pytest.raises(ValueError, match="larger sample"):
        Key((1,)).sample([1, 2], 3)
