"""Synthetic data in the shapes of the real data sets, for trials without a download.

An image is the random pattern of its class plus noise. A text repeats short random phrases. Models
learn both, but their results say nothing about the real data.
"""

import torch

from aquila.core.random import Key, Purpose
from aquila.tasks.dataset import Dataset, Samples

TRAIN_SAMPLES, TEST_SAMPLES = 2000, 500
NOISE = 1.0
VOCABULARY_SIZE, PHRASES, LENGTH = 500, 40, 64

IMAGE_SHAPES = {
    "cifar10": (3, 32, 32, 10),
    "cifar100": (3, 32, 32, 100),
    "fashion_mnist": (1, 28, 28, 10),
}


def synthetic_images(name: str, seed: int) -> Dataset:
    """Return synthetic images in the shape of a real data set."""
    *shape, classes = IMAGE_SHAPES[name]
    generator = Key((seed, Purpose.SYNTHETIC)).torch()
    patterns = torch.randn(classes, *shape, generator=generator)

    def samples(count: int) -> Samples:
        y = torch.arange(count) % classes
        return patterns[y] + NOISE * torch.randn(count, *shape, generator=generator), y

    return Dataset(samples(TRAIN_SAMPLES), samples(TEST_SAMPLES), classes)


def synthetic_texts(seed: int) -> Dataset:
    """Return sequences of token ids that repeat random phrases."""
    generator = Key((seed, Purpose.SYNTHETIC)).torch()
    phrases = torch.randint(0, VOCABULARY_SIZE, (PHRASES, 8), generator=generator)

    def samples(count: int) -> Samples:
        chosen = torch.randint(0, PHRASES, (count, LENGTH // 8), generator=generator)
        rows = phrases[chosen].reshape(count, LENGTH)
        return rows, rows

    return Dataset(samples(TRAIN_SAMPLES), samples(TEST_SAMPLES), VOCABULARY_SIZE)
