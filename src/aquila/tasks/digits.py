"""UCI digits: 1,797 images of 8 x 8 pixels, included in the package.

Source: E. Alpaydin and C. Kaynak, Optical Recognition of Handwritten Digits, UCI Machine Learning
Repository, 1998, https://doi.org/10.24432/C50P49, CC BY 4.0. These are the images of its test set,
which scikit-learn includes too.
"""

from importlib.resources import files

import numpy as np
import torch

from aquila.core.random import Key, Purpose
from aquila.tasks.dataset import Dataset

TEST_SAMPLES = 360
MAX_PIXEL = 16


def load_digits(seed: int = 0) -> Dataset:
    """Load 1,437 training and 360 test images. The seed chooses the test images."""
    with (files("aquila.tasks") / "resources" / "digits.npz").open("rb") as file:
        arrays = np.load(file, allow_pickle=False)
        images, labels = arrays["images"], arrays["labels"]
    x = torch.from_numpy(images).reshape(len(images), -1).float() / MAX_PIXEL
    y = torch.from_numpy(labels).long()
    order = torch.randperm(len(x), generator=Key((seed, Purpose.HOLD_OUT)).torch())
    test, train = order[:TEST_SAMPLES], order[TEST_SAMPLES:]
    return Dataset((x[train], y[train]), (x[test], y[test]), classes=10)
