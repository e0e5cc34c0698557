"""All data sets by name."""

from collections.abc import Callable
from pathlib import Path

from aquila.core.parameter import spelling_hint
from aquila.tasks.dataset import Dataset
from aquila.tasks.digits import load_digits
from aquila.tasks.images import load_cifar10, load_cifar100, load_fashion_mnist
from aquila.tasks.synthetic import synthetic_images, synthetic_texts
from aquila.tasks.text import load_wikitext2

DATASETS: dict[str, Callable[[Path | None, int], Dataset]] = {
    "digits": lambda folder, seed: load_digits(seed),
    "fashion_mnist": lambda folder, seed: load_fashion_mnist(folder),
    "cifar10": lambda folder, seed: load_cifar10(folder),
    "cifar100": lambda folder, seed: load_cifar100(folder),
    "wikitext2": lambda folder, seed: load_wikitext2(folder),
    "synthetic_fashion_mnist": lambda folder, seed: synthetic_images("fashion_mnist", seed),
    "synthetic_cifar10": lambda folder, seed: synthetic_images("cifar10", seed),
    "synthetic_cifar100": lambda folder, seed: synthetic_images("cifar100", seed),
    "synthetic_wikitext2": lambda folder, seed: synthetic_texts(seed),
}


def read_dataset(name: str, folder: Path | str | None = None, seed: int = 0) -> Dataset:
    """Load a data set. An unknown name raises ValueError with the known names.

    Args:
        name: A key of `DATASETS`.
        folder: The only folder to search. Default: the folders of the data store.
        seed: Splits the digits into training and test samples, and generates synthetic data. The
            other data sets have a fixed split.
    """
    if name not in DATASETS:
        raise ValueError(f"there is no data set {name!r}{spelling_hint(name, DATASETS)}")
    return DATASETS[name](None if folder is None else Path(folder), seed)
