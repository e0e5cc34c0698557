"""Lets every test import the shared problems, and keeps small tensors on one thread."""

import gc
import os
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent))
torch.set_num_threads(1)
# no test cuts the power; processes that tests start wait for the disk as everywhere
os.fsync = lambda file: None


def pytest_collection_finish() -> None:
    gc.freeze()  # torch's and Flower's own objects stay, and need not be gone through again
