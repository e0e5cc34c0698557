"""Image data sets: CIFAR-10, CIFAR-100 (Krizhevsky, 2009), Fashion-MNIST (Xiao et al., 2017).

Images are float32 tensors (channel, row, column). Each channel is normalized by its mean and
standard deviation. CIFAR-10 uses the numbers of HeteroFL (Diao et al., ICLR 2021). The other two
use the statistics of their training pixels.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from aquila.core.random import Key
from aquila.tasks.data_store import find_required
from aquila.tasks.dataset import Dataset, Samples
from aquila.tasks.safe_pickle import read_pickle

Bytes = npt.NDArray[np.uint8]
Labels = npt.NDArray[np.int64]

CIFAR_SHAPE = (3, 32, 32)
IDX_UINT8_CODE = 8
"""The type code of the only supported kind of idx file."""


@dataclass(frozen=True)
class Normalization:
    """Mean and standard deviation per channel, for pixels from 0 to 1."""

    mean: tuple[float, ...]
    std: tuple[float, ...]

    @property
    def black(self) -> tuple[float, ...]:
        """The values of a black pixel after normalization."""
        return tuple(-m / s for m, s in zip(self.mean, self.std, strict=True))

    def apply(self, images: torch.Tensor) -> torch.Tensor:
        """Return uint8 images as normalized float32, on the same torch device."""
        mean, std = (
            torch.tensor(numbers, device=images.device).view(-1, 1, 1)
            for numbers in (self.mean, self.std)
        )
        # in place, because CIFAR takes 700 MiB as float32
        return images.float().div_(255).sub_(mean).div_(std)


CIFAR10_NORMALIZATION = Normalization((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010))
CIFAR100_NORMALIZATION = Normalization((0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762))
FASHION_MNIST_NORMALIZATION = Normalization((0.2860,), (0.3530,))


def load_cifar10(folder: Path | None = None) -> Dataset:
    """Load 50,000 training and 10,000 test images of 3 x 32 x 32 in 10 classes."""
    files = find_required("cifar10", folder).read(
        lambda content: _cifar_batch(content, "labels", 10)
    )
    test = [files.pop("test_batch")]
    return _dataset(list(files.values()), test, CIFAR10_NORMALIZATION, 10)


def load_cifar100(folder: Path | None = None) -> Dataset:
    """Load 50,000 training and 10,000 test images of 3 x 32 x 32 in 100 fine classes."""
    files = find_required("cifar100", folder).read(
        lambda content: _cifar_batch(content, "fine_labels", 100)
    )
    return _dataset([files["train"]], [files["test"]], CIFAR100_NORMALIZATION, 100)


def load_fashion_mnist(folder: Path | None = None) -> Dataset:
    """Load 60,000 training and 10,000 test images of 1 x 28 x 28 in 10 classes."""
    files = find_required("fashion_mnist", folder).read(read_idx)
    train, test = (_fashion_batch(files, part) for part in ("train", "t10k"))
    return _dataset([train], [test], FASHION_MNIST_NORMALIZATION, 10)


def read_idx(content: bytes) -> Bytes:
    """Return the uint8 array in an idx file, the format of MNIST."""
    if len(content) < 4 or content[:3] != bytes([0, 0, IDX_UINT8_CODE]):
        raise ValueError("this is not an idx file of uint8 values")
    dimensions = content[3]
    start = 4 + 4 * dimensions
    if len(content) >= start:
        shape = struct.unpack(f">{dimensions}I", content[4:start])
        values = np.frombuffer(content, np.uint8, offset=start)
        if len(values) == np.prod(shape, dtype=object):
            return values.reshape(shape)
    raise ValueError("the length of this idx file does not match its header")


def augment(
    images: torch.Tensor, key: Key, fill: Sequence[float] = (0.0,), padding: int = 4
) -> torch.Tensor:
    """Return a random crop of each padded image, mirrored with probability 1/2.

    Args:
        images: Images (image, channel, row, column).
        key: Determines the draws, so CPU and GPU draw the same.
        fill: The padding value of each channel. HeteroFL pads with `Normalization.black`.
        padding: The largest shift in pixels, along each axis.
    """
    count, _, height, width = images.shape
    padded = _pad(images, tuple(fill), padding)
    down, right, direction = _draw_moves(images, key, padding)
    number, across = (torch.arange(n, device=images.device) for n in (count, width))
    rows = down[:, None] + torch.arange(height, device=images.device)
    columns = torch.addcmul(right[:, None], direction[:, None], across)
    crops = padded[number[:, None, None], rows[:, :, None], columns[:, None, :]]
    return crops.permute(0, 3, 1, 2)


def _pad(images: torch.Tensor, fill: tuple[float, ...], padding: int) -> torch.Tensor:
    """Return padded images in the order (image, row, column, channel)."""
    count, channels, height, width = images.shape
    padded = images.new_empty(count, height + 2 * padding, width + 2 * padding, channels)
    padded.copy_(_values(fill, images.dtype, images.device))
    inner = padded[:, padding : padding + height, padding : padding + width]
    inner.copy_(images.permute(0, 2, 3, 1))
    return padded


@cache
def _values(numbers: tuple[float, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Return numbers as a tensor, which is kept: a GPU would wait for the copy of a new one."""
    return torch.tensor(numbers, dtype=dtype, device=device)


def _draw_moves(images: torch.Tensor, key: Key, padding: int) -> torch.Tensor:
    """Return the first row and column of each crop in its padded image, and its direction.

    A mirrored crop starts at its last column and has direction -1. The draws are copied to a GPU
    without waiting for it.
    """
    count, width, rng = len(images), images.shape[3], key.numpy()
    moves = torch.empty(3, count, dtype=torch.int64, pin_memory=images.is_cuda)
    down, right, direction = moves.numpy()
    for shift in (down, right):
        shift[:] = padding + rng.integers(-padding, padding, count, endpoint=True)
    direction[:] = 1 - 2 * (rng.random(count) < 0.5)
    right[direction < 0] += width - 1
    return moves.to(images.device, non_blocking=True)


def _cifar_batch(content: bytes, label_key: str, classes: int) -> tuple[Bytes, Labels]:
    entries = read_pickle(content)
    images, labels = entries.get("data"), entries.get(label_key)
    if not isinstance(images, np.ndarray) or images.shape[1:] != (int(np.prod(CIFAR_SHAPE)),):
        raise ValueError("it has no images of 3 x 32 x 32")
    if not isinstance(labels, list) or len(labels) != len(images):
        raise ValueError(f"it does not have one entry of {label_key!r} per image")
    if not all(isinstance(label, int) and 0 <= label < classes for label in labels):
        raise ValueError(f"{label_key!r} must be from 0 to {classes - 1}")
    return images.reshape(-1, *CIFAR_SHAPE), np.array(labels, np.int64)


def _fashion_batch(files: dict[str, Bytes], part: str) -> tuple[Bytes, Labels]:
    images, labels = files[f"{part}-images-idx3-ubyte"], files[f"{part}-labels-idx1-ubyte"]
    if images.ndim != 3 or labels.shape != images.shape[:1] or labels.max(initial=0) > 9:
        raise ValueError(f"the {part} images and labels of Fashion-MNIST do not match")
    return images[:, None], labels.astype(np.int64)


def _dataset(
    train: list[tuple[Bytes, Labels]],
    test: list[tuple[Bytes, Labels]],
    normalization: Normalization,
    classes: int,
) -> Dataset:
    return Dataset(_samples(train, normalization), _samples(test, normalization), classes)


def _samples(batches: list[tuple[Bytes, Labels]], normalization: Normalization) -> Samples:
    images, labels = (np.concatenate(parts) for parts in zip(*batches, strict=True))
    return normalization.apply(torch.from_numpy(images)), torch.from_numpy(labels)
