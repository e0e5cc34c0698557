import pytest
import torch

from aquila.core.random import Key
from aquila.tasks.partition import by_class, iid

LABELS = torch.arange(1000) % 10


def together(parts):
    return torch.cat(parts).sort().values.tolist()


def test_iid_deals_out_everything_evenly():
    parts = iid(103, 10, Key((0,)))
    assert together(parts) == list(range(103))
    assert {len(part) for part in parts} == {10, 11}


@pytest.mark.parametrize(("devices", "classes"), [(10, 2), (100, 2), (5, 4), (10, 10), (20, 3)])
def test_by_class_gives_each_device_its_classes(devices, classes):
    parts = by_class(LABELS, devices, classes, Key((0,)))
    assert together(parts) == list(range(1000))
    assert all(len(LABELS[part].unique()) == classes for part in parts)
    holders = [sum(label in LABELS[part] for part in parts) for label in range(10)]
    assert set(holders) == {devices * classes // 10}


def test_splits_follow_the_key():
    a, b, c = (by_class(LABELS, 10, 2, Key((seed,))) for seed in (0, 0, 1))
    assert all(torch.equal(x, y) for x, y in zip(a, b, strict=True))
    assert not all(torch.equal(x, y) for x, y in zip(a, c, strict=True))


@pytest.mark.parametrize(
    ("devices", "classes", "problem"),
    [(10, 11, "from 1 to 10"), (10, 0, "from 1 to 10"), (7, 2, "evenly"), (0, 2, "0 devices")],
)
def test_impossible_splits_are_refused(devices, classes, problem):
    with pytest.raises(ValueError, match=problem):
        by_class(LABELS, devices, classes, Key((0,)))


def test_more_devices_than_samples_are_refused():
    with pytest.raises(ValueError, match="3 samples cannot be shared out to 4 devices"):
        iid(3, 4, Key((0,)))
