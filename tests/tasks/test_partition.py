import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from aquila.core.random import Key
from aquila.tasks.partition import (
    blocks,
    by_class,
    by_user,
    class_counts,
    dirichlet,
    iid,
    unequal,
)

LABELS = torch.arange(1000) % 10


def all_samples(parts):
    return torch.cat(parts).sort().values.tolist()


def test_iid_splits_all_samples_evenly():
    parts = iid(103, 10, Key((0,)))
    assert all_samples(parts) == list(range(103))
    assert {len(part) for part in parts} == {10, 11}


@pytest.mark.parametrize(("devices", "classes"), [(10, 2), (100, 2), (5, 4), (10, 10), (20, 3)])
def test_by_class_gives_each_device_its_number_of_classes(devices, classes):
    parts = by_class(LABELS, devices, classes, Key((0,)))
    assert all_samples(parts) == list(range(1000))
    assert all(len(LABELS[part].unique()) == classes for part in parts)
    holders = [sum(label in LABELS[part] for part in parts) for label in range(10)]
    assert set(holders) == {devices * classes // 10}


def test_by_class_depends_on_key():
    a, b, c = (by_class(LABELS, 10, 2, Key((seed,))) for seed in (0, 0, 1))
    assert all(torch.equal(x, y) for x, y in zip(a, b, strict=True))
    assert not all(torch.equal(x, y) for x, y in zip(a, c, strict=True))


@pytest.mark.parametrize(
    ("devices", "classes", "problem"),
    [(10, 11, "from 1 to 10"), (10, 0, "from 1 to 10"), (7, 2, "evenly"), (0, 2, "0 devices")],
)
def test_impossible_split_by_class_is_refused(devices, classes, problem):
    with pytest.raises(ValueError, match=problem):
        by_class(LABELS, devices, classes, Key((0,)))


def test_more_devices_than_samples_are_refused():
    with pytest.raises(ValueError, match="3 samples cannot be split among 4 devices"):
        iid(3, 4, Key((0,)))


def test_split_by_class_with_empty_device_is_refused():
    with pytest.raises(
        ValueError, match="12 samples are too few: some of the 10 devices would get none"
    ):
        by_class(torch.tensor([0] * 11 + [1]), 10, 1, Key((0,)))


def numbers(parts):
    return [part.tolist() for part in parts]


@given(
    labels=st.lists(st.integers(0, 12), min_size=1, max_size=80),
    devices=st.integers(1, 80),
    number=st.floats(0.001, 50),
    seed=st.integers(0, 2**32),
)
def test_every_sample_goes_to_one_device_and_no_device_is_empty(labels, devices, number, seed):
    devices = min(devices, len(labels))
    labels, key = torch.tensor(labels), Key((seed,))
    samples = len(labels)
    count = devices + seed % (samples - devices + 1)
    users = torch.arange(samples) % count - 3
    for parts in (
        dirichlet(labels, devices, number, key),
        unequal(samples, devices, key, number),
        blocks(samples, devices, count, key),
        by_user(users, devices, key),
    ):
        assert all_samples(parts) == list(range(samples))
        assert len(parts) == devices
        assert min(map(len, parts)) > 0
        assert all(torch.equal(part, part.sort().values) for part in parts)


def test_smaller_alpha_gives_more_uneven_classes():
    def largest_fractions(alpha):
        counts = class_counts(LABELS, dirichlet(LABELS, 10, alpha, Key((0,))), 10)
        return [max(column) / 100 for column in zip(*counts, strict=True)]

    assert max(largest_fractions(1e6)) < 0.12
    assert min(largest_fractions(1e-3)) > 0.9
    assert sum(largest_fractions(0.1)) > sum(largest_fractions(1.0)) > sum(largest_fractions(100.0))


def test_dirichlet_has_the_variance_of_its_distribution():
    # a component of Dir(alpha, ..., alpha) over M devices has variance
    # (M - 1) / (M^2 (M alpha + 1))
    labels, devices, alpha = torch.zeros(10_000, dtype=torch.long), 5, 0.5
    sizes = [
        [len(part) / 10_000 for part in dirichlet(labels, devices, alpha, Key((seed,)))]
        for seed in range(400)
    ]
    fractions = torch.tensor(sizes, dtype=torch.float64)
    expected = (devices - 1) / (devices**2 * (devices * alpha + 1))
    assert float(fractions.var()) == pytest.approx(expected, rel=0.1)
    torch.testing.assert_close(fractions.mean(0), torch.full((5,), 0.2).double(), atol=0.04, rtol=0)


def test_dirichlet_shuffles_each_class():
    first, _ = dirichlet(torch.zeros(1000, dtype=torch.long), 2, 1e6, Key((0,)))
    assert 200 < int((first < 500).sum()) < 300


def test_by_user_does_not_split_users():
    users = torch.tensor([7, -2, 7, 30, 30, 30, -2, 5])
    parts = by_user(users, 2, Key((0,)))
    held = [set(users[part].tolist()) for part in parts]
    assert held[0] | held[1] == {7, -2, 30, 5}
    assert not held[0] & held[1]
    assert {len(names) for names in held} == {2}
    one_user_each = by_user(users, 4, Key((0,)))
    assert sorted(numbers(one_user_each)) == [[0, 2], [1, 6], [3, 4, 5], [7]]


def test_blocks_are_whole_and_equal():
    parts = blocks(600, 4, 6, Key((0,)))
    assert sorted(map(len, parts)) == [100, 100, 200, 200]
    runs = sorted(run for part in parts for run in part.reshape(-1, 100).tolist())
    assert runs == torch.arange(600).reshape(6, 100).tolist()


def test_larger_spread_gives_more_unequal_sizes():
    sizes = {s: [len(p) for p in unequal(10_000, 50, Key((0,)), s)] for s in (0, 0.5, 2, 100)}
    assert set(sizes[0]) == {200}
    assert 200 < max(sizes[0.5]) < max(sizes[2])
    assert max(sizes[100]) > 9000
    logs = torch.tensor(sizes[0.5], dtype=torch.float64).log()
    assert float(logs.std()) == pytest.approx(0.5, abs=0.12)


def test_class_counts_per_device():
    counts = class_counts(
        torch.tensor([0, 2, 2, 1]), [torch.tensor([1, 2]), torch.tensor([0, 3])], 4
    )
    assert counts == [[0, 0, 2, 0], [1, 1, 0, 0]]
