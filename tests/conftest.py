"""Lets every test import the shared problems, and keeps small tensors on one thread."""

import gc
import os
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent))
torch.set_num_threads(1)
# helpers/power_cut.py records what is synced; the other tests need not wait for the disk
os.fsync = lambda file: None


def pytest_collection_finish() -> None:
    gc.freeze()  # torch's and Flower's own objects stay, and need not be gone through again
