from pathlib import Path

import numpy as np
import pytest
import torch

from aquila.tasks import data_store
from aquila.tasks.images import (
    CIFAR10_NORMALIZATION,
    FASHION_MNIST_NORMALIZATION,
    Normalization,
    load_cifar10,
    load_cifar100,
    load_fashion_mnist,
    read_idx,
)
from helpers.dataset_files import (
    cifar_batch,
    idx_bytes,
    pack_tar,
    pickled_dictionary,
    random_images,
    real_data,
    write_cifar10,
    write_cifar100,
    write_fashion_mnist,
)


def normalized(images: np.ndarray, normalization: Normalization) -> torch.Tensor:
    """Apply the formula to whole arrays in float64."""
    mean, std = np.array(normalization.mean), np.array(normalization.std)
    shape = (1, -1, 1, 1)
    return torch.from_numpy((images / 255 - mean.reshape(shape)) / std.reshape(shape)).float()


def test_cifar10_is_normalized_and_in_order(tmp_path: Path) -> None:
    batches = write_cifar10(tmp_path)
    data = load_cifar10(tmp_path)
    train = np.concatenate(batches[:5]).reshape(-1, 3, 32, 32)
    torch.testing.assert_close(data.train[0], normalized(train, CIFAR10_NORMALIZATION))
    torch.testing.assert_close(
        data.test[0], normalized(batches[5].reshape(-1, 3, 32, 32), CIFAR10_NORMALIZATION)
    )
    assert data.train[0].dtype == torch.float32
    assert data.train[1].tolist() == [(b + n) % 10 for b in range(5) for n in range(4)]
    assert data.test[1].tolist() == [5, 6, 7, 8]
    assert data.classes == 10


def test_archive_gives_same_data_as_folder(tmp_path: Path) -> None:
    write_cifar10(tmp_path / "folder")
    pack_tar(tmp_path / "folder" / "cifar-10-batches-py", tmp_path / "cifar-10-python.tar.gz")
    folder, archive = load_cifar10(tmp_path / "folder"), load_cifar10(tmp_path)
    assert all(map(torch.equal, folder.train + folder.test, archive.train + archive.test))


def test_cifar100_has_fine_classes(tmp_path: Path) -> None:
    write_cifar100(tmp_path)
    data = load_cifar100(tmp_path)
    assert data.train[0].shape == (3, 3, 32, 32)
    assert data.train[1].tolist() == [99, 0, 50]
    assert data.test[1].tolist() == [7, 8]
    assert data.classes == 100


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("folder", ["fashion-mnist", "FashionMNIST/raw", "."])
def test_fashion_mnist_is_read_compressed_or_not(tmp_path: Path, packed: bool, folder: str) -> None:
    parent = tmp_path / "parent"
    images = write_fashion_mnist(parent / folder, packed)
    data = load_fashion_mnist(parent)
    torch.testing.assert_close(
        data.train[0], normalized(images[:, None], FASHION_MNIST_NORMALIZATION)
    )
    assert data.train[1].tolist() == [9, 0, 1, 2, 3]
    assert data.test[0].shape == (2, 1, 28, 28)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (pickled_dictionary(labels=b"]"), "no images"),
        (cifar_batch(random_images(2)[:, :100], [1, 2]), "no images"),
        (cifar_batch(random_images(2), [1]), "one entry of 'labels' per image"),
        (cifar_batch(random_images(2), [1, 10]), "from 0 to 9"),
        (cifar_batch(random_images(2), [1, 2], "fine_labels"), "one entry of 'labels' per image"),
        (pickled_dictionary(data=b"cos\nsystem\n"), r"uses os\.system"),
    ],
)
def test_invalid_cifar_file_is_named(tmp_path: Path, content: bytes, problem: str) -> None:
    write_cifar10(tmp_path)
    (tmp_path / "cifar-10-batches-py" / "data_batch_3").write_bytes(content)
    with pytest.raises(ValueError, match=rf"data_batch_3: .*{problem}"):
        load_cifar10(tmp_path)


def test_damaged_or_incomplete_archive_is_refused(tmp_path: Path) -> None:
    folder, archive = tmp_path / "f" / "cifar-10-batches-py", tmp_path / "cifar-10-python.tar.gz"
    write_cifar10(tmp_path / "f")
    pack_tar(folder, archive)
    archive.write_bytes(archive.read_bytes()[:9000])
    with pytest.raises(ValueError, match=r"tar\.gz is damaged"):
        load_cifar10(tmp_path)
    (folder / "data_batch_2").unlink()
    pack_tar(folder, archive)
    with pytest.raises(ValueError, match=r"tar\.gz has no data_batch_2"):
        load_cifar10(tmp_path)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "not an idx file"),
        (b"\x00\x00\x0d\x01" + bytes(8), "not an idx file"),
        (b"\x00\x00\x08\x03\x00\x00", "does not match its header"),
        (idx_bytes(np.zeros((2, 3), np.uint8))[:-1], "does not match its header"),
        (idx_bytes(np.zeros((2, 3), np.uint8)) + b"x", "does not match its header"),
        (b"\x00\x00\x08\x03" + b"\xff" * 12 + bytes(100), "does not match its header"),
    ],
)
def test_invalid_idx_file_is_refused(content: bytes, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        read_idx(content)


def test_idx_file_keeps_its_shape() -> None:
    values = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    assert np.array_equal(read_idx(idx_bytes(values)), values)


@pytest.mark.parametrize("wrong", [[0] * 5, [0, 10]])
def test_labels_that_do_not_match_images_are_refused(tmp_path: Path, wrong: list[int]) -> None:
    write_fashion_mnist(tmp_path / "fashion-mnist", packed=False)
    labels = tmp_path / "fashion-mnist" / "t10k-labels-idx1-ubyte"
    labels.write_bytes(idx_bytes(np.array(wrong, np.uint8)))
    with pytest.raises(ValueError, match="t10k images and labels"):
        load_fashion_mnist(tmp_path)


def test_real_cifar10_has_expected_content() -> None:
    folder = real_data("cifar10")
    assert data_store.verify("cifar10", folder) == []
    data = load_cifar10(folder)
    assert data.train[0].shape == (50_000, 3, 32, 32)
    assert torch.bincount(data.train[1]).tolist() == [5000] * 10
    assert torch.bincount(data.test[1]).tolist() == [1000] * 10
    assert data.train[1][:5].tolist() == [6, 9, 9, 4, 1]
    torch.testing.assert_close(data.train[0].mean((0, 2, 3)), torch.zeros(3), atol=1e-3, rtol=0)
