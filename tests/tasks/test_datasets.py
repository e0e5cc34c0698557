from pathlib import Path

import pytest
import torch

from aquila.tasks import data_store
from aquila.tasks.datasets import DATASETS, load_dataset
from helpers.dataset_files import (
    real_data,
    write_cifar10,
    write_cifar100,
    write_fashion_mnist,
    write_wikitext2,
)


def test_load_knows_every_set(tmp_path: Path) -> None:
    write_cifar10(tmp_path)
    write_cifar100(tmp_path)
    write_fashion_mnist(tmp_path / "fashion-mnist", packed=True)
    write_wikitext2(tmp_path)
    assert load_dataset("cifar10", tmp_path).classes == 10
    assert load_dataset("cifar100", str(tmp_path)).classes == 100
    assert load_dataset("fashion_mnist", tmp_path).train[0].shape[1:] == (1, 28, 28)
    assert not torch.equal(
        load_dataset("digits", seed=0).test[0], load_dataset("digits", seed=1).test[0]
    )
    with pytest.raises(ValueError, match="tokens do not fill 100 rows of 64"):
        load_dataset("wikitext2", tmp_path)
    assert set(DATASETS) >= {"digits", *data_store.SOURCES}


def test_unknown_sets_are_told_what_exists() -> None:
    with pytest.raises(ValueError, match=r"'cifar'; did you mean 'cifar10'\? Known: digits"):
        load_dataset("cifar")


@pytest.mark.parametrize(("name", "each"), [("cifar100", 500), ("fashion_mnist", 6000)])
def test_real_sets_have_mean_zero_and_deviation_one(name: str, each: int) -> None:
    place = real_data(name)
    assert data_store.verify(name, place) == []
    data = load_dataset(name, place)
    x, y = data.train
    assert torch.bincount(y).tolist() == [each] * data.classes
    channels = x.shape[1]
    torch.testing.assert_close(x.mean((0, 2, 3)), torch.zeros(channels), atol=1e-3, rtol=0)
    torch.testing.assert_close(x.std((0, 2, 3)), torch.ones(channels), atol=1e-3, rtol=0)
