from pathlib import Path

import pytest
import torch

from aquila.tasks import data_store
from aquila.tasks.datasets import DATASETS, read_dataset
from helpers.dataset_files import (
    real_data,
    write_cifar10,
    write_cifar100,
    write_fashion_mnist,
    write_wikitext2,
)


def test_load_dataset_knows_every_data_set(tmp_path: Path) -> None:
    write_cifar10(tmp_path)
    write_cifar100(tmp_path)
    write_fashion_mnist(tmp_path / "fashion-mnist", packed=True)
    write_wikitext2(tmp_path)
    assert read_dataset("cifar10", tmp_path).classes == 10
    assert read_dataset("cifar100", str(tmp_path)).classes == 100
    assert read_dataset("fashion_mnist", tmp_path).train[0].shape[1:] == (1, 28, 28)
    assert not torch.equal(
        read_dataset("digits", seed=0).test[0], read_dataset("digits", seed=1).test[0]
    )
    with pytest.raises(ValueError, match="tokens are too few for 100 rows of 64 tokens"):
        read_dataset("wikitext2", tmp_path)
    assert set(DATASETS) >= {"digits", *data_store.SOURCES}


def test_unknown_name_lists_known_names() -> None:
    with pytest.raises(ValueError, match=r"'cifar'; did you mean 'cifar10'\? Known: digits"):
        read_dataset("cifar")


@pytest.mark.parametrize(("name", "per_class"), [("cifar100", 500), ("fashion_mnist", 6000)])
def test_real_images_have_zero_mean_and_unit_deviation(name: str, per_class: int) -> None:
    folder = real_data(name)
    assert data_store.verify(name, folder) == []
    data = read_dataset(name, folder)
    x, y = data.train
    assert torch.bincount(y).tolist() == [per_class] * data.classes
    channels = x.shape[1]
    torch.testing.assert_close(x.mean((0, 2, 3)), torch.zeros(channels), atol=1e-3, rtol=0)
    torch.testing.assert_close(x.std((0, 2, 3)), torch.ones(channels), atol=1e-3, rtol=0)
